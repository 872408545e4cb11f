/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with its includes in order, and the checks that our tests share. */
#ifndef TRIREME_CHECK_H
#define TRIREME_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "trireme/base.h"

#include "base/sanitizers.h"

/* Returns the factor for deadlines of tests: larger under a sanitizer, which makes everything
 * slower, and multiplied by $TRIREME_PATIENCE, which a user sets on a crowded machine. */
static inline double check_patience(void) {
    const char *asked = getenv("TRIREME_PATIENCE");
    double patience = asked != NULL && atof(asked) > 0 ? atof(asked) : 1;
    return TRMI_THREAD_SANITIZER || TRMI_ADDRESS_SANITIZER ? 6 * patience : patience;
}

/* Returns the factor for bounds on time: 1 if the load is at most one process per CPU, else the
 * load per CPU (at most 10). */
static inline double check_slack(void) {
    double load = 0, cpus = (double)sysconf(_SC_NPROCESSORS_ONLN), slack = 1;
    if (getloadavg(&load, 1) == 1 && load > cpus) {
        slack = load / cpus < 10 ? load / cpus : 10;
    }
    return slack * check_patience();
}

/* The call succeeds; otherwise the test shows the error record. */
#define CHECK_OK(call, err)                                                                        \
    do {                                                                                           \
        trm_status check_status_ = (call);                                                         \
        if (check_status_ != TRM_OK) {                                                             \
            fail_msg("%s: %s: %s (%s:%d)", #call, trm_status_name(check_status_), (err).message,   \
                     (err).file, (err).line);                                                      \
        }                                                                                          \
    } while (0)

/* The call fails with `expected` and its message contains `text`. */
#define CHECK_FAILS(call, expected, err, text)                                                     \
    do {                                                                                           \
        memset(&(err), 0, sizeof(err));                                                            \
        trm_status check_status_ = (call);                                                         \
        if (check_status_ != (expected) || strstr((err).message, (text)) == NULL) {                \
            fail_msg("%s: got %s '%s', expected %s '...%s...'", #call,                             \
                     trm_status_name(check_status_), (err).message, trm_status_name(expected),     \
                     (text));                                                                      \
        }                                                                                          \
    } while (0)

/* |a - b| <= tolerance * max(1, |b|), both printed otherwise. */
#define CHECK_CLOSE(a, b, tolerance)                                                               \
    do {                                                                                           \
        double check_a_ = (double)(a), check_b_ = (double)(b);                                     \
        double check_scale_ = check_b_ < 0 ? -check_b_ : check_b_;                                 \
        double check_d_ = check_a_ - check_b_;                                                     \
        check_d_ = check_d_ < 0 ? -check_d_ : check_d_;                                            \
        if (!(check_d_ <= (tolerance) * (check_scale_ > 1 ? check_scale_ : 1))) {                  \
            fail_msg("%s = %.9g, %s = %.9g, differ by %.3g", #a, check_a_, #b, check_b_,           \
                     check_d_);                                                                    \
        }                                                                                          \
    } while (0)

#endif
