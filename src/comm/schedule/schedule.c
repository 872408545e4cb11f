/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: names of the algorithms, which algorithm can do which kind of collective, and the
 * table of generators. The network engine (comm/net) asks for a schedule by kind, algorithm, rank
 * and counts, and a runner executes it.
 *
 * A generator appends the steps of one rank to a schedule (schedule.h); the generators are in
 * schedule_kinds.c and schedule_rooted.c. They are pure: each rank makes its own steps without a
 * message, and the steps of all ranks fit together because all are given the same request. */
#include "comm/schedule/schedule.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In the order of trmi_algorithm. */
static const char *const names[TRMI_ALGORITHMS] = {"auto",  "direct",   "ring", "halving",
                                                   "bruck", "pairwise", "tree", "pipeline"};

const char *trmi_algorithm_name(trmi_algorithm algorithm) {
    return algorithm >= 0 && algorithm < TRMI_ALGORITHMS ? names[algorithm] : "unknown";
}

/* Contract in schedule.h. HCCL's names differ from these where HCCL has variants with equal
 * costs. */
int trmi_algorithm_parse(const char *name, size_t length) {
    /* names of HCCL and their equivalents here */
    static const struct {
        const char *name;
        trmi_algorithm algorithm;
    } others[] = {
        {"", TRMI_ALGORITHM_AUTO},
        {"NA", TRMI_ALGORITHM_AUTO},
        {"mesh", TRMI_DIRECT},
        {"star", TRMI_DIRECT},
        {"H-D_R", TRMI_HALVING},
        {"NHR", TRMI_BRUCK},
        {"NHR_V1", TRMI_BRUCK},
        {"NB", TRMI_BRUCK},
        {"fullmesh", TRMI_DIRECT},
        /* hosts of different sizes: the two levels of comm/net/levels.c do that */
        {"AHC", TRMI_ALGORITHM_AUTO},
    };
    /* The names of this program, and then HCCL's. */
    for (int i = 0; i < TRMI_ALGORITHMS; i++) {
        if (strlen(names[i]) == length && strncasecmp(names[i], name, length) == 0) {
            return i;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strlen(others[i].name) == length && strncasecmp(others[i].name, name, length) == 0) {
            return (int)others[i].algorithm;
        }
    }
    return -1;
}

void trmi_schedule_free(trmi_schedule *schedule) {
    free(schedule->steps);
    *schedule = (trmi_schedule){0};
}

/* --- which algorithm applies, and its generator --- */

/* Returns whether n, at least 1, is a power of two. */
static bool is_power_of_two(int32_t n) { return (n & (n - 1)) == 0; }

bool trmi_schedule_applies(trmi_algorithm algorithm, trm_collective_kind kind, int32_t size) {
    switch (kind) {
    case TRM_ALLREDUCE: return algorithm != TRMI_PAIRWISE && algorithm > TRMI_ALGORITHM_AUTO;
    case TRM_REDUCE_SCATTER:
    case TRM_REDUCE_SCATTERV:
    case TRM_ALLGATHER:
    case TRM_ALLGATHERV:
        return algorithm == TRMI_DIRECT || algorithm == TRMI_RING || algorithm == TRMI_BRUCK ||
               (algorithm == TRMI_HALVING && is_power_of_two(size));
    case TRM_BROADCAST:
    case TRM_REDUCE:
        return algorithm == TRMI_DIRECT || algorithm == TRMI_TREE || algorithm == TRMI_PIPELINE ||
               algorithm == TRMI_RING || algorithm == TRMI_BRUCK;
    case TRM_SCATTER:
    case TRM_GATHER: return algorithm == TRMI_DIRECT || algorithm == TRMI_TREE;
    case TRM_ALLTOALL:
        return algorithm == TRMI_DIRECT || algorithm == TRMI_PAIRWISE || algorithm == TRMI_BRUCK;
    case TRM_ALLTOALLV: return algorithm == TRMI_DIRECT || algorithm == TRMI_PAIRWISE;
    case TRM_BARRIER: return algorithm == TRMI_BRUCK;
    default: return false;
    }
}

/* Contract in schedule.h. */
trm_status trmi_schedule_make(const trmi_schedule_request *request, trmi_schedule *out,
                              trm_error *err) {
    /* The arrays of an earlier schedule are used again. */
    out->count = 0;
    out->rounds = 0;
    out->temp_count = 0;
    out->failed = false;
    /* The direct algorithms sum all ranks' vectors in one step. */
    out->sums_complete = request->algorithm == TRMI_DIRECT;
    if (!trmi_schedule_applies(request->algorithm, request->kind, request->size)) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s among %d ranks does not go by %s",
                         trm_collective_name(request->kind), request->size,
                         trmi_algorithm_name(request->algorithm));
    }
    /* The kind selects the generator, which chooses by the request's algorithm. */
    static void (*const generators[])(trmi_builder *) = {
        [TRM_ALLREDUCE] = trmi_make_allreduce,
        [TRM_BROADCAST] = trmi_make_broadcast,
        [TRM_REDUCE] = trmi_make_reduce,
        [TRM_ALLGATHER] = trmi_make_allgather,
        [TRM_ALLGATHERV] = trmi_make_allgather,
        [TRM_REDUCE_SCATTER] = trmi_make_reduce_scatter,
        [TRM_REDUCE_SCATTERV] = trmi_make_reduce_scatter,
        [TRM_SCATTER] = trmi_make_scatter,
        [TRM_GATHER] = trmi_make_gather,
        [TRM_ALLTOALL] = trmi_make_alltoall,
        [TRM_ALLTOALLV] = trmi_make_alltoall,
        [TRM_BARRIER] = trmi_make_barrier,
    };
    trmi_builder b = {.request = request, .out = out, .rank = request->rank, .size = request->size};
    generators[request->kind](&b);
    out->rounds = b.round;
    TRMI_TRY(TRMI_CHECK_MEMORY(err, out, "for the schedule of %s among %d ranks",
                               trm_collective_name(request->kind), request->size));
    return TRM_OK;
}
