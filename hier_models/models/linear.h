/* Linear layers of few rows in float32, as in a step of decoding, around the including file's `vector` of LANES numbers.

Such rows wait for the weights. Torch reads these as fast as memory gives them for one row, and at a third of that for
four, the beams of a document. */

#define FEW 6     /* rows that are multiplied together, or */
#define FEWER 4   /* where there are no more */
#define STREAMS 2 /* and outputs: 12 sums stay in registers */
#define BLOCK 4   /* outputs of a stream, which stay in the cache for all rows */

INLINE vector vector_at(const float *from) {
    vector numbers;
    memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

/* `few` rows, `high` of which are there, times as many outputs as there are streams, `wide` of which are there. */
INLINE void multiply_few(float *found, const float *rows, const float *weights, const float *bias, long inputs,
                         long outputs, long half, int few, int high, int wide) {
    const float *of_rows[FEW], *of_outputs[STREAMS] = {weights, weights + (wide - 1) * half * inputs};
    vector sums[FEW][STREAMS];
#pragma GCC unroll 6
    for (int i = 0; i < few; i++) {
        of_rows[i] = rows + (i < high ? i : 0) * inputs;
        for (int j = 0; j < STREAMS; j++) sums[i][j] = spread(0);
    }
    for (long at = 0; at < inputs; at += LANES) {
        const vector many[STREAMS] = {vector_at(of_outputs[0] + at), vector_at(of_outputs[1] + at)};
#pragma GCC unroll 6
        for (int i = 0; i < few; i++) {
            const vector numbers = vector_at(of_rows[i] + at);
            for (int j = 0; j < STREAMS; j++) sums[i][j] = multiply_add(numbers, many[j], sums[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < few; i++)
        for (int j = 0; j < STREAMS; j++)
            if (i < high && j < wide) found[i * outputs + j * half] = sum_of(sums[i][j]) + (bias ? bias[j * half] : 0);
}

/* Outputs `first` to `last` of rows (count, inputs), by weights (outputs, inputs); inputs are whole vectors. Of a row it is
the same with others beside it. */
int LINEAR(const float *rows, const float *weights, const float *bias, float *found, long count, long inputs,
           long outputs, long first, long last) {
    /* Outputs that are multiplied together lie half of all apart, so that each is one stream: see avx2_kernel.c. */
    const long half = (last - first + 1) / STREAMS, end = first + half;
    for (long begin = first; begin < end; begin += BLOCK)
        for (long row = 0; row < count; row += FEW)
            for (long output = begin; output < begin + BLOCK && output < end; output++) {
                const int high = count - row < FEW ? (int)(count - row) : FEW, wide = output + half < last ? STREAMS : 1;
                const float *of_row = rows + row * inputs, *weight = weights + output * inputs;
                const float *added = bias ? bias + output : NULL;
                float *to = found + row * outputs + output;
                if (high <= FEWER) multiply_few(to, of_row, weight, added, inputs, outputs, half, FEWER, high, wide);
                else multiply_few(to, of_row, weight, added, inputs, outputs, half, FEW, high, wide);
            }
    return 0;
}
