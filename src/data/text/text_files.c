/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a data set of text or tokens, and decides which of them training and tests
 * read: by words in their names (train.bin, val.bin), or, where no names say it, the first nine
 * tenths of each file for training and the rest for tests.
 *
 *   folder --> all files with one of the endings, by name -----+
 *                                                              +--> choose_files --> mapped
 *   file   --> this file, and the one whose name has the ------+
 *              other word in its place (train.bin: val.bin)
 */
#include "data/text/text_files.h"

#include "base/error.h"
#include "data/pipeline/folder_names.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Words in names of files that say which usage they are for. */
static const char *const test_words[] = {"val", "valid", "validation", "test", "dev", NULL};
static const char *const train_words[] = {"train", NULL};

/* ---- names ---- */

/* Returns where a word is in a file's name, with no letter beside it; NULL: nowhere. */
static const char *find_word(const char *name, const char *word) {
    size_t length = strlen(word);
    for (const char *at = name; (at = strstr(at, word)) != NULL; at++) {
        bool begins = at == name || !isalpha((unsigned char)at[-1]);
        if (begins && !isalpha((unsigned char)at[length])) {
            return at;
        }
    }
    return NULL;
}

/* Returns where the first of the words is in the last part of a path; NULL: none is. *length: of
 * that word. */
static const char *find_any_word(const char *path, const char *const *words, size_t *length) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    for (; *words != NULL; words++) {
        const char *at = find_word(name, *words);
        if (at != NULL) {
            *length = strlen(*words);
            return at;
        }
    }
    return NULL;
}

/* Returns whether a name ends with one of the endings. */
static bool has_ending(const char *name, const char *const *endings) {
    size_t length = strlen(name);
    for (; *endings != NULL; endings++) {
        size_t end = strlen(*endings);
        if (length > end && strcmp(name + length - end, *endings) == 0) {
            return true;
        }
    }
    return false;
}

int64_t trmi_text_train_count(int64_t count) { return (int64_t)((double)count * 0.9); }

/* ---- finding ---- */

/* Appends a file that is not mapped yet. */
static trm_status add_file(trmi_text_files *list, trmi_arena *arena, const char *path,
                           trm_error *err) {
    TRMI_TRY(TRMI_GROW(err, list->files, list->capacity, list->count + 1, "for files of text"));
    char *copy = trmi_arena_strdup(arena, path);
    if (copy == NULL) {
        return TRMI_NO_MEMORY(err, "for files of text");
    }
    list->files[list->count++] = (trmi_text_file){.path = copy};
    return TRM_OK;
}

/* Adds the file whose name has another word in place of path[at .. at + length), if it exists: a
 * word of tests in place of "train", and "train" in place of a word of tests. */
static trm_status add_partner(trmi_text_files *list, trmi_arena *arena, const char *path, size_t at,
                              size_t length, trm_error *err) {
    const char *const *words = strncmp(path + at, "train", length) == 0 ? test_words : train_words;
    for (; *words != NULL; words++) {
        char *other =
            trmi_arena_printf(arena, "%.*s%s%s", (int)at, path, *words, path + at + length);
        if (other == NULL) {
            return TRMI_NO_MEMORY(err, "for files of text");
        }
        if (access(other, F_OK) == 0) {
            return add_file(list, arena, other, err);
        }
    }
    return TRM_OK;
}

/* Returns whether a file of a folder has one of the endings, `context`. */
static bool is_wanted_name(const void *context, const char *name) {
    return has_ending(name, context);
}

/* Appends the files of a folder, by name. */
static trm_status list_folder(const char *path, const char *const *endings, trmi_arena *arena,
                              trmi_text_files *list, trm_error *err) {
    const trmi_folder_choice choice = {.wants = is_wanted_name, .context = endings};
    char **names;
    int64_t count;
    TRMI_TRY(trmi_folder_list(path, &choice, arena, &names, &count, err));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        char *name = trmi_arena_printf(arena, "%s/%s", path, names[i]);
        status = name != NULL ? add_file(list, arena, name, err)
                              : TRMI_NO_MEMORY(err, "to list %s", path);
    }
    trmi_free(names);
    return status;
}

/* Marks what the usage reads: by names, if all have one of the words; else a part of each file. */
static int64_t choose_files(trmi_text_files *list, trm_usage usage) {
    int64_t named[2] = {0}, chosen = 0;
    size_t length;
    /* How many names have a word for training, and how many one for testing. */
    for (int64_t i = 0; i < list->count; i++) {
        const char *path = list->files[i].path;
        bool test = find_any_word(path, test_words, &length) != NULL;
        named[test] += test || find_any_word(path, train_words, &length) != NULL;
    }
    bool by_name = named[0] > 0 && named[1] > 0;
    for (int64_t i = 0; i < list->count; i++) {
        trmi_text_file *f = &list->files[i];
        bool test = find_any_word(f->path, test_words, &length) != NULL;
        bool train = !test && find_any_word(f->path, train_words, &length) != NULL;
        f->is_split = !by_name;
        f->is_read =
            !by_name || (test && usage != TRM_USAGE_TRAIN) || (train && usage != TRM_USAGE_TEST);
        chosen += f->is_read;
    }
    return chosen;
}

/* Contract in text_files.h. A single file with such a word in its name brings the file of the other
 * usage, whose name differs in that word only. */
trm_status trmi_text_files_find(const char *path, trm_usage usage, const char *const *endings,
                                trmi_arena *arena, trmi_text_files *out, trm_error *err) {
    struct stat info;
    size_t length;
    if (stat(path, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: no such data", path);
    }
    if (S_ISDIR(info.st_mode)) {
        TRMI_TRY(list_folder(path, endings, arena, out, err));
        return choose_files(out, usage) > 0
                   ? TRM_OK
                   : TRMI_FAIL(err, TRM_IO, "%s: no files *%s in it", path, endings[0]);
    }
    TRMI_TRY(add_file(out, arena, path, err));
    const char *word = find_any_word(path, test_words, &length);
    word = word != NULL ? word : find_any_word(path, train_words, &length);
    if (word != NULL) {
        TRMI_TRY(add_partner(out, arena, path, (size_t)(word - path), length, err));
    }
    choose_files(out, usage);
    return TRM_OK;
}

trm_status trmi_text_files_map(trmi_text_files *files, bool all, trm_error *err) {
    for (int64_t i = 0; i < files->count; i++) {
        trmi_text_file *f = &files->files[i];
        if (!f->is_read && !all) {
            continue;
        }
        TRMI_TRY(trmi_mapping_open(f->path, &f->mapping, err));
        if (f->mapping.bytes == 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: an empty file (0 bytes); text expected",
                             f->path);
        }
    }
    return TRM_OK;
}

void trmi_text_files_close(trmi_text_files *files) {
    for (int64_t i = 0; i < files->count; i++) {
        trmi_mapping_close(&files->files[i].mapping);
    }
    trmi_free(files->files);
    *files = (trmi_text_files){0};
}

/* ---- kinds ---- */

const char *trmi_text_kind_of_file(const char *path) {
    static const char *const ids[] = {".bin", NULL}, *const lines[] = {".jsonl", NULL},
                             *const text[] = {".txt", NULL};
    return has_ending(path, ids)     ? "tokens"
           : has_ending(path, lines) ? "jsonl"
           : has_ending(path, text)  ? "text"
                                     : NULL;
}

/* Contract in text_files.h. Tokens have precedence over JSON lines, and these over text, because a
 * folder often has the text from which its tokens were made. */
const char *trmi_text_kind_of_folder(const char *path) {
    const char *kind = NULL;
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const char *found = entry->d_name[0] != '.' ? trmi_text_kind_of_file(entry->d_name) : NULL;
        if (found != NULL && (kind == NULL || strcmp(found, "tokens") == 0 ||
                              (strcmp(found, "jsonl") == 0 && strcmp(kind, "text") == 0))) {
            kind = found;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return kind;
}
