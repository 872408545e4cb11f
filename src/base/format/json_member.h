/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/json_member.h: members of a JSON object that a text is given. For lines of events and
 * descriptions in files. They have no text form, so a report (report.h), which exists to print
 * both, is not needed. */
#ifndef TRMI_BASE_JSON_MEMBER_H
#define TRMI_BASE_JSON_MEMBER_H

#include "base/memory.h"

/* Append a member that is not the first of its object: a comma, the key, the value. NaN and
 * infinity become null. */
static inline void trmi_text_json_string_member(trmi_text *text, const char *key,
                                                const char *value) {
    trmi_text_printf(text, ",\"%s\":", key);
    trmi_text_json_string(text, value);
}
/* Appends ,"key":value; a number that is not finite is null. */
static inline void trmi_text_json_number_member(trmi_text *text, const char *key, double value) {
    trmi_text_printf(text, ",\"%s\":", key);
    trmi_text_json_number(text, value);
}

#endif
