/* SPDX-License-Identifier: Apache-2.0 */
/* Names of layouts, and the bytes of a tensor in a layout (channels of BLOCKED16 are rounded up).
 */
#include "plan/lower/program.h"

#include "base/checked.h"

const char *trmi_layout_name(trmi_layout layout) {
    static const char *const names[TRMI_LAYOUTS] = {"plain", "channels-last", "blocked16"};
    return layout < TRMI_LAYOUTS ? names[layout] : "?";
}

/* Contract in program.h. BLOCKED16 has blocks of 16 channels, the last one filled up with zeros. */
int64_t trmi_layout_bytes(trm_dtype dtype, const trm_shape *shape, trmi_layout layout,
                          bool weights) {
    trm_shape padded = *shape;
    if (layout == TRMI_BLOCKED16 && shape->rank == 4) {
        padded.dim[1] = trmi_round_up(padded.dim[1], 16);
        if (weights) {
            padded.dim[0] = trmi_round_up(padded.dim[0], 16);
        }
    }
    return trm_shape_count(&padded) * (int64_t)trm_dtype_bytes(dtype);
}
