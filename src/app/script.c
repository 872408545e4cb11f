/* Guide 000 starts its processes with `python resnet50_ps_strategy.py --job_name=ps --task_index=0`. With our
 * program in python's place the same line means: the model that the script is called after, and, if
 * the script is there, the defaults of its own flags (flags.DEFINE_string("ps_hosts", '...')). */
#include "app/app.h"

#include "trireme/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRIPT_BYTES = 1 << 20, ADDED_MAX = 16 };

/* Networks of images, then of clicks. */
static const char *name_at(int32_t index) {
    int32_t images = 0;
    while (trm_model_name(images) != NULL) {
        images++;
    }
    return index < images ? trm_model_name(index) : trm_recommender_name(index - images);
}

/* The longest model's name that the file's name begins with. */
static const char *model_of(const char *path) {
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path, *best = NULL, *name;
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

/* Python puts neighbouring strings together: 'a,' 'b' is "a,b". Appends to `value`; false without any. */
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

/* "--name=default" for a flag that the script defines and the command line does not have. */
static char *default_of(const char *text, const char *name, int argc, char **argv) {
    char wanted[64], value[8192];
    size_t length = strlen(name);
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
            (argv[i][2 + length] == '=' || argv[i][2 + length] == '\0')) {
            return NULL;
        }
    }
    snprintf(value, sizeof value, "--%s=", name);
    for (int quote = 0; quote < 2; quote++) {
        snprintf(wanted, sizeof wanted, "DEFINE_string(%c%s%c,", "\"'"[quote], name, "\"'"[quote]);
        const char *at = strstr(text, wanted);
        if (at != NULL && read_strings(at + strlen(wanted), value, sizeof value) &&
            value[length + 3] != '\0') {
            return strdup(value);
        }
    }
    return NULL;
}

int app_script(int argc, char **argv, char ***out) {
    static const char *const names[] = {"ps_hosts", "worker_hosts", "chief_hosts", "evaluator_hosts", "model_dir"};
    static char train[] = "train", data[] = "--data=synth";
    if (argc < 2 || !is_script(argv[1]) || model_of(argv[1]) == NULL) {
        return argc;
    }
    char **made = calloc((size_t)argc + ADDED_MAX, sizeof *made);
    char *text = read_script(argv[1]);
    if (made == NULL) {
        free(text);
        return argc;
    }
    int count = 0;
    bool has_data = false;
    made[count++] = argv[0];
    made[count++] = train;
    made[count++] = strdup(model_of(argv[1]));
    for (int i = 2; i < argc; i++) {
        has_data |= strncmp(argv[i], "--data", 6) == 0;
        if (argv[i][0] != '\0' && strcmp(argv[i], " ") != 0) {
            made[count++] = argv[i];
        }
    }
    if (!has_data) {
        made[count++] = data;
    }
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof names[0]; i++) {
        char *word = default_of(text, names[i], argc, argv);
        if (word != NULL) {
            made[count++] = word;
        }
    }
    free(text);
    made[count] = NULL;
    *out = made;
    return count;
}
