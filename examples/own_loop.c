/* A program with its own arrays, its own gradients and its own loop, on any number of ranks: what was
 * added to the single-process program are the lines marked +.
 *
 *     own_loop                              one process
 *     trireme run -n 4 -- own_loop          four: the same numbers
 */
#include "trireme/distribute.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 8, SAMPLES = 4096, BATCH = 256, STEPS = 400 };

static void check(trm_status status, const trm_error *err) {
    if (status != TRM_OK) {
        fprintf(stderr, "own_loop: %s\n", err->message);
        exit(trm_status_exit_code(status));
    }
}

/* Sample i: features in -1 .. 1 from a counter, and the label of a plane. */
static double sample(long i, float *x) {
    double dot = 0.1;
    for (int k = 0; k < FEATURES; k++) {
        x[k] = (float)sin((double)(i * FEATURES + k) * 12.9898);
        dot += (double)x[k] * (k - 3);
    }
    return dot > 0 ? 1 : 0;
}

int main(void) {
    trm_error err;
    static float weights[FEATURES + 1], gradient[FEATURES + 1], x[FEATURES];
    int64_t batch = BATCH;
    trm_distribute *ranks;
    trm_tensor w = {.data = weights, .dtype = TRM_FLOAT32, .shape = trm_shape_of(FEATURES + 1)};
    trm_tensor g = {.data = gradient, .dtype = TRM_FLOAT32, .shape = trm_shape_of(FEATURES + 1)};
    check(trm_distribute_begin(NULL, &ranks, &err), &err);
    check(trm_distribute_shard_and_rebatch(ranks, NULL, BATCH, &batch, &err), &err); /* + */
    check(trm_distribute_broadcast(ranks, &w, 1, 0, &err), &err);                    /* + */
    for (long step = 0; step < STEPS; step++) {
        double loss = 0;
        for (int k = 0; k <= FEATURES; k++) {
            gradient[k] = 0;
        }
        for (long i = 0; i < batch; i++) {
            double y = sample(((step * BATCH) + trm_distribute_rank(ranks) * batch + i) % SAMPLES, x);
            double z = (double)weights[FEATURES];
            for (int k = 0; k < FEATURES; k++) {
                z += (double)(weights[k] * x[k]);
            }
            double p = 1 / (1 + exp(-z));
            loss -= (y > 0 ? log(p + 1e-12) : log(1 - p + 1e-12)) / (double)batch;
            for (int k = 0; k <= FEATURES; k++) {
                gradient[k] += (float)((p - y) / (double)batch) * (k < FEATURES ? x[k] : 1);
            }
        }
        check(trm_distribute_all_reduce(ranks, &g, 1, TRM_REDUCE_MEAN, &err), &err); /* + */
        for (int k = 0; k <= FEATURES; k++) {
            weights[k] -= 2.0f * gradient[k];
        }
        if (step == STEPS - 1 && trm_distribute_rank(ranks) == 0) {
            printf("loss of rank 0's part %.4f; weights", loss);
            for (int k = 0; k <= FEATURES; k++) {
                printf(" %.3f", (double)weights[k]);
            }
            printf("\n");
        }
    }
    trm_distribute_end(ranks);
    return 0;
}
