/* SPDX-License-Identifier: Apache-2.0 */
/* Finds real data sets: in $TRIREME_DATA, else in ../shared/data beside the repository. */
#ifndef TRMI_TESTS_REAL_DATA_H
#define TRMI_TESTS_REAL_DATA_H

#include "check.h"

/* Returns the path of `name`, valid until the next call. Prints a line and returns NULL if the data
 * is missing; the test is then skipped. */
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
