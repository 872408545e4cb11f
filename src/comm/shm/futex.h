/* SPDX-License-Identifier: Apache-2.0 */
/* comm/shm/futex.h: sleep on a word that other threads or processes change. Not private: the word
 * may lie in memory shared between processes. */
#ifndef TRMI_COMM_FUTEX_H
#define TRMI_COMM_FUTEX_H

#include <stdint.h>

/* Sleeps while *word == expected, at most `seconds`. Returns early for any reason: look again. */
void trmi_futex_wait(uint32_t *word, uint32_t expected, double seconds);
/* Wakes up to `count` sleepers. */
void trmi_futex_wake(uint32_t *word, int32_t count);

#endif
