/* SPDX-License-Identifier: Apache-2.0 */
#define EXACT_LOOPS trmi_exact_loops_plain
#include "exec/determinism/exact_loops_body.h"
