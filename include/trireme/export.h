/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/export.h: a model's weights for other programs. */
#ifndef TRIREME_EXPORT_H
#define TRIREME_EXPORT_H

#include "trireme/base.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters and states by the network's names (torchvision's), float32, plain layout. The file
 * appears whole or not at all.
 *   error  IO, NOSPACE, NOMEM */
TRM_API TRM_MUST_USE trm_status trm_export_safetensors(trm_model *model, const char *path,
                                                       trm_error *err);
/* The same as arrays for numpy.load. */
TRM_API TRM_MUST_USE trm_status trm_export_npz(trm_model *model, const char *path, trm_error *err);
/* The evaluation network from its input ("image", with an open batch) to "logits", opset 17. The
 * model
 * must have been made with evaluation_only.
 *   error  UNSUPPORTED naming an operator that has no form in ONNX, else as above */
TRM_API TRM_MUST_USE trm_status trm_export_onnx(trm_model *model, const char *path, trm_error *err);

#ifdef __cplusplus
}
#endif
#endif
