/* SPDX-License-Identifier: Apache-2.0 */
/* save/path.h: paths of files that are written and read, and what of them a sentence shows. */
#ifndef TRMI_SAVE_PATH_H
#define TRMI_SAVE_PATH_H

#include "trireme/base.h"

enum { TRMI_PATH_BYTES = 4096 };

/* "dir/name"; TRM_INVALID when it is too long. */
trm_status trmi_path_join(char path[TRMI_PATH_BYTES], const char *dir, const char *name,
                          trm_error *err);
void trmi_path_parent(const char *path, char parent[TRMI_PATH_BYTES]);
/* At most the last 90 characters: what fits a sentence of an error record. */
const char *trmi_path_tail(const char *path);

#endif
