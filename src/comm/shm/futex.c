/* SPDX-License-Identifier: Apache-2.0 */
/* The futex system call: the C library has no wrapper for it. Failures (EAGAIN, EINTR, ETIMEDOUT)
 * are ignored, because every caller tests its condition in a loop. */
#include "comm/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void trmi_futex_wait(uint32_t *word, uint32_t expected, double seconds) {
    struct timespec timeout = {.tv_sec = (time_t)seconds};
    timeout.tv_nsec = (long)((seconds - (double)timeout.tv_sec) * 1e9);
    syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
}

void trmi_futex_wake(uint32_t *word, int32_t count) {
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}
