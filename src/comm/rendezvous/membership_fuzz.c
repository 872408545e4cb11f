/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of members in JOIN, PROPOSE and COMMIT, on arbitrary bytes. */
#include "fuzz_seed.h"

#include "comm/rendezvous/membership.h"

#include <stdlib.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    enum { MOST = 3 };
    trmi_member list[MOST] = {{.id = 1, .pid = 10, .port = 4000, .address = "127.0.0.1"},
                              {.id = 2, .pid = 11, .number = 1, .address = "::1"},
                              {.id = 3, .pid = 12, .number = 2}};
    trmi_members members = {
        .epoch = index, .ballot = index - 1, .count = index % (MOST + 1), .list = list};
    members.left = index % 2 == 0 ? MOST - members.count : 0;
    size_t bytes = trmi_members_bytes(&members);
    return bytes <= capacity ? trmi_members_encode(&members, data) : 0;
}

/* A list that is read has the entries that its count says, and lies within the bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trmi_members members = {.ballot = -1};
    trm_error err;
    size_t used = 0;
    if (trmi_members_decode(data, bytes, &members, &used, &err) == TRM_OK) {
        if (used > bytes || used != trmi_members_bytes(&members)) {
            abort();
        }
        for (int32_t i = 0; i < members.count; i++) {
            if (trmi_members_find(&members, members.list[i].id) > i) {
                abort();
            }
        }
    }
    trmi_members_free(&members);
    return 0;
}
