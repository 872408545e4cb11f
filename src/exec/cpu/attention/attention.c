/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward. A task is some queries of all heads that share keys; it walks the blocks of
 * keys with a maximum, a sum and a result for each of its rows.
 *
 *   scratch of a thread:  q | o | most, sum | scores of a tile of rows | packed K | packed V | hidden */
#include "exec/cpu/attention/attention_blocks.h"

#include "base/error.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* Rows of a task at most (queries times the heads that share keys), and register tiles of rows
 * whose scores exist at a time. */
enum { TASK_ROWS = 192, ROW_TILES = 8 };

typedef struct forward {
    trmi_attention_blocks a;
    int64_t chunks, chunk; /* tasks along the queries; most queries of one */
    int64_t block;         /* rows whose scores exist at once */
    int64_t thread_floats;
} forward;

/* Chooses the queries of a task and of a block, and counts the scratch of a thread in the order of
 * the drawing above. */
static void size_blocks(forward *f) {
    trmi_attention_blocks *a = &f->a;
    int64_t most = trmi_max_i64(1, TASK_ROWS / a->group);
    f->chunks = trmi_max_i64(1, trmi_pieces(a->s.queries, most));
    f->chunk = trmi_pieces(a->s.queries, f->chunks);
    f->block = ROW_TILES * a->isa->mr;
    int64_t rows = f->chunk * a->group;
    f->thread_floats = trmi_round_up(2 * rows * a->s.width + 2 * rows + f->block * a->stride +
                                         2 * trmi_attention_packed_floats(a) + a->keys,
                                     16);
}

/* The operands of a run and the memory of one thread. */
typedef struct task {
    const forward *f;
    const void *q, *k, *v;
    const int32_t *mask;
    void *y;
    float *lse;
    int64_t b, g, first, count; /* batch, key head, queries */
    float *own_q, *o, *most, *sum, *scores, *packed_k, *packed_v, *room;
} task;

/* Computes one block of rows of a head with one block of keys. */
static void attend_rows(const task *t, int64_t row, int64_t query, int64_t rows, int64_t begin,
                        const float *hidden) {
    const trmi_attention_blocks *a = &t->f->a;
    const trmi_attention_part part = trmi_attention_part_of(a, query, rows, begin);
    int64_t width = a->s.width;
    if (part.keys == 0) {
        return;
    }
    trmi_attention_scores(a, &part, t->own_q + row * width / a->lane, t->packed_k, t->scores);
    for (int64_t i = 0; i < rows; i++) {
        float factor = a->kernels->attend(
            t->scores + i * a->stride, hidden, trmi_attention_row_reads(&part, i),
            trmi_attention_row_room(a, &part, i), trmi_attention_scale(a, true), a->pairs,
            &t->most[row + i], &t->sum[row + i]);
        if (factor != 1) {
            float *o = t->o + (row + i) * width;
            a->kernels->unary[TRMI_UNARY_SCALE](o, o, width, false, false, factor);
        }
    }
    trmi_attention_apply(a, &part, t->scores, t->packed_v, t->o + row * width);
}

/* Packs one block of the keys before `end` and of their values, then lets all queries of the task,
 * of all heads of the group, read it: a packed block serves group * count rows. */
static void attend_block(const task *t, int64_t begin, int64_t end) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t count = trmi_min_i64(a->keys, end - begin), block = t->f->block;
    trmi_attention_pack(a, t->packed_k, trmi_attention_address(a, t->k, &a->s.k, t->b, begin, t->g),
                        a->s.k.row, count, true);
    trmi_attention_pack(a, t->packed_v, trmi_attention_address(a, t->v, &a->s.v, t->b, begin, t->g),
                        a->s.v.row, count, false);
    const float *hidden = trmi_attention_hidden(a, t->mask, t->b, begin, count, t->room);
    for (int64_t head = 0; head < a->group; head++) {
        for (int64_t i = 0; i < t->count; i += block) {
            attend_rows(t, head * t->count + i, t->first + i, trmi_min_i64(block, t->count - i),
                        begin, hidden);
        }
    }
}

/* Writes the results of a head's queries, divided by the sums of their weights, and the logs of
 * those sums, which backward needs. A query that reads no key gets zeros. */
static void write_queries(const task *t, int64_t head) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t row = head * t->count, h = t->g * a->group + head;
    float *sum = t->sum + row, *lse = t->lse + (t->b * a->s.heads + h) * a->s.queries + t->first;
    for (int64_t i = 0; i < t->count; i++) {
        bool reads = sum[i] > 0;
        lse[i] = reads ? t->most[row + i] + logf(sum[i]) : TRMI_ATTENTION_NO_KEYS;
        sum[i] = reads ? 1 / sum[i] : 0;
    }
    char *to = (char *)t->y + trmi_attention_at(&a->s, &a->s.y, t->b, t->first, h) *
                                  (int64_t)trm_dtype_bytes(a->dtype);
    trmi_attention_give(a, to, a->s.y.row, t->o + row * a->s.width, t->count, sum, 1);
}

/* Runs a task: copies the scaled queries, takes the blocks of keys that they may read (causal:
 * up to the last query), and writes the outputs divided by their sums. */
static void run_task(const task *t) {
    const trmi_attention_blocks *a = &t->f->a;
    int64_t rows = t->count * a->group;
    for (int64_t head = 0; head < a->group; head++) {
        trmi_attention_take(
            a, t->own_q + head * t->count * a->s.width / a->lane,
            trmi_attention_address(a, t->q, &a->s.q, t->b, t->first, t->g * a->group + head),
            a->s.q.row, t->count, trmi_attention_scale(a, false));
    }
    memset(t->o, 0, (size_t)(rows * a->s.width) * sizeof *t->o);
    for (int64_t i = 0; i < rows; i++) {
        t->most[i] = -INFINITY;
        t->sum[i] = 0;
    }
    int64_t end = trmi_attention_limit(&a->s, &a->attrs, t->first + t->count - 1);
    for (int64_t begin = 0; begin < end; begin += a->keys) {
        attend_block(t, begin, end);
    }
    for (int64_t head = 0; head < a->group; head++) {
        write_queries(t, head);
    }
}

/* Runs the forward kernel. A task is a chunk of queries of one sample and one group of heads
 * that share keys; tasks write separate rows of the output, so they need no order. Each thread
 * has its own scratch: the packed query, output, running maximum and sum of each row, a block of
 * scores, packed keys and values. */
static trm_status run_attention(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    (void)err;
    const forward *f = k->state;
    const trmi_attention_blocks *a = &f->a;
    const void *q = trmi_kernel_input(k, env, 0);
    const task all = {.f = f,
                      .q = q,
                      .k = a->s.packed ? q : trmi_kernel_input(k, env, 1),
                      .v = a->s.packed ? q : trmi_kernel_input(k, env, 2),
                      .mask = trmi_kernel_input(k, env, 3),
                      .y = trmi_kernel_output(k, env, 0),
                      .lse = trmi_kernel_output(k, env, 1)};
    float *scratch = (float *)(void *)trmi_kernel_scratch(k, env);
    int64_t tasks = a->s.queries > 0 ? a->s.batch * a->s.kv_heads * f->chunks : 0;
/* late queries read more keys: they come first */
#pragma omp parallel for schedule(dynamic, 1) num_threads(a->threads)
    for (int64_t i = tasks - 1; i >= 0; i--) {
        int64_t rest = i % (a->s.batch * a->s.kv_heads), chunk = i / (a->s.batch * a->s.kv_heads);
        task t = all;
        t.b = rest / a->s.kv_heads;
        t.g = rest % a->s.kv_heads;
        t.first = trmi_cut_at(a->s.queries, f->chunks, chunk);
        t.count = trmi_cut_at(a->s.queries, f->chunks, chunk + 1) - t.first;
        /* the thread's scratch, divided into its parts */
        int64_t rows = t.count * a->group;
        t.own_q = scratch + omp_get_thread_num() * f->thread_floats;
        t.o = t.own_q + rows * a->s.width;
        t.most = t.o + rows * a->s.width;
        t.sum = t.most + rows;
        t.scores = t.sum + rows;
        t.packed_k = t.scores + f->block * a->stride;
        t.packed_v = t.packed_k + trmi_attention_packed_floats(a);
        t.room = t.packed_v + trmi_attention_packed_floats(a);
        run_task(&t);
    }
    return TRM_OK;
}

int64_t trmi_onednn_attention_scratch(trmi_onednn *state, const trm_program *program,
                                      const trmi_step *step) {
    forward f;
    if (!trmi_attention_blocks_of(program, step, 0, state, &f.a)) {
        return 0;
    }
    size_blocks(&f);
    return f.thread_floats * 4 * state->threads;
}

/* Binds the fast kernel. Float32 and bfloat16 are taken, with one type for all of q, k, v and y. */
trm_status trmi_onednn_bind_attention(trmi_backend *backend, trmi_kernel *kernel, trm_error *err) {
    trmi_attention_blocks a;
    if (!trmi_attention_blocks_of(kernel->program, kernel->step, 0, trmi_onednn_of(backend), &a) ||
        trmi_kernel_output_buffer(kernel, 0)->dtype != a.dtype) {
        return trmi_memory_unsupported(kernel, err);
    }
    forward *f = trmi_memory_state(kernel, sizeof *f, err);
    if (f == NULL) {
        return TRM_NOMEM;
    }
    f->a = a;
    size_blocks(f);
    kernel->run = run_attention;
    return TRM_OK;
}
