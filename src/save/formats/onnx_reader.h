/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/onnx_reader.h: what the files that read ONNX share. */
#ifndef TRMI_SAVE_ONNX_READER_H
#define TRMI_SAVE_ONNX_READER_H

#include "save/formats/onnx.h"
#include "base/proto.h"

typedef struct trmi_onnx_reader {
    trm_onnx_model *model;
    const uint8_t *start; /* of the file: offsets in messages count from here */
    const char *path;
    trm_error *err;
} trmi_onnx_reader;

trm_status trmi_onnx_fault(const trmi_onnx_reader *r, const uint8_t *at, const char *what);
trm_status trmi_onnx_no_memory(const trmi_onnx_reader *r);
/* The end of a message: was every field whole? */
trm_status trmi_onnx_finish(const trmi_onnx_reader *r, const trmi_proto *proto);
/* A terminated copy in the model's arena; UTF-8 without NUL. */
trm_status trmi_onnx_take_text(const trmi_onnx_reader *r, const trmi_proto_field *field,
                               const char **out);
/* A message among many: `count` are there already, a million is the cap. */
trm_status trmi_onnx_expect_message(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                    int64_t count);
/* A TensorProto. Its data stay where they are, in the file or in another one beside it. */
trm_status trmi_onnx_take_tensor(const trmi_onnx_reader *r, const trmi_proto_field *message,
                                 trm_named_tensor *out);

#endif
