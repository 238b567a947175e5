/* Masks drawn and added in one pass, with the processor's AES instructions: four blocks at once (VAES with AVX-512), two
 * (VAES with AVX2) or one (AES-NI), whichever is the widest that it has.
 *
 * The same words as crypto/prg.py makes with the platform's cryptographic library: block j of piece p of a mask is
 * AES-128(key, p as 12 bytes || j + 2 as 4 bytes, big-endian). That library needs one pass per mask, an authenticator that
 * nobody reads, and a second pass to add; here a few hundred bytes of the sum stay at hand while every mask's blocks are made
 * and added to them. AES instructions take the same time whatever the key. Round keys are wiped before returning.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define VERSION 2 /* of what the functions take and do; crypto/prg.py names the one that it wants */
#define PIECE_WORDS 32768

#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 9 : defined(__GNUC__) && __GNUC__ >= 9)
#include <immintrin.h>

typedef struct {
    __m128i round[11];
    int subtract;
} Mask;

/* Whether so many blocks at once are possible here. */
static int supported(int blocks)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("sse4.1"))
        return 0;
    switch (blocks) {
    case 4:
        return __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    case 2:
        return __builtin_cpu_supports("vaes") && __builtin_cpu_supports("avx2");
    default:
        return blocks == 1;
    }
}

__attribute__((target("aes,sse4.1"))) static __m128i next_key(__m128i key, __m128i assist)
{
    assist = _mm_shuffle_epi32(assist, 0xFF);
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8)); /* together: the sum of all words up to each */
    return _mm_xor_si128(key, assist);
}

__attribute__((target("aes,sse4.1"))) static void expand(const unsigned char *key, __m128i *round)
{
    __m128i k = _mm_loadu_si128((const __m128i *)key);
    round[0] = k;
#define ROUND(i, constant) round[i] = k = next_key(k, _mm_aeskeygenassist_si128(k, constant))
    ROUND(1, 0x01); ROUND(2, 0x02); ROUND(3, 0x04); ROUND(4, 0x08); ROUND(5, 0x10);
    ROUND(6, 0x20); ROUND(7, 0x40); ROUND(8, 0x80); ROUND(9, 0x1B); ROUND(10, 0x36);
#undef ROUND
}

#define NAME(f) f##_4
#define TARGET __attribute__((target("aes,vaes,avx512f,avx512bw")))
#define BLOCKS 4
#define VECTOR __m512i
#define LOAD(p) _mm512_loadu_si512(p)
#define STORE(p, v) _mm512_storeu_si512(p, v)
#define SPREAD(block) _mm512_broadcast_i32x4(block)
#define ADD32 _mm512_add_epi32
#define ADD64 _mm512_add_epi64
#define SUB64 _mm512_sub_epi64
#define XOR _mm512_xor_si512
#define SHUFFLE _mm512_shuffle_epi8
#define AESENC _mm512_aesenc_epi128
#define AESENCLAST _mm512_aesenclast_epi128
#include "_keystream_group.h"

#define NAME(f) f##_2
#define TARGET __attribute__((target("aes,vaes,avx2")))
#define BLOCKS 2
#define VECTOR __m256i
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define SPREAD(block) _mm256_broadcastsi128_si256(block)
#define ADD32 _mm256_add_epi32
#define ADD64 _mm256_add_epi64
#define SUB64 _mm256_sub_epi64
#define XOR _mm256_xor_si256
#define SHUFFLE _mm256_shuffle_epi8
#define AESENC _mm256_aesenc_epi128
#define AESENCLAST _mm256_aesenclast_epi128
#include "_keystream_group.h"

#define NAME(f) f##_1
#define TARGET __attribute__((target("aes,sse4.1")))
#define BLOCKS 1
#define VECTOR __m128i
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define SPREAD(block) (block)
#define ADD32 _mm_add_epi32
#define ADD64 _mm_add_epi64
#define SUB64 _mm_sub_epi64
#define XOR _mm_xor_si128
#define SHUFFLE _mm_shuffle_epi8
#define AESENC _mm_aesenc_si128
#define AESENCLAST _mm_aesenclast_si128
#include "_keystream_group.h"

static int draw_and_add(uint64_t *words, Py_ssize_t n, const unsigned char *keys, const signed char *signs,
                        Py_ssize_t count, uint64_t piece, int blocks)
{
    char *room = malloc((size_t)count * sizeof(Mask) + 64);
    if (!room)
        return -1;
    Mask *masks = (Mask *)(room + (64 - (uintptr_t)room % 64));
    for (Py_ssize_t m = 0; m < count; m++) {
        expand(keys + 16 * m, masks[m].round);
        masks[m].subtract = signs[m] < 0;
    }
    if (blocks == 4)
        add_all_4(words, n, masks, count, piece);
    else if (blocks == 2)
        add_all_2(words, n, masks, count, piece);
    else
        add_all_1(words, n, masks, count, piece);
    volatile unsigned char *wiped = (volatile unsigned char *)masks;
    for (size_t i = 0; i < (size_t)count * sizeof(Mask); i++)
        wiped[i] = 0;
    free(room);
    return 0;
}

#else

static int supported(int blocks) { return 0; }
static int draw_and_add(uint64_t *words, Py_ssize_t n, const unsigned char *keys, const signed char *signs,
                        Py_ssize_t count, uint64_t piece, int blocks) { return -1; }

#endif

/* add(words, keys, signs, first_piece, blocks): 16 bytes of key and one of sign (1, or 255 to subtract) per mask */
static PyObject *add(PyObject *self, PyObject *args)
{
    Py_buffer words, keys, signs;
    unsigned long long piece;
    PyObject *result = NULL;
    int failed, blocks;
    (void)self;
    if (!PyArg_ParseTuple(args, "w*y*y*Ki", &words, &keys, &signs, &piece, &blocks))
        return NULL;
    const signed char *sign = signs.buf;
    int known = 1;
    for (Py_ssize_t m = 0; m < signs.len; m++)
        known &= sign[m] == 1 || sign[m] == -1;
    if (words.len % 8 || (uintptr_t)words.buf % 8 || keys.len != 16 * signs.len || !known) {
        PyErr_SetString(PyExc_ValueError, "masks are added to aligned 64-bit words, with one key and one sign each");
    } else if (!supported(blocks)) {
        PyErr_Format(PyExc_RuntimeError, "this processor has no instructions for %d AES blocks at once", blocks);
    } else {
        Py_BEGIN_ALLOW_THREADS
        failed = draw_and_add(words.buf, words.len / 8, keys.buf, sign, signs.len, piece,
                              blocks);
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
    }
    PyBuffer_Release(&signs);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&words);
    return result;
}

static PyObject *widest(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return PyLong_FromLong(supported(4) ? 4 : supported(2) ? 2 : supported(1));
}

static PyMethodDef METHODS[] = {
    {"add", add, METH_VARARGS, "Add masks to words in place, modulo 2**64."},
    {"widest", widest, METH_NOARGS, "How many AES blocks this processor can make at once: 4, 2, 1, or 0 without AES."},
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
