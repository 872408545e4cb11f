/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of leases: each sample is used once an epoch although workers come and go, also after
 * restarts. once_test.c does the same with processes that are killed. */
#include "check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "ps/server/lease.h"

enum { SAMPLES = 1000, LEASE = 70, EPOCHS = 3, WORKERS = 5 };

typedef struct history {
    trmi_lease_event events[20000];
    int64_t count;
} history;

static trm_status record_event(void *context, const trmi_lease_event *event, trm_error *err) {
    history *h = context;
    h->events[h->count++] = *event;
    return TRM_OK;
}

/* Checks that each sample of each epoch is used exactly once: progress counts from the begin of a
 * grant. */
static void check_history(const trmi_lease_event *events, int64_t count, int64_t epochs) {
    static int used[EPOCHS + 1][SAMPLES];
    static struct { int64_t epoch, position; } lease[20000];
    memset(used, 0, sizeof used);
    for (int64_t i = 0; i < count; i++) {
        const trmi_lease_event *e = &events[i];
        if (e->kind == TRMI_LEASE_GRANT) {
            lease[e->id].epoch = e->epoch;
            lease[e->id].position = e->begin;
        } else if (e->kind == TRMI_LEASE_PROGRESS) {
            for (; lease[e->id].position < e->position; lease[e->id].position++) {
                used[lease[e->id].epoch][lease[e->id].position]++;
            }
        }
    }
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        for (int s = 0; s < SAMPLES; s++) {
            assert_int_equal(used[epoch][s], 1);
        }
    }
}

static void every_sample_once_although_workers_come_and_go(void **state) {
    static history h;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        trmi_lease_book *book;
        trm_error err;
        h.count = 0;
        CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
        trm_ps_lease_options o = {SAMPLES, LEASE, EPOCHS, 10, 0, 0};
        trm_ps_lease have[WORKERS] = {{0}};
        int64_t position[WORKERS] = {0};
        double now = 1;
        bool over = false;
        for (uint64_t turn = 0; turn < 100000 && !over; turn++) {
            uint32_t r[4];
            trmi_philox(seed, TRMI_STREAM_TEST, turn, r);
            uint32_t w = r[0] % WORKERS;
            now += 0.05;
            if (r[1] % 100 <
                2) { /* a worker dies: it stays silent until its lease expires, or comes back at once */
                if (r[1] % 2 == 0) {
                    CHECK_OK(trmi_lease_drop_worker(book, w, &err), err);
                }
                have[w].id = 0;
            } else if (have[w].id == 0) {
                trm_status status = trmi_lease_take(book, &o, w, now, &have[w], &err);
                position[w] = have[w].begin;
                over = status == TRM_END;
                assert_true(status == TRM_OK || status == TRM_END || status == TRM_PENDING);
            } else {
                position[w] = position[w] + 1 + r[2] % 20;
                position[w] = position[w] > have[w].end ? have[w].end : position[w];
                trm_status status =
                    trmi_lease_progress(book, have[w].id, w, position[w], now, &err);
                if (status == TRM_OK && r[3] % 4 == 0) { /* sent again */
                    CHECK_OK(trmi_lease_progress(book, have[w].id, w, position[w], now, &err), err);
                }
                assert_true(status == TRM_OK || status == TRM_CANCELLED);
                have[w].id = status != TRM_OK || position[w] == have[w].end ? 0 : have[w].id;
            }
        }
        assert_true(over);
        check_history(h.events, h.count, EPOCHS);
        /* A book that replays the events is equal. */
        trmi_lease_book *again;
        static history nothing;
        CHECK_OK(trmi_lease_book_create(record_event, &nothing, &again, &err), err);
        for (int64_t i = 0; i < h.count; i++) {
            CHECK_OK(trmi_lease_replay(again, &h.events[i], &err), err);
        }
        trm_ps_lease lease;
        assert_int_equal(trmi_lease_take(again, &o, 0, now, &lease, &err), TRM_END);
        trmi_lease_book_destroy(again);
        trmi_lease_book_destroy(book);
    }
}

/* The server starts again, and workers with leases push before any worker requests a new one: they
 * keep their leases, and lose them after the usual time of silence. */
static void leases_outlive_a_restart(void **state) {
    static history h, after;
    trmi_lease_book *before, *again;
    trm_error err;
    trm_ps_lease mine, others, third;
    const trm_ps_lease_options o = {SAMPLES, 100, 1, 10, 0, 0};
    CHECK_OK(trmi_lease_book_create(record_event, &h, &before, &err), err);
    CHECK_OK(trmi_lease_take(before, &o, 0, 1, &mine, &err), err);
    CHECK_OK(trmi_lease_take(before, &o, 1, 1, &others, &err), err);
    CHECK_OK(trmi_lease_book_create(record_event, &after, &again, &err), err);
    for (int64_t i = 0; i < h.count; i++) {
        CHECK_OK(trmi_lease_replay(again, &h.events[i], &err), err);
    }
    CHECK_OK(trmi_lease_progress(again, mine.id, 0, mine.begin + 10, 500, &err), err);
    CHECK_OK(trmi_lease_take(again, &o, 2, 501, &third, &err), err);
    assert_int_equal(third.begin, others.end);
    CHECK_OK(trmi_lease_progress(again, mine.id, 0, mine.begin + 20, 505, &err), err);
    CHECK_OK(trmi_lease_progress(again, others.id, 1, others.begin + 20, 506, &err), err);
    CHECK_OK(trmi_lease_progress(again, third.id, 2, third.begin + 20, 506, &err), err);
    CHECK_OK(trmi_lease_take(again, &o, 2, 515.5, &third, &err), err);
    assert_int_equal(third.begin, mine.begin + 20);
    CHECK_FAILS(trmi_lease_progress(again, mine.id, 0, mine.begin + 30, 515.6, &err), TRM_CANCELLED,
                err, "is over");
    CHECK_OK(trmi_lease_progress(again, others.id, 1, others.begin + 30, 515.7, &err), err);
    trmi_lease_book_destroy(before);
    trmi_lease_book_destroy(again);
}

/* A job that has used all its epochs is continued for more epochs with leases of another size; then
 * all workers request these. */
static void a_job_is_continued_for_more_epochs(void **state) {
    static history h;
    trmi_lease_book *book = NULL;
    trm_error err;
    trm_ps_lease lease;
    h.count = 0;
    for (int64_t epochs = 1; epochs <= 3; epochs++) {
        const trm_ps_lease_options o = {SAMPLES, 100 * epochs, epochs, 10, 0, 0},
                                   old = {SAMPLES, 100, epochs - 1, 10, 0, 0};
        const int64_t have = h.count;
        trm_status status;
        trmi_lease_book_destroy(book);
        CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
        for (int64_t i = 0; i < have; i++) {
            CHECK_OK(trmi_lease_replay(book, &h.events[i], &err), err);
        }
        while ((status = trmi_lease_take(book, &o, 0, 1, &lease, &err)) == TRM_OK) {
            assert_int_equal(lease.epoch, epochs - 1);
            CHECK_OK(trmi_lease_progress(book, lease.id, 0, lease.end, 1, &err), err);
        }
        assert_int_equal(status, TRM_END);
        CHECK_FAILS(trmi_lease_take(book, &old, 1, 1, &lease, &err), TRM_INVALID, err,
                    "other workers asked for");
    }
    check_history(h.events, h.count, 3);
    trmi_lease_book_destroy(book);
}

/* The servers lend exactly the requested number of batches in all. The workers share the last ones,
 * lost batches are lent again, and a continued job gets more. */
static void a_job_ends_at_its_steps(void **state) {
    enum { BATCH = 10, STEPS = 130 }; /* of 100 an epoch */
    static history h;
    trmi_lease_book *book;
    trm_error err;
    trm_ps_lease lease, last = {0};
    int64_t used = 0, leases = 0;
    trm_status status;
    CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
    trm_ps_lease_options o = {SAMPLES, 400, 0, 0, STEPS * BATCH, BATCH};
    while ((status = trmi_lease_take(book, &o, 0, 1, &lease, &err)) == TRM_OK) {
        assert_int_equal((lease.end - lease.begin) % BATCH, 0);
        assert_true(used > 0 || lease.end - lease.begin < 400);
        if (++leases == 5) {
            CHECK_OK(trmi_lease_drop_worker(book, 0, &err), err);
            continue;
        }
        used += lease.end - lease.begin;
        CHECK_OK(trmi_lease_progress(book, lease.id, 0, lease.end, 1, &err), err);
        last = lease;
    }
    assert_int_equal(status, TRM_END);
    assert_int_equal(used, STEPS * BATCH);
    assert_int_equal(last.end - last.begin, BATCH);
    o.samples_max += 20 * BATCH; /* continued */
    CHECK_OK(trmi_lease_take(book, &o, 0, 1, &lease, &err), err);
    assert_int_equal(lease.begin, last.end);
    assert_int_equal(
        trmi_lease_take(book, &(trm_ps_lease_options){SAMPLES, 400, 0, 0, STEPS * BATCH, BATCH}, 1,
                        1, &lease, &err),
        TRM_PENDING); /* it may be lost */
    trmi_lease_book_destroy(book);
}

static void wrong_use_is_said(void **state) {
    static history h;
    trmi_lease_book *book;
    trm_error err;
    trm_ps_lease lease;
    CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
    trm_ps_lease_options o = {SAMPLES, 0, 1, 0, 0, 0};
    CHECK_FAILS(trmi_lease_take(book, &o, 0, 1, &lease, &err), TRM_INVALID, err, "above 0");
    o.lease_samples = 100;
    CHECK_OK(trmi_lease_take(book, &o, 0, 1, &lease, &err), err);
    o.samples = 7;
    CHECK_FAILS(trmi_lease_take(book, &o, 1, 1, &lease, &err), TRM_INVALID, err,
                "other workers asked for 100 of 1000");
    CHECK_FAILS(trmi_lease_progress(book, lease.id, 0, 101, 1, &err), TRM_INVALID, err,
                "position 101 in a lease of 0 to 100");
    CHECK_FAILS(trmi_lease_progress(book, lease.id, 3, 50, 1, &err), TRM_CANCELLED, err, "is over");
    trmi_lease_book_destroy(book);
}

/* A push fails, and the next one of the same lease is applied: its samples may not hide the gap. */
static void samples_of_a_failed_push_are_lent_again(void **state) {
    static history h;
    trmi_lease_book *book;
    trm_error err;
    trm_ps_lease lease, again;
    h.count = 0;
    CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
    const trm_ps_lease_options o = {SAMPLES, 100, 1, 0, 0, 0};
    CHECK_OK(trmi_lease_take(book, &o, 0, 1, &lease, &err), err);
    assert_false(trmi_lease_give_up_gap(book, lease.id, 0));
    CHECK_OK(trmi_lease_progress(book, lease.id, 0, 10, 1, &err), err);
    assert_false(trmi_lease_give_up_gap(book, lease.id, 10));
    assert_false(trmi_lease_give_up_gap(book, lease.id, 5)); /* a repetition */
    assert_true(trmi_lease_give_up_gap(book, lease.id, 20)); /* 10 to 20 have failed */
    CHECK_FAILS(trmi_lease_check(book, lease.id, 0, 40, 1, &err), TRM_CANCELLED, err, "is over");
    CHECK_OK(trmi_lease_take(book, &o, 1, 1, &again, &err), err);
    assert_int_equal(again.begin, 10);
    assert_int_equal(again.end, 100);
    trmi_lease_book_destroy(book);
}

/* Without memory nothing is recorded: a log with an event that the book does not have, and has
 * again later, could not be read. */
static void nothing_is_recorded_without_memory(void **state) {
    static history h;
    trmi_lease_book *book, *again;
    trm_error err;
    trm_ps_lease lease;
    h.count = 0;
    CHECK_OK(trmi_lease_book_create(record_event, &h, &book, &err), err);
    const trm_ps_lease_options o = {SAMPLES, 100, 1, 0, 0, 0};
    trm_status status = TRM_OK;
    for (int worker = 0; worker < 20; worker++) { /* both lists grow on the way */
        for (int64_t fails = 1; fails == 1 || status == TRM_NOMEM; fails++) {
            trmi_alloc_fail_after(fails == 1);
            status = trmi_lease_take(book, &o, 0, 1, &lease, &err);
        }
        assert_true(status == TRM_OK);
        for (int64_t fails = 1; fails == 1 || status == TRM_NOMEM; fails++) {
            trmi_alloc_fail_after(fails == 1);
            status = trmi_lease_drop_worker(book, 0, &err);
        }
        trmi_alloc_fail_after(0);
        CHECK_OK(status, err);
        CHECK_OK(trmi_lease_take(book, &o, 1, 1, &lease, &err), err);
        if (worker % 2 == 0) {
            CHECK_OK(trmi_lease_progress(book, lease.id, 1, lease.begin + 1, 1, &err), err);
            CHECK_OK(trmi_lease_drop_worker(book, 1, &err), err);
        }
    }
    CHECK_OK(trmi_lease_book_create(record_event, &h, &again, &err), err);
    for (int64_t i = 0; i < h.count; i++) {
        CHECK_OK(trmi_lease_replay(again, &h.events[i], &err), err);
    }
    trmi_lease_book_destroy(again);
    trmi_lease_book_destroy(book);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once_although_workers_come_and_go),
        cmocka_unit_test(leases_outlive_a_restart),
        cmocka_unit_test(a_job_is_continued_for_more_epochs),
        cmocka_unit_test(a_job_ends_at_its_steps),
        cmocka_unit_test(wrong_use_is_said),
        cmocka_unit_test(samples_of_a_failed_push_are_lent_again),
        cmocka_unit_test(nothing_is_recorded_without_memory),
    };
    return cmocka_run_group_tests_name("ps lease", tests, NULL, NULL);
}
