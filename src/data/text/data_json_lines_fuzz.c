/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines: documents end where the next one begins, and all lie within the text. */
#include "fuzz_seed.h"

#include "data/text/json_lines.h"

#include <stdlib.h>
#include <string.h>

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const char lines[] = "{\"text\": \"one \\u00e9\\n\", \"id\": 1}\n\n{\"text\": \"\"}\n"
                                "{\"text\": \"three\\u0000\"}";
    (void)capacity;
    size_t bytes = index % 2 == 0 ? sizeof lines - 1 : (size_t)index;
    memcpy(data, lines, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_error err;
    trmi_documents documents = {0};
    trm_status status =
        trmi_json_lines_parse("fuzz", (const char *)data, bytes, "text", &documents, &err);
    size_t begin = 0;
    for (int64_t i = 0; i < documents.count; i++) {
        if (documents.ends[i] < begin) {
            abort();
        }
        begin = documents.ends[i];
    }
    if (begin != documents.text.length || (status == TRM_OK && documents.text.failed)) {
        abort();
    }
    trmi_documents_free(&documents);
    return 0;
}
