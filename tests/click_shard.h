/* SPDX-License-Identifier: Apache-2.0 */
/* One worker's share of generated clicks, in an order that does not depend on the number of
 * workers. */
#ifndef TESTS_CLICK_SHARD_H
#define TESTS_CLICK_SHARD_H

#include "check.h"

#include "trireme/data.h"

static inline trm_dataset *click_shard(const trm_click_generator_options *options,
                                       int64_t global_batch, int shards, int shard) {
    trm_error err;
    trm_dataset *data;
    CHECK_OK(trm_dataset_clicks(options, TRM_USAGE_TRAIN, &data, &err), err);
    CHECK_OK(trm_dataset_seed(data, 9, &err), err);
    CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
    CHECK_OK(trm_dataset_shard(data, shards, shard, TRM_SHARD_WRAP, &err), err);
    CHECK_OK(trm_dataset_batch(data, global_batch / shards, true, &err), err);
    return data;
}

#endif
