/* SPDX-License-Identifier: Apache-2.0 */
/* base/arguments.h: checks the pointers that a caller of a public function must pass. The macros
 * stand at the head of the function; a NULL pointer gives an error that names the function and the
 * argument. Pointers that the function's documentation calls optional are not listed. */
#ifndef TRMI_BASE_ARGUMENTS_H
#define TRMI_BASE_ARGUMENTS_H

#include "trireme/base.h"

/* Writes the error for the first NULL pointer of `pointers`. `names` lists their names, as in
 * "model, out". Returns INVALID. */
trm_status trmi_refuse_null(const void *const *pointers, const char *names, const char *function,
                            trm_error *err);

/* Returns whether none of the pointers is NULL. `count` is a constant of the caller: the loop is
 * unrolled, so that the check costs one comparison for each pointer. */
static inline bool trmi_none_null(const void *const *pointers, int count) {
    bool all = true;
#pragma GCC unroll 16
    for (int i = 0; i < count; i++) {
        all = all && pointers[i] != NULL;
    }
    return all;
}

/* Declares the array of the pointers of a check. */
#define TRMI_POINTERS(...)                                                                         \
    const void *const trmi_given_[] = {__VA_ARGS__};                                               \
    const int trmi_count_ = (int)(sizeof trmi_given_ / sizeof *trmi_given_)

/* For functions that return a trm_status. */
#define TRMI_NEED(err, ...)                                                                        \
    do {                                                                                           \
        TRMI_POINTERS(__VA_ARGS__);                                                                \
        if (!trmi_none_null(trmi_given_, trmi_count_)) {                                           \
            return trmi_refuse_null(trmi_given_, #__VA_ARGS__, __func__, (err));                   \
        }                                                                                          \
    } while (0)
/* For functions that return another type: they return `value`; for void it is empty. */
#define TRMI_NEED_OR(value, err, ...)                                                              \
    do {                                                                                           \
        TRMI_POINTERS(__VA_ARGS__);                                                                \
        if (!trmi_none_null(trmi_given_, trmi_count_)) {                                           \
            trmi_refuse_null(trmi_given_, #__VA_ARGS__, __func__, (err));                          \
            return value;                                                                          \
        }                                                                                          \
    } while (0)
/* For functions that build an object which keeps its first error: `keep` is called with the
 * object and the error. Without an object there is no place for the error: the function returns
 * `value`. */
#define TRMI_NEED_KEEP(keep, object, value, ...)                                                   \
    do {                                                                                           \
        TRMI_POINTERS(__VA_ARGS__);                                                                \
        if ((object) == NULL) {                                                                    \
            return value;                                                                          \
        }                                                                                          \
        if (!trmi_none_null(trmi_given_, trmi_count_)) {                                           \
            trm_error trmi_refused_;                                                               \
            trmi_refuse_null(trmi_given_, #__VA_ARGS__, __func__, &trmi_refused_);                 \
            keep((object), &trmi_refused_);                                                        \
            return value;                                                                          \
        }                                                                                          \
    } while (0)

#endif
