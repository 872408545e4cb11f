/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers against values that the `tokenizers` package 0.23.3 gave (script/tokenizer_test
 * compares with the package itself), and against damaged files.
 *
 * Tokenizers are trained, saved and loaded in the test's folder. Any bytes must come back after
 * encode and decode. A damaged folder is an error that names the file, and each allocation may
 * fail. */
#include "folder.h"
#include "growth.h"
#include "real_data.h"

#include "trireme/data.h"

#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/text/pre_tokenizer.h"
#include "data/text/tokenizer.h"

static const char corpus[] =
    "It's a test: they're testing what we'd test, and that's that.\n"
    "  The theatre there thins; then the thing's thinner than thin.\n\n"
    "In 2024, 1234567 na\303\257ve caf\303\251s sold 99 cr\303\252pes; "
    "\344\275\240\345\245\275\357\274\214\344\270\226\347\225\214 was said 12 times.\n"
    "\tThe rest rested, the tester tested the test (the other test).\n";
static const char end_of_text[] = "<|endoftext|>";

static trm_tokenizer *train_corpus(int64_t vocabulary) {
    trm_error err;
    trm_tokenizer *t;
    const char *special[] = {end_of_text}, *paths[] = {in_folder("corpus.txt")};
    write_in_folder("corpus.txt", corpus, sizeof corpus - 1);
    const trm_tokenizer_options options = {
        .vocabulary = vocabulary, .special_tokens = special, .special_count = 1};
    CHECK_OK(trm_tokenizer_train(paths, 1, &options, &t, &err), err);
    return t;
}

/* ---- pieces ---- */

static void pieces_are_those_of_the_package(void **state) {
    static const struct {
        const char *text;
        size_t lengths[3][12]; /* GPT-2, Llama 3, Qwen 2 */
    } rows[] = {
        {"it's  they'll \012\012\011go",
         {{2, 2, 1, 5, 3, 3, 1, 2}, {2, 2, 1, 5, 3, 3, 3}, {2, 2, 1, 5, 3, 3, 3}}},
        {"IT'S 'Sd 'x", {{2, 1, 1, 2, 2, 2, 1}, {2, 2, 2, 2, 2, 1}, {2, 2, 2, 2, 2, 1}}},
        {"12345 678,9", {{5, 4, 1, 1}, {3, 2, 1, 3, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}},
        {"a.b!!\015\012c \015\012 d",
         {{1, 1, 1, 2, 1, 1, 1, 3, 2}, {1, 2, 4, 1, 3, 2}, {1, 2, 4, 1, 3, 2}}},
        {"'\305\277o \302\275\302\262\342\205\247 \331\243",
         {{1, 3, 8, 3}, {3, 1, 1, 7, 1, 2}, {3, 1, 1, 2, 2, 3, 1, 2}}},
        {"x\302\240\342\200\203y\343\200\200", {{1, 2, 3, 1, 3}, {1, 2, 4, 3}, {1, 2, 4, 3}}},
        {"tail  ", {{4, 2}, {4, 2}, {4, 2}}},
        {"caf\303\251\344\275\240\345\245\275 \360\237\221\215\360\237\217\275",
         {{11, 9}, {11, 9}, {11, 9}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int style = 0; style < 3; style++) {
            size_t at = 0, bytes = strlen(rows[i].text);
            for (int piece = 0; at < bytes; piece++) {
                size_t length = trmi_split_next((trmi_split_style)(TRMI_SPLIT_GPT2 + style),
                                                rows[i].text + at, bytes - at);
                assert_int_equal(length, rows[i].lengths[style][piece]);
                at += length;
            }
            assert_int_equal(at, bytes);
        }
    }
}

/* ---- training and encoding ---- */

static void merges_are_those_of_the_package(void **state) {
    static const char expected[] =
        "\304\240 t|\304\240t h|e s|es t|\304\240t est|\304\240th e|i n|a t|h e|\304\240th in|' s|"
        "r e|\304\240 w|1 2|T he|a n|e d|e r|r est|t he|\304\240 c|\304\240 s|\304\240 12|"
        "\304\240 rest|\304\240th at|";
    (void)state;
    trm_tokenizer *t = train_corpus(300);
    char found[512] = "";
    assert_int_equal(trm_tokenizer_vocabulary(t), 282); /* no other pair comes twice */
    for (int64_t i = 0; i < t->merge_count; i++) {
        size_t at = strlen(found);
        snprintf(found + at, sizeof found - at, "%s %s|", t->tokens[t->merges[i].left].text,
                 t->tokens[t->merges[i].right].text);
    }
    assert_string_equal(found, expected);
    assert_int_equal(trm_tokenizer_find(t, end_of_text), 0);
    assert_int_equal(trm_tokenizer_find(t, "\304\240the"), 262);
    assert_int_equal(trm_tokenizer_find(t, "nothing"), -1);
    trm_tokenizer_destroy(t);
}

typedef struct row {
    const char *text;
    int32_t ids[24]; /* then -1 */
} row;
static const row rows[] = {
    {"the test's tested", {276, 261, 267, 261, 273, -1}},
    {"<|endoftext|>the<|endoftext|>", {0, 276, 0, -1}},
    {"  they'll  rest \012", {221, 262, 89, 7, 76, 76, 221, 280, 221, 199, -1}},
    {"na\303\257ve \344\270\226\347\225\214 12345",
     {78, 65, 128, 108, 86, 69, 221, 161, 117, 245, 164, 244, 235, 279, 19, 20, 21, -1}},
    {"", {-1}},
    {"\302\240\343\200\200x", {127, 255, 160, 223, 223, 88, -1}},
    {"a\314\201b \331\243\331\244", {65, 137, 224, 66, 221, 150, 97, 150, 98, -1}},
    {"\360\237\221\215\360\237\217\275!!", {173, 254, 240, 236, 173, 254, 238, 122, 1, 1, -1}},
};

static void check_rows(trm_tokenizer *t) {
    trm_error err;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        trm_tokens tokens = {0};
        char *text;
        size_t bytes;
        CHECK_OK(trm_tokenizer_encode(t, rows[i].text, strlen(rows[i].text), &tokens, &err), err);
        for (int64_t k = 0; k <= tokens.count; k++) {
            assert_int_equal(k < tokens.count ? tokens.ids[k] : -1, rows[i].ids[k]);
        }
        CHECK_OK(trm_tokenizer_decode(t, tokens.ids, tokens.count, &text, &bytes, &err), err);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(bytes, strlen(rows[i].text));
        trm_free(text);
        trm_tokens_free(&tokens);
    }
}

static void encodings_are_those_of_the_package(void **state) {
    (void)state;
    trm_tokenizer *t = train_corpus(300);
    check_rows(t);
    check_rows(t); /* from the cache */
    trm_tokenizer_destroy(t);
}

static void saved_tokenizers_encode_alike(void **state) {
    trm_error err;
    (void)state;
    trm_tokenizer *t = train_corpus(300), *again;
    CHECK_OK(trm_tokenizer_save(t, in_folder("deep/saved"), &err), err);
    trm_tokenizer_destroy(t);
    CHECK_OK(trm_tokenizer_open(in_folder("deep/saved"), &again, &err), err);
    check_rows(again);
    CHECK_OK(trm_tokenizer_save(again, in_folder("again"), &err), err);
    trm_tokenizer_destroy(again);
    uint8_t *a, *b;
    size_t a_bytes, b_bytes;
    CHECK_OK(trmi_os_read_file(in_folder("deep/saved/tokenizer.json"), 1 << 20, &a, &a_bytes, &err),
             err);
    CHECK_OK(trmi_os_read_file(in_folder("again/tokenizer.json"), 1 << 20, &b, &b_bytes, &err),
             err);
    assert_string_equal((char *)a, (char *)b);
    trmi_free(a);
    trmi_free(b);
    /* vocab.json and merges.txt alone: <|endoftext|> is special there, too */
    assert_int_equal(unlink(in_folder("again/tokenizer.json")), 0);
    CHECK_OK(trm_tokenizer_open(in_folder("again"), &again, &err), err);
    check_rows(again);
    trm_tokenizer_destroy(again);
}

static void any_bytes_come_back(void **state) {
    trm_error err;
    (void)state;
    trm_tokenizer *t = train_corpus(300);
    for (uint64_t run = 0; run < 200; run++) {
        char raw[512], *text;
        uint32_t r[4];
        size_t bytes, length = 1 + run * 2;
        for (size_t i = 0; i < length; i++) {
            trmi_philox(run, TRMI_STREAM_TEST, i, r);
            /* bytes of all values, or mostly words */
            raw[i] = run % 2 == 0 ? (char)r[0] : corpus[(i * 7 + run) % (sizeof corpus - 1)];
        }
        trm_tokens tokens = {0};
        CHECK_OK(trm_tokenizer_encode(t, raw, length, &tokens, &err), err);
        CHECK_OK(trm_tokenizer_decode(t, tokens.ids, tokens.count, &text, &bytes, &err), err);
        assert_int_equal(bytes, length);
        assert_memory_equal(text, raw, length);
        trm_free(text);
        trm_tokens_free(&tokens);
    }
    trm_tokenizer_destroy(t);
}

/* Encodes one piece of `size` bytes: est est ... */
static void encode_piece(void *tokenizer, int64_t size) {
    trm_error err;
    char *text = malloc((size_t)size);
    for (int64_t i = 0; i < size; i++) {
        text[i] = "est"[i % 3];
    }
    trm_tokens tokens = {0};
    CHECK_OK(trm_tokenizer_encode(tokenizer, text, (size_t)size, &tokens, &err), err);
    assert_int_equal(tokens.count, (size + 2) / 3);
    assert_int_equal(tokens.ids[0], trm_tokenizer_find(tokenizer, "est"));
    free(text);
    trm_tokens_free(&tokens);
}

static void long_pieces_take_no_quadratic_time(void **state) {
    (void)state;
    trm_tokenizer *t = train_corpus(300);
    check_growth(encode_piece, t, 1 << 16);
    trm_tokenizer_destroy(t);
}

static void tiny_shakespeare_is_as_in_the_package(void **state) {
    trm_error err;
    (void)state;
    const char *path = real_data("tiny-shakespeare/input.txt");
    if (path == NULL) {
        skip();
    }
    trm_tokenizer *t;
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trm_tokenizer_train(&path, 1, &(trm_tokenizer_options){.vocabulary = 8192}, &t, &err),
             err);
    CHECK_OK(trm_tokenizer_save(t, in_folder("shakespeare"), &err), err);
    CHECK_OK(
        trmi_os_read_file(in_folder("shakespeare/tokenizer.json"), 1 << 22, &data, &bytes, &err),
        err);
    assert_int_equal(trmi_hash(TRMI_HASH_BEGIN, data, bytes), UINT64_C(0x2129293579403351));
    trmi_free(data);
    path = real_data("tiny-shakespeare/input.txt");
    CHECK_OK(trmi_os_read_file(path, 1 << 22, &data, &bytes, &err), err);
    trm_tokens tokens = {0};
    CHECK_OK(trm_tokenizer_encode(t, (char *)data, bytes, &tokens, &err), err);
    assert_int_equal(tokens.count, 317278);
    assert_int_equal(trmi_hash(TRMI_HASH_BEGIN, tokens.ids, (size_t)tokens.count * 4),
                     UINT64_C(0x2e2c09aa07395fe8));
    trmi_free(data);
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(t);
}

/* ---- bytes and characters ---- */

static void characters_are_numbered_by_code_point(void **state) {
    static const char text[] = "b\303\251a\n\344\270\226a";
    static const int32_t expected[] = {2, 3, 1, 0, 4, 1};
    trm_error err;
    (void)state;
    trm_tokenizer *t;
    CHECK_OK(trm_tokenizer_characters(text, sizeof text - 1, &t, &err), err);
    for (int round = 0; round < 2; round++) {
        trm_tokens tokens = {0};
        char *back;
        size_t bytes;
        assert_int_equal(trm_tokenizer_vocabulary(t), 5);
        CHECK_OK(trm_tokenizer_encode(t, text, sizeof text - 1, &tokens, &err), err);
        assert_int_equal(tokens.count, 6);
        assert_memory_equal(tokens.ids, expected, sizeof expected);
        CHECK_OK(trm_tokenizer_decode(t, tokens.ids, 6, &back, &bytes, &err), err);
        assert_string_equal(back, text);
        trm_free(back);
        CHECK_FAILS(trm_tokenizer_encode(t, "abc", 3, &tokens, &err), TRM_INVALID, err,
                    "byte 2: the tokenizer has no token for the character U+0063");
        CHECK_FAILS(trm_tokenizer_encode(t, "a\377", 2, &tokens, &err), TRM_INVALID, err,
                    "byte 1: 0xFF is not UTF-8");
        trm_tokens_free(&tokens);
        CHECK_OK(trm_tokenizer_save(t, in_folder("characters"), &err), err);
        trm_tokenizer_destroy(t);
        CHECK_OK(trm_tokenizer_open(in_folder("characters"), &t, &err), err);
    }
    trm_tokenizer_destroy(t);
    CHECK_FAILS(trm_tokenizer_characters("a\200", 2, &t, &err), TRM_CORRUPT, err,
                "byte 1: 0x80 is not UTF-8");
    CHECK_FAILS(trm_tokenizer_characters("", 0, &t, &err), TRM_INVALID, err, "an empty text");
}

static void bytes_are_their_own_ids(void **state) {
    trm_error err;
    (void)state;
    trm_tokenizer *t;
    CHECK_OK(trm_tokenizer_bytes(&t, &err), err);
    char text[256];
    for (int i = 0; i < 256; i++) {
        text[i] = (char)(255 - i);
    }
    trm_tokens tokens = {0};
    CHECK_OK(trm_tokenizer_encode(t, text, 256, &tokens, &err), err);
    assert_int_equal(tokens.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(tokens.ids[i], 255 - i);
    }
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(t);
}

/* ---- what is refused ---- */

/* tokenizer.json with one token for 'a', and `changed` in place of `what`. */
static trm_status open_changed(const char *what, const char *changed, trm_tokenizer **out,
                               trm_error *err) {
    static const char whole[] =
        "{\"added_tokens\": [{\"id\": 2, \"content\": \"<e>\", \"single_word\": false, "
        "\"normalized\": false}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
        "\"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"byte_fallback\": false, "
        "\"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": [\"a a\"]}}";
    char text[1024];
    const char *at = strstr(whole, what);
    assert_non_null(at);
    int length = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, changed,
                          at + strlen(what));
    return trmi_tokenizer_parse("t.json", text, (size_t)length, out, err);
}

static void what_is_not_supported_is_named(void **state) {
    static const struct {
        const char *what, *changed;
        trm_status status;
        const char *says;
    } cases[] = {
        {"\"BPE\"", "\"Unigram\"", TRM_UNSUPPORTED, "the model 'Unigram' is not supported"},
        {"\"dropout\": null", "\"dropout\": 0.1", TRM_UNSUPPORTED, "'dropout' is not supported"},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", TRM_UNSUPPORTED, "'byte_fallback'"},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}", TRM_UNSUPPORTED,
         "the normalizer 'NFC'"},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false}", "{\"type\": \"Whitespace\"}",
         TRM_UNSUPPORTED, "the pre-tokenizer 'Whitespace'"},
        {"{\"type\": \"ByteLevel\", \"add_prefix_space\": false}",
         "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
         "{\"Regex\": \"x+\"}}, {}]}",
         TRM_UNSUPPORTED, "the regular expression 'x+' is not supported; that of GPT-2"},
        {"\"decoder\": {\"type\": \"ByteLevel\"}", "\"decoder\": {\"type\": \"Metaspace\"}",
         TRM_UNSUPPORTED, "the decoder 'Metaspace'"},
        {"\"single_word\": false", "\"single_word\": true", TRM_UNSUPPORTED,
         "single_word of the added token '<e>'"},
        {"\"aa\": 1", "\"aa\": 0", TRM_CORRUPT, "tokens 'a' and 'aa' have the same id 0"},
        {"\"aa\": 1", "\"aa\": 1000000000", TRM_CORRUPT, "token 'aa': id 1000000000, 0 to"},
        {"\"aa\": 1", "\"aa\": -1", TRM_CORRUPT, "token 'aa': id -1"},
        {"\"aa\": 1", "\"aa\": \"x\"", TRM_CORRUPT, "token 'aa'"},
        {"{\"a\": 0, \"aa\": 1}", "[]", TRM_CORRUPT, "no vocabulary"},
        {"[\"a a\"]", "[\"a b\"]", TRM_CORRUPT, "merge 0: 'a' and 'b' to 'ab': 'b' is not in"},
        {"[\"a a\"]", "[\"aa a\"]", TRM_CORRUPT, "'aaa' is not in the vocabulary"},
        {"[\"a a\"]", "[[\"a\"]]", TRM_CORRUPT, "merge 0: [\"left\", \"right\"]"},
        {"\"content\": \"<e>\"", "\"content\": \"\"", TRM_CORRUPT, "added token 2 has no content"},
        {"{\"a\": 0", "{\"a\": 0,,", TRM_CORRUPT, "t.json: line 1, column"},
    };
    trm_error err;
    trm_tokenizer *t = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_FAILS(open_changed(cases[i].what, cases[i].changed, &t, &err), cases[i].status, err,
                    cases[i].says);
    }
    /* with nothing changed it opens, but has no token for b */
    CHECK_OK(open_changed("", "", &t, &err), err);
    trm_tokens tokens = {0};
    CHECK_OK(trm_tokenizer_encode(t, "aaa<e>", 6, &tokens, &err), err);
    assert_int_equal(tokens.count, 3);
    assert_int_equal(tokens.ids[0], 1);
    assert_int_equal(tokens.ids[2], 2);
    CHECK_FAILS(trm_tokenizer_encode(t, "aab", 3, &tokens, &err), TRM_INVALID, err,
                "byte 2: the tokenizer has no token for byte 0x62");
    char *text;
    size_t bytes;
    CHECK_FAILS(trm_tokenizer_decode(t, (int32_t[]){0, 7}, 2, &text, &bytes, &err), TRM_INVALID,
                err, "token 1: id 7 is not in the vocabulary of 3 ids");
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(t);
}

static void damaged_folders_are_named(void **state) {
    trm_error err;
    trm_tokenizer *t = NULL;
    (void)state;
    CHECK_FAILS(trm_tokenizer_open(in_folder("nowhere"), &t, &err), TRM_IO, err, "no such");
    CHECK_OK(trmi_os_make_dirs(NULL, in_folder("pair"), &err), err);
    CHECK_FAILS(trm_tokenizer_open(in_folder("pair"), &t, &err), TRM_IO, err, "no tokenizer:");
    write_in_folder("pair/vocab.json", "{\"a\": 0, \"aa\": 1}", 17);
    CHECK_FAILS(trm_tokenizer_open(in_folder("pair"), &t, &err), TRM_IO, err, "merges.txt");
    write_in_folder("pair/merges.txt", "#version: 0.2\na a\nb\n", 20);
    CHECK_FAILS(trm_tokenizer_open(in_folder("pair"), &t, &err), TRM_CORRUPT, err,
                "merges.txt: line 3: 'b', two tokens");
    write_in_folder("pair/merges.txt", "#version: 0.2\r\na a\r\n\n", 21);
    CHECK_OK(trm_tokenizer_open(in_folder("pair"), &t, &err), err);
    trm_tokenizer_destroy(t);
    const char *empty = in_folder("empty.txt");
    write_in_folder("empty.txt", "", 0);
    CHECK_FAILS(
        trm_tokenizer_train(&empty, 1, &(trm_tokenizer_options){.vocabulary = 300}, &t, &err),
        TRM_CORRUPT, err, "an empty file");
    CHECK_FAILS(
        trm_tokenizer_train(&empty, 1, &(trm_tokenizer_options){.vocabulary = 255}, &t, &err),
        TRM_INVALID, err, "a vocabulary of 255 tokens: 256");
}

static void lack_of_memory_is_an_error(void **state) {
    trm_error err;
    (void)state;
    trm_tokenizer *t = train_corpus(300);
    CHECK_OK(trm_tokenizer_save(t, in_folder("memory"), &err), err);
    trm_tokenizer_destroy(t);
    const char *path = in_folder("corpus.txt");
    for (int what = 0; what < 3; what++) {
        int64_t fails = 0;
        for (trm_status status = TRM_NOMEM; status != TRM_OK; fails++) {
            t = NULL;
            trmi_alloc_fail_after(fails + 1);
            status = what == 0   ? trm_tokenizer_train(&path, 1,
                                                       &(trm_tokenizer_options){.vocabulary = 300},
                                                       &t, &err)
                     : what == 1 ? trm_tokenizer_open(in_folder("memory"), &t, &err)
                                 : trm_tokenizer_characters(corpus, sizeof corpus - 1, &t, &err);
            trmi_alloc_fail_after(0);
            assert_true(status == TRM_OK || status == TRM_NOMEM);
            if (status == TRM_OK) {
                trm_tokenizer_destroy(t);
            }
        }
        assert_true(fails > 5);
    }
}

/* ---- files of tokens ---- */

static void token_files_come_back(void **state) {
    trm_error err;
    int32_t ids[] = {0, 65535, 50256};
    trm_tokens tokens = {.ids = ids, .count = 3}, again = {0};
    (void)state;
    CHECK_OK(trm_tokens_write(&tokens, in_folder("ids.bin"), &err), err);
    CHECK_OK(trm_tokens_read(in_folder("ids.bin"), &again, &err), err);
    assert_int_equal(again.count, 3);
    assert_memory_equal(again.ids, ids, sizeof ids);
    trm_tokens_free(&again);
    ids[1] = 65536;
    CHECK_FAILS(trm_tokens_write(&tokens, in_folder("ids.bin"), &err), TRM_INVALID, err,
                "token 1: id 65536 does not fit 16 bits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_those_of_the_package),
        cmocka_unit_test(merges_are_those_of_the_package),
        cmocka_unit_test(encodings_are_those_of_the_package),
        cmocka_unit_test(saved_tokenizers_encode_alike),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(long_pieces_take_no_quadratic_time),
        cmocka_unit_test(tiny_shakespeare_is_as_in_the_package),
        cmocka_unit_test(characters_are_numbered_by_code_point),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(damaged_folders_are_named),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(token_files_come_back),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
