/* Batched lookup with two comparisons a bucket. */
#if defined(__AVX2__)
#include "ps/lookup.h"

#include <immintrin.h>

static inline unsigned match(const trmi_bucket *bucket, uint64_t key) {
    const __m256i wanted = _mm256_set1_epi64x((long long)key);
    unsigned mask = 0;
    for (int i = 0; i < 2; i++) {
        __m256i four = _mm256_loadu_si256((const __m256i *)(const void *)bucket + i);
        __m256i equal = _mm256_cmpeq_epi64(four, wanted);
        mask |= (unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(equal)) << 4 * i;
    }
    return mask;
}

#define LOCATE trmi_locate_avx2
#define MATCH match
#include "ps/lookup_loop.h"
#else
typedef int trmi_not_empty;
#endif
