/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/gemm/gemm_isa_pairs.h: rows and panels of bfloat16 pairs; the part of gemm_kernels.c
 * that differs where the tile multiplies pairs (PAIRS). gemm_kernels.c includes it once, after its
 * vectors (vec, vec_bits, NR).
 *
 * A pair is two neighbouring elements along k, the summed dimension, in one 32-bit lane: the first
 * in the low half. So rows have half as many lanes as elements, and an odd last element is paired
 * with zero. */

/* Numbers in one float of a row or panel. */
enum { PAIR = 2 };

/* Returns vector i of `from` as bfloat16 bits in the low halves. */
TRMI_INLINE vec_bits half_bits(const void *from, const trm_dtype type, int64_t i) {
    if (type == TRM_BFLOAT16) {
        return load_low((const uint16_t *)from + i);
    }
    vec_bits bits = (vec_bits)(vec) * (const vec_memory *)((const float *)from + i);
    vec_bits nan = (vec_bits)((bits & 0x7FFFFFFFu) > 0x7F800000u);
    vec_bits rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    return (nan & (bits >> 16 | 0x40u)) | (~nan & rounded);
}

/* Returns element i as the 16 bits of a bfloat16. */
TRMI_INLINE uint32_t half_bits_one(const void *from, trm_dtype type, int64_t i) {
    return type == TRM_BFLOAT16 ? ((const uint16_t *)from)[i]
                                : trmi_float_to_bf16(((const float *)from)[i]);
}

/* Copies a row as bfloat16, whose pairs the tile multiplies; float32 is rounded on the way. */
static void widen_row(void *to, const void *from, trm_dtype type, int64_t count) {
    if (type == TRM_BFLOAT16) {
        memcpy(to, from, (size_t)count * 2);
    } else {
        narrow_row(to, TRM_BFLOAT16, from, NULL, count);
    }
}

/* Copies rows as widen_row does; strides in elements of each side. */
static void widen_rows(float *to, int64_t to_stride, const void *from, trm_dtype type,
                       int64_t from_stride, int64_t rows, int64_t count) {
    const char *row = from;
    for (int64_t r = 0; r < rows; r++, to += to_stride) {
        widen_row(to, row, type, count);
        row += from_stride * (type == TRM_BFLOAT16 ? 2 : 4);
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Packs k rows of a panel as pairs of bfloat16: element j of rows p and p + 1 lie in one 32-bit
 * lane, the form that dot-product instructions read. An odd last row is paired with zeros, and
 * columns from `columns` on are zeros. */
TRMI_INLINE void pack_as(float *to, const void *from, const trm_dtype type, int64_t ld, int64_t k,
                         int columns) {
    const char *row = from;
    int64_t step = ld * (type == TRM_BFLOAT16 ? 2 : 4);
    int64_t p = 0;
#ifdef PAIR_ROWS
    for (; type == TRM_BFLOAT16 && columns == NR && p + 2 <= k; p += 2, row += 2 * step, to += NR) {
        PAIR_ROWS(to, row, row + step);
    }
#endif
    for (; p < k; p += 2, row += 2 * step, to += NR) {
        bool last = p + 1 == k;
        int j = 0;
#ifdef __AVX512BF16__
        for (; type == TRM_FLOAT32 && !last && j + VL <= columns; j += VL) {
            *(vec_memory *)(to + j) =
                round_pair(load_any(row, type, j), load_any(row + step, type, j));
        }
#endif
        for (; j + VL <= columns; j += VL) {
            vec_bits low = half_bits(row, type, j);
            vec_bits high = last ? (vec_bits){0} : half_bits(row + step, type, j);
            *(vec_memory *)(to + j) = (vec)(low | high << 16);
        }
        for (; j < NR; j++) {
            uint32_t low = j < columns ? half_bits_one(row, type, j) : 0;
            uint32_t high = j < columns && !last ? half_bits_one(row + step, type, j) : 0;
            uint32_t both = low | high << 16;
            memcpy(to + j, &both, 4);
        }
    }
}

/* Packs a panel of pairs with a constant for the type. */
static void pack_panel(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k,
                       int columns) {
    if (type == TRM_BFLOAT16) {
        pack_as(to, from, TRM_BFLOAT16, ld, k, columns);
    } else {
        pack_as(to, from, TRM_FLOAT32, ld, k, columns);
    }
}

/* Rounds k numbers of a row to pairs, two vectors at a time; of an odd k the last pair has a
 * zero. */
TRMI_INLINE void round_row(float *to, const void *from, const trm_dtype type, int64_t k) {
    int64_t i = 0, bytes = type == TRM_BFLOAT16 ? 2 : 4;
    for (; type == TRM_FLOAT32 && i + 2 * VL <= k; i += 2 * VL) {
        vec low = load_any(from, type, i), high = load_any(from, type, i + VL);
        *(vec_memory *)(to + i / 2) = (vec)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    }
    if (i < k) {
        uint16_t end[2 * TRMI_TILE_K + 2];
        end[k - i] = 0;
        widen_row(end, (const char *)from + i * bytes, type, k - i);
        memcpy(to + i / 2, end, (size_t)((k - i + 1) / 2) * sizeof *to);
    }
}

/* Columns of k are contiguous here: of bfloat16 they are pairs already, which are turned as floats
 * would be; others are rounded into lines first. k is at most twice TRMI_TILE_K. Columns are as far
 * apart as rows of the matrix, which the CPU does not prefetch by itself. */
static void pack_transposed(float *to, const void *from, trm_dtype type, int64_t ld, int64_t k,
                            int columns) {
    enum { LINE = TRMI_TILE_K + 1, AHEAD = 2, CACHE_LINE = 64 };
    if (type == TRM_BFLOAT16 && ld % 2 == 0 && k % 2 == 0) {
        pack_transposed_as(to, from, TRM_FLOAT32, ld / 2, k / 2, columns);
        return;
    }
    int64_t bytes = type == TRM_BFLOAT16 ? 2 : 4;
    float lines[NR * LINE];
    for (int j = 0; j < columns; j++) {
        const char *row = (const char *)from + j * ld * bytes;
        for (int64_t at = 0; j + AHEAD < columns && at < k * bytes; at += CACHE_LINE) {
            __builtin_prefetch(row + AHEAD * ld * bytes + at);
        }
        if (type == TRM_BFLOAT16) {
            round_row(lines + j * LINE, row, TRM_BFLOAT16, k);
        } else {
            round_row(lines + j * LINE, row, TRM_FLOAT32, k);
        }
    }
    pack_transposed_as(to, lines, TRM_FLOAT32, LINE, (k + 1) / 2, columns);
}

/* Deals `count` pairs at the end of rows. */
TRMI_INLINE void deal_end(float *to, const int room, const uint16_t *even, const uint16_t *odd,
                          int64_t count) {
#if VL == 16 && defined(__AVX512BW__) && defined(__AVX512VL__)
    UNROLL for (int j = 0; j < room; j += VL) {
        __mmask16 there = count - j >= VL ? 0xFFFF
                          : count <= j    ? 0
                                          : (__mmask16)((1u << (count - j)) - 1);
        __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, even + j));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, odd + j));
        _mm512_storeu_si512(to + j, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
#else
    for (int j = 0; j < count; j++) {
        uint32_t both = even[j] | (uint32_t)odd[j] << 16;
        memcpy(to + j, &both, 4);
    }
#endif
}

/* `room` floats of a panel's row at a time; columns beyond `width` there belong to the next panel,
 * or to none. */
TRMI_INLINE void deal_as(float *to, int64_t panel, int width, const int room, const uint16_t *even,
                         const uint16_t *odd, int64_t count) {
    int64_t i = 0;
    for (; i + room <= count; i += width, to += panel) {
#ifdef PAIR_ROWS
        if (room == NR) {
            PAIR_ROWS(to, even + i, odd + i);
            continue;
        }
#endif
        UNROLL for (int j = 0; j < room; j += VL) {
            vec_bits low = half_bits(even, TRM_BFLOAT16, i + j),
                     high = half_bits(odd, TRM_BFLOAT16, i + j);
            *(vec_memory *)(to + j) = (vec)(low | high << 16);
        }
    }
    for (; i < count; i += width, to += panel) {
        deal_end(to, room, even + i, odd + i, count - i < width ? count - i : width);
    }
}

/* Interleaves two rows to pairs. The two widths that occur (a vector, a whole panel) are
 * constants. */
static void deal_pairs(float *to, int64_t panel, int width, int room, const uint16_t *even,
                       const uint16_t *odd, int64_t count) {
    if (room == VL) {
        deal_as(to, panel, width, VL, even, odd, count);
    } else {
        deal_as(to, panel, width, NR, even, odd, count);
    }
}
