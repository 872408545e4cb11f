/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of base: error record, messages, shapes, memory and arenas, random numbers, files, queue,
 * checksums, 16-bit floats, reports.
 *
 * Random numbers and checksums are compared with published vectors, because files and resumed runs
 * depend on their bits. trmi_alloc_fail_after makes single allocations fail. */
#include "check.h"

#include "base/cpu.h"
#include "base/format/crc32c.h"
#include "base/error.h"
#include "base/element.h"
#include "base/format/half.h"
#include "base/format/utf8.h"
#include "base/hash/hash_index.h"
#include "base/kept_mappings.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/mapping.h"
#include "base/os.h"
#include "base/queue.h"
#include "base/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void error_record_survives_the_wire(void **state) {
    trm_error err, back;
    errno = 28;
    assert_int_equal(TRMI_FAIL(&err, TRM_IO, "%s: %d", "file", 7), TRM_IO);
    assert_int_equal(err.sys_errno, 28);
    assert_non_null(strstr(err.file, "base_test.c"));
    trmi_error_append(&err, " while %s", "saving");
    err.rank = 3;
    uint8_t wire[256];
    trmi_error_encode(&err, wire);
    trmi_error_decode(&back, wire);
    assert_memory_equal(&err, &back, sizeof err);
    assert_string_equal(back.message, "file: 7 while saving");
    memset(wire, 'x', sizeof wire);
    trmi_error_decode(&back, wire);
    assert_int_equal(strlen(back.message), sizeof back.message - 1);
    assert_int_equal(TRMI_FAIL(NULL, TRM_INVALID, "nobody listens"), TRM_INVALID);
}

static void a_median_is_the_middle(void **state) {
    double odd[] = {3, -1, 2}, even[] = {4, 1, 3, -2};
    assert_true(trmi_median(odd, 3) == 2 && odd[0] == -1 && odd[2] == 3);
    assert_true(trmi_median(even, 4) == 2 && trmi_middle(even, 1) == -2 &&
                trmi_median(even, 0) == 0);
}

/* However long a path is, the message has the file and the fault. */
static void a_long_sentence_keeps_its_ends(void **state) {
    trm_error err;
    char path[1000];
    memset(path, 'p', sizeof path - 1);
    memcpy(path, "/first", 6);
    memcpy(path + sizeof path - 6, "/last", 6);
    errno = ENOENT;
    assert_int_equal(TRMI_FAIL_SYS(&err, "%s: cannot open", path), TRM_IO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_memory_equal(err.message, "/first", 6);
    assert_non_null(strstr(err.message, "p/last: cannot open: No such file or directory"));
    trmi_error_append(&err, " (%s)", "at the end");
    assert_memory_equal(err.message, "/first", 6);
    assert_string_equal(strstr(err.message, "/last"),
                        "/last: cannot open: No such file or directory (at the end)");
    assert_int_equal(TRMI_FAIL(&err, TRM_CORRUPT, "%s: damaged", path), TRM_CORRUPT);
    assert_string_equal(strstr(err.message, "/last"), "/last: damaged");
}

/* Reads the lines that a child process logs to standard error, with the library's own sink or with
 * none. */
static void log_in_a_child(bool none, char *text, size_t size) {
    int ends[2], outcome;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        if (none) {
            trm_log_set_sink(NULL, NULL, TRM_LOG_DEBUG);
        }
        trmi_log(TRM_LOG_WARN, "comm", "waits for rank %d", 3);
        trmi_log(TRM_LOG_INFO, "comm", "not for everybody");
        _exit(0);
    }
    close(ends[1]);
    ssize_t bytes = read(ends[0], text, size - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    close(ends[0]);
    waitpid(child, &outcome, 0);
    assert_int_equal(outcome, 0);
}

static void warnings_are_seen_without_a_sink(void **state) {
    char text[256];
    log_in_a_child(false, text, sizeof text);
    assert_string_equal(text, "trireme: warning: comm: waits for rank 3\n");
    log_in_a_child(true, text, sizeof text);
    assert_string_equal(text, "");
}

static void exit_codes_follow_the_contract(void **state) {
    assert_int_equal(trm_status_exit_code(TRM_INVALID), 2);
    assert_int_equal(trm_status_exit_code(TRM_CORRUPT), 3);
    assert_int_equal(trm_status_exit_code(TRM_NOSPACE), 4);
    assert_int_equal(trm_status_exit_code(TRM_TIMEOUT), 5);
    assert_string_equal(trm_status_name(TRM_PEER), "TRM_PEER");
}

static void shapes_count_and_overflow(void **state) {
    trm_shape shape = trm_shape_of(2, 3, 4);
    char text[64];
    assert_int_equal(trm_shape_count(&shape), 24);
    assert_string_equal(trm_shape_format(&shape, text, sizeof text), "[2, 3, 4]");
    assert_int_equal(strlen(trm_shape_format(&shape, text, 4)), 3);
    shape = trm_shape_of(INT64_MAX, 3);
    assert_int_equal(trm_shape_count(&shape), -1);
    trm_shape scalar = {0};
    assert_int_equal(trm_shape_count(&scalar), 1);
}

static void philox_matches_its_published_vectors(void **state) {
    /* Random123's known-answer tests for philox4x32-10. */
    uint32_t out[4];
    trmi_philox(0, 0, 0, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[1], 0xe169c58du);
    assert_int_equal(out[2], 0xbc57ac4cu);
    assert_int_equal(out[3], 0x9b00dbd8u);
    trmi_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    assert_int_equal(out[0], 0x408f276du);
    assert_int_equal(out[1], 0x41c83b0eu);
    assert_int_equal(out[2], 0xa20bc7c6u);
    assert_int_equal(out[3], 0x6d5451fdu);
}

static void permutation_is_a_bijection(void **state) {
    static const uint64_t counts[] = {1, 2, 3, 7, 100, 1000, 4097};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        uint64_t count = counts[c];
        char *seen = calloc(count, 1);
        uint64_t fixed = 0;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t to = trmi_permute(42, TRMI_STREAM_SHUFFLE, count, i);
            assert_true(to < count);
            assert_false(seen[to]);
            seen[to] = 1;
            fixed += to == i;
        }
        free(seen);
        assert_true(count < 100 || fixed < 20);
    }
}

static void normals_have_mean_zero_and_variance_one(void **state) {
    double sum = 0, squares = 0;
    enum { PAIRS = 20000 };
    for (int i = 0; i < PAIRS; i++) {
        uint32_t out[4];
        float normal[2];
        trmi_philox(7, TRMI_STREAM_INIT, (uint64_t)i, out);
        trmi_normal_pair(out, normal);
        sum += normal[0] + normal[1];
        squares += normal[0] * normal[0] + normal[1] * normal[1];
    }
    assert_true(fabs(sum / (2 * PAIRS)) < 0.02);
    assert_true(fabs(squares / (2 * PAIRS) - 1) < 0.03);
}

/* The C library's functions, whose last bit may differ. */
static void normals_are_box_mullers(void **state) {
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t out[4];
        float normal[2];
        trmi_philox(8, TRMI_STREAM_INIT, i, out);
        out[0] = i < 8 ? (i & 1) * UINT32_MAX : out[0];
        out[1] = i < 64 ? (i >> 1) << 27 : out[1];
        trmi_normal_pair(out, normal);
        double radius = sqrt(-2 * log(((double)out[0] + 1) * 0x1p-32)),
               angle = (double)out[1] * (0x1p-31 * acos(-1));
        assert_true(fabs(normal[0] - radius * cos(angle)) <= 1e-15 + 1e-7 * fabs(normal[0]));
        assert_true(fabs(normal[1] - radius * sin(angle)) <= 1e-15 + 1e-7 * fabs(normal[1]));
    }
}

static void crc32c_known_answers(void **state) {
    assert_int_equal(trmi_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(trmi_crc32c_mask(0xe3069283u), 0xc78ab0e5u);
    uint32_t split = trmi_crc32c(trmi_crc32c(0, "1234", 4), "56789", 5);
    assert_int_equal(split, 0xe3069283u);
}

static void halves_round_trip(void **state) {
    for (uint32_t h = 0; h < 65536; h++) {
        float f = trmi_f16_to_float((uint16_t)h);
        float b = trmi_bf16_to_float((uint16_t)h);
        if (!isnan(f)) {
            assert_int_equal(trmi_float_to_f16(f), h);
        }
        if (!isnan(b)) {
            assert_int_equal(trmi_float_to_bf16(b), h);
        }
    }
    assert_int_equal(trmi_float_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(trmi_float_to_f16(65520.0f), 0x7C00);
    assert_int_equal(trmi_float_to_f16(0x1p-25f), 0); /* tie to even */
    assert_true(isnan(trmi_bf16_to_float(trmi_float_to_bf16(NAN))));
}

static void elements_of_every_type(void **state) {
    (void)state;
    for (int dtype = TRM_FLOAT32; dtype <= TRM_INT64; dtype++) {
        bool floats = dtype <= TRM_FLOAT16, sign = dtype != TRM_UINT8;
        double cell[2] = {0};
        trmi_element_set(cell, (trm_dtype)dtype, 1, sign ? -2.5 : 2.5);
        assert_true(trmi_element(cell, (trm_dtype)dtype, 1) ==
                    (sign ? -1 : 1) * (floats ? 2.5 : 2));
        assert_true(trmi_element(cell, (trm_dtype)dtype, 0) == 0);
        trmi_element_set(cell, (trm_dtype)dtype, 0, 257);
        double wrapped = trm_dtype_bytes((trm_dtype)dtype) == 1 ? 1
                         : dtype == TRM_BFLOAT16                ? 256
                                                                : 257;
        assert_true(trmi_element(cell, (trm_dtype)dtype, 0) == wrapped);
    }
}

/* Vector loops make the bits of one block at a time, also where counters pass 2^32. */
static void groups_of_numbers_have_the_bits_of_blocks(void **state) {
    enum { GROUPS = 5 };
    float groups[GROUPS * TRMI_NORMAL_GROUP], uniforms[GROUPS * TRMI_NORMAL_GROUP], one[4];
    const uint64_t first[] = {0, 12345, ((uint64_t)1 << 32) - 7};
    for (size_t k = 0; k < sizeof first / sizeof first[0]; k++) {
        trmi_normal_groups(3 + k, 77, first[k], GROUPS, groups);
        trmi_uniform_groups(3 + k, 77, first[k], GROUPS, uniforms);
        for (uint64_t b = 0; b < GROUPS * TRMI_NORMAL_GROUP / 4; b++) {
            uint32_t bits[4];
            trmi_philox(3 + k, 77, first[k] + b, bits);
            trmi_normal_pair(bits, one);
            trmi_normal_pair(bits + 2, one + 2);
            assert_memory_equal(one, groups + 4 * b, sizeof one);
            for (int i = 0; i < 4; i++) {
                one[i] = 2 * trmi_unit_float(bits[i]) - 1;
            }
            assert_memory_equal(one, uniforms + 4 * b, sizeof one);
        }
    }
}

static void json_text_is_escaped_and_exact(void **state) {
    trmi_text text = {0};
    trmi_text_json_string(&text, "a\"b\\\n\xff\xc3\xa9");
    trmi_text_append(&text, " ", 1);
    trmi_text_json_number(&text, 0.1);
    assert_string_equal(text.data, "\"a\\\"b\\\\\\u000a\xEF\xBF\xBD\xc3\xa9\" 0.1");
    trmi_text_free(&text);
    trmi_alloc_fail_after(1);
    trmi_text_printf(&text, "x");
    assert_true(text.failed);
    trmi_alloc_fail_after(0);
    trmi_text_free(&text);
}

/* The results are those of Python's bytes.decode(errors="replace"), R standing for U+FFFD. The
 * first text is the example of Unicode 15, table 3-8. */
static void what_is_no_utf8_is_replaced_as_unicode_says(void **state) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "aRRRbRcRRd"},
        {"\xc0\xaf\xed\xa0\x80\xe2\x82", "RRRRRR"},
        {"\xe0\x9f\x80|\xe0\xa0|\xf0\x8f\x80|\xf0\x90\x80", "RRR|R|RRR|R"},
        {"\xf4\x90\x80\x80|\xf4\x8f\xbf|\xf5\x80\x80\x80|\xfe\xff", "RRRR|R|RRRR|RR"},
        {"\xe2\x82\xe2\x82\xac\xf0\x9f\x98\xf0\x9f\x98\x80\xc3", "R\xe2\x82\xacR\xf0\x9f\x98\x80R"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trmi_text text = {0}, expected = {0};
        trmi_text_json_string(&text, cases[i].text);
        trmi_text_append(&expected, "\"", 1);
        for (const char *c = cases[i].expected; *c != '\0'; c++) {
            trmi_text_append(&expected, *c == 'R' ? "\xEF\xBF\xBD" : c, *c == 'R' ? 3 : 1);
        }
        trmi_text_append(&expected, "\"", 1);
        assert_string_equal(text.data, expected.data);
        trmi_text_free(&text);
        trmi_text_free(&expected);
    }
    assert_int_equal(trmi_utf8_invalid_length("", 0), 0);
    assert_int_equal(trmi_utf8_length("", 0), 0);
}

static void amounts_of_memory_have_units_and_three_digits(void **state) {
    static const struct {
        double bytes;
        const char *text;
    } amounts[] = {
        {0, "0 B"},           {1, "1 B"},        {999, "999 B"},        {999.5, "1.00 KB"},
        {1500, "1.50 KB"},    {9996, "10.0 KB"}, {27850000, "27.9 MB"}, {99.97e6, "100 MB"},
        {2.118e9, "2.12 GB"}, {4e16, "40.0 PB"}};
    char text[TRMI_BYTES_TEXT];
    for (size_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++) {
        assert_string_equal(trmi_bytes_text(amounts[i].bytes, text), amounts[i].text);
    }
}

static void arena_is_aligned_and_zeroed(void **state) {
    trmi_arena arena = {.chunk_bytes = 256};
    for (int i = 1; i < 100; i++) {
        char *p = trmi_arena_alloc(&arena, (size_t)i * 7);
        assert_int_equal((uintptr_t)p % 16, 0);
        assert_int_equal(p[i * 7 - 1], 0);
        memset(p, 1, (size_t)i * 7);
    }
    assert_string_equal(trmi_arena_printf(&arena, "%d-%s", 5, "x"), "5-x");
    trmi_arena_free(&arena);
}

/* The macros allocate, write the message, and refuse counts that overflow. */
static void allocation_writes_its_error(void **state) {
    trm_error err;
    trmi_arena arena = {0};
    int64_t *items, *more = NULL, capacity = 0;
    assert_int_equal(TRMI_NEW(&err, items, 3, "for %d items", 3), TRM_OK);
    assert_int_equal(items[0] | items[1] | items[2], 0);
    trmi_free(items);
    trmi_alloc_fail_after(1);
    assert_int_equal(TRMI_NEW(&err, items, 3, "for %d items", 3), TRM_NOMEM);
    assert_null(items);
    assert_string_equal(err.message, "no memory for 3 items (24 bytes)");
    assert_int_equal(TRMI_NEW(NULL, items, SIZE_MAX / 4, "for too many"), TRM_NOMEM);
    assert_int_equal(TRMI_NEW(&err, items, -1, "for a negative count"), TRM_NOMEM);
    assert_int_equal(TRMI_GROW(&err, more, capacity, 5, "for a list"), TRM_OK);
    trmi_alloc_fail_after(1);
    assert_int_equal(TRMI_GROW(&err, more, capacity, 500, "for a list"), TRM_NOMEM);
    assert_string_equal(err.message, "no memory for a list (4000 bytes)");
    free(more);
    assert_int_equal(TRMI_NEW_IN(&err, &arena, items, 2, "for two"), TRM_OK);
    assert_int_equal(TRMI_CHECK_MEMORY(&err, &arena, "for the arena"), TRM_OK);
    trmi_alloc_fail_after(1);
    assert_null(trmi_arena_alloc(&arena, 1 << 20));
    assert_non_null(trmi_arena_strdup(&arena, "later"));
    assert_int_equal(TRMI_CHECK_MEMORY(&err, &arena, "for the arena"), TRM_NOMEM);
    assert_string_equal(err.message, "no memory for the arena");
    trmi_arena_free(&arena);
    assert_false(arena.failed);
}

static int failing_write_calls;
static ssize_t full_disk(void *context, int fd, const void *data, size_t bytes) {
    failing_write_calls++;
    errno = ENOSPC;
    return -1;
}

static void replace_file_is_old_or_new(void **state) {
    trm_error err;
    char path[] = "/tmp/trireme_base_XXXXXX";
    int fd = mkstemp(path);
    close(fd);
    CHECK_OK(trmi_os_replace_file(NULL, path, "old", 3, &err), err);
    trmi_os nasty = *trmi_os_real();
    nasty.write = full_disk;
    CHECK_FAILS(trmi_os_replace_file(&nasty, path, "new!", 4, &err), TRM_NOSPACE, err, path);
    uint8_t *data;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(path, 100, &data, &bytes, &err), err);
    assert_int_equal(bytes, 3);
    assert_string_equal((char *)data, "old");
    trmi_free(data);
    CHECK_FAILS(trmi_os_read_file(path, 2, &data, &bytes, &err), TRM_CORRUPT, err, "at most 2");
    unlink(path);
    CHECK_FAILS(trmi_os_read_file(path, 2, &data, &bytes, &err), TRM_IO, err, "No such file");
}

/* A pipe and /dev/null are not replaced, and opening a pipe for reading does not wait for a writer.
 */
static void pipes_are_neither_replaced_nor_waited_for(void **state) {
    trm_error err;
    char path[64];
    uint8_t *data;
    size_t bytes;
    trmi_mapping mapping;
    snprintf(path, sizeof path, "/tmp/trireme_base_%ld", (long)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    CHECK_FAILS(trmi_os_replace_file(NULL, path, "new", 3, &err), TRM_IO, err, "a device or pipe");
    CHECK_FAILS(trmi_os_read_file(path, 100, &data, &bytes, &err), TRM_IO, err,
                "not a regular file");
    CHECK_FAILS(trmi_mapping_open(path, &mapping, &err), TRM_IO, err, "not a regular file");
    unlink(path);
    CHECK_FAILS(trmi_os_replace_file(NULL, "/tmp", "new", 3, &err), TRM_IO, err,
                "/tmp: a directory");
}

static void *produce_items(void *arg) {
    for (intptr_t i = 1; i <= 1000; i++) {
        assert_int_equal(trmi_queue_push(arg, (void *)i), TRM_OK);
    }
    trmi_queue_close(arg);
    return NULL;
}

static void queue_keeps_order_and_ends(void **state) {
    trmi_queue *queue;
    trm_error err;
    CHECK_OK(trmi_queue_create(3, &queue, &err), err);
    void *item;
    assert_int_equal(trmi_queue_pop(queue, 0.01, &item), TRM_TIMEOUT);
    pthread_t thread;
    pthread_create(&thread, NULL, produce_items, queue);
    for (intptr_t i = 1; i <= 1000; i++) {
        assert_int_equal(trmi_queue_pop(queue, -1, &item), TRM_OK);
        assert_int_equal((intptr_t)item, i);
    }
    assert_int_equal(trmi_queue_pop(queue, -1, &item), TRM_END);
    pthread_join(thread, NULL);
    assert_int_equal(trmi_queue_push(queue, item), TRM_CANCELLED);
    trmi_queue_destroy(queue);
}

/* An append takes the room that was reserved, and never allocates. */
static void an_append_has_the_room_that_was_reserved(void **state) {
    enum { FIRST = 3, ITEMS = 20 };
    trmi_queue *queue;
    trm_error err;
    void *item;
    (void)state;
    CHECK_OK(trmi_queue_create(FIRST, &queue, &err), err);
    for (intptr_t i = 0; i < FIRST; i++) {
        assert_int_equal(trmi_queue_append(queue, (void *)i), TRM_OK);
    }
    assert_int_equal(trmi_queue_append(queue, queue), TRM_NOMEM);
    /* the ring begins in the middle when it grows */
    assert_int_equal(trmi_queue_pop(queue, 0, &item), TRM_OK);
    assert_int_equal(trmi_queue_append(queue, (void *)(intptr_t)FIRST), TRM_OK);
    trmi_alloc_fail_after(1);
    assert_int_equal(trmi_queue_reserve(queue, ITEMS), TRM_NOMEM);
    trmi_alloc_fail_after(0);
    assert_int_equal(trmi_queue_reserve(queue, ITEMS), TRM_OK);
    trmi_alloc_fail_after(1);
    for (intptr_t i = FIRST + 1; i <= ITEMS; i++) {
        assert_int_equal(trmi_queue_append(queue, (void *)i), TRM_OK);
    }
    trmi_alloc_fail_after(0);
    for (intptr_t i = 1; i <= ITEMS; i++) {
        assert_int_equal(trmi_queue_pop(queue, 0, &item), TRM_OK);
        assert_int_equal((intptr_t)item, i);
    }
    trmi_queue_destroy(queue);
}

/* Entries with equal hashes are all found, in the order in which they were added, while the index
 * grows. */
static void entries_are_found_by_hash(void **state) {
    enum { ENTRIES = 3000, HASHES = 700 };
    trmi_hash_index index = {0};
    uint64_t probe = 0;
    assert_int_equal(trmi_hash_index_next(&index, 5, &probe), -1);
    for (int64_t i = 0; i < ENTRIES; i++) {
        assert_true(trmi_hash_index_add(&index, (uint64_t)(i % HASHES) << 7, i));
    }
    for (int64_t h = 0; h < HASHES; h++) {
        probe = 0;
        for (int64_t i = h; i < ENTRIES; i += HASHES) {
            assert_int_equal(trmi_hash_index_next(&index, (uint64_t)h << 7, &probe), i);
        }
        assert_int_equal(trmi_hash_index_next(&index, (uint64_t)h << 7, &probe), -1);
    }
    trmi_hash_index_clear(&index);
    probe = 0;
    assert_int_equal(trmi_hash_index_next(&index, 0, &probe), -1);
    trmi_alloc_fail_after(1);
    /* the memory is kept: no allocation is needed for as many entries */
    for (int64_t i = 0; i < ENTRIES; i++) {
        assert_true(trmi_hash_index_add(&index, (uint64_t)i, i));
    }
    trmi_alloc_fail_after(0);
    trmi_hash_index_free(&index);
}

static void nearest_knows_swaps_and_beginnings(void **state) {
    (void)state;
    static const char *const words[] = {"train", "eval", "plan", "export", "doctor"};
    assert_string_equal(trm_nearest_word("trian", words, 5), "train");
    assert_string_equal(trm_nearest_word("evla", words, 5), "eval");
    assert_string_equal(trm_nearest_word("doc", words, 5), "doctor");
    assert_null(trm_nearest_word("benchmark", words, 5));
    assert_null(trm_nearest_word("elf", words, 5));
    static const char *const flags[] = {"n", "batch-size", "learning-rate"};
    assert_string_equal(trm_nearest_word("lr", flags, 3), "learning-rate");
    assert_string_equal(trm_nearest_word("bs", flags, 3), "batch-size");
    assert_string_equal(trm_nearest_word("batchsize", flags, 3), "batch-size");
    assert_null(trm_nearest_word("x", flags, 3));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(trm_nearest_word(longest, words, 5));
}

/* Returns the megabytes of address space that this process has mapped. */
static long mapped_megabytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return pages / 256;
}

/* Returns whether the page at `address` is in memory; fails where nothing is mapped. */
static bool is_resident(const char *address) {
    unsigned char used = 0;
    void *page = (void *)((uintptr_t)address / 4096 * 4096);
    assert_int_equal(mincore(page, 4096, &used), 0);
    return (used & 1) != 0;
}

static bool is_mapped(const char *address) {
    unsigned char used;
    void *page = (void *)((uintptr_t)address / 4096 * 4096);
    return mincore(page, 4096, &used) == 0;
}

static char *map_filled(size_t megabytes) {
    char *memory = trmi_map(megabytes << 20);
    assert_non_null(memory);
    memset(memory, 1, megabytes << 20);
    return memory;
}

/* A kept mapping stays in memory, and is zero when it is taken again, also where its pages were
 * given back in between; those cost nothing then. What the request does not need is freed. */
static void kept_mappings_are_zeroed(void **state) {
    (void)state;
    const size_t large = (size_t)12 << 20, small = ((size_t)7 << 20) + 5000, page = 4096,
                 given_back = (size_t)4 << 20;
    trmi_keep_mappings(true);
    char *first = map_filled(12);
    trmi_release_pages(first + given_back, (size_t)2 << 20);
    trmi_unmap(first, large);
    assert_true(is_mapped(first) && is_resident(first) && is_resident(first + large - page));
    char *again = trmi_map(small);
    assert_ptr_equal(again, first);
    assert_true(is_resident(again) && is_resident(again + small - 1));
    assert_false(is_resident(again + given_back + page)); /* not yet used */
    assert_false(is_mapped(first + large - page));        /* more than the request */
    for (size_t i = 0; i < small; i += 7) {
        assert_int_equal(again[i], 0);
    }
    memset(again, 2, small);
    trmi_unmap(again, small);
    assert_true(is_mapped(again));
    trmi_keep_mappings(false);
    assert_false(is_mapped(again));
    again = map_filled(12);
    trmi_unmap(again, large); /* nothing is kept any more */
    assert_false(is_mapped(again));
}

/* While mappings are kept, those and the ones in use never have more than was in use at once: a
 * request that no kept one is large enough for frees as much as it maps, and a small one too. */
static void kept_mappings_are_bounded(void **state) {
    enum { COUNT = 12, EACH = 8, LARGER = 10, SMALLER = 3, NOISE = 2 };
    (void)state;
    char *memory[2 * COUNT];
    const long before = mapped_megabytes();
    trmi_keep_mappings(true);
    for (int i = 0; i < COUNT; i++) {
        memory[i] = map_filled(EACH);
    }
    for (int i = 0; i < COUNT; i++) {
        trmi_unmap(memory[i], (size_t)EACH << 20);
    }
    assert_in_range(mapped_megabytes() - before, COUNT * EACH - NOISE, COUNT * EACH + NOISE);
    for (int i = 0; i < COUNT; i++) { /* of small ones, too, until nothing is kept */
        const size_t size = i % 2 == 0 ? LARGER : SMALLER;
        const int in_use = (i + 2) / 2 * LARGER + (i + 1) / 2 * SMALLER;
        memory[i] = map_filled(size);
        assert_in_range(mapped_megabytes() - before, in_use - NOISE,
                        (in_use > COUNT * EACH ? in_use : COUNT * EACH) + NOISE);
    }
    assert_in_range(mapped_megabytes() - before, COUNT * EACH / 2, COUNT * EACH + NOISE);
    for (int i = 0; i < COUNT; i++) {
        trmi_unmap(memory[i], (size_t)(i % 2 == 0 ? LARGER : SMALLER) << 20);
    }
    trmi_keep_mappings(false);
    assert_in_range(mapped_megabytes() - before + NOISE, 0, 2 * NOISE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_mappings_are_zeroed),
        cmocka_unit_test(kept_mappings_are_bounded),
        cmocka_unit_test(entries_are_found_by_hash),
        cmocka_unit_test(error_record_survives_the_wire),
        cmocka_unit_test(a_long_sentence_keeps_its_ends),
        cmocka_unit_test(a_median_is_the_middle),
        cmocka_unit_test(nearest_knows_swaps_and_beginnings),
        cmocka_unit_test(warnings_are_seen_without_a_sink),
        cmocka_unit_test(exit_codes_follow_the_contract),
        cmocka_unit_test(shapes_count_and_overflow),
        cmocka_unit_test(philox_matches_its_published_vectors),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(normals_have_mean_zero_and_variance_one),
        cmocka_unit_test(normals_are_box_mullers),
        cmocka_unit_test(crc32c_known_answers),
        cmocka_unit_test(halves_round_trip),
        cmocka_unit_test(elements_of_every_type),
        cmocka_unit_test(json_text_is_escaped_and_exact),
        cmocka_unit_test(what_is_no_utf8_is_replaced_as_unicode_says),
        cmocka_unit_test(amounts_of_memory_have_units_and_three_digits),
        cmocka_unit_test(groups_of_numbers_have_the_bits_of_blocks),
        cmocka_unit_test(arena_is_aligned_and_zeroed),
        cmocka_unit_test(allocation_writes_its_error),
        cmocka_unit_test(replace_file_is_old_or_new),
        cmocka_unit_test(pipes_are_neither_replaced_nor_waited_for),
        cmocka_unit_test(queue_keeps_order_and_ends),
        cmocka_unit_test(an_append_has_the_room_that_was_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
