#include "app/app.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what is in the directory ------------------------------------------------------------------- */

typedef struct findings {
    bool cifar, cifar_test, cifar_below, tfrecord, tfrecord_test, folders, folder_test;
} findings;

static bool starts_with(const char *text, const char *head) {
    return strncmp(text, head, strlen(head)) == 0;
}

static void note_entry(const char *directory, const char *name, findings *f) {
    char path[4096];
    struct stat info;
    f->cifar |= starts_with(name, "data_batch_") || strcmp(name, "test_batch.bin") == 0;
    f->cifar_test |= strcmp(name, "test_batch.bin") == 0;
    f->tfrecord |= starts_with(name, "train-") && strstr(name, "-of-") != NULL;
    f->tfrecord_test |= starts_with(name, "validation-") && strstr(name, "-of-") != NULL;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    if (name[0] == '.' || stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return;
    }
    f->cifar_below |= strcmp(name, "cifar-10-batches-bin") == 0;
    f->folders = true;
    f->folder_test |= strcmp(name, "val") == 0 || strcmp(name, "test") == 0;
}

static trm_status look_into(const char *path, findings *f, trm_error *err) {
    memset(f, 0, sizeof *f);
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return app_fail(err, TRM_IO, "--data %.120s: no such directory (synth generates data)", path);
    }
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        note_entry(path, entry->d_name, f);
    }
    closedir(directory);
    return TRM_OK;
}

/* The form of the data; *path may move one level down. */
static trm_status detect(const app_options *o, char *path, size_t size, const char **form,
                         bool *has_test, trm_error *err) {
    snprintf(path, size, "%s", o->data);
    *has_test = true;
    if (strcmp(o->data, "synth") == 0) {
        *form = "synth";
        return TRM_OK;
    }
    findings f;
    trm_status status = look_into(o->data, &f, err);
    if (status != TRM_OK) {
        return status;
    }
    bool automatic = strcmp(o->dataset, "auto") == 0;
    if ((automatic && !f.cifar && f.cifar_below) ||
        (strcmp(o->dataset, "cifar10") == 0 && !f.cifar && f.cifar_below)) {
        snprintf(path, size, "%s/cifar-10-batches-bin", o->data);
        if ((status = look_into(path, &f, err)) != TRM_OK) {
            return status;
        }
    }
    *form = !automatic                        ? o->dataset
            : f.cifar                         ? "cifar10"
            : f.tfrecord || f.tfrecord_test   ? "tfrecord"
            : f.folders                       ? "imagefolder"
                                              : NULL;
    if (*form == NULL) {
        return app_fail(err, TRM_IO, "--data %.80s: no data_batch_1.bin (CIFAR-10), train-*-of-* (TFRecord) "
                        "or class folders (ImageFolder) in it; trireme help data", path);
    }
    *has_test = strcmp(*form, "cifar10") == 0    ? f.cifar_test
                : strcmp(*form, "tfrecord") == 0 ? f.tfrecord_test
                                                 : f.folder_test;
    return TRM_OK;
}

static bool is_small_form(const char *form) {
    return strcmp(form, "cifar10") == 0 || strcmp(form, "synth") == 0;
}

trm_status app_has_test_set(const app_options *o, bool *out, trm_error *err) {
    char path[4096];
    const char *form;
    return detect(o, path, sizeof path, &form, out, err);
}

/* ---- what follows from it ------------------------------------------------------------------------- */

static void settle_guide(app_context *app) {
    app_options *o = &app->o;
    const app_parsed *p = &app->parsed;
    o->image_size = app_given(p, "image-size") ? o->image_size : 224;
    o->batch_size = app_given(p, "batch-size") ? o->batch_size : 32;
    o->usage = app_given(p, "usage") ? o->usage : "all";
    o->epochs = app_given(p, "epochs") || app_given(p, "steps") ? o->epochs : 10;
    o->loss = app_given(p, "loss") ? o->loss : "expand";
    o->sink = true;
}

trm_status app_settle_data(app_context *app, trm_error *err) {
    app_options *o = &app->o;
    const char *form = "synth";
    char path[4096];
    bool has_test;
    if (o->exact_guide) {
        settle_guide(app);
    }
    if (o->data != NULL) {
        trm_status status = detect(o, path, sizeof path, &form, &has_test, err);
        if (status != TRM_OK) {
            return status;
        }
    }
    if (o->image_size == 0) {
        o->image_size = is_small_form(form) ? 32 : 224;
    }
    if (o->batch_size == 0) {
        o->batch_size = o->image_size >= 128 ? 32 : 128;
    }
    return TRM_OK;
}

/* ---- sources and transforms -------------------------------------------------------------------------- */

static trm_status open_source(const app_options *o, const char *form, const char *path,
                              trm_usage usage, trm_dataset **out, trm_error *err) {
    if (strcmp(form, "synth") == 0) {
        const trm_shapes_options shapes = {.train_count = o->synth_train,
                                           .test_count = o->synth_test,
                                           .seed = 1}; /* one set, whatever the run's seed */
        return trm_dataset_shapes(&shapes, usage, out, err);
    }
    if (strcmp(form, "cifar10") == 0) {
        return trm_dataset_cifar10(path, usage, out, err);
    }
    return app_fail(err, TRM_UNSUPPORTED, "%.80s: data of form %s cannot be read by this version", path, form);
}

static const double CIFAR_MEAN[3] = {0.4914, 0.4822, 0.4465}, CIFAR_STD[3] = {0.2023, 0.1994, 0.2010};
/* The guide has them in the order B, G, R for images that are R, G, B. */
static const double GUIDE_MEAN[3] = {0.4465, 0.4822, 0.4914}, GUIDE_STD[3] = {0.2010, 0.1994, 0.2023};
static const double IMAGENET_MEAN[3] = {0.485, 0.456, 0.406}, IMAGENET_STD[3] = {0.229, 0.224, 0.225};

static int32_t small_transforms(const app_options *o, bool training, trm_transform *t) {
    int32_t n = 0;
    bool guide = o->exact_guide;
    if (training) {
        t[n++] = trm_transform_random_crop(32, 32, 4);
        t[n++] = trm_transform_random_flip(0.5);
    }
    if (o->image_size != 32) {
        t[n++] = trm_transform_resize(o->image_size, o->image_size,
                                      guide ? TRM_RESIZE_ORIGINAL : TRM_RESIZE_HALF_PIXEL);
    }
    t[n++] = trm_transform_rescale(1 / 255.0, 0);
    t[n++] = trm_transform_normalize(guide ? GUIDE_MEAN : CIFAR_MEAN, guide ? GUIDE_STD : CIFAR_STD);
    t[n++] = trm_transform_hwc2chw();
    return n;
}

static int32_t photo_transforms(const app_options *o, bool training, trm_transform *t) {
    int32_t n = 0;
    t[n++] = trm_transform_decode(false);
    if (training) {
        t[n++] = trm_transform_random_resized_crop(o->image_size, o->image_size);
        t[n++] = trm_transform_random_flip(0.5);
    } else {
        t[n++] = trm_transform_resize_shorter(o->image_size * 256 / 224, TRM_RESIZE_ANTIALIAS);
        t[n++] = trm_transform_center_crop(o->image_size, o->image_size);
    }
    t[n++] = trm_transform_rescale(1 / 255.0, 0);
    t[n++] = trm_transform_normalize(IMAGENET_MEAN, IMAGENET_STD);
    t[n++] = trm_transform_hwc2chw();
    return n;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        trm_status try_status_ = (call);                                                           \
        if (try_status_ != TRM_OK) {                                                               \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

static trm_status refine(const app_options *o, bool small, bool training, trm_dataset *data,
                         trm_error *err) {
    trm_transform chain[16];
    int32_t count = small ? small_transforms(o, training, chain) : photo_transforms(o, training, chain);
    TRY(trm_dataset_seed(data, (uint64_t)o->seed, err));
    if (training) {
        TRY(trm_dataset_shuffle(data, o->exact_guide ? 10 : 0, err));
    }
    TRY(trm_dataset_map(data, chain, count, err));
    TRY(trm_dataset_batch(data, o->batch_size, training, err));
    TRY(trm_dataset_prefetch(data, 2 + 2 * o->workers, o->workers, err));
    return trm_dataset_check(data, err);
}

trm_status app_dataset(const app_options *o, trm_usage usage, bool training, trm_dataset **out,
                       trm_error *err) {
    char path[4096];
    const char *form;
    bool has_test;
    if (o->data == NULL) {
        return app_fail(err, TRM_INVALID, "--data is needed: a directory, or synth");
    }
    TRY(detect(o, path, sizeof path, &form, &has_test, err));
    trm_dataset *data;
    TRY(open_source(o, form, path, usage, &data, err));
    trm_status status = refine(o, is_small_form(form), training, data, err);
    if (status != TRM_OK) {
        trm_dataset_destroy(data);
        return status;
    }
    *out = data;
    return TRM_OK;
}

trm_status app_dataset_random(const app_options *o, trm_dataset **out, trm_error *err) {
    const trm_random_options options = {.count = o->batch_size * 64,
                                        .channels = 3,
                                        .height = o->image_size,
                                        .width = o->image_size,
                                        .classes = o->classes > 0 ? o->classes : 10};
    trm_dataset *data;
    TRY(trm_dataset_random(&options, &data, err));
    trm_status status = trm_dataset_batch(data, o->batch_size, true, err);
    if (status == TRM_OK) {
        status = trm_dataset_check(data, err);
    }
    if (status != TRM_OK) {
        trm_dataset_destroy(data);
        return status;
    }
    *out = data;
    return TRM_OK;
}
