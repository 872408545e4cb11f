/* SPDX-License-Identifier: Apache-2.0 */
/* The program of own_loop.c in a job whose ranks may die, leave and join. The others go on, each
 * sample of a step is used once, and the last weights are those of own_loop.
 *
 *     elastic_loop [STEPS [MILLISECONDS]]                     one process
 *     trireme run -n 4 --elastic 1:4 --elastic-restarts 1 -- elastic_loop 600 50
 *
 * Each step waits for MILLISECONDS, so that there is time to kill a rank (kill -9), to let one leave
 * (kill) or to start one more (the same command with the variables of device1/env1.log).
 *
 *     a rank dies     all_reduce fails on the others -> recover -> the newest weights -> the step
 *                     again
 *     one leaves or   all ranks learn of it with the gradients of a step -> recover -> the newest
 *     joins           weights -> the next step
 *     one wants to    it stays, because too few would be left, and all ranks learn that with the
 *     leave           next step: the job ends */
#define _POSIX_C_SOURCE 199309L /* nanosleep */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <trireme/dist.h>

enum { HIDDEN = 16, SAMPLES = 4096, BATCH = 256, WEIGHTS = 4 * HIDDEN + 1 };

static float data[SAMPLES][3]; /* x, y, what to learn */
static float weights[WEIGHTS];
static int64_t step; /* steps that are in the weights */
static trm_elastic *job;
static trm_ranks *ranks; /* the ranks of now, for the three calls */

static float noise(void) { /* -1 .. 1 */
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

/* Adds one sample's part of the gradient. w: HIDDEN times x, y, bias, out; then the last bias. */
static void backward(const float *sample, float part, const float *w, float *g) {
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
}

/* Makes one step. The samples are a function of the step, so that it can be done again by other
 * ranks. *changes: a rank wants to leave, or a process to join. *ends: a rank had to stay. */
static trm_status make_step(bool *changes, bool *ends, trm_error *err) {
    float gradient[WEIGHTS + 2] = {0}; /* and two more, in which a rank tells of both */
    trm_membership m;
    trm_elastic_get_membership(job, &m);
    for (int i = trm_distribute_rank(ranks); i < BATCH; i += trm_distribute_size(ranks)) {
        backward(data[(step * BATCH + i) % SAMPLES], 1.0f / (float)BATCH, weights, gradient);
    }
    gradient[WEIGHTS] = trm_elastic_wants_change(job) ? 1 : 0;
    gradient[WEIGHTS + 1] = m.stays ? 1 : 0;
    trm_status status = trm_distribute_all_reduce(ranks, &TRM_FLOATS(gradient, WEIGHTS + 2), 1,
                                                  TRM_REDUCTION_SUM, err);
    for (int k = 0; status == TRM_OK && k < WEIGHTS; k++) {
        weights[k] -= 0.2f * gradient[k];
    }
    step += status == TRM_OK;
    *changes = status == TRM_OK && gradient[WEIGHTS] > 0;
    *ends = status == TRM_OK && gradient[WEIGHTS + 1] > 0;
    return status;
}

/* Gives all ranks the weights of one that has made most steps. What a rank has is replaced when all
 * of the newest weights are here: the rank that sends them may die, too. */
static trm_status take_newest(trm_error *err) {
    trm_comm *comm = trm_elastic_comm(job);
    float newest[WEIGHTS];
    int64_t most = step, holder;
    memcpy(newest, weights, sizeof newest);
    trm_status status = trm_comm_allreduce(comm, &most, 1, TRM_INT64, TRM_REDUCTION_MAX, err);
    holder = step == most ? trm_comm_rank(comm) : trm_comm_size(comm);
    status = status == TRM_OK
                 ? trm_comm_allreduce(comm, &holder, 1, TRM_INT64, TRM_REDUCTION_MIN, err)
                 : status;
    status = status == TRM_OK ? trm_distribute_broadcast(ranks, &TRM_FLOATS(newest, WEIGHTS), 1,
                                                         (int32_t)holder, err)
                              : status;
    if (status == TRM_OK) {
        memcpy(weights, newest, sizeof weights);
        step = most;
    }
    return status;
}

/* Goes on with the ranks of now. *err: of a failed operation. A rank that dies meanwhile makes it
 * begin again. Returns END if this rank has left. */
static trm_status change_ranks(trm_error *err) {
    trm_status status;
    do {
        trm_distribute_end(ranks);
        ranks = NULL;
        status = trm_elastic_recover(job, err, err);
        if (status == TRM_OK) {
            status = trm_distribute_over(trm_elastic_comm(job), &ranks, err);
        }
        status = status == TRM_OK ? take_newest(err) : status;
    } while (trm_elastic_can_recover(status) && trm_elastic_comm(job) != NULL);
    trm_membership m;
    trm_elastic_get_membership(job, &m);
    if (status == TRM_OK) {
        printf("rank %d of %d, lost [%s], left [%s], joined [%s]: goes on after step %lld\n",
               m.rank, m.ranks, m.lost, m.left, m.joined, (long long)step);
        fflush(stdout);
    }
    return status;
}

static void leave(int signal_number) {
    (void)signal_number;
    trm_elastic_request_leave(job);
}

int main(int argc, char **argv) {
    const int64_t steps = argc > 1 ? atoll(argv[1]) : 600, pause = argc > 2 ? atoll(argv[2]) : 0;
    trm_cluster *cluster;
    trm_membership first;
    for (int i = 0; i < SAMPLES; i++) {
        data[i][0] = noise();
        data[i][1] = noise();
        data[i][2] = sinf(3 * data[i][0]) * data[i][1];
    }
    for (int k = 0; k < WEIGHTS; k++) {
        weights[k] = noise(); /* the same on all ranks */
    }
    TRM_OR_EXIT(trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err));
    TRM_OR_EXIT(trm_elastic_create(cluster, NULL, &job, &err));
    trm_cluster_destroy(cluster);
    signal(SIGTERM, leave);
    trm_elastic_get_membership(job, &first);
    bool changes = first.epoch == 0; /* this process joins a job that runs */
    bool ends = false, over = false;
    trm_status status = TRM_OK;
    trm_error why = {.rank = -1};
    if (!changes) {
        TRM_OR_EXIT(trm_distribute_over(trm_elastic_comm(job), &ranks, &err));
        printf("rank %d of %d: begins\n", first.rank, first.ranks);
        fflush(stdout);
    }
    while (status == TRM_OK && !ends && !over) {
        if (!changes && step < steps) {
            status = make_step(&changes, &ends, &why);
        } else if (!changes) { /* a rank whose connection broke in the last step needs the others */
            status = trm_comm_barrier(trm_elastic_comm(job), &why);
            over = true;
        }
        if ((changes && !ends) || trm_elastic_can_recover(status)) {
            status = change_ranks(&why);
            over = over && status != TRM_OK; /* one that has made all steps needs no others */
            status = over ? TRM_OK : status;
            changes = false;
            why = status == TRM_OK ? (trm_error){.rank = -1} : why;
        }
        const struct timespec time = {pause / 1000, pause % 1000 * 1000000};
        nanosleep(&time, NULL);
    }
    if (status == TRM_OK && trm_distribute_rank(ranks) == 0) {
        if (ends) {
            printf("too few ranks would be left: ends after step %lld\n", (long long)step);
        }
        printf("weights");
        for (int k = 0; k < WEIGHTS; k++) {
            printf(" %.3f", (double)weights[k]);
        }
        printf("\n");
    }
    trm_distribute_end(ranks);
    signal(SIGTERM, SIG_DFL); /* `leave` needs the job */
    trm_elastic_destroy(job);
    if (status != TRM_OK && status != TRM_END) {
        fprintf(stderr, "%s\n", why.message);
        return trm_status_exit_code(status);
    }
    return ends ? 128 + SIGTERM : 0;
}
