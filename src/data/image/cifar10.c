/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10's binary files, mapped into memory. Files of another length than the official ones are
 * listed in records.txt (as `trireme data make` writes it).
 *
 *   record: label, 1 byte | red 32x32 | green 32x32 | blue 32x32     3073 bytes
 *
 * Samples are numbered through the files in the order of their names. Lengths and labels are
 * checked when the dataset is opened, so loading a sample needs no check. */
#include "data/image/cifar10.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/mapping.h"
#include "base/os.h"
#include "data/pipeline/folder_names.h"
#include "data/pipeline/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* files of a folder, bytes of records.txt, at most */
enum { FILES_MAX = 256, LIST_BYTES_MAX = 1 << 16 };
static const int64_t listed_max = 100000000;

/* One file of the set. */
typedef struct file {
    char *name;           /* in the arena */
    trmi_mapping mapping; /* the whole file */
    int64_t records;      /* number of samples */
} file;

/* The source. */
typedef struct cifar10 {
    trmi_source base;      /* must be the first member */
    trmi_arena arena;      /* path and names */
    const char *path;      /* of the folder */
    int32_t file_count;    /* length of `files` */
    file files[FILES_MAX]; /* sorted by name */
} cifar10;

/* Contract in cifar10.h. Checked once, when the file is opened. */
trm_status trmi_cifar10_check(const char *name, const uint8_t *data, size_t bytes, int64_t records,
                              trm_error *err) {
    size_t expected = (size_t)records * TRMI_CIFAR10_RECORD;
    if (bytes != expected) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: %zu bytes, expected %zu (%lld records of %d); fetch it again", name,
                         bytes, expected, (long long)records, TRMI_CIFAR10_RECORD);
    }
    for (int64_t i = 0; i < records; i++) {
        int label = data[i * TRMI_CIFAR10_RECORD];
        if (label >= TRMI_CIFAR10_CLASSES) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: record %lld: label %d, at most 9 expected",
                             name, (long long)i, label);
        }
    }
    return TRM_OK;
}

/* Contract in cifar10.h. The whole list is checked, also lines behind the name that is looked for,
 * so a damaged list is found whatever is read first. */
trm_status trmi_cifar10_listed(const char *text, const char *name, int64_t *out, trm_error *err) {
    size_t name_length = strlen(name);
    int64_t found = -1;
    for (int line = 1; *text != '\0'; line++) {
        size_t length = strcspn(text, "\n");
        size_t blank = strcspn(text, " \n");
        char *end = NULL;
        /* Each line is "name count" without other blanks. */
        long long count = blank < length ? strtoll(text + blank + 1, &end, 10) : -1;
        if (blank == 0 || blank >= length || end != text + length || count < 0 ||
            count > listed_max) {
            return TRMI_FAIL(err, TRM_CORRUPT, "records.txt: line %d: 'name count' expected", line);
        }
        if (blank == name_length && memcmp(text, name, blank) == 0) {
            found = count;
        }
        text += length + (text[length] == '\n');
    }
    *out = found;
    return TRM_OK;
}

/* Returns whether the file belongs to the usage (`context`): training, test or all. */
static bool belongs_to_usage(const void *context, const char *name) {
    const trm_usage usage = *(const trm_usage *)context;
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, ".bin") != 0) {
        return false;
    }
    switch (usage) {
    case TRM_USAGE_TRAIN: return strncmp(name, "data_batch_", 11) == 0;
    case TRM_USAGE_TEST: return strcmp(name, "test_batch.bin") == 0;
    default: return strstr(name, "batch") != NULL;
    }
}

/* Lists the files of the folder in the order of their names. All official files must be there. */
static trm_status list_files(cifar10 *set, const char *path, trm_usage usage, trm_error *err) {
    const trmi_folder_choice choice = {.wants = belongs_to_usage, .context = &usage};
    char **names;
    int64_t count;
    TRMI_TRY(trmi_folder_list(path, &choice, &set->arena, &names, &count, err));
    for (int64_t i = 0; i < count && i < FILES_MAX; i++) {
        set->files[set->file_count++].name = names[i];
    }
    trmi_free(names);
    if (count > FILES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: more than %d batch files", path, FILES_MAX);
    }
    /* five training files, one test file */
    int expected = usage == TRM_USAGE_TRAIN ? 5 : usage == TRM_USAGE_TEST ? 1 : 6;
    if (set->file_count < expected) {
        return TRMI_FAIL(err, TRM_IO, "%s: %d of the %d files %s found", path, (int)set->file_count,
                         expected,
                         usage == TRM_USAGE_TRAIN  ? "data_batch_1.bin .. data_batch_5.bin"
                         : usage == TRM_USAGE_TEST ? "test_batch.bin"
                                                   : "data_batch_*.bin, test_batch.bin");
    }
    return TRM_OK;
}

/* Maps and checks the files. */
static trm_status open_files(cifar10 *set, const char *list, trm_error *err) {
    for (int32_t i = 0; i < set->file_count; i++) {
        file *f = &set->files[i];
        char path[4096];
        if (snprintf(path, sizeof path, "%s/%s", set->path, f->name) >= (int)sizeof path) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: the path is too long", set->path);
        }
        TRMI_TRY(trmi_mapping_open(path, &f->mapping, err));
        f->records = TRMI_CIFAR10_RECORDS;
        if (list != NULL) {
            int64_t listed;
            TRMI_TRY(trmi_cifar10_listed(list, f->name, &listed, err));
            f->records = listed >= 0 ? listed : TRMI_CIFAR10_RECORDS;
        }
        trm_status status =
            trmi_cifar10_check(path, f->mapping.data, f->mapping.bytes, f->records, err);
        TRMI_TRY(trmi_mapping_check(&f->mapping, status, err));
        set->base.count += f->records;
    }
    return TRM_OK;
}

/* Returns the file of sample `index`; *record is its number in that file. */
static const file *find_file(const cifar10 *set, int64_t index, int64_t *record) {
    const file *f = set->files;
    while (index >= f->records) {
        index -= f->records;
        f++;
    }
    *record = index;
    return f;
}

/* The sample stays in the mapped file. */
static trm_status load_cifar10(const trmi_source *source, trmi_picture_scratch *scratch,
                               int64_t index, trmi_sample *out, trm_error *err) {
    (void)scratch, (void)err;
    int64_t record;
    const file *f = find_file((const cifar10 *)source, index, &record);
    const uint8_t *bytes = f->mapping.data + record * TRMI_CIFAR10_RECORD;
    *out = (trmi_sample){.form = TRMI_FORM_PLANAR,
                         .data = bytes + 1,
                         .bytes = TRMI_CIFAR10_PIXELS,
                         .height = TRMI_CIFAR10_SIDE,
                         .width = TRMI_CIFAR10_SIDE,
                         .label = bytes[0]};
    return TRM_OK;
}

/* Writes file and record of a sample, for messages. */
static void write_cifar10_place(const trmi_source *source, int64_t index, char *text, size_t size) {
    int64_t record;
    const file *f = find_file((const cifar10 *)source, index, &record);
    snprintf(text, size, "%s: record %lld", f->name, (long long)record);
}

/* Adds path and files to the description of the dataset. */
static void describe_cifar10(const trmi_source *source, trmi_report *report) {
    const cifar10 *set = (const cifar10 *)source;
    trmi_report_put(report, trmi_string("path", set->path));
    trmi_report_open_array(report, "files");
    for (int32_t i = 0; i < set->file_count; i++) {
        trmi_report_put(report, trmi_string(NULL, set->files[i].name));
    }
    trmi_report_close(report);
}

/* A page that could not be read makes the batch invalid (base/mapping.h). */
static trm_status check_cifar10(const trmi_source *source, const trmi_batch_work *work,
                                trm_status status, trm_error *err) {
    (void)work;
    const cifar10 *set = (const cifar10 *)source;
    for (int32_t i = 0; i < set->file_count; i++) {
        status = trmi_mapping_check(&set->files[i].mapping, status, err);
    }
    return status;
}

static void destroy_cifar10(trmi_source *source) {
    cifar10 *set = (cifar10 *)source;
    for (int32_t i = 0; i < set->file_count; i++) {
        trmi_mapping_close(&set->files[i].mapping);
    }
    trmi_arena_free(&set->arena);
    trmi_free(set);
}

static const trmi_source_ops cifar10_ops = {.kind = "cifar10",
                                            .load = load_cifar10,
                                            .check = check_cifar10,
                                            .place = write_cifar10_place,
                                            .describe = describe_cifar10,
                                            .destroy = destroy_cifar10};

/* Reads path/records.txt; *out is NULL if there is none. */
static trm_status read_list(const char *path, uint8_t **out, trm_error *err) {
    char name[4096];
    *out = NULL;
    snprintf(name, sizeof name, "%s/records.txt", path);
    if (access(name, F_OK) != 0) {
        return TRM_OK;
    }
    size_t bytes;
    return trmi_os_read_file(name, LIST_BYTES_MAX, out, &bytes, err);
}

trm_status trm_dataset_cifar10(const char *path, trm_usage usage, trm_dataset **out,
                               trm_error *err) {
    TRMI_NEED(err, path, out);
    cifar10 *set;
    TRMI_TRY(TRMI_NEW(err, set, 1, "to open %s", path));
    set->base = (trmi_source){.ops = &cifar10_ops,
                              .classes = TRMI_CIFAR10_CLASSES,
                              .form = TRMI_FORM_PLANAR,
                              .height = TRMI_CIFAR10_SIDE,
                              .width = TRMI_CIFAR10_SIDE};
    uint8_t *list = NULL;
    trm_status status = TRM_NOMEM;
    set->path = trmi_arena_strdup(&set->arena, path);
    if (set->path == NULL) {
        TRMI_NO_MEMORY(err, "to open %s", path);
        goto done;
    }
    /* Files, list of lengths, and then the mappings. */
    TRMI_TRY_GOTO(status, list_files(set, path, usage, err), done);
    TRMI_TRY_GOTO(status, read_list(path, &list, err), done);
    status = open_files(set, (const char *)list, err);
done:
    trmi_free(list);
    if (status != TRM_OK) {
        destroy_cifar10(&set->base);
        return status;
    }
    return trmi_dataset_create(&set->base, out, err);
}
