/* SPDX-License-Identifier: Apache-2.0 */
/* eval --predictions FILE.npz: logits and label of every sample, in the order of the data
 * (contracts in app.h). */
#include "app/app.h"

#include "trireme/io.h"

#include <stdlib.h>
#include <string.h>

/* One array of the file, growing by batches. */
typedef struct column {
    const char *name;
    uint8_t *data;
    int64_t bytes, room;
    trm_dtype dtype;
    trm_shape row; /* shape of one sample, with a leading 1 */
} column;

/* The rows that were collected so far. */
struct app_predictions {
    column logits, label;
    int64_t samples;
};

/* Appends the first `samples` rows of a tensor; memory at least doubles when it grows.
 *   errors  NOMEM */
static trm_status append_rows(column *c, const trm_tensor *tensor, int64_t samples,
                              trm_error *err) {
    c->dtype = tensor->dtype;
    c->row = tensor->shape;
    c->row.dim[0] = 1;
    int64_t added = samples * trm_shape_count(&c->row) * (int64_t)trm_dtype_bytes(c->dtype);
    if (c->bytes + added > c->room) {
        int64_t room = c->bytes + added > 2 * c->room ? c->bytes + added : 2 * c->room;
        uint8_t *grown = realloc(c->data, (size_t)room);
        if (grown == NULL) {
            return app_no_memory(err, "for %lld bytes of predictions", (long long)room);
        }
        c->data = grown;
        c->room = room;
    }
    memcpy(c->data + c->bytes, tensor->data, (size_t)added);
    c->bytes += added;
    return TRM_OK;
}

trm_status app_predictions_create(app_predictions **out, trm_error *err) {
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return app_no_memory(err, "for predictions");
    }
    (*out)->logits.name = "logits";
    (*out)->label.name = "label";
    return TRM_OK;
}

void app_predictions_destroy(app_predictions *p) {
    if (p != NULL) {
        free(p->logits.data);
        free(p->label.data);
        free(p);
    }
}

/* Contract in app.h. Rows after `samples` only fill the batch and are not taken. */
trm_status app_predictions_see(void *context, const trm_tensor *logits, int64_t samples,
                               const trm_batch *batch, trm_error *err) {
    app_predictions *p = context;
    const trm_tensor *label = trm_batch_tensor(batch, "label");
    trm_status status = append_rows(&p->logits, logits, samples, err);
    if (status == TRM_OK && label != NULL) {
        status = append_rows(&p->label, label, samples, err);
    }
    p->samples += samples;
    return status;
}

/* Returns a column as one tensor of all samples. */
static trm_named_tensor column_tensor(const column *c, int64_t samples) {
    trm_named_tensor array = {.name = c->name, .tensor = {c->data, c->dtype, c->row}};
    array.tensor.shape.dim[0] = samples;
    return array;
}

trm_status app_predictions_write(const app_predictions *p, const char *path, trm_error *err) {
    const trm_named_tensor arrays[] = {column_tensor(&p->logits, p->samples),
                                       column_tensor(&p->label, p->samples)};
    return trm_npz_write(path, arrays, p->label.data != NULL ? 2 : 1, err);
}
