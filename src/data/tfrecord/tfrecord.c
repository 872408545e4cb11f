/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of TFRecord files, mapped, with an index of their records.
 *
 * Opening a set reads the lengths of all records, not their data; a record's checksum is compared
 * each time the record is read. Records are numbered through the files in the order of their names.
 * An open set does not change, so all prefetch threads may read it. */
#include "data/tfrecord/tfrecord.h"

#include "base/error.h"
#include "data/pipeline/folder_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Adds a file to the set (folder NULL: `name` is the path). */
static trm_status add_file(trmi_tfrecord_set *set, const char *folder, const char *name,
                           trm_error *err) {
    TRMI_TRY(
        TRMI_GROW(err, set->files, set->file_capacity, set->file_count + 1, "to list %s", name));
    char *path = folder == NULL ? trmi_arena_strdup(&set->arena, name)
                                : trmi_arena_printf(&set->arena, "%s/%s", folder, name);
    if (path == NULL) {
        return TRMI_NO_MEMORY(err, "to list %s", name);
    }
    const char *tail = strrchr(path, '/');
    set->files[set->file_count++] =
        (trmi_tfrecord_file){.path = path, .name = tail == NULL ? path : tail + 1};
    return TRM_OK;
}

/* The prefixes of the names that a set wants. */
typedef struct name_prefixes {
    const char *const *list; /* [count]; NULL: names as of TFRecord files */
    int32_t count;
} name_prefixes;

/* Returns whether a file of a folder belongs to the set. */
static bool is_wanted_file(const void *context, const char *name) {
    const name_prefixes *prefixes = context;
    if (prefixes->list == NULL) {
        return strstr(name, "tfrecord") != NULL || strstr(name, "-of-") != NULL;
    }
    for (int32_t i = 0; i < prefixes->count; i++) {
        if (strncmp(name, prefixes->list[i], strlen(prefixes->list[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Lists the files of the set: `path` itself, or the files of that folder that fit, sorted by name.
 *   errors  IO (none found), NOMEM */
static trm_status list_files(const char *path, const char *const *prefixes, int32_t count,
                             trmi_tfrecord_set *set, trm_error *err) {
    /* A single file is a set of one. */
    struct stat info;
    if (stat(path, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: no TFRecord file or folder", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return add_file(set, NULL, path, err);
    }
    /* List, of a folder, the files whose names fit. */
    const name_prefixes wanted = {.list = prefixes, .count = count};
    const trmi_folder_choice choice = {.wants = is_wanted_file, .context = &wanted};
    char **names;
    int64_t listed;
    TRMI_TRY(trmi_folder_list(path, &choice, &set->arena, &names, &listed, err));
    trm_status status =
        listed > 0 ? TRM_OK
                   : TRMI_FAIL(err, TRM_IO, "%s: no TFRecord files (%s*) found", path,
                               prefixes != NULL ? prefixes[0] : "name with tfrecord or -of-");
    for (int64_t i = 0; i < listed && status == TRM_OK; i++) {
        status = add_file(set, path, names[i], err);
    }
    trmi_free(names);
    return status;
}

/* Returns a reader of a file, from its beginning or, after setting offset and number, from a record
 * on. */
static trmi_tfrecord_reader reader_of(const trmi_tfrecord_file *file) {
    return (trmi_tfrecord_reader){
        .name = file->path, .file = file->mapping.data, .bytes = file->mapping.bytes};
}

/* Finds the positions of all records; checks their lengths, but not yet their data. */
static trm_status index_records(trmi_tfrecord_file *file, trm_error *err) {
    trmi_tfrecord_reader reader = reader_of(file);
    const uint8_t *data;
    size_t bytes;
    reader.data_unchecked = true; /* data are verified when they are read */
    for (;;) {
        size_t at = reader.offset;
        trm_status status = trmi_tfrecord_next(&reader, &data, &bytes, err);
        if (status != TRM_OK) {
            return status == TRM_END ? TRM_OK : status;
        }
        TRMI_TRY(TRMI_GROW(err, file->offsets, file->capacity, file->records + 1,
                           "for the index of %s", file->path));
        file->offsets[file->records++] = at;
    }
}

/* Maps a file and indexes its records. */
static trm_status scan_file(trmi_tfrecord_file *file, trm_error *err) {
    TRMI_TRY(trmi_mapping_open(file->path, &file->mapping, err));
    return trmi_mapping_check(&file->mapping, index_records(file, err), err);
}

/* Contract in tfrecord.h. Empty files are allowed as long as some file has records. */
trm_status trmi_tfrecord_open(const char *path, const char *const *prefixes, int32_t prefix_count,
                              trmi_tfrecord_set *out, trm_error *err) {
    *out = (trmi_tfrecord_set){0};
    trm_status status = list_files(path, prefixes, prefix_count, out, err);
    for (int64_t i = 0; status == TRM_OK && i < out->file_count; i++) {
        status = scan_file(&out->files[i], err);
        out->records += out->files[i].records;
    }
    if (status == TRM_OK && out->records == 0) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: no records", path);
    }
    if (status != TRM_OK) {
        trmi_tfrecord_close(out);
    }
    return status;
}

void trmi_tfrecord_close(trmi_tfrecord_set *set) {
    for (int64_t i = 0; i < set->file_count; i++) {
        trmi_mapping_close(&set->files[i].mapping);
        free(set->files[i].offsets);
    }
    free(set->files);
    trmi_arena_free(&set->arena);
    *set = (trmi_tfrecord_set){0};
}

/* Returns the file of record `index`; *record is its number in that file. */
static const trmi_tfrecord_file *find_record(const trmi_tfrecord_set *set, int64_t index,
                                             int64_t *record) {
    const trmi_tfrecord_file *file = set->files;
    while (index >= file->records) {
        index -= file->records;
        file++;
    }
    *record = index;
    return file;
}

trm_status trmi_tfrecord_read(const trmi_tfrecord_set *set, int64_t index, const uint8_t **data,
                              size_t *bytes, trm_error *err) {
    int64_t record;
    const trmi_tfrecord_file *file = find_record(set, index, &record);
    trmi_tfrecord_reader reader = reader_of(file);
    reader.offset = file->offsets[record];
    reader.number = record;
    return trmi_tfrecord_next(&reader, data, bytes, err);
}

/* Contract in tfrecord.h. `work` NULL: all files. */
trm_status trmi_tfrecord_check(const trmi_tfrecord_set *set, const trmi_batch_work *work,
                               trm_status status, trm_error *err) {
    const trmi_tfrecord_file *checked = NULL;
    for (int64_t i = 0; work == NULL && i < set->file_count; i++) {
        status = trmi_mapping_check(&set->files[i].mapping, status, err);
    }
    /* neighbouring samples are often in one file: check it once */
    for (int64_t i = 0; work != NULL && i < work->count; i++) {
        int64_t record;
        const trmi_tfrecord_file *file = find_record(set, work->indices[i], &record);
        status = file != checked ? trmi_mapping_check(&file->mapping, status, err) : status;
        checked = file;
    }
    return status;
}

void trmi_tfrecord_place(const trmi_tfrecord_set *set, int64_t index, char *text, size_t size) {
    int64_t record;
    const trmi_tfrecord_file *file = find_record(set, index, &record);
    snprintf(text, size, "%s: record %lld", file->name, (long long)record);
}
