/* SPDX-License-Identifier: Apache-2.0 */
/* train/elastic_copies.h: the state of a model that no rank has whole (slices of the optimiser, split graphs, pipelines), kept so that a
 * death loses nothing (docs/internals/elastic.md).
 *
 *      rank          0            1            2
 *      own part      A            B            C           two generations: after step s and after s - 1
 *      copy          B            C            A           the part of the next rank, of the same steps
 *
 * All ranks keep step s before one of them keeps s + 1, because each step has an operation of all ranks. So whenever ranks
 * die, there is a step of which all that are left have both: the least of their newest ones. */
#ifndef TRMI_TRAIN_ELASTIC_COPIES_H
#define TRMI_TRAIN_ELASTIC_COPIES_H

#include "exec/state_part.h"

#include "train/elastic_position.h"

typedef struct trmi_elastic_copies {
    bool on;             /* the program of this epoch has parts */
    int32_t rank, ranks; /* of that program */
    trmi_state_part own, next;
    char *data[2], *copy[2]; /* by generation: own words, words that only the next rank has */
    trmi_elastic_position at[2];
    int64_t steps[2]; /* -1: this generation is not complete */
    int32_t newest;
} trmi_elastic_copies;

/* Lists the part of this rank, and tells the previous rank what it will get. Collective. `order`: the position of each variable
 * among all (trmi_elastic_model.order).   error  NOMEM, INVALID (trmi_state_part_list), those of trm_comm_exchange */
trm_status trmi_copies_open(trmi_elastic_copies *copies, const trm_exec *exec, trm_comm *comm,
                            const int32_t *order, trm_error *err);
void trmi_copies_close(trmi_elastic_copies *copies);
/* Keeps the state after `step`, here and on the previous rank, in place of the older generation. Collective. */
trm_status trmi_copies_keep(trmi_elastic_copies *copies, trm_comm *comm, uint64_t step,
                            trm_error *err);
/* Returns the generation of a step; -1: this rank has none. */
int32_t trmi_copies_find(const trmi_elastic_copies *copies, int64_t step);

/* What each of the ranks that are left has of the parts. */
typedef struct trmi_copies_owner {
    int64_t newest, older; /* steps; -1 = none */
    int32_t rank, ranks;   /* of the program whose parts these are; ranks 0: it has none */
} trmi_copies_owner;
static inline bool trmi_copies_has_parts(const trmi_copies_owner *owner) {
    return owner->ranks > 0 && owner->newest >= 0;
}
trmi_copies_owner trmi_copies_describe(const trmi_elastic_copies *copies);

/* Puts the parts of `step` together in `whole`, all variables in plain layout, of which variable i begins at word begins[i]. A part of a
 * rank that has died comes from its copy; where several ranks have the same words, those of the lowest count. *complete: every one
 * of the `words` words was there. Collective.
 *   param   owners: of all ranks of `comm`
 *   error   NOMEM, those of trm_comm_broadcast */
trm_status trmi_copies_join(const trmi_elastic_copies *copies, trm_comm *comm,
                            const trmi_copies_owner *owners, int64_t step, const int64_t *begins,
                            int64_t words, char *whole, bool *complete, trm_error *err);

#endif
