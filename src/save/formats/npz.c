/* SPDX-License-Identifier: Apache-2.0 */
/* Reading .npz archives: the central directory at the end of the file says where the members are.
 * Each member is checked against its local header, the length of the file and its checksum. Data
 * are used where they are; compressed members are refused. A single .npy counts as an archive of
 * one array.
 *
 *   local header, data | local header, data | ... | central directory | [64-bit end] | end record
 *
 * Source: PKWARE's APPNOTE.TXT. */
#include "save/formats/npy.h"

#include "base/arguments.h"
#include "base/format/endian.h"
#include "base/error.h"
#include "base/mapping.h"
#include "base/format/utf8.h"
#include "save/formats/name_index.h"
#include "save/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* lengths of the fixed parts of the records */
enum { LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, LOCATOR_BYTES = 20, END64_BYTES = 56 };
/* Members that are read, at most, and the longest comment at the end of an archive (16 bits). */
enum { MEMBERS_MAX = 1000000, COMMENT_MAX = 65535 };

/* An open archive. */
struct trm_npz {
    trmi_mapping mapping; /* empty if the bytes are borrowed */
    /* the mapped or borrowed file */
    const uint8_t *data;
    size_t bytes;            /* length of the file */
    char *path;              /* for messages, in the arena */
    trmi_arena arena;        /* texts and dimensions of the entries */
    trm_npz_entry *entries;  /* [count] in the order of the directory */
    int64_t count, capacity; /* length and capacity of `entries` */
    trmi_name_index names;
};

/* Fails with file and offset, where a tool for ZIP files can look. */
static trm_status fail_at_offset(const trm_npz *file, size_t offset, const char *what,
                                 trm_error *err) {
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: offset %zu: %s", trmi_path_tail(file->path), offset,
                     what);
}

/* ---- one array ------------------------------------------------------------------------- */

/* Parses the array at data[start, start + bytes) and adds it under `name`, which must live as long
 * as the archive.
 *   errors  those of trmi_npy_parse, NOMEM */
static trm_status add_array(trm_npz *file, size_t start, size_t bytes, const char *name,
                            trm_error *err) {
    char what[160];
    trmi_npy array;
    snprintf(what, sizeof what, "%s%s%.60s", trmi_path_tail(file->path),
             name[0] != '\0' ? ": " : "", name);
    TRMI_TRY(trmi_npy_parse(file->data + start, bytes, what, &array, err));
    /* Copy what the entry shows, because the header of the file has another form. */
    int64_t *dims = trmi_arena_alloc(&file->arena, (size_t)array.rank * sizeof *dims + 1);
    char *descr = trmi_arena_strdup(&file->arena, array.descr);
    if (dims == NULL || descr == NULL ||
        !trmi_grow((void **)&file->entries, &file->capacity, file->count + 1,
                   sizeof *file->entries)) {
        return TRMI_NO_MEMORY(err, "to open %s", trmi_path_tail(file->path));
    }
    memcpy(dims, array.dims, (size_t)array.rank * sizeof *dims);
    trm_npz_entry *entry = &file->entries[file->count++];
    *entry = (trm_npz_entry){.name = name,
                             .descr = descr,
                             .fortran_order = array.fortran_order && array.rank > 1,
                             .rank = array.rank,
                             .dims = dims,
                             .offset = (int64_t)start + array.data_offset,
                             .bytes = array.data_bytes};
    entry->tensor.data = (void *)(uintptr_t)(file->data + entry->offset);
    /* An array of another type, in Fortran order or with too many dimensions can be listed only. */
    if (array.rank <= TRM_MAX_RANK && !entry->fortran_order && array.dtype != TRM_DTYPE_NONE) {
        entry->tensor.dtype = array.dtype;
        entry->tensor.shape = trm_shape_make(array.rank, dims);
    }
    return TRM_OK;
}

/* ---- the archive ----------------------------------------------------------------------- */

/* An entry of the central directory. */
typedef struct central {
    uint64_t packed, unpacked, local; /* sizes, and the offset of the local header */
    uint32_t crc, method, flags, name_bytes, extra_bytes, comment_bytes; /* fields of the format */
    const uint8_t *name; /* in the file; not terminated */
} central;

/* Reads the extra block 0x0001: it has those of the three values that do not fit into 32 bits, in
 * this order. Returns false if it is cut off. */
static bool read_zip64_sizes(central *c, const uint8_t *extra) {
    uint64_t *wanted[] = {&c->unpacked, &c->packed, &c->local};
    size_t at = 0;
    /* Extra data are blocks of (id, length, content). */
    while (c->extra_bytes - at >= 4) {
        size_t id = trmi_get16(extra + at), bytes = trmi_get16(extra + at + 2);
        at += 4;
        if (bytes > c->extra_bytes - at) {
            return false;
        }
        if (id == 1) {
            size_t used = 0;
            /* The block has only those values whose 32-bit fields are all ones. */
            for (int i = 0; i < 3; i++) {
                if (*wanted[i] == UINT32_MAX) {
                    if (bytes - used < 8) {
                        return false;
                    }
                    *wanted[i] = trmi_get64(extra + at + used);
                    used += 8;
                }
            }
            return true;
        }
        at += bytes;
    }
    return true;
}

/* Reads the entry of the central directory at *at, which ends before `end`, and advances *at past
 * it.
 *   errors  CORRUPT */
static trm_status read_central(const trm_npz *file, size_t *at, size_t end, central *out,
                               trm_error *err) {
    const uint8_t *p = file->data + *at;
    if (end - *at < CENTRAL_BYTES || trmi_get32(p) != 0x02014b50) {
        return fail_at_offset(file, *at, "an entry of the directory expected", err);
    }
    /* The fixed part of the entry, with little-endian numbers. */
    *out = (central){.flags = trmi_get16(p + 8),
                     .method = trmi_get16(p + 10),
                     .crc = trmi_get32(p + 16),
                     .packed = trmi_get32(p + 20),
                     .unpacked = trmi_get32(p + 24),
                     .name_bytes = trmi_get16(p + 28),
                     .extra_bytes = trmi_get16(p + 30),
                     .comment_bytes = trmi_get16(p + 32),
                     .local = trmi_get32(p + 42),
                     .name = p + CENTRAL_BYTES};
    /* name, extra fields (ZIP64 sizes may be there) and comment follow */
    size_t rest = (size_t)out->name_bytes + out->extra_bytes + out->comment_bytes;
    if (end - *at - CENTRAL_BYTES < rest ||
        !read_zip64_sizes(out, p + CENTRAL_BYTES + out->name_bytes)) {
        return fail_at_offset(file, *at, "an entry of the directory that is cut off", err);
    }
    *at += CENTRAL_BYTES + rest;
    return TRM_OK;
}

/* Finds where a member's data begin, after checking that local header and directory agree, that the
 * member is inside the file, and its checksum. */
static trm_status find_data(const trm_npz *file, const central *c, size_t *start, trm_error *err) {
    /* The local header, which must have the same name. */
    if (c->local > file->bytes || file->bytes - c->local < LOCAL_BYTES) {
        return fail_at_offset(file, file->bytes,
                              "the file ends before a member that its directory names", err);
    }
    size_t local = (size_t)c->local;
    const uint8_t *p = file->data + local;
    size_t name_bytes = trmi_get16(p + 26), head = LOCAL_BYTES + name_bytes + trmi_get16(p + 28);
    if (trmi_get32(p) != 0x04034b50 || name_bytes != c->name_bytes || head > file->bytes - local ||
        memcmp(p + LOCAL_BYTES, c->name, name_bytes) != 0) {
        return fail_at_offset(file, local,
                              "the header of a member does not agree with the directory", err);
    }
    /* Encryption and compression are not supported. */
    if (c->flags & 1) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: encrypted; save it without a password",
                         trmi_path_tail(file->path));
    }
    if (c->method != 0) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "%s: member %.*s is compressed (method %u): save with numpy.savez, not "
                         "savez_compressed",
                         trmi_path_tail(file->path), (int)(name_bytes < 60 ? name_bytes : 60),
                         (const char *)c->name, c->method);
    }
    /* The data must be inside the file and have the checksum of the directory. */
    if (c->packed != c->unpacked || c->packed > file->bytes - local - head) {
        return fail_at_offset(file, local, "a member that reaches beyond the end of the file", err);
    }
    *start = local + head;
    uint32_t crc = (uint32_t)crc32_z(0, file->data + *start, (size_t)c->packed);
    if (crc != c->crc) {
        return TRMI_FAIL(err, TRM_CORRUPT,
                         "%s: member %.*s at offset %zu is damaged: crc32 %08x, %08x expected",
                         trmi_path_tail(file->path), (int)(name_bytes < 60 ? name_bytes : 60),
                         (const char *)c->name, local, crc, c->crc);
    }
    return TRM_OK;
}

/* Adds a member: its name without ".npy" is the array's name. */
static trm_status add_member(trm_npz *file, const central *c, trm_error *err) {
    size_t start = 0, length = c->name_bytes;
    const char *name = (const char *)c->name;
    if (!trmi_utf8_valid(name, length) || memchr(name, 0, length) != NULL) {
        return fail_at_offset(file, (size_t)c->local, "a member whose name is not UTF-8", err);
    }
    TRMI_TRY(find_data(file, c, &start, err));
    if (length < 4 || memcmp(name + length - 4, ".npy", 4) != 0) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED, "%s: member %.*s is no .npy",
                         trmi_path_tail(file->path), (int)(length < 80 ? length : 80), name);
    }
    char *copy;
    TRMI_TRY(
        TRMI_NEW_IN(err, &file->arena, copy, length - 3, "to open %s", trmi_path_tail(file->path)));
    memcpy(copy, name, length - 4);
    copy[length - 4] = '\0';
    return add_array(file, start, (size_t)c->packed, copy, err);
}

/* Finds the end record, which may be followed by a comment, and the directory. Large archives have
 * a 64-bit record in front of it. */
static trm_status find_directory(const trm_npz *file, uint64_t *count, uint64_t *start,
                                 uint64_t *end, trm_error *err) {
    /* Search backwards from the end for a record whose comment ends with the file. */
    size_t lowest =
        file->bytes > END_BYTES + COMMENT_MAX ? file->bytes - END_BYTES - COMMENT_MAX : 0;
    size_t at = file->bytes < END_BYTES ? 0 : file->bytes - END_BYTES;
    while (at > lowest && !(trmi_get32(file->data + at) == 0x06054b50 &&
                            trmi_get16(file->data + at + 20) == file->bytes - at - END_BYTES)) {
        at--;
    }
    const uint8_t *p = file->data + at;
    if (file->bytes < END_BYTES || trmi_get32(p) != 0x06054b50) {
        return TRMI_FAIL(err, TRM_CORRUPT, "%s: the end of a zip archive is missing (cut off?)",
                         trmi_path_tail(file->path));
    }
    /* Number of members, and start and end of the directory. */
    *count = trmi_get16(p + 10);
    uint64_t bytes = trmi_get32(p + 12);
    *start = trmi_get32(p + 16);
    *end = at;
    /* the 64-bit record, found through its locator */
    if (at >= LOCATOR_BYTES && trmi_get32(p - LOCATOR_BYTES) == 0x07064b50) {
        uint64_t wide = trmi_get64(p - LOCATOR_BYTES + 8);
        if (wide > at || at - wide < END64_BYTES || trmi_get32(file->data + wide) != 0x06064b50) {
            return fail_at_offset(file, at, "the 64-bit end record is not where it should be", err);
        }
        *count = trmi_get64(file->data + wide + 32);
        bytes = trmi_get64(file->data + wide + 40);
        *start = trmi_get64(file->data + wide + 48);
        *end = wide;
    }
    /* Each member takes at least CENTRAL_BYTES, so a wrong count cannot cost time or memory. */
    if (*start > *end || bytes != *end - *start || *count > MEMBERS_MAX ||
        *count > bytes / CENTRAL_BYTES) {
        return fail_at_offset(file, at, "an end record that does not describe this file", err);
    }
    return TRM_OK;
}

/* Reads all members. The directory must have no other bytes. */
static trm_status read_archive(trm_npz *file, trm_error *err) {
    uint64_t count = 0, start = 0, end = 0;
    TRMI_TRY(find_directory(file, &count, &start, &end, err));
    size_t at = (size_t)start;
    for (uint64_t i = 0; i < count; i++) {
        central c;
        TRMI_TRY(read_central(file, &at, (size_t)end, &c, err));
        TRMI_TRY(add_member(file, &c, err));
    }
    return at == end ? TRM_OK
                     : fail_at_offset(file, at, "more in the directory than its members", err);
}

/* ---- open and get ----------------------------------------------------------------------- */

/* Contract in npy.h. The content decides between one array and an archive, not the name. */
trm_status trmi_npz_parse(const uint8_t *data, size_t bytes, const char *path, trm_npz **out,
                          trm_error *err) {
    trm_npz *file;
    TRMI_TRY(TRMI_NEW(err, file, 1, "to open %s", trmi_path_tail(path)));
    file->data = data;
    file->bytes = bytes;
    file->path = trmi_arena_strdup(&file->arena, path);
    trm_status status = TRM_OK;
    if (file->path == NULL) {
        status = TRMI_NO_MEMORY(err, "to open %s", trmi_path_tail(path));
    } else if (trmi_npy_starts(data, bytes)) {
        /* The file is a single array. */
        status = add_array(file, 0, bytes, "", err);
    } else if (bytes >= 4 && (trmi_get32(data) == 0x04034b50 || trmi_get32(data) == 0x06054b50)) {
        /* A ZIP archive begins with the head of a file or, if it is empty, with its end. */
        status = read_archive(file, err);
    } else {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: found the first bytes of neither .npy nor .npz",
                           trmi_path_tail(path));
    }
    if (status == TRM_OK) {
        file->names.count = file->count;
        status = trmi_name_index_make(&file->names, file->entries, sizeof *file->entries, "members",
                                      trmi_path_tail(path), err);
    }
    if (status != TRM_OK) {
        trm_npz_close(file);
        return status;
    }
    *out = file;
    return TRM_OK;
}

/* Contract in trireme/io.h. The file stays mapped as long as the archive is open, since arrays are
 * used in place. */
trm_status trm_npz_open(const char *path, trm_npz **out, trm_error *err) {
    TRMI_NEED(err, path, out);
    trmi_mapping mapping;
    TRMI_TRY(trmi_mapping_open(path, &mapping, err));
    trm_npz *file = NULL;
    trm_status parsed = trmi_npz_parse(mapping.data, mapping.bytes, path, &file, err);
    trm_status status = trmi_mapping_check(&mapping, parsed, err);
    if (status != TRM_OK) {
        trm_npz_close(parsed == TRM_OK ? file : NULL);
        trmi_mapping_close(&mapping);
        return status;
    }
    file->mapping = mapping;
    *out = file;
    return TRM_OK;
}

void trm_npz_close(trm_npz *file) {
    if (file == NULL) {
        return;
    }
    trmi_mapping_close(&file->mapping);
    trmi_free(file->entries);
    trmi_name_index_free(&file->names);
    trmi_arena_free(&file->arena);
    trmi_free(file);
}

int64_t trm_npz_count(const trm_npz *file) {
    TRMI_NEED_OR(0, NULL, file);
    return file->count;
}

const trm_npz_entry *trm_npz_at(const trm_npz *file, int64_t index) {
    TRMI_NEED_OR(NULL, NULL, file);
    return index >= 0 && index < file->count ? &file->entries[index] : NULL;
}

const trm_npz_entry *trm_npz_find(const trm_npz *file, const char *name) {
    TRMI_NEED_OR(NULL, NULL, file, name);
    return trmi_name_index_find(&file->names, name);
}

/* Contract in trireme/io.h. Nothing is converted: a wrong type would otherwise be found much
 * later. */
trm_status trm_npz_read(const trm_npz *file, const char *name, const trm_tensor *into,
                        trm_error *err) {
    TRMI_NEED(err, file, name, into);
    const trm_npz_entry *entry = trm_npz_find(file, name);
    if (entry == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s: no array %.80s", trmi_path_tail(file->path), name);
    }
    if (entry->tensor.dtype == TRM_DTYPE_NONE || entry->tensor.dtype != into->dtype ||
        !trm_shape_equal(&entry->tensor.shape, &into->shape)) {
        char theirs[48], ours[48];
        /* For the message, only dimensions that a shape can hold. */
        trm_shape shape =
            trm_shape_make(entry->rank > TRM_MAX_RANK ? TRM_MAX_RANK : entry->rank, entry->dims);
        return TRMI_FAIL(err, TRM_INVALID, "%s: array %.60s is %s %s%s, %s %s expected",
                         trmi_path_tail(file->path), name, entry->descr,
                         trm_shape_format(&shape, theirs, sizeof theirs),
                         entry->fortran_order ? " in Fortran order" : "",
                         trm_dtype_name(into->dtype),
                         trm_shape_format(&into->shape, ours, sizeof ours));
    }
    if (entry->bytes > 0) {
        memcpy(into->data, entry->tensor.data, (size_t)entry->bytes);
    }
    return trmi_mapping_check(&file->mapping, TRM_OK, err);
}
