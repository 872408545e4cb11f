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

#ifdef __cplusplus
}
#endif
#endif
