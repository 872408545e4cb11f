/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the records that a replay holds back (shard_replay.c). */
#include "ps/shard/shard.h"
#include "ps/shard/shard_record.h"

#include "base/memory.h"

#include <stdlib.h>

void trmi_shard_drop_held(trmi_shard *shard) {
    for (int64_t i = 0; i < shard->held_count; i++) {
        trmi_free(shard->held[i].copy);
    }
    shard->held_count = 0;
}

void trmi_shard_forget_held(trmi_shard *shard) {
    trmi_shard_drop_held(shard);
    free(shard->held);
    shard->held = NULL;
    shard->held_capacity = 0;
}
