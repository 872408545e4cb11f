/* SPDX-License-Identifier: Apache-2.0 */
/* Time limits of measuring messages and operators: what a description has when the limit is
 * passed, and that all ranks stop together.
 *
 * Ranks are threads (tests/ranks.h). A rank that fails alone in a measurement must
 * end the others before their deadline, and a search that is longer than the deadline, but
 * gives signs of life, must not. */
#include "ranks.h"

#include "exec/autoparallel/near_ties.h"
#include "exec/autoparallel/search_costs.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 2, BATCH = 8, WIDTH = 24 };

typedef struct shared {
    bool kept;      /* look for a kept description instead */
    bool replans;   /* ranks wait for another plan */
    double seconds; /* the limit */
    trm_status status[RANKS];
    trm_error error;
    trmi_op_benchmark_time time;
    bool noted;         /* rank 0 noted its progress, which is logged after a second */
    char text[1 << 14]; /* of rank 0 */
} shared;

/* Looks for the description of messages. */
static trm_status find_kept(shared *all, trmi_op_benchmark *probe, trm_error *err) {
    trmi_costs costs;
    char *text = NULL;
    const trmi_costs_options options = {.probe = probe,
                                        .backend = "ref",
                                        .tuning_file = "",
                                        .threads = 1,
                                        .together = 1,
                                        .ranks = RANKS,
                                        .limit_seconds = all->seconds,
                                        .replans = all->replans};
    TRMI_TRY(trmi_costs_open(&costs, &options, err));
    trm_status status = trmi_costs_links(&costs, &text, err);
    snprintf(all->text, sizeof all->text, "%s", status == TRM_OK ? text : "");
    trm_free(text);
    trmi_costs_close(&costs);
    trm_status ended = trmi_op_benchmark_end(probe, err);
    return status == TRM_OK ? ended : status;
}

/* Measures messages and one operator within the limit. */
static trm_status measure_within_limit(shared *all, trmi_op_benchmark *probe, int32_t op,
                                       trm_error *err) {
    trmi_mesh mesh;
    trmi_text text = {0};
    TRMI_TRY(trmi_mesh_parse("2", &mesh, err));
    probe->seconds = all->seconds;
    probe->brief = true;
    probe->reach = 1;
    trm_status status = trmi_link_benchmark(probe, &text, err);
    snprintf(all->text, sizeof all->text, "%s", status == TRM_OK ? text.data : "");
    trmi_text_free(&text);
    status = status == TRM_OK ? trmi_op_benchmark_measure(probe, op, &mesh, "n", &all->time, err)
                              : status;
    trm_status ended = trmi_op_benchmark_end(probe, err);
    all->noted = probe->progress.begin > 0;
    return status == TRM_OK ? ended : status;
}

static void run_rank(rank_context *context, trm_comm *comm) {
    shared *all = context->arg;
    trm_error err;
    trm_graph *g;
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(BATCH, WIDTH));
    trm_node a = trm_parameter(g, "a", trm_shape_of(WIDTH, WIDTH), TRM_INIT_LINEAR), gradient;
    x = trm_linear(g, x, a, TRM_NO_NODE);
    int32_t op = g->values[x.id].op;
    trm_node loss = trm_reduce_mean(g, x, NULL, 0, false);
    trm_gradients(g, loss, &a, 1, &gradient);
    CHECK_OK(trm_graph_check(g, &err), err);
    trmi_op_benchmark probe = {.comm = comm,
                               .graph = g,
                               .backend = "ref",
                               .tuning_file = "",
                               .threads = 1,
                               .cores = RANKS,
                               .load = 1,
                               .optimizer = {.kind = TRM_SGD}};
    all->status[context->rank] =
        context->rank == 0 ? (all->kept ? find_kept(all, &probe, &all->error)
                                        : measure_within_limit(all, &probe, op, &all->error))
                           : trmi_op_benchmark_serve(&probe, &all->error);
    trmi_op_benchmark_close(&probe);
    trm_graph_destroy(g);
}

/* Runs the ranks with this limit. kept: they look for a kept description; replans: while they wait
 * for another plan. */
static shared *run_ranks(double seconds, bool kept, bool replans) {
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->seconds = seconds;
    all->kept = kept;
    all->replans = replans;
    ranks_run_joined(RANKS, false, run_rank, all, "limit");
    for (int r = 0; r < RANKS; r++) {
        CHECK_OK(all->status[r], all->error);
    }
    return all;
}

/* No curve is better than some: two all-reduces price all messages. An operator runs once. */
static void a_limit_that_is_passed_leaves_no_curves(void **state) {
    (void)state;
    trmi_links links;
    trm_error err;
    shared *all = run_ranks(1e-9, false, false);
    CHECK_OK(trmi_links_parse(all->text, &links, &err), err);
    assert_true(links.curves_count == 0 && links.update.count == 0 && links.levels_count == 1);
    assert_true(strstr(all->text, TRMI_LINKS_CUT) != NULL);
    assert_true(links.levels[0].alpha > 0 && links.levels[0].beta > 0);
    assert_true(all->time.forward > 0 && all->time.backward > 0);
    munmap(all, sizeof *all);
}

static void a_long_limit_leaves_every_curve(void **state) {
    (void)state;
    static const char *const words[] = {
        "allreduce 2",   "allgather 2",   "reducescatter 2", "alltoall 2", "gradients 2",
        "copy 1",        "gatherstore 2", "slices 2",        "update 1",   "scatterstore 2",
        "sliceupdate 2", "sums 1",        "overhead"};
    shared *all = run_ranks(3600, false, false);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_non_null(strstr(all->text, words[i]));
    }
    assert_null(strstr(all->text, TRMI_LINKS_CUT));
    assert_true(all->time.forward > 0 && all->time.backward > 0 && all->noted);
    munmap(all, sizeof *all);
}

/* Limits follow the predicted step, within bounds. */
static void a_short_step_is_measured_for_a_short_time(void **state) {
    (void)state;
    assert_true(trmi_costs_limit(0, 0.001) == 3 && trmi_costs_limit(0, 0.02) == 10);
    assert_true(trmi_costs_limit(0, 0.5) == 30 && trmi_costs_limit(0, 2) == 80);
    assert_true(trmi_costs_limit(7, 2) == 7);
    assert_true(trmi_ties_seconds(TRM_ON, 0, 0.001) == 3 &&
                trmi_ties_seconds(TRM_ON, 0, 0.5) == 40);
    assert_true(trmi_ties_seconds(TRM_ON, 0, 2) == 120 && trmi_ties_seconds(TRM_ON, 5, 2) == 5);
}

/* Ranks that wait for another plan take the messages of the nearest number of ranks that was
 * measured on this host, the larger one of two, also those of a busy machine; without one they
 * measure. Those of a job that begins measure, also within a limit. */
static void ranks_that_replan_take_what_was_measured(void **state) {
    (void)state;
    static const char form[] =
        "# " TRMI_LINKS_FORM "\nlevel host %d 5 4\ncores 2\ntogether %d\nload 9\n"
        "points allreduce 2 4096:10 65536:20\n"
        "points update 1 4096:10 65536:20\n";
    char folder[] = "/tmp/trireme-links-XXXXXX", path[600], host[64] = "", text[400];
    trm_error err;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    shared *all = run_ranks(1e-9, true, true);
    assert_true(strstr(all->text, TRMI_LINKS_CUT) != NULL);
    munmap(all, sizeof *all);
    snprintf(path, sizeof path, "rm -r %s/*", folder);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/trireme", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    for (int ranks = 3; ranks <= 5; ranks += 2) { /* of 3 and of 5 ranks */
        snprintf(path, sizeof path, "%s/trireme/links-%s-%d-of-%d-t1-shm.txt", folder, host, RANKS,
                 ranks);
        snprintf(text, sizeof text, form, ranks, ranks);
        CHECK_OK(trmi_os_replace_file(NULL, path, text, strlen(text), &err), err);
    }
    all = run_ranks(1e-9, true, true);
    assert_non_null(strstr(all->text, "together 3\n"));
    munmap(all, sizeof *all);
    all = run_ranks(1e-9, true, false);
    assert_null(strstr(all->text, "together 3\n"));
    assert_non_null(strstr(all->text, TRMI_LINKS_CUT)); /* measured */
    munmap(all, sizeof *all);
    snprintf(path, sizeof path, "rm -r %s", folder);
    assert_int_equal(system(path), 0);
}

/* Rank 0 computes for three times the deadline of an operation; the others wait for it. */
static void search_for_long(rank_context *context) {
    OPEN_COMM();
    trmi_op_benchmark probe = {.comm = comm, .load = 1};
    if (rank == 0) {
        EXPECT_OK(trmi_op_benchmark_lead(&probe, &err), err);
        usleep((useconds_t)(3e6 * given->options.timeout_seconds));
        EXPECT_OK(trmi_op_benchmark_load(&probe, &err), err);
        EXPECT_OK(trmi_op_benchmark_end(&probe, &err), err);
        EXPECT(probe.signs == NULL, "the session has ended");
    } else {
        EXPECT_OK(trmi_op_benchmark_serve(&probe, &err), err);
    }
    trmi_op_benchmark_close(&probe);
    CLOSE_COMM();
}

static void a_search_longer_than_the_deadline_ends_no_job(void **state) {
    (void)state;
    rank_setup setup = {.options = {.timeout_seconds = 0.8 * check_patience()}};
    ranks_run(3, 0, false, search_for_long, &setup, "one host");
    ranks_run(2, 1, false, search_for_long, &setup, "two hosts");
}

/* Rank 0 searches for three deadlines and counts what it does, then is stuck: the others end, and
 * their error says where. */
static void stop_in_a_search(rank_context *context) {
    OPEN_COMM();
    const double deadline = given->options.timeout_seconds;
    trmi_op_benchmark probe = {.comm = comm, .load = 1, .patience = 2 * deadline};
    if (rank == 0) {
        EXPECT_OK(trmi_op_benchmark_lead(&probe, &err), err);
        trmi_signs_note(probe.signs, "searching plans by mesh");
        for (double end = trmi_os_now() + 3 * deadline; trmi_os_now() < end; usleep(10000)) {
            atomic_fetch_add(&probe.done, 1);
        }
        EXPECT_OK(trm_comm_health(comm, &err), err);
        for (double end = trmi_os_now() + 20 * deadline;
             trmi_os_now() < end && trm_comm_health(comm, &err) == TRM_OK; usleep(10000)) {
        }
        EXPECT(trmi_op_benchmark_end(&probe, &err) == TRM_TIMEOUT, "rank 0 went on");
    } else {
        double begin = trmi_os_now();
        EXPECT(trmi_op_benchmark_serve(&probe, &err) == TRM_TIMEOUT, "%s", err.message);
        EXPECT(trmi_os_now() - begin > 3 * deadline, "ended while rank 0 searched");
        EXPECT(strstr(err.message, "no progress for ") != NULL &&
                   strstr(err.message, "while searching plans by mesh") != NULL,
               "%s", err.message);
    }
    trmi_op_benchmark_close(&probe);
    CLOSE_COMM();
}

static void a_search_that_is_stuck_ends_the_job_and_is_named(void **state) {
    (void)state;
    rank_setup setup = {.options = {.timeout_seconds = 0.8 * check_patience()}};
    ranks_run(3, 0, false, stop_in_a_search, &setup, "one host");
    ranks_run(2, 1, false, stop_in_a_search, &setup, "two hosts");
}

/* Rank 0 has no memory for a plan that is to be run, while the others wait for its text: they end
 * with this error, and no request of rank 0 takes the place of the text. */
static void fail_in_a_measurement(rank_context *context) {
    OPEN_COMM();
    trmi_op_benchmark probe = {.comm = comm, .load = 1};
    if (rank == 0) {
        trmi_plan_times times;
        trmi_plan_benchmark benchmark = {.plans = {"trireme-plan 1"}, .count = 1};
        EXPECT_OK(trmi_op_benchmark_lead(&probe, &err), err);
        trmi_alloc_fail_after(1); /* its copy of the plan, or, between hosts, a schedule */
        EXPECT(trmi_op_benchmark_plans(&probe, &benchmark, &times, &err) == TRM_NOMEM, "%s",
               err.message);
        trmi_alloc_fail_after(0);
        EXPECT(trmi_op_benchmark_end(&probe, &err) == TRM_NOMEM, "%s", err.message);
    } else {
        EXPECT(trmi_op_benchmark_serve(&probe, &err) == TRM_NOMEM, "%s", err.message);
        EXPECT(strstr(err.message, size == 3 ? "for a plan" : "no memory") != NULL, "%s",
               err.message);
    }
    trmi_op_benchmark_close(&probe);
    CLOSE_COMM();
}

static void a_rank_that_fails_alone_in_a_measurement_ends_all(void **state) {
    (void)state;
    rank_setup setup = {.options = {.timeout_seconds = 10 * check_patience()}};
    ranks_run(3, 0, false, fail_in_a_measurement, &setup, "one host");
    ranks_run(2, 1, false, fail_in_a_measurement, &setup, "two hosts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_longer_than_the_deadline_ends_no_job),
        cmocka_unit_test(a_search_that_is_stuck_ends_the_job_and_is_named),
        cmocka_unit_test(a_rank_that_fails_alone_in_a_measurement_ends_all),
        cmocka_unit_test(ranks_that_replan_take_what_was_measured),
        cmocka_unit_test(a_limit_that_is_passed_leaves_no_curves),
        cmocka_unit_test(a_long_limit_leaves_every_curve),
        cmocka_unit_test(a_short_step_is_measured_for_a_short_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
