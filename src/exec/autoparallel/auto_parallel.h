/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/auto_parallel.h: finds a plan, for `trireme plan` and for jobs in the mode
 * auto_parallel:
 *
 *      each mesh: space --search--> best plan       unknown costs: measure them, search again
 *      best of all meshes --compile--> over limit?  lower the limit, search again
 *      plans nearly as fast --run in turns--> chosen plan       (near_ties.h)
 *
 * Rank 0 runs these functions; the other ranks call trmi_op_benchmark_serve meanwhile.
 */
#ifndef TRMI_EXEC_AUTO_PARALLEL_H
#define TRMI_EXEC_AUTO_PARALLEL_H

#include "exec/autoparallel/near_ties.h"
#include "plan/search/search.h"

/* One mesh and the result of its search. */
typedef struct trmi_auto_mesh {
    trmi_mesh mesh;
    trmi_space *space;
    trmi_found found;
    const trmi_choice
        *taken; /* chosen by a benchmark; NULL: the best of the search. In search.arena */
    /* seconds that no plan within the whole limit of memory is below; INFINITY: there is none */
    double whole_limit_bound;
    trmi_bound whole_limit_by; /* how that treats the limit */
} trmi_auto_mesh;

/* Returns whether the bound of a mesh is exact for what the search counts: by lists of time and
 * memory, and not Lagrange's. */
static inline bool trmi_auto_exact(const trmi_auto_mesh *mesh) {
    return (mesh->found.bound == TRMI_BOUND_WHOLE_LIMIT ? mesh->whole_limit_by
                                                        : mesh->found.bound) < TRMI_BOUND_LAGRANGE;
}

/* A search for a plan: what is asked, how spaces are made and plans compiled (two callbacks, so
 * that the search knows neither models nor executors), and what was found. One thread uses it. */
typedef struct trmi_plan_search {
    /* Set by the caller before trmi_auto_meshes, and borrowed. */
    trmi_search_mode mode;
    const trmi_partition_plan
        *given;               /* a user's plan: a candidate on its mesh, its pins kept; or NULL */
    trmi_op_benchmark *probe; /* NULL: mesh_search.c alone is used */
    trmi_costs *costs;        /* costs->probe NULL: nothing is measured, no plan is run */
    int64_t memory_bytes;     /* limit a rank; 0 = none */
    /* of measuring operators, and of running plans, as the user said (trmi_costs_limit,
     * trmi_ties_seconds); 0 = by the step */
    double limit_seconds, trial_seconds;
    trm_switch trials;
    bool frontier; /* also find the time-memory curve of the best mesh */
    /* no plan of this search will run: it takes the costs that are known, and measures none */
    bool compared_only;
    /* Makes the search space of a mesh, with costs; the search owns *out. */
    trm_status (*make_space)(void *context, const trmi_mesh *mesh, trmi_space **out,
                             trm_error *err);
    /* Compiles a plan for rank 0 and writes the bytes of its program to *bytes. */
    trm_status (*compile)(void *context, const trmi_space *space, const trmi_choice *choice,
                          double *bytes, trm_error *err);
    void *context;
    const trmi_candidate *others; /* further candidates, of the best mesh */
    int32_t others_count;
    /* Results. */
    trmi_arena arena;   /* meshes, and the choice of a benchmark */
    trmi_arena results; /* what meshes have found since all of them were searched last */
    trmi_auto_mesh *meshes;
    int32_t meshes_count, best, rounds;
    trmi_near_ties trial;  /* the benchmark of plans with nearly equal predictions */
    double search_seconds; /* duration of the last search of all meshes */
    double compiled_bytes; /* bytes of rank 0's program of the best plan; 0: not compiled */
    /* bytes by which compiled programs exceed what the search counts; subtracted from its limit;
     * negative: they take less */
    double beyond;
    /* a program took less than the search counts: the limit of what is counted bounds nothing */
    bool took_less;
} trmi_plan_search;

/* Returns the mesh with the best plan. */
static inline const trmi_auto_mesh *trmi_auto_best(const trmi_plan_search *search) {
    return &search->meshes[search->best];
}
/* Returns the limit of the search in bytes a rank; 0 = none. */
static inline double trmi_auto_limit(const trmi_plan_search *search) {
    double limit = (double)search->memory_bytes;
    return limit > 0 && limit > search->beyond + 1 ? limit - search->beyond : limit > 0 ? 1 : 0;
}

/* Lists the meshes to search: `only`, or (NULL) every factorisation of `ranks` with at most three
 * axes, the outer ones over `hosts`.   errors  INVALID: ranks do not divide among the hosts */
trm_status trmi_auto_meshes(trmi_plan_search *search, const trmi_mesh *only, int32_t ranks,
                            int32_t hosts, trm_error *err);
/* Searches all meshes; measures the operators of the plans found and of data parallel, and searches
 * again with the measured costs; keeps the memory limit. Sets search->best. */
trm_status trmi_auto_search(trmi_plan_search *search, trm_error *err);
/* Measures the operators of `count` plans of the best mesh; adds the number of new costs to
 * *news. */
trm_status trmi_auto_measure(trmi_plan_search *search, const trmi_candidate *plans, int32_t count,
                             int32_t *news, trm_error *err);
/* Runs the plans with nearly equal predictions and chooses one: sets the best mesh and its `taken`,
 * and searches it again, so that runners-up and prices refer to the chosen plan. */
trm_status trmi_auto_try(trmi_plan_search *search, trm_error *err);
void trmi_auto_free(trmi_plan_search *search);

/* mesh_search.c: searches one mesh with the current costs, to mesh->found. `frontier`: also plans
 * of less memory. */
trm_status trmi_auto_search_mesh(trmi_plan_search *search, trmi_auto_mesh *mesh, bool frontier,
                                 trm_error *err);
/* Searches all meshes with the current costs and sets search->best. What was found before is
 * freed. */
trm_status trmi_auto_search_meshes(trmi_plan_search *search, trm_error *err);
/* Frees the spaces and what the search has found, the whole search but `trial`. */
void trmi_auto_free_meshes(trmi_plan_search *search);
/* Compiles a plan: tells the ranks that wait, and notes whether its program takes less than the
 * search counts. *bytes: 0 or INFINITY on entry, and still so where the bytes are unknown. */
trm_status trmi_auto_compile(trmi_plan_search *search, const trmi_space *space,
                             const trmi_candidate *plan, double *bytes, trm_error *err);
/* Compiles the best plan; sets compiled_bytes. */
trm_status trmi_auto_compile_best(trmi_plan_search *search, trm_error *err);
/* After trmi_auto_search_meshes: repeats it until the compiled program of the best plan keeps
 * memory_bytes. If a program takes less than the search counts, the limit of what is counted rises,
 * and all bounds become 0, but where it does not bind. Sets compiled_bytes; found.infeasible of the
 * best mesh: no program that was tried keeps it, and the plan is the one of the least program. */
trm_status trmi_auto_respect_limit(trmi_plan_search *search, trm_error *err);
/* Returns the seconds that no plan of any mesh is below whose program keeps the limit; if nothing
 * fits, those of the best mesh. */
double trmi_auto_bound(const trmi_plan_search *search);

/* A plan in the list of all candidates: the chosen one first, then, by predicted time and without
 * duplicates, baselines, the best of other meshes, distinct points of the curve, and `others`. */
typedef struct trmi_ranked {
    const trmi_candidate *candidate;
    int32_t mesh;
} trmi_ranked;
/* Plans in the list of trmi_auto_list at most: candidates of the search, baselines, others, and the
 * chosen one. */
enum { TRMI_RANKED = 3 * TRMI_CANDIDATES + 1 };
/* Writes that list; returns its length. */
int32_t trmi_auto_list(const trmi_plan_search *search, trmi_ranked list[TRMI_RANKED]);

/* plan_search.c: finds the plan of `training`, what `graph` becomes by `options`, for these ranks.
 * Collective. */
trm_status trmi_search_plan(trm_exec *exec, const trm_graph *graph,
                            const trmi_plan_options *options, const trm_graph *training,
                            trm_error *err);

#endif
