/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the options of tables in messages, logs and snapshots: bytes that version 0.2.0 wrote
 * are read, and written again the same. */
#include "check.h"

#include "ps/wire/codec.h"
#include "ps/wire/table_wire.h"

#include <string.h>

/* The tables of tests/golden/ps_tables.txt. */
static const struct {
    const char *name;
    trm_optimizer_options optimizer;
    double rate;
} cases[] = {{"momentum",
              {.kind = TRM_NESTEROV,
               .momentum = 0.9,
               .weight_decay = 0.01,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .epsilon = 1e-10},
              0.1},
             {"ftrl",
              {.kind = TRM_FTRL,
               .initial_accumulator = 0.1,
               .l1 = 0.02,
               .l2 = 0.03, /* 0.06 in the bytes: l2 / 2 w^2 */
               .beta = 1,
               .beta1 = 0.9,
               .beta2 = 0.999,
               .epsilon = 1e-10},
              0.3},
             {"adamw",
              {.kind = TRM_LAZY_ADAM,
               .beta1 = 0.8,
               .beta2 = 0.95,
               .epsilon = 1e-6,
               .decoupled = true,
               .weight_decay = 0.02},
              0.05}};

/* Reads one line "name hex"; returns its bytes, 0 at the end. */
static size_t read_message(FILE *file, char *name, uint8_t *bytes, size_t size) {
    size_t count = 0;
    unsigned byte;
    char line[4096];
    do {
        if (fgets(line, sizeof line, file) == NULL) {
            return 0;
        }
    } while (line[0] == '#');
    int at = 0;
    assert_int_equal(sscanf(line, "%31s %n", name, &at), 1);
    for (; count < size && sscanf(line + at, "%2x", &byte) == 1; at += 2) {
        bytes[count++] = (uint8_t)byte;
    }
    return count;
}

static void options_of_version_020_keep_their_meaning(void **state) {
    FILE *file = fopen(TRIREME_SOURCE_DIR "/tests/golden/ps_tables.txt", "r");
    assert_non_null(file);
    uint8_t message[1024], again[1024] = {0};
    char name[32];
    size_t bytes, count = 0;
    while ((bytes = read_message(file, name, message, sizeof message)) > 0) {
        trm_error err;
        trmi_ps_header header;
        trmi_ps_note note;
        trm_table_options t;
        CHECK_OK(trmi_ps_decode_header(message, bytes, &header, &err), err);
        CHECK_OK(trmi_ps_decode_note(message, bytes, &header, &note, &t, &err), err);
        assert_string_equal(t.name, cases[count].name);
        const trm_optimizer_options *o = &t.optimizer, *expected = &cases[count].optimizer;
        assert_int_equal(o->kind, expected->kind);
        assert_int_equal(o->decoupled, expected->decoupled);
        CHECK_CLOSE(t.learning_rate, cases[count].rate, 1e-7);
        CHECK_CLOSE(o->momentum, expected->momentum, 1e-7);
        CHECK_CLOSE(o->beta1, expected->beta1, 1e-7);
        CHECK_CLOSE(o->beta2, expected->beta2, 1e-7);
        CHECK_CLOSE(o->epsilon, expected->epsilon, 1e-12);
        CHECK_CLOSE(o->weight_decay, expected->weight_decay, 1e-8);
        CHECK_CLOSE(o->initial_accumulator, expected->initial_accumulator, 1e-8);
        CHECK_CLOSE(o->l1, expected->l1, 1e-8);
        CHECK_CLOSE(o->l2, expected->l2, 1e-8);
        CHECK_CLOSE(o->beta, expected->beta, 0);
        assert_true(t.width == 16 + (int)count && t.seed == 0x0123456789abcdefu);
        assert_true(t.dtype == (count == 1 ? TRM_BFLOAT16 : TRM_FLOAT32));
        assert_true(t.round_to_nearest == (count == 2) && t.staleness == 3);
        assert_true(t.init.kind == TRM_ROW_INIT_NORMAL && t.init.stream == 77);
        assert_true(t.admission.capacity == 1 << 20 && t.admission.probability == 0.5);
        assert_true(t.expiry.max_rows == 123456 && t.expiry.min_norm == 0.001f);
        assert_true(t.placement.parts == 2 && t.placement.end == 0.5);
        trmi_ps_encode_note(&header, NULL, &t, again);
        assert_int_equal(bytes, trmi_ps_note_size(TRMI_PS_TABLE));
        assert_memory_equal(message, again, bytes);
        count++;
    }
    fclose(file);
    assert_int_equal(count, sizeof cases / sizeof cases[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(options_of_version_020_keep_their_meaning)};
    return cmocka_run_group_tests_name("ps table wire", tests, NULL, NULL);
}
