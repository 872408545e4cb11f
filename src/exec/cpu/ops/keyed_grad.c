/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of KEYED_LINEAR (keyed.h): sums of dy by id, one panel of columns at a time.
 *
 *   dw     [outputs, columns of x] = (rows^T sums)^T: the distinct rows, and dy summed by id
 *   drows  [ids, width]            = sums w
 *
 * A thread computes whole fields, so that no sum depends on the number of threads. The dense inputs
 * are one more field, in which each sample is a group. Where ids repeat little, grouping costs more
 * than it saves, and both are plain products over all samples (all_samples). */
#include "exec/cpu/ops/keyed.h"

#include "base/checked.h"

#include <omp.h>
#include <string.h>

typedef struct back {
    const trmi_keyed *q;
    const float *dy, *rows, *w, *dense;
    const int32_t *groups;
    float *dw, *drows; /* NULL: not needed */
    float *scratch;
    int64_t *begin;
} back;

/* ---- all samples ----------------------------------------------------------------------------- */

/* Copies `count` columns of dw from a matrix of their own to their place. */
static void copy_columns(const back *b, const float *from, int64_t count, int64_t column) {
    for (int64_t o = 0; o < b->q->outputs; o++) {
        memcpy(b->dw + o * b->q->columns + column, from + o * count, (size_t)count * sizeof *from);
    }
}

/* Computes the gradients by plain products over all samples, where ids repeat little. */
static void all_samples(const back *b) {
    const trmi_keyed *q = b->q;
    int64_t own = q->fields * q->width;
    float *sums = b->scratch + trmi_round_up(2 * (q->fields + 1), 16);
    float *scratch = sums + trmi_round_up(q->outputs * trmi_max_i64(own, q->dense), 16);
    if (b->drows != NULL) {
        trmi_dense_run(&q->plan[2], b->dy, b->w, NULL, NULL, b->drows, scratch);
    }
    if (b->dw == NULL) {
        return;
    }
    trmi_dense_run(&q->plan[3], b->dy, b->rows, NULL, NULL, sums, scratch);
    copy_columns(b, sums, own, 0);
    if (q->dense > 0) {
        trmi_dense_run(&q->plan[0], b->dy, b->dense, NULL, NULL, sums, scratch);
        copy_columns(b, sums, q->dense, own);
    }
}

/* ---- by groups ------------------------------------------------------------------------------- */

/* Returns the first field of a thread, so that threads have nearly equal work: groups, and samples
 * / 4. */
static int64_t share_begin(const back *b, int64_t thread, int64_t threads) {
    const trmi_keyed *q = b->q;
    int64_t groups = b->begin[q->fields], all = q->fields + (q->dense > 0);
    double total = (double)groups + (double)(all * q->samples) / 4, done = 0;
    int64_t f = 0;
    for (; f < all && thread > 0; f++) {
        double own =
            (f < q->fields ? (double)(b->begin[f + 1] - b->begin[f]) : 0) + (double)q->samples / 4;
        if ((done + own / 2) * (double)threads >= total * (double)thread) {
            break;
        }
        done += own;
    }
    return thread == threads ? all : f;
}

/* Returns the packed weights of a field for a panel of y and a part of the row: [nr][nr]. */
static float *weights_of(const back *b, int64_t field, int64_t panel, int64_t part) {
    const trmi_keyed *q = b->q;
    int64_t parts = trmi_pieces(q->width, q->nr);
    return b->scratch + q->weights_at +
           ((field * q->panels + panel) * parts + part) * q->nr * q->nr;
}

/* Packs the weights of all fields for the products that give the gradients of rows. */
static void pack_weights(const back *b) {
    const trmi_keyed *q = b->q;
    int64_t parts = trmi_pieces(q->width, q->nr);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < q->fields * q->panels; i++) {
        int64_t field = i / q->panels, panel = i % q->panels;
        for (int64_t part = 0; part < parts; part++) {
            int64_t column = part * q->nr, depth = trmi_min_i64(q->nr, q->outputs - panel * q->nr);
            q->pack->pack(weights_of(b, field, panel, part),
                          b->w + panel * q->nr * q->columns + field * q->width + column,
                          TRM_FLOAT32, q->columns, depth,
                          (int)trmi_min_i64(q->nr, q->width - column));
        }
    }
}

/* Copies the dense inputs to the layout of a field's rows: [chunks][samples][TRMI_TILE_COLS]. */
static void take_dense(const back *b) {
    const trmi_keyed *q = b->q;
#pragma omp for schedule(static)
    for (int64_t n = 0; n < q->samples; n++) {
        for (int64_t c = 0; c < q->dense_chunks; c++) {
            float *to = b->scratch + q->dense_at + (c * q->samples + n) * TRMI_TILE_COLS;
            int64_t width = trmi_min_i64(TRMI_TILE_COLS, q->dense - c * TRMI_TILE_COLS);
            memset(to, 0, TRMI_TILE_COLS * sizeof *to);
            memcpy(to, b->dense + n * q->dense + c * TRMI_TILE_COLS, (size_t)width * sizeof *to);
        }
    }
}

/* Computes a block of dw, [columns of the panel, `width` columns of x from `column`] = (rows^T
 * sums)^T, for rows [chunks][count][TRMI_TILE_COLS]. `turned`: memory for a transposed tile. */
static void weights_gradient(const back *b, const float *rows, int64_t count, int64_t width,
                             int64_t column, const float *sums, int64_t panel, float *turned) {
    const trmi_keyed *q = b->q;
    int64_t outputs = trmi_min_i64(q->nr, q->outputs - panel * q->nr);
    /* Take a chunk of columns at a time: first make its product, transposed, ... */
    for (int64_t c = 0; c * TRMI_TILE_COLS < width; c++) {
        int64_t here = trmi_min_i64(TRMI_TILE_COLS, width - c * TRMI_TILE_COLS),
                tiles = trmi_pieces(here, q->isa->mr);
        for (int64_t i = 0; i < tiles; i++) {
            int64_t row = trmi_cut_at(here, tiles, i);
            const trmi_dense_tile t = {.rows = (int)(trmi_cut_at(here, tiles, i + 1) - row),
                                       .columns = (int)q->nr,
                                       .k = count,
                                       .a = rows + c * count * TRMI_TILE_COLS + row,
                                       .a_stride = TRMI_TILE_COLS,
                                       .b = sums,
                                       .c = turned + row * q->nr,
                                       .c_stride = q->nr};
            q->isa->columns(&t);
        }
        /* ... then copy it to the rows of dw. */
        for (int64_t o = 0; o < outputs; o++) {
            float *to = b->dw + (panel * q->nr + o) * q->columns + column + c * TRMI_TILE_COLS;
            for (int64_t i = 0; i < here; i++) {
                to[i] = turned[i * q->nr + o];
            }
        }
    }
}

/* Adds sums * w to the gradients of the groups' rows. */
static void rows_gradient(const back *b, int64_t field, int64_t panel, const float *sums) {
    const trmi_keyed *q = b->q;
    int64_t count = b->begin[field + 1] - b->begin[field];
    float *out = b->scratch + q->sums_at + b->begin[field] * q->width;
    for (int64_t part = 0; part * q->nr < q->width; part++) {
        const trmi_dense_tile t = {.columns = (int)trmi_min_i64(q->nr, q->width - part * q->nr),
                                   .k = trmi_min_i64(q->nr, q->outputs - panel * q->nr),
                                   .a = sums,
                                   .a_stride = q->nr,
                                   .b = weights_of(b, field, panel, part),
                                   .c = out + part * q->nr,
                                   .c_stride = q->width,
                                   .add = panel > 0};
        q->isa->all_rows(&t, count);
    }
}

/* Returns the list of samples that are not the first of their group. */
static int32_t *rest_of(const back *b, int64_t field) {
    return (int32_t *)(void *)(b->scratch + b->q->rest_at) + field * b->q->samples;
}

/* Lists, for each field, the samples that are not the first of their group. */
static void find_rest(const back *b) {
    const trmi_keyed *q = b->q;
#pragma omp for schedule(dynamic, 1)
    for (int64_t f = 0; f < q->fields; f++) {
        const int32_t *of = trmi_keyed_groups(q, b->groups, f) + 1, *first = of + q->samples;
        int32_t *rest = rest_of(b, f);
        int64_t groups = 0, others = 0, count = b->begin[f + 1] - b->begin[f];
        for (int64_t n = 0; n < q->samples; n++) { /* groups are in order of their first sample */
            bool begins = groups < count && first[groups] == n;
            groups += begins;
            rest[others] = (int32_t)n;
            others += !begins && others + 1 < q->samples;
        }
    }
}

/* Copies the columns of one panel of dy, with zeros after the last column, so that kernels need
 * no edge. */
static void copy_panel(const back *b, int64_t panel, float *out) {
    const trmi_keyed *q = b->q;
    int64_t columns = trmi_min_i64(q->nr, q->outputs - panel * q->nr);
    for (int64_t n = 0; n < q->samples; n++) {
        const float *from = b->dy + n * q->outputs + panel * q->nr;
        if (columns == TRMI_TILE_NR_MAX) {
            memcpy(out + n * TRMI_TILE_NR_MAX, from, TRMI_TILE_NR_MAX * sizeof *out);
            continue;
        }
        memset(out + n * q->nr, 0, (size_t)q->nr * sizeof *out);
        memcpy(out + n * q->nr, from, (size_t)columns * sizeof *out);
    }
}

/* Writes the gradients of rows in the order of the batch: that of a group at its first sample,
 * zeros at its other samples. */
static void scatter_row_gradients(const back *b, int64_t first_field, int64_t last_field) {
    const trmi_keyed *q = b->q;
    const size_t bytes = (size_t)q->width * sizeof(float);
    for (int64_t n = 0; n < q->samples; n++) {
        for (int64_t f = first_field; f < last_field; f++) {
            const int32_t *of = trmi_keyed_groups(q, b->groups, f) + 1;
            int64_t group = of[n];
            float *to = b->drows + (n * q->fields + f) * q->width;
            if (of[q->samples + group] != n) {
                memset(to, 0, bytes);
            } else {
                memcpy(to, b->scratch + q->sums_at + (b->begin[f] + group) * q->width, bytes);
            }
        }
    }
}

/* Computes the gradients of one panel of `nr` output columns for fields [first, last); index
 * `fields` stands for the dense inputs. Samples of one key have one row, so their gradients are
 * summed by key before they meet weights and rows. */
static void run_panel(const back *b, int64_t first, int64_t last, int64_t panel, float *room) {
    const trmi_keyed *q = b->q;
    float *dy = room, *sums = dy + q->samples * q->nr, *turned = sums + q->samples * q->nr;
    copy_panel(b, panel, dy);
    for (int64_t f = first; f < last; f++) {
        if (f == q->fields) {
            if (b->dw != NULL) {
                weights_gradient(b, b->scratch + q->dense_at, q->samples, q->dense,
                                 q->fields * q->width, dy, panel, turned);
            }
            continue;
        }
        /* Sum dy over the samples of each key of the field. */
        int64_t count = b->begin[f + 1] - b->begin[f];
        const int32_t *of = trmi_keyed_groups(q, b->groups, f) + 1;
        q->kernels->add_to_groups(sums, dy, q->nr, of + q->samples, count, of, rest_of(b, f),
                                  q->samples - count);
        if (b->dw != NULL) {
            weights_gradient(b, trmi_keyed_rows_of(q, b->scratch + q->rows_at, b->begin, f), count,
                             q->width, f * q->width, sums, panel, turned);
        }
        if (b->drows != NULL) {
            rows_gradient(b, f, panel, sums);
        }
    }
}

/* Computes the gradients with groups of equal keys. Threads share out the fields by their number
 * of groups, and a thread takes its fields through all panels, so that no two threads add to the
 * same rows. */
static void by_groups(const back *b) {
    const trmi_keyed *q = b->q;
#pragma omp parallel num_threads(q->threads)
    {
        int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
        float *room = b->scratch + q->thread_at + q->thread_floats * thread;
        pack_weights(b);
        find_rest(b);
        take_dense(b);
        trmi_keyed_take_rows(q, b->groups, b->begin, b->rows, b->scratch + q->rows_at);
        int64_t first = share_begin(b, thread, threads), last = share_begin(b, thread + 1, threads);
        for (int64_t panel = 0; panel < q->panels && first < last; panel++) {
            run_panel(b, first, last, panel, room);
        }
        if (b->drows != NULL) {
            scatter_row_gradients(b, first, trmi_min_i64(last, q->fields));
        }
    }
}

/* Computes the gradients of the operator of keyed.c. As in forward, groups pay only where keys
 * repeat and there is work for all threads. */
trm_status trmi_keyed_backward(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trmi_keyed *q = k->state;
    float *scratch = (float *)(void *)trmi_kernel_scratch(k, env);
    const back b = {.q = q,
                    .dy = trmi_kernel_input(k, env, 0),
                    .rows = trmi_kernel_input(k, env, 1),
                    .w = trmi_kernel_input(k, env, 2),
                    .dense = trmi_kernel_input(k, env, 3),
                    .groups = trmi_kernel_input(k, env, 4),
                    .dw = trmi_kernel_output(k, env, 0),
                    .drows = trmi_kernel_output(k, env, 1),
                    .scratch = scratch,
                    .begin = (int64_t *)(void *)(scratch + q->begin_at)};
    trmi_keyed_begins(q, b.groups, b.begin);
    if (b.begin[q->fields] > q->most || q->fields < q->threads) {
        all_samples(&b);
    } else {
        by_groups(&b);
    }
    return TRM_OK;
}
