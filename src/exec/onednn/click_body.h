/* exec/onednn/click_body.h: inner products of all pairs of one sample's rows; bags. Included by
 * memory_body.h once per instruction set. */

enum { PAIRS_TILE = 32 /* columns at a time */ };

/* y[i (i - 1) / 2 + j] = <x_i, x_j>, j < i: vectors run along j, over a transposed tile. */
static void pair_dots(const float *x, float *y, int64_t rows, int64_t width) {
    float turned[PAIRS_TILE][TRMI_PAIRS_ROWS_MAX];
    for (int64_t begin = 0; begin < width; begin += PAIRS_TILE) {
        int64_t n = width - begin < PAIRS_TILE ? width - begin : PAIRS_TILE;
        for (int64_t j = 0; j < rows; j++) {
            for (int64_t k = 0; k < n; k++) {
                turned[k][j] = x[j * width + begin + k];
            }
        }
        for (int64_t i = 1; i < rows; i++) {
            const float *own = x + i * width + begin;
            float *to = y + i * (i - 1) / 2;
            for (int64_t j = 0; j < i; j += VL) {
                int lanes = (int)(i - j < VL ? i - j : VL);
                vf sum = begin == 0 ? vf_zero() : vf_lanes(to, j, 0, lanes);
                for (int64_t k = 0; k < n; k++) {
                    sum = vf_fma(vf_set(own[k]), vf_lanes(turned[k], j, 0, lanes), sum);
                }
                vf_put_lanes(to, j, 0, lanes, sum);
            }
        }
    }
}

/* dx_i = sum over j of d(i, j) x_j, with d symmetric. */
static void pair_dots_grad(const float *dy, const float *x, float *dx, int64_t rows, int64_t width) {
    float d[TRMI_PAIRS_ROWS_MAX][TRMI_PAIRS_ROWS_MAX];
    for (int64_t i = 0; i < rows; i++) {
        d[i][i] = 0;
        for (int64_t j = 0; j < i; j++) {
            d[i][j] = d[j][i] = *dy++;
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < width; k += VL) {
            int lanes = (int)(width - k < VL ? width - k : VL);
            vf sum = vf_zero();
            for (int64_t j = 0; j < rows; j++) {
                sum = vf_fma(vf_set(d[i][j]), vf_lanes(x, j * width + k, 0, lanes), sum);
            }
            vf_put_lanes(dx, i * width + k, 0, lanes, sum);
        }
    }
}

/* into += scale * x. */
static void add_scaled(float *into, const float *x, int64_t count, float scale) {
    VF_LOOP(count, vf_store(into + i, vf_fma(vf_set(scale), vf_load(x + i), vf_load(into + i))),
            vf_store_n(into + i, n, vf_fma(vf_set(scale), vf_load_n(x + i, n), vf_load_n(into + i, n))));
}
