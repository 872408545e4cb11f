/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of a host: a ring of cells for each ordered pair of ranks.
 *
 *   sender    waits until cell k is empty, writes it, full = k + 1, rings the receiver
 *   receiver  waits until cell k is full, reads it, empty = k + 1, rings the sender
 *
 * A message is either one or more cells of payload, or a single cell with the place of the sender's
 * buffer. In the second case the receiver copies the data from there, and the sender is done when
 * that cell is empty again. All sizes and places in a cell come from another process: the receiver
 * copies and checks them before use. */
#include "comm/shm/shm.h"

#include "base/checked.h"
#include "base/error.h"
#include "comm/shm/futex.h"

#include <string.h>

/* Returns the cell for message number `index` from rank `from` to rank `to`. */
static trmi_shm_cell *cell_of(const trmi_shm *shm, int32_t from, int32_t to, uint64_t index) {
    size_t pair = (size_t)from * (size_t)shm->n + (size_t)to;
    return &shm->cells[pair * TRMI_SHM_CELLS + index % TRMI_SHM_CELLS];
}

void trmi_shm_ring_mail(trmi_shm *shm, int32_t peer) {
    trmi_shm_line *line = &shm->lines[peer];
    /* The read-modify-write orders the flag stored before it against the load after it. */
    atomic_fetch_add(&line->mail, 1);
    if (atomic_load(&line->mail_sleeping) != 0) {
        trmi_futex_wake((uint32_t *)(void *)&line->mail, INT32_MAX);
    }
}

void trmi_shm_idle(trmi_engine *engine, double seconds) {
    trmi_shm *shm = (trmi_shm *)(void *)engine;
    trmi_shm_line *line = &shm->lines[shm->me];
    /* Sleep only if no message has moved since the caller last went through its messages. */
    uint32_t seen = shm->mail_seen;
    atomic_fetch_add(&line->mail_sleeping, 1);
    if (atomic_load(&line->mail) == seen) {
        trmi_futex_wait((uint32_t *)(void *)&line->mail, seen, seconds);
    }
    atomic_fetch_sub(&line->mail_sleeping, 1);
    shm->mail_seen = atomic_load(&line->mail);
}

/* Returns whether the receiver has consumed the message that occupied the cell before message
 * `index`. */
static bool is_free(const trmi_shm_cell *cell, uint64_t index) {
    return index < TRMI_SHM_CELLS ||
           atomic_load_explicit(&cell->empty, memory_order_acquire) == index - TRMI_SHM_CELLS + 1;
}

/* Completes cell number `index` for message `m` and makes it visible to the receiver. */
static void publish_cell(trmi_shm *shm, trmi_engine_message *m, trmi_shm_cell *cell,
                         uint64_t index) {
    cell->bytes = (uint64_t)m->bytes;
    cell->signature = m->signature;
    atomic_store_explicit(&cell->full, index + 1, memory_order_release);
    trmi_shm_ring_mail(shm, m->peer);
}

/* Sends as much of `m` as possible without waiting. A large message in memory that the receiver can
 * map takes one cell with its place; any other message fills as many cells as are free. */
static void send_some(trmi_shm *shm, trmi_engine_message *m) {
    uint64_t *written = &shm->cells_written[m->peer];
    if (m->started && m->cell != 0) { /* the place is published: wait for the receiver */
        trmi_shm_cell *cell = cell_of(shm, shm->me, m->peer, m->cell - 1);
        m->done = atomic_load_explicit(&cell->empty, memory_order_acquire) >= m->cell;
        return;
    }
    while (!m->done) {
        trmi_shm_cell *cell = cell_of(shm, shm->me, m->peer, *written);
        if (!is_free(cell, *written)) {
            return;
        }
        cell->place = (trmi_shm_place){.region = TRMI_SHM_NOWHERE};
        cell->inline_bytes = 0;
        if (!m->started && m->bytes > TRMI_SHM_CELL_BYTES && !shm->no_direct) {
            cell->place = trmi_shm_find(shm->host, m->buffer, (size_t)m->bytes, shm->one_process);
        }
        m->started = true;
        if (cell->place.region != TRMI_SHM_NOWHERE) {
            m->cell = *written + 1;
            publish_cell(shm, m, cell, (*written)++);
            return;
        }
        /* Copy the next piece into the cell. */
        int64_t piece = trmi_min_i64(m->bytes - m->moved, TRMI_SHM_CELL_BYTES);
        if (piece > 0) {
            memcpy(cell->payload, m->buffer + m->moved, (size_t)piece);
        }
        cell->inline_bytes = (uint64_t)piece;
        m->moved += piece;
        m->done = m->moved == m->bytes;
        publish_cell(shm, m, cell, (*written)++);
    }
}

/* Fails because the two sides of a message disagree about its length or type; poisons the job. */
static trm_status fail_mismatch(trmi_shm *shm, const trmi_engine_message *m,
                                const trmi_shm_cell *cell, trm_error *err) {
    const trmi_group *group = &shm->base.group;
    trm_error cause;
    TRMI_FAIL(&cause, TRM_INVALID,
              "ranks disagree: rank %d sends %lld bytes of %s, rank %d expects "
              "%lld bytes of %s",
              group->members[m->peer], (long long)cell->bytes,
              trm_dtype_name((trm_dtype)cell->signature), group->members[shm->me],
              (long long)m->bytes, trm_dtype_name((trm_dtype)m->signature));
    return trmi_group_poison(group, &cause, err);
}

/* Fails with PEER because the peer of `m` destroyed its communicator before `m` was done. If the
 * job has failed already, the peer left because of that failure: this function then returns OK, and
 * trmi_wait_check reports the first failure. */
static trm_status fail_peer_left(trmi_shm *shm, const trmi_engine_message *m, trm_error *err) {
    if (!trmi_bootstrap_healthy(shm->base.group.bootstrap)) {
        return TRM_OK;
    }
    const trmi_group *group = &shm->base.group;
    trm_error cause;
    TRMI_FAIL(&cause, TRM_PEER, "rank %d has left '%s', rank %d still %s %lld bytes",
              group->members[m->peer], group->name, group->members[shm->me],
              m->receive ? "expects from it" : "sends it", (long long)(m->bytes - m->moved));
    return trmi_group_poison(group, &cause, err);
}

/* Fails because a cell claims more bytes than a cell holds or than the message still misses. */
static trm_status fail_too_long(trmi_shm *shm, const trmi_engine_message *m, uint64_t piece,
                                trm_error *err) {
    const trmi_group *group = &shm->base.group;
    trm_error cause;
    TRMI_FAIL(&cause, TRM_CORRUPT,
              "rank %d sends %llu bytes at once, of a message of %lld of which %lld are missing",
              group->members[m->peer], (unsigned long long)piece, (long long)m->bytes,
              (long long)(m->bytes - m->moved));
    return trmi_group_poison(group, &cause, err);
}

/* Receives as much of `m` as has arrived, without waiting. */
static trm_status receive_some(trmi_shm *shm, trmi_engine_message *m, trm_error *err) {
    uint64_t *read = &shm->cells_read[m->peer];
    while (!m->done) {
        trmi_shm_cell *cell = cell_of(shm, m->peer, shm->me, *read);
        if (atomic_load_explicit(&cell->full, memory_order_acquire) != *read + 1) {
            return TRM_OK;
        }
        if (cell->bytes != (uint64_t)m->bytes || cell->signature != m->signature) {
            return fail_mismatch(shm, m, cell, err);
        }
        const trmi_shm_place place = cell->place; /* shared memory: check and use the copy */
        /* The cell of a long message says where it lies. */
        if (place.region != TRMI_SHM_NOWHERE) {
            char *from = NULL;
            trm_error cause;
            if (trmi_shm_reach(shm->host, shm->host_rank[m->peer], place, (size_t)m->bytes, &from,
                               &cause) != TRM_OK) {
                return trmi_group_unreachable(&shm->base.group, &cause, "a message that it sends",
                                              err);
            }
            memcpy(m->buffer, from, (size_t)m->bytes);
            m->moved = m->bytes;
        } else {
            /* a piece of a message that lies in the cell */
            const uint64_t piece = *(const volatile uint64_t *)&cell->inline_bytes;
            if (piece > TRMI_SHM_CELL_BYTES || piece > (uint64_t)(m->bytes - m->moved)) {
                return fail_too_long(shm, m, piece, err);
            }
            if (piece > 0) {
                memcpy(m->buffer + m->moved, cell->payload, piece);
            }
            m->moved += (int64_t)piece;
        }
        m->done = m->moved == m->bytes;
        atomic_store_explicit(&cell->empty, ++*read, memory_order_release);
        trmi_shm_ring_mail(shm, m->peer);
    }
    return TRM_OK;
}

trm_status trmi_shm_progress(trmi_engine *engine, trmi_engine_message *message, trm_error *err) {
    trmi_shm *shm = (trmi_shm *)(void *)engine;
    /* Read before the cells: what the peer sent or consumed just before it left is then visible in
     * them, and a message that the peer completed with its last action does not fail. */
    const bool left = atomic_load(&shm->lines[message->peer].left) != 0;
    if (message->receive) {
        TRMI_TRY(receive_some(shm, message, err));
    } else {
        send_some(shm, message);
    }
    return left && !message->done ? fail_peer_left(shm, message, err) : TRM_OK;
}
