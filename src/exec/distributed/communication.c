/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the communication steps of a program, ALL_REDUCE and EXCHANGE. An EXCHANGE packs what
 * other ranks want of this rank's part, sends and receives, and unpacks or adds in the order of the
 * members, so that the bits do not depend on which message came first. */
#include "exec/distributed/split.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "comm/api/reduce.h"

#include <string.h>

/* ---- boxes in memory ------------------------------------------------------------------------- */

/* Element strides of a tensor of `box` in a layout. */
static void strides_of(const trmi_box *box, trmi_layout layout, bool weights,
                       int64_t stride[TRM_MAX_RANK]) {
    static const int32_t plain[] = {0, 1, 2, 3, 4, 5}, last[] = {0, 2, 3, 1},
                         last_weights[] = {2, 3, 1, 0};
    const int32_t *order =
        box->rank == 4 && layout == TRMI_CHANNELS_LAST ? (weights ? last_weights : last) : plain;
    int64_t step = 1;
    for (int32_t i = box->rank - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= box->end[order[i]] - box->begin[order[i]];
    }
}

/* Loops over a box, longest steps first, and where its corner lies in two tensors. */
typedef struct walk {
    int32_t rank;
    int64_t length[TRM_MAX_RANK], a[TRM_MAX_RANK], b[TRM_MAX_RANK], a0, b0;
} walk;

static void add_loop(walk *w, int64_t length, int64_t a, int64_t b) {
    if (length == 1) {
        return;
    }
    w->length[w->rank] = length;
    w->a[w->rank] = a;
    w->b[w->rank++] = b;
}

/* Between a tensor of `of` and the packed box (or a tensor of `with`), in the memory order of `of`.
 */
static walk walk_of(const trmi_box *box, const trmi_box *of, const int64_t *stride,
                    const trmi_box *with, const int64_t *with_stride) {
    walk w = {.rank = 0};
    int32_t order[TRM_MAX_RANK];
    for (int32_t d = 0; d < box->rank; d++) {
        int32_t at = d;
        for (; at > 0 && stride[order[at - 1]] < stride[d]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = d;
        w.a0 += (box->begin[d] - of->begin[d]) * stride[d];
        w.b0 += with != NULL ? (box->begin[d] - with->begin[d]) * with_stride[d] : 0;
    }
    int64_t packed[TRM_MAX_RANK], step = 1;
    for (int32_t i = box->rank - 1; i >= 0; i--) {
        packed[order[i]] = step;
        step *= box->end[order[i]] - box->begin[order[i]];
    }
    for (int32_t i = 0; i < box->rank; i++) {
        int32_t d = order[i];
        add_loop(&w, box->end[d] - box->begin[d], stride[d],
                 with != NULL ? with_stride[d] : packed[d]);
    }
    /* Join loops that run on in both. */
    for (int32_t i = w.rank - 2; i >= 0; i--) {
        if (w.a[i] == w.a[i + 1] * w.length[i + 1] && w.b[i] == w.b[i + 1] * w.length[i + 1]) {
            w.length[i] *= w.length[i + 1];
            w.a[i] = w.a[i + 1];
            w.b[i] = w.b[i + 1];
            memmove(&w.length[i + 1], &w.length[i + 2],
                    (size_t)(w.rank - i - 2) * sizeof w.length[0]);
            memmove(&w.a[i + 1], &w.a[i + 2], (size_t)(w.rank - i - 2) * sizeof w.a[0]);
            memmove(&w.b[i + 1], &w.b[i + 2], (size_t)(w.rank - i - 2) * sizeof w.b[0]);
            w.rank--;
        }
    }
    return w;
}

/* to = to op from, `count` elements with strides. */
static void put_run(trmi_reduce_fn *reduce, char *to, int64_t to_step, const char *from,
                    int64_t from_step, int64_t count, size_t element) {
    int64_t calls = to_step == 1 && from_step == 1 ? 1 : count;
    for (int64_t i = 0; i < calls; i++) {
        char *t = to + (size_t)(i * to_step) * element;
        const void *sources[] = {t, from + (size_t)(i * from_step) * element};
        void *target = t;
        reduce(&target, 1, sources, 2, count / calls, 1);
    }
}

static void copy_run(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                     size_t element) {
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)count * element);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(to + (size_t)(i * to_step) * element, from + (size_t)(i * from_step) * element,
               element);
    }
}

/* Moves the box: a's side to b's (`pack`), or b's to a's; there `reduce` puts it together with what
 * is there. */
static void move_box(const walk *w, char *a, char *b, trm_dtype dtype, bool pack,
                     trm_reduction reduce) {
    trmi_reduce_fn *put = reduce != TRM_REDUCTION_NONE ? trmi_reduce_find(dtype, reduce) : NULL;
    size_t element = trm_dtype_bytes(dtype);
    int32_t inner = w->rank - 1;
    int64_t outer = 1, run = inner < 0 ? 1 : w->length[inner];
    int64_t a_step = inner < 0 ? 1 : w->a[inner], b_step = inner < 0 ? 1 : w->b[inner];
    for (int32_t i = 0; i < inner; i++) {
        outer *= w->length[i];
    }
#pragma omp parallel for schedule(static) if (outer * run > 16384)
    for (int64_t o = 0; o < outer; o++) {
        int64_t rest = o, at = w->a0, bt = w->b0;
        for (int32_t i = inner - 1; i >= 0; i--) {
            at += rest % w->length[i] * w->a[i];
            bt += rest % w->length[i] * w->b[i];
            rest /= w->length[i];
        }
        char *x = a + (size_t)at * element, *y = b + (size_t)bt * element;
        if (put != NULL) {
            put_run(put, x, a_step, y, b_step, run, element);
        } else if (pack) {
            copy_run(y, b_step, x, a_step, run, element);
        } else {
            copy_run(x, a_step, y, b_step, run, element);
        }
    }
}

void trmi_shard_copy_box(void *whole, const trm_shape *shape, const trmi_box *box, void *part,
                         size_t element, bool into) {
    trmi_box all = trmi_box_whole(shape);
    int64_t stride[TRM_MAX_RANK], own[TRM_MAX_RANK];
    strides_of(&all, TRMI_PLAIN, false, stride);
    strides_of(box, TRMI_PLAIN, false, own);
    if (trmi_box_count(box) == 0) {
        return;
    }
    walk w = walk_of(box, &all, stride, box, own);
    trm_dtype dtype = element == 8   ? TRM_INT64
                      : element == 4 ? TRM_INT32
                      : element == 2 ? TRM_BFLOAT16
                                     : TRM_UINT8;
    move_box(&w, whole, part, dtype, !into, TRM_REDUCTION_NONE);
}

static const trm_reduction reduce_of[] = {[TRMI_COMBINE_NONE] = TRM_REDUCTION_NONE,
                                          [TRMI_COMBINE_SUM] = TRM_REDUCTION_SUM,
                                          [TRMI_COMBINE_MAX] = TRM_REDUCTION_MAX,
                                          [TRMI_COMBINE_MIN] = TRM_REDUCTION_MIN};

/* ---- EXCHANGE -------------------------------------------------------------------------------- */

typedef struct exchange_state {
    const trmi_exchange *what;
    /* one collective on the tensors as they lie: ALLGATHERV, REDUCE_SCATTERV; else NONE */
    trm_collective_kind whole;
    trm_dtype dtype;
    walk own;           /* input -> output, of this rank's own share */
    bool has_own, fill; /* fill: no rank has some of the output, or it is added to */
    walk *send, *recv;  /* [members] */
    /* [5 * members]: send, receive, their displacements; elements of the parts of `whole` */
    int64_t *counts;
} exchange_state;

static void unpack(const exchange_state *s, int32_t member, const char *in, char *out,
                   char *received) {
    const trmi_exchange *what = s->what;
    size_t element = trm_dtype_bytes(s->dtype);
    /* Sums are added to zeros; of extremes, all have all: the first begins. */
    trm_reduction reduce =
        reduce_of[what->combine == TRMI_COMBINE_SUM || member > 0 ? what->combine
                                                                  : TRMI_COMBINE_NONE];
    if (member == what->self) {
        if (s->has_own) {
            move_box(&s->own, out, (char *)(uintptr_t)in, s->dtype, false, reduce);
        }
    } else if (s->counts[what->members + member] > 0) {
        move_box(&s->recv[member], out,
                 received + (size_t)s->counts[3 * what->members + member] * element, s->dtype,
                 false, reduce);
    }
}

static trm_status run_exchange(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const exchange_state *s = k->state;
    const trmi_exchange *what = s->what;
    int32_t n = what->members;
    size_t element = trm_dtype_bytes(s->dtype);
    char *in = trmi_kernel_input(k, env, 0), *out = trmi_kernel_output(k, env, 0);
    char *sent = env->shard != NULL ? env->shard->staging : NULL;
    char *received = sent != NULL ? sent + env->shard->send_bytes : NULL;
    if (n > 1) {
        for (int32_t m = 0; m < n; m++) {
            if (m != what->self && s->counts[m] > 0) {
                move_box(&s->send[m], in, sent + (size_t)s->counts[2 * n + m] * element, s->dtype,
                         true, TRM_REDUCTION_NONE);
            }
        }
        const trm_collective op = {.kind = TRM_ALLTOALLV,
                                   .send = sent,
                                   .recv = received,
                                   .dtype = s->dtype,
                                   .counts = s->counts,
                                   .recv_counts = s->counts + n,
                                   .displacements = s->counts + 2 * n,
                                   .recv_displacements = s->counts + 3 * n,
                                   .tag = k->step->name};
        TRMI_TRY(trm_comm_run(env->shard->groups[what->axes].comm, &op, err));
    }
    if (s->fill) {
        memset(out, 0, (size_t)trmi_kernel_output_buffer(k, 0)->bytes);
    }
    for (int32_t m = 0; m < n; m++) {
        unpack(s, m, in, out, received);
    }
    return TRM_OK;
}

/* Parts that lie one behind the other in memory, in the order of the members. */
static trm_status run_whole(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const exchange_state *s = k->state;
    if (s->what->combine == TRMI_COMBINE_SUM &&
        trm_comm_deterministic(env->shard->world) != TRM_DETERMINISTIC_FALSE) {
        return run_exchange(k, env, err);
    }
    const trm_collective op = {.kind = s->whole,
                               .send = trmi_kernel_input(k, env, 0),
                               .recv = trmi_kernel_output(k, env, 0),
                               .dtype = s->dtype,
                               .counts = s->counts + 4 * s->what->members,
                               .reduce = reduce_of[s->what->combine],
                               .tag = k->step->name};
    return trm_comm_run(env->shard->groups[s->what->axes].comm, &op, err);
}

static void plan_boxes(exchange_state *s, const trmi_buffer *in, const trmi_buffer *out) {
    const trmi_exchange *what = s->what;
    int64_t from[TRM_MAX_RANK], to[TRM_MAX_RANK], covered = 0;
    int32_t n = what->members;
    const trmi_box *wants = &trmi_exchange_wants(what)[what->self];
    strides_of(&what->held, in->layout, in->weights, from);
    strides_of(wants, out->layout, out->weights, to);
    for (int32_t m = 0; m < n; m++) {
        trmi_box both;
        bool takes = trmi_box_intersect(&trmi_exchange_has(what)[m], wants, &both);
        covered += takes ? trmi_box_count(&both) : 0;
        if (m == what->self) {
            s->has_own = takes;
            if (takes) {
                s->own = walk_of(&both, wants, to, &what->held, from);
            }
            continue;
        }
        if (takes) {
            s->recv[m] = walk_of(&both, wants, to, NULL, NULL);
            s->counts[n + m] = trmi_box_count(&both);
        }
        if (trmi_box_intersect(&trmi_exchange_has(what)[what->self], &trmi_exchange_wants(what)[m],
                               &both)) {
            s->send[m] = walk_of(&both, &what->held, from, NULL, NULL);
            s->counts[m] = trmi_box_count(&both);
        }
    }
    for (int32_t m = 1; m < n; m++) {
        s->counts[2 * n + m] = s->counts[2 * n + m - 1] + s->counts[m - 1];
        s->counts[3 * n + m] = s->counts[3 * n + m - 1] + s->counts[n + m - 1];
    }
    s->fill = what->combine == TRMI_COMBINE_SUM || covered < trmi_box_count(wants);
}

/* Are `parts` the whole box, cut along its outermost dimension in memory, in order? */
static bool in_order(const trmi_box *parts, int32_t count, const trmi_box *whole,
                     const int64_t *stride) {
    int32_t along = -1;
    for (int32_t d = 0; d < whole->rank; d++) {
        bool outer =
            whole->end[d] - whole->begin[d] > 1 && (along < 0 || stride[d] > stride[along]);
        along = outer ? d : along;
    }
    for (int32_t m = 0; along >= 0 && m < count; m++) {
        int64_t begin = m == 0 ? whole->begin[along] : parts[m - 1].end[along];
        for (int32_t d = 0; d < whole->rank; d++) {
            bool all = parts[m].begin[d] == whole->begin[d] && parts[m].end[d] == whole->end[d];
            bool fits = d == along ? parts[m].begin[d] == begin : all;
            if (parts[m].rank != whole->rank || !fits) {
                return false;
            }
        }
    }
    return along >= 0 && parts[count - 1].end[along] == whole->end[along];
}

/* An all-gather or a reduce-scatter of tensors as they lie needs no packing. Sums that must not
 * depend on the number of ranks keep the order of the exchange. */
static trm_collective_kind whole_of(const trmi_exchange *what, const trmi_buffer *in,
                                    const trmi_buffer *out) {
    bool reduces = what->combine != TRMI_COMBINE_NONE;
    const trmi_box *one = reduces ? trmi_exchange_wants(what) : trmi_exchange_has(what),
                   *all = reduces ? trmi_exchange_has(what) : trmi_exchange_wants(what);
    int64_t stride[TRM_MAX_RANK];
    bool same = what->members > 1 && in->layout == out->layout && in->weights == out->weights &&
                in->dtype == out->dtype &&
                trmi_box_equal(&what->held, &trmi_exchange_has(what)[what->self]);
    for (int32_t m = 0; same && m < what->members; m++) {
        same = trmi_box_equal(&all[m], &all[0]);
    }
    if (!same || all[0].rank < 1) {
        return TRM_COLLECTIVE_NONE;
    }
    strides_of(&all[0], in->layout, in->weights, stride);
    return in_order(one, what->members, &all[0], stride)
               ? (reduces ? TRM_REDUCE_SCATTERV : TRM_ALLGATHERV)
               : TRM_COLLECTIVE_NONE;
}

static void staging(const trmi_exchange *what, trm_dtype dtype, int64_t *send, int64_t *recv) {
    trmi_box both;
    *send = *recv = 0;
    for (int32_t m = 0; m < what->members; m++) {
        if (m != what->self) {
            *send += trmi_box_intersect(&trmi_exchange_has(what)[what->self],
                                        &trmi_exchange_wants(what)[m], &both)
                         ? trmi_box_count(&both)
                         : 0;
            *recv += trmi_box_intersect(&trmi_exchange_has(what)[m],
                                        &trmi_exchange_wants(what)[what->self], &both)
                         ? trmi_box_count(&both)
                         : 0;
        }
    }
    *send *= (int64_t)trm_dtype_bytes(dtype);
    *recv *= (int64_t)trm_dtype_bytes(dtype);
}

void trmi_shard_staging(const trm_program *program, bool ordered, int64_t *send, int64_t *recv) {
    *send = *recv = 0;
    for (int32_t i = 0; i < program->steps_count; i++) {
        const trmi_step *step = &program->steps[i];
        const trmi_buffer *in = &program->buffers[step->inputs[0]],
                          *out = &program->buffers[step->outputs[0]];
        bool exchange = step->kind == TRMI_STEP_OP && step->op_kind == TRMI_OP_EXCHANGE;
        /* run_whole */
        bool adds =
            ordered && exchange && trmi_exchange_of(step->attrs)->combine == TRMI_COMBINE_SUM;
        if (exchange &&
            (adds || whole_of(trmi_exchange_of(step->attrs), in, out) == TRM_COLLECTIVE_NONE)) {
            int64_t sent, received;
            staging(trmi_exchange_of(step->attrs), in->dtype, &sent, &received);
            *send = trmi_max_i64(*send, sent);
            *recv = trmi_max_i64(*recv, received);
        }
    }
}

static void destroy(trmi_kernel *kernel) { trmi_free(kernel->state); }

static trm_status bind_exchange(trmi_kernel *k, trm_error *err) {
    const trmi_exchange *what = trmi_exchange_of(k->step->attrs);
    size_t n = (size_t)what->members;
    exchange_state *s = trmi_alloc(sizeof *s + n * (2 * sizeof(walk) + 5 * sizeof(int64_t)));
    if (s == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for its kernel", k->step->name);
    }
    s->what = what;
    s->send = (walk *)(s + 1);
    s->recv = s->send + n;
    s->counts = (int64_t *)(s->recv + n);
    s->dtype = trmi_kernel_input_buffer(k, 0)->dtype;
    plan_boxes(s, trmi_kernel_input_buffer(k, 0), trmi_kernel_output_buffer(k, 0));
    k->state = s;
    k->destroy = destroy;
    k->run = run_exchange;
    s->whole = whole_of(what, trmi_kernel_input_buffer(k, 0), trmi_kernel_output_buffer(k, 0));
    if (s->whole != TRM_COLLECTIVE_NONE) {
        for (size_t m = 0; m < n; m++) {
            s->counts[4 * n + m] =
                trmi_box_count(what->combine != TRMI_COMBINE_NONE ? &trmi_exchange_wants(what)[m]
                                                                  : &trmi_exchange_has(what)[m]);
        }
        k->run = run_whole;
    }
    return TRM_OK;
}

/* ---- ALL_REDUCE ------------------------------------------------------------------------------ */

static trm_status run_all_reduce(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const trmi_exchange *what = trmi_exchange_of(k->step->attrs);
    const trmi_buffer *b = trmi_kernel_output_buffer(k, 0);
    void *in = trmi_kernel_input(k, env, 0), *out = trmi_kernel_output(k, env, 0);
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .send = in == out ? NULL : in,
                               .recv = out,
                               .count = trm_shape_count(&b->shape),
                               .dtype = b->dtype,
                               .reduce = reduce_of[what->combine],
                               .tag = k->step->name};
    return trm_comm_run(env->shard->groups[what->axes].comm, &op, err);
}

trm_status trmi_shard_bind(trmi_kernel *k, trm_error *err) {
    if (k->step->kind == TRMI_STEP_OP && k->step->op_kind == TRMI_OP_EXCHANGE) {
        return bind_exchange(k, err);
    }
    if (k->step->kind == TRMI_STEP_OP && k->step->op_kind == TRMI_OP_ALL_REDUCE) {
        k->run = run_all_reduce;
        return TRM_OK;
    }
    return TRM_UNSUPPORTED;
}
