/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors files. Nothing in the file is trusted: the header is parsed by a strict
 * parser, and every byte of data must belong to exactly one tensor. Tensors are used in place.
 *
 *   8 bytes: length of the header | header, JSON | data of all tensors
 *   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": ...}
 *
 *   trm_safetensors_open -> trmi_safetensors_parse -> parse_file: take_header, place_data, index_names
 *
 * An open file does not change, so any thread may read it. */
#include "save/formats/safetensors.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/format/endian.h"
#include "base/format/half.h"
#include "base/mapping.h"
#include "save/formats/json_cursor.h"
#include "save/formats/name_index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* All types of the format: name, bits, and trireme's type for it (NONE: can be listed, not
 * read). */
static const struct {
    const char *word;
    int bits;
    trm_dtype dtype;
} dtypes[] = {
    {"F32", 32, TRM_FLOAT32},
    {"F64", 64, TRM_FLOAT64},
    {"BF16", 16, TRM_BFLOAT16},
    {"F16", 16, TRM_FLOAT16},
    {"I8", 8, TRM_INT8},
    {"U8", 8, TRM_UINT8},
    {"I32", 32, TRM_INT32},
    {"I64", 64, TRM_INT64},
    {"BOOL", 8, TRM_DTYPE_NONE},
    {"I16", 16, TRM_DTYPE_NONE},
    {"U16", 16, TRM_DTYPE_NONE},
    {"U32", 32, TRM_DTYPE_NONE},
    {"U64", 64, TRM_DTYPE_NONE},
    {"C64", 64, TRM_DTYPE_NONE},
    {"F4", 4, TRM_DTYPE_NONE},
    {"F6_E2M3", 6, TRM_DTYPE_NONE},
    {"F6_E3M2", 6, TRM_DTYPE_NONE},
    {"F8_E5M2", 8, TRM_DTYPE_NONE},
    {"F8_E4M3", 8, TRM_DTYPE_NONE},
    {"F8_E8M0", 8, TRM_DTYPE_NONE},
    {"F8_E4M3FNUZ", 8, TRM_DTYPE_NONE},
    {"F8_E5M2FNUZ", 8, TRM_DTYPE_NONE},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

/* An open file. */
struct trm_safetensors {
    trmi_mapping mapping;                      /* data == NULL: the bytes are borrowed */
    const uint8_t *bytes;                      /* the whole file */
    size_t size;                               /* length of the file */
    char *path;                                /* for messages */
    char *strings;                             /* the unescaped strings of the header */
    trm_safetensors_entry *entries;            /* [count] in the order of the data */
    int64_t count, entry_capacity;             /* length and capacity of `entries` */
    int64_t *dims;                             /* shapes of all tensors, one after the other */
    int64_t dim_count, dim_capacity;           /* length and capacity of `dims` */
    trm_text_pair *metadata;                   /* [metadata_count] sorted by key */
    int64_t metadata_count, metadata_capacity; /* length and capacity of `metadata` */
    trmi_name_index names;
};

/* ---- the header ------------------------------------------------------------------------ */

/* Reads a shape. The dimensions go to file->dims, because the entry has no room for more than
 * TRM_MAX_RANK of them. */
static bool take_shape(trm_safetensors *file, trmi_json *json, trm_safetensors_entry *entry) {
    entry->offset = file->dim_count; /* index of its dims, until that array no longer moves */
    if (!trmi_json_take(json, '[')) {
        return false;
    }
    while (!trmi_json_peek(json, ']')) {
        if (entry->rank > 0 && !trmi_json_take(json, ',')) {
            return false;
        }
        int64_t dim;
        if (!trmi_json_uint(json, &dim)) {
            return false;
        }
        if (entry->rank == TRMI_SAFETENSORS_RANK_MAX) {
            return trmi_json_fault(json, "more than 64 dimensions");
        }
        if (!trmi_grow((void **)&file->dims, &file->dim_capacity, file->dim_count + 1,
                       sizeof *file->dims)) {
            return trmi_json_fault(json, "no memory");
        }
        file->dims[file->dim_count++] = dim;
        entry->rank++;
    }
    return trmi_json_take(json, ']');
}

/* Reads "data_offsets": [begin, end]. */
static bool take_offsets(trmi_json *json, int64_t *begin, int64_t *end) {
    return trmi_json_take(json, '[') && trmi_json_uint(json, begin) && trmi_json_take(json, ',') &&
           trmi_json_uint(json, end) && trmi_json_take(json, ']');
}

/* Reads a type. */
static bool take_dtype(trmi_json *json, trm_safetensors_entry *entry) {
    const char *word = trmi_json_string(json);
    for (int i = 0; word != NULL && i < DTYPE_COUNT; i++) {
        if (strcmp(word, dtypes[i].word) == 0) {
            entry->dtype = dtypes[i].word;
            entry->tensor.dtype = dtypes[i].dtype;
            return true;
        }
    }
    return trmi_json_fault(json, "an unknown dtype");
}

/* Returns the bits of an element; `word` points into `dtypes`. */
static int dtype_bits(const char *word) {
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (dtypes[i].word == word) {
            return dtypes[i].bits;
        }
    }
    return 0;
}

/* Checks that end - begin is what shape and type require, without overflow. */
static bool check_bytes(const trm_safetensors *file, trmi_json *json, trm_safetensors_entry *entry,
                        int64_t begin, int64_t end) {
    int64_t bits = dtype_bits(entry->dtype);
    for (int32_t i = 0; i < entry->rank; i++) {
        if (!trmi_mul_i64(bits, file->dims[entry->offset + i], &bits)) {
            return trmi_json_fault(json, "a shape too large");
        }
    }
    if (bits % 8 != 0) {
        return trmi_json_fault(json, "a shape that does not fill whole bytes");
    }
    if (end < begin || end - begin != bits / 8) {
        return trmi_json_fault(json, "data_offsets that do not agree with shape and dtype");
    }
    entry->bytes = bits / 8;
    return true;
}

/* Reads the entry of one tensor: dtype, shape and data_offsets, in any order, and checks that they
 * fit together. Pointers are set later, by place_data, because the arrays may still move. */
static bool take_entry(trm_safetensors *file, trmi_json *json, const char *name) {
    if (file->count == TRMI_SAFETENSORS_ENTRIES_MAX) {
        return trmi_json_fault(json, "more than a million tensors");
    }
    if (!trmi_grow((void **)&file->entries, &file->entry_capacity, file->count + 1,
                   sizeof *file->entries)) {
        return trmi_json_fault(json, "no memory");
    }
    trm_safetensors_entry *entry = &file->entries[file->count];
    *entry = (trm_safetensors_entry){.name = name};
    int64_t begin = 0, end = 0;
    bool have_shape = false, have_offsets = false;
    if (!trmi_json_take(json, '{')) {
        return false;
    }
    /* Exactly three members, in any order. */
    for (int i = 0; i < 3; i++) {
        if (i > 0 && !trmi_json_take(json, ',')) {
            return false;
        }
        const char *key = trmi_json_string(json);
        if (key == NULL || !trmi_json_take(json, ':')) {
            return false;
        }
        bool ok;
        if (strcmp(key, "dtype") == 0 && entry->dtype == NULL) {
            ok = take_dtype(json, entry);
        } else if (strcmp(key, "shape") == 0 && !have_shape) {
            ok = have_shape = take_shape(file, json, entry);
        } else if (strcmp(key, "data_offsets") == 0 && !have_offsets) {
            ok = have_offsets = take_offsets(json, &begin, &end);
        } else {
            ok = trmi_json_fault(json, "dtype, shape and data_offsets expected, once each");
        }
        if (!ok) {
            return false;
        }
    }
    if (!trmi_json_take(json, '}') || !check_bytes(file, json, entry, begin, end)) {
        return false;
    }
    entry->dims = NULL;
    entry->tensor.data = NULL;
    /* Until place_data, shape.dim[0] holds the index of the dims, and offset the start of the
     * data. */
    entry->tensor.shape.dim[0] = entry->offset;
    entry->offset = begin;
    file->count++;
    return true;
}

/* Reads __metadata__: pairs of strings, which stay in file->strings. */
static bool take_metadata(trm_safetensors *file, trmi_json *json) {
    if (!trmi_json_take(json, '{')) {
        return false;
    }
    while (!trmi_json_peek(json, '}')) {
        if (file->metadata_count > 0 && !trmi_json_take(json, ',')) {
            return false;
        }
        trm_text_pair pair = {.key = trmi_json_string(json)};
        if (pair.key == NULL || !trmi_json_take(json, ':')) {
            return false;
        }
        pair.value = trmi_json_string(json);
        if (pair.value == NULL) {
            return false;
        }
        if (file->metadata_count == TRMI_SAFETENSORS_ENTRIES_MAX ||
            !trmi_grow((void **)&file->metadata, &file->metadata_capacity, file->metadata_count + 1,
                       sizeof *file->metadata)) {
            return trmi_json_fault(json, "too much metadata");
        }
        file->metadata[file->metadata_count++] = pair;
    }
    return trmi_json_take(json, '}');
}

/* Reads the whole header, which must have nothing but blanks after its last brace. Returns false
 * with the fault in `json`. */
static bool take_header(trm_safetensors *file, trmi_json *json) {
    bool have_metadata = false;
    if (!trmi_json_take(json, '{')) {
        return false;
    }
    for (bool first = true; !trmi_json_peek(json, '}'); first = false) {
        if (!first && !trmi_json_take(json, ',')) {
            return false;
        }
        const char *name = trmi_json_string(json);
        if (name == NULL || !trmi_json_take(json, ':')) {
            return false;
        }
        /* Read a tensor, or the metadata (once). */
        if (strcmp(name, "__metadata__") != 0) {
            if (!take_entry(file, json, name)) {
                return false;
            }
        } else if (have_metadata) {
            return trmi_json_fault(json, "__metadata__ twice");
        } else {
            have_metadata = true;
            if (!take_metadata(file, json)) {
                return false;
            }
        }
    }
    return trmi_json_take(json, '}') && trmi_json_end(json);
}

/* ---- the data -------------------------------------------------------------------------- */

/* Sorts entries by position; empty tensors come before the one that begins at the same place. */
static int by_offset(const void *a, const void *b) {
    const trm_safetensors_entry *x = a, *y = b;
    int64_t x_end = x->offset + x->bytes, y_end = y->offset + y->bytes;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
           : x_end != y_end       ? (x_end < y_end ? -1 : 1)
                                  : strcmp(x->name, y->name);
}

/* Compares metadata by key. */
static int pair_order(const void *a, const void *b) {
    return strcmp(((const trm_text_pair *)a)->key, ((const trm_text_pair *)b)->key);
}

/* Checks that every byte after the header belongs to exactly one tensor, and completes the
 * entries. */
static trm_status place_data(trm_safetensors *file, int64_t data_start, trm_error *err) {
    const char *path = trmi_path_tail(file->path);
    int64_t available = (int64_t)file->size - data_start, next = 0;
    /* In the order of their positions, each tensor must begin where the one before it ends. */
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, by_offset);
    for (int64_t i = 0; i < file->count; i++) {
        trm_safetensors_entry *entry = &file->entries[i];
        if (entry->offset != next) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "%s: tensor %.60s begins at data offset %" PRId64 ", %" PRId64
                             " expected (a hole or an overlap)",
                             path, entry->name, entry->offset, next);
        }
        if (entry->bytes > available - next) {
            return TRMI_FAIL(err, TRM_CORRUPT,
                             "%s: tensor %.60s ends at data offset %" PRId64
                             ", the file at %" PRId64 " (cut off?)",
                             path, entry->name, next + entry->bytes, available);
        }
        next += entry->bytes;
        /* The arrays no longer move: replace indices by pointers. */
        entry->dims = file->dims + entry->tensor.shape.dim[0];
        entry->offset += data_start;
        entry->tensor.data = (void *)(uintptr_t)(file->bytes + entry->offset);
        entry->tensor.shape.dim[0] = 0;
        /* more dimensions than trireme has: the tensor can be listed only */
        if (entry->rank > TRM_MAX_RANK) {
            entry->tensor.dtype = TRM_DTYPE_NONE;
        }
        if (entry->tensor.dtype != TRM_DTYPE_NONE) {
            entry->tensor.shape = trm_shape_make(entry->rank, entry->dims);
        }
    }
    if (next != available) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: %" PRId64 " bytes of data, %" PRId64 " belong to tensors", path,
                         available, next);
    }
    return TRM_OK;
}

/* Indexes the tensors by name, sorts the metadata by key, and refuses duplicates of both. */
static trm_status index_names(trm_safetensors *file, trm_error *err) {
    file->names.count = file->count;
    TRMI_TRY(trmi_name_index_make(&file->names, file->entries, sizeof *file->entries, "tensors",
                                  trmi_path_tail(file->path), err));
    if (file->metadata_count > 0) {
        qsort(file->metadata, (size_t)file->metadata_count, sizeof *file->metadata, pair_order);
    }
    for (int64_t i = 1; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i - 1].key, file->metadata[i].key) == 0) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: metadata has %.80s twice",
                             trmi_path_tail(file->path), file->metadata[i].key);
        }
    }
    return TRM_OK;
}

/* Parses the file: length of the header, header, ranges of the data, names.
 *   errors  CORRUPT, NOMEM; the caller frees what has been allocated */
static trm_status parse_file(trm_safetensors *file, trm_error *err) {
    const char *path = trmi_path_tail(file->path);
    uint64_t length = 0;
    /* Read the length of the header. */
    if (file->size < 8) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: %zu bytes, a safetensors file has at least 10",
                         path, file->size);
    }
    length = trmi_get64(file->bytes);
    if (length > TRMI_SAFETENSORS_HEADER_MAX || length > file->size - 8) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: a header of %" PRIu64 " bytes, at most %zu "
                         "expected: the file is damaged or no safetensors file",
                         path, length,
                         file->size - 8 < TRMI_SAFETENSORS_HEADER_MAX
                             ? file->size - 8
                             : (size_t)TRMI_SAFETENSORS_HEADER_MAX);
    }
    file->strings = trmi_alloc((size_t)length + 1);
    if (file->strings == NULL) {
        return TRMI_NO_MEMORY(err, "for the header of %s", path);
    }
    /* The header, and then the data that it describes. */
    trmi_json json = {
        .text = (const char *)file->bytes + 8, .bytes = (size_t)length, .strings = file->strings};
    if (!take_header(file, &json)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: header, offset %zu: %s", path, 8 + json.fault_at,
                         json.fault);
    }
    if (file->count > 0) { /* qsort requires an array, even for no elements */
        TRMI_TRY(place_data(file, 8 + (int64_t)length, err));
    } else if (file->size != 8 + length) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: %zu bytes of data that belong to no tensor", path,
                         (size_t)(file->size - 8 - length));
    }
    return index_names(file, err);
}

/* ---- open and get ----------------------------------------------------------------------- */

/* Contract in safetensors.h. `data` must stay as long as the result: tensors point into it. */
trm_status trmi_safetensors_parse(const uint8_t *data, size_t bytes, const char *path,
                                  trm_safetensors **out, trm_error *err) {
    trm_safetensors *file = trmi_alloc(sizeof *file);
    char *copy = trmi_alloc(strlen(path) + 1);
    if (file == NULL || copy == NULL) {
        trmi_free(file);
        trmi_free(copy);
        return TRMI_NO_MEMORY(err, "to open %s", trmi_path_tail(path));
    }
    memcpy(copy, path, strlen(path) + 1);
    *file = (trm_safetensors){.bytes = data, .size = bytes, .path = copy};
    trm_status status = parse_file(file, err);
    if (status != TRM_OK) {
        trm_safetensors_close(file);
        return status;
    }
    *out = file;
    return TRM_OK;
}

/* Contract in trireme/io.h. Only the header is read now; pages of data are read when they are
 * used. */
trm_status trm_safetensors_open(const char *path, trm_safetensors **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    trmi_mapping mapping;
    TRMI_TRY(trmi_mapping_open(path, &mapping, err));
    trm_safetensors *file = NULL;
    trm_status parsed = trmi_safetensors_parse(mapping.data, mapping.bytes, path, &file, err);
    /* a page that could not be read makes the result invalid */
    trm_status status = trmi_mapping_check(&mapping, parsed, err);
    if (status != TRM_OK) {
        trm_safetensors_close(parsed == TRM_OK ? file : NULL);
        trmi_mapping_close(&mapping);
        return status;
    }
    file->mapping = mapping;
    *out = file;
    return TRM_OK;
}

/* Contract in trireme/io.h. All tensors of the file are invalid afterwards. */
void trm_safetensors_close(trm_safetensors *file) {
    if (file == NULL) {
        return;
    }
    trmi_mapping_close(&file->mapping);
    trmi_free(file->path);
    trmi_free(file->strings);
    trmi_free(file->entries);
    trmi_free(file->dims);
    trmi_free(file->metadata);
    trmi_name_index_free(&file->names);
    trmi_free(file);
}

int64_t trm_safetensors_count(const trm_safetensors *file) {
    TRMI_NEED_OR(0, NULL, file);
    return file->count;
}

const trm_safetensors_entry *trm_safetensors_at(const trm_safetensors *file, int64_t index) {
    TRMI_NEED_OR(NULL, NULL, file);
    return index >= 0 && index < file->count ? &file->entries[index] : NULL;
}

const trm_safetensors_entry *trm_safetensors_find(const trm_safetensors *file, const char *name) {
    TRMI_NEED_OR(NULL, NULL, file, name);
    return trmi_name_index_find(&file->names, name);
}

int64_t trm_safetensors_metadata_count(const trm_safetensors *file) {
    TRMI_NEED_OR(0, NULL, file);
    return file->metadata_count;
}

trm_text_pair trm_safetensors_metadata_at(const trm_safetensors *file, int64_t index) {
    TRMI_NEED_OR((trm_text_pair){0}, NULL, file);
    return index >= 0 && index < file->metadata_count ? file->metadata[index] : (trm_text_pair){0};
}

const char *trm_safetensors_metadata(const trm_safetensors *file, const char *key) {
    TRMI_NEED_OR(NULL, NULL, file, key);
    for (int64_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0) {
            return file->metadata[i].value;
        }
    }
    return NULL;
}

/* ---- reading with conversion ----------------------------------------------------------- */

/* Loads an element of any float type. */
static double load_float(const uint8_t *from, trm_dtype dtype) {
    uint16_t half;
    float single;
    double wide;
    switch (dtype) {
    case TRM_FLOAT64: memcpy(&wide, from, sizeof wide); return wide;
    case TRM_FLOAT32: memcpy(&single, from, sizeof single); return (double)single;
    default:
        memcpy(&half, from, sizeof half);
        return (double)(dtype == TRM_BFLOAT16 ? trmi_bf16_to_float(half) : trmi_f16_to_float(half));
    }
}

/* Converts to float with rounding to odd. A double that is stored as a 16-bit float goes through
 * float, and rounding to odd makes the two roundings give the result of a single one (Boldo and
 * Melquiond, 2008). */
static float to_odd_float(double value) {
    float near = (float)value;
    uint32_t bits;
    memcpy(&bits, &near, sizeof bits);
    if ((double)near != value && near - near == 0 && (bits & 1) == 0) {
        bool away = near < 0 ? (double)near < value : (double)near > value;
        bits = away ? bits - 1 : bits + 1;
        memcpy(&near, &bits, sizeof near);
    }
    return near;
}

/* Stores an element of any float type. */
static void store_float(uint8_t *to, trm_dtype dtype, double value) {
    float single = (float)value;
    uint16_t half;
    switch (dtype) {
    case TRM_FLOAT64: memcpy(to, &value, sizeof value); return;
    case TRM_FLOAT32: memcpy(to, &single, sizeof single); return;
    default:
        single = to_odd_float(value);
        half = dtype == TRM_BFLOAT16 ? trmi_float_to_bf16(single) : trmi_float_to_f16(single);
        memcpy(to, &half, sizeof half);
    }
}

/* Contract in trireme/io.h. */
trm_status trm_safetensors_read(const trm_safetensors *file, const char *name,
                                const trm_tensor *into, trm_error *err) {
    TRMI_NEED(err, file, name, into);
    const char *path = trmi_path_tail(file->path);
    const trm_safetensors_entry *entry = trm_safetensors_find(file, name);
    if (entry == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no tensor %.80s", path, name);
    }
    const trm_tensor *from = &entry->tensor;
    bool converts = trmi_dtype_is_float(from->dtype) && trmi_dtype_is_float(into->dtype);
    if (from->dtype == TRM_DTYPE_NONE || (from->dtype != into->dtype && !converts)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: tensor %.60s is %s, %s expected", path, name,
                         entry->dtype, trm_dtype_name(into->dtype));
    }
    if (!trm_shape_equal(&from->shape, &into->shape)) {
        char theirs[48], ours[48];
        return TRMI_FAIL(err, TRM_INVALID, "%s: tensor %.60s is %s, %s expected", path, name,
                         trm_shape_format(&from->shape, theirs, sizeof theirs),
                         trm_shape_format(&into->shape, ours, sizeof ours));
    }
    /* An empty tensor may have no data to copy from. */
    if (entry->bytes == 0) {
        return TRM_OK;
    }
    /* Copy values of the same type; convert each element of another float type. */
    if (from->dtype == into->dtype) {
        memcpy(into->data, from->data, (size_t)entry->bytes);
        return trmi_mapping_check(&file->mapping, TRM_OK, err);
    }
    size_t from_bytes = trm_dtype_bytes(from->dtype), into_bytes = trm_dtype_bytes(into->dtype);
    int64_t count = trm_shape_count(&from->shape);
    for (int64_t i = 0; i < count; i++) {
        store_float((uint8_t *)into->data + (size_t)i * into_bytes, into->dtype,
                    load_float((const uint8_t *)from->data + (size_t)i * from_bytes, from->dtype));
    }
    return trmi_mapping_check(&file->mapping, TRM_OK, err);
}
