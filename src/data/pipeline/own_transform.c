/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the caller's that change the samples of a batch in place, after all transforms of
 * the library. */
#include "data/pipeline/dataset.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/rng.h"

/* See dataset.h. TRM_END and TRM_PENDING are no results of such a function. */
trm_status trmi_name_sample(trm_status status, int64_t index, const char *what, trm_error *err) {
    if (status == TRM_OK) {
        return TRM_OK;
    }
    if (status == TRM_END || status == TRM_PENDING) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "sample %lld: %s returned %s; TRM_OK or an error expected",
                         (long long)index, what, trm_status_name(status));
    }
    if (err == NULL || err->message[0] == '\0') {
        return TRMI_FAIL(err, status, "sample %lld: %s failed: %s", (long long)index, what,
                         trm_status_text(status));
    }
    err->status = status;
    (void)trmi_error_append(err, " (sample %lld)", (long long)index);
    return status;
}

trm_status trmi_check_transforms(const trm_dataset *dataset, trm_error *err) {
    for (int32_t i = 0; dataset->own_count > 0 && i < dataset->field_count; i++) {
        const trmi_field *field = &dataset->fields[i];
        if (field->ragged || field->shape.dim[0] != dataset->batch_size) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "a transform of the program: field '%s' has not one row a sample; only "
                "datasets of such fields take one",
                field->name);
        }
    }
    return TRM_OK;
}

/* Contract in dataset.h. Runs on the prefetch threads, so several samples are changed at a time;
 * the function of the caller's must allow this. */
trm_status trmi_transform_samples(const trm_dataset *dataset, const trmi_batch_work *work,
                                  trm_error *err) {
    for (int64_t row = 0; dataset->own_count > 0 && row < work->count; row++) {
        trm_tensor views[TRM_MAX_BATCH_FIELDS];
        int64_t index = work->indices[row];
        /* Make views of the sample's row in each field. */
        for (int32_t i = 0; i < dataset->field_count; i++) {
            const trm_tensor *whole = &work->tensors[i];
            views[i] = (trm_tensor){
                .data = (char *)whole->data + row * (trm_tensor_bytes(whole) / work->slots),
                .dtype = whole->dtype,
                .shape = trm_shape_make(whole->shape.rank - 1, whole->shape.dim + 1)};
        }
        /* Call the functions, in order; the seed depends on epoch and sample only. */
        for (int32_t i = 0; i < dataset->own_count; i++) {
            trm_error theirs = {.rank = -1};
            uint64_t seed = trmi_mix(work->epoch_seed, (uint64_t)index);
            trm_status status =
                dataset->own[i].transform(dataset->own[i].context, index, seed, views, &theirs);
            status = trmi_name_sample(status, index, "a transform of the program's own", &theirs);
            if (status != TRM_OK) {
                *err = theirs;
                return status;
            }
        }
    }
    return TRM_OK;
}

trm_status trm_dataset_transform(trm_dataset *dataset, trm_sample_transform transform,
                                 void *context, trm_error *err) {
    TRMI_NEED(err, dataset, (const void *)(uintptr_t)transform);
    if (dataset->sealed || dataset->own_count == TRMI_MAX_OWN_TRANSFORMS) {
        return TRMI_FAIL(err, TRM_INVALID, "a transform of the program: %s",
                         dataset->sealed ? "the dataset is being read; refine it before"
                                         : "at most 4 expected, this is the fifth");
    }
    dataset->own[dataset->own_count++] = (trmi_own_transform){transform, context};
    return TRM_OK;
}
