/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the communicator beside the collectives: messages, requests, splits, shared memory,
 * order of sums, ranks that disagree, ranks that die, and that no shared memory or file stays
 * behind. */
#include "ordered_sum.h"

#include "base/os.h"

#include <dirent.h>
#include <sched.h>

static void run_everywhere(rank_body *body, rank_setup *given, const char *what) {
    static const int sizes[] = {1, 2, 3, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int forked = 0; forked < 2; forked++) {
            ranks_run(sizes[i], 0, forked, body, given, what);
        }
    }
}

/* ---- messages -------------------------------------------------------------------------------- */
enum { LARGE = 300000 };

static int8_t message_byte(int from, int to, int number, int64_t i) {
    return (int8_t)(from * 37 + to * 11 + number * 5 + (int)(i % 101));
}

/* Everyone sends three messages of different lengths to everyone, itself included, in one batch. */
static void all_pairs(rank_context *context) {
    OPEN_COMM();
    static const int64_t lengths[] = {LARGE, 0, 77};
    trm_message *list = calloc((size_t)size * 6, sizeof *list);
    int8_t *memory = given->mode ? trm_comm_alloc_shared(comm, (size_t)size * 6 * LARGE, &err)
                                 : malloc((size_t)size * 6 * LARGE);
    EXPECT(list != NULL && memory != NULL, "memory");
    for (int round = 0; round < 3; round++) {
        int count = 0;
        for (int peer = 0; peer < size; peer++) {
            for (int number = 0; number < 3; number++) {
                int8_t *out = memory + (size_t)count * LARGE;
                for (int64_t i = 0; i < lengths[number]; i++) {
                    out[i] = message_byte(rank, peer, number + round, i);
                }
                list[count++] = (trm_message){
                    .peer = peer, .buffer = out, .count = lengths[number], .dtype = TRM_INT8};
                list[count] = (trm_message){.receive = true,
                                            .peer = peer,
                                            .buffer = memory + (size_t)count * LARGE,
                                            .count = lengths[number],
                                            .dtype = TRM_INT8};
                count++;
            }
        }
        EXPECT_OK(trm_comm_exchange(comm, list, count, &err), err);
        for (int c = 1; c < count; c += 2) {
            const int8_t *in = list[c].buffer;
            for (int64_t i = 0; i < list[c].count; i++) {
                EXPECT(in[i] == message_byte(list[c].peer, rank, c / 2 % 3 + round, i),
                       "round %d message %d byte %d", round, c, (int)i);
            }
        }
    }
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    given->mode ? trm_comm_free_shared(comm, memory) : free(memory);
    free(list);
    CLOSE_COMM();
}

static void messages_between_all_pairs(void **state) {
    for (int mode = 0; mode < 2; mode++) {
        rank_setup given = {.mode = mode};
        run_everywhere(all_pairs, &given, "all pairs");
    }
    rank_setup staged = {.options = {.direct = TRM_OFF}};
    run_everywhere(all_pairs, &staged, "all pairs, staged");
}

/* A ring of plain sends and receives, started in the wrong order for anything that is not
 * concurrent. */
static void started_ring(rank_context *context) {
    OPEN_COMM();
    enum { COUNT = 100000 };
    double *out = malloc(COUNT * sizeof *out), *in = malloc(COUNT * sizeof *in);
    for (int i = 0; i < COUNT; i++) {
        out[i] = rank * 1e6 + i;
    }
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    trm_message send = {.peer = right, .buffer = out, .count = COUNT, .dtype = TRM_FLOAT64};
    trm_message receive = {
        .receive = true, .peer = left, .buffer = in, .count = COUNT, .dtype = TRM_FLOAT64};
    trm_request *requests[2], *sum_request;
    float one = 1;
    EXPECT_OK(trm_comm_start_exchange(comm, &send, 1, &requests[0], &err), err);
    EXPECT_OK(trm_comm_start_exchange(comm, &receive, 1, &requests[1], &err), err);
    trm_collective sum = {.kind = TRM_ALLREDUCE,
                          .recv = &one,
                          .count = 1,
                          .dtype = TRM_FLOAT32,
                          .reduce = TRM_REDUCTION_SUM};
    EXPECT_OK(trm_comm_start(comm, &sum, &sum_request, &err), err);
    EXPECT_OK(trm_request_wait(sum_request, -1, &err), err);
    EXPECT(one == (float)size, "%g", one);
    EXPECT(trm_request_test(requests[0]) && trm_request_test(requests[1]), "order");
    EXPECT_OK(trm_request_wait(requests[1], 0, &err), err);
    EXPECT_OK(trm_request_wait(requests[0], 0, &err), err);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(in[i] == left * 1e6 + i, "element %d is %g", i, in[i]);
    }
    free(out);
    free(in);
    CLOSE_COMM();
}

static void requests_in_order(void **state) {
    rank_setup given = {.mode = 0};
    run_everywhere(started_ring, &given, "started ring");
}

/* Many operations in flight, blocking ones between them, requests reused. */
static void many_started(rank_context *context) {
    OPEN_COMM();
    enum { N = 40, COUNT = 3000 };
    EXPECT(trm_comm_alloc_shared(comm, (size_t)1 << 45, &err) == NULL, "more than there is");
    EXPECT(strstr(err.message, "35184372088832 bytes of shared memory, of ") != NULL, "%s",
           err.message);
    float *data = trm_comm_alloc_shared(comm, N * COUNT * sizeof *data, &err);
    EXPECT(data != NULL, "%s", err.message);
    trm_request *requests[N];
    for (int round = 0; round < 5; round++) {
        for (int k = 0; k < N; k++) {
            for (int i = 0; i < COUNT; i++) {
                data[k * COUNT + i] = (float)(rank + k + i % 7 + round);
            }
            int count = k % 3 == 0 ? 5 : COUNT;
            trm_collective op = {.kind = TRM_ALLREDUCE,
                                 .recv = data + k * COUNT,
                                 .count = count,
                                 .dtype = TRM_FLOAT32,
                                 .reduce = TRM_REDUCTION_SUM,
                                 .tag = "bucket"};
            EXPECT_OK(trm_comm_start(comm, &op, &requests[k], &err), err);
            if (k == N / 2) {
                int32_t root_value = rank == size - 1 ? 77 : 0;
                EXPECT_OK(trm_comm_broadcast(comm, &root_value, 1, TRM_INT32, size - 1, &err), err);
                EXPECT(root_value == 77, "%d", root_value);
            }
        }
        for (int k = 0; k < N; k++) {
            trm_status status;
            while ((status = trm_request_wait(requests[k], 0.001, &err)) == TRM_PENDING) {
            }
            EXPECT(status == TRM_OK, "%s", err.message);
            for (int i = 0; i < (k % 3 == 0 ? 5 : COUNT); i++) {
                float expected = (float)(size * (k + i % 7 + round) + size * (size - 1) / 2);
                EXPECT(data[k * COUNT + i] == expected, "%d %d", k, i);
            }
        }
    }
    trm_comm_free_shared(comm, data);
    CLOSE_COMM();
}

static void many_requests(void **state) {
    rank_setup given = {.mode = 0};
    run_everywhere(many_started, &given, "many started");
}

/* ---- groups ---------------------------------------------------------------------------------- */
static void split_groups(rank_context *context) {
    OPEN_COMM();
    trm_comm *half = NULL, *again = NULL, *group = NULL;
    EXPECT_OK(trm_comm_split(comm, rank % 2 == 0 ? 3 : -1, -rank, &half, &err), err);
    EXPECT((half != NULL) == (rank % 2 == 0), "colour");
    if (half != NULL) {
        int members = (size + 1) / 2; /* even ranks, highest first */
        EXPECT(trm_comm_size(half) == members, "%d", trm_comm_size(half));
        EXPECT(trm_comm_rank(half) == members - 1 - rank / 2, "%d", trm_comm_rank(half));
        int32_t *sum = trm_comm_alloc_shared(half, 40000, &err);
        EXPECT(sum != NULL, "%s", err.message);
        for (int i = 0; i < 10000; i++) {
            sum[i] = rank + i;
        }
        EXPECT_OK(trm_comm_allreduce(half, sum, 10000, TRM_INT32, TRM_REDUCTION_SUM, &err), err);
        int base = 0;
        for (int r = 0; r < size; r += 2) {
            base += r;
        }
        for (int i = 0; i < 10000; i++) {
            EXPECT(sum[i] == base + members * i, "element %d", i);
        }
        EXPECT_OK(trm_comm_split(half, 0, 0, &again, &err), err);
        EXPECT_OK(trm_comm_barrier(again, &err), err);
        trm_comm_destroy(again);
        EXPECT_OK(trm_comm_barrier(half, &err), err);
        trm_comm_destroy(half);
    }
    bool member = rank == 0 || rank == size - 1; /* the last rank first */
    EXPECT_OK(trm_comm_split(comm, member ? 0 : -1, rank == size - 1 ? 0 : 1, &group, &err), err);
    EXPECT((group != NULL) == (rank == 0 || rank == size - 1), "members");
    if (group != NULL) {
        EXPECT(trm_comm_rank(group) == (rank == size - 1 ? 0 : 1), "order");
        EXPECT_OK(trm_comm_barrier(group, &err), err);
        trm_comm_destroy(group);
    }
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    CLOSE_COMM();
}

static void ranks_split_into_groups(void **state) {
    rank_setup given = {.mode = 0};
    run_everywhere(split_groups, &given, "splitting");
}

/* ---- the order of sums ----------------------------------------------------------------------- */
static void ordered_sum(rank_context *context) {
    OPEN_COMM();
    check_ordered_sum(context, comm, 20001, given->mode != 0);
    CLOSE_COMM();
}

static void strict_order(void **state) {
    for (int mode = 0; mode < 2; mode++) {
        rank_setup given = {.mode = mode,
                            .options = {.deterministic = TRM_DETERMINISTIC_STRICT,
                                        .staging_bytes = mode ? 0 : 10000}};
        run_everywhere(ordered_sum, &given, "ordered sum");
    }
}

/* ---- disagreement ---------------------------------------------------------------------------- */
static void create_disagreeing(rank_context *context) {
    OPEN_COMM();
    float data[6000] = {1};
    const float before = data[0];
    trm_collective op = {.kind = TRM_ALLREDUCE,
                         .recv = data,
                         .count = 6000,
                         .dtype = TRM_FLOAT32,
                         .reduce = TRM_REDUCTION_SUM,
                         .tag = "conv1"};
    const char *mine = "", *theirs = "";
    bool odd = rank == size - 1;
    switch (given->mode) {
    case 0: op.count = odd ? 5999 : 6000, mine = "of 6000 ", theirs = "of 5999 "; break;
    case 1: op.dtype = odd ? TRM_INT32 : TRM_FLOAT32, mine = "float32", theirs = "int32"; break;
    case 2:
        op.kind = odd ? TRM_BROADCAST : TRM_ALLREDUCE, mine = "all-reduce", theirs = "broadcast";
        break;
    case 3:
        op.reduce = odd ? TRM_REDUCTION_MAX : TRM_REDUCTION_SUM, mine = "(sum)", theirs = "(max)";
        break;
    case 4:
        op.kind = TRM_BROADCAST, op.root = odd ? 1 : 0, mine = "root 0", theirs = "root 1";
        break;
    default: /* one small, one large */
        op.count = odd ? 3 : 6000, mine = "of 6000 ", theirs = "of 3 ";
    }
    EXPECT(trm_comm_run(comm, &op, &err) == TRM_INVALID, "%s", err.message);
    EXPECT(strstr(err.message, mine) != NULL && strstr(err.message, theirs) != NULL, "%s",
           err.message);
    EXPECT(strstr(err.message, "conv1") != NULL, "%s", err.message);
    EXPECT(memcmp(&before, &data[0], 4) == 0 && data[1] == 0, "something was summed");
    /* poisoned for ever, with a cause that shows both sides */
    trm_status later = trm_comm_barrier(comm, &err);
    EXPECT(later == TRM_INVALID && strstr(err.message, "ranks disagree") != NULL, "%s",
           err.message);
    EXPECT(trm_comm_health(comm, &err) == TRM_INVALID, "health");
    CLOSE_COMM();
}

static void disagreement_is_refused(void **state) {
    for (int mode = 0; mode < 6; mode++) {
        rank_setup given = {.mode = mode};
        for (int size = 2; size <= 3; size++) {
            ranks_run(size, 0, false, create_disagreeing, &given, "disagreeing threads");
            ranks_run(size, 0, true, create_disagreeing, &given, "disagreeing processes");
        }
    }
}

static void other_counts(rank_context *context) {
    OPEN_COMM();
    int32_t send[64] = {0}, recv[64] = {0};
    int64_t counts[3] = {4, 4, 4}, recv_counts[3] = {4, 4, 4};
    trm_collective op = {.kind = TRM_ALLTOALLV,
                         .send = send,
                         .recv = recv,
                         .dtype = TRM_INT32,
                         .counts = counts,
                         .recv_counts = recv_counts};
    if (given->mode == 0) {
        counts[0] = rank == 1 ? 5 : 4; /* rank 0 expects 4 from rank 1 */
    } else {
        op.kind = TRM_ALLGATHERV;
        counts[2] = rank == 1 ? 5 : 4;
    }
    EXPECT(trm_comm_run(comm, &op, &err) == TRM_INVALID, "%s", err.message);
    EXPECT(strstr(err.message, "disagree") != NULL, "%s", err.message);
    CLOSE_COMM();
}

static void disagreeing_messages(rank_context *context) {
    OPEN_COMM();
    char data[100] = {0};
    trm_status status = rank == 0 ? trm_comm_send(comm, data, 10, TRM_UINT8, 1, &err)
                                  : trm_comm_recv(comm, data, 20, TRM_INT8, 0, &err);
    if (rank == 1) {
        EXPECT(status == TRM_INVALID && strstr(err.message, "10 bytes of uint8") != NULL &&
                   strstr(err.message, "20 bytes of int8") != NULL,
               "%s", err.message);
    }
    CLOSE_COMM();
}

static void disagreement_in_counts(void **state) {
    for (int mode = 0; mode < 2; mode++) {
        rank_setup given = {.mode = mode};
        ranks_run(3, 0, false, other_counts, &given, "other counts");
    }
    rank_setup given = {.mode = 0};
    ranks_run(2, 0, true, disagreeing_messages, &given, "other message");
}

static void other_options(rank_context *context) {
    rank_setup mine = *(rank_setup *)context->arg;
    mine.options.algorithm = context->rank == 1 ? "ring" : "tree";
    trm_error err;
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL;
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
    EXPECT(trm_comm_create(boot, &mine.options, &comm, &err) == TRM_INVALID &&
               strstr(err.message, "ring") != NULL && strstr(err.message, "tree") != NULL,
           "%s", err.message);
    boot->table->destroy(boot);
}

static void wrong_arguments(rank_context *context) {
    OPEN_COMM();
    float data[64];
    int64_t counts[2] = {1, -1};
    struct {
        trm_collective op;
        const char *text;
    } cases[] = {
        {{.kind = 99}, "kind 99"},
        {{.kind = TRM_ALLREDUCE, .recv = data, .count = 1, .dtype = 77, .reduce = 1},
         "data type 77"},
        {{.kind = TRM_ALLREDUCE, .recv = data, .count = 1, .dtype = TRM_INT8}, "reduction 0"},
        {{.kind = TRM_ALLREDUCE, .recv = data, .count = -1, .dtype = 1, .reduce = 1}, "count -1"},
        {{.kind = TRM_ALLREDUCE, .recv = data, .count = INT64_MAX, .dtype = 1, .reduce = 1},
         "not possible"},
        {{.kind = TRM_ALLREDUCE, .count = 1, .dtype = 1, .reduce = 1}, "no receive buffer"},
        {{.kind = TRM_BROADCAST, .recv = data, .count = 1, .dtype = 1, .root = size},
         "root 2: 0 to 1 expected"},
        {{.kind = TRM_ALLREDUCE,
          .recv = data,
          .send = data + 1,
          .count = 4,
          .dtype = 1,
          .reduce = 1},
         "overlap"},
        {{.kind = TRM_ALLGATHERV, .recv = data, .send = data, .dtype = 1}, "counts of 2 ranks"},
        {{.kind = TRM_ALLGATHERV, .recv = data, .send = data, .dtype = 1, .counts = counts},
         "count -1 at 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trm_status status = trm_comm_run(comm, &cases[i].op, &err);
        EXPECT(status == TRM_INVALID && strstr(err.message, cases[i].text) != NULL, "case %d: %s",
               (int)i, err.message);
    }
    trm_message bad = {.peer = 2, .buffer = data, .count = 1, .dtype = TRM_FLOAT32};
    EXPECT(trm_comm_exchange(comm, &bad, 1, &err) == TRM_INVALID, "%s", err.message);
    /* all of that was local: the communicator still works */
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    CLOSE_COMM();
}

static void wrong_arguments_are_refused(void **state) {
    rank_setup given = {.mode = 0};
    ranks_run(2, 0, false, other_options, &given, "other options");
    ranks_run(2, 0, false, wrong_arguments, &given, "wrong arguments");
}

/* ---- a rank goes away ------------------------------------------------------------------------ */
static void leave_early(rank_context *context) {
    OPEN_COMM();
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    if (rank != 1) {
        trm_status status = trm_comm_barrier(comm, &err);
        EXPECT(status == TRM_PEER && strstr(err.message, "rank 1 has left") != NULL, "%s",
               err.message);
    }
    CLOSE_COMM();
}

static void a_rank_leaves(void **state) {
    rank_setup given = {.mode = 0};
    ranks_run(3, 0, false, leave_early, &given, "leaving");
    ranks_run(3, 0, true, leave_early, &given, "leaving");
}

/* Reduces for ever; the parent kills or stops a rank. */
static void reduce_forever(rank_context *context) {
    OPEN_COMM();
    int64_t count = 1 << 20;
    float *data = trm_comm_alloc_shared(comm, (size_t)count * 4, &err);
    EXPECT(data != NULL, "%s", err.message);
    trm_status status = TRM_OK;
    double seen = 0;
    for (int i = 0; status == TRM_OK; i++) {
        context->rounds = i;
        seen = trmi_os_now();
        if (given->mode == 1) { /* in the background */
            trm_request *request = NULL;
            trm_collective op = {.kind = TRM_ALLREDUCE,
                                 .recv = data,
                                 .count = count,
                                 .dtype = TRM_FLOAT32,
                                 .reduce = TRM_REDUCTION_MEAN,
                                 .tag = "grad"};
            status = trm_comm_start(comm, &op, &request, &err);
            status = status == TRM_OK ? trm_request_wait(request, -1, &err) : status;
        } else {
            int64_t length = i % 2 ? count : 3;
            trm_collective op = {.kind = TRM_ALLREDUCE,
                                 .recv = data,
                                 .count = length,
                                 .dtype = TRM_FLOAT32,
                                 .reduce = TRM_REDUCTION_MEAN,
                                 .tag = "grad"};
            status = trm_comm_run(comm, &op, &err);
        }
    }
    snprintf(context->failure, sizeof context->failure, "%d after %.1f s: %s", (int)status,
             trmi_os_now() - seen, err.message);
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
    _exit(0);
}

/* Jobs beside us may have files in /dev/shm, those of parameter servers among them: they are not
 * ours. */
static int count_entries(const char *path) {
    DIR *dir = opendir(path);
    int count = 0;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        bool others =
            strcmp(path, "/dev/shm") == 0 && (strncmp(entry->d_name, "trireme", 7) != 0 ||
                                              strncmp(entry->d_name, "trireme-ps-", 11) == 0);
        count += !others;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static void hurt_rank(int size, int number, int mode) {
    trm_error err;
    trmi_job *job = NULL;
    int files = count_entries("/proc/self/fd"), shm = count_entries("/dev/shm");
    double patience = check_patience(), wait = 1.5 * patience;
    /* on a loaded machine a living rank may be seconds late, and must not be given up before the
     * death that the test expects */
    double limit = number == SIGKILL ? 60 : wait;
    rank_setup given = {.mode = mode,
                        .options = {.timeout_seconds = limit, .report_seconds = wait / 3}};
    int expected = number == SIGKILL ? TRM_PEER : TRM_TIMEOUT;
    const char *text = number == SIGKILL ? "died" : "waited ";
    CHECK_OK(trmi_job_create(size, 0, &job, &err), err);
    rank_context *contexts = ranks_fork(job, size, reduce_forever, &given);
    ranks_wait(contexts, size, 2);
    double start = trmi_os_now();
    kill(contexts[1].pid, number);
    int status[8] = {0};
    for (int r = 0; r < size; r++) {
        if (r != 1) {
            waitpid(contexts[r].pid, &status[r], 0);
        }
    }
    double took = trmi_os_now() - start;
    kill(contexts[1].pid, SIGKILL); /* before anything can fail, so that no process stays stopped */
    waitpid(contexts[1].pid, NULL, 0);
    for (int r = 0; r < size; r++) {
        if (r == 1) {
            continue;
        }
        assert_true(WIFEXITED(status[r]));
        assert_int_equal(atoi(contexts[r].failure), expected);
        if (strstr(contexts[r].failure, text) == NULL ||
            strstr(contexts[r].failure, "rank 1") == NULL) {
            fail_msg("rank %d said: %s", r, contexts[r].failure);
        }
        if (strstr(contexts[r].failure, "all-reduce") == NULL) {
            fail_msg("rank %d said: %s", r, contexts[r].failure);
        }
    }
    double most = number == SIGKILL ? check_slack() : 2 * wait * check_slack(),
           least = number == SIGKILL ? 0 : 0.9 * wait;
    if (took > most || took < least) {
        fail_msg("took %.2f s, %.1f to %.1f expected", took, least, most);
    }
    munmap(contexts, (size_t)size * sizeof *contexts);
    trmi_job_destroy(job);
    assert_int_equal(count_entries("/proc/self/fd"), files);
    assert_int_equal(count_entries("/dev/shm"), shm);
}

/* A rank that has said where its vector lies, and dies before the other one has looked: its death
 * is the cause that is told, not that its memory is not there. */
static void looks_late(rank_context *context) {
    OPEN_COMM();
    const int64_t count = 1 << 20;
    float *data = trm_comm_alloc_shared(comm, (size_t)count * 4, &err);
    EXPECT(data != NULL, "%s", err.message);
    EXPECT_OK(trm_comm_barrier(comm, &err), err);
    context->rounds = 1;
    while (rank == 0 && atomic_load(&context->rounds) < 2) {
        usleep(100);
    }
    trm_message m = {.receive = rank == 0,
                     .peer = 1 - rank,
                     .buffer = data,
                     .count = count,
                     .dtype = TRM_FLOAT32};
    trm_status status = given->mode == 1 ? trm_comm_exchange(comm, &m, 1, &err)
                                         : trm_comm_allreduce(comm, data, count, TRM_FLOAT32,
                                                              TRM_REDUCTION_SUM, &err);
    snprintf(context->failure, sizeof context->failure, "%d: %s", (int)status, err.message);
    _exit(0);
}

static void killed_before_it_was_reached(void **state) {
    for (int mode = 0; mode < 2; mode++) {
        trm_error err;
        trmi_job *job = NULL;
        rank_setup given = {.mode = mode, .options = {.timeout_seconds = 60 * check_patience()}};
        CHECK_OK(trmi_job_create(2, 0, &job, &err), err);
        rank_context *contexts = ranks_fork(job, 2, looks_late, &given);
        ranks_wait(contexts, 2, 1);
        usleep(50000); /* for it to post; if it has not, there is nothing to reach */
        kill(contexts[1].pid, SIGKILL);
        waitpid(contexts[1].pid, NULL, 0);
        atomic_store(&contexts[0].rounds, 2);
        waitpid(contexts[0].pid, NULL, 0);
        if (atoi(contexts[0].failure) != TRM_PEER ||
            strstr(contexts[0].failure, "rank 1") == NULL ||
            strstr(contexts[0].failure, "died") == NULL) {
            fail_msg("rank 0 said: %s", contexts[0].failure);
        }
        munmap(contexts, 2 * sizeof *contexts);
        trmi_job_destroy(job);
    }
}

/* Rank 1 receives a message and leaves at once. Rank 0 polls on the same CPU, so it is interrupted
 * at any point between its looks at the message and at its peer: its message was received all the
 * same, and rank 0 must not fail. */
static void receive_and_leave(rank_context *context) {
    cpu_set_t all, first;
    EXPECT(sched_getaffinity(0, sizeof all, &all) == 0, "no CPUs");
    CPU_ZERO(&first);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &first);
        }
    }
    for (int round = 0; round < 200; round++) {
        EXPECT(sched_setaffinity(0, sizeof all, &all) == 0, "all CPUs");
        OPEN_COMM();
        int8_t *data = trm_comm_alloc_shared(comm, LARGE, &err);
        EXPECT(data != NULL, "%s", err.message);
        EXPECT_OK(trm_comm_barrier(comm, &err), err);
        /* Only now: a communicator that is made for one CPU does not poll. */
        EXPECT(sched_setaffinity(0, sizeof first, &first) == 0, "one CPU");
        if (rank == 0) {
            EXPECT_OK(trm_comm_send(comm, data, LARGE, TRM_INT8, 1, &err), err);
        } else {
            usleep(500);
            EXPECT_OK(trm_comm_recv(comm, data, LARGE, TRM_INT8, 0, &err), err);
        }
        CLOSE_COMM();
    }
}

static void a_rank_leaves_after_its_message(void **state) {
    rank_setup given = {.options = {.spin_microseconds = 1000000}};
    ranks_run(2, 0, true, receive_and_leave, &given, "a last message");
}

static void a_killed_rank_fails_the_others(void **state) {
    for (int mode = 0; mode < 2; mode++) {
        hurt_rank(2, SIGKILL, mode);
        hurt_rank(5, SIGKILL, mode);
    }
}

static void a_stopped_rank_fails_the_others(void **state) {
    hurt_rank(2, SIGSTOP, 0);
    hurt_rank(4, SIGSTOP, 1);
}

/* ---- memory and descriptors ------------------------------------------------------------------ */
static void comes_and_goes(rank_context *context) {
    for (int k = 0; k < 20; k++) {
        OPEN_COMM();
        for (int i = 0; i < 5; i++) {
            float *data = trm_comm_alloc_shared(comm, (size_t)(i + 1) * 100000, &err);
            EXPECT(data != NULL && data[0] == 0 && data[24999] == 0, "%s", err.message);
            data[0] = (float)rank, data[24999] = 1;
            EXPECT_OK(trm_comm_allreduce(comm, data, 25000, TRM_FLOAT32, TRM_REDUCTION_SUM, &err),
                      err);
            EXPECT(data[0] == (float)(size * (size - 1) / 2) && data[24999] == (float)size, "sum");
            EXPECT_OK(trm_comm_barrier(comm, &err), err);
            trm_comm_free_shared(comm, data);
        }
        EXPECT_OK(trm_comm_barrier(comm, &err), err);
        CLOSE_COMM();
    }
}

static void nothing_left(void **state) {
    rank_setup given = {.mode = 0};
    int files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    for (int size = 1; size <= 4; size += 3) {
        ranks_run(size, 0, false, comes_and_goes, &given, "comes and goes");
        ranks_run(size, 0, true, comes_and_goes, &given, "comes and goes");
    }
    assert_int_equal(count_entries("/proc/self/fd"), files);
    assert_int_equal(count_entries("/proc/self/task"), threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_between_all_pairs),
        cmocka_unit_test(requests_in_order),
        cmocka_unit_test(many_requests),
        cmocka_unit_test(ranks_split_into_groups),
        cmocka_unit_test(strict_order),
        cmocka_unit_test(disagreement_is_refused),
        cmocka_unit_test(disagreement_in_counts),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_rank_leaves),
        cmocka_unit_test(a_rank_leaves_after_its_message),
        cmocka_unit_test(a_killed_rank_fails_the_others),
        cmocka_unit_test(a_stopped_rank_fails_the_others),
        cmocka_unit_test(killed_before_it_was_reached),
        cmocka_unit_test(nothing_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
