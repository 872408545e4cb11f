/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives between hosts: every collective of tests/collective_cases.h over a simulated network
 * and over TCP, flat and in two levels, by every algorithm; and what happens when the network or a
 * rank misbehaves.
 *
 * The simulated network (tests/lib/sim.c, engine "sim") delays, reorders and flips frames, closes
 * or stalls, all by a seed. Ranks are told which host they are on. Results are computed from the
 * definition, so algorithms are not compared with each other. */
#include "collective_cases.h"
#include "ordered_sum.h"

#include "base/os.h"
#include "comm/net/engines.h"

static const int64_t few_counts[] = {0, 1, 5, 1000, -1};
static const int64_t more_counts[] = {3, 17, 20011, -1};

static void collectives_over_a_simulated_network(void **state) {
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    case_run run = {.counts = few_counts, .options = {.engine = "sim:delay=5,seed=7"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ranks_run(sizes[i], 0, false, case_body, &run, "sim");
    }
}

/* The kinds that an algorithm cannot do go by cost. */
static void by_each_algorithm(void **state) {
    static const char *const names[] = {"direct",   "ring", "halving", "bruck",
                                        "pairwise", "tree", "pipeline"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int size = 2; size <= 6; size += 2) {
            case_run run = {.counts = few_counts,
                            .quick = true,
                            .options = {.engine = "sim", .algorithm = names[i]}};
            ranks_run(size - (int)i % 2, 0, false, case_body, &run, names[i]);
        }
    }
}

static void tcp_flat(void **state) {
    static const int sizes[] = {2, 3, 4, 5, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        case_run run = {.counts = i % 2 ? more_counts : few_counts,
                        .quick = true,
                        .options = {.engine = "tcp"}};
        ranks_run(sizes[i], i % 2 ? 1 : 0, i < 3, case_body, &run, "tcp");
    }
}

static void two_levels(void **state) {
    static const struct {
        int size, per_host;
    } shapes[] = {{4, 2}, {3, 2}, {5, 2}, {6, 3}, {8, 4}, {5, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        case_run run = {.counts = i % 2 ? more_counts : few_counts,
                        .quick = true,
                        .options = {.engine = i % 3 == 2 ? "tcp" : NULL}};
        char what[64];
        snprintf(what, sizeof what, "%d ranks, %d per host", shapes[i].size, shapes[i].per_host);
        ranks_run(shapes[i].size, shapes[i].per_host, i % 2 == 0, case_body, &run, what);
    }
}

/* ---- equal bits ------------------------------------------------------------------------------ */
static void strict_sum(rank_context *context) {
    OPEN_COMM();
    check_ordered_sum(context, comm, 3001, false);
    CLOSE_COMM();
}

static void strict_over_networks(void **state) {
    rank_setup given = {
        .options = {.deterministic = TRM_DETERMINISTIC_STRICT, .algorithm = "ring"}};
    for (int size = 2; size <= 7; size++) {
        ranks_run(size, 2, false, strict_sum, &given, "strict over hosts");
    }
    given.options.engine = "sim:delay=20";
    ranks_run(5, 0, false, strict_sum, &given, "strict over sim");
}

/* Tests the three settings of determinism. "false" measures the network. "true" takes fixed figures
 * and gives the same bits again. "strict" gives the bits of the sum in rank order, which a ring
 * does not. */
static void one_order(rank_context *context) {
    enum { COUNT = 4099, TURNS = 2 };
    static const trm_deterministic orders[] = {TRM_DETERMINISTIC_FALSE, TRM_DETERMINISTIC_TRUE,
                                               TRM_DETERMINISTIC_STRICT};
    trm_error err = {.status = 0};
    float bits[3][TURNS][COUNT];
    for (int o = 0; o < 3; o++) {
        for (int turn = 0; turn < TURNS; turn++) {
            trm_comm_options options = {
                .engine = "tcp", .algorithm = "ring", .deterministic = orders[o]};
            trm_bootstrap *boot = NULL;
            trm_comm *comm = NULL;
            EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
            EXPECT_OK(trm_comm_create(boot, &options, &comm, &err), err);
            const trmi_model fixed = trmi_model_default();
            const trmi_net *net = (const trmi_net *)(const void *)comm->net;
            bool same = memcmp(&net->model, &fixed, sizeof fixed) == 0;
            EXPECT(same == (orders[o] != TRM_DETERMINISTIC_FALSE), "order %d: figures", o);
            for (int i = 0; i < COUNT; i++) {
                bits[o][turn][i] = wild_value(context->rank, i);
            }
            EXPECT_OK(trm_comm_allreduce(comm, bits[o][turn], COUNT, TRM_FLOAT32, TRM_REDUCTION_SUM,
                                         &err),
                      err);
            trm_comm_destroy(comm);
            boot->table->destroy(boot);
        }
    }
    EXPECT(memcmp(bits[1][0], bits[1][1], sizeof bits[1][0]) == 0, "true: other bits");
    EXPECT(memcmp(bits[2][0], bits[2][1], sizeof bits[2][0]) == 0, "strict: other bits");
    EXPECT(memcmp(bits[1][0], bits[2][0], sizeof bits[1][0]) != 0, "a ring sums in rank order?");
    for (int i = 0; i < COUNT; i++) {
        float sum = wild_value(0, i);
        for (int r = 1; r < context->size; r++) {
            sum += wild_value(r, i);
        }
        EXPECT(bits[2][0][i] == sum, "strict: element %d", i);
    }
}

static void three_orders(void **state) { ranks_run(5, 1, false, one_order, NULL, "three orders"); }

/* 300 ones in bf16 over a ring: partial sums that were rounded to bf16 would stop at 256. */
static void wide_partials(rank_context *context) {
    OPEN_COMM();
    uint16_t data[64];
    for (int i = 0; i < 64; i++) {
        data[i] = trmi_float_to_bf16(rank == 0 ? 256 : 1);
    }
    EXPECT_OK(trm_comm_allreduce(comm, data, 64, TRM_BFLOAT16, TRM_REDUCTION_SUM, &err), err);
    for (int i = 0; i < 64; i++) {
        float expected = trmi_bf16_to_float(trmi_float_to_bf16(256 + (float)(size - 1)));
        EXPECT(trmi_bf16_to_float(data[i]) == expected, "%g", trmi_bf16_to_float(data[i]));
    }
    CLOSE_COMM();
}

static void partials_keep_their_bits(void **state) {
    static const char *const names[] = {"ring", "halving", "bruck", "tree", "pipeline", "direct"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rank_setup given = {.options = {.engine = "sim", .algorithm = names[i]}};
        ranks_run(8, 0, false, wide_partials, &given, names[i]);
    }
    rank_setup given = {.options = {.engine = NULL}};
    ranks_run(8, 2, false, wide_partials, &given, "two levels");
}

/* ---- messages -------------------------------------------------------------------------------- */
static void ring_messages(rank_context *context) {
    OPEN_COMM();
    enum { COUNT = 300000 };
    int32_t *out = malloc(COUNT * sizeof *out), *in = malloc(COUNT * sizeof *in),
            small[2] = {rank, 0};
    for (int i = 0; i < COUNT; i++) {
        out[i] = rank * 1000000 + i;
    }
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    trm_message batch[4] = {
        {.peer = right, .buffer = out, .count = COUNT, .dtype = TRM_INT32},
        {.peer = right, .buffer = &small[0], .count = 1, .dtype = TRM_INT32},
        {.receive = true, .peer = left, .buffer = in, .count = COUNT, .dtype = TRM_INT32},
        {.receive = true, .peer = left, .buffer = &small[1], .count = 1, .dtype = TRM_INT32}};
    for (int round = 0; round < 3; round++) {
        trm_request *request = NULL;
        EXPECT_OK(trm_comm_start_exchange(comm, batch, 4, &request, &err), err);
        int64_t sum = rank;
        EXPECT_OK(trm_comm_allreduce(comm, &sum, 1, TRM_INT64, TRM_REDUCTION_SUM, &err), err);
        EXPECT(sum == size * (size - 1) / 2, "sum");
        EXPECT_OK(trm_request_wait(request, -1, &err), err);
        EXPECT(small[1] == left, "%d", small[1]);
        for (int i = 0; i < COUNT; i++) {
            EXPECT(in[i] == left * 1000000 + i, "element %d: %d", i, in[i]);
        }
        EXPECT_OK(trm_comm_exchange(comm, batch, 4, &err), err);
    }
    trm_comm *child = NULL; /* children have networks of their own */
    EXPECT_OK(trm_comm_split(comm, rank % 2, rank, &child, &err), err);
    int64_t one = 1;
    EXPECT_OK(trm_comm_allreduce(child, &one, 1, TRM_INT64, TRM_REDUCTION_SUM, &err), err);
    EXPECT(one == trm_comm_size(child), "%d", (int)one);
    trm_comm_destroy(child);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    free(in);
    free(out);
    CLOSE_COMM();
}

static void messages_between_all_pairs(void **state) {
    rank_setup given = {.options = {.engine = "sim:delay=50"}};
    ranks_run(3, 0, false, ring_messages, &given, "sim");
    given.options.engine = "tcp";
    ranks_run(3, 0, true, ring_messages, &given, "tcp");
    given.options.engine = NULL;
    ranks_run(4, 2, true, ring_messages, &given, "shm and tcp");
    ranks_run(5, 2, false, ring_messages, &given, "shm and tcp");
}

/* A rank that has sent its last word and ended: what is under way still arrives. */
static void last_words(rank_context *context) {
    OPEN_COMM();
    int32_t word = 7 * (rank + 1);
    if (rank == 0) {
        EXPECT_OK(trm_comm_send(comm, &word, 1, TRM_INT32, 1, &err), err);
    } else {
        EXPECT_OK(trm_comm_recv(comm, &word, 1, TRM_INT32, 0, &err), err);
        EXPECT(word == 7, "%d", word);
    }
    CLOSE_COMM();
}

static void last_words_arrive(void **state) {
    rank_setup given = {.options = {.engine = "sim:delay=20000"}};
    ranks_run(2, 0, false, last_words, &given, "sim");
}

/* ---- faults ---------------------------------------------------------------------------------- */
/* Runs until it fails; context->failure is what it said, or how it was wrong. */
static void until_failure(rank_context *context) {
    OPEN_COMM();
    trm_status status = TRM_OK;
    int64_t data[500];
    for (int round = 0; round < 200 && status == TRM_OK; round++) {
        for (int i = 0; i < 500; i++) {
            data[i] = rank + i + round;
        }
        trm_collective op = {.kind = TRM_ALLREDUCE,
                             .recv = data,
                             .count = 500,
                             .dtype = TRM_INT64,
                             .reduce = TRM_REDUCTION_SUM,
                             .tag = "grad"};
        status = trm_comm_run(comm, &op, &err);
        for (int i = 0; i < 500 && status == TRM_OK; i++) {
            int64_t expected = size * (i + round) + size * (size - 1) / 2;
            EXPECT(data[i] == expected, "round %d element %d is wrong", round, i);
        }
    }
    snprintf(context->failure, sizeof context->failure, "status %d: %s", (int)status, err.message);
    CLOSE_COMM();
}

static void must_fail(int size, const char *engine, const char *const texts[], int expected) {
    trm_error err;
    trmi_job *job = NULL;
    rank_setup given = {.options = {.engine = engine, .timeout_seconds = 1, .algorithm = "ring"}};
    CHECK_OK(trmi_job_create(size, 0, &job, &err), err);
    static rank_context contexts[8];
    pthread_t threads[8];
    rank_start starts[8];
    for (int r = 0; r < size; r++) {
        contexts[r] = (rank_context){.job = job, .rank = r, .size = size, .arg = &given};
        starts[r] = (rank_start){&contexts[r], until_failure};
        pthread_create(&threads[r], NULL, rank_thread, &starts[r]);
    }
    char prefix[32];
    snprintf(prefix, sizeof prefix, "status %d:", expected);
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
    }
    for (int r = 0; r < size; r++) {
        bool said = strncmp(contexts[r].failure, prefix, strlen(prefix)) == 0;
        for (int t = 0; texts[t] != NULL; t++) {
            said = said && strstr(contexts[r].failure, texts[t]) != NULL;
        }
        if (!said) {
            fail_msg("%s: rank %d said '%s', expected '%s ... %s'", engine, r, contexts[r].failure,
                     prefix, texts[0]);
        }
    }
    trmi_job_destroy(job);
}

static void faults_are_named(void **state) {
    must_fail(3, "sim:seed=3,flip=20", (const char *const[]){"damaged bytes from rank", NULL},
              TRM_CORRUPT);
    must_fail(3, "sim:seed=3,delay=200,reorder=200", (const char *const[]){"out of order", NULL},
              TRM_CORRUPT);
    must_fail(3, "sim:seed=3,close=1@20",
              (const char *const[]){"lost its connection to rank", NULL}, TRM_PEER);
    must_fail(4, "sim:seed=3,stall=2@31",
              (const char *const[]){"waited ", " s for rank", "all-reduce", "grad", NULL},
              TRM_TIMEOUT);
}

static void create_disagreeing(rank_context *context) {
    OPEN_COMM();
    int32_t data[100] = {1};
    trm_collective op = {.kind = TRM_ALLREDUCE,
                         .recv = data,
                         .count = rank == 1 ? 99 : 100,
                         .dtype = TRM_INT32,
                         .reduce = TRM_REDUCTION_SUM};
    if (given->mode == 1) {
        op.kind = rank == 1 ? TRM_BROADCAST : TRM_ALLREDUCE;
        op.count = 100;
    }
    trm_status status = trm_comm_run(comm, &op, &err);
    EXPECT(status == TRM_INVALID && strstr(err.message, "ranks disagree") != NULL, "%s",
           err.message);
    EXPECT(strstr(err.message, given->mode ? "broadcast" : "of 99 ") != NULL &&
               strstr(err.message, given->mode ? "all-reduce" : "of 100 ") != NULL,
           "%s", err.message);
    EXPECT(trm_comm_barrier(comm, &err) == TRM_INVALID, "%s", err.message);
    CLOSE_COMM();
}

static void disagreement_is_refused(void **state) {
    static const char *const engines[] = {"sim", "tcp", NULL};
    for (int mode = 0; mode < 2; mode++) {
        for (int e = 0; e < 3; e++) {
            rank_setup given = {.options = {.engine = engines[e], .algorithm = "ring"},
                                .mode = mode};
            ranks_run(2, 1, false, create_disagreeing, &given, "two disagree");
            ranks_run(4, 2, false, create_disagreeing, &given, "four disagree");
        }
    }
}

static void reduce_forever(rank_context *context) {
    OPEN_COMM();
    float *data = malloc(400000);
    trm_status status = TRM_OK;
    for (; status == TRM_OK; context->rounds++) {
        memset(data, 0, 400000);
        status = trm_comm_allreduce(comm, data, 100000, TRM_FLOAT32, TRM_REDUCTION_SUM, &err);
    }
    snprintf(context->failure, sizeof context->failure, "%d: %s", (int)status, err.message);
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
    _exit(0);
}

static void killed_over_tcp(void **state) {
    for (int per_host = 1; per_host <= 2; per_host++) {
        for (int number = 0; number < 2; number++) {
            trm_error err;
            trmi_job *job = NULL;
            double patience = check_patience(), limit = 1.5 * patience;
            rank_setup given = {.options = {.timeout_seconds = limit}};
            CHECK_OK(trmi_job_create(4, per_host, &job, &err), err);
            rank_context *contexts = ranks_fork(job, 4, reduce_forever, &given);
            ranks_wait(contexts, 4, 2);
            double start = trmi_os_now();
            kill(contexts[2].pid, number == 0 ? SIGKILL : SIGSTOP);
            for (int r = 0; r < 4; r++) {
                if (r != 2) {
                    waitpid(contexts[r].pid, NULL, 0);
                }
            }
            double took = trmi_os_now() - start;
            /* before anything can fail, so that no process stays stopped */
            kill(contexts[2].pid, SIGKILL);
            waitpid(contexts[2].pid, NULL, 0);
            for (int r = 0; r < 4; r++) {
                if (r != 2 &&
                    (strstr(contexts[r].failure, number == 0 ? "rank 2" : "waited ") == NULL ||
                     atoi(contexts[r].failure) != (number == 0 ? TRM_PEER : TRM_TIMEOUT))) {
                    fail_msg("rank %d said %s", r, contexts[r].failure);
                }
            }
            if (took > (number == 0 ? 1.0 : 2.0) * limit * check_slack()) {
                fail_msg("took %.2f s", took);
            }
            munmap(contexts, 4 * sizeof *contexts);
            trmi_job_destroy(job);
        }
    }
}

/* For longer than a host may be silent, and with more data waiting than the sockets take. */
static void come_late(rank_context *context) {
    OPEN_COMM();
    enum { COUNT = 4 << 20 };
    float *data = malloc(COUNT * sizeof *data);
    for (int i = 0; i < COUNT; i++) {
        data[i] = (float)context->rank;
    }
    if (context->rank == 1) {
        usleep(6500000);
    }
    EXPECT_OK(trm_comm_allreduce(comm, data, COUNT, TRM_FLOAT32, TRM_REDUCTION_SUM, &err), err);
    EXPECT(data[0] == 1 && data[COUNT - 1] == 1, "%g", (double)data[0]);
    free(data);
    CLOSE_COMM();
}

static void a_late_rank_is_waited_for(void **state) {
    rank_setup given = {.options = {.engine = "tcp"}};
    ranks_run(2, 1, true, come_late, &given, "late");
}

/* ---- options --------------------------------------------------------------------------------- */
static void algorithm_texts(void **state) {
    trmi_algorithms a;
    trm_error err;
    CHECK_OK(trmi_algorithms_parse("", "HCCL_ALGO", &a, &err), err);
    assert_int_equal(a.of[TRM_ALLREDUCE], TRMI_ALGORITHM_AUTO);
    CHECK_OK(trmi_algorithms_parse("level0:NA;level1:H-D_R", "HCCL_ALGO", &a, &err), err);
    assert_int_equal(a.of[TRM_ALLREDUCE], TRMI_HALVING);
    CHECK_OK(trmi_algorithms_parse("allreduce=ring/allgather=bruck", "HCCL_ALGO", &a, &err), err);
    assert_int_equal(a.of[TRM_ALLREDUCE], TRMI_RING);
    assert_int_equal(a.of[TRM_ALLGATHER], TRMI_BRUCK);
    assert_int_equal(a.of[TRM_BROADCAST], TRMI_ALGORITHM_AUTO);
    CHECK_OK(
        trmi_algorithms_parse("allreduce=level0:NA;level1:ring/allgather=level0:NA;level1:H-D_R/"
                              "others=level1:NB;level2:pairwise",
                              "HCCL_ALGO", &a, &err),
        err);
    assert_int_equal(a.of[TRM_ALLREDUCE], TRMI_RING);
    assert_int_equal(a.of[TRM_ALLGATHER], TRMI_HALVING);
    assert_int_equal(a.of[TRM_ALLTOALL], TRMI_PAIRWISE);
    CHECK_OK(trmi_algorithms_parse("level0:fullmesh;level1:AHC", "HCCL_ALGO", &a, &err), err);
    assert_int_equal(a.of[TRM_ALLREDUCE], TRMI_ALGORITHM_AUTO);
    CHECK_FAILS(trmi_algorithms_parse("level1:rung", "HCCL_ALGO", &a, &err), TRM_INVALID, err,
                "HCCL_ALGO 'level1:rung': 'rung' is none of direct (mesh), ring");
    CHECK_FAILS(trmi_algorithms_parse("rung", "HCCL_ALGO", &a, &err), TRM_INVALID, err,
                "'rung' is none of");
    CHECK_FAILS(trmi_algorithms_parse("allreduced=ring", "HCCL_ALGO", &a, &err), TRM_INVALID, err,
                "'allreduced' is no collective");
    CHECK_FAILS(trmi_algorithms_parse("level7:ring", "HCCL_ALGO", &a, &err), TRM_INVALID, err,
                "level0");
}

static void choice_by_cost(void **state) {
    trmi_model model = {.alpha = 50e-6, .beta = 1e-9, .gamma = 0.1e-9};
    double ring_small = trmi_model_seconds(&model, TRMI_RING, TRM_ALLREDUCE, 16, 10, 4);
    double bruck_small = trmi_model_seconds(&model, TRMI_BRUCK, TRM_ALLREDUCE, 16, 10, 4);
    double tree_large = trmi_model_seconds(&model, TRMI_TREE, TRM_ALLREDUCE, 16, 10000000, 4);
    double ring_large = trmi_model_seconds(&model, TRMI_RING, TRM_ALLREDUCE, 16, 10000000, 4);
    assert_true(bruck_small < ring_small);
    assert_true(ring_large < tree_large);
    CHECK_CLOSE(ring_small, 30 * 50e-6 + 2 * 40 * 15 / 16.0 * 1e-9 + 40 * 15 / 16.0 * 1e-10, 1e-12);
}

static void bad_engine(rank_context *context) {
    const rank_setup *given = context->arg;
    trm_error err;
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
    trm_status status = trm_comm_create(boot, &given->options, &comm, &err);
    EXPECT(status == (given->mode ? TRM_UNSUPPORTED : TRM_INVALID), "%d %s", (int)status,
           err.message);
    boot->table->destroy(boot);
}

static void bad_engines(void **state) {
    rank_setup given = {.options = {.engine = "carrier pigeon"}};
    ranks_run(2, 0, false, bad_engine, &given, "unknown engine");
    given.options.engine = "sim:rain=3";
    ranks_run(2, 0, false, bad_engine, &given, "unknown fault");
    given.options = (trm_comm_options){.engine = "shm"};
    ranks_run(2, 1, false, bad_engine, &given, "shm over hosts");
    given = (rank_setup){.options = {.engine = "ucx", .plugin_dir = "/nowhere"}, .mode = 1};
    ranks_run(2, 0, false, bad_engine, &given, "no plug-in");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_over_a_simulated_network),
        cmocka_unit_test(by_each_algorithm),
        cmocka_unit_test(tcp_flat),
        cmocka_unit_test(two_levels),
        cmocka_unit_test(three_orders),
        cmocka_unit_test(strict_over_networks),
        cmocka_unit_test(partials_keep_their_bits),
        cmocka_unit_test(messages_between_all_pairs),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(last_words_arrive),
        cmocka_unit_test(disagreement_is_refused),
        cmocka_unit_test(killed_over_tcp),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(algorithm_texts),
        cmocka_unit_test(choice_by_cost),
        cmocka_unit_test(bad_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
