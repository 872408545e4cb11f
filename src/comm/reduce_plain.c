/* SPDX-License-Identifier: Apache-2.0 */
#define VECTOR_BYTES 16
#define REDUCE_TABLE trmi_reduce_plain
#include "comm/reduce_kernels.h"
