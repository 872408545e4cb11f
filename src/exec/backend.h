/* SPDX-License-Identifier: Apache-2.0 */
/* exec/backend.h: a back-end turns each program step into a kernel: a function and the state that
 * it made at creation. `ref` is slow and simple, the oracle of every test; `onednn` is fast. The
 * planner chooses layouts by the back-end's target (plan/lower/program.h).
 *
 *      bind (once, may allocate, measure, fail)  -->  run (every step: none of these)
 */
#ifndef TRMI_EXEC_BACKEND_H
#define TRMI_EXEC_BACKEND_H

#include "plan/lower/program.h"

/* An exchange of small sums in the middle of a kernel, among ranks or among blocks of samples:
 * statistics of batch norm, sums of a loss. */
typedef struct trmi_norm_sync trmi_norm_sync;
struct trmi_norm_sync {
    int32_t size; /* ranks that take part, at least 2; with blocks: blocks of all ranks */
    /* strict determinism: blocks of samples on this rank, each with its own values; 0 = none */
    int32_t blocks;
    /* Gathers values[count] of each rank, or of each block of each rank: *all is [size * count], in
     * the order of ranks or blocks, valid until the next call. Collective: all ranks call it in the
     * same order, each on the thread that runs the kernel. */
    trm_status (*gather)(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err);
    double *values; /* [capacity] buffer in which a kernel may prepare its values */
};

/* The environment of a kernel at run time. Buffers do not move after creation. */
typedef struct trmi_kernel_env {
    char *arena[TRMI_ARENAS];
    uint64_t seed;
    uint64_t step;                /* training step; dropout masks depend on it */
    int32_t micro;                /* ... and on the micro-batch of the step, from 0 */
    int threads;                  /* OpenMP threads of a kernel */
    trmi_norm_sync *norm_sync;    /* data parallel: over all ranks; NULL = this rank alone */
    trmi_norm_sync *sync[16];     /* split programs: by bit mask of mesh axes; [0] = NULL */
    struct trmi_split_run *split; /* split programs: exec/distributed/split.h */
    /* Programs with blocks of samples (exec/determinism/strict.h): the blocks of the ranks that cut
     * the samples, by bit mask of mesh axes; [0]: of all ranks of a program that is not split. */
    trmi_norm_sync *block_sync[16];
    /* ... and the number of each block, by its position among those of this rank, in split programs
     * among those of all ranks; NULL = no blocks. */
    const int32_t *block_numbers;
    int32_t block; /* which block a kernel with by_block sums */
} trmi_kernel_env;

/* Returns what dropout masks take as the step: the step and, above it, the micro-batch. */
static inline uint64_t trmi_dropout_step(const trmi_kernel_env *env) {
    return env->step ^ (uint64_t)env->micro << 40;
}

/* The part of a cooperative gradient (plan/lower/lower_cooperative.c) that one rank computes:
 * elements [begin, begin + count) of the output, in memory order. The kernel may also write a few
 * neighbours. */
typedef struct trmi_cooperative_part {
    /* this rank, of program->cooperative_ranks; its samples follow those of the ranks before it in
     * COOPERATIVE */
    int32_t rank;
    int64_t begin, count;
} trmi_cooperative_part;

typedef struct trmi_kernel trmi_kernel;
/* A step of the program, bound to a function. */
struct trmi_kernel {
    /* Computes the outputs of the step. Allocates nothing.
     *   errors  INVALID: bad values in the data (an id outside its table); those of exchanges */
    trm_status (*run)(const trmi_kernel *self, const trmi_kernel_env *env, trm_error *err);
    void (*destroy)(trmi_kernel *self); /* frees `state`; NULL = none */
    const trm_program *program;
    const trmi_step *step;
    void *state;
    /* A step over samples, in a program with blocks: each run sums the block env->block only;
     * false: one run sums all blocks in the order of their tree (base/tree.h). */
    bool by_block;
    /* Returns whether a run would leave the outputs as they are, because they lie in the place of
     * an input and equal it; then `run` makes no pass over them. NULL = never. */
    bool (*leaves)(const trmi_kernel *self, const trmi_kernel_env *env);
};

typedef struct trmi_backend trmi_backend;
/* A back-end of one executor. */
struct trmi_backend {
    const char *name;
    trmi_target target; /* what the planner may use: layouts, fusions, costs, scratch */
    void *state;
    /* Sets kernel->run, destroy and state; the caller has set program and step. Returns UNSUPPORTED
     * if the back-end has no kernel for the step; the caller then binds the reference kernel, which
     * needs PLAIN layouts (`supports` of the target guarantees them). */
    trm_status (*bind)(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
    /* The same for the part of a cooperative gradient; NULL where target.cooperative is false. */
    trm_status (*bind_cooperative)(trmi_backend *backend, trmi_kernel *kernel,
                                   const trmi_cooperative_part *part, trm_error *err);
    /* Called after the last bind: frees memory that only planning and binding need. May be NULL. */
    void (*settle)(trmi_backend *backend);
    void (*destroy)(trmi_backend *backend);
};

/* Makes the reference back-end.   owns  *out: the caller, (*out)->destroy */
trm_status trmi_backend_ref(int threads, trmi_backend **out, trm_error *err);
#ifdef TRIREME_ONEDNN
/* Makes the fast back-end. cache_file: tuning file (exec/cpu/tuning/tuning.h); NULL = none.
 *   owns  *out: the caller, (*out)->destroy    errors  NOMEM, INTERNAL */
trm_status trmi_backend_onednn(int threads, const char *cache_file, trmi_backend **out,
                               trm_error *err);
/* Measures, from now on, choices that earlier processes only guessed, for at most `seconds` in
 * all. */
void trmi_backend_onednn_retune(trmi_backend *backend, double seconds);
/* Takes, from now on, each choice from `file` if it has one, and adds new choices to it. A run
 * that is given the same file again computes the same bits, even if the tuning file has changed
 * since. */
trm_status trmi_backend_onednn_keep(trmi_backend *backend, const char *file, trm_error *err);
/* Kernels are chosen by rule, not by time, for programs with blocks of samples. `single_blocks`:
 * each block is summed by itself, as this rank's blocks are no node of the tree. Before the first
 * plan. */
void trmi_backend_onednn_blocks(trmi_backend *backend, bool single_blocks);
#endif

/* Returns the seed of random numbers of the block of samples at a position; of all samples without
 * blocks. */
static inline uint64_t trmi_block_seed(uint64_t seed, const int32_t *block_numbers,
                                       int64_t position) {
    return seed +
           (block_numbers != NULL ? 0x9E3779B97F4A7C15ull * (uint64_t)block_numbers[position] : 0);
}

/* Returns how many of `rows` (rows of samples, or anything of which each sample has as many) one
 * block has; all of them if the step does not go over samples. */
static inline int64_t trmi_of_block(const trmi_step *step, int64_t rows) {
    return step->over_samples ? rows / step->blocks : rows;
}

/* Returns the exchange of a kernel's statistics for samples that the ranks of `axes` cut; NULL:
 * none. */
static inline trmi_norm_sync *trmi_samples_sync(trmi_norm_sync *const *blocks,
                                                trmi_norm_sync *const *sync, uint32_t axes) {
    return blocks != NULL && blocks[axes] != NULL ? blocks[axes]
           : sync != NULL && axes != 0            ? sync[axes]
                                                  : NULL;
}

/* Returns the address of a buffer; NULL for buffer 0, which means absent. */
static inline void *trmi_address(const trm_program *program, const trmi_kernel_env *env,
                                 int32_t buffer) {
    const trmi_buffer *b = &program->buffers[buffer];
    return buffer == 0 ? NULL : env->arena[b->arena] + b->offset;
}
/* Return the address of input or output i in this run; NULL: the step has none. A kernel that runs
 * block by block (strict determinism) gets that of the present block. */
static inline void *trmi_kernel_input(const trmi_kernel *k, const trmi_kernel_env *env, int i) {
    char *at = i < k->step->inputs_count ? trmi_address(k->program, env, k->step->inputs[i]) : NULL;
    return at != NULL && k->by_block ? at + env->block * k->step->block_stride[i] : at;
}
static inline void *trmi_kernel_output(const trmi_kernel *k, const trmi_kernel_env *env, int i) {
    char *at =
        i < k->step->outputs_count ? trmi_address(k->program, env, k->step->outputs[i]) : NULL;
    return at != NULL && k->by_block ? at + env->block * k->step->block_out_stride[i] : at;
}
/* Return the work memory of a step, and its bytes: the arena that all steps share, or a buffer of
 * the step's own among the activations (trmi_step.scratch). */
static inline char *trmi_kernel_scratch(const trmi_kernel *k, const trmi_kernel_env *env) {
    return k->step->scratch == 0 ? env->arena[TRMI_ARENA_SCRATCH]
                                 : trmi_address(k->program, env, k->step->scratch);
}
static inline int64_t trmi_kernel_scratch_bytes(const trmi_kernel *k) {
    return k->step->scratch == 0 ? k->program->arena_bytes[TRMI_ARENA_SCRATCH]
                                 : k->program->buffers[k->step->scratch].bytes;
}
/* Return the description of an input or output; NULL: the step has none. */
static inline const trmi_buffer *trmi_kernel_input_buffer(const trmi_kernel *k, int i) {
    return i < k->step->inputs_count && k->step->inputs[i] != 0
               ? &k->program->buffers[k->step->inputs[i]]
               : NULL;
}
static inline const trmi_buffer *trmi_kernel_output_buffer(const trmi_kernel *k, int i) {
    return i < k->step->outputs_count && k->step->outputs[i] != 0
               ? &k->program->buffers[k->step->outputs[i]]
               : NULL;
}

/* ---- reference kernels: float64 accumulation, plain layout, one thread ----------------------- */

/* A reference kernel reads and writes plain tensors only, so that it also serves tests directly. */
typedef struct trmi_ref_args {
    const trmi_op_def *row;
    const trmi_attrs *attrs;
    int32_t inputs_count, outputs_count;
    const trm_tensor *inputs; /* data NULL = absent */
    trm_tensor *outputs;      /* data NULL = not read by any step; the kernel skips it */
    uint64_t seed, step;
    bool training;
    trmi_norm_sync *norm_sync;
    trmi_norm_sync *const *sync, *const *block_sync; /* as in trmi_kernel_env; NULL = none */
    const int32_t *block_numbers; /* as in trmi_kernel_env; the seed of dropout depends on them */
    int64_t block_rows;           /* rows of samples of one block */
} trmi_ref_args;
typedef trm_status (*trmi_ref_kernel)(const trmi_ref_args *args, trm_error *err);
/* The reference kernels by operator kind; NULL for leaves. exec/ref/ref_*.c define
 * trmi_ref_<row>. */
extern const trmi_ref_kernel trmi_ref_table[TRMI_OP_KINDS];

#endif
