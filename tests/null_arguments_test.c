/* SPDX-License-Identifier: Apache-2.0 */
/* Calls every public function with NULL for each pointer that is not documented as optional, and
 * with options whose members are all zero. Each call runs in a child process, so that a crash or a
 * hang names the function. The other pointers lead to zeros: an argument must be checked before
 * anything is read. The table is written from the public headers by tests/null_arguments.py. */
#include "check.h"
#include "folder.h"

#include "trireme/graph.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* One call: which pointer is NULL (-1: none), what the others are, and what came back. */
typedef struct null_call {
    int absent;
    int plain; /* value of all arguments that are not pointers */
    void *zeros;
    const char *path;
    trm_graph *graph;
    trm_error *err;
    trm_status status;
    bool differs; /* the value is not the documented one */
} null_call;

typedef struct null_row {
    const char *name;
    void (*call)(null_call *c);
    enum { STATUS, VALUE, ENDS } kind;
    bool has_error, keeps_in_graph, zero_options;
    const char *const *pointers; /* their names */
    const int *asked;            /* those that must not be NULL, ended by -1 */
} null_row;

/* Stands for any pointer to a function. */
static void *any_function(void) { return NULL; }

#pragma GCC diagnostic ignored "-Wcast-function-type"
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "null_arguments_table.h"

#define ZERO_BYTES (1 << 20)

/* A child's report: a sentence about the error, or empty without one. */
typedef struct report {
    char wrong[400];
} report;

/* Checks what a call with a NULL pointer gave. */
static void judge_call(const null_row *row, null_call *c, const trm_error *err, const char *pointer,
                       report *out) {
    trm_error kept = {0};
    const char *message = err->message;
    bool sentence = row->has_error;
    if (row->keeps_in_graph && c->absent >= 0 && strcmp(pointer, "graph") != 0) {
        (void)!trm_graph_check(c->graph, &kept);
        message = kept.message;
        sentence = true;
    }
    if (row->kind == STATUS && c->status != TRM_INVALID) {
        snprintf(out->wrong, sizeof out->wrong, "returns %s, expected TRM_INVALID",
                 trm_status_name(c->status));
    } else if (row->kind == VALUE && c->differs) {
        snprintf(out->wrong, sizeof out->wrong, "returns another value than the documented one");
    } else if (row->kind != ENDS && sentence &&
               (strstr(message, pointer) == NULL || strstr(message, "NULL") == NULL)) {
        snprintf(out->wrong, sizeof out->wrong,
                 "its message is '%.200s', expected '... '%s' is NULL ...'", message, pointer);
    }
}

/* Runs one call in a child and writes what is wrong to `shared`. with_error: pass a trm_error. With
 * plain arguments of 0, the object (the first pointer) alone is tried as NULL, without a judgement:
 * the call must not crash. */
static void run_call(const null_row *row, int absent, int plain, bool with_error, report *shared) {
    shared->wrong[0] = '\0';
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        signal(SIGFPE, SIG_DFL);
        alarm((unsigned)(20 * check_patience()));
        trm_error err = {0};
        null_call c = {.absent = absent,
                       .plain = plain,
                       .path = in_folder("none"),
                       .err = with_error ? &err : NULL};
        c.zeros =
            mmap(NULL, ZERO_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (c.zeros == MAP_FAILED || trm_graph_create(NULL, &c.graph, &err) != TRM_OK) {
            _exit(9);
        }
        row->call(&c);
        if (absent >= 0 && with_error && plain != 0) {
            judge_call(row, &c, &err, row->pointers[absent], shared);
        } else if (absent < 0 && c.status != TRM_OK && err.message[0] == '\0') {
            snprintf(shared->wrong, sizeof shared->wrong, "returns %s without a sentence",
                     trm_status_name(c.status));
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) {
        snprintf(shared->wrong, sizeof shared->wrong, "ends by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) != 0) {
        snprintf(shared->wrong, sizeof shared->wrong, "ends the process with code %d",
                 WEXITSTATUS(status));
    }
}

static report *make_shared(void) {
    report *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    return shared;
}

static void test_null_pointers_are_refused(void **state) {
    static const char *const ways[] = {" and no trm_error", "", " and zeros"};
    report *shared = make_shared();
    int wrong = 0, calls = 0;
    for (size_t i = 0; i < sizeof null_rows / sizeof *null_rows; i++) {
        const null_row *row = &null_rows[i];
        for (const int *at = row->asked; *at >= 0; at++) {
            for (int way = row->has_error ? 0 : 1; way < (*at == 0 ? 3 : 2); way++) {
                run_call(row, *at, way<2, way> 0, shared);
                calls++;
                if (shared->wrong[0] != '\0') {
                    print_error("%s: with '%s' NULL%s: %s\n", row->name, row->pointers[*at],
                                ways[way], shared->wrong);
                    wrong++;
                }
            }
        }
    }
    munmap(shared, sizeof *shared);
    assert_true(calls > 700);
    if (wrong > 0) {
        fail_msg("%d of %d calls with a NULL pointer", wrong, calls);
    }
}

static void test_zero_options_do_not_crash(void **state) {
    report *shared = make_shared();
    int wrong = 0, calls = 0;
    for (size_t i = 0; i < sizeof null_rows / sizeof *null_rows; i++) {
        if (null_rows[i].zero_options) {
            run_call(&null_rows[i], -1, 1, true, shared);
            calls++;
            if (shared->wrong[0] != '\0') {
                print_error("%s: with options of zeros: %s\n", null_rows[i].name, shared->wrong);
                wrong++;
            }
        }
    }
    munmap(shared, sizeof *shared);
    assert_true(calls > 20);
    if (wrong > 0) {
        fail_msg("%d of %d calls with options of zeros", wrong, calls);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_null_pointers_are_refused),
                                       cmocka_unit_test(test_zero_options_do_not_crash)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
