/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective over shared memory (tests/collective_cases.h), with ranks as threads and as
 * processes, by each way: data in the post, read in place, or through staging buffers.
 *
 * crowded_ranks_sum confines all ranks to few CPUs, where they take parts of the sums in turns, and
 * groups_of_crowded_ranks_sum pairs of them. Results are computed from the definition. Further
 * tests repeat a sum while its buffers change owner, and mix private with shared memory. */
#include "collective_cases.h"

#include "comm/api/communicator.h"

#include <sched.h>

static const int sizes[] = {1, 2, 3, 4, 5, 8};
/* small path, its limit, direct and staged with several chunks */
static const int64_t threads_counts[] = {0, 1, 7, 100, 1000, 5000, -1};
/* more ranks than CPUs: every event sleeps */
static const int64_t crowd_counts[] = {0, 7, 1500, -1};
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
    case_run run = {.counts = process_counts,
                    .quick = true,
                    .options = {.staging_bytes = 8192, .direct = TRM_OFF, .engine = "shm"}};
    run_all(false, &run);
}

/* More ranks than CPUs: ranks that have a CPU compute the parts of a sum. A rank that arrives when
 * everything is summed must notice that a peer has changed or freed its vector since. */
static void sums_behind_each_other(rank_context *context) {
    OPEN_COMM();
    enum { LONGEST = 300000, TIMES = 60 };
    for (int i = 0; i < TIMES; i++) {
        static const int64_t counts[] = {LONGEST, 300, 4097, 1, 70000, 33};
        int64_t count = counts[i % 6];
        float *vector = trm_comm_alloc_shared(comm, (size_t)count * sizeof *vector, &err);
        EXPECT(vector != NULL, "%s", err.message);
        for (int again = 0; again < 3; again++) {
            for (int64_t k = 0; k < count; k++) {
                vector[k] = (float)((k + rank + again + i) % 11);
            }
            trm_collective op = {.kind = again == 1 ? TRM_REDUCE : TRM_ALLREDUCE,
                                 .recv = vector,
                                 .count = count,
                                 .dtype = TRM_FLOAT32,
                                 .reduce = TRM_REDUCTION_SUM,
                                 .root = i % size,
                                 .tag = "behind"};
            EXPECT_OK(trm_comm_run(comm, &op, &err), err);
            for (int64_t k = 0; k < count && (again != 1 || rank == i % size); k++) {
                float wanted = 0;
                for (int r = 0; r < size; r++) {
                    wanted += (float)((k + r + again + i) % 11);
                }
                EXPECT(vector[k] == wanted, "sum %d, element %ld of %ld: %g, expected %g", i,
                       (long)k, (long)count, (double)vector[k], (double)wanted);
            }
        }
        trm_comm_free_shared(comm, vector);
    }
    CLOSE_COMM();
}

/* Sums in pairs of ranks that have fewer CPUs than they are. A pair by itself has enough, but a
 * rank that polled would keep a CPU from the other pairs. */
static void sums_of_pairs(rank_context *context) {
    OPEN_COMM();
    enum { TIMES = 40, LONGEST = 20000 };
    trm_comm *pair = NULL;
    const bool crowded = given->mode != 0;
    EXPECT_OK(trm_comm_split(comm, rank / 2, rank, &pair, &err), err);
    EXPECT(comm->crowded == crowded && pair->crowded == crowded,
           "crowded %d, of the pair %d (expected %d)", comm->crowded, pair->crowded, crowded);
    float *vector = trm_comm_alloc_shared(pair, LONGEST * sizeof *vector, &err);
    EXPECT(vector != NULL, "%s", err.message);
    for (int i = 0; i < TIMES; i++) {
        const int64_t count = i % 2 == 0 ? LONGEST : 5;
        for (int64_t k = 0; k < count; k++) {
            vector[k] = (float)((k + rank + i) % 11);
        }
        EXPECT_OK(trm_comm_allreduce(pair, vector, count, TRM_FLOAT32, TRM_REDUCTION_SUM, &err),
                  err);
        for (int64_t k = 0; k < count; k++) {
            const int64_t first = k + rank / 2 * 2 + i;
            EXPECT(vector[k] == (float)(first % 11 + (first + 1) % 11), "sum %d, element %ld: %g",
                   i, (long)k, (double)vector[k]);
        }
    }
    trm_comm_free_shared(pair, vector);
    trm_comm_destroy(pair);
    CLOSE_COMM();
}

static void groups_of_crowded_ranks_sum(void **state) {
    rank_setup given = {.options = {.engine = "shm"}, .mode = 1};
    cpu_set_t before, few;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&few);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &few);
            found++;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof few, &few), 0);
    ranks_run(4, 0, true, sums_of_pairs, &given, "pairs of processes on 2 CPUs");
    ranks_run(4, 0, false, sums_of_pairs, &given, "pairs of threads on 2 CPUs");
    if (CPU_COUNT(&few) == 2 && trmi_os_cpu_count() >= 2) {
        given.mode = 0;
        ranks_run(2, 0, true, sums_of_pairs, &given, "a pair of processes on 2 CPUs");
    }
    sched_setaffinity(0, sizeof before, &before);
}

static void crowded_ranks_sum(void **state) {
    rank_setup given = {.options = {.engine = "shm"}};
    cpu_set_t before, few;
    sched_getaffinity(0, sizeof before, &before);
    CPU_ZERO(&few);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (!CPU_ISSET(cpu, &before)) {
            continue;
        }
        CPU_SET(cpu, &few); /* one, then two */
        found++;
        assert_int_equal(sched_setaffinity(0, sizeof few, &few), 0);
        for (int n = 3; n <= 8; n += 5) {
            ranks_run(n, 0, true, sums_behind_each_other, &given, "processes on few CPUs");
            ranks_run(n, 0, false, sums_behind_each_other, &given, "threads on few CPUs");
        }
    }
    sched_setaffinity(0, sizeof before, &before);
}

/* Reduces `count` numbers that depend on the rank and on `salt`, and checks the result. send NULL:
 * in place. */
static bool sums_well(trm_comm *comm, float *send, float *recv, int64_t count, trm_reduction reduce,
                      int salt, trm_error *err) {
    int rank = trm_comm_rank(comm), size = trm_comm_size(comm);
    float *from = send != NULL ? send : recv;
    for (int64_t k = 0; k < count; k++) {
        from[k] = (float)((k + 3 * rank + salt) % 13);
    }
    trm_collective op = {.kind = TRM_ALLREDUCE,
                         .send = send,
                         .recv = recv,
                         .count = count,
                         .dtype = TRM_FLOAT32,
                         .reduce = reduce};
    if (trm_comm_run(comm, &op, err) != TRM_OK) {
        return false;
    }
    for (int64_t k = 0; k < count; k++) {
        float wanted = 0;
        for (int r = 0; r < size; r++) {
            float next = (float)((k + 3 * r + salt) % 13);
            wanted = reduce == TRM_REDUCTION_MAX && wanted > next ? wanted
                     : reduce == TRM_REDUCTION_MAX                ? next
                                                                  : wanted + next;
        }
        if (recv[k] != wanted) {
            snprintf(err->message, sizeof err->message,
                     "salt %d, element %ld of %ld: %g, expected %g", salt, (long)k, (long)count,
                     (double)recv[k], (double)wanted);
            return false;
        }
    }
    return true;
}

/* The memory of the previous sum is used for the same sum only: not for another buffer of a peer,
 * another reduction or count, nor for memory that was freed and allocated again. A rank that
 * disagrees is still reported. */
static void sums_again(rank_context *context) {
    OPEN_COMM();
    enum { LONGEST = 4096 };
    /* the first two are carried in slots */
    static const int64_t counts[] = {6, 200, 300, 1000, 3333, LONGEST};
    int salt = 0;
    for (int round = 0; round < 3; round++) {
        float *a = trm_comm_alloc_shared(comm, LONGEST * sizeof *a, &err),
              *b = trm_comm_alloc_shared(comm, LONGEST * sizeof *b, &err);
        EXPECT(a != NULL && b != NULL, "%s", err.message);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int i = 0; i < 12; i++) {
                float *to = i % 3 == 2 ? b : a;
                to = i > 5 && rank == i % size ? b : to; /* one rank elsewhere than last time */
                EXPECT(sums_well(comm, NULL, to, counts[c], TRM_REDUCTION_SUM, salt++, &err), "%s",
                       err.message);
                EXPECT(sums_well(comm, b, a, counts[c],
                                 i % 2 ? TRM_REDUCTION_MAX : TRM_REDUCTION_SUM, salt++, &err),
                       "%s", err.message);
            }
        }
        if (round == 1 && rank == 0) { /* what follows may lie where a lay, or elsewhere */
            float *between = trm_comm_alloc_shared(comm, LONGEST, &err);
            EXPECT(between != NULL, "%s", err.message);
        }
        trm_comm_free_shared(comm, rank % 2 ? a : b);
        trm_comm_free_shared(comm, rank % 2 ? b : a);
    }
    float *last = trm_comm_alloc_shared(comm, LONGEST * sizeof *last, &err);
    EXPECT(last != NULL, "%s", err.message);
    for (int i = 0; i < 3; i++) {
        EXPECT(sums_well(comm, NULL, last, given->mode, TRM_REDUCTION_SUM, i, &err), "%s",
               err.message);
    }
    trm_status status = trm_comm_allreduce(comm, last, rank == 1 ? given->mode - 1 : given->mode,
                                           TRM_FLOAT32, TRM_REDUCTION_SUM, &err);
    EXPECT(status == TRM_INVALID && strstr(err.message, "ranks disagree") != NULL, "%d: %s",
           (int)status, err.message);
    CLOSE_COMM();
}

/* Kept memory holds its values after its communicator is gone, and is ordinary memory for the next
 * collectives. */
static void keeps_memory(rank_context *context) {
    OPEN_COMM();
    enum { COUNT = 5000 };
    float *kept = trm_comm_alloc_shared(comm, COUNT * sizeof *kept, &err);
    EXPECT(kept != NULL, "%s", err.message);
    EXPECT(sums_well(comm, NULL, kept, COUNT, TRM_REDUCTION_SUM, 1, &err), "%s", err.message);
    size_t bytes = trm_comm_keep_shared(comm, kept);
    EXPECT(bytes >= COUNT * sizeof *kept, "%zu bytes", bytes);
    EXPECT(trm_comm_keep_shared(comm, kept) == 0, "kept twice");
    EXPECT(sums_well(comm, NULL, kept, COUNT, TRM_REDUCTION_SUM, 2, &err), "%s", err.message);
    float last = kept[COUNT - 1];
    CLOSE_COMM();
    EXPECT(kept[COUNT - 1] == last, "%g, expected %g", (double)kept[COUNT - 1], (double)last);
    munmap(kept, bytes);
}

static void memory_is_kept(void **state) {
    rank_setup given = {.options = {.engine = "shm"}};
    ranks_run(2, 0, true, keeps_memory, &given, "processes that keep shared memory");
}

/* Sums follow each other without a pause, with another length each time and with a broadcast
 * between them. In each, other ranks have private memory: none, some, or all of them. */
static void sums_of_mixed_memory(rank_context *context) {
    OPEN_COMM();
    enum { LONGEST = 70001, TIMES = 150 };
    static const int64_t counts[] = {LONGEST, 1100, 20000, 300, 5001, 4096, 3};
    float *shared = trm_comm_alloc_shared(comm, 2 * LONGEST * sizeof *shared, &err);
    float *private = malloc(2 * LONGEST * sizeof *private);
    EXPECT(shared != NULL && private != NULL, "no memory");
    for (int i = 0; i < TIMES; i++) {
        int64_t count = counts[i % 7];
        bool all = i % 5 == 0, some = i % 5 != 4 && (i + rank) % 3 == 0;
        float *memory = all || some ? private : shared;
        EXPECT(sums_well(comm, i % 2 ? memory + LONGEST : NULL, memory, count,
                         i % 4 ? TRM_REDUCTION_SUM : TRM_REDUCTION_MAX, i, &err),
               "%s", err.message);
        if (i % 3 == 0) {
            float first = (float)i;
            memory[count / 2] = rank == i % size ? first : -1;
            EXPECT_OK(trm_comm_broadcast(comm, memory, count, TRM_FLOAT32, i % size, &err), err);
            EXPECT(memory[count / 2] == first, "broadcast %d: %g", i, (double)memory[count / 2]);
        }
    }
    free(private);
    trm_comm_free_shared(comm, shared);
    CLOSE_COMM();
}

static void private_and_shared_memory_mix(void **state) {
    rank_setup given = {.options = {.engine = "shm", .staging_bytes = 20000}};
    for (int n = 2; n <= 5; n++) {
        ranks_run(n, 0, true, sums_of_mixed_memory, &given, "processes with private memory");
    }
}

static void sums_are_repeated(void **state) {
    rank_setup given = {.options = {.engine = "shm"}};
    for (int n = 2; n <= 3; n++) {
        /* elements of the last sums, of which one rank has fewer */
        given.mode = n == 2 ? 2000 : 200;
        ranks_run(n, 0, true, sums_again, &given, "processes that sum again");
        ranks_run(n, 0, false, sums_again, &given, "threads that sum again");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_threads),
        cmocka_unit_test(as_processes),
        cmocka_unit_test(always_staged),
        cmocka_unit_test(crowded_ranks_sum),
        cmocka_unit_test(groups_of_crowded_ranks_sum),
        cmocka_unit_test(sums_are_repeated),
        cmocka_unit_test(memory_is_kept),
        cmocka_unit_test(private_and_shared_memory_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
