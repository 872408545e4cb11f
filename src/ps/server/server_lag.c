/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how far the rows of a table lag behind: the bound of a pull, and for each table how
 * many updates lie between reading rows and pushing their gradients.
 *
 *       pull of batch t      notes the update count of each of its tables, in one of the worker's TRMI_READS places
 *       push of batch t      lag = update count now - then: updates that its gradients do not know
 *
 * A worker is known from its first push on; the pull before that is not counted. The worker's
 * own updates count too, because the rows of its next batch are requested before it has pushed
 * this one. */
#include "ps/server/server.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdlib.h>

/* The update count of a table that a batch has not read. */
enum { NOT_READ = -1 };

/* ---- bounds ---------------------------------------------------------------------------------- */

trm_status trmi_lag_declare(trm_ps_server *server, int32_t table, int32_t staleness,
                            trm_error *err) {
    trmi_lag *lag = &server->lag;
    if (lag->declared[table] && lag->staleness[table] != staleness) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "table '%s': declared with staleness %d, by another worker with %d",
                         server->tables[table].name, staleness, lag->staleness[table]);
    }
    lag->declared[table] = true;
    lag->staleness[table] = server->tables[table].staleness = staleness;
    return TRM_OK;
}

int64_t trmi_lag_bound(const trm_ps_server *server, const trmi_request *r) {
    int32_t least = server->options.staleness, any = INT32_MAX;
    bool found = false;
    for (uint32_t i = 0; i < r->header.section_count; i++) {
        if (r->sections[i].count > 0) {
            int32_t bound = trmi_table_bound(server->lag.staleness[r->sections[i].table],
                                             server->options.staleness);
            any = bound < any ? bound : any;
            found = true;
        }
    }
    return found ? any : least;
}

/* ---- lags ------------------------------------------------------------------------------------ */

/* Returns the place in which a worker's batch `clock` is noted. */
static trmi_reads *reads_of(trmi_worker *w, int64_t clock) {
    return &w->reads[(uint64_t)clock % TRMI_READS];
}

/* Prepares the place for batch `clock`; returns false without memory. */
static bool begin_reads(const trm_ps_server *server, trmi_reads *reads, int64_t clock) {
    if (!trmi_grow((void **)&reads->updates, &reads->capacity, server->table_count,
                   sizeof *reads->updates)) {
        return false;
    }
    if (reads->clock != clock || reads->count != server->table_count) {
        for (uint32_t t = 0; t < server->table_count; t++) {
            reads->updates[t] = NOT_READ;
        }
    }
    reads->clock = clock;
    reads->count = server->table_count;
    return true;
}

void trmi_lag_pull(trm_ps_server *server, trmi_worker *w, const trmi_request *r) {
    const bool outside = (r->header.flags & TRMI_PULL_OUTSIDE) != 0;
    if (outside || w == NULL || server->options.mode == TRM_PS_SYNC || server->table_count == 0 ||
        !begin_reads(server, reads_of(w, r->header.clock), r->header.clock)) {
        return;
    }
    trmi_reads *reads = reads_of(w, r->header.clock);
    for (uint32_t i = 0; i < r->header.section_count; i++) {
        uint32_t t = r->sections[i].table;
        reads->updates[t] = r->sections[i].count > 0 ? server->lag.updates[t] : reads->updates[t];
    }
}

/* Returns the bucket of a lag: 0, 1, 2, 3 to 4, 5 to 8, ... */
static int bucket_of(int64_t lag) {
    int bucket = 0;
    for (int64_t most = 0; lag > most && bucket < TRM_PS_LAGS - 1;
         most = most == 0 ? 1 : 2 * most) {
        bucket++;
    }
    return bucket;
}

/* Contract in server.h. */
int64_t trmi_lag_push(trm_ps_server *server, trmi_worker *w, const trmi_request *r) {
    trmi_lag *lag = &server->lag;
    int64_t most = NOT_READ;
    trmi_reads *reads = w == NULL ? NULL : reads_of(w, r->header.clock - 1);
    bool known = reads != NULL && reads->clock == r->header.clock - 1 && reads->updates != NULL;
    if (server->options.mode == TRM_PS_SYNC) {
        return 0;
    }
    lag->push++;
    for (uint32_t i = 0; i < r->header.section_count; i++) {
        uint32_t t = r->sections[i].table;
        if (r->sections[i].count == 0 || lag->last_push[t] == lag->push) {
            continue; /* counted already: another shard's part of the table */
        }
        lag->last_push[t] = lag->push;
        if (known && t < reads->count && reads->updates[t] != NOT_READ) {
            int64_t behind = lag->updates[t] - reads->updates[t];
            lag->counts[t].of[bucket_of(behind)]++;
            lag->counts[t].sum += behind;
            most = trmi_max_i64(most, behind);
        }
        lag->updates[t]++;
    }
    return most == NOT_READ ? server->options.workers - 1 : most;
}

void trmi_lag_add_stats(const trm_ps_server *server, int64_t table, trm_table_stats *out) {
    const trmi_lag_counts *c = &server->lag.counts[table];
    memcpy(out->lags, c->of, sizeof out->lags);
    out->lag_sum = c->sum;
}

trm_status trmi_lag_create(trm_ps_server *server, trm_error *err) {
    trmi_lag *lag = &server->lag;
    lag->staleness = calloc(TRMI_PS_TABLES_MAX, sizeof *lag->staleness);
    lag->declared = calloc(TRMI_PS_TABLES_MAX, sizeof *lag->declared);
    lag->updates = calloc(TRMI_PS_TABLES_MAX, sizeof *lag->updates);
    lag->last_push = calloc(TRMI_PS_TABLES_MAX, sizeof *lag->last_push);
    lag->counts = calloc(TRMI_PS_TABLES_MAX, sizeof *lag->counts);
    bool made = lag->staleness != NULL && lag->declared != NULL && lag->updates != NULL &&
                lag->last_push != NULL && lag->counts != NULL;
    return made ? TRM_OK : TRMI_NO_MEMORY(err, "for a server");
}

void trmi_lag_destroy(trm_ps_server *server) {
    const trmi_lag *lag = &server->lag;
    for (int64_t i = 0; i < server->worker_count; i++) {
        for (int k = 0; k < TRMI_READS; k++) {
            free(server->workers[i].reads[k].updates);
        }
    }
    free(lag->staleness);
    free(lag->declared);
    free(lag->updates);
    free(lag->last_push);
    free(lag->counts);
}
