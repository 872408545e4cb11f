/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply_update.h: updates of whole pushes of float32 gradients: lookup (lookup_loop.h)
 * and rule in one loop. Included by apply_kernels.c. No include guard. */
/* The update in progress. Copied by value: the compiler would reload for every row what a store
 * into a record could alias. */
typedef struct updating {
    trmi_apply_args args;
    trmi_tick tick;
    uint32_t generation;
    uint32_t slot_offset, header_offset;
    const float *g;
    int32_t width;
} updating;

TRMI_ALWAYS updating begin(const trmi_row_update *u, const float *g, int32_t width) {
    return (updating){.args = *u->args,
                      .tick = *u->tick,
                      .generation = u->generation,
                      .slot_offset = u->layout->slot_offset,
                      .header_offset = u->layout->header_offset,
                      .g = g,
                      .width = width};
}

/* Updates the header of a changed row: tick, time, count, version, generation. */
TRMI_ALWAYS void stamp(const updating *x, char *record) {
    trmi_row_header *h = (trmi_row_header *)(void *)(record + x->header_offset);
    h->last_tick = x->tick.tick;
    h->last_time = x->tick.time;
    h->count += h->count < UINT32_MAX;
    h->version += h->version == UINT32_MAX ? 2 : 1;
    h->generation = x->generation;
}

/* Defines the update loop of a rule. A key whose row is not found at once updates the scratch
 * record and is repeated afterwards. Rows of 16 floats, which take `lines16` cache lines with
 * their guide, have a loop of their own. */
#define UPDATE(rule, lines16)                                                                      \
    TRMI_ALWAYS void learn_##rule(void *context, int64_t i, char *record) {                        \
        const updating *x = context;                                                               \
        row_##rule((float *)(void *)record, (float *)(void *)(record + x->slot_offset),            \
                   x->g + i * x->width, x->width, &x->args);                                       \
        stamp(x, record);                                                                          \
    }                                                                                              \
    TRMI_ALWAYS int64_t update_of_##rule(                                                          \
        const trmi_rows *rows, trmi_look l, const trmi_row_update *u, const uint64_t *keys,        \
        int64_t count, const float *g, int32_t width, int32_t *absent) {                           \
        const uint32_t lines = l.record_lines < TRMI_LINES_MAX ? l.record_lines : TRMI_LINES_MAX;  \
        updating x = begin(u, g, width);                                                           \
        int64_t absent_count =                                                                     \
            trmi_lookup_run(l, lines, keys, count, u->scratch, absent, learn_##rule, &x);          \
        return trmi_fly_far(l, rows, keys, absent, absent_count, learn_##rule, &x);                \
    }                                                                                              \
    static int64_t update_##rule(const trmi_rows *rows, const trmi_row_update *u,                  \
                                 const uint64_t *keys, int64_t count, const float *g,              \
                                 int32_t *absent) {                                                \
        const trmi_look l = trmi_look_at(rows);                                                    \
        if (u->layout->width != 16) {                                                              \
            return update_of_##rule(rows, l, u, keys, count, g, u->layout->width, absent);         \
        }                                                                                          \
        return l.large ? update_of_##rule(rows, trmi_look_as(l, lines16, true), u, keys, count, g, \
                                          16, absent)                                              \
                       : update_of_##rule(rows, trmi_look_as(l, lines16, false), u, keys, count,   \
                                          g, 16, absent);                                          \
    }
UPDATE(sgd, 2)
UPDATE(rowwise, 2)
UPDATE(momentum, 3)
UPDATE(adagrad, 3)
UPDATE(adam, 4)
UPDATE(ftrl, 4)
#undef UPDATE
