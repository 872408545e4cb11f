/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and appends the small logs of a server (contracts in records.h): leases, workers, steps,
 * kept pushes. Each record has its own check, so a torn end is recognised. An append that fails is
 * taken back, so that the file ends with a whole record. */
#include "ps/shard/records.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

void trmi_record_seal(void *record, size_t bytes, size_t check_bytes) {
    uint64_t check = XXH3_64bits(record, bytes - check_bytes);
    /* The number is little-endian: the low bytes come first. */
    memcpy((char *)record + bytes - check_bytes, &check, check_bytes);
}

/* Returns the bytes of the record at `at`; 0 if it is torn or its digest is wrong. */
static size_t sound_bytes(const trmi_record_form *form, const uint8_t *at, size_t left) {
    size_t bytes = form->bytes > 0 ? form->bytes : form->size(at, left);
    if (bytes == 0 || bytes > left) {
        return 0;
    }
    uint64_t check = XXH3_64bits(at, bytes - form->check_bytes);
    return memcmp(at + bytes - form->check_bytes, &check, form->check_bytes) == 0 ? bytes : 0;
}

/* Contract in records.h. Stops at the first torn record; *end is its offset, where appending
 * continues. */
trm_status trmi_records_each(const char *path, size_t most, const trmi_record_form *form,
                             void *context, size_t *end, trm_error *err) {
    uint8_t *data;
    size_t bytes, one;
    *end = 0;
    if (access(path, F_OK) != 0) {
        return TRM_OK;
    }
    TRMI_TRY(trmi_os_read_file(path, most, &data, &bytes, err));
    trm_status status = TRM_OK;
    while (*end < bytes && (one = sound_bytes(form, data + *end, bytes - *end)) > 0 &&
           (status = form->take(context, data + *end, one, err)) == TRM_OK) {
        *end += one;
    }
    trmi_free(data);
    return status == TRM_END ? TRM_OK : status;
}

trm_status trmi_records_open(const char *path, size_t end, int *fd, trm_error *err) {
    int opened = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (opened < 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot open", path);
    }
    if (ftruncate(opened, (off_t)end) != 0 || lseek(opened, (off_t)end, SEEK_SET) < 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot cut off a torn end", path);
        close(opened);
        return status;
    }
    *fd = opened;
    return TRM_OK;
}

/* Contract in records.h. fd < 0: nothing is logged. */
trm_status trmi_records_append(int fd, const void *record, size_t bytes, bool sync,
                               const char *what, trm_error *err) {
    if (fd < 0) {
        return TRM_OK;
    }
    const off_t before = lseek(fd, 0, SEEK_CUR);
    trm_status status = trmi_os_write_all(NULL, fd, record, bytes, what, err);
    if (status == TRM_OK && sync && fdatasync(fd) != 0) {
        status = TRMI_FAIL_SYS(err, "%s: cannot flush", what);
    }
    if (status != TRM_OK && lseek(fd, before, SEEK_SET) >= 0) {
        (void)!ftruncate(fd, before); /* where it stays, the next record takes its place */
    }
    return status;
}
