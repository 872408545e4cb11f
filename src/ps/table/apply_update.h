/* SPDX-License-Identifier: Apache-2.0 */
/* ps/table/apply_update.h: updates of whole pushes of float32 gradients: lookup (lookup_loop.h)
 * and rule in one loop. Included by apply_kernels.c. No include guard. */
/* The update in progress. Copied by value: the compiler would reload for every row what a store
 * into a record could alias. */
typedef struct updating {
    trmi_rule rule;
    trmi_tick tick;
    uint32_t generation;                 /* of the table: number of its latest snapshot */
    uint32_t slot_offset, header_offset; /* of a record, in bytes */
    const float *g;                      /* [rows of the push][width] gradients */
    int32_t width;                       /* floats of a row */
} updating;

/* Copies what the loop needs of an update to a struct that stays in registers. */
TRMI_INLINE updating begin_update(const trmi_row_update *u, const float *g, int32_t width) {
    return (updating){.rule = *u->rule,
                      .tick = *u->tick,
                      .generation = u->generation,
                      .slot_offset = u->layout->slot_offset,
                      .header_offset = u->layout->header_offset,
                      .g = g,
                      .width = width};
}

/* Updates the header of a changed row: tick, time, count, version, generation. */
TRMI_INLINE void stamp_header(const updating *x, char *record) {
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
#define UPDATE(name, lines16)                                                                      \
    TRMI_INLINE void learn_##name(void *context, int64_t i, char *record) {                        \
        const updating *x = context;                                                               \
        float *slots = (float *)(void *)(record + x->slot_offset);                                 \
        name##_pass(&x->rule, (float *)(void *)record, x->g + i * x->width, slots,                 \
                    slots + x->width, x->width);                                                   \
        stamp_header(x, record);                                                                   \
    }                                                                                              \
    TRMI_INLINE int64_t update_of_##name(                                                          \
        const trmi_rows *rows, trmi_look l, const trmi_row_update *u, const uint64_t *keys,        \
        int64_t count, const float *g, int32_t width, int32_t *absent) {                           \
        const uint32_t lines = l.record_lines < TRMI_LINES_MAX ? l.record_lines : TRMI_LINES_MAX;  \
        updating x = begin_update(u, g, width);                                                    \
        int64_t absent_count =                                                                     \
            trmi_lookup_run(l, lines, keys, count, u->scratch, absent, learn_##name, &x);          \
        return trmi_fly_far(l, rows, keys, absent, absent_count, learn_##name, &x);                \
    }                                                                                              \
    static int64_t update_##name(const trmi_rows *rows, const trmi_row_update *u,                  \
                                 const uint64_t *keys, int64_t count, const float *g,              \
                                 int32_t *absent) {                                                \
        const trmi_look l = trmi_look_at(rows);                                                    \
        if (u->layout->width != 16) {                                                              \
            return update_of_##name(rows, l, u, keys, count, g, u->layout->width, absent);         \
        }                                                                                          \
        return l.large ? update_of_##name(rows, trmi_look_as(l, lines16, true), u, keys, count, g, \
                                          16, absent)                                              \
                       : update_of_##name(rows, trmi_look_as(l, lines16, false), u, keys, count,   \
                                          g, 16, absent);                                          \
    }
UPDATE(sgd, 2)
UPDATE(rowwise, 2)
UPDATE(momentum, 3)
UPDATE(nesterov, 3)
UPDATE(adagrad, 3)
UPDATE(adam, 4)
UPDATE(ftrl, 4)
#undef UPDATE
