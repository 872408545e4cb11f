/* SPDX-License-Identifier: Apache-2.0 */
/* Data that people have collected: in $TRIREME_DATA, else in ../shared/data beside the repository. */
#ifndef TRMI_TESTS_REAL_DATA_H
#define TRMI_TESTS_REAL_DATA_H

#include "check.h"

/* Where `name` lies, valid until the next call; NULL, and a line that says so: not here, the test
 * is skipped. */
static inline const char *real_data(const char *name) {
    static char path[512];
    const char *root = getenv("TRIREME_DATA");
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : TRIREME_SOURCE_DIR "/../shared/data",
             name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: no %s (set TRIREME_DATA)\n", path);
        return NULL;
    }
    return path;
}

#endif
