/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective and type over the MPI plug-ins, under Open MPI's and MPICH's mpirun: this
 * program starts itself with them in the role "rank". Skipped where plug-in or mpirun is not found.
 */
#include "collective_cases.h"

#include "trireme/dist.h"

#define PLUGINS TRIREME_BUILD_DIR "/plugins"

static const int64_t counts[] = {0, 1021, -1};
static const int64_t large[] = {300000, -1}; /* 2.4 MB of int64: blocks and a rest */

/* ---- a rank ---------------------------------------------------------------------------------- */
static void create_disagreeing(rank_context *context, trm_bootstrap *boot,
                               const trm_comm_options *options) {
    trm_error err = {.status = 0};
    trm_comm *comm = NULL;
    float data[9] = {0};
    EXPECT_OK(trm_comm_create(boot, options, &comm, &err), err);
    EXPECT(strcmp(trm_comm_engine(comm), "mpi") == 0, "engine %s", trm_comm_engine(comm));
    trm_status status = trm_comm_allreduce(comm, data, context->rank == 1 ? 8 : 9, TRM_FLOAT32,
                                           TRM_REDUCTION_SUM, &err);
    EXPECT(status == TRM_INVALID && strstr(err.message, "of 8 ") != NULL &&
               strstr(err.message, "of 9 ") != NULL,
           "%s", err.message);
    trm_comm_destroy(comm);
}

static int rank_main(bool fails) {
    trm_error err = {.status = 0};
    trm_cluster *cluster = NULL;
    trm_bootstrap *boot = NULL;
    if (trm_cluster_from_env(NULL, NULL, NULL, &cluster, &err) != TRM_OK ||
        trm_cluster_join(cluster, NULL, &boot, &err) != TRM_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    static rank_context context;
    context = (rank_context){.rank = boot->rank, .size = boot->size};
    case_run runs[2] = {{.counts = counts, .quick = boot->size > 2, .boot = boot},
                        {.counts = large, .quick = true, .boot = boot}};
    /* MPI's ranks poll: more of them than CPUs are slow */
    int parts = fails ? 0 : boot->size == 2 ? 2 : 1;
    for (int i = 0; i < parts && context.failure[0] == '\0'; i++) {
        runs[i].options = (trm_comm_options){.engine = "mpi", .plugin_dir = PLUGINS};
        context.arg = &runs[i];
        case_body(&context);
    }
    if (fails) {
        const trm_comm_options options = {.engine = "mpi", .plugin_dir = PLUGINS};
        create_disagreeing(&context, boot, &options);
    }
    printf("rank %d of %d: %s\n", boot->rank, boot->size,
           context.failure[0] != '\0' ? context.failure : "good");
    fflush(stdout);
    if (fails) { /* then MPI is not finalised, and mpirun kills the remaining ranks */
        usleep(500000);
    }
    trm_cluster_leave(boot);
    trm_cluster_destroy(cluster);
    return context.failure[0] != '\0';
}

/* ---- the test -------------------------------------------------------------------------------- */
static char self[512];

static void run_under(const char *family, const char *mpirun, const char *role) {
    char line[1200], text[256];
    snprintf(line, sizeof line, PLUGINS "/trireme_comm_mpi_%s.so", family);
    snprintf(text, sizeof text, "command -v %s > /dev/null", mpirun);
    if (access(line, R_OK) != 0 || system(text) != 0) {
        print_message("skipped: no plug-in for %s, or no %s\n", family, mpirun);
        skip();
    }
    for (int n = 2; n <= (strcmp(role, "rank") == 0 ? 3 : 2); n++) {
        int good = 0;
        /* Both MPIs leak memory, and are unloaded before a sanitizer could attribute the leaks to
         * them. */
        snprintf(line, sizeof line,
                 "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 "
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "timeout 100 %s -n %d %s %s 2>&1",
                 mpirun, n, self, role);
        FILE *out = popen(line, "r");
        assert_non_null(out);
        while (fgets(line, sizeof line, out) != NULL) {
            good += strstr(line, ": good") != NULL;
            if (strstr(line, ": good") == NULL && strcmp(role, "rank") == 0) {
                print_message("%s", line);
            }
        }
        int status = pclose(out);
        assert_int_equal(good, n);
        if (strcmp(role, "rank") == 0) {
            assert_int_equal(status, 0);
        }
    }
}

static void open_mpi_ranks(void **state) {
    run_under("openmpi", "mpirun.openmpi --oversubscribe", "rank");
}
static void mpich_ranks(void **state) { run_under("mpich", "mpirun.mpich", "rank"); }
static void open_mpi_disagreement(void **state) {
    run_under("openmpi", "mpirun.openmpi --oversubscribe", "fails");
}
static void mpich_disagreement(void **state) { run_under("mpich", "mpirun.mpich", "fails"); }

int main(int argc, char **argv) {
    if (argc > 1) {
        return rank_main(strcmp(argv[1], "fails") == 0);
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_mpi_ranks),
        cmocka_unit_test(mpich_ranks),
        cmocka_unit_test(open_mpi_disagreement),
        cmocka_unit_test(mpich_disagreement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
