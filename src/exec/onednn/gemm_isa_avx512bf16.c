/* 14 x 32 tiles of pairs of bfloat16, summed in float32 (VDPBF16PS). */
#if defined(__x86_64__)
#include <immintrin.h>

#define NAME avx512bf16
#define PAIRS
#define MULTIPLY_ADD(sum, left, right)                                                             \
    ((sum) = (vec)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)_mm512_set1_ps(left),                  \
                                   (__m512bh)(right)))
#define VL 16
#define VN 2
#define MR 14
#define STREAM(to, value) _mm512_stream_ps(to, (__m512)(value))
#define FENCE() _mm_sfence()
#include "exec/onednn/gemm_isa_body.h"
#else
typedef int trmi_not_x86;
#endif
