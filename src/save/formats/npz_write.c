/* SPDX-License-Identifier: Apache-2.0 */
/* Writing .npz archives: stored members, each aligned to 64 bytes so that the file can be mapped.
 * See npz.c for the form of the file.
 *
 *   [local header | name | padding | .npy header | data] ... [central directory] [end record]
 *
 * All names, headers and arrays are checked before the file is created. Data are read twice, first
 * for the checksum, which stands before them, so that nothing is buffered. The date is fixed, so
 * equal arrays give equal files. Records with 64-bit numbers are written only where a number does
 * not fit into 32 bits (zip64_from, which tests lower), because older readers know none. */
#include "save/formats/npy.h"

#include "base/arguments.h"
#include "base/error.h"
#include "base/format/endian.h"
#include "base/format/utf8.h"
#include "save/file_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_BYTES = 30, /* of a local header without name and extra blocks */
    ALIGNMENT = 64,   /* the data of a member begin at a multiple of it */
    ZIP64_BYTES = 20  /* of the extra block with 64-bit sizes in a local header */
};
/* Ids of extra blocks. Readers skip those that they do not know; EXTRA_PADDING only fills space. */
enum { EXTRA_ZIP64 = 0x0001, EXTRA_PADDING = 0xD935 };
/* The versions of the format (2.0; 4.5 with 64-bit numbers), and the magic numbers of the records
 * (APPNOTE.TXT of PKWARE). */
enum {
    VERSION_PLAIN = 20,
    VERSION_ZIP64 = 45,
    LOCAL_MAGIC = 0x04034b50,
    CENTRAL_MAGIC = 0x02014b50,
    END_MAGIC = 0x06054b50,
    END64_MAGIC = 0x06064b50,
    LOCATOR64_MAGIC = 0x07064b50
};

/* One member under construction. */
typedef struct member {
    trmi_text name;   /* "fc.weight.npy" */
    trmi_text header; /* header of the .npy */
    int64_t bytes;    /* length of the .npy */
    int64_t offset;   /* of the local header */
    uint32_t crc;     /* of the whole .npy */
} member;

/* The archive under construction. */
typedef struct archive {
    const trm_named_tensor *arrays; /* the caller's */
    member *members;                /* [count] in the order of `arrays` */
    int64_t count, zip64_from;      /* members; bytes from which the 64-bit records are used */
    trmi_file_out out;              /* the file */
    trmi_text record;               /* the record under construction; reused */
} archive;

/* Append little-endian numbers. */
static void put_u16(trmi_text *out, uint32_t value) {
    uint8_t bytes[2];
    trmi_put16(bytes, (uint16_t)value);
    trmi_text_append(out, (const char *)bytes, sizeof bytes);
}
/* Append a number in little-endian order. */
static void put_u32(trmi_text *out, uint32_t value) {
    uint8_t bytes[4];
    trmi_put32(bytes, value);
    trmi_text_append(out, (const char *)bytes, sizeof bytes);
}
static void put_u64(trmi_text *out, int64_t value) {
    uint8_t bytes[8];
    trmi_put64(bytes, (uint64_t)value);
    trmi_text_append(out, (const char *)bytes, sizeof bytes);
}

/* Writes the record under construction to the file. */
static trm_status write_record(archive *zip, trm_error *err) {
    trm_status status = zip->record.failed ? TRMI_NO_MEMORY(err, "to write an archive")
                                           : trmi_file_out_write(&zip->out, zip->record.data,
                                                                 zip->record.length, err);
    zip->record.length = 0;
    return status;
}

/* Adds data of trmi_npy_stream to the checksum `context`. */
static trm_status add_crc(void *context, const void *data, size_t bytes, trm_error *err) {
    (void)err;
    *(uint32_t *)context = (uint32_t)crc32_z(*(uint32_t *)context, data, bytes);
    return TRM_OK;
}

/* Writes data of trmi_npy_stream to the file `context`. */
static trm_status write_to_file(void *context, const void *data, size_t bytes, trm_error *err) {
    return trmi_file_out_write(context, data, bytes, err);
}

/* Writes the part that local header and directory entry share: version, flags (names are UTF-8),
 * method 0 (stored), a fixed date, checksum, sizes, length of the name. */
static void put_common(archive *zip, const member *m, bool wide) {
    put_u16(&zip->record, wide ? VERSION_ZIP64 : VERSION_PLAIN);
    put_u16(&zip->record, 0x0800);     /* names are UTF-8 */
    put_u16(&zip->record, 0);          /* stored, not compressed */
    put_u32(&zip->record, 0x00210000); /* 1980-01-01 00:00 */
    put_u32(&zip->record, m->crc);
    put_u32(&zip->record, wide ? UINT32_MAX : (uint32_t)m->bytes);
    put_u32(&zip->record, wide ? UINT32_MAX : (uint32_t)m->bytes);
    put_u16(&zip->record, (uint32_t)m->name.length);
}

/* Writes a member. Its data are read twice: first for the checksum, which is in front of them, then
 * to be written. */
static trm_status write_member(archive *zip, int64_t index, trm_error *err) {
    member *m = &zip->members[index];
    const trm_tensor *array = &zip->arrays[index].tensor;
    m->crc = (uint32_t)crc32_z(0, (const Bytef *)m->header.data, m->header.length);
    TRMI_TRY(trmi_npy_stream(array, add_crc, &m->crc, err));
    /* Padding in an extra field makes the array's data begin at a multiple of ALIGNMENT, so that a
     * reader can map them. */
    m->offset = zip->out.bytes;
    bool wide = m->bytes >= zip->zip64_from;
    int64_t start =
        m->offset + LOCAL_BYTES + (int64_t)m->name.length + (wide ? ZIP64_BYTES : 0) + 4;
    uint32_t padding = (uint32_t)((ALIGNMENT - start % ALIGNMENT) % ALIGNMENT);
    /* Write the local header: fixed part, name, ZIP64 sizes if they are large, padding. */
    put_u32(&zip->record, LOCAL_MAGIC);
    put_common(zip, m, wide);
    put_u16(&zip->record, (wide ? (uint32_t)ZIP64_BYTES : 0) + 4 + padding);
    trmi_text_append(&zip->record, m->name.data, m->name.length);
    if (wide) {
        put_u16(&zip->record, EXTRA_ZIP64);
        put_u16(&zip->record, 16);
        put_u64(&zip->record, m->bytes);
        put_u64(&zip->record, m->bytes);
    }
    put_u16(&zip->record, EXTRA_PADDING);
    put_u16(&zip->record, padding);
    for (uint32_t i = 0; i < padding; i++) {
        trmi_text_append(&zip->record, "\0", 1);
    }
    /* Then write the header of the .npy and the data. */
    trmi_text_append(&zip->record, m->header.data, m->header.length);
    TRMI_TRY(write_record(zip, err));
    return trmi_npy_stream(array, write_to_file, &zip->out, err);
}

/* Writes a member's entry in the central directory: sizes, checksum and the position of the local
 * header, which are known once the member is written. */
static trm_status write_central(archive *zip, const member *m, trm_error *err) {
    bool wide = m->bytes >= zip->zip64_from || m->offset >= zip->zip64_from;
    put_u32(&zip->record, CENTRAL_MAGIC);
    /* made on Unix, so the file mode below is used */
    put_u16(&zip->record, 3 << 8 | (wide ? VERSION_ZIP64 : VERSION_PLAIN));
    put_common(zip, m, wide);
    put_u16(&zip->record, wide ? 28 : 0);
    put_u16(&zip->record, 0); /* comment */
    put_u16(&zip->record, 0); /* disk */
    put_u16(&zip->record, 0); /* internal attributes */
    put_u32(&zip->record, 0100644u << 16);
    put_u32(&zip->record, wide ? UINT32_MAX : (uint32_t)m->offset);
    trmi_text_append(&zip->record, m->name.data, m->name.length);
    if (wide) {
        put_u16(&zip->record, EXTRA_ZIP64);
        put_u16(&zip->record, 24);
        put_u64(&zip->record, m->bytes);
        put_u64(&zip->record, m->bytes);
        put_u64(&zip->record, m->offset);
    }
    return write_record(zip, err);
}

/* Writes the end record, preceded by the 64-bit records if a number does not fit. */
static trm_status write_end(archive *zip, int64_t central, trm_error *err) {
    int64_t central_bytes = zip->out.bytes - central, end = zip->out.bytes;
    bool wide = zip->count >= 0xFFFF || end >= zip->zip64_from;
    if (wide) {
        put_u32(&zip->record, END64_MAGIC);
        put_u64(&zip->record, 44); /* bytes of this record from here on */
        put_u16(&zip->record, VERSION_ZIP64);
        put_u16(&zip->record, VERSION_ZIP64);
        put_u32(&zip->record, 0); /* number of this disk, and of that of the directory */
        put_u32(&zip->record, 0);
        put_u64(&zip->record, zip->count);
        put_u64(&zip->record, zip->count);
        put_u64(&zip->record, central_bytes);
        put_u64(&zip->record, central);
        put_u32(&zip->record, LOCATOR64_MAGIC);
        put_u32(&zip->record, 0); /* disk of the record above */
        put_u64(&zip->record, end);
        put_u32(&zip->record, 1); /* number of disks */
    }
    put_u32(&zip->record, END_MAGIC);
    put_u32(&zip->record, 0); /* disks */
    put_u16(&zip->record, wide ? 0xFFFF : (uint32_t)zip->count);
    put_u16(&zip->record, wide ? 0xFFFF : (uint32_t)zip->count);
    put_u32(&zip->record, wide ? UINT32_MAX : (uint32_t)central_bytes);
    put_u32(&zip->record, wide ? UINT32_MAX : (uint32_t)central);
    put_u16(&zip->record, 0);
    return write_record(zip, err);
}

/* Writes members, central directory and end record. */
static trm_status write_all(archive *zip, trm_error *err) {
    for (int64_t i = 0; i < zip->count; i++) {
        TRMI_TRY(write_member(zip, i, err));
    }
    int64_t central = zip->out.bytes;
    for (int64_t i = 0; i < zip->count; i++) {
        TRMI_TRY(write_central(zip, &zip->members[i], err));
    }
    return write_end(zip, central, err);
}

/* Compares two names. */
static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that all arrays have different names in UTF-8, which fit into the 16-bit length of a
 * member's name.
 *   errors  INVALID, NOMEM */
static trm_status check_names(const char *path, const trm_named_tensor *arrays, int64_t count,
                              trm_error *err) {
    const char **names;
    TRMI_TRY(TRMI_NEW(err, names, count, "for %s", trmi_path_tail(path)));
    trm_status status = TRM_OK;
    for (int64_t i = 0; i < count && status == TRM_OK; i++) {
        names[i] = arrays[i].name;
        size_t length = names[i] == NULL ? 0 : strlen(names[i]);
        if (length == 0 || length > 60000 || !trmi_utf8_valid(names[i], length)) {
            status = TRMI_FAIL(err, TRM_INVALID, "%s: array %" PRId64 " needs a name in UTF-8",
                               trmi_path_tail(path), i);
        }
    }
    /* Equal names are neighbours after sorting. */
    if (status == TRM_OK && count > 0) {
        qsort(names, (size_t)count, sizeof *names, compare_names);
    }
    for (int64_t i = 1; i < count && status == TRM_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = TRMI_FAIL(err, TRM_INVALID, "%s: two arrays are called %.80s",
                               trmi_path_tail(path), names[i]);
        }
    }
    trmi_free(names);
    return status;
}

/* Builds the names and headers of all members, which also checks the arrays. */
static trm_status prepare_members(archive *zip, const char *path, trm_error *err) {
    TRMI_TRY(TRMI_NEW(err, zip->members, zip->count, "for %s", trmi_path_tail(path)));
    for (int64_t i = 0; i < zip->count; i++) {
        member *m = &zip->members[i];
        trmi_text_printf(&m->name, "%s.npy", zip->arrays[i].name);
        TRMI_TRY(
            trmi_npy_put_header(&m->header, &zip->arrays[i].tensor, trmi_path_tail(path), err));
        m->bytes = (int64_t)m->header.length + trmi_npy_data_bytes(&zip->arrays[i].tensor);
        TRMI_TRY(TRMI_CHECK_MEMORY(err, &m->name, "for %s", trmi_path_tail(path)));
    }
    return TRM_OK;
}

trm_status trmi_npz_write(const char *path, const trm_named_tensor *arrays, int64_t count,
                          int64_t zip64_from, trm_error *err) {
    archive *zip = trmi_alloc(sizeof *zip);
    if (zip == NULL || count < 0) {
        trmi_free(zip);
        return TRMI_FAIL(err, count < 0 ? TRM_INVALID : TRM_NOMEM, "%s: cannot begin an archive",
                         trmi_path_tail(path));
    }
    zip->arrays = arrays;
    zip->count = count;
    zip->zip64_from = zip64_from;
    trm_status status;
    /* Check and prepare everything before the file is created. */
    TRMI_TRY_GOTO(status, check_names(path, arrays, count, err), done);
    TRMI_TRY_GOTO(status, prepare_members(zip, path, err), done);
    TRMI_TRY_GOTO(status, trmi_file_out_open_replacing(&zip->out, NULL, path, err), done);
    status = write_all(zip, err);
    if (status == TRM_OK) {
        status = trmi_file_out_close(&zip->out, err);
    } else {
        trmi_file_out_abort(&zip->out);
    }
done:
    for (int64_t i = 0; zip->members != NULL && i < count; i++) {
        trmi_text_free(&zip->members[i].name);
        trmi_text_free(&zip->members[i].header);
    }
    trmi_free(zip->members);
    trmi_text_free(&zip->record);
    trmi_free(zip);
    return status;
}

trm_status trm_npz_write(const char *path, const trm_named_tensor *arrays, int64_t count,
                         trm_error *err) {
    TRMI_NEED(err, path);
    if (count > 0) {
        TRMI_NEED(err, arrays);
    }
    return trmi_npz_write(path, arrays, count, UINT32_MAX, err);
}
