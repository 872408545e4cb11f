/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of tokens that are more than windows of ids: masked ones, and those that are lines or
 * documents, with and without boundary tokens.
 *
 * Masks follow from the seed and the epoch, as BERT's do (Devlin et al. 2019). Rows are compared as
 * words: the tokenizer of the test has an id for each letter, so that "CsixS___" is a whole row. */
#include "token_files.h"

#include "trireme/data.h"

#include "data/text/token_source.h"
#include "data/text/tokenizer.h"

enum { IGNORED = TRMI_TOKEN_IGNORED };

/* ---- masked samples ---- */

enum { MASKED_CONTEXT = 20, MASKED_SAMPLES = 100, MASK = 5000 };

/* Reads all masked samples of ids 0 to 1999 in order into tokens and targets. */
static void read_masked(trm_usage usage, uint64_t seed, int64_t epoch, int32_t *tokens,
                        int32_t *targets) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    const trm_text_options options = {
        .context = MASKED_CONTEXT, .vocabulary = MASK + 1, .masking = 0.15};
    CHECK_OK(trm_dataset_tokens(in_folder("masked.bin"), usage, &options, &data, &err), err);
    CHECK_OK(trm_dataset_seed(data, seed, &err), err);
    CHECK_OK(trm_dataset_batch(data, 10, false, &err), err);
    CHECK_OK(trm_dataset_seek(data, epoch, 0, &err), err);
    int64_t samples = trm_dataset_sample_count(data);
    for (int64_t at = 0; at < samples; at += 10) {
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        size_t bytes = 10 * MASKED_CONTEXT * sizeof *tokens;
        memcpy(tokens + at * MASKED_CONTEXT, trm_batch_tensor(batch, "tokens")->data, bytes);
        memcpy(targets + at * MASKED_CONTEXT, trm_batch_tensor(batch, "targets")->data, bytes);
        const int32_t *mask = trm_batch_tensor(batch, "mask")->data;
        for (int i = 0; i < 10 * MASKED_CONTEXT; i++) {
            assert_int_equal(mask[i], 1);
        }
    }
    trm_dataset_destroy(data);
}

static void masked_samples_are_berts(void **state) {
    enum { COUNT = MASKED_SAMPLES * MASKED_CONTEXT };
    int32_t tokens[COUNT], targets[COUNT], others[COUNT], other_targets[COUNT];
    int hidden = 0, random = 0, kept = 0;
    write_ids("masked.bin", false, 0, COUNT);
    read_masked(TRM_USAGE_ALL, 7, 0, tokens, targets);
    for (int s = 0; s < MASKED_SAMPLES; s++) {
        int chosen = 0;
        for (int i = s * MASKED_CONTEXT; i < (s + 1) * MASKED_CONTEXT; i++) {
            bool is_target = targets[i] != IGNORED;
            assert_int_equal(targets[i], is_target ? i : IGNORED);
            chosen += is_target;
            hidden += is_target && tokens[i] == MASK;
            kept += is_target && tokens[i] == i;
            random += is_target && tokens[i] != MASK && tokens[i] != i;
            assert_true(is_target || tokens[i] == i);
        }
        assert_int_equal(chosen, 3); /* 15 % of 20 */
    }
    assert_true(hidden > 220 && hidden < 260); /* of 300: 80 %, 10 %, 10 % */
    assert_true(random > 15 && random < 45 && kept > 15 && kept < 45);
    /* the same again; others in the next epoch and with another seed */
    read_masked(TRM_USAGE_ALL, 7, 0, others, other_targets);
    assert_memory_equal(tokens, others, sizeof tokens);
    assert_memory_equal(targets, other_targets, sizeof targets);
    read_masked(TRM_USAGE_ALL, 7, 1, others, other_targets);
    assert_memory_not_equal(targets, other_targets, sizeof targets);
    read_masked(TRM_USAGE_ALL, 8, 0, others, other_targets);
    assert_memory_not_equal(targets, other_targets, sizeof targets);
    /* tests: always the same */
    memset(tokens, 0, sizeof tokens);
    memset(others, 0, sizeof others);
    read_masked(TRM_USAGE_TEST, 7, 0, tokens, targets);
    read_masked(TRM_USAGE_TEST, 8, 1, others, other_targets);
    assert_memory_equal(tokens, others, sizeof tokens);
}

/* Padding is not read, and no target; a tokenizer without a mask token gets one more id. */
static void short_masked_samples_have_padding(void **state) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    write_ids("short.bin", false, 0, 80); /* the test part: 72 to 79 */
    trm_text_options options = {.context = 5, .masking = 0.4, .mask_token = 99};
    CHECK_OK(trm_dataset_tokens(in_folder("short.bin"), TRM_USAGE_TEST, &options, &data, &err),
             err);
    assert_int_equal(trm_dataset_sample_count(data), 2);
    CHECK_OK(trm_dataset_batch(data, 3, false, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    static const int32_t mask[] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};
    static const int targets_of[] = {2, 1, 0}; /* of 5 tokens, of 3, of none */
    const int32_t *targets = trm_batch_tensor(batch, "targets")->data;
    assert_memory_equal(trm_batch_tensor(batch, "mask")->data, mask, sizeof mask);
    for (int s = 0; s < 3; s++) {
        int chosen = 0;
        for (int i = 5 * s; i < 5 * s + 5; i++) {
            chosen += targets[i] != IGNORED;
            assert_true(targets[i] == IGNORED || (mask[i] == 1 && targets[i] == 72 + i));
        }
        assert_int_equal(chosen, targets_of[s]);
    }
    trm_dataset_destroy(data);
    options.vocabulary = 99;
    CHECK_FAILS(trm_dataset_tokens(in_folder("short.bin"), TRM_USAGE_TEST, &options, &data, &err),
                TRM_INVALID, err, "mask token 99: an id below 99 (the vocabulary) expected");
    options.masking = 1;
    CHECK_FAILS(trm_dataset_tokens(in_folder("short.bin"), TRM_USAGE_TEST, &options, &data, &err),
                TRM_INVALID, err, "a share 1 of masked tokens: 0 to 1 expected");
    options = (trm_text_options){.context = 5, .masking = 0.15, .tokens = "bytes"};
    CHECK_OK(trm_dataset_text(in_folder("short.bin"), TRM_USAGE_ALL, &options, &data, &err), err);
    assert_int_equal(trm_dataset_class_count(data), 257);
    assert_true(trmi_dataset_token_bytes(data) == 0);
    trm_dataset_destroy(data);
}

/* ---- documents and boundary tokens ---- */

enum { ROW = 8, PAD = 1, MASK_TOKEN = 2, CLS = 3, SEP = 4, FIRST_BYTE = 5 };

/* Writes a tokenizer of the special tokens above and bytes: id 5 + n is the n-th printable one. */
static void write_byte_tokenizer(void) {
    static const char *const special[] = {"<|endoftext|>", "[PAD]", "[MASK]", "[CLS]", "[SEP]"};
    trm_error err;
    trm_tokenizer *t;
    static const char line[] = "a\n";
    const char *path = in_folder("learn.txt");
    write_in_folder("learn.txt", line, sizeof line - 1);
    const trm_tokenizer_options options = {
        .vocabulary = 256 + 5, .special_tokens = special, .special_count = 5};
    CHECK_OK(trm_tokenizer_train(&path, 1, &options, &t, &err), err);
    CHECK_OK(trm_tokenizer_save(t, in_folder("bytes"), &err), err);
    assert_int_equal(trm_tokenizer_find(t, "[SEP]"), SEP);
    trm_tokenizer_destroy(t);
}

/* Returns the id of a letter. */
static int32_t id_of(char letter) { return FIRST_BYTE + letter - '!'; }

/* Compares one row of tokens, targets and mask. text: the tokens as letters, C and S for the
 * boundary tokens, E for the end of a document, _ for padding. masked: targets are those of the
 * sample itself. */
static void check_row(const trm_batch *batch, int row, const char *text, bool masked) {
    const int32_t *tokens = (const int32_t *)trm_batch_tensor(batch, "tokens")->data + row * ROW,
                  *targets = (const int32_t *)trm_batch_tensor(batch, "targets")->data + row * ROW;
    int32_t next[ROW + 1];
    for (int i = 0; i < ROW; i++) {
        next[i] = text[i] == 'C'   ? CLS
                  : text[i] == 'S' ? SEP
                  : text[i] == 'E' ? 0
                  : text[i] == '_' ? PAD
                                   : id_of(text[i]);
    }
    next[ROW] = text[ROW] == '\0' ? PAD : text[ROW] == 'E' ? 0 : id_of(text[ROW]);
    int chosen = 0;
    for (int i = 0; i < ROW; i++) {
        bool special = strchr("CSE_", text[i]) != NULL;
        if (masked) {
            const int32_t *mask = trm_batch_tensor(batch, "mask")->data;
            assert_int_equal(mask[row * ROW + i], text[i] != '_');
            assert_true(special ? targets[i] == IGNORED
                                : targets[i] == IGNORED || targets[i] == next[i]);
            assert_true(targets[i] != IGNORED || tokens[i] == next[i]);
            chosen += targets[i] != IGNORED;
        } else {
            assert_int_equal(tokens[i], text[i] == 'E' ? PAD : next[i]);
            assert_int_equal(targets[i], special || next[i + 1] == PAD ? IGNORED : next[i + 1]);
        }
    }
    assert_true(!masked || chosen == 1 || chosen == 2); /* 30 % of 1 to 6 */
}

/* Opens a text and checks all of its rows. */
static void check_rows(const char *kind, const char *name, const trm_text_options *options,
                       const char *const *rows, int count) {
    trm_error err;
    trm_dataset *data;
    const trm_batch *batch;
    if (strcmp(kind, "text") == 0) {
        CHECK_OK(trm_dataset_text(in_folder(name), TRM_USAGE_ALL, options, &data, &err), err);
    } else {
        CHECK_OK(trm_dataset_json_lines(in_folder(name), TRM_USAGE_ALL, options, &data, &err), err);
    }
    assert_int_equal(trm_dataset_sample_count(data), count);
    CHECK_OK(trm_dataset_batch(data, count, false, &err), err);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    for (int i = 0; i < count; i++) {
        check_row(batch, i, rows[i], options->masking > 0);
    }
    trm_dataset_destroy(data);
}

/* Each line or document is a sample, a long one several; empty lines are none. Masked samples have
 * [CLS] and [SEP], others the token behind documents as their last target. */
static void documents_are_samples(void **state) {
    static const char text[] = "one\n\n  \nfourteen\r\nsix",
                      lines[] = "{\"text\":\"one\"}\n{\"text\":\"\"}\n{\"text\":\"fourteen\"}\n"
                                "{\"text\":\"six\"}\n";
    static const char *const bounded[] = {"ConeS___", "CfourteS", "CenS____", "CsixS___"},
                             *const bare[] = {"one_____", "fourteen", "six_____"},
                             *const causal[] = {"oneE____", "fourteenE", "sixE____"};
    (void)state;
    write_byte_tokenizer();
    write_in_folder("some.txt", text, sizeof text - 1);
    write_in_folder("some.jsonl", lines, sizeof lines - 1);
    char tokenizer[4096];
    snprintf(tokenizer, sizeof tokenizer, "%s", in_folder("bytes"));
    trm_text_options options = {
        .tokenizer = tokenizer, .context = ROW, .documents = true, .masking = 0.3};
    check_rows("text", "some.txt", &options, bounded, 4);
    check_rows("jsonl", "some.jsonl", &options, bounded, 4);
    options.boundary_tokens = TRM_OFF;
    check_rows("text", "some.txt", &options, bare, 3);
    options.masking = 0;
    check_rows("text", "some.txt", &options, causal, 3);
    check_rows("jsonl", "some.jsonl", &options, causal, 3);
    /* windows over the whole text have boundary tokens, too */
    static const char *const windows[] = {"ConetwoS", "CthreesS", "CevenelS"};
    static const char run[] = "onetwothreesevenelev"; /* a shorter last window is not read */
    write_in_folder("run.txt", run, sizeof run - 1);
    trm_text_options over = {.tokenizer = tokenizer, .context = ROW, .masking = 0.3};
    check_rows("text", "run.txt", &over, windows, 3);
    /* wrong use */
    trm_error err;
    trm_dataset *data;
    options = (trm_text_options){.context = 5, .documents = true};
    CHECK_FAILS(trm_dataset_tokens(in_folder("some.bin"), TRM_USAGE_ALL, &options, &data, &err),
                TRM_INVALID, err, "ids have no documents");
    options = (trm_text_options){.tokens = "bytes", .boundary_tokens = TRM_ON, .masking = 0.3};
    CHECK_FAILS(trm_dataset_text(in_folder("some.txt"), TRM_USAGE_ALL, &options, &data, &err),
                TRM_INVALID, err, "a tokenizer with [CLS] and [SEP]");
    over.context = 2;
    CHECK_FAILS(trm_dataset_text(in_folder("some.txt"), TRM_USAGE_ALL, &over, &data, &err),
                TRM_INVALID, err, "a context of 2 tokens and a stride of 0: 3 to");
    write_in_folder("blank.txt", " \n\n", 3);
    over = (trm_text_options){.tokens = "bytes", .context = 5, .documents = true};
    CHECK_FAILS(trm_dataset_text(in_folder("blank.txt"), TRM_USAGE_ALL, &over, &data, &err),
                TRM_CORRUPT, err, "no documents in its 3 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_samples_are_berts),
        cmocka_unit_test(short_masked_samples_have_padding),
        cmocka_unit_test(documents_are_samples),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
