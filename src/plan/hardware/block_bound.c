/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds plans whose blocks differ. The search (parallelism_search.c) gives all blocks of a plan one
 * tensor, context and expert parallelism and one ZeRO stage, as engines do. Here each block of each
 * stage decides by itself, also what it recomputes, so that the bound holds for those plans, too:
 *
 *      stages, micro-batches, chunks    --> decisions of one block: seconds, messages, bytes
 *        the stage that works longest   --> its blocks: micro-batches x seconds + messages + update
 *        every other stage              --> its blocks: seconds / chunks, once
 *          each within the memory       --> least sum of n blocks: n x the least of one, where bytes
 *                                           have a price (Lagrange)
 *      the least of all of them is a bound
 *
 * The output layer and the tables are cut as one block of their stage. What is moved between blocks
 * that are cut differently is not counted. A hidden message costs the larger of two linear functions;
 * any weighted mean of them is a lower bound. Bytes beyond the memory have a price. Each price and
 * each mean gives a bound, and the largest is looked for. Then the least of a stage is a sum over its
 * blocks.
 */
#include "plan/hardware/parallelism.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* DECISIONS: to be priced for better bounds, about half a second. */
enum { MOST_CHUNKS = 32, DECISIONS = 100000000 };

/* What one block does, and, as it is cut so, the output layer and a table. */
typedef struct block_choice {
    double forward, backward; /* seconds of a micro-batch; backward with recompute */
    double update;
    trmi_parameter_messages messages;
    double state, kept, work; /* bytes; kept: of each micro-batch in flight */
    double head[2], head_work, table_state, table_update;
    trmi_parameter_messages table;
} block_choice;

/* Prices of what a decision does. */
typedef struct block_weights {
    double forward, backward, update, once[2], each[2];
    double byte, flight; /* of memory; of kept bytes: times micro-batches in flight */
} block_weights;

/* Blocks of one stage. */
typedef struct bound_stage {
    double blocks, flight;
    double tables;  /* in memory */
    bool last;      /* has the output layer */
    double updated; /* tables in messages and updates; 0: not the stage that works longest */
} bound_stage;

typedef struct bounding {
    const trmi_plan_problem *problem;
    const trmi_block_cut *kinds;
    int64_t kinds_count;
    block_choice *list; /* [count] of the present stages and micro-batches */
    int64_t count;
    double best;    /* the bound so far: shapes that are not below need no better one */
    int64_t priced; /* decisions so far: once DECISIONS are, shapes have their first bound only */
} bounding;

/* The shape of a plan: what is the same for all blocks. */
typedef struct plan_shape {
    int64_t stages, micros, chunks;
} plan_shape;

/* ---- decisions ------------------------------------------------------------------------------- */

static double sum_phase(const trmi_block_price *b, int phase) {
    return b->products[phase] + b->attention[phase] + b->elementwise[phase] + b->tensor[phase] +
           b->context[phase] + b->expert[phase];
}

/* Bytes of parameters, gradients and slots in `ranks` copies, as step_price.c counts them. */
static double state_bytes(const trmi_plan_problem *q, int64_t micros, int32_t zero,
                          double parameters, double ranks) {
    double gradient = fmax(q->gradient_width, micros > 1 ? 4 : 2);
    return parameters * (2 / (zero >= 3 ? ranks : 1) + gradient / (zero >= 2 ? ranks : 1) +
                         12 / (zero >= 1 ? ranks : 1));
}

/* Adds the three decisions of a kind and a ZeRO stage: recompute of nothing, of norms and
 * activations, of the block. blocks: of a stage, among which what a stage has once is divided. */
static void add_decisions(bounding *b, const trmi_block_cut *k, int32_t zero, const plan_shape *f,
                          double blocks) {
    const trmi_plan_problem *q = b->problem;
    const trmi_block_price *p = &k->price[0], *head = &k->price[1];
    int64_t devices = q->devices / f->stages;
    const trmi_device_group all = {devices / k->tensor, k->tensor},
                            same = {devices / k->experts, k->experts};
    double rate = 30 / (q->hardware->bandwidth * q->hardware->streaming),
           own = zero >= 1 ? rate / (double)all.ranks : rate,
           apart = zero >= 1 ? rate / (double)same.ranks : rate;
    block_choice d = {.forward = sum_phase(p, 0),
                      .backward = sum_phase(p, 1),
                      .update = own * p->parameters + apart * p->experts,
                      .state = state_bytes(q, f->micros, zero, p->parameters, (double)all.ranks) +
                               state_bytes(q, f->micros, zero, p->experts, (double)same.ranks),
                      .kept = p->kept,
                      .work = zero >= 3 ? 4 * p->gathered / blocks : 0,
                      .head = {sum_phase(head, 0), sum_phase(head, 1)},
                      .head_work = head->kept,
                      .table_state =
                          state_bytes(q, f->micros, zero, head->parameters, (double)all.ranks),
                      .table_update = own * head->parameters};
    trmi_add_messages(q, zero, all, p->parameters, 1 / blocks, &d.messages);
    trmi_add_messages(q, zero, same, p->experts, p->experts > 0 ? 1 / blocks : 0, &d.messages);
    trmi_add_messages(q, zero, all, head->parameters, 0, &d.table);
    b->list[b->count++] = d;
    block_choice norms = d, full = d;
    norms.backward += p->selective;
    norms.kept = p->kept_selective;
    b->list[b->count++] = norms;
    full.backward += p->full;
    full.kept = p->kept_full;
    full.work += p->work / blocks;
    b->list[b->count++] = full;
}

/* Lists the decisions of all kinds that have so many micro-batches on so many stages. */
static void list_decisions(bounding *b, const plan_shape *f, double blocks) {
    const trmi_plan_problem *q = b->problem;
    b->count = 0;
    for (int64_t i = 0; i < b->kinds_count; i++) {
        if (trmi_kind_micros(q, &b->kinds[i], f->stages) == f->micros) {
            for (int32_t zero = 0; zero <= q->zero; zero++) {
                add_decisions(b, &b->kinds[i], zero, f, blocks);
            }
        }
    }
}

int64_t trmi_kind_micros(const trmi_plan_problem *q, const trmi_block_cut *k, int64_t stages) {
    int64_t devices = q->devices / stages, model = k->tensor * k->context;
    if (q->devices % stages != 0 || devices % model != 0 || devices % k->experts != 0) {
        return 0;
    }
    int64_t samples = devices / model * k->micro_batch;
    return q->batch % samples == 0 ? q->batch / samples : 0;
}

/* ---- the least of a stage -------------------------------------------------------------------- */

/* Returns the price of a decision for one block of a stage. */
static double price_block(const block_choice *d, const block_weights *w) {
    return w->forward * d->forward + w->backward * d->backward + w->update * d->update +
           w->once[0] * d->messages.once[0] + w->once[1] * d->messages.once[1] +
           w->each[0] * d->messages.each[0] + w->each[1] * d->messages.each[1] +
           w->byte * (d->state + d->work) + w->flight * d->kept;
}

/* Returns the price of what a stage has once, cut as this decision says. */
static double price_once(const block_choice *d, const block_weights *w, const bound_stage *s) {
    double sum = w->byte * (s->tables * d->table_state + s->last * d->head_work) +
                 s->last * (w->forward * d->head[0] + w->backward * d->head[1]);
    return sum + s->updated * (w->update * d->table_update + w->once[0] * d->table.once[0] +
                               w->once[1] * d->table.once[1] + w->each[0] * d->table.each[0] +
                               w->each[1] * d->table.each[1]);
}

/* Bytes of a block, and of what a stage has once, in a decision. */
static double block_bytes(const block_choice *d, const bound_stage *s) {
    return d->state + d->work + s->flight * d->kept;
}
static double once_bytes(const block_choice *d, const bound_stage *s) {
    return s->tables * d->table_state + s->last * d->head_work;
}

/* Sums over the decisions of a stage. */
typedef struct stage_sums {
    double bytes, window[2], once[2], each[2]; /* window: seconds that can hide messages */
} stage_sums;

static void add_sums(const block_choice *d, const bound_stage *s, double times, stage_sums *out) {
    out->bytes += times * block_bytes(d, s);
    out->window[0] += times * d->forward;
    out->window[1] += times * d->backward;
    for (int i = 0; i < 2; i++) {
        out->once[i] += times * d->messages.once[i];
        out->each[i] += times * d->messages.each[i];
    }
}

/* Finds the least price of a stage, and what its decisions are. */
static double find_least(bounding *b, const bound_stage *s, const block_weights *w,
                         stage_sums *sums) {
    const block_choice *least = NULL, *with = NULL;
    double one = INFINITY, first = INFINITY;
    *sums = (stage_sums){.bytes = INFINITY};
    b->priced += b->count;
    for (int64_t i = 0; i < b->count; i++) {
        const block_choice *d = &b->list[i];
        double price = price_block(d, w), once = price + price_once(d, w, s);
        if (price < one) {
            one = price;
            least = d;
        }
        if (once < first) {
            first = once;
            with = d;
        }
    }
    if (least == NULL) {
        return INFINITY;
    }
    *sums = (stage_sums){.bytes = once_bytes(with, s)};
    add_sums(with, s, 1, sums);
    add_sums(least, s, s->blocks - 1, sums);
    for (int i = 0; i < 2; i++) {
        sums->window[i] =
            (1 - 1 / fmax(s->blocks, 1)) * (sums->window[i] + s->last * with->head[i]);
        sums->once[i] += s->updated * with->table.once[i];
        sums->each[i] += s->updated * with->table.each[i];
    }
    return (s->blocks - 1) * one + first;
}

/* Returns the least bytes of a stage. */
static double find_least_bytes(bounding *b, const bound_stage *s) {
    const block_weights only = {.byte = 1, .flight = s->flight};
    bound_stage memory = *s;
    stage_sums sums;
    memory.updated = 0;
    return find_least(b, &memory, &only, &sums);
}

/* ---- prices of bytes and of messages --------------------------------------------------------- */

/* What the bound of a stage may choose freely, because each choice gives a bound: the price of a
 * byte, seconds; and by which of two linear functions hidden messages are bounded, those for each
 * micro-batch and those of the last one: 0: the part that nothing hides; 1: all less what operators
 * hide at most; between them a mean. */
typedef struct dual_prices {
    double byte, each, last;
} dual_prices;

/* Returns the prices of a stage's seconds, messages and bytes. own: the part of the longest stage's
 * seconds that are those of this stage; negative: another one is the longest, and its blocks count
 * once, without messages. */
static block_weights weights_of(const bounding *b, const plan_shape *f, const bound_stage *s,
                                const dual_prices *by, double own) {
    const bool longest = own >= 0;
    double hide = b->problem->hardware->hide_data, micros = (double)f->micros,
           beside = 1 - 1 / fmax(s->blocks, 1), once = 1 / (double)f->chunks,
           last = 1 - hide + by->last * hide,
           seconds =
               own * (micros - once) + once - beside * hide * ((micros - 1) * by->each + by->last);
    block_weights w = {.byte = by->byte, .flight = by->byte * s->flight};
    w.forward = w.backward = longest ? seconds : once;
    w.update = longest;
    for (int i = 0; i < 2 && longest; i++) {
        w.once[i] = last;
        w.each[i] = (micros - 1) * (1 - hide + by->each * hide) + last;
    }
    return w;
}

/* A stage to bound. */
typedef struct stage_problem {
    bounding *b;
    const plan_shape *f;
    const bound_stage *s;
    double own;   /* as weights_of takes it */
    double limit; /* bytes; INFINITY: none */
} stage_problem;

/* Returns the bound of a stage for these prices, and its slopes by them. */
static double try_prices(const stage_problem *p, const dual_prices *by, dual_prices *slope) {
    const block_weights w = weights_of(p->b, p->f, p->s, by, p->own);
    stage_sums sums;
    double value = find_least(p->b, p->s, &w, &sums);
    slope->byte = p->limit < INFINITY ? sums.bytes - p->limit : -1;
    slope->each = slope->last = 0;
    for (int i = 0; i < 2; i++) {
        slope->each += sums.each[i] - sums.window[i];
        slope->last += sums.each[i] + sums.once[i] - sums.window[i];
    }
    return value - (by->byte > 0 ? by->byte * p->limit : 0);
}

/* Raises the bound along one price by halving, as its slope says. high: the largest price; INFINITY:
 * found by doubling. */
static double improve_price(const stage_problem *p, dual_prices *by, double *price, double *slope,
                            dual_prices *slopes, double first, double high, double bound,
                            int trials) {
    double low = 0, best = *price, at = *price > 0 ? *price : first;
    for (int i = 0; i < trials; i++) {
        *price = at;
        double value = try_prices(p, by, slopes);
        if (value > bound) {
            bound = value;
            best = at;
        }
        if (*slope > 0) {
            low = at;
            at = high < INFINITY ? (low + high) / 2 : 4 * at;
        } else {
            high = at;
            at = (low + high) / 2;
        }
    }
    *price = best;
    return bound;
}

/* Returns a bound of the price of a stage whose decisions fit. Stops once it is above `enough`. */
static double find_within(const stage_problem *p, double enough) {
    enum { SWEEPS = 4, TRIALS = 14 };
    dual_prices by = {0, 0, 0}, slopes;
    double bound = try_prices(p, &by, &slopes), before = -1;
    if (p->limit < INFINITY && find_least_bytes(p->b, p->s) > p->limit) {
        return INFINITY;
    }
    bool fits = slopes.byte <= 0;
    for (int sweep = 0; sweep < SWEEPS && p->b->priced < DECISIONS && bound < enough &&
                        bound > before * (1 + 1e-6);
         sweep++) {
        before = bound;
        if (!fits || sweep > 0) {
            bound = p->limit < INFINITY ? improve_price(p, &by, &by.byte, &slopes.byte, &slopes,
                                                        bound / p->limit, INFINITY, bound, TRIALS)
                                        : bound;
        }
        if (p->own >= 0) {
            bound =
                improve_price(p, &by, &by.each, &slopes.each, &slopes, 0.5, 1, bound, TRIALS / 2);
            bound =
                improve_price(p, &by, &by.last, &slopes.last, &slopes, 0.5, 1, bound, TRIALS / 2);
        }
    }
    return bound;
}

/* ---- a shape --------------------------------------------------------------------------------- */

static bound_stage stage_of(const trmi_plan_problem *q, const plan_shape *f, int64_t s) {
    const trmi_parallelism plan = {
        .stages = f->stages, .chunks = f->chunks, .micro_count = f->micros};
    bool last = s == f->stages - 1, both = f->stages == 1 && !q->model->tied;
    return (bound_stage){.blocks = (double)trmi_stage_count(q->model, &plan, s),
                         .flight = trmi_stage_flight(&plan, s),
                         .tables = both ? 2 : s == 0 || last,
                         .last = last};
}

/* Returns the seconds of a step that no block changes: start of the update, messages between stages,
 * the rest. */
static double fixed_seconds(const trmi_plan_problem *q, const plan_shape *f) {
    const trmi_hardware *h = q->hardware;
    double sum = h->start + h->step;
    if (f->stages > 1) {
        double bytes = 2 * (double)(q->batch / f->micros * q->model->context) *
                       (double)q->model->width * (double)f->stages / (double)q->devices;
        sum += (1 - h->hide_stage) * trmi_hardware_send(h, q->devices / f->stages, bytes) * 2 *
               (double)(f->micros * f->chunks + f->stages - 1);
    }
    return sum;
}

/* The least that the stages of a shape take of a micro-batch, divided by the chunks. */
typedef struct least_stages {
    double sum, most;
} least_stages;

/* Returns the bound of a step whose longest stage is `at`: its micro-batches take its own seconds and
 * at least those of every other stage, and so any mean of both. */
static double bound_longest(bounding *b, const plan_shape *f, bound_stage at, double limit,
                            const least_stages *least, double enough) {
    const trmi_plan_problem *q = b->problem;
    double chunks = (double)f->chunks, others = (double)f->micros * chunks - 1, bound = 0,
           fixed = fixed_seconds(q, f);
    const stage_problem once = {b, f, &at, -1, limit};
    double own = find_within(&once, INFINITY);
    at.updated = f->stages == 1 && !q->model->tied ? 2 : 1;
    const double parts[] = {1, own / least->most, 0};
    for (int i = 0; i < 3 && bound < enough && (i == 0 || own < least->most); i++) {
        const stage_problem busy = {b, f, &at, parts[i], limit};
        double rest = fixed + least->sum - own + (1 - parts[i]) * others * least->most;
        bound = fmax(bound, find_within(&busy, enough - rest) + rest);
    }
    return bound;
}

/* Returns the bound of a shape, without (INFINITY) or with a limit of bytes. */
static double bound_shape(bounding *b, const plan_shape *f, double limit) {
    least_stages least = {0, 0};
    double bound = INFINITY;
    for (int pass = 0; pass < 2; pass++) {
        bound_stage before = {.blocks = -1};
        double seconds = 0;
        for (int64_t s = 0; s < f->stages; s++) {
            bound_stage at = stage_of(b->problem, f, s);
            const stage_problem once = {b, f, &at, -1, limit};
            /* without a limit, stages of as many blocks are alike */
            bool same = limit == INFINITY && at.blocks == before.blocks && !at.last;
            before = at;
            if (pass == 0) {
                seconds = same ? seconds : find_within(&once, INFINITY);
                least.sum += seconds;
                least.most = fmax(least.most, seconds);
            } else if (
                !same) { /* a bound above that so far, or above the last stage's, is as good */
                bound = fmin(bound, bound_longest(b, f, at, limit, &least, fmin(b->best, bound)));
            }
        }
        if (least.sum == INFINITY) {
            return INFINITY;
        }
    }
    return bound;
}

/* Returns the bound of a shape: that without a limit, and if it is below the bound so far that within
 * the memory. */
static double find_bound(bounding *b, const plan_shape *f) {
    const trmi_plan_problem *q = b->problem;
    double bound = bound_shape(b, f, INFINITY);
    return bound < b->best && b->priced < DECISIONS
               ? fmax(bound, bound_shape(b, f, q->memory - q->hardware->reserved))
               : bound;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Bounds all numbers of chunks of these stages and micro-batches: lowers b->best to the least. */
static void bound_chunks(bounding *b, plan_shape f) {
    const trmi_plan_problem *q = b->problem;
    int64_t most;
    for (f.chunks = 1; f.chunks <= MOST_CHUNKS; f.chunks++) {
        const trmi_parallelism plan = {.stages = f.stages, .chunks = f.chunks};
        if (f.chunks > 1 && (f.stages == 1 || f.micros % f.stages != 0)) {
            break;
        }
        if (trmi_stage_blocks(q->model, &plan, &most)) {
            list_decisions(b, &f, (double)most);
            b->best = fmin(b->best, find_bound(b, &f));
        }
    }
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Contract in parallelism.h. */
trm_status trmi_block_bound(const trmi_plan_problem *problem, const trmi_block_cut *kinds,
                            int64_t count, double best, double *out, trm_error *err) {
    bounding b = {.problem = problem, .kinds = kinds, .kinds_count = count, .best = best};
    size_t decisions = (size_t)count * 3 * ((size_t)problem->zero + 1);
    b.list = trmi_alloc((decisions + 1) * sizeof *b.list);
    int64_t *micros = trmi_alloc(((size_t)count + 1) * sizeof *micros);
    if (b.list == NULL || micros == NULL) {
        trmi_free(b.list);
        trmi_free(micros);
        return TRMI_NO_MEMORY(err, "to bound plans");
    }
    for (int64_t stages = 1; stages <= problem->model->layers; stages++) {
        int64_t listed = 0;
        for (int64_t i = 0; i < count && problem->devices % stages == 0; i++) {
            int64_t number = trmi_kind_micros(problem, &kinds[i], stages);
            micros[listed] = number;
            listed += number > 0;
        }
        qsort(micros, (size_t)listed, sizeof *micros, by_number);
        for (int64_t i = 0; i < listed; i++) {
            if (i == 0 || micros[i] != micros[i - 1]) {
                bound_chunks(&b, (plan_shape){.stages = stages, .micros = micros[i]});
            }
        }
    }
    trmi_free(b.list);
    trmi_free(micros);
    *out = b.best;
    return TRM_OK;
}
