/* For CPUs with AVX2 and no AVX-512: what int8_kernel.c does, linear layers in int8, to the same bit; and at the end, in
float32, what attention_kernel.c does.

No instruction of AVX2 adds up products of bytes without rounding them off at 16 bits, so numbers are multiplied as 16
bits, two neighbours at once. In memory weights keep 8 bits: that is what few rows, as in a step of decoding, wait for. */

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LANES 8  /* numbers of 32 bits in a register */
#define DEPTH 16 /* numbers that one instruction multiplies */
#define TILE 4   /* few rows that are multiplied together */
#define PAIR 2   /* and outputs: 8 sums stay in registers */
#define HIGH 6   /* many rows that are multiplied together */
#define PANEL 16 /* and outputs: 12 sums stay in registers */
#define FEWEST 8 /* rows for which weights are read as they lie */
#define SIDE 64  /* outputs, and inputs, that pipelines/int8_kernel.py lays out together */
#define CACHED (1 << 16) /* numbers of rows that are multiplied before the next */
#define LOG2E 1.44269504f

typedef uint16_t bfloat16;
typedef int16_t number; /* of a row */

/* 8 numbers from a place on, as float32, or as many as there are. */
INLINE __m256 load(const void *from, long at, long count, int half) {
    if (half) {
        bfloat16 some[LANES] = {0};
        const bfloat16 *first = (const bfloat16 *)from + at;
        if (count - at < LANES) memcpy(some, first, 2 * (count - at)), first = some;
        const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)first));
        return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
    }
    float some[LANES] = {0};
    const float *first = (const float *)from + at;
    if (count - at < LANES) memcpy(some, first, 4 * (count - at)), first = some;
    return _mm256_loadu_ps(first);
}

/* Put 8 numbers, or as many as there is room for, to a place. */
INLINE void store(void *to, long at, long count, __m256 numbers, int half) {
    const long some = count - at < LANES ? count - at : LANES;
    if (half) { /* rounded as torch does: to the nearest, and half way to the even one */
        const __m256i bits = _mm256_castps_si256(numbers);
        const __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff)));
        const __m256i is_none = _mm256_castps_si256(_mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
        const __m256i kept = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), _mm256_set1_epi32(0x7fc0), is_none);
        const __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
        memcpy((bfloat16 *)to + at, &narrow, 2 * some);
    } else if (some == LANES) _mm256_storeu_ps((float *)to + at, numbers);
    else memcpy((float *)to + at, &numbers, 4 * some);
}

/* Bring a row to int8, kept in 16 bits, and return what each number is to be multiplied with; zeros are behind it. */
INLINE float quantize(int16_t *to, const void *from, long inputs, int half) {
    __m256i most = _mm256_setzero_si256(); /* as bits: a NaN is the largest */
    for (long i = 0; i < inputs; i += LANES) {
        const __m256i bits = _mm256_castps_si256(load(from, i, inputs, half));
        most = _mm256_max_epu32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    uint32_t each[LANES], highest = 0;
    _mm256_storeu_si256((__m256i *)each, most);
    for (int i = 0; i < LANES; i++) highest = each[i] > highest ? each[i] : highest;
    float scale;
    memcpy(&scale, &highest, 4);
    scale /= 127.0f;
    if (scale < FLT_MIN) scale = FLT_MIN;
    for (long i = 0; i < (inputs + DEPTH - 1) / DEPTH * DEPTH; i += LANES) {
        const __m256 numbers = i < inputs ? load(from, i, inputs, half) : _mm256_setzero_ps();
        const __m256i whole = _mm256_cvtps_epi32(_mm256_div_ps(numbers, _mm256_set1_ps(scale)));
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
    }
    return scale;
}

/* 16 weights, as 16 bits. */
INLINE __m256i widen(const int8_t *weights) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)weights));
}

/* Add TILE rows times PAIR outputs of weights, DEPTH numbers of each. */
INLINE void multiply(__m256i sums[TILE][PAIR], const int16_t *const rows[TILE], const int8_t *const weights[PAIR],
                     long at) {
    for (int j = 0; j < PAIR; j++) {
        const __m256i many = widen(weights[j]);
        for (int i = 0; i < TILE; i++)
            sums[i][j] = _mm256_add_epi32(
                sums[i][j], _mm256_madd_epi16(_mm256_loadu_si256((const __m256i *)(rows[i] + at)), many));
    }
}

INLINE int32_t sum_up(__m256i of) {
    const __m128i halves = _mm_add_epi32(_mm256_castsi256_si128(of), _mm256_extracti128_si256(of, 1));
    const __m128i pairs = _mm_add_epi32(halves, _mm_shuffle_epi32(halves, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(pairs, _mm_shuffle_epi32(pairs, 0xb1)));
}

/* Turn 8 vectors of 8 pairs of weights, so that rows become columns. */
INLINE void turn(__m128i of[8]) {
    __m128i pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm_unpacklo_epi16(of[i], of[i + 1]);
        pairs[i + 1] = _mm_unpackhi_epi16(of[i], of[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm_unpacklo_epi32(pairs[i + j], pairs[i + j + 2]);
            fours[i + 2 * j + 1] = _mm_unpackhi_epi32(pairs[i + j], pairs[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        of[2 * i] = _mm_unpacklo_epi64(fours[i], fours[i + 4]);
        of[2 * i + 1] = _mm_unpackhi_epi64(fours[i], fours[i + 4]);
    }
}

/* Weights (outputs, inputs) of a panel, some of which are there, in the order (inputs / 2, PANEL, 2); 0 is behind them. */
INLINE void lay_out(int8_t *panel, const int8_t *weights, long inputs, long outputs, long depth) {
    for (long output = 0; output < PANEL; output += 8)
        for (long at = 0; at < depth; at += DEPTH) {
            const int8_t *from = weights + output * inputs + at;
            const long outputs_there = outputs - output, inputs_there = inputs - at;
            __m128i many[8];
            if (outputs_there >= 8 && inputs_there >= DEPTH)
                for (int i = 0; i < 8; i++) many[i] = _mm_loadu_si128((const __m128i *)(from + i * inputs));
            else
                for (int i = 0; i < 8; i++) {
                    many[i] = _mm_setzero_si128();
                    if (i >= outputs_there || inputs_there <= 0) continue;
                    memcpy(&many[i], from + i * inputs, inputs_there < DEPTH ? inputs_there : DEPTH);
                }
            turn(many);
            for (int i = 0; i < 8; i++) _mm_storeu_si128((__m128i *)(panel + at * PANEL + (output + i * PANEL) * 2), many[i]);
        }
}

/* Panels of weights (outputs, inputs): of SIDE outputs, those from `first` to `last`. */
int lay_out_int8_avx2(const int8_t *weights, int8_t *laid_out, long inputs, long outputs, long first, long last) {
    const long depth = (inputs + SIDE - 1) / SIDE * SIDE;
    for (long output = first * SIDE; output < last * SIDE; output += PANEL)
        lay_out(laid_out + output * depth, weights + output * inputs, inputs, outputs - output, depth);
    return 0;
}

/* HIGH rows times a panel of weights; where it is inlined, gcc has its sums wait for memory. */
static __attribute__((noinline)) void multiply_panel(int32_t *products, const int16_t *const rows[HIGH],
                                                     const int8_t *panel, long depth) {
    __m256i sums[HIGH][2];
#pragma GCC unroll 6
    for (int i = 0; i < HIGH; i++) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
    for (long at = 0; at < depth; at += 2) {
        const __m256i low = widen(panel + at * PANEL), high = widen(panel + at * PANEL + DEPTH);
#pragma GCC unroll 6
        for (int i = 0; i < HIGH; i++) {
            int32_t two;
            memcpy(&two, rows[i] + at, 4);
            const __m256i of_row = _mm256_set1_epi32(two);
            sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(of_row, low));
            sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(of_row, high));
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < HIGH; i++)
        for (int j = 0; j < 2; j++) _mm256_storeu_si256((__m256i *)(products + i * PANEL + j * LANES), sums[i][j]);
}

/* 2^power of powers up to 0; zero instead of what is too small for a normal number. */
INLINE __m256 power_of_two(__m256 power, int half_precision) {
    const __m256 whole = _mm256_round_ps(power, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256 rest = _mm256_sub_ps(power, whole);
    const float series[] = {1.33335581e-3f, 9.61812911e-3f, 5.55041087e-2f, 2.40226507e-1f, 6.93147181e-1f, 1.0f};
    __m256 sum = _mm256_set1_ps(1.54035304e-4f);
    for (int i = 0; i < 6; i++) sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(series[i]));
    const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
    const __m256 is_normal = _mm256_cmp_ps(power, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm256_and_ps(is_normal, _mm256_mul_ps(sum, _mm256_castsi256_ps(exponent)));
}

/* What GELU makes of numbers: each times the normal distribution's share below it, by Abramowitz and Stegun, 7.1.26. */
INLINE __m256 gelu(__m256 numbers) {
    const __m256 one = _mm256_set1_ps(1), positive = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), numbers);
    const __m256 distance = _mm256_mul_ps(positive, _mm256_set1_ps(0.70710678f));
    const __m256 near = _mm256_div_ps(one, _mm256_fmadd_ps(distance, _mm256_set1_ps(0.3275911f), one));
    const float series[] = {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
    __m256 sum = _mm256_set1_ps(1.061405429f);
    for (int i = 0; i < 4; i++) sum = _mm256_fmadd_ps(sum, near, _mm256_set1_ps(series[i]));
    const __m256 power = _mm256_mul_ps(_mm256_mul_ps(distance, distance), _mm256_set1_ps(-LOG2E));
    const __m256 tail = _mm256_mul_ps(_mm256_mul_ps(_mm256_mul_ps(sum, near), power_of_two(power, 0)), _mm256_set1_ps(0.5f));
    const __m256 is_below = _mm256_cmp_ps(numbers, _mm256_setzero_ps(), _CMP_LT_OQ);
    return _mm256_mul_ps(numbers, _mm256_blendv_ps(_mm256_sub_ps(one, tail), tail, is_below));
}

/* Put what GELU makes of numbers in their place. */
int gelu_float32_avx2(float *numbers, long count) {
    for (long at = 0; at < count; at += LANES) store(numbers, at, count, gelu(load(numbers, at, count, 0)), 0);
    return 0;
}

/* Products of a row and a panel, as the numbers that they stand for, and perhaps what GELU makes of these. */
INLINE void finish(void *found, const int32_t *products, float scale, const int32_t *weight_sums,
                   const float *weight_scales, const float *bias, long wide, int half, int activated) {
    for (long j = 0; j < wide; j += LANES) {
        const __m256 product = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(products + j)));
        const __m256 scaled = _mm256_mul_ps(product, _mm256_set1_ps(scale));
        const __m256 weight_scale = load(weight_scales, j, wide, 0);
        __m256 all = bias ? _mm256_fmadd_ps(scaled, weight_scale, load(bias, j, wide, 0))
                          : _mm256_mul_ps(scaled, weight_scale);
        if (activated) all = gelu(all);
        store(found, j, wide, all, half);
    }
}

#define LINEAR_ROWS linear_int8_rows_avx2
#include "int8_rows.h"

/* Outputs `first` to `last` of rows that were brought to int8, panel by panel; each is laid out when its turn comes, and
fetched from memory while the one before it is multiplied. */
INLINE int multiply_panels(const int16_t *numbers, const float *scales, const int8_t *weights,
                           const int32_t *weight_sums, const float *weight_scales, const float *bias, float *found,
                           long count, long inputs, long outputs, long first, long last) {
    const long depth = (inputs + DEPTH - 1) / DEPTH * DEPTH;
    int8_t *panel = malloc(depth * PANEL);
    if (!panel) return 1;
    for (long output = first; output < last; output += PANEL) {
        const long wide = last - output < PANEL ? last - output : PANEL;
        const char *next = (const char *)(weights + (output + wide) * inputs);
        const long ahead = last - output - wide < PANEL ? 0 : PANEL * inputs;
        lay_out(panel, weights + output * inputs, inputs, wide, depth);
        multiply_rows(numbers, scales, panel, depth, next, ahead, weight_sums + output, weight_scales + output,
                      bias ? bias + output : NULL, found + output, 0, 0, count, outputs, wide);
    }
    free(panel);
    return 0;
}

/* Outputs `first` to `last` of rows (count, inputs), by weights (outputs, inputs); 1 where there is no memory. */
int linear_int8_avx2(const float *rows, const int8_t *weights, const int32_t *weight_sums, const float *weight_scales,
                     const float *bias, float *found, long count, long inputs, long outputs, long first, long last) {
    const long stride = (inputs + DEPTH - 1) / DEPTH * DEPTH, whole = inputs / DEPTH * DEPTH;
    int16_t *numbers = malloc(count * (2 * stride + sizeof(float)));
    if (!numbers) return 1;
    float *scales = (float *)(numbers + count * stride);
    for (long row = 0; row < count; row++) scales[row] = quantize(numbers + row * stride, rows + row * inputs, inputs, 0);
    if (count > FEWEST) {
        const int failed = multiply_panels(numbers, scales, weights, weight_sums, weight_scales, bias, found, count, inputs,
                                           outputs, first, last);
        free(numbers);
        return failed;
    }
    /* Outputs that are multiplied together lie half of all apart: so each is read as one stream, which the processor
    fetches ahead by itself, faster than it does what it is told to. */
    const long half = (last - first + 1) / PAIR;
    for (long output = first; output < first + half; output++) {
        const int wide = output + half < last ? PAIR : 1;
        const int8_t *of_outputs[PAIR] = {weights + output * inputs, weights + (output + (wide - 1) * half) * inputs};
        int8_t rest[PAIR][DEPTH] = {{0}};
        for (int j = 0; j < PAIR; j++) memcpy(rest[j], of_outputs[j] + whole, inputs - whole);
        for (long row = 0; row < count; row += TILE) {
            const int high = count - row < TILE ? (int)(count - row) : TILE;
            const int16_t *of_rows[TILE];
            for (int i = 0; i < TILE; i++) of_rows[i] = numbers + (row + (i < high ? i : 0)) * stride;
            __m256i sums[TILE][PAIR];
            for (int i = 0; i < TILE * PAIR; i++) sums[i / PAIR][i % PAIR] = _mm256_setzero_si256();
            for (long at = 0; at < whole; at += DEPTH) {
                const int8_t *some[PAIR] = {of_outputs[0] + at, of_outputs[1] + at};
                multiply(sums, of_rows, some, at);
            }
            if (whole < inputs) multiply(sums, of_rows, (const int8_t *[PAIR]){rest[0], rest[1]}, whole);
            for (int i = 0; i < high; i++)
                for (int j = 0; j < wide; j++) {
                    const float scaled = (float)sum_up(sums[i][j]) * scales[row + i];
                    const long at = output + j * half;
                    const float weight_scale = weight_scales[at];
                    found[(row + i) * outputs + at] =
                        bias ? __builtin_fmaf(scaled, weight_scale, bias[at]) : scaled * weight_scale;
                }
        }
    }
    free(numbers);
    return 0;
}

/* Sums of 8 vectors, in their order. */
INLINE __m256 sum_each(const __m256 *of) {
    const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(of[0], of[1]), _mm256_hadd_ps(of[2], of[3]));
    const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(of[4], of[5]), _mm256_hadd_ps(of[6], of[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}

INLINE float reduce(__m256 of, int is_max) {
    const __m128 low = _mm256_castps256_ps128(of), high = _mm256_extractf128_ps(of, 1);
    const __m128 four = is_max ? _mm_max_ps(low, high) : _mm_add_ps(low, high);
    const __m128 rest = _mm_movehl_ps(four, four), two = is_max ? _mm_max_ps(four, rest) : _mm_add_ps(four, rest);
    const __m128 last = _mm_movehdup_ps(two);
    return _mm_cvtss_f32(is_max ? _mm_max_ss(two, last) : _mm_add_ss(two, last));
}

#define ASKED 4 /* queries that read a value together */

/* Scores of a query, to the base of 2, and the highest; the mask has a byte of a key, zero where it is not seen. */
INLINE float score_keys(float *scores, const char *query, const char *key, long stride, const uint8_t *mask, long keys,
                        float scale, int head_dim, int half_precision) {
    const __m256 hidden = _mm256_set1_ps(-INFINITY);
    __m256 most = hidden;
    for (long at = 0; at < keys; at += LANES) {
        __m256 sums[LANES];
        const char *rows[LANES];
        for (int k = 0; k < LANES; k++) {
            rows[k] = key + (at + k < keys ? at + k : keys - 1) * stride;
            sums[k] = _mm256_setzero_ps();
        }
        for (int i = 0; i < head_dim; i += LANES) {
            const __m256 asked = _mm256_loadu_ps((const float *)query + i);
            for (int k = 0; k < LANES; k++)
                sums[k] = _mm256_fmadd_ps(asked, _mm256_loadu_ps((const float *)rows[k] + i), sums[k]);
        }
        uint8_t seen[LANES] = {0};
        const long some = keys - at < LANES ? keys - at : LANES;
        if (mask) memcpy(seen, mask + at, some);
        else memset(seen, 1, some);
        const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)seen));
        const __m256 is_hidden = _mm256_castsi256_ps(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()));
        const __m256 all = _mm256_mul_ps(sum_each(sums), _mm256_set1_ps(scale * LOG2E));
        const __m256 found = _mm256_blendv_ps(all, hidden, is_hidden);
        _mm256_storeu_ps(scores + at, found);
        most = _mm256_max_ps(most, found);
    }
    return reduce(most, 1);
}

/* Of `count` queries, means of values (keys, head_dim) by weights 2^(score - top); zeros where nothing is seen. */
INLINE void mean_values(char *const *found, float *scores, long room, const float *top, const char *value, long stride,
                        long keys, int count, int head_dim, int half_precision) {
    float shares[ASKED];
    for (int i = 0; i < count; i++) {
        __m256 total = _mm256_setzero_ps();
        const __m256 most = _mm256_set1_ps(top[i] == -INFINITY ? 0 : top[i]);
        for (long at = 0; at < keys; at += LANES) {
            const __m256 weights = power_of_two(_mm256_sub_ps(_mm256_loadu_ps(scores + i * room + at), most), 0);
            _mm256_storeu_ps(scores + i * room + at, weights);
            total = _mm256_add_ps(total, weights);
        }
        const float all = reduce(total, 0);
        shares[i] = all == 0 ? 0 : 1 / all;
    }
    const int wide = count == 1 ? 4 : 2; /* vectors of values, whose sums stay in registers */
    for (int d = 0; d < head_dim; d += wide * LANES) {
        __m256 sums[ASKED][4];
        for (int i = 0; i < count * 4; i++) sums[i / 4][i % 4] = _mm256_setzero_ps();
        for (long k = 0; k < keys; k++) {
            const float *row = (const float *)(value + k * stride) + d;
            for (int i = 0; i < count; i++) {
                const __m256 weight = _mm256_set1_ps(scores[i * room + k]);
                for (int j = 0; j < wide; j++)
                    sums[i][j] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(row + LANES * j), sums[i][j]);
            }
        }
        for (int i = 0; i < count; i++)
            for (int j = 0; j < wide; j++)
                _mm256_storeu_ps((float *)found[i] + d + LANES * j, _mm256_mul_ps(sums[i][j], _mm256_set1_ps(shares[i])));
    }
}

#include "step.h"

STEP(step_float32_32_avx2, 32, 0)
STEP(step_float32_64_avx2, 64, 0)

#define KEYS 32    /* at a time: 8 KiB of them, and as much of values, stay in the first cache */
#define TOGETHER 2 /* vectors of a product: 6 x 2 sums stay in registers */

typedef __m256 vector;

INLINE vector spread(float number) { return _mm256_set1_ps(number); }

INLINE vector larger(vector one, vector other) { return _mm256_max_ps(one, other); }

INLINE vector multiply_add(vector one, vector other, vector sum) { return _mm256_fmadd_ps(one, other, sum); }

INLINE float largest_of(vector numbers) { return reduce(numbers, 1); }

INLINE float sum_of(vector numbers) { return reduce(numbers, 0); }

INLINE int any_above(vector numbers, float bound) {
    return _mm256_movemask_ps(_mm256_cmp_ps(numbers, _mm256_set1_ps(bound), _CMP_GT_OQ)) != 0;
}

/* Of numbers from `place` on, those from `first` to `last`, and another one instead of the rest. */
INLINE vector between(vector numbers, int place, int first, int last, float other) {
    const __m256i places = _mm256_add_epi32(_mm256_set1_epi32(place), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), places),
                                            _mm256_cmpgt_epi32(places, _mm256_set1_epi32(last)));
    return _mm256_blendv_ps(numbers, _mm256_set1_ps(other), _mm256_castsi256_ps(outside));
}

/* Add the products of a number and of many. */
INLINE vector add_products(vector sum, uint32_t one, vector many, int half_precision) {
    float number;
    memcpy(&number, &one, 4);
    return _mm256_fmadd_ps(_mm256_set1_ps(number), many, sum);
}

INLINE void put_weights(uint32_t *to, const vector *weights, int half_precision) {
    for (int j = 0; j < KEYS / LANES; j++) _mm256_store_ps((float *)to + LANES * j, weights[j]);
}

INLINE void put(char *row, int j, vector numbers, int half_precision) {
    _mm256_storeu_ps((float *)row + LANES * j, numbers);
}

#include "attend.h"

ATTEND(attend_float32_32_avx2, 32, 0)
ATTEND(attend_float32_64_avx2, 64, 0)

#define LINEAR linear_float32_avx2
#include "linear.h"

#define MIX mix_float32_avx2
#include "copying.h"

#define NORM norm_float32_avx2
#define DECODER_LAYER decoder_layer_avx2
#define STEP_OF(HEAD_DIM) step_float32_##HEAD_DIM##_avx2
#include "decoder_layer.h"
