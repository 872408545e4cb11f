/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of plan/search/links.h: the median of several measurements, the curves of another number of
 * ranks. */
#include "check.h"

#include "plan/search/links.h"

static trmi_links parse_links(const char *text) {
    trmi_links links;
    trm_error err;
    CHECK_OK(trmi_links_parse(text, &links, &err), err);
    return links;
}

/* Each point is the median of the descriptions that have it. */
static void the_median_of_each_point(void **state) {
    (void)state;
    const trmi_links measurements[3] = {
        parse_links(
            "level host 2 5 4\npoints allreduce 2 4096:10 65536:20 1048576:90\npoints update 1 "
            "4096:1 65536:8\npoints sums 1 4096:2 65536:6\noverhead 30\ncores 2\nrefill "
            "90\nhandover 7\n"),
        parse_links("level host 2 5 4\npoints allreduce 2 4096:30 65536:31\npoints update 1 4096:3 "
                    "65536:9\noverhead 10\nrefill 70\nhandover 5\n"),
        parse_links("level host 2 5 4\npoints allreduce 2 4096:12 65536:60\npoints update 1 4096:2 "
                    "65536:4\noverhead 20\nrefill 80\nhandover 6\n"),
    };
    trmi_links middle;
    trmi_links_middle(measurements, 3, &middle);
    assert_int_equal(middle.curves_count, 1);
    assert_int_equal(middle.curves[0].count, 3);
    CHECK_CLOSE(middle.curves[0].seconds[0], 12e-6, 1e-12);
    CHECK_CLOSE(middle.curves[0].seconds[1], 31e-6, 1e-12);
    /* the other curves end before this point */
    CHECK_CLOSE(middle.curves[0].seconds[2], 90e-6, 1e-12);
    CHECK_CLOSE(middle.update.seconds[0], 2e-6, 1e-12);
    CHECK_CLOSE(middle.update.seconds[1], 8e-6, 1e-12);
    CHECK_CLOSE(middle.overhead, 20e-6, 1e-12);
    CHECK_CLOSE(middle.refill, 80e-6, 1e-12);
    CHECK_CLOSE(middle.handover, 6e-6, 1e-12);
    CHECK_CLOSE(middle.sums.seconds[1], 6e-6, 1e-12);
    assert_int_equal(middle.cores, 2);
    trmi_links_middle(measurements, 2, &middle);
    CHECK_CLOSE(middle.curves[0].seconds[0], 20e-6, 1e-12);
    trmi_links_middle(measurements + 1, 1, &middle);
    CHECK_CLOSE(middle.curves[0].seconds[1], 31e-6, 1e-12);
}

/* A point that only one curve reaches is raised to the median of the points below it. */
static void more_bytes_are_never_cheaper(void **state) {
    (void)state;
    const trmi_links measurements[3] = {
        parse_links("level host 2 5 4\npoints allreduce 2 4096:10 65536:20 1048576:25\n"),
        parse_links("level host 2 5 4\npoints allreduce 2 4096:30 65536:40\n"),
        parse_links("level host 2 5 4\npoints allreduce 2 4096:30 65536:50\n")};
    trmi_links middle;
    trmi_links_middle(measurements, 3, &middle);
    CHECK_CLOSE(middle.curves[0].seconds[2], 40e-6, 1e-12);
}

/* Seconds of 65,536 bytes in groups of all ranks of a mesh. */
static double seconds_on(trmi_links *links, const char *mesh_text, trmi_move move) {
    trmi_mesh mesh;
    trm_error err;
    CHECK_OK(trmi_mesh_parse(mesh_text, &mesh, &err), err);
    links->mesh = &mesh;
    return trmi_links_seconds(links, move, (1U << mesh.axes) - 1, 65536);
}

/* A group that was not measured costs what the nearest one does; a measured one keeps its curve,
 * and groups that do not divide the ranks get none. */
static void groups_of_another_number_of_ranks(void **state) {
    (void)state;
    trmi_links links = parse_links("level host 4 5 4\n"
                                   "points allreduce 2 4096:10 65536:20\n"
                                   "points allreduce 4 4096:30 65536:40\n"
                                   "points allgather 2 4096:50 65536:60\n"
                                   "points copy 1 4096:1 65536:2\n");
    trmi_links_add_groups(&links, 4);
    assert_int_equal(links.curves_count, 5); /* allgather of 4 is new */
    CHECK_CLOSE(seconds_on(&links, "4", TRMI_MOVE_ALL_REDUCE), 40e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "4", TRMI_MOVE_ALL_GATHER), 60e-6, 1e-12);
    trmi_links_add_groups(&links, 6); /* groups of 3 and 6; as near as 2 is 4, which is larger */
    CHECK_CLOSE(seconds_on(&links, "3", TRMI_MOVE_ALL_REDUCE), 40e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "6", TRMI_MOVE_ALL_REDUCE), 40e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "2", TRMI_MOVE_ALL_REDUCE), 20e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "3", TRMI_MOVE_ALL_GATHER), 60e-6, 1e-12);
    assert_int_equal(links.curves_count, 9);
}

/* The cost of a wait is part of moves between operators, not of copies and of gradients; with fewer
 * ranks on the cores a wait costs less, and nothing where each rank has its own core. */
static void a_wait_on_shared_cores(void **state) {
    (void)state;
    trmi_links links = parse_links("level host 4 5 4\ncores 2\ntogether 4\nrefill 8\nhandover 6\n"
                                   "points allreduce 4 4096:30 65536:40\n"
                                   "points alltoall 2 4096:30 131072:40\n"
                                   "points gradients 4 4096:30 65536:50\n"
                                   "points copy 1 4096:1 65536:2\n");
    CHECK_CLOSE(seconds_on(&links, "4", TRMI_MOVE_ALL_REDUCE), 48e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "4", TRMI_MOVE_GRADIENTS), 50e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "4", TRMI_MOVE_LOCAL), 2e-6, 1e-12);
    CHECK_CLOSE(seconds_on(&links, "2", TRMI_MOVE_EXCHANGE), 24e-6, 1e-12);
    CHECK_CLOSE(trmi_links_handover(&links, 4), 6e-6, 1e-12);
    CHECK_CLOSE(trmi_links_handover(&links, 2), 3e-6, 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_on_shared_cores),
        cmocka_unit_test(groups_of_another_number_of_ranks),
        cmocka_unit_test(the_median_of_each_point),
        cmocka_unit_test(more_bytes_are_never_cheaper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
