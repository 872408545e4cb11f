/* SPDX-License-Identifier: Apache-2.0 */
/* How a process finds its role: TF_CONFIG in both dialects, guide 000's flags, the variables of
 * launchers, rank tables, their precedence, and sources that disagree.
 *
 * Variables come from tables of the test (trmi_environment), never from the process. Each refused
 * description is a case with the words that its message must have; bench/faults.sh has more of
 * them for the program (bench/faults/tf_config.txt). */
#include "check.h"

#include "trireme/dist.h"

#include "comm/cluster/cluster_claim.h"
#include "comm/rendezvous/token.h"

#include <pthread.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* An environment as "NAME=value" strings, ended by NULL. */
static const char *look_up(void *context, const char *name) {
    size_t length = strlen(name);
    for (const char *const *one = context; *one != NULL; one++) {
        if (strncmp(*one, name, length) == 0 && (*one)[length] == '=') {
            return *one + length + 1;
        }
    }
    return NULL;
}
#define ENV(...) ((void *)(uintptr_t)(const char *const[]){__VA_ARGS__, NULL})

static trm_cluster *resolve_cluster(const trm_cluster_flags *flags, void *env) {
    trm_error err;
    trm_cluster *cluster = NULL;
    CHECK_OK(trm_cluster_from_env(flags, look_up, env, &cluster, &err), err);
    return cluster;
}

#define CHECK_RANK(cluster, r, n)                                                                  \
    do {                                                                                           \
        assert_int_equal(trm_cluster_get(cluster)->rank, (r));                                     \
        assert_int_equal(trm_cluster_get(cluster)->size, (n));                                     \
    } while (0)

/* Checks that the process is alone, with so many warnings, of which `first` is the first. */
static void check_alone(trm_cluster *cluster, int32_t warnings, const char *first) {
    CHECK_RANK(cluster, 0, 1);
    assert_int_equal(cluster->info.warning_count, warnings);
    assert_string_equal(cluster->info.warnings[0], first);
    trm_cluster_destroy(cluster);
}

static void nothing_is_a_single_process(void **state) {
    trm_error err;
    trm_cluster *cluster;
    CHECK_OK(trm_cluster_create(NULL, &cluster, &err), err);
    CHECK_RANK(cluster, 0, 1);
    assert_string_equal(trm_cluster_get(cluster)->source, "single process");
    assert_null(trm_cluster_get(cluster)->rendezvous);
    assert_true(trm_cluster_get(cluster)->is_chief);
    trm_cluster_destroy(cluster);
    /* An allocation without a step, and a RANK without a world size, are not a job. */
    cluster =
        resolve_cluster(NULL, ENV("SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SLURM_PROCID=0", "RANK=3"));
    CHECK_RANK(cluster, 0, 1);
    trm_cluster_destroy(cluster);
    cluster = resolve_cluster(NULL, ENV("TF_CONFIG={}"));
    CHECK_RANK(cluster, 0, 1);
    trm_cluster_destroy(cluster);
    /* nor is half of what makes a rank, which is told */
    check_alone(resolve_cluster(NULL, ENV("RANK_ID=3", "DEVICE_ID=3", "PMI_RANK=1")), 2,
                "RANK_ID=3 is set, but RANK_TABLE_FILE is not: this is a single process");
    check_alone(resolve_cluster(NULL, ENV("RANK=3", "WORLD_SIZE=4")), 1,
                "RANK=3 is set, but MASTER_ADDR is not: this is a single process");
    cluster = resolve_cluster(NULL, ENV("RANK=0", "WORLD_SIZE=1"));
    assert_int_equal(cluster->info.warning_count, 0);
    trm_cluster_destroy(cluster);
    trm_cluster_destroy(NULL);
}

#define HOSTS "\"worker\":[\"a:1\",\"b:1\"],\"ps\":[\"c:1\",\"d:1\"]"

static void both_dialects_are_read(void **state) {
    /* dialect B: no chief, worker 0 acts; ranks are the workers */
    trm_cluster *cluster =
        resolve_cluster(NULL, ENV("TF_CONFIG={\"cluster\":{" HOSTS
                                  "},\"task\":{\"type\":\"worker\",\"index\":1}}"));
    const trm_cluster_info *info = trm_cluster_get(cluster);
    CHECK_RANK(cluster, 1, 2);
    assert_false(info->is_chief);
    assert_int_equal(trm_cluster_task_count(cluster, TRM_ROLE_PS), 2);
    assert_string_equal(trm_cluster_task_address(cluster, TRM_ROLE_PS, 1), "d:1");
    assert_null(trm_cluster_task_address(cluster, TRM_ROLE_PS, 2));
    assert_true(trm_cluster_beyond_loopback(cluster));
    assert_string_equal(info->rendezvous, "a:1");
    assert_string_equal(cluster->rank_hosts[1], "b");
    assert_int_equal(info->local_size, 1);
    trm_cluster_destroy(cluster);

    /* dialect A: chief first, then the workers */
    cluster = resolve_cluster(
        NULL, ENV("TF_CONFIG={\"cluster\":{" HOSTS ",\"chief\":[\"e:1\"]},"
                  "\"task\":{\"type\":\"worker\",\"index\":\"0\"},\"model_dir\":\"/m\"}"));
    CHECK_RANK(cluster, 1, 3);
    assert_false(trm_cluster_get(cluster)->is_chief);
    assert_string_equal(trm_cluster_get(cluster)->rendezvous, "e:1");
    assert_string_equal(trm_cluster_get(cluster)->model_dir, "/m");
    trm_cluster_destroy(cluster);

    /* TF1: master is a chief that evaluates */
    cluster = resolve_cluster(
        NULL, ENV("TF_CONFIG={\"cluster\":{" HOSTS ",\"master\":[\"e:1\"]},"
                  "\"task\":{\"type\":\"master\",\"index\":0},\"environment\":\"cloud\"}"));
    CHECK_RANK(cluster, 0, 3);
    assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_CHIEF);
    assert_true(trm_cluster_get(cluster)->is_chief && trm_cluster_get(cluster)->also_evaluates);
    trm_cluster_destroy(cluster);

    /* ps and evaluator are outside the world, the evaluator listed or not */
    cluster = resolve_cluster(
        NULL, ENV("TF_CONFIG={\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":1}}"));
    CHECK_RANK(cluster, -1, 2);
    assert_int_equal(trm_cluster_get(cluster)->task_index, 1);
    trm_cluster_destroy(cluster);
    static const char *const evaluators[] = {"", ",\"evaluator\":[\"f:1\"]"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        sprintf(text,
                "TF_CONFIG={\"cluster\":{" HOSTS "%s},\"task\":{\"type\":\"evaluator\","
                "\"index\":0}}",
                evaluators[i]);
        cluster = resolve_cluster(NULL, ENV(text));
        CHECK_RANK(cluster, -1, 2);
        assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_EVALUATOR);
        trm_cluster_destroy(cluster);
    }
    /* It only reads checkpoints, so it needs neither addresses nor servers. */
    cluster =
        resolve_cluster(&(trm_cluster_flags){.job_name = "evaluator", .needs_ps = true}, ENV("A="));
    CHECK_RANK(cluster, -1, 1);
    assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_EVALUATOR);
    assert_true(trm_cluster_get(cluster)->has_roles && !trm_cluster_get(cluster)->is_chief);
    trm_cluster_destroy(cluster);
}

static void sparse_worker_maps_are_read(void **state) {
    trm_cluster *cluster = resolve_cluster(
        NULL, ENV("TF_CONFIG={\"cluster\":{\"worker\":{\"3\":\"w3:1\"},\"ps\":[\"p0:1\","
                  "\"p1:1\"]},\"task\":{\"type\":\"worker\",\"index\":3},"
                  "\"environment\":\"cloud\"}"));
    CHECK_RANK(cluster, 3, 0);
    assert_true(trm_cluster_get(cluster)->sparse_workers);
    assert_string_equal(trm_cluster_task_address(cluster, TRM_ROLE_WORKER, 3), "w3:1");
    assert_null(trm_cluster_task_address(cluster, TRM_ROLE_WORKER, 0));
    trm_cluster_destroy(cluster);
    /* a ps is told only about itself */
    cluster = resolve_cluster(NULL, ENV("TF_CONFIG={\"cluster\":{\"worker\":{},\"ps\":[\"p1:1\"]},"
                                        "\"task\":{\"type\":\"ps\",\"index\":1}}"));
    assert_string_equal(trm_cluster_task_address(cluster, TRM_ROLE_PS, 1), "p1:1");
    trm_cluster_destroy(cluster);
}

/* Addresses of this host are found by their numbers, not by the first letters of a name:
 * 127.example.org may be anywhere. */
static void who_is_reached_from_other_hosts(void **state) {
    static const struct {
        const char *ps;
        bool beyond;
    } cases[] = {{"127.0.0.1:1", false}, {"localhost:1", false},      {"[::1]:1", false},
                 {"127.1.2.3:1", false}, {"127.example.org:1", true}, {"localhosts:1", true},
                 {"[::2]:1", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        trm_cluster_flags flags = {.ps_hosts = cases[i].ps,
                                   .worker_hosts = "127.0.0.1:2",
                                   .job_name = "worker",
                                   .task_index = "0"};
        trm_cluster *cluster = resolve_cluster(&flags, ENV("HOME=/"));
        assert_int_equal(trm_cluster_beyond_loopback(cluster), cases[i].beyond);
        trm_cluster_destroy(cluster);
    }
}

static void guide_000_flags_are_read(void **state) {
    /* the guide's defaults: blanks after the commas, an empty evaluator list */
    trm_cluster_flags flags = {.ps_hosts = "192.168.1.100:2222,192.168.1.200:2222",
                               .worker_hosts =
                                   "192.168.1.100:2223, 192.168.1.100:2224,192.168.1.200:2223 , "
                                   "192.168.1.200:2224",
                               .evaluator_hosts = "",
                               .job_name = "worker",
                               .task_index = "3"};
    trm_cluster *cluster = resolve_cluster(&flags, ENV("HOME=/"));
    const trm_cluster_info *info = trm_cluster_get(cluster);
    CHECK_RANK(cluster, 3, 4);
    assert_int_equal(info->local_rank, 1);
    assert_int_equal(info->local_size, 2);
    assert_string_equal(trm_cluster_task_address(cluster, TRM_ROLE_WORKER, 2),
                        "192.168.1.200:2223");
    assert_int_equal(cluster->info.warning_count, 0);
    assert_true(trm_cluster_beyond_loopback(cluster));
    char *text;
    trm_error err;
    CHECK_OK(trm_cluster_text(cluster, false, &text, &err), err);
    assert_non_null(strstr(text, "192.168.1.100:2223  (acts as chief)"));
    assert_non_null(strstr(text, "192.168.1.200:2224  <- this process"));
    trm_free(text);
    CHECK_OK(trm_cluster_text(cluster, true, &text, &err), err);
    assert_non_null(strstr(text, "\"ps\": [\"192.168.1.100:2222\", \"192.168.1.200:2222\"]"));
    trm_free(text);
    trm_cluster_destroy(cluster);

    /* the task alone completes a TF_CONFIG that says only the cluster */
    trm_cluster_flags task = {.job_name = "ps", .task_index = "1", .needs_ps = true};
    cluster = resolve_cluster(&task, ENV("TF_CONFIG={\"cluster\":{" HOSTS "}}"));
    assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_PS);
    assert_string_equal(trm_cluster_get(cluster)->source, "TF_CONFIG (task from --job_name)");
    trm_cluster_destroy(cluster);
    /* chief and evaluator as in the guide's last block */
    task = (trm_cluster_flags){.job_name = "chief",
                               .task_index = "0",
                               .chief_hosts = "x:1",
                               .worker_hosts = "y:1",
                               .ps_hosts = "z:1"};
    cluster = resolve_cluster(&task, ENV("HOME=/"));
    CHECK_RANK(cluster, 0, 2);
    assert_true(trm_cluster_get(cluster)->is_chief);
    trm_cluster_destroy(cluster);
}

typedef struct bad_case {
    const char *text, *message;
} bad_case;

#define TASK ",\"task\":{\"type\":\"worker\",\"index\":0}"
static const bad_case bad_configs[] = {
    {"nonsense", "TF_CONFIG: line 1, column 8: not JSON"},
    {"{\"cluster\":}", "not JSON"},
    {"{\"cluster\":{}", "not JSON"},
    {"[1]", "a JSON object expected, found a list"},
    {" ", "TF_CONFIG: empty"},
    {"[[[[[[[[[1]]]]]]]]]", "nested deeper than 8 levels"},
    {"{\"cluster\":{" HOSTS "},\"cluster\":{" HOSTS "}" TASK "}", "duplicate object key"},
    {"{\"cluster\":{\"worker\":[\"a:1\"],\"worker\":[\"a:1\"]}" TASK "}", "duplicate object key"},
    {"{\"cluster\":[]" TASK "}", "cluster: an object of jobs expected, found a list"},
    {"{\"cluster\":\"a:1\"" TASK "}", "cluster: an object of jobs expected, found the string"},
    {"{\"cluster\":{\"workers\":[\"a:1\"]}" TASK "}",
     "\"workers\" is no job; chief, worker, ps, evaluator or master expected"},
    {"{\"cluster\":{\"parameter_server\":[\"a:1\"]}" TASK "}", "(write ps)"},
    {"{\"cluster\":{\"worker\":\"a:1\"}" TASK "}",
     "cluster.worker: a list of \"host:port\" expected, found the string \"a:1\""},
    {"{\"cluster\":{\"worker\":[\"a:1\"],\"ps\":{\"0\":\"b:1\"}}" TASK "}",
     "cluster.ps: only worker may be a map"},
    {"{\"cluster\":{\"worker\":[1]}" TASK "}",
     "cluster.worker[0]: \"host:port\" expected, found the number 1"},
    {"{\"cluster\":{\"worker\":[\"a:1\",null]}" TASK "}",
     "cluster.worker[1]: \"host:port\" expected, found null"},
    {"{\"cluster\":{\"worker\":[\"a\"]}" TASK "}", "cluster.worker[0]: \"a\": no port"},
    {"{\"cluster\":{\"worker\":[\":1\"]}" TASK "}", "no host before the port"},
    {"{\"cluster\":{\"worker\":[\"a:\"]}" TASK "}", "a port from 1 to 65535 expected"},
    {"{\"cluster\":{\"worker\":[\"a:0\"]}" TASK "}", "a port from 1 to 65535 expected"},
    {"{\"cluster\":{\"worker\":[\"a:65536\"]}" TASK "}", "a port from 1 to 65535 expected"},
    {"{\"cluster\":{\"worker\":[\"a:x\"]}" TASK "}", "a port from 1 to 65535 expected"},
    {"{\"cluster\":{\"worker\":[\"a b:1\"]}" TASK "}", "a blank inside the address"},
    {"{\"cluster\":{\"worker\":[\"a,b:1\"]}" TASK "}", "a character that no host name has"},
    {"{\"cluster\":{\"worker\":[\"::1:22\"]}" TASK "}", "an IPv6 address needs brackets"},
    {"{\"cluster\":{\"worker\":[\"[::1:22\"]}" TASK "}", "bracket"},
    {"{\"cluster\":{\"worker\":[\"[x]:22\"]}" TASK "}", "no valid IPv6 address in the brackets"},
    {"{\"cluster\":{\"worker\":[\"300.1.1.1:22\"]}" TASK "}", "no valid IPv4 address"},
    {"{\"cluster\":{\"worker\":{\"x\":\"a:1\"}}" TASK "}", "a task index from 0 to 65535 expected"},
    {"{\"cluster\":{\"worker\":{\"1\":\"a:1\",\"01\":\"b:1\"}}" TASK "}",
     "worker 1 is given twice"},
    {"{\"cluster\":{\"worker\":{\"0\":5}}" TASK "}",
     "worker[\"0\"]: \"host:port\" expected, found the number 5"},
    {"{\"cluster\":{\"worker\":{\"1\":\"a:1\"}}" TASK "}",
     "worker 0, which the worker map does not have"},
    {"{\"cluster\":{\"chief\":[\"a:1\",\"b:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}",
     "2 chiefs; at most one"},
    {"{\"cluster\":{" HOSTS ",\"evaluator\":[\"x:1\",\"y:1\"]}" TASK "}",
     "2 evaluators; at most one"},
    {"{\"cluster\":{" HOSTS ",\"chief\":[\"x:1\"],\"master\":[\"y:1\"]}" TASK "}",
     "chief and master together"},
    {"{\"cluster\":{" HOSTS ",\"master\":[\"y:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}",
     "the cluster has a master, which evaluates itself"},
    {"{\"cluster\":{" HOSTS ",\"master\":[\"y:1\"]},\"task\":{\"type\":\"chief\",\"index\":0}}",
     "lists a master and no chief"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"master\",\"index\":0}}",
     "cluster lists no master"},
    {"{\"cluster\":{\"worker\":[\"a:1\",\"a:1\"]}" TASK "}",
     "\"a:1\" is both worker 0 and worker 1"},
    {"{\"cluster\":{\"worker\":[\"a:1\"],\"ps\":[\"a:1\"]}" TASK "}",
     "\"a:1\" is both worker 0 and ps 0"},
    {"{\"cluster\":{\"ps\":[\"a:1\"]},\"task\":{\"type\":\"ps\",\"index\":0}}",
     "neither a worker nor a chief"},
    {"{\"cluster\":{" HOSTS "}}", "a cluster without task"},
    {"{\"cluster\":{" HOSTS "},\"task\":{}}", "a cluster without task"},
    {"{\"cluster\":{" HOSTS "},\"task\":\"worker\"}",
     "task: an object with type and index expected"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"index\":0}}", "task.type is missing"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":0,\"index\":0}}",
     "task.type: a string expected, found the number 0"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"boss\",\"index\":0}}",
     "task.type: \"boss\" is no job"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\"}}",
     "task.index is missing; this task's place in cluster.ps"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":-1}}",
     "task.index: 0 or more expected, found -1"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":1.5}}",
     "task.index: a whole number expected, found the number 1.5"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":\"one\"}}",
     "a whole number expected, found the string \"one\""},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":true}}",
     "a whole number expected, found true"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":70000}}",
     "at most 65535 expected"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":2}}",
     "the task is ps 2, but the cluster lists 2 (0 to 1)"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"chief\",\"index\":0}}",
     "the task is chief 0, but the cluster lists no chief"},
    {"{\"cluster\":{" HOSTS "},\"task\":{\"type\":\"evaluator\",\"index\":1}}",
     "evaluator 1, but there is at most one"},
    {"{\"task\":{\"type\":\"ps\",\"index\":0}}", "the task is ps 0, but there is no cluster"},
    {"{\"task\":{\"type\":\"evaluator\",\"index\":1}}",
     "the task is evaluator 1, but there is no cluster"},
    {"{\"task\":{\"type\":\"worker\",\"index\":1}}",
     "the task is worker 1, but there is no cluster"},
    {"{\"cluster\":{" HOSTS "}" TASK ",\"model_dir\":\"\"}", "model_dir is empty"},
    {"{\"cluster\":{" HOSTS "}" TASK ",\"model_dir\":3}", "model_dir: a string expected"},
    {"{\"cluster\":{" HOSTS "}" TASK ",\"environment\":{}}", "environment: a string expected"},
};

static void every_bad_tf_config_has_its_message(void **state) {
    trm_error err;
    size_t count = sizeof bad_configs / sizeof bad_configs[0];
    for (size_t c = 0; c < count; c++) {
        char *text = malloc(strlen(bad_configs[c].text) + 16);
        sprintf(text, "TF_CONFIG=%s", bad_configs[c].text);
        trm_cluster *cluster = NULL;
        CHECK_FAILS(trm_cluster_from_env(NULL, look_up, ENV(text), &cluster, &err), TRM_INVALID,
                    err, bad_configs[c].message);
        assert_true(strlen(err.message) < sizeof err.message - 1);
        free(text);
    }
    print_message("%zu bad TF_CONFIGs\n", count);
    assert_true(count >= 40);
    size_t bytes = 5u << 20;
    char *big = malloc(bytes + 16);
    strcpy(big, "TF_CONFIG={\"");
    memset(big + strlen(big), 'x', bytes - strlen(big));
    big[bytes] = '\0';
    trm_cluster *cluster;
    CHECK_FAILS(trm_cluster_from_env(NULL, look_up, ENV(big), &cluster, &err), TRM_INVALID, err,
                "at most 4194304 expected");
    free(big);
}

static void bad_flags_have_their_message(void **state) {
    static const struct {
        trm_cluster_flags flags;
        const char *env, *message;
    } cases[] = {
        {{.task_index = "1"}, "A=", "--task_index without --job_name"},
        {{.job_name = "worker", .task_index = "x"}, "A=", "--task_index: a whole number"},
        {{.job_name = "boss"}, "A=", "--job_name: \"boss\" is no job"},
        {{.job_name = "ps", .task_index = "0"}, "A=", "the task is ps 0, but there is no cluster"},
        {{.worker_hosts = "a:1,b", .job_name = "worker"},
         "A=",
         "--worker_hosts, address 2: \"b\": no port"},
        {{.worker_hosts = "a:1"}, "A=", "a cluster without task"},
        {{.worker_hosts = "a:1", .job_name = "worker", .task_index = "4"},
         "A=",
         "the task is worker 4, but the cluster lists 1"},
        {{.worker_hosts = "a:1", .job_name = "worker", .needs_ps = true},
         "A=",
         "no parameter server is listed"},
        {{.rank = 4, .size = 4}, "A=", "--rank 4, but --world-size 4; 0 to 3 expected"},
        {{.job_name = "ps", .task_index = "0"},
         "TF_CONFIG={\"cluster\":{" HOSTS "},\"task\":{\"type\":\"ps\",\"index\":1}}",
         "flags (--job_name, --task_index) say ps 0, TF_CONFIG says ps 1"},
        {{.worker_hosts = "a:1", .job_name = "worker"},
         "TF_CONFIG={\"cluster\":{" HOSTS "}" TASK "}",
         "flags list 1 worker task, TF_CONFIG lists 2"},
        {{.worker_hosts = "a:1,x:1", .ps_hosts = "c:1,d:1"},
         "TF_CONFIG={\"cluster\":{" HOSTS "}" TASK "}",
         "worker 1 is x:1 in --worker_hosts, but b:1 in TF_CONFIG"},
        {{.rank_table = "/a"},
         "RANK_TABLE_FILE=/b",
         "--rank-table says /a, RANK_TABLE_FILE says /b"},
    };
    trm_error err;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        trm_cluster *cluster;
        CHECK_FAILS(
            trm_cluster_from_env(&cases[c].flags, look_up, ENV(cases[c].env), &cluster, &err),
            TRM_INVALID, err, cases[c].message);
    }
}

/* clang-format off */
static void launchers_are_read(void **state) {
    static const struct {
        const char *env[12];
        int rank, size, local_rank, local_size;
        const char *source, *rendezvous;
        int ports;
    } cases[] = {
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=h0",
          "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_USE_AGENT_STORE=True",
          "GROUP_WORLD_SIZE=2"},
         3, 4, 1, 2, "torchrun", "h0:29501", 16},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=job-master-0", "MASTER_PORT=23456",
          "PET_NNODES=2"},
         1, 2, -1, 0, "PyTorchJob (RANK, WORLD_SIZE)", "job-master-0:23456", 1},
        {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=2",
          "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_RANK=2", "PMIX_NAMESPACE=5"},
         2, 4, 2, 4, "Open MPI", "unix:", 1},
        {{"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
         2, 4, 0, 2, "Open MPI", NULL, 1},
        {{"PMI_RANK=1", "PMI_SIZE=3", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=3"},
         1, 3, 1, 3, "MPICH (PMI_RANK, PMI_SIZE)", "unix:", 1},
        {{"PET_NNODES=2", "PET_NODE_RANK=1", "PET_NPROC_PER_NODE=1", "PET_MASTER_ADDR=job-node-0-0", "PET_MASTER_PORT=29400"},
         1, 2, -1, 0, "Trainer (PET_NODE_RANK, PET_NNODES)", "job-node-0-0:29400", 1},
        {{"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=3", "MV2_COMM_WORLD_LOCAL_RANK=0",
          "TRIREME_RENDEZVOUS=h:5"},
         1, 3, 0, 0, "MVAPICH", "h:5", 1},
        {{"SLURM_STEP_ID=0", "SLURM_JOB_ID=1234", "SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=6",
          "SLURM_STEP_NUM_NODES=3", "SLURM_NODEID=2", "SLURM_LOCALID=0",
          "SLURM_STEP_TASKS_PER_NODE=2(x2),2", "SLURM_STEP_NODELIST=gpu[007-009]-ib"},
         5, 6, 0, 2, "Slurm step", "gpu007-ib:19680", 16},
        {{"SLURM_STEP_ID=1", "SLURM_JOB_ID=9", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2",
          "SLURM_STEP_NUM_NODES=1", "SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=2"},
         0, 2, 0, 2, "Slurm step", "unix:", 1},
        /* no count of nodes: the list or the tasks of a node may tell */
        {{"SLURM_STEP_ID=1", "SLURM_JOB_ID=9", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=1",
          "SLURM_STEP_NODELIST=gpu7"},
         1, 2, 1, 2, "Slurm step", "unix:", 1},
        {{"SLURM_STEP_ID=1", "SLURM_JOB_ID=9", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_TASKS_PER_NODE=2",
          "SLURM_LOCALID=1"},
         1, 2, 1, 2, "Slurm step", "unix:", 1},
        {{"SLURM_STEP_ID=0", "SLURM_JOB_ID=1234", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NODELIST=a,b"},
         1, 2, -1, 0, "Slurm step", "a:19680", 16},
        {{"SLURM_STEP_ID=1", "SLURM_JOB_ID=9", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2",
          "SLURM_STEP_NUM_NODES=1", "SLURM_LOCALID=1", "PMIX_RANK=1", "PMIX_NAMESPACE=slurm.9.1"},
         1, 2, 1, 2, "PMIx (PMIX_RANK)", "unix:", 1},
        {{"MS_ROLE=MS_WORKER", "MS_WORKER_NUM=8", "MS_NODE_ID=2", "MS_SCHED_HOST=10.0.0.1",
          "MS_SCHED_PORT=8118"},
         2, 8, -1, 0, "MindSpore (MS_ROLE, MS_WORKER_NUM)", "10.0.0.1:8118", 1},
        {{"MS_ROLE=MS_WORKER", "MS_WORKER_NUM=8", "RANK_ID=7", "RANK_SIZE=8"},
         7, 8, -1, 0, "MindSpore (MS_ROLE, MS_WORKER_NUM)", NULL, 1},
        {{"TRIREME_RANK=1", "TRIREME_SIZE=2", "TRIREME_LOCAL_RANK=1", "TRIREME_LOCAL_SIZE=2",
          "RANK_ID=1", "RANK_SIZE=2", "DEVICE_ID=1", "TRIREME_RENDEZVOUS=unix:/x"},
         1, 2, 1, 2, "trireme run", "unix:/x", 1},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_CHIEF_PORT=60001", "CM_CHIEF_DEVICE=0", "CM_WORKER_SIZE=4",
          "CM_WORKER_IP=10.0.0.2"},
         -1, 4, -1, 0, "CM_CHIEF_IP, CM_WORKER_SIZE", "10.0.0.1:60001", 1},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_CHIEF_PORT=60001", "CM_CHIEF_DEVICE=3", "CM_WORKER_SIZE=4",
          "CM_WORKER_IP=10.0.0.1", "ASCEND_DEVICE_ID=3"},
         0, 4, -1, 0, "CM_CHIEF_IP, CM_WORKER_SIZE", "10.0.0.1:60001", 1},
        /* nested launchers: the outer one counts agents */
        {{"RANK=9", "WORLD_SIZE=16", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=8", "GROUP_WORLD_SIZE=2",
          "MASTER_ADDR=h0", "MASTER_PORT=29400", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
          "SLURM_STEP_NUM_TASKS=2", "TORCHELASTIC_RUN_ID=1"},
         9, 16, 1, 8, "torchrun", "h0:29400", 1},
        {{"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "SLURM_STEP_ID=0", "SLURM_PROCID=1",
          "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2", "TRIREME_RENDEZVOUS=h:5"},
         5, 8, -1, 0, "Open MPI", "h:5", 1},
        {{"TRIREME_RANK=1", "TRIREME_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
         1, 2, -1, 0, "trireme run", NULL, 1},
    };
    /* clang-format on */
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        trm_cluster *cluster = resolve_cluster(NULL, (void *)(uintptr_t)cases[c].env);
        const trm_cluster_info *info = trm_cluster_get(cluster);
        CHECK_RANK(cluster, cases[c].rank, cases[c].size);
        assert_string_equal(info->source, cases[c].source);
        assert_int_equal(info->local_rank, cases[c].local_rank);
        assert_int_equal(info->local_size, cases[c].local_size);
        bool launched = strstr("torchrun, Open MPI, MPICH (PMI_RANK, PMI_SIZE), PMIx (PMIX_RANK), "
                               "MVAPICH, Slurm step",
                               info->source) != NULL;
        assert_int_equal(info->one_console, launched && info->size > 1);
        if (cases[c].rendezvous == NULL) {
            assert_null(info->rendezvous);
        } else {
            assert_non_null(info->rendezvous);
            assert_memory_equal(info->rendezvous, cases[c].rendezvous, strlen(cases[c].rendezvous));
            assert_int_equal(info->rendezvous_ports, cases[c].ports);
        }
        trm_cluster_destroy(cluster);
    }
}

/* msrun over several hosts without --node_rank: the workers get their numbers when they meet. */
static void workers_of_msrun_need_no_number(void **state) {
    trm_cluster *cluster =
        resolve_cluster(NULL, ENV("MS_ROLE=MS_WORKER", "MS_WORKER_NUM=4", "RANK_SIZE=4",
                                  "MS_SCHED_HOST=127.0.0.1", "MS_SCHED_PORT=8118", "DEVICE_ID=1"));
    const trm_cluster_info *info = trm_cluster_get(cluster);
    CHECK_RANK(cluster, -1, 4);
    assert_true(info->rank_later);
    assert_string_equal(info->rendezvous, "127.0.0.1:8118");
    assert_int_equal(info->device_id, 1);
    trm_cluster_destroy(cluster);
    cluster = resolve_cluster(NULL, ENV("MS_ROLE=MS_SCHED", "MS_WORKER_NUM=4", "RANK_SIZE=4",
                                        "MS_NODE_ID=sched", "MS_SCHED_HOST=127.0.0.1",
                                        "MS_SCHED_PORT=8118"));
    assert_string_equal(trm_cluster_get(cluster)->rendezvous, "127.0.0.1:8118");
    assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_SCHEDULER);
    trm_cluster_destroy(cluster);
}

static void hccl_variables_are_read(void **state) {
    static const struct {
        const char *variable, *message;
    } bad[] = {
        {"HCCL_CONNECT_TIMEOUT=7201", "HCCL_CONNECT_TIMEOUT: a whole number from 1 to 7200"},
        {"HCCL_EXEC_TIMEOUT=-1", "HCCL_EXEC_TIMEOUT: a whole number from 0"},
        {"HCCL_DETERMINISTIC=yes",
         "HCCL_DETERMINISTIC: false, true or strict expected, found \"yes\""},
        {"HCCL_IF_IP=203.0.113.7", "HCCL_IF_IP: an IP address of this host expected"},
        {"HCCL_IF_IP=eth0", "HCCL_IF_IP: an IP address of this host expected"},
        {"HCCL_SOCKET_IFNAME==nosuch0", "HCCL_SOCKET_IFNAME: no interface of this host"},
        {"HCCL_SOCKET_FAMILY=AF_UNIX", "HCCL_SOCKET_FAMILY: AF_INET or AF_INET6 expected"},
    };
    trm_error err;
    trm_cluster *cluster;
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        CHECK_FAILS(trm_cluster_from_env(NULL, look_up,
                                         ENV("TRIREME_RANK=0", "TRIREME_SIZE=2", bad[b].variable),
                                         &cluster, &err),
                    TRM_INVALID, err, bad[b].message);
    }
    cluster = resolve_cluster(NULL, ENV("TRIREME_RANK=0", "TRIREME_SIZE=2",
                                        "HCCL_CONNECT_TIMEOUT=600", "HCCL_EXEC_TIMEOUT=68",
                                        "HCCL_DETERMINISTIC=strict", "HCCL_SOCKET_IFNAME==lo",
                                        "HCCL_SOCKET_FAMILY=AF_INET", "HCCL_BUFFSIZE=200",
                                        "HCCL_RDMA_TC=132", "HCCL_WHITELIST_DISABLE=0"));
    assert_true(cluster->hccl.connect_seconds == 600 && cluster->hccl.exec_seconds == 68);
    assert_int_equal(cluster->hccl.deterministic, 2);
    assert_string_equal(cluster->hccl.address, "127.0.0.1");
    assert_int_equal(cluster->info.warning_count, 1); /* one for all that have no effect */
    assert_string_equal(
        cluster->info.warnings[0],
        "HCCL_BUFFSIZE, HCCL_WHITELIST_DISABLE, HCCL_RDMA_TC: without effect here, they are of "
        "Ascend's devices and network; the job's token decides which hosts may join "
        "(TRIREME_TOKEN_FILE)");
    trm_cluster_destroy(cluster);
    cluster = resolve_cluster(
        NULL, ENV("TRIREME_RANK=0", "TRIREME_SIZE=2", "HCCL_EXEC_TIMEOUT=0", "HCCL_IF_IP=127.0.0.3",
                  "HCCL_SOCKET_IFNAME==nosuch0")); /* the address counts before the interface */
    assert_true(cluster->hccl.exec_seconds > 1e6);
    assert_string_equal(cluster->hccl.address, "127.0.0.3");
    trm_cluster_destroy(cluster);
    cluster =
        resolve_cluster(NULL, ENV("HCCL_CONNECT_TIMEOUT=x")); /* a single process has no peers */
    trm_cluster_destroy(cluster);
}

static void copy_file(const char *from, const char *to) {
    char text[4096];
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    assert_true(in != NULL && out != NULL);
    size_t bytes = fread(text, 1, sizeof text, in);
    assert_int_equal(fwrite(text, 1, bytes, out), bytes);
    fclose(in);
    fclose(out);
}

/* Guide 002's processes may each have a copy of the table in their folder. */
static void ranks_meet_by_the_tables_content(void **state) {
    static const char one_server[] =
        "{\"version\":\"1.0\",\"server_count\":\"1\",\"status\":\"completed\",\"server_list\":[{"
        "\"server_id\":\"127.0.0.1\",\"device\":[{\"device_id\":\"0\",\"rank_id\":\"0\"},"
        "{\"device_id\":\"1\",\"rank_id\":\"1\"}]}]}";
    char path[] = "/tmp/clustertableXXXXXX", copy[64], first[96], second[96], other[96];
    close(mkstemp(path));
    FILE *file = fopen(path, "w");
    fputs(one_server, file);
    fclose(file);
    sprintf(copy, "%s-copy", path);
    copy_file(path, copy);
    sprintf(first, "RANK_TABLE_FILE=%s", path);
    sprintf(second, "RANK_TABLE_FILE=%s", copy);
    trm_cluster *a = resolve_cluster(NULL, ENV(first, "RANK_ID=0")),
                *b = resolve_cluster(NULL, ENV(second, "RANK_ID=1"));
    trm_cluster *c = resolve_cluster(NULL, ENV(second, "RANK_ID=1", "JOB_ID=7"));
    snprintf(other, sizeof other, "%s", trm_cluster_get(a)->rendezvous);
    assert_string_equal(trm_cluster_get(b)->rendezvous, other);
    assert_string_not_equal(trm_cluster_get(c)->rendezvous,
                            other); /* another job of the same table */
    trm_cluster_destroy(a);
    trm_cluster_destroy(b);
    trm_cluster_destroy(c);
    unlink(path);
    unlink(copy);
}

static void schedulers_are_no_ranks(void **state) {
    trm_cluster *cluster = resolve_cluster(NULL, ENV("MS_ROLE=MS_SCHED", "MS_WORKER_NUM=8"));
    assert_int_equal(trm_cluster_get(cluster)->role, TRM_ROLE_SCHEDULER);
    CHECK_RANK(cluster, -1, 8);
    trm_cluster_destroy(cluster);
    cluster = resolve_cluster(NULL, ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0",
                                        "SLURM_STEP_NUM_TASKS=4", "SLURM_PTY_PORT=777"));
    CHECK_RANK(cluster, 0, 1);
    trm_cluster_destroy(cluster);
}

static void bad_environments_name_both_sides(void **state) {
    static const struct {
        const char *env[8];
        const char *message;
    } cases[] = {
        {{"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\",\"b:1\"]}" TASK "}",
          "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
         "TF_CONFIG: rank 0 of 2, but Open MPI: rank 1 of 2"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "PMI_RANK=0", "PMI_SIZE=4"},
         "PyTorchJob (RANK, WORLD_SIZE): rank 0 of 2, but MPICH (PMI_RANK, PMI_SIZE): rank 0 of 4"},
        {{"TRIREME_RANK=0", "TRIREME_SIZE=2", "RANK_ID=1", "RANK_SIZE=2"},
         "trireme run: rank 0 of 2, but RANK_SIZE, RANK_ID: rank 1 of 2"},
        {{"TF_CONFIG={\"cluster\":{" HOSTS "}" TASK "}", "OMPI_COMM_WORLD_RANK=1",
          "OMPI_COMM_WORLD_SIZE=3"},
         "but Open MPI: rank 1 of 3"},
        {{"RANK_ID=0", "RANK_SIZE=8"}, "neither RANK_TABLE_FILE nor CM_CHIEF_IP"},
        {{"RANK_ID=8", "RANK_SIZE=8"}, "RANK_ID=8, but RANK_SIZE=8"},
        {{"RANK=4", "WORLD_SIZE=4", "MASTER_ADDR=x"}, "RANK=4, but WORLD_SIZE=4"},
        {{"RANK=x", "WORLD_SIZE=4", "MASTER_ADDR=x"}, "RANK: a whole number from 0 to"},
        {{"RANK=0", "MASTER_ADDR=x"}, "WORLD_SIZE is not"},
        {{"TRIREME_RANK=1"}, "TRIREME_RANK is set, but TRIREME_SIZE is not"},
        {{"TRIREME_SIZE=2"}, "TRIREME_SIZE is set, but TRIREME_RANK is not"},
        {{"PET_NODE_RANK=1", "PET_MASTER_ADDR=a", "PET_NNODES=2", "PET_NPROC_PER_NODE=4"},
         "started by torchrun --no-python"},
        {{"PET_NODE_RANK=1", "PET_MASTER_ADDR=a"}, "PET_NNODES is not"},
        {{"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=x", "MASTER_PORT=99999"}, "MASTER_PORT: a whole"},
        {{"PMIX_RANK=3", "PMIX_NAMESPACE=n"}, "gives rank 3, but no size"},
        {{"CM_CHIEF_IP=10.0.0.1", "RANK_ID=0"}, "CM_CHIEF_IP and RANK_ID are both set"},
        {{"CM_CHIEF_IP=10.0.0.1", "RANK_TABLE_FILE=/x"},
         "CM_CHIEF_IP and RANK_TABLE_FILE are both"},
        {{"CM_CHIEF_IP=ten"}, "CM_CHIEF_IP: an IP address expected"},
        {{"CM_CHIEF_IP=10.0.0.1"}, "CM_WORKER_SIZE is not"},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_WORKER_SIZE=2"}, "CM_CHIEF_PORT is not"},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_WORKER_SIZE=2", "CM_CHIEF_PORT=65521"},
         "CM_CHIEF_PORT: a whole"},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_WORKER_SIZE=2", "CM_CHIEF_PORT=1"}, "CM_CHIEF_DEVICE is not"},
        {{"CM_CHIEF_IP=10.0.0.1", "CM_WORKER_SIZE=2", "CM_CHIEF_PORT=1", "CM_CHIEF_DEVICE=0"},
         "CM_WORKER_IP: this host's IP"},
        {{"CM_WORKER_SIZE=2"}, "CM_WORKER_SIZE is set, but CM_CHIEF_IP is not"},
        {{"MS_ROLE=MS_WORKER"}, "MS_WORKER_NUM is not"},
        {{"MS_ROLE=MS_WORKER", "MS_WORKER_NUM=2"}, "without MS_NODE_ID"},
        {{"MS_ROLE=MS_WORKER", "MS_WORKER_NUM=2", "MS_NODE_ID=2"},
         "MS_NODE_ID=2, but MS_WORKER_NUM=2"},
        {{"MS_ROLE=BOSS", "MS_WORKER_NUM=2"}, "MS_SCHED, MS_WORKER or MS_PSERVER expected"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=2",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
         "OMPI_COMM_WORLD_LOCAL_RANK=2, but OMPI_COMM_WORLD_LOCAL_SIZE=2"},
    };
    trm_error err;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        trm_cluster *cluster;
        CHECK_FAILS(
            trm_cluster_from_env(NULL, look_up, (void *)(uintptr_t)cases[c].env, &cluster, &err),
            TRM_INVALID, err, cases[c].message);
    }
}

static void write_table(const char *path, const char *status, const char *second_host) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"version\":\"1.0\",\"server_count\":\"2\",\"status\":\"%s\",\"server_list\":["
            "{\"server_id\":\"127.0.0.1\",\"device\":[{\"device_id\":\"4\",\"rank_id\":\"0\"}]},"
            "{\"server_id\":\"%s\",\"device\":[{\"device_id\":\"5\",\"rank_id\":\"1\"}]}]}",
            status, second_host);
    fclose(file);
}

static void tables_and_environment_agree(void **state) {
    trm_error err;
    trm_cluster *cluster;
    char path[] = "/tmp/clustertableXXXXXX", variable[64];
    close(mkstemp(path));
    sprintf(variable, "RANK_TABLE_FILE=%s", path);
    write_table(path, "completed", "node2");
    cluster = resolve_cluster(NULL, ENV(variable, "RANK_ID=1", "RANK_SIZE=2", "DEVICE_ID=5"));
    CHECK_RANK(cluster, 1, 2);
    assert_int_equal(trm_cluster_get(cluster)->device_id, 5);
    assert_string_equal(trm_cluster_get(cluster)->rendezvous, "127.0.0.1:60000");
    assert_int_equal(trm_cluster_get(cluster)->rendezvous_ports, 32);
    assert_non_null(strstr(trm_cluster_get(cluster)->source, "(RANK_TABLE_FILE)"));
    assert_string_equal(cluster->rank_hosts[1], "node2");
    uint8_t a[32], b[32];
    trmi_cluster_digest(cluster, a);
    trm_cluster_destroy(cluster);
    /* mpirun gives the rank where the table alone does not */
    cluster =
        resolve_cluster(NULL, ENV(variable, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"));
    CHECK_RANK(cluster, 0, 2);
    assert_int_equal(trm_cluster_get(cluster)->device_id, 4);
    trmi_cluster_digest(cluster, b);
    assert_memory_equal(a, b, 32);
    trm_cluster_destroy(cluster);

    static const struct {
        const char *one, *two, *message;
    } cases[] = {
        {"A=", "B=", "no variable gives this process's rank; set RANK_ID (0 to 1)"},
        {"RANK_ID=2", "B=", "RANK_ID=2, but the rank table has 2 ranks"},
        {"RANK_ID=1", "RANK_SIZE=8", "RANK_SIZE=8, but the rank table has 2 ranks"},
        {"RANK_ID=1", "DEVICE_ID=1", "DEVICE_ID=1, but rank 1 has device_id 5 in the rank table"},
        {"RANK_ID=one", "B=", "RANK_ID: a whole number"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_FAILS(trm_cluster_from_env(NULL, look_up, ENV(variable, cases[c].one, cases[c].two),
                                         &cluster, &err),
                    TRM_INVALID, err, cases[c].message);
    }
    CHECK_FAILS(
        trm_cluster_from_env(NULL, look_up,
                             ENV(variable, "RANK_ID=1", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=h"),
                             &cluster, &err),
        TRM_INVALID, err, "rank 1 of 2, but PyTorchJob");
    write_table(path, "completed", "203.0.113.7");
    CHECK_FAILS(trm_cluster_from_env(NULL, look_up, ENV(variable, "RANK_ID=1"), &cluster, &err),
                TRM_INVALID, err,
                "203.0.113.7 in the rank table, but this host has no such address");
    trm_cluster_flags any = {.any_address = true};
    cluster = resolve_cluster(&any, ENV(variable, "RANK_ID=1"));
    trm_cluster_destroy(cluster);
    write_table(path, "initializing", "node2");
    trm_cluster_flags no_wait = {.table_wait_seconds = -1};
    CHECK_FAILS(trm_cluster_from_env(&no_wait, look_up, ENV(variable, "RANK_ID=1"), &cluster, &err),
                TRM_TIMEOUT, err, "still \"initializing\"");
    unlink(path);
}

static void token_files_are_private(void **state) {
    trm_error err;
    uint8_t token[32], again[32];
    char dir[] = "/tmp/tokenXXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    sprintf(path, "%s/token", dir);
    CHECK_OK(trmi_token_create(path, &err), err);
    CHECK_OK(trm_token_read(path, token, &err), err);
    CHECK_FAILS(trmi_token_create(path, &err), TRM_IO, err, "cannot be made");
    CHECK_OK(trm_token_read(path, again, &err), err);
    assert_memory_equal(token, again, 32);
    chmod(path, 0644);
    CHECK_FAILS(trm_token_read(path, token, &err), TRM_INVALID, err, "chmod 600");
    chmod(path, 0600);
    assert_int_equal(truncate(path, 31), 0);
    CHECK_FAILS(trm_token_read(path, token, &err), TRM_INVALID, err,
                "exactly 32 bytes expected, found 31");
    CHECK_FAILS(trm_token_read(dir, token, &err), TRM_INVALID, err, "a regular file expected");
    unlink(path);
    CHECK_FAILS(trm_token_read(path, token, &err), TRM_INVALID, err, "cannot be read");
    rmdir(dir);
}

static void *share_token(void *context) {
    trm_error err;
    uint8_t *token = context; /* 32 bytes, then the path */
    CHECK_OK(trm_token_share((const char *)token + 32, token, &err), err);
    return NULL;
}

static void one_token_is_shared_whoever_comes_first(void **state) {
    enum { MANY = 8 };
    static struct {
        uint8_t token[32];
        char path[64];
    } all[MANY];
    pthread_t threads[MANY];
    char dir[] = "/tmp/tokenXXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < MANY; i++) {
        sprintf(all[i].path, "%s/job.token", dir);
        assert_int_equal(pthread_create(&threads[i], NULL, share_token, &all[i]), 0);
    }
    for (int i = 0; i < MANY; i++) {
        pthread_join(threads[i], NULL);
        assert_memory_equal(all[i].token, all[0].token, 32);
    }
    unlink(all[0].path);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left */
}

/* A Kubernetes Secret with fsGroup: root's file, mode 0440, read by a user of the group. */
static void secrets_of_kubernetes_are_read(void **state) {
    trm_error err;
    uint8_t token[32];
    char path[] = "/tmp/k8stokenXXXXXX";
    if (geteuid() != 0) {
        print_message("skipped: needs root\n");
        skip();
    }
    int fd = mkstemp(path), status;
    assert_int_equal(write(fd, "0123456789abcdef0123456789abcdef", 32), 32);
    assert_int_equal(fchown(fd, 0, 65534), 0);
    for (int mode = 0; mode < 2; mode++) {
        fchmod(fd, mode ? 0444 : 0440);
        pid_t pid = fork();
        if (pid == 0) {
            if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0) {
                _exit(9);
            }
            _exit(trm_token_read(path, token, &err) == TRM_OK ? 1 : 2);
        }
        waitpid(pid, &status, 0);
        assert_int_equal(WEXITSTATUS(status), mode ? 2 : 1);
    }
    CHECK_FAILS(trm_token_read(path, token, &err), TRM_INVALID, err, "mode 0444");
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_a_single_process),
        cmocka_unit_test(both_dialects_are_read),
        cmocka_unit_test(sparse_worker_maps_are_read),
        cmocka_unit_test(who_is_reached_from_other_hosts),
        cmocka_unit_test(guide_000_flags_are_read),
        cmocka_unit_test(every_bad_tf_config_has_its_message),
        cmocka_unit_test(bad_flags_have_their_message),
        cmocka_unit_test(launchers_are_read),
        cmocka_unit_test(workers_of_msrun_need_no_number),
        cmocka_unit_test(hccl_variables_are_read),
        cmocka_unit_test(ranks_meet_by_the_tables_content),
        cmocka_unit_test(schedulers_are_no_ranks),
        cmocka_unit_test(bad_environments_name_both_sides),
        cmocka_unit_test(tables_and_environment_agree),
        cmocka_unit_test(token_files_are_private),
        cmocka_unit_test(one_token_is_shared_whoever_comes_first),
        cmocka_unit_test(secrets_of_kubernetes_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
