/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define UPDATE_TABLE trmi_update_kernels_avx512
#include "exec/optimizer/update_body.h"
#endif
