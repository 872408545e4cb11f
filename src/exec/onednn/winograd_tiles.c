#include "exec/onednn/winograd.h"

#include "base/checked.h"

bool trmi_winograd_can(const trmi_conv_problem *p) {
    return p->kh == 3 && p->kw == 3 && p->stride[0] == 1 && p->stride[1] == 1 &&
           p->dilation[0] == 1 && p->dilation[1] == 1 && p->groups == 1 &&
           p->layout == TRMI_CHANNELS_LAST && p->weights_layout == TRMI_CHANNELS_LAST &&
           p->c % 16 == 0 && p->o % 16 == 0 && p->oh * p->ow > 4;
}

void trmi_winograd_tiles_init(trmi_winograd_tiles *t, const trmi_conv_problem *p) {
    bool data = p->direction == TRMI_CONV_DATA;
    trm_dtype in = data ? p->result_type : p->image_type, out = data ? p->image_type : p->result_type;
    *t = (trmi_winograd_tiles){
        .n = p->n,
        .in_h = data ? p->oh : p->h, .in_w = data ? p->ow : p->w, .in_c = data ? p->o : p->c,
        .out_h = data ? p->h : p->oh, .out_w = data ? p->w : p->ow, .out_c = data ? p->c : p->o,
        .in_bytes = (int64_t)trm_dtype_bytes(in), .out_bytes = (int64_t)trm_dtype_bytes(out),
        .pad_y = data ? 2 - p->pad[0] : p->pad[0], .pad_x = data ? 2 - p->pad[2] : p->pad[2],
    };
    t->rows = (t->out_h + 3) / 4;
    t->columns = (t->out_w + 3) / 4;
    t->count = t->n * t->rows * t->columns;
}

/* First pixel of a tile. */
typedef struct place {
    int64_t n, y, x;
} place;

static place place_of(const trmi_winograd_tiles *t, int64_t tile) {
    int64_t area = t->rows * t->columns, rest = tile % area;
    return (place){tile / area, rest / t->columns * 4, rest % t->columns * 4};
}

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

trmi_prefetch trmi_winograd_input_ahead(const trmi_winograd_tiles *t, const void *input, int64_t first,
                                        int64_t last) {
    place from = place_of(t, first), to = place_of(t, last);
    int64_t row = t->in_w * t->in_c * t->in_bytes;
    int64_t begin = from.n * t->in_h + trmi_max_i64(0, from.y - t->pad_y);
    int64_t end = to.n * t->in_h + trmi_min_i64(t->in_h, to.y - t->pad_y + 6);
    bool any = first <= last && last < t->count && begin < end;
    return trmi_prefetch_rows((const char *)input + begin * row, row, any ? end - begin : 0, row);
}

trmi_prefetch trmi_winograd_output_ahead(const trmi_winograd_tiles *t, const void *output, int64_t first,
                                         int64_t last) {
    place from = place_of(t, first), to = place_of(t, last);
    int64_t row = t->out_w * t->out_c * t->out_bytes;
    int64_t begin = from.n * t->out_h + from.y;
    int64_t end = to.n * t->out_h + trmi_min_i64(t->out_h, to.y + 4);
    bool any = first <= last && last < t->count && begin < end;
    return trmi_prefetch_rows((const char *)output + begin * row, row, any ? end - begin : 0, row);
}

void trmi_winograd_outputs(const trmi_winograd_tiles *t, int64_t tile, void *output, void *outside,
                           void *pixels[TRMI_WINO_OUT]) {
    place at = place_of(t, tile);
    uintptr_t image = (uintptr_t)output + (uintptr_t)(at.n * t->out_h * t->out_w * t->out_c * t->out_bytes);
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 4; j++) {
            int64_t y = at.y + i, x = at.x + j;
            bool inside = y < t->out_h && x < t->out_w;
            pixels[4 * i + j] = inside ? (void *)(image + (uintptr_t)((y * t->out_w + x) * t->out_c *
                                                                          t->out_bytes))
                                       : outside;
        }
    }
}

double trmi_winograd_work(const trmi_conv_problem *p) {
    trmi_winograd_tiles t;
    trmi_winograd_tiles_init(&t, p);
    return 2.0 * TRMI_WINO_XI * (double)t.count * (double)p->c * (double)p->o;
}
