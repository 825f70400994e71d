/* What a head's scores become where tokens of the source may be copied, around the including file's `vector` of LANES. */

/* Logarithm of (1 - p) softmax(scores) + p copied, of rows (count, size): p is the sigmoid of a row's gate, and `copied`
sums weights (count, tokens) over equal tokens of the source. 1 where there is no memory, or no such token. */
int MIX(const float *scores, const float *gates, const float *weights, const int64_t *source, float *found, long count,
        long size, long tokens) {
    for (long at = 0; at < count * tokens; at++)
        if (source[at] < 0 || source[at] >= size) return 1;
    float *const copied = calloc(size, sizeof *copied);
    if (!copied) return 1;
    const long whole = size / LANES * LANES;
    for (long row = 0; row < count; row++, scores += size, found += size, weights += tokens, source += tokens) {
        float rest[LANES];
        for (int i = 0; i < LANES; i++) rest[i] = whole + i < size ? scores[whole + i] : -INFINITY;
        vector most = vector_at(rest), total = spread(0);
        for (long at = 0; at < whole; at += LANES) most = larger(most, vector_at(scores + at));
        const float top = largest_of(most);
        for (long at = 0; at < whole; at += LANES)
            total = total + power_of_two((vector_at(scores + at) - spread(top)) * spread(LOG2E), 0);
        total = total + power_of_two((vector_at(rest) - spread(top)) * spread(LOG2E), 0);
        /* Logarithms of p and of 1 - p, each exact where it is small. */
        const float gate = gates[row], small = log1pf(expf(-fabsf(gate)));
        const float of_copied = (gate < 0 ? gate : 0) - small, of_generated = (gate > 0 ? -gate : 0) - small;
        const float shift = of_generated - logf(sum_of(total));
        for (long at = 0; at < whole; at += LANES) {
            const vector numbers = vector_at(scores + at) - spread(top) + spread(shift);
            memcpy(found + at, &numbers, sizeof numbers);
        }
        for (long at = whole; at < size; at++) found[at] = scores[at] - top + shift;
        for (long at = 0; at < tokens; at++) copied[source[at]] += weights[at];
        for (long at = 0; at < tokens; at++) { /* of equal tokens the first; others find nothing any more */
            float *const token = copied + source[at], *const mixed = found + source[at];
            if (*token > 0) {
                const float added = logf(*token) + of_copied, high = *mixed > added ? *mixed : added;
                *mixed = high == -INFINITY ? high : high + log1pf(expf(-fabsf(*mixed - added)));
            }
            *token = 0;
        }
    }
    free(copied);
    return 0;
}
