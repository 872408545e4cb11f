/* SPDX-License-Identifier: Apache-2.0 */
/* The table of docs/internals/collectives.md: rounds, and elements sent and summed by the busiest
 * rank, for equal blocks. n ranks, steps = ceil(log2 n), m = elements of the full vector, part =
 * m(n-1)/n. */
#include "comm/schedule/schedule.h"

#include "base/checked.h"

/* Returns whether `count` is the whole vector, not one rank's block. */
static bool is_full_vector(trm_collective_kind kind) {
    return kind == TRM_ALLREDUCE || kind == TRM_BROADCAST || kind == TRM_REDUCE ||
           kind == TRM_BARRIER;
}

/* Returns the cost of an all-reduce of m elements. */
static trmi_schedule_cost allreduce_cost(trmi_algorithm algorithm, int32_t n, double m,
                                         int64_t pieces) {
    int32_t steps = trmi_ceil_log2(n), power = 1 << steps;
    double part = m * (n - 1) / n;
    switch (algorithm) {
    case TRMI_DIRECT: return (trmi_schedule_cost){2, 2 * part, part};
    case TRMI_RING: return (trmi_schedule_cost){2 * (n - 1), 2 * part, part};
    case TRMI_BRUCK: return (trmi_schedule_cost){2 * steps, 2 * part, part};
    case TRMI_HALVING:
        if (power == n) {
            return (trmi_schedule_cost){2 * steps, 2 * part, part};
        }
        /* folded: the busiest rank also sums a neighbour's vector and sends it the result */
        power /= 2;
        part = m * (power - 1) / power;
        return (trmi_schedule_cost){2 * (steps - 1) + 2, 2 * part + m, part + m};
    case TRMI_TREE: return (trmi_schedule_cost){2 * steps, steps * m, steps * m};
    default: return (trmi_schedule_cost){2 * (pieces + n - 2), n > 2 ? 2 * m : m, m};
    }
}

/* Returns the cost of a broadcast or of a reduce. */
static trmi_schedule_cost rooted_cost(trmi_algorithm algorithm, trm_collective_kind kind, int32_t n,
                                      double m, int64_t pieces) {
    int32_t steps = trmi_ceil_log2(n);
    bool reduce = kind == TRM_REDUCE;
    double part = m * (n - 1) / n;
    switch (algorithm) {
    case TRMI_DIRECT:
        return (trmi_schedule_cost){1, reduce ? m : (n - 1) * m, reduce ? (n - 1) * m : 0};
    case TRMI_RING: /* broadcast: the root scatters, then passes blocks on like every rank */
        return (trmi_schedule_cost){n, reduce ? part + m / n : 2 * part, reduce ? part : 0};
    case TRMI_BRUCK:
        return (trmi_schedule_cost){1 + steps, reduce ? part + m / n : 2 * part, reduce ? part : 0};
    case TRMI_TREE:
        return (trmi_schedule_cost){steps + reduce, reduce ? m : steps * m, reduce ? steps * m : 0};
    default: return (trmi_schedule_cost){pieces + n - 2 + reduce, m, reduce ? m : 0};
    }
}

/* Contract in schedule.h. m: elements of the whole vector; part: what a rank sends of it when each
 * element goes to all other ranks once. */
trmi_schedule_cost trmi_schedule_predict(trmi_algorithm algorithm, trm_collective_kind kind,
                                         int32_t n, int64_t count, int64_t piece_count) {
    trmi_schedule_cost none = {0, 0, 0};
    if (n == 1) {
        return none;
    }
    int32_t steps = trmi_ceil_log2(n);
    int64_t piece = piece_count > 0 ? piece_count : 65536;
    int64_t pieces = trmi_max_i64(1, (count + piece - 1) / piece);
    double m = is_full_vector(kind) ? (double)count : (double)count * n, part = m * (n - 1) / n;
    double rounds = algorithm == TRMI_DIRECT ? 1 : algorithm == TRMI_RING ? n - 1 : steps;
    switch (kind) {
    case TRM_ALLREDUCE: return allreduce_cost(algorithm, n, m, pieces);
    case TRM_BROADCAST:
    case TRM_REDUCE: return rooted_cost(algorithm, kind, n, m, pieces);
    case TRM_REDUCE_SCATTER:
    case TRM_REDUCE_SCATTERV: return (trmi_schedule_cost){(int64_t)rounds, part, part};
    case TRM_ALLGATHER:
    case TRM_ALLGATHERV: return (trmi_schedule_cost){(int64_t)rounds, part, 0};
    case TRM_SCATTER: return (trmi_schedule_cost){algorithm == TRMI_DIRECT ? 1 : steps, part, 0};
    case TRM_GATHER: /* the busiest rank has the largest subtree but the root's */
        return (trmi_schedule_cost){
            algorithm == TRMI_DIRECT ? 1 : steps,
            algorithm == TRMI_DIRECT
                ? m / n
                : m / n * trmi_max_i64(n - (1 << (steps - 1)), (1 << steps) / 4),
            0};
    case TRM_ALLTOALL:
    case TRM_ALLTOALLV:
        /* block j makes one hop for each bit that is set in j */
        if (algorithm == TRMI_BRUCK) {
            double moved = 0;
            for (int32_t j = 1; j < n; j++) {
                moved += __builtin_popcount((unsigned)j);
            }
            return (trmi_schedule_cost){steps, m / n * moved, 0};
        }
        return (trmi_schedule_cost){algorithm == TRMI_DIRECT ? 1 : n - 1, part, 0};
    case TRM_BARRIER: return (trmi_schedule_cost){steps, steps, 0};
    default: return none;
    }
}
