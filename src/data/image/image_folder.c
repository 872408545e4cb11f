/* SPDX-License-Identifier: Apache-2.0 */
/* Images in folders by class, root/class/image.jpeg. The files are listed when the dataset is
 * opened, and each is read with pread into the worker's scratch.
 *
 *   root/CLASS/NAME.jpeg          all images are training and test set
 *   root/train/CLASS/NAME.jpeg    training set
 *   root/val or root/test         test set, whose classes must be among those of the training set
 *
 * A label is the index of the class in alphabetical order. */
#include "base/arguments.h"
#include "base/error.h"
#include "base/os.h"
#include "data/pipeline/folder_names.h"
#include "data/pipeline/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t file_bytes_max = (int64_t)256 << 20;

/* One image. */
typedef struct image {
    const char *path; /* from the root on */
    int32_t label;
} image;

/* The source. */
typedef struct folder {
    trmi_source base; /* must be the first member; count: number of images */
    trmi_arena arena; /* all names and paths */
    const char *root; /* as given */
    image *images;    /* [base.count] by tree, class and name */
    int64_t capacity; /* capacity of `images` */
    char **classes;   /* [classes] names in order: the index is the label */
} folder;

/* The kind of a file, judged by its name: an image that is read, an image format that is not read,
 * or another file. */
typedef enum content { CONTENT_OTHER, CONTENT_PICTURE, CONTENT_UNREAD } content;

/* Judges a file by the ending of its name. */
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

/* The entries of a folder that are classes, and those that may be images. */
static const trmi_folder_choice class_folders = {.folders_only = true},
                                image_files = {.files_only = true};

/* Compares texts, for the search of a class. */
static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds the images of one class folder, sorted by name, with the class's label. below: the tree
 * ("/train", or "" for the root).
 *   errors  IO, UNSUPPORTED, INVALID, NOMEM */
static trm_status add_class(folder *set, const char *below, const char *class_name, int32_t label,
                            trm_error *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s/%s", set->root, below, class_name) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    char **names;
    int64_t count, before = set->base.count;
    TRMI_TRY(trmi_folder_list(path, &image_files, &set->arena, &names, &count, err));
    trm_status status = TRM_OK;
    /* Unknown files are skipped; images that cannot be read are an error, so that none is missing
     * unnoticed. */
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        content kind = content_of(names[i]);
        if (kind == CONTENT_UNREAD) {
            status = TRMI_FAIL(err, TRM_UNSUPPORTED,
                               "%s/%s: only JPEG and PNG are read; convert it", path, names[i]);
        }
        if (kind != CONTENT_PICTURE) {
            continue;
        }
        /* Keep the path below the root; load_image_file puts the root before it. */
        char *tail = trmi_arena_printf(&set->arena, "%s/%s/%s", below, class_name, names[i]);
        if (tail == NULL || !trmi_grow((void **)&set->images, &set->capacity, set->base.count + 1,
                                       sizeof *set->images)) {
            status = TRMI_NO_MEMORY(err, "to list %s", path);
        } else {
            set->images[set->base.count++] = (image){tail, label};
        }
    }
    trmi_free(names);
    if (status == TRM_OK && set->base.count == before) {
        status = TRMI_FAIL(err, TRM_IO, "%s: a class folder without JPEG or PNG images", path);
    }
    return status;
}

/* Names the classes: the folders of the training tree, in alphabetical order. */
static trm_status name_classes(folder *set, const char *below, trm_error *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", set->root, below) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    TRMI_TRY(trmi_folder_list(path, &class_folders, &set->arena, &set->classes, &set->base.classes,
                              err));
    if (set->base.classes == 0) {
        return TRMI_FAIL(err, TRM_IO, "%s: no class folders (root/class/image.jpeg expected)",
                         path);
    }
    return TRM_OK;
}

/* Adds the images of a tree; its classes must be among the training set's. */
static trm_status add_tree(folder *set, const char *below, trm_error *err) {
    char path[4096], **names;
    int64_t count;
    if (snprintf(path, sizeof path, "%s%s", set->root, below) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->root);
    }
    TRMI_TRY(trmi_folder_list(path, &class_folders, &set->arena, &names, &count, err));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        char **found = bsearch(&names[i], set->classes, (size_t)set->base.classes,
                               sizeof *set->classes, by_text);
        status = found == NULL
                     ? TRMI_FAIL(err, TRM_CORRUPT, "%s: class %s is not in the training set", path,
                                 names[i])
                     : add_class(set, below, names[i], (int32_t)(found - set->classes), err);
    }
    trmi_free(names);
    return status;
}

/* Returns whether root has a folder of this name. */
static bool has_folder(const char *root, const char *name) {
    char path[4096];
    struct stat info;
    return snprintf(path, sizeof path, "%s%s", root, name) < (int)sizeof path &&
           stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Lists the images of the usage. */
static trm_status list_images(folder *set, trm_usage usage, trm_error *err) {
    /* Read one tree: all images. */
    if (!has_folder(set->root, "/train")) {
        TRMI_TRY(name_classes(set, "", err));
        return add_tree(set, "", err);
    }
    /* Read two trees. */
    const char *test = has_folder(set->root, "/val")    ? "/val"
                       : has_folder(set->root, "/test") ? "/test"
                                                        : NULL;
    if (usage != TRM_USAGE_TRAIN && test == NULL) {
        return TRMI_FAIL(err, TRM_IO, "%s: a train folder, but neither val nor test", set->root);
    }
    TRMI_TRY(name_classes(set, "/train", err));
    if (usage != TRM_USAGE_TEST) {
        TRMI_TRY(add_tree(set, "/train", err));
    }
    return usage == TRM_USAGE_TRAIN ? TRM_OK : add_tree(set, test, err);
}

/* Writes the whole path, or the end of a long one, which identifies the image. */
static void write_image_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    const folder *set = (const folder *)source;
    const char *path = set->images[index].path;
    size_t root = strlen(set->root), below = strlen(path);
    if (root + below < size) {
        snprintf(text, size, "%s%s", set->root, path);
    } else {
        snprintf(text, size, "...%s", below + 4 <= size ? path : path + (below + 4 - size));
    }
}

/* Reads a file into the worker's scratch; decoding is the first step of the transforms. */
static trm_status load_image_file(const trmi_source *source, trmi_picture_scratch *scratch,
                                  int64_t index, trmi_sample *out, trm_error *err) {
    const folder *set = (const folder *)source;
    const image *one = &set->images[index];
    char path[4096];
    if (snprintf(path, sizeof path, "%s%s", set->root, one->path) >= (int)sizeof path) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", one->path);
    }
    /* Open and measure. */
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
        status = TRMI_NO_MEMORY(err, "for %lld bytes of %s", (long long)bytes, path);
        goto done;
    }
    /* read() may return less than requested */
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

/* The functions of a source (data/pipeline/source.h). */
static void describe_folder(const trmi_source *source, trmi_report *report) {
    trmi_report_put(report, trmi_string("path", ((const folder *)source)->root));
}

static void destroy_folder(trmi_source *source) {
    folder *set = (folder *)source;
    free(set->images);
    trmi_free(set->classes);
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops folder_ops = {.kind = "imagefolder",
                                           .load = load_image_file,
                                           .place = write_image_place,
                                           .describe = describe_folder,
                                           .destroy = destroy_folder};

/* Contract in trireme/data.h. Only names are read now; images are opened batch by batch. */
trm_status trm_dataset_image_folder(const char *path, trm_usage usage, trm_dataset **out,
                                    trm_error *err) {
    TRMI_NEED(err, path, out);
    folder *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->base = (trmi_source){.ops = &folder_ops, .form = TRMI_FORM_ENCODED};
    set->root = trmi_arena_strdup(&set->arena, path);
    trm_status status =
        set->root == NULL ? TRMI_NO_MEMORY(err, "to open %s", path) : list_images(set, usage, err);
    if (status != TRM_OK) {
        destroy_folder(&set->base);
        return status;
    }
    return trmi_dataset_create(&set->base, out, err);
}
