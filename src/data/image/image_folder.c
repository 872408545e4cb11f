/* SPDX-License-Identifier: Apache-2.0 */
/* root/class/image.jpeg: listed at once, read by pread into the worker's scratch. */
#include "base/error.h"
#include "base/os.h"
#include "data/pipeline/source.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t file_bytes_max = (int64_t)256 << 20;

typedef struct image {
    const char *path; /* from the root on */
    int32_t label;
} image;

typedef struct folder {
    trmi_source base;
    trmi_arena arena;
    const char *root;
    image *images;
    int64_t capacity;
    char **classes;
} folder;

typedef enum content { CONTENT_OTHER, CONTENT_PICTURE, CONTENT_UNREAD } content;

static content content_of(const char *name) {
    static const char *const unread[] = {".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"};
    const char *dot = strrchr(name, '.');
    if (dot == NULL || dot == name) {
        return CONTENT_OTHER;
    }
    if (strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".jpg") == 0 ||
        strcasecmp(dot, ".png") == 0) {
        return CONTENT_PICTURE;
    }
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        if (strcasecmp(dot, unread[i]) == 0) {
            return CONTENT_UNREAD;
        }
    }
    return CONTENT_OTHER;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names in `path` (of folders, or of files), sorted, in a malloc'ed array. */
static trm_status names_in(folder *set, const char *path, bool folders, char ***out, int64_t *count,
                           trm_error *err) {
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return TRMI_FAIL_SYS(err, "%s: not a readable folder", path);
    }
    void *names = NULL;
    int64_t capacity = 0;
    trm_status status = TRM_OK;
    const struct dirent *entry;
    *count = 0;
    *out = NULL;
    while (status == TRM_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        bool is_folder = entry->d_type == DT_DIR;
        struct stat info;
        if ((entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) &&
            fstatat(dirfd(dir), entry->d_name, &info, 0) == 0) {
            is_folder = S_ISDIR(info.st_mode);
        }
        if (is_folder != folders) {
            continue;
        }
        char *name = trmi_arena_strdup(&set->arena, entry->d_name);
        if (name == NULL || !trmi_grow(&names, &capacity, *count + 1, sizeof(char *))) {
            status = TRMI_FAIL(err, TRM_NOMEM, "no memory to list %s", path);
        } else {
            ((char **)names)[(*count)++] = name;
        }
    }
    closedir(dir);
    if (status != TRM_OK) {
        free(names);
        return status;
    }
    if (*count > 0) {
        qsort(names, (size_t)*count, sizeof(char *), by_text);
    }
    *out = names;
    return TRM_OK;
}

static trm_status add_class(folder *set, const char *below, const char *class_name, int32_t label,
                            trm_error *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s/%s", set->root, below, class_name) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    char **names;
    int64_t count, before = set->base.count;
    TRMI_TRY(names_in(set, path, false, &names, &count, err));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        content kind = content_of(names[i]);
        if (kind == CONTENT_UNREAD) {
            status = TRMI_FAIL(err, TRM_UNSUPPORTED,
                               "%s/%s: only JPEG and PNG are read; convert it", path, names[i]);
        }
        if (kind != CONTENT_PICTURE) {
            continue;
        }
        char *tail = trmi_arena_printf(&set->arena, "%s/%s/%s", below, class_name, names[i]);
        if (tail == NULL || !trmi_grow((void **)&set->images, &set->capacity, set->base.count + 1,
                                       sizeof *set->images)) {
            status = TRMI_FAIL(err, TRM_NOMEM, "no memory to list %s", path);
        } else {
            set->images[set->base.count++] = (image){tail, label};
        }
    }
    free(names);
    if (status == TRM_OK && set->base.count == before) {
        status = TRMI_FAIL(err, TRM_IO, "%s: a class folder without JPEG or PNG images", path);
    }
    return status;
}

/* Names the classes: the folders of the training tree. */
static trm_status name_classes(folder *set, const char *below, trm_error *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", set->root, below) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    TRMI_TRY(names_in(set, path, true, &set->classes, &set->base.classes, err));
    if (set->base.classes == 0) {
        return TRMI_FAIL(err, TRM_IO, "%s: no class folders (root/class/image.jpeg expected)",
                         path);
    }
    return TRM_OK;
}

/* Adds the images of a tree, whose classes must be known ones. */
static trm_status add_tree(folder *set, const char *below, trm_error *err) {
    char path[4096], **names;
    int64_t count;
    if (snprintf(path, sizeof path, "%s%s", set->root, below) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    TRMI_TRY(names_in(set, path, true, &names, &count, err));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        char **found = bsearch(&names[i], set->classes, (size_t)set->base.classes,
                               sizeof *set->classes, by_text);
        status = found == NULL
                     ? TRMI_FAIL(err, TRM_CORRUPT, "%s: class %s is not in the training set", path,
                                 names[i])
                     : add_class(set, below, names[i], (int32_t)(found - set->classes), err);
    }
    free(names);
    return status;
}

static bool has(const char *root, const char *name) {
    char path[4096];
    struct stat info;
    return snprintf(path, sizeof path, "%s%s", root, name) < (int)sizeof path &&
           stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static trm_status list(folder *set, trm_usage usage, trm_error *err) {
    if (!has(set->root, "/train")) {
        TRMI_TRY(name_classes(set, "", err));
        return add_tree(set, "", err);
    }
    const char *test = has(set->root, "/val") ? "/val" : has(set->root, "/test") ? "/test" : NULL;
    if (usage != TRM_USAGE_TRAIN && test == NULL) {
        return TRMI_FAIL(err, TRM_IO, "%s: a train folder, but neither val nor test", set->root);
    }
    TRMI_TRY(name_classes(set, "/train", err));
    if (usage != TRM_USAGE_TEST) {
        TRMI_TRY(add_tree(set, "/train", err));
    }
    return usage == TRM_USAGE_TRAIN ? TRM_OK : add_tree(set, test, err);
}

/* The whole path; of a long one its end, which tells which image it is. */
static void place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const folder *set = (const folder *)source;
    const char *path = set->images[index].path;
    size_t root = strlen(set->root), below = strlen(path);
    if (root + below < size) {
        snprintf(text, size, "%s%s", set->root, path);
    } else {
        snprintf(text, size, "...%s", below + 4 <= size ? path : path + (below + 4 - size));
    }
}

static trm_status load(const trmi_source *source, trmi_picture_scratch *scratch, int64_t index,
                       trmi_sample *out, trm_error *err) {
    const folder *set = (const folder *)source;
    const image *one = &set->images[index];
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", set->root, one->path) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", one->path);
    }
    int fd;
    int64_t bytes;
    TRMI_TRY(trmi_os_open_regular(path, &fd, &bytes, err));
    trm_status status = TRM_OK;
    uint8_t *data = NULL;
    if (bytes > file_bytes_max) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: %lld bytes, at most %lld for one image", path,
                           (long long)bytes, (long long)file_bytes_max);
        goto done;
    }
    data = trmi_scratch_get(scratch, TRMI_SCRATCH_FILE, (size_t)bytes + 1);
    if (data == NULL) {
        status = TRMI_FAIL(err, TRM_NOMEM, "%s: no memory for %lld bytes", path, (long long)bytes);
        goto done;
    }
    for (int64_t at = 0; at < bytes;) {
        ssize_t got = pread(fd, data + at, (size_t)(bytes - at), at);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            status = got < 0 ? TRMI_FAIL_SYS(err, "%s: cannot be read", path)
                             : TRMI_FAIL(err, TRM_IO, "%s: became shorter while read", path);
            goto done;
        }
        at += got > 0 ? got : 0;
    }
    *out = (trmi_sample){
        .form = TRMI_FORM_ENCODED, .data = data, .bytes = (size_t)bytes, .label = one->label};
done:
    close(fd);
    return status;
}

static void describe(const trmi_source *source, trmi_text *text) {
    trmi_text_printf(text, ",\"path\":");
    trmi_text_json_string(text, ((const folder *)source)->root);
}

static void destroy(trmi_source *source) {
    folder *set = (folder *)source;
    free(set->images);
    free(set->classes);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops folder_ops = {
    .kind = "imagefolder", .load = load, .place = place, .describe = describe, .destroy = destroy};

trm_status trm_dataset_image_folder(const char *path, trm_usage usage, trm_dataset **out,
                                    trm_error *err) {
    folder *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->base = (trmi_source){.ops = &folder_ops, .form = TRMI_FORM_ENCODED};
    set->root = trmi_arena_strdup(&set->arena, path);
    trm_status status = set->root == NULL ? TRMI_FAIL(err, TRM_NOMEM, "no memory to open %s", path)
                                          : list(set, usage, err);
    if (status != TRM_OK) {
        destroy(&set->base);
        return status;
    }
    return trmi_dataset_create(&set->base, out, err);
}
