/* The loops of crypto/lanes.py in C: the same words and floats, bit for bit, in one pass each.
 *
 * Plain loops that the compiler turns into vector instructions. Nothing here may be compiled with -ffast-math or with
 * contraction of a*b+c into one rounding (-ffp-contract=off): results would differ from numpy's in the last bit, and
 * crypto/lanes.py would refuse the kernel when it compares the two on import. Every function checks the type, size and
 * alignment of every buffer, and releases the interpreter lock while it works.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "floats are computed in another precision than declared; numpy is used instead"
#endif

/* One copy of each loop per generation of vector instructions, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#if defined(__GNUC__)
#define ALWAYS inline __attribute__((always_inline))
#else
#define ALWAYS inline
#endif

#define VERSION 3 /* of what the functions take and do; crypto/lanes.py names the one that it wants */

static const double MAGIC = 4503599627370496.0; /* 2**52: added, it leaves the integer part in the low bits */
static const uint64_t MAGIC_BITS = (uint64_t)0x433 << 52;
static const float MAGIC_SINGLE = 8388608.0f; /* 2**23, the same for float */
static const uint32_t MAGIC_SINGLE_BITS = 0x4B000000u;

/* The loops */

CLONES static uint32_t largest(const uint32_t *bits, Py_ssize_t n)
{
    uint32_t most = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint32_t b = bits[i] & 0x7FFFFFFFu;
        most = b > most ? b : most;
    }
    return most;
}

/* A scaled value, clipped (-steps where it is no number), offset and rounded: 0 … 2 * steps. */
ALWAYS static uint64_t whole_single(float v, float steps)
{
    uint32_t bits;
    v = v > -steps ? v : -steps;
    v = v < steps ? v : steps;
    v += MAGIC_SINGLE + steps;
    memcpy(&bits, &v, sizeof bits);
    return bits - MAGIC_SINGLE_BITS;
}

ALWAYS static uint64_t whole_double(double v, double steps)
{
    uint64_t bits;
    v = v > -steps ? v : -steps;
    v = v < steps ? v : steps;
    v += MAGIC + steps;
    memcpy(&bits, &v, sizeof bits);
    return bits - MAGIC_BITS;
}

CLONES static void pack_single(const float *restrict x, uint64_t *restrict out, Py_ssize_t n, float scale, float steps,
                               int shift)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t word = whole_single(x[i] * scale, steps) << shift;
        out[i] = shift ? out[i] + word : word;
    }
}

CLONES static void pack_double(const float *restrict x, uint64_t *restrict out, Py_ssize_t n, double scale,
                               double steps, int shift)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t word = whole_double((double)x[i] * scale, steps) << shift;
        out[i] = shift ? out[i] + word : word;
    }
}

CLONES static void pack_dice(const float *restrict x, const uint32_t *restrict dice, uint64_t *restrict out,
                             Py_ssize_t n, double scale, double steps, int shift)
{
    const double unit = 1.0 / 4294967296.0, half = 0.5 - 1.0 / 8589934592.0;
    for (Py_ssize_t i = 0; i < n; i++) {
        double v = (double)x[i] * scale, die = (double)dice[i] * unit - half;
        uint64_t word = whole_double(v + die, steps) << shift;
        out[i] = shift ? out[i] + word : word;
    }
}

/* All lanes of whole words at once: lane j of out[i] is x[j * n + i]. What is constant where this is inlined, is. */
ALWAYS static void pack_lanes(const float *restrict x, uint64_t *restrict out, Py_ssize_t n, double scale, double steps,
                              int single, int lane_bits)
{
    const float scale_single = (float)scale, steps_single = (float)steps;
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t word = 0;
        for (int j = 0; j < 64 / lane_bits; j++) {
            float v = x[j * n + i];
            word |= (single ? whole_single(v * scale_single, steps_single) : whole_double((double)v * scale, steps))
                    << (j * lane_bits);
        }
        out[i] = word;
    }
}

CLONES static void pack_all(const float *x, uint64_t *out, Py_ssize_t n, double scale, double steps, int single,
                            int lane_bits)
{
    switch (2 * lane_bits + single) {
    case 32: pack_lanes(x, out, n, scale, steps, 0, 16); break;
    case 33: pack_lanes(x, out, n, scale, steps, 1, 16); break;
    case 42: pack_lanes(x, out, n, scale, steps, 0, 21); break;
    case 43: pack_lanes(x, out, n, scale, steps, 1, 21); break;
    case 64: pack_lanes(x, out, n, scale, steps, 0, 32); break;
    case 65: pack_lanes(x, out, n, scale, steps, 1, 32); break;
    }
}

CLONES static void unpack_lane(const uint64_t *restrict words, double *restrict out, Py_ssize_t n, int shift,
                               uint64_t mask, double offset, double step)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        uint64_t bits = ((words[i] >> shift) & mask) | MAGIC_BITS;
        double v;
        memcpy(&v, &bits, sizeof v);
        v -= MAGIC; /* exact: the lane's integer */
        v -= offset;
        out[i] = v * step;
    }
}

/* out = a + b, written past the cache: the running sum is larger than it, and is not read again until the next upload.
 * A plain store would first fetch what it overwrites, which is half of all the traffic. */
static void add_past_cache(const uint64_t *a, const uint64_t *b, uint64_t *out, Py_ssize_t n)
{
    Py_ssize_t i = 0;
#if defined(__SSE2__)
    for (; i < n && (uintptr_t)(out + i) % 64; i++)
        out[i] = a[i] + b[i];
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j += 2) {
            __m128i x = _mm_loadu_si128((const __m128i *)(a + i + j)), y = _mm_loadu_si128((const __m128i *)(b + i + j));
            _mm_stream_si128((__m128i *)(out + i + j), _mm_add_epi64(x, y));
        }
    _mm_sfence(); /* whoever reads it next may be another thread */
#endif
    for (; i < n; i++)
        out[i] = a[i] + b[i];
}

/* Buffers */

/* One contiguous, aligned row of float32 (f), float64 (d), 32-bit (I) or 64-bit (Q) unsigned integers. */
static int row(PyObject *object, char kind, int writable, Py_buffer *view, Py_ssize_t *count)
{
    const Py_ssize_t size = kind == 'f' || kind == 'I' ? 4 : 8;
    if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return -1;
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=')
        format++;
    const char *known = kind == 'Q' ? "QL" : kind == 'I' ? "IL" : kind == 'f' ? "f" : "d";
    if (view->ndim != 1 || view->itemsize != size || strlen(format) != 1 || !strchr(known, *format)
        || (uintptr_t)view->buf % (size_t)size) {
        PyErr_Format(PyExc_ValueError, "a buffer is not one aligned row of '%c'", kind);
        PyBuffer_Release(view);
        return -1;
    }
    *count = view->len / size;
    return 0;
}

static int number(PyObject *object, double *value)
{
    *value = PyFloat_AsDouble(object);
    if (*value == -1.0 && PyErr_Occurred())
        return -1;
    if (!isfinite(*value)) {
        PyErr_SetString(PyExc_ValueError, "a scale, step or offset is not finite");
        return -1;
    }
    return 0;
}

static int in_range(PyObject *object, long low, long high, int *value)
{
    long given = PyLong_AsLong(object);
    if (given == -1 && PyErr_Occurred())
        return -1;
    if (given < low || given > high) {
        PyErr_Format(PyExc_ValueError, "%ld is not between %ld and %ld", given, low, high);
        return -1;
    }
    *value = (int)given;
    return 0;
}

static int arguments(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are wanted", given, wanted);
    return -1;
}

/* What Python calls */

static PyObject *all_finite(PyObject *self, PyObject *values)
{
    Py_buffer view;
    Py_ssize_t n;
    uint32_t most;
    (void)self;
    if (row(values, 'f', 0, &view, &n) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    most = largest(view.buf, n);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return PyBool_FromLong(most < 0x7F800000u);
}

/* pack(source, scale, steps, single, dice or None, shift, out) */
static PyObject *pack(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer source, out, dice;
    Py_ssize_t n, room, rolled = -1;
    double scale, steps;
    int single, shift;
    PyObject *result = NULL;
    (void)self;
    if (arguments(nargs, 7) < 0 || number(args[1], &scale) < 0 || number(args[2], &steps) < 0
        || in_range(args[3], 0, 1, &single) < 0 || in_range(args[5], 0, 63, &shift) < 0)
        return NULL;
    if (steps < 1 || steps > 4294967295.0 || (single && steps > 4194304.0) || (single && args[4] != Py_None)) {
        PyErr_SetString(PyExc_ValueError, "so many steps do not fit the arithmetic");
        return NULL;
    }
    if (row(args[0], 'f', 0, &source, &n) < 0)
        return NULL;
    if (row(args[6], 'Q', 1, &out, &room) < 0)
        goto no_out;
    if (args[4] != Py_None && row(args[4], 'I', 0, &dice, &rolled) < 0)
        goto no_dice;
    if (room != n || (rolled >= 0 && rolled != n)) {
        PyErr_Format(PyExc_ValueError, "%zd values and %zd dice for %zd words", n, rolled, room);
    } else {
        Py_BEGIN_ALLOW_THREADS
        if (single)
            pack_single(source.buf, out.buf, n, (float)scale, (float)steps, shift);
        else if (rolled >= 0)
            pack_dice(source.buf, dice.buf, out.buf, n, scale, steps, shift);
        else
            pack_double(source.buf, out.buf, n, scale, steps, shift);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    if (rolled >= 0)
        PyBuffer_Release(&dice);
no_dice:
    PyBuffer_Release(&out);
no_out:
    PyBuffer_Release(&source);
    return result;
}

/* pack_words(source, scale, steps, single, lane_bits, out) */
static PyObject *pack_words(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer source, out;
    Py_ssize_t n, room;
    double scale, steps;
    int single, lane_bits;
    PyObject *result = NULL;
    (void)self;
    if (arguments(nargs, 6) < 0 || number(args[1], &scale) < 0 || number(args[2], &steps) < 0
        || in_range(args[3], 0, 1, &single) < 0 || in_range(args[4], 16, 32, &lane_bits) < 0
        || row(args[0], 'f', 0, &source, &n) < 0)
        return NULL;
    if (row(args[5], 'Q', 1, &out, &room) < 0)
        goto no_out;
    const Py_ssize_t lanes = 64 / lane_bits;
    /* Twice as many steps must fit a lane: the lanes are put together without a look at what overflows. */
    if ((lane_bits != 16 && lane_bits != 21 && lane_bits != 32) || n % lanes || n / lanes != room || steps < 1
        || 2 * steps >= (double)((uint64_t)1 << lane_bits) || (single && steps > 4194304.0)) {
        PyErr_Format(PyExc_ValueError, "%zd values do not fill %zd words of %d-bit lanes", n, room, lane_bits);
    } else {
        Py_BEGIN_ALLOW_THREADS
        pack_all(source.buf, out.buf, room, scale, steps, single, lane_bits);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out);
no_out:
    PyBuffer_Release(&source);
    return result;
}

/* unpack(words, shift, lane_bits, offset, step, out) */
static PyObject *unpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer words, out;
    Py_ssize_t n, room;
    double offset, step;
    int shift, lane_bits;
    PyObject *result = NULL;
    (void)self;
    if (arguments(nargs, 6) < 0 || in_range(args[1], 0, 63, &shift) < 0 || in_range(args[2], 1, 52, &lane_bits) < 0
        || number(args[3], &offset) < 0 || number(args[4], &step) < 0 || row(args[0], 'Q', 0, &words, &n) < 0)
        return NULL;
    if (row(args[5], 'd', 1, &out, &room) < 0)
        goto no_out;
    if (room != n) {
        PyErr_Format(PyExc_ValueError, "%zd words for %zd values", n, room);
    } else {
        Py_BEGIN_ALLOW_THREADS
        unpack_lane(words.buf, out.buf, n, shift, ((uint64_t)1 << lane_bits) - 1, offset, step);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out);
no_out:
    PyBuffer_Release(&words);
    return result;
}

/* add_words(one, other, out) */
static PyObject *add_words(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer one, other, out;
    Py_ssize_t n, m, room;
    PyObject *result = NULL;
    (void)self;
    if (arguments(nargs, 3) < 0 || row(args[0], 'Q', 0, &one, &n) < 0)
        return NULL;
    if (row(args[1], 'Q', 0, &other, &m) < 0)
        goto no_other;
    if (row(args[2], 'Q', 1, &out, &room) < 0)
        goto no_out;
    if (n != m || n != room) {
        PyErr_Format(PyExc_ValueError, "%zd and %zd words for %zd sums", n, m, room);
    } else {
        Py_BEGIN_ALLOW_THREADS
        add_past_cache(one.buf, other.buf, out.buf, n);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&out);
no_out:
    PyBuffer_Release(&other);
no_other:
    PyBuffer_Release(&one);
    return result;
}

static PyMethodDef METHODS[] = {
    {"add_words", (PyCFunction)(void (*)(void))add_words, METH_FASTCALL, "Two rows of words added into a third."},
    {"finite", all_finite, METH_O, "Whether no value is a NaN or an infinity."},
    {"pack", (PyCFunction)(void (*)(void))pack, METH_FASTCALL, "Floats to integers in one lane of words."},
    {"pack_words", (PyCFunction)(void (*)(void))pack_words, METH_FASTCALL, "Floats to all lanes of whole words."},
    {"unpack", (PyCFunction)(void (*)(void))unpack, METH_FASTCALL, "One lane of summed words to floats."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_kernel", "See crypto/lanes.py.", 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void)
{
    PyObject *module = PyModule_Create(&MODULE);
    if (module && PyModule_AddIntConstant(module, "VERSION", VERSION) < 0)
        Py_CLEAR(module);
    return module;
}
