/* SPDX-License-Identifier: Apache-2.0 */
#define PEAK_TABLE trmi_peak_plain
#include "exec/measure/peak_body.h"
