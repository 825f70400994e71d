/* With AVX-512, attention of a head, in a window or to all keys (attend.h). At the end, what a step of decoding takes:
attention of few queries (step.h), linear layers of few rows (linear.h), and all of a layer (decoder_layer.h). Numbers are
float32, or in attention bfloat16, of which one instruction multiplies and adds up pairs.

hatch_build.py compiles this; attention_kernel.py and decoder_kernel.py call it. */

#include "kernels.h"

#include <math.h>

#define KEYS 64    /* at a time */
#define TOGETHER 4 /* vectors of a product: 6 x 4 sums fill the registers */

typedef __m512 vector;

INLINE vector spread(float number) { return _mm512_set1_ps(number); }

INLINE vector larger(vector one, vector other) { return _mm512_max_ps(one, other); }

INLINE vector multiply_add(vector one, vector other, vector sum) { return _mm512_fmadd_ps(one, other, sum); }

INLINE float largest_of(vector numbers) { return _mm512_reduce_max_ps(numbers); }

INLINE float sum_of(vector numbers) { return _mm512_reduce_add_ps(numbers); }

INLINE int any_above(vector numbers, float bound) {
    return _mm512_cmp_ps_mask(numbers, _mm512_set1_ps(bound), _CMP_GT_OQ) != 0;
}

/* Of numbers from `place` on, those from `first` to `last`, and another one instead of the rest. */
INLINE vector between(vector numbers, int place, int first, int last, float other) {
    const __m512i places = _mm512_add_epi32(_mm512_set1_epi32(place),
                                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __mmask16 kept = _mm512_cmpge_epi32_mask(places, _mm512_set1_epi32(first)) &
                           _mm512_cmple_epi32_mask(places, _mm512_set1_epi32(last));
    return _mm512_mask_mov_ps(_mm512_set1_ps(other), kept, numbers);
}

/* Add the products of a word and of many. */
INLINE vector add_products(vector sum, uint32_t one, vector many, int half_precision) {
    const __m512i word = _mm512_set1_epi32((int)one);
    return half_precision ? _mm512_dpbf16_ps(sum, (__m512bh)word, (__m512bh)many)
                          : _mm512_fmadd_ps((__m512)word, many, sum);
}

/* Put weights of KEYS keys into words. */
INLINE void put_weights(uint32_t *to, const vector *weights, int half_precision) {
    for (int j = 0; j < KEYS / LANES; j++) {
        if (!half_precision) _mm512_store_si512(to + LANES * j, (__m512i)weights[j]);
        else if (j % 2)
            _mm512_store_si512(to + LANES * (j / 2), (__m512i)_mm512_cvtne2ps_pbh(weights[j], weights[j - 1]));
    }
}

/* Put 16 numbers at a place. */
INLINE void put(char *row, int j, vector numbers, int half_precision) {
    if (half_precision) _mm256_storeu_si256((__m256i *)row + j, (__m256i)_mm512_cvtneps_pbh(numbers));
    else _mm512_storeu_ps((float *)row + LANES * j, numbers);
}

#include "attend.h"

ATTEND(attend_bfloat16_32, 32, 1)
ATTEND(attend_bfloat16_64, 64, 1)
ATTEND(attend_float32_32, 32, 0)
ATTEND(attend_float32_64, 64, 0)

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

#define LINEAR linear_float32
#include "linear.h"

#define MIX mix_float32
#include "copying.h"

#define NORM norm_float32
#define DECODER_LAYER decoder_layer
#define STEP_OF(HEAD_DIM) step_float32_##HEAD_DIM
#include "decoder_layer.h"
