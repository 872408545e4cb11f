/* exec/onednn/fuse_isa.h: what batch normalisation leaves in the convolutions around it.
 *
 *   before:  the image enters as max(0, x * scale + shift), made while rows are copied into A
 *   after:   a block of sums leaves for the output, and on the way
 *              forward    each channel's statistics are taken
 *              gradient   dz = mask (sums + dy2), and each channel's sum of dz and dz (x - mean)
 *
 * Per block: shifted or plain sums in float32; conv_fuse.c combines blocks in order in double.
 */
#ifndef TRMI_EXEC_ONEDNN_FUSE_ISA_H
#define TRMI_EXEC_ONEDNN_FUSE_ISA_H

#include "trireme/base.h"

/* y = x * scale + shift per channel, then ReLU where `relu`. scale NULL = the image as it is. */
typedef struct trmi_affine {
    const float *scale, *shift;
    bool relu;
} trmi_affine;

/* A block of sums and where it goes: row r, column c of `sums` is element offsets[r] + column + c. */
typedef struct trmi_fuse_block {
    const float *sums;
    int64_t ld;
    const int64_t *offsets;
    int64_t rows, column, count;
    void *out;
    trm_dtype type;
    bool stream; /* past the caches; out 64-byte aligned, columns in multiples of 32 */
} trmi_fuse_block;

/* What the gradient of the norm reads at the places of `out`, and per channel. */
typedef struct trmi_fuse_gradient {
    const void *x;            /* the norm's input */
    const void *y;            /* the mask is y > 0; NULL: x * scale + shift > 0 */
    const void *dy2;          /* added before the mask; NULL = nothing */
    bool relu;                /* false: no mask */
    const float *scale, *shift, *mean;
} trmi_fuse_gradient;

typedef struct trmi_fuse_isa {
    const char *name;
    /* to[r * to_stride + i] = affine(from[r * from_stride + i]); channels from affine's first on. */
    void (*affine_rows)(float *to, int64_t to_stride, const void *from, trm_dtype type,
                        int64_t from_stride, int64_t rows, int64_t count, const trmi_affine *affine);
    /* Over the block's rows, of the rounded values: first[c] = row 0, sum[c] of v - first, square[c]
     * of (v - first)^2, for c < count. */
    void (*statistics)(const trmi_fuse_block *block, float *first, float *sum, float *square);
    void (*gradient)(const trmi_fuse_block *block, const trmi_fuse_gradient *g, float *sum,
                     float *sum_x);
} trmi_fuse_isa;

extern const trmi_fuse_isa trmi_fuse_plain;
#if defined(__x86_64__)
extern const trmi_fuse_isa trmi_fuse_avx2, trmi_fuse_avx512;
#endif
const trmi_fuse_isa *trmi_fuse(void);

#endif
