/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#define NAME avx512
#include <immintrin.h>

#define VL 16
#define STREAM(to, value) _mm512_stream_ps(to, (__m512)(value))
#include "exec/cpu/conv/winograd_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
