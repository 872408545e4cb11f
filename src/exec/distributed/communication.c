/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the communication steps of a program, ALL_REDUCE and EXCHANGE. An EXCHANGE packs what
 * other ranks want of this rank's part, sends and receives, and unpacks or adds in the order of the
 * members, so that the bits do not depend on which message came first. A gather of a parameter and
 * a message of a ring may begin before its place, as an action (trmi_step.ahead); its kernel
 * then waits for the messages. */
#include "exec/determinism/tree_sum.h"
#include "exec/distributed/split.h"
#include "exec/exec.h"

#include "exec/box_walk.h"
#include "exec/exchange_form.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* Reductions of the collectives, by how a plan combines partial results. */
static const trm_reduction reduce_of[] = {[TRMI_COMBINE_NONE] = TRM_REDUCTION_NONE,
                                          [TRMI_COMBINE_SUM] = TRM_REDUCTION_SUM,
                                          [TRMI_COMBINE_MAX] = TRM_REDUCTION_MAX,
                                          [TRMI_COMBINE_MIN] = TRM_REDUCTION_MIN};

/* ---- EXCHANGE -------------------------------------------------------------------------------- */

/* State of an EXCHANGE kernel; messages are planned at creation. */
typedef struct exchange_state {
    const trmi_box_exchange *what;
    /* one collective on the tensors as they lie (trmi_exchange_collective); else NONE */
    trm_collective_kind whole;
    trm_request *request; /* of `whole`, where it has begun before its place; else NULL */
    trm_dtype dtype;
    trmi_box_walk own;          /* input -> output, of this rank's own share */
    bool has_own, fill;         /* fill: no rank has some of the output, or it is added to */
    trmi_box_walk *send, *recv; /* [members] */
    /* [5 * members]: send, receive, their displacements; elements of the parts of `whole` */
    int64_t *counts;
} exchange_state;

/* Puts the part of a member into the output. `received`: all parts in the order of members. */
static void unpack_member(const exchange_state *s, int32_t member, const char *in, char *out,
                          char *received) {
    const trmi_box_exchange *what = s->what;
    size_t element = trm_dtype_bytes(s->dtype);
    /* Sums are added to zeros; of extremes, all have all: the first begins. */
    trm_reduction reduce =
        reduce_of[what->combine == TRMI_COMBINE_SUM || member > 0 ? what->combine
                                                                  : TRMI_COMBINE_NONE];
    if (member == what->self) {
        if (s->has_own) {
            trmi_move_box(&s->own, out, (char *)(uintptr_t)in, s->dtype, false, reduce);
        }
    } else if (s->counts[what->members + member] > 0) {
        trmi_move_box(&s->recv[member], out,
                      received + (size_t)s->counts[3 * what->members + member] * element, s->dtype,
                      false, reduce);
    }
}

/* Runs a redistribution: packs the boxes that other members of the group want, exchanges them,
 * and unpacks what has come. The rank's own box is copied without the network. `fill`: places
 * that no member has (a halo beyond the edge) and sums begin with zeros. */
static trm_status run_exchange(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const exchange_state *s = k->state;
    const trmi_box_exchange *what = s->what;
    int32_t n = what->members;
    size_t element = trm_dtype_bytes(s->dtype);
    char *in = trmi_kernel_input(k, env, 0), *out = trmi_kernel_output(k, env, 0);
    char *sent = env->split != NULL ? env->split->staging : NULL;
    char *received = sent != NULL ? sent + env->split->send_bytes : NULL;
    if (n > 1) {
        /* Pack what each other member wants. */
        for (int32_t m = 0; m < n; m++) {
            if (m != what->self && s->counts[m] > 0) {
                trmi_move_box(&s->send[m], in, sent + (size_t)s->counts[2 * n + m] * element,
                              s->dtype, true, TRM_REDUCTION_NONE);
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
        TRMI_TRY(trm_comm_run(env->split->groups[what->axes].comm, &op, err));
    }
    /* Unpack, or add if the value was partial. */
    if (s->fill) {
        memset(out, 0, (size_t)trmi_kernel_output_buffer(k, 0)->bytes);
    }
    for (int32_t m = 0; m < n; m++) {
        unpack_member(s, m, in, out, received);
    }
    return TRM_OK;
}

/* Returns the collective of parts that lie one after the other in memory, in the order of the
 * members; of ALLTOALLV the one part that this rank sends begins where its tensor begins, and so
 * does the one that it receives. */
static trm_collective whole_of(const trmi_kernel *k, const trmi_kernel_env *env) {
    const exchange_state *s = k->state;
    const int64_t *counts = s->counts;
    const int32_t n = s->what->members;
    trm_collective op = {.kind = s->whole,
                         .send = trmi_kernel_input(k, env, 0),
                         .recv = trmi_kernel_output(k, env, 0),
                         .dtype = s->dtype,
                         .counts = counts + 4 * n,
                         .reduce = reduce_of[s->what->combine],
                         .tag = k->step->name};
    if (s->whole == TRM_ALLTOALLV) {
        op.counts = counts;
        op.recv_counts = counts + n;
    }
    return op;
}

/* Waits for messages that began before their place. */
static trm_status wait_for_request(exchange_state *s, trm_error *err) {
    trm_request *request = s->request;
    s->request = NULL;
    return trm_request_wait(request, -1, err);
}

/* Runs that collective, or waits for it. */
static trm_status run_whole(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    exchange_state *s = k->state;
    if (s->request != NULL) {
        return wait_for_request(s, err);
    }
    if (s->what->combine == TRMI_COMBINE_SUM &&
        trm_comm_deterministic(env->split->world) != TRM_DETERMINISTIC_FALSE) {
        return run_exchange(k, env, err);
    }
    const trm_collective op = whole_of(k, env);
    return trm_comm_run(env->split->groups[s->what->axes].comm, &op, err);
}

/* Starts the collective of step `item`: an action. */
static trm_status start_whole(trm_exec *exec, int32_t item, trm_error *err) {
    const trmi_kernel *k = &exec->kernels[item];
    exchange_state *s = k->state;
    const trm_collective op = whole_of(k, &exec->env);
    return trm_comm_start(exec->env.split->groups[s->what->axes].comm, &op, &s->request, err);
}

/* Returns the state of a step whose messages begin before its place; NULL: they do not. Boxes
 * that must be packed do not: the staging has room for one step's. */
static exchange_state *state_ahead(const trm_exec *exec, int32_t step) {
    const trmi_kernel *k = &exec->kernels[step];
    return exec->program->steps[step].ahead > 0 && k->run == run_whole ? k->state : NULL;
}

void trmi_split_add_messages(trm_exec *exec) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->steps_count; i++) {
        if (state_ahead(exec, i) != NULL) {
            trmi_distribution_add(
                exec,
                (trmi_action){.before = i - p->steps[i].ahead, .run = start_whole, .item = i});
        }
    }
}

trm_status trmi_split_finish(trm_exec *exec, bool training, trm_status status, trm_error *err) {
    (void)training, (void)err;
    /* the steps of a program that ran to its end have waited for all */
    for (int32_t i = 0; status != TRM_OK && i < exec->program->steps_count; i++) {
        exchange_state *s = state_ahead(exec, i);
        if (s != NULL && s->request != NULL) {
            trm_error later;
            (void)wait_for_request(s, &later);
        }
    }
    return status;
}

/* Intersects what each member has with what each member wants. Counts and displacements of the
 * exchange are counted in elements, in four arrays of `n`: sent counts, received counts, where
 * each begins in the send memory, and where in the receive memory. */
static void plan_boxes(exchange_state *s, const trmi_buffer *in, const trmi_buffer *out) {
    const trmi_box_exchange *what = s->what;
    int64_t from[TRM_MAX_RANK], to[TRM_MAX_RANK], covered = 0;
    int32_t n = what->members;
    const trmi_box *wants = &trmi_exchange_wants(what)[what->self];
    trmi_box_strides(&what->held, in->layout, in->weights, from);
    trmi_box_strides(wants, out->layout, out->weights, to);
    for (int32_t m = 0; m < n; m++) {
        trmi_box both;
        bool takes = trmi_box_intersect(&trmi_exchange_has(what)[m], wants, &both);
        covered += takes ? trmi_box_count(&both) : 0;
        if (m == what->self) {
            s->has_own = takes;
            /* This rank's part of its own old values is copied without a message. */
            if (takes) {
                s->own = trmi_box_walk_of(&both, wants, to, &what->held, from);
            }
            continue;
        }
        if (takes) {
            s->recv[m] = trmi_box_walk_of(&both, wants, to, NULL, NULL);
            s->counts[n + m] = trmi_box_count(&both);
        }
        if (trmi_box_intersect(&trmi_exchange_has(what)[what->self], &trmi_exchange_wants(what)[m],
                               &both)) {
            s->send[m] = trmi_box_walk_of(&both, &what->held, from, NULL, NULL);
            s->counts[m] = trmi_box_count(&both);
        }
    }
    for (int32_t m = 1; m < n; m++) {
        s->counts[2 * n + m] = s->counts[2 * n + m - 1] + s->counts[m - 1];
        s->counts[3 * n + m] = s->counts[3 * n + m - 1] + s->counts[n + m - 1];
    }
    /* Zeros are needed before a sum, and where no member has a place. */
    s->fill = what->combine == TRMI_COMBINE_SUM || covered < trmi_box_count(wants);
}

static void destroy_exchange(trmi_kernel *kernel) { trmi_free(kernel->state); }

/* Binds a redistribution. Where the boxes are those of a plain collective (all-gather,
 * reduce-scatter, all-reduce), run_whole calls it directly on the buffers, without packing. */
static trm_status bind_exchange(trmi_kernel *k, trm_error *err) {
    const trmi_box_exchange *what = trmi_exchange_of(k->step->attrs);
    size_t n = (size_t)what->members;
    exchange_state *s =
        trmi_alloc(sizeof *s + n * (2 * sizeof(trmi_box_walk) + 5 * sizeof(int64_t)));
    if (s == NULL) {
        return TRMI_NO_MEMORY(err, "for the kernel of %s", k->step->name);
    }
    s->what = what;
    s->send = (trmi_box_walk *)(s + 1);
    s->recv = s->send + n;
    s->counts = (int64_t *)(s->recv + n);
    s->dtype = trmi_kernel_input_buffer(k, 0)->dtype;
    plan_boxes(s, trmi_kernel_input_buffer(k, 0), trmi_kernel_output_buffer(k, 0));
    k->state = s;
    k->destroy = destroy_exchange;
    k->run = run_exchange;
    s->whole = trmi_exchange_collective(what, trmi_kernel_input_buffer(k, 0),
                                        trmi_kernel_output_buffer(k, 0));
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

/* Reduces a value over the ranks of its axes: by the fixed tree in strict mode, else by a
 * collective. */
static trm_status run_all_reduce(const trmi_kernel *k, const trmi_kernel_env *env, trm_error *err) {
    const trmi_box_exchange *what = trmi_exchange_of(k->step->attrs);
    const trmi_buffer *b = trmi_kernel_output_buffer(k, 0);
    void *in = trmi_kernel_input(k, env, 0), *out = trmi_kernel_output(k, env, 0);
    trm_comm *comm = env->split->groups[what->axes].comm;
    if (what->combine == TRMI_COMBINE_TREE) {
        const trmi_tree_sum sum = {.comm = comm,
                                   .tree = trmi_tree_of(trm_comm_size(comm)),
                                   .nodes = 1,
                                   .pieces = env->split->pieces};
        return trmi_tree_sum_run(&sum, in, 0, out, trm_shape_count(&b->shape), k->step->name, err);
    }
    const trm_collective op = {.kind = TRM_ALLREDUCE,
                               .send = in == out ? NULL : in,
                               .recv = out,
                               .count = trm_shape_count(&b->shape),
                               .dtype = b->dtype,
                               .reduce = reduce_of[what->combine],
                               .tag = k->step->name};
    return trm_comm_run(comm, &op, err);
}

trm_status trmi_split_bind(trmi_kernel *k, trm_error *err) {
    if (k->step->kind == TRMI_STEP_OP && k->step->op_kind == TRMI_OP_EXCHANGE) {
        return bind_exchange(k, err);
    }
    if (k->step->kind == TRMI_STEP_OP && k->step->op_kind == TRMI_OP_ALL_REDUCE) {
        k->run = run_all_reduce;
        return TRM_OK;
    }
    return TRM_UNSUPPORTED;
}
