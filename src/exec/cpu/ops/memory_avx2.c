/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define MEMORY_TABLE trmi_memory_kernels_avx2
#include "exec/cpu/ops/memory_body.h"
#endif
