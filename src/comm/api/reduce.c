/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions outside the kernels (reduce_kernels.c, compiled for each instruction set): the choice
 * of a kernel, the blocked sum of many long vectors, and conversion to and from the type of partial
 * results.
 *
 *     vectors of type --widen--> partial results --kernels--> partial result --finish--> type
 *       bfloat16, float16          float32: sums, products                     rounded once
 *       integers, mean             int64                                       divided once
 *       all others                 the type itself: nothing is converted
 *
 * The blocked sum (trmi_reduce_in_blocks) is for "far" vectors, those that come from memory and not
 * from a cache: a block of the result stays in the first-level cache while all sources are added to
 * it, a few in each pass. Its bits are those of the plain
 * kernel; only the time differs. */
#include "comm/api/reduce.h"

#include "base/cpu.h"
#include "base/element.h"
#include "base/format/half.h"

#include <string.h>

const char *trm_reduction_name(trm_reduction reduce) {
    static const char *const names[] = {"none", "sum", "mean", "prod", "max", "min"};
    return reduce >= 0 && reduce <= TRM_REDUCTION_MIN ? names[reduce] : "unknown";
}

const trmi_reduce_table *trmi_reduce_best(void) { return TRMI_CPU_CHOICE(&trmi_reduce); }

trmi_reduce_fn *trmi_reduce_find(trm_dtype dtype, trm_reduction reduce) {
    if (dtype < 1 || (int)dtype > (int)TRMI_REDUCE_DTYPES || reduce < 1 ||
        (int)reduce > (int)TRMI_REDUCE_OPS) {
        return NULL;
    }
    return (*trmi_reduce_best())[dtype - 1][reduce - 1];
}

/* Returns whether a type has 16 bits; its partial sums and products have a wider type. */
static bool is_half(trm_dtype dtype) { return dtype == TRM_BFLOAT16 || dtype == TRM_FLOAT16; }

trm_dtype trmi_reduce_partial_dtype(trm_dtype dtype, trm_reduction reduce) {
    /* An element that is only selected (maximum, minimum) needs no wider type. */
    bool selects = reduce == TRM_REDUCTION_MAX || reduce == TRM_REDUCTION_MIN;
    if (is_half(dtype) && !selects) {
        return TRM_FLOAT32;
    }
    return !trmi_dtype_is_float(dtype) && reduce == TRM_REDUCTION_MEAN ? TRM_INT64 : dtype;
}

/* Limits of the blocked sum; reduce.h has the measurements. */
enum {
    PASS_SOURCES = 4,      /* sources that are added in one pass */
    PLAIN_SOURCES_MAX = 6, /* number of sources up to which the plain kernel is faster */
    FAR_BYTES = 64 << 20,  /* bytes of all sources above which the blocked sum is faster */
    BLOCK_BYTES = 32 << 10 /* bytes of the block, which stays in the first-level cache */
};

/* A type with a wider partial type is excluded: the block holds results of the type itself. */
bool trmi_reduce_needs_blocks(const trmi_reduction *what, int32_t source_count, int64_t count) {
    return source_count > PLAIN_SOURCES_MAX &&
           count > FAR_BYTES / source_count / (int64_t)trm_dtype_bytes(what->dtype) &&
           trmi_reduce_partial_dtype(what->dtype, what->reduce) == what->dtype;
}

/* Sums `count` elements of all sources, from byte `at` on, into `block`, PASS_SOURCES in each
 * pass. Only the last pass divides (for a mean). */
static void sum_block(const trmi_reduction *what, void *block, const void *const *sources,
                      int32_t source_count, int64_t at, int64_t count) {
    trm_reduction between = what->reduce == TRM_REDUCTION_MEAN ? TRM_REDUCTION_SUM : what->reduce;
    const void *operands[PASS_SOURCES + 1];
    for (int32_t done = 0; done < source_count;) {
        int32_t n = 0;
        if (done > 0) {
            operands[n++] = block;
        }
        for (int32_t i = 0; i < PASS_SOURCES && done < source_count; i++) {
            operands[n++] = (const char *)sources[done++] + at;
        }
        trm_reduction now = done < source_count ? between : what->reduce;
        trmi_reduce_find(what->dtype, now)(&block, 1, operands, n, count, what->divisor);
    }
}

void trmi_reduce_in_blocks(const trmi_reduction *what, void *const *targets, int32_t target_count,
                           const void *const *sources, int32_t source_count, int64_t count) {
    _Alignas(64) char block[BLOCK_BYTES];
    int64_t element = (int64_t)trm_dtype_bytes(what->dtype), most = BLOCK_BYTES / element;
    /* The block stays in the first-level cache while all sources are added to it, and is then
     * copied to each target. */
    for (int64_t i = 0; i < count; i += most) {
        int64_t length = count - i < most ? count - i : most;
        sum_block(what, block, sources, source_count, i * element, length);
        for (int32_t t = 0; t < target_count; t++) {
            memcpy((char *)targets[t] + i * element, block, (size_t)(length * element));
        }
    }
}

/* Returns element `i` of an array of an integer type. */
static int64_t get_integer(const void *from, trm_dtype dtype, int64_t i) {
    switch (dtype) {
    case TRM_INT8: return ((const int8_t *)from)[i];
    case TRM_UINT8: return ((const uint8_t *)from)[i];
    case TRM_INT32: return ((const int32_t *)from)[i];
    default: return ((const int64_t *)from)[i];
    }
}

/* Writes element `i` of an array of an integer type. */
static void put_integer(void *to, trm_dtype dtype, int64_t i, int64_t value) {
    switch (dtype) {
    case TRM_INT8: ((int8_t *)to)[i] = (int8_t)value; break;
    case TRM_UINT8: ((uint8_t *)to)[i] = (uint8_t)value; break;
    case TRM_INT32: ((int32_t *)to)[i] = (int32_t)value; break;
    default: ((int64_t *)to)[i] = value;
    }
}

/* Any thread; see the header. */
void trmi_reduce_widen(const void *from, trm_dtype from_dtype, void *to, trm_dtype to_dtype,
                       int64_t count) {
    if (from_dtype == to_dtype) {
        if (from != to) {
            memcpy(to, from, (size_t)count * trm_dtype_bytes(to_dtype));
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (from_dtype == TRM_BFLOAT16) {
            ((float *)to)[i] = trmi_bf16_to_float(((const uint16_t *)from)[i]);
        } else if (from_dtype == TRM_FLOAT16) {
            ((float *)to)[i] = trmi_f16_to_float(((const uint16_t *)from)[i]);
        } else {
            ((int64_t *)to)[i] = get_integer(from, from_dtype, i);
        }
    }
}

/* Contract in reduce.h. Sums of half types and small integers are made in a wider type (the partial
 * type), and rounded once, here. */
void trmi_reduce_finish(const void *from, trm_dtype from_dtype, void *to, trm_dtype dtype,
                        int64_t count, int32_t divisor) {
    if (from_dtype == dtype && divisor == 1) {
        if (from != to && count > 0) {
            memcpy(to, from, (size_t)count * trm_dtype_bytes(dtype));
        }
        return;
    }
    /* The partial result has the type itself: the kernel for one source divides. */
    if (from_dtype == dtype && trmi_dtype_is_float(dtype)) {
        trmi_reduce_find(dtype, TRM_REDUCTION_MEAN)(&to, 1, &from, 1, count, divisor);
        return;
    }
    /* Half types and integers: divide, then convert to the narrower type. */
    for (int64_t i = 0; i < count; i++) {
        if (is_half(dtype)) {
            float value = ((const float *)from)[i] / (float)divisor;
            ((uint16_t *)to)[i] =
                dtype == TRM_BFLOAT16 ? trmi_float_to_bf16(value) : trmi_float_to_f16(value);
        } else {
            put_integer(to, dtype, i, get_integer(from, from_dtype, i) / divisor);
        }
    }
}
