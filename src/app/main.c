/* SPDX-License-Identifier: Apache-2.0 */
/* main: from the command line to one row of the table of commands.
 *
 *     keep the standard streams -> signals -> output -> find the command -> parse its flags -> row->run
 *
 * The table (commands.c) holds everything about a command: dispatch, help and error messages
 * read it.
 *
 * Invariants: the standard streams are kept before anything opens a file, signals are set before
 * anything takes time, and the flags before a wrong one still say how the error is printed. */
#include "app/models/models.h"

#include "trireme/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns how many words of argv[1 ..] name the command: 1 or 2, 0 if they do not. */
static int match_command(const app_command *c, int argc, char **argv) {
    const char *space = strchr(c->name, ' ');
    size_t first = space != NULL ? (size_t)(space - c->name) : strlen(c->name);
    if (argc < 2 || strlen(argv[1]) != first || strncmp(argv[1], c->name, first) != 0) {
        return 0;
    }
    if (space == NULL) {
        return 1;
    }
    return argc > 2 && strcmp(argv[2], space + 1) == 0 ? 2 : 0;
}

/* Refuses a Python script with a message that shows the equivalent command. Only Python can
 * determine what the script trains; a guess would train something else. */
static trm_status refuse_script(int argc, char **argv, trm_error *err) {
    bool roles = getenv("TF_CONFIG") != NULL;
    for (int i = 2; i < argc; i++) {
        roles |= strncmp(argv[i], "--job_name", 10) == 0 || strncmp(argv[i], "--ps_hosts", 10) == 0;
    }
    return app_fail(
        err, TRM_INVALID,
        "%.40s: trireme runs no Python; give the model and the script's settings: "
        "trireme train resnet50 "
        "--data DIR %s",
        argv[1],
        roles ? "--job_name=ps --ps_hosts=A --worker_hosts=B (docs/guides/from-guide-000.md)"
              : "--exact-guide -n 8 (docs/guides/from-guide-002.md)");
}

/* Returns the error for an unknown command. "data" alone, or with an unknown second word, gets
 * the nearest command of that family, or their list. */
static trm_status unknown_command(int argc, char **argv, trm_error *err) {
    const char *words[64], *seconds[64];
    int count = 0, seconds_count = 0;
    char list[128] = "";
    /* List all commands, and the second words of those that begin with the same word. */
    for (const app_command *c = app_commands; c->name != NULL; c++) {
        const char *name = c->name, *space = strchr(name, ' ');
        words[count++] = name;
        size_t first = space != NULL ? (size_t)(space - name) : 0;
        if (space != NULL && strlen(argv[1]) == first && strncmp(name, argv[1], first) == 0) {
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     space + 1);
            seconds[seconds_count++] = space + 1;
        }
    }
    /* The first word is a family of commands: the second word is wrong or missing. */
    if (seconds_count > 0) {
        const char *nearest = argc > 2 ? trm_nearest_word(argv[2], seconds, seconds_count) : NULL;
        if (nearest != NULL) {
            return app_fail(err, TRM_INVALID, "no command '%.30s %.30s'; the nearest is '%s %s'",
                            argv[1], argv[2], argv[1], nearest);
        }
        if (argc > 2 && argv[2][0] != '-') {
            return app_fail(err, TRM_INVALID, "trireme %s: no '%.30s'; it needs one of: %s",
                            argv[1], argv[2], list);
        }
        return app_fail(err, TRM_INVALID, "trireme %s needs one of: %s", argv[1], list);
    }
    if (app_ends_in(argv[1], ".py")) {
        return refuse_script(argc, argv, err);
    }
    const char *nearest = trm_nearest_word(argv[1], words, count);
    return app_fail(err, TRM_INVALID, "no command '%.60s'%s%s", argv[1],
                    nearest != NULL ? "; the nearest is " : "; trireme help lists them",
                    nearest != NULL ? nearest : "");
}

/* Checks the number of arguments, and that only commands with a program accept "--".
 *   errors  INVALID */
static trm_status check_arguments(const app_context *app, trm_error *err) {
    const app_command *c = app->command;
    int count = app->parsed.arguments_count;
    if (count < c->arguments_min) {
        return app_fail(err, TRM_INVALID, "trireme %s needs %s; for example: %s", c->name,
                        c->arguments, c->example);
    }
    if (count > c->arguments_max && strncmp(c->arguments, "--", 2) == 0) {
        return app_fail(err, TRM_INVALID, "trireme %s: the program follows --, as in: %s", c->name,
                        c->example);
    }
    if (count > c->arguments_max) {
        const app_flag *flag = app_given_optional(&app->parsed);
        return app_fail(
            err, TRM_INVALID, "trireme %s: '%.60s' is one argument too many; %s%s%s%s", c->name,
            app->parsed.arguments[c->arguments_max], flag != NULL ? "after --" : "expected ",
            flag != NULL            ? flag->name
            : c->arguments_max == 0 ? "flags only"
                                    : c->arguments,
            flag != NULL ? " may stand " : "", flag != NULL ? app_complete_row(flag).value : "");
    }
    if (app->parsed.rest != NULL && strncmp(c->arguments, "--", 2) != 0) {
        return app_fail(err, TRM_INVALID, "trireme %s takes nothing after --", c->name);
    }
    return strcmp(c->arguments, "MODEL") == 0 && count > 0
               ? app_check_model_name(app->parsed.arguments[0], err)
               : TRM_OK;
}

/* Returns whether a flag stands on the command line before "--". Used before parsing, because
 * parsing may already fail and its error must be printed in the right form. */
static bool has_word(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], word) == 0) {
            return true;
        }
    }
    return false;
}

/* Takes the data's path from DATA_PATH, which guide 002's script exports, for train and eval
 * without --data. */
static void take_data_path(app_context *app) {
    static const char *const commands[] = {"train", "eval"};
    char *path = getenv("DATA_PATH");
    for (size_t c = 0; c < sizeof commands / sizeof commands[0]; c++) {
        if (strcmp(app->command->name, commands[c]) == 0 && app->o.data == NULL && path != NULL &&
            path[0] != '\0') {
            app->o.data = path;
            app_print_progress("data: %s (DATA_PATH)\n", path);
        }
    }
}

/* Parses the flags of `command`, sets up the output and runs it. `words`: how many words the
 * command's name has. */
static int run_command(const app_command *command, double begin, int words, int argc, char **argv) {
    static app_context app;
    trm_error err;
    app.commands = app_commands;
    app.command = command;
    app.begin = begin;
    app.argv = argv;
    /* Read the flags; the kind of model determines which of them have a meaning. */
    app_defaults(&app.o);
    trm_error wrong;
    trm_status status = app_parse(command->groups, command->name, argc - 1 - words,
                                  argv + 1 + words, &app.parsed, &err);
    if (app.parsed.arguments_count > 0) {
        app.model = app_model_of(app.parsed.arguments[0]);
    }
    /* also after an error: the flags before it say how the error is printed */
    trm_status stored =
        app_store_given(command->groups, app.model != NULL ? app.model->kind->title : NULL,
                        &app.parsed, &app.o, status == TRM_OK ? &err : &wrong);
    status = status == TRM_OK ? stored : status;
    if (app.o.help || (status != TRM_OK && has_word(argc, argv, "--help"))) {
        app_help_command(command);
        return 0;
    }
    /* Give the output its final form; --json counts even if parsing failed. */
    app_output_begin(app.o.json || has_word(argc, argv, "--json"), app.o.quiet, app.o.verbose,
                     app.o.color);
    if (status == TRM_OK) {
        take_data_path(&app);
        status = check_arguments(&app, &err);
    }
    if (status == TRM_OK) {
        status = app_take_context_tokens(&app, &err);
    }
    if (status == TRM_OK) {
        status = app_check_paths(&app.parsed, &err);
    }
    return status == TRM_OK ? command->run(&app) : app_report(&err);
}

/* Order matters: the streams are kept before anything opens a file, signals are set before
 * anything takes time. */
int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* results appear in order with the lines on stderr */
    static char version[] = "version";
    trm_error err;
    double begin = trm_now_seconds();
    app_output_keep_streams();
    app_signals_prepare();
    app_output_begin(has_word(argc, argv, "--json"), false, false, "auto");
    if (argc < 2) {
        app_help_overview(app_commands);
        return app_output_end(2);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        app_help_overview(app_commands);
        return app_output_end(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        argv[1] = version;
    }
    /* Answer "trireme data --help". */
    if (app_help_family(app_commands, argv[1], argc > 2 ? argv[2] : NULL)) {
        return app_output_end(0);
    }
    for (const app_command *c = app_commands; c->name != NULL; c++) {
        int words = match_command(c, argc, argv);
        if (words > 0) {
            return app_output_end(run_command(c, begin, words, argc, argv));
        }
    }
    (void)unknown_command(argc, argv, &err);
    return app_output_end(app_report(&err));
}
