/* SPDX-License-Identifier: Apache-2.0 */
/* ps/shard/shard_record.h: the records of a shard's log. A record is written before its push is
 * applied and answered.
 *
 *     | magic, kind, body bytes, digest, tick, ... | ids | marks | sections | keys | pad | values ... | */
#ifndef TRMI_PS_SHARD_RECORD_H
#define TRMI_PS_SHARD_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint32_t trmi_record_magic = 0x4C535054u; /* "TPSL" */
enum {
    TRMI_RECORD_TABLE = 1,
    TRMI_RECORD_PUSH, /* without marks */
    TRMI_RECORD_MARKED,
    TRMI_RECORD_STAGED, /* a push that waits for its step */
    TRMI_RECORD_STEP,   /* ids whose staged pushes are summed; no sections */
    TRMI_RECORD_VOID    /* no body: the step before it does not count, if its clock is this one's or
                           more */
};
/* The head of a record; little-endian as in memory. */
typedef struct trmi_record_head {
    uint32_t magic, kind;
    uint64_t body_bytes, digest; /* of the rest of this head and the body */
    uint32_t tick, time;
    float rate_scale, gradient_scale;
    uint32_t dtype, id_count, section_count, message_bytes;
    int64_t clock;
} trmi_record_head;
_Static_assert(sizeof(trmi_record_head) == 64, "a log record's head is one line");

/* Begins the digest of a record with the part of its head from `tick` on. */
static inline void trmi_record_begin_digest(const trmi_record_head *head, XXH3_state_t *state) {
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &head->tick, sizeof *head - offsetof(trmi_record_head, tick));
}

/* A record that was read and not used yet: the last step, or after it a push that only fills its
 * window. */
struct trmi_held {
    trmi_record_head head;
    const uint8_t *body; /* in the log's mapping, or in `copy` */
    uint8_t *copy;
};

#endif
