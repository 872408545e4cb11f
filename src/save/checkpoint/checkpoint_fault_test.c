/* SPDX-License-Identifier: Apache-2.0 */
/* Fails each call of a save, and ends the process or the power after each call. Afterwards the
 * directory loads either the checkpoint before or the new one, complete.
 *
 * The calls are those of the table trmi_os (tests/fault_os.h), counted in a first save; then
 * one save is made for each of them. A loss of power keeps only what was flushed. */
#include "check.h"
#include "fault_os.h"

#include "trireme/io.h"

#include "save/checkpoint/checkpoint.h"

#include <dirent.h>
#include <sys/wait.h>
#include <time.h>

static char root[] = "/dev/shm/trireme_fault_XXXXXX";
static char dir[256], scratch[256];
static fault_os os;

/* In memory where that exists: what matters here is the order of the calls, not the disk. */
static int make_root(void **state) {
    if (mkdtemp(root) == NULL) {
        strcpy(root, "/tmp/trireme_fault_XXXXXX");
        return mkdtemp(root) == NULL;
    }
    return 0;
}
static int remove_root(void **state) { return trmi_os_remove_tree(NULL, root, NULL); }

static void fresh_dir(void) {
    static int serial;
    snprintf(dir, sizeof dir, "%s/%d", root, serial);
    snprintf(scratch, sizeof scratch, "%s/%d.scratch", root, serial++);
    assert_int_equal(mkdir(scratch, 0777), 0);
}

/* The thread sanitizer makes a fork very slow and has nothing to find in a child: it sees a part.
 */
enum { STEP_OF_SWEEP = TRMI_THREAD_SANITIZER ? 7 : 1 };

enum { COUNT = 20000 }; /* 80 KB: gathered pieces and direct ones */

/* Opens a writer on `table`, saves step `step` with `value` everywhere, closes. */
static trm_status save_step(const trmi_os *table, int64_t step, float value, bool background,
                            trm_error *err) {
    static float values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        values[i] = value;
    }
    trm_named_tensor model = {"w", {values, TRM_FLOAT32, trm_shape_of(COUNT)}};
    trm_named_tensor slot = {"w/momentum", {values, TRM_FLOAT32, trm_shape_of(5)}};
    trm_checkpoint_part parts[] = {{.name = "model", .tensors = &model, .count = 1},
                                   {.name = "optimizer", .tensors = &slot, .count = 1}};
    trm_checkpoint_options options = {.keep = 1, .background = background};
    trm_checkpoint_info info = {.global_step = step, .data_position = (int64_t)value};
    trm_checkpoint_writer *writer;
    trm_status status = trmi_checkpoint_writer_open_on(table, dir, &options, &writer, err);
    if (status != TRM_OK) {
        return status;
    }
    status = trm_checkpoint_save(writer, &info, parts, 2, err);
    trm_error close_err;
    trm_status close_status = trm_checkpoint_writer_close(writer, &close_err);
    if (status == TRM_OK && close_status != TRM_OK) {
        *err = close_err;
    }
    return status != TRM_OK ? status : close_status;
}

/* The value that loads, found to be everywhere; 0 for no checkpoint. */
static int load_value(void) {
    trm_checkpoint *found;
    trm_error err;
    trm_status status = trm_checkpoint_open(dir, NULL, &found, &err);
    if (status == TRM_END) {
        return 0;
    }
    CHECK_OK(status, err);
    const trm_checkpoint_info *info = trm_checkpoint_get_info(found);
    const trm_safetensors_entry *w =
        trm_safetensors_find(trm_checkpoint_part_of(found, "model"), "w");
    const trm_safetensors_entry *slot =
        trm_safetensors_find(trm_checkpoint_part_of(found, "optimizer"), "w/momentum");
    int value = (int)info->data_position;
    for (int i = 0; i < COUNT; i++) {
        assert_true(((const float *)w->tensor.data)[i] == (float)value);
    }
    assert_true(((const float *)slot->tensor.data)[4] == (float)value);
    trm_checkpoint_close(found);
    return value;
}

/* A scenario: the first save (none, step 1, step 1), then the save under faults (step 2, step 2,
 * step 1 again). */
typedef struct scenario {
    bool first;
    int64_t second_step;
    bool background;
} scenario;
static const scenario scenarios[] = {
    {false, 2, false}, {true, 2, false}, {true, 1, false}, {true, 2, true}, {true, 1, true}};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static void prepare_scenario(const scenario *s) {
    trm_error err;
    fresh_dir();
    if (s->first) {
        CHECK_OK(save_step(NULL, 1, 1, false, &err), err);
    }
}

static int calls_of(const scenario *s) {
    trm_error err;
    prepare_scenario(s);
    CHECK_OK(save_step(fault_arm(&os, FAULT_NONE, 0, ""), s->second_step, 2, s->background, &err),
             err);
    assert_int_equal(load_value(), 2);
    return os.calls;
}

/* Afterwards a save by a new writer works, and nothing is left lying about. */
static void check_recovery(void) {
    trm_error err;
    CHECK_OK(save_step(NULL, 3, 3, false, &err), err);
    assert_int_equal(load_value(), 3);
    DIR *stream = opendir(dir);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "ckpt-3") != 0 &&
            strcmp(name, "checkpoint") != 0) {
            fail_msg("%s: %s is left over", dir, name);
        }
    }
    closedir(stream);
}

/* Runs the save under faults in a process of its own (its lock dies with it): its exit code. */
static int save_in_child(const trmi_os *table, const scenario *s, int *calls) {
    int pipe_fd[2];
    assert_int_equal(pipe(pipe_fd), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        trm_error err = {0};
        trm_status status = save_step(table, s->second_step, 2, s->background, &err);
        (void)!write(pipe_fd[1], &os.calls, sizeof os.calls);
        _exit(status == TRM_OK && err.message[0] == '\0'   ? 0
              : status != TRM_OK && err.message[0] == '\0' ? 100
                                                           : -status);
    }
    int outcome = 0;
    waitpid(child, &outcome, 0);
    close(pipe_fd[1]);
    *calls = 0;
    (void)!read(pipe_fd[0], calls, sizeof *calls);
    close(pipe_fd[0]);
    return outcome;
}

static void failing_calls(fault_kind kind, int error) {
    for (int i = 0; i < SCENARIOS; i++) {
        const scenario *s = &scenarios[i];
        int calls = calls_of(s), failures = 0, made;
        assert_in_range(calls, 25, 200);
        for (int k = 1; k <= calls; k += STEP_OF_SWEEP) {
            prepare_scenario(s);
            const trmi_os *table = fault_arm(&os, kind, k, "");
            os.error = error;
            int outcome = save_in_child(table, s, &made);
            assert_true(WIFEXITED(outcome) && made >= k);
            trm_status status = (trm_status)-WEXITSTATUS(outcome);
            int loaded = load_value();
            if (status == TRM_OK) {
                assert_int_equal(loaded, 2);
            } else {
                failures++;
                assert_true(loaded == 2 || loaded == (s->first ? 1 : 0));
                /* not even the folder */
                assert_true(kind != FAULT_ONCE || loaded != 0 || access(dir, F_OK) != 0);
                assert_int_equal(status, error == ENOSPC ? TRM_NOSPACE : TRM_IO);
            }
            check_recovery();
        }
        /* Calls whose failure does no harm: closing, clearing away. All others are reported. */
        assert_true(failures >= calls / STEP_OF_SWEEP / 3);
        print_message("scenario %d: %d calls, %d of the failures reported\n", i, calls, failures);
    }
}

static void every_call_fails_once(void **state) { failing_calls(FAULT_ONCE, EIO); }
static void the_disk_is_full_from_every_call_on(void **state) {
    failing_calls(FAULT_FROM_THEN_ON, ENOSPC);
}

static void age_lock(void) {
    char path[600];
    struct timespec before[2] = {{.tv_sec = time(NULL) - 10}, {.tv_sec = time(NULL) - 10}};
    snprintf(path, sizeof path, "%s/.trireme.lock", dir);
    utimensat(AT_FDCWD, path, before, 0);
}

static void check_deaths(fault_kind kind) {
    for (int i = 0; i < SCENARIOS; i++) {
        const scenario *s = &scenarios[i];
        int calls = calls_of(s), seen_old = 0, seen_new = 0;
        for (int k = 1; k <= calls; k += STEP_OF_SWEEP) {
            prepare_scenario(s);
            int made, outcome = save_in_child(fault_arm(&os, kind, k, scratch), s, &made);
            if (kind == FAULT_POWER_CUT) {
                age_lock(); /* starting again takes longer than writing a lock */
            }
            assert_true(WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGKILL);
            int loaded = load_value();
            assert_true(loaded == 2 || loaded == (s->first ? 1 : 0));
            seen_old += loaded != 2;
            seen_new += loaded == 2;
            check_recovery();
        }
        assert_true(seen_old > 0 && seen_new > 0);
        print_message("scenario %d: killed at each of %d calls: %d times the old, %d the new\n", i,
                      calls, seen_old, seen_new);
    }
}

static void killed_at_every_call(void **state) { check_deaths(FAULT_KILL); }
static void power_cut_at_every_call(void **state) { check_deaths(FAULT_POWER_CUT); }

/* Training goes on after a failed save: the same writer saves the next time. */
static void a_writer_outlives_its_failures(void **state) {
    float value[4] = {1, 1, 1, 1};
    trm_named_tensor model = {"w", {value, TRM_FLOAT32, trm_shape_of(4)}};
    trm_checkpoint_part part = {.name = "model", .tensors = &model, .count = 1};
    for (int background = 0; background < 2; background++) {
        trm_error err;
        trm_checkpoint_writer *writer;
        fresh_dir();
        const trmi_os *table = fault_arm(&os, FAULT_ONCE, 0, "");
        trm_checkpoint_options options = {.keep = 2, .background = background};
        CHECK_OK(trmi_checkpoint_writer_open_on(table, dir, &options, &writer, &err), err);
        int64_t step = 0, failures = 0;
        for (int k = 1; k <= 25; k++) {
            os.calls = 0;
            os.at = k;
            trm_checkpoint_info info = {.global_step = ++step};
            trm_status status = trm_checkpoint_save(writer, &info, &part, 1, &err);
            status = status == TRM_OK ? trm_checkpoint_wait(writer, &err) : status;
            failures += status != TRM_OK;
            os.at = 0;
            info.global_step = ++step;
            CHECK_OK(trm_checkpoint_save(writer, &info, &part, 1, &err), err);
            CHECK_OK(trm_checkpoint_wait(writer, &err), err);
            int64_t latest;
            CHECK_OK(trm_checkpoint_latest(dir, &latest, &err), err);
            assert_int_equal(latest, step);
        }
        assert_true(failures > 10);
        CHECK_OK(trm_checkpoint_writer_close(writer, &err), err);
    }
}

static void short_writes_and_interrupts_do_not_matter(void **state) {
    trm_error err;
    fresh_dir();
    CHECK_OK(save_step(fault_arm(&os, FAULT_SHORT_WRITES, 0, ""), 1, 2, false, &err), err);
    assert_int_equal(load_value(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(the_disk_is_full_from_every_call_on),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(power_cut_at_every_call),
        cmocka_unit_test(a_writer_outlives_its_failures),
        cmocka_unit_test(short_writes_and_interrupts_do_not_matter),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
