/* A step of a decoder's layer, around the including file's vectors, linear layers and attention: all that torch would be
asked for one by one, which for small models takes longer than to compute it. Numbers are float32; decoder_kernel.py fills
these structures in, and says what each is. */

typedef int linear_function(const float *, const int8_t *, const int32_t *, const float *, const float *, float *, long,
                            long, long, long, long);
typedef int gelu_function(float *, long);

typedef struct {
    const void *weight; /* (outputs, inputs): int8 where there are sums of each output's, else float32 */
    const int32_t *sums;
    const float *scales, *bias;
    long inputs, outputs;
} linear_layer;

typedef struct {
    const float *weight, *bias;
    double epsilon;
} norm_layer;

typedef struct {
    linear_layer query, key, value, out;
    norm_layer norm;
    char *keys, *values; /* (documents, heads, tokens, head_dim) */
    const uint8_t *mask; /* (documents, heads, queries, tokens): zero where a key is not seen; may be none */
    long strides[9];     /* of documents, heads and tokens, in bytes: keys, values, mask */
    long documents, tokens, is_own; /* its own rows write the last token */
    float *copied;                  /* (rows, tokens): what one head looks at, of tokens that may be copied, or none */
    const uint8_t *may_be_copied;   /* (documents, tokens), or none */
    long copy_head; /* below 0: none */
    double scale;
} attention_layer;

typedef struct {
    attention_layer attentions[3];
    linear_layer expand, contract;
    norm_layer norm;
    linear_function *linear_int8;
    gelu_function *gelu;
    long count, rows, width, heads, is_before; /* attentions; whether norms stand before */
} layer_step;

/* The norm of a row, or of its sum with another. */
INLINE void norm_row(float *found, const float *row, const float *other, long width, const float *weight,
                     const float *bias, float epsilon) {
    vector total = spread(0), squares = spread(0);
    for (long at = 0; at < width; at += LANES) {
        vector numbers = vector_at(row + at);
        if (other) numbers = numbers + vector_at(other + at);
        memcpy(found + at, &numbers, sizeof numbers);
        total = total + numbers;
    }
    const vector mean = spread(sum_of(total) / width);
    for (long at = 0; at < width; at += LANES) {
        const vector centred = vector_at(found + at) - mean;
        squares = multiply_add(centred, centred, squares);
    }
    const vector scale = spread(1 / sqrtf(sum_of(squares) / width + epsilon));
    for (long at = 0; at < width; at += LANES) {
        const vector normal = multiply_add((vector_at(found + at) - mean) * scale, vector_at(weight + at), vector_at(bias + at));
        memcpy(found + at, &normal, sizeof normal);
    }
}

/* Norms of rows (count, width), or of their sums with others. */
int NORM(float *found, const float *rows, const float *others, const float *weight, const float *bias, long count,
         long width, float epsilon) {
    for (long row = 0; row < count; row++)
        norm_row(found + row * width, rows + row * width, others ? others + row * width : NULL, width, weight, bias,
                 epsilon);
    return 0;
}

INLINE int apply(const layer_step *layer, const linear_layer *by, const float *rows, float *found) {
    if (by->sums)
        return layer->linear_int8(rows, by->weight, by->sums, by->scales, by->bias, found, layer->rows, by->inputs,
                                  by->outputs, 0, by->outputs);
    return LINEAR(rows, by->weight, by->bias, found, layer->rows, by->inputs, by->outputs, 0, by->outputs);
}

/* Put rows (rows, heads, head_dim) behind all tokens but one. */
INLINE void write_token(char *states, const long *strides, long last, const float *rows, long count, long heads,
                        long head_dim) {
    for (long row = 0; row < count; row++)
        for (long head = 0; head < heads; head++)
            memcpy(states + row * strides[0] + head * strides[1] + last * strides[2],
                   rows + (row * heads + head) * head_dim, head_dim * sizeof(float));
}

/* What a head of each query looks at, among what may be copied; zeros where that is nothing. */
INLINE int find_copied(const attention_layer *of, const float *queries, long rows, long width, int head_dim) {
    const long room = (of->tokens + LANES - 1) / LANES * LANES;
    float *scores = malloc(room * sizeof *scores);
    if (!scores) return 1;
    for (long row = 0; row < rows; row++) {
        const long document = row * of->documents / rows;
        const uint8_t *seen = of->may_be_copied ? of->may_be_copied + document * of->tokens : NULL;
        const float top = score_keys(scores, (const char *)(queries + row * width + of->copy_head * head_dim),
                                     of->keys + document * of->strides[0] + of->copy_head * of->strides[1],
                                     of->strides[2], seen, of->tokens, (float)of->scale, head_dim, 0);
        vector total = spread(0);
        for (long at = 0; at < room; at += LANES) {
            const vector weights = power_of_two(vector_at(scores + at) - spread(top == -INFINITY ? 0 : top), 0);
            memcpy(scores + at, &weights, sizeof weights);
            total = total + weights;
        }
        const float all = sum_of(total), share = all == 0 ? 0 : 1 / all;
        for (long at = 0; at < of->tokens; at++) of->copied[row * of->tokens + at] = scores[at] * share;
    }
    free(scores);
    return 0;
}

INLINE int attend_rows(const attention_layer *of, const float *queries, float *found, long rows, long heads, long width) {
    const long queries_each = rows / of->documents, number = sizeof(float);
    const long *own = of->strides, token = width * number, head = width / heads * number;
    const long strides[15] = {queries_each * token, head,   token,  own[0], own[1], own[2], own[3], own[4],
                              own[5], queries_each * token, head,   token,  own[6], own[7], own[8]};
    int (*const attend)(const char *, const char *, const char *, char *, const uint8_t *, const long *, long, long, long,
                        long, long, float) = width / heads == 32 ? STEP_OF(32) : STEP_OF(64);
    return attend((const char *)queries, of->keys, of->values, (char *)found, of->mask, strides, heads, queries_each,
                  of->tokens, 0, of->documents * heads, (float)of->scale);
}

/* What is read of rows, where norms stand before: their norms. */
INLINE const float *before(const layer_step *layer, const norm_layer *norm, float *normal, const float *rows) {
    if (!layer->is_before) return rows;
    NORM(normal, rows, NULL, norm->weight, norm->bias, layer->rows, layer->width, (float)norm->epsilon);
    return normal;
}

/* Add to rows, with a norm, where norms stand behind. */
INLINE void after(const layer_step *layer, const norm_layer *norm, float *rows, const float *update) {
    if (layer->is_before) for (long at = 0; at < layer->rows * layer->width; at++) rows[at] += update[at];
    else NORM(rows, rows, update, norm->weight, norm->bias, layer->rows, layer->width, (float)norm->epsilon);
}

/* Update rows (rows, width); 1 where there is no memory, and some of it is done. */
int DECODER_LAYER(const layer_step *layer, float *rows) {
    const long width = layer->width, expanded = layer->expand.outputs, head_dim = width / layer->heads;
    const long all = layer->rows * width, most = layer->rows * (expanded > width ? expanded : width);
    float *const normal = malloc((2 * all + most) * sizeof *normal);
    if (!normal) return 1;
    float *const update = normal + all, *const states = update + all;
    int failed = 0;
    for (long number = 0; number < layer->count && !failed; number++) {
        const attention_layer *of = layer->attentions + number;
        const float *read_by = before(layer, &of->norm, normal, rows);
        if (of->is_own) {
            failed |= apply(layer, &of->key, read_by, states);
            write_token(of->keys, of->strides, of->tokens - 1, states, layer->rows, layer->heads, head_dim);
            failed |= apply(layer, &of->value, read_by, states);
            write_token(of->values, of->strides + 3, of->tokens - 1, states, layer->rows, layer->heads, head_dim);
        }
        failed |= apply(layer, &of->query, read_by, states);
        failed |= attend_rows(of, states, update, layer->rows, layer->heads, width);
        if (of->copied && head_dim == 32) failed |= find_copied(of, states, layer->rows, width, 32);
        else if (of->copied) failed |= find_copied(of, states, layer->rows, width, 64);
        failed |= apply(layer, &of->out, update, states);
        after(layer, &of->norm, rows, states);
    }
    if (!failed) {
        failed |= apply(layer, &layer->expand, before(layer, &layer->norm, normal, rows), states);
        layer->gelu(states, layer->rows * expanded);
        failed |= apply(layer, &layer->contract, states, update);
        after(layer, &layer->norm, rows, update);
    }
    free(normal);
    return failed;
}
