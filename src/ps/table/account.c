/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates memory against a budget. Blocks of a megabyte and more are mapped directly from the
 * system, so that freeing them really returns the memory: a heap would keep it. */
#define _GNU_SOURCE
#include "ps/table/account.h"

#include "base/checked.h"
#include "base/memory.h"

#include <sys/mman.h>

/* How blocks are charged. */
enum {
    LINE_BYTES = 64,          /* a block of the heap is charged in these units ... */
    HEAP_OVERHEAD_BYTES = 64, /* ... and with so much for the data of the heap itself */
    MAPPED_BYTES = 1 << 20,   /* from here on mapped directly */
    PAGE_BYTES = 4096,
    HUGE_PAGE_BYTES = TRMI_HUGE_PAGE_BYTES
};

int64_t trmi_account_charge(size_t bytes) {
    int64_t wanted = trmi_max_i64((int64_t)bytes, 1);
    return bytes >= MAPPED_BYTES ? trmi_round_up(wanted, PAGE_BYTES)
                                 : trmi_round_up(wanted, LINE_BYTES) + HEAP_OVERHEAD_BYTES;
}

/* Maps zeroed memory that begins at a huge-page boundary. */
static void *map_memory(size_t bytes) {
    size_t whole = (size_t)trmi_round_up((int64_t)bytes, PAGE_BYTES);
    char *memory = mmap(NULL, whole + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)memory % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (before > 0) {
        munmap(memory, before);
    }
    if (HUGE_PAGE_BYTES - before > 0) {
        munmap(memory + before + whole, HUGE_PAGE_BYTES - before);
    }
    /* Request huge pages for whole ones only: one at the end would use more memory than was
     * charged. */
    madvise(memory + before, whole / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    return memory + before;
}

void *trmi_account_alloc(trmi_account *account, size_t bytes) {
    int64_t charge = bytes > INT64_MAX / 2 ? INT64_MAX : trmi_account_charge(bytes);
    if (charge > account->limit - account->used) {
        account->refusals++;
        return NULL;
    }
    void *memory = bytes >= MAPPED_BYTES ? map_memory(bytes) : trmi_alloc(bytes);
    if (memory != NULL) {
        account->used += charge;
        account->peak = trmi_max_i64(account->peak, account->used);
    }
    return memory;
}

void trmi_account_free(trmi_account *account, void *memory, size_t bytes) {
    if (memory == NULL) {
        return;
    }
    account->used -= trmi_account_charge(bytes);
    if (bytes >= MAPPED_BYTES) {
        munmap(memory, (size_t)trmi_round_up((int64_t)bytes, PAGE_BYTES));
    } else {
        trmi_free(memory);
    }
}
