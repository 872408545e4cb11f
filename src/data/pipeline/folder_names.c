/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the names in a folder of data (contract in folder_names.h). */
#include "data/pipeline/folder_names.h"

#include "base/error.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Compares names for qsort. */
static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns whether an entry is a folder, or a link to one. */
static bool is_folder(DIR *dir, const struct dirent *entry) {
    struct stat info;
    if ((entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) &&
        fstatat(dirfd(dir), entry->d_name, &info, 0) == 0) {
        return S_ISDIR(info.st_mode);
    }
    return entry->d_type == DT_DIR;
}

/* Returns whether the choice has an entry. */
static bool has_entry(const trmi_folder_choice *choice, DIR *dir, const struct dirent *entry) {
    if (entry->d_name[0] == '.' ||
        (choice->wants != NULL && !choice->wants(choice->context, entry->d_name))) {
        return false;
    }
    return (!choice->files_only && !choice->folders_only) ||
           is_folder(dir, entry) == choice->folders_only;
}

/* Contract in folder_names.h. Names are sorted, because readdir gives them in no order, and
 * samples are numbered by it. */
trm_status trmi_folder_list(const char *path, const trmi_folder_choice *choice, trmi_arena *arena,
                            char ***names, int64_t *count, trm_error *err) {
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: not a readable folder", path);
    }
    char **list = NULL;
    int64_t listed = 0, capacity = 0;
    trm_status status = TRM_OK;
    const struct dirent *entry;
    while (status == TRM_OK && (entry = readdir(dir)) != NULL) {
        if (!has_entry(choice, dir, entry)) {
            continue;
        }
        char *name = trmi_arena_strdup(arena, entry->d_name);
        status = name == NULL ? TRMI_NO_MEMORY(err, "to list %s", path)
                              : TRMI_GROW(err, list, capacity, listed + 1, "to list %s", path);
        if (status == TRM_OK) {
            list[listed++] = name;
        }
    }
    closedir(dir);
    if (status != TRM_OK) {
        trmi_free(list);
        return status;
    }
    if (listed > 0) {
        qsort(list, (size_t)listed, sizeof *list, compare_names);
    }
    *names = list;
    *count = listed;
    return TRM_OK;
}
