/* SPDX-License-Identifier: Apache-2.0 */
/* Attention backward. A task is one key head of one sample with all query heads that share it: it
 * walks the blocks of keys, whose gradients it sums, and for each the blocks of queries, whose
 * gradients wait in its scratch:
 *
 *      p = exp(q K^T - lse)   dV += p^T dy   ds = p (dy V^T - e)   dK += ds^T q   dq += ds K
 *
 * with e the sum of dy y of a row.
 *
 *   scratch of a thread:  dq | e | q, dy of a block | packed q, dy | scores, dp | turned | packed K, V, K | dk, dv | hidden */
#include "exec/cpu/attention/attention_blocks.h"

#include "base/error.h"

#include <omp.h>
#include <string.h>

/* Queries of a block, in register tiles of the instruction set (mr rows each). */
enum { QUERY_TILES = 8 };

/* The state of the kernel: sizes that bind has chosen, the same for all tasks; runs do not change
 * them. */
typedef struct backward {
    trmi_attention_blocks a;
    int64_t block;         /* queries at a time, at most the keys of a block */
    int64_t thread_floats; /* scratch of a thread */
} backward;

/* Chooses the queries of a block, and computes the scratch of a thread (divide_memory). */
static void size_blocks(backward *f) {
    trmi_attention_blocks *a = &f->a;
    f->block = trmi_min_i64(QUERY_TILES * a->isa->mr, a->keys);
    int64_t packed = trmi_attention_packed_floats(a), rows = a->group * a->s.queries;
    f->thread_floats =
        trmi_round_up(rows * a->s.width + rows + 2 * f->block * a->s.width + 2 * packed +
                          2 * f->block * a->stride + trmi_attention_turned(a, f->block) +
                          3 * packed + 2 * a->keys * a->s.width + a->keys,
                      16);
}

/* The operands of a run and the memory of one thread. Sizes in brackets: D = width of a head; rows
 * = group x queries, where the group is the query heads that share a key head; block = queries of a
 * block; keys = keys of a block; packed = trmi_attention_packed_floats. `own_` arrays are copies in
 * float32 (of bfloat16 inputs, in pairs), `rows_` and `columns_` are packed for the left and the
 * right side of a product. */
typedef struct task {
    const backward *f;
    const void *dy, *q, *k, *v, *y; /* inputs, laid out as f->a.s has them */
    const int32_t *mask;            /* [batch, keys of a sample]; NULL = none */
    const float *lse;               /* [batch, heads, queries]: log of the sum of exp(scores) */
    void *dq, *dk, *dv;             /* outputs, laid out as q, k, v */
    int64_t b, g;                   /* sample, key head */
    /* written once for the task */
    float *sums; /* [rows, D]: dQ, summed over the blocks of keys */
    float *e;    /* [rows]: dot product of dy and y */
    /* written for each block of queries */
    float *own_q,
        *own_dy; /* [block, D]: q times the scale, and dy, as float32; q and dy as pairs */
    float *rows_q, *rows_dy; /* [packed]: the same, packed as rows */
    float *scores, *dp;      /* [block, stride]: scores, then p; dy V^T, then ds */
    float *turned;           /* of pairs: p, then ds, of pairs of queries */
    /* written for each block of keys */
    float *columns_k, *columns_v, *rows_k; /* [packed]: k and v as columns, k as rows */
    float *own_dk, *own_dv;                /* [keys, D]: dK and dV, summed over the queries */
    float *room;                           /* [keys]: what the mask hides */
} task;

/* Cuts a thread's scratch into the arrays of a task. size_blocks counts the same arrays. */
static void divide_memory(task *t, float *at) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t packed = trmi_attention_packed_floats(a), rows = a->group * a->s.queries;
    t->sums = at;
    t->e = t->sums + rows * a->s.width;
    t->own_q = t->e + rows;
    t->own_dy = t->own_q + t->f->block * a->s.width;
    t->rows_q = t->own_dy + t->f->block * a->s.width;
    t->rows_dy = t->rows_q + packed;
    t->scores = t->rows_dy + packed;
    t->dp = t->scores + t->f->block * a->stride;
    t->turned = t->dp + t->f->block * a->stride;
    t->columns_k = t->turned + trmi_attention_turned(a, t->f->block);
    t->columns_v = t->columns_k + packed;
    t->rows_k = t->columns_v + packed;
    t->own_dk = t->rows_k + packed;
    t->own_dv = t->own_dk + a->keys * a->s.width;
    t->room = t->own_dv + a->keys * a->s.width;
}

/* Adds the part of a block of queries of one head and a block of keys to dK, dV and dQ. Queries
 * [query, query + rows) of head `head` of the group; keys from `begin` on. */
static void join_block(const task *t, int64_t head, int64_t query, int64_t rows, int64_t begin,
                       const float *hidden) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t h = t->g * a->group + head, row = head * a->s.queries + query;
    const trmi_attention_part part = trmi_attention_part_of(a, query, rows, begin);
    if (part.keys == 0) {
        return; /* the causal mask hides all these keys from all these queries */
    }
    trmi_attention_take(a, t->own_q, trmi_attention_address(a, t->q, &a->s.q, t->b, query, h),
                        a->s.q.row, rows, trmi_attention_scale(a, false));
    trmi_attention_take(a, t->own_dy, trmi_attention_address(a, t->dy, &a->s.y, t->b, query, h),
                        a->s.y.row, rows, 1);
    trmi_attention_pack_rows(a, t->rows_q, t->own_q, rows);
    trmi_attention_pack_rows(a, t->rows_dy, t->own_dy, rows);
    /* Compute scores = q K^T and dp = dy V^T; then p and ds in their places. */
    trmi_attention_scores(a, &part, t->own_q, t->columns_k, t->scores);
    trmi_attention_scores(a, &part, t->own_dy, t->columns_v, t->dp);
    const float *lse = t->lse + (t->b * a->s.heads + h) * a->s.queries + query;
    for (int64_t i = 0; i < rows; i++) {
        a->kernels->attend_grad(t->scores + i * a->stride, t->dp + i * a->stride, hidden,
                                trmi_attention_row_reads(&part, i),
                                trmi_attention_row_room(a, &part, i), trmi_attention_scale(a, true),
                                a->pairs, lse[i], t->e[row + i]);
    }
    /* Add dV += p^T dy, dK += ds^T q, dQ += ds K. */
    trmi_attention_apply_transposed(a, &part, t->scores, t->rows_dy, t->own_dv, t->turned);
    trmi_attention_apply_transposed(a, &part, t->dp, t->rows_q, t->own_dk, t->turned);
    trmi_attention_apply(a, &part, t->dp, t->rows_k, t->sums + row * a->s.width);
}

/* Computes dK and dV of the block of keys from `begin` on, and adds its part of dQ to `sums`. */
static void run_block(const task *t, int64_t begin) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t count = trmi_min_i64(a->keys, a->s.keys - begin),
            bytes = (int64_t)trm_dtype_bytes(a->dtype);
    const char *k = trmi_attention_address(a, t->k, &a->s.k, t->b, begin, t->g),
               *v = trmi_attention_address(a, t->v, &a->s.v, t->b, begin, t->g);
    /* Pack the keys and values of the block, in the forms of the three products. */
    trmi_attention_pack(a, t->columns_k, k, a->s.k.row, count, true);
    trmi_attention_pack(a, t->columns_v, v, a->s.v.row, count, true);
    trmi_attention_pack(a, t->rows_k, k, a->s.k.row, count, false);
    const float *hidden = trmi_attention_hidden(a, t->mask, t->b, begin, count, t->room);
    memset(t->own_dk, 0, (size_t)(count * a->s.width) * sizeof *t->own_dk);
    memset(t->own_dv, 0, (size_t)(count * a->s.width) * sizeof *t->own_dv);
    const float one = 1, scale = trmi_attention_scale(a, true);
    /* all heads that share these keys, all queries */
    for (int64_t head = 0; head < a->group; head++) {
        for (int64_t query = 0; query < a->s.queries; query += t->f->block) {
            join_block(t, head, query, trmi_min_i64(t->f->block, a->s.queries - query), begin,
                       hidden);
        }
    }
    trmi_attention_give(
        a, (char *)t->dk + trmi_attention_at(&a->s, &a->s.k, t->b, begin, t->g) * bytes, a->s.k.row,
        t->own_dk, count, &scale, 0);
    trmi_attention_give(
        a, (char *)t->dv + trmi_attention_at(&a->s, &a->s.v, t->b, begin, t->g) * bytes, a->s.v.row,
        t->own_dv, count, &one, 0);
}

/* Runs a task. e[i] is the dot product of row i's dy and y, which the gradient of the softmax
 * needs; dQ is summed over the blocks of keys, and written last. */
static void run_task(const task *t) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t queries = a->s.queries, bytes = (int64_t)trm_dtype_bytes(a->dtype);
    const float scale = (float)a->attrs.attention.scale;
    for (int64_t i = 0; i < a->group * queries; i++) {
        int64_t h = t->g * a->group + i / queries;
        t->e[i] =
            (float)a->kernels->dot(trmi_attention_address(a, t->dy, &a->s.y, t->b, i % queries, h),
                                   trmi_attention_address(a, t->y, &a->s.y, t->b, i % queries, h),
                                   a->s.width, a->dtype == TRM_BFLOAT16);
    }
    memset(t->sums, 0, (size_t)(a->group * queries * a->s.width) * sizeof *t->sums);
    for (int64_t begin = 0; begin < a->s.keys; begin += a->keys) {
        run_block(t, begin);
    }
    for (int64_t head = 0; head < a->group; head++) {
        int64_t to = trmi_attention_at(&a->s, &a->s.q, t->b, 0, t->g * a->group + head);
        trmi_attention_give(a, (char *)t->dq + to * bytes, a->s.q.row,
                            t->sums + head * queries * a->s.width, queries, &scale, 0);
    }
}

/* Runs the backward kernel. A task is one sample and one group of heads, with all its queries:
 * dK and dV are sums over the queries, and one thread makes each sum, so that its order does not
 * depend on the number of threads. */
static trm_status run_attention_grad(const trmi_kernel *k, const trmi_kernel_env *env,
                                     trm_error *err) {
    (void)err;
    const backward *f = k->state;
    const trmi_attention_blocks *a = &f->a;
    bool packed = a->s.packed;
    const void *q = trmi_kernel_input(k, env, 1);
    void *dq = trmi_kernel_output(k, env, 0);
    const task all = {.f = f,
                      .dy = trmi_kernel_input(k, env, 0),
                      .q = q,
                      .k = packed ? q : trmi_kernel_input(k, env, 2),
                      .v = packed ? q : trmi_kernel_input(k, env, 3),
                      .mask = trmi_kernel_input(k, env, 4),
                      .y = trmi_kernel_input(k, env, 5),
                      .lse = trmi_kernel_input(k, env, 6),
                      .dq = dq,
                      .dk = packed ? dq : trmi_kernel_output(k, env, 1),
                      .dv = packed ? dq : trmi_kernel_output(k, env, 2)};
    float *scratch = (float *)(void *)trmi_kernel_scratch(k, env);
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
    for (int64_t i = 0; i < a->s.batch * a->s.kv_heads; i++) {
        task t = all;
        t.b = i / a->s.kv_heads;
        t.g = i % a->s.kv_heads;
        divide_memory(&t, scratch + omp_get_thread_num() * f->thread_floats);
        run_task(&t);
    }
    return TRM_OK;
}

/* Returns the bytes of scratch for all threads; 0 if the fast kernel does not take this operator.
 * The memory plan calls it before any kernel is bound, so it must choose the same blocks as
 * bind. */
int64_t trmi_onednn_attention_grad_scratch(trmi_onednn *state, const trm_program *program,
                                           const trmi_step *step) {
    backward f;
    if (!trmi_attention_blocks_of(program, step, 1, state, &f.a)) {
        return 0;
    }
    size_blocks(&f);
    return f.thread_floats * 4 * state->threads;
}

/* Binds the fast kernel. dy, y and all outputs must have the type of q; other mixtures are left to
 * the reference kernel. */
trm_status trmi_onednn_bind_attention_grad(trmi_backend *backend, trmi_kernel *kernel,
                                           trm_error *err) {
    trmi_attention_blocks a;
    bool fast =
        trmi_attention_blocks_of(kernel->program, kernel->step, 1, trmi_onednn_of(backend), &a);
    fast = fast && trmi_kernel_input_buffer(kernel, 0)->dtype == a.dtype &&
           trmi_kernel_input_buffer(kernel, 5)->dtype == a.dtype;
    for (int i = 0; i < kernel->step->outputs_count; i++) {
        fast = fast && trmi_kernel_output_buffer(kernel, i)->dtype == a.dtype;
    }
    if (!fast) {
        return trmi_memory_unsupported(kernel, err);
    }
    backward *f = trmi_memory_state(kernel, sizeof *f, err);
    if (f == NULL) {
        return TRM_NOMEM;
    }
    f->a = a;
    size_blocks(f);
    kernel->run = run_attention_grad;
    return TRM_OK;
}
