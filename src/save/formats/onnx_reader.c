/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files that read ONNX share; see the header. */
#include "save/formats/onnx_reader.h"

#include "base/error.h"
#include "base/format/utf8.h"
#include "save/path.h"

#include <string.h>

trm_status trmi_onnx_fault(const trmi_onnx_reader *r, const uint8_t *at, const char *what) {
    return TRMI_FAIL(r->err, TRM_CORRUPT, "%s: offset %zu: %s", trmi_path_tail(r->path),
                     (size_t)(at - r->start), what);
}

trm_status trmi_onnx_no_memory(const trmi_onnx_reader *r) {
    return TRMI_NO_MEMORY(r->err, "to read %s", trmi_path_tail(r->path));
}

trm_status trmi_onnx_finish(const trmi_onnx_reader *r, const trmi_proto *proto) {
    return proto->broken
               ? trmi_onnx_fault(r, proto->data + proto->broken_at, "a field that is cut off")
               : TRM_OK;
}

/* Contract in onnx_reader.h. Texts become names in messages and files, so only UTF-8 without NUL is
 * taken. */
trm_status trmi_onnx_take_text(const trmi_onnx_reader *r, const trmi_proto_field *field,
                               const char **out) {
    const char *text = (const char *)field->data;
    if (field->wire != TRMI_PROTO_BYTES) {
        return TRMI_FAIL(r->err, TRM_CORRUPT, "%s: field %u is no text", trmi_path_tail(r->path),
                         field->number);
    }
    if (!trmi_utf8_valid(text, field->bytes) || memchr(text, 0, field->bytes) != NULL) {
        return trmi_onnx_fault(r, field->data, "a name that is not UTF-8");
    }
    char *copy = trmi_arena_alloc(&r->model->arena, field->bytes + 1);
    if (copy == NULL) {
        return trmi_onnx_no_memory(r);
    }
    memcpy(copy, text, field->bytes);
    copy[field->bytes] = '\0';
    *out = copy;
    return TRM_OK;
}

trm_status trmi_onnx_expect_message(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                    int64_t count) {
    if (field->wire != TRMI_PROTO_BYTES) {
        return TRMI_FAIL(r->err, TRM_CORRUPT, "%s: field %u is no message", trmi_path_tail(r->path),
                         field->number);
    }
    return count < TRMI_ONNX_ITEMS_MAX
               ? TRM_OK
               : trmi_onnx_fault(r, field->data, "more than a million of a kind");
}
