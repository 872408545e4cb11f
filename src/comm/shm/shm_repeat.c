/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of short all-reduces that are called again and again, for example a training loop's
 * statistics, which use the same buffers in every step. If this rank's call and the peers' posts
 * are identical to those of last time, then signatures, deliveries, places and slices are identical
 * too, and the rank goes straight from the posts to the sum.
 *
 *   op --hash--> one of TRMI_SHM_REPEATS entries --equal?--> said[me] into the slot, post, wait
 *                                                            slot of r == said[r] for all r?
 *                                                                yes: run the kernel
 *                                                                no:  the general path, which stores a new entry
 *
 * Only this rank's own memory decides: an entry that is missing on a peer changes that peer's time,
 * not its result. */
#include "comm/shm/shm.h"

#include "base/memory.h"

#include <string.h>

/* Returns the entry that `op` maps to. It may hold another operation (direct-mapped, no search). */
static trmi_shm_repeat *entry_of(const trmi_shm *shm, const trmi_engine_call *op) {
    uint64_t mixed = ((uint64_t)(uintptr_t)op->recv >> 6 ^ op->signature[1]) * 0x9E3779B97F4A7C15u;
    return &shm->repeats[(mixed >> 32) % TRMI_SHM_REPEATS];
}

/* Compares the cached call with `op`. A freed buffer may have a successor at the same address;
 * `changes` differs then, and the entry does not match. */
const trmi_shm_repeat *trmi_shm_find_repeat(const trmi_shm *shm, const trmi_engine_call *op) {
    const trmi_shm_repeat *entry = entry_of(shm, op);
    bool same = entry->recv == op->recv && entry->recv != NULL && entry->send == op->send &&
                entry->signature[0] == op->signature[0] &&
                entry->signature[1] == op->signature[1] &&
                entry->changes == atomic_load_explicit(&shm->host->changes, memory_order_relaxed);
    return same ? entry : NULL;
}

/* Returns whether two headers declare the same. The carried data are not compared. */
static bool is_same(const trmi_shm_said *now, const trmi_shm_said *then) {
    return now->signature[0] == then->signature[0] && now->signature[1] == then->signature[1] &&
           now->delivery == then->delivery &&
           (now->delivery == TRMI_SHM_CARRIES || memcmp(&now->at, &then->at, sizeof now->at) == 0);
}

bool trmi_shm_headers_equal(const trmi_shm *shm, const trmi_shm_repeat *repeat) {
    for (int32_t r = 0; r < shm->n; r++) {
        if (r != shm->me &&
            !is_same(&trmi_shm_slot_of(shm, r, shm->posts)->said, &repeat->said[r])) {
            return false;
        }
    }
    return true;
}

/* Allocates the arrays of an entry on first use; false if there is no memory. */
static bool make_room(trmi_shm_repeat *entry, size_t n) {
    if (entry->said == NULL) {
        entry->said = trmi_alloc(n * sizeof *entry->said);
        entry->sources = trmi_alloc(n * sizeof *entry->sources);
        entry->targets = trmi_alloc(n * sizeof *entry->targets);
    }
    return entry->said != NULL && entry->sources != NULL && entry->targets != NULL;
}

/* Starts the entry for `op` with what all ranks have posted. Returns NULL if there is no memory.
 * The entry stays empty (recv == NULL) until the caller has completed it. */
static trmi_shm_repeat *begin_entry(trmi_shm *shm, const trmi_engine_call *op) {
    trmi_shm_repeat *entry = entry_of(shm, op);
    entry->recv = NULL;
    if (!make_room(entry, (size_t)shm->n)) {
        return NULL;
    }
    for (int32_t r = 0; r < shm->n; r++) {
        entry->said[r] = trmi_shm_slot_of(shm, r, shm->posts)->said;
    }
    entry->kernel = (*shm->reduce)[op->dtype - 1][op->reduce - 1];
    entry->signature[0] = op->signature[0];
    entry->signature[1] = op->signature[1];
    entry->changes = atomic_load(&shm->host->changes);
    entry->send = op->send;
    return entry;
}

void trmi_shm_store_repeat(trmi_shm *shm, const trmi_engine_call *op, int32_t target_count,
                           int64_t count) {
    trmi_shm_repeat *entry = begin_entry(shm, op);
    if (entry != NULL) {
        memcpy(entry->sources, shm->sources, (size_t)shm->n * sizeof *entry->sources);
        memcpy(entry->targets, shm->targets, (size_t)target_count * sizeof *entry->targets);
        entry->target_count = target_count;
        entry->count = count;
        entry->carried = 0;
        entry->recv = op->recv;
    }
}

void trmi_shm_store_slot_repeat(trmi_shm *shm, const trmi_engine_call *op, int64_t bytes) {
    trmi_shm_repeat *entry = begin_entry(shm, op);
    if (entry != NULL) {
        entry->carried = bytes;
        entry->recv = op->recv;
    }
}
