/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer train, encode, decode: learns byte-pair tokens from text files, and converts between
 * text and token ids through the public functions of trireme/data.h.
 *
 *     train    files of text            --> a folder for --tokenizer
 *     encode   text, whole or by lines  --> ids, printed or in a .bin file
 *     decode   ids, as text or .bin     --> text, printed, in a file or in the JSON event
 *
 * A file is read whole, so its text and its ids are in memory at the same time. stdout has nothing
 * but the ids or the text, so that commands can be joined by pipes; all else is a message or, with
 * --json, an event. The functions end with an exit code and free what they opened. */
#include "app/app.h"

#include "trireme/data.h"
#include "trireme/base.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Special tokens that one command adds, at most. */
enum { SPECIAL_TOKENS_MAX = 256 };

/* Warns of a file whose name says that it has more than text, or no text: it is read as it is. */
static void warn_of_format(const char *path) {
    if (app_ends_in(path, ".jsonl")) {
        app_warn("%.200s is read as text, names and brackets of its JSON lines too", path);
    } else if (app_ends_in(path, ".bin")) {
        app_warn("%.200s is read as text; a file .bin usually has token ids", path);
    }
}

/* ---- train ----------------------------------------------------------------------------------- */

/* Splits a list "A,B" at its commas, in place; returns the number of parts. A NULL list has
 * none. */
static int32_t cut_list(char *text, const char **parts) {
    int32_t count = 0;
    for (char *at = text; at != NULL && count < SPECIAL_TOKENS_MAX;) {
        char *comma = strchr(at, ',');
        parts[count++] = at;
        if (comma != NULL) {
            *comma++ = '\0';
        }
        at = comma;
    }
    return count;
}

/* Trains a tokenizer on the files of the command line and saves it, unless it is a dry run.
 *   errors  INVALID */
static trm_status train_tokenizer(app_context *app, trm_tokenizer **out, trm_error *err) {
    const app_options *o = &app->o;
    const char *special[SPECIAL_TOKENS_MAX];
    if (o->output == NULL || o->token_vocabulary == 0) {
        return app_fail(err, TRM_INVALID, "tokenizer train needs --vocabulary N and --output DIR");
    }
    char *list = o->special_tokens != NULL ? strdup(o->special_tokens) : NULL;
    if (o->special_tokens != NULL && list == NULL) {
        return app_no_memory(err, "for special tokens");
    }
    const trm_tokenizer_options options = {.vocabulary = o->token_vocabulary,
                                           .min_count = o->token_min_count,
                                           .special_tokens = special,
                                           .special_count = cut_list(list, special)};
    trm_status status =
        trm_tokenizer_train(app->parsed.arguments, app->parsed.arguments_count, &options, out, err);
    free(list);
    return status == TRM_OK && !o->dry_run ? trm_tokenizer_save(*out, o->output, err) : status;
}

/* Runs `tokenizer train`. It warns if the text has fewer tokens than --vocabulary. */
int app_run_tokenizer_train(app_context *app) {
    trm_error err;
    trm_tokenizer *tokenizer = NULL;
    const app_options *o = &app->o;
    trm_status status = train_tokenizer(app, &tokenizer, &err);
    for (int i = 0; i < app->parsed.arguments_count; i++) {
        warn_of_format(app->parsed.arguments[i]);
    }
    if (status == TRM_OK) {
        int64_t found = trm_tokenizer_vocabulary(tokenizer);
        double seconds = trm_now_seconds() - app->begin;
        if (found < o->token_vocabulary) {
            app_warn("the text gives %lld tokens, %lld were asked for: no other pair comes %lld "
                     "times",
                     (long long)found, (long long)o->token_vocabulary,
                     (long long)(o->token_min_count > 0 ? o->token_min_count : 2));
        }
        app_tell(APP_RESULT, "event", "tokenizer_train", app_text("path", o->output, "%s"),
                 app_int("vocabulary", found, ": %d tokens"),
                 app_real("seconds", seconds, ", %.1f s"),
                 app_bool("dry_run", o->dry_run, "; nothing was written"));
    }
    trm_tokenizer_destroy(tokenizer);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads a whole file and ends it with a zero byte.
 *   owns  *out: caller, free   errors  IO, NOMEM */
static trm_status read_whole(const char *path, char **out, size_t *bytes, trm_error *err) {
    FILE *file = fopen(path, "rb");
    size_t capacity = 1 << 16, got;
    char *text = malloc(capacity + 1);
    *bytes = 0;
    while (file != NULL && text != NULL &&
           (got = fread(text + *bytes, 1, capacity - *bytes, file)) > 0) {
        *bytes += got;
        /* a failed realloc leaves the old block, which is freed here */
        if (*bytes == capacity) {
            char *more = realloc(text, (capacity *= 2) + 1);
            if (more == NULL) {
                free(text);
            }
            text = more;
        }
    }
    bool failed = file == NULL || ferror(file) != 0;
    int number = errno;
    if (file != NULL) {
        fclose(file);
    }
    if (failed || text == NULL) {
        free(text);
        return failed ? app_fail(err, TRM_IO, "%.200s: %s", path, strerror(number))
                      : app_no_memory(err, "for %.200s", path);
    }
    text[*bytes] = '\0';
    *out = text;
    return TRM_OK;
}

/* Opens --tokenizer.
 *   errors  INVALID without the flag */
static trm_status open_tokenizer(const app_context *app, trm_tokenizer **out, trm_error *err) {
    if (app->o.tokenizer == NULL) {
        return app_fail(err, TRM_INVALID, "%s needs --tokenizer DIR", app->command->name);
    }
    return trm_tokenizer_open(app->o.tokenizer, out, err);
}

/* ---- encode ---------------------------------------------------------------------------------- */

/* Prints ids on a line, separated by spaces. */
static void print_ids(const int32_t *ids, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        printf("%s%d", i == 0 ? "" : " ", (int)ids[i]);
    }
    printf("\n");
}

/* Encodes each line by itself, without its newline; with `print` each line's ids are a line of
 * stdout. */
static trm_status encode_lines(trm_tokenizer *tokenizer, const char *text, size_t bytes, bool print,
                               trm_tokens *tokens, trm_error *err) {
    int64_t line = 1;
    for (size_t at = 0; at < bytes; line++) {
        const char *newline = memchr(text + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - text) : bytes;
        int64_t first = tokens->count;
        trm_status status = trm_tokenizer_encode(tokenizer, text + at, end - at, tokens, err);
        if (status != TRM_OK) {
            return status;
        }
        if (print) {
            print_ids(tokens->ids + first, tokens->count - first);
        }
        at = end + 1;
    }
    return TRM_OK;
}

/* Prints the ids, or with --output their number, and the JSON event "tokenizer_encode". */
static void tell_encoded(const app_context *app, size_t bytes, const trm_tokens *tokens) {
    const app_options *o = &app->o;
    bool file = o->output != NULL;
    if (!file && !o->json && !o->by_line) {
        print_ids(tokens->ids, tokens->count);
    }
    app_begin(APP_RESULT, "event", "tokenizer_encode");
    app_put(app_text("path", app->parsed.arguments[0], NULL),
            app_text(NULL, o->output, file ? "%s" : NULL),
            app_int("tokens", tokens->count, file ? ": %d tokens" : NULL),
            app_int("bytes", (int64_t)bytes, file ? " of %d bytes" : NULL),
            app_words(file && o->dry_run ? "; nothing was written" : NULL));
    if (!file) {
        app_put(app_ids("token_ids", tokens->ids, tokens->count));
    }
    app_end();
}

/* Runs `tokenizer encode`. */
int app_run_tokenizer_encode(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    const char *path = app->parsed.arguments[0];
    trm_tokenizer *tokenizer = NULL;
    trm_tokens tokens = {0};
    char *text = NULL;
    size_t bytes = 0;
    trm_status status = open_tokenizer(app, &tokenizer, &err);
    warn_of_format(path);
    status = status == TRM_OK ? read_whole(path, &text, &bytes, &err) : status;
    if (status == TRM_OK && o->by_line) {
        bool print = o->output == NULL && !o->json;
        status = encode_lines(tokenizer, text, bytes, print, &tokens, &err);
    } else if (status == TRM_OK) {
        status = trm_tokenizer_encode(tokenizer, text, bytes, &tokens, &err);
    }
    if (status == TRM_OK && o->output != NULL && !o->dry_run) {
        status = trm_tokens_write(&tokens, o->output, &err);
    }
    if (status == TRM_OK) {
        tell_encoded(app, bytes, &tokens);
    }
    free(text);
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(tokenizer);
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- decode ---------------------------------------------------------------------------------- */

/* Parses ids such as "12 7 430"; white space, commas and brackets may stand between them.
 *   errors  CORRUPT */
static trm_status parse_ids(const char *path, const char *text, size_t bytes, trm_tokens *tokens,
                            trm_error *err) {
    const char *between = " \t\r\n,[]";
    size_t length = strlen(text);
    if (length < bytes) {
        return app_fail(err, TRM_CORRUPT,
                        "%.200s: byte %zu: a zero byte; token ids expected (or a file .bin)", path,
                        length);
    }
    tokens->ids = malloc((length / 2 + 1) * sizeof *tokens->ids);
    if (tokens->ids == NULL) {
        return app_no_memory(err, "for the ids of %.200s", path);
    }
    for (const char *at = text + strspn(text, between); *at != '\0'; at += strspn(at, between)) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno != 0 || id < 0 || id > INT_MAX ||
            (*end != '\0' && strchr(between, *end) == NULL)) {
            return app_fail(err, TRM_CORRUPT,
                            "%.200s: byte %lld: '%.20s'; token ids expected (or a file .bin)", path,
                            (long long)(at - text), at);
        }
        tokens->ids[tokens->count++] = (int32_t)id;
        at = end;
    }
    return TRM_OK;
}

/* Reads ids from a .bin file or from text. */
static trm_status read_ids(const char *path, trm_tokens *tokens, trm_error *err) {
    if (app_ends_in(path, ".bin")) {
        return trm_tokens_read(path, tokens, err);
    }
    char *text = NULL;
    size_t bytes;
    trm_status status = read_whole(path, &text, &bytes, err);
    status = status == TRM_OK ? parse_ids(path, text, bytes, tokens, err) : status;
    free(text);
    return status;
}

/* Writes the text to a file, or to stdout without a path.
 *   errors  IO */
static trm_status write_text(const char *path, const char *text, size_t bytes, trm_error *err) {
    FILE *file = path != NULL ? fopen(path, "wb") : stdout;
    if (file == NULL || fwrite(text, 1, bytes, file) != bytes ||
        (path != NULL ? fclose(file) : fflush(file)) != 0) {
        return app_fail(err, TRM_IO, "%.200s: %s", path != NULL ? path : "stdout", strerror(errno));
    }
    return TRM_OK;
}

/* Runs `tokenizer decode`. The text goes to --output, to stdout, or into the JSON event. */
int app_run_tokenizer_decode(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    const char *path = app->parsed.arguments[0];
    trm_tokenizer *tokenizer = NULL;
    trm_tokens tokens = {0};
    char *text = NULL;
    size_t bytes = 0;
    trm_status status = open_tokenizer(app, &tokenizer, &err);
    status = status == TRM_OK ? read_ids(path, &tokens, &err) : status;
    if (status == TRM_OK) {
        status = trm_tokenizer_decode(tokenizer, tokens.ids, tokens.count, &text, &bytes, &err);
    }
    if (status == TRM_OK && !o->dry_run && (o->output != NULL || !o->json)) {
        status = write_text(o->output, text, bytes, &err);
    }
    if (status == TRM_OK) {
        bool file = o->output != NULL;
        app_begin(APP_RESULT, "event", "tokenizer_decode");
        app_put(app_text("path", path, NULL), app_text(NULL, o->output, file ? "%s" : NULL),
                app_int("bytes", (int64_t)bytes, file ? ": %d bytes" : NULL),
                app_int("tokens", tokens.count, file ? " of %d tokens" : NULL),
                app_words(file && o->dry_run ? "; nothing was written" : NULL));
        if (!file) {
            app_put(app_text("text", text, NULL));
        }
        app_end();
    }
    trm_free(text);
    trm_tokens_free(&tokens);
    trm_tokenizer_destroy(tokenizer);
    return status == TRM_OK ? 0 : app_report(&err);
}
