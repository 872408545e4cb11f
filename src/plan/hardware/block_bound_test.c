/* SPDX-License-Identifier: Apache-2.0 */
/* The bound over plans whose blocks differ, against complete enumeration: each block has a cut, a
 * ZeRO stage and a way of recompute of its own. Prices of such plans are written anew here. */
#include "plan/hardware/parallelism.h"

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { DECISIONS = 400, LAYERS = 4 };

static const char machine[] =
    "{\"name\":\"test\",\"device\":{\"memory_bytes\":80e9,\"bytes_per_second\":3e12,"
    "\"memory_efficiency\":0.8,\"flops\":{\"bf16\":1e15},"
    "\"efficiency\":[[1e-5,0.3],[1e-3,0.7]],\"attention_forward\":0.5,\"attention_backward\":0.4},"
    "\"links\":[{\"name\":\"node\",\"devices\":2,\"bytes_per_second\":4e11,\"latency_seconds\":5e-"
    "6},"
    "{\"name\":\"net\",\"devices\":65536,\"bytes_per_second\":5e10,\"latency_seconds\":1e-5}],"
    "\"overlap\":{\"tensor\":0.5,\"data\":0.9,\"pipeline\":0.5}}";

/* What one block does in one decision. */
typedef struct decision {
    trmi_parallelism plan;
    trmi_block_price block, head;
    double forward, backward, state, kept, work, gathered;
} decision;

typedef struct enumeration {
    const trmi_plan_problem *q;
    decision list[DECISIONS];
    int count;
    trmi_parallelism shape;
    /* seconds; cut: of plans whose blocks are cut alike; alike: that differ in recompute only */
    double best, cut, alike;
} enumeration;

static double phase_seconds(const trmi_block_price *b, int i) {
    return b->products[i] + b->attention[i] + b->elementwise[i] + b->tensor[i] + b->context[i] +
           b->expert[i];
}

static double state_of(const trmi_plan_problem *q, const trmi_parallelism *p, double parameters,
                       double copies) {
    double gradient = p->micro_count > 1 ? 4 : fmax(q->gradient_width, 2);
    return 2 * parameters / (p->zero == 3 ? copies : 1) +
           gradient * parameters / (p->zero >= 2 ? copies : 1) +
           12 * parameters / (p->zero >= 1 ? copies : 1);
}

static void add_decision(enumeration *e, const trmi_parallelism *p) {
    decision *d = &e->list[e->count++];
    assert_true(e->count <= DECISIONS);
    *d = (decision){.plan = *p};
    trmi_block_price_of(e->q, p, &d->block, &d->head);
    d->forward = phase_seconds(&d->block, 0);
    d->backward = phase_seconds(&d->block, 1) + (p->recompute == TRMI_RECOMPUTE_FULL ? d->block.full
                                                 : p->recompute == TRMI_RECOMPUTE_SELECTIVE
                                                     ? d->block.selective
                                                     : 0);
    d->kept = p->recompute == TRMI_RECOMPUTE_FULL        ? d->block.kept_full
              : p->recompute == TRMI_RECOMPUTE_SELECTIVE ? d->block.kept_selective
                                                         : d->block.kept;
    d->work = p->recompute == TRMI_RECOMPUTE_FULL ? d->block.work : 0;
    d->gathered = p->zero == 3 ? 4 * d->block.gathered : 0;
    double of_stage = (double)(e->q->devices / p->stages);
    d->state = state_of(e->q, p, d->block.parameters, (double)(p->data * p->context)) +
               state_of(e->q, p, d->block.experts, of_stage / (double)p->experts);
}

/* Lists the decisions of blocks in plans of this shape. */
static void list_decisions(enumeration *e) {
    const trmi_plan_problem *q = e->q;
    const trmi_transformer *t = q->model;
    int64_t devices = q->devices / e->shape.stages;
    e->count = 0;
    trmi_parallelism p = e->shape;
    for (p.tensor = 1; p.tensor <= devices; p.tensor *= 2) {
        for (p.context = 1; p.context * p.tensor <= devices; p.context *= 2) {
            for (p.experts = 1; p.experts <= (t->experts > 0 ? devices : 1); p.experts *= 2) {
                p.data = devices / p.tensor / p.context;
                p.micro_batch = q->batch / e->shape.micro_count / p.data;
                if (p.micro_batch * p.data * e->shape.micro_count != q->batch) {
                    continue;
                }
                for (p.zero = 0; p.zero <= q->zero; p.zero++) {
                    for (int again = 0; again <= TRMI_RECOMPUTE_FULL; again++) {
                        p.recompute = (trmi_recompute_kind)again;
                        add_decision(e, &p);
                    }
                }
            }
        }
    }
}

/* Adds messages of `bytes_of` parameters: for each micro-batch and once a step. */
static void add_message(const trmi_plan_problem *q, const trmi_parallelism *p,
                        trmi_device_group group, double parameters, double start, double once[2],
                        double each[2]) {
    double rest =
        trmi_hardware_gather(q->hardware, group, 1e9) - trmi_hardware_gather(q->hardware, group, 0);
    double scatter = start + q->gradient_width * parameters * rest / 1e9,
           gather = start + 2 * parameters * rest / 1e9;
    switch (p->zero) {
    case 0: once[1] += 2 * scatter; break;
    case 1:
        once[1] += scatter;
        once[0] += gather;
        break;
    case 2:
        each[1] += scatter;
        once[0] += gather;
        break;
    default: each[1] += scatter + gather; each[0] += gather;
    }
}

static double exposed_seconds(double message, double window, double hide) {
    return message - hide * fmin(message, window);
}

/* Returns the messages that are not hidden, and the update, of a stage of `count` blocks. */
static double price_parameters(const trmi_plan_problem *q, const trmi_parallelism *shape,
                               const decision *const *blocks, int count, double tables,
                               double forward, double backward) {
    const trmi_hardware *h = q->hardware;
    double once[2] = {0}, each[2] = {0}, updated = 0;
    for (int i = 0; i < count; i++) {
        const decision *d = blocks[i];
        const trmi_parallelism *p = &d->plan;
        const trmi_device_group all = {p->data * p->context, p->tensor},
                                same = {q->devices / shape->stages / p->experts, p->experts};
        int before = 0; /* blocks of the same decision share a message */
        for (int k = 0; k < i; k++) {
            before +=
                memcmp(&blocks[k]->plan, p, sizeof *p) == 0 ||
                (blocks[k]->plan.tensor == p->tensor && blocks[k]->plan.zero == p->zero &&
                 blocks[k]->plan.context == p->context && blocks[k]->plan.experts == p->experts);
        }
        double start = before > 0 ? 0 : trmi_hardware_gather(h, all, 0),
               own = d->block.parameters + (i == count - 1 ? tables * d->head.parameters : 0);
        add_message(q, p, all, own, start, once, each);
        if (d->block.experts > 0) {
            start = before > 0 ? 0 : trmi_hardware_gather(h, same, 0);
            add_message(q, p, same, d->block.experts, start, once, each);
        }
        updated += own / (p->zero > 0 ? (double)all.ranks : 1) +
                   d->block.experts / (p->zero > 0 ? (double)same.ranks : 1);
    }
    double beside = 1 - 1.0 / count, more = (double)shape->micro_count - 1;
    return more * (exposed_seconds(each[0], beside * forward, h->hide_data) +
                   exposed_seconds(each[1], beside * backward, h->hide_data)) +
           exposed_seconds(each[0] + once[0], beside * forward, h->hide_data) +
           exposed_seconds(each[1] + once[1], beside * backward, h->hide_data) +
           trmi_hardware_stream(h, TRMI_UPDATE_BYTES * updated, 1);
}

/* Prices one plan; blocks: of all stages. INFINITY: it does not fit. */
static double price_plan(const enumeration *e, const decision *const *blocks) {
    const trmi_plan_problem *q = e->q;
    const trmi_parallelism *p = &e->shape;
    double total = 0, most = 0, rest = q->hardware->step;
    for (int64_t s = 0, at = 0; s < p->stages; s++) {
        int count = (int)trmi_stage_count(q->model, p, s);
        bool last = s == p->stages - 1;
        double tables = p->stages == 1 && !q->model->tied ? 2 : s == 0 || last;
        double forward = 0, backward = 0, work = 0, gathered = 0, bytes = q->hardware->reserved;
        for (int i = 0; i < count; i++) {
            const decision *d = blocks[at + i];
            forward += d->forward;
            backward += d->backward;
            work = fmax(work, d->work);
            gathered = fmax(gathered, d->gathered);
            bytes += d->state + trmi_stage_flight(p, s) * d->kept;
        }
        const decision *end = blocks[at + count - 1];
        bytes += work + gathered + last * end->head.kept +
                 tables * state_of(q, &end->plan, end->head.parameters,
                                   (double)(end->plan.data * end->plan.context));
        if (bytes > q->memory) {
            return INFINITY;
        }
        forward += last * phase_seconds(&end->head, 0);
        backward += last * phase_seconds(&end->head, 1);
        total += forward + backward;
        most =
            fmax(most, ((double)p->micro_count - 1 / (double)p->chunks) * (forward + backward) +
                           price_parameters(q, p, blocks + at, count, tables, forward, backward));
        at += count;
    }
    if (p->stages > 1) {
        double bytes = 2 * (double)(q->batch / p->micro_count * q->model->context) *
                       (double)q->model->width * (double)p->stages / (double)q->devices;
        rest += (1 - q->hardware->hide_stage) *
                trmi_hardware_send(q->hardware, q->devices / p->stages, bytes) * 2 *
                (double)(p->micro_count * p->chunks + p->stages - 1);
    }
    return most + total / (double)p->chunks + rest;
}

/* Tries all decisions of the blocks from `at` on. Within a stage the order of blocks counts only
 * for the last one, which has tables and output layer. */
static void try_blocks(enumeration *e, const decision **blocks, int at) {
    if (at == e->q->model->layers) {
        double seconds = price_plan(e, blocks);
        bool cut = true, alike = true;
        for (int i = 1; i < at; i++) {
            const trmi_parallelism *a = &blocks[0]->plan, *b = &blocks[i]->plan;
            cut = cut && a->tensor == b->tensor && a->context == b->context &&
                  a->experts == b->experts;
            alike = alike && cut && a->zero == b->zero;
        }
        e->best = fmin(e->best, seconds);
        e->cut = cut ? fmin(e->cut, seconds) : e->cut;
        e->alike = alike ? fmin(e->alike, seconds) : e->alike;
        return;
    }
    for (int i = 0; i < e->count; i++) {
        blocks[at] = &e->list[i];
        try_blocks(e, blocks, at + 1);
    }
}

/* Returns the seconds of the fastest plan of all in which each block decides by itself. *cut: of
 * the fastest whose blocks are cut alike; *alike: and stored alike. */
static double find_best_of_all(const trmi_plan_problem *q, double *cut, double *alike) {
    static enumeration e;
    const decision *blocks[LAYERS];
    e.q = q;
    e.best = e.cut = e.alike = INFINITY;
    for (int64_t stages = 1; stages <= q->devices; stages++) {
        for (int64_t micros = 1; micros <= q->batch; micros++) {
            for (int64_t chunks = 1; chunks <= 2; chunks++) {
                int64_t most;
                e.shape =
                    (trmi_parallelism){.stages = stages, .chunks = chunks, .micro_count = micros};
                bool can = q->devices % stages == 0 && q->batch % micros == 0 &&
                           trmi_stage_blocks(q->model, &e.shape, &most) &&
                           (chunks == 1 || (stages > 1 && micros % stages == 0));
                if (can) {
                    list_decisions(&e);
                    try_blocks(&e, blocks, 0);
                }
            }
        }
    }
    *cut = e.cut;
    *alike = e.alike;
    return e.best;
}

/* The search finds the fastest plan whose blocks are cut and stored alike, each stage with its own
 * recompute. No plan whose blocks differ is below the bound, and where the gap is 0 none is
 * faster. */
static void test_bound(void **state) {
    static const struct {
        const char *model, *preset;
        int64_t layers, devices, batch;
        int32_t zero;
    } cases[] = {{"llama", "8b", 2, 2, 2, 3},        {"llama", "8b", 3, 2, 4, 1},
                 {"llama", "8b", 2, 4, 4, 3},        {"gpt2", "5b", 2, 4, 8, 1},
                 {"gpt2", "5b", 3, 4, 4, 0},         {"llama", "8b", 4, 2, 2, 0},
                 {"moe", "mixtral-8x7b", 2, 4, 4, 1}};
    trmi_hardware h;
    trm_error err;
    int count = 0, exact = 0, differ = 0, nearer = 0;
    double largest = 0;
    CHECK_OK(trmi_hardware_parse("test", machine, &h, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trmi_transformer t;
        trmi_parallelism_found free, found;
        char known[160];
        assert_true(trmi_transformer_preset(cases[i].model, cases[i].preset, &t, known));
        t.layers = cases[i].layers;
        trmi_plan_problem q = {&t,  &h,   cases[i].devices, cases[i].batch, TRMI_PRODUCT_BF16,
                               4.0, 1e15, cases[i].zero};
        CHECK_OK(trmi_parallelism_search(&q, &free, &err), err);
        for (int step = 0; step < 8; step++) {
            /* from all the memory that the fastest plan takes down to the least */
            double most = free.best.cost.bytes, least = free.least.cost.bytes;
            q.memory = most * pow(least / most, step / 7.0) * (1 + 1e-9);
            CHECK_OK(trmi_parallelism_search(&q, &found, &err), err);
            assert_true(found.fits);
            double objective = found.best.cost.seconds, cut, alike,
                   best = find_best_of_all(&q, &cut, &alike);
            assert_true(fabs(objective / alike - 1) < 1e-9);
            assert_true(found.bounds.all <= objective && best <= objective * (1 + 1e-9));
            assert_true(found.bounds.all <= best * (1 + 1e-9));
            assert_true(found.bounds.cut_alike >= found.bounds.all);
            assert_true(found.bounds.cut_alike <= cut * (1 + 1e-9));
            nearer += found.bounds.cut_alike > found.bounds.all;
            exact += found.bounds.all > objective * (1 - 1e-9);
            differ += best < objective * (1 - 1e-6);
            largest = fmax(largest, 1 - found.bounds.all / best);
            count++;
        }
    }
    print_message(
        "%d cases, %d without a gap; in %d plans whose blocks differ are faster; the bound "
        "is at most %.2f %% below the best of all; in %d that of blocks cut alike is nearer\n",
        count, exact, differ, 100 * largest, nearer);
    assert_true(count >= 50 && exact >= 10 && differ >= 1 && nearer >= 1);
}

/* The work is limited: thousands of devices, many kinds of blocks and a memory that binds. The
 * bound is then lower, and still one. */
static void a_large_problem_is_bounded_soon(void **state) {
    (void)state;
    trmi_hardware h;
    trm_error err;
    trmi_transformer t;
    trmi_parallelism_found found;
    char known[160];
    CHECK_OK(trmi_hardware_parse("test", machine, &h, &err), err);
    assert_true(trmi_transformer_preset("moe", "deepseek-v3-shape", &t, known));
    trmi_plan_problem q = {&t, &h, 6144, 6144, TRMI_PRODUCT_BF16, 4.0, 32e9, 3};
    clock_t begin = clock();
    CHECK_OK(trmi_parallelism_search(&q, &found, &err), err);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    print_message("%.2f s, %.4g of %.4g\n", seconds, found.bounds.all, found.best.cost.seconds);
    assert_true(found.fits && found.bounds.all > 0 && found.bounds.all <= found.best.cost.seconds);
    assert_true(seconds < 4 * check_patience());
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bound),
                                       cmocka_unit_test(a_large_problem_is_bounded_soon)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
