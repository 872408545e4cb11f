/* SPDX-License-Identifier: Apache-2.0 */
/* data synth, info, fetch.
 *
 * curl or wget fetch the data: no network code of the program handles bytes of a foreign host. An
 * archive is used only if its SHA-256 is the expected one, and its folder gets its name last, so
 * that it is there whole or not at all. info reads; only synth and fetch write. */
#include "app/app.h"

#include "trireme/base.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- synth ----------------------------------------------------------------------------------- */

/* Runs `data synth`: writes the generated images in the form of CIFAR-10. */
int app_run_data_synth(app_context *app) {
    trm_error err;
    const app_options *o = &app->o;
    const trm_shapes_options shapes = {
        .train_count = o->synth_train, .test_count = o->synth_test, .seed = (uint64_t)o->seed};
    long long train = o->synth_train > 0 ? o->synth_train : 50000;
    long long test = o->synth_test > 0 ? o->synth_test : 10000;
    trm_status status = TRM_OK;
    if (o->output == NULL) {
        status = app_fail(&err, TRM_INVALID, "data synth needs --output DIR");
    } else if (!o->dry_run) {
        status = trm_shapes_write(&shapes, o->output, &err);
    }
    if (status != TRM_OK) {
        return app_report(&err);
    }
    app_tell(APP_RESULT, "event", "data_synth", app_text("path", o->output, "%s"),
             app_int("train", train, ": %d training"),
             app_int("test", test, " and %d test images of ten shapes"),
             app_bool("dry_run", o->dry_run, " would be written"));
    return 0;
}

/* ---- info ------------------------------------------------------------------------------------ */

/* Reads every sample of a part and reports the damaged ones. Batches have one sample, so that a
 * damaged one hides no other. */
static trm_status read_part(app_context *app, const char *name, trm_usage usage, int64_t *damaged,
                            trm_error *err) {
    trm_dataset *data;
    const trm_batch *batch;
    int64_t asked = app->o.batch_size;
    app->o.batch_size = 1;
    trm_status status = app_dataset(app, usage, false, &data, err);
    app->o.batch_size = asked;
    if (status != TRM_OK) {
        return status;
    }
    int64_t samples = trm_dataset_sample_count(data);
    for (int64_t i = 0; i < samples && status == TRM_OK; i++) {
        status = trm_dataset_next(data, &batch, err);
        /* report it, and go on after it */
        if (status == TRM_CORRUPT || status == TRM_IO) {
            ++*damaged;
            app_tell(APP_RESULT, "event", "damaged", app_text("part", name, NULL),
                     app_text("message", err->message, "damaged: %s"));
            status = trm_dataset_seek(data, 0, i + 1, err);
        }
    }
    trm_dataset_destroy(data);
    return status;
}

/* Prints samples, classes and fields of a part of the data, and with --read its damaged samples. */
static trm_status describe_part(app_context *app, const char *name, trm_usage usage,
                                int64_t *damaged, trm_error *err) {
    trm_dataset *data;
    trm_status status = app_dataset(app, usage, usage != TRM_USAGE_TEST, &data, err);
    /* fewer samples than a batch, which training would drop: describe it without training */
    if (status == TRM_INVALID && usage != TRM_USAGE_TEST) {
        trm_error untrainable = *err;
        status = app_dataset(app, usage, false, &data, err);
        if (status == TRM_OK) {
            app_warn("not to be trained like this: %s", untrainable.message);
        }
    }
    if (status != TRM_OK) {
        return status;
    }
    char *text = trm_dataset_json(data);
    app_begin(APP_RESULT, "event", "data_info");
    app_put(app_text("part", name, "%s: "),
            app_int("samples", trm_dataset_sample_count(data), "%d samples"),
            app_int("classes", trm_dataset_class_count(data), ", %d classes"),
            app_int("batches", trm_dataset_epoch_batches(data), ", %d batches"),
            app_int(NULL, app->o.batch_size, " of %d"), app_raw("pipeline", text));
    trm_batch_field field;
    for (int32_t i = 0; trm_dataset_field(data, i, &field); i++) {
        char shape[96];
        app_put(app_text(NULL, field.name, "\n    %-8s"),
                app_text(NULL, trm_dtype_name(field.tensor.dtype), " %s"),
                app_text(NULL, trm_shape_format(&field.tensor.shape, shape, sizeof shape), " %s"));
    }
    app_end();
    trm_free(text);
    trm_dataset_destroy(data);
    return app->o.read ? read_part(app, name, usage, damaged, err) : TRM_OK;
}

/* Runs `data info`: shows the training part and, without --usage, the test part. A missing test
 * part is a warning. */
int app_run_data_info(app_context *app) {
    trm_error err;
    app_options *o = &app->o;
    /* the place of the data may be an argument */
    if (app->parsed.arguments_count > 0) {
        if (o->data != NULL) {
            (void)app_fail(&err, TRM_INVALID,
                           "data info: '%.80s' and --data %.80s are two places; give one",
                           app->parsed.arguments[0], o->data);
            return app_report(&err);
        }
        o->data = app->parsed.arguments[0];
    }
    app_settle_data(app);
    trm_usage usage = app_usage(o, TRM_USAGE_TRAIN);
    static const char *const names[] = {
        [TRM_USAGE_TRAIN] = "train", [TRM_USAGE_TEST] = "test", [TRM_USAGE_ALL] = "all"};
    int64_t damaged = 0;
    trm_status status = describe_part(app, names[usage], usage, &damaged, &err);
    if (status == TRM_OK && o->usage == NULL) {
        status = describe_part(app, "test", TRM_USAGE_TEST, &damaged, &err);
        if (status == TRM_INVALID || status == TRM_IO) {
            app_warn("no test set: %s", err.message);
            status = TRM_OK;
        }
    }
    if (status == TRM_OK && damaged > 0) {
        status = app_fail(&err, TRM_CORRUPT, "%s: damaged samples: %lld, named above", o->data,
                          (long long)damaged);
    }
    return status == TRM_OK ? 0 : app_report(&err);
}

/* ---- fetch ----------------------------------------------------------------------------------- */

static const char CIFAR_URL[] = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
static const char CIFAR_SHA256[] =
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd";
static const char CIFAR_FOLDER[] = "cifar-10-batches-bin";

/* Runs a program and returns its exit code, 127 if it is not installed. */
static int run_program(char *const argv[]) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        return 126;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Fetches a file with curl, or with wget where curl is not installed.
 *   errors  UNSUPPORTED without either, IO */
static trm_status download_file(const char *url, const char *path, trm_error *err) {
    char *const curl[] = {"curl", "-fsSL",      "--connect-timeout", "20",
                          "-o",   (char *)path, (char *)url,         NULL};
    char *const wget[] = {"wget", "-q", "-T",         "20",        "-t",
                          "2",    "-O", (char *)path, (char *)url, NULL};
    int code = run_program(curl);
    if (code == 127) {
        code = run_program(wget);
    }
    if (code == 127) {
        return app_fail(err, TRM_UNSUPPORTED,
                        "neither curl nor wget is installed; fetch %s by hand", url);
    }
    return code == 0 ? TRM_OK
                     : app_fail(err, TRM_IO,
                                "%s could not be fetched (curl or wget ended with %d); "
                                "--data synth needs no network",
                                url, code);
}

/* Compares the file's SHA-256.
 *   errors  IO, CORRUPT */
static trm_status check_sha256(const char *path, const char *expected, trm_error *err) {
    FILE *file = fopen(path, "rb");
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    static unsigned char block[1 << 16];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    size_t got;
    bool ok = file != NULL && hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1;
    while (ok && (got = fread(block, 1, sizeof block, file)) > 0) {
        ok = EVP_DigestUpdate(hash, block, got) == 1;
    }
    ok = ok && !ferror(file) && EVP_DigestFinal_ex(hash, digest, &length) == 1;
    for (unsigned int i = 0; ok && i < length; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    EVP_MD_CTX_free(hash);
    if (file != NULL) {
        fclose(file);
    }
    if (!ok) {
        return app_fail(err, TRM_IO, "%.100s could not be read: %s", path, strerror(errno));
    }
    return strcmp(text, expected) == 0
               ? TRM_OK
               : app_fail(err, TRM_CORRUPT,
                          "%.60s: SHA-256 %.16s..., expected %.16s...: the download is damaged",
                          path, text, expected);
}

/* Unpacks the archive beside the goal, checks the files and renames the folder: the goal exists
 * whole or not at all. */
static trm_status unpack_archive(const char *archive, const char *cache, const char *goal,
                                 trm_error *err) {
    char work[512], made[600];
    snprintf(work, sizeof work, "%s/fetch.XXXXXX", cache);
    if (mkdtemp(work) == NULL) {
        return app_fail(err, TRM_IO, "%.100s: no folder can be made: %s", cache, strerror(errno));
    }
    char *const tar[] = {"tar", "-xzf", (char *)archive, "-C", work, NULL};
    char *const remove_work[] = {"rm", "-rf", "--", work, NULL};
    snprintf(made, sizeof made, "%s/%s", work, CIFAR_FOLDER);
    trm_status status = TRM_OK;
    trm_dataset *data = NULL;
    /* opening the data checks that all files are there */
    if (run_program(tar) != 0) {
        status = app_fail(err, TRM_IO, "%.100s could not be unpacked (is the disk full?)", archive);
    } else {
        status = trm_dataset_cifar10(made, TRM_USAGE_ALL, &data, err);
    }
    if (status == TRM_OK && rename(made, goal) != 0) {
        status = app_fail(err, TRM_IO, "%.100s could not be renamed: %s", made, strerror(errno));
    }
    trm_dataset_destroy(data);
    (void)!run_program(remove_work);
    return status;
}

/* Fetches CIFAR-10 into the cache unless it is there; `goal` receives its folder. The archive's
 * name has the process id, so that two processes do not write one file. */
static trm_status fetch_cifar(const app_options *o, const char *cache, char *goal, size_t size,
                              trm_error *err) {
    char archive[512], file[800];
    struct stat info;
    snprintf(goal, size, "%s/%s", cache, CIFAR_FOLDER);
    snprintf(file, sizeof file, "%s/test_batch.bin", goal);
    if (stat(file, &info) == 0) {
        app_print_progress("%s is there already\n", goal);
        return TRM_OK;
    }
    if (o->dry_run) {
        app_print("would fetch %s into %s\n", CIFAR_URL, goal);
        return TRM_OK;
    }
    snprintf(archive, sizeof archive, "%s/cifar-10-binary.tar.gz.%ld", cache, (long)getpid());
    app_print_progress("fetching %s\n", CIFAR_URL);
    trm_status status = download_file(CIFAR_URL, archive, err);
    if (status == TRM_OK) {
        status = check_sha256(archive, CIFAR_SHA256, err);
    }
    if (status == TRM_OK) {
        status = unpack_archive(archive, cache, goal, err);
    }
    unlink(archive);
    return status;
}

/* Runs `data fetch`. */
int app_run_data_fetch(app_context *app) {
    trm_error err;
    char goal[640];
    trm_machine machine;
    trm_machine_get(&machine);
    trm_status status;
    if (strcmp(app->parsed.arguments[0], "cifar10") != 0) {
        status = app_fail(&err, TRM_INVALID, "no dataset '%.60s' to fetch; there is: cifar10",
                          app->parsed.arguments[0]);
    } else if (*machine.cache == '\0') {
        status =
            app_fail(&err, TRM_INVALID, "there is no cache directory: set HOME or XDG_CACHE_HOME");
    } else {
        status = fetch_cifar(&app->o, machine.cache, goal, sizeof goal, &err);
    }
    if (status != TRM_OK) {
        return app_report(&err);
    }
    app_tell(APP_RESULT, "event", "data_fetch", app_text("path", goal, "%s"),
             app_bool("dry_run", app->o.dry_run, NULL));
    return 0;
}
