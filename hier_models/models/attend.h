/* Attention of one head, in a window or to all, around the including file's `vector` of LANES numbers.

Scores, softmax and their products do not leave the cache.

A tile of queries goes through its keys, KEYS at a time, and keeps a running maximum and sum (Milakov and Gimelshein,
2018; Dao et al., 2022); what was kept is only scaled anew where there is a new maximum. Numbers are read as words of
32 bits: one float32, or two neighbouring bfloat16. So what is multiplied is laid out in words first:

    keys    (words of a head, keys)       a word of a query times KEYS keys
    values  (words of the keys, head_dim) a word of the weights times a head
*/

#define ROWS 6     /* queries that share a product */
#define QUERIES 48 /* in a tile */
#define ACROSS (KEYS / LANES)
#define HIDDEN -1e38f

/* (ROWS, depth) words times (depth, columns) words; added to what is kept of each row of sums, where that is given. */
INLINE void multiply_words(vector *sums, const uint32_t *left, const uint32_t *right, int depth, int columns,
                           const float *kept, int half_precision) {
    const int across = columns / LANES;
    for (int first = 0; first < across; first += TOGETHER) {
        const int wide = across - first < TOGETHER ? across - first : TOGETHER;
        vector some[ROWS][TOGETHER];
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < wide; j++) {
                some[i][j] = spread(0);
                if (kept) some[i][j] = sums[i * across + first + j] * spread(kept[i]);
            }
        for (int word = 0; word < depth; word++) {
            const vector *row = (const vector *)(right + word * columns) + first;
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < wide; j++)
                    some[i][j] = add_products(some[i][j], left[i * depth + word], row[j], half_precision);
        }
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < wide; j++) sums[i * across + first + j] = some[i][j];
    }
}

/* Keys `start` to `end` as (blocks, words of a head, KEYS); zeros behind the last. */
INLINE void lay_out_keys(uint32_t *to, const char *from, long stride, long start, long end, int words) {
    for (long key = start, place = 0; place < (end - start + KEYS - 1) / KEYS * KEYS; key++, place++) {
        uint32_t *column = to + place / KEYS * KEYS * words + place % KEYS;
        for (int word = 0; word < words; word++) {
            if (key < end) memcpy(column + word * KEYS, from + key * stride + 4 * word, 4);
            else column[word * KEYS] = 0;
        }
    }
}

/* Values `start` to `end` as (words of the keys, head_dim); zeros behind the last. */
INLINE void lay_out_values(uint32_t *to, const char *from, long stride, long start, long end, int head_dim,
                           int half_precision) {
    const long padded = start + (end - start + KEYS - 1) / KEYS * KEYS;
    for (long key = start; key < padded; key += 1 + half_precision, to += head_dim) {
        const char *row = from + key * stride;
        if (!half_precision) {
            if (key < end) memcpy(to, row, 4 * head_dim);
            else memset(to, 0, 4 * head_dim);
            continue;
        }
        for (int d = 0; d < head_dim; d++) {
            const uint32_t first = key < end ? ((const bfloat16 *)row)[d] : 0;
            const uint32_t second = key + 1 < end ? ((const bfloat16 *)(row + stride))[d] : 0;
            to[d] = first | second << 16;
        }
    }
}

/* Of scores from `place` on, those from `first` to `last`; the others are hidden. */
INLINE vector shown(vector scores, int place, long first, long last) {
    const int from = first < 0 ? 0 : first > KEYS ? KEYS : (int)first, to = last >= KEYS ? KEYS - 1 : (int)last;
    return between(scores, place, from, to < -1 ? -1 : to, HIDDEN);
}

INLINE int attend(const char *query, const char *key, const char *value, char *attended, float *normalizer,
                  const long *strides, long tokens, long first, long last, long half, float scale, int head_dim,
                  int half_precision) {
    const int words = half_precision ? head_dim / 2 : head_dim, key_words = half_precision ? KEYS / 2 : KEYS;
    /* Blocks of keys lie where they would if all queries were asked for, so that their number changes no bit. */
    const long start = first < half ? 0 : (first - half) / KEYS * KEYS;
    const long end = last + half > tokens ? tokens : last + half;
    const long blocks = (end - start + KEYS - 1) / KEYS, block_words = (long)KEYS * words;
    const long value_words = (long)key_words * head_dim;
    uint32_t *keys = aligned_alloc(64, blocks * block_words * sizeof *keys);
    uint32_t *values = aligned_alloc(64, blocks * value_words * sizeof *values);
    if (!keys || !values) {
        free(keys), free(values);
        return 1;
    }
    lay_out_keys(keys, key, strides[1], start, end, words);
    lay_out_values(values, value, strides[2], start, end, head_dim, half_precision);

    _Alignas(64) uint32_t queries[QUERIES * 64], weights[ROWS * KEYS];
    _Alignas(64) float outputs[QUERIES * 64];
    float top[QUERIES];
    vector total[QUERIES];
    const vector factor = spread(scale * LOG2E); /* scores are to the base of 2 */
    for (long tile = first; tile < last; tile += QUERIES) {
        const int count = last - tile < QUERIES ? (int)(last - tile) : QUERIES;
        memset(outputs, 0, sizeof outputs);
        memset(queries, 0, sizeof queries);
        for (int i = 0; i < QUERIES; i++) top[i] = HIDDEN, total[i] = spread(0);
        for (int i = 0; i < count; i++) memcpy(queries + i * words, query + (tile + i) * strides[0], 4 * words);
        const long from = tile - half < start ? start : tile - half;
        const long until = tile + count + half > end ? end : tile + count + half;
        for (long block = (from - start) / KEYS; start + block * KEYS < until; block++) {
            const long at = start + block * KEYS;
            for (int i = 0; i < count; i += ROWS) {
                const long lowest = tile + i, highest = lowest + ROWS - 1;
                if (at + KEYS <= lowest - half || at > highest + half) continue;
                const int all_seen = at >= highest - half && at + KEYS - 1 <= lowest + half && at + KEYS <= end;
                vector sums[ROWS][ACROSS];
                multiply_words(sums[0], queries + i * words, keys + block * block_words, words, KEYS, NULL,
                               half_precision);
                float kept[ROWS]; /* of what was summed up before */
                for (int r = 0; r < ROWS; r++) {
                    const long here = lowest + r - at;
                    const long behind = here + half < end - 1 - at ? here + half : end - 1 - at;
                    vector most = spread(HIDDEN), sum = spread(0);
                    for (int j = 0; j < ACROSS; j++) {
                        sums[r][j] = sums[r][j] * factor;
                        if (!all_seen) sums[r][j] = shown(sums[r][j], LANES * j, here - half, behind);
                        most = larger(most, sums[r][j]);
                    }
                    kept[r] = 1;
                    if (any_above(most, top[i + r])) {
                        /* Where a row saw nothing yet, it is forgotten: what was kept is zero then. */
                        const float highest_score = largest_of(most);
                        kept[r] = power_of_two(spread(top[i + r] - highest_score), 0)[0];
                        top[i + r] = highest_score;
                    }
                    for (int j = 0; j < ACROSS; j++) {
                        sums[r][j] = power_of_two(sums[r][j] - spread(top[i + r]), half_precision);
                        sum = sum + sums[r][j];
                    }
                    total[i + r] = multiply_add(total[i + r], spread(kept[r]), sum);
                    put_weights(weights + r * key_words, sums[r], half_precision);
                }
                multiply_words((vector *)(outputs + i * head_dim), weights, values + block * value_words, key_words,
                               head_dim, kept, half_precision);
            }
        }
        for (int i = 0; i < count; i++) {
            const float all = sum_of(total[i]);
            const vector *output = (const vector *)(outputs + i * head_dim);
            for (int j = 0; j < head_dim / LANES; j++)
                put(attended + (tile + i) * strides[3], j, spread(1 / all) * output[j], half_precision);
            normalizer[tile + i] = top[i] / LOG2E + logf(all);
        }
    }
    free(keys), free(values);
    return 0;
}

/* Attend from queries `first` to `last` of a document to those of `tokens` keys that are at most `half` away.

Strides are those of tokens, in bytes, of query, key, value and attended. Gives 1 where there is no memory. Other
arguments need another name: an editable installation may have what was compiled before. */
#define ATTEND(NAME, HEAD_DIM, HALF_PRECISION)                                                                       \
    int NAME(const char *query, const char *key, const char *value, char *attended, float *normalizer,               \
             const long *strides, long tokens, long first, long last, long half, float scale) {                      \
        return attend(query, key, value, attended, normalizer, strides, tokens, first, last, half, scale, HEAD_DIM,  \
                      HALF_PRECISION);                                                                               \
    }
