/* SPDX-License-Identifier: Apache-2.0 */
/* Writing safetensors files.
 *
 *   8 bytes: length of the header | header, JSON, padded with blanks | data of all tensors
 *
 * As the reference implementation does, tensors are ordered by element size (largest first) and
 * then by name, so that all of them are aligned and equal input gives an equal file. The layout is
 * computed before anything is written, so the length of the file is known in advance. Format:
 * https://github.com/huggingface/safetensors */
#include "save/formats/safetensors.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format/report.h"
#include "base/format/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the files are little-endian and so far every machine that we run on");

/* rows of a tensor without data are read and written in pieces of this size */
enum { PIECE_BYTES = 4 << 20 };

/* Returns the format's name of a type, or NULL. */
static const char *find_dtype_word(trm_dtype dtype) {
    switch (dtype) {
    case TRM_FLOAT32: return "F32";
    case TRM_FLOAT64: return "F64";
    case TRM_BFLOAT16: return "BF16";
    case TRM_FLOAT16: return "F16";
    case TRM_INT8: return "I8";
    case TRM_UINT8: return "U8";
    case TRM_INT32: return "I32";
    case TRM_INT64: return "I64";
    case TRM_DTYPE_NONE: break;
    }
    return NULL;
}

/* Checks that a name is UTF-8. */
static trm_status check_name(const char *path, const char *name, trm_error *err) {
    if (name == NULL || !trmi_utf8_valid(name, strlen(name))) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: a name that is not UTF-8", trmi_path_tail(path));
    }
    return TRM_OK;
}

/* Checks name, type, size and data of a tensor. reads: tensors without data are allowed, because
 * layout->read supplies them.
 *   errors  INVALID */
static trm_status check_tensor(const char *path, const trm_named_tensor *named, bool reads,
                               trm_error *err) {
    const trm_tensor *tensor = &named->tensor;
    TRMI_TRY(check_name(path, named->name, err));
    if (strcmp(named->name, "__metadata__") == 0) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no tensor can be called __metadata__",
                         trmi_path_tail(path));
    }
    if (find_dtype_word(tensor->dtype) == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: tensor %.60s has dtype %d, which does not exist",
                         trmi_path_tail(path), named->name, (int)tensor->dtype);
    }
    /* Count size and data. */
    bool has_size = tensor->shape.rank >= 0 && tensor->shape.rank <= TRM_MAX_RANK &&
                    trm_tensor_bytes(tensor) >= 0;
    bool has_data = tensor->data != NULL || (reads && tensor->shape.rank > 0);
    if (!has_size || (!has_data && trm_tensor_bytes(tensor) > 0)) {
        char text[64];
        return TRMI_FAIL(err, TRM_INVALID, "%s: tensor %.60s %s has no data or no size",
                         trmi_path_tail(path), named->name,
                         trm_shape_format(&tensor->shape, text, sizeof text));
    }
    return TRM_OK;
}

/* The key by which tensors are sorted. */
typedef struct sort_key {
    const char *name; /* borrowed */
    size_t width;     /* bytes of an element */
    int64_t index;    /* of the tensor in the caller's list */
} sort_key;

/* Compares by name, to find names that occur twice. */
static int compare_names(const void *a, const void *b) {
    return strcmp(((const sort_key *)a)->name, ((const sort_key *)b)->name);
}

/* Compares in the order of the file. */
static int compare_widths_then_names(const void *a, const void *b) {
    const sort_key *x = a, *y = b;
    return x->width != y->width ? (x->width > y->width ? -1 : 1) : strcmp(x->name, y->name);
}

/* Computes layout->order (element size, then name) and refuses duplicate names.
 *   errors  INVALID, NOMEM */
static trm_status sort_tensors(trmi_safetensors_layout *layout, const char *path,
                               const trm_named_tensor *tensors, trm_error *err) {
    int64_t count = layout->count;
    sort_key *keys = trmi_alloc((size_t)count * sizeof *keys);
    layout->order = trmi_alloc((size_t)count * sizeof *layout->order);
    if (keys == NULL || layout->order == NULL) {
        trmi_free(keys);
        return TRMI_NO_MEMORY(err, "to order %" PRId64 " tensors of %s", count,
                              trmi_path_tail(path));
    }
    /* Sort by name to find duplicates, then in the order of the file. */
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count; i++) {
        keys[i] = (sort_key){tensors[i].name, trm_dtype_bytes(tensors[i].tensor.dtype), i};
    }
    qsort(keys, (size_t)count, sizeof *keys, compare_names);
    for (int64_t i = 1; i < count && status == TRM_OK; i++) {
        if (strcmp(keys[i - 1].name, keys[i].name) == 0) {
            status = TRMI_FAIL(err, TRM_INVALID,
                               "%s: two tensors are called %.80s; each needs a name of its own",
                               trmi_path_tail(path), keys[i].name);
        }
    }
    /* wide elements first, so that each tensor is aligned to its elements */
    qsort(keys, (size_t)count, sizeof *keys, compare_widths_then_names);
    for (int64_t i = 0; i < count; i++) {
        layout->order[i] = keys[i].index;
    }
    trmi_free(keys);
    return status;
}

/* Puts __metadata__ into the header. */
static trm_status put_metadata(trmi_report *header, const char *path, const trm_text_pair *pairs,
                               int64_t count, trm_error *err) {
    trmi_report_open_object(header, "__metadata__");
    for (int64_t i = 0; i < count; i++) {
        TRMI_TRY(check_name(path, pairs[i].key, err));
        TRMI_TRY(check_name(path, pairs[i].value, err));
        /* Keys are few, so each is compared with all before it. */
        for (int64_t j = 0; j < i; j++) {
            if (strcmp(pairs[i].key, pairs[j].key) == 0) {
                return TRMI_FAIL(err, TRM_INVALID,
                                 "%s: two metadata values for %.80s; one for each key expected",
                                 trmi_path_tail(path), pairs[i].key);
            }
        }
        trmi_report_put(header, trmi_string(pairs[i].key, pairs[i].value));
    }
    trmi_report_close(header);
    return TRM_OK;
}

/* Puts the entries of all tensors into the header, in the order of the file; layout->bytes becomes
 * the length of the data.
 *   errors  INVALID (more than a file can hold) */
static trm_status put_entries(trmi_safetensors_layout *layout, trmi_report *header,
                              const char *path, const trm_named_tensor *tensors, trm_error *err) {
    int64_t begin = 0;
    for (int64_t i = 0; i < layout->count; i++) {
        const trm_named_tensor *named = &tensors[layout->order[i]];
        /* The next range of the data, without overflow. */
        int64_t end;
        if (!trmi_add_i64(begin, trm_tensor_bytes(&named->tensor), &end) ||
            end > INT64_MAX - 2 * TRMI_SAFETENSORS_HEADER_MAX) {
            return TRMI_FAIL(err, TRM_INVALID, "%s: more data than a file can hold",
                             trmi_path_tail(path));
        }
        /* Write name, type, shape, range. */
        trmi_report_open_object(header, named->name);
        trmi_report_put(header, trmi_string("dtype", find_dtype_word(named->tensor.dtype)));
        trmi_report_open_array(header, "shape");
        for (int32_t d = 0; d < named->tensor.shape.rank; d++) {
            trmi_report_put(header, trmi_int(NULL, named->tensor.shape.dim[d]));
        }
        trmi_report_close(header);
        trmi_report_open_array(header, "data_offsets");
        trmi_report_put(header, trmi_int(NULL, begin), trmi_int(NULL, end));
        trmi_report_close(header);
        trmi_report_close(header);
        begin = end;
    }
    layout->bytes = begin;
    return TRM_OK;
}

/* Contract in safetensors.h. Tensors are sorted by the size of their elements, so that each begins
 * at a multiple of it. */
trm_status trmi_safetensors_lay_out(trmi_safetensors_layout *layout, const char *path,
                                    const trm_named_tensor *tensors, int64_t count,
                                    const trm_text_pair *metadata, int64_t metadata_count,
                                    trm_error *err) {
    *layout = (trmi_safetensors_layout){
        .count = count, .read = layout->read, .read_context = layout->read_context};
    if (count < 0 || count > TRMI_SAFETENSORS_ENTRIES_MAX) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: %" PRId64 " tensors, at most %d expected",
                         trmi_path_tail(path), count, TRMI_SAFETENSORS_ENTRIES_MAX);
    }
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count; i++) {
        TRMI_TRY(check_tensor(path, &tensors[i], layout->read != NULL, err));
    }
    TRMI_TRY_GOTO(status, sort_tensors(layout, path, tensors, err), failed);
    /* Write the header: metadata, entries, blanks. */
    trmi_text *header = &layout->header;
    trmi_report r;
    trmi_report_begin_json(&r, header);
    r.foreign = true; /* names are the caller's */
    if (metadata_count > 0) {
        TRMI_TRY_GOTO(status, put_metadata(&r, path, metadata, metadata_count, err), failed);
    }
    TRMI_TRY_GOTO(status, put_entries(layout, &r, path, tensors, err), failed);
    (void)trmi_report_end(&r);
    /* The data begin at a multiple of 8. */
    while (header->length % 8 != 0 && !header->failed) {
        trmi_text_append(header, " ", 1);
    }
    if (header->failed) {
        status = TRMI_NO_MEMORY(err, "for the header of %s", trmi_path_tail(path));
    } else if (header->length > TRMI_SAFETENSORS_HEADER_MAX) {
        status = TRMI_FAIL(err, TRM_INVALID, "%s: the header takes %zu bytes, at most %d allowed",
                           trmi_path_tail(path), header->length, TRMI_SAFETENSORS_HEADER_MAX);
    }
    /* Write the whole file: length, header, data. */
    if (status == TRM_OK) {
        layout->bytes += 8 + (int64_t)header->length;
        return TRM_OK;
    }
failed:
    trmi_safetensors_layout_free(layout);
    return status;
}

/* Writes a tensor without data: reads it piece by piece through layout->read. */
static trm_status put_rows(const trmi_safetensors_layout *layout, const trm_named_tensor *named,
                           trmi_file_out *out, trm_error *err) {
    const trm_tensor *tensor = &named->tensor;
    /* A tensor with data to write has rows, and each has bytes. */
    int64_t rows = tensor->shape.dim[0], row_bytes = trm_tensor_bytes(tensor) / rows;
    int64_t piece_rows = trmi_max_i64(PIECE_BYTES / row_bytes, 1);
    void *piece = trmi_alloc((size_t)(piece_rows * row_bytes));
    if (piece == NULL) {
        return TRMI_NO_MEMORY(err, "for %" PRId64 " rows of tensor %.60s", piece_rows, named->name);
    }
    trm_status status = TRM_OK;
    for (int64_t first = 0; status == TRM_OK && first < rows; first += piece_rows) {
        int64_t count = trmi_min_i64(rows - first, piece_rows);
        status = layout->read(layout->read_context, named, first, count, piece, err);
        status = status == TRM_OK
                     ? trmi_file_out_write(out, piece, (size_t)(count * row_bytes), err)
                     : status;
    }
    trmi_free(piece);
    return status;
}

/* Contract in safetensors.h. A tensor without data is read piece by piece through layout->read, so
 * that converted weights need no second copy. */
trm_status trmi_safetensors_put(const trmi_safetensors_layout *layout,
                                const trm_named_tensor *tensors, trmi_file_out *out,
                                trm_error *err) {
    /* Write length and header, then the data in the order of the header. */
    uint64_t length = layout->header.length;
    TRMI_TRY(trmi_file_out_write(out, &length, sizeof length, err));
    TRMI_TRY(trmi_file_out_write(out, layout->header.data, layout->header.length, err));
    for (int64_t i = 0; i < layout->count; i++) {
        const trm_named_tensor *named = &tensors[layout->order[i]];
        int64_t bytes = trm_tensor_bytes(&named->tensor);
        TRMI_TRY(named->tensor.data == NULL && bytes > 0
                     ? put_rows(layout, named, out, err)
                     : trmi_file_out_write(out, named->tensor.data, (size_t)bytes, err));
    }
    return TRM_OK;
}

void trmi_safetensors_layout_free(trmi_safetensors_layout *layout) {
    trmi_text_free(&layout->header);
    trmi_free(layout->order);
    *layout = (trmi_safetensors_layout){0};
}

trm_status trm_safetensors_write(const char *path, const trm_named_tensor *tensors, int64_t count,
                                 const trm_text_pair *metadata, int64_t metadata_count,
                                 trm_error *err) {
    TRMI_NEED(err, path);
    if (count > 0) {
        TRMI_NEED(err, tensors);
    }
    trmi_safetensors_layout layout = {0};
    TRMI_TRY(
        trmi_safetensors_lay_out(&layout, path, tensors, count, metadata, metadata_count, err));
    trmi_file_out out;
    /* The file replaces an older one only when it is complete. */
    trm_status status = trmi_file_out_open_replacing(&out, NULL, path, err);
    if (status == TRM_OK) {
        status = trmi_safetensors_put(&layout, tensors, &out, err);
        if (status == TRM_OK) {
            status = trmi_file_out_close(&out, err);
        } else {
            trmi_file_out_abort(&out);
        }
    }
    trmi_safetensors_layout_free(&layout);
    return status;
}
