/* SPDX-License-Identifier: Apache-2.0 */
/* base/stop.h: a caller's request to end a long call, an int32_t of its own that another thread or
 * a signal handler sets while the call runs. */
#ifndef TRMI_BASE_STOP_H
#define TRMI_BASE_STOP_H

#include "base/error.h"

/* Returns OK while no stop is requested. `stop`: NULL = never; `what`: what ends, for the message.
 *   errors  CANCELLED: *stop is not 0 */
static inline trm_status trmi_stop_check(const int32_t *stop, const char *what, trm_error *err) {
    return stop == NULL || __atomic_load_n(stop, __ATOMIC_RELAXED) == 0
               ? TRM_OK
               : TRMI_FAIL(err, TRM_CANCELLED, "%s: stopped on request", what);
}

#endif
