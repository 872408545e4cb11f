/* SPDX-License-Identifier: Apache-2.0 */
/* tests/kernel_run.h: for the tests: a back-end, and fast kernels of single program steps on
 * buffers that lie one after the other in one block of memory, as a program would have them.
 *
 *      kernel_place for each buffer --> kernel_memory --> kernel_run for each step */
#ifndef TRMI_TESTS_KERNEL_RUN_H
#define TRMI_TESTS_KERNEL_RUN_H

#include "check.h"

#include "exec/backend.h"

#include "base/format/half.h"
#include "base/memory.h"

#include <omp.h>

#ifndef KERNEL_THREADS
#define KERNEL_THREADS 3
#endif

static trmi_backend *backend;

/* Make and destroy the back-end: setup and teardown of a group of cases. */
static inline int make_backend(void **state) {
    trm_error err;
    (void)state;
    if (trmi_backend_onednn(KERNEL_THREADS, NULL, &backend, &err) != TRM_OK) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    return 0;
}
static inline int destroy_backend(void **state) {
    (void)state;
    backend->destroy(backend);
    return 0;
}

/* Describes *buffer, in plain layout, at offset `at` of the memory. Returns the offset of the next
 * one; there is room between two, which no kernel may write to. */
static inline int64_t kernel_place(trmi_buffer *buffer, trm_dtype dtype, const trm_shape *shape,
                                   int64_t at) {
    *buffer = (trmi_buffer){.name = "t",
                            .dtype = dtype,
                            .shape = *shape,
                            .arena = TRMI_ARENA_ACTIVATION,
                            .offset = at,
                            .bytes = trm_shape_count(shape) * (int64_t)trm_dtype_bytes(dtype)};
    return at + (buffer->bytes + 127) / 64 * 64;
}

/* Returns memory for placed buffers, full of large numbers.   owns  the caller, trmi_free */
static inline char *kernel_memory(int64_t bytes) {
    char *memory = trmi_alloc((size_t)bytes);
    assert_non_null(memory);
    memset(memory, 0x7F, (size_t)bytes);
    return memory;
}

/* Returns number `i` of an array of bfloat16. */
static inline double half_number(const void *values, int64_t i) {
    return (double)trmi_bf16_to_float(((const uint16_t *)values)[i]);
}

/* Binds the kernel of a step and runs it in `memory`, with the threads of `env`.
 *   errors  those of bind and run: UNSUPPORTED, ... */
static inline trm_status kernel_run(const trm_program *program, const trmi_step *step, char *memory,
                                    trmi_kernel_env env, trm_error *err) {
    trmi_kernel kernel = {.program = program, .step = step};
    trm_status status = backend->bind(backend, &kernel, err);
    if (status != TRM_OK) {
        return status;
    }
    env.arena[TRMI_ARENA_ACTIVATION] = memory;
    env.arena[TRMI_ARENA_SCRATCH] =
        kernel_memory(backend->target.scratch(backend->target.context, program, step));
    omp_set_num_threads(env.threads);
    status = kernel.run(&kernel, &env, err);
    trmi_free(env.arena[TRMI_ARENA_SCRATCH]);
    if (kernel.destroy != NULL) {
        kernel.destroy(&kernel);
    }
    return status;
}

#endif
