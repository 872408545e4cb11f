/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define NORM_TABLE trmi_norm_kernels_avx2
#include "exec/cpu/ops/norm_body.h"
#endif
