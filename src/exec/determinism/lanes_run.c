/* SPDX-License-Identifier: Apache-2.0 */
/* A step on lanes: each kernel for all of them, their gradients folded as soon as they are there.
 */
#include "exec/exec.h"
#include "exec/determinism/lanes.h"
#include "exec/distributed/ranks_state.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/os.h"

#include <math.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { CHUNK = TRMI_LANES_CHUNK };

static trm_comm *side_comm(const trm_exec *exec) { return exec->lanes->comm; }

/* ---- kernels
 *  -------------------------------------------------------------------------------------------- */

static trmi_kernel_env env_of(const trmi_lanes *l, int32_t lane, int32_t worker, int32_t step) {
    trmi_kernel_env env = l->lanes[lane].env;
    env.arena[TRMI_ARENA_SCRATCH] = l->scratch[worker];
    env.arena[TRMI_ARENA_GRAD] = l->stage + lane * l->stride - l->low[step];
    return env;
}

trmi_kernel_env trmi_lanes_env(const trm_exec *exec, int32_t lane, int32_t step) {
    return env_of(exec->lanes, lane, 0, step);
}

/* Running statistics as they were before the kernel: it is run again once its question is answered.
 */
static void restore_states(const trm_exec *exec, trmi_lane *lane, int32_t step) {
    const trm_program *program = exec->program;
    const trmi_step *s = &program->steps[step];
    for (int32_t j = 0; j < s->inputs_count; j++) {
        const trmi_buffer *b = &program->buffers[s->inputs[j]];
        if (s->inputs[j] != 0 && b->arena == TRMI_ARENA_STATE) {
            memcpy(lane->env.arena[TRMI_ARENA_STATE] + b->offset,
                   exec->env.arena[TRMI_ARENA_STATE] + b->offset, (size_t)b->bytes);
        }
    }
}

static void run_lane(trm_exec *exec, int32_t index, int32_t worker, int32_t step) {
    trmi_lanes *l = exec->lanes;
    trmi_lane *lane = &l->lanes[index];
    const trmi_kernel *kernel = &l->kernels[worker][step];
    if (l->answered > 0) {
        restore_states(exec, lane, step);
    }
    trmi_kernel_env env = env_of(l, index, worker, step);
    env.step = exec->env.step;
    lane->asked = 0;
    lane->status = kernel->run(kernel, &env, &lane->error);
}

static void run_all(trm_exec *exec, int32_t step) {
    trmi_lanes *l = exec->lanes;
#ifdef _OPENMP
    if (l->workers > 1) {
#pragma omp parallel num_threads(l->workers)
        for (int32_t i = omp_get_thread_num(); i < l->count; i += omp_get_num_threads()) {
            run_lane(exec, i, omp_get_thread_num(), step);
        }
        return;
    }
#endif
    for (int32_t i = 0; i < l->count; i++) {
        run_lane(exec, i, 0, step);
    }
}

/* ---- exchanges
 *  ------------------------------------------------------------------------------------------ */

/* What each lane put into `gathered`, `count` doubles each, to `to` in the lanes' global order. */
static trm_status exchange(trm_exec *exec, int64_t count, double *to, const char *tag,
                           trm_error *err) {
    trmi_lanes *l = exec->lanes;
    trm_comm *comm = side_comm(exec);
    if (comm != NULL) {
        const trm_collective op = {.kind = TRM_ALLGATHER,
                                   .recv = l->gathered,
                                   .count = count * l->count,
                                   .dtype = TRM_FLOAT64,
                                   .tag = tag};
        TRMI_TRY(trm_comm_run(comm, &op, err));
    }
    for (int32_t r = 0; r < l->ranks; r++) {
        for (int32_t i = 0; i < l->count; i++) {
            memcpy(to + (i * l->ranks + r) * count, l->gathered + (r * l->count + i) * count,
                   (size_t)count * sizeof *to);
        }
    }
    return TRM_OK;
}

/* True when all lanes asked, false when all are done; the first error otherwise. */
static trm_status all_asked(const trmi_lanes *l, bool *asked, trm_error *err) {
    int32_t pending = 0;
    for (int32_t i = 0; i < l->count; i++) {
        const trmi_lane *lane = &l->lanes[i];
        pending += lane->status == TRM_PENDING;
        if (lane->status != TRM_OK && lane->status != TRM_PENDING) {
            if (err != NULL) {
                *err = lane->error;
            }
            return lane->status;
        }
    }
    *asked = pending > 0;
    TRMI_ASSERT(pending == 0 || pending == l->count);
    return TRM_OK;
}

static trm_status run_step(trm_exec *exec, int32_t step, trm_error *err) {
    trmi_lanes *l = exec->lanes;
    l->answered = 0;
    l->answers_used = 0;
    for (;;) {
        bool asked;
        run_all(exec, step);
        TRMI_TRY(all_asked(l, &asked, err));
        if (!asked) {
            return TRM_OK;
        }
        TRMI_TRY(exchange(exec, l->asked_count, l->answers + l->answers_used, "batch norm", err));
        l->answer_begin[l->answered++] = l->answers_used;
        l->answers_used += l->asked_count * l->total;
    }
}

/* ---- gradients
 *  ------------------------------------------------------------------------------------------- */

static const float *gradient_of(const trmi_lanes *l, int32_t lane, int32_t step, int64_t offset) {
    return (const float *)(const void *)(l->stage + lane * l->stride - l->low[step] + offset);
}

static int32_t largest_bits(const trmi_lanes *l, int32_t step, int64_t offset, int64_t count) {
    int32_t largest = 0;
    for (int32_t lane = 0; lane < l->count; lane++) {
        const float *g = gradient_of(l, lane, step, offset);
        for (int64_t i = 0; i < count; i++) {
            int32_t bits;
            memcpy(&bits, &g[i], sizeof bits);
            /* of the magnitude; NaN is above infinity, infinity above all numbers */
            bits &= INT32_MAX;
            largest = bits > largest ? bits : largest;
        }
    }
    return largest;
}

/* (g + anchor) - anchor rounds g to a multiple of the unit, 2^-50 of the largest possible sum. 0:
 * nothing to sum, or something that is no number and shall show. */
static double anchor_of(int32_t largest, int32_t total) {
    float magnitude;
    int exponent, room;
    memcpy(&magnitude, &largest, sizeof magnitude);
    if (!isfinite(magnitude) || largest == 0) {
        return 0;
    }
    (void)frexp((double)magnitude, &exponent); /* magnitude < 2^exponent */
    (void)frexp((double)total, &room);         /* total < 2^room */
    return ldexp(1.5, exponent + room + 2);
}

static void add_lanes(const trmi_lanes *l, int32_t step, int64_t offset, int64_t count,
                      double anchor, double *sums) {
    for (int32_t lane = 0; lane < l->count; lane++) {
        const float *g = gradient_of(l, lane, step, offset);
        for (int64_t i = 0; i < count; i++) {
            double rounded = ((double)g[i] + anchor) - anchor;
            sums[i] = lane == 0 ? rounded : sums[i] + rounded;
        }
    }
}

/* Chunk `chunk` of the gradients [first, end), each cut by itself: its place in GRAD and its
 * length. */
static int64_t chunk_of(const trm_program *program, int32_t first, int64_t chunk, int64_t *count) {
    for (int32_t i = first;; i++) {
        const trmi_buffer *b = &program->buffers[program->params[i].param_buffer];
        int64_t elements = b->bytes / (int64_t)sizeof(float),
                chunks = (elements + CHUNK - 1) / CHUNK;
        if (chunk < chunks) {
            *count = trmi_min_i64(CHUNK, elements - chunk * CHUNK);
            return b->offset + chunk * CHUNK * (int64_t)sizeof(float);
        }
        chunk -= chunks;
    }
}

static int64_t chunks_of(const trm_program *program, int32_t first, int32_t end) {
    int64_t chunks = 0;
    for (int32_t i = first; i < end; i++) {
        int64_t bytes = program->buffers[program->params[i].param_buffer].bytes;
        chunks += (bytes / (int64_t)sizeof(float) + CHUNK - 1) / CHUNK;
    }
    return chunks;
}

/* The gradients [first, end), which `step` has completed on all lanes, into the sums of this rank.
 */
static trm_status fold(trm_exec *exec, int32_t step, int32_t first, int32_t end, trm_error *err) {
    trmi_lanes *l = exec->lanes;
    const trm_program *program = exec->program;
    int64_t chunks = chunks_of(program, first, end);
#pragma omp parallel for schedule(static) num_threads(l->workers) if (l->workers > 1)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t count, offset = chunk_of(program, first, c, &count);
        l->largest[c] = largest_bits(l, step, offset, count);
    }
    if (side_comm(exec) != NULL) {
        TRMI_TRY(trm_comm_allreduce(side_comm(exec), l->largest, chunks, TRM_INT32,
                                    TRM_REDUCTION_MAX, err));
    }
#pragma omp parallel for schedule(static) num_threads(l->workers) if (l->workers > 1)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t count, offset = chunk_of(program, first, c, &count);
        add_lanes(l, step, offset, count, anchor_of(l->largest[c], l->total),
                  l->sums + offset / (int64_t)sizeof(float));
    }
    return TRM_OK;
}

/* Sums to gradients: the mean of all samples, or the sum of the ranks' means. */
void trmi_lanes_conclude(trm_exec *exec, int64_t begin, int64_t count) {
    trmi_lanes *l = exec->lanes;
    bool sum = exec->parallel != NULL && exec->parallel->options.sum;
    double scale = 1.0 / (sum ? l->count : l->total);
    float *gradients = (float *)(void *)exec->env.arena[TRMI_ARENA_GRAD];
#pragma omp parallel for schedule(static) num_threads(l->workers) if (l->workers > 1)
    for (int64_t c = begin / CHUNK; c < (begin + count + CHUNK - 1) / CHUNK; c++) {
        int64_t from = trmi_max_i64(begin, c * CHUNK),
                to = trmi_min_i64(begin + count, (c + 1) * CHUNK);
        for (int64_t i = from; i < to; i++) {
            gradients[i] = (float)(l->sums[i] * scale);
        }
    }
}

trm_status trmi_lanes_walk(trm_exec *exec, int32_t begin, int32_t end, trm_error *err) {
    const trmi_lanes *l = exec->lanes;
    for (int32_t i = begin; i < end; i++) {
        TRMI_TRY(run_step(exec, i, err));
        if (l->ready[i + 1] > l->ready[i] && i >= exec->program->backward_begin) {
            TRMI_TRY(fold(exec, i, l->ready[i], l->ready[i + 1], err));
        }
    }
    return TRM_OK;
}

/* ---- forward and backward
 *  ----------------------------------------------------------------------------------- */

bool trmi_lanes_feed(trm_exec *exec, int32_t index, const trm_tensor *to, const void *from) {
    (void)index;
    trmi_lanes *l = exec->lanes;
    int64_t rows = to->shape.dim[0], each = trm_tensor_bytes(to) / (rows > 0 ? rows : 1);
    int64_t offset = (char *)to->data - l->lanes[0].env.arena[TRMI_ARENA_INPUT];
    for (int64_t i = 0; from != NULL && i < rows * l->count; i++) {
        memcpy(l->lanes[i % l->count].env.arena[TRMI_ARENA_INPUT] + offset + i / l->count * each,
               (const char *)from + i * each, (size_t)each);
    }
    return from != NULL;
}

static float loss_of(const trm_exec *exec, int32_t lane) {
    const trm_program *p = exec->program;
    const trmi_buffer *b = &p->buffers[p->outputs[0]];
    float loss;
    memcpy(&loss, exec->lanes->lanes[lane].env.arena[b->arena] + b->offset, sizeof loss);
    return loss;
}

trm_status trmi_lanes_agree(trm_exec *exec, int32_t item, trm_error *err) {
    (void)item;
    trmi_lanes *l = exec->lanes;
    trmi_parallel *p = exec->parallel;
    double loss = 0, flags = 0;
    for (int32_t i = 0; i < l->count; i++) {
        double *mine = l->gathered + (l->rank * l->count + i) * 2;
        mine[0] = (double)loss_of(exec, i);
        mine[1] = p != NULL ? (double)p->flag : 0;
    }
    TRMI_TRY(exchange(exec, 2, l->answers, "loss", err));
    for (int32_t i = 0; i < l->total; i++) {
        loss += l->answers[2 * i];
        flags += l->answers[2 * i + 1];
    }
    l->loss = (float)(loss / l->total);
    if (p != NULL) {
        *p->agreed = (trmi_agreed){.loss = l->loss, .flag = flags > 0};
    }
    return TRM_OK;
}

static void copy_states(trm_exec *exec, bool back) {
    trmi_lanes *l = exec->lanes;
    size_t bytes = (size_t)exec->program->arena_bytes[TRMI_ARENA_STATE];
    char *all = exec->env.arena[TRMI_ARENA_STATE];
    for (int32_t i = 0; i < (back ? 1 : l->count); i++) {
        char *own = l->lanes[i].env.arena[TRMI_ARENA_STATE];
        memcpy(back ? all : own, back ? own : all, bytes);
    }
}

trm_status trmi_lanes_before_step(trm_exec *exec, bool training, trm_error *err) {
    (void)training;
    (void)err;
    exec->loss = NULL;
    copy_states(exec, false);
    return TRM_OK;
}

/* The loss is that of this rank's lanes. */
trm_status trmi_lanes_finish_forward(trm_exec *exec, trm_error *err) {
    (void)err;
    double loss = 0;
    copy_states(exec, true);
    for (int32_t i = 0; i < exec->lanes->count; i++) {
        loss += (double)loss_of(exec, i);
    }
    exec->lanes->loss = (float)(loss / exec->lanes->count);
    exec->loss = &exec->lanes->loss;
    return TRM_OK;
}

/* Where there are other ranks their sums have come before (trmi_payload). */
trm_status trmi_lanes_finish_backward(trm_exec *exec, trm_status status, trm_error *err) {
    (void)err;
    TRMI_TRY(status);
    if (exec->parallel == NULL) {
        trmi_lanes_conclude(exec, 0,
                            exec->program->arena_bytes[TRMI_ARENA_GRAD] / (int64_t)sizeof(float));
    }
    exec->loss = &exec->lanes->loss;
    copy_states(exec, true);
    return TRM_OK;
}
