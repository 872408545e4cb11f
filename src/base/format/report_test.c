/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of base/format/report.h: the JSON of a tree, the conversions of lines, missing values and
 * missing memory. */
#include "check.h"

#include "base/format/report.h"

#include <math.h>

/* Puts the values of the tests. */
static void put_values(trmi_report *r) {
    trmi_report_put(r, trmi_int("ranks", 4), trmi_real("seconds", 0.0125), trmi_real("none", NAN),
                    trmi_string("name", "a\"b\n"), trmi_string("nothing", NULL),
                    trmi_bool("fits", false), trmi_int("#hidden", 7),
                    trmi_json_value("raw", "[1]"));
    trmi_report_open_object(r, "memory");
    trmi_report_put(r, trmi_whole("kept", 5.3e6), trmi_nine("third", 1.0 / 3));
    trmi_report_close(r);
    trmi_report_open_array(r, "list");
    trmi_report_put(r, trmi_int(NULL, 1));
    trmi_report_open_array(r, NULL);
    trmi_report_close(r);
    trmi_report_close(r);
}

/* Checks the text of one line. */
static void check_line(const char *line, const char *expected) {
    trmi_report r;
    trmi_report_begin(&r, false);
    put_values(&r);
    trmi_report_say(&r, line);
    char *text = trmi_report_end(&r);
    assert_non_null(text);
    assert_string_equal(text, expected);
    trm_free(text);
}

/* JSON has the values in order, without those of lines, and no text. */
static void json_is_the_tree(void **state) {
    static const char *const expected[] = {
        "{\"ranks\":4,\"seconds\":0.0125,\"none\":null,\"name\":\"a\\\"b\\u000a\",\"nothing\":null,"
        "\"fits\":false,\"raw\":[1],\"memory\":{\"kept\":5300000,\"third\":0.333333333},"
        "\"list\":[1,[]]}",
        "{\"ranks\": 4, \"seconds\": 0.0125, \"none\": null, \"name\": \"a\\\"b\\u000a\", "
        "\"nothing\": null, \"fits\": false, \"raw\": [1], \"memory\": {\"kept\": 5300000, "
        "\"third\": 0.333333333}, \"list\": [1, []]}\n"};
    for (int spaced = 0; spaced < 2; spaced++) {
        trmi_report r;
        trmi_report_begin(&r, true);
        r.spaced = spaced;
        put_values(&r);
        trmi_report_say(&r, "[ranks]%d");
        char *text = trmi_report_end(&r);
        assert_non_null(text);
        assert_string_equal(text, expected[spaced]);
        trm_free(text);
    }
}

/* Unsigned numbers have all their bits, names from outside stay whatever they begin with, and an
 * object can stand behind another text. */
static void json_is_appended(void **state) {
    trmi_text text = {0};
    for (int foreign = 0; foreign < 2; foreign++) {
        trmi_report r;
        trmi_report_begin_json(&r, &text);
        r.foreign = foreign;
        trmi_report_put(&r, trmi_unsigned("seed", UINT64_MAX), trmi_real("#mine", 0.5));
        trmi_report_open_object(&r, "#object");
        trmi_report_open_array(&r, "list");
        trmi_report_put(&r, trmi_int(NULL, 1));
        trmi_report_close(&r);
        trmi_report_close(&r);
        trmi_report_put(&r, trmi_int("last", 2));
        assert_ptr_equal(trmi_report_end(&r), text.data);
    }
    assert_false(text.failed);
    assert_string_equal(text.data, "{\"seed\":18446744073709551615,\"last\":2}"
                                   "{\"seed\":18446744073709551615,\"#mine\":0.5,"
                                   "\"#object\":{\"list\":[1]},\"last\":2}");
    trmi_text_free(&text);
    trmi_report without;
    trmi_alloc_fail_after(1);
    trmi_report_begin_json(&without, &text);
    assert_null(trmi_report_end(&without));
    trmi_alloc_fail_after(0);
    assert_true(text.failed);
    trmi_text_free(&text);
    check_line("[#large]%d", "-");
}

/* Values of what has rows stand on lines of their own, indented by the rows around them. */
static void json_has_rows(void **state) {
    trmi_report r;
    trmi_report_begin(&r, true);
    r.spaced = true;
    trmi_report_set_rows(&r);
    trmi_report_put(&r, trmi_string("version", "1.0"));
    trmi_report_open_array(&r, "servers");
    trmi_report_set_rows(&r);
    for (int i = 0; i < 2; i++) {
        trmi_report_open_object(&r, NULL);
        trmi_report_put(&r, trmi_int("id", i), trmi_bool("here", true));
        trmi_report_open_array(&r, "devices");
        trmi_report_set_rows(&r);
        for (int k = 0; k < 2 * i; k++) {
            trmi_report_put(&r, trmi_int(NULL, k));
        }
        trmi_report_close(&r);
        trmi_report_close(&r);
    }
    trmi_report_close(&r);
    char *text = trmi_report_end(&r);
    assert_non_null(text);
    assert_string_equal(text, "{\n  \"version\": \"1.0\",\n  \"servers\": [\n"
                              "    {\"id\": 0, \"here\": true, \"devices\": []},\n"
                              "    {\"id\": 1, \"here\": true, \"devices\": [\n      0,\n      1\n"
                              "    ]}\n  ]\n}\n");
    trm_free(text);
}

/* The next value, or the bracket that closes, stands on a new line where the caller says so. */
static void json_breaks_lines(void **state) {
    trmi_report r;
    trmi_report_begin(&r, true);
    trmi_report_break(&r, 2);
    trmi_report_put(&r, trmi_int("format", 1), trmi_int("sequence", 7));
    trmi_report_break(&r, 0);
    trmi_report_open_array(&r, "files");
    for (int i = 0; i < 2; i++) {
        trmi_report_break(&r, 4);
        trmi_report_open_object(&r, NULL);
        trmi_report_put(&r, trmi_int("bytes", i));
        trmi_report_close(&r);
    }
    trmi_report_break(&r, 2);
    trmi_report_close(&r);
    char *text = trmi_report_end(&r);
    assert_non_null(text);
    assert_string_equal(text, "{\n  \"format\":1,\"sequence\":7,\n\"files\":[\n"
                              "    {\"bytes\":0},\n    {\"bytes\":1}\n  ]}");
    trm_free(text);
}

/* Each conversion prints its kind of value, with flags, width, precision and factor. */
static void lines_print_values(void **state) {
    check_line("", "");
    check_line("[[[ranks]%d]", "[4]");
    check_line("[ranks]%d|%4d|%-4d|", "4|   4|4   |");
    check_line("[seconds]%.3f{1e3} ms, %g{/0.5}, %t, %T, %m",
               "12.500 ms, 0.025, 12.50 ms, 12.5 ms, "
               "12.50 ms");
    check_line("[memory.kept]%b %r %.1e %9b|", "5.30 MB 5300000 5.3e+06   5.30 MB|");
    check_line("[name]%s[raw]%s %.2s", "a\"b\n[1] [1");
    check_line("[#hidden]%d [fits]?{yes|no}, [ranks]?{yes|no} [none]?{|none} 100 %%",
               "7 no, yes  100 %");
    check_line("[memory.third]%d [ranks]%.1f", "0 4.0");
}

/* A value that is missing, or of another kind, prints "-". */
static void missing_values_print_a_dash(void **state) {
    check_line("[no]%d [memory.no]%6.2f|[ranks.no]%s [name]%d [nothing]%-3s|[no]?{yes|no}",
               "-      -|- - -  |no");
    check_line("[ranks", "");
    check_line("[ranks]%", "-");
    check_line("[ranks]?{yes", "yes");
}

/* A line is said for each value of an object or array. */
static void lines_repeat(void **state) {
    trmi_report r;
    trmi_report_begin(&r, false);
    put_values(&r);
    trmi_report_say_each(&r, "memory", "[@]%s=[]%.0f", ", ");
    trmi_report_say_each(&r, "no", "never", NULL);
    trmi_report_tell(&r, " ([own]%s of [ranks]%d)", trmi_string("own", "one"));
    trmi_report_open_object(&r, "#last");
    trmi_report_put(&r, trmi_string("word", "a\tb"));
    r.printable = true;
    trmi_report_say_of(&r, trmi_report_close(&r), "; [word]%s\n");
    char *text = trmi_report_end(&r);
    assert_non_null(text);
    assert_string_equal(text, "kept=5300000, third=0 (one of 4); a?b\n");
    trm_free(text);
}

/* Whichever allocation fails, the report ends without a text. */
static void missing_memory_gives_no_report(void **state) {
    int64_t failures = 0;
    for (int json = 0; json < 2; json++) {
        for (int64_t k = 1;; k++) {
            trmi_report r;
            trmi_alloc_fail_after(k);
            trmi_report_begin(&r, json);
            put_values(&r);
            trmi_report_say(&r, "[ranks]%d\n");
            char *text = trmi_report_end(&r);
            trmi_alloc_fail_after(0);
            bool made = text != NULL;
            trm_free(text);
            if (made) {
                break;
            }
            failures++;
        }
    }
    assert_true(failures >= 3); /* at least the tree and the text of lines, and JSON's text */
}

/* A report that nests too deeply ends without a text. */
static void levels_are_limited(void **state) {
    trmi_report r;
    trmi_report_begin(&r, true);
    for (int i = 0; i < 2 * TRMI_REPORT_LEVELS; i++) {
        trmi_report_open_array(&r, i == 0 ? "deep" : NULL);
    }
    for (int i = 0; i < 2 * TRMI_REPORT_LEVELS; i++) {
        trmi_report_close(&r);
    }
    assert_null(trmi_report_end(&r));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_the_tree),   cmocka_unit_test(json_is_appended),
        cmocka_unit_test(json_has_rows),      cmocka_unit_test(json_breaks_lines),
        cmocka_unit_test(lines_print_values), cmocka_unit_test(missing_values_print_a_dash),
        cmocka_unit_test(lines_repeat),       cmocka_unit_test(missing_memory_gives_no_report),
        cmocka_unit_test(levels_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
