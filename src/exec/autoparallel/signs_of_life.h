/* SPDX-License-Identifier: Apache-2.0 */
/* exec/autoparallel/signs_of_life.h: a rank that works alone for long tells the ranks that wait for
 * it that it still lives, so that their waits, which have deadlines, begin anew:
 *
 *      caller   | work alone ......................... | begin, communicate, end | work alone ...
 *      thread          send      send      send                                        send
 *
 * A communicator serves one thread at a time: the caller communicates between begin and end, and
 * the thread sends only outside of them. A rank that has died sends nothing, so that the others end
 * as without signs. The caller counts what it does: while the count stands still for `patience`
 * seconds the thread gives up, so that no rank waits for one that is stuck. */
#ifndef TRMI_EXEC_SIGNS_OF_LIFE_H
#define TRMI_EXEC_SIGNS_OF_LIFE_H

#include "trireme/base.h"

#include <stdatomic.h>

typedef struct trmi_signs trmi_signs;
/* How signs are sent, and when the thread gives up. */
typedef struct trmi_signs_options {
    double between, patience; /* seconds */
    trm_status (*send)(void *context, trm_error *err);
    /* makes the waits of the other ranks end with this cause */
    void (*give_up)(void *context, const trm_error *cause);
    void *context;
    atomic_ullong *count; /* the caller increments it as its work goes on */
} trmi_signs_options;

/* Starts a thread that calls send(context) every `between` seconds in which the caller has not
 * communicated. It ends after the first error: the caller's next message finds the same. It also
 * ends once the caller has neither communicated nor counted anything for `patience` seconds, with
 * give_up: TIMEOUT, which names what the caller has been doing.
 *   errors  NOMEM    owns  *out: the caller, trmi_signs_stop */
trm_status trmi_signs_start(const trmi_signs_options *options, trmi_signs **out, trm_error *err);
/* Notes the activity that the caller begins ("searching plans"; static), and counts it.
 * signs NULL: nothing. */
void trmi_signs_note(trmi_signs *signs, const char *what);
/* Begin and end the caller's turn to communicate. signs NULL: there is no thread. */
void trmi_signs_begin(trmi_signs *signs);
void trmi_signs_end(trmi_signs *signs);
/* Ends the thread. signs NULL: nothing. */
void trmi_signs_stop(trmi_signs *signs);

#endif
