/* SPDX-License-Identifier: Apache-2.0 */
/* The decision about the next epoch, under every order of messages, losses and deaths that a seed
 * gives: no two different lists of one epoch are chosen. */
#include "check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "comm/rendezvous/membership.h"

enum { MOST = 7 };

/* The state of one run: members that vote, and one ballot for each. A message is delivered in the
 * step that draws it; a message that is never drawn is lost. */
typedef struct run {
    int32_t n; /* members */
    uint64_t seed, drawn;
    trmi_members now; /* the members that vote */
    trmi_vote votes[MOST];
    trmi_ballot ballots[MOST];
    bool dead[MOST], begun[MOST], proposed[MOST], counts_dead; /* begun, proposed: the ballot */
    bool chosen;                                               /* a ballot has won */
    trmi_members choice; /* with these members; every later winner must have the same */
} run;

static uint32_t draw_number(run *r, uint32_t below) {
    uint64_t x = r->seed * 0x9E3779B97F4A7C15u + ++r->drawn * 0xBF58476D1CE4E5B9u;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 29;
    return (uint32_t)(x >> 33) % below;
}

static void begin_run(run *r, uint64_t seed) {
    *r = (run){.seed = seed, .now.ballot = -1, .choice.ballot = -1};
    r->n = 1 + (int32_t)draw_number(r, MOST);
    r->now.epoch = 4;
    r->now.count = r->n;
    r->now.list = trmi_alloc((size_t)r->n * sizeof *r->now.list);
    for (int32_t i = 0; i < r->n; i++) {
        r->now.list[i] = (trmi_member){
            .id = 100 + (uint64_t)i, .number = 2 * i, .leaves = draw_number(r, 4) == 0};
        r->votes[i] = TRMI_VOTE_NONE;
    }
}

static void end_run(run *r) {
    for (int32_t i = 0; i < r->n; i++) {
        trmi_members_free(&r->votes[i].accepted);
        if (r->begun[i]) {
            trmi_ballot_end(&r->ballots[i]);
        }
    }
    trmi_members_free(&r->now);
    trmi_members_free(&r->choice);
}

static bool same_members(const trmi_members *a, const trmi_members *b) {
    bool equal = a->count == b->count && a->left == b->left && a->epoch == b->epoch;
    for (int32_t i = 0; equal && i < a->count + a->left; i++) {
        equal = a->list[i].id == b->list[i].id && a->list[i].number == b->list[i].number;
    }
    return equal;
}

/* A list is in use only while a member of it lives. */
static bool is_in_use(const run *r, const trmi_members *list) {
    for (int32_t i = 0; i < list->count; i++) {
        int32_t index = trmi_members_find(&r->now, list->list[i].id);
        if (index >= 0 && !r->dead[index]) {
            return true;
        }
    }
    return false;
}

static void choose_list(run *r, const trmi_members *list) {
    trm_error err;
    if (r->chosen && is_in_use(r, &r->choice)) {
        if (!same_members(&r->choice, list)) {
            fail_msg("seed %llu: two lists of one epoch", (unsigned long long)r->seed);
        }
        return;
    }
    r->chosen = true;
    assert_int_equal(trmi_members_copy(&r->choice, list, &err), TRM_OK);
}

/* One event of the run. */
static void play_event(run *r) {
    trm_error err;
    int32_t b = (int32_t)draw_number(r, (uint32_t)r->n),
            m = (int32_t)draw_number(r, (uint32_t)r->n);
    trmi_ballot *ballot = &r->ballots[b];
    if (draw_number(r, 60) == 0) {
        r->dead[m] = true;
    }
    if (r->dead[b] || r->dead[m]) {
        if (r->begun[b] && !r->dead[b] && r->dead[m]) {
            trmi_ballot_bury(ballot, m);
        }
        return;
    }
    switch (draw_number(r, 4)) {
    case 0: /* JOIN from m to b */
        if (!r->begun[b]) {
            assert_int_equal(trmi_ballot_begin(&r->now, b, 1, MOST, ballot, &err), TRM_OK);
            r->begun[b] = true;
        }
        if (!r->proposed[b] && trmi_vote_promise(&r->votes[m], b)) {
            assert_int_equal(
                trmi_ballot_hear(ballot, m, &r->now.list[m], &r->votes[m].accepted, &err), TRM_OK);
        }
        break;
    case 1: /* b gives up waiting */
        if (r->begun[b] && !r->proposed[b] && trmi_ballot_has_quorum(ballot, false)) {
            assert_int_equal(trmi_ballot_propose(ballot, &err), TRM_OK);
            r->proposed[b] = true;
        }
        break;
    case 2: /* PROPOSE to m, and its ACK */
        if (r->proposed[b] && trmi_vote_accept(&r->votes[m], &ballot->list, &err) == TRM_OK &&
            draw_number(r, 3) != 0) {
            trmi_ballot_ack(ballot, m);
        }
        break;
    default:
        if (r->proposed[b] && trmi_ballot_has_quorum(ballot, true)) {
            choose_list(r, &ballot->list);
        }
        break;
    }
}

static void one_list_is_chosen(void **state) {
    int64_t chosen = 0;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        run r;
        begin_run(&r, seed);
        for (int32_t i = 0; i < 400; i++) {
            play_event(&r);
        }
        chosen += r.chosen;
        end_run(&r);
    }
    assert_true(chosen > 5000);
    (void)state;
}

/* Half of the members are no quorum while the others may live; when they are dead, they are. */
static void half_needs_proof(void **state) {
    trm_error err;
    run r = {.n = 4, .now.ballot = -1};
    begin_run(&r, 1);
    trmi_members_free(&r.now);
    r.n = r.now.count = 4;
    r.now.epoch = 1;
    r.now.list = trmi_alloc(4 * sizeof *r.now.list);
    const trmi_members none = {.ballot = -1};
    trmi_ballot ballot;
    assert_int_equal(trmi_ballot_begin(&r.now, 1, 1, MOST, &ballot, &err), TRM_OK);
    for (int32_t i = 1; i < 3; i++) {
        r.now.list[i].id = (uint64_t)i;
        assert_int_equal(trmi_ballot_hear(&ballot, i, &r.now.list[i], &none, &err), TRM_OK);
    }
    trmi_ballot_lose(&ballot, 0);
    trmi_ballot_lose(&ballot, 3);
    assert_true(trmi_ballot_is_complete(&ballot));
    assert_false(trmi_ballot_has_quorum(&ballot, false));
    trmi_ballot_bury(&ballot, 0);
    assert_false(trmi_ballot_has_quorum(&ballot, false));
    trmi_ballot_bury(&ballot, 3);
    assert_true(trmi_ballot_has_quorum(&ballot, false));
    assert_false(trmi_ballot_has_quorum(&ballot, true));
    /* a newcomer gets the next free number; one that has gone is no member */
    r.now.list[2].number = 6;
    assert_int_equal(trmi_ballot_hear_newcomer(&ballot, &(trmi_member){.id = 8}, &err), TRM_OK);
    assert_int_equal(trmi_ballot_hear_newcomer(&ballot, &(trmi_member){.id = 9}, &err), TRM_OK);
    assert_int_equal(trmi_ballot_hear_newcomer(&ballot, &(trmi_member){.id = 9}, &err), TRM_OK);
    trmi_ballot_lose_newcomer(&ballot, 8);
    trmi_ballot_lose_newcomer(&ballot, 5);
    assert_int_equal(trmi_ballot_propose(&ballot, &err), TRM_OK);
    assert_int_equal(ballot.list.count, 3);
    assert_int_equal(ballot.list.epoch, 2);
    assert_int_equal(ballot.list.list[2].id, 9);
    assert_int_equal(ballot.list.list[2].number, 7);
    trmi_ballot_end(&ballot);
    end_run(&r);
    (void)state;
}

/* Members that leave stand behind the members, unless too few would be left; newcomers come up to
 * the most. */
static void members_leave_and_join(void **state) {
    trm_error err;
    const trmi_members none = {.ballot = -1};
    for (int32_t least = 1; least <= 3; least++) {
        trmi_member list[4] = {{.id = 1, .leaves = 1},
                               {.id = 2, .number = 1},
                               {.id = 3, .number = 2, .leaves = 1},
                               {.id = 4, .number = 3}};
        const trmi_members now = {.epoch = 3, .count = 4, .list = list};
        trmi_ballot ballot;
        assert_int_equal(trmi_ballot_begin(&now, 0, least, 3, &ballot, &err), TRM_OK);
        for (int32_t i = 0; i < 4; i++) {
            assert_int_equal(trmi_ballot_hear(&ballot, i, &list[i], &none, &err), TRM_OK);
        }
        for (uint64_t id = 8; id < 10; id++) {
            assert_int_equal(trmi_ballot_hear_newcomer(&ballot, &(trmi_member){.id = id}, &err),
                             TRM_OK);
        }
        assert_int_equal(trmi_ballot_propose(&ballot, &err), TRM_OK);
        bool leave = least < 3;
        assert_int_equal(ballot.list.count, leave ? 3 : 4);
        assert_int_equal(ballot.list.left, leave ? 2 : 0);
        assert_int_equal(trmi_members_find(&ballot.list, 8), leave ? 2 : -1);
        assert_int_equal(trmi_members_find(&ballot.list, 9), -1);
        assert_true(trmi_members_has_left(&ballot.list, 3) == leave);
        assert_true((trmi_members_find(&ballot.list, 3) < 0) == leave);
        assert_false(trmi_members_has_left(&ballot.list, 4));
        trmi_ballot_end(&ballot);
    }
    (void)state;
}

/* A list survives the wire; lengths that lie are refused. */
static void lists_travel(void **state) {
    trm_error err;
    uint8_t wire[TRMI_MEMBERS_HEAD + 2 * TRMI_MEMBER_BYTES];
    trmi_member list[2] = {{.id = 1, .start_time = 2, .pid = 3, .number = 4, .address = "::1"},
                           {.id = 5, .port = 6, .meeting_port = 7, .place = {8}, .leaves = 1}};
    trmi_members members = {.epoch = 9, .ballot = 2, .count = 1, .left = 1, .list = list};
    trmi_members read = {.ballot = -1};
    size_t used;
    assert_int_equal(trmi_members_encode(&members, wire), sizeof wire);
    assert_int_equal(trmi_members_decode(wire, sizeof wire, &read, &used, &err), TRM_OK);
    assert_int_equal(used, sizeof wire);
    assert_true(read.epoch == 9 && read.ballot == 2 && read.count == 1 && read.left == 1);
    assert_memory_equal(read.list, list, sizeof list);
    for (size_t bytes = 0; bytes < sizeof wire; bytes++) {
        assert_int_equal(trmi_members_decode(wire, bytes, &read, &used, &err), TRM_CORRUPT);
    }
    for (int at = 12; at <= 16; at += 4) {
        uint8_t kept = wire[at];
        wire[at] = 0xFF;
        assert_int_equal(trmi_members_decode(wire, sizeof wire, &read, &used, &err), TRM_CORRUPT);
        wire[at] = kept;
    }
    trmi_members_free(&read);
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_list_is_chosen), cmocka_unit_test(half_needs_proof),
        cmocka_unit_test(members_leave_and_join), cmocka_unit_test(lists_travel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
