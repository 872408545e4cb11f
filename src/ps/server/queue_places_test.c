/* SPDX-License-Identifier: Apache-2.0 */
/* Requests have their places in the queues of all shards from the moment they are made: where the
 * queue of one shard cannot grow, no shard gets the request, and a dispatch needs no memory. */
#include "servers.h"

#include "base/memory.h"
#include "ps/server/server.h"

#include <stdatomic.h>
#include <unistd.h>

enum { SHARDS = 2, REQUESTS = 3 * TRMI_QUEUE_PLACES, WAIT_MILLISECONDS = 60000 };

static trm_ps_server *server;
static trmi_request *requests[REQUESTS];
static int64_t seen[SHARDS]; /* requests that a shard has run */
static _Atomic int64_t out_of_order, failed, finished;
static _Atomic bool goes_on;

/* Stands still until the test has dispatched all requests, and then compares their order. */
static void look_at_order(trmi_shard_thread *runner, trmi_request *r) {
    while (!atomic_load(&goes_on)) {
        usleep(1000);
    }
    int64_t place = seen[runner->shard->number]++;
    atomic_fetch_add(&out_of_order, place >= REQUESTS || requests[place] != r);
}

static void count_finished(trmi_request *r) {
    atomic_fetch_add(&failed, r->err.status != TRM_OK);
    trmi_request_forget(r);
    atomic_fetch_add(&finished, 1);
}

static trmi_request *create_request(int64_t failing_allocation) {
    trmi_alloc_fail_after(failing_allocation);
    trmi_request *r = trmi_request_create(server);
    trmi_alloc_fail_after(0);
    return r;
}

static void a_request_is_in_all_queues_or_none(void **state) {
    (void)state;
    server = server_start((trm_ps_server_options){.shards = SHARDS, .workers = 1});
    for (int64_t i = 0; i < REQUESTS; i++) {
        /* at the first request for which the queues must grow: no memory for the request, for the
         * queue of shard 0, and for that of shard 1 */
        for (int64_t k = 1; i == TRMI_QUEUE_PLACES - 1 && k <= 1 + SHARDS; k++) {
            assert_null(create_request(k));
            assert_int_equal(atomic_load(&server->requests), i);
        }
        requests[i] = create_request(0);
        assert_non_null(requests[i]);
        requests[i]->run = look_at_order;
        requests[i]->finish = count_finished;
    }
    trmi_alloc_fail_after(1);
    for (int64_t i = 0; i < REQUESTS; i++) {
        trmi_request_dispatch(server, requests[i]);
    }
    trmi_alloc_fail_after(0);
    atomic_store(&goes_on, true);
    for (int i = 0; i < WAIT_MILLISECONDS && atomic_load(&finished) < REQUESTS; i++) {
        usleep(1000);
    }
    assert_int_equal(atomic_load(&finished), REQUESTS);
    assert_int_equal(atomic_load(&failed), 0);
    assert_int_equal(atomic_load(&out_of_order), 0);
    assert_int_equal(atomic_load(&server->requests), 0);
    trm_ps_server_stop(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_request_is_in_all_queues_or_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
