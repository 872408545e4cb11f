/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic jobs of real processes: ranks are killed or stopped inside of collectives, or leave
 * between them, and come back; the others go on in the next epoch. */
#include "check.h"

#include "trireme/dist.h"

#include "base/error.h"
#include "base/os.h"
#include "comm/rendezvous/elastic.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 8, FLOATS = 30000 };

/* The memory that the processes share with the test. */
typedef struct board {
    volatile int64_t rounds[RANKS_MAX]; /* that a rank has completed */
    volatile int32_t epoch[RANKS_MAX], ranks[RANKS_MAX], wrong[RANKS_MAX];
    volatile int32_t stop, leave[RANKS_MAX], stays[RANKS_MAX], came_later[RANKS_MAX];
    volatile int32_t dies[RANKS_MAX]; /* when the next epoch is decided, before its ranks meet */
    /* at the next change: rank 1 asks for ballot 0, which is over; the connection of a rank breaks
     * before the next epoch's list comes */
    volatile int32_t late_ballot, loses_list[RANKS_MAX];
    char lost[RANKS_MAX][96], left[RANKS_MAX][96], joined[RANKS_MAX][96];
    char message[RANKS_MAX][256];
} board;

static board *seen;
static char directory[] = "/tmp/elasticXXXXXX";
static char place[128]; /* where the job meets */

typedef struct elastic_case {
    int32_t ranks, least, most;
    const char *engine; /* NULL: shared memory */
    bool hosts;         /* each rank has a host name of its own: no death can be proven */
    double stall_seconds, decision_seconds; /* 0: 30, 20 */
    int32_t port; /* meets at a port of this host; 0: at a unix socket or (file) a file */
    bool file;
    int32_t absent;         /* the last ones do not come */
    double timeout_seconds; /* of the meeting; 0: 20 */
} elastic_case;

/* A port that was free a moment ago. */
static int32_t free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* One round: the sum of the ranks' numbers plus one. */
static trm_status add_round(trm_elastic *job, int32_t number, float *values, trm_error *err) {
    trm_membership m;
    trm_elastic_get_membership(job, &m);
    for (int32_t i = 0; i < FLOATS; i++) {
        values[i] = (float)number;
    }
    trm_status status = trm_comm_allreduce(trm_elastic_comm(job), values, FLOATS, TRM_FLOAT32,
                                           TRM_REDUCTION_SUM, err);
    for (int32_t i = 1; status == TRM_OK && i < FLOATS; i++) {
        seen->wrong[number] += values[i] != values[0];
    }
    return status;
}

/* Sends JOIN for ballot 0 to rank 0's door, and receives a frame. */
static trm_status ask_rank_0(trm_elastic *job, trmi_link *link, trmi_frame *frame, trm_error *err) {
    TRMI_TRY(trmi_door_call(job, &job->now.list[0], link, err));
    pthread_mutex_lock(&job->lock);
    (void)trmi_vote_promise(&job->vote, 0);
    trm_status status = trmi_door_send_join(job, link, 0, &job->now, err);
    pthread_mutex_unlock(&job->lock);
    bool closed = false; /* what came before the end of the connection counts */
    while (status == TRM_OK && (status = trmi_link_next(link, frame, err)) == TRM_END && !closed) {
        poll(&(struct pollfd){.fd = link->fd, .events = POLLIN}, 1, 100);
        closed = trmi_link_fill(link) < 0;
        status = TRM_OK;
    }
    return status;
}

/* Rank 0 has gone to ballot 1, and the other one asks it for ballot 0. Returns CANCELLED where it
 * is told. */
static trm_status ask_for_late_ballot(trm_elastic *job, int32_t number, trm_error *err) {
    if (number == 0) {
        pthread_mutex_lock(&job->lock);
        (void)trmi_vote_promise(&job->vote, 1);
        pthread_mutex_unlock(&job->lock);
        seen->rounds[2] = 1;
        while (seen->stop == 0) {
            poll(NULL, 0, 1);
        }
        return TRM_CANCELLED;
    }
    trmi_link link;
    trmi_frame frame;
    while (seen->rounds[2] == 0) {
        poll(NULL, 0, 1);
    }
    trm_status status = ask_rank_0(job, &link, &frame, err);
    trmi_link_close(&link);
    seen->stop = 1;
    return status == TRM_OK && frame.type == TRMI_FRAME_OVER ? TRM_CANCELLED : TRM_PEER;
}

/* Votes for the list of the coordinator as a member does, but loses the connection before COMMIT
 * comes. Sends no request: returns when another process has brought the list. */
static trm_status lose_list(trm_elastic *job, trm_error *err) {
    trmi_link link;
    trmi_frame frame;
    trmi_members list = {.ballot = -1};
    size_t used;
    trm_status status = ask_rank_0(job, &link, &frame, err);
    status = status == TRM_OK ? trmi_members_decode(frame.payload, frame.bytes, &list, &used, err)
                              : status;
    if (status == TRM_OK) {
        pthread_mutex_lock(&job->lock);
        status = trmi_vote_accept(&job->vote, &list, err);
        pthread_mutex_unlock(&job->lock);
        trmi_link_put(&link, TRMI_FRAME_ACK, list.epoch, NULL, 0);
        trmi_link_flush(&link);
    }
    trmi_link_close(&link);
    trmi_members_free(&list);
    for (int64_t epoch = 1; status == TRM_OK && epoch == 1; poll(NULL, 0, 1)) {
        pthread_mutex_lock(&job->lock);
        epoch = job->now.epoch;
        pthread_mutex_unlock(&job->lock);
    }
    return status;
}

/* Runs rank `number` until the test says stop, which rank 0 of an epoch passes on. */
static int run_rank(const elastic_case *c, int32_t number) {
    static char host[16];
    trm_error err;
    trm_cluster *cluster;
    trm_elastic *job;
    snprintf(host, sizeof host, "host%d", number);
    const trm_cluster_flags flags = {
        .rank = number % c->ranks, .size = c->ranks, .rendezvous = place};
    trm_elastic_options options = {
        .least = c->least,
        .most = c->most,
        .decision_seconds = c->decision_seconds > 0 ? c->decision_seconds : 20,
        .join = {.timeout_seconds = c->timeout_seconds > 0 ? c->timeout_seconds : 20,
                 .heartbeat_seconds = 0.1,
                 .stall_seconds = c->stall_seconds > 0 ? c->stall_seconds : 30,
                 .host_name = c->hosts ? host : NULL,
                 .insecure = true},
        .comm = {.engine = c->engine}};
    float *values = malloc(FLOATS * sizeof *values);
    trm_status status = trm_cluster_create(&flags, &cluster, &err);
    status = status == TRM_OK ? trm_elastic_create(cluster, &options, &job, &err) : status;
    if (status == TRM_OK) {
        trm_membership m;
        trm_elastic_get_membership(job, &m);
        seen->came_later[number] = m.epoch == 0;
        status = m.epoch == 0 ? trm_elastic_recover(job, NULL, &err) : TRM_OK;
    }
    while (status == TRM_OK) {
        trm_membership m;
        trm_elastic_get_membership(job, &m);
        seen->epoch[number] = (int32_t)m.epoch;
        seen->ranks[number] = m.ranks;
        memcpy(seen->lost[number], m.lost, sizeof m.lost);
        memcpy(seen->left[number], m.left, sizeof m.left);
        memcpy(seen->joined[number], m.joined, sizeof m.joined);
        seen->stays[number] = m.stays;
        if (seen->leave[number] != 0) {
            seen->leave[number] = 0;
            trm_elastic_request_leave(job);
        }
        float words[2] = {m.rank == 0 ? (float)seen->stop : 0, trm_elastic_wants_change(job)};
        status = trm_comm_allreduce(trm_elastic_comm(job), words, 2, TRM_FLOAT32, TRM_REDUCTION_SUM,
                                    &err);
        if (status == TRM_OK && words[0] > 0) {
            break;
        }
        bool change = status == TRM_OK && words[1] > 0;
        status = status == TRM_OK ? add_round(job, number, values, &err) : status;
        seen->rounds[number] += status == TRM_OK;
        if (change && seen->dies[number] != 0 && trmi_elastic_decide(job, 0, &err) == TRM_OK) {
            raise(SIGKILL);
        }
        if (change && seen->loses_list[number] != 0) {
            status = lose_list(job, &err);
        }
        if (change && seen->late_ballot != 0) {
            return ask_for_late_ballot(job, number, &err) == TRM_CANCELLED ? 0 : 10;
        }
        if (trm_elastic_can_recover(status) || (status == TRM_OK && change)) {
            status = trm_elastic_recover(job, status != TRM_OK ? &err : NULL, &err);
        }
    }
    if (status == TRM_OK || status == TRM_END) {
        trm_elastic_destroy(job);
    } else {
        snprintf(seen->message[number], sizeof seen->message[number], "%s", err.message);
    }
    return status == TRM_OK ? 0 : status == TRM_END ? 11 : 10;
}

/* Starts the process with this rank, at the beginning or later. */
static pid_t start_rank(const elastic_case *c, int32_t rank) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        _exit(run_rank(c, rank));
    }
    return pid;
}

/* Starts all ranks at a place of their own. */
static void start_ranks(const elastic_case *c, pid_t pids[RANKS_MAX]) {
    static int count;
    memset(seen, 0, sizeof *seen);
    if (c->port > 0) {
        snprintf(place, sizeof place, "127.0.0.1:%d", c->port);
    } else {
        snprintf(place, sizeof place, "%s:%s/%d", c->file ? "file" : "unix", directory, ++count);
    }
    for (int32_t r = 0; r < c->ranks; r++) {
        pids[r] = r < c->ranks - c->absent ? start_rank(c, r) : -1;
    }
}

/* Waits until the living ranks have done rounds in an epoch of `ranks` ranks. */
static double wait_for_rounds(const bool *alive, int32_t all, int32_t ranks) {
    double begin = trmi_os_now();
    int64_t before[RANKS_MAX];
    for (int32_t r = 0; r < all; r++) {
        before[r] = seen->rounds[r];
    }
    for (bool done = false; !done;) {
        done = true;
        for (int32_t r = 0; r < all; r++) {
            done = done && (!alive[r] || (seen->ranks[r] == ranks && seen->rounds[r] > before[r]));
        }
        if (trmi_os_now() - begin > 30) {
            for (int32_t r = 0; r < all; r++) {
                print_message("rank %d: epoch %d of %d ranks, %lld rounds, '%s'\n", r,
                              seen->epoch[r], seen->ranks[r], (long long)seen->rounds[r],
                              seen->message[r]);
            }
            fail_msg("%d ranks did not go on", ranks);
        }
        poll(NULL, 0, 1);
    }
    return trmi_os_now() - begin;
}

/* Starts all ranks of a job, none of them absent, and waits until all have done rounds together. */
static void begin_job(const elastic_case *c, bool alive[RANKS_MAX], pid_t pids[RANKS_MAX]) {
    start_ranks(c, pids);
    for (int32_t r = 0; r < RANKS_MAX; r++) {
        alive[r] = r < c->ranks;
    }
    wait_for_rounds(alive, c->ranks, c->ranks);
}

static void await_ranks(const bool *alive, const pid_t *pids, int32_t all) {
    seen->stop = 1;
    for (int32_t r = 0; r < all; r++) {
        int status = 0;
        assert_true(pids[r] < 0 || waitpid(pids[r], &status, 0) == pids[r]);
        if (alive[r] && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
            fail_msg("rank %d: status %x: %s", r, status, seen->message[r]);
        }
        assert_int_equal(seen->wrong[r], 0);
    }
}

/* Kills the ranks of `order` one after the other. */
static void kill_in_order(const elastic_case *c, const int32_t *order, int32_t kills) {
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(c, alive, pids);
    for (int32_t k = 0; k < kills; k++) {
        poll(NULL, 0, 3 * k);
        alive[order[k]] = false;
        kill(pids[order[k]], SIGKILL);
        wait_for_rounds(alive, c->ranks, c->ranks - k - 1);
    }
    await_ranks(alive, pids, c->ranks);
}

static void survivors_go_on(void **state) {
    kill_in_order(&(elastic_case){.ranks = 4}, (const int32_t[]){2, 0, 3}, 3);
    (void)state;
}

static void coordinators_die(void **state) {
    kill_in_order(&(elastic_case){.ranks = 5}, (const int32_t[]){0, 1, 2, 3}, 4);
    (void)state;
}

static void messages_are_cut_off(void **state) {
    kill_in_order(&(elastic_case){.ranks = 4, .engine = "tcp"}, (const int32_t[]){1, 0}, 2);
    (void)state;
}

/* Without a proof of death more than half go on. */
static void a_majority_of_hosts_goes_on(void **state) {
    kill_in_order(&(elastic_case){.ranks = 5, .hosts = true, .engine = "tcp"},
                  (const int32_t[]){0, 3}, 2);
    (void)state;
}

static void two_die_at_once(void **state) {
    const elastic_case c = {.ranks = 5};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    alive[0] = alive[1] = false;
    kill(pids[0], SIGKILL);
    kill(pids[1], SIGKILL);
    wait_for_rounds(alive, 5, 3);
    await_ranks(alive, pids, 5);
    (void)state;
}

/* A stopped rank is ended, so that it cannot write into memory of the others when it goes on. */
static void a_stopped_rank_is_given_up(void **state) {
    const elastic_case c = {.ranks = 3, .stall_seconds = 1};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    alive[1] = false;
    kill(pids[1], SIGSTOP);
    wait_for_rounds(alive, 3, 2);
    assert_string_equal(seen->lost[0], "1");
    kill(pids[1], SIGCONT);
    await_ranks(alive, pids, 3);
    (void)state;
}

/* The failure names one of two ranks that stop at once. The other one is given up after the
 * deadline of heartbeats, too, and not after that of decisions. */
static void stop_two(const elastic_case *c, int32_t first, int32_t second) {
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(c, alive, pids);
    alive[first] = alive[second] = false;
    kill(pids[first], SIGSTOP);
    kill(pids[second], SIGSTOP);
    wait_for_rounds(alive, c->ranks, c->ranks - 2);
    kill(pids[first], SIGCONT);
    kill(pids[second], SIGCONT);
    await_ranks(alive, pids, c->ranks);
}

static void two_stopped_ranks_are_given_up(void **state) {
    stop_two(&(elastic_case){.ranks = 3, .stall_seconds = 1, .decision_seconds = 50}, 0, 1);
    stop_two(&(elastic_case){.ranks = 3, .stall_seconds = 1, .decision_seconds = 50}, 1, 2);
    (void)state;
}

/* On other hosts only their doors tell. */
static void two_silent_hosts_are_given_up(void **state) {
    stop_two(
        &(elastic_case){
            .ranks = 5, .hosts = true, .engine = "tcp", .stall_seconds = 1, .decision_seconds = 50},
        0, 3);
    (void)state;
}

/* Rank 0, which coordinates, leaves with another one; both end in order, and no round fails. */
static void ranks_leave(void **state) {
    const elastic_case c = {.ranks = 4, .least = 2};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    for (int32_t r = 0; r < 2; r++) {
        int status;
        alive[r] = false;
        seen->leave[r] = 1;
        wait_for_rounds(alive, 4, 3 - r);
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 11);
        assert_string_equal(seen->left[3], r == 0 ? "0" : "1");
        assert_string_equal(seen->lost[3], "");
    }
    /* Below the least no rank leaves. The one that asked is told, and the ranks go on as they
     * are. */
    seen->leave[2] = 1;
    double begin = trmi_os_now();
    while (seen->stays[2] == 0 && trmi_os_now() - begin < 30) {
        poll(NULL, 0, 1);
    }
    assert_int_equal(seen->stays[2], 1);
    wait_for_rounds(alive, 4, 2);
    int32_t epoch = seen->epoch[3];
    for (int32_t i = 0; i < 10; i++) {
        wait_for_rounds(alive, 4, 2);
    }
    assert_int_equal(seen->epoch[3], epoch);
    assert_int_equal(seen->stays[3], 0);
    assert_string_equal(seen->left[3], "");
    assert_int_equal(seen->ranks[3], 2);
    pids[0] = pids[1] = -1;
    await_ranks(alive, pids, 4);
    (void)state;
}

/* The rank that coordinates leaves, and the other one has voted for the list but has not got it:
 * the rank that leaves brings it. */
static void a_rank_that_leaves_brings_the_list(void **state) {
    const elastic_case c = {.ranks = 2, .hosts = true, .engine = "tcp"};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    int status;
    begin_job(&c, alive, pids);
    seen->loses_list[1] = 1;
    seen->leave[0] = 1;
    alive[0] = false;
    wait_for_rounds(alive, 2, 1);
    assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 11);
    pids[0] = -1;
    await_ranks(alive, pids, 2);
    (void)state;
}

/* A process that has gone to a later ballot does not let members wait for its own one. */
static void a_late_ballot_is_refused(void **state) {
    const elastic_case c = {.ranks = 2, .hosts = true, .engine = "tcp"};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    seen->late_ballot = 1;
    seen->leave[1] = 1;
    for (int32_t r = 0; r < 2; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    (void)state;
}

/* Ranks die and are started again with the command and environment of before: they join the job.
 * Rank 0 is one of them, which held the place. */
static void replace_ranks(const elastic_case *c) {
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(c, alive, pids);
    static const int32_t order[] = {1, 0, 2, 0};
    for (int32_t k = 0; k < 4; k++) {
        int32_t rank = order[k];
        kill(pids[rank], SIGKILL);
        assert_int_equal(waitpid(pids[rank], NULL, 0), pids[rank]);
        if (k % 2 == 0) { /* else it may be back before the others have decided */
            alive[rank] = false;
            wait_for_rounds(alive, 3, 2);
            alive[rank] = true;
        }
        seen->came_later[rank] = 0;
        pids[rank] = start_rank(c, rank);
        wait_for_rounds(alive, 3, 3);
        assert_int_equal(seen->came_later[rank], 1);
    }
    await_ranks(alive, pids, 3);
}

static void killed_ranks_come_back(void **state) {
    replace_ranks(&(elastic_case){.ranks = 3, .most = 3});
    replace_ranks(&(elastic_case){.ranks = 3, .most = 3, .file = true});
    replace_ranks(&(elastic_case){.ranks = 3, .most = 3, .engine = "tcp", .port = free_port()});
    (void)state;
}

/* Rank 0 comes back while no process listens: it takes itself for the rank 0 of a new job, until a
 * member of the running job tells it. */
static void a_false_start_is_told(void **state) {
    const elastic_case c = {.ranks = 3};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    for (int32_t r = 0; r < 3; r++) {
        kill(pids[r], SIGSTOP); /* none of them can open the place */
    }
    kill(pids[0], SIGKILL);
    assert_int_equal(waitpid(pids[0], NULL, 0), pids[0]);
    pids[0] = start_rank(&c, 0);
    poll(NULL, 0, 300);
    kill(pids[1], SIGCONT);
    kill(pids[2], SIGCONT);
    wait_for_rounds(alive, 3, 3);
    assert_int_equal(seen->came_later[0], 1);
    await_ranks(alive, pids, 3);
    (void)state;
}

/* A process joins where there is room; at `most` ranks it waits until one leaves. */
static void newcomers_wait_for_room(void **state) {
    const elastic_case c = {.ranks = 3, .most = 4};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    alive[3] = true; /* joins later */
    pids[3] = start_rank(&(elastic_case){.ranks = 5, .most = 4}, 3);
    wait_for_rounds(alive, 4, 4);
    assert_string_equal(seen->joined[0], "3");
    pids[4] = start_rank(&(elastic_case){.ranks = 5, .most = 4}, 4);
    poll(NULL, 0, 300);
    wait_for_rounds(alive, 4, 4);
    assert_int_equal(seen->rounds[4], 0);
    seen->leave[1] = 1;
    alive[1] = false;
    alive[4] = true;
    wait_for_rounds(alive, 5, 4);
    assert_string_equal(seen->left[0], "1");
    assert_string_equal(seen->joined[0], "4");
    await_ranks(alive, pids, 5);
    (void)state;
}

/* A process has waited at a door for longer than a job without doors is looked for; the rank of
 * that door dies. */
static void a_newcomer_outlasts_the_rank_of_its_door(void **state) {
    const elastic_case c = {.ranks = 2, .most = 2};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    pids[2] = start_rank(&(elastic_case){.ranks = 3, .most = 2}, 2);
    poll(NULL, 0, 3500);
    kill(pids[0], SIGKILL);
    alive[0] = false;
    alive[2] = true;
    wait_for_rounds(alive, 3, 2);
    assert_string_equal(seen->joined[1], "2");
    await_ranks(alive, pids, 3);
    (void)state;
}

/* A member dies when the list with a newcomer is decided and its ranks have not met: the newcomer
 * takes part in the next decision. The others would wait for it until they end it. */
static void a_newcomers_first_meeting_fails(void **state) {
    const elastic_case c = {.ranks = 3, .most = 4};
    for (int32_t dies = 0; dies < 3; dies++) {
        bool alive[RANKS_MAX];
        pid_t pids[RANKS_MAX];
        begin_job(&c, alive, pids);
        alive[3] = true; /* joins later */
        seen->dies[dies] = 1;
        pids[3] = start_rank(&(elastic_case){.ranks = 4, .most = 4}, 3);
        assert_int_equal(waitpid(pids[dies], NULL, 0), pids[dies]);
        pids[dies] = -1;
        alive[dies] = false;
        wait_for_rounds(alive, 4, 3);
        assert_int_equal(seen->epoch[3], 3);
        await_ranks(alive, pids, 4);
    }
    (void)state;
}

/* A rank never comes to the first meeting: the others begin without it after a quarter of the
 * limit, and it joins when it comes. */
static void a_rank_that_does_not_come_is_left_out(void **state) {
    const elastic_case c = {.ranks = 4,
                            .most = 4,
                            .hosts = true,
                            .engine = "tcp",
                            .port = free_port(),
                            .absent = 1,
                            .timeout_seconds = 8};
    bool alive[RANKS_MAX] = {true, true, true, false};
    pid_t pids[RANKS_MAX];
    const double begin = trmi_os_now();
    start_ranks(&c, pids);
    wait_for_rounds(alive, 4, 3);
    assert_true(trmi_os_now() - begin > 2);
    alive[3] = true;
    pids[3] = start_rank(&c, 3);
    wait_for_rounds(alive, 4, 4);
    assert_int_equal(seen->came_later[3], 1);
    await_ranks(alive, pids, 4);
    (void)state;
}

/* Four processes come at once, each as the only rank of a job: one begins it, the others join it.
 * Where deaths can be proven, one is left alone, and the job goes on with it and with one that
 * comes. */
static void one_rank_grows(void **state) {
    const elastic_case cases[] = {
        {.ranks = 1, .most = 4},
        {.ranks = 1, .most = 4, .file = true, .engine = "tcp"},
        {.ranks = 1, .most = 4, .hosts = true, .engine = "tcp", .port = free_port()}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool alive[RANKS_MAX] = {true, true, true, true, false};
        pid_t pids[RANKS_MAX];
        int32_t came = 0, first = 0;
        start_ranks(&cases[i], pids);
        for (int32_t r = 1; r < 4; r++) {
            pids[r] = start_rank(&cases[i], r);
        }
        pids[4] = -1;
        wait_for_rounds(alive, 4, 4);
        for (int32_t r = 0; r < 4; r++) {
            came += seen->came_later[r];
            first = seen->came_later[r] == 0 ? r : first;
        }
        assert_int_equal(came, 3);
        if (!cases[i].hosts) { /* all but one that has come */
            for (int32_t r = 0; r < 4; r++) {
                alive[r] = r == (first + 1) % 4;
                if (!alive[r]) {
                    kill(pids[r], SIGKILL);
                }
            }
            wait_for_rounds(alive, 4, 1);
            pids[4] = start_rank(&cases[i], 4);
            alive[4] = true;
            wait_for_rounds(alive, 5, 2);
            assert_int_equal(seen->came_later[4], 1);
        }
        await_ranks(alive, pids, 5);
    }
    (void)state;
}

/* A second process with the rank of another one comes while the first ranks meet: it joins when the
 * job runs. */
static void start_second_process(int32_t rank) {
    const elastic_case c = {
        .ranks = 3, .most = 4, .hosts = true, .engine = "tcp", .port = free_port(), .absent = 1};
    bool alive[RANKS_MAX] = {true, true, true, false, false, false, false};
    const int32_t number = c.ranks + rank; /* among the processes of this test */
    pid_t pids[RANKS_MAX];
    start_ranks(&c, pids);
    for (int32_t i = c.ranks; i <= number; i++) {
        pids[i] = -1;
    }
    pids[number] = start_rank(&c, number);
    alive[number] = true;
    poll(NULL, 0, 500);
    pids[2] = start_rank(&c, 2);
    wait_for_rounds(alive, number + 1, 4);
    await_ranks(alive, pids, number + 1);
}

static void a_second_process_with_a_rank_joins_later(void **state) {
    start_second_process(1);
    (void)state;
}

static void a_second_process_with_rank_0_joins_later(void **state) {
    start_second_process(0);
    (void)state;
}

/* Half of the ranks do not begin: the other half may. */
static void half_of_the_ranks_does_not_begin(void **state) {
    const elastic_case c = {.ranks = 4,
                            .hosts = true,
                            .engine = "tcp",
                            .port = free_port(),
                            .absent = 2,
                            .timeout_seconds = 3};
    pid_t pids[RANKS_MAX];
    start_ranks(&c, pids);
    for (int32_t r = 0; r < 2; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 10);
        assert_non_null(strstr(seen->message[r], "ranks 2, 3 of 4; the elastic job begins with 3"));
    }
    (void)state;
}

/* With fewer ranks than `least` all end with the reason. */
static void too_few_are_left(void **state) {
    const elastic_case c = {.ranks = 3, .least = 3};
    bool alive[RANKS_MAX];
    pid_t pids[RANKS_MAX];
    begin_job(&c, alive, pids);
    kill(pids[0], SIGKILL);
    for (int32_t r = 0; r < 3; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (r > 0) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 10);
            assert_non_null(strstr(seen->message[r], "2 ranks are left, the job needs 3"));
        }
    }
    (void)state;
}

/* Limits that no number of ranks fits are refused before anything is opened. */
static void limits_that_exclude_each_other(void **state) {
    trm_error err;
    trm_cluster *cluster;
    trm_elastic *job = NULL;
    const trm_cluster_flags flags = {.rank = 0, .size = 1};
    const trm_elastic_options options = {.least = 3, .most = 2};
    assert_int_equal(trm_cluster_create(&flags, &cluster, &err), TRM_OK);
    assert_int_equal(trm_elastic_create(cluster, &options, &job, &err), TRM_INVALID);
    assert_non_null(strstr(err.message, "least 3, most 2"));
    assert_null(job);
    trm_cluster_destroy(cluster);
    (void)state;
}

static int make_board(void **state) {
    (void)state;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED || mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state) {
    (void)state;
    return trmi_os_remove_tree(NULL, directory, NULL) == TRM_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_go_on),
                                       cmocka_unit_test(coordinators_die),
                                       cmocka_unit_test(messages_are_cut_off),
                                       cmocka_unit_test(a_majority_of_hosts_goes_on),
                                       cmocka_unit_test(two_die_at_once),
                                       cmocka_unit_test(a_stopped_rank_is_given_up),
                                       cmocka_unit_test(two_stopped_ranks_are_given_up),
                                       cmocka_unit_test(two_silent_hosts_are_given_up),
                                       cmocka_unit_test(ranks_leave),
                                       cmocka_unit_test(a_rank_that_leaves_brings_the_list),
                                       cmocka_unit_test(a_late_ballot_is_refused),
                                       cmocka_unit_test(killed_ranks_come_back),
                                       cmocka_unit_test(a_false_start_is_told),
                                       cmocka_unit_test(newcomers_wait_for_room),
                                       cmocka_unit_test(a_newcomer_outlasts_the_rank_of_its_door),
                                       cmocka_unit_test(a_newcomers_first_meeting_fails),
                                       cmocka_unit_test(a_rank_that_does_not_come_is_left_out),
                                       cmocka_unit_test(one_rank_grows),
                                       cmocka_unit_test(a_second_process_with_a_rank_joins_later),
                                       cmocka_unit_test(a_second_process_with_rank_0_joins_later),
                                       cmocka_unit_test(half_of_the_ranks_does_not_begin),
                                       cmocka_unit_test(too_few_are_left),
                                       cmocka_unit_test(limits_that_exclude_each_other)};
    return cmocka_run_group_tests(tests, make_board, remove_directory);
}
