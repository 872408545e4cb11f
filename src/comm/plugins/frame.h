/* comm/plugins/frame.h: what travels in part 0 of a transfer, the same for every plug-in. It calls nothing
 * of the library. The including file defines PLUGIN_FILE, its name in errors.
 *
 *   head 48: tag | bytes | check      payload, if it is at most SMALL bytes
 *
 * The check is keyed with the job's secret: a damaged or foreign frame is refused. */
#ifndef TRMI_COMM_PLUGINS_FRAME_H
#define TRMI_COMM_PLUGINS_FRAME_H

#include "comm/transport.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEAD_BYTES = 48, SMALL = 4096 };

typedef struct frame_head {
    trmi_tag tag;
    uint64_t bytes;
    uint64_t check;
} frame_head;
_Static_assert(sizeof(frame_head) == HEAD_BYTES, "the head is packed");

/* `format` takes one text and two integers. */
static trm_status fail(trm_error *err, trm_status status, const char *format, const char *text, int a,
                       int b) {
    if (err != NULL) {
        memset(err, 0, sizeof *err);
        err->status = status;
        err->rank = -1;
        snprintf(err->file, sizeof err->file, PLUGIN_FILE);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(err->message, sizeof err->message, format, text, a, b);
#pragma GCC diagnostic pop
    }
    return status;
}

static uint64_t frame_check(uint64_t key, const frame_head *head) {
    return XXH3_64bits_withSeed(head, offsetof(frame_head, check), key);
}

/* Writes part 0 of a sending transfer; returns its bytes. */
static size_t frame_seal(uint64_t key, const trmi_transfer *t, char bounce[HEAD_BYTES + SMALL]) {
    frame_head head = {.tag = t->tag, .bytes = t->bytes};
    head.check = frame_check(key, &head);
    memcpy(bounce, &head, sizeof head);
    if (t->bytes > SMALL) {
        return HEAD_BYTES;
    }
    if (t->bytes > 0) {
        memcpy(bounce + HEAD_BYTES, t->data, t->bytes);
    }
    return HEAD_BYTES + t->bytes;
}

/* Judges part 0 of a receiving transfer and takes a payload that is in it. CORRUPT: damaged or foreign;
 * INVALID: another transfer's; the transport's culprit, expected and found then say whose. */
static trm_status frame_open(uint64_t key, trmi_transport *base, trmi_transfer *t, const char *bounce,
                             trm_error *err) {
    const trmi_group *group = &base->group;
    frame_head head;
    memcpy(&head, bounce, sizeof head);
    base->culprit = t->peer;
    if (head.check != frame_check(key, &head)) {
        return fail(err, TRM_CORRUPT, "%srank %d received damaged bytes from rank %d", "",
                    group->members[group->rank], group->members[t->peer]);
    }
    if (head.bytes != t->bytes || memcmp(&head.tag, &t->tag, sizeof head.tag) != 0) {
        base->expected = t;
        base->found = head.tag;
        base->found_bytes = head.bytes;
        return fail(err, TRM_INVALID, "%sunexpected frame (rank %d, rank %d)", "",
                    group->members[group->rank], group->members[t->peer]);
    }
    base->culprit = -1;
    if (t->bytes > 0 && t->bytes <= SMALL) {
        memcpy(t->data, bounce + HEAD_BYTES, t->bytes);
    }
    return TRM_OK;
}

#endif
