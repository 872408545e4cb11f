/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets of tokens (trm_dataset_tokens): which tokens a sample has, how files and documents are
 * divided among train, validation and test, order, shards and resuming, and what is refused.
 *
 * Files are written by the test, so that the expected samples follow from their numbers: an id is
 * its position. One test reads tiny Shakespeare, where TRIREME_DATA has it. Damaged files must be
 * named with the byte at fault, and each allocation may fail. */
#include "token_files.h"
#include "real_data.h"

#include "trireme/data.h"

#include "base/format/endian.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/rng.h"
#include "data/text/token_source.h"
#include "data/text/tokenizer.h"

enum { IGNORED = TRMI_TOKEN_IGNORED };

static void make_folder_in(const char *name) {
    trm_error err;
    CHECK_OK(trmi_os_make_dirs(NULL, in_folder(name), &err), err);
}

/* Checks the next batch: `rows` of `context` tokens and targets, from the ids `begin[row]` on. */
static void check_next(trm_dataset *data, int64_t context, int rows, const int32_t *begin) {
    trm_error err;
    const trm_batch *batch;
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    const int32_t *tokens = trm_batch_tensor(batch, "tokens")->data,
                  *targets = trm_batch_tensor(batch, "targets")->data;
    assert_int_equal(batch->samples, rows);
    for (int row = 0; row < rows; row++) {
        for (int64_t i = 0; i < context; i++) {
            assert_int_equal(tokens[row * context + i], begin[row] + i);
            assert_int_equal(targets[row * context + i], begin[row] + i + 1);
        }
    }
}

/* ---- samples ---- */

static void samples_are_windows_of_ids(void **state) {
    static const int32_t whole[] = {1000, 1004, 1008}, close[] = {1000, 1002, 1004, 1006, 1008};
    trm_error err;
    trm_dataset *data;
    (void)state;
    for (int header = 0; header < 2; header++) {
        write_ids("ids.bin", header, 1000,
                  16); /* training has int(14.4) of them: 3 windows of 4 + 1 */
        trm_text_options options = {.context = 4};
        CHECK_OK(trm_dataset_tokens(in_folder("ids.bin"), TRM_USAGE_TRAIN, &options, &data, &err),
                 err);
        assert_int_equal(trm_dataset_sample_count(data), 3);
        CHECK_OK(trm_dataset_batch(data, 3, true, &err), err);
        check_next(data, 4, 3, whole);
        trm_dataset_destroy(data);
        options.stride = 2;
        CHECK_OK(trm_dataset_tokens(in_folder("ids.bin"), TRM_USAGE_TRAIN, &options, &data, &err),
                 err);
        assert_int_equal(trm_dataset_sample_count(data), 5);
        CHECK_OK(trm_dataset_batch(data, 5, true, &err), err);
        check_next(data, 4, 5, close);
        assert_true(trmi_dataset_token_bytes(data) == 0);
        assert_null(trm_dataset_tokenizer(data));
        trm_dataset_destroy(data);
    }
}

/* The last window of a test part is shorter, and rows without a sample have no targets. */
static void what_is_not_there_is_ignored(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    (void)state;
    write_ids("tail.bin", false, 0, 80); /* the test part: 72 to 79 */
    CHECK_OK(trm_dataset_tokens(in_folder("tail.bin"), TRM_USAGE_TEST,
                                &(trm_text_options){.context = 5}, &data, &err),
             err);
    assert_int_equal(trm_dataset_sample_count(data), 2);
    CHECK_OK(trm_dataset_batch(data, 3, false, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    static const int32_t tokens[] = {72, 73, 74, 75, 76, 77, 78, 0, 0, 0, 0, 0, 0, 0, 0},
                         targets[] = {73,      74,      75,      76,      77,
                                      78,      79,      IGNORED, IGNORED, IGNORED,
                                      IGNORED, IGNORED, IGNORED, IGNORED, IGNORED};
    assert_int_equal(batch->samples, 2);
    assert_memory_equal(trm_batch_tensor(batch, "tokens")->data, tokens, sizeof tokens);
    assert_memory_equal(trm_batch_tensor(batch, "targets")->data, targets, sizeof targets);
    trm_dataset_destroy(data);
}

/* Shuffled, in two shards, by two threads: each window once, and a resume gives the same
 * batches. */
static void order_shards_and_resume_are_those_of_all_datasets(void **state) {
    enum { CONTEXT = 4, BATCH = 5 };
    trm_error err;
    const trm_batch *batch;
    int seen[201] = {0};
    int32_t after_seek = -1;
    (void)state;
    write_ids("many.bin", false, 0, 800);
    for (int shard = 0; shard < 2; shard++) {
        for (int seek = 0; seek < 2; seek++) {
            trm_dataset *data;
            CHECK_OK(trm_dataset_tokens(in_folder("many.bin"), TRM_USAGE_ALL,
                                        &(trm_text_options){.context = CONTEXT}, &data, &err),
                     err);
            CHECK_OK(trm_dataset_seed(data, 7, &err), err);
            CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
            CHECK_OK(trm_dataset_shard(data, 2, shard, TRM_SHARD_PAD, &err), err);
            CHECK_OK(trm_dataset_batch(data, BATCH, false, &err), err);
            CHECK_OK(trm_dataset_prefetch(data, 4, 2, &err), err);
            if (seek) {
                CHECK_OK(trm_dataset_seek(data, 0, 3, &err), err);
            }
            for (int number = seek ? 3 : 0; trm_dataset_next(data, &batch, &err) == TRM_OK;
                 number++) {
                const int32_t *tokens = trm_batch_tensor(batch, "tokens")->data;
                for (int64_t row = 0; row < batch->samples && !seek; row++) {
                    assert_int_equal(tokens[row * CONTEXT] % CONTEXT, 0);
                    seen[tokens[row * CONTEXT] / CONTEXT]++;
                }
                if (number == 3 && !seek) {
                    after_seek = tokens[0];
                } else if (number == 3) {
                    assert_int_equal(tokens[0], after_seek);
                }
            }
            trm_dataset_destroy(data);
        }
    }
    for (int i = 0; i < 199; i++) { /* 800 ids, of which the last is a target only */
        assert_int_equal(seen[i], 1);
    }
}

static void files_are_chosen_by_their_names(void **state) {
    static const int32_t two_files[] = {0, 4, 100, 104}, held_out[] = {900};
    trm_error err;
    trm_dataset *data;
    const trm_text_options options = {.context = 4};
    (void)state;
    make_folder_in("shards");
    write_ids("shards/x_train_01.bin", true, 0, 10);
    write_ids("shards/x_train_02.bin", true, 100, 10);
    write_ids("shards/x_val_00.bin", true, 900, 5);
    write_ids("shards/trainer.bin", true, 500, 10); /* no such word in its name */
    CHECK_OK(trm_dataset_tokens(in_folder("shards"), TRM_USAGE_TRAIN, &options, &data, &err), err);
    assert_int_equal(trm_dataset_sample_count(data), 4);
    CHECK_OK(trm_dataset_batch(data, 4, true, &err), err);
    check_next(data, 4, 4, two_files);
    trm_dataset_destroy(data);
    CHECK_OK(trm_dataset_tokens(in_folder("shards"), TRM_USAGE_TEST, &options, &data, &err), err);
    check_next(data, 4, 1, held_out);
    trm_dataset_destroy(data);
    /* of one file its partner is found: nothing is cut off */
    write_ids("shards/x_val_01.bin", true, 900, 5);
    CHECK_OK(trm_dataset_tokens(in_folder("shards/x_train_01.bin"), TRM_USAGE_TRAIN, &options,
                                &data, &err),
             err);
    assert_int_equal(trm_dataset_sample_count(data), 2);
    trm_dataset_destroy(data);
    CHECK_OK(trm_dataset_tokens(in_folder("shards/x_train_01.bin"), TRM_USAGE_TEST, &options, &data,
                                &err),
             err);
    check_next(data, 4, 1, held_out);
    trm_dataset_destroy(data);
}

/* ---- text ---- */

static void bytes_are_read_where_they_lie(void **state) {
    char text[100];
    int32_t begin[] = {0, 20, 40, 60};
    trm_error err;
    trm_dataset *data;
    (void)state;
    for (int i = 0; i < 100; i++) {
        text[i] = (char)i;
    }
    write_in_folder("bytes.txt", text, sizeof text);
    CHECK_OK(trm_dataset_text(in_folder("bytes.txt"), TRM_USAGE_TRAIN,
                              &(trm_text_options){.tokens = "bytes", .context = 20}, &data, &err),
             err);
    assert_int_equal(trm_dataset_class_count(data), 256);
    assert_true(trmi_dataset_token_bytes(data) == 1);
    CHECK_OK(trm_dataset_batch(data, 4, true, &err), err);
    check_next(data, 20, 4, begin);
    trm_dataset_destroy(data);
}

/* A text of `count` random characters of 1 to 4 bytes. */
static char *random_text(int64_t count, size_t *bytes) {
    static const char *const letters[] = {
        "a", "b", " ", "\n", "\303\251", "\344\270\226", "\360\237\221\215", "t", "h", "e"};
    char *text = calloc((size_t)count, 4);
    uint32_t r[4];
    *bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        trmi_philox(3, TRMI_STREAM_TEST, (uint64_t)i, r);
        const char *letter = letters[r[0] % 10];
        memcpy(text + *bytes, letter, strlen(letter));
        *bytes += strlen(letter);
    }
    return text;
}

/* All tokens of a part, window by window, are those of `expected`. */
static void check_part(const char *path, trm_usage usage, trm_text_options options,
                       const int32_t *expected, int64_t count) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    int64_t at = 0;
    CHECK_OK(trm_dataset_text(path, usage, &options, &data, &err), err);
    while (trm_dataset_next(data, &batch, &err) == TRM_OK) {
        const int32_t *tokens = trm_batch_tensor(batch, "tokens")->data,
                      *targets = trm_batch_tensor(batch, "targets")->data;
        for (int64_t i = 0; i < options.context && targets[i] != IGNORED; i++, at++) {
            assert_int_equal(tokens[i], expected[at]);
            assert_int_equal(targets[i], expected[at + 1]);
        }
    }
    assert_true(at > count - 1 - options.context && at <= count - 1);
    assert_true(usage == TRM_USAGE_TRAIN || at == count - 1);
    trm_dataset_destroy(data);
}

/* Both parts, whose characters are int(0.9 * n) and the rest, are what the whole text encodes
 * to. */
static void characters_are_those_of_the_whole_text(void **state) {
    enum { COUNT = 5000, CUT = 4500 };
    trm_error err;
    size_t bytes;
    trm_tokenizer *t;
    trm_tokens ids = {0};
    (void)state;
    char *text = random_text(COUNT, &bytes);
    write_in_folder("characters.txt", text, bytes);
    CHECK_OK(trm_tokenizer_characters(text, bytes, &t, &err), err);
    CHECK_OK(trm_tokenizer_encode(t, text, bytes, &ids, &err), err);
    assert_int_equal(ids.count, COUNT);
    const trm_text_options options = {.tokens = "characters", .context = 37};
    check_part(in_folder("characters.txt"), TRM_USAGE_TRAIN, options, ids.ids, CUT);
    check_part(in_folder("characters.txt"), TRM_USAGE_TEST, options, ids.ids + CUT, COUNT - CUT);
    /* with a saved tokenizer the same */
    CHECK_OK(trm_tokenizer_save(t, in_folder("letters"), &err), err);
    const trm_text_options saved = {.tokenizer = in_folder("letters"), .context = 37};
    check_part(in_folder("characters.txt"), TRM_USAGE_TEST, saved, ids.ids + CUT, COUNT - CUT);
    trm_tokens_free(&ids);
    trm_tokenizer_destroy(t);
    free(text);
}

/* More tokens than a portion has, so that the encoding goes on where it stopped. */
static void encoded_text_is_that_of_the_tokenizer(void **state) {
    enum { COUNT = 200000, CUT = 180000 };
    trm_error err;
    size_t bytes, cut = 0;
    trm_tokenizer *t;
    trm_tokens ids = {0};
    (void)state;
    char *text = random_text(COUNT, &bytes);
    write_in_folder("encoded.txt", text, bytes);
    const char *path = in_folder("encoded.txt");
    CHECK_OK(trm_tokenizer_train(&path, 1, &(trm_tokenizer_options){.vocabulary = 300}, &t, &err),
             err);
    CHECK_OK(trm_tokenizer_save(t, in_folder("three"), &err), err);
    for (int64_t count = 0; count < CUT; cut++) {
        count += ((unsigned char)text[cut + 1] & 0xC0) != 0x80;
    }
    char three[300];
    snprintf(three, sizeof three, "%s", in_folder("three"));
    const trm_text_options options = {.tokenizer = three, .context = 100};
    CHECK_OK(trm_tokenizer_encode(t, text, cut, &ids, &err), err);
    assert_true(ids.count > 70000);
    check_part(in_folder("encoded.txt"), TRM_USAGE_TRAIN, options, ids.ids, ids.count);
    ids.count = 0;
    CHECK_OK(trm_tokenizer_encode(t, text + cut, bytes - cut, &ids, &err), err);
    check_part(in_folder("encoded.txt"), TRM_USAGE_TEST, options, ids.ids, ids.count);
    trm_dataset *data;
    CHECK_OK(trm_dataset_text(in_folder("encoded.txt"), TRM_USAGE_TEST, &options, &data, &err),
             err);
    CHECK_CLOSE(trmi_dataset_token_bytes(data), (double)(bytes - cut) / (double)ids.count, 1e-12);
    assert_int_equal(trm_tokenizer_vocabulary(trm_dataset_tokenizer(data)), 300);
    trm_dataset_destroy(data);
    /* the same tokens from a file of ids, whose bytes the tokenizer knows */
    CHECK_OK(trm_tokens_write(&ids, in_folder("encoded.bin"), &err), err);
    CHECK_OK(trm_dataset_tokens(in_folder("encoded.bin"), TRM_USAGE_ALL, &options, &data, &err),
             err);
    CHECK_CLOSE(trmi_dataset_token_bytes(data), (double)(bytes - cut) / (double)ids.count, 1e-12);
    assert_int_equal(trm_dataset_class_count(data), 300);
    trm_dataset_destroy(data);
    trm_tokens_free(&ids);
    trm_tokenizer_destroy(t);
    free(text);
}

/* nanoGPT's prepare.py says: train has 1,003,854 tokens, val has 111,540, 65 characters. */
static void tiny_shakespeare_is_divided_as_by_nanogpt(void **state) {
    (void)state;
    const char *path = real_data("tiny-shakespeare");
    if (path == NULL) {
        skip();
    }
    static const int64_t tokens[] = {1003854, 111540};
    for (int test = 0; test < 2; test++) {
        trm_error err;
        trm_dataset *data;
        CHECK_OK(trm_dataset_text(path, test ? TRM_USAGE_TEST : TRM_USAGE_TRAIN,
                                  &(trm_text_options){.tokens = "characters", .context = 64}, &data,
                                  &err),
                 err);
        char expected[32], *text = trm_dataset_json(data);
        snprintf(expected, sizeof expected, "\"tokens\":%lld,", (long long)tokens[test]);
        assert_non_null(strstr(text, expected));
        assert_int_equal(trm_dataset_class_count(data), 65);
        trm_free(text);
        trm_dataset_destroy(data);
    }
}

/* ---- JSON lines ---- */

static void documents_are_joined(void **state) {
    static const char lines[] =
        "\xEF\xBB\xBF{\"body\": \"ab\", \"n\": 1}\n\n  {\"body\": \"\"}\r\n{\"body\": \"b\"}";
    static const int32_t expected[] = {1, 2, 0, 0, 2, 0}; /* \n a b */
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    (void)state;
    write_in_folder("lines.jsonl", lines, sizeof lines - 1);
    const trm_text_options options = {.tokens = "characters", .text_field = "body", .context = 5};
    CHECK_OK(trm_dataset_json_lines(in_folder("lines.jsonl"), TRM_USAGE_ALL, &options, &data, &err),
             err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    assert_memory_equal(trm_batch_tensor(batch, "tokens")->data, expected, 5 * sizeof(int32_t));
    assert_memory_equal(trm_batch_tensor(batch, "targets")->data, expected + 1,
                        5 * sizeof(int32_t));
    trm_dataset_destroy(data);
    /* a tokenizer's end of text */
    trm_tokenizer *t;
    const char *path = in_folder("lines.jsonl"), *special[] = {"<|endoftext|>"};
    const trm_tokenizer_options training = {
        .vocabulary = 257, .special_tokens = special, .special_count = 1};
    CHECK_OK(trm_tokenizer_train(&path, 1, &training, &t, &err), err);
    CHECK_OK(trm_tokenizer_save(t, in_folder("with_end"), &err), err);
    trm_tokenizer_destroy(t);
    const trm_text_options ended = {
        .tokenizer = in_folder("with_end"), .text_field = "body", .context = 5};
    CHECK_OK(trm_dataset_json_lines(in_folder("lines.jsonl"), TRM_USAGE_ALL, &ended, &data, &err),
             err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    const int32_t *ids = trm_batch_tensor(batch, "tokens")->data;
    assert_int_equal(ids[2], 0);
    assert_int_equal(ids[3], 0);
    assert_int_equal(ids[1], ids[4]);
    trm_dataset_destroy(data);
}

/* ---- what is refused ---- */

static void check_refused(const char *kind, const char *name, const trm_text_options *options,
                          trm_status status, const char *says) {
    trm_error err;
    trm_dataset *data;
    const trm_dataset_spec spec = {.kind = kind, .path = in_folder(name), .text = options};
    CHECK_FAILS(trm_dataset_open(&spec, &data, &err), status, err, says);
    if (status == TRM_CORRUPT || status == TRM_IO) {
        assert_non_null(strstr(err.message, name)); /* the file is named */
    }
}

static void damaged_files_are_named(void **state) {
    const trm_text_options small = {.context = 4}, bytes = {.tokens = "bytes", .context = 4},
                           characters = {.tokens = "characters", .context = 4};
    uint8_t header[1024 + 6] = {0};
    (void)state;
    write_in_folder("zero.bin", "", 0);
    check_refused("auto", "zero.bin", &small, TRM_CORRUPT, "an empty file");
    write_in_folder("odd.bin", "abcde", 5);
    check_refused("auto", "odd.bin", &small, TRM_CORRUPT, "5 bytes; token ids of 2 bytes");
    trmi_put32(header, 20240520);
    write_in_folder("short.bin", header, 1000);
    check_refused("auto", "short.bin", &small, TRM_CORRUPT, "1000 bytes, a header of 1024");
    write_in_folder("version.bin", header, sizeof header);
    check_refused("auto", "version.bin", &small, TRM_CORRUPT, "byte 4: version 0, 1 expected");
    trmi_put32(header + 4, 1);
    trmi_put32(header + 8, 4);
    write_in_folder("count.bin", header, sizeof header);
    check_refused("auto", "count.bin", &small, TRM_CORRUPT,
                  "byte 8: 4 tokens, so 1032 bytes expected, the file has 1030");
    trmi_put32(header + 8, UINT32_MAX);
    write_in_folder("count.bin", header, sizeof header);
    check_refused("auto", "count.bin", &small, TRM_CORRUPT, "byte 8: 4294967295 tokens");
    trmi_put32(header, 20240801);
    write_in_folder("wide.bin", header, sizeof header);
    check_refused("auto", "wide.bin", &small, TRM_UNSUPPORTED, "ids of 32 bits");
    write_ids("few.bin", true, 0, 5);
    check_refused("auto", "few.bin", &small, TRM_INVALID,
                  "4 tokens for training, 5 (the context and one more) expected; lower the context "
                  "or give more text");
    write_in_folder("text.txt", "a\377b\n", 4);
    check_refused("text", "text.txt", &characters, TRM_CORRUPT, "byte 1: 0xFF is not UTF-8");
    check_refused("text", "text.txt", &bytes, TRM_INVALID, "lower the context");
    check_refused("text", "text.txt", &small, TRM_INVALID, "text needs a tokenizer");
    check_refused("text", "text.txt", &(trm_text_options){.tokens = "words"}, TRM_INVALID,
                  "characters or bytes expected");
    check_refused("text", "text.txt", &(trm_text_options){.tokens = "bytes", .context = -1},
                  TRM_INVALID, "a context of -1");
    check_refused("text", "text.txt",
                  &(trm_text_options){.tokens = "bytes", .context = 2, .stride = 3}, TRM_INVALID,
                  "a stride of 3");
    check_refused("tokens", "nowhere.bin", &small, TRM_IO, "no such data");
    make_folder_in("hollow");
    check_refused("tokens", "hollow", &small, TRM_IO, "no files *.bin in it");
    static const char bad[] = "{\"text\": \"good\"}\n{\"text\": bad}\n", other[] = "{\"text\": 3}",
                      none[] = "{\"body\": \"x\"}", array[] = "[\"text\"]";
    write_in_folder("bad.jsonl", bad, sizeof bad - 1);
    check_refused("auto", "bad.jsonl", &bytes, TRM_CORRUPT, "line 2, column 12");
    write_in_folder("other.jsonl", other, sizeof other - 1);
    check_refused("auto", "other.jsonl", &bytes, TRM_CORRUPT,
                  "line 1: another type in field 'text'");
    write_in_folder("none.jsonl", none, sizeof none - 1);
    check_refused("auto", "none.jsonl", &bytes, TRM_CORRUPT, "no field 'text', a string expected");
    write_in_folder("array.jsonl", array, sizeof array - 1);
    check_refused("auto", "array.jsonl", &bytes, TRM_CORRUPT,
                  "line 1: an array; JSON lines have an object in each line");
    write_in_folder("single.jsonl", "{\"text\": \"one document\"}", 24);
    check_refused("auto", "single.jsonl", &bytes, TRM_INVALID, "0 tokens for training, ");
    write_in_folder("zero.txt", "ab\0c", 4);
    check_refused("text", "zero.txt", &characters, TRM_CORRUPT, "byte 2: a zero byte");
    write_in_folder("blank.jsonl", "\n\n", 2);
    check_refused("auto", "blank.jsonl", &bytes, TRM_CORRUPT, "no documents in its 2 bytes");
}

/* The batch that has the id says where it is; the position stays, and batches before it are
 * read. */
static void ids_beyond_the_vocabulary_are_named(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    (void)state;
    for (int header = 0; header < 2; header++) {
        write_ids("beyond.bin", header, 90, 20);
        const trm_text_options options = {.context = 4, .vocabulary = 100};
        CHECK_OK(
            trm_dataset_tokens(in_folder("beyond.bin"), TRM_USAGE_TRAIN, &options, &data, &err),
            err);
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_CORRUPT, err,
                    header ? "beyond.bin: byte 1044: token id 100, below 100 (the vocabulary)"
                           : "beyond.bin: byte 20: token id 100, below 100 (the vocabulary)");
        trm_dataset_destroy(data);
    }
    trm_tokenizer *t;
    CHECK_OK(trm_tokenizer_characters("ab", 2, &t, &err), err);
    CHECK_OK(trm_tokenizer_save(t, in_folder("ab"), &err), err);
    trm_tokenizer_destroy(t);
    write_in_folder("abc.txt", "ababababcb", 10);
    check_refused("text", "abc.txt",
                  &(trm_text_options){.tokenizer = in_folder("ab"), .context = 2}, TRM_CORRUPT,
                  "byte 8: a character that the tokenizer has no token for");
    check_refused("text", "abc.txt",
                  &(trm_text_options){.tokenizer = in_folder("ab"), .context = 2, .vocabulary = 1},
                  TRM_INVALID, "a vocabulary of 1 ids: the tokenizer has 2");
}

/* A file that becomes shorter while it is mapped is an error with both sizes, of every form. */
static void shortened_files_are_named(void **state) {
    enum { BYTES = 100000 };
    static const char *const tokens[] = {NULL, "bytes", "characters"};
    trm_error err;
    (void)state;
    char *text = malloc(BYTES);
    for (int form = 0; form < 3; form++) {
        trm_dataset *data;
        const trm_batch *batch;
        memset(text, 1 + form, BYTES);
        const char *name = form == 0 ? "shorter.bin" : "shorter.txt";
        write_in_folder(name, text, BYTES);
        const trm_dataset_spec spec = {
            .path = in_folder(name),
            .batch_size = 10,
            .prefetch_depth = -1,
            .text = &(trm_text_options){.tokens = tokens[form], .context = 100}};
        CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        assert_int_equal(truncate(in_folder(name), 5000), 0);
        CHECK_FAILS(trm_dataset_next(data, &batch, &err), TRM_IO, err,
                    "became shorter while it was read (found 5000 bytes, expected 100000)");
        trm_dataset_destroy(data);
    }
    free(text);
}

static void lack_of_memory_is_an_error(void **state) {
    static const char lines[] = "{\"text\": \"abab\"}\n{\"text\": \"baba\"}\n";
    static const struct {
        const char *name;
        trm_text_options options;
    } cases[] = {{"memory.bin", {.context = 2}},
                 {"memory.txt", {.tokens = "bytes", .context = 2}},
                 {"memory.txt", {.tokens = "characters", .context = 2}},
                 {"memory.jsonl", {.tokens = "characters", .context = 2}}};
    trm_error err;
    (void)state;
    write_ids("memory.bin", false, 0, 20);
    write_in_folder("memory.txt", "abababababab", 12);
    write_in_folder("memory.jsonl", lines, sizeof lines - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t fails = 0;
        for (trm_status status = TRM_NOMEM; status != TRM_OK; fails++) {
            trm_dataset *data = NULL;
            const trm_dataset_spec spec = {.path = in_folder(cases[i].name),
                                           .usage = TRM_USAGE_ALL,
                                           .batch_size = 1,
                                           .text = &cases[i].options};
            trmi_alloc_fail_after(fails + 1);
            status = trm_dataset_open(&spec, &data, &err);
            trmi_alloc_fail_after(0);
            assert_true(status == TRM_OK || status == TRM_NOMEM);
            if (status == TRM_OK) {
                trm_dataset_destroy(data);
            }
        }
        assert_true(fails > 3);
    }
}

/* ---- kinds ---- */

static void kinds_are_found_by_names(void **state) {
    static const struct {
        const char *path, *kind;
        bool with_tokens;
    } cases[] = {{"kinds/a.bin", "tokens", false}, {"kinds/a.txt", "text", true},
                 {"kinds/a.jsonl", "jsonl", true}, {"kinds", "tokens", false},
                 {"only_text", "text", true},      {"shakespeare", "text", true}};
    static const char text[] = "First, a comma: and\ttext, text, text\n";
    static const char line[] = "{\"text\": \"some text, long enough\"}\n";
    trm_error err;
    (void)state;
    make_folder_in("kinds");
    make_folder_in("only_text");
    make_folder_in("shakespeare");
    write_ids("kinds/a.bin", false, 0, 20);
    write_in_folder("kinds/a.txt", text, sizeof text - 1);
    write_in_folder("only_text/input.txt", text, sizeof text - 1);
    write_in_folder("shakespeare/train.txt", text, sizeof text - 1);
    write_in_folder("shakespeare/test.txt", text, sizeof text - 1);
    write_in_folder("kinds/a.jsonl", line, sizeof line - 1);
    /* a number of tokens asks for text, whose first lines may look like those of click data */
    const trm_text_options tokens_only = {.context = 3};
    const trm_dataset_spec plain = {
        .path = in_folder("kinds/a.txt"), .batch_size = 1, .text = &tokens_only};
    trm_dataset *none;
    assert_int_equal(trm_dataset_open(&plain, &none, &err), TRM_INVALID);
    assert_non_null(strstr(err.message, "text needs a tokenizer"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trm_dataset *data;
        char expected[64];
        const trm_text_options options = {.tokens = cases[i].with_tokens ? "bytes" : NULL,
                                          .context = 3};
        const trm_dataset_spec spec = {.path = in_folder(cases[i].path),
                                       .usage = TRM_USAGE_ALL,
                                       .batch_size = 1,
                                       .text = &options};
        CHECK_OK(trm_dataset_open(&spec, &data, &err), err);
        char *found = trm_dataset_json(data);
        snprintf(expected, sizeof expected, "{\"source\":{\"kind\":\"%s\"", cases[i].kind);
        assert_non_null(strstr(found, expected));
        trm_free(found);
        trm_dataset_destroy(data);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_windows_of_ids),
        cmocka_unit_test(what_is_not_there_is_ignored),
        cmocka_unit_test(order_shards_and_resume_are_those_of_all_datasets),
        cmocka_unit_test(files_are_chosen_by_their_names),
        cmocka_unit_test(bytes_are_read_where_they_lie),
        cmocka_unit_test(characters_are_those_of_the_whole_text),
        cmocka_unit_test(encoded_text_is_that_of_the_tokenizer),
        cmocka_unit_test(tiny_shakespeare_is_divided_as_by_nanogpt),
        cmocka_unit_test(documents_are_joined),
        cmocka_unit_test(damaged_files_are_named),
        cmocka_unit_test(ids_beyond_the_vocabulary_are_named),
        cmocka_unit_test(shortened_files_are_named),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(kinds_are_found_by_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
