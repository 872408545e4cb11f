/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the algorithm for a convolution problem:
 *
 *      blocks of samples     --> by rule: the matrix products, whose sums depend on no batch size
 *      the run has kept one  --> that one, so that a resumed run has the same bits
 *      tuning file knows     --> that one; a guess of an earlier process too, unless this one is to measure (retune_seconds)
 *      there is a file       --> those that the built-in model puts within reach of the best are timed
 *                                while the process's trial time lasts: long, and on whole batches,
 *                                where it is to measure
 *      otherwise             --> the model's best, the same in every run; the tuning file has it as a guess then
 */
#define _GNU_SOURCE
#include "exec/cpu/conv/conv.h"

#include "exec/cpu/tuning/tuning.h"

#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>

const trmi_conv_algorithm *const trmi_conv_algorithms[] = {
    &trmi_conv_winograd,       &trmi_conv_winograd_pairs,
    &trmi_conv_winograd_gradw, &trmi_conv_winograd_gradw_pairs,
    &trmi_conv_gather_gemm,    &trmi_conv_gradw_gemm,
    &trmi_conv_gather_pairs,   &trmi_conv_gradw_pairs,
    &trmi_conv_dnnl,           NULL};

/* Algorithms in the table, and timed runs of each candidate (the best counts). */
enum { ALGORITHMS = sizeof trmi_conv_algorithms / sizeof trmi_conv_algorithms[0] - 1, TRIALS = 3 };

static const double reach = 1.3;       /* algorithms up to so many times the best guess are timed */
static const double trial_flops = 5e8; /* of one trial run */
static const double trial_seconds = 0.3; /* budget of a process; then guesses decide */
/* a process with at least this budget times whole batches */
static const double whole_problems = 1;
static const double reference_flops = 5e7; /* a second, of the reference kernels */
static const double behind = 1.5; /* an algorithm so many times slower is not timed further */
/* an algorithm must be so many times faster to replace one with a better guess */
static const double equal = 1.03;

/* Lists the algorithms that can solve the problem, with their guesses, the fastest guess first.
 * Returns how many. */
static int rank_algorithms(const trmi_conv_problem *p, int threads,
                           const trmi_conv_algorithm *out[ALGORITHMS], double seconds[ALGORITHMS]) {
    int count = 0;
    for (int i = 0; i < ALGORITHMS; i++) {
        const trmi_conv_algorithm *a = trmi_conv_algorithms[i];
        bool by_rule = a == &trmi_conv_gather_gemm || a == &trmi_conv_gradw_gemm;
        if (!a->can(p) || (p->blocks > 0 && !by_rule)) {
            continue;
        }
        double t = a->guess(p, threads);
        int at = count++;
        for (; at > 0 && seconds[at - 1] > t; at--) {
            seconds[at] = seconds[at - 1];
            out[at] = out[at - 1];
        }
        seconds[at] = t;
        out[at] = a;
    }
    return count;
}

/* ---- trials ---------------------------------------------------------------------------------- */

/* Return the bytes of some elements, of the image and of the result. */
static int64_t bytes_of(int64_t count, trm_dtype type) {
    return count * (int64_t)trm_dtype_bytes(type);
}

static int64_t image_bytes(const trmi_conv_problem *p) {
    return bytes_of(trmi_conv_image_count(p), p->image_type);
}

static int64_t result_bytes(const trmi_conv_problem *p) {
    return bytes_of(trmi_conv_result_count(p), p->result_type);
}

/* Returns the same problem with fewer images, so that a trial takes about trial_flops. A tensor
 * that exceeds the caches still does. */
static trmi_conv_problem smaller_problem(const trmi_conv_problem *p) {
    trmi_conv_problem s = *p;
    double images = trial_flops / (trmi_conv_flops(p) / (double)p->n);
    int64_t largest = trmi_max_i64(image_bytes(p), result_bytes(p));
    if (largest > TRMI_STREAM_BYTES) {
        double least =
            (double)(TRMI_STREAM_BYTES + largest / p->n) / ((double)largest / (double)p->n);
        images = images < least ? least : images;
    }
    if (images < (double)p->n) {
        s.n = trmi_min_i64(p->n, trmi_max_i64(4, (int64_t)images + 1));
    }
    return s;
}

/* Returns whether times of the smaller problem are proportional to those of the whole. They are not
 * if the weights, which are packed once for all images, are as large as the images. */
static bool is_telling(const trmi_conv_problem *part, const trmi_conv_problem *whole) {
    int64_t weights = bytes_of(trmi_conv_weights_count(part), TRM_FLOAT32);
    return part->n == whole->n || weights <= (image_bytes(part) + result_bytes(part)) / 2;
}

/* Evicts memory from the caches, which is its state when the next training step uses it. */
static void evict_from_caches(const char *at, int64_t bytes) {
#if defined(__x86_64__)
    /* every CPU with AVX-512 has the instruction */
    int64_t lines = trmi_cpu()->avx512 ? trmi_pieces(bytes, 64) : 0;
    for (int64_t i = 0; i < lines; i++) {
        __asm__ volatile("clflushopt %0" : : "m"(at[64 * i]) : "memory");
    }
    __asm__ volatile("mfence" : : : "memory");
#else
    (void)at;
    (void)bytes;
#endif
}

/* Sets up the tensors and the scratch of a trial, in memory that is kept between trials. Returns
 * NULL if there is no memory. */
static char *trial_memory(trmi_onednn *backend, const trmi_conv_problem *p, int64_t scratch,
                          trmi_conv_args *args) {
    /* Each tensor begins on a page, as in an arena. */
    int64_t x = trmi_round_up(image_bytes(p), 4096), y = trmi_round_up(result_bytes(p), 4096);
    int64_t w = trmi_round_up(bytes_of(trmi_conv_weights_count(p), p->weights_type), 4096);
    int64_t b = trmi_round_up(p->o * 4, 4096), bytes = x + w + y + b + scratch;
    if (bytes > backend->trial_bytes) {
        trmi_free(backend->trial);
        backend->trial = trmi_alloc((size_t)bytes);
        backend->trial_bytes = backend->trial == NULL ? 0 : bytes;
        if (backend->trial == NULL) {
            return NULL;
        }
        memset(backend->trial, 0x3F, (size_t)bytes); /* 0.75 as float32 and as bfloat16 */
    }
    char *at = backend->trial;
    *args = (trmi_conv_args){.image = at,
                             .weights = at + x,
                             .result = at + x + w,
                             .bias = (float *)(at + x + w + y),
                             .scratch = at + x + w + y + b};
    return at;
}

typedef struct candidate {
    const trmi_conv_algorithm *algorithm;
    void *state;
    int64_t scratch;
    double best; /* shortest run in seconds; negative = a run failed */
} candidate;

/* Returns the time of the calling thread: CPU time with one thread, which other processes do not
 * disturb; else wall-clock time. */
static double trial_clock(const trmi_onednn *backend) {
    return backend->threads == 1 ? trmi_os_thread_now() : trmi_os_now();
}

/* Returns the seconds of one run of a candidate, with cold caches where a step has them; negative:
 * it failed. */
static double run_once(trmi_onednn *backend, const candidate *c, const trmi_conv_problem *p) {
    trmi_conv_args args;
    if (trial_memory(backend, p, c->scratch, &args) == NULL) {
        return -1;
    }
    bool large = image_bytes(p) > TRMI_STREAM_BYTES || result_bytes(p) > TRMI_STREAM_BYTES;
    /* when weight gradients are computed, the image was last used in forward, long ago */
    if (large || p->direction == TRMI_CONV_WEIGHTS) {
        evict_from_caches(args.image, image_bytes(p));
    }
    if (large) {
        evict_from_caches(args.result, result_bytes(p));
    }
    double begin = trial_clock(backend);
    return c->algorithm->run(c->state, &args, NULL) == TRM_OK ? trial_clock(backend) - begin : -1;
}

/* Times the candidates in rounds, in turn, so that a busy machine disturbs all alike. Round 0 warms
 * up. A candidate that is clearly slower after two rounds is not run again; not after one round,
 * which may have been interrupted. */
static void time_candidates(trmi_onednn *backend, const trmi_conv_problem *p, candidate *c,
                            int count) {
    double first = -1;
    for (int round = 0; round <= TRIALS; round++) {
        for (int i = 0; i < count; i++) {
            if (c[i].best < 0 || (round > 1 && c[i].best > behind * first)) {
                continue;
            }
            double t = run_once(backend, &c[i], p);
            c[i].best = t < 0 || round == 0 || t < c[i].best ? t : c[i].best;
        }
        first = -1;
        for (int i = 0; i < count; i++) {
            first = c[i].best >= 0 && (first < 0 || c[i].best < first) ? c[i].best : first;
        }
    }
}

/* Returns the fastest candidate; of nearly equal ones (`equal`) the one with the best guess, which
 * comes first. NULL: none ran. */
static const candidate *winner_of(const candidate *c, int count) {
    const candidate *winner = NULL;
    for (int i = 0; i < count; i++) {
        if (c[i].best >= 0 && (winner == NULL || c[i].best * equal < winner->best)) {
            winner = &c[i];
        }
    }
    return winner;
}

/* Times the candidates within reach, enters the winner in the tuning file and returns it; NULL: no
 * candidate ran, or a trial would not be representative. */
static const trmi_conv_algorithm *measure_candidates(trmi_onednn *backend,
                                                     const trmi_conv_problem *p, const char *key) {
    const trmi_conv_algorithm *order[ALGORITHMS], *choice = NULL;
    candidate c[ALGORITHMS];
    double guess[ALGORITHMS], begin = trmi_os_now();
    int count = rank_algorithms(p, backend->threads, order, guess), created = 0;
    trmi_conv_problem part = backend->retune_seconds >= whole_problems ? *p : smaller_problem(p);
    /* Whole problems would take too long, so a trial has fewer samples unless there is time for
     * all. */
    if (!is_telling(&part, p)) {
        return NULL;
    }
    /* In order of the guessed time, up to `reach` times the best guess; an algorithm that cannot be
     * created is left out. */
    for (int i = 0; i < count && (created == 0 || guess[i] <= guess[0] * reach); i++) {
        candidate *next = &c[created];
        *next = (candidate){.algorithm = order[i]};
        created += order[i]->create(order[i], backend, &part, &next->state, &next->scratch, NULL) ==
                   TRM_OK;
    }
    time_candidates(backend, &part, c, created);
    const candidate *winner = winner_of(c, created);
    if (winner != NULL) {
        choice = winner->algorithm;
        trmi_tuning_add(backend->tuning, key, choice->name,
                        winner->best * (double)p->n / (double)part.n);
    }
    for (int i = 0; i < created; i++) {
        c[i].algorithm->destroy(c[i].state);
    }
    backend->trial_seconds += trmi_os_now() - begin;
    return choice;
}

void trmi_onednn_trials_done(trmi_onednn *backend) {
    trmi_free(backend->trial);
    backend->trial = NULL;
    backend->trial_bytes = 0;
    (void)trmi_tuning_save(backend->tuning, NULL); /* a choice that cannot be kept is made again */
    if (backend->kept != NULL) {
        (void)trmi_tuning_save(backend->kept, NULL);
    }
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* Returns the algorithm that a file names; NULL if it is unknown or cannot solve this problem: the
 * file may be of another version or another CPU. */
static const trmi_conv_algorithm *by_name(const trmi_conv_problem *p, const char *name) {
    for (int i = 0; i < ALGORITHMS; i++) {
        if (strcmp(trmi_conv_algorithms[i]->name, name) == 0 && trmi_conv_algorithms[i]->can(p)) {
            return trmi_conv_algorithms[i];
        }
    }
    return NULL;
}

/* Returns the choice of the tuning file, after adding one if it has none; NULL: no algorithm can
 * solve the problem. Measured choices are entered as "name", guesses as "~name". Later processes
 * use guesses, too, unless they are to measure (retune_seconds). */
static const trmi_conv_algorithm *tuned_choice(trmi_onednn *backend, const trmi_conv_problem *p,
                                               const char *key, double *seconds) {
    const trmi_conv_algorithm *order[ALGORITHMS], *choice = NULL;
    double guess[ALGORITHMS];
    char guessed[64];
    const char *name;
    bool found = trmi_tuning_find(backend->tuning, key, &name, seconds);
    if (found && (name[0] != '~' || backend->retune_seconds <= 0) &&
        (choice = by_name(p, name + (name[0] == '~'))) != NULL) {
        return choice;
    }
    /* Measure while the process has time left for trials, and only with a file, from which later
     * processes take the same choice. */
    double allowed = backend->retune_seconds > 0 ? backend->retune_seconds : trial_seconds;
    if (trmi_tuning_has_file(backend->tuning) && backend->trial_seconds <= allowed) {
        choice = measure_candidates(backend, p, key);
    }
    if (choice == NULL) {
        if (rank_algorithms(p, backend->threads, order, guess) == 0) {
            return NULL;
        }
        choice = order[0];
        snprintf(guessed, sizeof guessed, "~%s", choice->name);
        trmi_tuning_add(backend->tuning, key, guessed, guess[0]);
    }
    /* read the seconds back, rounded as the next process reads them */
    (void)trmi_tuning_find(backend->tuning, key, &name, seconds);
    return choice;
}

/* Returns the algorithm to try first and its seconds: the one that the run has kept, else that of
 * the tuning file, which is then kept for the run. NULL: no algorithm can solve the problem. */
static const trmi_conv_algorithm *kept_choice(trmi_onednn *backend, const trmi_conv_problem *p,
                                              double *seconds) {
    const trmi_conv_algorithm *choice, *order[ALGORITHMS];
    double guess[ALGORITHMS];
    char key[256];
    const char *name;
    /* Strict mode does not depend on measurements, which differ between machines: the guess
     * decides. */
    if (p->blocks > 0) {
        bool any = rank_algorithms(p, backend->threads, order, guess) > 0;
        *seconds = any ? guess[0] : trmi_conv_flops(p) / reference_flops;
        return any ? order[0] : NULL;
    }
    trmi_conv_key(p, key, sizeof key);
    if (backend->kept != NULL && trmi_tuning_find(backend->kept, key, &name, seconds) &&
        (choice = by_name(p, name)) != NULL) {
        return choice;
    }
    choice = tuned_choice(backend, p, key, seconds);
    if (choice != NULL && backend->kept != NULL) {
        trmi_tuning_add(backend->kept, key, choice->name, *seconds);
    }
    return choice;
}

/* Contract in conv.h. An algorithm that cannot be created for want of support gives way to the next
 * one of the ranking; other errors (no memory) end the search. */
trm_status trmi_conv_choose(trmi_onednn *backend, const trmi_conv_problem *p,
                            const trmi_conv_algorithm **out, void **state, int64_t *scratch,
                            trm_error *err) {
    const trmi_conv_algorithm *order[ALGORITHMS];
    double guess[ALGORITHMS], seconds;
    const trmi_conv_algorithm *first = kept_choice(backend, p, &seconds);
    if (first != NULL && first->create(first, backend, p, state, scratch, err) == TRM_OK) {
        *out = first;
        return TRM_OK;
    }
    int count = rank_algorithms(p, backend->threads, order, guess);
    trm_status status = TRMI_FAIL(err, TRM_UNSUPPORTED, "no algorithm for this convolution");
    for (int i = 0; i < count && status == TRM_UNSUPPORTED; i++) {
        *out = order[i];
        status = order[i]->create(order[i], backend, p, state, scratch, err);
    }
    return status;
}

double trmi_conv_seconds(trmi_onednn *backend, const trmi_conv_problem *p) {
    double seconds;
    return kept_choice(backend, p, &seconds) != NULL || p->blocks > 0 ? seconds : -1;
}

/* Contract in conv.h. The planner asks this for each convolution, so nothing is created where the
 * answer is known without. */
bool trmi_conv_possible(trmi_onednn *backend, const trmi_conv_problem *p) {
    const trmi_conv_algorithm *order[ALGORITHMS];
    double guess[ALGORITHMS];
    int count = rank_algorithms(p, backend->threads, order, guess);
    for (int i = 0; i < count; i++) {
        if (order[i] != &trmi_conv_dnnl) {
            return true; /* create of our own algorithms succeeds where `can` is true */
        }
        void *state = NULL;
        int64_t scratch;
        if (order[i]->create(order[i], backend, p, &state, &scratch, NULL) == TRM_OK) {
            order[i]->destroy(state);
            return true;
        }
    }
    return false;
}
