/* Every collective over shared memory: ranks as threads and as processes. */
#include "collective_cases.h"

static const int sizes[] = {1, 2, 3, 4, 5, 8};
/* small path, its limit, direct and staged with several chunks */
static const int64_t threads_counts[] = {0, 1, 7, 100, 1000, 5000, -1};
static const int64_t crowd_counts[] = {0, 7, 1500, -1}; /* more ranks than CPUs: every event sleeps */
static const int64_t process_counts[] = {0, 1, 13, 511, 1025, 20011, -1};

static void run_all(bool forked, case_run *run) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        if (run->counts == threads_counts && sizes[i] > 3) {
            run->counts = crowd_counts;
        }
        snprintf(what, sizeof what, "%d %s", sizes[i], forked ? "processes" : "threads");
        ranks_run(sizes[i], 0, forked, case_body, run, what);
    }
}

static void as_threads(void **state) {
    case_run run = {.counts = threads_counts, .options = {.staging_bytes = 16384}};
    run_all(false, &run);
}

static void as_processes(void **state) {
    case_run run = {.counts = process_counts, .options = {.staging_bytes = 32768}, .quick = true};
    run_all(true, &run);
}

static void always_staged(void **state) {
    case_run run = {.counts = process_counts, .quick = true,
                    .options = {.staging_bytes = 8192, .no_direct = true, .engine = "shm"}};
    run_all(false, &run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_threads),
        cmocka_unit_test(as_processes),
        cmocka_unit_test(always_staged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
