/* SPDX-License-Identifier: Apache-2.0 */
/* base/log.h: one line to the sink. Silent until trm_log_set_sink. Never inside a step. */
#ifndef TRMI_BASE_LOG_H
#define TRMI_BASE_LOG_H

#include "trireme/base.h"

void trmi_log(trm_log_level level, const char *room, const char *format, ...) TRM_PRINTF(3, 4);

#endif
