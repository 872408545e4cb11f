/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tensors of ONNX. Their data are in one of three places:
 *
 *   raw_data        bytes of the model file, used in place
 *   typed field     numbers as protobuf encodes them, converted to an array in the arena
 *   external_data   a range of another file in the model's folder, which is mapped
 *
 * In each case the data must have exactly the size that type and shape require. A path that leaves
 * the folder, directly or through a link, is refused. */
#include "save/formats/onnx_reader.h"

#include "base/checked.h"
#include "base/error.h"
#include "save/path.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* A TensorProto while it is read. */
typedef struct tensor_parts {
    const char *name;           /* in the arena */
    const uint8_t *at;          /* its position in the file, for messages */
    uint64_t type;              /* a TensorProto.DataType */
    int64_t dims[TRM_MAX_RANK]; /* the first ones */
    int32_t rank;               /* may exceed TRM_MAX_RANK */
    int64_t count;              /* product of the dimensions */
    bool count_fits;            /* `count` has not overflowed */
    const uint8_t *raw;         /* the data, once they are found */
    size_t raw_bytes;           /* length of `raw` */
    bool has_raw;               /* the field raw_data is there */
    /* number of the field: 4 float, 5 int32, 7 int64, 10 double, 11 uint64; 0: none */
    uint32_t typed_field;
    bool external;                          /* data_location is EXTERNAL */
    const char *location, *offset, *length; /* external data: file, first byte, length, as texts */
} tensor_parts;

/* Adds a dimension. */
static void add_dim(tensor_parts *parts, uint64_t value) {
    if (parts->rank < TRM_MAX_RANK) {
        parts->dims[parts->rank] = (int64_t)value;
    }
    parts->rank++;
    parts->count_fits = parts->count_fits && (int64_t)value >= 0 &&
                        trmi_mul_i64(parts->count, (int64_t)value, &parts->count);
}

/* Reads a pair of external_data: location, offset or length, each as a text. */
static trm_status take_entry(const trmi_onnx_reader *r, const trmi_proto_field *entry,
                             tensor_parts *parts) {
    trmi_proto proto = trmi_proto_inside(entry);
    trmi_proto_field field;
    const char *key = "", *value = "";
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1) {
            TRMI_TRY(trmi_onnx_take_text(r, &field, &key));
        } else if (field.number == 2) {
            TRMI_TRY(trmi_onnx_take_text(r, &field, &value));
        }
    }
    TRMI_TRY(trmi_onnx_finish(r, &proto));
    /* Other keys, such as checksum, are not used. */
    if (strcmp(key, "location") == 0) {
        parts->location = value;
    } else if (strcmp(key, "offset") == 0) {
        parts->offset = value;
    } else if (strcmp(key, "length") == 0) {
        parts->length = value;
    }
    return TRM_OK;
}

/* Reads dimensions, packed or not. */
static trm_status take_dims(const trmi_onnx_reader *r, const trmi_proto_field *field,
                            tensor_parts *parts) {
    uint64_t value;
    if (field->wire == TRMI_PROTO_VARINT) {
        add_dim(parts, field->value);
        return TRM_OK;
    }
    trmi_proto packed = trmi_proto_inside(field);
    if (field->wire != TRMI_PROTO_BYTES) {
        return trmi_onnx_fault(r, parts->at, "dimensions that are no numbers");
    }
    while (trmi_proto_packed(&packed, &value)) {
        add_dim(parts, value);
    }
    return trmi_onnx_finish(r, &packed);
}

/* Reads one field of the tensor. Numbers in typed fields are read later, by take_typed. */
static trm_status take_tensor_field(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                    tensor_parts *parts) {
    /* 1 dims, 2 data_type, 4 to 7, 10, 11 typed data, 8 name, 9 raw_data, 13 external_data, 14
     * data_location */
    switch (field->number) {
    case 1: return take_dims(r, field, parts);
    case 2: parts->type = field->value; return TRM_OK;
    case 4:
    case 5:
    case 7:
    case 10:
    case 11:
        if (parts->typed_field != 0 && parts->typed_field != field->number) {
            return trmi_onnx_fault(r, parts->at, "a tensor with data of two kinds");
        }
        parts->typed_field = field->number;
        return TRM_OK;
    case 8: return trmi_onnx_take_text(r, field, &parts->name);
    case 9:
        if (field->wire != TRMI_PROTO_BYTES) {
            return trmi_onnx_fault(r, parts->at, "raw data that are no bytes");
        }
        parts->has_raw = true;
        parts->raw = field->data;
        parts->raw_bytes = field->bytes;
        return TRM_OK;
    case 13: TRMI_TRY(trmi_onnx_expect_message(r, field, 0)); return take_entry(r, field, parts);
    case 14: parts->external = field->value == 1; return TRM_OK;
    default: return TRM_OK;
    }
}

/* Parses decimal digits. Returns false for other texts and on overflow. */
static bool take_decimal(const char *text, int64_t *out) {
    int64_t value = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || !trmi_mul_i64(value, 10, &value) ||
            !trmi_add_i64(value, *c - '0', &value)) {
            return false;
        }
    }
    *out = value;
    return text[0] != '\0';
}

/* Returns true for paths like "weights.data" or "parts/1.bin", which cannot leave the model's
 * folder. */
static bool stays_inside(const char *location) {
    if (location[0] == '\0' || location[0] == '/' || strchr(location, '\\') != NULL) {
        return false;
    }
    for (const char *part = location; part != NULL;) {
        const char *slash = strchr(part, '/');
        size_t length = slash == NULL ? strlen(part) : (size_t)(slash - part);
        if (length == 0 || (part[0] == '.' && (length == 1 || (length == 2 && part[1] == '.')))) {
            return false;
        }
        part = slash == NULL ? NULL : slash + 1;
    }
    return true;
}

/* Checks that no part of the path is a symbolic link or a special file, because a link could leave
 * the folder. */
static trm_status check_no_links(const trmi_onnx_reader *r, const char *folder,
                                 const char *location) {
    char part[TRMI_PATH_BYTES], path[TRMI_PATH_BYTES];
    /* Check "a", then "a/b", then "a/b/c". */
    for (const char *slash = location; slash != NULL;) {
        slash = strchr(slash, '/');
        size_t length = slash == NULL ? strlen(location) : (size_t)(slash - location);
        slash = slash == NULL ? NULL : slash + 1;
        if (length >= sizeof part) {
            return TRMI_FAIL(r->err, TRM_INVALID, "%s: the path is too long",
                             trmi_path_tail(r->path));
        }
        memcpy(part, location, length);
        part[length] = '\0';
        struct stat info;
        TRMI_TRY(trmi_path_join(path, folder, part, r->err));
        if (lstat(path, &info) != 0) {
            return TRMI_FAIL_SYS(r->err, "%s: data in %.60s", trmi_path_tail(r->path), part);
        }
        if (!S_ISREG(info.st_mode) && (slash == NULL || !S_ISDIR(info.st_mode))) {
            return TRMI_FAIL(r->err, TRM_INVALID, "%s: data in %.60s, which is no plain file",
                             trmi_path_tail(r->path), part);
        }
    }
    return TRM_OK;
}

/* Maps the file `location` beside the model, or finds it among those that are mapped already. The
 * mapping belongs to the model.
 *   errors  INVALID (outside the folder, or no plain file), CORRUPT, NOMEM, IO */
static trm_status map_external(const trmi_onnx_reader *r, const char *location, trmi_mapping *out) {
    trmi_onnx_model *model = r->model;
    char folder[TRMI_PATH_BYTES], path[TRMI_PATH_BYTES];
    /* Mapped already: many weights are in one file. */
    for (int64_t i = 0; i < model->external_count; i++) {
        if (strcmp(model->external_names[i], location) == 0) {
            *out = model->external[i];
            return TRM_OK;
        }
    }
    if (!stays_inside(location)) {
        return TRMI_FAIL(r->err, TRM_INVALID,
                         "%s: data in '%.60s': only files beside the model are read",
                         trmi_path_tail(r->path), location);
    }
    if (model->external_count >= 4096) {
        return trmi_onnx_fault(r, r->start, "data in more than 4096 files");
    }
    /* Of a new file check the path, map it, remember its name. */
    trmi_path_parent(r->path, folder);
    TRMI_TRY(check_no_links(r, folder, location));
    TRMI_TRY(trmi_path_join(path, folder, location, r->err));
    if (!trmi_grow((void **)&model->external, &model->external_capacity, model->external_count + 1,
                   sizeof *model->external) ||
        !trmi_grow((void **)&model->external_names, &model->external_name_capacity,
                   model->external_count + 1, sizeof *model->external_names)) {
        return trmi_onnx_no_memory(r);
    }
    TRMI_TRY(trmi_mapping_open(path, &model->external[model->external_count], r->err));
    model->external_names[model->external_count] = location;
    *out = model->external[model->external_count++];
    return TRM_OK;
}

/* Finds external data of `bytes` bytes; the range must be inside the file. Sets parts->raw and
 * raw_bytes. */
static trm_status find_external(const trmi_onnx_reader *r, tensor_parts *parts, int64_t bytes) {
    int64_t offset = 0, length = bytes;
    trmi_mapping mapping;
    /* Without offset, the data begin at 0; without length, they have the size of the tensor. */
    if (parts->location == NULL || (parts->offset && !take_decimal(parts->offset, &offset)) ||
        (parts->length && !take_decimal(parts->length, &length)) || length != bytes) {
        return TRMI_FAIL(r->err, TRM_CORRUPT,
                         "%s: initialiser %.60s: its place in another file is not usable",
                         trmi_path_tail(r->path), parts->name);
    }
    TRMI_TRY(map_external(r, parts->location, &mapping));
    if (offset > (int64_t)mapping.bytes || length > (int64_t)mapping.bytes - offset) {
        return TRMI_FAIL(r->err, TRM_CORRUPT,
                         "%s: initialiser %.60s: %" PRId64 " bytes at %" PRId64 " of %.40s, which "
                         "has %zu",
                         trmi_path_tail(r->path), parts->name, length, offset, parts->location,
                         mapping.bytes);
    }
    parts->raw = mapping.data + offset;
    parts->raw_bytes = (size_t)length;
    return TRM_OK;
}

/* Numbers of a typed field, stored with the element size of the tensor's type. */
typedef struct typed_data {
    uint8_t *to;                     /* [count * item_bytes] */
    int64_t count, have, item_bytes; /* numbers expected, stored; bytes of one */
} typed_data;

/* Stores one number. Returns false if there are more than the shape has. */
static bool store_number(typed_data *data, uint64_t value) {
    if (data->have == data->count) {
        return false;
    }
    memcpy(data->to + data->have++ * data->item_bytes, &value, (size_t)data->item_bytes);
    return true;
}

/* Stores the numbers of one field: a single one, or packed ones of fixed or variable length. */
static bool store_field(typed_data *data, const trmi_proto_field *field) {
    if (field->wire != TRMI_PROTO_BYTES) {
        return store_number(data, field->value);
    }
    if (field->number == 4 || field->number == 10) { /* packed numbers of fixed length */
        size_t width = field->number == 4 ? 4 : 8;
        for (size_t at = 0; at + width <= field->bytes; at += width) {
            uint64_t value = 0;
            memcpy(&value, field->data + at, width);
            if (!store_number(data, value)) {
                return false;
            }
        }
        return field->bytes % width == 0;
    }
    /* packed varints */
    trmi_proto packed = trmi_proto_inside(field);
    uint64_t value;
    while (trmi_proto_packed(&packed, &value)) {
        if (!store_number(data, value)) {
            return false;
        }
    }
    return !packed.broken;
}

/* Returns the typed field that holds elements of this type. */
static uint32_t field_of_type(uint64_t type) {
    switch (type) {
    case 1:
    case 14: return 4;
    case 7: return 7;
    case 11:
    case 15: return 10;
    case 12:
    case 13: return 11;
    default: return 5;
    }
}

/* Converts the numbers of the typed field to an array of `bytes` bytes in the arena, in the
 * tensor's own type. Their number must be that of the shape.
 *   errors  CORRUPT, NOMEM */
static trm_status take_typed(const trmi_onnx_reader *r, const trmi_proto_field *message,
                             tensor_parts *parts, int64_t bytes) {
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    /* A number takes at least a byte of the message, so a larger count is wrong. This check comes
     * before memory is allocated for it. Complex types (14, 15) are refused. */
    if (parts->count > (int64_t)message->bytes ||
        parts->typed_field != field_of_type(parts->type) || parts->type == 14 ||
        parts->type == 15) {
        return trmi_onnx_fault(r, parts->at, "a tensor whose data do not fit its type and shape");
    }
    typed_data data = {.to = trmi_arena_alloc(&r->model->arena, (size_t)bytes),
                       .count = parts->count,
                       .item_bytes = trmi_onnx_type_bytes(parts->type)};
    if (data.to == NULL) {
        return trmi_onnx_no_memory(r);
    }
    /* Take all fields with this number: a repeated field may be split into several. */
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == parts->typed_field && !store_field(&data, &field)) {
            return trmi_onnx_fault(r, parts->at, "a tensor with more numbers than its shape says");
        }
    }
    if (data.have != data.count) {
        return trmi_onnx_fault(r, parts->at, "a tensor with fewer numbers than its shape says");
    }
    parts->raw = data.to;
    parts->raw_bytes = (size_t)bytes;
    return TRM_OK;
}

/* Contract in onnx_reader.h. Data may be in three places: raw_data, a field by type, or another
 * file. Whichever it is, their size must be that of type and shape. */
trm_status trmi_onnx_take_tensor(const trmi_onnx_reader *r, const trmi_proto_field *message,
                                 trm_named_tensor *out) {
    tensor_parts parts = {.name = "", .at = message->data, .count = 1, .count_fits = true};
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    while (trmi_proto_next(&proto, &field)) {
        TRMI_TRY(take_tensor_field(r, &field, &parts));
    }
    TRMI_TRY(trmi_onnx_finish(r, &proto));
    /* The type must have a fixed size, and the data must have exactly the size of type and
     * shape. */
    int64_t bytes = trmi_onnx_type_bytes(parts.type);
    if (bytes == 0) {
        return TRMI_FAIL(r->err, TRM_UNSUPPORTED,
                         "%s: tensor %.60s has type %" PRIu64 ", which holds no numbers",
                         trmi_path_tail(r->path), parts.name, parts.type);
    }
    if (!parts.count_fits || !trmi_mul_i64(bytes, parts.count, &bytes)) {
        return trmi_onnx_fault(r, parts.at, "a tensor with a negative or too large shape");
    }
    /* Find the data: in another file, in the typed field, or raw (found already). */
    if (parts.external) {
        TRMI_TRY(find_external(r, &parts, bytes));
    } else if (!parts.has_raw && bytes > 0) {
        TRMI_TRY(take_typed(r, message, &parts, bytes));
    }
    if ((int64_t)parts.raw_bytes != bytes) {
        return TRMI_FAIL(r->err, TRM_CORRUPT,
                         "%s: tensor %.60s has %zu bytes, its type and shape take %" PRId64,
                         trmi_path_tail(r->path), parts.name, parts.raw_bytes, bytes);
    }
    *out = (trm_named_tensor){.name = parts.name};
    out->tensor.data = (void *)(uintptr_t)parts.raw;
    /* A tensor with too many dimensions is listed without type and shape. */
    if (parts.rank <= TRM_MAX_RANK) {
        out->tensor.dtype = trmi_onnx_dtype_of(parts.type);
        out->tensor.shape = trm_shape_make(parts.rank, parts.dims);
    }
    return TRM_OK;
}
