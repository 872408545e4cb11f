/* SPDX-License-Identifier: Apache-2.0 */
#define EXACT_LOOPS trmi_exact_loops_plain
#include "exec/exact_loops_body.h"
