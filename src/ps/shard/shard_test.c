/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of shards: windows, the log, snapshots and their files, torn and damaged. */
#include "check.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/rng.h"
#include "ps/snapshot/snapshot.h"
#include "ps/snapshot/snapshot_format.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL /* tests link the library alone */
#include <xxhash.h>

enum { WIDTH = 4, ROWS = 5000 };
static char folder[64];

static int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/ps-shard-XXXXXX");
    return mkdtemp(folder) == NULL;
}
static int remove_folder(void **state) { return trmi_os_remove_tree(NULL, folder, NULL) != TRM_OK; }

static const char *in_folder(const char *name) {
    static char path[2][300];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static trmi_shard *make_shard(int64_t budget, int tables) {
    trm_error err;
    trmi_shard *shard;
    CHECK_OK(trmi_shard_create(budget, &(trmi_row_table_place){.shards = 1}, 0, &shard, &err), err);
    for (int i = 0; i < tables; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        trm_table_options o = {.name = name,
                               .width = WIDTH,
                               .learning_rate = 0.1f,
                               .optimizer = {.kind = TRM_ADAGRAD},
                               .init = {.kind = TRM_ROW_INIT_UNIFORM, .scale = 1},
                               .admission = {.kind = i == 1 ? TRM_ADMIT_COUNT : TRM_ADMIT_ALL}};
        CHECK_OK(trmi_shard_add_table(shard, &o, &err), err);
    }
    return shard;
}

/* A push whose keys and gradients follow from its number. */
static trm_status push_number(trmi_shard *shard, uint32_t worker, uint32_t incarnation,
                              uint64_t number, bool *applied, trm_error *err) {
    uint64_t keys[2][50];
    float g[2][50 * WIDTH];
    trmi_ps_section s[2];
    for (uint32_t t = 0; t < 2; t++) {
        for (uint64_t i = 0; i < 50; i++) {
            keys[t][i] = (number * 37 + i * (t + 3) + worker * 11) % ROWS;
        }
        for (int i = 0; i < 50 * WIDTH; i++) {
            g[t][i] = (float)((number + (uint64_t)i) % 7) - 3;
        }
        s[t] =
            (trmi_ps_section){.table = t, .count = 50, .keys = keys[t], .values = (uint8_t *)g[t]};
    }
    trmi_push_id id = {worker, incarnation, number};
    trmi_push push = {.ids = &id,
                      .id_count = 1,
                      .time = 1000,
                      .clock = (int64_t)number,
                      .rate_scale = 1,
                      .gradient_scale = 1,
                      .dtype = TRM_FLOAT32,
                      .sections = s,
                      .section_count = 2};
    return trmi_shard_push(shard, &push, applied, err);
}

static void assert_same_rows(trmi_shard *a, trmi_shard *b) {
    assert_int_equal(a->tick, b->tick);
    assert_int_equal(a->table_count, b->table_count);
    for (uint32_t t = 0; t < a->table_count; t++) {
        assert_int_equal(a->tables[t]->rows.count, b->tables[t]->rows.count);
        for (uint64_t key = 0; key < ROWS; key++) {
            float va[WIDTH], vb[WIDTH], sa[WIDTH], sb[WIDTH];
            trm_row_info ia = {0}, ib = {0};
            bool there = trmi_row_table_peek(a->tables[t], key, &ia, va, sa);
            assert_int_equal(there, trmi_row_table_peek(b->tables[t], key, &ib, vb, sb));
            if (there) {
                assert_memory_equal(va, vb, sizeof va);
                assert_memory_equal(sa, sb, sizeof sa);
                assert_memory_equal(&ia, &ib, sizeof ia);
            }
        }
    }
    /* Both shards recognise a push that both have applied. */
    for (int64_t i = 0; i < a->window_count; i++) {
        const trmi_window *w = &a->windows[i];
        trmi_push_id id = {w->worker, w->incarnation, w->base};
        assert_int_equal(trmi_window_check(b, &id, NULL), TRM_END);
    }
}

/* ---- exactly once ---------------------------------------------------------------------------- */

static void windows_know_every_push(void **state) {
    trmi_shard *once = make_shard(1 << 26, 2), *many = make_shard(1 << 26, 2);
    trm_error err;
    bool applied;
    for (uint64_t n = 1; n <= 200; n++) {
        CHECK_OK(push_number(once, 3, 1, n, &applied, &err), err);
        assert_true(applied);
    }
    /* Adagrad does not commute, but pushes of distinct numbers that arrive in order, some of them
     * again and again, give the same rows. */
    for (uint64_t n = 1; n <= 200; n++) {
        uint32_t repeats = 1 + trmi_random_u32(4, TRMI_STREAM_TEST, n) % 3;
        for (uint32_t r = 0; r < repeats; r++) {
            CHECK_OK(push_number(many, 3, 1, n, &applied, &err), err);
            assert_int_equal(applied, r == 0);
            uint64_t old = 1 + trmi_random_u32(5, TRMI_STREAM_TEST, n * 3 + r) % n;
            CHECK_OK(push_number(many, 3, 1, old, &applied, &err), err);
            assert_false(applied);
        }
    }
    assert_same_rows(once, many);
    assert_int_equal(many->applied, 200);
    CHECK_FAILS(push_number(many, 3, 1, 201 + 64, &applied, &err), TRM_INVALID, err,
                "at most 64 ahead");
    /* The next incarnation counts from one; the one before is fenced off. */
    CHECK_OK(push_number(many, 3, 2, 1, &applied, &err), err);
    assert_true(applied);
    CHECK_FAILS(push_number(many, 3, 1, 201, &applied, &err), TRM_CANCELLED, err,
                "incarnation 2 has taken over");
    trmi_shard_destroy(once);
    trmi_shard_destroy(many);
}

static void reordered_pushes_are_applied_once_each(void **state) {
    trmi_shard *shard = make_shard(1 << 26, 2);
    trm_error err;
    bool applied;
    char seen[2001] = {0};
    /* Within a window of 60, in any order, with repeats. */
    for (uint64_t base = 0; base < 2000; base += 50) {
        for (uint64_t i = 0; i < 150; i++) {
            uint64_t n = base + 1 + trmi_random_u32(base, TRMI_STREAM_TEST, i) % 50;
            CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
            assert_int_equal(applied, !seen[n]);
            seen[n] = 1;
        }
        for (uint64_t n = base + 1; n <= base + 50; n++) {
            CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
            assert_int_equal(applied, !seen[n]);
            seen[n] = 1;
        }
    }
    assert_int_equal(shard->applied, 2000);
    assert_int_equal(shard->tick, 2000);
    trmi_shard_destroy(shard);
}

/* ---- the log --------------------------------------------------------------------------------- */

static void a_log_brings_back_every_answered_push(void **state) {
    trmi_shard *first = make_shard(1 << 26, 2);
    trm_error err;
    bool applied;
    const char *path = in_folder("log-1");
    CHECK_OK(trmi_shard_log_open(first, NULL, path, false, &err), err);
    for (uint64_t n = 1; n <= 100; n++) {
        for (uint32_t worker = 0; worker < 3; worker++) {
            CHECK_OK(push_number(first, worker, 1, n, &applied, &err), err);
        }
    }
    trmi_shard *again = make_shard(1 << 26, 0);
    int64_t pushes = 0, valid;
    CHECK_OK(trmi_shard_replay(again, path, &pushes, &valid, &err), err);
    CHECK_OK(trmi_shard_apply_held(again, &pushes, &err), err);
    assert_int_equal(pushes, 300);
    assert_same_rows(first, again);
    /* Replaying twice changes nothing. */
    pushes = 0;
    CHECK_OK(trmi_shard_replay(again, path, &pushes, &valid, &err), err);
    CHECK_OK(trmi_shard_apply_held(again, &pushes, &err), err);
    assert_int_equal(pushes, 0);
    assert_same_rows(first, again);
    trmi_shard_destroy(again);
    /* A log that is cut at any byte gives a prefix of its pushes, without a half push and without
     * an error. */
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    int64_t before = 300;
    for (off_t cut = info.st_size - 1; cut > 0; cut -= 1 + info.st_size / 60) {
        assert_int_equal(truncate(path, cut), 0);
        again = make_shard(1 << 26, 0);
        pushes = 0;
        CHECK_OK(trmi_shard_replay(again, path, &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_apply_held(again, &pushes, &err), err);
        assert_true(pushes <= before);
        assert_int_equal(again->tick, pushes);
        before = pushes;
        trmi_shard_destroy(again);
    }
    trmi_shard_destroy(first);
}

/* A snapshot is taken while the last step of the old log is held: the log that begins then has it,
 * whether it is applied or void afterwards. If the snapshot is given up, both logs are replayed:
 * that the step is in both does not decide it. */
static void the_log_of_a_snapshot_has_the_held_step(void **state) {
    trm_error err;
    bool applied;
    int64_t pushes = 0, valid;
    const char *old = in_folder("log-held");
    trmi_shard *first = make_shard(1 << 26, 2);
    CHECK_OK(trmi_shard_log_open(first, NULL, old, false, &err), err);
    CHECK_OK(push_number(first, 0, 1, 1, &applied, &err), err);
    for (int is_void = 0; is_void < 2; is_void++) {
        char path[300];
        snprintf(path, sizeof path, "%s-%d", old, is_void);
        trmi_shard *again = make_shard(1 << 26, 0), *third = make_shard(1 << 26, 0);
        trmi_shard *undecided = make_shard(1 << 26, 0), *both = make_shard(1 << 26, 0);
        CHECK_OK(trmi_shard_replay(again, old, &pushes, &valid, &err), err);
        assert_int_equal(again->tick, 0);
        CHECK_OK(trmi_shard_log_open(again, NULL, path, false, &err), err);
        CHECK_OK(trmi_shard_log_held(again, &err), err);
        CHECK_OK(trmi_shard_replay(undecided, old, &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_replay(undecided, path, &pushes, &valid, &err), err);
        assert_int_equal(undecided->tick, 0);
        assert_int_equal(trmi_shard_held_step(undecided), trmi_shard_held_step(again));
        CHECK_OK(is_void ? trmi_shard_void_held(again, &err)
                         : trmi_shard_apply_held(again, NULL, &err),
                 err);
        assert_int_equal(again->tick, !is_void);
        CHECK_OK(push_number(again, 1, 1, 1, &applied, &err), err);
        CHECK_OK(trmi_shard_replay(third, path, &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_apply_held(third, &pushes, &err), err);
        assert_int_equal(third->tick, 1 + !is_void);
        assert_same_rows(again, third);
        CHECK_OK(trmi_shard_replay(both, old, &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_replay(both, path, &pushes, &valid, &err), err);
        CHECK_OK(trmi_shard_apply_held(both, &pushes, &err), err);
        assert_same_rows(again, both);
        trmi_shard_destroy(again);
        trmi_shard_destroy(third);
        trmi_shard_destroy(undecided);
        trmi_shard_destroy(both);
    }
    trmi_shard_destroy(first);
    (void)state;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

typedef struct finished {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is;
    trm_status status;
    trmi_snapshot_file file;
    trm_error err;
} finished;

#define FINISHED_INIT                                                                              \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, TRM_OK, {{0}, 0, 0, 0, 0}, {   \
            0                                                                                      \
        }                                                                                          \
    }
static void note_finished(void *context, trm_status status, const trmi_snapshot_file *file,
                          const trm_error *err) {
    finished *f = context;
    pthread_mutex_lock(&f->mutex);
    f->is = true;
    f->status = status;
    f->file = *file;
    f->err = *err;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

static void wait_finished(finished *f) {
    pthread_mutex_lock(&f->mutex);
    while (!f->is) {
        pthread_cond_wait(&f->changed, &f->mutex);
    }
    f->is = false;
    pthread_mutex_unlock(&f->mutex);
}

static bool wants_all(void *context, uint32_t table, uint64_t key) { return true; }
static const trmi_snapshot_filter everything = {wants_all, NULL};

/* Makes push number n; after every hundredth some rows leave. */
static void advance_table(trmi_shard *shard, uint64_t n) {
    trm_error err;
    bool applied;
    CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
    for (uint64_t key = n / 100; n % 100 == 0 && key < ROWS; key += 97) {
        trmi_row_table_remove(shard->tables[0], key);
    }
}

static void snapshot_files_hold_the_state_of_their_moment(void **state) {
    trmi_shard *shard = make_shard(1 << 26, 2), *loaded = make_shard(1 << 26, 0);
    trm_error err;
    trmi_snapshot *snapshot;
    finished f = FINISHED_INIT;
    CHECK_OK(trmi_snapshot_create(shard, &snapshot, &err), err);
    uint64_t n = 0;
    for (uint32_t number = 1; number <= 4; number++) {
        char name[32];
        snprintf(name, sizeof name, "snapshot-%u", number);
        CHECK_OK(trmi_os_make_dirs(NULL, in_folder(name), &err), err);
        for (int i = 0; i < 130; i++) {
            advance_table(shard, ++n);
        }
        /* A twin of this moment, from the beginning. */
        trmi_shard *twin = make_shard(1 << 26, 2);
        for (uint64_t m = 1; m <= n; m++) {
            advance_table(twin, m);
        }
        char path[256];
        snprintf(path, sizeof path, "%s", in_folder(name));
        trmi_snapshot_options o = {
            .folder = path, .number = number, .differential = number % 3 != 1, .servers = 1};
        CHECK_OK(trmi_snapshot_begin(snapshot, &o, note_finished, &f, &err), err);
        trm_error busy;
        CHECK_FAILS(trmi_snapshot_begin(snapshot, &o, note_finished, &f, &busy), TRM_INVALID, busy,
                    "still writing");
        while (!trmi_snapshot_walk(snapshot, 100)) {
            advance_table(shard, ++n);
        }
        wait_finished(&f);
        CHECK_OK(f.status, f.err);
        char file[400];
        snprintf(file, sizeof file, "%s/%s", path, f.file.name);
        int64_t rows = 0;
        if (!o.differential) {
            trmi_shard_destroy(loaded);
            loaded = make_shard(1 << 26, 0);
        }
        CHECK_OK(trmi_snapshot_load(loaded, file, f.file.digest, &everything, TRMI_SNAPSHOT_LOAD,
                                    &rows, &err),
                 err);
        assert_int_equal(rows, f.file.rows);
        assert_same_rows(twin, loaded);
        trmi_shard_destroy(twin);
    }
    /* The loaded shard continues; keys that wait for admission were in the file, too. */
    trmi_snapshot_destroy(snapshot);
    trmi_shard_destroy(shard);
    trmi_shard_destroy(loaded);
}

static void damaged_files_never_load(void **state) {
    trmi_shard *shard = make_shard(1 << 26, 2);
    trm_error err;
    bool applied;
    trmi_snapshot *snapshot;
    finished f = FINISHED_INIT;
    CHECK_OK(trmi_snapshot_create(shard, &snapshot, &err), err);
    for (uint64_t n = 1; n <= 20; n++) {
        CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
    }
    trmi_snapshot_options o = {.folder = folder, .number = 1, .servers = 1};
    CHECK_OK(trmi_snapshot_begin(snapshot, &o, note_finished, &f, &err), err);
    while (!trmi_snapshot_walk(snapshot, 1000)) {
    }
    wait_finished(&f);
    CHECK_OK(f.status, f.err);
    uint8_t *bytes;
    size_t size;
    CHECK_OK(trmi_os_read_file(in_folder(f.file.name), 1 << 26, &bytes, &size, &err), err);
    int64_t rows = 0;
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("damaged"));
    for (int i = 0; i < 400; i++) {
        uint32_t at =
            trmi_bounded(trmi_random_u32(8, TRMI_STREAM_TEST, (uint64_t)i), (uint32_t)size);
        size_t length = i % 2 ? size : at;
        uint8_t kept = bytes[at];
        bytes[at] ^= (uint8_t)(i % 2 ? 1 << i % 8 : 0);
        CHECK_OK(trmi_os_replace_file(NULL, path, bytes, length, &err), err);
        bytes[at] = kept;
        trmi_shard *fresh = make_shard(1 << 26, 0);
        assert_int_equal(trmi_snapshot_load(fresh, path, f.file.digest, &everything,
                                            TRMI_SNAPSHOT_VERIFY, &rows, &err),
                         TRM_CORRUPT);
        /* The block is named, unless the damage is in padding. */
        assert_true(strstr(err.message, "block") != NULL ||
                    strstr(err.message, "manifest") != NULL);
        trmi_shard_destroy(fresh);
    }
    trmi_free(bytes);
    trmi_snapshot_destroy(snapshot);
    trmi_shard_destroy(shard);
}

/* ---- files of other versions ----------------------------------------------------------------- */

/* A copy of a shard's file with one block changed as `change` says; both digests are right. */
typedef uint64_t (*changer)(trmi_block *block, const uint8_t *from, uint8_t *to);

static size_t rewrite_blocks(const uint8_t *file, size_t size, changer change, uint8_t *out) {
    size_t at = 0, end = 0;
    while (at < size) {
        trmi_block block;
        memcpy(&block, file + at, sizeof block);
        size_t padded = (size_t)trmi_round_up((int64_t)block.bytes, 8);
        uint8_t *body = out + end + sizeof block;
        memset(body, 0, padded);
        uint64_t bytes = change(&block, file + at + sizeof block, body);
        at += sizeof block + padded;
        block.bytes = bytes;
        block.digest = XXH3_64bits_withSeed(body, bytes, trmi_block_seed(&block));
        memcpy(out + end, &block, sizeof block);
        end += sizeof block + (size_t)trmi_round_up((int64_t)bytes, 8);
    }
    return end;
}

/* As before windows had clocks. */
static uint64_t without_clocks(trmi_block *block, const uint8_t *from, uint8_t *to) {
    const size_t item = offsetof(trmi_window, clock);
    if (block->kind != TRMI_BLOCK_WINDOWS) {
        memcpy(to, from, block->bytes);
        return block->bytes;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        memcpy(to + i * item, from + i * sizeof(trmi_window), item);
    }
    return block->count * item;
}

static uint64_t of_another_version(trmi_block *block, const uint8_t *from, uint8_t *to) {
    memcpy(to, from, block->bytes);
    if (block->kind == TRMI_BLOCK_HEADER) {
        const uint32_t version = TRMI_SNAPSHOT_VERSION + 1;
        memcpy(to + offsetof(trmi_snapshot_header, version), &version, sizeof version);
    }
    return block->bytes;
}

static trm_status load_changed(const uint8_t *file, size_t size, changer change, trmi_shard *into,
                               trm_error *err) {
    uint8_t *changed = trmi_alloc(size);
    int64_t rows = 0;
    char path[300];
    snprintf(path, sizeof path, "%s", in_folder("changed"));
    size_t bytes = rewrite_blocks(file, size, change, changed);
    CHECK_OK(trmi_os_replace_file(NULL, path, changed, bytes, err), *err);
    trm_status status = trmi_snapshot_load(into, path, XXH3_64bits(changed, bytes), &everything,
                                           TRMI_SNAPSHOT_LOAD, &rows, err);
    trmi_free(changed);
    return status;
}

static void files_of_other_versions(void **state) {
    trmi_shard *shard = make_shard(1 << 26, 2), *old = make_shard(1 << 26, 0),
               *strange = make_shard(1 << 26, 0);
    trm_error err;
    bool applied;
    trmi_snapshot *snapshot;
    finished f = FINISHED_INIT;
    CHECK_OK(trmi_snapshot_create(shard, &snapshot, &err), err);
    for (uint64_t n = 1; n <= 20; n++) {
        CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
    }
    const trmi_snapshot_options o = {.folder = folder, .number = 1, .servers = 1};
    CHECK_OK(trmi_snapshot_begin(snapshot, &o, note_finished, &f, &err), err);
    while (!trmi_snapshot_walk(snapshot, 1000)) {
    }
    wait_finished(&f);
    CHECK_OK(f.status, f.err);
    uint8_t *bytes;
    size_t size;
    CHECK_OK(trmi_os_read_file(in_folder(f.file.name), 1 << 26, &bytes, &size, &err), err);
    /* A file of an earlier version loads: its rows, and its windows of pushes. */
    CHECK_OK(load_changed(bytes, size, without_clocks, old, &err), err);
    assert_int_equal(old->table_count, 2);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(old->tables[t]->rows.count, shard->tables[t]->rows.count);
    }
    assert_int_equal(old->window_count, 1);
    assert_true(old->windows[0].base == shard->windows[0].base &&
                old->windows[0].bits == shard->windows[0].bits && old->windows[0].clock == 0);
    CHECK_OK(push_number(old, 1, 1, 20, &applied, &err), err);
    assert_false(applied);
    /* An unknown version is refused with a message that says what to do. */
    CHECK_FAILS(
        load_changed(bytes, size, of_another_version, strange, &err), TRM_UNSUPPORTED, err,
        "of version 2, this program reads version 1: continue with the program that wrote it");
    trmi_free(bytes);
    trmi_snapshot_destroy(snapshot);
    trmi_shard_destroy(shard);
    trmi_shard_destroy(old);
    trmi_shard_destroy(strange);
}

/* ---- failing disks --------------------------------------------------------------------------- */

typedef struct sick {
    trmi_os os;
    int calls, fail_at;
} sick;

static bool call_fails(sick *s) { return ++s->calls == s->fail_at; }
static ssize_t sick_write(void *context, int fd, const void *data, size_t bytes) {
    if (call_fails(context)) {
        errno = ENOSPC;
        return -1;
    }
    return trmi_os_real()->write(NULL, fd, data, bytes);
}
static int sick_fsync(void *context, int fd) {
    if (call_fails(context)) {
        errno = EIO;
        return -1;
    }
    return 0;
}
static int sick_rename(void *context, const char *from, const char *to) {
    if (call_fails(context)) {
        errno = EIO;
        return -1;
    }
    return rename(from, to);
}

static void a_full_disk_fails_the_snapshot_and_nothing_else(void **state) {
    trm_error last = {0};
    for (int k = 1; k < 8; k++) {
        sick s = {*trmi_os_real(), 0, k};
        s.os.context = &s;
        s.os.write = sick_write;
        s.os.fsync = sick_fsync;
        s.os.rename = sick_rename;
        trmi_shard *shard = make_shard(1 << 26, 2);
        trm_error err;
        bool applied;
        trmi_snapshot *snapshot;
        finished f = FINISHED_INIT;
        CHECK_OK(trmi_snapshot_create(shard, &snapshot, &err), err);
        for (uint64_t n = 1; n <= 20; n++) {
            CHECK_OK(push_number(shard, 1, 1, n, &applied, &err), err);
        }
        trmi_snapshot_options o = {.os = &s.os, .folder = folder, .number = 1, .servers = 1};
        unlink(in_folder("server-0-shard-0.full"));
        CHECK_OK(trmi_snapshot_begin(snapshot, &o, note_finished, &f, &err), err);
        while (!trmi_snapshot_walk(snapshot, 1000)) {
        }
        wait_finished(&f);
        bool there = access(in_folder("server-0-shard-0.full"), F_OK) == 0;
        assert_int_not_equal(access(in_folder("server-0-shard-0.full.tmp"), F_OK), 0);
        if (f.status == TRM_OK) {
            assert_true(s.calls < k && there);
            trmi_snapshot_destroy(snapshot);
            trmi_shard_destroy(shard);
            return;
        }
        if (f.status != TRM_NOSPACE && f.status != TRM_IO) {
            CHECK_OK(f.status, f.err);
        }
        last = f.err;
        CHECK_OK(push_number(shard, 1, 1, 21, &applied, &err), err);
        trmi_snapshot_destroy(snapshot);
        trmi_shard_destroy(shard);
    }
    fail_msg("every call failed: %s", last.message);
}

static void a_log_that_cannot_be_written_stops_the_shard(void **state) {
    sick s = {*trmi_os_real(), 0, 9};
    s.os.context = &s;
    s.os.write = sick_write;
    trmi_shard *shard = make_shard(1 << 26, 2);
    trm_error err;
    bool applied;
    const char *path = in_folder("log-sick");
    CHECK_OK(trmi_shard_log_open(shard, &s.os, path, false, &err), err);
    uint64_t n = 1;
    while (push_number(shard, 1, 1, n, &applied, &err) == TRM_OK) {
        n++;
    }
    assert_int_equal(err.status, TRM_NOSPACE);
    CHECK_FAILS(push_number(shard, 1, 1, n, &applied, &err), TRM_NOSPACE, err, "log-sick");
    /* The log has the pushes that were answered, and not the failed one. */
    trmi_shard *again = make_shard(1 << 26, 0);
    int64_t pushes = 0, valid;
    CHECK_OK(trmi_shard_replay(again, path, &pushes, &valid, &err), err);
    CHECK_OK(trmi_shard_apply_held(again, &pushes, &err), err);
    assert_int_equal(pushes, (int64_t)n - 1);
    trmi_shard_destroy(again);
    trmi_shard_destroy(shard);
}

/* Without memory, or where a log cannot be read, it is not known whether it has pushes: a server
 * that took it for one with pushes would refuse to start with other shards. */
static void a_log_of_tables_has_no_pushes(void **state) {
    trmi_shard *shard = make_shard(1 << 26, 2);
    trm_error err;
    bool applied, has = true;
    const char *path = in_folder("log-tables");
    (void)state;
    CHECK_OK(trmi_shard_log_open(shard, NULL, path, false, &err), err);
    CHECK_OK(trmi_shard_log_has_pushes(path, &has, &err), err);
    assert_false(has);
    trmi_alloc_fail_after(1);
    CHECK_FAILS(trmi_shard_log_has_pushes(path, &has, &err), TRM_NOMEM, err, "log-tables");
    trmi_alloc_fail_after(0);
    CHECK_FAILS(trmi_shard_log_has_pushes(in_folder("no-log"), &has, &err), TRM_IO, err, "no-log");
    CHECK_OK(push_number(shard, 1, 1, 1, &applied, &err), err);
    CHECK_OK(trmi_shard_log_has_pushes(path, &has, &err), err);
    assert_true(has);
    trmi_shard_destroy(shard);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_know_every_push),
        cmocka_unit_test(reordered_pushes_are_applied_once_each),
        cmocka_unit_test(a_log_brings_back_every_answered_push),
        cmocka_unit_test(the_log_of_a_snapshot_has_the_held_step),
        cmocka_unit_test(snapshot_files_hold_the_state_of_their_moment),
        cmocka_unit_test(damaged_files_never_load),
        cmocka_unit_test(files_of_other_versions),
        cmocka_unit_test(a_full_disk_fails_the_snapshot_and_nothing_else),
        cmocka_unit_test(a_log_that_cannot_be_written_stops_the_shard),
        cmocka_unit_test(a_log_of_tables_has_no_pushes),
    };
    return cmocka_run_group_tests_name("ps shard", tests, make_folder, remove_folder);
}
