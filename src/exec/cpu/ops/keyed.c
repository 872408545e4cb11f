/* SPDX-License-Identifier: Apache-2.0 */
/* KEYED_LINEAR, forward (keyed.h): a linear layer on looked-up embedding rows. The product of a row
 * with the weights is computed once for each different id of a field, and samples add those
 * products. If ids repeat little, the products of all samples are computed by dense.h instead.
 *
 * `prepare_sizes` computes sizes and the layout of the scratch, at planning and again at
 * binding. */
#include "exec/cpu/ops/keyed.h"

#include "base/checked.h"
#include "base/error.h"

#include <omp.h>
#include <string.h>

enum {
    BLOCK_ROWS = 8192 /* of P at a time: 1 MB of 32 columns */,
    MOST_PERCENT = 70 /* different ids, in percent of all, up to which groups are used */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Reads the sizes from the operands. Returns false if a type is not float32 or a size is 0. */
static bool read_step(const trm_program *program, const trmi_step *step, int threads,
                      trmi_keyed *q) {
    const trmi_buffer *all = program->buffers;
    bool backward = step->op_kind == TRMI_OP_KEYED_LINEAR_GRAD;
    const trmi_buffer *rows = &all[step->inputs[backward ? 1 : 0]], *w = &all[step->inputs[2]];
    const trmi_buffer *ids = &all[step->inputs[1]], *dense = &all[step->inputs[3]];
    *q = (trmi_keyed){.samples = rows->shape.dim[0],
                      .fields = rows->shape.dim[1],
                      .width = rows->shape.dim[2],
                      .outputs = w->shape.dim[0],
                      .columns = w->shape.dim[1],
                      .threads = threads,
                      .backward = backward,
                      .isa = trmi_dense(),
                      .pack = trmi_gemm(),
                      .kernels = trmi_memory_kernels_best()};
    /* dense inputs, bias and ReLU are optional */
    q->dense = step->inputs[3] != 0 ? dense->shape.dim[1] : 0;
    q->wide = !backward && ids->dtype == TRM_INT64;
    q->relu = !backward && step->attrs->matmul.relu;
    q->biased = !backward && step->inputs_count > 4 && step->inputs[4] != 0;
    bool real = rows->dtype == TRM_FLOAT32 && w->dtype == TRM_FLOAT32 &&
                (q->dense == 0 || dense->dtype == TRM_FLOAT32);
    return real && q->samples > 0 && q->fields > 0 && q->width > 0 && q->outputs > 0;
}

/* Reserves floats of scratch; returns where they begin. */
static int64_t reserve_floats(trmi_keyed *q, int64_t floats) {
    int64_t here = q->floats;
    q->floats += trmi_round_up(floats, 16);
    return here;
}

/* Plans the products of all samples. Returns the floats of their scratch, which overlaps that of
 * the groups. */
static int64_t prepare_plans(trmi_keyed *q) {
    int64_t own = q->fields * q->width, n = q->samples, bytes = 0;
    /* Forward multiplies the dense inputs, then the rows, which are added. Backward makes the
     * gradients of the rows and of the weights. */
    const trmi_dense_problem problems[4] = {
        {.m = n,
         .n = q->outputs,
         .k = q->dense,
         .transpose_b = true,
         .b_stride = q->columns,
         .relu = false},
        {.m = n,
         .n = q->outputs,
         .k = own,
         .transpose_b = true,
         .b_stride = q->columns,
         .relu = q->relu,
         .add = q->dense > 0},
        {.m = n, .n = own, .k = q->outputs, .b_stride = q->columns},
        {.m = q->outputs, .n = own, .k = n, .transpose_a = true, .b_stride = own}};
    for (int i = q->backward ? 2 : 0; i < (q->backward ? 4 : 2); i++) {
        if (problems[i].k > 0) {
            bytes = trmi_max_i64(bytes, trmi_dense_prepare(&problems[i], q->threads, &q->plan[i]));
        }
    }
    if (q->backward && q->dense > 0) {
        const trmi_dense_problem more = {
            .m = q->outputs, .n = q->dense, .k = n, .transpose_a = true, .b_stride = q->dense};
        bytes = trmi_max_i64(bytes, trmi_dense_prepare(&more, q->threads, &q->plan[0]));
    }
    return bytes / (int64_t)sizeof(float) +
           (q->backward ? q->outputs * trmi_max_i64(own, q->dense) : 0) + 32;
}

/* Computes sizes and the layout of the scratch; false: the step is not supported. */
static bool prepare_sizes(const trm_program *program, const trmi_step *step, int threads,
                          trmi_keyed *q) {
    if (!read_step(program, step, threads, q)) {
        return false;
    }
    q->nr = q->isa->nr;
    q->panels = trmi_pieces(q->outputs, q->nr);
    q->chunks = trmi_pieces(q->width, TRMI_TILE_COLS);
    q->dense_chunks = trmi_pieces(q->dense, TRMI_TILE_COLS);
    q->most = q->samples * q->fields * MOST_PERCENT / 100;
    q->block = trmi_max_i64(BLOCK_ROWS, q->samples);
    /* The hash table of a field has at least two places for each sample. */
    q->hash_bits = 4;
    while (((int64_t)1 << q->hash_bits) < 2 * q->samples) {
        q->hash_bits++;
    }
    /* The scratch has what all threads share, then the parts of the threads. The products of all
     * samples use the same memory instead, after the begins. */
    q->begin_at = reserve_floats(q, 2 * (q->fields + 1));
    q->rows_at = reserve_floats(q, q->most * q->chunks * TRMI_TILE_COLS);
    if (q->backward) {
        q->dense_at = reserve_floats(q, q->samples * q->dense_chunks * TRMI_TILE_COLS);
        q->weights_at =
            reserve_floats(q, q->fields * q->panels * trmi_pieces(q->width, q->nr) * q->nr * q->nr);
        q->sums_at = reserve_floats(q, q->most * q->width);
        q->rest_at = reserve_floats(q, q->fields * q->samples);
        q->thread_floats = trmi_round_up(2 * q->samples * q->nr + TRMI_TILE_COLS * q->nr, 16);
    } else {
        q->weights_at = reserve_floats(q, q->panels * q->nr *
                                              (q->fields * q->chunks * TRMI_TILE_COLS + q->dense));
        /* used if the groups are not kept for a gradient */
        q->groups_at = reserve_floats(q, q->fields * (2 * q->samples + 1));
        q->thread_floats = trmi_round_up(trmi_max_i64((q->block + q->samples) * q->nr,
                                                      trmi_keyed_room(q->samples, q->hash_bits)),
                                         16);
    }
    q->thread_at = reserve_floats(q, q->thread_floats * threads);
    q->floats = trmi_max_i64(q->floats, q->begin_at + 2 * (q->fields + 1) + 16 + prepare_plans(q));
    return true;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The operands of a run. Sizes are those of trmi_keyed. */
typedef struct forward {
    const trmi_keyed *q;
    const float *rows;  /* [samples, fields, width]: looked-up rows */
    const float *w;     /* [outputs, columns]: columns of the fields, then of the dense inputs */
    const float *dense; /* [samples, dense]; NULL: none */
    const float *bias;  /* [outputs]; NULL: none */
    const void *ids;    /* [samples, fields], int32, or int64 if q->wide */
    float *y;           /* [samples, outputs] */
    float *scratch;     /* q->floats; the places of its regions are members of trmi_keyed */
    int32_t *groups;    /* [fields, 2 samples + 1]: output 1, or in scratch (trmi_keyed_group) */
    int64_t *begin;     /* [fields + 1]: number of the first group of each field */
} forward;

/* Computes the products of all samples: dense inputs first, with the bias, then the rows of ids,
 * which are added. */
static void all_samples(const forward *f) {
    const trmi_keyed *q = f->q;
    int64_t used = 2 * (q->fields + 1);
    float *scratch = f->scratch + trmi_round_up(used, 16);
    if (q->dense > 0) {
        trmi_dense_run(&q->plan[0], f->dense, f->w + q->fields * q->width, f->bias, NULL, f->y,
                       scratch);
    }
    trmi_dense_run(&q->plan[1], f->rows, f->w, q->dense > 0 ? NULL : f->bias, NULL, f->y, scratch);
}

/* Returns the packed panel j of w: rows of the dense inputs, then the chunks of each field. */
static float *weights_of(const forward *f, int64_t j) {
    const trmi_keyed *q = f->q;
    return f->scratch + q->weights_at +
           j * q->nr * (q->fields * q->chunks * TRMI_TILE_COLS + q->dense);
}

/* Packs the weights of one panel of output columns: those of the dense inputs, then those of
 * each field, chunk by chunk of its width. */
static void pack_panel(const forward *f, int64_t j) {
    const trmi_keyed *q = f->q;
    int columns = (int)trmi_min_i64(q->nr, q->outputs - j * q->nr);
    const float *from = f->w + j * q->nr * q->columns;
    float *to = weights_of(f, j);
    q->pack->pack_transposed(to, from + q->fields * q->width, TRM_FLOAT32, q->columns, q->dense,
                             columns);
    to += q->dense * q->nr;
    for (int64_t i = 0; i < q->fields * q->chunks; i++, to += TRMI_TILE_COLS * q->nr) {
        int64_t column = i / q->chunks * q->width + i % q->chunks * TRMI_TILE_COLS;
        int64_t depth = trmi_min_i64(TRMI_TILE_COLS, q->width - i % q->chunks * TRMI_TILE_COLS);
        q->pack->pack_transposed(to, from + column, TRM_FLOAT32, q->columns, depth, columns);
    }
}

/* Computes c [count, nr] = a [count, k] b (+ bias), or adds to c. */
static void multiply_panel(const trmi_keyed *q, const float *a, int64_t a_stride, int64_t k,
                           int64_t count, const float *b, float *c, bool add, const float *bias) {
    const trmi_dense_tile t = {.columns = (int)q->nr,
                               .k = k,
                               .a = a,
                               .a_stride = a_stride,
                               .b = b,
                               .c = c,
                               .c_stride = q->nr,
                               .add = add,
                               .bias = bias};
    q->isa->all_rows(&t, count);
}

/* Starts panel j of y with bias and the products of the dense inputs. */
static void begin_panel(const forward *f, int64_t j, float *y) {
    const trmi_keyed *q = f->q;
    float bias[TRMI_TILE_NR_MAX] = {0};
    if (q->biased) {
        memcpy(bias, f->bias + j * q->nr,
               (size_t)trmi_min_i64(q->nr, q->outputs - j * q->nr) * sizeof *bias);
    }
    if (q->dense > 0) {
        multiply_panel(q, f->dense, q->dense, q->dense, q->samples, weights_of(f, j), y, false,
                       bias);
        return;
    }
    for (int64_t n = 0; n < q->samples; n++) {
        memcpy(y + n * q->nr, bias, (size_t)q->nr * sizeof *y);
    }
}

/* Computes P of one field: the products of the rows of its groups, [groups, nr]. */
static void field_products(const forward *f, int64_t j, int64_t field, float *p) {
    const trmi_keyed *q = f->q;
    int64_t count = f->begin[field + 1] - f->begin[field];
    const float *rows = trmi_keyed_rows_of(q, f->scratch + q->rows_at, f->begin, field);
    const float *w = weights_of(f, j) + (q->dense + field * q->chunks * TRMI_TILE_COLS) * q->nr;
    for (int64_t c = 0; c < q->chunks; c++) {
        int64_t depth = trmi_min_i64(TRMI_TILE_COLS, q->width - c * TRMI_TILE_COLS);
        multiply_panel(q, rows + c * count * TRMI_TILE_COLS, TRMI_TILE_COLS, depth, count,
                       w + c * TRMI_TILE_COLS * q->nr, p, c > 0, NULL);
    }
}

/* Stores the last columns, fewer than a panel, from panels to y. */
static void store_edge(const trmi_keyed *q, const float *from, float *y, int64_t columns) {
    for (int64_t n = 0; n < q->samples; n++) {
        for (int64_t i = 0; i < columns; i++) {
            float v = from[n * q->nr + i];
            y[n * q->outputs + i] = q->relu && v < 0 ? 0 : v;
        }
    }
}

enum { TOGETHER = 16 /* fields whose products are added in one pass over y */ };

/* Computes panel j of y: as many fields at a time as fit in the block of P. */
static void run_panel(const forward *f, int64_t j, float *room) {
    const trmi_keyed *q = f->q;
    float *p = room, *y = room + q->block * q->nr;
    int64_t columns = trmi_min_i64(q->nr, q->outputs - j * q->nr);
    begin_panel(f, j, y);
    for (int64_t field = 0; field < q->fields;) {
        const float *tables[TOGETHER];
        const int32_t *groups[TOGETHER];
        int64_t fields = 0, used = 0;
        /* The products of the keys of several fields are computed, so that y is read and written
         * once for them. */
        while (field < q->fields && fields < TOGETHER &&
               used + f->begin[field + 1] - f->begin[field] <= q->block) {
            tables[fields] = p + used * q->nr;
            groups[fields] = trmi_keyed_groups(q, f->groups, field) + 1;
            field_products(f, j, field, p + used * q->nr);
            used += f->begin[field + 1] - f->begin[field];
            field++;
            fields++;
        }
        /* The last sum goes straight to y, unless the panel has fewer columns than a tile. */
        bool last = field == q->fields && columns == q->nr;
        const trmi_group_sum sum = {.tables = tables,
                                    .groups = groups,
                                    .fields = fields,
                                    .samples = q->samples,
                                    .columns = q->nr,
                                    .from = y,
                                    .to = last ? f->y + j * q->nr : y,
                                    .to_stride = last ? q->outputs : q->nr,
                                    .relu = last && q->relu};
        q->kernels->sum_groups(&sum);
    }
    if (columns < q->nr) {
        store_edge(q, y, f->y + j * q->nr, columns);
    }
}

/* Computes y from the products of the groups of equal ids. Threads share the panels of output
 * columns. */
static void by_groups(const forward *f) {
    const trmi_keyed *q = f->q;
#pragma omp parallel num_threads(q->threads)
    {
        float *room = f->scratch + q->thread_at + q->thread_floats * omp_get_thread_num();
        trmi_keyed_take_rows(q, f->groups, f->begin, f->rows, f->scratch + q->rows_at);
#pragma omp for schedule(dynamic, 1)
        for (int64_t j = 0; j < q->panels; j++) {
            pack_panel(f, j);
            run_panel(f, j, room);
        }
    }
}

/* Multiplies rows that are looked up by key with a weight matrix. Equal keys of a field have
 * equal products, so the keys of each field are grouped first. Where most keys differ, or there
 * are too few panels for the threads, the plain product over all samples is faster. */
static trm_status run_forward(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trmi_keyed *q = k->state;
    float *scratch = (float *)(void *)trmi_kernel_scratch(k, env);
    /* Backward uses the same groups: they are kept in output 1 if the program has it. */
    int32_t *kept = trmi_kernel_output(k, env, 1);
    const forward f = {.q = q,
                       .rows = trmi_kernel_input(k, env, 0),
                       .ids = trmi_kernel_input(k, env, 1),
                       .w = trmi_kernel_input(k, env, 2),
                       .dense = trmi_kernel_input(k, env, 3),
                       .bias = trmi_kernel_input(k, env, 4),
                       .y = trmi_kernel_output(k, env, 0),
                       .groups = kept != NULL ? kept : (int32_t *)(void *)(scratch + q->groups_at),
                       .scratch = scratch,
                       .begin = (int64_t *)(void *)(scratch + q->begin_at)};
#pragma omp parallel for schedule(dynamic, 1) num_threads(q->threads)
    for (int64_t i = 0; i < q->fields; i++) {
        float *room = scratch + q->thread_at + q->thread_floats * omp_get_thread_num();
        trmi_keyed_group(f.ids, q->wide, q->samples, q->fields, i, q->hash_bits,
                         f.groups + i * (2 * q->samples + 1), room);
    }
    /* Find where the distinct keys of each field begin, in one list of all. */
    trmi_keyed_begins(q, f.groups, f.begin);
    if (f.begin[q->fields] > q->most || q->panels < q->threads) {
        all_samples(&f);
    } else {
        by_groups(&f);
    }
    return TRM_OK;
}

/* ---- the row of the table -------------------------------------------------------------------- */

int64_t trmi_onednn_keyed_scratch(trmi_onednn *state, const trm_program *program,
                                  const trmi_step *step) {
    trmi_keyed q;
    return prepare_sizes(program, step, state->threads, &q) ? q.floats * (int64_t)sizeof(float) : 0;
}

/* Binds the layer. The step notes the algorithm's name, for reports (--explain). */
trm_status trmi_onednn_bind_keyed(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    trmi_keyed *q = trmi_memory_state(kernel, sizeof *q, err);
    if (q == NULL) {
        return TRM_NOMEM;
    }
    if (!prepare_sizes(kernel->program, kernel->step, trmi_onednn_of(backend)->threads, q)) {
        trmi_memory_destroy_state(kernel);
        kernel->state = NULL;
        kernel->destroy = NULL;
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->run = q->backward ? trmi_keyed_backward : run_forward;
    ((trmi_step *)(uintptr_t)kernel->step)->algorithm = "by id";
    return TRM_OK;
}
