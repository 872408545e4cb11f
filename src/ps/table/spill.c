/* SPDX-License-Identifier: Apache-2.0 */
/* The spill file: records of one size at numbered places (contracts in spill.h). The file has no
 * name after its creation, so that it vanishes with the process. Free places are a list that is
 * charged to the budget; if the list cannot grow, a place stays unused. */
#include "ps/table/spill.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Places of a file, at most. */
enum { SLOTS_MAX = INT32_MAX };

/* An open file of records. */
struct trmi_spill {
    trmi_account *account; /* that the list of free places is charged to; borrowed */
    int fd;
    uint32_t record_bytes;
    uint32_t next, slots_max; /* first place that was never used; number of places, at most */
    uint32_t *free_slots;     /* [free_count] places whose records were taken out, a stack */
    int64_t free_count, free_capacity;
    char path[256]; /* for errors: the file has no name any more */
};

/* Contract in spill.h. */
trm_status trmi_spill_create(const char *folder, uint32_t record_bytes, int64_t limit_bytes,
                             trmi_account *account, trmi_spill **out, trm_error *err) {
    trmi_spill *spill;
    TRMI_TRY(TRMI_NEW(err, spill, 1, "for a spill file's record"));
    int length = snprintf(spill->path, sizeof spill->path, "%s/spill-XXXXXX", folder);
    if (length < 0 || (size_t)length >= sizeof spill->path) {
        trmi_free(spill);
        return TRMI_FAIL(err, TRM_INVALID, "%.100s...: the spill folder's path is too long",
                         folder);
    }
    spill->fd = mkstemp(spill->path);
    if (spill->fd < 0) {
        trm_status status = TRMI_FAIL_SYS(err, "%s: cannot make the spill file", spill->path);
        trmi_free(spill);
        return status;
    }
    /* the file vanishes when it is closed */
    unlink(spill->path);
    fcntl(spill->fd, F_SETFD, FD_CLOEXEC);
    int64_t slots = limit_bytes > 0 ? limit_bytes / record_bytes : SLOTS_MAX;
    spill->slots_max = (uint32_t)trmi_min_i64(slots, SLOTS_MAX);
    spill->record_bytes = record_bytes;
    spill->account = account;
    *out = spill;
    return TRM_OK;
}

void trmi_spill_destroy(trmi_spill *spill) {
    if (spill != NULL) {
        close(spill->fd);
        trmi_account_free(spill->account, spill->free_slots,
                          (size_t)spill->free_capacity * sizeof *spill->free_slots);
        trmi_free(spill);
    }
}

/* Contract in spill.h. The place is taken only after the record was written. */
trm_status trmi_spill_put(trmi_spill *spill, const void *record, uint32_t *slot, trm_error *err) {
    bool reuse = spill->free_count > 0;
    if (!reuse && spill->next >= spill->slots_max) {
        return TRMI_FAIL(
            err, TRM_NOSPACE,
            "%s: the spill file is full at %u rows; give more memory, more servers or a "
            "cap of rows",
            spill->path, spill->next);
    }
    uint32_t place = reuse ? spill->free_slots[spill->free_count - 1] : spill->next;
    size_t done = 0;
    /* the disk may take a part of the record only */
    while (done < spill->record_bytes) {
        ssize_t wrote = pwrite(spill->fd, (const char *)record + done, spill->record_bytes - done,
                               (off_t)place * spill->record_bytes + (off_t)done);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            return TRMI_FAIL_SYS(err, "%s: cannot write row %u", spill->path, place);
        }
        done += (size_t)wrote;
    }
    if (reuse) {
        spill->free_count--;
    } else {
        spill->next++;
    }
    *slot = place;
    return TRM_OK;
}

/* Contract in spill.h. The record stays in the file until it is dropped. */
trm_status trmi_spill_get(trmi_spill *spill, uint32_t slot, void *record, trm_error *err) {
    size_t done = 0;
    while (done < spill->record_bytes) {
        ssize_t got = pread(spill->fd, (char *)record + done, spill->record_bytes - done,
                            (off_t)slot * spill->record_bytes + (off_t)done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return TRMI_FAIL_SYS(err, "%s: cannot read row %u", spill->path, slot);
        }
        done += (size_t)got;
    }
    return TRM_OK;
}

void trmi_spill_drop(trmi_spill *spill, uint32_t slot) {
    if (spill->free_count == spill->free_capacity) {
        int64_t capacity = trmi_max_i64(64, 2 * spill->free_capacity);
        uint32_t *larger = trmi_account_alloc(spill->account, (size_t)capacity * sizeof *larger);
        if (larger == NULL) {
            return; /* the place stays unused until the file is closed */
        }
        if (spill->free_count > 0) {
            memcpy(larger, spill->free_slots, (size_t)spill->free_count * sizeof *larger);
        }
        trmi_account_free(spill->account, spill->free_slots,
                          (size_t)spill->free_capacity * sizeof *larger);
        spill->free_slots = larger;
        spill->free_capacity = capacity;
    }
    spill->free_slots[spill->free_count++] = slot;
}
