/* SPDX-License-Identifier: Apache-2.0 */
/* base/mapping.h: read-only mappings of files that other programs may change.
 *
 * A file that becomes shorter while it is mapped has pages without content, and a read of such a
 * page is SIGBUS, which ends a process. Here it is an error of the reader instead:
 *
 *   trmi_mapping_open --> read, parse, copy --> trmi_mapping_check(status) --> trmi_mapping_close
 *                              |                       ^
 *          SIGBUS in the mapping: zeros from there on  +-- size of the file; were there zeros?
 *
 * Opening a mapping sets the process's SIGBUS handler, unless it is this one already. Each fault
 * outside of these mappings goes to the handler that was there before, or has the default effect.
 * A program that sets a handler of its own while files are mapped calls the one that it replaces.
 */
#ifndef TRMI_BASE_MAPPING_H
#define TRMI_BASE_MAPPING_H

#include "trireme/base.h"

typedef struct trmi_mapped_file trmi_mapped_file;

/* A mapped file; may be copied, one copy is closed. Of an empty file data and file are NULL. */
typedef struct trmi_mapping {
    const uint8_t *data;
    size_t bytes;
    trmi_mapped_file *file;
} trmi_mapping;

/* Maps a regular file.   errors  IO, NOMEM */
trm_status trmi_mapping_open(const char *path, trmi_mapping *out, trm_error *err);

/* Returns whether everything read from the mapping so far was content of the file: TRM_IO, with
 * both sizes, if the file is shorter now than when it was opened; else `status`, the result of the
 * reader. The shorter file takes precedence over any other error, because a parser that reads zeros
 * reports an error of its own. Costs one stat; call it once for each batch, after the reads.
 *   threads  any */
trm_status trmi_mapping_check(const trmi_mapping *mapping, trm_status status, trm_error *err);

/* Unmaps the file. A zeroed mapping is fine. No thread may still read it. */
void trmi_mapping_close(trmi_mapping *mapping);

#endif
