/* SPDX-License-Identifier: Apache-2.0 */
/* Children of a communicator: split by colour. A child is created over its parent: the parent's
 * all-gather is the exchange, so no new connections to the launcher are necessary.
 *
 * Ranks of different colours make different children, with different needs to exchange; yet each
 * all-gather of the parent needs all of its ranks. So exchanges go in rounds of one cell for each
 * rank (allgather_in_rounds), and a rank that is done takes part until all are (finish_rounds). A
 * rank without a colour makes a child of its own for the same reason, and destroys it. */
#include "comm/api/communicator.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

trm_status trmi_comm_allgather(void *context, const void *mine, size_t bytes, void *all,
                               trm_error *err) {
    trm_comm *comm = context;
    trm_collective op = {.kind = TRM_ALLGATHER,
                         .send = mine,
                         .recv = all,
                         .count = (int64_t)bytes,
                         .dtype = TRM_UINT8,
                         .tag = "bytes of all ranks"};
    return trm_comm_run(comm, &op, err);
}

/* The arguments of one rank of a split. Ranks with the same colour become one child. */
typedef struct choice {
    int32_t colour, key, rank; /* key: order inside the child */
} choice;

/* Sorts ranks by key, and ranks with the same key by their rank in the parent. */
static int compare_keys(const void *a, const void *b) {
    const choice *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1)
                            : (x->rank > y->rank) - (x->rank < y->rank);
}

/* All-gathers among a child's ranks, over the parent. Children differ in how much they have to
 * exchange (one host or several, one rank or many), but every rank of the parent must take part in
 * each of the parent's all-gathers. So exchanges go in rounds of one cell of fixed size for each
 * rank, and a rank that has finished its child keeps taking part until all ranks have finished. */
enum { CELL_BYTES = 504 }; /* a cell is 512 bytes */
typedef struct cell {
    uint64_t finished;        /* 1: the rank's child is complete */
    uint8_t data[CELL_BYTES]; /* a part of the rank's blob */
} cell;

/* The exchange of a child over its parent. */
typedef struct rounds {
    trm_comm *parent;     /* all of its ranks take part in each round */
    const int32_t *ranks; /* [count] the ranks of the child, as ranks of the parent */
    int32_t count;        /* ranks of the child */
    cell *cells;          /* [parent size] one round's cells */
} rounds;

/* Runs the all-gather of a child: as many rounds as `bytes` need. */
static trm_status allgather_in_rounds(void *context, const void *mine, size_t bytes, void *all,
                                      trm_error *err) {
    rounds *r = context;
    for (size_t done = 0; done < bytes; done += CELL_BYTES) {
        size_t piece = bytes - done < CELL_BYTES ? bytes - done : CELL_BYTES;
        cell out = {.finished = 0};
        memcpy(out.data, (const char *)mine + done, piece);
        TRMI_TRY(trmi_comm_allgather(r->parent, &out, sizeof out, r->cells, err));
        for (int32_t i = 0; i < r->count; i++) {
            memcpy((char *)all + (size_t)i * bytes + done, r->cells[r->ranks[i]].data, piece);
        }
    }
    return TRM_OK;
}

/* Takes part in further rounds until all ranks of the parent have finished. */
static trm_status finish_rounds(rounds *r, trm_error *err) {
    for (bool all_finished = false; !all_finished;) {
        cell out = {.finished = 1};
        TRMI_TRY(trmi_comm_allgather(r->parent, &out, sizeof out, r->cells, err));
        all_finished = true;
        for (int32_t i = 0; i < r->parent->group.size; i++) {
            all_finished = all_finished && r->cells[i].finished != 0;
        }
    }
    return TRM_OK;
}

/* Creates the child of `count` ranks of the parent; `rank` is this rank's index in it. */
static trm_status make_child(trm_comm *parent, const int32_t *ranks, int32_t count, int32_t rank,
                             trm_comm **out, trm_error *err) {
    rounds r = {.parent = parent, .ranks = ranks, .count = count};
    trmi_exchange exchange = {.context = &r, .allgather = allgather_in_rounds};
    int32_t *members = trmi_alloc((size_t)count * sizeof *members);
    r.cells = trmi_alloc((size_t)parent->group.size * sizeof *r.cells);
    if (members == NULL || r.cells == NULL) {
        trmi_free(members);
        trmi_free(r.cells);
        return TRMI_NO_MEMORY(err, "for %d ranks", count);
    }
    for (int32_t i = 0; i < count; i++) {
        members[i] = parent->members[ranks[i]];
    }
    char name[48];
    snprintf(name, sizeof name, "%.32s.%d", parent->name, ++parent->split_count);
    trm_comm_options options = parent->options;
    options.name = name;
    options.spin_microseconds = options.spin_microseconds == 0 ? -1 : options.spin_microseconds;
    const trmi_comm_members chosen = {.bootstrap = parent->bootstrap,
                                      .root = parent->root,
                                      .ranks = members,
                                      .size = count,
                                      .rank = rank};
    trm_status status = trmi_comm_make(&chosen, &options, &exchange, out, err);
    status = status == TRM_OK ? finish_rounds(&r, err) : status;
    trmi_free(members);
    trmi_free(r.cells);
    return status;
}

/* Contract in trireme/dist.h. All ranks gather the colour and key of each; those of one colour, in
 * the order of keys, are a child. A failure of one rank poisons the job, because its peers are
 * already waiting for it. */
trm_status trm_comm_split(trm_comm *parent, int32_t colour, int32_t key, trm_comm **out,
                          trm_error *err) {
    TRMI_NEED(err, parent, out);
    const choice mine = {.colour = colour, .key = key, .rank = parent->group.rank};
    size_t n = (size_t)parent->group.size;
    choice *all = trmi_alloc(n * sizeof *all), *same = trmi_alloc(n * sizeof *same);
    int32_t *ranks = trmi_alloc(n * sizeof *ranks);
    trm_comm *child = NULL;
    trm_status status = TRM_OK;
    if (all == NULL || same == NULL || ranks == NULL) {
        status = TRMI_NO_MEMORY(err, "to split %zu ranks", n);
        goto done;
    }
    TRMI_TRY_GOTO(status, trmi_comm_allgather(parent, &mine, sizeof mine, all, err), done);
    int32_t count = 0, rank = 0;
    for (size_t r = 0; r < n; r++) {
        /* A rank without a colour (negative) creates a child of its own, to take part in the
         * rounds. */
        bool together = mine.colour < 0 ? all[r].rank == mine.rank : all[r].colour == mine.colour;
        if (together) {
            same[count++] = all[r];
        }
    }
    qsort(same, (size_t)count, sizeof *same, compare_keys);
    for (int32_t i = 0; i < count; i++) {
        ranks[i] = same[i].rank;
        rank = same[i].rank == mine.rank ? i : rank;
    }
    status = make_child(parent, ranks, count, rank, &child, err);
    if (status != TRM_OK) { /* the peers would wait for this rank until their deadline */
        trm_error cause = {.status = TRM_OK};
        TRMI_FAIL(&cause, status,
                  "rank %d could not make its part of a communicator of %d ranks: "
                  "%.120s",
                  parent->bootstrap->rank, count, err != NULL ? err->message : "");
        cause.rank = parent->bootstrap->rank;
        parent->bootstrap->table->poison(parent->bootstrap, &cause);
        trm_comm_destroy(child);
        child = NULL;
    }
    if (status == TRM_OK && mine.colour < 0) {
        trm_comm_destroy(child);
        child = NULL;
    }
done:
    trmi_free(all);
    trmi_free(same);
    trmi_free(ranks);
    if (status == TRM_OK) {
        *out = child;
    }
    return status;
}
