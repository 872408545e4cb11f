/* SPDX-License-Identifier: Apache-2.0 */
/* exec/cpu/conv/winograd.h: shared by the Winograd convolutions of all directions: images are cut
 * into 4x4 output tiles with 6x6 input patches. Tiles at the edges have fewer products, so a block
 * of tiles is kept in the order
 *
 *      lower edge | inside | right edge | corner
 *
 * in which the tiles that have a product xi are contiguous, for every xi. */
#ifndef TRMI_EXEC_CPU_WINOGRAD_H
#define TRMI_EXEC_CPU_WINOGRAD_H

#include "exec/cpu/conv/conv.h"
#include "exec/cpu/gemm/gemm_isa.h"
#include "exec/cpu/conv/winograd_isa.h"

/* The tiles of an image, how many there are of each class, and the sizes of images. */
typedef struct trmi_winograd_tiles {
    int size; /* 4; or 2, whose xi are those of a 2 x 2 edge */
    int64_t n, in_h, in_w, in_c, out_h, out_w, out_c;
    int64_t in_bytes, out_bytes;  /* of an element */
    int64_t pad_y, pad_x;         /* tile (i, j) begins at input (size i - pad_y, size j - pad_x) */
    int64_t rows, columns, count; /* tiles per image, tiles in all */
    int edge_y, edge_x;           /* outputs of the last tile of a column, of a row: 2, 3 or 4 */
} trmi_winograd_tiles;

enum { TRMI_WINO_LOWER, TRMI_WINO_INSIDE, TRMI_WINO_RIGHT, TRMI_WINO_CORNER, TRMI_WINO_CLASSES };
/* Where the tiles of each class begin in a block; the last entry is the number of tiles. */
typedef struct trmi_winograd_order {
    int64_t begin[TRMI_WINO_CLASSES + 1];
} trmi_winograd_order;

/* Returns whether Winograd applies: 3x3, stride 1, no dilation, channels last, one group, channels
 * in multiples of 16. */
bool trmi_winograd_can(const trmi_conv_problem *p);
/* Lists the xi that tiles of size x size outputs have; returns their number. */
int32_t trmi_winograd_points(int size, int32_t xi[TRMI_WINO_XI]);
/* Returns the FLOPs of products (divided by `gain`, their speed relative to float32) and
 * transforms. */
double trmi_winograd_all_work(const trmi_conv_problem *p, int size, double gain);
double trmi_winograd_float_work(const trmi_conv_problem *p); /* of tiles of 4 in float32 */
/* Predicts the seconds: products at `rate` FLOP/s, `transform` operations for each channel of a
 * tile, transformed weights of `bytes` an element. */
double trmi_winograd_seconds(const trmi_conv_problem *p, int size, size_t bytes, double rate,
                             double transform, int threads);
/* Cuts the images of a problem into tiles of size x size. */
void trmi_winograd_tiles_init(trmi_winograd_tiles *t, const trmi_conv_problem *p, int size);
/* Writes the number of outputs of a tile in each dimension. */
void trmi_winograd_size(const trmi_winograd_tiles *t, int64_t tile, int *ry, int *rx);
/* Orders tiles [first, first + count): places[i] is the position of tile first + i in the block. */
trmi_winograd_order trmi_winograd_arrange(const trmi_winograd_tiles *t, int64_t first,
                                          int64_t count, int32_t *places);
/* Writes the range [begin, end) of positions whose tiles have the product `xi`. */
void trmi_winograd_span(const trmi_winograd_tiles *t, const trmi_winograd_order *order, int64_t xi,
                        int64_t *begin, int64_t *end);
/* Writes the addresses of a patch's pixels; `zero` (in_c zeros) for those outside the image. */
void trmi_winograd_patch(const trmi_winograd_tiles *t, int64_t tile, const void *input,
                         const void *zero, const void *pixels[TRMI_WINO_IN]);
/* Returns a prefetch of the image rows that the patches of tiles first .. last read; below,
 * of their output pixels. Empty if there are no such tiles. */
trmi_prefetch trmi_winograd_input_ahead(const trmi_winograd_tiles *t, const void *input,
                                        int64_t first, int64_t last);
trmi_prefetch trmi_winograd_output_ahead(const trmi_winograd_tiles *t, const void *output,
                                         int64_t first, int64_t last);
/* Prefetches the pixels of a patch that the tiles before it have not read. */
void trmi_winograd_prefetch(const trmi_winograd_tiles *t, int64_t tile, const void *input);
/* Prefetches the pixels of an output tile. */
void trmi_winograd_prefetch_output(const trmi_winograd_tiles *t, int64_t tile, const void *output);
/* Writes the addresses of an output tile's pixels; `outside` (NULL or zeros) for those outside. */
void trmi_winograd_outputs(const trmi_winograd_tiles *t, int64_t tile, void *output, void *outside,
                           void *pixels[TRMI_WINO_OUT]);

#endif
