/* SPDX-License-Identifier: Apache-2.0 */
/* Queries and changes of a rank's state that need no communication, and the barrier of all ranks:
 *
 *   - memory that the ranks of a host share (reserve, memory, may_share),
 *   - which slice of a range of gradients a rank updates, and which parameters are layer-wise,
 *   - flags: a rank raises its own; what all have agreed on comes with the next step's result,
 *   - what the public interface reports about the ranks and the plan.
 *
 * A flag is read from the agreed counts and never from the own request, because all ranks must do
 * the same in the same step. */
#include "exec/distributed/stages.h"
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"
#include "comm/shm/shared_buffers.h"

#include <string.h>

/* Contract in ranks_state.h. The list is extended first, so that memory that was reserved is never
 * lost. */
void *trmi_parallel_reserve(trmi_parallel *p, size_t bytes, trm_error *err) {
    if (!trmi_grow((void **)&p->shared, &p->shared_capacity, p->shared_count + 1,
                   sizeof *p->shared)) {
        (void)TRMI_NO_MEMORY(err, "to list what ranks share");
        return NULL;
    }
    void *memory = trmi_comm_reserve_shared(p->comm, bytes, err);
    if (memory != NULL) {
        p->shared[p->shared_count++] = memory;
    }
    return memory;
}

void *trmi_parallel_memory(trmi_parallel *p, size_t bytes, trm_error *err) {
    void *memory = trmi_parallel_reserve(p, bytes, err);
    if (memory != NULL) {
        trmi_comm_fill_shared(memory, trmi_shared_resident(bytes));
    }
    return memory;
}

/* Contract in ranks_state.h. All ranks must be on this host, each must update its slice only,
 * and the slices must be distributed afterwards; a layer-wise parameter differs between ranks. */
bool trmi_parallel_may_share(const trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    return p != NULL && p->options.shard_optimizer && p->options.broadcast != TRM_OFF &&
           p->options.layerwise_count == 0 && exec->program->training &&
           trm_comm_local_size(p->comm) == p->size;
}

trm_status trmi_parallel_meet(trmi_parallel *p, const char *what, trm_error *err) {
    const trm_collective op = {.kind = TRM_BARRIER, .tag = what};
    double begin = trmi_os_now();
    trm_status status = trm_comm_run(p->comm, &op, err);
    trmi_parallel_waited(p, begin);
    return status;
}

bool trmi_parallel_norms_differ(const trm_exec *exec) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    return p->options.layerwise_count > 0 ||
           (p->split != NULL && (!p->options.shard_optimizer || exec->norms != NULL));
}

/* Contract in ranks_state.h. The slices of a range follow each other in the order of the ranks. */
int64_t trmi_parallel_slice_begin(const trmi_parallel *p, const trmi_range *range) {
    int64_t begin = range->begin;
    for (int32_t r = 0; r < p->rank; r++) {
        begin += range->counts[r];
    }
    return begin;
}

/* "fc" names fc, fc.weight and the slot fc.weight/momentum. */
static bool is_named_by(const char *layerwise, const char *name) {
    size_t length = strlen(layerwise);
    return strncmp(name, layerwise, length) == 0 &&
           (name[length] == '\0' || name[length] == '.' || name[length] == '/');
}

bool trmi_parallel_is_layerwise(const trmi_parallel *p, const char *name) {
    for (int32_t i = 0; i < p->options.layerwise_count; i++) {
        if (is_named_by(p->options.layerwise[i], name)) {
            return true;
        }
    }
    return false;
}

bool trmi_exec_is_layerwise(const trm_exec *exec, int32_t index) {
    return trmi_parallel_of(exec) != NULL &&
           trmi_parallel_is_layerwise(trmi_parallel_of(exec), exec->variables[index].name);
}

/* Contract in ranks_state.h. A name that no parameter has is an error: it is a misspelling, and
 * training would go on without what the user wants. */
trm_status trmi_parallel_check_layerwise(const trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    const trm_program *program = exec->program;
    for (int32_t i = 0; i < p->options.layerwise_count; i++) {
        int32_t k = 0;
        while (k < program->params_count &&
               !is_named_by(p->options.layerwise[i], program->params[k].name)) {
            k++;
        }
        if (k == program->params_count) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "layerwise parameter '%s': no parameter has this name or is below it; "
                             "there is '%s', for one",
                             p->options.layerwise[i], k > 0 ? program->params[0].name : "none");
        }
    }
    return TRM_OK;
}

void trmi_exec_set_flag(trm_exec *exec, trmi_exec_flag which, bool raised) {
    exec->raised[which] = raised;
}

bool trmi_exec_flagged(const trm_exec *exec, trmi_exec_flag which) {
    const trmi_stages *stages = trmi_stages_of(exec);
    if (stages != NULL) {
        return stages->valid && stages->agreed.flags[which] > 0;
    }
    return trmi_parallel_of(exec) != NULL && trmi_parallel_of(exec)->valid &&
           trmi_parallel_of(exec)->agreed->flags[which] > 0;
}

/* Contract in exec.h. The ways of a stage see its ranks only, a pipeline sees all. */
void trmi_exec_abort(const trm_exec *exec, const trm_error *cause) {
    const trmi_stages *stages = trmi_stages_of(exec);
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (stages != NULL || p != NULL) {
        trm_comm_abort(stages != NULL ? stages->world : p->comm, cause);
    }
}

/* Contract in exec.h. Forgets the own requests, and what the ranks have agreed on. */
void trmi_exec_forget_flags(trm_exec *exec) {
    trmi_parallel *p = trmi_parallel_of(exec);
    trmi_stages *stages = trmi_stages_of(exec);
    for (int which = 0; which < TRMI_FLAGS; which++) {
        exec->raised[which] = false;
        if (p != NULL && p->agreed != NULL) {
            p->agreed->flags[which] = 0;
        }
        if (stages != NULL) {
            stages->agreed.flags[which] = 0;
        }
    }
}

void trm_exec_get_searched_plan(const trm_exec *exec, trm_searched_plan *out) {
    TRMI_NEED_OR(, NULL, exec, out);
    const trmi_parallel *p = trmi_parallel_of(exec);
    *out = p != NULL && p->split != NULL ? p->split->info : (trm_searched_plan){.searched = false};
}

/* Contract in trireme/exec.h. Ranges that are always zero or cooperative are not sent, so they are
 * counted by themselves. */
void trm_exec_get_parallel_info(const trm_exec *exec, trm_parallel_info *out) {
    TRMI_NEED_OR(, NULL, exec, out);
    const trmi_parallel *p = trmi_parallel_of(exec);
    *out = (trm_parallel_info){.size = 1};
    if (p == NULL) {
        return;
    }
    *out = (trm_parallel_info){.rank = p->rank,
                               .size = p->size,
                               .one_copy = p->common,
                               .casts = p->common ? p->casts_count : 0,
                               .alpha = p->alpha,
                               .bytes_per_second = p->beta > 0 ? 1 / p->beta : 0,
                               .predicted_end_seconds = p->predicted_end,
                               .backward_end_seconds = p->backward_end};
    for (int32_t i = 0; i < p->ranges_count; i++) {
        if (p->ranges[i].always_zero) {
            out->always_zero_bytes += p->ranges[i].count * (int64_t)sizeof(float);
            continue;
        }
        if (p->ranges[i].cooperative) {
            out->cooperative_bytes += p->ranges[i].count * (int64_t)sizeof(float);
            continue;
        }
        out->buckets++;
        out->bytes += p->ranges[i].count * (int64_t)trm_dtype_bytes(p->options.wire);
    }
}
