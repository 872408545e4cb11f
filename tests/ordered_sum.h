/* SPDX-License-Identifier: Apache-2.0 */
/* tests/ordered_sum.h, for tests only: sums whose bits tell in which order they were made. */
#ifndef TRMI_TESTS_ORDERED_SUM_H
#define TRMI_TESTS_ORDERED_SUM_H

#include "ranks.h"

#include "base/format/half.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

/* Values of very different sizes, so that two orders of additions soon give different bits. */
static inline float wild_value(int rank, int64_t i) {
    uint32_t bits = trmi_random_u32((uint64_t)rank, TRMI_STREAM_TEST, (uint64_t)i);
    return ldexpf(trmi_unit_float(bits) - 0.5f, (int)(bits % 24));
}

/* A mean of floats and a sum of bf16: the bits of the sum in rank order. shared: in memory that
 * peers reach. */
static inline void check_ordered_sum(rank_context *context, trm_comm *comm, int count,
                                     bool shared) {
    trm_error err = {.status = 0};
    const int rank = context->rank, size = context->size;
    float *data =
        shared ? trm_comm_alloc_shared(comm, (size_t)count * 4, &err) : malloc((size_t)count * 4);
    uint16_t *half = malloc((size_t)count * 2);
    for (int i = 0; i < count; i++) {
        data[i] = wild_value(rank, i);
        half[i] = trmi_float_to_bf16(wild_value(rank, i));
    }
    EXPECT_OK(trm_comm_allreduce(comm, data, count, TRM_FLOAT32, TRM_REDUCTION_MEAN, &err), err);
    EXPECT_OK(trm_comm_allreduce(comm, half, count, TRM_BFLOAT16, TRM_REDUCTION_SUM, &err), err);
    for (int i = 0; i < count; i++) {
        float sum = wild_value(0, i),
              wide = trmi_bf16_to_float(trmi_float_to_bf16(wild_value(0, i)));
        for (int r = 1; r < size; r++) {
            sum += wild_value(r, i);
            wide += trmi_bf16_to_float(trmi_float_to_bf16(wild_value(r, i)));
        }
        EXPECT(data[i] == sum / (float)size, "element %d: %.9g, %.9g", i, data[i], sum / size);
        EXPECT(half[i] == trmi_float_to_bf16(wide), "bf16 element %d", i);
    }
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    shared ? trm_comm_free_shared(comm, data) : free(data);
    free(half);
}

#endif
