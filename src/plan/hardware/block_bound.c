/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds plans whose blocks differ. The search (parallelism_search.c) gives all blocks of a plan
 * one tensor, context and expert parallelism and one ZeRO stage, as engines do. Here each block of
 * each stage decides by itself, also what it recomputes, so that the bound holds for those plans,
 * too:
 *
 *      stages, micro-batches, chunks    --> decisions of one block: seconds, messages, bytes
 *        for one stage                  --> its blocks: micro-batches x seconds + messages + update
 *        every other stage              --> its blocks: seconds / chunks, once
 *          each within the memory       --> least sum of n blocks: n x the least of one, where bytes
 *                                           have a price (Lagrange)
 *        a step takes so long for each stage: the most of them is a bound of these plans
 *      the least of all of them is the bound
 *
 * The output layer and the tables are cut as one block of their stage. What is moved between blocks
 * that are cut differently is not counted. A hidden message costs the larger of two linear
 * functions; any weighted mean of them is a lower bound. Bytes beyond the memory have a price. Each
 * price and each mean gives a bound, and the largest is looked for. Then the least of a stage is a
 * sum over its blocks.
 */
#include "plan/hardware/parallelism.h"

#include "plan/hardware/block_lists.h"

#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* DECISIONS: to be priced for better bounds, a quarter of a second; as many again for whole
 * blocks, and for plans whose blocks are cut alike. */
enum { MOST_CHUNKS = 32, DECISIONS = 50000000 };
/* From this gap on plans whose blocks are cut alike have a bound of their own. */
static const double far = 0.01;

/* What one block does, and, as it is cut so, the output layer and a table. */
typedef struct block_choice {
    double forward, backward; /* seconds of a micro-batch; backward with recompute */
    double update;
    trmi_parameter_messages messages;
    /* bytes; kept: of each micro-batch in flight; work: what a stage has once, divided among
     * blocks: parameters that are gathered, and what recompute needs (again: undivided) */
    double state, kept, work, gathered, again;
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
    double tables;
    bool last;    /* has the output layer */
    bool updated; /* tables are in messages and updates, too */
} bound_stage;

/* What the bound of a stage may choose freely, because each choice gives a bound: the price of a
 * byte, seconds; and by which of two linear functions hidden messages are bounded, those for each
 * micro-batch and those of the last one: 0: the part that nothing hides; 1: all less what operators
 * hide at most; between them a mean. */
typedef struct dual_prices {
    double byte, each, last;
} dual_prices;

/* A stage and the bound of one micro-batch. */
typedef struct bounded_stage {
    bound_stage stage;
    dual_prices by;
    double once;
} bounded_stage;

/* The shape of a plan: what is the same for all blocks. */
typedef struct plan_shape {
    int64_t stages, micros, chunks;
    double bound;
    bool whole; /* by whole blocks */
} plan_shape;

/* What one bound reads and keeps: the problem, the prices of one block, the best bound so far. */
typedef struct bounding {
    const trmi_plan_problem *problem;
    const trmi_block_cut *kinds;
    int64_t kinds_count;
    block_choice *list; /* [count] of the present stages and micro-batches */
    int64_t count;
    trmi_block_item *items; /* [count] scratch */
    void *scratch;          /* of trmi_block_least */
    bounded_stage *stages;  /* [layers] of the present shape */
    plan_shape *shapes;     /* [shapes_count] below the best plan */
    int64_t shapes_count, shapes_capacity;
    bool failed;    /* no memory */
    bool stopped;   /* the limit of work was reached before the bounds of all shapes */
    bool raises;    /* bounds are those of whole blocks */
    double enough;  /* shapes that are not below need no better bound */
    int64_t priced; /* decisions so far */
    int64_t most;   /* once so many are, shapes have their first bound only */
} bounding;

/* ---- decisions ------------------------------------------------------------------------------- */

/* Returns the seconds of one block in a phase, forward (0) or backward (1), without
 * recomputation. */
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
    /* Seconds of the update of one parameter; own, apart: where ZeRO divides the update among the
     * devices that hold the same parameters, of experts among fewer. */
    double rate = TRMI_UPDATE_BYTES / (q->hardware->bandwidth * q->hardware->streaming),
           own = zero >= 1 ? rate / (double)all.ranks : rate,
           apart = zero >= 1 ? rate / (double)same.ranks : rate;
    block_choice d = {.forward = sum_phase(p, 0),
                      .backward = sum_phase(p, 1),
                      .update = own * p->parameters + apart * p->experts,
                      .state = state_bytes(q, f->micros, zero, p->parameters, (double)all.ranks) +
                               state_bytes(q, f->micros, zero, p->experts, (double)same.ranks),
                      /* three decisions of one block: everything is kept for backward (d), norms
                       * and activations are made again (norms), the whole block is made again from
                       * its input (full) */
                      .kept = p->kept,
                      .work = zero >= 3 ? 4 * p->gathered / blocks : 0,
                      .gathered = zero >= 3 ? 4 * p->gathered / blocks : 0,
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
    full.again = p->work;
    b->list[b->count++] = full;
}

/* Returns the micro-batches of a step on so many stages; 0: the kind does not divide them. */
static int64_t count_micros(const trmi_plan_problem *q, const trmi_block_cut *k, int64_t stages) {
    int64_t devices = q->devices / stages, model = k->tensor * k->context;
    if (q->devices % stages != 0 || devices % model != 0 || devices % k->experts != 0) {
        return 0;
    }
    int64_t samples = devices / model * k->micro_batch;
    return q->batch % samples == 0 ? q->batch / samples : 0;
}

/* Lists the decisions of all kinds that have so many micro-batches on so many stages. */
static void list_decisions(bounding *b, const plan_shape *f, double blocks) {
    const trmi_plan_problem *q = b->problem;
    b->count = 0;
    for (int64_t i = 0; i < b->kinds_count; i++) {
        if (count_micros(q, &b->kinds[i], f->stages) == f->micros) {
            for (int32_t zero = 0; zero <= q->zero; zero++) {
                add_decisions(b, &b->kinds[i], zero, f, blocks);
            }
        }
    }
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
    return sum + s->updated * s->tables *
                     (w->update * d->table_update + w->once[0] * d->table.once[0] +
                      w->once[1] * d->table.once[1] + w->each[0] * d->table.each[0] +
                      w->each[1] * d->table.each[1]);
}

/* Bytes of a block, and of what a stage has once, in a decision. */
static double block_bytes(const block_choice *d, const bound_stage *s) {
    return d->state + d->work + s->flight * d->kept;
}
/* Returns the bytes that a stage has once, whatever its number of blocks: tables and the output
 * layer. */
static double once_bytes(const block_choice *d, const bound_stage *s) {
    return s->tables * d->table_state + s->last * d->head_work;
}

/* Sums over the decisions of a stage. */
typedef struct stage_sums {
    double bytes, window[2], once[2], each[2]; /* window: seconds that can hide messages */
} stage_sums;

/* Adds a decision, taken by `times` blocks of a stage, to the sums of that stage. */
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
        sums->once[i] += s->updated * s->tables * with->table.once[i];
        sums->each[i] += s->updated * s->tables * with->table.each[i];
    }
    return (s->blocks - 1) * one + first;
}

/* Returns the least bytes of a stage. */
static double find_least_bytes(bounding *b, const bound_stage *s) {
    const block_weights only = {.byte = 1, .flight = s->flight};
    bound_stage memory = *s;
    stage_sums sums;
    memory.updated = false;
    return find_least(b, &memory, &only, &sums);
}

/* ---- prices of bytes and of messages --------------------------------------------------------- */

/* A stage to bound. */
typedef struct stage_problem {
    bounding *b;
    const plan_shape *f;
    const bound_stage *s;
    bool whole;   /* all of its micro-batches, messages and update; else one micro-batch */
    double limit; /* bytes; INFINITY: none */
} stage_problem;

/* Returns the prices of a stage's seconds, messages and bytes. */
static block_weights weights_of(const stage_problem *p, const dual_prices *by) {
    double hide = p->b->problem->hardware->hide_data, micros = (double)p->f->micros,
           beside = 1 - 1 / fmax(p->s->blocks, 1), last = 1 - hide + by->last * hide;
    block_weights w = {.byte = by->byte, .flight = by->byte * p->s->flight};
    w.forward = w.backward = p->whole
                                 ? micros - beside * hide * ((micros - 1) * by->each + by->last)
                                 : 1 / (double)p->f->chunks;
    w.update = p->whole;
    for (int i = 0; i < 2 && p->whole; i++) {
        w.once[i] = last;
        w.each[i] = (micros - 1) * (1 - hide + by->each * hide) + last;
    }
    return w;
}

/* Returns the bound of a stage for these prices, and its slopes by them. */
static double try_prices(const stage_problem *p, const dual_prices *by, dual_prices *slope) {
    const block_weights w = weights_of(p, by);
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

/* Raises the bound along one price by halving, as its slope says. high: the largest price;
 * INFINITY: found by doubling. */
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

/* Returns a bound of the price of a stage whose decisions fit, and the prices that give it. Stops
 * once it is above `enough`. */
static double find_within(const stage_problem *p, double enough, dual_prices *found) {
    enum { SWEEPS = 4, TRIALS = 14 };
    dual_prices by = {0, 0, 0}, slopes;
    *found = by;
    double bound = try_prices(p, &by, &slopes), before = -1;
    if (p->limit < INFINITY && find_least_bytes(p->b, p->s) > p->limit) {
        return INFINITY;
    }
    bool fits = slopes.byte <= 0;
    for (int sweep = 0; sweep < SWEEPS && p->b->priced < p->b->most && bound < enough &&
                        bound > before * (1 + 1e-6);
         sweep++) {
        before = bound;
        if (!fits || sweep > 0) {
            bound = p->limit < INFINITY ? improve_price(p, &by, &by.byte, &slopes.byte, &slopes,
                                                        bound / p->limit, INFINITY, bound, TRIALS)
                                        : bound;
        }
        if (p->whole) {
            bound =
                improve_price(p, &by, &by.each, &slopes.each, &slopes, 0.5, 1, bound, TRIALS / 2);
            bound =
                improve_price(p, &by, &by.last, &slopes.last, &slopes, 0.5, 1, bound, TRIALS / 2);
        }
    }
    *found = by;
    return bound;
}

/* Raises a bound to the least price of whole blocks, as far as `enough`. */
static double find_of_whole_blocks(const stage_problem *p, const dual_prices *by, double bound,
                                   double enough) {
    bounding *b = p->b;
    const dual_prices without = {0, by->each, by->last};
    const block_weights w = weights_of(p, &without);
    double blocks = p->s->blocks;
    for (int64_t i = 0; i < b->count; i++) {
        const block_choice *d = &b->list[i];
        b->items[i] = (trmi_block_item){.price = price_block(d, &w),
                                        .bytes = block_bytes(d, p->s) -
                                                 (d->again > 0 ? d->work - d->gathered : 0),
                                        .once_price = price_once(d, &w, p->s),
                                        .once_bytes = once_bytes(d, p->s),
                                        .work = d->again};
    }
    const trmi_block_choices choices = {.items = b->items,
                                        .count = b->count,
                                        .blocks = (int64_t)blocks,
                                        .limit = p->limit,
                                        .byte = by->byte,
                                        .enough = enough,
                                        .scratch = b->scratch};
    double least = trmi_block_least(&choices, b->most, &b->priced);
    return fmax(bound, least);
}

/* ---- a shape --------------------------------------------------------------------------------- */

/* Returns what a bound must know of stage s of a shape: its blocks, its micro-batches in flight,
 * its tables. */
static bound_stage stage_of(const trmi_plan_problem *q, const plan_shape *f, int64_t s) {
    const trmi_parallelism plan = {
        .stages = f->stages, .chunks = f->chunks, .micro_count = f->micros};
    bool last = s == f->stages - 1, both = f->stages == 1 && !q->model->tied;
    return (bound_stage){.blocks = (double)trmi_stage_count(q->model, &plan, s),
                         .flight = trmi_stage_flight(&plan, s),
                         .tables = both ? 2 : s == 0 || last,
                         .last = last};
}

/* Returns the seconds of a step that no block changes: start of the update, messages between
 * stages, the rest. */
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

/* Bounds one micro-batch of each stage; returns the sum of all. */
static double bound_once(bounding *b, const plan_shape *f, double limit) {
    double sum = 0;
    for (int64_t s = 0; s < f->stages && sum < INFINITY; s++) {
        bounded_stage *at = &b->stages[s];
        at->stage = stage_of(b->problem, f, s);
        const stage_problem one = {b, f, &at->stage, false, limit};
        /* without a limit, stages of as many blocks are alike */
        bool same = limit == INFINITY && s > 0 && at->stage.blocks == at[-1].stage.blocks &&
                    !at->stage.last;
        at->once = same ? at[-1].once : find_within(&one, INFINITY, &at->by);
        sum += at->once;
    }
    return sum;
}

/* Raises one micro-batch of all stages but `stage` to whole blocks, until a step takes enough.
 * seconds: of the step by the bounds so far. Returns by how much. */
static double raise_others(bounding *b, const plan_shape *f, double limit, int64_t stage,
                           double seconds) {
    double raised = 0;
    for (int64_t k = 0; k < f->stages && seconds + raised < b->enough; k++) {
        bounded_stage *other = &b->stages[k];
        const stage_problem one = {b, f, &other->stage, false, limit};
        if (k != stage) {
            double before = other->once;
            other->once = find_of_whole_blocks(&one, &other->by, before,
                                               before + b->enough - seconds - raised);
            raised += other->once - before;
        }
    }
    return raised;
}

/* Returns the bound of a shape, without (INFINITY) or with a limit of bytes: the most of three
 * stages, whose memory or work is the most of all. */
static double bound_shape(bounding *b, const plan_shape *f, double limit) {
    double bound = 0, sum = bound_once(b, f, limit), fixed = fixed_seconds(b->problem, f);
    const bool raises = b->raises && limit < INFINITY;
    for (int64_t s = 0; s < f->stages && sum < INFINITY && bound < b->enough;
         s = trmi_next_full_stage(f->stages, s)) {
        bound_stage at = b->stages[s].stage;
        dual_prices by;
        at.updated = true;
        const stage_problem whole = {b, f, &at, true, limit};
        double rest = fixed + sum - b->stages[s].once,
               own = find_within(&whole, b->enough - rest, &by);
        if (raises && own + rest < b->enough) {
            own = find_of_whole_blocks(&whole, &by, own, b->enough - rest);
            double raised = raise_others(b, f, limit, s, own + rest);
            rest += raised;
            sum += raised;
        }
        bound = fmax(bound, own + rest);
    }
    return sum < INFINITY ? bound : INFINITY;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Bounds a shape: without a limit, and if that is below what is enough within the memory. */
static double find_bound(bounding *b, const plan_shape *f) {
    const trmi_plan_problem *q = b->problem;
    const trmi_parallelism plan = {.stages = f->stages, .chunks = f->chunks};
    int64_t most;
    (void)trmi_stage_blocks(q->model, &plan, &most);
    list_decisions(b, f, (double)most);
    double bound = b->raises ? f->bound : bound_shape(b, f, INFINITY);
    return bound < b->enough && b->priced < b->most
               ? fmax(bound, bound_shape(b, f, q->memory - q->hardware->reserved))
               : bound;
}

/* Bounds all numbers of chunks of these stages and micro-batches, and notes those below `best`. */
static void bound_chunks(bounding *b, plan_shape f, double best) {
    int64_t most;
    for (f.chunks = 1; f.chunks <= MOST_CHUNKS && !b->failed; f.chunks++) {
        const trmi_parallelism plan = {.stages = f.stages, .chunks = f.chunks};
        if (f.chunks > 1 && (f.stages == 1 || f.micros % f.stages != 0)) {
            break;
        }
        if (trmi_stage_blocks(b->problem->model, &plan, &most)) {
            f.bound = find_bound(b, &f);
            b->enough = fmin(b->enough, f.bound);
            b->failed = f.bound < best && !trmi_grow((void **)&b->shapes, &b->shapes_capacity,
                                                     b->shapes_count + 1, sizeof *b->shapes);
            if (f.bound < best && !b->failed) {
                b->shapes[b->shapes_count++] = f;
            }
        }
    }
}

/* Returns the shape of the least bound; NULL: all are `best` or above. */
static plan_shape *find_lowest(const bounding *b, double best) {
    plan_shape *lowest = NULL;
    for (int64_t i = 0; i < b->shapes_count; i++) {
        plan_shape *f = &b->shapes[i];
        if (f->bound < best && (lowest == NULL || f->bound < lowest->bound)) {
            lowest = f;
        }
    }
    return lowest;
}

/* Raises the bounds of the shapes to those of whole blocks, the least first, until that of the
 * least is raised. Returns the least of all. */
static double raise_lowest(bounding *b, double best) {
    plan_shape *f = find_lowest(b, best);
    b->enough = best;
    b->raises = true;
    while (best < INFINITY && f != NULL && !f->whole && b->priced < b->most) {
        f->bound = find_bound(b, f);
        f->whole = true;
        f = find_lowest(b, best);
    }
    b->stopped = f != NULL && !f->whole && b->priced >= b->most;
    return f == NULL ? best : f->bound;
}

/* Compares two numbers. */
static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Bounds all shapes. micros: room for as many numbers as there are kinds. */
static void bound_all(bounding *b, int64_t *micros, double best) {
    const trmi_plan_problem *q = b->problem;
    for (int64_t stages = 1; stages <= q->model->layers && !b->failed; stages++) {
        int64_t listed = 0;
        for (int64_t i = 0; i < b->kinds_count && q->devices % stages == 0; i++) {
            int64_t number = count_micros(q, &b->kinds[i], stages);
            micros[listed] = number;
            listed += number > 0;
        }
        qsort(micros, (size_t)listed, sizeof *micros, by_number);
        for (int64_t i = 0; i < listed; i++) {
            if (i == 0 || micros[i] != micros[i - 1]) {
                bound_chunks(b, (plan_shape){.stages = stages, .micros = micros[i]}, best);
            }
        }
    }
}

/* Bounds plans all of whose blocks are cut alike: the least bound of each kind by itself. */
static double bound_each_kind(bounding *b, int64_t *micros, double best) {
    const trmi_block_cut *kinds = b->kinds;
    const int64_t count = b->kinds_count;
    double least = best;
    b->most = b->priced + DECISIONS;
    b->kinds_count = 1;
    for (int64_t i = 0; i < count && !b->failed; i++) {
        b->kinds = &kinds[i];
        b->shapes_count = 0;
        b->enough = least;
        b->raises = false;
        bound_all(b, micros, least);
        least = fmin(least, raise_lowest(b, least));
    }
    return least;
}

/* Frees what a bound reads and keeps. */
static void free_bound(bounding *b) {
    trmi_free(b->list);
    trmi_free(b->items);
    trmi_free(b->stages);
    trmi_free(b->scratch);
    trmi_free(b->shapes);
}

/* Contract in parallelism.h. */
trm_status trmi_block_bound(const trmi_plan_problem *problem, const trmi_block_cut *kinds,
                            int64_t count, double best, trmi_block_bounds *out, trm_error *err) {
    bounding b = {.problem = problem,
                  .kinds = kinds,
                  .kinds_count = count,
                  .enough = best,
                  .most = DECISIONS};
    size_t decisions = (size_t)count * 3 * ((size_t)problem->zero + 1);
    b.list = trmi_alloc((decisions + 1) * sizeof *b.list);
    b.items = trmi_alloc((decisions + 1) * sizeof *b.items);
    b.stages = trmi_alloc(((size_t)problem->model->layers + 1) * sizeof *b.stages);
    b.scratch = trmi_alloc(TRMI_BLOCK_SCRATCH);
    int64_t *micros = trmi_alloc(((size_t)count + 1) * sizeof *micros);
    b.failed = b.list == NULL || b.items == NULL || b.stages == NULL || b.scratch == NULL ||
               micros == NULL;
    if (!b.failed) {
        bound_all(&b, micros, best);
        b.most = b.priced + DECISIONS;
        out->all = raise_lowest(&b, best);
        out->stopped = b.stopped;
        const bool is_far = best < INFINITY && out->all < best * (1 - far);
        out->cut_alike = is_far ? fmax(out->all, bound_each_kind(&b, micros, best)) : out->all;
    }
    free_bound(&b);
    trmi_free(micros);
    return b.failed ? TRMI_NO_MEMORY(err, "to bound plans") : TRM_OK;
}
