/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/records.h: small logs of a server (away workers, leases, steps): records one after
 * the other, each with its own digest, read back from the start up to a torn end.
 *
 *     open --append--> | record | record | rec        death
 *     each             | taken  | taken  | not intact: the log ends here and is cut off */
#ifndef TRMI_PS_RECORDS_H
#define TRMI_PS_RECORDS_H

#include "trireme/base.h"

/* The form of the records of one log. */
typedef struct trmi_record_form {
    /* Bytes of each record; 0: size() returns the bytes of the record at `at`, of which `left`
     * are there (0: no record). */
    size_t bytes;
    size_t (*size)(const uint8_t *at, size_t left);
    size_t
        check_bytes; /* bytes of the digest at its end, 4 or 8: the first bytes of XXH3 over the rest */
    /* Uses one record, which is aligned as it lies in the file. TRM_END: this record and all
     * later ones are not used. */
    trm_status (*take)(void *context, const uint8_t *record, size_t bytes, trm_error *err);
} trmi_record_form;

/* Passes all intact records of a file of at most `most` bytes to form->take; none if there is no
 * file. *end: end of the last record that was taken.
 *   errors  IO, CORRUPT, NOMEM, those of `take` */
trm_status trmi_records_each(const char *path, size_t most, const trmi_record_form *form,
                             void *context, size_t *end, trm_error *err);
/* Opens the file for appending at `end`; what lies beyond is cut off.
 *   errors  IO */
trm_status trmi_records_open(const char *path, size_t end, int *fd, trm_error *err);
/* Writes the digest at the end of a record. */
void trmi_record_seal(void *record, size_t bytes, size_t check_bytes);
/* Appends one record, and flushes it to disk if `sync`. After an error the next record takes the
 * place of this one: no record follows a torn one, or one that counts as not written. fd -1: does
 * nothing.
 *   errors  IO, NOSPACE */
trm_status trmi_records_append(int fd, const void *record, size_t bytes, bool sync,
                               const char *what, trm_error *err);

#endif
