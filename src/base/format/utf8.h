/* SPDX-License-Identifier: Apache-2.0 */
/* base/format/utf8.h: checks UTF-8, and measures what is none. */
#ifndef TRMI_BASE_UTF8_H
#define TRMI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the bytes of the UTF-8 sequence at `text` (RFC 3629); 0 if it is invalid or cut off. */
int trmi_utf8_length(const char *text, size_t bytes);
/* Returns the bytes at `text`, which begin no valid sequence, for which one U+FFFD stands: those
 * that a valid one could begin with, else 1; 0 at the end of the text.
 *   source  Unicode 15, section 3.9, "Substitution of Maximal Subparts"; as in W3C's Encoding */
int trmi_utf8_invalid_length(const char *text, size_t bytes);
/* Returns whether all bytes are valid UTF-8. */
bool trmi_utf8_valid(const char *text, size_t bytes);

#endif
