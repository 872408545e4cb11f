/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of a host share: sealed memory files (comm/shm/shared_memory.h), which a
 * peer maps on first use.
 *
 *   owner:  own[i], then regions[me][i] = {address, bytes, fd}, then generation (release)
 *   peer:   reads (i, generation) from a post, maps the file and keeps the mapping in
 *           mappings[owner][i]; a newer generation replaces it
 *
 * The file has three parts: mapping of shared files at huge-page addresses, the segment that all
 * ranks of a group map, and the table of a rank's buffers that peers map one by one. */
#define _GNU_SOURCE
#include "comm/shm/shared_buffers.h"
#include "comm/shm/shared_memory.h"
#include "comm/shm/shm.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HUGE_PAGE_BYTES = TRMI_HUGE_PAGE_BYTES,
    TRMI_MADV_COLLAPSE = 25 /* Linux 6.1; not in older headers */
};

/* Identifies the calling process by pid and pid namespace. */
static trmi_shm_process this_process(void) {
    trmi_shm_process self = {.pid = getpid()};
    struct stat info;
    if (stat("/proc/self/ns/pid", &info) == 0) {
        self.pid_namespace = (uint64_t)info.st_ino;
    }
    return self;
}

/* Returns whether two ranks are threads of one process, which need no mapping. */
static bool same_process(const trmi_shm_process *a, const trmi_shm_process *b) {
    return a->pid == b->pid && a->pid_namespace == b->pid_namespace;
}

/* Maps `bytes` of a shared file at an address that is a multiple of the huge page size: reserves
 * one huge page more, maps the file over an aligned part and unmaps the rest. Returns MAP_FAILED on
 * failure. */
static void *map_shared(int fd, size_t bytes) {
    if (bytes < HUGE_PAGE_BYTES || bytes > SIZE_MAX / 2) {
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    char *room = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return MAP_FAILED;
    }
    /* the file takes the place of the aligned part; what is before and after it is given back */
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)room % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    size_t pages = (bytes + 4095) / 4096 * 4096, all = bytes + HUGE_PAGE_BYTES;
    void *memory =
        mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (memory == MAP_FAILED) {
        munmap(room, bytes + HUGE_PAGE_BYTES);
        return MAP_FAILED;
    }
    if (before > 0) {
        munmap(room, before);
    }
    if (before + pages < all) {
        munmap(room + before + pages, all - before - pages);
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* Puts huge pages under the range in the file itself, independent of the machine's setting for
 * shared memory (usually "never"); the data stay. Passes over weights and gradients then have a
 * hundred times fewer TLB misses, and a peer takes one page fault for 2 MB instead of one for 4 KB.
 * On kernels without MADV_COLLAPSE only the pages are allocated. */
void trmi_comm_fill_shared(void *part, size_t bytes) {
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)part % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    size_t whole = bytes < before ? 0 : (bytes - before) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    for (size_t at = 0; at < whole; at += HUGE_PAGE_BYTES) {
        /* MADV_COLLAPSE skips pages that are not present: touch one in each huge page */
        (void)((volatile char *)part)[before + at];
    }
    if (whole > 0) {
        madvise((char *)part + before, whole, TRMI_MADV_COLLAPSE);
    }
}

/* Creates a sealed memory file and maps it. The caller closes *fd and unmaps *out. */
static trm_status make_memory(const char *name, size_t bytes, int *fd, void **out, trm_error *err) {
    int made;
    TRMI_TRY(trmi_shared_create(name, bytes, &made, err));
    void *memory = map_shared(made, bytes);
    if (memory == MAP_FAILED) {
        trm_status status = TRMI_FAIL_SYS(err, "no shared memory for %zu bytes", bytes);
        close(made);
        return status;
    }
    *fd = made;
    *out = memory;
    return TRM_OK;
}

/* Opens and maps the memory file that process `owner` holds as descriptor `fd`. */
static trm_status attach_memory(const trmi_shm_process *owner, int32_t fd, size_t bytes, void **out,
                                trm_error *err) {
    int opened;
    TRMI_TRY(trmi_shared_open(owner->pid, fd, bytes, &opened, err));
    void *memory = map_shared(opened, bytes);
    close(opened);
    if (memory == MAP_FAILED) {
        return TRMI_FAIL_SYS(err, "cannot map %zu bytes of shared memory", bytes);
    }
    *out = memory;
    return TRM_OK;
}

/* The values that ranks exchange while they create a segment. */
typedef struct segment_card {
    trmi_shm_process process;
    /* addresses in the creator: of the memory, and of its reference count */
    uint64_t address, users;
    int32_t fd, ok; /* descriptor in the creator; 1: the rank has succeeded so far */
} segment_card;

/* Joins the creator's segment: through its pointers in the same process, else by mapping its
 * file. */
static trm_status join_segment(const segment_card *mine, const segment_card *maker,
                               trmi_shm_segment *out, trm_error *err) {
    if (same_process(&mine->process, &maker->process)) {
        out->memory = (void *)(uintptr_t)maker->address;
        out->users = (_Atomic int32_t *)(uintptr_t)maker->users;
        atomic_fetch_add(out->users, 1);
    } else {
        TRMI_TRY(attach_memory(&maker->process, maker->fd, out->memory_bytes, &out->memory, err));
    }
    return TRM_OK;
}

/* Exchanges the ranks' cards and their success so far. Returns an error on every rank if one rank
 * has failed, so that no rank continues alone. */
static trm_status agree_on_segments(trm_status status, segment_card *mine, segment_card *cards,
                                    int32_t n, const trmi_exchange *exchange, trm_error *err) {
    mine->ok = status == TRM_OK;
    trm_status exchanged = exchange->allgather(exchange->context, mine, sizeof *mine, cards,
                                               status == TRM_OK ? err : NULL);
    status = status == TRM_OK ? exchanged : status;
    for (int32_t r = 0; status == TRM_OK && r < n; r++) {
        if (!cards[r].ok) {
            status = TRMI_FAIL(err, TRM_PEER,
                               "rank %d of %d on this host could not share memory "
                               "with the others",
                               r, n);
        }
    }
    return status;
}

/* Contract in shm.h. Both agreements are needed: after the first one each rank has rank 0's
 * descriptor, after the second one rank 0 may close it. A rank that fails in between makes all
 * of them fail. */
trm_status trmi_shm_segment_create(int32_t n, int32_t me, size_t bytes,
                                   const trmi_exchange *exchange, trmi_shm_process *processes,
                                   trmi_shm_segment *out, trm_error *err) {
    *out = (trmi_shm_segment){.memory_bytes = bytes};
    segment_card mine = {.process = this_process(), .fd = -1};
    segment_card *cards;
    TRMI_TRY(TRMI_NEW(err, cards, n, "to meet %d ranks", n));
    trm_status status = TRM_OK;
    /* rank 0 creates the memory and its reference count */
    if (me == 0) {
        out->users = trmi_alloc(sizeof *out->users);
        status = out->users == NULL
                     ? TRMI_NO_MEMORY(err, "to meet %d ranks", n)
                     : make_memory("trireme", out->memory_bytes, &mine.fd, &out->memory, err);
        if (status == TRM_OK) {
            atomic_store(out->users, 1);
            mine.users = (uint64_t)(uintptr_t)out->users;
            mine.address = (uint64_t)(uintptr_t)out->memory;
        } else {
            trmi_free((void *)out->users);
            out->users = NULL;
        }
    }
    /* the others map it once they have its card, and all agree once more */
    status = agree_on_segments(status, &mine, cards, n, exchange, err);
    for (int32_t r = 0; status == TRM_OK && processes != NULL && r < n; r++) {
        processes[r] = cards[r].process;
    }
    if (status == TRM_OK) {
        if (me != 0) {
            status = join_segment(&mine, &cards[0], out, err);
        }
        status = agree_on_segments(status, &mine, cards, n, exchange, err);
    }
    /* every rank has it mapped: the descriptor is no longer needed */
    if (mine.fd >= 0) {
        close(mine.fd);
    }
    trmi_free(cards);
    if (status != TRM_OK) {
        trmi_shm_segment_release(out);
        return status;
    }
    out->data = out->memory;
    return TRM_OK;
}

void trmi_shm_segment_release(trmi_shm_segment *segment) {
    if (segment->memory != NULL &&
        (segment->users == NULL || atomic_fetch_sub(segment->users, 1) == 1)) {
        munmap(segment->memory, segment->memory_bytes);
        trmi_free((void *)segment->users);
    }
    *segment = (trmi_shm_segment){0};
}

/* Allocates a host's private tables and the shared table of regions. */
static trm_status host_tables(trmi_shm_host *host, const trmi_exchange *exchange, trm_error *err) {
    size_t n = (size_t)host->n;
    TRMI_TRY(TRMI_NEW(err, host->processes, n, "for the tables of %d ranks", host->n));
    TRMI_TRY(
        TRMI_NEW(err, host->mappings, n * TRMI_SHM_REGIONS, "for the tables of %d ranks", host->n));
    TRMI_TRY(TRMI_NEW(err, host->own, TRMI_SHM_REGIONS, "for the tables of %d ranks", host->n));
    TRMI_TRY(trmi_shm_segment_create(host->n, host->me,
                                     n * TRMI_SHM_REGIONS * sizeof(trmi_shm_region), exchange,
                                     host->processes, &host->segment, err));
    host->regions = (trmi_shm_region *)(void *)host->segment.data;
    return TRM_OK;
}

trm_status trmi_shm_host_create(int32_t n, int32_t me, const trmi_exchange *exchange,
                                trmi_shm_host **out, trm_error *err) {
    trmi_shm_host *host;
    TRMI_TRY(TRMI_NEW(err, host, 1, "for the host of rank %d", me));
    host->n = n;
    host->me = me;
    atomic_store(&host->references, 1);
    pthread_mutex_init(&host->mutex, NULL);
    trm_status status = host_tables(host, exchange, err);
    if (status != TRM_OK) {
        trmi_shm_host_release(host);
        return status;
    }
    *out = host;
    return TRM_OK;
}

/* Unmaps one region of a peer. */
static void drop_mapping(trmi_shm_mapping *mapping) {
    char *base = atomic_load(&mapping->base);
    if (base != NULL) {
        munmap(base, mapping->bytes);
    }
    atomic_store(&mapping->base, NULL);
}

/* Contract in shm.h. The last communicator that has a reference frees the memory. */
void trmi_shm_host_release(trmi_shm_host *host) {
    if (host == NULL || atomic_fetch_sub(&host->references, 1) > 1) {
        return;
    }
    /* the buffers that this rank has not freed, then the mappings of the peers' buffers */
    for (int32_t i = 0; host->regions != NULL && i < TRMI_SHM_REGIONS; i++) {
        if (atomic_load(&host->own[i].generation) % 2 == 1) {
            trmi_shm_host_free(host, (void *)(uintptr_t)host->own[i].address);
        }
    }
    for (size_t i = 0; host->mappings != NULL && i < (size_t)host->n * TRMI_SHM_REGIONS; i++) {
        drop_mapping(&host->mappings[i]);
    }
    trmi_shm_segment_release(&host->segment);
    pthread_mutex_destroy(&host->mutex);
    trmi_free(host->processes);
    trmi_free(host->mappings);
    trmi_free(host->own);
    trmi_free(host);
}

/* Publishes an entry of `own` that has changed. The generation is stored last, so that a peer that
 * sees it also sees the other fields. */
static void publish_region(trmi_shm_host *host, const trmi_shm_region *own) {
    trmi_shm_region *told =
        &host->regions[(size_t)host->me * TRMI_SHM_REGIONS + (size_t)(own - host->own)];
    told->address = own->address;
    told->bytes = own->bytes;
    told->fd = own->fd;
    atomic_store(&told->generation, atomic_load(&own->generation));
    atomic_fetch_add(&host->changes, 1);
}

/* Contract in shm.h. The table of regions is in shared memory. Its generation is odd while a
 * region is in use, and rises with each allocation and free, so that peers notice a buffer that
 * has changed. */
void *trmi_shm_host_alloc(trmi_shm_host *host, size_t bytes, trm_error *err) {
    size_t wanted = trmi_shared_resident(bytes);
    if (wanted == 0) {
        TRMI_FAIL(err, TRM_NOMEM, "%zu bytes of shared memory: more than there can be", bytes);
        return NULL;
    }
    void *memory = NULL;
    pthread_mutex_lock(&host->mutex);
    trmi_shm_region *region = NULL;
    /* take the first free entry */
    for (int32_t i = 0; region == NULL && i < TRMI_SHM_REGIONS; i++) {
        region = atomic_load(&host->own[i].generation) % 2 == 0 ? &host->own[i] : NULL;
    }
    if (region == NULL) {
        TRMI_FAIL(err, TRM_NOMEM,
                  "all %d shared buffers of this rank are in use: allocate fewer, "
                  "larger ones",
                  TRMI_SHM_REGIONS);
    } else {
        int fd = -1;
        if (make_memory("trireme-buffer", wanted, &fd, &memory, err) == TRM_OK) {
            region->address = (uint64_t)(uintptr_t)memory;
            region->bytes = wanted;
            region->fd = fd;
            atomic_fetch_add(&region->generation, 1); /* odd: in use */
            publish_region(host, region);
        }
    }
    pthread_mutex_unlock(&host->mutex);
    return memory;
}

/* Contract in shm.h. The memory stays mapped here, and peers can reach it no longer. */
size_t trmi_shm_host_keep(trmi_shm_host *host, void *memory) {
    size_t bytes = 0;
    pthread_mutex_lock(&host->mutex);
    for (int32_t i = 0; bytes == 0 && i < TRMI_SHM_REGIONS; i++) {
        trmi_shm_region *mine = &host->own[i];
        if (atomic_load(&mine->generation) % 2 == 1 &&
            mine->address == (uint64_t)(uintptr_t)memory) {
            bytes = mine->bytes;
            close(mine->fd);
            atomic_fetch_add(&mine->generation, 1); /* even: free */
            publish_region(host, mine);
        }
    }
    pthread_mutex_unlock(&host->mutex);
    return bytes;
}

void trmi_shm_host_free(trmi_shm_host *host, void *memory) {
    size_t bytes = trmi_shm_host_keep(host, memory);
    if (bytes > 0) {
        munmap(memory, bytes);
    }
}

/* Contract in shm.h. Called for each operation, so it takes no lock: a generation that has changed
 * meanwhile is noticed by the peer. */
trmi_shm_place trmi_shm_find(const trmi_shm_host *host, const void *buffer, size_t bytes,
                             bool one_process) {
    trmi_shm_place place = {.region = TRMI_SHM_NOWHERE};
    uint64_t address = (uint64_t)(uintptr_t)buffer;
    if (one_process) {
        place.region = TRMI_SHM_ADDRESS;
        place.offset = address;
        return place;
    }
    const trmi_shm_region *mine = host->own;
    for (uint32_t i = 0; i < TRMI_SHM_REGIONS; i++) {
        uint64_t generation = atomic_load_explicit(&mine[i].generation, memory_order_acquire);
        if (generation == 0) {
            break; /* entries are used from the front: no later entry was ever used */
        }
        /* The region is in use while its generation is odd. */
        if (generation % 2 == 1 && address >= mine[i].address &&
            address + bytes <= mine[i].address + mine[i].bytes) {
            place.region = i;
            place.generation = (uint32_t)generation;
            place.offset = address - mine[i].address;
            break;
        }
    }
    return place;
}

/* Maps the region of a rank that `place` refers to. */
static trm_status map_region(const trmi_shm_host *host, int32_t owner, trmi_shm_place place,
                             void **memory, size_t *bytes, trm_error *err) {
    const trmi_shm_region *region = &host->regions[(size_t)owner * TRMI_SHM_REGIONS + place.region];
    if ((uint32_t)atomic_load(&region->generation) != place.generation) {
        return TRMI_FAIL(err, TRM_INVALID, "a shared buffer was freed while an operation used it");
    }
    *bytes = (size_t) * (const volatile uint64_t *)&region->bytes;
    return attach_memory(&host->processes[owner], region->fd, *bytes, memory, err);
}

/* Maps the region of a peer in place of its older generation. The host's mutex is held. */
static trm_status attach_region(trmi_shm_host *host, int32_t peer, trmi_shm_place place,
                                trmi_shm_mapping *mapping, trm_error *err) {
    void *memory = NULL;
    size_t bytes;
    TRMI_TRY(map_region(host, peer, place, &memory, &bytes, err));
    drop_mapping(mapping);
    mapping->bytes = bytes;
    mapping->generation = place.generation;
    atomic_store(&mapping->base, memory);
    return TRM_OK;
}

/* Returns whether `bytes` bytes at `offset`, numbers from a peer, lie in a buffer of `all`
 * bytes. */
static bool lies_within(uint64_t offset, size_t bytes, size_t all, trm_error *err) {
    const bool within = offset <= all && bytes <= all - offset;
    if (!within) {
        (void)TRMI_FAIL(err, TRM_CORRUPT,
                        "a peer's buffer of %zu bytes reaches past its %zu bytes "
                        "of shared memory",
                        bytes, all);
    }
    return within;
}

/* Contract in shm.h. The memory may be a peer's, mapped here. */
bool trmi_shm_find_owner(trmi_shm_host *host, const void *memory, size_t bytes, int32_t *owner,
                         trmi_shm_place *place) {
    const char *begin = memory;
    *owner = host->me;
    *place = trmi_shm_find(host, memory, bytes, false);
    pthread_mutex_lock(&host->mutex);
    for (size_t i = 0; place->region == TRMI_SHM_NOWHERE && i < (size_t)host->n * TRMI_SHM_REGIONS;
         i++) {
        const trmi_shm_mapping *mapping = &host->mappings[i];
        const char *base = atomic_load(&mapping->base);
        if (base != NULL && begin >= base && begin + bytes <= base + mapping->bytes) {
            *owner = (int32_t)(i / TRMI_SHM_REGIONS);
            *place = (trmi_shm_place){.region = (uint32_t)(i % TRMI_SHM_REGIONS),
                                      .generation = (uint32_t)mapping->generation,
                                      .offset = (uint64_t)(begin - base)};
        }
    }
    pthread_mutex_unlock(&host->mutex);
    return place->region != TRMI_SHM_NOWHERE;
}

/* Contract in shm.h. The place comes from a peer and is checked like any input. */
trm_status trmi_shm_map_place(trmi_shm_host *host, int32_t owner, trmi_shm_place place,
                              size_t bytes, trmi_shm_segment *out, trm_error *err) {
    *out = (trmi_shm_segment){0};
    if (owner < 0 || owner >= host->n) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "shared memory: a region of rank %d, ranks from 0 to %d expected", owner,
                         host->n - 1);
    }
    if (place.region >= TRMI_SHM_REGIONS) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "shared memory: region %u of rank %d, %d regions expected", place.region,
                         owner, TRMI_SHM_REGIONS);
    }
    TRMI_TRY(map_region(host, owner, place, &out->memory, &out->memory_bytes, err));
    if (!lies_within(place.offset, bytes, out->memory_bytes, err)) {
        trmi_shm_segment_release(out);
        return TRM_CORRUPT;
    }
    out->data = (char *)out->memory + place.offset;
    return TRM_OK;
}

/* Contract in shm.h. Two ranks of one process use the address as it is. Otherwise the peer's
 * region is mapped once, and again when its generation has changed. */
trm_status trmi_shm_reach(trmi_shm_host *host, int32_t peer, trmi_shm_place place, size_t bytes,
                          char **out, trm_error *err) {
    if (place.region == TRMI_SHM_ADDRESS &&
        same_process(&host->processes[peer], &host->processes[host->me])) {
        *out = (char *)(uintptr_t)place.offset;
        return TRM_OK;
    }
    if (place.region >= TRMI_SHM_REGIONS) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "shared memory: region %u of rank %d, %d regions expected", place.region,
                         peer, TRMI_SHM_REGIONS);
    }
    /* The region is mapped in this generation already. Otherwise map it, under the mutex. */
    trmi_shm_mapping *mapping = &host->mappings[(size_t)peer * TRMI_SHM_REGIONS + place.region];
    char *base = atomic_load_explicit(&mapping->base, memory_order_acquire);
    if (base == NULL || mapping->generation != place.generation) {
        pthread_mutex_lock(&host->mutex);
        trm_status status = TRM_OK;
        base = atomic_load(&mapping->base);
        if (base == NULL || mapping->generation != place.generation) {
            status = attach_region(host, peer, place, mapping, err);
        }
        pthread_mutex_unlock(&host->mutex);
        TRMI_TRY(status);
        base = atomic_load(&mapping->base);
    }
    if (!lies_within(place.offset, bytes, mapping->bytes, err)) {
        return TRM_CORRUPT;
    }
    *out = base + place.offset;
    return TRM_OK;
}
