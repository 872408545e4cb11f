/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as TFRecord framing, and, past the checksums, as the events in them. */
#include "fuzz_seed.h"

#include "save/events/events.h"
#include "base/format/tfrecord.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    trmi_text text = {0};
    float values[4] = {1, -2, 0, 1e9f};
    trm_tensor tensor = {values, TRM_FLOAT32, trm_shape_of(4)};
    trm_named_scalar scalar = {"loss", 0.5};
    trm_shape shape = trm_shape_of(2, 3);
    const char *const inputs[] = {"a"};
    trm_graph_event_node nodes[] = {{.name = "a", .op = "Input", .output_shape = &shape},
                                    {"b", "Relu", inputs, 1, "cpu", &shape}};
    trmi_event_put_version(&text, 1.0);
    trmi_event_put_start(&text, 1.5, 3);
    if (index % 3 == 0) {
        trmi_event_put_scalars(&text, 2.0, 7, &scalar, 1);
    } else if (index % 3 == 1) {
        trmi_event_put_graph(&text, 2.0, nodes, 2);
    } else if (trmi_event_put_histogram(&text, 2.0, 1, "h", &tensor, NULL) != TRM_OK) {
        abort();
    }
    size_t bytes = text.length < capacity ? text.length : 0;
    memcpy(data, text.data, bytes);
    trmi_text_free(&text);
    return bytes;
}

static void look_at_event(void *context, const trmi_record_event *event) {
    for (size_t i = 0; i < event->tag_bytes; i++) {
        *(unsigned *)context += (unsigned char)event->tag[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    size_t record_bytes, before = 0;
    trmi_tfrecord_reader reader = {.name = "fuzz", .file = data, .bytes = bytes};
    const uint8_t *record;
    unsigned sum = 0;
    trm_error err;
    while (trmi_tfrecord_next(&reader, &record, &record_bytes, &err) == TRM_OK) {
        if (reader.offset <= before || reader.offset > bytes) {
            abort();
        }
        before = reader.offset;
    }
    /* The checksums stop nearly everything; events are also tried without them. */
    for (size_t start = 0; start < bytes && start < 64; start += 7) {
        if (trmi_event_decode(data + start, bytes - start, "fuzz", 0, look_at_event, &sum, &err) !=
                TRM_OK &&
            err.message[0] == '\0') {
            abort();
        }
    }
    return 0;
}
