/* SPDX-License-Identifier: Apache-2.0 */
/* save/formats/onnx_reader.h: what the files that read ONNX share. */
#ifndef TRMI_SAVE_ONNX_READER_H
#define TRMI_SAVE_ONNX_READER_H

#include "save/formats/onnx.h"
#include "base/format/proto.h"

/* The state of reading one file. */
typedef struct trmi_onnx_reader {
    trmi_onnx_model *model; /* gets what is read */
    const uint8_t *start;   /* start of the file: offsets in messages count from here */
    const char *path;       /* of the file, for messages and external data */
    trm_error *err;         /* never NULL */
} trmi_onnx_reader;

/* Return CORRUPT with the offset of `at`, and NOMEM. */
trm_status trmi_onnx_fault(const trmi_onnx_reader *r, const uint8_t *at, const char *what);
trm_status trmi_onnx_no_memory(const trmi_onnx_reader *r);
/* Ends the reading of a message. Returns CORRUPT if a field was cut off. */
trm_status trmi_onnx_finish(const trmi_onnx_reader *r, const trmi_proto *proto);
/* Sets *out to a terminated copy of a text, in the model's arena. It must be UTF-8 without NUL. */
trm_status trmi_onnx_take_text(const trmi_onnx_reader *r, const trmi_proto_field *field,
                               const char **out);
/* Checks that the field is a message, and that fewer than a million (`count` so far) are there. */
trm_status trmi_onnx_expect_message(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                    int64_t count);
/* Reads a TensorProto. Its data stay where they are, in the file or in another file beside it. */
trm_status trmi_onnx_take_tensor(const trmi_onnx_reader *r, const trmi_proto_field *message,
                                 trm_named_tensor *out);

#endif
