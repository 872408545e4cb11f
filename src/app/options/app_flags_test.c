/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the parser of flags: each type, its errors and messages. */
#include "check.h"

#include "app/options/flags.c"

/* The options that FLAGS sets, one member for each form of a flag. */
typedef struct options {
    bool json;
    int64_t epochs, limit;
    double rate;
    const char *data, *backend, *deterministic;
    int64_t ranks, width;
    const char *widths;
} options;

#define FLAG(flag, type, member, text)                                                             \
    .name = (flag), .kind = (type), .offset = offsetof(options, member), .value = (text), .help = ""
static const app_flag FLAGS[] = {
    {FLAG("json", APP_BOOL, json, NULL)},
    {FLAG("epochs", APP_INT, epochs, "N"), .low = 1, .high = 1000},
    {FLAG("learning-rate", APP_REAL, rate, "X"), .low = 0, .high = 10},
    {FLAG("data", APP_TEXT, data, "DIR")},
    {FLAG("backend", APP_CHOICE, backend, "onednn|ref")},
    {FLAG("memory", APP_BYTES, limit, "BYTES")},
    {FLAG("n", APP_INT, ranks, "N"), .low = 1, .high = 64},
    {FLAG("deterministic", APP_OPTIONAL, deterministic, "false|true|strict")},
    {FLAG("width", APP_TEXT, widths, "A,B")},
    {FLAG("width", APP_INT, width, "N"), .low = 1, .high = 9, .tag = "number"},
    {.name = NULL},
};
static const app_group GROUP = {
    "", "json epochs learning-rate data backend memory n deterministic width", FLAGS, NULL};
/* flags that models of one kind read */
static const app_group OWN = {"", "width@number", FLAGS, "numbers"};
static const app_group *const GROUPS[] = {&GROUP, &OWN, NULL};

static trm_status parse_flags(char **argv, options *o, app_parsed *p, trm_error *err) {
    int argc = 0;
    while (argv[argc] != NULL) {
        argc++;
    }
    trm_status status = app_parse(GROUPS, "train", argc, argv, p, err);
    return status == TRM_OK ? app_store_given(GROUPS, NULL, p, o, err) : status;
}
#define ARGV(...) ((char *[]){__VA_ARGS__, NULL})

static void both_spellings_and_arguments(void **state) {
    options o = {0};
    app_parsed p;
    trm_error err;
    char **argv = ARGV("mlp", "--epochs=3", "--learning-rate", "1e-2", "--json", "--data", "d",
                       "-n", "4", "--memory=4GB", "--", "--epochs");
    CHECK_OK(parse_flags(argv, &o, &p, &err), err);
    assert_int_equal(o.epochs, 3);
    CHECK_CLOSE(o.rate, 0.01, 0);
    assert_true(o.json);
    assert_string_equal(o.data, "d");
    assert_int_equal(o.ranks, 4);
    assert_int_equal(o.limit, 4000000000);
    assert_int_equal(p.arguments_count, 1);
    assert_string_equal(p.arguments[0], "mlp");
    assert_string_equal(p.rest[0], "--epochs");
    assert_true(app_given(&p, "epochs") && !app_given(&p, "backend"));
}

/* A row takes each member that it leaves out from the library's table, and keeps its own. */
static void rows_of_options_are_completed_by_the_library(void **state) {
    app_flag row = {.name = "wire", .kind = APP_CHOICE, .context = "gradient_wire"};
    row = app_complete_row(&row);
    assert_string_equal(row.value, "fp32|bf16|fp16");
    assert_string_equal(row.fallback, "fp32");
    assert_non_null(row.help);
    row = (app_flag){.kind = APP_INT, .context = "grad_accumulation_step", .value = "N"};
    row.fallback = "";
    row.help = "batches";
    row = app_complete_row(&row);
    assert_true(row.low == 1 && row.high == 65536 && row.fallback == NULL);
    assert_string_equal(row.value, "N");
    assert_string_equal(row.help, "batches");
    row = (app_flag){.kind = APP_BOOL, .context = "full_batch"};
    row = app_complete_row(&row);
    assert_true(row.value == NULL && row.fallback == NULL && row.help != NULL);
}

static void an_optional_value_may_be_left_out(void **state) {
    app_parsed p;
    trm_error err;
    options o = {0};
    CHECK_OK(parse_flags(ARGV("--deterministic", "strict", "mlp"), &o, &p, &err), err);
    assert_string_equal(o.deterministic, "strict");
    CHECK_OK(parse_flags(ARGV("--deterministic", "mlp"), &o, &p, &err), err);
    assert_string_equal(o.deterministic, "true");
    assert_int_equal(p.arguments_count, 1);
    CHECK_OK(parse_flags(ARGV("mlp", "--deterministic"), &o, &p, &err), err);
    assert_string_equal(o.deterministic, "true");
    CHECK_FAILS(parse_flags(ARGV("--deterministic=maybe"), &o, &p, &err), TRM_INVALID, err,
                "one of");
}

static void a_kind_of_models_has_its_own_row(void **state) {
    options o = {0};
    app_parsed p;
    trm_error err;
    CHECK_OK(app_parse(GROUPS, "train", 2, ARGV("--width", "8"), &p, &err), err);
    CHECK_OK(app_store_given(GROUPS, "numbers", &p, &o, &err), err);
    assert_int_equal(o.width, 8);
    assert_ptr_equal(p.given[0].group, &OWN);
    CHECK_OK(app_parse(GROUPS, "train", 2, ARGV("--width", "8,4"), &p, &err), err);
    CHECK_OK(app_store_given(GROUPS, NULL, &p, &o, &err), err);
    assert_string_equal(o.widths, "8,4");
    CHECK_FAILS(app_store_given(GROUPS, "numbers", &p, &o, &err), TRM_INVALID, err,
                "--width '8,4'");
}

static void wrong_use_is_named(void **state) {
    options o = {0};
    app_parsed p;
    trm_error err;
    CHECK_FAILS(parse_flags(ARGV("--epoch", "3"), &o, &p, &err), TRM_INVALID, err,
                "nearest is --epochs");
    CHECK_FAILS(parse_flags(ARGV("--leraning-rate=1"), &o, &p, &err), TRM_INVALID, err,
                "--learning-rate");
    CHECK_FAILS(parse_flags(ARGV("--zzzzzz"), &o, &p, &err), TRM_INVALID, err,
                "see trireme train --help");
    CHECK_FAILS(parse_flags(ARGV("--json", "--json"), &o, &p, &err), TRM_INVALID, err,
                "--json is given twice");
    CHECK_FAILS(parse_flags(ARGV("--json=1"), &o, &p, &err), TRM_INVALID, err, "takes no value");
    CHECK_FAILS(parse_flags(ARGV("--data"), &o, &p, &err), TRM_INVALID, err,
                "--data needs a value: DIR");
    CHECK_FAILS(parse_flags(ARGV("--data", "--json"), &o, &p, &err), TRM_INVALID, err,
                "needs a value");
    CHECK_FAILS(parse_flags(ARGV("--data="), &o, &p, &err), TRM_INVALID, err, "empty");
    CHECK_FAILS(parse_flags(ARGV("--epochs", "0"), &o, &p, &err), TRM_INVALID, err,
                "from 1 to 1000");
    CHECK_FAILS(parse_flags(ARGV("--epochs", "3x"), &o, &p, &err), TRM_INVALID, err, "integer");
    CHECK_FAILS(parse_flags(ARGV("--epochs", "99999999999999999999"), &o, &p, &err), TRM_INVALID,
                err, "integer");
    CHECK_FAILS(parse_flags(ARGV("--learning-rate", "nan"), &o, &p, &err), TRM_INVALID, err,
                "number");
    CHECK_FAILS(parse_flags(ARGV("--backend", "one"), &o, &p, &err), TRM_INVALID, err,
                "onednn|ref");
    CHECK_FAILS(parse_flags(ARGV("--backend", "onednn|ref"), &o, &p, &err), TRM_INVALID, err,
                "one of");
    CHECK_FAILS(parse_flags(ARGV("--memory", "4XB"), &o, &p, &err), TRM_INVALID, err, "bytes");
    CHECK_FAILS(parse_flags(ARGV("--memory", "-4"), &o, &p, &err), TRM_INVALID, err, "bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_and_arguments),
        cmocka_unit_test(rows_of_options_are_completed_by_the_library),
        cmocka_unit_test(an_optional_value_may_be_left_out),
        cmocka_unit_test(a_kind_of_models_has_its_own_row),
        cmocka_unit_test(wrong_use_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
