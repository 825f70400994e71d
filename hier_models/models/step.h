/* Attention of few queries, as in a step of decoding, around the including file's `score_keys` and `mean_values`, which take
the type where they know one. */

/* Attend from few queries to all keys that a mask shows, for heads `first` to `last` of (batch, heads). */
INLINE int step(const char *query, const char *key, const char *value, char *found, const uint8_t *mask,
                const long *strides, long heads, long queries, long keys, long first, long last, float scale,
                int head_dim, int half_precision) {
    const long room = (keys + LANES - 1) / LANES * LANES;
    float *scores = malloc(ASKED * room * sizeof *scores), top[ASKED];
    if (!scores) return 1;
    for (long each = first; each < last; each++) {
        const long document = each / heads, head = each % heads;
        const char *of_query = query + document * strides[0] + head * strides[1];
        const char *of_key = key + document * strides[3] + head * strides[4];
        const char *of_value = value + document * strides[6] + head * strides[7];
        char *of_found = found + document * strides[9] + head * strides[10], *rows[ASKED];
        for (long at = 0; at < queries; at += ASKED) {
            const int count = queries - at < ASKED ? (int)(queries - at) : ASKED;
            for (int i = 0; i < count; i++) {
                const uint8_t *seen =
                    mask ? mask + document * strides[12] + head * strides[13] + (at + i) * strides[14] : NULL;
                rows[i] = of_found + (at + i) * strides[11];
                top[i] = score_keys(scores + i * room, of_query + (at + i) * strides[2], of_key, strides[5], seen, keys,
                                    scale, head_dim, half_precision);
            }
            if (count == ASKED)
                mean_values(rows, scores, room, top, of_value, strides[8], keys, ASKED, head_dim, half_precision);
            else
                for (int i = 0; i < count; i++)
                    mean_values(rows + i, scores + i * room, room, top + i, of_value, strides[8], keys, 1, head_dim,
                                half_precision);
        }
    }
    free(scores);
    return 0;
}

/* Strides are those of documents, heads and tokens, in bytes, of query, key, value, found and mask, which may be none. */
#define STEP(NAME, HEAD_DIM, HALF_PRECISION)                                                                         \
    int NAME(const char *query, const char *key, const char *value, char *found, const uint8_t *mask,                \
             const long *strides, long heads, long queries, long keys, long first, long last, float scale) {         \
        return step(query, key, value, found, mask, strides, heads, queries, keys, first, last, scale, HEAD_DIM,     \
                    HALF_PRECISION);                                                                                 \
    }
