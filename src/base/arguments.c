/* SPDX-License-Identifier: Apache-2.0 */
/* The message for an argument that is NULL (arguments.h): TRMI_NEED passes the pointers and, as the
 * preprocessor writes them, the texts of the arguments. */
#include "base/arguments.h"

#include "base/error.h"

#include <string.h>

/* Contract in arguments.h. The first NULL ends the list of pointers, and its place in it finds the
 * name. */
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
