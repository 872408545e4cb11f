/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/dnnl/onednn.h: shared by the kernel files of the fast back-end.
 *
 *      backend_onednn.c   the table: op kind -> bind, supports, seconds, scratch, in_place
 *      conv*.c gemm*.c winograd*.c matmul.c     compute-bound: choose by measurement, then run
 *      norm*.c pool*.c eltwise*.c loss*.c embed*.c     memory-bound: one vectorised pass
 *
 * A kernel file defines `trmi_onednn_bind_<x>` and, where the defaults do not apply, the other
 * functions of its row. The planner calls them at compile time; exec binds the kernel once and runs
 * it each step.
 */
#ifndef TRMI_EXEC_CPU_ONEDNN_H
#define TRMI_EXEC_CPU_ONEDNN_H

#include "exec/backend.h"
#include "exec/cpu/dnnl/dnnl_compat.h"

/* The back-end's own state: trmi_backend.state and trmi_target.context. */
typedef struct trmi_onednn {
    int threads;
    trmi_dnnl *dnnl;            /* oneDNN's engine and stream */
    struct trmi_tuning *tuning; /* measured choices; see tuning.h */
    /* all choices of this run, with guesses; they precede `tuning`; NULL: not kept */
    struct trmi_tuning *kept;
    char *trial; /* memory of trials (conv_choice.c), freed at the first bind */
    int64_t trial_bytes;
    double trial_seconds; /* spent on trials so far */
    /* Layers and the output layer multiply pairs of bfloat16, which rounds their operands to that
     * type. Rule: the run's choices (`kept`) decide, else the machine's file (`tuning`), else the
     * gain that is measured now (rates.h) and added to both; never in strict determinism. Ranks
     * read the same file or measure the same gain, 0.5 or 2 on known CPUs. */
    bool pairs;
    bool strict;           /* strict determinism: programs have blocks of samples */
    bool single_blocks;    /* ... each block is summed by itself */
    double retune_seconds; /* positive: re-time guesses of earlier processes, for so long */
} trmi_onednn;

typedef trm_status (*trmi_onednn_bind)(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);

/* One row for each kind of operator. Only `bind` must be set to have a fast kernel; a NULL member
 * means the answer that its comment gives. */
typedef struct trmi_onednn_row {
    /* Makes the kernel of a step. NULL: the reference kernel runs it. */
    trmi_onednn_bind bind;
    /* Returns whether the kernel can run on values of this layout. NULL: on PLAIN and
     * CHANNELS_LAST if there is a `bind`, else on PLAIN. */
    bool (*supports)(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                     trmi_layout layout);
    /* Returns the seconds of the operator in this layout. NULL: unknown. */
    double (*seconds)(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                      trmi_layout layout);
    /* Returns the bytes of SCRATCH that a step needs. NULL: none. */
    int64_t (*scratch)(trmi_onednn *state, const trm_program *program, const trmi_step *step);
    /* Returns whether the output may overwrite this input. NULL: never. */
    bool (*in_place)(trmi_onednn *state, const trm_graph *graph, const trmi_op *op, int input);
} trmi_onednn_row;

/* norm.c: binds the BATCH_NORM and NORM_ACT kinds. */
trm_status trmi_onednn_bind_norm(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
bool trmi_onednn_norm_supports(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               trmi_layout layout);
int64_t trmi_onednn_norm_scratch(trmi_onednn *state, const trm_program *program,
                                 const trmi_step *step);
bool trmi_onednn_norm_in_place(trmi_onednn *state, const trm_graph *graph, const trmi_op *op,
                               int input);

/* Frees the memory of trials and writes the choices to the tuning file. Called at each bind. */
void trmi_onednn_trials_done(trmi_onednn *state);

/* Returns the state of the fast back-end. */
static inline trmi_onednn *trmi_onednn_of(trmi_backend *backend) { return backend->state; }

#endif
