/* SPDX-License-Identifier: Apache-2.0 */
#define NORM_TABLE trmi_norm_kernels_plain
#include "exec/cpu/ops/norm_body.h"
