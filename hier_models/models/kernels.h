/* What the kernels have in common: 16 numbers at a time, with AVX-512. */

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define LOG2E 1.44269504f
#define INLINE static inline __attribute__((always_inline))

typedef uint16_t bfloat16;

/* 2^power; zero instead of what is too small for a normal number. */
INLINE __m512 power_of_two(__m512 power, int half_precision) {
    const __m512 whole = _mm512_roundscale_ps(power, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 rest = _mm512_sub_ps(power, whole);
    __m512 sum = _mm512_set1_ps(9.61812911e-3f); /* of the series of 2^rest, as far as can be told apart */
    if (!half_precision) {
        sum = _mm512_fmadd_ps(_mm512_set1_ps(1.54035304e-4f), rest, _mm512_set1_ps(1.33335581e-3f));
        sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(9.61812911e-3f));
    }
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(5.55041087e-2f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(2.40226507e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(6.93147181e-1f));
    sum = _mm512_fmadd_ps(sum, rest, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(power, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), sum, whole);
}
