/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define NAME avx2
#define VL 8
#include "exec/cpu/conv/winograd_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
