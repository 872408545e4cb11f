/* SPDX-License-Identifier: Apache-2.0 */
/* Large mappings that are kept between trmi_unmap and trmi_map (contracts in kept_mappings.h). One
 * list for the process, under one lock.
 *
 *      add    keeps a mapping, as long as there are fewer than KEPT_MAPPINGS
 *      take   gives the smallest one that is large enough, and frees what it has beyond the request;
 *             where none is, frees as many kept bytes as the request will map (give_back) */
#include "base/kept_mappings.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* Smaller mappings are not kept: taking them anew costs little. */
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

/* Frees `bytes` bytes of what is kept, of the largest mappings first. A rest that is too small to
 * be taken again goes, too. */
static void give_back(size_t bytes) {
    while (bytes > 0 && kept.count > 0) {
        int largest = 0;
        for (int i = 1; i < kept.count; i++) {
            largest = kept.list[i].bytes > kept.list[largest].bytes ? i : largest;
        }
        const size_t all = kept.list[largest].bytes, rest = all > bytes ? all - bytes : 0,
                     stays = rest >= LEAST_BYTES ? rest : 0;
        munmap(kept.list[largest].memory + stays, all - stays);
        kept.list[largest].bytes = stays;
        if (stays == 0) {
            kept.list[largest] = kept.list[--kept.count];
        }
        bytes -= all - stays < bytes ? all - stays : bytes;
    }
}

/* Contract in kept_mappings.h. Takes the smallest mapping that is large enough and gives its rest
 * back. Where none is, as many kept bytes are freed as the caller will now map, so that the
 * memory of the process does not grow by what is kept. */
char *trmi_kept_take(size_t wanted) {
    char *memory = NULL;
    pthread_mutex_lock(&kept.lock);
    int fits = -1;
    for (int i = 0; i < kept.count && wanted >= LEAST_BYTES; i++) {
        const size_t bytes = kept.list[i].bytes;
        fits = bytes >= wanted && (fits < 0 || bytes < kept.list[fits].bytes) ? i : fits;
    }
    if (fits >= 0) {
        memory = kept.list[fits].memory;
        if (kept.list[fits].bytes > wanted) {
            munmap(memory + wanted, kept.list[fits].bytes - wanted);
        }
        kept.list[fits] = kept.list[--kept.count];
    } else {
        give_back(wanted);
    }
    pthread_mutex_unlock(&kept.lock);
    return memory;
}

/* Contract in kept_mappings.h. Runs of pages of one kind are cleared by one call. If the kernel
 * does not tell which pages are in memory, all are zeroed. */
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
