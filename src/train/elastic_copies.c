/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a state, their copies on the next rank, and how a whole is made of them (contracts in elastic_copies.h). */
#include "train/elastic_copies.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

enum { WORD = 4 };

/* How large the description of a part is, and its data. */
typedef struct part_size {
    int64_t runs, segments, words;
} part_size;

/* Returns the size of the runs that no other rank has, or of all. */
static part_size measure_part(const trmi_state_part *part, bool alone) {
    part_size size = {.words = alone ? part->alone : part->words};
    while (size.runs < part->runs_count && !(alone && part->runs[size.runs].repeated)) {
        size.segments += part->runs[size.runs++].segments;
    }
    return size;
}

/* Takes memory for the description of a part of another rank. */
static trm_status make_part(const part_size *size, trmi_state_part *part, trm_error *err) {
    TRMI_TRY(TRMI_NEW(err, part->runs, size->runs + 1, "for the part of another rank"));
    TRMI_TRY(TRMI_NEW(err, part->segments, size->segments + 1, "for the part of another rank"));
    part->runs_count = size->runs;
    part->segments_count = size->segments;
    part->words = part->alone = size->words;
    return TRM_OK;
}

/* Sends bytes to the previous rank and receives others from the next one. */
static trm_status pass_back(const trmi_elastic_copies *c, trm_comm *comm, const void *send,
                            int64_t send_bytes, void *receive, int64_t receive_bytes,
                            trm_error *err) {
    trm_message messages[2];
    int32_t count = 0;
    if (send_bytes > 0) {
        messages[count++] = (trm_message){.peer = (c->rank + c->ranks - 1) % c->ranks,
                                          .buffer = (void *)(uintptr_t)send,
                                          .count = send_bytes,
                                          .dtype = TRM_UINT8,
                                          .tag = "copy of this rank's part"};
    }
    if (receive_bytes > 0) {
        messages[count++] = (trm_message){.receive = true,
                                          .peer = (c->rank + 1) % c->ranks,
                                          .buffer = receive,
                                          .count = receive_bytes,
                                          .dtype = TRM_UINT8,
                                          .tag = "copy of the next rank's part"};
    }
    return count > 0 ? trm_comm_exchange(comm, messages, count, err) : TRM_OK;
}

/* Tells the previous rank what this rank's part is, and learns it of the next one. */
static trm_status exchange_lists(trmi_elastic_copies *c, trm_comm *comm, trm_error *err) {
    const part_size mine = measure_part(&c->own, true);
    part_size theirs;
    TRMI_TRY(pass_back(c, comm, &mine, (int64_t)sizeof mine, &theirs, (int64_t)sizeof theirs, err));
    TRMI_TRY(make_part(&theirs, &c->next, err));
    TRMI_TRY(pass_back(c, comm, c->own.runs, mine.runs * (int64_t)sizeof *c->own.runs, c->next.runs,
                       theirs.runs * (int64_t)sizeof *c->next.runs, err));
    return pass_back(c, comm, c->own.segments, mine.segments * (int64_t)sizeof *c->own.segments,
                     c->next.segments, theirs.segments * (int64_t)sizeof *c->next.segments, err);
}

trm_status trmi_copies_open(trmi_elastic_copies *c, const trm_exec *exec, trm_comm *comm,
                            const int32_t *order, trm_error *err) {
    trmi_copies_close(c);
    c->rank = trm_comm_rank(comm);
    c->ranks = trm_comm_size(comm);
    TRMI_TRY(trmi_state_part_list(exec, &c->own, err));
    for (int64_t i = 0; i < c->own.runs_count; i++) {
        c->own.runs[i].variable = order[c->own.runs[i].variable];
    }
    TRMI_TRY(exchange_lists(c, comm, err));
    for (int g = 0; g < 2; g++) {
        TRMI_TRY(TRMI_NEW(err, c->data[g], c->own.words * WORD + 1, "for a copy of the state"));
        TRMI_TRY(TRMI_NEW(err, c->copy[g], c->next.words * WORD + 1,
                          "for a copy of the next rank's state"));
    }
    c->on = true;
    return TRM_OK;
}

void trmi_copies_close(trmi_elastic_copies *c) {
    trmi_state_part_free(&c->own);
    trmi_state_part_free(&c->next);
    for (int g = 0; g < 2; g++) {
        trmi_free(c->data[g]);
        trmi_free(c->copy[g]);
    }
    memset(c, 0, sizeof *c);
    c->steps[0] = c->steps[1] = -1;
}

trm_status trmi_copies_keep(trmi_elastic_copies *c, trm_comm *comm, uint64_t step, trm_error *err) {
    const int32_t g = 1 - c->newest;
    c->steps[g] = -1;
    trmi_state_part_read(&c->own, c->data[g]);
    TRMI_TRY(
        pass_back(c, comm, c->data[g], c->own.alone * WORD, c->copy[g], c->next.words * WORD, err));
    c->steps[g] = (int64_t)step;
    c->newest = g;
    return TRM_OK;
}

int32_t trmi_copies_find(const trmi_elastic_copies *c, int64_t step) {
    return c->on && step >= 0 && c->steps[c->newest] == step       ? c->newest
           : c->on && step >= 0 && c->steps[1 - c->newest] == step ? 1 - c->newest
                                                                   : -1;
}

trmi_copies_owner trmi_copies_describe(const trmi_elastic_copies *c) {
    return c->on ? (trmi_copies_owner){.newest = c->steps[c->newest],
                                       .older = c->steps[1 - c->newest],
                                       .rank = c->rank,
                                       .ranks = c->ranks}
                 : (trmi_copies_owner){.newest = -1};
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Finds the rank of `comm` that has the part of rank `rank` of the old program: itself, or (*copied) its copy. -1: none. */
static int32_t find_holder(const trmi_copies_owner *owners, int32_t size, int32_t rank,
                           bool *copied) {
    for (int turn = 0; turn < 2; turn++) {
        for (int32_t i = 0; i < size; i++) {
            const trmi_copies_owner *o = &owners[i];
            *copied = turn == 1;
            if (trmi_copies_has_parts(o) && (o->rank + turn) % o->ranks == rank) {
                return i;
            }
        }
    }
    return -1;
}

/* Broadcasts one part from `holder`, and copies its words to their places. */
static trm_status join_part(const trmi_elastic_copies *c, trm_comm *comm, int32_t holder,
                            bool copied, int64_t step, const int64_t *begins, char *whole,
                            uint8_t *covered, trm_error *err) {
    const bool gives = trm_comm_rank(comm) == holder;
    const trmi_state_part *part = copied ? &c->next : &c->own;
    trmi_state_part other = {0};
    char *data = NULL;
    part_size size = {0};
    trm_status status = TRM_OK;
    if (gives) {
        const int32_t g = trmi_copies_find(c, step);
        size = measure_part(part, false);
        data = copied ? c->copy[g] : c->data[g];
    }
    TRMI_TRY(trm_comm_broadcast(comm, &size, (int64_t)sizeof size, TRM_UINT8, holder, err));
    if (!gives) {
        TRMI_TRY_GOTO(status, make_part(&size, &other, err), done);
        TRMI_TRY_GOTO(status, TRMI_NEW(err, data, size.words * WORD + 1, "for a part of the state"),
                      done);
        part = &other;
    }
    const struct {
        void *data;
        int64_t bytes;
    } parcels[] = {{part->runs, size.runs * (int64_t)sizeof *part->runs},
                   {part->segments, size.segments * (int64_t)sizeof *part->segments},
                   {data, size.words * WORD}};
    for (int i = 0; i < 3; i++) {
        if (parcels[i].bytes > 0) {
            TRMI_TRY_GOTO(
                status,
                trm_comm_broadcast(comm, parcels[i].data, parcels[i].bytes, TRM_UINT8, holder, err),
                done);
        }
    }
    trmi_state_part_place(part, size.words, data, begins, whole, covered);
done:
    trmi_state_part_free(&other);
    if (!gives) {
        trmi_free(data);
    }
    return status;
}

trm_status trmi_copies_join(const trmi_elastic_copies *c, trm_comm *comm,
                            const trmi_copies_owner *owners, int64_t step, const int64_t *begins,
                            int64_t words, char *whole, bool *complete, trm_error *err) {
    int32_t size = trm_comm_size(comm), ranks = 0;
    uint8_t *covered;
    TRMI_TRY(TRMI_NEW(err, covered, words + 1, "for the parts of a state"));
    for (int32_t i = 0; i < size; i++) {
        ranks = trmi_copies_has_parts(&owners[i]) ? owners[i].ranks : ranks;
    }
    trm_status status = TRM_OK;
    for (int32_t rank = ranks - 1; status == TRM_OK && rank >= 0; rank--) {
        bool copied;
        int32_t holder = find_holder(owners, size, rank, &copied);
        if (holder >= 0) {
            status = join_part(c, comm, holder, copied, step, begins, whole, covered, err);
        }
    }
    int64_t at = 0;
    while (at < words && covered[at] != 0) {
        at++;
    }
    *complete = at == words;
    trmi_free(covered);
    return status;
}
