/* SPDX-License-Identifier: Apache-2.0 */
/* One report as text and as JSON: each prints the same values. */
#include "check.h"

#include "app/options/flags.c"
#include "app/output/json.c"
#include "app/output/output.c"
#include "app/output/record.c"
#include "app/output/values.c"

/* A report with every kind of value and every conversion. */
static void print_all(void) {
    static const int32_t ids[] = {3, 1, 4};
    app_begin(APP_RESULT, "event", "test");
    app_put(app_text("name", "a\"b\xff", "%s|"), app_text("none", NULL, "%4s|"),
            app_int("size", 32, "%dx%d|"), app_int("key", -1, "%u|"),
            app_real("seconds", 0.0125, "%6.2f{1e3} ms|"), app_real("infinite", INFINITY, NULL),
            app_real("share", 0.5, "%.0f{100} %%|"), app_int("bytes", 1530000000, "%b|"),
            app_real("time", 3723, "%t|"), app_bool("yes", true, "yes|"),
            app_bool("no", false, "no|"), app_words("words|"), app_ids("ids", ids, 3),
            app_raw("raw", "[1]"));
    app_open_array("list");
    for (int i = 0; i < 2; i++) {
        app_open_item();
        app_put(app_int("i", i, i == 0 ? "%d," : "%d"));
        app_close();
    }
    app_close();
    app_open_array("plain");
    app_put(app_element(5), app_element(6));
    app_close();
    app_open_object("object");
    app_put(app_int("inner", 7, NULL));
    app_close();
    app_put(app_int("last", 8, NULL));
    app_end();
}

/* Prints reports that may or may not end with a newline of their own. */
static void print_lines(void) {
    app_tell(APP_RESULT, "event", "one", app_text("text", "ends\n", "%s"));
    app_tell(APP_RESULT, "event", "two", app_int("silent", 1, NULL));
    app_tell(APP_RESULT, NULL, NULL, app_int("n", 2, "n %d"));
}

/* Prints sequences of 2, 3 and 4 bytes, then one in too many bytes, a surrogate, and a cut one;
 * then cut ones of each length, and those whose second byte does not fit. */
static void print_names(void) {
    app_tell(APP_RESULT, NULL, NULL,
             app_text("valid", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", NULL));
    app_tell(APP_RESULT, NULL, NULL, app_text("wrong", "\xc0\xaf\xed\xa0\x80\xe2\x82", NULL));
    app_tell(APP_RESULT, NULL, NULL,
             app_text("cut", "\xf1\x80\x80\xe1\x80\xc2|\xf0\x9f\x98|\xf4\x8f\xbf|\xe0\xa0", NULL),
             app_text("second", "\xe0\x9f\x80|\xf0\x8f\x80|\xf4\x90\x80|\xf5\x80", NULL));
}

/* Returns what `print` writes to stdout. */
static char *capture_stdout(void (*print)(void), bool json) {
    static char text[4096];
    char path[] = "/tmp/app_values.XXXXXX";
    int file = mkstemp(path), kept = dup(STDOUT_FILENO);
    assert_true(file >= 0 && kept >= 0);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    app_out.json = json;
    print();
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    close(file);
    close(kept);
    unlink(path);
    return text;
}

static void text_has_the_formats_of_its_values(void **state) {
    assert_string_equal(capture_stdout(print_all, false),
                        "a\"b\xff|    |32x32|18446744073709551615| 12.50 ms|50 %|1.53 GB|1:02:03|"
                        "yes|words|0,1\n");
}

static void json_has_all_values_with_their_types(void **state) {
    assert_string_equal(capture_stdout(print_all, true),
                        "{\"event\":\"test\",\"name\":\"a\\\"b\\ufffd\",\"none\":null,\"size\":32,"
                        "\"key\":-1,\"seconds\":0.0125,\"infinite\":null,\"share\":0.5,"
                        "\"bytes\":1530000000,\"time\":3723,\"yes\":true,\"no\":false,"
                        "\"ids\":[3,1,4],\"raw\":[1],\"list\":[{\"i\":0},{\"i\":1}],"
                        "\"plain\":[5,6],\"object\":{\"inner\":7},\"last\":8}\n");
}

static void json_is_utf8(void **state) {
    assert_string_equal(capture_stdout(print_names, true),
                        "{\"valid\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}\n"
                        "{\"wrong\":\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"}\n"
                        /* as Python's bytes.decode(errors="replace") */
                        "{\"cut\":\"\\ufffd\\ufffd\\ufffd|\\ufffd|\\ufffd|\\ufffd\","
                        "\"second\":\"\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd|"
                        "\\ufffd\\ufffd\\ufffd|\\ufffd\\ufffd\"}\n");
}

static void each_text_is_whole_lines(void **state) {
    assert_string_equal(capture_stdout(print_lines, false), "ends\nn 2\n");
    assert_string_equal(capture_stdout(print_lines, true),
                        "{\"event\":\"one\",\"text\":\"ends\\u000a\"}\n"
                        "{\"event\":\"two\",\"silent\":1}\n{\"n\":2}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(text_has_the_formats_of_its_values),
                                       cmocka_unit_test(json_has_all_values_with_their_types),
                                       cmocka_unit_test(json_is_utf8),
                                       cmocka_unit_test(each_text_is_whole_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
