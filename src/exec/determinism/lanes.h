/* SPDX-License-Identifier: Apache-2.0 */
/* exec/determinism/lanes.h: the same bits on any number of ranks and threads.
 *
 *      global batch, sample by sample    0 1 2 3 4 5 6 7 8 9 10 11          6 lanes of 2 samples: i mod 6
 *      lane of each                      0 1 2 3 4 5 0 1 2 3 4  5
 *      2 ranks (samples dealt in turn)   rank 0: lanes 0 2 4, rank 1: lanes 1 3 5
 *
 * The program is compiled for one lane and for one thread, and each step of it runs for all lanes
 * of this rank before the next begins; threads share out lanes. What is in a lane, and so all that
 * it computes, does not depend on the number of ranks. What crosses lanes is either combined in the
 * lanes' global order (statistics of batch norm, losses), or summed so that no order matters
 * (gradients): values are rounded to multiples of a unit so coarse that sums of them are exact in
 * float64, and so fine (about 2^-45 of the largest of 4096 neighbours) that this costs no digit of
 * a float32.
 *
 *      step k of backward    stage[lane] <- gradient of each lane        largest of all lanes and ranks
 *      fold                  sums += rounded(stage[lane])                all-reduce of sums (float64)
 *      end                   GRAD = (float) (sums / lanes)
 *
 * The price: no measured choices, one thread a kernel, 8 bytes a gradient to send, a small message
 * for each batch norm and each gradient.
 */
#ifndef TRMI_EXEC_LANES_H
#define TRMI_EXEC_LANES_H

#include "trireme/exec.h"

#include "exec/backend.h"

/* Gradients are rounded by so many neighbours together. */
enum { TRMI_LANES_CHUNK = 4096 };

struct trm_exec;
typedef struct trmi_lanes trmi_lanes;

typedef struct trmi_lane {
    trmi_kernel_env
        env; /* its own INPUT, ACTIVATION and STATE; SCRATCH and GRAD are set for each run */
    trmi_norm_sync sync;
    trmi_lanes *lanes;
    int32_t index; /* on this rank */
    int32_t asked; /* exchanges of the running kernel so far */
    trm_status status;
    trm_error error;
    void *owned[TRMI_ARENAS];
} trmi_lane;

struct trmi_lanes {
    int32_t count, total; /* here; on all ranks */
    int32_t workers;      /* threads */
    int32_t ranks, rank;
    trm_comm *comm; /* owned: exchanges, beside the gradients' communicator; NULL = one rank */
    trmi_lane *lanes;
    trmi_kernel **kernels; /* [workers][steps]; those of worker 0 are exec->kernels */
    char **scratch;        /* [workers] */
    /* exchanges of a kernel: answers to those that are done, then the one that is asked for */
    int32_t answered;
    int64_t answers_used, asked_count, capacity; /* doubles of a lane */
    double *answers;       /* [total * capacity]: one behind the other, each [total * its count] */
    double *gathered;      /* [ranks][count lanes][of a lane]; peers reach it */
    int64_t *answer_begin; /* [capacity + 1] exchanges */
    /* gradients */
    bool whole;       /* GRAD of a lane is kept whole: some step reads it again */
    int64_t *low;     /* [steps] lowest offset of GRAD that the step writes */
    int64_t stride;   /* bytes of GRAD of a lane */
    char *stage;      /* [count * stride] */
    double *sums;     /* [elements of GRAD]; peers reach it */
    int32_t *largest; /* by chunk of the step's gradients: bits of the largest magnitude */
    int64_t chunks;
    /* [steps + 1]: the parameters [ready[i], ready[i + 1]) have their gradients behind step i */
    int32_t *ready;
    float loss;
    size_t sums_bytes, gathered_bytes, largest_bytes, answers_bytes, stage_bytes;
};

/* lanes.c: memory and kernels for the lanes of exec->lanes, after the kernels of the executor are
 * bound.   error  NOMEM */
trm_status trmi_lanes_create(struct trm_exec *exec, trm_error *err);
/* Extra bytes beside the program's own arenas. */
int64_t trmi_lanes_bytes(const trmi_lanes *lanes);

/* lanes_run.c: hooks of the way `strict_blocks` (distributed/distribution.h). */
bool trmi_lanes_feed(struct trm_exec *exec, int32_t index, const trm_tensor *to, const void *from);
/* The mean loss of all lanes, and whether any rank raised its flag: an action behind forward. */
trm_status trmi_lanes_agree(struct trm_exec *exec, int32_t item, trm_error *err);
trm_status trmi_lanes_before_step(struct trm_exec *exec, bool training, trm_error *err);
trm_status trmi_lanes_finish_forward(struct trm_exec *exec, trm_error *err);
trm_status trmi_lanes_finish_backward(struct trm_exec *exec, trm_status status, trm_error *err);
/* What a lane sees of a step. */
trmi_kernel_env trmi_lanes_env(const struct trm_exec *exec, int32_t lane, int32_t step);
/* Steps [begin, end), each for all lanes: trmi_exec_walk. Collective, as far as kernels exchange
 * something. */
trm_status trmi_lanes_walk(struct trm_exec *exec, int32_t begin, int32_t end, trm_error *err);
/* Sums of all lanes to gradients: trmi_range_arrived. */
void trmi_lanes_conclude(struct trm_exec *exec, int64_t begin, int64_t count);

#endif
