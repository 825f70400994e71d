/* Linear layers in int8, for CPUs with AVX512-VNNI.

One instruction multiplies 64 numbers of rows, which have no sign there, by as many weights: so 128 is added to the
rows' numbers, and 128 times the sum of the weights is taken away again. To the bit it is what torch's operators give, but for GELU.

Few rows, such as those of a step of decoding, wait for the weights: `linear_int8` reads these once, as they lie in
memory. For many, such as an encoder's, `lay_out_int8` brings weights into the order in which `linear_int8_rows` reads
them, four inputs of 64 outputs side by side. That brings some rows at a time to int8, which stay in the cache, and its
products are numbers again before they leave the registers.

hatch_build.py compiles this; pipelines/int8_kernel.py calls it. */

#include "kernels.h"

#include <float.h>

#define TILE 4     /* rows and outputs that are multiplied together: 16 sums stay in registers */
#define DEPTH 64   /* numbers that one instruction multiplies */
#define ZERO 7     /* 2^7 stands for zero */
#define PANEL 64   /* outputs of many rows that are multiplied together */
#define SIDE PANEL /* outputs, and inputs, that are laid out together */
#define HIGH 6     /* and rows */
#define ACROSS (PANEL / LANES) /* 24 sums stay in registers */
#define CACHED (1 << 18) /* numbers of rows that are multiplied before the next */
#define AHEAD 2048 /* bytes of weights that are fetched before they are needed */

typedef uint8_t number; /* of a row */

/* Some of 16 numbers, as float32. */
INLINE __m512 load(const void *from, long at, __mmask16 there, int half) {
    if (!half) return _mm512_maskz_loadu_ps(there, (const float *)from + at);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, (const bfloat16 *)from + at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* 16 numbers as bfloat16, rounded as torch does: to the nearest, and half way to the even one. */
INLINE __m256i rounded(__m512 numbers) {
    const __m512i bits = _mm512_castps_si512(numbers);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
    const __mmask16 is_none = _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_srli_epi32(up, 16), is_none, _mm512_set1_epi32(0x7fc0)));
}

/* Bring a row to int8, and return what each number is to be multiplied with. */
INLINE float quantize(uint8_t *to, const void *from, long inputs, int half) {
    __m512i most = _mm512_setzero_si512(); /* as bits: a NaN is the largest */
    for (long i = 0; i < inputs; i += LANES) {
        const __mmask16 there = inputs - i < LANES ? (1u << (inputs - i)) - 1 : 0xffff;
        const __m512i bits = _mm512_castps_si512(load(from, i, there, half));
        most = _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    float scale;
    memcpy(&scale, &bits, 4);
    scale /= 127.0f;
    if (scale < FLT_MIN) scale = FLT_MIN;
    for (long i = 0; i < inputs; i += LANES) {
        const __mmask16 there = inputs - i < LANES ? (1u << (inputs - i)) - 1 : 0xffff;
        const __m512 numbers = _mm512_div_ps(load(from, i, there, half), _mm512_set1_ps(scale));
        const __m512i shifted = _mm512_add_epi32(_mm512_cvtps_epi32(numbers), _mm512_set1_epi32(1 << ZERO));
        _mm512_mask_cvtepi32_storeu_epi8(to + i, there, shifted);
    }
    return scale;
}

/* Sums of 16 vectors, in their order. */
INLINE __m512i sum_each(const __m512i *of) {
    __m512i pairs[8], fours[4], eights[2];
    for (int i = 0; i < 8; i++)
        pairs[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(of[2 * i], of[2 * i + 1]),
                                    _mm512_unpackhi_epi32(of[2 * i], of[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        fours[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                                    _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        eights[i] = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[2 * i], fours[2 * i + 1], 0x88),
                                     _mm512_shuffle_i32x4(fours[2 * i], fours[2 * i + 1], 0xdd));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(eights[0], eights[1], 0x88),
                            _mm512_shuffle_i32x4(eights[0], eights[1], 0xdd));
}

/* Add TILE rows times TILE outputs of weights, DEPTH numbers of each, some of which are there. */
INLINE void multiply(__m512i sums[TILE * TILE], const uint8_t *const rows[TILE], const int8_t *const weights[TILE],
                     long at, __mmask64 there, int is_first) {
    __m512i of_row[TILE];
    for (int i = 0; i < TILE; i++) of_row[i] = _mm512_loadu_si512(rows[i] + at);
    for (int j = 0; j < TILE; j++) {
        const __m512i many = _mm512_maskz_loadu_epi8(there, weights[j] + at);
        if (is_first) _mm_prefetch((const char *)weights[j] + at + AHEAD, _MM_HINT_T0);
        for (int i = 0; i < TILE; i++) sums[i * TILE + j] = _mm512_dpbusd_epi32(sums[i * TILE + j], of_row[i], many);
    }
}

/* Outputs `first` to `last` of rows (count, inputs), by weights (outputs, inputs); 1 where there is no memory. */
int linear_int8(const float *rows, const int8_t *weights, const int32_t *weight_sums, const float *weight_scales,
                const float *bias, float *found, long count, long inputs, long outputs, long first, long last) {
    const long stride = (inputs + DEPTH - 1) / DEPTH * DEPTH;
    uint8_t *numbers = malloc(count * (stride + sizeof(float)));
    if (!numbers) return 1;
    float *scales = (float *)(numbers + count * stride);
    for (long row = 0; row < count; row++) scales[row] = quantize(numbers + row * stride, rows + row * inputs, inputs, 0);
    const __m512i by_row = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const __mmask64 rest = (1ull << inputs % DEPTH) - 1;
    for (long output = first; output < last; output += TILE) {
        const int wide = last - output < TILE ? last - output : TILE;
        const __mmask8 kept = (1 << wide) - 1;
        const __m512i shift = _mm512_slli_epi32(
            _mm512_broadcast_i32x4(_mm_maskz_loadu_epi32(kept, weight_sums + output)), ZERO);
        const __m512 weight_scale = _mm512_broadcast_f32x4(_mm_maskz_loadu_ps(kept, weight_scales + output));
        const __m512 added = _mm512_broadcast_f32x4(bias ? _mm_maskz_loadu_ps(kept, bias + output) : _mm_setzero_ps());
        const int8_t *of_outputs[TILE];
        for (int j = 0; j < TILE; j++) of_outputs[j] = weights + (output + (j < wide ? j : 0)) * inputs;
        for (long row = 0; row < count; row += TILE) {
            const int high = count - row < TILE ? count - row : TILE;
            const uint8_t *of_rows[TILE];
            for (int i = 0; i < TILE; i++) of_rows[i] = numbers + (row + (i < high ? i : 0)) * stride;
            __m512i sums[TILE * TILE];
            for (int i = 0; i < TILE * TILE; i++) sums[i] = _mm512_setzero_si512();
            long at = 0;
            if (row == 0) for (; at + DEPTH <= inputs; at += DEPTH) multiply(sums, of_rows, of_outputs, at, ~0ull, 1);
            else for (; at + DEPTH <= inputs; at += DEPTH) multiply(sums, of_rows, of_outputs, at, ~0ull, 0);
            if (rest) multiply(sums, of_rows, of_outputs, at, rest, 0);
            const __m512i products = _mm512_sub_epi32(sum_each(sums), shift);
            const __m512 scale = _mm512_permutexvar_ps(
                by_row, _mm512_castps128_ps512(_mm_maskz_loadu_ps((1 << high) - 1, scales + row)));
            const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(products), scale);
            float many[TILE * TILE];
            _mm512_storeu_ps(many, bias ? _mm512_fmadd_ps(scaled, weight_scale, added)
                                        : _mm512_mul_ps(scaled, weight_scale));
            for (int i = 0; i < high; i++)
                _mm_mask_storeu_ps(found + (row + i) * outputs + output, kept, _mm_loadu_ps(many + i * TILE));
        }
    }
    free(numbers);
    return 0;
}

/* Turn 16 vectors of 16 numbers of 32 bits, so that rows become columns. */
INLINE void turn(__m512i *of) {
    __m512i pairs[16], fours[16], eights[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(of[i], of[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(of[i], of[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        eights[i] = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0x88);
        eights[i + 4] = _mm512_shuffle_i32x4(fours[i], fours[i + 4], 0xdd);
        eights[i + 8] = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0x88);
        eights[i + 12] = _mm512_shuffle_i32x4(fours[i + 8], fours[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        of[i] = _mm512_shuffle_i32x4(eights[i], eights[i + 8], 0x88);
        of[i + 8] = _mm512_shuffle_i32x4(eights[i], eights[i + 8], 0xdd);
    }
}

/* Panels `first` to `last` of weights (outputs, inputs), in the order (panels, inputs / 4, PANEL, 4); 0 is behind them. */
int lay_out_int8(const int8_t *weights, int8_t *laid_out, long inputs, long outputs, long first, long last) {
    const long depth = (inputs + DEPTH - 1) / DEPTH * DEPTH;
    for (long output = first * PANEL; output < last * PANEL; output += LANES) {
        int8_t *to = laid_out + output / PANEL * PANEL * depth + output % PANEL * 4;
        for (long at = 0; at < inputs; at += DEPTH) {
            const __mmask64 there = inputs - at < DEPTH ? (1ull << (inputs - at)) - 1 : ~0ull;
            __m512i many[LANES];
            for (int i = 0; i < LANES; i++)
                many[i] = output + i < outputs ? _mm512_maskz_loadu_epi8(there, weights + (output + i) * inputs + at)
                                               : _mm512_setzero_si512();
            turn(many);
            for (int i = 0; i < LANES; i++) _mm512_storeu_si512(to + (at / 4 + i) * PANEL * 4, many[i]);
        }
    }
    return 0;
}

/* HIGH rows times a panel of weights. */
INLINE void multiply_panel(int32_t *products, const uint8_t *const rows[HIGH], const int8_t *panel, long depth) {
    __m512i sums[HIGH * ACROSS];
#pragma GCC unroll 24
    for (int i = 0; i < HIGH * ACROSS; i++) sums[i] = _mm512_setzero_si512();
    for (long at = 0; at < depth; at += 4) {
        __m512i many[ACROSS];
#pragma GCC unroll 4
        for (int j = 0; j < ACROSS; j++) many[j] = _mm512_loadu_si512(panel + at * PANEL + j * DEPTH);
#pragma GCC unroll 6
        for (int i = 0; i < HIGH; i++) {
            int32_t four;
            memcpy(&four, rows[i] + at, 4);
            const __m512i of_row = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int j = 0; j < ACROSS; j++)
                sums[i * ACROSS + j] = _mm512_dpbusd_epi32(sums[i * ACROSS + j], of_row, many[j]);
        }
    }
#pragma GCC unroll 24
    for (int i = 0; i < HIGH * ACROSS; i++) _mm512_storeu_si512(products + i * LANES, sums[i]);
}

/* What GELU makes of numbers: each times the normal distribution's share below it, by Abramowitz and Stegun, 7.1.26. */
INLINE __m512 gelu(__m512 numbers) {
    const __m512 one = _mm512_set1_ps(1), distance = _mm512_mul_ps(_mm512_abs_ps(numbers), _mm512_set1_ps(0.70710678f));
    const __m512 near = _mm512_div_ps(one, _mm512_fmadd_ps(distance, _mm512_set1_ps(0.3275911f), one));
    __m512 sum = _mm512_fmadd_ps(_mm512_set1_ps(1.061405429f), near, _mm512_set1_ps(-1.453152027f));
    sum = _mm512_fmadd_ps(sum, near, _mm512_set1_ps(1.421413741f));
    sum = _mm512_fmadd_ps(sum, near, _mm512_set1_ps(-0.284496736f));
    sum = _mm512_mul_ps(_mm512_fmadd_ps(sum, near, _mm512_set1_ps(0.254829592f)), near);
    const __m512 power = _mm512_mul_ps(_mm512_mul_ps(distance, distance), _mm512_set1_ps(-LOG2E));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(sum, power_of_two(power, 0)), _mm512_set1_ps(0.5f));
    const __mmask16 is_below = _mm512_cmp_ps_mask(numbers, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mul_ps(numbers, _mm512_mask_mov_ps(_mm512_sub_ps(one, tail), is_below, tail));
}

/* Put what GELU makes of numbers in their place. */
int gelu_float32(float *numbers, long count) {
    for (long at = 0; at < count; at += LANES) {
        const __mmask16 there = count - at < LANES ? (1u << (count - at)) - 1 : 0xffff;
        _mm512_mask_storeu_ps(numbers + at, there, gelu(_mm512_maskz_loadu_ps(there, numbers + at)));
    }
    return 0;
}

/* Products of a row and a panel, as the numbers that they stand for, and perhaps what GELU makes of these. */
INLINE void finish(void *found, const int32_t *products, float scale, const int32_t *weight_sums,
                   const float *weight_scales, const float *bias, long wide, int half, int activated) {
    for (long j = 0; j < wide; j += LANES) {
        const __mmask16 kept = wide - j < LANES ? (1u << (wide - j)) - 1 : 0xffff;
        const __m512i shift = _mm512_slli_epi32(_mm512_maskz_loadu_epi32(kept, weight_sums + j), ZERO);
        const __m512 product = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_loadu_si512(products + j), shift));
        const __m512 scaled = _mm512_mul_ps(product, _mm512_set1_ps(scale));
        const __m512 weight_scale = _mm512_maskz_loadu_ps(kept, weight_scales + j);
        __m512 all = bias ? _mm512_fmadd_ps(scaled, weight_scale, _mm512_maskz_loadu_ps(kept, bias + j))
                          : _mm512_mul_ps(scaled, weight_scale);
        if (activated) all = gelu(all);
        if (half) _mm256_mask_storeu_epi16((bfloat16 *)found + j, kept, rounded(all));
        else _mm512_mask_storeu_ps((float *)found + j, kept, all);
    }
}

#define LINEAR_ROWS linear_int8_rows
#include "int8_rows.h"
