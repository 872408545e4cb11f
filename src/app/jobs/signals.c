/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: a handler only sets flags; the training reads them between two steps, so that a
 * checkpoint is never written inside a handler.
 *
 *      SIGINT, SIGTERM, SIGUSR1   stop after the step (app_signals_begin ... app_signals_end); SIGTERM
 *                                 and SIGUSR1 make a rank of an elastic job leave it
 *      SIGUSR2                    print the state, from the start of main to the end */
#include "app/app.h"

#include "trireme/train.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* The model or job that a signal stops; NULL: none. */
static trm_model *stopping_model;
static trm_estimator *stopping_job;
/* The number of the first signal that stops the run, 0: none; whether the state is wanted. */
static volatile sig_atomic_t received, state_wanted;

/* Handles a signal: only sets flags. A second demand ends the program at once. SIGUSR1 is a
 * scheduler's early warning: it may arrive more than once, and the SIGTERM that follows it counts
 * as the first demand, not the second. */
static void handle_signal(int signal_number) {
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
    if (stopping_model != NULL && signal_number != SIGINT) {
        trm_model_request_leave(stopping_model);
    } else if (stopping_model != NULL) {
        trm_model_request_stop(stopping_model);
    }
    if (stopping_job != NULL) {
        trm_estimator_request_stop(stopping_job);
    }
}

/* Signals that demand the end of the run. */
static const int demands[] = {SIGINT, SIGTERM, SIGUSR1};
enum { DEMANDS = sizeof demands / sizeof demands[0] };

/* Installs the handler; system calls are restarted. */
static void install_handler(int signal_number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal_number, &action, NULL);
}

/* Installs the handler for the signals that stop the run. */
static void listen_to_demands(void) {
    for (int i = 0; i < DEMANDS; i++) {
        install_handler(demands[i]);
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
    /* A file at its size limit is then an error of write(2), with a message. */
    signal(SIGXFSZ, SIG_IGN);
    /* A request for the state never ends the program, even outside of training. */
    install_handler(SIGUSR2);
}

/* Contract in app.h. The handler is removed before its targets are forgotten. */
void app_signals_end(void) {
    for (int i = 0; i < DEMANDS; i++) {
        signal(demands[i], SIG_DFL);
    }
    stopping_model = NULL;
    stopping_job = NULL;
}

int app_signal_exit_code(void) { return received != 0 ? 128 + received : 0; }

/* Contract in app.h. Several signals before the next step count as one. */
bool app_signal_wants_state(void) {
    bool wanted = state_wanted != 0;
    state_wanted = 0;
    return wanted;
}
