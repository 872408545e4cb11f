/* SPDX-License-Identifier: Apache-2.0 */
/* Datasets by name or path, as the command line gives them: recognises the kind of data at a
 * path and builds the usual pipeline for it.
 *
 *   trm_dataset_open: detect_kind --> open_source (source and transforms)
 *                     --> refine_dataset (the rest)
 *
 * A kind that the caller names is not checked against the data: the reader of that kind reports
 * what is wrong. */
#include "trireme/data.h"

#include "base/arguments.h"
#include "base/error.h"
#include "data/click/click.h"
#include "data/pipeline/dataset.h"
#include "data/text/text_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Sizes that recipes use: pixels of a side for CIFAR-10 and for guide 002, padding before a random
 * crop, and the guide's window of shuffling. */
enum { CIFAR_SIZE = 32, GUIDE_SIZE = 224, CROP_PADDING = 4, GUIDE_WINDOW = 10 };
/* Mean and deviation of the channels R, G, B in [0, 1], by which recipes normalise. */
static const double cifar_mean[3] = {0.4914, 0.4822, 0.4465};
static const double cifar_std[3] = {0.2023, 0.1994, 0.2010};
/* Guide 002 lists the figures in B, G, R order and applies them to R, G, B. */
static const double guide_mean[3] = {0.4465, 0.4822, 0.4914};
static const double guide_std[3] = {0.2010, 0.1994, 0.2023};
static const double imagenet_mean[3] = {0.485, 0.456, 0.406};
static const double imagenet_std[3] = {0.229, 0.224, 0.225};

/* ---- what lies at a path --------------------------------------------------------------------- */

/* Returns whether `name` ends with `tail`. */
static bool ends_in(const char *name, const char *tail) {
    size_t a = strlen(name), b = strlen(tail);
    return a >= b && strcmp(name + a - b, tail) == 0;
}

/* Returns true for the name of one of CIFAR-10's files, data_batch_1.bin. */
static bool is_cifar(const char *name) {
    return strstr(name, "batch") != NULL && ends_in(name, ".bin");
}

/* Returns the last part of a path. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Returns the kind of a file, from its name or from its first line; NULL if unknown. */
static const char *kind_of_file(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return NULL; /* opening a pipe would wait for a writer */
    }
    /* Tell the kind by the name, ... */
    if (ends_in(path, ".jsonl") || ends_in(path, ".bin")) {
        return is_cifar(name_of(path)) ? NULL : trmi_text_kind_of_file(path);
    }
    if (ends_in(path, ".libsvm") || ends_in(path, ".svm") || ends_in(path, ".libffm")) {
        return "libsvm";
    }
    if (strstr(path, "tfrecord") != NULL) {
        return "tfrecord-clicks";
    }
    /* ... or else by the first line. */
    char line[4096] = "";
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = '\0';
    line[strcspn(line, "\n")] = '\0';
    size_t word = strcspn(line, " \t");
    if (line[word] != '\0' && memchr(line, ':', word) != NULL) {
        return "slots"; /* the first word of a libsvm line is a label without a colon */
    }
    int tabs = 0, commas = 0;
    for (const char *at = line; *at != '\0'; at++) {
        tabs += *at == '\t';
        commas += *at == ',';
    }
    /* Criteo has 40 columns separated by tabs, Avazu its header, or 24 columns. */
    if (tabs == 39) {
        return "criteo";
    }
    bool digit = line[0] >= '0' && line[0] <= '9';
    if (strncmp(line, "id,click,hour,", 14) == 0 || (commas == 23 && digit)) {
        return "avazu";
    }
    return commas > 0 ? "csv" : trmi_text_kind_of_file(path);
}

/* Returns the kind of the data in a folder, by the names in it; NULL if unknown. CIFAR-10's files
 * have priority over the others. */
static const char *kind_of_folder(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return NULL;
    }
    bool cifar = false, records = false, folders = false;
    /* Go through the names in it. */
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        if (name[0] == '.') {
            continue;
        }
        cifar |= is_cifar(name);
        records |= strstr(name, "-of-") != NULL || strstr(name, "tfrecord") != NULL;
        struct stat info;
        folders |= fstatat(dirfd(folder), name, &info, 0) == 0 && S_ISDIR(info.st_mode);
    }
    closedir(folder);
    /* A folder with a file of click data: the kind is that of the file. */
    char rows[4096];
    if (!cifar && trmi_click_file_in(path, TRM_USAGE_TRAIN, rows, sizeof rows)) {
        return kind_of_file(rows);
    }
    return cifar     ? "cifar10"
           : records ? "tfrecord"
           : folders ? "imagefolder"
                     : trmi_text_kind_of_folder(path);
}

/* Returns whether the options of the data are those of text, so that a .txt is no click log. */
static bool asks_for_text(const trm_dataset_spec *spec) {
    const trm_text_options *text = spec->text;
    return text != NULL && (text->tokenizer != NULL || text->tokens != NULL || text->context > 0);
}

/* Returns the kind of spec->path.
 *   errors  INVALID with the kinds that are known */
static trm_status detect_kind(const trm_dataset_spec *spec, const char **out, trm_error *err) {
    if (spec->path == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "no data: give a folder or file, or synth for generated data");
    }
    if (strcmp(spec->path, "synth") == 0 || strcmp(spec->path, "clicks") == 0 ||
        strcmp(spec->path, "random") == 0) {
        *out = spec->path;
        return TRM_OK;
    }
    /* by the name of a file or folder, or by what is in it */
    struct stat info;
    if (stat(spec->path, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: no such data", spec->path);
    }
    bool folder = S_ISDIR(info.st_mode);
    *out = NULL;
    if (asks_for_text(spec)) {
        *out = folder ? trmi_text_kind_of_folder(spec->path) : trmi_text_kind_of_file(spec->path);
    }
    if (*out == NULL) {
        *out = folder ? kind_of_folder(spec->path) : kind_of_file(spec->path);
    }
    if (!folder && is_cifar(name_of(spec->path))) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a file; of CIFAR-10 the folder that has it is expected", spec->path);
    }
    if (*out == NULL) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "%s: unknown kind of data; expected *batch*.bin, class folders, TFRecords, or "
            "a Criteo, CSV, libsvm, slot, .bin, .txt or .jsonl file; name it with --dataset",
            spec->path);
    }
    return TRM_OK;
}

/* ---- pipelines ---- */

/* The transforms of a pipeline, under construction. */
typedef struct recipe {
    trm_transform steps[8]; /* at most six are used */
    int32_t count;          /* length of `steps` */
} recipe;

/* Appends a transform. */
static void add_transform(recipe *r, trm_transform step) { r->steps[r->count++] = step; }

/* Adds the last transforms: scaling to 0..1, normalising by the numbers given or else by those of
 * the kind of data, and the layout. */
static void add_last_transforms(recipe *r, const trm_dataset_spec *spec, const double mean[3],
                                const double std[3]) {
    bool given = spec->image_std[0] != 0;
    add_transform(r, trm_transform_rescale(1.0 / 255.0, 0));
    add_transform(
        r, trm_transform_normalize(given ? spec->image_mean : mean, given ? spec->image_std : std));
    if (!spec->channels_last) {
        add_transform(r, trm_transform_hwc2chw());
    }
}

/* Returns the pipeline of 32x32 images: padded random crop and flip for training. */
static recipe small_images(const trm_dataset_spec *spec, bool augment) {
    recipe r = {.count = 0};
    int64_t size = spec->image_size != 0 ? spec->image_size
                   : spec->fixed_recipe  ? GUIDE_SIZE
                                         : CIFAR_SIZE;
    if (augment) {
        add_transform(&r, trm_transform_random_crop(CIFAR_SIZE, CIFAR_SIZE, CROP_PADDING));
        add_transform(&r, trm_transform_random_flip(0.5));
    }
    if (size != CIFAR_SIZE) {
        add_transform(&r, trm_transform_resize(size, size, TRM_RESIZE_HALF_PIXEL));
    }
    add_last_transforms(&r, spec, spec->fixed_recipe ? guide_mean : cifar_mean,
                        spec->fixed_recipe ? guide_std : cifar_std);
    return r;
}

/* Returns the pipeline of large images: random resized crop and flip for training, resize and
 * centre crop for evaluation. */
static recipe large_images(const trm_dataset_spec *spec, bool augment) {
    recipe r = {.count = 0};
    int64_t size = spec->image_size != 0 ? spec->image_size : GUIDE_SIZE;
    add_transform(&r, trm_transform_decode(false));
    if (augment) {
        add_transform(&r, trm_transform_random_resized_crop(size, size));
        add_transform(&r, trm_transform_random_flip(0.5));
    } else {
        /* The ratio of 256 to 224 is the usual one in evaluation. */
        add_transform(&r, trm_transform_resize_shorter((size * 8 + 6) / 7, TRM_RESIZE_HALF_PIXEL));
        add_transform(&r, trm_transform_center_crop(size, size));
    }
    add_last_transforms(&r, spec, imagenet_mean, imagenet_std);
    return r;
}

/* Applies seed, shuffle, shard, transforms, batch and prefetch to the dataset. */
static trm_status refine_dataset(const trm_dataset_spec *spec, const recipe *r, bool train,
                                 trm_dataset *dataset, trm_error *err) {
    /* The defaults are those of the command line. */
    int64_t batch = spec->batch_size != 0 ? spec->batch_size : 32;
    int64_t depth = spec->prefetch_depth == 0 ? 4 : spec->prefetch_depth;
    TRMI_TRY(trm_dataset_seed(dataset, spec->seed, err));
    if (train) {
        TRMI_TRY(trm_dataset_shuffle(dataset, spec->fixed_recipe ? GUIDE_WINDOW : 0, err));
    }
    if (spec->shard_count != 0 || spec->shard_index != 0) {
        TRMI_TRY(trm_dataset_shard(dataset, spec->shard_count != 0 ? spec->shard_count : 1,
                                   spec->shard_index, train ? TRM_SHARD_WRAP : TRM_SHARD_PAD, err));
    }
    TRMI_TRY(trm_dataset_map(dataset, r->steps, r->count, err));
    TRMI_TRY(trm_dataset_batch(dataset, batch, train, err));
    return trm_dataset_prefetch(dataset, depth < 0 ? 0 : depth, spec->threads, err);
}

/* Opens the source of a kind; *r is the pipeline for its images (empty for other data). */
static trm_status open_source(const char *kind, const trm_dataset_spec *spec, bool augment,
                              recipe *r, trm_dataset **out, trm_error *err) {
    /* Generated data, then data at a path. */
    *r = (recipe){.count = 0};
    /* The guide's reader takes every file, so training includes the test set. */
    bool all = spec->fixed_recipe && spec->usage == TRM_USAGE_TRAIN;
    trm_usage read = all ? TRM_USAGE_ALL : spec->usage;
    if (strcmp(kind, "synth") == 0) {
        *r = small_images(spec, augment);
        return trm_dataset_shapes(spec->shapes, read, out, err);
    }
    if (strcmp(kind, "random") == 0) {
        int64_t size = spec->image_size != 0 ? spec->image_size : GUIDE_SIZE;
        return trm_dataset_random(&(trm_random_options){.height = size,
                                                        .width = size,
                                                        .classes = spec->classes,
                                                        .channels_last = spec->channels_last},
                                  out, err);
    }
    if (strcmp(kind, "clicks") == 0) {
        return trmi_clicks_open(spec->click, spec->usage, out, err);
    }
    /* files */
    if (spec->path == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "dataset %s needs a folder or file", kind);
    }
    if (strcmp(kind, "cifar10") == 0) {
        *r = small_images(spec, augment);
        return trm_dataset_cifar10(spec->path, read, out, err);
    }
    if (strcmp(kind, "imagefolder") == 0) {
        *r = large_images(spec, augment);
        return trm_dataset_image_folder(spec->path, spec->usage, out, err);
    }
    if (strcmp(kind, "tfrecord") == 0) {
        *r = large_images(spec, augment);
        return trm_dataset_tfrecord_imagenet(spec->path, spec->usage, out, err);
    }
    if (strcmp(kind, "tokens") == 0) {
        return trm_dataset_tokens(spec->path, spec->usage, spec->text, out, err);
    }
    if (strcmp(kind, "text") == 0) {
        return trm_dataset_text(spec->path, spec->usage, spec->text, out, err);
    }
    if (strcmp(kind, "jsonl") == 0) {
        return trm_dataset_json_lines(spec->path, spec->usage, spec->text, out, err);
    }
    return trmi_click_file_open(kind, spec->path, spec->click, spec->usage, out, err);
}

/* Contract in trireme/data.h. */
trm_status trm_dataset_open(const trm_dataset_spec *spec, trm_dataset **out, trm_error *err) {
    TRMI_NEED(err, spec, out);
    const char *kind = spec->kind;
    /* Check what no refining call checks. */
    if ((unsigned)spec->usage > TRM_USAGE_ALL) {
        return TRMI_FAIL(err, TRM_INVALID, "usage %d: train, test or all expected",
                         (int)spec->usage);
    }
    if (spec->image_size < 0 || spec->image_size > 16384) {
        return TRMI_FAIL(err, TRM_INVALID, "image size %lld: 1..16384 expected",
                         (long long)spec->image_size);
    }
    if (kind == NULL || strcmp(kind, "auto") == 0) {
        TRMI_TRY(detect_kind(spec, &kind, err));
    }
    if (spec->fixed_recipe && strcmp(kind, "cifar10") != 0 && strcmp(kind, "synth") != 0) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "the guide's exact pipeline is for CIFAR-10, found %s data", kind);
    }
    bool train = spec->usage != TRM_USAGE_TEST && spec->augment != TRM_OFF;
    trm_dataset *dataset;
    recipe r;
    /* Open the source, make the pipeline, test the whole. */
    TRMI_TRY(open_source(kind, spec, train, &r, &dataset, err));
    trm_status status = refine_dataset(spec, &r, train, dataset, err);
    if (status == TRM_OK) {
        /* The pipeline must be consistent now, but the caller may refine it further. */
        status = trmi_dataset_seal(dataset, err);
        dataset->sealed = false;
    }
    if (status != TRM_OK) {
        trm_dataset_destroy(dataset);
        return status;
    }
    *out = dataset;
    return TRM_OK;
}
