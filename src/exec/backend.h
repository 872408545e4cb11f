/* SPDX-License-Identifier: Apache-2.0 */
/* exec/backend.h: a back-end turns each step of a program into a kernel: a function and what it
 * bound at creation. `ref` is slow and obvious, the oracle of every test; `onednn` is fast.
 *
 *      bind (once, may allocate, measure, fail)  -->  run (every step: none of these)
 */
#ifndef TRMI_EXEC_BACKEND_H
#define TRMI_EXEC_BACKEND_H

#include "plan/lower/program.h"

/* Batch norm over several ranks: statistics are exchanged in the middle of a kernel. */
typedef struct trmi_norm_sync trmi_norm_sync;
struct trmi_norm_sync {
    int32_t size; /* ranks that normalise together, at least 2; with blocks: blocks of all ranks */
    /* strict determinism: blocks of samples on this rank, each with values of its own; 0 = none */
    int32_t blocks;
    /* values[count] of this rank, or of each of its blocks -> *all: [size * count] of all, in rank
     * order, or in the order of the blocks; valid until the next call. Called by all ranks, in the
     * same order, from the kernel's own thread. */
    trm_status (*gather)(trmi_norm_sync *sync, const double *values, int64_t count,
                         const double **all, trm_error *err);
    double *values; /* [capacity] room for the kernel's own */
};

/* What a kernel sees at run time. Buffers do not move after creation. */
typedef struct trmi_kernel_env {
    char *arena[TRMI_ARENAS];
    uint64_t seed;
    uint64_t step; /* global step: dropout masks depend on it */
    int threads;
    trmi_norm_sync *norm_sync;    /* NULL = this rank by itself */
    trmi_norm_sync *sync[16];     /* split programs: by mask of mesh axes; [0] = NULL */
    struct trmi_shard_run *shard; /* split programs: exec/distributed/split.h */
    /* Programs with blocks of samples (exec/determinism/strict.h): the number of each block among
     * those of all ranks, in the order in which they lie here; NULL = no blocks. */
    const int32_t *block_numbers;
    int32_t block; /* which block a kernel with by_block sums */
    /* the same bits however the graph is cut: exec/determinism/exact.h */
    bool exact;
} trmi_kernel_env;

/* What a rank makes of the output of a joint step (plan/lower/lower_joint.c): elements [begin,
 * begin + count), as they lie. A few neighbours may be written, too. */
typedef struct trmi_joint_part {
    /* of program->joint_ranks; what it reads of its own is behind that of the ranks before it */
    int32_t rank;
    int64_t begin, count;
} trmi_joint_part;

typedef struct trmi_kernel trmi_kernel;
struct trmi_kernel {
    /* TRM_OK, or the error of bad values in the data (an id outside its table). */
    trm_status (*run)(const trmi_kernel *self, const trmi_kernel_env *env, trm_error *err);
    void (*destroy)(trmi_kernel *self); /* frees `state`; NULL = nothing to free */
    const trm_program *program;
    const trmi_step *step;
    void *state;
    /* A step over samples, in a program with blocks: each run sums the block env->block only; false:
     * one run sums all blocks in the order of their tree (exec/determinism/tree.h). */
    bool by_block;
};

typedef struct trmi_backend trmi_backend;
struct trmi_backend {
    const char *name;
    trmi_target target; /* what the plan may ask */
    void *state;
    /* Fills kernel->run, destroy, state (program and step are set by the caller). A back-end
     * without a kernel for the step answers TRM_UNSUPPORTED and the caller binds the reference
     * kernel (whose layouts must then be PLAIN, which `supports` guarantees). */
    trm_status (*bind)(trmi_backend *backend, trmi_kernel *kernel, trm_error *err);
    /* The same for joint steps; NULL where target.joint is false. */
    trm_status (*bind_joint)(trmi_backend *backend, trmi_kernel *kernel,
                             const trmi_joint_part *part, trm_error *err);
    /* All kernels are bound: what only planning and binding need goes. NULL: nothing. */
    void (*settle)(trmi_backend *backend);
    void (*destroy)(trmi_backend *backend);
};

trm_status trmi_backend_ref(int threads, trmi_backend **out, trm_error *err);
#ifdef TRIREME_ONEDNN
trm_status trmi_backend_onednn(int threads, const char *cache_file, trmi_backend **out,
                               trm_error *err);
/* From here on what earlier processes only guessed, for lack of time, is measured, for so many
 * seconds in all. */
void trmi_backend_onednn_retune(trmi_backend *backend, double seconds);
/* From here on each choice is the one that `file` has, and the others are written to it: whoever is
 * given the file again computes the same bits, whatever has been measured since. */
trm_status trmi_backend_onednn_keep(trmi_backend *backend, const char *file, trm_error *err);
/* Kernels are chosen by rule, not by time, for programs with blocks of samples. `apart`: each block
 * is summed by itself, as this rank's blocks are no node of the tree. Before the first plan. */
void trmi_backend_onednn_blocks(trmi_backend *backend, int32_t blocks, bool apart);
#endif

/* The seed of random numbers of block `block` of the samples here. */
static inline uint64_t trmi_block_seed(const trmi_kernel *k, const trmi_kernel_env *env,
                                       int64_t block) {
    bool blocks = k->step->block_stride != NULL;
    return env->seed + (blocks ? 0x9E3779B97F4A7C15ull * (uint64_t)env->block_numbers[block] : 0);
}

/* Rows of samples, or whatever else comes with them, of one block where a step sums by block. */
static inline int64_t trmi_of_block(const trm_program *program, const trmi_step *step,
                                    int64_t rows) {
    return step->over_samples ? rows / program->blocks : rows;
}

/* Address of a buffer; NULL when absent. */
static inline void *trmi_address(const trm_program *program, const trmi_kernel_env *env,
                                 int32_t buffer) {
    const trmi_buffer *b = &program->buffers[buffer];
    return buffer == 0 ? NULL : env->arena[b->arena] + b->offset;
}
static inline void *trmi_kernel_input(const trmi_kernel *k, const trmi_kernel_env *env, int i) {
    char *at = i < k->step->inputs_count ? trmi_address(k->program, env, k->step->inputs[i]) : NULL;
    return at != NULL && k->by_block ? at + env->block * k->step->block_stride[i] : at;
}
static inline void *trmi_kernel_output(const trmi_kernel *k, const trmi_kernel_env *env, int i) {
    char *at =
        i < k->step->outputs_count ? trmi_address(k->program, env, k->step->outputs[i]) : NULL;
    return at != NULL && k->by_block ? at + env->block * k->step->block_out_stride[i] : at;
}
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

/* ---- reference kernels: float64 accumulation, plain layout, one thread -------------------------
 */

/* A reference kernel reads and writes plain tensors only, so that it also serves tests directly. */
typedef struct trmi_ref_args {
    const trmi_op_def *row;
    const trmi_attrs *attrs;
    int32_t inputs_count, outputs_count;
    const trm_tensor *inputs; /* data NULL = absent */
    trm_tensor *outputs;      /* data NULL = nobody reads it: the kernel must cope */
    uint64_t seed, step;
    bool training;
    trmi_norm_sync *norm_sync;
    trmi_norm_sync *const *sync; /* by mask of mesh axes; NULL = none */
    /* Blocks of samples: how many there are in the tensors, 0 = none; dropout: their numbers. */
    int32_t blocks;
    const int32_t *block_numbers;
    bool exact; /* sums whose bits do not depend on how many ranks make them */
} trmi_ref_args;
typedef trm_status (*trmi_ref_kernel)(const trmi_ref_args *args, trm_error *err);
/* By kind; NULL for leaves. exec/ref/ref_*.c define trmi_ref_<row>. */
extern const trmi_ref_kernel trmi_ref_table[TRMI_OP_KINDS];

#endif
