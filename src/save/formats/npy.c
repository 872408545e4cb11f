/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's array files: the header is a Python dict, which a small parser of exactly that form
 * reads. Pickled objects are refused, because reading a pickle executes code.
 *
 *   \x93NUMPY | version, 2 bytes | length of the dict, 2 or 4 bytes | dict, blanks, newline | data
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * Source: the documentation of numpy.lib.format. */
#include "save/formats/npy.h"

#include "base/arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/format/half.h"
#include "save/file_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- types ----------------------------------------------------------------------------- */

/* NumPy's types and their equivalents. TRM_DTYPE_NONE marks types that can be listed but not
 * read. */
static const struct {
    char descr[4]; /* without the byte order */
    int64_t bytes;
    trm_dtype dtype;
} types[] = {{"f4", 4, TRM_FLOAT32},    {"f8", 8, TRM_FLOAT64},     {"f2", 2, TRM_FLOAT16},
             {"i1", 1, TRM_INT8},       {"u1", 1, TRM_UINT8},       {"i4", 4, TRM_INT32},
             {"i8", 8, TRM_INT64},      {"b1", 1, TRM_DTYPE_NONE},  {"i2", 2, TRM_DTYPE_NONE},
             {"u2", 2, TRM_DTYPE_NONE}, {"u4", 4, TRM_DTYPE_NONE},  {"u8", 8, TRM_DTYPE_NONE},
             {"c8", 8, TRM_DTYPE_NONE}, {"c16", 16, TRM_DTYPE_NONE}};
enum { TYPE_COUNT = sizeof types / sizeof types[0] };

/* Interprets a type. Refuses Python objects and big-endian numbers, with advice what to save
 * instead. */
static trm_status take_descr(const char *descr, const char *what, trmi_npy *out, trm_error *err) {
    if (strchr(descr, 'O') != NULL) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: an array of Python objects (a pickle), which is never read: save "
                         "numbers instead",
                         what);
    }
    if (descr[0] == '>') {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: big-endian (%s): save a.astype(a.dtype.newbyteorder('<'))", what,
                         descr);
    }
    for (int i = 0; i < TYPE_COUNT; i++) {
        if ((descr[0] == '<' || descr[0] == '|') && strcmp(descr + 1, types[i].descr) == 0) {
            snprintf(out->descr, sizeof out->descr, "%c%s", descr[0], types[i].descr);
            out->dtype = types[i].dtype;
            out->item_bytes = types[i].bytes;
            return TRM_OK;
        }
    }
    return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: type '%s' is not supported", what, descr);
}

/* ---- the dict -------------------------------------------------------------------------- */

/* A position in the text of the dict. */
typedef struct cursor {
    const char *text; /* the dict; not terminated */
    size_t bytes, at; /* length of the text; position */
} cursor;

/* Skips blanks, then consumes `word` if it is next. "" only skips blanks. */
static bool accept_word(cursor *c, const char *word) {
    while (c->at < c->bytes && (c->text[c->at] == ' ' || c->text[c->at] == '\n')) {
        c->at++;
    }
    size_t length = strlen(word);
    if (c->bytes - c->at < length || memcmp(c->text + c->at, word, length) != 0) {
        return false;
    }
    c->at += length;
    return true;
}

/* Consumes a string in single or double quotes and writes it to `out`, terminated. Returns false
 * for other input, and if it does not fit into `size` bytes. */
static bool take_string(cursor *c, char *out, size_t size) {
    char quote[2] = "'";
    if (!accept_word(c, quote)) {
        quote[0] = '"';
        if (!accept_word(c, quote)) {
            return false;
        }
    }
    /* Keys and types are printable ASCII, so escapes are not necessary. */
    for (size_t used = 0; c->at < c->bytes && used + 1 < size; used++) {
        char next = c->text[c->at++];
        if (next == quote[0]) {
            out[used] = '\0';
            return true;
        }
        if (next < ' ' || next > '~' || next == '\\') {
            return false;
        }
        out[used] = next;
    }
    return false;
}

/* Consumes a decimal number. */
static bool take_number(cursor *c, int64_t *out) {
    int64_t value = 0;
    accept_word(c, "");
    size_t start = c->at;
    while (c->at < c->bytes && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
        if (!trmi_mul_i64(value, 10, &value) ||
            !trmi_add_i64(value, c->text[c->at] - '0', &value)) {
            return false;
        }
        c->at++;
    }
    *out = value;
    return c->at > start;
}

/* Consumes a tuple of sizes into out->dims. */
static bool take_shape(cursor *c, trmi_npy *out) {
    if (!accept_word(c, "(")) {
        return false;
    }
    while (!accept_word(c, ")")) {
        if (out->rank == TRMI_NPY_RANK_MAX || !take_number(c, &out->dims[out->rank++])) {
            return false;
        }
        if (!accept_word(c, ",")) {
            return out->rank > 1 &&
                   accept_word(c, ")"); /* "(3)" is a number in Python, not a tuple */
        }
    }
    return true;
}

/* Consumes the dict. Returns false with the reason in `fault`; the cursor is then where it failed.
 * The type is returned as text in `descr`. */
static bool take_dict(cursor *c, trmi_npy *out, char *descr, size_t descr_size,
                      const char **fault) {
    bool have_descr = false, have_order = false, have_shape = false;
    *fault = "a dict of descr, fortran_order and shape expected";
    if (!accept_word(c, "{")) {
        return false;
    }
    /* Read the three keys in any order, each once. */
    while (!accept_word(c, "}")) {
        char key[16];
        if (!take_string(c, key, sizeof key) || !accept_word(c, ":")) {
            return false;
        }
        if (strcmp(key, "descr") == 0 && !have_descr) {
            have_descr = true;
            if (!take_string(c, descr, descr_size)) {
                *fault = "a simple type expected, no records";
                return false;
            }
        } else if (strcmp(key, "fortran_order") == 0 && !have_order) {
            have_order = true;
            out->fortran_order = accept_word(c, "True");
            if (!out->fortran_order && !accept_word(c, "False")) {
                return false;
            }
        } else if (strcmp(key, "shape") == 0 && !have_shape) {
            have_shape = true;
            if (!take_shape(c, out)) {
                *fault = "a tuple of at most 64 sizes expected";
                return false;
            }
        } else {
            return false;
        }
        /* A comma may follow the last pair, as NumPy writes it. */
        if (!accept_word(c, ",") && !(c->at < c->bytes && c->text[c->at] == '}')) {
            return false;
        }
    }
    accept_word(c, "");
    return have_descr && have_order && have_shape && c->at == c->bytes;
}

/* ---- reading --------------------------------------------------------------------------- */

bool trmi_npy_starts(const uint8_t *data, size_t bytes) {
    return bytes >= 8 && memcmp(data, "\x93NUMPY", 6) == 0;
}

/* Finds the dict: after 10 bytes in version 1, after 12 in versions 2 and 3. */
static trm_status find_dict(const uint8_t *data, size_t bytes, const char *what, cursor *out,
                            trm_error *err) {
    size_t head = data[6] == 1 ? 10 : 12;
    uint32_t length = 0;
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: version %d.%d of the .npy format, 1 to 3 known",
                         what, data[6], data[7]);
    }
    if (bytes >= head) {
        memcpy(&length, data + 8, head - 8);
    }
    if (bytes < head || length > bytes - head || length > TRMI_NPY_HEADER_MAX) {
        return TRMI_FAIL(
            err, TRM_CORRUPT,
            "%s: a header of %u bytes in a file of %zu; the file is cut off or damaged", what,
            length, bytes);
    }
    *out = (cursor){.text = (const char *)data + head, .bytes = length};
    return TRM_OK;
}

/* Contract in npy.h. The header is a Python dict; only the form that NumPy writes is accepted,
 * and the data must be exactly as long as it says. */
trm_status trmi_npy_parse(const uint8_t *data, size_t bytes, const char *what, trmi_npy *out,
                          trm_error *err) {
    trmi_npy array = {0};
    cursor c;
    char descr[32] = "";
    const char *fault;
    /* Read identification, dict, type. */
    if (!trmi_npy_starts(data, bytes)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: no .npy file: it does not begin with \\x93NUMPY",
                         what);
    }
    TRMI_TRY(find_dict(data, bytes, what, &c, err));
    if (!take_dict(&c, &array, descr, sizeof descr, &fault)) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: header, offset %zu: %s", what,
                         (size_t)((const uint8_t *)c.text - data) + c.at, fault);
    }
    TRMI_TRY(take_descr(descr, what, &array, err));
    /* The data must be exactly as long as shape and type require. */
    array.data_bytes = array.item_bytes;
    for (int32_t i = 0; i < array.rank; i++) {
        if (!trmi_mul_i64(array.data_bytes, array.dims[i], &array.data_bytes)) {
            return TRMI_FAIL(err, TRM_CORRUPT, "%s: a shape too large", what);
        }
    }
    array.data_offset = (const uint8_t *)c.text + c.bytes - data;
    if (array.data_bytes != (int64_t)bytes - array.data_offset) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: %" PRId64 " bytes of data, its shape and type take %" PRId64, what,
                         (int64_t)bytes - array.data_offset, array.data_bytes);
    }
    *out = array;
    return TRM_OK;
}

/* ---- writing --------------------------------------------------------------------------- */

/* Returns NumPy's type for an element type; bfloat16, which NumPy lacks, is written as float32. */
static const char *descr_of(trm_dtype dtype) {
    dtype = dtype == TRM_BFLOAT16 ? TRM_FLOAT32 : dtype;
    for (int i = 0; i < TYPE_COUNT; i++) {
        if (types[i].dtype == dtype && dtype != TRM_DTYPE_NONE) {
            return types[i].descr;
        }
    }
    return NULL;
}

int64_t trmi_npy_data_bytes(const trm_tensor *array) {
    int64_t bytes = trm_tensor_bytes(array);
    if (array->dtype == TRM_BFLOAT16 && bytes >= 0 && !trmi_mul_i64(bytes, 2, &bytes)) {
        return -1;
    }
    return bytes;
}

/* Contract in npy.h. Version 1.0, as NumPy writes it where it is enough: shapes here have at most
 * TRM_MAX_RANK dimensions, so 16 bits hold the length. */
trm_status trmi_npy_put_header(trmi_text *out, const trm_tensor *array, const char *what,
                               trm_error *err) {
    const char *descr = descr_of(array->dtype);
    int64_t bytes = trmi_npy_data_bytes(array);
    /* Type, shape and data must be such that the file can be read again. */
    if (descr == NULL || array->shape.rank < 0 || array->shape.rank > TRM_MAX_RANK || bytes < 0 ||
        (bytes > 0 && array->data == NULL)) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: an array without data, type or size", what);
    }
    /* The dict as NumPy writes it; a tuple of one size needs its comma. */
    trmi_text dict = {0};
    trmi_text_printf(&dict, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                     descr[1] == '1' ? '|' : '<', descr);
    for (int32_t i = 0; i < array->shape.rank; i++) {
        trmi_text_printf(&dict, "%s%" PRId64, i > 0 ? ", " : "", array->shape.dim[i]);
    }
    trmi_text_printf(&dict, "%s), }", array->shape.rank == 1 ? "," : "");
    /* pad so that the data begin at a multiple of 64 */
    while ((10 + dict.length + 1) % 64 != 0 && !dict.failed) {
        trmi_text_append(&dict, " ", 1);
    }
    trmi_text_append(&dict, "\n", 1);
    uint16_t length = (uint16_t)dict.length;
    trmi_text_append(out, "\x93NUMPY\x01\x00", 8);
    trmi_text_append(out, (const char *)&length, 2);
    trmi_text_append(out, dict.data, dict.length);
    bool failed = dict.failed || out->failed;
    trmi_text_free(&dict);
    return failed ? TRMI_NO_MEMORY(err, "for the header of %s", what) : TRM_OK;
}

/* Contract in npy.h. Data are passed on where they are; only bfloat16 needs a buffer. */
trm_status trmi_npy_stream(const trm_tensor *array, trmi_npy_take take, void *context,
                           trm_error *err) {
    int64_t bytes = trm_tensor_bytes(array);
    if (array->dtype != TRM_BFLOAT16) {
        return bytes > 0 ? take(context, array->data, (size_t)bytes, err) : TRM_OK;
    }
    /* NumPy has no bfloat16: convert to float, in pieces. */
    float wide[2048];
    int64_t count = bytes / 2;
    for (int64_t start = 0; start < count; start += 2048) {
        int64_t part = trmi_min_i64(2048, count - start);
        for (int64_t i = 0; i < part; i++) {
            wide[i] = trmi_bf16_to_float(((const uint16_t *)array->data)[start + i]);
        }
        TRMI_TRY(take(context, wide, (size_t)part * sizeof(float), err));
    }
    return TRM_OK;
}

/* Is a trmi_npy_take that writes to a file. */
static trm_status to_file(void *context, const void *data, size_t bytes, trm_error *err) {
    return trmi_file_out_write(context, data, bytes, err);
}

/* Contract in trireme/io.h. The file replaces an older one only when it is complete. */
trm_status trm_npy_write(const char *path, const trm_tensor *array, trm_error *err) {
    TRMI_NEED(err, path, array);
    trmi_text header = {0};
    trmi_file_out out;
    trm_status status = trmi_npy_put_header(&header, array, trmi_path_tail(path), err);
    TRMI_TRY_GOTO(status, status, done);
    TRMI_TRY_GOTO(status, trmi_file_out_open_replacing(&out, NULL, path, err), done);
    status = trmi_file_out_write(&out, header.data, header.length, err);
    if (status == TRM_OK) {
        status = trmi_npy_stream(array, to_file, &out, err);
    }
    if (status == TRM_OK) {
        status = trmi_file_out_close(&out, err);
    } else {
        trmi_file_out_abort(&out);
    }
done:
    trmi_text_free(&header);
    return status;
}
