/* SPDX-License-Identifier: Apache-2.0 */
/* save/path.h: paths of files, and the part of them that messages show. */
#ifndef TRMI_SAVE_PATH_H
#define TRMI_SAVE_PATH_H

#include "trireme/base.h"

enum { TRMI_PATH_BYTES = 4096 }; /* longest path, with its '\0' */

/* Writes "dir/name".
 *   errors  INVALID if it is too long */
trm_status trmi_path_join(char path[TRMI_PATH_BYTES], const char *dir, const char *name,
                          trm_error *err);
/* Writes the directory that contains `path` ("." if the path has no slash). */
void trmi_path_parent(const char *path, char parent[TRMI_PATH_BYTES]);
/* Returns the last 90 characters of the path: what fits into the message of an error. */
const char *trmi_path_tail(const char *path);

#endif
