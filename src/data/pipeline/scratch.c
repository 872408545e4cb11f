/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's buffers (source.h), which decoders and transforms use. */
#include "data/pipeline/source.h"

#include "base/memory.h"

/* Contract in source.h. The content is lost when a buffer grows. */
void *trmi_scratch_get(trmi_picture_scratch *scratch, int which, size_t bytes) {
    if (bytes > scratch->bytes[which]) {
        /* A quarter more than required, because image sizes grow in small steps. */
        size_t room = bytes + bytes / 4;
        void *grown = trmi_alloc(room);
        if (grown == NULL) {
            return NULL;
        }
        trmi_free(scratch->data[which]);
        scratch->data[which] = grown;
        scratch->bytes[which] = room;
    }
    return scratch->data[which];
}
