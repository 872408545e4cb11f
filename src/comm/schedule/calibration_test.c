/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of networks: the file's lines, and that communicators measure once and then take them. */
#include "comm/schedule/calibration.h"

#include "base/os.h"
#include "ranks.h"

#include <sys/stat.h>

static const uint8_t cluster_a[32] = {0xAB, 1}, cluster_b[32] = {0xAB, 2};
static const trmi_model one = {1e-5, 2e-10, 3e-11}, other = {4e-5, 5e-10, 6e-11};

static void lines_are_found_and_replaced(void **state) {
    (void)state;
    trm_error err;
    trmi_text first = {0}, second = {0}, third = {0};
    trmi_model found;
    assert_false(trmi_links_find("", cluster_a, "tcp", &found));
    CHECK_OK(trmi_links_put("", cluster_a, "tcp", &one, &first, &err), err);
    CHECK_OK(trmi_links_put(first.data, cluster_a, "ucx", &other, &second, &err), err);
    assert_true(trmi_links_find(second.data, cluster_a, "tcp", &found));
    assert_memory_equal(&found, &one, sizeof one);
    assert_true(trmi_links_find(second.data, cluster_a, "ucx", &found));
    assert_memory_equal(&found, &other, sizeof other);
    assert_false(trmi_links_find(second.data, cluster_b, "tcp", &found));
    assert_false(trmi_links_find(second.data, cluster_a, "mpi", &found));
    CHECK_OK(trmi_links_put(second.data, cluster_a, "tcp", &other, &third, &err), err);
    assert_int_equal(strlen(third.data), strlen(second.data));
    assert_true(trmi_links_find(third.data, cluster_a, "tcp", &found));
    assert_memory_equal(&found, &other, sizeof other);
    trmi_text_free(&first);
    trmi_text_free(&second);
    trmi_text_free(&third);
}

/* A damaged file causes no crash, its impossible figures are ignored, and the next write repairs
 * it.
 */
static void damage_is_passed_over(void **state) {
    (void)state;
    trm_error err;
    trmi_text good = {0}, mended = {0};
    trmi_model found;
    char text[4000], key[65];
    CHECK_OK(trmi_links_put("", cluster_a, "tcp", &one, &good, &err), err);
    snprintf(key, sizeof key, "%.64s", good.data);
    static const char *const bad[] = {"tcp",
                                      "tcp 1e-5",
                                      "tcp 1e-5 2e-10",
                                      "tcp nan 1e-10 1e-10",
                                      "tcp 0 1e-10 1e-10",
                                      "tcp 1e-5 -1 1e-10",
                                      "tcp 1e9 1e-10 1e-10",
                                      "tcp 1e-5 1e-10 inf",
                                      "tcp x y z"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s %s\n", key, bad[i]);
        assert_false(trmi_links_find(text, cluster_a, "tcp", &found));
    }
    memset(text, 'x', sizeof text - 200);
    snprintf(text + sizeof text - 200, 200, "\n\n\n%.190s", good.data);
    assert_true(trmi_links_find(text, cluster_a, "tcp", &found));
    CHECK_OK(trmi_links_put(text, cluster_b, "tcp", &other, &mended, &err), err);
    assert_int_equal(strlen(mended.data), 2 * strlen(good.data));
    trmi_text_free(&good);
    trmi_text_free(&mended);
}

static void the_file_stays_small(void **state) {
    (void)state;
    trm_error err;
    trmi_text file = {0};
    trmi_model found;
    for (int i = 0; i < TRMI_LINKS_MAX + 40; i++) {
        uint8_t cluster[32] = {1, (uint8_t)i, (uint8_t)(i >> 8)};
        trmi_text next = {0};
        CHECK_OK(
            trmi_links_put(file.data != NULL ? file.data : "", cluster, "tcp", &one, &next, &err),
            err);
        trmi_text_free(&file);
        file = next;
    }
    int lines = 0;
    for (const char *at = file.data; *at != '\0'; at++) {
        lines += *at == '\n';
    }
    assert_int_equal(lines, TRMI_LINKS_MAX);
    assert_false(trmi_links_find(file.data, (uint8_t[32]){1, 39, 0}, "tcp", &found));
    assert_true(trmi_links_find(file.data, (uint8_t[32]){1, 40, 0}, "tcp", &found));
    trmi_text_free(&file);
}

/* ---- communicators --------------------------------------------------------------------------- */
typedef struct plan {
    uint8_t cluster; /* 0: unknown */
    double alpha;    /* expected; 0: measured, whatever it is */
} plan;

static void join_calibration(rank_context *context) {
    const plan *expected = context->arg;
    trm_error err = {.status = TRM_OK};
    trm_bootstrap *boot = NULL;
    trm_comm *comm = NULL, *child = NULL;
    const trm_comm_options options = {.engine = "tcp"};
    EXPECT_OK(trmi_bootstrap_shared(context->job, context->rank, &boot, &err), err);
    boot->cluster[0] = expected->cluster;
    EXPECT_OK(trm_comm_create(boot, &options, &comm, &err), err);
    EXPECT_OK(trm_comm_split(comm, context->rank / 2, 0, &child, &err), err);
    const trmi_model *model = &((const trmi_net *)(void *)comm->net)->model;
    const trmi_model *childs =
        child->net != NULL ? &((const trmi_net *)(void *)child->net)->model : model;
    double alpha = model->alpha, sum = alpha;
    EXPECT(memcmp(model, childs, sizeof *model) == 0, "a child measured again");
    EXPECT_OK(trm_comm_allreduce(comm, &sum, 1, TRM_FLOAT64, TRM_REDUCTION_MAX, &err), err);
    EXPECT(sum == alpha, "ranks differ: %g and %g", sum, alpha);
    EXPECT(alpha > 0 && (expected->alpha == 0 || expected->alpha == alpha), "alpha %g, expected %g",
           alpha, expected->alpha);
    trm_comm_destroy(child);
    trm_comm_destroy(comm);
    boot->table->destroy(boot);
}

static void measured_once_per_cluster(void **state) {
    (void)state;
    char folder[] = "/tmp/calibration_testXXXXXX", path[128];
    trm_error err;
    uint8_t *text;
    size_t bytes;
    trmi_model found;
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
    snprintf(path, sizeof path, "%s/trireme/links.txt", folder);
    plan unknown = {0}, first = {.cluster = 7}, kept = {.cluster = 7}, others = {.cluster = 8};
    ranks_run(3, 1, false, join_calibration, &unknown, "a cluster without a name");
    assert_int_not_equal(access(path, F_OK), 0);
    ranks_run(3, 1, false, join_calibration, &first, "first time");
    CHECK_OK(trmi_os_read_file(path, 1 << 20, &text, &bytes, &err), err);
    assert_true(trmi_links_find((char *)text, (uint8_t[32]){7}, "tcp", &found));
    /* an implausible figure shows that the file's figures are used */
    trmi_text edited = {0};
    found.alpha = 0.125;
    CHECK_OK(trmi_links_put((char *)text, (uint8_t[32]){7}, "tcp", &found, &edited, &err), err);
    CHECK_OK(trmi_os_replace_file(NULL, path, edited.data, strlen(edited.data), &err), err);
    kept.alpha = 0.125;
    ranks_run(3, 1, false, join_calibration, &kept, "second time");
    ranks_run(3, 1, false, join_calibration, &others, "another cluster");
    trmi_free(text);
    CHECK_OK(trmi_os_read_file(path, 1 << 20, &text, &bytes, &err), err);
    assert_true(trmi_links_find((char *)text, (uint8_t[32]){7}, "tcp", &found));
    assert_true(found.alpha == 0.125);
    assert_true(trmi_links_find((char *)text, (uint8_t[32]){8}, "tcp", &found));
    assert_true(found.alpha < 0.125);
    trmi_free(text);
    trmi_text_free(&edited);
    /* a cache that cannot be written is no error */
    CHECK_OK(trmi_os_remove_tree(NULL, folder, &err), err);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    ranks_run(2, 1, false, join_calibration, &first, "no cache");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_found_and_replaced),
        cmocka_unit_test(damage_is_passed_over),
        cmocka_unit_test(the_file_stays_small),
        cmocka_unit_test(measured_once_per_cluster),
    };
    return cmocka_run_group_tests_name("comm/calibration", tests, NULL, NULL);
}
