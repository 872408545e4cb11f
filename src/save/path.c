/* SPDX-License-Identifier: Apache-2.0 */
/* Paths (path.h): no file system is asked, the functions work on text only. */
#include "save/path.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

const char *trmi_path_tail(const char *path) {
    size_t length = strlen(path);
    return length > 90 ? path + (length - 90) : path;
}

trm_status trmi_path_join(char path[TRMI_PATH_BYTES], const char *dir, const char *name,
                          trm_error *err) {
    int length = snprintf(path, TRMI_PATH_BYTES, "%s/%s", dir, name);
    if (length < 0 || length >= TRMI_PATH_BYTES) {
        return TRMI_FAIL(err, TRM_INVALID, "...%s: the path is too long", trmi_path_tail(dir));
    }
    return TRM_OK;
}

/* Contract in path.h. "a/b/" has the parent "a", "b" has ".", and "/b" and "/" have "/". */
void trmi_path_parent(const char *path, char parent[TRMI_PATH_BYTES]) {
    snprintf(parent, TRMI_PATH_BYTES, "%s", path);
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/') {
        parent[--length] = '\0';
    }
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        snprintf(parent, TRMI_PATH_BYTES, ".");
    } else {
        slash[slash == parent ? 1 : 0] = '\0';
    }
}
