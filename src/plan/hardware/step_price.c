/* SPDX-License-Identifier: Apache-2.0 */
/* Prices a plan: one block and the output layer by their operators, then stages, messages, memory.
 *
 *      trmi_block_price_of   products, attention, passes over memory, messages of one micro-batch
 *      trmi_step_price_of    last stage to end: its micro-batches + bubble + gradients + update
 *      trmi_step_play        the same, action by action, to check the formula
 *
 * Sources: Shoeybi et al. 2019 (tensor), Narayanan et al. 2021 (stages), Korthikanti et al. 2022
 * (sequence parallel, memory of activations), Rajbhandari et al. 2020 (ZeRO), Dao 2023
 * (attention). */
#include "plan/hardware/parallelism.h"

#include "base/error.h"
#include "base/memory.h"
#include "plan/pipeline/stage_schedule.h"

#include <math.h>
#include <string.h>

/* ---- one block ------------------------------------------------------------------------------- */

/* The inputs of the prices of a block. */
typedef struct block_work {
    const trmi_plan_problem *problem;
    const trmi_transformer *t;
    double tensor, tokens, own; /* tokens of a micro-batch; `own`: those of one device in norms */
    trmi_block_price *out;
    double share; /* of the blocks that have this part */
} block_work;

/* Adds `count` products [tokens, n] = [tokens, k] x [k, n]; backward has two of them each. */
static void add_products(const block_work *w, double count, double rows, double n, double k) {
    const double mnk[3] = {rows, n, k};
    double seconds =
        w->share * trmi_hardware_product(w->problem->hardware, w->problem->type, count, mnk);
    w->out->products[0] += seconds;
    w->out->products[1] += 2 * seconds;
    if (w->problem->type == TRMI_PRODUCT_FP8) { /* read in 16 bits, written in two orders */
        double cast =
            w->share * trmi_hardware_stream(w->problem->hardware, 4 * count * rows * k, 1);
        w->out->elementwise[0] += cast;
        w->out->elementwise[1] += cast;
    }
}

/* Adds passes over memory of `bytes` forward; backward moves half as much again. */
static void add_passes(const block_work *w, double bytes, double operators) {
    const trmi_hardware *h = w->problem->hardware;
    w->out->elementwise[0] += w->share * trmi_hardware_stream(h, bytes, operators);
    w->out->elementwise[1] += w->share * trmi_hardware_stream(h, 1.5 * bytes, operators);
}

/* Adds bytes that are kept; `cheap`: those that selective recompute makes again. */
static void add_kept(const block_work *w, double bytes, double cheap) {
    w->out->kept += w->share * bytes;
    w->out->kept_selective += w->share * (bytes - cheap);
    w->out->selective += w->share * trmi_hardware_stream(w->problem->hardware, 2 * cheap, 1);
}

/* Adds gathers and scatters of tensor parallel, as many in backward. */
static void add_tensor(const block_work *w, double count, bool plain) {
    const trmi_hardware *h = w->problem->hardware;
    const trmi_device_group group = {(int64_t)w->tensor, 1};
    double seconds = count * w->share * (plain ? 1 : 1 - h->hide_tensor) *
                     trmi_hardware_gather(h, group, 2 * w->tokens * (double)w->t->width);
    w->out->tensor[0] += seconds;
    w->out->tensor[1] += seconds;
}

/* Adds attention: projections, the causal half of the scores, the ring of keys and values. */
static void add_attention(const block_work *w, const trmi_parallelism *plan) {
    const trmi_transformer *t = w->t;
    const trmi_hardware *h = w->problem->hardware;
    trmi_block_price *b = w->out;
    double width = (double)t->width, heads = (double)t->heads / w->tensor,
           key = trmi_transformer_key_width(t), value = trmi_transformer_value_width(t),
           pairs = t->key_rank > 0 ? heads : fmax((double)t->kv_heads / w->tensor, 1);
    /* In latent attention (DeepSeek-V2) queries, keys and values come from narrow projections.
     * Otherwise one product makes all three. */
    if (t->key_rank > 0) {
        add_products(w, 1, w->own, (double)(t->query_rank + t->key_rank + t->rotary_width), width);
        add_products(w, 1, w->tokens, heads * key, (double)t->query_rank);
        add_products(w, 1, w->tokens, heads * ((double)t->head_width + value), (double)t->key_rank);
    } else {
        add_products(w, 1, w->tokens, heads * key + pairs * (key + value), width);
    }
    add_products(w, 1, w->tokens, width, heads * value);
    /* Scores and outputs are over the causal half of all pairs; backward computes five products for
     * the two of forward. */
    double flops = w->tokens * (double)t->context * heads * (key + value);
    double forward = flops / h->flops[TRMI_PRODUCT_BF16];
    b->attention[0] += forward / h->attention[0] + h->start;
    b->attention[1] += 2.5 * forward / h->attention[1] + h->start;
    double projected = w->tokens * (heads * key + pairs * (key + value));
    add_passes(w, 20 * w->own * width, 4);                                 /* two norms, two sums */
    add_passes(w, t->positions ? 0 : 4 * projected, t->positions ? 0 : 2); /* rotary */
    add_kept(w, 8 * w->own * width + 2 * projected + 2 * w->tokens * heads * value,
             4 * w->own * width);
    b->kept_full += 2 * w->own * width;
    add_tensor(w, 2, plan->plain_tensor);
    /* Keys and values travel around the ring while the pairs that are there are computed: only what
     * is longer than that counts. */
    if (plan->context > 1) {
        const trmi_device_group ring = {plan->context, plan->tensor};
        double bytes = 2 * w->tokens * pairs * (key + value) * (double)plan->context,
               moved = trmi_hardware_gather(h, ring, bytes), beside = 1 - 1 / (double)plan->context;
        b->context[0] += fmax(0, moved - beside * b->attention[0]);
        b->context[1] += fmax(0, 2 * moved - beside * b->attention[1]);
    }
}

/* Adds a dense inner layer of this hidden width. */
static void add_dense(const block_work *w, double hidden, const trmi_parallelism *plan) {
    double width = (double)w->t->width, own = hidden / w->tensor;
    double matrices = w->t->gated ? 2 : 1;
    add_products(w, 1, w->tokens, matrices * own, width);
    add_products(w, 1, w->tokens, width, own);
    add_passes(w, 2 * w->tokens * own * (matrices + 1), 1);
    add_kept(w, 2 * w->tokens * own * (matrices + 1), 2 * w->tokens * own);
    add_tensor(w, 2, plan->plain_tensor);
    w->out->parameters += w->share * (matrices + 1) * width * own;
}

/* Adds routed experts: the router, two exchanges, the products of the device's experts. */
static void add_experts(const block_work *w, const trmi_parallelism *plan) {
    const trmi_transformer *t = w->t;
    const trmi_hardware *h = w->problem->hardware;
    double width = (double)t->width, hidden = (double)t->expert_hidden,
           local = (double)t->experts / (double)plan->experts,
           rows = w->own * (double)t->top_experts, matrices = t->gated ? 2 : 1;
    add_products(w, 1, w->own, (double)t->experts, width);
    add_products(w, local, rows / local, matrices * hidden, width);
    add_products(w, local, rows / local, width, hidden);
    add_passes(w, 2 * rows * hidden * (matrices + 1) + 8 * rows * width, 4);
    add_kept(w, 2 * rows * (width + hidden * (matrices + 1)), 2 * rows * hidden);
    const trmi_device_group group = {plan->experts, 1};
    double moved =
        2 * w->share * (1 - h->hide_expert) * trmi_hardware_exchange(h, group, 2 * rows * width);
    w->out->expert[0] += moved;
    w->out->expert[1] += moved;
    w->out->experts += w->share * local * trmi_transformer_expert(t);
    w->out->parameters += w->share * trmi_transformer_router(t);
}

/* Prices the output layer, its norm and its loss. */
static void price_head(const block_work *w, const trmi_parallelism *plan) {
    double width = (double)w->t->width, own = (double)w->t->vocabulary / w->tensor;
    add_products(w, 1, w->tokens, own, width);
    add_passes(w, 12 * w->tokens * own + 4 * w->own * width, 4);
    w->out->kept = 6 * w->tokens * own + 4 * w->own * width;
    w->out->parameters = width * own;
    add_tensor(w, 1, plan->plain_tensor);
}

/* Contract in parallelism.h. A model whose first blocks are dense and whose others have experts
 * is priced as an average block: `share` is the fraction of blocks that have the part being
 * added. */
void trmi_block_price_of(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                         trmi_block_price *block, trmi_block_price *head) {
    const trmi_transformer *t = problem->model;
    double tensor = (double)plan->tensor,
           tokens = (double)plan->micro_batch * (double)t->context / (double)plan->context;
    *block = (trmi_block_price){0};
    *head = (trmi_block_price){0};
    block_work w = {problem, t, tensor, tokens, tokens / tensor, block, 1};
    block->parameters = trmi_transformer_attention(t) / tensor;
    add_attention(&w, plan);
    /* Dense blocks, then those with experts, each by its fraction of all blocks. */
    w.share = t->experts > 0 ? (double)t->dense / (double)t->layers : 1;
    add_dense(&w, (double)t->hidden, plan);
    w.share = 1 - w.share;
    if (t->experts > 0) {
        add_experts(&w, plan);
        if (t->shared_experts > 0) {
            add_dense(&w, (double)(t->shared_experts * t->expert_hidden), plan);
        }
    }
    /* gradients of weights are added to those of earlier micro-batches in float32 */
    block->elementwise[1] +=
        trmi_hardware_stream(problem->hardware, 8 * (block->parameters + block->experts), 0);
    block->full = block->products[0] + block->attention[0] + block->elementwise[0] +
                  block->tensor[0] + block->context[0] + block->expert[0];
    block->work = block->kept;
    block->gathered = block->parameters + block->experts;
    w.out = head;
    w.share = 1;
    price_head(&w, plan);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Contract in parallelism.h. Interleaved runs count the output layer and the tables as a block at
 * each end, if the blocks do not divide; without interleaving the last stage has what is left. */
int64_t trmi_run_blocks(const trmi_transformer *t, const trmi_parallelism *p, int64_t v) {
    int64_t runs = p->stages * p->chunks;
    if (p->chunks > 1) {
        bool counted = t->layers % runs != 0;
        return (t->layers + 2 * counted) / runs - (counted && (v == 0 || v == runs - 1));
    }
    int64_t most = (t->layers + runs - 1) / runs, last = t->layers - most * (runs - 1);
    if (last < 1) { /* the first stages have one block more */
        return v < t->layers % runs ? most : most - 1;
    }
    return v == runs - 1 ? last : most;
}

int64_t trmi_stage_count(const trmi_transformer *t, const trmi_parallelism *p, int64_t s) {
    int64_t runs = p->stages * p->chunks;
    if (p->chunks == 1) {
        return trmi_run_blocks(t, p, s);
    }
    bool counted = t->layers % runs != 0;
    return (t->layers + 2 * counted) / runs * p->chunks - (counted && s == 0) -
           (counted && s == p->stages - 1);
}

/* Returns the seconds of a block or of the output layer: forward (0) or backward (1) without
 * recomputing. */
static double sum_phase(const trmi_block_price *b, int phase) {
    return b->products[phase] + b->attention[phase] + b->elementwise[phase] + b->tensor[phase] +
           b->context[phase] + b->expert[phase];
}

/* Returns the recomputation of a stage with its seconds of a micro-batch. */
static trmi_stage_again make_again(const trmi_block_price *b, double full, double selective) {
    return (trmi_stage_again){full, selective, full * b->full + selective * b->selective};
}

/* ---- messages of gradients and parameters ---------------------------------------------------- */

/* Returns what operators of `window` seconds do not hide of a message. */
static double exposed_seconds(double message, double window, double share) {
    return message - share * fmin(message, window);
}

/* Contract in parallelism.h. Gradients are reduced and parameters gathered once a step (ZeRO 0 and
 * 1) or for each micro-batch (2: gradients, 3: both). */
void trmi_add_messages(const trmi_plan_problem *problem, int32_t zero, trmi_device_group group,
                       double parameters, double starts, trmi_parameter_messages *out) {
    const trmi_hardware *h = problem->hardware;
    double none = trmi_hardware_gather(h, group, 0), start = starts * none,
           each = trmi_hardware_gather(h, group, parameters) - none,
           scatter = start + problem->gradient_width * each, gather = start + 2 * each;
    out->once[1] += zero == 0 ? 2 * scatter : zero == 1 ? scatter : 0;
    out->once[0] += zero == 1 || zero == 2 ? gather : 0;
    out->each[1] += zero == 2 ? scatter : zero == 3 ? scatter + gather : 0;
    out->each[0] += zero == 3 ? gather : 0;
}

/* Returns the seconds of a step's messages that forward and backward of a micro-batch, of `window`
 * seconds, do not hide. Messages of one direction travel one after another beside the operators of
 * that direction; those of once a step beside the last backward or the first forward. */
static double price_messages(const trmi_plan_problem *problem, int64_t micros,
                             const trmi_parameter_messages *m, const double window[2]) {
    double sum = 0, hide = problem->hardware->hide_data;
    for (int i = 0; i < 2; i++) {
        sum += (double)(micros - 1) * exposed_seconds(m->each[i], window[i], hide) +
               exposed_seconds(m->each[i] + m->once[i], window[i], hide);
    }
    return sum;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Adds the memory of a stage's parameters in `ranks` copies. */
static void add_state(const trmi_plan_problem *problem, const trmi_parallelism *p,
                      double parameters, double ranks, double memory[TRMI_MEMORY_PARTS]) {
    double gradient = fmax(problem->gradient_width, p->micro_count > 1 ? 4 : 2);
    memory[TRMI_MEMORY_PARAMETERS] += 2 * parameters / (p->zero >= 3 ? ranks : 1);
    memory[TRMI_MEMORY_GRADIENTS] += gradient * parameters / (p->zero >= 2 ? ranks : 1);
    memory[TRMI_MEMORY_OPTIMIZER] += 12 * parameters / (p->zero >= 1 ? ranks : 1);
}

double trmi_stage_flight(const trmi_parallelism *p, int64_t stage) {
    double micros = (double)p->micro_count, stages = (double)p->stages, chunks = (double)p->chunks,
           s = (double)stage;
    return p->gpipe        ? micros
           : p->chunks > 1 ? fmin(micros, stages + (stages - 1 - 2 * s) / chunks)
                           : fmin(micros, stages - s);
}

/* Computes the memory of a stage that recomputes so many blocks. */
static void count_memory(const trmi_plan_problem *problem, const trmi_parallelism *p,
                         const trmi_block_price price[2], int64_t s, const trmi_stage_again *again,
                         double memory[TRMI_MEMORY_PARTS]) {
    const trmi_block_price *b = &price[0];
    const trmi_transformer *t = problem->model;
    double copies = (double)(p->data * p->context),
           shares = (double)problem->devices / (double)p->stages / (double)p->experts;
    bool last = s == p->stages - 1;
    double blocks = (double)trmi_stage_count(t, p, s),
           tables = p->stages == 1 && !t->tied ? 2 : s == 0 || last;
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        memory[i] = 0;
    }
    /* parameters, gradients and slots; experts have a number of copies of their own */
    add_state(problem, p, blocks * b->parameters + tables * price[1].parameters, copies, memory);
    add_state(problem, p, blocks * b->experts, shares, memory);
    memory[TRMI_MEMORY_KEPT] = trmi_stage_flight(p, s) *
                               ((blocks - again->full - again->selective) * b->kept +
                                again->selective * b->kept_selective + again->full * b->kept_full);
    /* Recomputed activations, logits, and parameters that ZeRO-3 gathers live only while one block
     * computes. */
    memory[TRMI_MEMORY_WORK] = (again->full > 0 ? b->work : 0) + (last ? price[1].kept : 0) +
                               (p->zero >= 3 ? 4 * b->gathered : 0);
}

void trmi_stage_memory(const trmi_plan_problem *problem, const trmi_parallelism *p,
                       const trmi_block_price price[2], int64_t s,
                       double memory[TRMI_MEMORY_PARTS]) {
    const trmi_stage_again again = trmi_stage_recompute(problem, p, price, s);
    count_memory(problem, p, price, s, &again, memory);
}

/* Returns the bytes of a stage that recomputes so many blocks, with what the machine reserves. */
static double count_bytes(const trmi_plan_problem *problem, const trmi_parallelism *p,
                          const trmi_block_price price[2], int64_t s,
                          const trmi_stage_again *again) {
    double memory[TRMI_MEMORY_PARTS], bytes = problem->hardware->reserved;
    count_memory(problem, p, price, s, again, memory);
    for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
        bytes += memory[i];
    }
    return bytes;
}

/* Finds what a stage recomputes in the least time with which it keeps p->within: for each number of
 * whole blocks the least number of others. All blocks, if nothing suffices. */
static trmi_stage_again find_least_again(const trmi_plan_problem *problem,
                                         const trmi_parallelism *p, const trmi_block_price price[2],
                                         int64_t s) {
    const trmi_block_price *b = &price[0];
    const trmi_stage_again none = {0, 0, 0};
    const double blocks = (double)trmi_stage_count(problem->model, p, s),
                 flight = trmi_stage_flight(p, s), saved = flight * (b->kept - b->kept_selective),
                 beyond = count_bytes(problem, p, price, s, &none) - p->within;
    trmi_stage_again best = make_again(b, blocks, 0);
    if (beyond <= 0) {
        return none;
    }
    for (double full = 0; full <= blocks && full * b->full < best.seconds; full++) {
        double left = beyond + (full > 0 ? b->work : 0) - full * flight * (b->kept - b->kept_full),
               others = left <= 0   ? 0
                        : saved > 0 ? ceil(left / saved - 1e-9)
                                    : INFINITY;
        for (int i = 0; i < 2 && others <= blocks - full; i++, others++) { /* one more: rounding */
            const trmi_stage_again again = make_again(b, full, others);
            if (again.seconds < best.seconds &&
                count_bytes(problem, p, price, s, &again) <= p->within) {
                best = again;
            }
        }
    }
    return best;
}

trmi_stage_again trmi_stage_recompute(const trmi_plan_problem *problem, const trmi_parallelism *p,
                                      const trmi_block_price price[2], int64_t s) {
    if (p->by_stage) {
        return find_least_again(problem, p, price, s);
    }
    double blocks = (double)trmi_stage_count(problem->model, p, s),
           full = p->recompute == TRMI_RECOMPUTE_FULL ? fmin(blocks, (double)p->blocks) : 0;
    return make_again(&price[0], full, fmin(blocks - full, (double)p->selective));
}

/* Contract in parallelism.h. The first stage keeps the most micro-batches and recomputes the most,
 * so its numbers describe the plan. */
void trmi_recompute_by_stage(const trmi_plan_problem *problem, const trmi_block_price price[2],
                             double within, trmi_parallelism *plan) {
    plan->by_stage = true;
    plan->within = within;
    const trmi_stage_again first = trmi_stage_recompute(problem, plan, price, 0);
    plan->blocks = (int64_t)first.full;
    plan->selective = (int64_t)first.selective;
    plan->recompute = first.full > 0        ? TRMI_RECOMPUTE_FULL
                      : first.selective > 0 ? TRMI_RECOMPUTE_SELECTIVE
                                            : TRMI_RECOMPUTE_NONE;
}

/* Sums the seconds of a stage, forward [0] and backward [1]. */
static void sum_stage(double blocks, double head, const trmi_block_price price[2], double again,
                      double out[2]) {
    for (int i = 0; i < 2; i++) {
        out[i] = blocks * sum_phase(&price[0], i) + head * sum_phase(&price[1], i);
    }
    out[1] += again;
}

void trmi_stage_seconds(const trmi_plan_problem *problem, const trmi_parallelism *p,
                        const trmi_block_price price[2], int64_t s, double out[2]) {
    sum_stage((double)trmi_stage_count(problem->model, p, s), s == p->stages - 1, price,
              trmi_stage_recompute(problem, p, price, s).seconds, out);
}

/* Sets the memory of the stage that takes most. */
static void price_memory(const trmi_plan_problem *problem, const trmi_parallelism *p,
                         const trmi_block_price price[2], trmi_step_cost *out) {
    for (int64_t s = 0; s < p->stages;
         s = p->by_stage ? s + 1 : trmi_next_full_stage(p->stages, s)) {
        double memory[TRMI_MEMORY_PARTS], bytes = 0;
        trmi_stage_memory(problem, p, price, s, memory);
        for (int i = 0; i < TRMI_MEMORY_PARTS; i++) {
            bytes += memory[i];
        }
        if (bytes > out->bytes) {
            out->bytes = bytes;
            memcpy(out->memory, memory, sizeof memory);
        }
    }
}

/* ---- the step -------------------------------------------------------------------------------- */

/* The time of one stage. */
typedef struct stage_time {
    double blocks, head, again; /* head: 1: it has the output layer; seconds of recomputing */
    double forward, work;       /* seconds of a micro-batch: forward, and all */
    double data, update;        /* seconds of a step: messages that nothing hides, update */
} stage_time;

/* Computes the time of one stage. The reduction of gradients and the gathering of parameters
 * overlap with backward and forward, except for one block, which has nothing beside it. */
static void time_stage(const trmi_plan_problem *problem, const trmi_parallelism *p,
                       const trmi_block_price price[2], int64_t s, stage_time *out) {
    const trmi_transformer *t = problem->model;
    const trmi_block_price *b = &price[0], *head = &price[1];
    const bool last = s == p->stages - 1;
    double seconds[2], blocks = (double)trmi_stage_count(t, p, s),
                       again = trmi_stage_recompute(problem, p, price, s).seconds;
    sum_stage(blocks, last, price, again, seconds);
    *out = (stage_time){.blocks = blocks,
                        .head = last,
                        .again = again,
                        .forward = seconds[0],
                        .work = seconds[0] + seconds[1]};
    /* the last bucket of gradients and the first one of parameters have nothing beside them */
    double beside = 1 - 1 / fmax(blocks, 1);
    const double window[2] = {seconds[0] * beside, seconds[1] * beside};
    /* Replicas of dense parameters, and those of one rank's experts. */
    const trmi_device_group all = {p->data * p->context, p->tensor},
                            same = {problem->devices / p->stages / p->experts, p->experts};
    double tables = p->stages == 1 && !t->tied ? 2 : s == 0 || last,
           own = blocks * b->parameters + tables * head->parameters, experts = blocks * b->experts;
    trmi_parameter_messages messages = {{0}, {0}};
    trmi_add_messages(problem, p->zero, all, own, 1, &messages);
    if (experts > 0) {
        trmi_add_messages(problem, p->zero, same, experts, 1, &messages);
    }
    out->data = price_messages(problem, p->micro_count, &messages, window);
    double updated =
        p->zero >= 1 ? own / (double)all.ranks + experts / (double)same.ranks : own + experts;
    out->update = trmi_hardware_stream(problem->hardware, TRMI_UPDATE_BYTES * updated, 1);
}

/* Finds the stage that ends a step last, with its gradients and its update. Returns the seconds of
 * a micro-batch in all stages. */
static double find_last_to_end(const trmi_plan_problem *problem, const trmi_parallelism *p,
                               const trmi_block_price price[2], stage_time *out) {
    const double each = (double)p->micro_count - 1 / (double)p->chunks;
    double total = 0, longest = -1;
    int64_t before = -1;
    stage_time at = {0};
    for (int64_t s = 0; s < p->stages; s++) {
        /* stages differ in blocks by the first and the last one only, or by one block; in tables
         * and output layer; and in what they recompute, if each of them decides by itself */
        int64_t blocks = trmi_stage_count(problem->model, p, s);
        if (p->by_stage || s <= 1 || blocks != before || s == p->stages - 1) {
            time_stage(problem, p, price, s, &at);
        }
        before = blocks;
        total += at.work;
        double seconds = each * at.work + at.data + at.update;
        if (seconds > longest) {
            longest = seconds;
            *out = at;
        }
    }
    return total;
}

/* Contract in parallelism.h. A step takes, for each stage, all its micro-batches, one micro-batch
 * of the other stages, divided by the chunks, its messages and its update; the stage for which this
 * is most decides. Messages of stages and the bubble follow from the schedule. */
void trmi_step_price_of(const trmi_plan_problem *problem, const trmi_parallelism *p,
                        const trmi_block_price price[2], trmi_step_cost *out) {
    const trmi_transformer *t = problem->model;
    const trmi_hardware *h = problem->hardware;
    const trmi_block_price *b = &price[0], *head = &price[1];
    double micros = (double)p->micro_count, stages = (double)p->stages;
    stage_time at = {0};
    *out = (trmi_step_cost){0};
    double total = find_last_to_end(problem, p, price, &at), blocks = micros * at.blocks,
           heads = micros * at.head, *part = out->part;
    for (int i = 0; i < 2; i++) {
        part[TRMI_PART_PRODUCTS] += blocks * b->products[i] + heads * head->products[i];
        part[TRMI_PART_ATTENTION] += blocks * b->attention[i];
        part[TRMI_PART_ELEMENTWISE] += blocks * b->elementwise[i] + heads * head->elementwise[i];
        part[TRMI_PART_TENSOR] += blocks * b->tensor[i] + heads * head->tensor[i];
        part[TRMI_PART_CONTEXT] += blocks * b->context[i];
        part[TRMI_PART_EXPERT] += blocks * b->expert[i];
    }
    part[TRMI_PART_RECOMPUTE] = micros * at.again;
    /* A micro-batch crosses each boundary forward and backward; the bubble is the time of the
     * stages' first and last micro-batch. */
    if (p->stages > 1) {
        double bytes = 2 * (double)(p->micro_batch * t->context) * (double)t->width /
                       (double)(p->context * p->tensor);
        out->message = trmi_hardware_send(h, problem->devices / p->stages, bytes);
        part[TRMI_PART_STAGES] =
            (1 - h->hide_stage) * out->message * 2 * (micros * (double)p->chunks + stages - 1);
        part[TRMI_PART_BUBBLE] = (total - at.work) / (double)p->chunks;
    }
    out->forward = at.forward;
    out->backward = at.work - at.forward;
    part[TRMI_PART_DATA] = at.data;
    part[TRMI_PART_UPDATE] = at.update;
    part[TRMI_PART_OTHER] = h->step;
    for (int i = 0; i < TRMI_PARTS; i++) {
        out->seconds += part[i];
    }
    price_memory(problem, p, price, out);
    out->bytes += h->reserved;
}

void trmi_step_price(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                     trmi_step_cost *out) {
    trmi_block_price price[2];
    trmi_block_price_of(problem, plan, &price[0], &price[1]);
    trmi_step_price_of(problem, plan, price, out);
}

double trmi_plan_utilisation(const trmi_plan_problem *problem, double seconds) {
    double tokens = (double)problem->batch * (double)problem->model->context;
    return tokens * trmi_transformer_flops(problem->model) / seconds /
           ((double)problem->devices * problem->hardware->flops[problem->type]);
}

/* Contract in parallelism.h. */
trm_status trmi_step_play(const trmi_plan_problem *problem, const trmi_parallelism *p,
                          const trmi_step_cost *cost, trmi_played_step *out, trm_error *err) {
    trmi_block_price price[2]; /* of a block; of the output layer */
    *out = (trmi_played_step){.seconds = 0};
    int64_t runs = p->stages * p->chunks;
    trmi_pipeline_order order = p->gpipe        ? TRMI_ORDER_GPIPE
                                : p->chunks > 1 ? TRMI_ORDER_INTERLEAVED
                                                : TRMI_ORDER_1F1B;
    TRMI_TRY(trmi_pipeline_create(order, (int32_t)p->stages, (int32_t)p->chunks,
                                  (int32_t)p->micro_count, &out->pipeline, err));
    size_t actions = (size_t)p->stages * (size_t)out->pipeline.count;
    double *forward = trmi_alloc(2 * (size_t)runs * sizeof *forward), *backward;
    out->starts = trmi_alloc((2 * actions + (size_t)p->stages) * sizeof *out->starts);
    trmi_pipeline_edge *edges = trmi_alloc((size_t)runs * 2 * sizeof *edges);
    trm_status status = forward != NULL && out->starts != NULL && edges != NULL
                            ? TRM_OK
                            : TRMI_NO_MEMORY(err, "to play a schedule");
    if (status == TRM_OK) {
        backward = forward + runs;
        out->ends = out->starts + actions;
        out->after = out->ends + actions;
        trmi_block_price_of(problem, p, &price[0], &price[1]);
        for (int64_t s = 0; s < p->stages; s++) {
            stage_time at;
            time_stage(problem, p, price, s, &at);
            out->after[s] = at.data + at.update;
        }
        /* Seconds of one micro-batch in each run, forward and backward; backward has the
         * recompute. */
        for (int64_t v = 0; v < runs; v++) {
            const trmi_stage_again all = trmi_stage_recompute(problem, p, price, v % p->stages);
            double blocks = (double)trmi_run_blocks(problem->model, p, v), head = v == runs - 1,
                   again = fmin(all.full / (double)p->chunks, blocks),
                   selective = fmin(all.selective / (double)p->chunks, blocks - again);
            forward[v] = blocks * sum_phase(&price[0], 0) + head * sum_phase(&price[1], 0);
            backward[v] = blocks * sum_phase(&price[0], 1) + head * sum_phase(&price[1], 1) +
                          again * price[0].full + selective * price[0].selective;
        }
        /* A message between neighbouring runs takes the part that computation does not hide. */
        int32_t count = trmi_pipeline_chain(&out->pipeline, edges);
        for (int32_t i = 0; i < count; i++) {
            edges[i].seconds = (1 - problem->hardware->hide_stage) * cost->message;
        }
        trmi_pipeline_play play = {.forward = forward,
                                   .backward = backward,
                                   .after = out->after,
                                   .starts = out->starts,
                                   .ends = out->ends};
        status = trmi_pipeline_run(&out->pipeline, edges, count, &play, err);
        out->seconds = play.seconds + cost->part[TRMI_PART_OTHER];
    }
    trmi_free(edges);
    trmi_free(forward);
    return status;
}

void trmi_played_step_free(trmi_played_step *step) {
    trmi_free(step->starts);
    trmi_pipeline_free(&step->pipeline);
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *trmi_step_part_name(trmi_step_part part) {
    static const char *const names[TRMI_PARTS] = {
        "products",        "attention",        "elementwise",     "recompute",
        "tensor_messages", "context_messages", "expert_messages", "stage_messages",
        "bubble",          "data_messages",    "update",          "other"};
    return names[part];
}

const char *trmi_memory_part_name(trmi_memory_part part) {
    static const char *const names[TRMI_MEMORY_PARTS] = {"parameters", "gradients", "optimizer",
                                                         "kept", "work"};
    return names[part];
}
