/* A linear layer in int8 for few rows, such as those of a step of decoding, for CPUs with AVX512-VNNI.

Few rows wait for the weights, so these are read once, as they lie in memory, and nothing is laid out anew. One
instruction multiplies 64 numbers of a row, which have no sign there, by as many weights: so 128 is added to the row's
numbers, and 128 times the sum of the weights is taken away again. To the bit it is what torch's operators give.

hatch_build.py compiles this; pipelines/int8_kernel.py calls it. */

#include <float.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TILE 4     /* rows and outputs that are multiplied together: 16 sums stay in registers */
#define LANES 16
#define DEPTH 64   /* numbers that one instruction multiplies */
#define ZERO 7     /* 2^7 stands for zero */
#define AHEAD 2048 /* bytes of weights that are fetched before they are needed */

#define INLINE static inline __attribute__((always_inline))

/* Bring a row to int8, and return what each number is to be multiplied with. */
static float quantize(uint8_t *to, const float *from, long inputs) {
    __m512i most = _mm512_setzero_si512(); /* as bits: a NaN is the largest */
    for (long i = 0; i < inputs; i += LANES) {
        const __mmask16 there = inputs - i < LANES ? (1u << (inputs - i)) - 1 : 0xffff;
        const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(there, from + i));
        most = _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(most);
    float scale;
    memcpy(&scale, &bits, 4);
    scale /= 127.0f;
    if (scale < FLT_MIN) scale = FLT_MIN;
    for (long i = 0; i < inputs; i += LANES) {
        const __mmask16 there = inputs - i < LANES ? (1u << (inputs - i)) - 1 : 0xffff;
        const __m512 numbers = _mm512_div_ps(_mm512_maskz_loadu_ps(there, from + i), _mm512_set1_ps(scale));
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
    for (long row = 0; row < count; row++) scales[row] = quantize(numbers + row * stride, rows + row * inputs, inputs);
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
