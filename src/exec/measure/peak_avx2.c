/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define PEAK_TABLE trmi_peak_avx2
#include "exec/measure/peak_body.h"
#endif
