#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx2
#define VL 8
#define STREAM(to, value) _mm256_stream_ps(to, (__m256)(value))
#define FENCE() _mm_sfence()
#include "exec/onednn/fuse_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
