/* SPDX-License-Identifier: Apache-2.0 */
/* base/utf8.h: is this text? */
#ifndef TRMI_BASE_UTF8_H
#define TRMI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the UTF-8 sequence at `text` (RFC 3629), 0 if it is not valid or cut off. */
int trmi_utf8_length(const char *text, size_t bytes);
bool trmi_utf8_valid(const char *text, size_t bytes);

#endif
