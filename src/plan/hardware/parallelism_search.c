/* SPDX-License-Identifier: Apache-2.0 */
/* Prices every plan of a problem. Blocks are equal, so that the price of one block is computed once
 * for all plans with the same tensor, context, experts and micro-batch.
 *
 *      tensor x context x experts x micro-batch   --> price of a block
 *        x stages x chunks x ZeRO x recompute     --> price of a step --> the best, runners-up
 *
 * Among plans that recompute whole blocks only the least number of blocks counts that fits: each
 * further block costs time and nothing else. GPipe is never better than 1F1B: equal time, more
 * memory. */
#include "plan/hardware/parallelism.h"

#include "base/error.h"
#include "base/os.h"

#include <math.h>

enum { MOST_MICRO_BATCH = 64, MOST_CHUNKS = 32 };

/* The two best plans that differ in one choice. */
typedef struct best_two {
    trmi_priced_plan best, other;
} best_two;

typedef struct plan_search {
    const trmi_plan_problem *problem;
    trmi_parallelism_found *out;
    best_two kinds[TRMI_KINDS];
    trmi_block_price price[2]; /* of the present tensor, context, experts, micro-batch */
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
    default: return (int64_t)p->recompute;
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
static void keep_plan(plan_search *s, const trmi_priced_plan *found) {
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
}

/* Prices one plan and keeps it if it is among the best. */
static void try_plan(plan_search *s, trmi_priced_plan *p) {
    trmi_parallelism_found *out = s->out;
    trmi_step_price_of(s->problem, &p->plan, s->price, &p->cost);
    out->priced++;
    if (p->cost.seconds * (1 + 1e-12) < out->unlimited.cost.seconds) {
        out->unlimited = *p;
    }
    if (p->cost.bytes * (1 + 1e-12) < out->least.cost.bytes) {
        out->least = *p;
    }
    if (p->cost.bytes <= s->problem->memory) {
        keep_plan(s, p);
    } else {
        out->excluded++;
    }
}

/* Tries the least number of recomputed blocks that fits, by halving: memory falls with each. */
static void try_blocks(plan_search *s, trmi_priced_plan *p) {
    int64_t least = 1, most = 0;
    trmi_priced_plan one = *p;
    (void)trmi_stage_blocks(s->problem->model, &p->plan, &most);
    one.plan.recompute = TRMI_RECOMPUTE_FULL;
    one.plan.blocks = most;
    try_plan(s, &one);
    /* Memory does not suffice even with all blocks. */
    if (one.cost.bytes > s->problem->memory) {
        return;
    }
    while (least < most) {
        int64_t middle = (least + most) / 2;
        one.plan.blocks = middle;
        trmi_step_price_of(s->problem, &one.plan, s->price, &one.cost);
        if (one.cost.bytes <= s->problem->memory) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    one.plan.blocks = most;
    try_plan(s, &one);
}

/* Tries all ways to store parameters and to recompute. */
static void try_stores(plan_search *s, const trmi_parallelism *plan) {
    trmi_priced_plan p = {.plan = *plan};
    for (p.plan.zero = 0; p.plan.zero <= s->problem->zero; p.plan.zero++) {
        if (p.plan.zero > 0 && p.plan.data * p.plan.context == 1 && p.plan.experts == 1) {
            break; /* one copy: nothing to store in parts */
        }
        p.plan.blocks = 0;
        p.plan.recompute = TRMI_RECOMPUTE_NONE;
        try_plan(s, &p);
        bool enough = p.cost.bytes <= s->problem->memory;
        if (!enough) {
            p.plan.recompute = TRMI_RECOMPUTE_SELECTIVE;
            try_plan(s, &p);
            try_blocks(s, &p);
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
                try_stores(s, &plan);
            }
        }
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
                try_stages(s, plan);
            }
        }
    }
}

/* Contract in parallelism.h. Prices every plan of the space: all tensor and context sizes that
 * divide the model here, and all stages, micro-batches, recompute and ZeRO stages within
 * try_samples. */
trm_status trmi_parallelism_search(const trmi_plan_problem *problem, trmi_parallelism_found *out,
                                   trm_error *err) {
    double begin = trmi_os_now();
    const trmi_transformer *t = problem->model;
    const trmi_priced_plan none = {.cost = {.seconds = INFINITY, .bytes = INFINITY}};
    plan_search s = {.problem = problem, .out = out};
    *out = (trmi_parallelism_found){.best = none, .unlimited = none, .least = none};
    /* For each kind of choice the best plan, and the best one that chooses otherwise. */
    for (int k = 0; k < TRMI_KINDS; k++) {
        s.kinds[k] = (best_two){none, none};
    }
    /* A tensor size must divide heads and widths; a context size the tokens, in two halves each
     * (balanced causal attention), and what a rank then has must divide by the tensor size. */
    for (int64_t tensor = 1; tensor <= t->heads && tensor <= problem->devices; tensor++) {
        bool divides = problem->devices % tensor == 0 && t->heads % tensor == 0 &&
                       t->hidden % tensor == 0 && t->width % tensor == 0 &&
                       (t->kv_heads % tensor == 0 || tensor % t->kv_heads == 0);
        for (int64_t context = 1; divides && context <= problem->devices / tensor; context++) {
            trmi_parallelism plan = {.tensor = tensor, .context = context};
            bool even = context == 1 || t->context % (2 * context) == 0;
            if (even && problem->devices / tensor % context == 0 &&
                t->context / context % tensor == 0) {
                try_samples(&s, plan);
            }
        }
    }
    if (out->priced == 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "plan: no plan divides %lld devices and a batch of %lld samples over %s "
                         "(%lld heads, %lld blocks, %lld tokens)",
                         (long long)problem->devices, (long long)problem->batch, t->name,
                         (long long)t->heads, (long long)t->layers, (long long)t->context);
    }
    /* All kinds have the same best plan; their runners-up differ from it in that kind. If no plan
     * fits the memory, the best is that of least memory. */
    out->best = s.kinds[0].best;
    out->fits = out->best.cost.seconds < INFINITY;
    for (int k = 0; k < TRMI_KINDS; k++) {
        out->runners[k] = s.kinds[k].other;
    }
    out->best = out->fits ? out->best : out->least;
    out->seconds = trmi_os_now() - begin;
    return TRM_OK;
}
