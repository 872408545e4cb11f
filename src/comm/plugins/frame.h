/* SPDX-License-Identifier: Apache-2.0 */
/* comm/plugins/frame.h: the frame that all plug-ins send as part 0 of a transfer. It calls no
 * function of the library. The including file first defines PLUGIN_FILE, its name in errors.
 *
 *   head 48: tag | bytes | check      payload, if it has at most SMALL bytes
 *
 * The check is keyed with the job's secret and covers the head and the payload after it: a damaged
 * or foreign frame is refused. The plug-in's own library and network protect longer payloads. */
#ifndef TRMI_COMM_PLUGINS_FRAME_H
#define TRMI_COMM_PLUGINS_FRAME_H

#include "comm/net/transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEAD_BYTES = 48, SMALL = 4096 }; /* length of the head; longest payload in part 0 */

/* The head; both ends must agree on its tag. */
typedef struct frame_head {
    trmi_tag tag;
    uint64_t bytes; /* of the whole payload */
    uint64_t check; /* frame_check() */
} frame_head;
_Static_assert(sizeof(frame_head) == HEAD_BYTES, "the head is packed");

/* Fills `err` and returns `status`: TRMI_FAIL of a plug-in. */
static trm_status fail_plugin(trm_error *err, trm_status status, const char *format, ...)
    TRM_PRINTF(3, 4);
static trm_status fail_plugin(trm_error *err, trm_status status, const char *format, ...) {
    if (err != NULL) {
        va_list args;
        memset(err, 0, sizeof *err);
        err->status = status;
        err->rank = -1;
        snprintf(err->file, sizeof err->file, PLUGIN_FILE);
        va_start(args, format);
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
    }
    return status;
}

/* Returns the keyed hash of the head and of a payload that is after it. */
static uint64_t frame_check(uint64_t key, const frame_head *head, const char *payload) {
    uint64_t check = XXH3_64bits_withSeed(head, offsetof(frame_head, check), key);
    return head->bytes <= SMALL ? XXH3_64bits_withSeed(payload, head->bytes, check) : check;
}

/* Writes part 0 of a transfer to be sent into `bounce`; returns its length. */
static size_t frame_seal(uint64_t key, const trmi_net_transfer *t,
                         char bounce[HEAD_BYTES + SMALL]) {
    frame_head head = {.tag = t->tag, .bytes = t->bytes};
    bool inside = t->bytes <= SMALL;
    if (inside && t->bytes > 0) {
        memcpy(bounce + HEAD_BYTES, t->data, t->bytes);
    }
    head.check = frame_check(key, &head, bounce + HEAD_BYTES);
    memcpy(bounce, &head, sizeof head);
    return HEAD_BYTES + (inside ? t->bytes : 0);
}

/* Checks part 0 of a receiving transfer, and copies a payload that is in it to t->data.
 *   errors  CORRUPT (the frame is damaged or foreign), INVALID (it belongs to another transfer;
 *           base->culprit, expected and found describe it) */
static trm_status frame_open(uint64_t key, trmi_transport *base, trmi_net_transfer *t,
                             const char *bounce, trm_error *err) {
    const trmi_group *group = &base->group;
    frame_head head;
    memcpy(&head, bounce, sizeof head);
    base->culprit = t->peer;
    /* A head with another length than expected is checked over that length: the bytes after it in
     * `bounce` were not sent for it, so it fails or shows the difference below. */
    if (head.check != frame_check(key, &head, bounce + HEAD_BYTES)) {
        return fail_plugin(err, TRM_CORRUPT,
                           "operation %llu, step %llu: rank %d received damaged bytes from rank %d",
                           (unsigned long long)t->tag.sequence, (unsigned long long)t->tag.step,
                           group->members[group->rank], group->members[t->peer]);
    }
    if (head.bytes != t->bytes || memcmp(&head.tag, &t->tag, sizeof head.tag) != 0) {
        base->expected = t;
        base->found = head.tag;
        base->found_bytes = head.bytes;
        return fail_plugin(err, TRM_INVALID, "unexpected frame (rank %d, rank %d)",
                           group->members[group->rank], group->members[t->peer]);
    }
    base->culprit = -1;
    if (t->bytes > 0 && t->bytes <= SMALL) {
        memcpy(t->data, bounce + HEAD_BYTES, t->bytes);
    }
    return TRM_OK;
}

#endif
