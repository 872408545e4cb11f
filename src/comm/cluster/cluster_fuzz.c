/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz test of trm_cluster_from_env: any bytes, as NAME=value lines, are the environment of a
 * process. The resolver refuses it, or returns a description whose rank fits its size and which can
 * be shown; it never crashes. */
#include "fuzz_seed.h"

#include "trireme/dist.h"

#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
    "TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"[::1]:2\"],\"ps\":[\"c:1\"],\"chief\":[\"d:9\"]}"
    ","
    "\"task\":{\"type\":\"worker\",\"index\":1},\"environment\":\"cloud\"}\n",
    "TF_CONFIG={\"cluster\":{\"worker\":{\"3\":\"w3:1\"},\"ps\":[\"p0:1\"]},\"task\":{\"type\":"
    "\"worker\",\"index\":3}}\n",
    "RANK=1\nWORLD_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=29500\nTORCHELASTIC_USE_AGENT_STORE=True\n",
    "SLURM_STEP_ID=0\nSLURM_JOB_ID=12\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=4\nSLURM_NODEID=1\n"
    "SLURM_STEP_TASKS_PER_NODE=2(x2)\nSLURM_STEP_NODELIST=n[01-02]\nSLURM_LOCALID=0\n",
    "CM_CHIEF_IP=10.0.0.1\nCM_CHIEF_PORT=6\nCM_CHIEF_DEVICE=0\nCM_WORKER_SIZE=2\nCM_WORKER_IP=::"
    "1\n",
    "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nPMIX_RANK=0\nPMIX_NAMESPACE=x\n",
    "MS_ROLE=MS_WORKER\nMS_WORKER_NUM=3\nMS_NODE_ID=1\nMS_SCHED_HOST=h\nMS_SCHED_PORT=8118\n"};

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    const char *seed = seeds[(size_t)index % (sizeof seeds / sizeof seeds[0])];
    size_t bytes = strlen(seed);
    memcpy(data, seed, bytes < capacity ? bytes : capacity);
    return bytes;
}

/* Returns the value of a name (trm_lookup). `context` is text of NAME=value lines, each ended by a
 * zero byte; an empty line is the end. RANK_TABLE_FILE is never set, because it would make the
 * resolver read files of this machine. */
static const char *lookup_line(void *context, const char *name) {
    size_t length = strlen(name);
    for (const char *line = context; *line != '\0'; line += strlen(line) + 1) {
        if (strncmp(line, name, length) == 0 && line[length] == '=' &&
            strcmp(name, "RANK_TABLE_FILE") != 0) {
            return line + length + 1;
        }
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *lines = malloc(bytes + 2), *text;
    memcpy(lines, data, bytes);
    lines[bytes] = lines[bytes + 1] = '\0';
    for (char *line = lines; (line = strchr(line, '\n')) != NULL;) {
        *line = '\0';
    }
    trm_cluster *cluster;
    trm_error err;
    if (trm_cluster_from_env(NULL, lookup_line, lines, &cluster, &err) == TRM_OK) {
        const trm_cluster_info *info = trm_cluster_get(cluster);
        if (info->rank < -1 || (info->size > 0 && info->rank >= info->size) ||
            trm_cluster_text(cluster, true, &text, &err) != TRM_OK) {
            abort();
        }
        trm_free(text);
        trm_cluster_destroy(cluster);
    }
    free(lines);
    return 0;
}
