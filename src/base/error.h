/* SPDX-License-Identifier: Apache-2.0 */
/* base/error.h: writes errors. The function that detects an error calls TRMI_FAIL; its callers pass
 * the error on with TRMI_TRY. An error is written once. */
#ifndef TRMI_BASE_ERROR_H
#define TRMI_BASE_ERROR_H

#include "trireme/base.h"

#include <errno.h>

/* Fills `err` (may be NULL) and returns `status`, so that `return TRMI_FAIL(...)` works. Stores
 * errno in err->sys_errno if status is TRM_IO or TRM_NOSPACE. */
trm_status trmi_error_set(trm_error *err, trm_status status, const char *file, int line,
                          const char *format, ...) TRM_PRINTF(5, 6);
#define TRMI_FAIL(err, status, ...) trmi_error_set((err), (status), __FILE__, __LINE__, __VA_ARGS__)

/* Appends context to the message, e.g. " while saving step 1200"; the cause remains. Returns
 * err->status. */
trm_status trmi_error_append(trm_error *err, const char *format, ...) TRM_PRINTF(2, 3);

/* Reports a failed system call: TRM_NOSPACE for ENOSPC, EDQUOT and EFBIG; TRM_NOMEM for ENOMEM,
 * EMFILE and ENFILE; else TRM_IO. The message ends with the text of errno. */
trm_status trmi_error_sys(trm_error *err, const char *file, int line, const char *format, ...)
    TRM_PRINTF(4, 5);
#define TRMI_FAIL_SYS(err, ...) trmi_error_sys((err), __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the calling function if `call` fails. */
#define TRMI_TRY(call)                                                                             \
    do {                                                                                           \
        trm_status trmi_try_status_ = (call);                                                      \
        if (trmi_try_status_ != TRM_OK) {                                                          \
            return trmi_try_status_;                                                               \
        }                                                                                          \
    } while (0)

/* Calls, and on failure goes to a label, for functions that clean up there. */
#define TRMI_TRY_GOTO(status_variable, call, label)                                                \
    do {                                                                                           \
        (status_variable) = (call);                                                                \
        if ((status_variable) != TRM_OK) {                                                         \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

/* Converts an error to and from its wire form of exactly 256 bytes, little-endian. */
void trmi_error_encode(const trm_error *err, uint8_t wire[256]);
void trmi_error_decode(trm_error *err, const uint8_t wire[256]);

/* Checks an invariant of the library; ends the program if it does not hold. Never for bytes from
 * files, peers or users. */
#define TRMI_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : trmi_assert_failed(__FILE__, __LINE__, #condition))
_Noreturn void trmi_assert_failed(const char *file, int line, const char *condition);

#endif
