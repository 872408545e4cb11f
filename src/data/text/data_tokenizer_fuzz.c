/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json, vocab.json with merges.txt, and files of token ids. What is read encodes and
 * decodes text without loss, unless it says that it has no token for a byte. */
#include "fuzz_seed.h"

#include "data/text/token_file.h"
#include "data/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char json[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<e>\",\"lstrip\":true,\"rstrip\":true,"
    "\"normalized\":false,\"special\":true},{\"id\":5,\"content\":\"e>\"}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":false,"
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},\"merges\":[[\"a\",\"b\"],\"ab a\"]}}";
static const char characters[] =
    "{\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":\"BPE\","
    "\"vocab\":{\"a\":0,\"b\":1,\"\303\251\":2},\"merges\":[]}}";
/* the vocabulary, a zero byte, the merges */
static const char pair[] = "{\"a\":0,\"b\":1,\"ab\":2}\0#version: 0.2\na b\n";

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    static const struct {
        const char *data;
        size_t bytes;
    } seeds[] = {{json, sizeof json - 1},
                 {characters, sizeof characters - 1},
                 {pair, sizeof pair - 1},
                 {NULL, 0}};
    const size_t i = (size_t)index % 4;
    if (seeds[i].data != NULL) {
        memcpy(data, seeds[i].data, seeds[i].bytes);
        return seeds[i].bytes;
    }
    size_t bytes = TRMI_TOKEN_HEADER_BYTES + 8;
    if (bytes > capacity) {
        abort();
    }
    memset(data, 0, bytes);
    const uint8_t header[] = {0xD8, 0xDB, 0x34, 1, 1, 0, 0, 0, 4, 0, 0, 0};
    memcpy(data, header, sizeof header);
    return bytes;
}

static void use_tokenizer(trm_tokenizer *t) {
    static const char text[] = "abab <e> e>b\303\251a";
    trm_error err;
    trm_tokens tokens = {0};
    char *back = NULL;
    size_t bytes = 0;
    if (trm_tokenizer_encode(t, text, sizeof text - 1, &tokens, &err) == TRM_OK &&
        trm_tokenizer_decode(t, tokens.ids, tokens.count, &back, &bytes, &err) != TRM_OK) {
        abort();
    }
    trm_free(back);
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    trm_error err;
    trm_tokenizer *t;
    trmi_token_file file;
    if (trmi_tokenizer_parse("fuzz", (const char *)data, bytes, &t, &err) == TRM_OK) {
        use_tokenizer(t);
    }
    const uint8_t *zero = bytes > 0 ? memchr(data, 0, bytes) : NULL;
    size_t first = zero != NULL ? (size_t)(zero - data) : bytes;
    size_t rest = zero != NULL ? bytes - first - 1 : 0;
    if (trmi_tokenizer_parse_pair((const char *)data, first, (const char *)data + bytes - rest,
                                  rest, &t, &err) == TRM_OK) {
        use_tokenizer(t);
    }
    if (trmi_token_file_parse("fuzz", data, bytes, &file, &err) == TRM_OK &&
        (file.count < 1 || (size_t)(file.offset + file.count * TRMI_TOKEN_BYTES) != bytes)) {
        abort();
    }
    return 0;
}
