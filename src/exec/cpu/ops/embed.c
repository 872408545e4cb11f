/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding tables: gathers rows by checked ids (EMBEDDING), and computes the dense gradient of a
 * table (EMBEDDING_GRAD), with ids of int32 or int64.
 *
 * A row is copied only after its id was checked; the first id outside the table is an error that
 * names its position. Sums of rows are in the order of the batch for any number of threads,
 * because each thread owns a part of the table. Sparse gradients need no kernel: they are the
 * gradients of the gathered rows, which the optimiser groups by id. */
#include "exec/cpu/ops/ops.h"
#include "exec/cpu/ops/memory_kernels.h"

#include "base/element.h"
#include "base/error.h"

#include <inttypes.h>
#include <string.h>

/* rows are prefetched so far ahead: a cache miss takes as long as a few dozen copies */
enum { AHEAD = 32, PARTS = 64 };

/* Copies a row. Rows of 16 floats and of 1, the usual widths, are copied without a call of
 * memcpy. */
static inline void copy_row(char *to, const char *from, int64_t bytes) {
    if (bytes == 64) {
        memcpy(to, from, 64);
    } else if (bytes == 4) {
        memcpy(to, from, 4);
    } else {
        memcpy(to, from, (size_t)bytes);
    }
}

/* Copies a row of the table for each id, and prefetches the row AHEAD ids later. With a cut
 * table this rank writes zeros for ids of other ranks, and the sum over the ranks is the result.
 * The first id outside of the whole table is the error. */
static trm_status run_gather(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const trmi_buffer *table = trmi_kernel_input_buffer(k, 0),
                      *id_buffer = trmi_kernel_input_buffer(k, 1);
    int64_t rows = table->shape.dim[0], count = trm_shape_count(&id_buffer->shape), bad = count;
    int64_t bytes = table->shape.dim[1] * (int64_t)trm_dtype_bytes(table->dtype);
    bool wide = id_buffer->dtype == TRM_INT64;
    const char *from = trmi_kernel_input(k, env, 0);
    const void *ids = trmi_kernel_input(k, env, 1);
    char *to = trmi_kernel_output(k, env, 0);
    /* this rank holds rows [first, first + rows) of all; ids of other ranks give zeros */
    const trmi_op_part *part = trmi_part_of(k->step->attrs);
    int64_t first = part->begin, all = part->extent > 0 ? part->extent : rows;
#pragma omp parallel for schedule(static) reduction(min : bad)
    for (int64_t i = 0; i < count; i++) {
        int64_t id = trmi_element_id(ids, wide, i) - first;
        int64_t next = i + AHEAD < count ? trmi_element_id(ids, wide, i + AHEAD) - first : -1;
        if (next >= 0 && next < rows) {
            __builtin_prefetch(from + next * bytes);
        }
        if (id < 0 || id >= rows) {
            bool elsewhere = id + first >= 0 && id + first < all;
            bad = !elsewhere && i < bad ? i : bad;
            memset(to + i * bytes, 0, (size_t)bytes);
            continue;
        }
        copy_row(to + i * bytes, from + id * bytes, bytes);
    }
    if (bad < count) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: id %" PRId64 " at position %" PRId64 ", 0 to %" PRId64 " expected",
                         k->step->name, trmi_element_id(ids, wide, bad), bad, all - 1);
    }
    return TRM_OK;
}

/* Binds the lookup: rows are copied as they are, so any type will do that both sides have. */
trm_status trmi_onednn_bind_embedding(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    (void)backend;
    const trmi_buffer *ids = trmi_kernel_input_buffer(kernel, 1);
    bool same =
        trmi_kernel_input_buffer(kernel, 0)->dtype == trmi_kernel_output_buffer(kernel, 0)->dtype;
    if (!same || (ids->dtype != TRM_INT32 && ids->dtype != TRM_INT64)) {
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->run = run_gather;
    return TRM_OK;
}

/* Adds gradients to the dense gradient of the table, which begins with zeros or with the third
 * input. Each thread owns a part of the table and takes its rows from the whole batch, in order, so
 * that the bits do not depend on the threads. */
static trm_status run_scatter(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const trmi_buffer *table = trmi_kernel_output_buffer(k, 0),
                      *id_buffer = trmi_kernel_input_buffer(k, 1);
    int64_t height = table->shape.dim[0], width = table->shape.dim[1];
    int64_t count = trmi_of_block(k->step, trm_shape_count(&id_buffer->shape));
    bool wide = id_buffer->dtype == TRM_INT64;
    const float *rows = trmi_kernel_input(k, env, 0);
    const void *ids = trmi_kernel_input(k, env, 1);
    const float *sum = k->step->inputs_count > 2 ? trmi_kernel_input(k, env, 2) : NULL;
    float *to = trmi_kernel_output(k, env, 0);
    int64_t first = trmi_part_of(k->step->attrs)->begin;
    const trmi_memory_kernels *kernels = trmi_memory_kernels_best();
#pragma omp parallel for schedule(static)
    for (int64_t part = 0; part < PARTS; part++) {
        int64_t begin = height * part / PARTS, end = height * (part + 1) / PARTS;
        size_t bytes = (size_t)((end - begin) * width) * sizeof *to;
        /* this part of the table begins with zeros or with the given sum */
        if (sum == NULL) {
            memset(to + begin * width, 0, bytes);
        } else if (sum != to) {
            memcpy(to + begin * width, sum + begin * width, bytes);
        }
        for (int64_t i = 0; i < count && end > begin; i++) {
            int64_t id = trmi_element_id(ids, wide, i) - first;
            if (id >= begin && id < end) {
                kernels->fold_rows(to + id * width, rows + i * width, width, false,
                                   TRMI_REDUCE_SUM_OF);
            }
        }
    }
    return TRM_OK;
}

/* The table may be where the third input is. */
bool trmi_onednn_embedding_grad_in_place(trmi_onednn *state, const trm_graph *graph,
                                         const trmi_op *op, int input) {
    (void)state, (void)graph, (void)op;
    return input == 2;
}

/* Binds the dense gradient of a table, in float32. In strict mode it runs block by block of
 * samples. */
trm_status trmi_onednn_bind_embedding_grad(trmi_backend *backend, trmi_kernel *kernel,
                                           trm_error *err) {
    (void)backend;
    const trmi_buffer *ids = trmi_kernel_input_buffer(kernel, 1);
    if (trmi_kernel_input_buffer(kernel, 0)->dtype != TRM_FLOAT32 ||
        trmi_kernel_output_buffer(kernel, 0)->dtype != TRM_FLOAT32 ||
        (ids->dtype != TRM_INT32 && ids->dtype != TRM_INT64)) {
        return trmi_memory_unsupported(kernel, err);
    }
    kernel->by_block = kernel->step->over_samples;
    kernel->run = run_scatter;
    return TRM_OK;
}
