/* exec/onednn/pool_body.h: pooling of one output row, a vector of channels at a time. */

/* Columns [begin, end) of the window of output column `at` that are inside the image. */
INLINE void window_columns(const trmi_pool_row *r, int64_t at, int64_t *begin, int64_t *end) {
    int64_t w = at * r->stride - r->pad;
    *begin = w < 0 ? 0 : w;
    *end = w + r->kernel > r->width ? r->width : w + r->kernel;
}

INLINE float window_scale(const trmi_pool_row *r, int64_t columns) {
    int64_t size = r->count_padding ? r->kernel_rows * r->kernel : (r->last - r->first) * columns;
    return 1.0f / (float)size;
}

INLINE void pool_loop(const trmi_pool_row *r, const void *x, void *y, int half, int max) {
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        vf scale = vf_set(window_scale(r, end - begin));
        for (int64_t c = 0; c < r->channels; c += VL) {
            int n = r->channels - c < VL ? (int)(r->channels - c) : VL;
            vf sum = max ? vf_set(-INFINITY) : vf_zero();
            for (int64_t h = r->first; h < r->last; h++) {
                for (int64_t w = begin; w < end; w++) {
                    vf v = lanes_of(x, (h * r->width + w) * r->channels + c, half, n);
                    sum = max ? larger(sum, v) : vf_add(sum, v);
                }
            }
            vf_put_n(y, o * r->channels + c, half, n, max ? sum : vf_mul(sum, scale));
        }
    }
}
static void max_pool_row(const trmi_pool_row *r, const void *x, void *y) {
    if (r->half) {
        pool_loop(r, x, y, 1, 1);
    } else {
        pool_loop(r, x, y, 0, 1);
    }
}
static void avg_pool_row(const trmi_pool_row *r, const void *x, void *y) {
    if (r->half) {
        pool_loop(r, x, y, 1, 0);
    } else {
        pool_loop(r, x, y, 0, 0);
    }
}

/* dy goes to the first element of the window that equals the maximum: after it nothing is left. */
INLINE void max_pool_grad_loop(const trmi_pool_row *r, const void *dy, const void *x, const void *y,
                               float *const *dx, int64_t c0, int64_t channels, int half) {
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        for (int64_t c = 0; c < channels; c += VL) {
            int n = channels - c < VL ? (int)(channels - c) : VL;
            vf left = lanes_of(dy, o * r->channels + c0 + c, half, n);
            vf most = lanes_of(y, o * r->channels + c0 + c, half, n);
            for (int64_t h = r->first; h < r->last; h++) {
                for (int64_t w = begin; w < end; w++) {
                    vf v = lanes_of(x, (h * r->width + w) * r->channels + c0 + c, half, n);
                    vm equal = vf_eq(v, most);
                    float *to = dx[h - r->first] + w * channels + c;
                    vf_put_n(to, 0, 0, n, vf_add(lanes_of(to, 0, 0, n), vf_keep(equal, left)));
                    left = vf_select(equal, vf_zero(), left);
                }
            }
        }
    }
}
static void max_pool_grad_row(const trmi_pool_row *r, const void *dy, const void *x, const void *y,
                              float *const *dx, int64_t c, int64_t n) {
    if (r->half) {
        max_pool_grad_loop(r, dy, x, y, dx, c, n, 1);
    } else {
        max_pool_grad_loop(r, dy, x, y, dx, c, n, 0);
    }
}

static void avg_pool_grad_row(const trmi_pool_row *r, const void *dy, float *const *dx, int64_t c0,
                              int64_t channels) {
    for (int64_t o = 0; o < r->out_width; o++) {
        int64_t begin, end;
        window_columns(r, o, &begin, &end);
        vf scale = vf_set(window_scale(r, end - begin));
        for (int64_t c = 0; c < channels; c += VL) {
            int n = channels - c < VL ? (int)(channels - c) : VL;
            vf d = vf_mul(lanes_of(dy, o * r->channels + c0 + c, r->half, n), scale);
            for (int64_t h = r->first; h < r->last; h++) {
                for (int64_t w = begin; w < end; w++) {
                    float *to = dx[h - r->first] + w * channels + c;
                    vf_put_n(to, 0, 0, n, vf_add(lanes_of(to, 0, 0, n), d));
                }
            }
        }
    }
}
