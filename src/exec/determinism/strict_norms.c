/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser's norms in strict determinism: sums of squares whose bits do not depend on where
 * the numbers lie. With L the largest magnitude of a parameter on all ranks, a square is rounded to
 * a unit so coarse that a float64 holds the sum of all of them without rounding: no order of
 * additions changes it. A square keeps about 50 bits below L^2, less the bits of the number of
 * terms. */
#include "exec/determinism/strict.h"

#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"
#include "exec/distributed/stages.h"
#include "exec/exec.h"

#include "base/memory.h"

#include <math.h>

/* The sums of one call: set 0 is of gradients, set 1 of parameters. */
typedef struct norms {
    trm_exec *exec;
    const trm_program *program;
    int64_t sets, blocks;
    float *largest; /* [sets * params] */
    double *sums;   /* [sets * params] */
    double most[2]; /* [sets] largest sum, of all stages of a pipeline; one may have no sets */
    double all;     /* parameters of all stages */
} norms;

/* Returns the number that rounds values of at most `largest` when it is added and subtracted again:
 * to a unit so coarse that a float64 holds the sum of `count` such values exactly. Returns 0 if
 * `largest` is 0, NaN or infinite. */
static double anchor_of(double largest, double count) {
    int above, terms;
    (void)frexp(largest, &above);
    (void)frexp(count, &terms);
    return largest > 0 && isfinite(largest) ? ldexp(1.5, above + terms) : 0;
}

/* Returns whether this rank adds the squares of its part of a parameter. Several ranks may hold the
 * same part; one of them adds it, a different one for each parameter. */
static bool adds_part(const norms *n, int32_t param) {
    const trm_exec *exec = n->exec;
    int32_t at[TRMI_MESH_AXES], turn = param;
    bool mine = true;
    if (!trmi_strict_of(exec)->split) {
        return param % trmi_strict_of(exec)->ranks == trmi_strict_of(exec)->rank;
    }
    const trmi_partition_leaf *leaf = trmi_program_leaf(
        n->program, n->program->buffers[n->program->params[param].param_buffer].name);
    const trmi_mesh *mesh = &trmi_parallel_of(exec)->split->plan->mesh;
    trmi_mesh_coordinates(mesh, trmi_parallel_of(exec)->rank, at);
    for (int32_t i = 0; i < mesh->axes; i++) {
        if (leaf == NULL || leaf->spread.at[i] < TRMI_SPLIT) {
            mine = mine && at[i] == turn % mesh->size[i];
            turn /= mesh->size[i];
        }
    }
    return mine;
}

/* Returns this rank's part of a parameter's gradient (set 0) or of the parameter (set 1). */
static const float *values_of(const norms *n, int64_t set, int32_t param, int64_t *count) {
    const trmi_buffer *b = &n->program->buffers[n->program->params[param].param_buffer];
    const char *gradients = n->exec->accumulator != NULL ? (const char *)n->exec->accumulator
                                                         : n->exec->env.arena[TRMI_ARENA_GRAD];
    *count = trm_shape_count(&b->shape);
    return (
        const float *)(const void *)((set == 0 ? gradients : n->exec->env.arena[TRMI_ARENA_PARAM]) +
                                     b->offset);
}

/* Writes the largest magnitude of each parameter's part that this rank adds, to n->largest;
 * infinite if one of its values is no number. */
static void find_largest(const norms *n) {
    for (int64_t i = 0; i < n->sets * n->program->trained_count; i++) {
        int64_t count;
        int32_t param = (int32_t)(i % n->program->trained_count);
        const float *x = values_of(n, i / n->program->trained_count, param, &count);
        float most = 0;
        count = adds_part(n, param) ? count : 0;
        for (int64_t k = 0; k < count; k++) {
            most = isnan(x[k]) ? INFINITY : fmaxf(most, fabsf(x[k]));
        }
        n->largest[i] = most;
    }
}

/* Returns the elements of the whole parameter. */
static double elements_of(const norms *n, int32_t param) {
    const trmi_buffer *b = &n->program->buffers[n->program->params[param].param_buffer];
    const trmi_partition_leaf *leaf = trmi_program_leaf(n->program, b->name);
    return (double)trm_shape_count(leaf != NULL ? &leaf->global : &b->shape);
}

/* Writes the sum of rounded squares of each parameter's part that this rank adds, to n->sums. */
static void add_squares(const norms *n) {
    for (int64_t i = 0; i < n->sets * n->program->trained_count; i++) {
        int64_t count;
        int32_t param = (int32_t)(i % n->program->trained_count);
        const float *x = values_of(n, i / n->program->trained_count, param, &count);
        double largest = (double)n->largest[i], sum = 0;
        double anchor = anchor_of(largest * largest, elements_of(n, param));
        count = anchor != 0 && adds_part(n, param) ? count : 0;
        for (int64_t k = 0; k < count; k++) {
            sum += ((double)x[k] * (double)x[k] + anchor) - anchor;
        }
        n->sums[i] = sum;
    }
}

/* Returns the sum of squares of a whole parameter, infinite where a value is no number. */
static double sum_of(const norms *n, int64_t set, int32_t param) {
    int64_t at = set * n->program->trained_count + param;
    return isfinite(n->largest[at]) ? n->sums[at] : (double)INFINITY;
}

/* Finds the largest sum of each set, of all stages: a parameter that several stages hold counts
 * once, where it is updated. */
static trm_status find_most(norms *n, trm_error *err) {
    trm_exec *exec = n->exec;
    const trmi_staged *staged = n->program->staged;
    n->all = n->program->trained_count;
    for (int64_t i = 0; i < n->sets * n->program->trained_count; i++) {
        int32_t param = (int32_t)(i % n->program->trained_count);
        int64_t set = i / n->program->trained_count;
        n->most[set] = fmax(n->most[set], sum_of(n, set, param));
    }
    if (staged == NULL) {
        return TRM_OK;
    }
    n->all = 0;
    for (int32_t i = 0; i < staged->leaves_count; i++) {
        n->all += !staged->leaves[i].state && !staged->leaves[i].frozen;
    }
    return trm_comm_allreduce(trmi_stages_of(exec)->pipe, n->most, 2, TRM_FLOAT64,
                              TRM_REDUCTION_MAX, err);
}

/* Returns a parameter's sum rounded to the unit of its set: the optimiser adds these sums in the
 * order in which the parameters lie in memory, and that order must not change the bits. */
static double rounded_sum_of(const norms *n, int64_t set, int32_t param) {
    double mine = sum_of(n, set, param), anchor = anchor_of(n->most[set], n->all);
    return anchor != 0 ? (mine + anchor) - anchor : mine;
}

/* Writes the sums by block of the optimiser: a parameter's sum into its first block, 0 into its
 * other blocks. */
static void write_totals(const norms *n, double *sums) {
    int64_t block = 0;
    for (int32_t i = 0; i < n->program->trained_count; i++) {
        const trmi_buffer *b = &n->program->buffers[n->program->params[i].param_buffer];
        int64_t end = (b->offset + b->bytes) / (int64_t)sizeof(float), first = block;
        for (; block < n->blocks && trmi_update_block_offset(n->exec->update, block) < end;
             block++) {
            for (int64_t set = 0; set < n->sets; set++) {
                sums[set * n->blocks + block] = block == first ? rounded_sum_of(n, set, i) : 0;
            }
        }
    }
}

/* Contract in strict.h. Sums of squares must not depend on the blocks into which a rank's
 * optimiser divides a parameter. So all ranks agree on the largest element of each parameter
 * first, and add the squares relative to it, rounded so that their sums are exact in any order. */
trm_status trmi_strict_norms(void *context, double *sums, int64_t count, trm_error *err) {
    trm_exec *exec = context;
    norms n = {
        .exec = exec, .program = exec->program, .blocks = trmi_update_block_count(exec->update)};
    n.sets = n.blocks > 0 ? count / n.blocks : 0;
    int64_t items = n.sets * n.program->trained_count;
    n.largest = trmi_alloc((size_t)(items + 1) * sizeof *n.largest);
    n.sums = trmi_alloc((size_t)(items + 1) * sizeof *n.sums);
    trm_status status = n.largest != NULL && n.sums != NULL
                            ? TRM_OK
                            : TRMI_NO_MEMORY(err, "for the optimiser's norms");
    trm_comm *comm = trmi_parallel_of(exec) != NULL ? trmi_parallel_of(exec)->comm : NULL;
    /* Find the largest element of each parameter, over all ranks; then sum the squares relative to
     * it. */
    if (status == TRM_OK) {
        find_largest(&n);
        status = comm != NULL ? trm_comm_allreduce(comm, n.largest, items, TRM_FLOAT32,
                                                   TRM_REDUCTION_MAX, err)
                              : TRM_OK;
    }
    if (status == TRM_OK) {
        add_squares(&n);
        status = comm != NULL
                     ? trm_comm_allreduce(comm, n.sums, items, TRM_FLOAT64, TRM_REDUCTION_SUM, err)
                     : TRM_OK;
    }
    /* The totals take the place of the blocks' sums. */
    status = status == TRM_OK ? find_most(&n, err) : status;
    if (status == TRM_OK) {
        write_totals(&n, sums);
    }
    trmi_free(n.largest);
    trmi_free(n.sums);
    return status;
}
