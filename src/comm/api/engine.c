/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all engines share: names and signatures of operations, the check of a wait, and
 * the report of failures (poison).
 *
 * Two ranks that call different operations have different signatures. Engines compare them before
 * any data move, and report a difference with trmi_op_mismatch. Every wait of an engine calls
 * trmi_wait_check from time to time, so that no rank waits forever for a rank that has failed. */
#define _GNU_SOURCE
#include "comm/api/engine.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *trm_collective_name(trm_collective_kind kind) {
    static const char *const names[] = {
        "nothing",     "all-reduce",     "broadcast",       "reduce",  "all-gather",
        "all-gatherv", "reduce-scatter", "reduce-scatterv", "scatter", "gather",
        "all-to-all",  "all-to-allv",    "barrier"};
    return kind >= 0 && kind <= TRM_BARRIER ? names[kind] : "unknown";
}

/* Layout: signature[0] = kind | dtype << 8 | reduce << 16 | root << 24 | hash of the counts << 40;
 * signature[1] = number of elements; of a barrier the step after which the ranks stop, which
 * trmi_comm_resolve adds. The counts of TRM_ALLTOALLV differ between ranks by design, so they are
 * left out. */
void trmi_op_sign(trmi_engine_call *op, int32_t size) {
    uint64_t hash = TRMI_HASH_BEGIN;
    int64_t count = op->count;
    /* With counts, the number of elements is their sum. */
    if (op->counts != NULL) {
        count = 0;
        hash = trmi_hash(hash, op->counts, (size_t)size * sizeof *op->counts);
        for (int32_t i = 0; i < size; i++) {
            count += op->counts[i];
        }
    }
    bool rooted = op->kind == TRM_BROADCAST || op->kind == TRM_REDUCE || op->kind == TRM_SCATTER ||
                  op->kind == TRM_GATHER;
    op->signature[0] = (uint64_t)op->kind | (uint64_t)op->dtype << 8 | (uint64_t)op->reduce << 16 |
                       (uint64_t)(rooted ? op->root : 0) << 24 | (hash >> 40) << 40;
    op->signature[1] = (uint64_t)(op->kind == TRM_ALLTOALLV ? 0 : count);
}

/* Writes the operation that a signature describes, without its tag. */
static void format_signature(const uint64_t signature[2], uint64_t sequence, char *text,
                             size_t size) {
    trm_collective_kind kind = (trm_collective_kind)(signature[0] & 0xFF);
    trm_dtype dtype = (trm_dtype)(signature[0] >> 8 & 0xFF);
    trm_reduction reduce = (trm_reduction)(signature[0] >> 16 & 0xFF);
    int used = snprintf(text, size, "%s #%" PRIu64, trm_collective_name(kind), sequence);
    if (kind != TRM_BARRIER && used > 0 && (size_t)used < size) {
        used += snprintf(text + used, size - (size_t)used, " of %" PRIu64 " %s", signature[1],
                         trm_dtype_name(dtype));
    } else if (signature[1] > 0 && used > 0 && (size_t)used < size) {
        used += snprintf(text + used, size - (size_t)used, " after step %" PRIu64, signature[1]);
    }
    if (reduce != TRM_REDUCTION_NONE && used > 0 && (size_t)used < size) {
        used += snprintf(text + used, size - (size_t)used, " (%s)", trm_reduction_name(reduce));
    }
    if ((kind == TRM_BROADCAST || kind == TRM_REDUCE || kind == TRM_SCATTER ||
         kind == TRM_GATHER) &&
        used > 0 && (size_t)used < size) {
        snprintf(text + used, size - (size_t)used, " root %d", (int)(signature[0] >> 24 & 0xFFFF));
    }
}

const char *trmi_op_format(const trmi_engine_call *op, char *text, size_t size) {
    format_signature(op->signature, op->sequence, text, size);
    size_t used = strlen(text);
    if (op->tag != NULL && used < size) {
        snprintf(text + used, size - used, " '%.39s'", op->tag);
    }
    return text;
}

/* Returns the step after which the rank with this signature stops; 0: it does not. */
static uint64_t stops_after(const uint64_t signature[2]) {
    return (signature[0] & 0xFF) == TRM_BARRIER ? signature[1] : 0;
}

/* Contract in engine.h. The message names both operations, because the mistake is in the program of
 * one of the two ranks, and which one is for its author to see. Where one of them has stopped, it
 * says so. */
trm_status trmi_op_mismatch(const trmi_group *group, const trmi_engine_call *op, int32_t member,
                            uint64_t sequence, const uint64_t signature[2], trm_error *err) {
    char mine[104], theirs[72];
    trm_error cause;
    trmi_op_format(op, mine, sizeof mine);
    format_signature(signature, sequence, theirs, sizeof theirs);
    /* The signatures are equal but for the hash: the ranks differ in the counts only. */
    bool counts = op->signature[0] >> 40 != signature[0] >> 40 &&
                  ((op->signature[0] ^ signature[0]) & 0xFFFFFFFFFFu) == 0;
    /* The other ranks wait for an operation that cannot complete: poison the job. */
    const uint64_t stop = stops_after(op->signature), other = stops_after(signature);
    if ((stop > 0) != (other > 0)) {
        const bool self = stop > 0;
        TRMI_FAIL(&cause, TRM_INVALID,
                  "rank %d has stopped after step %" PRIu64
                  ", but rank %d goes on with %s; all ranks "
                  "must stop after the same step",
                  group->members[self ? group->rank : member], self ? stop : other,
                  group->members[self ? member : group->rank], self ? theirs : mine);
    } else {
        TRMI_FAIL(&cause, TRM_INVALID, "ranks disagree%s: rank %d calls %s, rank %d calls %s",
                  counts ? " on the counts" : "", group->members[group->rank], mine,
                  group->members[member], theirs);
    }
    group->bootstrap->table->poison(group->bootstrap, &cause);
    cause.rank = group->bootstrap->rank;
    if (err != NULL) {
        *err = cause; /* each rank reports the disagreement with itself first */
    }
    return TRM_INVALID;
}

trm_status trmi_group_poison(const trmi_group *group, trm_error *cause, trm_error *err) {
    cause->rank = cause->rank < 0 ? group->bootstrap->rank : cause->rank;
    group->bootstrap->table->poison(group->bootstrap, cause);
    trm_status status = group->bootstrap->table->check(group->bootstrap, err);
    if (status == TRM_OK) { /* the poison has not come back to this rank yet */
        if (err != NULL) {
            *err = *cause;
        }
        status = (trm_status)cause->status;
    }
    return status;
}

/* Writes "rank 3" or "ranks 1, 2, ..." for the missing members; "its peers" if they are unknown. */
static void list_missing(const trmi_group *group, const bool *missing, char *text, size_t size) {
    int32_t total = 0, listed = 0;
    for (int32_t i = 0; missing != NULL && i < group->size; i++) {
        total += missing[i];
    }
    size_t used = (size_t)snprintf(text, size, "%s",
                                   total == 0  ? "its peers"
                                   : total > 1 ? "ranks "
                                               : "rank ");
    for (int32_t i = 0; listed < total && i < group->size; i++) {
        if (!missing[i]) {
            continue;
        }
        if (used + sizeof ", 2147483647, ..." > size) {
            snprintf(text + used, size - used, ", ...");
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%d", listed++ > 0 ? ", " : "",
                                 group->members[i]);
    }
}

/* Contract in engine.h. Three reasons end a wait, in this order: the job has failed elsewhere
 * (that error is returned, with this rank's place added), the deadline has passed, or nothing is
 * wrong and the caller waits on. */
trm_status trmi_wait_check(trmi_wait *wait, const trmi_group *group, const bool *missing,
                           const char *what, trm_error *err) {
    char who[80];
    /* Names of the ranks that this one waits for, for the messages below. */
    list_missing(group, missing, who, sizeof who);
    /* The failure of the job has priority over this rank's own deadline. */
    trm_error found = {.status = TRM_OK};
    trm_status status = group->bootstrap->table->check(group->bootstrap, &found);
    if (status != TRM_OK) {
        if (err != NULL) {
            *err = found;
        }
        if (strstr(found.message, what) == NULL) {
            trmi_error_append(err, "; rank %d was in %s, waiting for %s",
                              group->members[group->rank], what, who);
        }
        return status;
    }
    /* The first check of a wait starts its clock. */
    double now = trmi_os_now();
    if (wait->start == 0) {
        wait->start = now;
    }
    double waited = now - wait->start;
    /* The deadline has passed. The other ranks wait too, so poison the job. */
    if (waited > group->timeout_seconds) {
        trm_error cause;
        TRMI_FAIL(&cause, TRM_TIMEOUT, "rank %d waited %.1f s for %s in %s",
                  group->members[group->rank], waited, who, what);
        return trmi_group_poison(group, &cause, err);
    }
    /* Once in each wait, a warning in the log. */
    if (waited > group->report_seconds && !wait->reported) {
        wait->reported = true;
        trmi_log(TRM_LOG_WARN, "comm", "rank %d has waited %.0f s for %s in %s of '%s'",
                 group->members[group->rank], waited, who, what, group->name);
    }
    return TRM_OK;
}

trm_status trmi_group_unreachable(const trmi_group *group, trm_error *cause, const char *what,
                                  trm_error *err) {
    /* time in which the death of a peer is usually reported */
    static const double death_seconds = 1;
    trmi_wait wait = {.start = trmi_os_now()};
    while (trmi_os_now() - wait.start < death_seconds) {
        TRMI_TRY(trmi_wait_check(&wait, group, NULL, what, err));
        usleep(10000);
    }
    return trmi_group_poison(group, cause, err);
}
