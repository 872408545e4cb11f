/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints in a folder: round trip, damage, pruning, marks of readers, the lock of the writer.
 * Failing system calls and crashes are in checkpoint_fault_test.c.
 *
 * Each test writes real files into a folder of its own. Damage is one changed byte or a shorter
 * file; the newest good checkpoint must then be opened, and the message must name the damaged
 * one. */
#include "check.h"

#include "base/error.h"
#include "save/checkpoint/checkpoint.h"
#include "save/checkpoint/lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[] = "/tmp/trireme_checkpoint_XXXXXX";
static char dir[256];

static int make_root(void **state) { return mkdtemp(root) == NULL; }
static int remove_root(void **state) { return trmi_os_remove_tree(NULL, root, NULL); }
static int fresh_dir(void **state) {
    static int serial;
    snprintf(dir, sizeof dir, "%s/%d/out", root, serial++);
    return 0;
}

static char logged[4096];
static void remember_log(void *context, trm_log_level level, const char *room, const char *line) {
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", line);
}

static const char *in_dir(const char *format, ...) {
    static char path[2][512];
    static int turn;
    turn ^= 1;
    int used = snprintf(path[turn], sizeof path[turn], "%s/", dir);
    va_list args;
    va_start(args, format);
    vsnprintf(path[turn] + used, sizeof path[turn] - (size_t)used, format, args);
    va_end(args);
    return path[turn];
}

static bool path_exists(const char *path) { return access(path, F_OK) == 0; }

enum { COUNT = 1500000 }; /* 6 MB: two blocks */

/* A model of one large and one small tensor, all set from `value`. */
static trm_status save_step(trm_checkpoint_writer *writer, int64_t step, float value,
                            trm_error *err) {
    static float large[COUNT];
    float slot[3] = {value, value, value};
    for (int i = 0; i < COUNT; i++) {
        large[i] = value + (float)i;
    }
    int64_t batches = step;
    trm_named_tensor model[] = {{"fc.weight", {large, TRM_FLOAT32, trm_shape_of(COUNT)}},
                                {"bn.num_batches_tracked", {&batches, TRM_INT64, {0}}}};
    trm_named_tensor slots[] = {{"fc.weight/momentum", {slot, TRM_FLOAT32, trm_shape_of(3)}}};
    trm_text_pair metadata = {"format", "pt"};
    trm_checkpoint_part parts[] = {
        {.name = "model", .tensors = model, .count = 2, .metadata = &metadata, .metadata_count = 1},
        {.name = "optimizer", .tensors = slots, .count = 1}};
    char state_json[64];
    snprintf(state_json, sizeof state_json, "{\"value\": %.9g}", (double)value);
    trm_checkpoint_info info = {.global_step = step,
                                .epoch = 3,
                                .data_position = 640,
                                .seed = 0xFEDCBA9876543210u,
                                .world_size = 2,
                                .config_json = "{\"model\": \"resnet50\", \"rate\": 0.1}",
                                .state_json = state_json};
    trm_status status = trm_checkpoint_save(writer, &info, parts, 2, err);
    for (int i = 0; i < COUNT; i++) {
        large[i] = -1; /* with `background`, the copy must be what is saved */
    }
    return status;
}

static trm_checkpoint_writer *open_writer(int32_t keep) {
    trm_checkpoint_writer *writer;
    trm_error err;
    CHECK_OK(
        trm_checkpoint_writer_open(dir, &(trm_checkpoint_options){.keep = keep}, &writer, &err),
        err);
    return writer;
}

static void save_steps(int32_t keep, int from, int to) {
    trm_checkpoint_writer *writer = open_writer(keep);
    trm_error err;
    for (int step = from; step <= to; step++) {
        CHECK_OK(save_step(writer, step, (float)step, &err), err);
    }
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
}

/* The step that loads, with all its values right; -1 for none. */
static int64_t load_step(void) {
    trm_checkpoint *found;
    trm_error err;
    trm_status status = trm_checkpoint_open(dir, NULL, &found, &err);
    if (status == TRM_END) {
        return -1;
    }
    CHECK_OK(status, err);
    int64_t step = trm_checkpoint_get_info(found)->global_step;
    const trm_safetensors *model = trm_checkpoint_part_of(found, "model");
    static float large[COUNT];
    trm_tensor into = {large, TRM_FLOAT32, trm_shape_of(COUNT)};
    CHECK_OK(trm_safetensors_read(model, "fc.weight", &into, &err), err);
    for (int i = 0; i < COUNT; i++) {
        assert_true(large[i] == (float)step + (float)i);
    }
    trm_checkpoint_close(found);
    return step;
}

static void change_byte(const char *path, long offset) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, offset, SEEK_SET);
    int c = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(c ^ 0x10, file);
    fclose(file);
}

static void everything_comes_back(void **state) {
    trm_error err;
    save_steps(3, 100, 100);
    trm_checkpoint *found;
    CHECK_OK(trm_checkpoint_open(dir, NULL, &found, &err), err);
    const trm_checkpoint_info *info = trm_checkpoint_get_info(found);
    assert_int_equal(info->global_step, 100);
    assert_int_equal(info->epoch, 3);
    assert_int_equal(info->data_position, 640);
    assert_true(info->seed == 0xFEDCBA9876543210u);
    assert_int_equal(info->world_size, 2);
    assert_string_equal(info->config_json, "{\"model\":\"resnet50\",\"rate\":0.10000000000000001}");
    assert_string_equal(info->state_json, "{\"value\":100}");
    assert_true(info->saved_unix_seconds > 1.7e9);
    assert_string_equal(trm_checkpoint_get_info(found)->path, in_dir("ckpt-100"));
    assert_int_equal(trmi_checkpoint_part_count(found), 2);
    assert_string_equal(trmi_checkpoint_part_name(found, 1), "optimizer");
    assert_null(trm_checkpoint_part_of(found, "nothing"));
    const trm_safetensors *model = trm_checkpoint_part_of(found, "model");
    assert_string_equal(trm_safetensors_metadata(model, "format"), "pt");
    trm_checkpoint_close(found);
    assert_int_equal(load_step(), 100);
    CHECK_OK(trm_checkpoint_open(in_dir("ckpt-100/"), NULL, &found, &err), err);
    trm_checkpoint_close(found);
    CHECK_FAILS(trm_checkpoint_open(in_dir("ckpt-7"), NULL, &found, &err), TRM_INVALID, err,
                "no such checkpoint");
}

static void none_at_all_is_harmless(void **state) {
    trm_checkpoint *found;
    trm_error err;
    int64_t step;
    CHECK_FAILS(trm_checkpoint_open(dir, NULL, &found, &err), TRM_END, err, "no checkpoint here");
    trm_checkpoint_writer *writer = open_writer(1);
    CHECK_FAILS(trm_checkpoint_open(dir, NULL, &found, &err), TRM_END, err, "no checkpoint here");
    CHECK_FAILS(trm_checkpoint_latest(dir, &step, &err), TRM_END, err, "no complete");
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    CHECK_FAILS(trm_checkpoint_open("/etc/hostname", NULL, &found, &err), TRM_INVALID, err,
                "expected");
}

static void damage_is_named_and_skipped(void **state) {
    trm_error err;
    trm_checkpoint *found;
    save_steps(-1, 1, 3);
    change_byte(in_dir("ckpt-3/model.safetensors"), 5000000);
    logged[0] = '\0';
    trm_log_set_sink(remember_log, NULL, TRM_LOG_WARN);
    CHECK_OK(trm_checkpoint_open(dir, NULL, &found, &err), err);
    assert_int_equal(trm_checkpoint_get_info(found)->global_step, 2);
    assert_int_equal(trm_checkpoint_get_info(found)->skipped, 1);
    trm_checkpoint_close(found);
    assert_non_null(strstr(logged, "ckpt-3/model.safetensors: block 1 ("));
    assert_non_null(strstr(logged, "at offset 4194304) is damaged: crc32c"));
    CHECK_FAILS(trm_checkpoint_open(in_dir("ckpt-3"), NULL, &found, &err), TRM_CORRUPT, err,
                "block 1");
    assert_int_equal(truncate(in_dir("ckpt-2/optimizer.safetensors"), 40), 0);
    assert_int_equal(load_step(), 1);
    assert_non_null(strstr(logged, "optimizer.safetensors: 40 bytes,"));
    /* Only damaged ones are left: never a silent fresh start. */
    assert_int_equal(unlink(in_dir("ckpt-1/manifest.json")), 0);
    CHECK_FAILS(trm_checkpoint_open(dir, NULL, &found, &err), TRM_CORRUPT, err,
                "none of the other 2 is good");
    assert_int_equal(unlink(in_dir("ckpt-3/model.safetensors")), 0);
    CHECK_FAILS(trm_checkpoint_open(in_dir("ckpt-3"), NULL, &found, &err), TRM_CORRUPT, err,
                "missing, ");
    CHECK_FAILS(trm_checkpoint_open(in_dir("ckpt-1"), NULL, &found, &err), TRM_CORRUPT, err,
                "manifest.json: missing");
    trm_log_set_sink(NULL, NULL, TRM_LOG_ERROR);
}

/* One checkpoint in so many hours is not pruned, also when another process writes. */
static void some_are_kept_for_ever(void **state) {
    trm_error err;
    double hours = 0.4 / 3600;
    for (int round = 0, step = 1; round < 2; round++) {
        trm_checkpoint_writer *writer;
        const trm_checkpoint_options options = {.keep = 1, .keep_every_hours = hours};
        CHECK_OK(trm_checkpoint_writer_open(dir, &options, &writer, &err), err);
        for (int i = 0; i < 8; i++, step++) {
            CHECK_OK(save_step(writer, step, (float)step, &err), err);
            usleep(100000);
        }
        CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    }
    int there = 0, kept = 0;
    for (int step = 1; step <= 16; step++) {
        char name[64];
        snprintf(name, sizeof name, "ckpt-%d", step);
        there += access(in_dir(name), R_OK) == 0;
        snprintf(name, sizeof name, ".kept-ckpt-%d", step);
        kept += access(in_dir(name), R_OK) == 0;
    }
    /* 16 saves, at least 1.6 s: one in 0.4 s, the newest, and never all. A slow machine keeps more.
     */
    assert_true(kept >= 2 && kept <= 15 && there == kept + 1);
    assert_int_equal(load_step(), 16);
    save_steps(1, 17, 17); /* for ever: also when the setting is gone */
    int after = 0;
    for (int step = 1; step <= 16; step++) {
        char name[64];
        snprintf(name, sizeof name, "ckpt-%d", step);
        after += access(in_dir(name), R_OK) == 0;
    }
    assert_int_equal(after, kept);
}

/* Every single byte of a manifest is guarded. */
static void no_changed_manifest_is_accepted(void **state) {
    trm_error err;
    save_steps(1, 1, 1);
    uint8_t *text;
    size_t bytes;
    trmi_checkpoint_manifest manifest;
    CHECK_OK(trmi_os_read_file(in_dir("ckpt-1/manifest.json"), 1 << 20, &text, &bytes, &err), err);
    CHECK_OK(trmi_manifest_parse((char *)text, bytes, "m", &manifest, &err), err);
    trmi_manifest_free(&manifest);
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(trmi_manifest_parse((char *)text, bytes, "m", &manifest, &err),
                             TRM_CORRUPT);
            text[i] ^= (uint8_t)(1 << bit);
        }
        assert_int_equal(trmi_manifest_parse((char *)text, i, "m", &manifest, &err), TRM_CORRUPT);
    }
    trmi_free(text);
}

static void a_newer_format_is_not_passed_over(void **state) {
    trm_error err;
    trm_checkpoint *found;
    save_steps(-1, 1, 2);
    trmi_text text = {0};
    trmi_text_printf(&text, "{\"format\":\"trireme-checkpoint\",\"version\":2");
    char checksum[TRMI_DIGEST_HEX];
    trmi_digest_of(text.data, text.length, checksum);
    trmi_text_printf(&text, ",\n\"checksum\":\"%s\"}\n", checksum);
    CHECK_OK(
        trmi_os_replace_file(NULL, in_dir("ckpt-2/manifest.json"), text.data, text.length, &err),
        err);
    trmi_text_free(&text);
    /* Although ckpt-1 is good: going back behind it must be the user's choice. */
    CHECK_FAILS(trm_checkpoint_open(dir, NULL, &found, &err), TRM_UNSUPPORTED, err,
                "format version 2, this trireme reads up to 1");
    CHECK_FAILS(trm_checkpoint_open(in_dir("ckpt-2"), NULL, &found, &err), TRM_UNSUPPORTED, err,
                "format version 2");
}

/* The newest checkpoint is so damaged that its step cannot be read; the message still names it. */
static void a_damaged_manifest_is_named(void **state) {
    trm_error err;
    trm_checkpoint *found;
    save_steps(-1, 1, 2);
    change_byte(in_dir("ckpt-2/manifest.json"), 30);
    logged[0] = '\0';
    trm_log_set_sink(remember_log, NULL, TRM_LOG_WARN);
    CHECK_OK(trm_checkpoint_open(dir, NULL, &found, &err), err);
    trm_log_set_sink(NULL, NULL, TRM_LOG_ERROR);
    assert_int_equal(trm_checkpoint_get_info(found)->global_step, 1);
    assert_int_equal(trm_checkpoint_get_info(found)->skipped, 1);
    assert_non_null(strstr(logged, "ckpt-2/manifest.json: damaged"));
    trm_checkpoint_close(found);
}

static void old_ones_are_pruned(void **state) {
    save_steps(2, 1, 5);
    assert_false(path_exists(in_dir("ckpt-3")));
    assert_true(path_exists(in_dir("ckpt-4")));
    assert_int_equal(load_step(), 5);
    trm_error err;
    uint8_t *text;
    size_t bytes;
    CHECK_OK(trmi_os_read_file(in_dir("checkpoint"), 10000, &text, &bytes, &err), err);
    static const char expected[] = "model_checkpoint_path: \"ckpt-5\"\n"
                                   "all_model_checkpoint_paths: \"ckpt-4\"\n"
                                   "all_model_checkpoint_paths: \"ckpt-5\"\n"
                                   "all_model_checkpoint_timestamps: ";
    assert_memory_equal(text, expected, sizeof expected - 1);
    trmi_free(text);
    /* Nothing else is left lying about. */
    DIR *stream = opendir(dir);
    int count = 0;
    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    assert_int_equal(count, 2 + 3);
}

static void two_good_ones_always_stay(void **state) {
    trm_error err;
    save_steps(-1, 1, 3);
    change_byte(in_dir("ckpt-3/model.safetensors"), 100000);
    save_steps(2, 4, 4); /* 4 and 3 would stay; 3 is damaged, so 2 stays too */
    assert_true(path_exists(in_dir("ckpt-2")));
    assert_false(path_exists(in_dir("ckpt-1")));
    assert_true(path_exists(in_dir("ckpt-4")));
    /* One in use stays as well, until its reader has closed it. */
    trm_checkpoint *found;
    trm_checkpoint_open_options mark = {.mark_in_use = true};
    CHECK_OK(trm_checkpoint_open(in_dir("ckpt-2"), &mark, &found, &err), err);
    save_steps(1, 5, 6);
    assert_true(path_exists(in_dir("ckpt-2")));
    assert_false(path_exists(in_dir("ckpt-4")));
    trm_checkpoint_close(found);
    save_steps(1, 7, 7);
    assert_false(path_exists(in_dir("ckpt-2")));
    assert_int_equal(load_step(), 7);
}

static void marks_of_dead_readers_do_not_count(void **state) {
    save_steps(1, 1, 1);
    pid_t child = fork();
    if (child == 0) {
        trm_checkpoint *found;
        trm_checkpoint_open_options mark = {.mark_in_use = true};
        _exit(trm_checkpoint_open(dir, &mark, &found, NULL) == TRM_OK ? 0 : 1);
    }
    int outcome;
    waitpid(child, &outcome, 0);
    assert_int_equal(outcome, 0);
    save_steps(1, 2, 2);
    assert_false(path_exists(in_dir("ckpt-1")));
}

static void the_newest_is_the_last_saved(void **state) {
    save_steps(2, 8, 9);
    save_steps(2, 3, 3); /* a run that went back to step 2 */
    assert_int_equal(load_step(), 3);
    assert_false(path_exists(in_dir("ckpt-8")));
    int64_t step;
    trm_error err;
    CHECK_OK(trm_checkpoint_latest(dir, &step, &err), err);
    assert_int_equal(step, 3);
}

static void a_step_can_be_saved_again(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer = open_writer(1);
    CHECK_OK(save_step(writer, 5, 1, &err), err);
    CHECK_OK(save_step(writer, 5, 5, &err), err);
    assert_int_equal(load_step(), 5);
    assert_false(path_exists(in_dir("ckpt-5.old")));
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    /* Interrupted between the two renames: the old one gets its name back. */
    assert_int_equal(rename(in_dir("ckpt-5"), in_dir("ckpt-5.old")), 0);
    assert_int_equal(load_step(), 5);
    CHECK_OK(trm_checkpoint_writer_close(open_writer(1), &err), err);
    assert_true(path_exists(in_dir("ckpt-5")));
    assert_int_equal(load_step(), 5);
}

static void saving_in_the_background(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    trm_checkpoint_options options = {.keep = 2, .background = true};
    CHECK_OK(trm_checkpoint_writer_open(dir, &options, &writer, &err), err);
    for (int step = 1; step <= 4; step++) {
        CHECK_OK(save_step(writer, step, (float)step, &err), err);
    }
    CHECK_OK(trm_checkpoint_wait(writer, &err), err);
    CHECK_OK(trm_checkpoint_wait(writer, &err), err);
    assert_int_equal(load_step(), 4);
    /* An error comes out once, at the next call, which still saves. */
    assert_int_equal(mkdir(in_dir("checkpoint.d"), 0777), 0);
    assert_int_equal(unlink(in_dir("checkpoint")), 0);
    assert_int_equal(mkdir(in_dir("checkpoint"), 0777), 0);
    CHECK_OK(save_step(writer, 5, 5, &err), err);
    CHECK_FAILS(save_step(writer, 6, 6, &err), TRM_IO, err, "the save before step 6");
    CHECK_FAILS(trm_checkpoint_wait(writer, &err), TRM_IO, err, "checkpoint: a directory");
    assert_int_equal(rmdir(in_dir("checkpoint")), 0);
    CHECK_OK(save_step(writer, 7, 7, &err), err);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    assert_int_equal(load_step(), 7);
}

static void full_disks_are_seen_before_writing(void **state) {
    trm_error err;
    size_t bytes = (size_t)1 << 44;
    void *huge = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (huge == MAP_FAILED) {
        print_message("skipped: no 16 TB of address space\n");
        return;
    }
    trm_checkpoint_writer *writer = open_writer(1);
    trm_named_tensor tensor = {"w", {huge, TRM_UINT8, trm_shape_of((int64_t)bytes)}};
    trm_checkpoint_part part = {.name = "model", .tensors = &tensor, .count = 1};
    CHECK_FAILS(
        trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 1}, &part, 1, &err),
        TRM_NOSPACE, err, "needs 21110");
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    munmap(huge, bytes);
}

/* Rows of three numbers: those of row i begin at 3 i. From `fails` on there are none. */
typedef struct origin {
    int64_t next, fails, calls;
} origin;

static trm_status read_rows(void *context, const trm_named_tensor *tensor, int64_t first,
                            int64_t rows, void *to, trm_error *err) {
    origin *o = context;
    float *values = to;
    assert_string_equal(tensor->name, "table");
    assert_int_equal(first, o->next);
    o->next = first + rows;
    o->calls++;
    if (o->next > o->fails) {
        return TRMI_FAIL(err, TRM_PEER, "server 1 is gone");
    }
    for (int64_t i = 0; i < 3 * rows; i++) {
        values[i] = (float)(3 * first + i);
    }
    return TRM_OK;
}

static void tables_are_read_while_they_are_written(void **state) {
    enum { ROWS = 1000003 }; /* 12 MB */
    trm_error err;
    trm_checkpoint_writer *writer;
    CHECK_OK(trm_checkpoint_writer_open(
                 dir, &(trm_checkpoint_options){.keep = 3, .background = true}, &writer, &err),
             err);
    float one = 1;
    const trm_named_tensor tensors[] = {
        {.name = "bias", .tensor = {&one, TRM_FLOAT32, trm_shape_of(1)}},
        {.name = "table", .tensor = {NULL, TRM_FLOAT32, trm_shape_of(ROWS, 3)}},
        {.name = "z", .tensor = {&one, TRM_FLOAT32, trm_shape_of(1)}}};
    origin o = {.fails = ROWS};
    trm_checkpoint_part part = {
        .name = "model", .tensors = tensors, .count = 3, .read = read_rows, .read_context = &o};
    CHECK_OK(trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 4}, &part, 1, &err),
             err);
    assert_true(o.next == ROWS && o.calls == 3);
    o = (origin){.fails = ROWS - 1};
    CHECK_FAILS(
        trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 5}, &part, 1, &err),
        TRM_PEER, err, "server 1 is gone");
    part.read = NULL;
    CHECK_FAILS(
        trm_checkpoint_save(writer, &(trm_checkpoint_info){.global_step = 5}, &part, 1, &err),
        TRM_INVALID, err, "has no data");
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    trm_checkpoint *found;
    CHECK_OK(trm_checkpoint_open(dir, NULL, &found, &err), err);
    assert_int_equal(trm_checkpoint_get_info(found)->global_step, 4);
    float *values = malloc(3 * ROWS * sizeof *values);
    assert_non_null(values);
    const trm_tensor into = {values, TRM_FLOAT32, trm_shape_of(ROWS, 3)},
                     last = {&one, TRM_FLOAT32, trm_shape_of(1)};
    const trm_safetensors *model = trm_checkpoint_part_of(found, "model");
    CHECK_OK(trm_safetensors_read(model, "table", &into, &err), err);
    for (int64_t i = 0; i < 3 * ROWS; i++) {
        assert_true(values[i] == (float)i);
    }
    one = 0;
    CHECK_OK(trm_safetensors_read(model, "z", &last, &err), err);
    assert_true(one == 1);
    free(values);
    trm_checkpoint_close(found);
}

static void bad_input_is_refused(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer = open_writer(1);
    float one = 1;
    trm_named_tensor tensor = {"w", {&one, TRM_FLOAT32, trm_shape_of(1)}};
    trm_checkpoint_part parts[] = {{.name = "model", .tensors = &tensor, .count = 1},
                                   {.name = "model", .tensors = &tensor, .count = 1}};
    trm_checkpoint_info info = {.global_step = 1, .config_json = "[1]"};
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 1, &err), TRM_INVALID, err,
                "JSON object");
    info.config_json = "{\"a\":1,\"a\":2}";
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 1, &err), TRM_INVALID, err,
                "JSON object");
    info.config_json = NULL;
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 2, &err), TRM_INVALID, err, "two parts");
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 0, &err), TRM_INVALID, err, "0 parts");
    parts[0].name = "../model";
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 1, &err), TRM_INVALID, err, "a name of");
    parts[0].name = "model";
    info.global_step = -1;
    CHECK_FAILS(trm_checkpoint_save(writer, &info, parts, 1, &err), TRM_INVALID, err, "negative");
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    assert_int_equal(load_step(), -1);
}

static void one_writer_at_a_time(void **state) {
    trm_error err;
    trm_checkpoint_writer *first = open_writer(1), *second;
    char pid[32];
    snprintf(pid, sizeof pid, "pid %ld on ", (long)getpid());
    CHECK_FAILS(trm_checkpoint_writer_open(dir, NULL, &second, &err), TRM_INVALID, err, pid);
    /* Taken away: it saves no more, and leaves the other's lock alone. */
    CHECK_OK(trmi_os_replace_file(NULL, in_dir(TRMI_LOCK_NAME), "x", 1, &err), err);
    CHECK_FAILS(save_step(first, 1, 1, &err), TRM_INVALID, err, "is no lock any more");
    CHECK_OK(trm_checkpoint_writer_close(first, &err), err);
    assert_true(path_exists(in_dir(TRMI_LOCK_NAME)));
    /* Removed: by a user, for instance. */
    assert_int_equal(unlink(in_dir(TRMI_LOCK_NAME)), 0);
    first = open_writer(1);
    assert_int_equal(unlink(in_dir(TRMI_LOCK_NAME)), 0);
    CHECK_FAILS(save_step(first, 2, 1, &err), TRM_INVALID, err, "its file was removed");
    CHECK_OK(trm_checkpoint_writer_close(first, &err), err);
}

/* A program that changes its working directory goes on saving where it began. */
static void a_relative_folder_stays_where_it_was(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    char here[512];
    assert_non_null(getcwd(here, sizeof here));
    CHECK_OK(trmi_os_make_dirs(NULL, dir, &err), err);
    assert_int_equal(chdir(dir), 0);
    CHECK_OK(trm_checkpoint_writer_open("of/this", NULL, &writer, &err), err);
    assert_int_equal(chdir("/"), 0);
    CHECK_OK(save_step(writer, 1, 1, &err), err);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    assert_int_equal(chdir(here), 0);
    strcat(dir, "/of/this");
    assert_int_equal(load_step(), 1);
    assert_false(path_exists(in_dir(TRMI_LOCK_NAME)));
}

static void write_lock(const char *host, long pid, const char *machine, double age) {
    trm_error err;
    char text[512];
    int length = snprintf(text, sizeof text,
                          "trireme-lock 1\nhost %s\npid %ld\nstart_ticks 1\nmachine %s\n"
                          "since 1700000000.000\nserial 0\n",
                          host, pid, machine);
    CHECK_OK(trmi_os_replace_file(NULL, in_dir(TRMI_LOCK_NAME), text, (size_t)length, &err), err);
    struct timespec times[2] = {{.tv_sec = (time_t)(trmi_os_wall() - age)},
                                {.tv_sec = (time_t)(trmi_os_wall() - age)}};
    assert_int_equal(utimensat(AT_FDCWD, in_dir(TRMI_LOCK_NAME), times, 0), 0);
}

static void locks_of_the_dead_are_taken_over(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    save_steps(1, 1, 1);
    pid_t child = fork();
    if (child == 0) { /* dies with the lock in its hands */
        _exit(trm_checkpoint_writer_open(dir, NULL, &writer, NULL) == TRM_OK ? 0 : 1);
    }
    int outcome;
    waitpid(child, &outcome, 0);
    assert_int_equal(outcome, 0);
    assert_true(path_exists(in_dir(TRMI_LOCK_NAME)));
    CHECK_OK(trm_checkpoint_writer_close(open_writer(1), &err), err);
    /* On another machine, silence decides. */
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 10);
    CHECK_FAILS(trm_checkpoint_writer_open(dir, NULL, &writer, &err), TRM_INVALID, err,
                "pid 17 on elsewhere writes here since 2023-11-14");
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 90);
    CHECK_OK(trm_checkpoint_writer_close(open_writer(1), &err), err);
    assert_false(path_exists(in_dir(TRMI_LOCK_NAME)));
}

/* An owner elsewhere that lives. */
typedef struct toucher {
    char path[4096];
    atomic_bool stop;
} toucher;

static void *touch_lock(void *context) {
    toucher *t = context;
    while (!atomic_load(&t->stop)) {
        utimensat(AT_FDCWD, t->path, NULL, 0);
        usleep(100000);
    }
    return NULL;
}

/* A job that begins again soon after its host has died waits until the silence has lasted, and not
 * less; beside a writer that lives it ends soon, as one does that is not to wait. */
static void a_silent_lock_is_outwaited(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    const trm_checkpoint_options outwaits = {.outwait_lock = true};
    save_steps(1, 1, 1);
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 50);
    CHECK_FAILS(trm_checkpoint_writer_open(dir, NULL, &writer, &err), TRM_INVALID, err,
                "pid 17 on elsewhere writes here since 2023-11-14");
    double begun = trmi_os_now();
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 54);
    CHECK_OK(trm_checkpoint_writer_open(dir, &outwaits, &writer, &err), err);
    assert_true(trmi_os_now() - begun > 4.5); /* the stamp is of whole seconds */
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 10);
    static toucher owner;
    pthread_t thread;
    snprintf(owner.path, sizeof owner.path, "%s", in_dir(TRMI_LOCK_NAME));
    pthread_create(&thread, NULL, touch_lock, &owner);
    begun = trmi_os_now();
    CHECK_FAILS(trm_checkpoint_writer_open(dir, &outwaits, &writer, &err), TRM_INVALID, err,
                "pid 17 on elsewhere writes here since 2023-11-14");
    assert_true(trmi_os_now() - begun < 40); /* it counts as gone after 65 s, if it were silent */
    atomic_store(&owner.stop, true);
    pthread_join(thread, NULL);
}

/* The limit of the start is one of this wait: its error says when the owner counts as gone. */
static void a_silent_lock_is_outwaited_within_the_limit(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    const trm_checkpoint_options outwaits = {.outwait_lock = true, .outwait_seconds = 3};
    save_steps(1, 1, 1);
    write_lock("elsewhere", 17, "other-boot/pid:[1]", 10);
    const double begun = trmi_os_now();
    CHECK_FAILS(trm_checkpoint_writer_open(dir, &outwaits, &writer, &err), TRM_INVALID, err,
                "the limit: start again then, or raise the limit (--start-timeout)");
    assert_true(trmi_os_now() - begun > 2.9 && trmi_os_now() - begun < 40);
    const char *gone = strstr(err.message, "counts as gone in ");
    assert_non_null(gone);
    assert_in_range(atoi(gone + strlen("counts as gone in ")), 10, 47);
    assert_true(path_exists(in_dir(TRMI_LOCK_NAME))); /* it is still the owner's */
}

/* In a container whose first process does not reap, a killed process stays a zombie. */
static void a_zombie_does_not_hold_a_lock(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    siginfo_t info;
    save_steps(1, 1, 1);
    pid_t child = fork();
    if (child == 0) {
        _exit(trm_checkpoint_writer_open(dir, NULL, &writer, NULL) == TRM_OK ? 0 : 1);
    }
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT),
                     0); /* it is not reaped */
    assert_int_equal(info.si_status, 0);
    assert_true(path_exists(in_dir(TRMI_LOCK_NAME)));
    CHECK_OK(trm_checkpoint_writer_open(dir, NULL, &writer, &err), err);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    waitpid(child, NULL, 0);
}

static void a_lock_shows_signs_of_life(void **state) {
    trm_error err;
    struct stat info;
    trm_checkpoint_writer *writer = open_writer(1);
    struct timespec before[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, in_dir(TRMI_LOCK_NAME), before, 0), 0);
    double deadline = trmi_os_now() + 60; /* it is due every 5 s */
    do {
        usleep(100000);
        assert_int_equal(stat(in_dir(TRMI_LOCK_NAME), &info), 0);
    } while (info.st_mtim.tv_sec == 1000 && trmi_os_now() < deadline);
    assert_int_not_equal(info.st_mtim.tv_sec, 1000);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
}

static void *leave_later(void *writer) {
    usleep(200000);
    trm_error err;
    return trm_checkpoint_writer_close(writer, &err) == TRM_OK ? NULL : writer;
}

static void waiting_for_the_lock(void **state) {
    trm_error err;
    trm_checkpoint_writer *first = open_writer(1), *second;
    pthread_t thread;
    pthread_create(&thread, NULL, leave_later, first);
    trm_checkpoint_options patient = {.lock_wait_seconds = 20};
    CHECK_OK(trm_checkpoint_writer_open(dir, &patient, &second, &err), err);
    pthread_join(thread, NULL);
    CHECK_OK(trm_checkpoint_writer_close(second, &err), err);
}

/* A killed process that still ends, as a rank whose launcher has just been killed. */
static void a_writer_that_ends_is_waited_for(void **state) {
    trm_error err;
    trm_checkpoint_writer *writer;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool ok = trm_checkpoint_writer_open(dir, NULL, &writer, NULL) == TRM_OK;
        ok = write(ready[1], "x", 1) == 1 && ok;
        usleep(300000);
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    CHECK_OK(trm_checkpoint_writer_open(dir, NULL, &writer, &err), err);
    CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    int outcome;
    waitpid(child, &outcome, 0);
    assert_int_equal(outcome, 0);
    close(ready[0]);
    close(ready[1]);
}

static void left_overs_are_cleared(void **state) {
    trm_error err;
    save_steps(1, 1, 1);
    assert_int_equal(mkdir(in_dir("ckpt-2.tmp.1-1"), 0777), 0);
    assert_int_equal(mkdir(in_dir(".trash-ckpt-0-1-1"), 0777), 0);
    CHECK_OK(trmi_os_replace_file(NULL, in_dir("ckpt-2.tmp.1-1/manifest.json"), "{", 1, &err), err);
    assert_int_equal(load_step(), 1);
    CHECK_OK(trm_checkpoint_writer_close(open_writer(1), &err), err);
    assert_false(path_exists(in_dir("ckpt-2.tmp.1-1")));
    assert_false(path_exists(in_dir(".trash-ckpt-0-1-1")));
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_dir)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(everything_comes_back),
        TEST(some_are_kept_for_ever),
        TEST(none_at_all_is_harmless),
        TEST(damage_is_named_and_skipped),
        TEST(no_changed_manifest_is_accepted),
        TEST(a_newer_format_is_not_passed_over),
        TEST(a_damaged_manifest_is_named),
        TEST(old_ones_are_pruned),
        TEST(two_good_ones_always_stay),
        TEST(marks_of_dead_readers_do_not_count),
        TEST(the_newest_is_the_last_saved),
        TEST(a_step_can_be_saved_again),
        TEST(saving_in_the_background),
        TEST(full_disks_are_seen_before_writing),
        TEST(bad_input_is_refused),
        TEST(tables_are_read_while_they_are_written),
        TEST(one_writer_at_a_time),
        TEST(a_relative_folder_stays_where_it_was),
        TEST(locks_of_the_dead_are_taken_over),
        TEST(a_silent_lock_is_outwaited),
        TEST(a_silent_lock_is_outwaited_within_the_limit),
        TEST(a_zombie_does_not_hold_a_lock),
        TEST(a_lock_shows_signs_of_life),
        TEST(waiting_for_the_lock),
        TEST(a_writer_that_ends_is_waited_for),
        TEST(left_overs_are_cleared),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
