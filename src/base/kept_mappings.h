/* SPDX-License-Identifier: Apache-2.0 */
/* base/kept_mappings.h: mappings of many megabytes that are freed and taken again.
 *
 *      trmi_unmap --trmi_kept_add--> list --trmi_kept_take, trmi_kept_clear--> trmi_map
 *
 * The first use of new pages takes longer than zeroing used ones. When one program replaces
 * another, the new one therefore gets the memory of the old one. Any thread.
 *
 * Invariant: mappings that are kept and those that are in use together never have more bytes than
 * were in use at one time since trmi_keep_mappings(true): a request that gets none of the kept ones
 * frees as many bytes of them as it maps. */
#ifndef TRMI_BASE_KEPT_MAPPINGS_H
#define TRMI_BASE_KEPT_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>

/* Keeps mappings from now on (`on`), or frees those that are left and keeps none. Of the
 * process. */
void trmi_keep_mappings(bool on);

/* base/memory.c: keeps a mapping of whole pages; false: the caller frees it. */
bool trmi_kept_add(void *memory, size_t bytes);
/* Takes the smallest kept mapping of at least `wanted` bytes, whole pages, and frees what it has
 * beyond them. NULL: none is large enough, or the request is too small for one; then `wanted` bytes
 * of the largest ones are freed. */
char *trmi_kept_take(size_t wanted);
/* Zeroes a mapping that was used. Pages that were not used, or are swapped out, are given back, so
 * that they cost nothing as in a new mapping. */
void trmi_kept_clear(char *memory, size_t bytes);

#endif
