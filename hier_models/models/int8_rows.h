/* Linear layers of many rows in int8, around the including file's `quantize`, `multiply_panel` and `finish`. */

#define LINE 64 /* bytes that are fetched from memory together */

/* Rows that were brought to int8, (count, depth), by a panel of which `wide` outputs are there; meanwhile `ahead`
bytes from `next` on are fetched, for each row its share. */
INLINE void multiply_rows(const number *numbers, const float *scales, const int8_t *panel, long depth, const char *next,
                          long ahead, const int32_t *weight_sums, const float *weight_scales, const float *bias,
                          void *found, long half_found, long activated, long count, long outputs, long wide) {
    for (long row = 0; row < count; row += HIGH) {
        for (long at = ahead * row / count; at < ahead * (row + HIGH) / count; at += LINE)
            _mm_prefetch(next + at, _MM_HINT_T1);
        const int high = count - row < HIGH ? count - row : HIGH;
        const number *of_rows[HIGH];
        for (int i = 0; i < HIGH; i++) of_rows[i] = numbers + (row + (i < high ? i : 0)) * depth;
        int32_t products[HIGH * PANEL];
        multiply_panel(products, of_rows, panel, depth);
        for (int i = 0; i < high; i++) {
            const long at = (row + i) * outputs;
            void *to = half_found ? (void *)((bfloat16 *)found + at) : (void *)((float *)found + at);
            finish(to, products + i * PANEL, scales[row + i], weight_sums, weight_scales, bias, wide, half_found,
                   activated);
        }
    }
}

/* Rows (count, inputs) by weights that were laid out, and GELU where it is `activated`; 1 where there is no memory. Rows
and what is found are bfloat16 where `half_rows` and `half_found` say so. */
int LINEAR_ROWS(const void *rows, const int8_t *laid_out, const int32_t *weight_sums, const float *weight_scales,
                const float *bias, void *found, long half_rows, long half_found, long activated, long count,
                     long inputs, long outputs) {
    const long depth = (inputs + SIDE - 1) / SIDE * SIDE;
    const long most = CACHED / depth < HIGH ? HIGH : CACHED / depth / HIGH * HIGH; /* rows at a time */
    number *numbers = malloc(most * (depth * sizeof(number) + sizeof(float)));
    if (!numbers) return 1;
    float *scales = (float *)(numbers + most * depth);
    for (long begin = 0; begin < count; begin += most) {
        const long some = count - begin < most ? count - begin : most;
        for (long row = 0; row < some; row++) {
            number *to = numbers + row * depth;
            if (half_rows) scales[row] = quantize(to, (const bfloat16 *)rows + (begin + row) * inputs, inputs, 1);
            else scales[row] = quantize(to, (const float *)rows + (begin + row) * inputs, inputs, 0);
        }
        for (long output = 0; output < outputs; output += PANEL) {
            const long wide = outputs - output < PANEL ? outputs - output : PANEL;
            const long at = begin * outputs + output;
            void *to = half_found ? (void *)((bfloat16 *)found + at) : (void *)((float *)found + at);
            multiply_rows(numbers, scales, laid_out + output * depth, depth, NULL, 0, weight_sums + output,
                          weight_scales + output, bias ? bias + output : NULL, to, half_found, activated, some, outputs,
                          wide);
        }
    }
    free(numbers);
    return 0;
}
