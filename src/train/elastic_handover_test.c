/* SPDX-License-Identifier: Apache-2.0 */
/* The hand-over of an elastic model's state: the rank that gives it dies in the middle. */
#include "ranks.h"

#include "base/error.h"
#include "base/memory.h"
#include "train/elastic_state.h"

#include <string.h>

enum { BYTES = 300000, RANKS = 4 };

/* The states of the ranks: BYTES times the number of the step. Steps are -1 where a rank has no
 * state. */
typedef struct states {
    trmi_elastic_model of[RANKS];
    int64_t newest[RANKS];
    bool first_dies; /* rank 0 gives its position, and no more */
    bool due;        /* the hooks of the newest step are to run again */
} states;

static void make_states(states *s, const int64_t *steps, int count) {
    memset(s, 0, sizeof *s);
    for (int i = 0; i < count; i++) {
        trmi_elastic_model *e = &s->of[i];
        e->kept_bytes = BYTES;
        e->valid = steps[i] >= 0;
        if (e->valid) {
            e->kept = trmi_alloc(BYTES);
            assert_non_null(e->kept);
            memset(e->kept, (int)steps[i], BYTES);
            e->at.step = (uint64_t)steps[i];
            e->hooked_step = e->told_step = e->at.step;
            e->reached = steps[i] + 1;
            e->at.epoch = 2; /* the step was the last one of epoch 1 */
            e->at.ended = (trmi_elastic_step_end){.step = e->at.step, .epoch = 1};
        }
    }
}

static void free_states(states *s) {
    for (int i = 0; i < RANKS; i++) {
        trmi_free(s->of[i].kept);
    }
}

/* Each rank has exactly the state of its step, or none. */
static void check_states(const states *s, const int64_t *steps, int count) {
    for (int i = 0; i < count; i++) {
        const trmi_elastic_model *e = &s->of[i];
        assert_int_equal(e->valid, steps[i] >= 0);
        for (int64_t b = 0; e->valid && b < BYTES; b++) {
            assert_int_equal(e->kept[b], steps[i]);
        }
        assert_true(!e->valid || (int64_t)e->at.step == steps[i]);
    }
}

/* Takes the newest state; rank 0 may die after it has sent its position. */
static void take_state(rank_context *context) {
    states *s = context->arg;
    const rank_setup setup = {.options = {.timeout_seconds = 60}};
    context->arg = (void *)&setup;
    OPEN_COMM();
    trmi_elastic_model *e = &s->of[rank];
    bool hooks_due = true;
    if (rank == 0 && s->first_dies) {
        trmi_declaration *all = NULL, mine = {.step = (int64_t)e->at.step, .bytes = BYTES};
        trm_error death;
        EXPECT_OK(trmi_elastic_declare(comm, &mine, &all, &err), err);
        trmi_free(all);
        (void)!trm_comm_broadcast(comm, &e->at, (int64_t)sizeof e->at, TRM_UINT8, 0, &err);
        TRMI_FAIL(&death, TRM_PEER, "rank 0 died");
        boot->table->poison(boot, &death);
    } else if (s->first_dies) {
        EXPECT(trmi_elastic_take_newest(e, comm, &hooks_due, &s->newest[rank], &err) == TRM_PEER,
               "a hand-over without its source");
    } else {
        EXPECT_OK(trmi_elastic_take_newest(e, comm, &hooks_due, &s->newest[rank], &err), err);
        EXPECT(hooks_due == s->due, "hooks due: %d", hooks_due);
        EXPECT(e->at.epoch == (s->due ? 1 : 2), "the position is that of the hooks");
    }
    CLOSE_COMM();
}

static void the_newest_state_is_everybodys(void **state) {
    states s;
    make_states(&s, (const int64_t[]){4, -1, 5, 5}, 4);
    s.due = true; /* of the rank that is behind */
    ranks_run(4, 0, false, take_state, &s, "no death");
    check_states(&s, (const int64_t[]){5, 5, 5, 5}, 4);
    free_states(&s);
    (void)state;
}

/* Neither a rank that has the same state nor one that has an older one loses it. */
static void a_death_in_the_middle_leaves_the_others_theirs(void **state) {
    states s;
    make_states(&s, (const int64_t[]){5, 5, 4, -1}, 4);
    s.first_dies = true;
    ranks_run(4, 0, false, take_state, &s, "rank 0 dies");
    check_states(&s, (const int64_t[]){5, 5, 4, -1}, 4);
    /* the next epoch, of the ranks that are left */
    states next = {.of = {s.of[1], s.of[2], s.of[3]}, .due = true};
    ranks_run(3, 0, false, take_state, &next, "the next epoch");
    check_states(&next, (const int64_t[]){5, 5, 5}, 3);
    trmi_free(s.of[0].kept);
    free_states(&next);
    (void)state;
}

/* The hooks run again where no rank knows that they have on rank 0, or a rank that has begun the
 * step has not called them, but not for a rank that was spare or comes anew. */
static void hooks_run_again_unless_rank_0_has_run_them(void **state) {
    static const struct {
        int64_t steps[RANKS], reached[RANKS];
        uint64_t hooked[RANKS], told[RANKS];
        bool due;
    } cases[] = {
        {{5, 5, 5, -1}, {6, 6, 6, 0}, {5, 5, 5, 0}, {4, 5, 4, 0}, false},
        {{5, 5, 5, -1}, {6, 6, 6, 0}, {5, 5, 5, 0}, {4, 4, 4, 0}, true},  /* rank 0 is gone */
        {{5, 5, 5, -1}, {6, 5, 6, 0}, {5, 4, 5, 0}, {5, 4, 4, 0}, true},  /* interrupted */
        {{4, 5, 5, 5}, {5, 6, 6, 6}, {4, 5, 5, 5}, {4, 4, 4, 4}, true},   /* rank 0 is behind */
        {{5, 4, 5, 5}, {6, 5, 6, 6}, {5, 4, 5, 5}, {5, 4, 4, 4}, true},   /* another rank is */
        {{5, 5, 2, -1}, {6, 6, 2, 0}, {5, 5, 2, 0}, {5, 4, 2, 0}, false}, /* a spare rank is */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        states s;
        make_states(&s, cases[i].steps, RANKS);
        s.due = cases[i].due;
        for (int r = 0; r < RANKS; r++) {
            s.of[r].reached = cases[i].reached[r];
            s.of[r].hooked_step = cases[i].hooked[r];
            s.of[r].told_step = cases[i].told[r];
        }
        ranks_run(RANKS, 0, false, take_state, &s, "hooks");
        free_states(&s);
    }
    (void)state;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_state_is_everybodys),
        cmocka_unit_test(a_death_in_the_middle_leaves_the_others_theirs),
        cmocka_unit_test(hooks_run_again_unless_rank_0_has_run_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
