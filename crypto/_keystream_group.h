/* One width of the keystream: _keystream.c includes this once for each, with these defined:
 *
 *   NAME(f)  f's name at this width       TARGET   the instructions that it may use
 *   BLOCKS   AES blocks in a register     VECTOR   the register's type, and its operations:
 *   LOAD(p) STORE(p, v) SPREAD(block) ADD32 ADD64 SUB64 XOR SHUFFLE AESENC AESENCLAST
 *
 * Eight registers at once hide an AES instruction's latency at every width.
 */

#define GROUP 8
#define GROUP_BLOCKS (GROUP * BLOCKS)
#define GROUP_WORDS (GROUP_BLOCKS * 2)

/* Add every mask's GROUP_BLOCKS blocks from `first` on, of one piece, to GROUP_WORDS words. */
TARGET static inline void NAME(add_group)(uint64_t *words, const Mask *masks, Py_ssize_t count, uint64_t piece,
                                          uint32_t first)
{
    /* In each block, words of 32 bits: 0, piece (high, low), counter; then every word into big-endian order. */
    static const uint32_t within[16] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3};
    const VECTOR swap = SPREAD(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    const VECTOR start = ADD32(SPREAD(_mm_set_epi32((int)first, (int)piece, (int)(piece >> 32), 0)), LOAD(within));
    VECTOR sum[GROUP], counter[GROUP], state[GROUP];
    for (int i = 0; i < GROUP; i++) {
        counter[i] = SHUFFLE(ADD32(start, SPREAD(_mm_set_epi32(BLOCKS * i, 0, 0, 0))), swap);
        sum[i] = LOAD(words + 2 * BLOCKS * i);
    }
    for (Py_ssize_t m = 0; m < count; m++) {
        VECTOR key = SPREAD(masks[m].round[0]);
        for (int i = 0; i < GROUP; i++)
            state[i] = XOR(counter[i], key);
        for (int r = 1; r < 10; r++) {
            key = SPREAD(masks[m].round[r]);
            for (int i = 0; i < GROUP; i++)
                state[i] = AESENC(state[i], key);
        }
        key = SPREAD(masks[m].round[10]);
        for (int i = 0; i < GROUP; i++)
            state[i] = AESENCLAST(state[i], key);
        if (masks[m].subtract)
            for (int i = 0; i < GROUP; i++)
                sum[i] = SUB64(sum[i], state[i]);
        else
            for (int i = 0; i < GROUP; i++)
                sum[i] = ADD64(sum[i], state[i]);
    }
    for (int i = 0; i < GROUP; i++)
        STORE(words + 2 * BLOCKS * i, sum[i]);
}

TARGET static void NAME(add_all)(uint64_t *words, Py_ssize_t n, const Mask *masks, Py_ssize_t count, uint64_t piece)
{
    for (; n > 0; words += PIECE_WORDS, n -= PIECE_WORDS, piece++) {
        const Py_ssize_t here = n < PIECE_WORDS ? n : PIECE_WORDS;
        Py_ssize_t at = 0;
        uint32_t block = 2;
        for (; at + GROUP_WORDS <= here; at += GROUP_WORDS, block += GROUP_BLOCKS)
            NAME(add_group)(words + at, masks, count, piece, block);
        if (at < here) { /* the end of the vector */
            uint64_t rest[GROUP_WORDS] = {0};
            memcpy(rest, words + at, (size_t)(here - at) * 8);
            NAME(add_group)(rest, masks, count, piece, block);
            memcpy(words + at, rest, (size_t)(here - at) * 8);
        }
    }
}

#undef GROUP
#undef GROUP_BLOCKS
#undef GROUP_WORDS
#undef NAME
#undef TARGET
#undef BLOCKS
#undef VECTOR
#undef LOAD
#undef STORE
#undef SPREAD
#undef ADD32
#undef ADD64
#undef SUB64
#undef XOR
#undef SHUFFLE
#undef AESENC
#undef AESENCLAST
