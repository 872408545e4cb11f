/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of Winograd convolutions (winograd.h): their number, classes and pixels, prefetches, and
 * the cost model. Tiles at the lower and right edge may have fewer outputs; they then have fewer
 * points xi, so tiles are ordered by class and each product runs over the classes that have its
 * xi. */
#include "exec/cpu/conv/winograd.h"

#include "base/checked.h"

bool trmi_winograd_can(const trmi_conv_problem *p) {
    return p->kh == 3 && p->kw == 3 && p->stride[0] == 1 && p->stride[1] == 1 &&
           p->dilation[0] == 1 && p->dilation[1] == 1 && p->groups == 1 &&
           p->layout == TRMI_CHANNELS_LAST && p->weights_layout == TRMI_CHANNELS_LAST &&
           p->c % 16 == 0 && p->o % 16 == 0 && p->oh * p->ow > 4;
}

/* Returns the outputs of the last tile along a dimension. A single output is computed as two, of
 * which one lies outside the image. */
static int edge_of(int64_t outputs, int size) {
    int rest = (int)(outputs % size);
    return rest == 0 ? size : rest == 1 ? 2 : rest;
}

/* Contract in winograd.h. A gradient of the data is the same computation with the sides exchanged;
 * its padding is the filter's reach (2) less the forward padding. */
void trmi_winograd_tiles_init(trmi_winograd_tiles *t, const trmi_conv_problem *p, int size) {
    bool data = p->direction == TRMI_CONV_DATA;
    trm_dtype in = data ? p->result_type : p->image_type,
              out = data ? p->image_type : p->result_type;
    *t = (trmi_winograd_tiles){
        .size = size,
        .n = p->n,
        .in_h = data ? p->oh : p->h,
        .in_w = data ? p->ow : p->w,
        .in_c = data ? p->o : p->c,
        .out_h = data ? p->h : p->oh,
        .out_w = data ? p->w : p->ow,
        .out_c = data ? p->c : p->o,
        .in_bytes = (int64_t)trm_dtype_bytes(in),
        .out_bytes = (int64_t)trm_dtype_bytes(out),
        .pad_y = data ? 2 - p->pad[0] : p->pad[0],
        .pad_x = data ? 2 - p->pad[2] : p->pad[2],
    };
    t->rows = trmi_pieces(t->out_h, size);
    t->columns = trmi_pieces(t->out_w, size);
    t->count = t->n * t->rows * t->columns;
    t->edge_y = edge_of(t->out_h, size);
    t->edge_x = edge_of(t->out_w, size);
}

/* First pixel of a tile. */
typedef struct place {
    int64_t n, y, x;
} place;

/* Returns image and first output pixel of a tile. */
static place place_of(const trmi_winograd_tiles *t, int64_t tile) {
    int64_t area = t->rows * t->columns, rest = tile % area;
    return (place){tile / area, rest / t->columns * t->size, rest % t->columns * t->size};
}

void trmi_winograd_size(const trmi_winograd_tiles *t, int64_t tile, int *ry, int *rx) {
    place at = place_of(t, tile);
    *ry = at.y == (t->rows - 1) * t->size ? t->edge_y : t->size;
    *rx = at.x == (t->columns - 1) * t->size ? t->edge_x : t->size;
}

/* Returns the class of a tile: inside, lower edge, right edge or corner. */
static int class_of(const trmi_winograd_tiles *t, int64_t tile) {
    int ry, rx;
    trmi_winograd_size(t, tile, &ry, &rx);
    return ry < t->size   ? (rx < t->size ? TRMI_WINO_CORNER : TRMI_WINO_LOWER)
           : rx < t->size ? TRMI_WINO_RIGHT
                          : TRMI_WINO_INSIDE;
}

/* Contract in winograd.h. A counting sort by class of tile: tiles that have the same points become
 * neighbours. */
trmi_winograd_order trmi_winograd_arrange(const trmi_winograd_tiles *t, int64_t first,
                                          int64_t count, int32_t *places) {
    trmi_winograd_order order = {{0}};
    int64_t next[TRMI_WINO_CLASSES];
    if (t->size == 2) { /* one class */
        for (int64_t i = 0; i < count; i++) {
            places[i] = (int32_t)i;
        }
        return (trmi_winograd_order){{0, 0, count, count, count}};
    }
    for (int64_t i = 0; i < count; i++) {
        order.begin[class_of(t, first + i) + 1]++;
    }
    for (int k = 0; k < TRMI_WINO_CLASSES; k++) {
        next[k] = order.begin[k];
        order.begin[k + 1] += order.begin[k];
    }
    for (int64_t i = 0; i < count; i++) {
        places[i] = (int32_t)next[class_of(t, first + i)]++;
    }
    return order;
}

/* Returns whether a tile of r outputs has this point, in one dimension (winograd_isa.h). */
static bool has_point(int r, int64_t point) { return point == 5 || point <= r; }

int32_t trmi_winograd_points(int size, int32_t xi[TRMI_WINO_XI]) {
    int32_t count = 0;
    for (int32_t i = 0; i < TRMI_WINO_XI; i++) {
        if (has_point(size, i / 6) && has_point(size, i % 6)) {
            xi[count++] = i;
        }
    }
    return count;
}

void trmi_winograd_span(const trmi_winograd_tiles *t, const trmi_winograd_order *order, int64_t xi,
                        int64_t *begin, int64_t *end) {
    bool lower = has_point(t->edge_y, xi / 6), right = has_point(t->edge_x, xi % 6);
    *begin = order->begin[lower ? TRMI_WINO_LOWER : TRMI_WINO_INSIDE];
    *end = order->begin[!right ? TRMI_WINO_RIGHT : lower ? TRMI_WINO_CLASSES : TRMI_WINO_CORNER];
}

/* Contract in winograd.h. Pixels outside of the image point to `zero`, so the transforms need no
 * test. */
void trmi_winograd_patch(const trmi_winograd_tiles *t, int64_t tile, const void *input,
                         const void *zero, const void *pixels[TRMI_WINO_IN]) {
    place at = place_of(t, tile);
    const char *image = (const char *)input + at.n * t->in_h * t->in_w * t->in_c * t->in_bytes;
    for (int64_t i = 0; i < 6; i++) {
        int64_t y = at.y - t->pad_y + i;
        for (int64_t j = 0; j < 6; j++) {
            int64_t x = at.x - t->pad_x + j;
            bool inside = y >= 0 && y < t->in_h && x >= 0 && x < t->in_w;
            pixels[6 * i + j] = inside ? image + (y * t->in_w + x) * t->in_c * t->in_bytes : zero;
        }
    }
}

trmi_prefetch trmi_winograd_input_ahead(const trmi_winograd_tiles *t, const void *input,
                                        int64_t first, int64_t last) {
    place from = place_of(t, first), to = place_of(t, last);
    int64_t row = t->in_w * t->in_c * t->in_bytes;
    int64_t begin = from.n * t->in_h + trmi_max_i64(0, from.y - t->pad_y);
    int64_t end = to.n * t->in_h + trmi_min_i64(t->in_h, to.y - t->pad_y + t->size + 2);
    bool any = first <= last && last < t->count && begin < end;
    return trmi_prefetch_rows((const char *)input + begin * row, row, any ? end - begin : 0, row);
}

trmi_prefetch trmi_winograd_output_ahead(const trmi_winograd_tiles *t, const void *output,
                                         int64_t first, int64_t last) {
    place from = place_of(t, first), to = place_of(t, last);
    int64_t row = t->out_w * t->out_c * t->out_bytes;
    int64_t begin = from.n * t->out_h + from.y;
    int64_t end = to.n * t->out_h + trmi_min_i64(t->out_h, to.y + t->size);
    bool any = first <= last && last < t->count && begin < end;
    return trmi_prefetch_rows((const char *)output + begin * row, row, any ? end - begin : 0, row);
}

/* Prefetches `rows` rows of `bytes`, at a distance of `stride` bytes. */
static void prefetch_rows(const char *from, int64_t rows, int64_t bytes, int64_t stride) {
    for (int64_t i = 0; i < rows; i++, from += stride) {
        for (int64_t b = 0; b < bytes; b += 64) {
            __builtin_prefetch(from + b, 0, 3);
        }
    }
}

void trmi_winograd_prefetch(const trmi_winograd_tiles *t, int64_t tile, const void *input) {
    place at = place_of(t, tile);
    int64_t pixel = t->in_c * t->in_bytes;
    int64_t y = trmi_max_i64(0, at.y - t->pad_y + 2), x = trmi_max_i64(0, at.x - t->pad_x + 2);
    prefetch_rows((const char *)input + ((at.n * t->in_h + y) * t->in_w + x) * pixel,
                  trmi_min_i64(t->size, t->in_h - y), trmi_min_i64(t->size, t->in_w - x) * pixel,
                  t->in_w * pixel);
}

void trmi_winograd_prefetch_output(const trmi_winograd_tiles *t, int64_t tile, const void *output) {
    place at = place_of(t, tile);
    int64_t pixel = t->out_c * t->out_bytes;
    prefetch_rows((const char *)output + ((at.n * t->out_h + at.y) * t->out_w + at.x) * pixel,
                  trmi_min_i64(t->size, t->out_h - at.y),
                  trmi_min_i64(t->size, t->out_w - at.x) * pixel, t->out_w * pixel);
}

/* Contract in winograd.h. Pixels beyond the image point to `outside`, which is written and not
 * read. */
void trmi_winograd_outputs(const trmi_winograd_tiles *t, int64_t tile, void *output, void *outside,
                           void *pixels[TRMI_WINO_OUT]) {
    place at = place_of(t, tile);
    uintptr_t image =
        (uintptr_t)output + (uintptr_t)(at.n * t->out_h * t->out_w * t->out_c * t->out_bytes);
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 4; j++) {
            int64_t y = at.y + i, x = at.x + j;
            bool inside = y < t->out_h && x < t->out_w;
            pixels[4 * i + j] =
                inside ? (void *)(image + (uintptr_t)((y * t->out_w + x) * t->out_c * t->out_bytes))
                       : outside;
        }
    }
}

/* Returns the FLOPs of the products. */
static double product_flops(const trmi_conv_problem *p, int size) {
    trmi_winograd_tiles t;
    trmi_winograd_tiles_init(&t, p, size);
    double y = (double)((t.rows - 1) * (size + 2) + t.edge_y + 2),
           x = (double)((t.columns - 1) * (size + 2) + t.edge_x + 2);
    return 2.0 * (double)t.n * y * x * (double)p->c * (double)p->o;
}

/* Additions and multiplications of the one-dimensional transforms for 2, 3, 4 outputs
 * (winograd_kernels.c). */
static const int input_flops[3] = {7, 19, 20}, output_flops[3] = {4, 9, 13},
                 gradient_flops[3] = {2, 7, 11};
/* FLOPs of the transform of weights, from 3x3 to points or back. */
enum { WEIGHTS_FLOPS = 9 * 14 }; /* either way, of one weight's 3x3 */

/* Returns the FLOPs of the transforms of one channel of a tile of ry x rx outputs: `down`
 * one-dimensional transforms along columns, then `across` along rows. */
static double flops_of(const int flops[3], int ry, int rx, int down, int across) {
    return (double)(down * flops[ry - 2] + across * flops[rx - 2]);
}

/* Contract in winograd.h. `gain`: how many times faster pairs are multiplied; transforms are
 * computed in float32 always and do not gain. */
double trmi_winograd_all_work(const trmi_conv_problem *p, int size, double gain) {
    trmi_winograd_tiles t;
    trmi_winograd_tiles_init(&t, p, size);
    bool weights = p->direction == TRMI_CONV_WEIGHTS;
    double flops = 0;
    for (int i = 0; i < 4; i++) {
        bool lower = i / 2, right = i % 2; /* the last tile of a column, of a row; or all others */
        int ry = lower ? t.edge_y : size, rx = right ? t.edge_x : size;
        double tiles =
            (double)t.n * (double)((lower ? 1 : t.rows - 1) * (right ? 1 : t.columns - 1));
        double in = flops_of(input_flops, ry, rx, rx + 2, ry + 2);
        double out = weights ? flops_of(gradient_flops, ry, rx, rx, ry + 2)
                             : flops_of(output_flops, ry, rx, rx + 2, ry);
        flops += tiles * (in * (double)t.in_c + out * (double)t.out_c);
    }
    return product_flops(p, size) / gain + flops + (double)p->c * (double)p->o * WEIGHTS_FLOPS;
}

double trmi_winograd_float_work(const trmi_conv_problem *p) {
    return trmi_winograd_all_work(p, 4, 1);
}

/* Arithmetic bounds the transform of weights while U stays in a cache; beyond that, memory does. */
enum { CACHED_BYTES = 4 << 20 };
static const double weight_seconds = 3e-9;

/* Predicts the seconds of the transform of `weights` filters to `bytes` of U. */
static double weights_seconds(double weights, double bytes) {
    double beyond = bytes - CACHED_BYTES;
    return weights * weight_seconds + (beyond > 0 ? beyond * 2 / 8e9 : 0);
}

/* Contract in winograd.h. Transforms are priced at 3e9 operations a second; all threads share the
 * work, and a run takes 15 us beyond it. */
double trmi_winograd_seconds(const trmi_conv_problem *p, int size, size_t bytes, double rate,
                             double transform, int threads) {
    trmi_winograd_tiles t;
    trmi_winograd_tiles_init(&t, p, size);
    double c = (double)p->c, o = (double)p->o, tiles = (double)t.count,
           points = (double)((size + 2) * (size + 2));
    double products = product_flops(p, size) / rate;
    double transforms =
        tiles * (c + o) * transform / 3e9 + weights_seconds(c * o, c * o * points * (double)bytes);
    return (products + transforms) / threads + 15e-6;
}
