/* Beams that go on from others, in a cache with room: only what differs is moved. hatch_build.py compiles this;
growing_cache.py calls it. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Give each row of a room (rows, heads, room, head_dim) the tokens from `begin` to `end` of its source, for the heads
`first` to `last`; `size` is that of a token, `of_head` that of a head's room, in bytes. 1 where there is no memory. */
int move_tokens(char *room, const int64_t *sources, const int64_t *begin, long rows, long end, long heads, long size,
                long of_head, long first, long last) {
    int64_t tokens = 0;
    for (long row = 0; row < rows; row++) tokens += end - begin[row];
    char *kept = malloc(tokens * size + 1);
    if (!kept) return 1;
    for (long head = first; head < last; head++) {
        char *at = kept; /* sources are read before any is written over */
        for (long row = 0; row < rows; row++) {
            const long moved = (end - begin[row]) * size;
            memcpy(at, room + (sources[row] * heads + head) * of_head + begin[row] * size, moved);
            at += moved;
        }
        at = kept;
        for (long row = 0; row < rows; row++) {
            const long moved = (end - begin[row]) * size;
            memcpy(room + (row * heads + head) * of_head + begin[row] * size, at, moved);
            at += moved;
        }
    }
    free(kept);
    return 0;
}
