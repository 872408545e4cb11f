/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks of the product's memory (sim.h). A server and a client clear more than a megabyte
 * each when they start, of which they use little; most of the time of a run went into that. Here
 * such a block is a piece of a mapping that has not been used, which the kernel clears page by page
 * where it is touched. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__real_trmi_alloc(size_t bytes);
void __real_trmi_free(void *memory);
void __real_trm_free(void *memory);
int __real_madvise(void *at, size_t bytes, int advice);
void *__wrap_trmi_alloc(size_t bytes);
void __wrap_trmi_free(void *memory);
void __wrap_trm_free(void *memory);

enum { PIECE_BYTES = 32 << 10, PIECES = 1 << 21 };

static char *pieces;                  /* mapping of PIECES pieces */
static size_t next_piece;             /* no block has this one or a later one */
static uint32_t piece_counts[PIECES]; /* pieces of the block that begins there */

void *__wrap_trmi_alloc(size_t bytes) {
    size_t count = bytes / PIECE_BYTES + 1;
    if (bytes < PIECE_BYTES || count > PIECES - next_piece) {
        return __real_trmi_alloc(bytes);
    }
    if (pieces == NULL) {
        pieces = mmap(NULL, (size_t)PIECES * PIECE_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pieces == MAP_FAILED) {
            perror("trireme-sim: memory of blocks");
            abort();
        }
    }
    char *block = pieces + next_piece * PIECE_BYTES;
    piece_counts[next_piece] = (uint32_t)count;
    next_piece += count;
    return block;
}

/* Gives the pages of a block back; its place is not used again. Returns false: it is no such block.
 */
static bool free_block(char *memory) {
    if (pieces == NULL || memory < pieces || memory >= pieces + next_piece * PIECE_BYTES) {
        return false;
    }
    size_t first = (size_t)(memory - pieces) / PIECE_BYTES;
    __real_madvise(memory, (size_t)piece_counts[first] * PIECE_BYTES, MADV_DONTNEED);
    return true;
}

void __wrap_trmi_free(void *memory) {
    if (!free_block(memory)) {
        __real_trmi_free(memory);
    }
}
void __wrap_trm_free(void *memory) {
    if (!free_block(memory)) {
        __real_trm_free(memory);
    }
}
