/* Linear layers of few rows in float32, as in a step of decoding, around the including file's `vector` of LANES numbers.

Such rows wait for the weights. Torch reads these as fast as memory gives them for one row, and at a third of that for
four, the beams of a document. */

#define FEW 4     /* rows that are multiplied together */
#define STREAMS 2 /* and outputs: 8 sums stay in registers */

INLINE vector vector_at(const float *from) {
    vector numbers;
    memcpy(&numbers, from, sizeof numbers);
    return numbers;
}

/* Outputs `first` to `last` of rows (count, inputs), by weights (outputs, inputs); inputs are whole vectors. Of a row it is
the same with others beside it. */
int LINEAR(const float *rows, const float *weights, const float *bias, float *found, long count, long inputs,
           long outputs, long first, long last) {
    /* Outputs that are multiplied together lie half of all apart, so that each is one stream: see avx2_kernel.c. */
    const long half = (last - first + 1) / STREAMS;
    for (long output = first; output < first + half; output++) {
        const int wide = output + half < last ? STREAMS : 1;
        const float *of_outputs[STREAMS] = {weights + output * inputs, weights + (output + (wide - 1) * half) * inputs};
        for (long row = 0; row < count; row += FEW) {
            const int high = count - row < FEW ? (int)(count - row) : FEW;
            const float *of_rows[FEW];
            for (int i = 0; i < FEW; i++) of_rows[i] = rows + (row + (i < high ? i : 0)) * inputs;
            vector sums[FEW][STREAMS];
            for (int i = 0; i < FEW * STREAMS; i++) sums[i / STREAMS][i % STREAMS] = spread(0);
            for (long at = 0; at < inputs; at += LANES) {
                const vector many[STREAMS] = {vector_at(of_outputs[0] + at), vector_at(of_outputs[1] + at)};
                for (int i = 0; i < FEW; i++)
                    for (int j = 0; j < STREAMS; j++)
                        sums[i][j] = multiply_add(vector_at(of_rows[i] + at), many[j], sums[i][j]);
            }
            for (int i = 0; i < high; i++)
                for (int j = 0; j < wide; j++) {
                    const long at = output + j * half;
                    found[(row + i) * outputs + at] = sum_of(sums[i][j]) + (bias ? bias[at] : 0);
                }
        }
    }
    return 0;
}
