/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a manifest. The guard (a checksum in the last line) is made right again after each
 * mutation, so that what lies after it is reached. */
#include "fuzz_seed.h"

#include "save/checkpoint/checkpoint_manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL = 13 + 32 + 3 };

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    uint32_t blocks[2] = {1, 0xFFFFFFFFu};
    trmi_manifest_file file = {.name = "model.safetensors",
                               .digest = {.bytes = TRMI_DIGEST_BLOCK_BYTES + 5,
                                          .xxh3 = "00112233445566778899aabbccddeeff",
                                          .block_crc = blocks,
                                          .block_count = 2}};
    trm_checkpoint_info info = {.global_step = 10 + index,
                                .epoch = 1,
                                .seed = 42,
                                .world_size = 1,
                                .config_json = "{\"model\":\"resnet50\",\"nested\":[1,2.5,{}]}"};
    trmi_text text = {0};
    size_t length = 0;
    if (trmi_manifest_format(&info, &file, 1, &text, NULL) == TRM_OK && text.length < capacity) {
        length = text.length;
        memcpy(data, text.data, length);
    }
    trmi_text_free(&text);
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_error err = {0};
    trmi_checkpoint_manifest manifest;
    char *text = malloc(bytes + 1);
    memcpy(text, data, bytes);
    /* Give the text the checksum that it needs: without it the parser would refuse every input at
     * once. */
    if (bytes > TAIL) {
        char checksum[TRMI_DIGEST_HEX];
        trmi_digest_of(text, bytes - TAIL, checksum);
        text[bytes] = '\0';
        char tail[TAIL + 1];
        snprintf(tail, sizeof tail, ",\n\"checksum\":\"%s\"}\n", checksum);
        memcpy(text + bytes - TAIL, tail, TAIL);
    }
    if (trmi_manifest_parse(text, bytes, "fuzz", &manifest, &err) == TRM_OK) {
        /* what the parser lets through keeps its promises */
        for (int64_t i = 0; i < manifest.file_count; i++) {
            if (strchr(manifest.files[i].name, '/') != NULL || manifest.files[i].digest.bytes < 0) {
                abort();
            }
        }
        trmi_manifest_free(&manifest);
    } else if (err.message[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
