/* SPDX-License-Identifier: Apache-2.0 */
/* A private folder of a test below /tmp, for cmocka's set-up and tear-down; each test gets a new
 * one. */
#ifndef TRMI_TESTS_FOLDER_H
#define TRMI_TESTS_FOLDER_H

#include "check.h"

#include "base/os.h"

static char folder[64];

static inline int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/trireme_test_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static inline int remove_folder(void **state) {
    (void)state;
    return trmi_os_remove_tree(NULL, folder, NULL) != TRM_OK;
}

/* A path in it; the last four stay valid. */
static inline const char *in_folder(const char *name) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* Writes a file in it, in place of an older one, and the folders of its name. Returns the path, as
 * in_folder does. */
static inline const char *write_in_folder(const char *name, const void *data, size_t bytes) {
    trm_error err;
    const char *path = in_folder(name);
    CHECK_OK(trmi_os_make_parent(NULL, path, &err), err);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

#endif
