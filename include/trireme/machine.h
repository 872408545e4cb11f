/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/machine.h: what this machine and this build have, for programs that report it. */
#ifndef TRIREME_MACHINE_H
#define TRIREME_MACHINE_H

#include "trireme/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_machine {
    char cpu[64];
    char isa[32];  /* "avx512_bf16", "avx512", "avx2", "plain": what our kernels use */
    int32_t cores; /* that this process may use: affinity and cgroup quota */
    int32_t cores_online;
    int64_t memory_bytes; /* that this process may use: RAM and cgroup limit */
    int64_t memory_free_bytes;
    char onednn[32];                   /* "2.6.3", "" when built without */
    int32_t omp_threads;               /* OpenMP's default, 0 when built without */
    char huge_pages[16];               /* "always", "madvise", "never", "" unknown */
    int64_t shm_bytes, shm_free_bytes; /* /dev/shm; -1 = none */
    char cache[256];                   /* the cache directory, "" when there is none */
    char host[64];
    char kernel[64];
} trm_machine;
/* Asks the machine; microseconds. thread: any */
TRM_API void trm_machine_ask(trm_machine *out);

/* Peak and present resident bytes of this process, what other processes count for of the latter
 * (memory that ranks share is in all of them), and monotonic seconds. */
TRM_API int64_t trm_peak_bytes(void);
TRM_API int64_t trm_resident_bytes(void);
TRM_API int64_t trm_shared_bytes(void);
TRM_API double trm_now_seconds(void);

#ifdef __cplusplus
}
#endif
#endif
