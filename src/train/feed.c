/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the next batch of a dataset and feeds its fields to the inputs of a program (contracts in
 * model.h), and does so for a training run, which counts batches, samples and waiting times
 * (contracts in gradient_sink.h):
 *
 *      dataset --trmi_next_batch--> batch --trmi_feed--> inputs of the program
 *         run: trmi_run_read            trmi_run_use
 *
 * Invariant: a run computes with the batch that it has asked for: epoch and number are compared,
 * so that a dataset that another call reads in between is an error. */
#include "train/gradient_sink.h"

#include "base/error.h"
#include "base/os.h"
#include "base/trace.h"
#include "data/pipeline/dataset.h"
#include "exec/exec.h"

#include <string.h>

/* Contract in model.h. The end of an epoch is skipped once; a second end means that there are no
 * batches. */
trm_status trmi_next_batch(trm_dataset *data, const trm_batch **out, trm_error *err) {
    trm_status status = trm_dataset_next(data, out, err);
    if (status == TRM_END) {
        status = trm_dataset_next(data, out, err);
    }
    if (status == TRM_END) {
        return TRMI_FAIL(err, TRM_INVALID, "the dataset has no batches");
    }
    return status;
}

void trmi_match_fields(trmi_compiled *compiled, trm_dataset *data) {
    trm_batch_field field;
    for (int32_t i = 0; i < compiled->fields; i++) {
        compiled->places[i] = -1;
        compiled->ragged[i] = false;
        for (int32_t at = 0; trm_dataset_field(data, at, &field); at++) {
            if (strcmp(field.name, compiled->names[i]) == 0) {
                compiled->places[i] = at;
                compiled->ragged[i] = data->fields[at].ragged;
                break;
            }
        }
    }
}

trm_status trmi_find_field(const trmi_compiled *compiled, const trm_batch *batch, int32_t field,
                           const trm_tensor **out, trm_error *err) {
    const int32_t at = compiled->places[field];
    if (at < 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the data has no field '%s', which the network or its loss reads (found "
                         "%d fields, the first is '%s'); add it",
                         compiled->names[field], (int)batch->field_count,
                         batch->field_count > 0 ? batch->fields[0].name : "");
    }
    *out = &batch->fields[at].tensor;
    return TRM_OK;
}

/* Returns whether a field fits into an input: it has its type and shape. `shorter`: the first
 * dimension may be smaller. */
static bool fits_input(const trm_tensor *field, const trm_tensor *input, bool shorter) {
    bool same = field->dtype == input->dtype && field->shape.rank == input->shape.rank;
    for (int32_t i = 0; i < input->shape.rank && same; i++) {
        int64_t found = field->shape.dim[i], room = input->shape.dim[i];
        same = found == room || (shorter && i == 0 && found < room);
    }
    return same;
}

/* Contract in model.h. Batches of a dataset have one size, the last one is padded. */
trm_status trmi_fit_field(const trmi_compiled *compiled, const trm_batch *batch, int32_t field,
                          const trm_tensor **out, trm_error *err) {
    const trm_tensor *from = NULL, *to = &compiled->target[field];
    const char *name = compiled->names[field];
    TRMI_TRY(trmi_find_field(compiled, batch, field, &from, err));
    if (!fits_input(from, to, compiled->ragged[field] && compiled->blocks == 0)) {
        char a[96], b[96];
        return TRMI_FAIL(err, TRM_INVALID,
                         "field '%s' is %s %s, the model was compiled for %s %s; give data of "
                         "that type and shape",
                         name, trm_dtype_name(from->dtype),
                         trm_shape_format(&from->shape, a, sizeof a), trm_dtype_name(to->dtype),
                         trm_shape_format(&to->shape, b, sizeof b));
    }
    *out = from;
    return TRM_OK;
}

void trmi_copy_field(const trm_tensor *from, void *to, const trm_tensor *room) {
    int64_t bytes = trm_tensor_bytes(from);
    memcpy(to, from->data, (size_t)bytes);
    memset((char *)to + bytes, 0, (size_t)(trm_tensor_bytes(room) - bytes));
}

/* Contract in model.h. Fields that the network does not read have no target and are skipped. */
trm_status trmi_feed(const trmi_compiled *compiled, const trm_batch *batch, bool loss,
                     trm_error *err) {
    for (int32_t i = 0; i < compiled->fields; i++) {
        const trm_tensor *from = NULL, *to = &compiled->target[i];
        if (to->data == NULL) {
            continue;
        }
        if (!loss && compiled->only_loss[i]) {
            memset(to->data, 0, (size_t)trm_tensor_bytes(to)); /* a label that every loss takes */
            continue;
        }
        TRMI_TRY(trmi_fit_field(compiled, batch, i, &from, err));
        /* A way of training may take a field that fills its input, without this copy. */
        bool whole = trm_tensor_bytes(from) == trm_tensor_bytes(to);
        if (!trmi_distribution_feed(compiled->exec, compiled->inputs[i], to,
                                    whole ? from->data : NULL)) {
            trmi_copy_field(from, to->data, to);
        }
    }
    return TRM_OK;
}

/* ---- a training run -------------------------------------------------------------------------- */

void trmi_run_waited(trmi_run *r, double since) {
    double seconds = trmi_os_now() - since;
    r->progress.wait_seconds += seconds;
    r->progress.data_seconds += seconds;
}

trm_status trmi_run_read(trmi_run *r, const trm_batch **batch, trm_error *err) {
    double before = trmi_os_now();
    TRMI_TRY(trmi_next_batch(r->options->data, batch, err));
    trmi_run_waited(r, before);
    trmi_trace_add_since(r->trace, "waiting", "batch", before);
    return TRM_OK;
}

/* Contract in gradient_sink.h. The numbers of epoch and batch are compared, because a dataset that
 * is read by someone else in between would train on wrong samples without a sign. */
trm_status trmi_run_use(trmi_run *r, int64_t epoch, int64_t index, int64_t samples,
                        trm_error *err) {
    if (epoch != r->model->epoch || index != r->batch) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the dataset gave batch %lld of epoch %lld, expected %lld of %lld; it was "
                         "read or moved beside its training (by a callback?), use another dataset "
                         "there",
                         (long long)index, (long long)epoch, (long long)r->batch,
                         (long long)r->model->epoch);
    }
    r->batch++;
    r->progress.step_samples += samples * trmi_model_shares(r->model);
    return TRM_OK;
}
