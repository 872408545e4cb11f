/* exec/update_product_body.h: the rules on parameters whose gradients are products, for update_body.h: a tile of the
 * gradient is made in registers and used there, while what the next tiles need is on its way:
 *
 *      left [s] x right [s, 4 vectors], all s  -->  g [rows][4]  --rule-->  w, slots
 */
enum {
    PRODUCT_ROWS = VL == 8 ? 2 : 4, /* as many as registers hold */
    PRODUCT_VECTORS = 4,
    PRODUCT_AHEAD = 512 /* columns */
};

typedef lane (*lane_rule)(const trmi_rule *rule, lane x);

/* The next rows' elements from this column on, so far ahead as memory takes. */
static inline __attribute__((always_inline)) void product_ask(const trmi_product *p, int64_t row, int64_t column,
                                                              const int rows, const int slots, const float *w,
                                                              const float *s0, const float *s1) {
    column += PRODUCT_AHEAD;
    while (column >= p->columns && row < p->rows) {
        column -= p->columns;
        row += rows;
    }
    for (int i = 0; i < rows; i++) {
        int64_t at = (row + i) * p->step + column;
        for (int j = 0; j < PRODUCT_VECTORS * VL; j += 16) {
            __builtin_prefetch(w + at + j, 1);
            if (slots > 0) {
                __builtin_prefetch(s0 + at + j, 1);
            }
            if (slots > 1) {
                __builtin_prefetch(s1 + at + j, 1);
            }
        }
    }
}

static inline __attribute__((always_inline)) void product_use(const trmi_rule *r, lane_rule rule, const int slots, vf g,
                                                              float *w, float *s0, float *s1, int64_t at, int n) {
    w += at;
    s0 = slots > 0 ? s0 + at : s0;
    s1 = slots > 1 ? s1 + at : s1;
    lane x = {vf_lanes(w, 0, 0, n), g, vf_zero(), vf_zero()};
    x.s0 = slots > 0 ? vf_lanes(s0, 0, 0, n) : x.s0;
    x.s1 = slots > 1 ? vf_lanes(s1, 0, 0, n) : x.s1;
    x = rule(r, x);
    vf_put_lanes(w, 0, 0, n, x.w);
    if (slots > 0) {
        vf_put_lanes(s0, 0, 0, n, x.s0);
    }
    if (slots > 1) {
        vf_put_lanes(s1, 0, 0, n, x.s1);
    }
}

static inline __attribute__((always_inline)) void product_tile(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                                                               const int slots, int64_t row, int64_t column, const int rows,
                                                               float *w, float *s0, float *s1) {
    vf g[PRODUCT_ROWS][PRODUCT_VECTORS];
    const float *left = p->left + row, *right = p->right + column;
    product_ask(p, row, column, rows, slots, w, s0, s1);
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < PRODUCT_VECTORS; j++) {
            g[i][j] = vf_zero();
        }
    }
    for (int64_t s = 0; s < p->factors; s++, left += p->left_step, right += p->right_step) {
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
            for (int j = 0; j < PRODUCT_VECTORS; j++) {
                g[i][j] = vf_fma(vf_set(left[i]), vf_load(right + j * VL), g[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        int64_t at = (row + i) * p->step + column;
#pragma GCC unroll 4
        for (int j = 0; j < PRODUCT_VECTORS; j++) {
            product_use(r, rule, slots, g[i][j], w, s0, s1, at + j * VL, VL);
        }
    }
}

/* `rows` rows, each column of them. */
static inline __attribute__((always_inline)) void product_rows(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                                                               const int slots, int64_t row, const int rows, float *w,
                                                               float *s0, float *s1) {
    int64_t column = 0;
    for (; column + PRODUCT_VECTORS * VL <= p->columns; column += PRODUCT_VECTORS * VL) {
        product_tile(r, p, rule, slots, row, column, rows, w, s0, s1);
    }
    for (; column < p->columns; column += VL) {
        int n = p->columns - column < VL ? (int)(p->columns - column) : VL;
        for (int i = 0; i < rows; i++) {
            int64_t at = (row + i) * p->step + column;
            vf g = vf_zero();
            for (int64_t s = 0; s < p->factors; s++) {
                vf right = vf_lanes(p->right + s * p->right_step + column, 0, 0, n);
                g = vf_fma(vf_set(p->left[s * p->left_step + row + i]), right, g);
            }
            product_use(r, rule, slots, g, w, s0, s1, at, n);
        }
    }
}

static inline __attribute__((always_inline)) void product(const trmi_rule *r, const trmi_product *p, lane_rule rule,
                                                          const int slots, float *w, float *s0, float *s1) {
    int64_t row = 0;
    for (; row + PRODUCT_ROWS <= p->rows; row += PRODUCT_ROWS) {
        product_rows(r, p, rule, slots, row, PRODUCT_ROWS, w, s0, s1);
    }
    for (; row < p->rows; row++) {
        product_rows(r, p, rule, slots, row, 1, w, s0, s1);
    }
}

#define PRODUCT(name)                                                                                           \
    static void name##_product(const trmi_rule *r, const trmi_product *p, float *w, float *s0, float *s1) {    \
        product(r, p, name##_lane, SLOTS_OF_##name, w, s0, s1);                                                 \
    }
PRODUCT(sgd)
PRODUCT(momentum)
PRODUCT(nesterov)
PRODUCT(adam)
PRODUCT(lars)
PRODUCT(adagrad)
PRODUCT(ftrl)

static inline lane take_gradient(const trmi_rule *r, lane x) {
    (void)r;
    x.w = x.g;
    return x;
}
static void multiply(const trmi_product *p, float *out) { product(NULL, p, take_gradient, 0, out, NULL, NULL); }
