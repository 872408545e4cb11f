/* SPDX-License-Identifier: Apache-2.0 */
/* Prices every plan of a problem whose blocks are cut and stored alike. The price of one block is
 * computed once for all plans with the same tensor, context, experts and micro-batch.
 *
 *      tensor x context x experts x micro-batch   --> price of a block
 *        x stages x chunks x ZeRO x recompute     --> price of a step --> the best, runners-up
 *      plans whose blocks differ                  --> a bound (block_bound.c)
 *
 * Of a stage some blocks may be recomputed whole and others in their norms and activations. For
 * each number of the former only the least number of the latter counts with which the plan fits:
 * each further block costs time and nothing else. Stages keep different numbers of micro-batches,
 * so that each recomputes by itself what it must; plans whose stages recompute alike are listed,
 * too. GPipe is never better than 1F1B: equal time, more memory. */
#include "plan/hardware/parallelism.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <math.h>

/* Samples of a micro-batch, and runs of blocks of a rank (interleaving), at most. */
enum { MOST_MICRO_BATCH = 64, MOST_CHUNKS = 32 };

/* The two best plans that differ in one choice. */
typedef struct best_two {
    trmi_priced_plan best, other;
} best_two;

/* The state of one search. */
typedef struct plan_search {
    const trmi_plan_problem *problem;
    trmi_parallelism_found *out; /* NULL: of a curve */
    best_two kinds[TRMI_KINDS];
    trmi_block_price price[2]; /* of the present tensor, context, experts, micro-batch */
    trmi_block_cut *list;      /* all of them; owned */
    int64_t list_count, list_capacity;
    bool failed; /* no memory for `list` */
    /* of a curve: the fastest plan within each limit */
    const double *limits;
    int limits_count;
    trmi_priced_plan *points;
    double priced;
} plan_search;

/* Returns the choice of a plan of one kind, as a number. */
static int64_t find_choice(const trmi_parallelism *p, trmi_plan_kind kind) {
    switch (kind) {
    case TRMI_KIND_TENSOR: return p->tensor;
    case TRMI_KIND_STAGES: return p->stages;
    case TRMI_KIND_CONTEXT: return p->context;
    case TRMI_KIND_EXPERTS: return p->experts;
    case TRMI_KIND_MICRO_BATCH: return p->micro_batch;
    case TRMI_KIND_CHUNKS: return p->chunks;
    case TRMI_KIND_ZERO: return p->zero;
    default: return p->by_stage ? TRMI_RECOMPUTE_FULL + 1 : (int64_t)p->recompute;
    }
}

const char *trmi_plan_kind_name(trmi_plan_kind kind) {
    static const char *const names[TRMI_KINDS] = {"tensor parallel",
                                                  "pipeline stages",
                                                  "context parallel",
                                                  "expert parallel",
                                                  "micro-batch",
                                                  "interleaving",
                                                  "ZeRO",
                                                  "recompute"};
    return names[kind];
}

/* Keeps a plan that fits. Equal times: the plan that came first, which is the simpler one. */
static void keep_plan(plan_search *s, const trmi_priced_plan *found, bool alike) {
    double seconds = found->cost.seconds * (1 + 1e-12);
    for (int k = 0; k < TRMI_KINDS; k++) {
        best_two *two = &s->kinds[k];
        trmi_plan_kind kind = (trmi_plan_kind)k;
        bool same = find_choice(&found->plan, kind) == find_choice(&two->best.plan, kind);
        if (seconds < two->best.cost.seconds) {
            two->other = same ? two->other : two->best;
            two->best = *found;
        } else if (!same && seconds < two->other.cost.seconds) {
            two->other = *found;
        }
    }
    if (alike && seconds < s->out->alike.cost.seconds) {
        s->out->alike = *found;
    }
}

/* Returns whether a plan would be among none of those that are kept, whatever it recomputes in
 * these seconds or more. */
static bool is_hopeless(const plan_search *s, const trmi_parallelism *plan, double seconds) {
    bool hopeless = s->out != NULL && seconds >= s->out->alike.cost.seconds;
    for (int k = 0; k < TRMI_KINDS && hopeless; k++) {
        const best_two *two = &s->kinds[k];
        trmi_plan_kind kind = (trmi_plan_kind)k;
        bool same = kind != TRMI_KIND_RECOMPUTE &&
                    find_choice(plan, kind) == find_choice(&two->best.plan, kind);
        hopeless = seconds >= (same ? two->best : two->other).cost.seconds;
    }
    return hopeless;
}

/* Prices one plan and keeps it if it is among the best. alike: its blocks are recomputed in one way
 * only. */
static void try_plan(plan_search *s, trmi_priced_plan *p, bool alike) {
    trmi_parallelism_found *out = s->out;
    trmi_step_price_of(s->problem, &p->plan, s->price, &p->cost);
    s->priced++;
    for (int i = 0; i < s->limits_count; i++) {
        trmi_priced_plan *point = &s->points[i];
        if (p->cost.bytes <= s->limits[i] && p->cost.seconds * (1 + 1e-12) < point->cost.seconds) {
            *point = *p;
        }
    }
    if (out == NULL) {
        return;
    }
    out->priced++;
    if (p->cost.seconds * (1 + 1e-12) < out->unlimited.cost.seconds) {
        out->unlimited = *p;
    }
    if (p->cost.bytes * (1 + 1e-12) < out->least.cost.bytes) {
        out->least = *p;
    }
    if (p->cost.bytes <= s->problem->memory) {
        keep_plan(s, p, alike);
    } else {
        out->excluded++;
    }
}

/* ---- what is recomputed ---------------------------------------------------------------------- */

/* The stages whose memory may be the most, in a plan without recompute: their blocks, the bytes
 * beyond a limit, and what a block saves that is recomputed. */
typedef struct full_stages {
    double blocks[3], beyond[3], full[3], selective[3];
    int count;
} full_stages;

/* Lists the stages that can be the fullest one, with what each exceeds `limit` by and what a
 * recomputed block saves there. */
static void find_full_stages(const plan_search *s, const trmi_parallelism *plan, double limit,
                             full_stages *out) {
    const trmi_block_price *b = &s->price[0];
    *out = (full_stages){.count = 0};
    for (int64_t k = 0; k < plan->stages; k = trmi_next_full_stage(plan->stages, k)) {
        double memory[TRMI_MEMORY_PARTS], flight = trmi_stage_flight(plan, k);
        int i = out->count++;
        trmi_stage_memory(s->problem, plan, s->price, k, memory);
        out->blocks[i] = (double)trmi_stage_count(s->problem->model, plan, k);
        out->beyond[i] = s->problem->hardware->reserved - limit;
        for (int m = 0; m < TRMI_MEMORY_PARTS; m++) {
            out->beyond[i] += memory[m];
        }
        out->full[i] = flight * (b->kept - b->kept_full);
        out->selective[i] = flight * (b->kept - b->kept_selective);
    }
}

/* Returns the least number of blocks whose norms and activations are recomputed beside `full` whole
 * ones, so that each stage keeps the limit; -1: no number suffices. */
static int64_t find_selective(const full_stages *f, double full, double work) {
    double most = 0;
    for (int i = 0; i < f->count; i++) {
        double whole = fmin(f->blocks[i], full),
               beyond = f->beyond[i] + (full > 0 ? work : 0) - whole * f->full[i];
        double needs = beyond <= 0            ? 0
                       : f->selective[i] <= 0 ? INFINITY
                                              : ceil(beyond / f->selective[i] - 1e-9);
        if (needs > f->blocks[i] - whole) {
            return -1;
        }
        most = fmax(most, needs);
    }
    return (int64_t)most;
}

/* Tries so many whole blocks and others; one more of the latter where rounding needs it. */
static void try_blocks(plan_search *s, trmi_priced_plan *p, int64_t full, int64_t selective,
                       int64_t most, double limit) {
    do {
        p->plan.blocks = full;
        p->plan.selective = selective;
        p->plan.recompute = full > 0        ? TRMI_RECOMPUTE_FULL
                            : selective > 0 ? TRMI_RECOMPUTE_SELECTIVE
                                            : TRMI_RECOMPUTE_NONE;
        try_plan(s, p, selective == 0 || (full == 0 && selective == most));
    } while (p->cost.bytes > limit && full + selective++ < most);
}

/* Tries the plan in which each stage recomputes by itself what it must to keep the limit. p: the
 * plan without recompute, priced. */
static void try_by_stage(plan_search *s, const trmi_priced_plan *p, double limit) {
    trmi_priced_plan one = *p;
    trmi_recompute_by_stage(s->problem, s->price, limit, &one.plan);
    if (p->plan.stages > 1) {
        try_plan(s, &one, false);
    }
}

/* Tries, for each number of whole blocks, the least number of others with which a plan fits, until
 * whole blocks suffice. None is left out by its seconds: stages have different numbers of blocks,
 * and which mix is the fastest depends on the busiest one. p: the plan without recompute,
 * priced. */
static void try_mixes(plan_search *s, const trmi_priced_plan *p, int64_t most, double limit) {
    full_stages f;
    trmi_priced_plan one = *p;
    bool suffice = false;
    find_full_stages(s, &p->plan, limit, &f);
    for (int64_t full = 0; full <= most && !suffice; full++) {
        int64_t selective = find_selective(&f, (double)full, s->price[0].work);
        if (selective >= 0) {
            try_blocks(s, &one, full, selective, most, limit);
            suffice = selective == 0 && one.plan.selective == 0 && one.cost.bytes <= limit;
        }
    }
}

/* Tries all ways to store parameters and to recompute. */
static void try_stores(plan_search *s, const trmi_parallelism *plan, int64_t most) {
    trmi_priced_plan p = {.plan = *plan};
    for (p.plan.zero = 0; p.plan.zero <= s->problem->zero; p.plan.zero++) {
        if (p.plan.zero > 0 && p.plan.data * p.plan.context == 1 && p.plan.experts == 1) {
            break; /* one copy: nothing to store in parts */
        }
        p.plan.blocks = p.plan.selective = 0;
        p.plan.recompute = TRMI_RECOMPUTE_NONE;
        try_plan(s, &p, true);
        trmi_priced_plan all = p;
        all.plan.recompute = TRMI_RECOMPUTE_FULL; /* the plan of least memory, whatever its time */
        all.plan.blocks = most;
        if (s->out != NULL && p.cost.bytes > s->problem->memory) {
            try_plan(s, &all, true);
            all.plan.recompute = TRMI_RECOMPUTE_SELECTIVE;
            all.plan.blocks = 0;
            all.plan.selective = most;
            try_plan(s, &all, true);
            if (!is_hopeless(s, &p.plan, p.cost.seconds)) {
                try_mixes(s, &p, most, s->problem->memory);
                try_by_stage(s, &p, s->problem->memory);
            }
        }
        for (int i = 0; i < s->limits_count; i++) {
            if (p.cost.bytes > s->limits[i] && p.cost.seconds < s->points[i].cost.seconds) {
                try_mixes(s, &p, most, s->limits[i]);
                try_by_stage(s, &p, s->limits[i]);
            }
        }
    }
}

/* Tries all stages and chunks for known blocks. */
static void try_stages(plan_search *s, trmi_parallelism plan) {
    const trmi_plan_problem *q = s->problem;
    int64_t stage = plan.tensor * plan.context, most = 0;
    for (plan.stages = 1; plan.stages <= q->model->layers; plan.stages++) {
        int64_t devices = q->devices / plan.stages;
        /* devices must divide into stages, and those into groups of tensor, context and experts */
        if (q->devices % plan.stages != 0 || devices % stage != 0 || devices % plan.experts != 0) {
            continue;
        }
        plan.data = devices / stage;
        if (q->batch % (plan.data * plan.micro_batch) != 0) {
            continue;
        }
        plan.micro_count = q->batch / (plan.data * plan.micro_batch);
        /* more chunks shorten the bubble, and send more messages */
        for (plan.chunks = 1; plan.chunks <= MOST_CHUNKS; plan.chunks++) {
            bool interleaved = plan.chunks > 1;
            if (interleaved && (plan.stages == 1 || plan.micro_count % plan.stages != 0)) {
                break;
            }
            if (trmi_stage_blocks(q->model, &plan, &most)) {
                try_stores(s, &plan, most);
            }
        }
    }
}

/* Keeps the price of a block for the bound. */
static void note_kind(plan_search *s, const trmi_parallelism *plan) {
    if (s->out == NULL || s->failed) {
        return;
    }
    s->failed =
        !trmi_grow((void **)&s->list, &s->list_capacity, s->list_count + 1, sizeof *s->list);
    if (!s->failed) {
        s->list[s->list_count++] = (trmi_block_cut){plan->tensor,
                                                    plan->context,
                                                    plan->experts,
                                                    plan->micro_batch,
                                                    {s->price[0], s->price[1]}};
    }
}

/* Tries all micro-batches and experts for this tensor and context parallelism. */
static void try_samples(plan_search *s, trmi_parallelism plan) {
    const trmi_plan_problem *q = s->problem;
    int64_t experts = q->model->experts > 0 ? q->model->experts : 1;
    for (plan.experts = 1; plan.experts <= experts; plan.experts++) {
        if (experts % plan.experts != 0 || q->devices % plan.experts != 0) {
            continue;
        }
        for (plan.micro_batch = 1; plan.micro_batch <= MOST_MICRO_BATCH; plan.micro_batch *= 2) {
            if (q->batch % plan.micro_batch == 0) {
                trmi_block_price_of(q, &plan, &s->price[0], &s->price[1]);
                note_kind(s, &plan);
                try_stages(s, plan);
            }
        }
    }
}

/* Prices every plan of the space: all tensor and context sizes that divide the model here, and all
 * stages, micro-batches, recompute and ZeRO stages within try_samples. */
static trm_status try_all(plan_search *s, trm_error *err) {
    const trmi_plan_problem *q = s->problem;
    const trmi_transformer *t = q->model;
    /* A tensor size must divide heads and widths; a context size the tokens, in two halves each
     * (balanced causal attention), and what a rank then has must divide by the tensor size. */
    for (int64_t tensor = 1; tensor <= t->heads && tensor <= q->devices; tensor++) {
        bool divides = q->devices % tensor == 0 && t->heads % tensor == 0 &&
                       t->hidden % tensor == 0 && t->width % tensor == 0 &&
                       (t->kv_heads % tensor == 0 || tensor % t->kv_heads == 0);
        for (int64_t context = 1; divides && context <= q->devices / tensor; context++) {
            trmi_parallelism plan = {.tensor = tensor, .context = context};
            bool even = context == 1 || t->context % (2 * context) == 0;
            if (even && q->devices / tensor % context == 0 && t->context / context % tensor == 0) {
                try_samples(s, plan);
            }
        }
    }
    if (s->failed) {
        return TRMI_NO_MEMORY(err, "to bound plans");
    }
    return s->priced > 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INVALID,
                           "plan: no plan divides %lld devices and a batch of %lld samples over %s "
                           "(%lld heads, %lld blocks, %lld tokens)",
                           (long long)q->devices, (long long)q->batch, t->name, (long long)t->heads,
                           (long long)t->layers, (long long)t->context);
}

static const trmi_priced_plan none = {.cost = {.seconds = INFINITY, .bytes = INFINITY}};

/* Contract in parallelism.h. All kinds have the same best plan; their runners-up differ from it in
 * that kind. If no plan fits the memory, the best is that of least memory. */
trm_status trmi_parallelism_search(const trmi_plan_problem *problem, trmi_parallelism_found *out,
                                   trm_error *err) {
    double begin = trmi_os_now();
    plan_search s = {.problem = problem, .out = out};
    *out = (trmi_parallelism_found){.best = none, .unlimited = none, .least = none, .alike = none};
    /* For each kind of choice the best plan, and the best one that chooses otherwise. */
    for (int k = 0; k < TRMI_KINDS; k++) {
        s.kinds[k] = (best_two){none, none};
    }
    trm_status status = try_all(&s, err);
    out->best = s.kinds[0].best;
    out->fits = out->best.cost.seconds < INFINITY;
    for (int k = 0; k < TRMI_KINDS; k++) {
        out->runners[k] = s.kinds[k].other;
    }
    out->best = out->fits ? out->best : out->least;
    if (status == TRM_OK) {
        status = trmi_block_bound(problem, s.list, s.list_count,
                                  out->fits ? out->best.cost.seconds : INFINITY, &out->bounds, err);
    }
    trmi_free(s.list);
    out->seconds = trmi_os_now() - begin;
    return status;
}

trm_status trmi_parallelism_curve(const trmi_plan_problem *problem, const double *limits, int count,
                                  trmi_priced_plan *out, trm_error *err) {
    plan_search s = {.problem = problem, .limits = limits, .limits_count = count, .points = out};
    for (int i = 0; i < count; i++) {
        out[i] = none;
    }
    return try_all(&s, err);
}
