/* Attention of one head, in a window or to all, for CPUs with AVX-512; at the end, of few queries, as in a step of
decoding.

Scores, softmax and their products do not leave the cache.

A tile of queries goes through its keys, 64 at a time, and keeps a running maximum and sum (Milakov and Gimelshein,
2018; Dao et al., 2022); what was kept is only scaled anew where there is a new maximum. Numbers are read as words of
32 bits: one float32, or two neighbouring bfloat16, which one instruction multiplies and adds up. So what is multiplied
is laid out in words first:

    keys    (words of a head, keys)       a word of a query times 64 keys
    values  (words of the keys, head_dim) a word of the weights times a head

hatch_build.py compiles this; attention_kernel.py calls it. */

#include "kernels.h"

#include <math.h>

#define KEYS 64      /* at a time */
#define ROWS 6       /* queries that share a product: 6 x 4 sums fill the registers */
#define QUERIES 48   /* in a tile */
#define HIDDEN -1e38f

/* Add (ROWS, depth) words times (depth, columns) words to sums of (ROWS, columns). */
INLINE void multiply(__m512 sums[ROWS][4], const uint32_t *left, const uint32_t *right, int depth, int columns,
                     int half_precision) {
    for (int word = 0; word < depth; word++) {
        __m512i many[4];
        for (int j = 0; j < columns / LANES; j++) many[j] = _mm512_load_si512(right + word * columns + LANES * j);
        for (int i = 0; i < ROWS; i++) {
            const __m512i one = _mm512_set1_epi32((int)left[i * depth + word]);
            for (int j = 0; j < columns / LANES; j++)
                sums[i][j] = half_precision
                                 ? _mm512_dpbf16_ps(sums[i][j], (__m512bh)one, (__m512bh)many[j])
                                 : _mm512_fmadd_ps((__m512)one, (__m512)many[j], sums[i][j]);
        }
    }
}

/* Keys `start` to `end` as (blocks, words of a head, KEYS); zeros behind the last. */
INLINE void lay_out_keys(uint32_t *to, const char *from, long stride, long start, long end, int words) {
    for (long key = start, place = 0; place < (end - start + KEYS - 1) / KEYS * KEYS; key++, place++) {
        uint32_t *column = to + place / KEYS * KEYS * words + place % KEYS;
        for (int word = 0; word < words; word++) {
            if (key < end) memcpy(column + word * KEYS, from + key * stride + 4 * word, 4);
            else column[word * KEYS] = 0;
        }
    }
}

/* Values `start` to `end` as (words of the keys, head_dim); zeros behind the last. */
INLINE void lay_out_values(uint32_t *to, const char *from, long stride, long start, long end, int head_dim,
                           int half_precision) {
    const long padded = start + (end - start + KEYS - 1) / KEYS * KEYS;
    for (long key = start; key < padded; key += 1 + half_precision, to += head_dim) {
        const char *row = from + key * stride;
        if (!half_precision) {
            if (key < end) memcpy(to, row, 4 * head_dim);
            else memset(to, 0, 4 * head_dim);
            continue;
        }
        for (int d = 0; d < head_dim; d++) {
            const uint32_t first = key < end ? ((const bfloat16 *)row)[d] : 0;
            const uint32_t second = key + 1 < end ? ((const bfloat16 *)(row + stride))[d] : 0;
            to[d] = first | second << 16;
        }
    }
}

/* Which of KEYS scores a query sees: those from `first` to `last`. */
INLINE __mmask16 seen(int j, long first, long last) {
    const __m512i place = _mm512_add_epi32(_mm512_set1_epi32(LANES * j),
                                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const int from = first < 0 ? 0 : first > KEYS ? KEYS : (int)first, to = last >= KEYS ? KEYS - 1 : (int)last;
    return _mm512_cmpge_epi32_mask(place, _mm512_set1_epi32(from)) &
           _mm512_cmple_epi32_mask(place, _mm512_set1_epi32(to < -1 ? -1 : to));
}

INLINE int attend(const char *query, const char *key, const char *value, char *attended, float *normalizer,
                  const long *strides, long tokens, long first, long last, long half, float scale, int head_dim,
                  int half_precision) {
    const int words = half_precision ? head_dim / 2 : head_dim, key_words = half_precision ? KEYS / 2 : KEYS;
    const int columns = head_dim / LANES;
    /* Blocks of keys lie where they would if all queries were asked for, so that their number changes no bit. */
    const long start = first < half ? 0 : (first - half) / KEYS * KEYS;
    const long end = last + half > tokens ? tokens : last + half;
    const long blocks = (end - start + KEYS - 1) / KEYS, block_words = (long)KEYS * words;
    const long value_words = (long)key_words * head_dim;
    uint32_t *keys = aligned_alloc(64, blocks * block_words * sizeof *keys);
    uint32_t *values = aligned_alloc(64, blocks * value_words * sizeof *values);
    if (!keys || !values) {
        free(keys), free(values);
        return 1;
    }
    lay_out_keys(keys, key, strides[1], start, end, words);
    lay_out_values(values, value, strides[2], start, end, head_dim, half_precision);

    _Alignas(64) uint32_t queries[QUERIES * 64], weights[ROWS * KEYS];
    _Alignas(64) float outputs[QUERIES * 64];
    float top[QUERIES];
    __m512 total[QUERIES];
    const __m512 factor = _mm512_set1_ps(scale * LOG2E); /* scores are to the base of 2 */
    for (long tile = first; tile < last; tile += QUERIES) {
        const int count = last - tile < QUERIES ? (int)(last - tile) : QUERIES;
        memset(outputs, 0, sizeof outputs);
        memset(queries, 0, sizeof queries);
        for (int i = 0; i < QUERIES; i++) top[i] = HIDDEN, total[i] = _mm512_setzero_ps();
        for (int i = 0; i < count; i++) memcpy(queries + i * words, query + (tile + i) * strides[0], 4 * words);
        const long from = tile - half < start ? start : tile - half;
        const long until = tile + count + half > end ? end : tile + count + half;
        for (long block = (from - start) / KEYS; start + block * KEYS < until; block++) {
            const long at = start + block * KEYS;
            for (int i = 0; i < count; i += ROWS) {
                const long lowest = tile + i, highest = lowest + ROWS - 1;
                if (at + KEYS <= lowest - half || at > highest + half) continue;
                const int all_seen = at >= highest - half && at + KEYS - 1 <= lowest + half && at + KEYS <= end;
                __m512 sums[ROWS][4];
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < 4; j++) sums[r][j] = _mm512_setzero_ps();
                multiply(sums, queries + i * words, keys + block * block_words, words, KEYS, half_precision);
                float kept[ROWS]; /* of what was summed up before */
                for (int r = 0; r < ROWS; r++) {
                    const long here = lowest + r - at;
                    const long behind = here + half < end - 1 - at ? here + half : end - 1 - at;
                    __m512 most = _mm512_set1_ps(HIDDEN), sum = _mm512_setzero_ps();
                    for (int j = 0; j < 4; j++) {
                        sums[r][j] = _mm512_mul_ps(sums[r][j], factor);
                        if (!all_seen)
                            sums[r][j] = _mm512_mask_mov_ps(_mm512_set1_ps(HIDDEN), seen(j, here - half, behind),
                                                            sums[r][j]);
                        most = _mm512_max_ps(most, sums[r][j]);
                    }
                    kept[r] = 1;
                    if (_mm512_cmp_ps_mask(most, _mm512_set1_ps(top[i + r]), _CMP_GT_OQ)) {
                        /* Where a row saw nothing yet, it is forgotten: what was kept is zero then. */
                        const float highest_score = _mm512_reduce_max_ps(most);
                        kept[r] = _mm512_cvtss_f32(power_of_two(_mm512_set1_ps(top[i + r] - highest_score), 0));
                        top[i + r] = highest_score;
                    }
                    for (int j = 0; j < 4; j++) {
                        const __m512 score = _mm512_sub_ps(sums[r][j], _mm512_set1_ps(top[i + r]));
                        sums[r][j] = power_of_two(score, half_precision);
                        sum = _mm512_add_ps(sum, sums[r][j]);
                    }
                    total[i + r] = _mm512_fmadd_ps(total[i + r], _mm512_set1_ps(kept[r]), sum);
                    uint32_t *row = weights + r * key_words;
                    for (int j = 0; j < 4; j++) {
                        if (!half_precision) _mm512_store_si512(row + LANES * j, (__m512i)sums[r][j]);
                        else if (j % 2)
                            _mm512_store_si512(row + LANES * (j / 2),
                                               (__m512i)_mm512_cvtne2ps_pbh(sums[r][j], sums[r][j - 1]));
                    }
                }
                float *output = outputs + i * head_dim;
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < columns; j++)
                        sums[r][j] = _mm512_mul_ps(_mm512_load_ps(output + r * head_dim + LANES * j),
                                                   _mm512_set1_ps(kept[r]));
                multiply(sums, weights, values + block * value_words, key_words, head_dim, half_precision);
                for (int r = 0; r < ROWS; r++)
                    for (int j = 0; j < columns; j++)
                        _mm512_store_ps(output + r * head_dim + LANES * j, sums[r][j]);
            }
        }
        for (int i = 0; i < count; i++) {
            const float all = _mm512_reduce_add_ps(total[i]);
            const __m512 share = _mm512_set1_ps(1 / all);
            char *row = attended + (tile + i) * strides[3];
            for (int j = 0; j < columns; j++) {
                const __m512 numbers = _mm512_mul_ps(share, _mm512_load_ps(outputs + i * head_dim + LANES * j));
                if (half_precision) _mm256_storeu_si256((__m256i *)row + j, (__m256i)_mm512_cvtneps_pbh(numbers));
                else _mm512_storeu_ps((float *)row + LANES * j, numbers);
            }
            normalizer[tile + i] = top[i] / LOG2E + logf(all);
        }
    }
    free(keys), free(values);
    return 0;
}

/* Attend from queries `first` to `last` of a document to those of `tokens` keys that are at most `half` away.

Strides are those of tokens, in bytes, of query, key, value and attended. Gives 1 where there is no memory. Other
arguments need another name: an editable installation may have what was compiled before. */
#define KERNEL(NAME, HEAD_DIM, HALF_PRECISION)                                                                       \
    int NAME(const char *query, const char *key, const char *value, char *attended, float *normalizer,               \
             const long *strides, long tokens, long first, long last, long half, float scale) {                      \
        return attend(query, key, value, attended, normalizer, strides, tokens, first, last, half, scale, HEAD_DIM,  \
                      HALF_PRECISION);                                                                               \
    }

KERNEL(attend_bfloat16_32, 32, 1)
KERNEL(attend_bfloat16_64, 64, 1)
KERNEL(attend_float32_32, 32, 0)
KERNEL(attend_float32_64, 64, 0)

/* Sums of 16 vectors, in their order. */
INLINE __m512 sum_each(const __m512 *of) {
    __m512d pairs[8], fours[4], eights[2];
    for (int i = 0; i < 8; i++)
        pairs[i] = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(of[2 * i], of[2 * i + 1]),
                                          _mm512_unpackhi_ps(of[2 * i], of[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        fours[i] = (__m512d)_mm512_add_ps((__m512)_mm512_unpacklo_pd(pairs[2 * i], pairs[2 * i + 1]),
                                          (__m512)_mm512_unpackhi_pd(pairs[2 * i], pairs[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        eights[i] = (__m512d)_mm512_add_ps((__m512)_mm512_shuffle_f64x2(fours[2 * i], fours[2 * i + 1], 0x88),
                                           (__m512)_mm512_shuffle_f64x2(fours[2 * i], fours[2 * i + 1], 0xdd));
    return _mm512_add_ps((__m512)_mm512_shuffle_f64x2(eights[0], eights[1], 0x88),
                         (__m512)_mm512_shuffle_f64x2(eights[0], eights[1], 0xdd));
}

#define ASKED 4 /* queries that read a value together */

/* Scores of a query, to the base of 2, and the highest; the mask has a byte of a key, zero where it is not seen. */
INLINE float score_keys(float *scores, const char *query, const char *key, long stride, const uint8_t *mask, long keys,
                        float scale, int head_dim, int half_precision) {
    const int vectors = half_precision ? head_dim / 32 : head_dim / LANES;
    const __m512 hidden = _mm512_set1_ps(-INFINITY);
    __m512 asked[4], most = hidden;
    for (int i = 0; i < vectors; i++) asked[i] = _mm512_loadu_ps(query + 64 * i);
    for (long at = 0; at < keys; at += LANES) {
        __m512 sums[LANES];
        for (int k = 0; k < LANES; k++) {
            const char *row = key + (at + k < keys ? at + k : keys - 1) * stride;
            sums[k] = _mm512_setzero_ps();
            for (int i = 0; i < vectors; i++) {
                const __m512 numbers = _mm512_loadu_ps(row + 64 * i);
                sums[k] = half_precision ? _mm512_dpbf16_ps(sums[k], (__m512bh)asked[i], (__m512bh)numbers)
                                         : _mm512_fmadd_ps(asked[i], numbers, sums[k]);
            }
        }
        __mmask16 seen = keys - at < LANES ? (1u << (keys - at)) - 1 : 0xffff;
        if (mask) seen = _mm512_mask_test_epi32_mask(seen, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(seen, mask + at)),
                                                     _mm512_set1_epi32(0xff));
        const __m512 found = _mm512_mask_mul_ps(hidden, seen, sum_each(sums), _mm512_set1_ps(scale * LOG2E));
        _mm512_storeu_ps(scores + at, found);
        most = _mm512_max_ps(most, found);
    }
    return _mm512_reduce_max_ps(most);
}

/* Of `count` queries, means of values (keys, head_dim) by weights 2^(score - top); zeros where nothing is seen. */
INLINE void mean_values(char *const *found, float *scores, long room, const float *top, const char *value, long stride,
                        long keys, int count, int head_dim, int half_precision) {
    const int vectors = head_dim / LANES;
    __m512 sums[ASKED][4], shares[ASKED];
    for (int i = 0; i < count; i++) {
        __m512 total = _mm512_setzero_ps();
        const __m512 most = _mm512_set1_ps(top[i] == -INFINITY ? 0 : top[i]);
        for (long at = 0; at < keys; at += LANES) {
            const __m512 below = _mm512_sub_ps(_mm512_loadu_ps(scores + i * room + at), most);
            const __m512 weights = power_of_two(below, half_precision);
            _mm512_storeu_ps(scores + i * room + at, weights);
            total = _mm512_add_ps(total, weights);
        }
        const float all = _mm512_reduce_add_ps(total);
        shares[i] = _mm512_set1_ps(all == 0 ? 0 : 1 / all);
        for (int j = 0; j < vectors; j++) sums[i][j] = _mm512_setzero_ps();
    }
    for (long k = 0; k < keys; k++) {
        const char *row = value + k * stride;
        __m512 numbers[4];
        for (int j = 0; j < vectors; j++)
            numbers[j] = half_precision ? (__m512)_mm512_slli_epi32(
                                              _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)row + j)), 16)
                                        : _mm512_loadu_ps((const float *)row + LANES * j);
        for (int i = 0; i < count; i++)
            for (int j = 0; j < vectors; j++)
                sums[i][j] = _mm512_fmadd_ps(_mm512_set1_ps(scores[i * room + k]), numbers[j], sums[i][j]);
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < vectors; j++) {
            const __m512 numbers = _mm512_mul_ps(sums[i][j], shares[i]);
            if (half_precision) _mm256_storeu_si256((__m256i *)found[i] + j, (__m256i)_mm512_cvtneps_pbh(numbers));
            else _mm512_storeu_ps((float *)found[i] + LANES * j, numbers);
        }
}

#include "step.h"

STEP(step_bfloat16_32, 32, 1)
STEP(step_bfloat16_64, 64, 1)
STEP(step_float32_32, 32, 0)
STEP(step_float32_64, 64, 0)
