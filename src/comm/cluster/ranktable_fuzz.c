/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz test of trmi_table_parse: any bytes are either refused with a message or read as a rank
 * table, whose ranks are then 0, 1, ... and which can be written out again. Neither crashes nor
 * reads beyond the bytes. The seeds have one table of each form. */
#include "fuzz_seed.h"

#include "trireme/dist.h"

#include "comm/cluster/ranktable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
    "{\"chip_info\":\"910\",\"group_count\":\"1\",\"group_list\":[{\"device_num\":\"2\","
    "\"server_num\":\"1\",\"instance_count\":\"2\",\"instance_list\":[{\"devices\":[{\"device_id\":"
    "\"0\",\"device_ip\":\"1.1.1.1\"}],\"rank_id\":\"0\",\"server_id\":\"a\"},{\"devices\":"
    "[{\"device_id\":\"1\",\"device_ip\":\"1.1.1.2\"}],\"rank_id\":\"1\",\"server_id\":\"a\"}]}],"
    "\"para_plane_nic_name\":[\"e0\"],\"para_plane_nic_num\":\"1\",\"status\":\"completed\"}",
    "{\"version\":\"1.2\",\"server_count\":\"2\",\"server_list\":[{\"server_id\":\"n1\",\"host_"
    "ip\":"
    "\"10.0.0.1\",\"device\":[{\"device_id\":\"0\",\"device_ip\":\"10.1.0.1\",\"rank_id\":\"0\"}]},"
    "{\"server_id\":\"n2\",\"device\":[{\"device_id\":\"3\",\"device_ip\":\"10.1.0.4\",\"rank_id\":"
    "\"1\"}]}],\"super_pod_list\":[{\"super_pod_id\":\"0\",\"server_list\":[{\"server_id\":\"n1\"},"
    "{\"server_id\":\"n2\"}]}],\"status\":\"completed\"}",
    "{\"version\":\"2.0\",\"rank_count\":1,\"rank_list\":[{\"rank_id\":0,\"local_id\":0,"
    "\"level_list\":[{\"net_layer\":0,\"net_instance_id\":\"z\",\"rank_addr_list\":[{\"addr_type\":"
    "\"IPV6\",\"addr\":\"::1\"}]}]}]}",
    "{\"status\":\"completed\",\"group_count\":\"1\",\"group_list\":[{\"instance_count\":\"1\","
    "\"device_count\":\"2\",\"instance_list\":[{\"pod_name\":\"p\",\"server_id\":\"s\",\"devices\":"
    "[{\"device_id\":\"0\"},{\"device_id\":\"1\"}]}]}]}"};

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    const char *seed = seeds[(size_t)index % (sizeof seeds / sizeof seeds[0])];
    size_t bytes = strlen(seed);
    memcpy(data, seed, bytes < capacity ? bytes : capacity);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_rank_table *table;
    trm_error err;
    char *text;
    if (trmi_table_parse("fuzz", (const char *)data, bytes, &table, &err) != TRM_OK) {
        if (memchr(err.message, '\0', sizeof err.message) == NULL) {
            abort();
        }
        return 0;
    }
    for (int32_t r = 0; r < trm_rank_table_size(table); r++) {
        if (trm_rank_table_entry(table, r).rank != r) {
            abort();
        }
    }
    if (trm_rank_table_text(table, true, &text, &err) != TRM_OK) {
        abort();
    }
    trm_free(text);
    trm_rank_table_destroy(table);
    return 0;
}
