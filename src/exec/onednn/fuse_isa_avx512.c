#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx512
#define VL 16
#define STREAM(to, value) _mm512_stream_ps(to, (__m512)(value))
#define FENCE() _mm_sfence()
#include "exec/onednn/fuse_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
