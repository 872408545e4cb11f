/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/records.h: a server's small logs, of who is away, of leases, of steps: records one after
 * the other, each with a check of its own, read back from the start up to a torn end.
 *
 *   open --append--> | record | record | rec        death
 *   each             | taken  | taken  | not sound: here it ends; cut */
#ifndef TRMI_PS_RECORDS_H
#define TRMI_PS_RECORDS_H

#include "trireme/base.h"

typedef struct trmi_record_form {
    /* of each record; 0: as `size` says of the one at `at`, of which `left` are there, 0 = no such
     * record */
    size_t bytes;
    size_t (*size)(const uint8_t *at, size_t left);
    size_t check_bytes; /* at its end, 4 or 8: the first of XXH3 of what is before them */
    /* Takes one up. TRM_END: it, and what follows, is not wanted.   `record` is aligned as it lies in the file
     */
    trm_status (*take)(void *context, const uint8_t *record, size_t bytes, trm_error *err);
} trmi_record_form;

/* Takes all sound records of a file of at most `most` bytes; none where there is no file. *end:
 * where the last one that was
 * taken ends.   errors  IO, CORRUPT, NOMEM, those of `take` */
trm_status trmi_records_each(const char *path, size_t most, const trmi_record_form *form,
                             void *context, size_t *end, trm_error *err);
/* Opens it for appending behind `end`: what is there is cut off.   errors  IO */
trm_status trmi_records_open(const char *path, size_t end, int *fd, trm_error *err);
/* Puts its check at a record's end. */
void trmi_record_seal(void *record, size_t bytes, size_t check_bytes);
/* One record, to the disk if `sync`. fd -1: nothing.   errors  IO, NOSPACE */
trm_status trmi_records_append(int fd, const void *record, size_t bytes, bool sync,
                               const char *what, trm_error *err);

#endif
