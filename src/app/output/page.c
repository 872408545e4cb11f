/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a page (contract in page.h). Texts of a report come from outside: a run's name, a path, a
 * message. In the page they stand inside a JSON text whose characters < > & are escaped, so that no
 * text can end the script element; base.js shows texts as text, never as HTML. */
#include "app/output/page.h"

#include "app/options/flags.h"

#include "trireme/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of src/app/output/page, each with a zero at its end; page_files.c, which the build
 * generates, defines them. */
extern const char app_page_base_css[], app_page_base_js[], app_page_run_js[], app_page_plan_js[],
    app_page_cluster_js[];

/* Writes text in which `<`, `>` and `&` are replaced by the format. */
static void put_escaped(FILE *to, const char *text, const char *format) {
    for (; *text != '\0'; text++) {
        if (strchr("<>&", *text) != NULL) {
            fprintf(to, format, (unsigned char)*text);
        } else {
            fputc(*text, to);
        }
    }
}

/* Writes the whole page. */
static void put_page(FILE *to, app_page_kind kind, const char *title, const char *json) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          to);
    put_escaped(to, title, "&#%d;");
    fputs("</title>\n<style>\n", to);
    fputs(app_page_base_css, to);
    fputs("</style>\n</head>\n<body>\n<noscript>This page draws its report by JavaScript, which is "
          "switched off.</noscript>\n<main id=\"page\"></main>\n"
          "<script type=\"application/json\" id=\"report\">",
          to);
    put_escaped(to, json, "\\u%04x");
    fputs("</script>\n<script>\n", to);
    fputs(app_page_base_js, to);
    fputs(kind == APP_PAGE_RUN    ? app_page_run_js
          : kind == APP_PAGE_PLAN ? app_page_plan_js
                                  : app_page_cluster_js,
          to);
    fputs("</script>\n</body>\n</html>\n", to);
}

/* Contract in page.h. */
trm_status app_write_page(const char *path, app_page_kind kind, const char *title, const char *json,
                          trm_error *err) {
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (to == NULL) {
        return app_no_memory(err, "for %.100s", path);
    }
    put_page(to, kind, title, json);
    trm_status status = fclose(to) == 0 ? trm_file_write(path, text, bytes, err)
                                        : app_no_memory(err, "for %.100s", path);
    free(text);
    return status;
}
