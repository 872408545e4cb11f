/* SPDX-License-Identifier: Apache-2.0 */
/* The decision about the members of the next epoch (contracts in membership.h).
 *
 * Integers on the wire are little-endian:
 *
 *   list    i64 epoch, i32 ballot, count, left, 4 zeros, entries: count + left
 *   entry   u64 id, u64 start time, i32 pid, number, port, meeting port, 32 bytes place, 48 bytes
 *           address, i32 leaves, 12 zeros */
#include "comm/rendezvous/membership.h"

#include "base/format/endian.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------- */

int32_t trmi_members_find(const trmi_members *members, uint64_t id) {
    for (int32_t i = 0; i < members->count; i++) {
        if (members->list[i].id == id) {
            return i;
        }
    }
    return -1;
}

bool trmi_members_has_left(const trmi_members *members, uint64_t id) {
    bool found = false;
    for (int32_t i = members->count; i < members->count + members->left; i++) {
        found = found || members->list[i].id == id;
    }
    return found;
}

trm_status trmi_members_copy(trmi_members *to, const trmi_members *from, trm_error *err) {
    trmi_members copy = *from;
    const int32_t entries = from->count + from->left;
    TRMI_TRY(TRMI_NEW(err, copy.list, entries, "for %d members", entries));
    memcpy(copy.list, from->list, (size_t)entries * sizeof *copy.list);
    trmi_members_free(to);
    *to = copy;
    return TRM_OK;
}

void trmi_members_free(trmi_members *members) {
    trmi_free(members->list);
    *members = (trmi_members){.ballot = -1};
}

void trmi_member_encode(const trmi_member *m, uint8_t wire[TRMI_MEMBER_BYTES]) {
    memset(wire, 0, TRMI_MEMBER_BYTES);
    trmi_put64(wire, m->id);
    trmi_put64(wire + 8, m->start_time);
    trmi_put32(wire + 16, (uint32_t)m->pid);
    trmi_put32(wire + 20, (uint32_t)m->number);
    trmi_put32(wire + 24, (uint32_t)m->port);
    trmi_put32(wire + 28, (uint32_t)m->meeting_port);
    memcpy(wire + 32, m->place, 32);
    memcpy(wire + 64, m->address, sizeof m->address);
    trmi_put32(wire + 112, (uint32_t)m->leaves);
}

void trmi_member_decode(const uint8_t wire[TRMI_MEMBER_BYTES], trmi_member *m) {
    m->id = trmi_get64(wire);
    m->start_time = trmi_get64(wire + 8);
    m->pid = (int32_t)trmi_get32(wire + 16);
    m->number = (int32_t)trmi_get32(wire + 20);
    m->port = (int32_t)trmi_get32(wire + 24);
    m->meeting_port = (int32_t)trmi_get32(wire + 28);
    memcpy(m->place, wire + 32, 32);
    memcpy(m->address, wire + 64, sizeof m->address);
    m->address[sizeof m->address - 1] = '\0';
    m->leaves = (int32_t)trmi_get32(wire + 112);
}

size_t trmi_members_bytes(const trmi_members *members) {
    return TRMI_MEMBERS_HEAD + (size_t)(members->count + members->left) * TRMI_MEMBER_BYTES;
}

size_t trmi_members_encode(const trmi_members *members, uint8_t *wire) {
    memset(wire, 0, TRMI_MEMBERS_HEAD);
    trmi_put64(wire, (uint64_t)members->epoch);
    trmi_put32(wire + 8, (uint32_t)members->ballot);
    trmi_put32(wire + 12, (uint32_t)members->count);
    trmi_put32(wire + 16, (uint32_t)members->left);
    uint8_t *entry = wire + TRMI_MEMBERS_HEAD;
    for (int32_t i = 0; i < members->count + members->left; i++, entry += TRMI_MEMBER_BYTES) {
        trmi_member_encode(&members->list[i], entry);
    }
    return (size_t)(entry - wire);
}

/* Contract in membership.h. The counts come from another process: they are compared with the
 * bytes that are there before memory is taken. */
trm_status trmi_members_decode(const uint8_t *wire, size_t bytes, trmi_members *out, size_t *used,
                               trm_error *err) {
    trmi_members read = {.ballot = -1};
    if (bytes < TRMI_MEMBERS_HEAD) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a list of members has %zu bytes, %d expected", bytes,
                         TRMI_MEMBERS_HEAD);
    }
    read.epoch = (int64_t)trmi_get64(wire);
    read.ballot = (int32_t)trmi_get32(wire + 8);
    read.count = (int32_t)trmi_get32(wire + 12);
    read.left = (int32_t)trmi_get32(wire + 16);
    /* The entries must be there before memory is taken for them. */
    if (read.count < 0 || read.count > TRMI_MEMBERS_MAX || read.left < 0 ||
        read.left > TRMI_MEMBERS_MAX || read.ballot < -1 ||
        (bytes - TRMI_MEMBERS_HEAD) / TRMI_MEMBER_BYTES < (size_t)(read.count + read.left)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "a list of %d members, and %d that left, has %zu bytes",
                         read.count, read.left, bytes);
    }
    const int32_t entries = read.count + read.left;
    TRMI_TRY(TRMI_NEW(err, read.list, entries, "for %d members", entries));
    for (int32_t i = 0; i < entries; i++) {
        trmi_member_decode(wire + TRMI_MEMBERS_HEAD + (size_t)i * TRMI_MEMBER_BYTES, &read.list[i]);
    }
    *used = trmi_members_bytes(&read);
    trmi_members_free(out);
    *out = read;
    return TRM_OK;
}

/* ---- a member -------------------------------------------------------------------------------- */

bool trmi_vote_promise(trmi_vote *vote, int32_t ballot) {
    if (ballot < vote->promised) {
        return false;
    }
    vote->promised = ballot;
    return true;
}

trm_status trmi_vote_accept(trmi_vote *vote, const trmi_members *list, trm_error *err) {
    if (list->ballot < vote->promised) {
        return TRMI_FAIL(err, TRM_CANCELLED, "ballot %d is over: ballot %d is promised",
                         list->ballot, vote->promised);
    }
    TRMI_TRY(trmi_members_copy(&vote->accepted, list, err));
    vote->promised = list->ballot;
    return TRM_OK;
}

/* ---- a coordinator --------------------------------------------------------------------------- */

trm_status trmi_ballot_begin(const trmi_members *now, int32_t number, int32_t least, int32_t most,
                             trmi_ballot *out, trm_error *err) {
    *out = (trmi_ballot){
        .now = now, .number = number, .least = least, .most = most, .list.ballot = -1};
    out->states = trmi_alloc((size_t)now->count * sizeof *out->states);
    out->entered = trmi_alloc((size_t)now->count * sizeof *out->entered);
    if (out->states == NULL || out->entered == NULL ||
        !trmi_grow((void **)&out->entries, &out->entries_capacity, now->count,
                   sizeof *out->entries)) {
        trmi_ballot_end(out);
        return TRMI_NO_MEMORY(err, "to decide the members of an epoch");
    }
    return TRM_OK;
}

void trmi_ballot_end(trmi_ballot *ballot) {
    trmi_free(ballot->states);
    trmi_free(ballot->entered);
    trmi_free(ballot->entries);
    trmi_members_free(&ballot->list);
    *ballot = (trmi_ballot){.list.ballot = -1};
}

/* Returns whether the list is proposed. Until then ballot->list holds the list accepted under the
 * highest ballot, which `proposed` tells apart: its ballot is not this one. */
static bool is_proposed(const trmi_ballot *b) { return b->list.ballot == b->number; }

trm_status trmi_ballot_hear(trmi_ballot *b, int32_t index, const trmi_member *entry,
                            const trmi_members *accepted, trm_error *err) {
    if (is_proposed(b)) {
        return TRM_OK;
    }
    if (accepted->ballot > b->list.ballot) {
        TRMI_TRY(trmi_members_copy(&b->list, accepted, err));
    }
    b->entries[index] = *entry;
    b->entered[index] = true;
    b->states[index] = TRMI_MEMBER_CAME;
    return TRM_OK;
}

trm_status trmi_ballot_hear_newcomer(trmi_ballot *b, const trmi_member *entry, trm_error *err) {
    int32_t at = b->now->count;
    while (at < b->now->count + b->newcomers && b->entries[at].id != entry->id) {
        at++;
    }
    TRMI_TRY(TRMI_GROW(err, b->entries, b->entries_capacity, at + 1, "for a rank that joins"));
    b->entries[at] = *entry;
    b->newcomers += at == b->now->count + b->newcomers;
    return TRM_OK;
}

void trmi_ballot_lose_newcomer(trmi_ballot *b, uint64_t id) {
    const int32_t end = b->now->count + b->newcomers;
    int32_t at = b->now->count;
    while (at < end && b->entries[at].id != id) {
        at++;
    }
    if (at < end) {
        memmove(b->entries + at, b->entries + at + 1,
                (size_t)(end - at - 1) * sizeof b->entries[0]);
        b->newcomers--;
    }
}

void trmi_ballot_lose(trmi_ballot *b, int32_t index) {
    if (b->states[index] != TRMI_MEMBER_DEAD) {
        b->states[index] = TRMI_MEMBER_LOST;
    }
}

void trmi_ballot_bury(trmi_ballot *b, int32_t index) { b->states[index] = TRMI_MEMBER_DEAD; }

void trmi_ballot_ack(trmi_ballot *b, int32_t index) {
    if (is_proposed(b) && b->states[index] == TRMI_MEMBER_CAME) {
        b->states[index] = TRMI_MEMBER_ACKED;
    }
}

bool trmi_ballot_is_complete(const trmi_ballot *b) {
    for (int32_t i = 0; i < b->now->count; i++) {
        if (b->states[i] == TRMI_MEMBER_AWAITED) {
            return false;
        }
    }
    return true;
}

bool trmi_ballot_has_quorum(const trmi_ballot *b, bool acked) {
    int32_t good = 0, dead = 0;
    for (int32_t i = 0; i < b->now->count; i++) {
        good += b->states[i] == TRMI_MEMBER_ACKED || (!acked && b->states[i] == TRMI_MEMBER_CAME);
        dead += b->states[i] == TRMI_MEMBER_DEAD;
    }
    return 2 * good > b->now->count || good + dead == b->now->count;
}

/* Returns how many members that have come leave (or, if `stay`, stay). */
static int32_t count_came(const trmi_ballot *b, bool stay) {
    int32_t count = 0;
    for (int32_t i = 0; i < b->now->count; i++) {
        count += b->states[i] == TRMI_MEMBER_CAME && (b->entries[i].leaves == 0) == stay;
    }
    return count;
}

/* Contract in membership.h. The list of the next epoch: members that came to the decision and do
 * not leave, then newcomers as far as there is room, then (after the members) those that leave.
 * Members keep their numbers; newcomers get higher ones than any before. */
trm_status trmi_ballot_propose(trmi_ballot *b, trm_error *err) {
    /* A list that some member has accepted may be chosen already: it is proposed again. */
    if (b->list.ballot >= 0) {
        b->list.ballot = b->number;
        return TRM_OK;
    }
    trmi_members list = {.epoch = b->now->epoch + 1, .ballot = b->number};
    TRMI_TRY(TRMI_NEW(err, list.list, b->now->count + b->newcomers, "for the members of an epoch"));
    /* members may leave if enough are left; if not, they stay, and no longer wish to leave */
    bool may_leave = count_came(b, true) >= b->least;
    int32_t stay = count_came(b, true) + (may_leave ? 0 : count_came(b, false)), next = 0;
    int32_t room = b->most > stay ? b->most - stay : 0;
    const int32_t joined = b->newcomers < room ? b->newcomers : room;
    /* members first, those that leave after the places of the newcomers */
    for (int32_t i = 0; i < b->now->count; i++) {
        next = b->now->list[i].number >= next ? b->now->list[i].number + 1 : next;
        if (b->states[i] != TRMI_MEMBER_CAME) {
            continue;
        }
        bool leaves = may_leave && b->entries[i].leaves != 0;
        trmi_member *to = &list.list[leaves ? stay + joined + list.left : list.count];
        *to = b->entries[i];
        to->number = b->now->list[i].number;
        to->leaves = leaves;
        *(leaves ? &list.left : &list.count) += 1;
    }
    /* Then list the newcomers. */
    for (int32_t i = 0; i < joined; i++) {
        list.list[list.count] = b->entries[b->now->count + i];
        list.list[list.count++].number = next++;
    }
    trmi_members_free(&b->list);
    b->list = list;
    return TRM_OK;
}
