/* SPDX-License-Identifier: Apache-2.0 */
/* Signals become flags that the step reads: saving happens between steps, never in a handler. */
#include "app/app.h"

#include "trireme/estimator.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static trm_model *stopping_model;
static trm_estimator *stopping_job;
static volatile sig_atomic_t received, state_wanted;

/* Only flags: the work is done between two steps. SIGUSR1 is a scheduler's early warning: it may
 * come more than once, and the SIGTERM that follows it is the first demand, not the second. */
static void handle(int signal_number) {
    if (signal_number == SIGUSR2) {
        state_wanted = 1;
        return;
    }
    if (received != 0 && signal_number == SIGUSR1) {
        return;
    }
    if (received != 0 && received != SIGUSR1) {
        _exit(128 + signal_number);
    }
    received = signal_number;
    if (stopping_model != NULL) {
        trm_model_request_stop(stopping_model);
    }
    if (stopping_job != NULL) {
        trm_estimator_request_stop(stopping_job);
    }
}

static const int DEMANDS[] = {SIGINT, SIGTERM, SIGUSR1};

static void listen_to(int signal_number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

static void listen_to_demands(void) {
    for (size_t i = 0; i < sizeof DEMANDS / sizeof DEMANDS[0]; i++) {
        listen_to(DEMANDS[i]);
    }
}

void app_signals_begin(trm_model *model) {
    stopping_model = model;
    listen_to_demands();
}

void app_signals_begin_job(trm_estimator *estimator) {
    stopping_job = estimator;
    listen_to_demands();
}

void app_signals_prepare(void) {
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an error of write(2), with a sentence */
    /* a question never ends a program: not while it prepares, nor at its end */
    listen_to(SIGUSR2);
}

void app_signals_end(void) {
    for (size_t i = 0; i < sizeof DEMANDS / sizeof DEMANDS[0]; i++) {
        signal(DEMANDS[i], SIG_DFL);
    }
    stopping_model = NULL;
    stopping_job = NULL;
}

int app_signal_exit_code(void) { return received != 0 ? 128 + received : 0; }

bool app_signal_wants_state(void) {
    bool wanted = state_wanted != 0;
    state_wanted = 0;
    return wanted;
}
