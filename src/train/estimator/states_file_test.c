/* SPDX-License-Identifier: Apache-2.0 */
/* The file of running statistics has the latest two batches; a slot that was written in part, and
 * any other batch, is not loaded. */
#include "folder.h"

#include "train/estimator/states_file.h"

#include <fcntl.h>
#include <unistd.h>

enum { VALUES = 6 };

/* A program with two states of VALUES / 2 numbers each. */
static trm_exec *make_exec(bool states) {
    trm_graph *g;
    trm_exec *exec;
    trm_error err;
    const trm_shape channels = trm_shape_of(VALUES / 2);
    CHECK_OK(trm_graph_create(&(trm_graph_options){.training = true}, &g, &err), err);
    trm_node x = trm_input(g, "x", TRM_FLOAT32, trm_shape_of(4, VALUES / 2, 2, 2));
    trm_node gamma = trm_parameter(g, "gamma", channels, TRM_INIT_ONE);
    if (states) {
        x = trm_batch_norm(g, x, gamma, trm_parameter(g, "beta", channels, TRM_INIT_ZERO),
                           trm_state(g, "mean", TRM_FLOAT32, channels, TRM_INIT_ZERO),
                           trm_state(g, "variance", TRM_FLOAT32, channels, TRM_INIT_ONE), NULL);
    } else {
        x = trm_mul(g, x, trm_reshape(g, gamma, trm_shape_of(VALUES / 2, 1, 1)));
    }
    trm_node loss = trm_reduce_mean(g, trm_mul(g, x, x), NULL, 0, false);
    const trm_exec_options options = {.loss = loss, .tuning_file = "", .threads = 1};
    CHECK_OK(trm_exec_create(g, &options, &exec, &err), err);
    trm_graph_destroy(g);
    return exec;
}

static void set_states(trm_exec *exec, float value) {
    float values[VALUES / 2];
    for (int i = 0; i < VALUES / 2; i++) {
        values[i] = value + (float)i;
    }
    trm_exec_write(exec, trm_exec_find(exec, "mean"), values);
    trm_exec_write(exec, trm_exec_find(exec, "variance"), values);
}

static bool has_states(const trm_exec *exec, float value) {
    float mean[VALUES / 2], variance[VALUES / 2];
    trm_exec_read(exec, trm_exec_find(exec, "mean"), mean);
    trm_exec_read(exec, trm_exec_find(exec, "variance"), variance);
    return mean[0] == value && variance[VALUES / 2 - 1] == value + VALUES / 2 - 1;
}

static void the_latest_two_batches_are_kept(void **state) {
    trmi_states_file *file;
    trm_error err;
    (void)state;
    trm_exec *exec = make_exec(true);
    assert_false(trmi_states_load(folder, exec, 1)); /* no file */
    CHECK_OK(trmi_states_open(folder, exec, &file, &err), err);
    assert_non_null(file);
    for (int64_t batch = 1; batch <= 5; batch++) {
        set_states(exec, (float)(100 * batch));
        CHECK_OK(trmi_states_write(file, exec, batch, &err), err);
    }
    trmi_states_close(file);
    set_states(exec, 0);
    assert_false(trmi_states_load(folder, exec, 3));
    assert_false(trmi_states_load(folder, exec, 6));
    assert_true(has_states(exec, 0));
    assert_true(trmi_states_load(folder, exec, 4));
    assert_true(has_states(exec, 400));
    assert_true(trmi_states_load(folder, exec, 5));
    assert_true(has_states(exec, 500));
    /* one byte of the slot of batch 5, which is the second */
    int fd = open(in_folder("states.bin"), O_RDWR);
    off_t at = lseek(fd, -1, SEEK_END);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    assert_false(trmi_states_load(folder, exec, 5));
    assert_true(trmi_states_load(folder, exec, 4));
    trm_exec_destroy(exec);
}

static void a_program_without_states_has_no_file(void **state) {
    trmi_states_file *file;
    trm_error err;
    (void)state;
    trm_exec *exec = make_exec(false);
    CHECK_OK(trmi_states_open(folder, exec, &file, &err), err);
    assert_null(file);
    assert_false(trmi_states_load(folder, exec, 1));
    trmi_states_close(file);
    trm_exec_destroy(exec);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_latest_two_batches_are_kept),
                                       cmocka_unit_test(a_program_without_states_has_no_file)};
    return cmocka_run_group_tests_name("train running statistics", tests, make_folder,
                                       remove_folder);
}
