/* Small questions and small changes that need no other rank. */
#include "exec/exec.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

void *trmi_parallel_memory(trmi_parallel *p, size_t bytes, trm_error *err) {
    if (!trmi_grow((void **)&p->shared, &p->shared_capacity, p->shared_count + 1, sizeof *p->shared)) {
        (void)TRMI_FAIL(err, TRM_NOMEM, "no memory to list what ranks share");
        return NULL;
    }
    void *memory = trm_comm_alloc_shared(p->comm, bytes > 0 ? bytes : 64, err);
    if (memory != NULL) {
        p->shared[p->shared_count++] = memory;
    }
    return memory;
}

bool trmi_parallel_may_share(const trm_exec *exec) {
    const trmi_parallel *p = exec->parallel;
    return p != NULL && p->options.shard_optimizer && !p->options.no_broadcast &&
           p->options.layerwise_count == 0 && exec->program->training && exec->lanes == NULL &&
           trm_comm_local_size(p->comm) == p->size;
}

bool trmi_parallel_waits_for_first(const trm_exec *exec) {
    return trmi_parallel_may_share(exec) && exec->parallel->rank != 0;
}

void trmi_parallel_parameters_changed(trm_exec *exec) {
    if (exec->parallel != NULL) {
        exec->parallel->casts_fresh = false;
    }
}

bool trmi_parallel_is_layerwise(const trmi_parallel *p, const char *name) {
    for (int32_t i = 0; i < p->options.layerwise_count; i++) {
        size_t length = strlen(p->options.layerwise[i]);
        if (strncmp(name, p->options.layerwise[i], length) == 0 &&
            (name[length] == '\0' || name[length] == '.' || name[length] == '/')) {
            return true;
        }
    }
    return false;
}

void trmi_exec_set_flag(trm_exec *exec, bool flag) {
    if (exec->parallel != NULL) {
        exec->parallel->flag = flag ? 1 : 0;
    }
}

bool trmi_exec_flagged(const trm_exec *exec) {
    return exec->parallel != NULL && exec->parallel->valid && exec->parallel->agreed->flag > 0;
}

void trmi_exec_forget_flag(trm_exec *exec) {
    if (exec->parallel != NULL && exec->parallel->agreed != NULL) {
        exec->parallel->flag = exec->parallel->agreed->flag = 0;
    }
}

void trm_exec_parallel_info(const trm_exec *exec, trm_parallel_info *out) {
    const trmi_parallel *p = exec->parallel;
    *out = (trm_parallel_info){.size = 1, .step_seconds = exec->step_seconds};
    if (p == NULL) {
        return;
    }
    *out = (trm_parallel_info){.rank = p->rank,
                               .size = p->size,
                               .one_copy = p->common,
                               .casts = p->common ? p->casts_count : 0,
                               .buckets = p->ranges_count,
                               .alpha = p->alpha,
                               .bytes_per_second = p->beta > 0 ? 1 / p->beta : 0,
                               .exposed_seconds = p->exposed_seconds,
                               .step_seconds = exec->step_seconds,
                               .predicted_end_seconds = p->predicted_end,
                               .backward_end_seconds = p->backward_end};
    for (int32_t i = 0; i < p->ranges_count; i++) {
        out->bytes += p->ranges[i].count * (int64_t)trm_dtype_bytes(p->options.wire);
    }
}
