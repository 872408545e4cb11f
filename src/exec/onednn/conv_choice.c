/* Which algorithm for a problem:
 *
 *      tuning file knows --> that one
 *      there is a file   --> those that the built-in model puts within reach of the best are timed
 *                            on a part of the batch, while the process's trial time lasts
 *      otherwise         --> the model's best, the same in every run
 */
#include "exec/onednn/conv.h"

#include "exec/onednn/tuning.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

const trmi_conv_algorithm *const trmi_conv_algorithms[] = {
    &trmi_conv_winograd, &trmi_conv_winograd_gradw, &trmi_conv_gather_gemm, &trmi_conv_gradw_gemm,
    &trmi_conv_gather_pairs, &trmi_conv_gradw_pairs, &trmi_conv_dnnl, NULL};

enum { ALGORITHMS = sizeof trmi_conv_algorithms / sizeof trmi_conv_algorithms[0] - 1, TRIALS = 2 };

static const double reach = 1.3;         /* times the best guess is still worth a trial */
static const double trial_flops = 1e9;   /* of one trial run */
static const double trial_seconds = 1.0; /* of one process */

/* Algorithms that can, fastest expected first; returns how many. */
static int rank(const trmi_conv_problem *p, int threads, const trmi_conv_algorithm *out[ALGORITHMS],
                double seconds[ALGORITHMS]) {
    int count = 0;
    for (int i = 0; i < ALGORITHMS; i++) {
        const trmi_conv_algorithm *a = trmi_conv_algorithms[i];
        if (!a->can(p)) {
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

/* ---- trials ------------------------------------------------------------------------------------ */

/* The same problem on fewer images. */
static trmi_conv_problem smaller(const trmi_conv_problem *p) {
    trmi_conv_problem s = *p;
    double images = trial_flops / (trmi_conv_flops(p) / (double)p->n);
    if (images < (double)p->n) {
        s.n = trmi_min_i64(p->n, trmi_max_i64(8, (int64_t)images));
    }
    return s;
}

/* Room for the tensors and the scratch of a trial, kept from one to the next; NULL without memory. */
static char *trial_memory(trmi_onednn *backend, const trmi_conv_problem *p, int64_t scratch,
                          trmi_conv_args *args) {
    int64_t x = trmi_round_up(trmi_conv_image_count(p) * (int64_t)trm_dtype_bytes(p->image_type), 4096);
    int64_t w = trmi_round_up(trmi_conv_weights_count(p) * (int64_t)trm_dtype_bytes(p->weights_type), 4096);
    int64_t y = trmi_round_up(trmi_conv_result_count(p) * (int64_t)trm_dtype_bytes(p->result_type), 4096);
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
    *args = (trmi_conv_args){.image = at, .weights = at + x, .result = at + x + w,
                             .bias = (float *)(at + x + w + y), .scratch = at + x + w + y + b};
    return at;
}

/* Seconds of one run, the least of a few; negative when it cannot run. */
static double trial(trmi_onednn *backend, const trmi_conv_algorithm *a, const trmi_conv_problem *p) {
    void *state = NULL;
    int64_t scratch = 0;
    double best = -1;
    if (a->create(backend, p, &state, &scratch, NULL) != TRM_OK) {
        return -1;
    }
    trmi_conv_args args;
    bool fine = trial_memory(backend, p, scratch, &args) != NULL;
    for (int i = 0; fine && i < 1 + TRIALS; i++) { /* the first warms up */
        double begin = trmi_os_now();
        fine = a->run(state, &args, NULL) == TRM_OK;
        double t = trmi_os_now() - begin;
        best = i > 0 && fine && (best < 0 || t < best) ? t : best;
    }
    a->destroy(state);
    return best;
}

/* Times the candidates within reach; the winner or NULL. */
static const trmi_conv_algorithm *measure(trmi_onednn *backend, const trmi_conv_problem *p,
                                          const char *key) {
    const trmi_conv_algorithm *order[ALGORITHMS], *winner = NULL;
    double guess[ALGORITHMS], best = 0, begin = trmi_os_now();
    int count = rank(p, backend->threads, order, guess);
    trmi_conv_problem part = smaller(p);
    for (int i = 0; i < count && (i == 0 || winner == NULL || guess[i] <= guess[0] * reach); i++) {
        double t = trial(backend, order[i], &part);
        if (t >= 0 && (winner == NULL || t < best)) {
            winner = order[i];
            best = t;
        }
    }
    backend->trial_seconds += trmi_os_now() - begin;
    if (winner != NULL) {
        trmi_tuning_add(backend->tuning, key, winner->name, best * (double)p->n / (double)part.n);
    }
    return winner;
}

void trmi_onednn_trials_done(trmi_onednn *backend) {
    trmi_free(backend->trial);
    backend->trial = NULL;
    backend->trial_bytes = 0;
    (void)trmi_tuning_save(backend->tuning, NULL); /* a choice that cannot be kept is made again */
}

/* ---- choice -------------------------------------------------------------------------------------- */

static const trmi_conv_algorithm *by_name(const trmi_conv_problem *p, const char *name) {
    for (int i = 0; i < ALGORITHMS; i++) {
        if (strcmp(trmi_conv_algorithms[i]->name, name) == 0 && trmi_conv_algorithms[i]->can(p)) {
            return trmi_conv_algorithms[i];
        }
    }
    return NULL;
}

/* The measured choice, measuring it first where that is allowed; NULL = no opinion. */
static const trmi_conv_algorithm *measured(trmi_onednn *backend, const trmi_conv_problem *p,
                                           double *seconds) {
    char key[256];
    const char *name;
    trmi_conv_key(p, key, sizeof key);
    if (!trmi_tuning_find(backend->tuning, key, &name, seconds)) {
        if (!trmi_tuning_has_file(backend->tuning) || backend->trial_seconds > trial_seconds) {
            return NULL;
        }
        const trmi_conv_algorithm *winner = measure(backend, p, key);
        if (winner == NULL || !trmi_tuning_find(backend->tuning, key, &name, seconds)) {
            return winner;
        }
    }
    return by_name(p, name);
}

trm_status trmi_conv_choose(trmi_onednn *backend, const trmi_conv_problem *p,
                            const trmi_conv_algorithm **out, void **state, int64_t *scratch,
                            trm_error *err) {
    const trmi_conv_algorithm *order[ALGORITHMS];
    double guess[ALGORITHMS], seconds;
    const trmi_conv_algorithm *first = measured(backend, p, &seconds);
    if (first != NULL && first->create(backend, p, state, scratch, err) == TRM_OK) {
        *out = first;
        return TRM_OK;
    }
    int count = rank(p, backend->threads, order, guess);
    trm_status status = TRMI_FAIL(err, TRM_UNSUPPORTED, "no algorithm for this convolution");
    for (int i = 0; i < count && status == TRM_UNSUPPORTED; i++) {
        *out = order[i];
        status = order[i]->create(backend, p, state, scratch, err);
    }
    return status;
}

double trmi_conv_seconds(trmi_onednn *backend, const trmi_conv_problem *p) {
    const trmi_conv_algorithm *order[ALGORITHMS];
    double guess[ALGORITHMS], seconds;
    if (measured(backend, p, &seconds) != NULL) {
        return seconds;
    }
    return rank(p, backend->threads, order, guess) > 0 ? guess[0] : -1;
}

bool trmi_conv_possible(trmi_onednn *backend, const trmi_conv_problem *p) {
    const trmi_conv_algorithm *order[ALGORITHMS];
    double guess[ALGORITHMS];
    int count = rank(p, backend->threads, order, guess);
    for (int i = 0; i < count; i++) {
        if (order[i] != &trmi_conv_dnnl) {
            return true; /* our own do what they say they can */
        }
        void *state = NULL;
        int64_t scratch;
        if (order[i]->create(backend, p, &state, &scratch, NULL) == TRM_OK) {
            order[i]->destroy(state);
            return true;
        }
    }
    return false;
}
