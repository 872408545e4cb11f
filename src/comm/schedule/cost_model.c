/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model of networks (trmi_model) and the user's choice of algorithms. A collective costs
 * alpha for each round, beta for each byte sent and gamma for each byte summed. Each message of a
 * round after the first costs a quarter of alpha. The model is measured by ping-pong between
 * neighbours. */
#include "comm/net/engines.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* exchanges of 8 bytes, and of LARGE_BYTES */
enum { SMALL_TURNS = 24, LARGE_TURNS = 4, LARGE_BYTES = 1 << 19 };

/* About a 16 Gbit/s network with 15 us latency, and sums at 10 GB/s. */
trmi_model trmi_model_default(void) {
    return (trmi_model){.alpha = 15e-6, .beta = 1 / 2e9, .gamma = 1 / 10e9};
}

double trmi_model_seconds(const trmi_model *model, trmi_algorithm algorithm,
                          trm_collective_kind kind, int32_t size, int64_t count, size_t element) {
    trmi_schedule_cost cost = trmi_schedule_predict(algorithm, kind, size, count, 0);
    double bytes = (double)element;
    double extra = algorithm == TRMI_DIRECT ? (double)cost.rounds * (size - 2) : 0;
    return ((double)cost.rounds + (extra > 0 ? extra / 4 : 0)) * model->alpha +
           cost.sent * bytes * model->beta + cost.reduced * bytes * model->gamma;
}

/* --- measuring --- */
/* Moves one transfer to its end, with the group's deadline. */
static trm_status move_one(trmi_transport *transport, trmi_net_transfer *t, trm_error *err) {
    TRMI_TRY(transport->table->start(transport, t, err));
    double start = trmi_os_now();
    while (!t->done) {
        bool moved = false;
        TRMI_TRY(transport->table->progress(transport, &moved, err));
        if (!moved && !t->done) {
            transport->table->wait(transport, 0.001);
        }
        TRMI_TRY(transport->group.bootstrap->table->check(transport->group.bootstrap, err));
        if (trmi_os_now() - start > transport->group.timeout_seconds) {
            return TRMI_FAIL(err, TRM_TIMEOUT, "rank %d did not answer the first message",
                             transport->group.members[t->peer]);
        }
    }
    return TRM_OK;
}

/* Exchanges `turns` messages of `bytes` with the partner; *best is the shortest time of one way, in
 * seconds. The lower rank of the pair sends first. */
static trm_status one_way(trmi_transport *transport, int32_t partner, char *data, uint64_t bytes,
                          int turns, uint64_t *number, double *best, trm_error *err) {
    bool first = transport->group.rank < partner;
    *best = 1e9;
    for (int i = 0; i < turns; i++) {
        double start = trmi_os_now();
        for (int half = 0; half < 2; half++) {
            trmi_net_transfer t = {.receive = (half == 0) != first,
                                   .peer = partner,
                                   .channel = TRMI_CHANNEL_COLLECTIVE,
                                   .data = data,
                                   .bytes = bytes,
                                   .tag = {.step = (*number)++}};
            TRMI_TRY(move_one(transport, &t, err));
        }
        double each = (trmi_os_now() - start) / 2;
        *best = each < *best ? each : *best;
    }
    return TRM_OK;
}

/* Returns the seconds for each byte of a sum of two float vectors: the best of three. */
static double sum_seconds_per_byte(char *data) {
    void *target = data;
    const void *sources[2] = {data, data + LARGE_BYTES / 2};
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        double start = trmi_os_now();
        trmi_reduce_find(TRM_FLOAT32, TRM_REDUCTION_SUM)(&target, 1, sources, 2, LARGE_BYTES / 8,
                                                         1);
        double each = trmi_os_now() - start;
        best = each < best ? each : best;
    }
    return best / (LARGE_BYTES / 2);
}

/* Contract in comm/net/engines.h. alpha: seconds of an 8-byte message; beta: seconds a byte,
 * from the difference to a large message; gamma: seconds to sum a byte. */
trm_status trmi_model_measure(trmi_transport *transport, const trmi_exchange *exchange,
                              trmi_model *out, trm_error *err) {
    const trmi_group *group = &transport->group;
    /* neighbours 0-1, 2-3, ...: a last rank without a partner measures sums only */
    int32_t partner = group->rank ^ 1;
    trmi_model mine = {0, 0, 0}, *all = trmi_alloc((size_t)group->size * sizeof *all);
    char *data = trmi_alloc(LARGE_BYTES);
    trm_status status =
        all != NULL && data != NULL ? TRM_OK : TRMI_NO_MEMORY(err, "to measure the network");
    uint64_t number = 0;
    double small = 0, large = 0;
    if (status == TRM_OK) {
        mine.gamma = sum_seconds_per_byte(data);
    }
    if (status == TRM_OK && partner < group->size) {
        status = one_way(transport, partner, data, 8, SMALL_TURNS, &number, &small, err);
        if (status == TRM_OK) {
            status =
                one_way(transport, partner, data, LARGE_BYTES, LARGE_TURNS, &number, &large, err);
        }
        mine.alpha = small;
        mine.beta = large > small ? (large - small) / LARGE_BYTES : 1e-12;
    }
    if (status == TRM_OK) {
        status = exchange->allgather(exchange->context, &mine, sizeof mine, all, err);
    }
    /* The slowest rank determines the time of a round. */
    *out = (trmi_model){1e-7, 1e-12, 1e-12};
    for (int32_t r = 0; status == TRM_OK && r < group->size; r++) {
        out->alpha = all[r].alpha > out->alpha ? all[r].alpha : out->alpha;
        out->beta = all[r].beta > out->beta ? all[r].beta : out->beta;
        out->gamma = all[r].gamma > out->gamma ? all[r].gamma : out->gamma;
    }
    trmi_free(all);
    trmi_free(data);
    return status;
}

/* --- the user's choice of algorithms --- */
/* Returns the kind of a name, or -1. */
static int kind_of(const char *name, size_t length) {
    static const struct {
        const char *name;
        trm_collective_kind kind;
    } kinds[] = {
        {"allreduce", TRM_ALLREDUCE},
        {"broadcast", TRM_BROADCAST},
        {"reduce", TRM_REDUCE},
        {"allgather", TRM_ALLGATHER},
        {"allgatherv", TRM_ALLGATHERV},
        {"reducescatter", TRM_REDUCE_SCATTER},
        {"reduce_scatter", TRM_REDUCE_SCATTER},
        {"reducescatterv", TRM_REDUCE_SCATTERV},
        {"scatter", TRM_SCATTER},
        {"gather", TRM_GATHER},
        {"alltoall", TRM_ALLTOALL},
        {"alltoallv", TRM_ALLTOALLV},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strlen(kinds[i].name) == length && strncasecmp(kinds[i].name, name, length) == 0) {
            return (int)kinds[i].kind;
        }
    }
    return -1;
}

/* Parses "ring" or "level1:ring", for one kind or (kind < 0) for all kinds. level0 is the network
 * inside a host, which is always shared memory here: any algorithm is accepted and ignored. level1
 * and level2 both mean the network between hosts here; the last one wins. */
static trm_status parse_level(const char *item, size_t length, int kind, const char *text,
                              const char *source, trmi_algorithms *out, trm_error *err) {
    const char *colon = memchr(item, ':', length), *name = colon != NULL ? colon + 1 : item;
    if (colon != NULL && !(colon - item == 6 && strncasecmp(item, "level", 5) == 0 &&
                           item[5] >= '0' && item[5] <= '2')) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s '%.80s': level0, level1 or level2 expected before "
                         "':', found '%.*s'",
                         source, text, (int)(colon - item), item);
    }
    int algorithm = trmi_algorithm_parse(name, length - (size_t)(name - item));
    if (algorithm < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s '%.60s': '%.*s' is none of direct (mesh), ring, halving "
                         "(H-D_R), bruck (NB, NHR), pairwise, tree, pipeline, auto (NA, AHC)",
                         source, text, (int)trmi_min_i64(20, (int64_t)length - (name - item)),
                         name);
    }
    for (int k = 0; k <= TRM_BARRIER && (colon == NULL || item[5] != '0'); k++) {
        if (k == kind || kind < 0) {
            out->of[k] = (trmi_algorithm)algorithm;
        }
    }
    return TRM_OK;
}

/* Parses one kind's choice: levels separated by ';', perhaps after "allreduce=". "others=" applies
 * to all kinds that were not named (HCCL requires it to be the last); `named` lists the named
 * ones. */
static trm_status parse_kind(const char *item, size_t length, const char *text, const char *source,
                             bool named[TRM_BARRIER + 1], trmi_algorithms *out, trm_error *err) {
    const char *equals = memchr(item, '=', length), *end = item + length;
    trmi_algorithms chosen = *out;
    int kind = -1;
    /* Read the name of a kind, or "others". */
    if (equals != NULL) {
        size_t name = (size_t)(equals - item);
        kind = kind_of(item, name);
        if (kind < 0 && !(name == 6 && strncasecmp(item, "others", 6) == 0)) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "%s '%.60s': '%.*s' is no collective (allreduce, broadcast, "
                             "reduce, allgather, reducescatter, scatter, gather, alltoall, others)",
                             source, text, (int)trmi_min_i64(20, (int64_t)name), item);
        }
        item = equals + 1;
    }
    /* Read each level of the hierarchy. */
    do {
        size_t part = 0;
        while (item + part < end && item[part] != ';') {
            part++;
        }
        TRMI_TRY(parse_level(item, part, kind, text, source, &chosen, err));
        item += part + 1;
    } while (item < end);
    /* A named kind, or all kinds that have no choice of their own. */
    for (int k = 0; k <= TRM_BARRIER; k++) {
        if (k == kind || (kind < 0 && !named[k])) {
            out->of[k] = chosen.of[k];
        }
    }
    if (kind >= 0) {
        named[kind] = true;
    }
    return TRM_OK;
}

trm_status trmi_algorithms_parse(const char *text, const char *source, trmi_algorithms *out,
                                 trm_error *err) {
    bool named[TRM_BARRIER + 1] = {false};
    memset(out, 0, sizeof *out);
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "/,");
        TRMI_TRY(parse_kind(at, length, text, source, named, out, err));
        at += length;
        at += *at != '\0';
    }
    return TRM_OK;
}
