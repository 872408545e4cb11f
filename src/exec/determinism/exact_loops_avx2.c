/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define EXACT_LOOPS trmi_exact_loops_avx2
#include "exec/determinism/exact_loops_body.h"
#endif
