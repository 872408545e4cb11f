/* SPDX-License-Identifier: Apache-2.0 */
/* Output layer and softmax cross-entropy in one: logits exist for a chunk of rows at a time, in
 * blocks of columns, and become the gradient where they are:
 *
 *   x, the rows that count --gather--> a chunk of rows
 *   for each chunk of rows:  each block:  z = x W_block^T + bias   z [rows, columns] one after another
 *                                         log_sum_exp of each row of the block
 *                            each row:    log_sum_exp over the blocks, the loss
 *                            each block:  z = weight (softmax(z) - target)
 *                                         dW_block += z^T x,  dbias_block += sum of z
 *                            each block:  dx += z W_block
 *   dx of the chunk --scatter--> dx; 0 in the other rows
 *
 * Where there are many blocks, each thread takes whole blocks: what one line of this list writes
 * for a block is in the thread's second-level cache when the next line reads it. Only dx, a sum
 * over the blocks, is computed by all threads together. With few blocks all threads share each of
 * them.
 *
 * In evaluation each row's largest logit is its predicted class, and there are no gradients.
 *
 * Of bfloat16 x, where the CPU multiplies pairs of bfloat16 faster, the operands of all products
 * are rounded to that type, as those of other layers are: W as it is packed, the gradients of a
 * block's logits as they are made, in place. Sums, losses and the gradient of W are float32.
 *
 * Rows whose label is ignored cost nothing: of masked tokens, six rows in seven. Where the share
 * of the others is known (xent.counted_share), a chunk has room for as many; if more count there
 * are more chunks.
 *
 *   scratch:  [ numbers of the rows | the rows that count | x and dx of a chunk | z |
 *               log_sum_exp of the blocks' rows | of the products ] */
#include "exec/cpu/gemm/dense.h"
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"
#include "exec/class_labels.h"

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    COLUMNS = 512, /* of a block, a multiple of the products' panels; the last has fewer */
    /* logits at a time: W is read and packed twice and dW written once per chunk */
    CHUNK_FLOATS = 16 << 20,
    MANY_FLOATS = 32 << 20, /* logits at a time where fewer were not MANY_ROWS rows */
    MANY_ROWS = 512,        /* of a chunk: packing W takes little of the time of its products */
    LEAST_ROWS = 64,
    ROWS_STEP =
        64,      /* chunks have so many rows, or a multiple, or as many as without ignored rows */
    PER_ROW = 2, /* log_sum_exp, the label's logit */
    BLOCKS_EACH = 4 /* blocks of a thread, at least, if threads take whole blocks */
};

typedef struct loss_state {
    const trmi_memory_kernels *kernels;
    int64_t rows, classes, width; /* classes of this rank */
    int64_t expected;             /* rows that count, for which there is memory */
    int64_t chunks, blocks;
    int threads;
    int at_once;                  /* blocks; the threads of a block are threads / at_once */
    bool half, gradient, weights; /* weights: the gradient of w is made, too */
    bool pairs;                   /* products of pairs of bfloat16 */
    bool biased, bias_gradient;
    bool predicts; /* in place of gradients */
    /* bytes of the parts of the scratch */
    int64_t numbers_bytes, list_bytes, x_bytes, dx_bytes, z_bytes, parts_bytes, product_bytes;
} loss_state;

/* Returns the rows of a chunk. */
static int64_t chunk_rows(const loss_state *s) { return trmi_pieces(s->expected, s->chunks); }

/* Returns the rows that a chunk of `count` rows is filled up to, so that products have few
 * sizes. */
static int64_t filled_rows(const loss_state *s, int64_t count) {
    int64_t most = chunk_rows(s);
    return count >= most - 1 ? count : trmi_min_i64(most, trmi_round_up(count, ROWS_STEP));
}

/* The three products of a block: logits, dx, dW. */
typedef enum product { LOGITS, DX, DW } product;

/* Returns one of the three products of a block: logits = x w^T, dx = dz w, dw = dz^T x. With pairs
 * x and dz are bfloat16, and dx is one product of all blocks. */
static trmi_dense_problem problem_of(const loss_state *s, product which, int64_t rows,
                                     int64_t columns, bool add) {
    trm_dtype type = s->pairs ? TRM_BFLOAT16 : TRM_FLOAT32;
    trmi_dense_problem p = {
        .b_stride = s->width, .pairs = s->pairs, .a_type = type, .b_type = TRM_FLOAT32};
    switch (which) {
    case LOGITS: p.m = rows, p.n = columns, p.k = s->width, p.transpose_b = true; break;
    case DX:
        p.m = rows, p.n = s->width, p.k = columns, p.add = add;
        if (s->pairs) { /* all blocks, which lie in the places of those of float32 */
            p.k = s->classes, p.add = false;
            p.a_block = COLUMNS;
            p.a_step = 2 * COLUMNS * rows;
        }
        break;
    case DW:
        p.m = columns, p.n = s->width, p.k = rows, p.add = add;
        p.transpose_a = true;
        p.b_type = type;
        break;
    }
    return p;
}

/* Returns the column of the first class of a block. */
static int64_t block_at(const loss_state *s, int64_t block) {
    return trmi_min_i64(block * COLUMNS, s->classes);
}

/* Returns the threads of one of the products: only dx is a sum over the blocks. */
static int threads_of(const loss_state *s, product which) {
    return which == DX ? s->threads : s->threads / s->at_once;
}

/* Returns the most scratch that a product needs, over all sizes of chunks and blocks that a run
 * can meet. Each of the products that run at once has so much, and dx has all of it. */
static int64_t product_bytes(const loss_state *s) {
    int64_t most = 0;
    int64_t sizes = 2 + chunk_rows(s) / ROWS_STEP;
    for (int which = LOGITS; which <= (s->weights ? DW : s->gradient ? DX : LOGITS); which++) {
        for (int64_t part = 0; part < 2 * sizes; part++) { /* blocks have two sizes */
            int64_t size = part / 2;
            int64_t rows = size < 2 ? chunk_rows(s) - size : (size - 1) * ROWS_STEP;
            int64_t columns = part & 1 ? s->classes - block_at(s, s->blocks - 1) : block_at(s, 1);
            if (rows > 0 && columns > 0) {
                trmi_dense_problem p = problem_of(s, (product)which, rows, columns, true);
                trmi_dense_plan plan;
                int threads = threads_of(s, (product)which),
                    share = threads < s->threads ? 1 : s->at_once;
                int64_t bytes = trmi_dense_prepare(&p, threads, &plan);
                p.add = false;
                bytes = trmi_max_i64(bytes, trmi_dense_prepare(&p, threads, &plan));
                most = trmi_max_i64(most, trmi_pieces(bytes, share));
            }
        }
    }
    return trmi_round_up(most, 64);
}

/* Returns the classes of the rank that has most: ranks that share the classes have parts that
 * differ by one at most, and must have the same chunks, whose numbers they exchange. */
static int64_t most_classes(const trmi_step *step, int64_t classes) {
    int64_t extent = trmi_part_of(step->attrs)->extent;
    if (classes <= 0 || extent <= classes) {
        return classes;
    }
    int64_t ranks = (extent + classes / 2) / classes;
    return trmi_pieces(extent, ranks);
}

/* Returns the rows of a chunk at most. */
static int64_t rows_at_once(int64_t classes) {
    int64_t each = trmi_max_i64(1, classes), many = trmi_min_i64(MANY_ROWS, MANY_FLOATS / each);
    return trmi_max_i64(LEAST_ROWS, trmi_max_i64(CHUNK_FLOATS / each, many));
}

/* Returns how many of the rows are expected to count. */
static int64_t expected_rows(const trmi_step *step, int64_t rows) {
    double share = step->attrs->xent.counted_share;
    int64_t expected = (int64_t)(share * (double)rows + 0.5);
    return share > 0 ? trmi_min_i64(rows, trmi_max_i64(1, expected)) : rows;
}

/* Fills the state and lays out the scratch. The logits of all rows would not fit: rows go
 * through in chunks, and within a chunk through blocks of COLUMNS classes. */
static void size_memory(loss_state *s, const trm_program *program, const trmi_step *step,
                        const trmi_onednn *backend) {
    int threads = backend->threads;
    const trmi_buffer *x = &program->buffers[step->inputs[0]],
                      *w = &program->buffers[step->inputs[1]];
    int32_t gradients = step->attrs->xent.predicts ? 0 : step->outputs_count - 1;
    *s = (loss_state){.kernels = trmi_memory_kernels_best(),
                      .classes = w->shape.dim[0],
                      .width = w->shape.dim[1],
                      .threads = threads,
                      .half = x->dtype == TRM_BFLOAT16,
                      .gradient = gradients > 0,
                      .weights = gradients > 1,
                      .biased = step->inputs_count > 3,
                      .bias_gradient = gradients > 2,
                      .predicts = step->attrs->xent.predicts};
    s->rows = s->width > 0 ? trmi_of_block(step, trm_shape_count(&x->shape) / s->width) : 0;
    s->blocks = trmi_max_i64(1, trmi_pieces(s->classes, COLUMNS));
    s->at_once = s->blocks >= BLOCKS_EACH * threads ? threads : 1;
    s->pairs = s->half && backend->pairs;
    s->expected = expected_rows(step, s->rows);
    s->chunks =
        trmi_max_i64(1, trmi_pieces(s->expected, rows_at_once(most_classes(step, s->classes))));
    s->numbers_bytes = trmi_round_up(PER_ROW * (s->rows + ROWS_STEP) * (int64_t)sizeof(double), 64);
    s->list_bytes = trmi_round_up((s->rows + 1) * (int64_t)sizeof(int64_t), 64);
    s->x_bytes = trmi_round_up(chunk_rows(s) * s->width * (s->pairs ? 2 : 4), 64);
    s->dx_bytes = trmi_round_up(chunk_rows(s) * s->width * 4, 64);
    s->z_bytes = trmi_round_up(chunk_rows(s) * s->classes * 4, 64);
    s->parts_bytes = trmi_round_up(chunk_rows(s) * s->blocks * 4, 64);
    s->product_bytes = product_bytes(s);
}

/* The operands and the scratch of a run. */
typedef struct run {
    const loss_state *s;
    const trmi_attrs *a;
    const char *x;
    const float *w, *bias; /* bias NULL: none */
    const int32_t *labels;
    char *dx;
    float *dw, *dbias;
    int32_t *predicted; /* NULL: not wanted */
    double *numbers;    /* [counted][PER_ROW] */
    int64_t *list;      /* [counted] rows that count */
    int64_t counted;
    void *rows_x; /* of the chunk: float32, or bfloat16 with pairs */
    float *dx32, *z;
    float *parts;  /* [blocks][rows] log_sum_exp of a row of a block */
    char *scratch; /* of the products */
    float weight;  /* of a row in the loss */
    /* the chunk: its place in the list, its rows there and with those that fill it up */
    int64_t begin, real, rows;
} run;

/* Lists the rows that count.
 *   errors  INVALID: a label that is no class */
static trm_status list_rows(run *r, trm_error *err) {
    r->counted = 0;
    for (int64_t i = 0; i < r->s->rows; i++) {
        TRMI_TRY(
            trmi_check_label(r->a, r->labels[i], i, trmi_all_classes(r->a, r->s->classes), err));
        r->list[r->counted] = i;
        r->counted += !trmi_label_is_ignored(r->a, r->labels[i]);
    }
    return TRM_OK;
}

/* Adds a number over the ranks that have the other samples. */
static trm_status add_samples(const run *r, const trmi_kernel_env *env, double *value,
                              trm_error *err) {
    const double own = *value, *all;
    uint32_t axes = trmi_part_of(r->a)->sample_axes;
    if (axes == 0) {
        return TRM_OK;
    }
    trmi_norm_sync *sync = env->sync[axes];
    TRMI_TRY(sync->gather(sync, &own, 1, &all, err));
    *value = 0;
    for (int32_t m = 0; m < sync->size; m++) {
        *value += all[m];
    }
    return TRM_OK;
}

/* Returns the column of the label of a row of the chunk; -1: the row has none here. */
static int64_t label_column(const run *r, int64_t row) {
    if (row >= r->real) {
        return -1;
    }
    int64_t column = (int64_t)r->labels[r->list[r->begin + row]] - trmi_part_of(r->a)->begin;
    return column >= 0 && column < r->s->classes ? column : -1;
}
/* Returns the logits of a row in a block. */
static float *logits_of(const run *r, int64_t row, int64_t block) {
    int64_t begin = block_at(r->s, block), end = block_at(r->s, block + 1);
    return r->z + begin * r->rows + row * (end - begin);
}

/* Runs one of the three products for a block of classes, with scratch of the calling thread. */
static void multiply_block(const run *r, product which, int64_t block, bool add) {
    int64_t begin = block_at(r->s, block), columns = block_at(r->s, block + 1) - begin;
    trmi_dense_problem p = problem_of(r->s, which, r->rows, columns, add);
    trmi_dense_plan plan;
    trmi_dense_prepare(&p, threads_of(r->s, which), &plan);
    void *scratch = r->scratch + r->s->product_bytes * (which == DX ? 0 : omp_get_thread_num());
    float *z = logits_of(r, 0, block);
    const float *w = r->w + begin * r->s->width;
    if (which == LOGITS) {
        trmi_dense_run(&plan, r->rows_x, w, r->bias != NULL ? r->bias + begin : NULL, NULL, z,
                       scratch);
    } else if (which == DX) {
        trmi_dense_run(&plan, z, w, NULL, NULL, r->dx32, scratch);
    } else {
        trmi_dense_run(&plan, z, r->rows_x, NULL, NULL, r->dw + begin * r->s->width, scratch);
    }
}

/* Does `work` for each block: all threads together, or each thread for blocks of its own. A single
 * thread does not open a region, in which libgomp would start new threads for the block's
 * products. */
static void each_block(const run *r, void (*work)(const run *r, int64_t block)) {
    if (r->s->at_once == 1) {
        for (int64_t block = 0; block < r->s->blocks; block++) {
            work(r, block);
        }
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(r->s->at_once)
    for (int64_t block = 0; block < r->s->blocks; block++) {
        work(r, block);
    }
}

/* Computes the logits of a block, and log_sum_exp of each of its rows. */
static void compute_logits(const run *r, int64_t block) {
    const loss_state *s = r->s;
    int64_t columns = block_at(s, block + 1) - block_at(s, block);
    multiply_block(r, LOGITS, block, false);
#pragma omp parallel for schedule(static) num_threads(s->threads / s->at_once)
    for (int64_t row = 0; row < r->rows; row++) {
        r->parts[block * r->rows + row] =
            s->kernels->log_sum_exp(logits_of(r, row, block), columns, false);
    }
}

/* Computes log_sum_exp and the logit of the label for each row, of the classes of this rank. */
static void row_numbers(const run *r) {
    const loss_state *s = r->s;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t row = 0; row < r->rows; row++) {
        double most = -INFINITY, sum = 0, *of = r->numbers + PER_ROW * (r->begin + row);
        for (int64_t block = 0; block < s->blocks; block++) {
            double part = (double)r->parts[block * r->rows + row];
            double now = fmax(most, part);
            sum = sum * exp(most - now) + exp(part - now);
            most = now;
        }
        int64_t column = label_column(r, row), block = 0;
        while (column >= block_at(s, block + 1)) {
            block++;
        }
        of[0] = most + log(sum);
        of[1] = column >= 0 ? (double)logits_of(r, row, block)[column - block_at(s, block)] : 0;
    }
}

/* Writes the class with the largest logit of each row, the first of equal ones. */
static void predict_rows(const run *r) {
    const loss_state *s = r->s;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t row = 0; row < r->real; row++) {
        float most = -INFINITY;
        int64_t best = 0;
        for (int64_t block = 0; block < s->blocks; block++) {
            int64_t begin = block_at(s, block), columns = block_at(s, block + 1) - begin;
            const float *z = logits_of(r, row, block);
            for (int64_t c = 0; c < columns; c++) {
                best = z[c] > most ? begin + c : best;
                most = z[c] > most ? z[c] : most;
            }
        }
        r->predicted[r->list[r->begin + row]] = (int32_t)best;
    }
}

/* Joins the numbers of each row over the ranks that have the other classes. */
static trm_status join_classes(const run *r, const trmi_kernel_env *env, trm_error *err) {
    const double *all;
    uint32_t axes = trmi_part_of(r->a)->class_axes;
    if (axes == 0) {
        return TRM_OK;
    }
    trmi_norm_sync *sync = env->sync[axes];
    int64_t count = PER_ROW * r->rows;
    TRMI_TRY(sync->gather(sync, r->numbers + PER_ROW * r->begin, count, &all, err));
    for (int64_t row = 0; row < r->rows; row++) {
        double *of = r->numbers + PER_ROW * (r->begin + row), most = -INFINITY, sum = 0;
        of[1] = 0;
        for (int32_t m = 0; m < sync->size; m++) {
            most = fmax(most, all[m * count + PER_ROW * row]);
            of[1] += all[m * count + PER_ROW * row + 1];
        }
        for (int32_t m = 0; m < sync->size; m++) {
            sum += exp(all[m * count + PER_ROW * row] - most);
        }
        of[0] = most + log(sum);
    }
    return TRM_OK;
}

/* Logits of a row of a block become their gradients. */
static void differentiate_row(const run *r, int64_t row, int64_t begin, int64_t columns, float *z) {
    float lse = (float)r->numbers[PER_ROW * (r->begin + row)];
    float scale = row < r->real ? r->weight : 0;
    int64_t column = label_column(r, row);
    r->s->kernels->xent_grad(z, z, columns, false, lse, scale, 0);
    if (column >= begin && column < begin + columns) {
        z[column - begin] -= scale;
    }
}

/* Adds the gradients of a row's logits to those of the bias, which the first row of all begins. */
static void add_bias_gradients(const run *r, int64_t row, const float *z, int64_t columns,
                               float *dbias) {
    if (row == 0 && r->begin == 0) {
        memset(dbias, 0, (size_t)columns * sizeof *dbias);
    }
    for (int64_t c = 0; c < columns && row < r->real; c++) {
        dbias[c] += z[c];
    }
}

/* Narrows the rows of a block to bfloat16. They follow each other from the block's begin, so row r
 * is written over row r / 2: rows 2^i to 2^(i+1) - 1 over those that were narrowed just before,
 * which lets all threads share them. */
static void narrow_block(const run *r, int64_t block, int64_t columns) {
    const loss_state *s = r->s;
    uint16_t *narrowed = (uint16_t *)(void *)logits_of(r, 0, block);
    for (int64_t begin = 0, end = 1; begin < r->rows; begin = end, end *= 2) {
        int64_t most = trmi_min_i64(end, r->rows);
#pragma omp parallel for schedule(static) num_threads(s->threads / s->at_once)
        for (int64_t row = begin; row < most; row++) {
            s->kernels->unary[TRMI_UNARY_COPY](logits_of(r, row, block), narrowed + row * columns,
                                               columns, false, true, 1);
        }
    }
}

/* Logits of a block become their gradients; those of its bias are added row by row. */
static void differentiate_block(const run *r, int64_t block) {
    const loss_state *s = r->s;
    int64_t begin = block_at(s, block), columns = block_at(s, block + 1) - begin;
#pragma omp parallel for schedule(static) num_threads(s->threads / s->at_once)
    for (int64_t row = 0; row < r->rows; row++) {
        differentiate_row(r, row, begin, columns, logits_of(r, row, block));
    }
    for (int64_t row = 0; row < r->rows && s->bias_gradient; row++) {
        add_bias_gradients(r, row, logits_of(r, row, block), columns, r->dbias + begin);
    }
    if (s->pairs) {
        narrow_block(r, block, columns);
    }
}

/* Computes the gradients of a block: of its logits, and with them of its weights and bias. */
static void compute_gradients(const run *r, int64_t block) {
    differentiate_block(r, block);
    if (r->s->weights) {
        multiply_block(r, DW, block, r->begin > 0);
    }
}

/* Copies the chunk's rows of x together, or its rows of dx to their places. */
static void move_rows(const run *r, bool gather) {
    const loss_state *s = r->s;
    int64_t width = s->width, size = s->half ? 2 : 4, own = s->pairs ? 2 : 4;
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t row = 0; row < r->rows; row++) {
        char *x = (char *)r->rows_x + row * width * own;
        float *dx = r->dx32 + row * width;
        if (row >= r->real) {
            memset(gather ? (void *)x : dx, 0, (size_t)(width * (gather ? own : 4)));
            continue;
        }
        int64_t at = r->list[r->begin + row] * width * size;
        s->kernels->unary[TRMI_UNARY_COPY](gather ? (const void *)(r->x + at) : dx,
                                           gather ? (void *)x : r->dx + at, width,
                                           gather && s->half, gather ? s->pairs : s->half, 1);
    }
}

/* Takes one chunk of rows through the whole operator: logits block by block, their maxima and
 * sums of exponentials, then (for training) logits become their own gradients in place, and are
 * multiplied into dx, dw and the bias' gradient. */
static trm_status run_chunk(run *r, const trmi_kernel_env *env, trm_error *err) {
    move_rows(r, true);
    /* Compute logits = x w^T, and log_sum_exp of the rows of each block. */
    each_block(r, compute_logits);
    row_numbers(r);
    if (r->predicted != NULL) {
        predict_rows(r);
    }
    TRMI_TRY(join_classes(r, env, err));
    if (!r->s->gradient) {
        return TRM_OK;
    }
    /* dw = dz^T x, added up over the chunks; then dx = dz w */
    each_block(r, compute_gradients);
    /* Of pairs the first call computes all blocks: threads do not meet after each, and the weights
     * of the next block are prefetched. In float32 that made a step of GPT-2 2 % slower. */
    for (int64_t block = 0; block < (r->s->pairs ? 1 : r->s->blocks); block++) {
        multiply_block(r, DX, block, block > 0);
    }
    move_rows(r, false);
    return TRM_OK;
}

/* Clears the gradients that no chunk writes: of x in rows that do not count, and all without such
 * rows. */
static void clear_gradients(const run *r) {
    const loss_state *s = r->s;
    int64_t size = s->half ? 2 : 4;
    if (r->counted < s->rows) {
        memset(r->dx, 0, (size_t)(s->rows * s->width * size));
    }
    if (r->counted == 0 && s->weights) {
        memset(r->dw, 0, (size_t)(s->classes * s->width) * sizeof *r->dw);
    }
    if (r->counted == 0 && s->bias_gradient) {
        memset(r->dbias, 0, (size_t)s->classes * sizeof *r->dbias);
    }
}

/* Output layer and loss as one operator, by chunks of rows: the logits of one chunk are all that
 * ever exists. Only rows whose label counts are computed. The gradients of a chunk are added before
 * the next chunk: the weights are read twice a chunk, and their gradient is written once. Ranks
 * that have parts of the samples divide by the number of labels that count on all of them. */
static trm_status run_loss(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const loss_state *s = k->state;
    char *scratch = trmi_kernel_scratch(k, env);
    run r = {.s = s,
             .a = k->step->attrs,
             .x = trmi_kernel_input(k, env, 0),
             .w = trmi_kernel_input(k, env, 1),
             .labels = trmi_kernel_input(k, env, 2),
             .dx = s->gradient ? trmi_kernel_output(k, env, 1) : NULL,
             .predicted = s->predicts ? trmi_kernel_output(k, env, 1) : NULL,
             .dw = s->weights ? trmi_kernel_output(k, env, 2) : NULL,
             .numbers = (double *)(void *)scratch,
             .list = (int64_t *)(void *)(scratch + s->numbers_bytes)};
    r.bias = s->biased ? trmi_kernel_input(k, env, 3) : NULL;
    r.dbias = s->bias_gradient ? trmi_kernel_output(k, env, 3) : NULL;
    scratch += s->numbers_bytes + s->list_bytes;
    r.rows_x = scratch;
    r.dx32 = (float *)(void *)(scratch + s->x_bytes);
    r.z = (float *)(void *)(scratch + s->x_bytes + s->dx_bytes);
    r.parts = (float *)(void *)(scratch + s->x_bytes + s->dx_bytes + s->z_bytes);
    r.scratch = scratch + s->x_bytes + s->dx_bytes + s->z_bytes + s->parts_bytes;
    double total = 0;
    TRMI_TRY(list_rows(&r, err));
    double counted = (double)r.counted;
    TRMI_TRY(add_samples(&r, env, &counted, err));
    double by = counted > 0 ? 1 / counted : 0;
    int64_t samples = trmi_part_of(r.a)->count;
    r.weight = (float)(samples > 0 ? 1.0 / (double)samples : by);
    if (s->gradient) {
        clear_gradients(&r);
    } else if (s->predicts) { /* rows that do not count keep their labels */
        memcpy(r.predicted, r.labels, (size_t)s->rows * sizeof *r.labels);
    }
    int64_t chunks = s->rows > 0 ? trmi_pieces(r.counted, chunk_rows(s)) : 0;
    for (int64_t c = 0; c < chunks; c++) {
        r.begin = trmi_cut_at(r.counted, chunks, c);
        r.real = trmi_cut_at(r.counted, chunks, c + 1) - r.begin;
        r.rows = filled_rows(s, r.real);
        TRMI_TRY(run_chunk(&r, env, err));
    }
    for (int64_t i = 0; i < r.counted; i++) {
        total += r.numbers[PER_ROW * i] - r.numbers[PER_ROW * i + 1];
    }
    TRMI_TRY(add_samples(&r, env, &total, err));
    *(float *)trmi_kernel_output(k, env, 0) = (float)(total * by);
    return TRM_OK;
}

int64_t trmi_onednn_linear_loss_scratch(trmi_onednn *state, const trm_program *program,
                                        const trmi_step *step) {
    loss_state s;
    size_memory(&s, program, step, state);
    return s.numbers_bytes + s.list_bytes + s.x_bytes + s.dx_bytes + s.z_bytes + s.parts_bytes +
           s.product_bytes * s.at_once;
}

/* Binds the kernel of linear_cross_entropy. Output i of the gradients is that of input i - 1 (x, w)
 * or i (the bias); each must have its input's type. */
trm_status trmi_onednn_bind_linear_loss(trmi_backend *backend, trmi_kernel *kernel,
                                        trm_error *err) {
    const trmi_buffer *x = trmi_kernel_input_buffer(kernel, 0),
                      *w = trmi_kernel_input_buffer(kernel, 1);
    bool fast = trmi_dtype_is_fast(x->dtype) && w->dtype == TRM_FLOAT32 && x->shape.rank > 0 &&
                trm_shape_count(&x->shape) > 0 && w->shape.dim[0] > 0;
    /* types of gradients, or of predicted classes */
    bool predicts = kernel->step->attrs->xent.predicts;
    for (int i = 1; i < kernel->step->outputs_count; i++) { /* 3 is of input 3, the bias */
        trm_dtype made =
            predicts ? TRM_INT32 : trmi_kernel_input_buffer(kernel, i < 3 ? i - 1 : i)->dtype;
        fast = fast && trmi_kernel_output_buffer(kernel, i)->dtype == made;
    }
    fast = fast && (kernel->step->inputs_count < 4 ||
                    trmi_kernel_input_buffer(kernel, 3)->dtype == TRM_FLOAT32);
    if (!fast) {
        return trmi_memory_unsupported(kernel, err);
    }
    loss_state *s = trmi_memory_state(kernel, sizeof *s, err);
    if (s == NULL) {
        return TRM_NOMEM;
    }
    size_memory(s, kernel->program, kernel->step, trmi_onednn_of(backend));
    kernel->by_block = kernel->step->over_samples;
    kernel->run = run_loss;
    return TRM_OK;
}
