/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.json, the file that makes a folder a checkpoint: it lists the other files with their
 * digests, and is written last.
 *
 *   {"format":"trireme-checkpoint","version":1,
 *   "sequence":..,"global_step":..,"epoch":..,"data_position":..,
 *   "seed":"0x...","world_size":..,"saved_unix_seconds":..,
 *   "config":{...}, "state":{...},
 *   "files":{"model.safetensors":{"bytes":..,"xxh3_128":"...","block_bytes":..,"crc32c":[..]},
 *   ...}, "checksum":"<xxh3_128 of all bytes before this line's comma>"}
 *
 * The checksum is compared before anything is parsed, so damage is reported as damage. */
#include "save/checkpoint/checkpoint_manifest.h"

#include "base/error.h"
#include "base/format/report.h"
#include "base/os.h"
#include "save/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* The end of the file: ,\n"checksum":"<32 digits>"}\n */
static const char tail_start[] = ",\n\"checksum\":\"";
enum { TAIL_BYTES = sizeof tail_start - 1 + TRMI_DIGEST_HEX - 1 + 3 };

/* ---- writing --------------------------------------------------------------------------- */

/* Puts the caller's object (NULL: {}) on a line of its own, after a check.
 *   errors  INVALID, NOMEM */
static trm_status put_object(trmi_report *r, const char *key, const char *object, trm_error *err) {
    /* Parse and write again, so that the object is valid and on one line. */
    json_error_t problem;
    json_t *parsed = json_loads(object != NULL ? object : "{}", JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(parsed)) {
        trm_status status =
            TRMI_FAIL(err, TRM_INVALID, "%s of a checkpoint: a JSON object expected: %.100s", key,
                      parsed == NULL ? problem.text : "found something else");
        json_decref(parsed);
        return status;
    }
    char *text = json_dumps(parsed, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(parsed);
    if (text == NULL) {
        return TRMI_NO_MEMORY(err, "for the manifest of a checkpoint");
    }
    trmi_report_break(r, 0);
    trmi_report_put(r, trmi_json_value(key, text));
    free(text);
    return TRM_OK;
}

/* Puts the entry of one file. */
static void put_file(trmi_report *r, const trmi_manifest_file *file) {
    trmi_report_break(r, 0);
    trmi_report_open_object(r, file->name);
    trmi_report_put(r, trmi_int("bytes", file->digest.bytes),
                    trmi_string("xxh3_128", file->digest.xxh3),
                    trmi_int("block_bytes", TRMI_DIGEST_BLOCK_BYTES));
    trmi_report_open_array(r, "crc32c");
    for (int64_t i = 0; i < file->digest.block_count; i++) {
        trmi_report_put(r, trmi_unsigned(NULL, file->digest.block_crc[i]));
    }
    trmi_report_close(r);
    trmi_report_close(r);
}

/* Contract in checkpoint_manifest.h. The text is built in memory, because the checksum is of the
 * bytes as they will be in the file. */
trm_status trmi_manifest_format(const trm_checkpoint_info *info, const trmi_manifest_file *files,
                                int64_t file_count, trmi_text *out, trm_error *err) {
    trmi_report r;
    char seed[24], saved[400], checksum[TRMI_DIGEST_HEX];
    snprintf(seed, sizeof seed, "0x%016" PRIx64, info->seed);
    snprintf(saved, sizeof saved, "%.3f", info->saved_unix_seconds);
    trmi_report_begin_json(&r, out);
    r.foreign = true; /* names of files are the caller's */
    trmi_report_put(&r, trmi_string("format", "trireme-checkpoint"),
                    trmi_int("version", TRMI_MANIFEST_VERSION));
    trmi_report_break(&r, 0);
    trmi_report_put(&r, trmi_int("sequence", info->sequence),
                    trmi_int("global_step", info->global_step), trmi_int("epoch", info->epoch),
                    trmi_int("data_position", info->data_position));
    trmi_report_break(&r, 0);
    trmi_report_put(&r, trmi_string("seed", seed), trmi_int("world_size", info->world_size),
                    trmi_json_value("saved_unix_seconds", saved));
    TRMI_TRY(put_object(&r, "config", info->config_json, err));
    TRMI_TRY(put_object(&r, "state", info->state_json, err));
    trmi_report_break(&r, 0);
    trmi_report_open_object(&r, "files");
    for (int64_t i = 0; i < file_count; i++) {
        put_file(&r, &files[i]);
    }
    trmi_report_close(&r);
    TRMI_TRY(TRMI_CHECK_MEMORY(err, out, "for the manifest of a checkpoint"));
    /* The last line: the checksum of everything before it (tail_start). */
    trmi_digest_of(out->data, out->length, checksum);
    trmi_report_break(&r, 0);
    trmi_report_put(&r, trmi_string("checksum", checksum));
    (void)trmi_report_end(&r);
    trmi_text_append(out, "\n", 1);
    return TRMI_CHECK_MEMORY(err, out, "for the manifest of a checkpoint");
}

/* ---- reading --------------------------------------------------------------------------- */

/* Returns CORRUPT with a text. */
static trm_status fail_corrupt(const char *path, const char *what, trm_error *err) {
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: %s", trmi_path_tail(path), what);
}

/* Compares the checksum in the last line with the text before it. */
static trm_status check_checksum(const char *text, size_t bytes, const char *path, trm_error *err) {
    if (bytes < TAIL_BYTES || bytes > TRMI_MANIFEST_BYTES_MAX) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: %zu bytes, %d to %d expected (cut off?)",
                         trmi_path_tail(path), bytes, (int)TAIL_BYTES,
                         (int)TRMI_MANIFEST_BYTES_MAX);
    }
    char wanted[TAIL_BYTES + 1], checksum[TRMI_DIGEST_HEX];
    /* Compute what the last line must be, and compare it. */
    trmi_digest_of(text, bytes - TAIL_BYTES, checksum);
    snprintf(wanted, sizeof wanted, "%s%s\"}\n", tail_start, checksum);
    if (memcmp(text + bytes - TAIL_BYTES, wanted, TAIL_BYTES) != 0) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: damaged: its bytes 0 to %zu have the checksum %s, "
                         "the last line has another",
                         trmi_path_tail(path), bytes - TAIL_BYTES, checksum);
    }
    return TRM_OK;
}

/* Reads an integer member from `low` to `high`. Returns false if it is missing or out of range. */
static bool take_int(const json_t *object, const char *key, int64_t low, int64_t high,
                     int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high) {
        return false;
    }
    *out = json_integer_value(value);
    return true;
}

/* Returns a copy that trmi_free frees, or NULL. */
static char *copy_text(const char *text) {
    char *copy = trmi_alloc(strlen(text) + 1);
    return copy == NULL ? NULL : memcpy(copy, text, strlen(text) + 1);
}

/* Reads a member that must be an object, as text. */
static trm_status take_object(const json_t *root, const char *key, const char **out,
                              const char *path, trm_error *err) {
    const json_t *value = json_object_get(root, key);
    if (!json_is_object(value)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: \"%s\" is no object", trmi_path_tail(path), key);
    }
    char *text = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    *out = text == NULL ? NULL : copy_text(text);
    free(text);
    return *out == NULL ? TRMI_NO_MEMORY(err, "for %s", trmi_path_tail(path)) : TRM_OK;
}

/* Reads the description into *info, whose texts then belong to the manifest. A newer version is
 * UNSUPPORTED, not CORRUPT: the file is good. */
static trm_status take_info(const json_t *root, const char *path, trm_checkpoint_info *info,
                            trm_error *err) {
    int64_t version = 0, world = 0;
    const char *format = json_string_value(json_object_get(root, "format"));
    if (format == NULL || strcmp(format, "trireme-checkpoint") != 0) {
        return fail_corrupt(path, "not a checkpoint of trireme", err);
    }
    /* Read the version first: a newer one may have other members. */
    if (!take_int(root, "version", 1, INT64_MAX, &version)) {
        return fail_corrupt(path, "no \"version\"", err);
    }
    if (version > TRMI_MANIFEST_VERSION) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: format version %" PRId64 ", this trireme reads up to %d",
                         trmi_path_tail(path), version, TRMI_MANIFEST_VERSION);
    }
    const char *seed = json_string_value(json_object_get(root, "seed"));
    unsigned long long seed_value = 0;
    int used = 0;
    /* Numbers. The seed is a string, because JSON numbers lose bits beyond 2^53. */
    bool ok = take_int(root, "sequence", 0, INT64_MAX, &info->sequence) &&
              take_int(root, "global_step", 0, INT64_MAX, &info->global_step) &&
              take_int(root, "epoch", 0, INT64_MAX, &info->epoch) &&
              take_int(root, "data_position", 0, INT64_MAX, &info->data_position) &&
              take_int(root, "world_size", 0, INT32_MAX, &world) && seed != NULL &&
              sscanf(seed, "0x%16llx%n", &seed_value, &used) == 1 && seed[used] == '\0';
    if (!ok) {
        return fail_corrupt(path,
                            "sequence, global_step, epoch, data_position, seed or world_size is "
                            "missing or out of range",
                            err);
    }
    info->seed = seed_value;
    info->world_size = (int32_t)world;
    info->saved_unix_seconds = json_number_value(json_object_get(root, "saved_unix_seconds"));
    TRMI_TRY(take_object(root, "config", &info->config_json, path, err));
    return take_object(root, "state", &info->state_json, path, err);
}

/* Returns whether a text is 32 lower-case hex digits. */
static bool is_hex(const char *text) {
    return text != NULL && strlen(text) == TRMI_DIGEST_HEX - 1 &&
           strspn(text, "0123456789abcdef") == TRMI_DIGEST_HEX - 1;
}

/* Reads the entry of one file. The name must not leave the directory, and the number of block
 * checksums must fit the length. */
static trm_status take_file(const char *name, const json_t *object, const char *path,
                            trmi_manifest_file *file, trm_error *err) {
    trmi_digest *digest = &file->digest;
    const char *hash = json_string_value(json_object_get(object, "xxh3_128"));
    const json_t *blocks = json_object_get(object, "crc32c");
    int64_t block_bytes;
    /* The name is one of a file in the same directory, and not hidden. */
    bool plain = name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
    if (!plain || !take_int(object, "bytes", 0, INT64_MAX / 2, &digest->bytes) || !is_hex(hash) ||
        !take_int(object, "block_bytes", TRMI_DIGEST_BLOCK_BYTES, TRMI_DIGEST_BLOCK_BYTES,
                  &block_bytes) ||
        !json_is_array(blocks) ||
        (int64_t)json_array_size(blocks) !=
            (digest->bytes + TRMI_DIGEST_BLOCK_BYTES - 1) / TRMI_DIGEST_BLOCK_BYTES) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: the entry of file '%.60s' is not usable",
                         trmi_path_tail(path), name);
    }
    memcpy(digest->xxh3, hash, TRMI_DIGEST_HEX);
    size_t count = json_array_size(blocks);
    file->name = copy_text(name);
    digest->block_crc = trmi_alloc(count * sizeof *digest->block_crc);
    if (file->name == NULL || digest->block_crc == NULL) {
        return TRMI_NO_MEMORY(err, "for %s", trmi_path_tail(path));
    }
    /* Read the checksums of the blocks. */
    for (size_t i = 0; i < count; i++) {
        const json_t *crc = json_array_get(blocks, i);
        json_int_t value = json_integer_value(crc);
        if (!json_is_integer(crc) || value < 0 || value > UINT32_MAX) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: block %zu of '%.60s' has no checksum",
                             trmi_path_tail(path), i, name);
        }
        digest->block_crc[i] = (uint32_t)value;
    }
    digest->block_count = (int64_t)count;
    return TRM_OK;
}

/* Reads the entries of all files. */
static trm_status take_files(json_t *root, const char *path, trmi_checkpoint_manifest *out,
                             trm_error *err) {
    json_t *files = json_object_get(root, "files");
    if (!json_is_object(files) || json_object_size(files) > TRMI_MANIFEST_FILES_MAX) {
        return fail_corrupt(path, "\"files\" is no object, or too large", err);
    }
    TRMI_TRY(TRMI_NEW(err, out->files, json_object_size(files), "for %s", trmi_path_tail(path)));
    const char *name;
    json_t *value;
    json_object_foreach(files, name, value) {
        /* The count includes an entry that is not finished, so that trmi_manifest_free frees it. */
        TRMI_TRY(take_file(name, value, path, &out->files[out->file_count++], err));
    }
    return TRM_OK;
}

/* Contract in checkpoint_manifest.h. Members that are not known are ignored, so that later versions
 * can add some; two members of one name are refused, because readers would disagree about them. */
trm_status trmi_manifest_parse(const char *text, size_t bytes, const char *path,
                               trmi_checkpoint_manifest *out, trm_error *err) {
    TRMI_TRY(check_checksum(text, bytes, path, err));
    json_error_t problem;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d column %d: %.100s", trmi_path_tail(path),
                         problem.line, problem.column, problem.text);
    }
    trmi_checkpoint_manifest manifest = {0};
    trm_status status = take_info(root, path, &manifest.info, err);
    if (status == TRM_OK) {
        status = take_files(root, path, &manifest, err);
    }
    json_decref(root);
    if (status != TRM_OK) {
        trmi_manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return TRM_OK;
}

void trmi_manifest_free(trmi_checkpoint_manifest *manifest) {
    trmi_free((void *)(uintptr_t)manifest->info.config_json);
    trmi_free((void *)(uintptr_t)manifest->info.state_json);
    for (int64_t i = 0; i < manifest->file_count; i++) {
        trmi_free(manifest->files[i].name);
        trmi_digest_free(&manifest->files[i].digest);
    }
    trmi_free(manifest->files);
    *manifest = (trmi_checkpoint_manifest){0};
}
