/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks of memory that the product asks to be cleared (sim.h). A server and a client clear a
 * megabyte each when they start, of which they use little; half of the time of a run went into
 * that. Here such a block is a part of a mapping that nothing has used, which the kernel clears
 * page by page where it is touched.
 *
 *   [bytes of the block, padding: 64 bytes] [block] [rest of its last page]
 *
 * A block that is freed gives its pages back; its place is not used again. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *__real_trmi_alloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void __real_free(void *memory);
int __real_madvise(void *at, size_t bytes, int advice);
void *__wrap_trmi_alloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void __wrap_free(void *memory);

enum { LEAST_BYTES = 16 << 10, HEAD_BYTES = 64, PAGE_BYTES = 4096 };
static const size_t MAPPED_BYTES = (size_t)1 << 36;

static char *mapping;
static size_t used; /* bytes of the mapping */

static size_t whole_bytes(size_t bytes) {
    return (bytes + HEAD_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Returns NULL: the block is small, or the mapping is used up. */
static void *take_block(size_t bytes) {
    if (bytes < LEAST_BYTES || bytes > MAPPED_BYTES / 2 ||
        whole_bytes(bytes) > MAPPED_BYTES - used) {
        return NULL;
    }
    if (mapping == NULL) {
        mapping = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping == MAP_FAILED) {
            perror("trireme-sim: memory of blocks");
            abort();
        }
    }
    char *head = mapping + used;
    *(size_t *)(void *)head = bytes;
    used += whole_bytes(bytes);
    return head + HEAD_BYTES;
}

static bool is_block(const char *memory) {
    return mapping != NULL && memory >= mapping && memory < mapping + used;
}

static size_t block_bytes(const char *block) {
    return *(const size_t *)(const void *)(block - HEAD_BYTES);
}

/* A large block counts as an allocation that may fail, as the product counts it: a small one is
 * made in its place. */
void *__wrap_trmi_alloc(size_t bytes) {
    if (bytes < LEAST_BYTES) {
        return __real_trmi_alloc(bytes);
    }
    void *counted = __real_trmi_alloc(1);
    if (counted == NULL) {
        return NULL;
    }
    __real_free(counted);
    void *block = take_block(bytes);
    return block != NULL ? block : __real_trmi_alloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    void *block = bytes > 0 && count > SIZE_MAX / bytes ? NULL : take_block(count * bytes);
    return block != NULL ? block : __real_calloc(count, bytes);
}

void __wrap_free(void *memory) {
    if (is_block(memory)) {
        __real_madvise((char *)memory - HEAD_BYTES, whole_bytes(block_bytes(memory)),
                       MADV_DONTNEED);
    } else {
        __real_free(memory);
    }
}

void *__wrap_realloc(void *memory, size_t bytes) {
    if (!is_block(memory)) {
        return __real_realloc(memory, bytes);
    }
    void *moved = malloc(bytes);
    if (moved != NULL) {
        memcpy(moved, memory, bytes < block_bytes(memory) ? bytes : block_bytes(memory));
        __wrap_free(memory);
    }
    return moved;
}
