/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme inspect`: recognises a file by its content and describes it. A kind of file is a row
 * with two functions: matches(probe) recognises the content, describe(...) reads the file
 * completely, so that a damaged file is reported, too. Programs can add rows
 * (trm_inspect_options.more).
 *
 *   file --mapping--> probe -> recognise_file: by content, else by name --> describe --> lines, JSON
 *
 * The file may be of any origin. describe uses the same strict parsers as the readers of the
 * format, and names are made printable. */
#include "save/inspect/inspect.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/mapping.h"
#include "save/formats/npy.h"
#include "save/path.h"
#include "save/formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reports one tensor: a line, and an element of an array. */
static void put_tensor(trmi_report *r, const char *name, const char *dtype, const int64_t *dims,
                       int32_t rank, int64_t offset, int64_t bytes) {
    trmi_text shape = {0};
    trmi_text_append(&shape, "[", 1);
    for (int32_t i = 0; i < rank; i++) {
        trmi_text_printf(&shape, "%s%" PRId64, i > 0 ? ", " : "", dims[i]);
    }
    trmi_text_append(&shape, "]", 1);
    trmi_report_open_object(r, NULL);
    trmi_report_put(r, trmi_string("name", name), trmi_string("dtype", dtype),
                    trmi_json_value("shape", shape.failed ? "null" : shape.data),
                    trmi_int("offset", offset), trmi_int("bytes", bytes));
    trmi_report_say_of(r, trmi_report_close(r),
                       "  [dtype]%-6s [shape]%-20s [bytes]%12d  [name]%s\n");
    trmi_text_free(&shape);
}

/* ---- safetensors ----------------------------------------------------------------------- */

/* Returns whether the length of the header fits the file and the header begins like JSON. */
static bool is_safetensors(const trm_probe *probe) {
    uint64_t length = 0;
    if (probe->bytes < 10) {
        return false;
    }
    memcpy(&length, probe->data, 8);
    return length >= 2 && length <= (uint64_t)probe->bytes - 8 &&
           length <= TRMI_SAFETENSORS_HEADER_MAX && probe->data[8] == '{';
}

/* Describes a safetensors file: number of tensors, metadata, and one line for each tensor. */
static trm_status describe_safetensors(const trm_probe *probe, bool json, trm_line_sink sink,
                                       void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    trm_safetensors *file = NULL;
    trm_status status =
        trmi_safetensors_parse(probe->data, (size_t)probe->bytes, probe->path, &file, err);
    trmi_inspect_begin(&report, "safetensors", probe, json, sink, context);
    r->foreign = true; /* names of metadata are the file's */
    if (status != TRM_OK) {
        return trmi_inspect_end(&report, status, err);
    }
    /* Report the number of tensors and bytes, then metadata, then the tensors. */
    int64_t count = trm_safetensors_count(file), data_bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        data_bytes += trm_safetensors_at(file, i)->bytes;
    }
    trmi_report_put(r, trmi_int("tensor_count", count), trmi_int("data_bytes", data_bytes));
    trmi_report_say(r, "safetensors: [tensor_count]%d tensors, [data_bytes]%d bytes of data\n");
    trmi_report_open_object(r, "metadata");
    for (int64_t i = 0; i < trm_safetensors_metadata_count(file); i++) {
        trm_text_pair pair = trm_safetensors_metadata_at(file, i);
        trmi_report_put(r, trmi_string(pair.key, pair.value));
    }
    trmi_report_close(r);
    trmi_report_say_each(r, "metadata", "  [@]%s = []%s\n", NULL);
    trmi_report_open_array(r, "tensors");
    for (int64_t i = 0; i < count; i++) {
        const trm_safetensors_entry *e = trm_safetensors_at(file, i);
        put_tensor(r, e->name, e->dtype, e->dims, e->rank, e->offset, e->bytes);
    }
    trmi_report_close(r);
    status = trmi_inspect_end(&report, TRM_OK, err);
    trm_safetensors_close(file);
    return status;
}

/* ---- NumPy ----------------------------------------------------------------------------- */

/* .npy and .npz have signatures: \x93NUMPY, and that of a zip member or an empty zip archive. */
static bool is_npy(const trm_probe *probe) {
    return probe->bytes > 0 && trmi_npy_starts(probe->data, (size_t)probe->bytes);
}

/* Returns whether the content is a ZIP archive, empty or not. */
static bool is_npz(const trm_probe *probe) {
    return probe->bytes >= 22 &&
           (memcmp(probe->data, "PK\x03\x04", 4) == 0 || memcmp(probe->data, "PK\x05\x06", 4) == 0);
}

/* Describes a .npy or .npz file: both are read by trmi_npz_parse. */
static trm_status describe_arrays(const char *kind, const trm_probe *probe, bool json,
                                  trm_line_sink sink, void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    trm_npz *file = NULL;
    trm_status status = trmi_npz_parse(probe->data, (size_t)probe->bytes, probe->path, &file, err);
    trmi_inspect_begin(&report, kind, probe, json, sink, context);
    if (status != TRM_OK) {
        return trmi_inspect_end(&report, status, err);
    }
    trmi_report_put(r, trmi_int("array_count", trm_npz_count(file)));
    trmi_report_tell(r, "[kind]%s: [array_count]%d array[one]?{|s}\n",
                     trmi_bool("one", trm_npz_count(file) == 1));
    trmi_report_open_array(r, "arrays");
    for (int64_t i = 0; i < trm_npz_count(file); i++) {
        const trm_npz_entry *e = trm_npz_at(file, i);
        put_tensor(r, e->name, e->descr, e->dims, e->rank, e->offset, e->bytes);
    }
    trmi_report_close(r);
    trm_npz_close(file);
    return trmi_inspect_end(&report, TRM_OK, err);
}

/* One row for each kind, so that the report names the right one. */
static trm_status describe_npy(const trm_probe *probe, bool json, trm_line_sink sink, void *context,
                               trm_error *err) {
    return describe_arrays("npy", probe, json, sink, context, err);
}

/* Describes the arrays of an archive. */
static trm_status describe_npz(const trm_probe *probe, bool json, trm_line_sink sink, void *context,
                               trm_error *err) {
    return describe_arrays("npz", probe, json, sink, context, err);
}

/* ---- CIFAR-10 -------------------------------------------------------------------------- */

/* bytes of a record (label, 3x32x32); records of an original file */
enum { CIFAR_RECORD = 3073, CIFAR_FULL = 10000 };

/* The format has no signature: the length must fit, and the first labels must be labels. A file of
 * the original length counts even with wrong labels, so that the damage is reported. */
static bool is_cifar(const trm_probe *probe) {
    if (probe->bytes == 0 || probe->bytes % CIFAR_RECORD != 0) {
        return false;
    }
    int64_t records = probe->bytes / CIFAR_RECORD;
    for (int64_t i = 0; i < records && i < 64; i++) {
        if (probe->data[i * CIFAR_RECORD] > 9 && records != CIFAR_FULL) {
            return false;
        }
    }
    return true;
}

/* Counts the images of each label. */
static trm_status describe_cifar(const trm_probe *probe, bool json, trm_line_sink sink,
                                 void *context, trm_error *err) {
    trmi_inspect_report report;
    trmi_report *r = &report.report;
    int64_t records = probe->bytes / CIFAR_RECORD, labels[10] = {0};
    trm_status status = TRM_OK;
    trmi_inspect_begin(&report, "cifar10", probe, json, sink, context);
    /* Recognised by its name, the file may have another length. */
    if (probe->bytes == 0 || probe->bytes % CIFAR_RECORD != 0) {
        status = TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: %" PRId64 " bytes, a multiple of 3073 expected (30730000 in the "
                           "original files): cut off?",
                           trmi_path_tail(probe->path), probe->bytes);
    }
    for (int64_t i = 0; i < records && status == TRM_OK; i++) {
        int label = probe->data[i * CIFAR_RECORD];
        if (label > 9) {
            status = TRMI_FAIL(err, TRM_CORRUPT,
                               "%s: record %" PRId64 " at offset %" PRId64 ": label %d, at most 9 "
                               "expected",
                               trmi_path_tail(probe->path), i, i * CIFAR_RECORD, label);
        } else {
            labels[label]++;
        }
    }
    /* The report is complete up to the damage. */
    trmi_report_put(r, trmi_int("records", records));
    trmi_report_tell(r,
                     "CIFAR-10 batch: [records]%d images of 3x32x32[whole]?{| (the original "
                     "files have 10000)}\n",
                     trmi_bool("whole", records == CIFAR_FULL));
    trmi_report_open_array(r, "labels");
    for (int i = 0; i < 10; i++) {
        trmi_report_put(r, trmi_int(NULL, labels[i]));
        trmi_report_tell(r, "  label [label]%d: [count]%d\n", trmi_int("label", i),
                         trmi_int("count", labels[i]));
    }
    trmi_report_close(r);
    return trmi_inspect_end(&report, status, err);
}

/* ---- the table ------------------------------------------------------------------------- */

static const trm_recogniser safetensors_row = {"safetensors", ".safetensors", is_safetensors,
                                               describe_safetensors};
static const trm_recogniser npy_row = {"npy", ".npy", is_npy, describe_npy};
static const trm_recogniser npz_row = {"npz", ".npz", is_npz, describe_npz};
static const trm_recogniser cifar_row = {"cifar10", "_batch", is_cifar, describe_cifar};

/* Kinds with a strong signature come first; the last one has only its length. */
static const trm_recogniser *const table[] = {
    &trmi_inspect_checkpoint,
    &trmi_inspect_checkpoint_dir,
    &npy_row,
    &npz_row,
    &trmi_inspect_events,
    &trmi_inspect_tfrecord,
    &safetensors_row,
    &trmi_inspect_onnx,
    &cifar_row,
};
enum { TABLE_COUNT = sizeof table / sizeof table[0] };

/* Returns row `index`: first the program's own rows, then the table. */
static const trm_recogniser *row_at(const trm_inspect_options *options, int64_t index) {
    int64_t more = options == NULL ? 0 : options->more_count;
    return index < more                 ? &options->more[index]
           : index < more + TABLE_COUNT ? table[index - more]
                                        : NULL;
}

/* Returns the row whose content matches; if there is none, the row whose hint is in the file's
 * name, so that a damaged file is described by the right kind. */
static const trm_recogniser *recognise_file(const trm_probe *probe,
                                            const trm_inspect_options *options) {
    const trm_recogniser *row;
    const char *slash = strrchr(probe->path, '/');
    const char *name = slash == NULL ? probe->path : slash + 1;
    for (int64_t i = 0; (row = row_at(options, i)) != NULL; i++) {
        if (row->matches(probe)) {
            return row;
        }
    }
    for (int64_t i = 0; !probe->is_directory && (row = row_at(options, i)) != NULL; i++) {
        if (row->name_hint != NULL && strstr(name, row->name_hint) != NULL) {
            return row;
        }
    }
    return NULL;
}

/* Fails and lists the known kinds. */
static trm_status fail_unknown(const trm_probe *probe, const trm_inspect_options *options,
                               trm_error *err) {
    const trm_recogniser *row;
    trmi_text kinds = {0};
    for (int64_t i = 0; (row = row_at(options, i)) != NULL; i++) {
        trmi_text_printf(&kinds, "%s%s", i > 0 ? ", " : "", row->kind);
    }
    if (options != NULL && options->other_kinds != NULL) {
        trmi_text_printf(&kinds, ", %s", options->other_kinds);
    }
    trm_status status =
        TRMI_FAIL(err, TRM_CORRUPT, "%s: %s, none of: %s", trmi_path_tail(probe->path),
                  probe->is_directory ? "a directory"
                  : probe->bytes == 0 ? "empty"
                                      : "unknown content",
                  kinds.failed ? "?" : kinds.data);
    trmi_text_free(&kinds);
    return status;
}

/* Contract in trireme/io.h. FIFOs and devices are refused: mapping or reading them could wait for
 * ever. */
trm_status trm_inspect(const char *path, const trm_inspect_options *options, trm_line_sink sink,
                       void *context, trm_error *err) {
    TRMI_NEED(err, path, (const void *)(uintptr_t)sink);
    struct stat info;
    trmi_mapping mapping = {0};
    /* The path is a directory, or a file that can be mapped. */
    if (stat(path, &info) != 0) {
        return TRMI_FAIL_SYS(err, "%s: cannot be examined", trmi_path_tail(path));
    }
    trm_probe probe = {.path = path, .is_directory = S_ISDIR(info.st_mode)};
    if (!probe.is_directory) {
        if (!S_ISREG(info.st_mode)) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: neither a file nor a directory",
                             trmi_path_tail(path));
        }
        TRMI_TRY(trmi_mapping_open(path, &mapping, err));
        probe.data = mapping.data;
        probe.bytes = (int64_t)mapping.bytes;
    }
    /* Recognise and describe. A page that could not be read makes the result an error. */
    const trm_recogniser *row = recognise_file(&probe, options);
    trm_status status =
        row == NULL ? fail_unknown(&probe, options, err)
                    : row->describe(&probe, options != NULL && options->json, sink, context, err);
    status = trmi_mapping_check(&mapping, status, err);
    trmi_mapping_close(&mapping);
    return status;
}
