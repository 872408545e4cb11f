/* SPDX-License-Identifier: Apache-2.0 */
/* A training program with its own arrays, its own gradients and its own loop: a network of one
 * hidden layer learns a function of two variables. It was written for one process. The header and
 * the three lines marked + were added; without them it is a program that knows nothing of this
 * library (tests/guide_001_test.sh compiles that one, too).
 *
 *     own_loop                              one process
 *     trireme run -n 4 -- own_loop          four: the same numbers
 */
#include "trireme/dist.h" /* + */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 16, SAMPLES = 4096, STEPS = 600, WEIGHTS = 4 * HIDDEN + 1 };

static float data[SAMPLES][3]; /* x, y, what to learn */
static float weights[WEIGHTS], gradient[WEIGHTS];

static float noise(void) { /* -1 .. 1 */
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

/* Adds one sample's part of the gradient, returns its loss. w: HIDDEN times x, y, bias, out; then
 * the last bias. */
static float backward(const float *sample, float part, const float *w, float *g) {
    float h[HIDDEN], out = w[4 * HIDDEN];
    for (int k = 0; k < HIDDEN; k++) {
        h[k] = tanhf(w[4 * k] * sample[0] + w[4 * k + 1] * sample[1] + w[4 * k + 2]);
        out += w[4 * k + 3] * h[k];
    }
    float error = out - sample[2];
    for (int k = 0; k < HIDDEN; k++) {
        float below = part * error * w[4 * k + 3] * (1 - h[k] * h[k]);
        g[4 * k] += below * sample[0];
        g[4 * k + 1] += below * sample[1];
        g[4 * k + 2] += below;
        g[4 * k + 3] += part * error * h[k];
    }
    g[4 * HIDDEN] += part * error;
    return error * error / 2;
}

int main(void) {
    int64_t samples = SAMPLES, batch = 256;
    float loss = 0;
    for (int i = 0; i < SAMPLES; i++) {
        data[i][0] = noise();
        data[i][1] = noise();
        data[i][2] = sinf(3 * data[i][0]) * data[i][1];
    }
    for (int k = 0; k < WEIGHTS; k++) {
        weights[k] = noise();
    }
    TRM_OR_EXIT(trm_distribute_shard_arrays(NULL, &TRM_FLOATS(data, SAMPLES * 3), 1, &samples, &batch, &err)); /* + */
    TRM_OR_EXIT(trm_distribute_broadcast(NULL, &TRM_FLOATS(weights, WEIGHTS), 1, 0, &err)); /* + */
    for (int step = 0; step < STEPS; step++) {
        loss = 0;
        for (int k = 0; k < WEIGHTS; k++) {
            gradient[k] = 0;
        }
        for (int64_t i = 0; i < batch; i++) {
            loss += backward(data[(step * batch + i) % samples], 1.0f / (float)batch, weights, gradient);
        }
        TRM_OR_EXIT(trm_distribute_all_reduce(NULL, &TRM_FLOATS(gradient, WEIGHTS), 1, TRM_REDUCTION_MEAN, &err)); /* + */
        for (int k = 0; k < WEIGHTS; k++) {
            weights[k] -= 0.2f * gradient[k];
        }
    }
    printf("last loss %.4f; weights", (double)loss / (double)batch);
    for (int k = 0; k < WEIGHTS; k++) {
        printf(" %.3f", (double)weights[k]);
    }
    printf("\n");
    return 0;
}
