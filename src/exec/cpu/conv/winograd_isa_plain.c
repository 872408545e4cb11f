/* SPDX-License-Identifier: Apache-2.0 */
#define NAME plain
#define VL 4
#include "exec/cpu/conv/winograd_isa_body.h"
