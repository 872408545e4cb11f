/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h: writes log lines to the sink of the program; to stderr until it is set. Not to
 * be called within a training step. */
#ifndef TRMI_BASE_LOG_H
#define TRMI_BASE_LOG_H

#include "trireme/base.h"

/* Formats one line and passes it to the sink, if its level is enabled. room: the part of the
 * library. */
void trmi_log(trm_log_level level, const char *room, const char *format, ...) TRM_PRINTF(3, 4);

#endif
