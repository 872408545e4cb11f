#include "app/app.h"

#include "trireme/estimator.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static trm_model *stopping_model;
static trm_estimator *stopping_job;
static volatile sig_atomic_t received;

/* Only flags: the work is done between two steps. */
static void handle(int signal_number) {
    if (received != 0) {
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

static void listen_to_signals(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void app_signals_begin(trm_model *model) {
    stopping_model = model;
    listen_to_signals();
}

void app_signals_begin_job(trm_estimator *estimator) {
    stopping_job = estimator;
    listen_to_signals();
}

void app_signals_ignore(void) {
    signal(SIGXFSZ, SIG_IGN); /* a file at its limit is an error of write(2), with a sentence */
}

void app_signals_end(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    stopping_model = NULL;
    stopping_job = NULL;
}

int app_signal_exit_code(void) { return received != 0 ? 128 + received : 0; }
