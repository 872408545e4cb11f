/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/futex.h: sleep until another thread or process changes a word (Linux futex). The calls
 * do not use FUTEX_PRIVATE_FLAG, because the word may lie in memory shared between processes. */
#ifndef TRMI_COMM_FUTEX_H
#define TRMI_COMM_FUTEX_H

#include <stdint.h>

/* Sleeps while *word == expected, for at most `seconds`. It may return early for any reason (a
 * signal, a spurious wake-up), so the caller must test its condition again. */
void trmi_futex_wait(uint32_t *word, uint32_t expected, double seconds);
/* Wakes up to `count` of the threads that sleep on `word`. */
void trmi_futex_wake(uint32_t *word, int32_t count);

#endif
