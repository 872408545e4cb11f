/* SPDX-License-Identifier: Apache-2.0 */
#define NAME plain
#define VL 4
#include "exec/onednn/winograd_isa_body.h"
