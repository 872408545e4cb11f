/* SPDX-License-Identifier: Apache-2.0 */
/* Guide 000 starts its processes with `python resnet50_ps_strategy.py --job_name=ps
 * --task_index=0`. With our program in python's place the same line means: the model that the
 * script is called after, and, if the script is there, the defaults of its own flags
 * (flags.DEFINE_string("ps_hosts", '...')) and what it writes into NPURunConfig
 * (keep_checkpoint_max=5). The command line has the last word. */
#include "app/app.h"

#include "trireme/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRIPT_BYTES = 1 << 20, ADDED_MAX = 24 };

/* Networks of images, then of clicks. */
static const char *name_at(int32_t index) {
    int32_t images = 0;
    while (trm_network_name(images) != NULL) {
        images++;
    }
    return index < images ? trm_network_name(index) : trm_recommender_name(index - images);
}

/* The longest model's name that the file's name begins with. */
static const char *model_of(const char *path) {
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path, *best = NULL,
               *name;
    for (int32_t i = 0; (name = name_at(i)) != NULL; i++) {
        size_t length = strlen(name);
        if (strncmp(file, name, length) == 0 && (file[length] == '_' || file[length] == '.') &&
            (best == NULL || length > strlen(best))) {
            best = name;
        }
    }
    return best;
}

static bool is_script(const char *word) {
    size_t length = strlen(word);
    return length > 3 && strcmp(word + length - 3, ".py") == 0;
}

static char *read_script(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = file != NULL ? calloc(1, SCRIPT_BYTES + 1) : NULL;
    if (text != NULL && fread(text, 1, SCRIPT_BYTES, file) == 0) {
        text[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

/* Python puts neighbouring strings together: 'a,' 'b' is "a,b". Appends to `value`; false without
 * any. */
static bool read_strings(const char *at, char *value, size_t size) {
    size_t used = strlen(value);
    bool any = false;
    for (;;) {
        at += strspn(at, " \t\r\n\\");
        if (*at != '\'' && *at != '"') {
            return any;
        }
        const char *end = strchr(at + 1, *at);
        if (end == NULL || used + (size_t)(end - at) >= size) {
            return false;
        }
        memcpy(value + used, at + 1, (size_t)(end - at) - 1);
        used += (size_t)(end - at) - 1;
        value[used] = '\0';
        at = end + 1;
        any = true;
    }
}

/* Comments say nothing: they become blanks. */
static void drop_comments(char *text) {
    char quote = 0;
    for (char *at = text; *at != '\0'; at++) {
        if (quote != 0) {
            quote = *at == quote || *at == '\n' ? 0 : quote;
        } else if (*at == '\'' || *at == '"') {
            quote = *at;
        } else if (*at == '#') {
            size_t length = strcspn(at, "\n");
            memset(at, ' ', length);
        }
    }
}

/* The command line says it itself. */
static bool is_given(const char *name, int argc, char **argv) {
    size_t length = strlen(name);
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
            (argv[i][2 + length] == '=' || argv[i][2 + length] == '\0')) {
            return true;
        }
    }
    return false;
}

/* The default of a flag that the script defines; "" when it defines none. */
static void default_of(const char *text, const char *name, char *value, size_t size) {
    char wanted[64];
    value[0] = '\0';
    for (int quote = 0; quote < 2 && value[0] == '\0'; quote++) {
        snprintf(wanted, sizeof wanted, "DEFINE_string(%c%s%c,", "\"'"[quote], name, "\"'"[quote]);
        const char *at = strstr(text, wanted);
        if (at == NULL || !read_strings(at + strlen(wanted), value, size)) {
            value[0] = '\0';
        }
    }
}

/* What is written behind `name =` in a call: a string or a number; "" when it is neither, or not
 * there. */
static void argument_of(const char *text, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *at = text; value[0] == '\0' && (at = strstr(at, name)) != NULL; at += length) {
        const char *equals = at + length + strspn(at + length, " \t");
        bool whole = at == text || strchr(" \t\n(,", at[-1]) != NULL;
        if (!whole || *equals != '=' || equals[1] == '=') {
            continue;
        }
        const char *begin = equals + 1 + strspn(equals + 1, " \t");
        size_t digits = strspn(begin, "0123456789.");
        if (digits > 0 && digits < size) {
            snprintf(value, size, "%.*s", (int)digits, begin);
        } else if (!read_strings(begin, value, size)) {
            value[0] = '\0';
        }
    }
}

typedef struct words {
    char **at;
    int count, argc;
    char **argv;
} words;

static void add(words *w, const char *name, const char *value) {
    size_t size = strlen(name) + strlen(value) + 4;
    char *word = malloc(size);
    if (word != NULL) {
        snprintf(word, size, value[0] != '\0' ? "--%s=%s" : "--%s", name, value);
        w->at[w->count++] = word;
    }
}

/* Flags that the script defines, and what it tells NPURunConfig, NPUEstimator and TrainSpec. */
static void take_script(words *w, const char *text) {
    static const char *const defined[] = {"ps_hosts", "worker_hosts", "chief_hosts",
                                          "evaluator_hosts", "model_dir"};
    static const struct {
        const char *argument, *flag, *other; /* `other`: says it, too */
    } arguments[] = {{"model_dir", "model_dir", "output"},
                     {"keep_checkpoint_max", "keep", NULL},
                     {"keep_checkpoint_every_n_hours", "keep-every-hours", NULL},
                     {"save_checkpoints_steps", "save-every-steps", "save-every-seconds"},
                     {"save_checkpoints_secs", "save-every-seconds", "save-every-steps"},
                     {"save_summary_steps", "summary-every", NULL},
                     {"log_step_count_steps", "log-every", NULL},
                     {"precision_mode", "precision", NULL},
                     {"tf_random_seed", "seed", NULL},
                     {"max_steps", "steps", "epochs"}};
    char value[8192];
    bool has_dir = is_given("model_dir", w->argc, w->argv) || is_given("output", w->argc, w->argv);
    for (size_t i = 0; i < sizeof defined / sizeof defined[0]; i++) {
        default_of(text, defined[i], value, sizeof value);
        bool dir = strcmp(defined[i], "model_dir") == 0;
        if (value[0] != '\0' && !(dir ? has_dir : is_given(defined[i], w->argc, w->argv))) {
            add(w, defined[i], value);
            has_dir |= dir;
        }
    }
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
        argument_of(text, arguments[i].argument, value, sizeof value);
        bool given =
            is_given(arguments[i].flag, w->argc, w->argv) ||
            (arguments[i].other != NULL && is_given(arguments[i].other, w->argc, w->argv)) ||
            (i == 0 && has_dir);
        if (value[0] != '\0' && !given) {
            add(w, arguments[i].flag, value);
        }
    }
    argument_of(text, "iterations_per_loop", value, sizeof value);
    if (value[0] != '\0' && strcmp(value, "1") != 0) {
        add(w, "sink", ""); /* which jobs with servers refuse, as NPURunConfig does */
    }
}

int app_script(int argc, char **argv, char ***out) {
    static char train[] = "train", data[] = "--data=synth";
    if (argc < 2 || !is_script(argv[1]) || model_of(argv[1]) == NULL) {
        return argc;
    }
    words w = {.at = calloc((size_t)argc + ADDED_MAX, sizeof *w.at), .argc = argc, .argv = argv};
    char *text = read_script(argv[1]);
    if (w.at == NULL) {
        free(text);
        return argc;
    }
    w.at[w.count++] = argv[0];
    w.at[w.count++] = train;
    w.at[w.count++] = strdup(model_of(argv[1]));
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] != '\0' && strcmp(argv[i], " ") != 0) {
            w.at[w.count++] = argv[i];
        }
    }
    if (!is_given("data", argc, argv)) {
        w.at[w.count++] = data;
    }
    if (text != NULL) {
        drop_comments(text);
        take_script(&w, text);
    }
    free(text);
    w.at[w.count] = NULL;
    *out = w.at;
    return w.count;
}
