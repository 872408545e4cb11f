/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/auto_parallel.h: how a plan is found, for `trireme plan` as for a job in the
 * mode auto_parallel:
 *
 *      for each mesh: space --search--> the best of it        --what is used is not known: measure it, search again
 *      the best of all meshes --compile--> beyond the limit?  --keep that off the search's limit, search again
 *      those predicted nearly as fast --run in turns (exec/autoparallel/plan_selection.h)--> what is taken
 *
 * Rank 0 drives; the others serve its probe.
 */
#ifndef TRMI_EXEC_SEARCH_DRIVE_H
#define TRMI_EXEC_SEARCH_DRIVE_H

#include "exec/autoparallel/plan_selection.h"
#include "plan/search/search.h"

typedef struct trmi_drive_mesh {
    trmi_mesh mesh;
    trmi_space *space;
    trmi_found found;
    const trmi_choice *taken; /* by running; NULL: the search's best. In the drive's arena */
} trmi_drive_mesh;

typedef struct trmi_drive {
    /* Set by the caller before trmi_drive_meshes, and borrowed. */
    trmi_search_mode mode;
    const trmi_shard_plan *given; /* competes; what it pins is kept, on its own mesh. NULL = none */
    trmi_probe *probe;
    trmi_costs *costs;    /* costs->probe NULL: nothing is measured, nothing run */
    int64_t memory_bytes; /* of a rank; 0 = any */
    /* as options say it (trmi_costs_limit, trmi_trial_seconds) */
    double measure_seconds, trial_seconds;
    bool frontier; /* the curve of time against memory, of the best mesh */
    trm_status (*make_space)(void *context, const trmi_mesh *mesh, trmi_space **out,
                             trm_error *err);
    /* Bytes of rank 0's program of a plan. */
    trm_status (*compile)(void *context, const trmi_space *space, const trmi_choice *choice,
                          double *bytes, trm_error *err);
    void *context;
    const trmi_candidate *others; /* of the best mesh, beside what the search proposes */
    int32_t others_count;
    /* Found. */
    trmi_arena arena;
    trmi_drive_mesh *meshes;
    int32_t meshes_count, best, rounds;
    trmi_trial trial;      /* plans that predictions could not tell apart */
    double search_seconds; /* of the last search of all meshes */
    double compiled_bytes; /* of rank 0's program of the best plan; 0: not compiled */
    /* bytes that compiled programs take more than the search counts: kept off its limit */
    double beyond;
} trmi_drive;

static inline const trmi_drive_mesh *trmi_drive_best(const trmi_drive *drive) {
    return &drive->meshes[drive->best];
}
/* Bytes a rank that the search may use; 0 = any. */
static inline double trmi_drive_limit(const trmi_drive *drive) {
    double limit = (double)drive->memory_bytes;
    return limit > 0 && limit > drive->beyond + 1 ? limit - drive->beyond : limit > 0 ? 1 : 0;
}

/* The meshes to look at: `only` one, or (NULL) every factorisation of `ranks`, of which `hosts` lie
 * outside. Four axes are for those who
 * ask.   error  INVALID: ranks do not divide among the hosts */
trm_status trmi_drive_meshes(trmi_drive *drive, const trmi_mesh *only, int32_t ranks, int32_t hosts,
                             trm_error *err);
/* Searches all meshes, measures what the found plans and data parallel use, searches again; keeps
 * the limit of memory. */
trm_status trmi_drive_search(trmi_drive *drive, trm_error *err);
/* Measures what `count` plans of the best mesh use; *news: how many operators that were. */
trm_status trmi_drive_measure(trmi_drive *drive, const trmi_candidate *plans, int32_t count,
                              int32_t *news, trm_error *err);
/* Runs the plans that predictions cannot tell apart: sets the best mesh, and what is taken of it;
 * runners-up and prices are then those beside what is taken. */
trm_status trmi_drive_try(trmi_drive *drive, trm_error *err);
/* Bytes of the best plan's program: compiled_bytes. */
trm_status trmi_drive_compile(trmi_drive *drive, trm_error *err);
void trmi_drive_free(trmi_drive *drive);

/* Every plan that was looked at: the chosen one first, then baselines, other meshes' best, points
 * of the curve that lie apart and the `others` by predicted time, each once. */
typedef struct trmi_ranked {
    const trmi_candidate *candidate;
    int32_t mesh;
} trmi_ranked;
enum { TRMI_RANKED = 3 * TRMI_CANDIDATES + 1 };
int32_t trmi_drive_list(const trmi_drive *drive, trmi_ranked list[TRMI_RANKED]);

#endif
