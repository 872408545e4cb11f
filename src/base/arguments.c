/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arguments.h"

#include "base/error.h"

#include <string.h>

trm_status trmi_refuse_null(const void *const *pointers, const char *names, const char *function,
                            trm_error *err) {
    while (*pointers != NULL) {
        names += strcspn(names, ",");
        names += strspn(names, ", ");
        pointers++;
    }
    /* pointers to functions are listed with casts in front */
    while (*names == '(') {
        names += strcspn(names, ")") + 1;
    }
    return TRMI_FAIL(err, TRM_INVALID, "%s: argument '%.*s' is NULL; pass a valid pointer",
                     function, (int)strcspn(names, ","), names);
}
