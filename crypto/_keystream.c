/* Masks drawn and added in one pass, where the processor has wide AES instructions (VAES with AVX-512).
 *
 * The same words as crypto/prg.py makes with the platform's cryptographic library: block j of piece p of a mask is
 * AES-128(key, p as 12 bytes || j + 2 as 4 bytes, big-endian). That library needs one pass per mask, an authenticator that
 * nobody reads, and a second pass to add; here 512 bytes of the sum stay in registers while every mask's blocks are made and
 * added to them. AES instructions take the same time whatever the key. Round keys are wiped before returning.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define VERSION 1 /* of what the functions take and do; crypto/prg.py names the one that it wants */
#define PIECE_WORDS 32768

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : defined(__GNUC__) && __GNUC__ >= 9)
#include <immintrin.h>
#define WIDE __attribute__((target("aes,vaes,avx512f,avx512bw")))
#define GROUP 8                    /* registers of four blocks each: enough to hide an AES instruction's latency */
#define GROUP_WORDS (GROUP * 8)
#define GROUP_BLOCKS (GROUP * 4)

typedef struct {
    __m128i round[11];
    int subtract;
} Mask;

static int supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx512f")
           && __builtin_cpu_supports("avx512bw");
}

WIDE static __m128i next_key(__m128i key, __m128i assist)
{
    assist = _mm_shuffle_epi32(assist, 0xFF);
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8)); /* together: the sum of all words up to each */
    return _mm_xor_si128(key, assist);
}

WIDE static void expand(const unsigned char *key, __m128i *round)
{
    __m128i k = _mm_loadu_si128((const __m128i *)key);
    round[0] = k;
#define ROUND(i, constant) round[i] = k = next_key(k, _mm_aeskeygenassist_si128(k, constant))
    ROUND(1, 0x01); ROUND(2, 0x02); ROUND(3, 0x04); ROUND(4, 0x08); ROUND(5, 0x10);
    ROUND(6, 0x20); ROUND(7, 0x40); ROUND(8, 0x80); ROUND(9, 0x1B); ROUND(10, 0x36);
#undef ROUND
}

/* Add every mask's blocks `first` … `first` + 31 of a piece to 64 words. */
WIDE static inline void add_group(uint64_t *words, const Mask *masks, Py_ssize_t count, uint64_t piece, uint32_t first)
{
    /* In each block, words of 32 bits: 0, piece (high, low), counter; then every word into big-endian order. */
    const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    const __m512i fixed = _mm512_broadcast_i32x4(_mm_set_epi32((int)first, (int)piece, (int)(piece >> 32), 0));
    const __m512i four = _mm512_set_epi32(3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0);
    __m512i sum[GROUP], counter[GROUP], state[GROUP];
    for (int i = 0; i < GROUP; i++) {
        const __m512i ahead = _mm512_broadcast_i32x4(_mm_set_epi32(4 * i, 0, 0, 0));
        counter[i] = _mm512_shuffle_epi8(_mm512_add_epi32(_mm512_add_epi32(fixed, four), ahead), swap);
        sum[i] = _mm512_loadu_si512(words + 8 * i);
    }
    for (Py_ssize_t m = 0; m < count; m++) {
        __m512i key = _mm512_broadcast_i32x4(masks[m].round[0]);
        for (int i = 0; i < GROUP; i++)
            state[i] = _mm512_xor_si512(counter[i], key);
        for (int r = 1; r < 10; r++) {
            key = _mm512_broadcast_i32x4(masks[m].round[r]);
            for (int i = 0; i < GROUP; i++)
                state[i] = _mm512_aesenc_epi128(state[i], key);
        }
        key = _mm512_broadcast_i32x4(masks[m].round[10]);
        for (int i = 0; i < GROUP; i++)
            state[i] = _mm512_aesenclast_epi128(state[i], key);
        if (masks[m].subtract)
            for (int i = 0; i < GROUP; i++)
                sum[i] = _mm512_sub_epi64(sum[i], state[i]);
        else
            for (int i = 0; i < GROUP; i++)
                sum[i] = _mm512_add_epi64(sum[i], state[i]);
    }
    for (int i = 0; i < GROUP; i++)
        _mm512_storeu_si512(words + 8 * i, sum[i]);
}

WIDE static void add_all(uint64_t *words, Py_ssize_t n, const Mask *masks, Py_ssize_t count, uint64_t piece)
{
    for (; n > 0; words += PIECE_WORDS, n -= PIECE_WORDS, piece++) {
        const Py_ssize_t here = n < PIECE_WORDS ? n : PIECE_WORDS;
        Py_ssize_t at = 0;
        uint32_t block = 2;
        for (; at + GROUP_WORDS <= here; at += GROUP_WORDS, block += GROUP_BLOCKS)
            add_group(words + at, masks, count, piece, block);
        if (at < here) { /* the end of the vector */
            uint64_t rest[GROUP_WORDS] = {0};
            memcpy(rest, words + at, (size_t)(here - at) * 8);
            add_group(rest, masks, count, piece, block);
            memcpy(words + at, rest, (size_t)(here - at) * 8);
        }
    }
}

static int draw_and_add(uint64_t *words, Py_ssize_t n, const unsigned char *keys, const signed char *signs,
                        Py_ssize_t count, uint64_t piece)
{
    char *room = malloc((size_t)count * sizeof(Mask) + 64);
    if (!room)
        return -1;
    Mask *masks = (Mask *)(room + (64 - (uintptr_t)room % 64));
    for (Py_ssize_t m = 0; m < count; m++) {
        expand(keys + 16 * m, masks[m].round);
        masks[m].subtract = signs[m] < 0;
    }
    add_all(words, n, masks, count, piece);
    volatile unsigned char *wiped = (volatile unsigned char *)masks;
    for (size_t i = 0; i < (size_t)count * sizeof(Mask); i++)
        wiped[i] = 0;
    free(room);
    return 0;
}

#else

static int supported(void) { return 0; }
static int draw_and_add(uint64_t *words, Py_ssize_t n, const unsigned char *keys, const signed char *signs,
                        Py_ssize_t count, uint64_t piece) { return -1; }

#endif

/* add(words, keys, signs, first_piece): 16 bytes of key and one of sign (1, or 255 to subtract) per mask */
static PyObject *add(PyObject *self, PyObject *args)
{
    Py_buffer words, keys, signs;
    unsigned long long piece;
    PyObject *result = NULL;
    int failed;
    (void)self;
    if (!PyArg_ParseTuple(args, "w*y*y*K", &words, &keys, &signs, &piece))
        return NULL;
    const signed char *sign = signs.buf;
    int known = 1;
    for (Py_ssize_t m = 0; m < signs.len; m++)
        known &= sign[m] == 1 || sign[m] == -1;
    if (words.len % 8 || (uintptr_t)words.buf % 8 || keys.len != 16 * signs.len || !known) {
        PyErr_SetString(PyExc_ValueError, "masks are added to aligned 64-bit words, with one key and one sign each");
    } else if (!supported()) {
        PyErr_SetString(PyExc_RuntimeError, "this processor has no wide AES instructions");
    } else {
        Py_BEGIN_ALLOW_THREADS
        failed = draw_and_add(words.buf, words.len / 8, keys.buf, sign, signs.len, piece);
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&signs);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&words);
    return result;
}

static PyObject *is_supported(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyBool_FromLong(supported());
}

static PyMethodDef METHODS[] = {
    {"add", add, METH_VARARGS, "Add masks to words in place, modulo 2**64."},
    {"supported", is_supported, METH_NOARGS, "Whether this processor has the instructions."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_keystream", "See crypto/prg.py.", 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__keystream(void)
{
    PyObject *module = PyModule_Create(&MODULE);
    if (module && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
