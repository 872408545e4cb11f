/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses among the plans that the search predicts to be nearly as fast as the best.
 *
 *      trmi_ties_add      candidates, without equal ones
 *      trmi_ties_narrow   at most PLANS of them that differ, and as many as the time allows
 *      trmi_ties_run      reads the result of an earlier run, or runs them (plan_benchmark.c), and
 *                          keeps the result in the tuning cache
 *      trmi_ties_choose   data parallel if it is as good as the fastest, else the predicted best
 *                          if it is as good, else the fastest
 *
 * Predictions err by a few percent; runs of the whole step decide between close plans. */
#include "exec/autoparallel/near_ties.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/os.h"
#ifdef TRIREME_ONEDNN
#include "exec/cpu/tuning/tuning.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plans that are run, steps of one in a turn at most, and turns without which no plan is judged. */
enum { PLANS = 5, STEPS_MOST = 8, TURNS_LEAST = 4 };
/* The default time limit: steps_tried predicted steps, but at least `shortest` and at most
 * `longest` seconds, or steps_long steps where these take longer. */
static const double shortest = 3, longest = 40, steps_tried = 240, steps_long = 60;
/* Plans of one mesh whose predictions differ by less (a fraction) are taken as alike. */
static const double alike = 0.01;
/* Seconds that the steps of one turn should take. */
static const double turn = 0.05;
/* Seconds of a step from which one step makes a turn: what another plan has left in the caches
 * costs a shorter step a part of its time that matters. */
static const double long_step = 0.5;
/* Turns may take this much longer than predicted, and still end in time. */
static const double margin = 1.5;
/* The most by which a simpler plan may be slower and still be chosen. A larger resolution means
 * that the machine is busy, not that the plans are equal. */
static const double cautious = 0.02;

double trmi_ties_seconds(trm_switch trials, double limit, double step) {
    double usual = fmin(longest, fmax(shortest, steps_tried * step));
    return trials == TRM_OFF ? 0 : limit > 0 ? limit : fmax(usual, steps_long * step);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Contract in near_ties.h. Plans are equal if their texts are; the one that stays takes over what
 * marks it for the choice: that it is data parallel, or that a user wrote it. */
trm_status trmi_ties_add(trmi_near_ties *t, const trmi_partition_plan *plan,
                         const trmi_tied_plan *about, trm_error *err) {
    char *text = trmi_partition_plan_text(plan);
    if (text == NULL) {
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    for (int32_t i = 0; i < t->count; i++) {
        if (strcmp(t->list[i].text, text) == 0) {
            t->list[i].simple = t->list[i].simple || about->simple;
            t->list[i].by_hand = t->list[i].by_hand || about->by_hand;
            trm_free(text);
            return TRM_OK;
        }
    }
    if (t->count == (int32_t)(sizeof t->list / sizeof *t->list)) {
        trm_free(text);
        return TRM_OK;
    }
    t->list[t->count] = *about;
    t->list[t->count++].text = text;
    return TRM_OK;
}

void trmi_ties_free(trmi_near_ties *t) {
    for (int32_t i = 0; i < t->count; i++) {
        trm_free(t->list[i].text);
    }
    t->count = 0;
}

void trmi_ties_drop(trmi_near_ties *t, int32_t index) {
    trm_free(t->list[index].text);
    memmove(&t->list[index], &t->list[index + 1], (size_t)(t->count - 1 - index) * sizeof *t->list);
    t->count--;
}

/* Compares plans by predicted time, then by text, so that all ranks sort equal predictions
 * alike. */
static int by_prediction(const void *a, const void *b) {
    const trmi_tied_plan *x = a, *y = b;
    return x->predicted != y->predicted
               ? (x->predicted > y->predicted) - (x->predicted < y->predicted)
               : strcmp(x->text, y->text);
}

/* Returns whether a plan is worth a run beside the first `count` of the list: of one mesh, a plan
 * predicted equally fast would use a turn and tell nothing new. */
static bool differs_from_kept(const trmi_near_ties *t, int32_t count, const trmi_tied_plan *from) {
    for (int32_t i = 0; i < count; i++) {
        if (t->list[i].group == from->group &&
            from->predicted <= t->list[i].predicted * (1 + alike)) {
            return false;
        }
    }
    return true;
}

/* Keeps the best plan, data parallel, and others that differ in predicted time, PLANS in all; all
 * within TRMI_TIES_BAND of the best. */
static void keep_few(trmi_near_ties *t) {
    int32_t kept = 0, all = t->count;
    qsort(t->list, (size_t)all, sizeof *t->list, by_prediction);
    double most = all > 0 ? t->list[0].predicted * (1 + TRMI_TIES_BAND) : 0;
    bool simple = false; /* one place is reserved for data parallel */
    /* Is data parallel within the band? */
    for (int32_t i = 0; i < all; i++) {
        simple = simple || (t->list[i].simple && t->list[i].predicted <= most);
    }
    for (int32_t i = 0; i < all; i++) {
        trmi_tied_plan *p = &t->list[i];
        /* Kept plans move to the front; `simple` is false once data parallel is among them. */
        bool other = (p->by_hand || differs_from_kept(t, kept, p)) && kept < PLANS - simple;
        if (p->predicted <= most && (p->simple || other)) {
            simple = simple && !p->simple;
            trmi_tied_plan one = *p;
            *p = t->list[kept];
            t->list[kept++] = one;
        }
    }
    while (t->count > kept) {
        trmi_ties_drop(t, t->count - 1);
    }
}

/* ---- what is known --------------------------------------------------------------------------- */

#ifdef TRIREME_ONEDNN
/* Writes the key of plan `index` in the tuning cache: a hash of all plans, the optimiser and the
 * options that change a step; threads and ranks. The result of a run is for these plans together,
 * since `behind` compares them. */
static void key_of(const trmi_near_ties *t, const trmi_op_benchmark *probe, const trmi_costs *c,
                   int32_t index, char *key, size_t size) {
    uint64_t h = TRMI_HASH_BEGIN;
    const trm_exec_options *o = probe->whole_options;
    const int32_t how[5] = {(int32_t)o->precision, o->accumulate, (int32_t)o->parallel.wire,
                            o->parallel.sync_batch_norm, (int32_t)o->parallel.cooperative};
    for (int32_t i = 0; i < t->count; i++) {
        h = trmi_hash(h, t->list[i].text, strlen(t->list[i].text) + 1);
    }
    h = trmi_hash(h, how, sizeof how);
    h = o->blocks > 0 ? trmi_hash(h, &o->blocks, sizeof o->blocks) : h;
    h = trmi_hash(h, &o->optimizer.kind, sizeof o->optimizer.kind);
    snprintf(key, size, "plan %016llx t%d x%d %d", (unsigned long long)h, c->threads, c->ranks,
             (int)index);
}
#endif

/* Reads the result of an earlier run of the same plans; false: there is none, or not of all. */
static bool load_result(trmi_near_ties *t, const trmi_op_benchmark *probe, const trmi_costs *c) {
#ifdef TRIREME_ONEDNN
    for (int32_t i = 0; i < t->count && c->file != NULL && !c->refresh; i++) {
        char key[96];
        const char *how;
        trmi_tied_plan *p = &t->list[i];
        key_of(t, probe, c, i, key, sizeof key);
        if (!trmi_tuning_find(c->file, key, &how, &p->measured) ||
            sscanf(how, "turns %d;behind %lf;resolution %lf", &t->turns, &p->behind,
                   &p->resolution) != 3) {
            t->turns = 0;
            t->kept = false;
            break;
        }
        t->kept = true;
    }
#else
    (void)t, (void)probe, (void)c;
#endif
    return t->kept;
}

/* Writes the result to the tuning cache; an error only means that it is measured again. */
static void store_result(const trmi_near_ties *t, const trmi_op_benchmark *probe, trmi_costs *c) {
#ifdef TRIREME_ONEDNN
    trm_error ignored;
    for (int32_t i = 0; i < t->count && c->file != NULL; i++) {
        char key[96], how[80];
        const trmi_tied_plan *p = &t->list[i];
        key_of(t, probe, c, i, key, sizeof key);
        snprintf(how, sizeof how, "turns %d;behind %.5f;resolution %.5f", (int)t->turns, p->behind,
                 p->resolution);
        trmi_tuning_add(c->file, key, how, p->measured);
    }
    if (c->file != NULL) {
        (void)trmi_tuning_save(c->file, &ignored);
    }
#else
    (void)t, (void)probe, (void)c;
#endif
}

/* ---- run and choose -------------------------------------------------------------------------- */

/* Returns how many steps a plan runs in each turn: about `turn` seconds. */
static int32_t steps_of(const trmi_near_ties *t) {
    double steps = ceil(turn / fmax(1e-6, t->list[0].predicted));
    int32_t least = t->list[0].predicted < long_step ? 2 : 1;
    return steps < least ? least : steps > STEPS_MOST ? STEPS_MOST : (int32_t)steps;
}

/* Returns the seconds that the least number of turns of `count` plans takes, with creation. Steps
 * may take longer than predicted, and turns that do not end in time are lost. */
static double least_seconds(const trmi_near_ties *t, int32_t count) {
    const int32_t first = 2; /* steps of a new executor */
    return margin * count * (first + TURNS_LEAST * (1 + steps_of(t))) * t->list[0].predicted;
}

void trmi_ties_narrow(trmi_near_ties *t, double seconds) {
    keep_few(t);
    /* drop the slowest, but keep data parallel: with two plans left it is the second */
    while (t->count > 1 && least_seconds(t, t->count) > seconds) {
        trmi_ties_drop(t,
                       t->list[t->count - 1].simple && t->count > 2 ? t->count - 2 : t->count - 1);
    }
}

/* Runs the plans in turns on all ranks, within `seconds`. If all of them together exceed `memory`,
 * one is in memory at a time. Too few turns: t->turns stays 0 and predictions decide. */
static trm_status run_benchmark(trmi_near_ties *t, trmi_op_benchmark *probe, double seconds,
                                double memory, trm_error *err) {
    trmi_plan_benchmark benchmark = {.count = t->count,
                                     .steps = steps_of(t),
                                     .seconds = seconds,
                                     .useful = TURNS_LEAST,
                                     .fine = TRMI_TIES_FINE};
    trmi_plan_times result;
    double all = 0, begin = trmi_os_now(), ranks = trm_comm_local_size(probe->comm);
    /* Memory of all plans together decides whether they can be loaded at the same time. */
    for (int32_t i = 0; i < t->count; i++) {
        benchmark.plans[i] = t->list[i].text;
        all += t->list[i].bytes;
    }
    benchmark.one_at_a_time =
        all > (memory > 0 ? memory : 0.5 * (double)trmi_os_memory_bytes() / ranks);
    trmi_log(TRM_LOG_INFO, "plan",
             "%d plans are predicted within %.0f %% of each other: they are run in turns, %.0f s "
             "at most",
             (int)t->count, 100 * (t->list[t->count - 1].predicted / t->list[0].predicted - 1),
             seconds);
    TRMI_TRY(trmi_op_benchmark_plans(probe, &benchmark, &result, err));
    t->seconds = trmi_os_now() - begin;
    if (result.turns < TURNS_LEAST) {
        trmi_log(TRM_LOG_INFO, "plan",
                 "%d turns of %d do not fit into %.0f s (found after %.1f s): predictions decide",
                 (int)TURNS_LEAST, (int)t->count, seconds, t->seconds);
        return TRM_OK;
    }
    /* How far each plan is behind the fastest, and how large a difference the turns can resolve. */
    int32_t first = trmi_plan_benchmark_fastest(&result, t->count);
    for (int32_t i = 0; i < t->count; i++) {
        t->list[i].measured = result.seconds[i];
        t->list[i].behind = trmi_plan_benchmark_behind(&result, i, first, &t->list[i].resolution);
    }
    t->turns = result.turns;
    return TRM_OK;
}

/* Returns whether a plan cannot be distinguished from the fastest. */
static bool as_good(const trmi_tied_plan *p) { return p->behind <= fmin(p->resolution, cautious); }

void trmi_ties_choose(trmi_near_ties *t) {
    int32_t fastest = 0;
    for (int32_t i = t->count - 1; i >= 0; i--) {
        fastest = t->list[i].behind <= t->list[fastest].behind ? i : fastest;
    }
    t->chosen = as_good(&t->list[0]) ? 0 : fastest;
    for (int32_t i = 0; i < t->count; i++) {
        t->chosen = t->list[i].simple && as_good(&t->list[i]) ? i : t->chosen;
    }
}

/* Contract in near_ties.h. A stored result of the same plans is used first, so that a job that
 * starts again takes the same plan and computes the same bits. On a busy machine nothing is run:
 * differences of a few percent could not be told from the load. */
trm_status trmi_ties_run(trmi_near_ties *t, trmi_op_benchmark *probe, trmi_costs *costs,
                         double seconds, double memory, trm_error *err) {
    t->chosen = 0;
    if (t->count < 2 || probe->comm == NULL || probe->whole == NULL) {
        return TRM_OK;
    }
    if (!load_result(t, probe, costs)) {
        TRMI_TRY(trmi_op_benchmark_load(probe, err));
        if (probe->load > TRMI_COSTS_BUSY) {
            trmi_log(TRM_LOG_INFO, "plan",
                     "others load this machine (threads take %.1f times as long): %d plans that "
                     "are predicted alike are "
                     "not run, predictions decide",
                     probe->load, (int)t->count);
            return TRM_OK;
        }
        TRMI_TRY(run_benchmark(t, probe, seconds, memory, err));
        store_result(t, probe, costs);
    }
    /* measured now or earlier: the times decide */
    if (t->turns > 0) {
        trmi_ties_choose(t);
    }
    return TRM_OK;
}
