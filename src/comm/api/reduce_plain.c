/* SPDX-License-Identifier: Apache-2.0 */
#define VECTOR_BYTES 16
#define REDUCE_TABLE trmi_reduce_plain
#include "comm/api/reduce_kernels.h"
