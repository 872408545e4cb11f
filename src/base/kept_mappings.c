/* SPDX-License-Identifier: Apache-2.0 */
/* Large mappings that are kept between trmi_unmap and trmi_map (contracts in kept_mappings.h). */
#include "base/kept_mappings.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { LEAST_BYTES = 4 << 20, PAGE_BYTES = 4096 };

/* Mappings that were freed and are kept (trmi_keep_mappings). */
enum { KEPT_MAPPINGS = 16 };
static struct {
    pthread_mutex_t lock;
    bool on;
    int count;
    struct {
        char *memory;
        size_t bytes;
    } list[KEPT_MAPPINGS];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool trmi_kept_add(void *memory, size_t bytes) {
    pthread_mutex_lock(&kept.lock);
    const bool keeps = kept.on && kept.count < KEPT_MAPPINGS && bytes >= LEAST_BYTES;
    if (keeps) {
        kept.list[kept.count].memory = memory;
        kept.list[kept.count++].bytes = bytes;
    }
    pthread_mutex_unlock(&kept.lock);
    return keeps;
}

char *trmi_kept_take(size_t wanted) {
    char *memory = NULL;
    pthread_mutex_lock(&kept.lock);
    int fits = -1, largest = -1;
    for (int i = 0; i < kept.count; i++) {
        const size_t bytes = kept.list[i].bytes;
        fits = bytes >= wanted && (fits < 0 || bytes < kept.list[fits].bytes) ? i : fits;
        largest = largest < 0 || bytes > kept.list[largest].bytes ? i : largest;
    }
    const int taken = fits >= 0 ? fits : largest;
    if (wanted >= LEAST_BYTES && taken >= 0) {
        char *begin = kept.list[taken].memory;
        const size_t bytes = kept.list[taken].bytes, used = fits >= 0 ? wanted : 0;
        kept.list[taken] = kept.list[--kept.count];
        if (bytes > used) {
            munmap(begin + used, bytes - used);
        }
        memory = fits >= 0 ? begin : NULL;
    }
    pthread_mutex_unlock(&kept.lock);
    return memory;
}

void trmi_kept_clear(char *memory, size_t bytes) {
    enum { CHUNK_PAGES = 8192 };
    unsigned char used[CHUNK_PAGES];
    for (size_t at = 0; at < bytes; at += (size_t)CHUNK_PAGES * PAGE_BYTES) {
        const size_t rest = bytes - at,
                     chunk = rest < (size_t)CHUNK_PAGES * PAGE_BYTES
                                 ? rest
                                 : CHUNK_PAGES * (size_t)PAGE_BYTES,
                     pages = chunk / PAGE_BYTES;
        if (mincore(memory + at, chunk, used) != 0) {
            memset(used, 1, sizeof used);
        }
        for (size_t i = 0, end; i < pages; i = end) {
            for (end = i + 1; end < pages && (used[end] & 1) == (used[i] & 1); end++) {
            }
            char *begin = memory + at + i * PAGE_BYTES;
            if ((used[i] & 1) == 0 && madvise(begin, (end - i) * PAGE_BYTES, MADV_DONTNEED) == 0) {
                continue;
            }
            memset(begin, 0, (end - i) * PAGE_BYTES);
        }
    }
}

void trmi_keep_mappings(bool on) {
    pthread_mutex_lock(&kept.lock);
    kept.on = on;
    for (; !on && kept.count > 0; kept.count--) {
        munmap(kept.list[kept.count - 1].memory, kept.list[kept.count - 1].bytes);
    }
    pthread_mutex_unlock(&kept.lock);
}
