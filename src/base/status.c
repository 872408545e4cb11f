/* SPDX-License-Identifier: Apache-2.0 */
/* Names, texts and exit codes of statuses; the version. The exit codes of `trireme` group the
 * statuses by what the user can do: 1 the run failed, 2 the call is wrong, 3 a file is, 4 there is
 * not enough memory or disk, 5 a peer failed. */
#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>

const char *trm_status_name(trm_status status) {
    switch (status) {
#define TRMI_STATUS_NAME(name, value, text)                                                        \
    case name: return #name;
        TRM_STATUS_LIST(TRMI_STATUS_NAME)
#undef TRMI_STATUS_NAME
    }
    return "TRM_UNKNOWN";
}

const char *trm_status_text(trm_status status) {
    switch (status) {
#define TRMI_STATUS_TEXT(name, value, text)                                                        \
    case name: return text;
        TRM_STATUS_LIST(TRMI_STATUS_TEXT)
#undef TRMI_STATUS_TEXT
    }
    return "unknown status";
}

/* Contract in trireme/base.h. No default case: the compiler names a status that is missing here. */
int trm_status_exit_code(trm_status status) {
    switch (status) {
    case TRM_OK:
    case TRM_END:
    case TRM_PENDING: return 0;
    case TRM_INVALID:
    case TRM_UNSUPPORTED: return 2;
    case TRM_IO:
    case TRM_CORRUPT: return 3;
    case TRM_NOMEM:
    case TRM_NOSPACE: return 4;
    case TRM_TIMEOUT:
    case TRM_PEER: return 5;
    case TRM_CANCELLED:
    case TRM_INTERNAL:
    case TRM_DIVERGED: return 1;
    }
    return 1;
}

#define TRMI_TEXT_(x) #x
#define TRMI_TEXT(x) TRMI_TEXT_(x)

const char *trm_version(void) {
    return TRMI_TEXT(TRM_VERSION_MAJOR) "." TRMI_TEXT(TRM_VERSION_MINOR) "." TRMI_TEXT(
        TRM_VERSION_PATCH);
}

void trm_error_exit(const trm_error *err) {
    fprintf(stderr, "%s\n", err != NULL ? err->message : "no error record");
    exit(err != NULL ? trm_status_exit_code((trm_status)err->status) : 1);
}
