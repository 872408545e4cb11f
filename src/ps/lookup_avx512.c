/* Batched lookup with one comparison a bucket. */
#if defined(__AVX512F__)
#include "ps/lookup.h"

#include <immintrin.h>

static inline unsigned match(const trmi_bucket *bucket, uint64_t key) {
    return _mm512_cmpeq_epi64_mask(_mm512_load_si512(bucket), _mm512_set1_epi64((long long)key));
}

#define LOCATE trmi_locate_avx512
#define MATCH match
#include "ps/lookup_loop.h"
#else
typedef int trmi_not_empty;
#endif
