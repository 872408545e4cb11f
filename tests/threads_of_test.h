/* SPDX-License-Identifier: Apache-2.0 */
/* tests/threads_of_test.h: how many threads the test's process has. */
#ifndef TRIREME_TESTS_THREADS_OF_TEST_H
#define TRIREME_TESTS_THREADS_OF_TEST_H

#include "check.h"

#include <dirent.h>

static inline int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *one; (one = readdir(tasks)) != NULL;) {
        count += one->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

#endif
