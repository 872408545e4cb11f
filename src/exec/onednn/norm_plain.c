/* SPDX-License-Identifier: Apache-2.0 */
#define NORM_TABLE trmi_norm_kernels_plain
#include "exec/onednn/norm_body.h"
