/* Convolutions with batch normalisation's ends fused, each algorithm by itself, against the same in
 * double: the image through scale, shift and ReLU; the result's statistics; the norm's gradient. */
#include "exec/onednn/conv_check.h"

static trmi_backend *backend;

static int setup(void **state) {
    trm_error err;
    return trmi_backend_onednn(2, NULL, &backend, &err) == TRM_OK ? 0 : -1;
}
static int teardown(void **state) {
    backend->destroy(backend);
    return 0;
}

/* Per-channel vectors and whole tensors beside the convolution's own. */
typedef struct extras {
    float *scale, *shift, *mean;
    double *x, *y, *dy2, *sum, *sum_x;
    void *stored_x, *stored_y, *stored_dy2;
} extras;

static float *channel_vector(int64_t count, float low, float high) {
    float *v = trmi_alloc((size_t)count * sizeof *v);
    for (int64_t i = 0; i < count; i++) {
        float u = trmi_unit_float(trmi_random_u32(9, TRMI_STREAM_TEST, check_counter++));
        v[i] = low + (high - low) * u;
    }
    return v;
}

static void *stored(const trmi_conv_problem *p, const double *v) {
    int64_t dim[4] = {p->n, p->c, p->h, p->w};
    void *to = trmi_alloc((size_t)trmi_conv_image_count(p) * 4);
    check_store(v, to, p->image_type, dim, p->layout, false);
    return to;
}

static extras make_extras(const trmi_conv_problem *p) {
    int64_t most = p->c > p->o ? p->c : p->o, count = trmi_conv_image_count(p);
    extras e = {.scale = channel_vector(most, -1, 2), .shift = channel_vector(most, -1, 1),
                .mean = channel_vector(most, -1, 1)};
    e.x = check_values(count, p->image_type, true);
    e.y = check_values(count, p->image_type, true);
    e.dy2 = check_values(count, p->image_type, true);
    e.sum = trmi_alloc((size_t)most * sizeof *e.sum);
    e.sum_x = trmi_alloc((size_t)most * sizeof *e.sum_x);
    e.stored_x = stored(p, e.x), e.stored_y = stored(p, e.y), e.stored_dy2 = stored(p, e.dy2);
    return e;
}

static void free_extras(extras *e) {
    void *all[] = {e->scale, e->shift, e->mean, e->x, e->y, e->dy2, e->sum, e->sum_x,
                   e->stored_x, e->stored_y, e->stored_dy2};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        trmi_free(all[i]);
    }
}

static int64_t channel_of(const trmi_conv_problem *p, int64_t i) { return i / (p->h * p->w) % p->c; }

/* The image as it enters. */
static void through_affine(const trmi_conv_problem *p, const extras *e, bool relu, double *image) {
    for (int64_t i = 0; i < trmi_conv_image_count(p); i++) {
        int64_t c = channel_of(p, i);
        image[i] = image[i] * (double)e->scale[c] + (double)e->shift[c];
        image[i] = relu && image[i] < 0 ? 0 : image[i];
    }
}

/* What leaves, from dx. `variant`: bit 0 ReLU, bit 1 the mask comes from y, bit 2 dy2 is there. */
static void norm_gradient(const trmi_conv_problem *p, const extras *e, int variant, double *image) {
    for (int64_t i = 0; i < trmi_conv_image_count(p); i++) {
        int64_t c = channel_of(p, i);
        double decides = variant & 2 ? e->y[i] : e->x[i] * (double)e->scale[c] + (double)e->shift[c];
        image[i] += variant & 4 ? e->dy2[i] : 0;
        image[i] = variant & 1 && decides <= 0 ? 0 : image[i];
    }
}

/* Sums over what the algorithm wrote, as a reader of it would take them. */
static void check_sums(const trmi_conv_problem *p, const conv_memory *m, const extras *e,
                       const char *name) {
    bool forward = p->epilogue == TRMI_CONV_STATISTICS;
    int64_t dim[4] = {p->n, forward ? p->o : p->c, forward ? p->oh : p->h, forward ? p->ow : p->w};
    int64_t count = dim[0] * dim[1] * dim[2] * dim[3], area = dim[2] * dim[3];
    double *v = trmi_alloc((size_t)count * sizeof *v);
    check_load(forward ? m->result : m->image, v, forward ? p->result_type : p->image_type, dim,
               p->layout, false);
    for (int64_t c = 0; c < dim[1]; c++) {
        double sum = 0, second = 0, size = 1e-30, rows = (double)(dim[0] * area);
        for (int64_t i = 0; i < dim[0] * area; i++) {
            int64_t at = (i / area * dim[1] + c) * area + i % area;
            double x = forward ? 0 : e->x[at] - (double)e->mean[c];
            sum += v[at];
            second += forward ? 0 : v[at] * x;
            size += fabs(v[at]);
        }
        double first = forward ? sum / rows : sum;
        for (int64_t i = 0; forward && i < dim[0] * area; i++) {
            double d = v[(i / area * dim[1] + c) * area + i % area] - first;
            second += d * d;
        }
        double scale1 = forward ? size / rows : size, scale2 = forward ? second + 1e-20 : 2 * size;
        if (fabs(e->sum[c] - first) > 1e-5 * scale1 || fabs(e->sum_x[c] - second) > 3e-5 * scale2) {
            fail_msg("%s: channel %d: sums %g %g, expected %g %g", name, (int)c, e->sum[c],
                     e->sum_x[c], first, second);
        }
    }
    trmi_free(v);
}

static void check(trmi_conv_problem p, int variant, double tolerance) {
    conv_data t = check_make(&p);
    extras e = make_extras(&p);
    char key[320];
    int ran = 0;
    trmi_conv_key(&p, key, sizeof key);
    conv_memory first = check_memory(&p, &t);
    if (p.affine) {
        through_affine(&p, &e, variant & 1, t.image);
    }
    check_naive(&p, &t);
    if (p.epilogue == TRMI_CONV_NORM_GRAD) {
        norm_gradient(&p, &e, variant, t.image);
    }
    for (int i = 0; trmi_conv_algorithms[i] != NULL; i++) {
        const trmi_conv_algorithm *algorithm = trmi_conv_algorithms[i];
        trm_error err;
        void *state;
        int64_t bytes;
        if (!algorithm->can(&p)) {
            continue;
        }
        ran++;
        CHECK_OK(algorithm->create(trmi_onednn_of(backend), &p, &state, &bytes, &err), err);
        char *scratch = trmi_alloc((size_t)bytes);
        memset(scratch, 0xFF, (size_t)bytes);
        trmi_conv_args args = check_args(&first, scratch);
        args.affine = p.affine ? (trmi_affine){e.scale, e.shift, variant & 1} : (trmi_affine){0};
        args.norm = (trmi_fuse_gradient){.x = e.stored_x, .y = variant & 2 ? e.stored_y : NULL,
                                         .dy2 = variant & 4 ? e.stored_dy2 : NULL,
                                         .relu = variant & 1, .scale = e.scale, .shift = e.shift,
                                         .mean = e.mean};
        args.sum = e.sum, args.sum_x = e.sum_x;
        CHECK_OK(algorithm->run(state, &args, &err), err);
        algorithm->destroy(state);
        trmi_free(scratch);
        double error = check_compare(&p, &t, &first);
        if (!(error <= tolerance)) {
            fail_msg("%s by %s: relative error %g, at most %g", key, algorithm->name, error, tolerance);
        }
        if (p.epilogue != TRMI_CONV_PLAIN) {
            check_sums(&p, &first, &e, key);
        }
    }
    assert_true(ran >= 1);
    check_memory_free(&first);
    free_extras(&e);
    check_free(&t);
}

/* n, c, hw, o, k, s, pad: Winograd with edges and small images, wide and tall products, groups of
 * positions, pixels that no tap reaches, channels that fill no vector. */
static const int64_t shapes[][7] = {
    {2, 64, 14, 64, 1, 1, 0}, {3, 64, 9, 80, 1, 2, 0}, {2, 48, 14, 64, 3, 1, 1},
    {2, 64, 13, 96, 3, 2, 1}, {5, 128, 7, 64, 3, 1, 1}, {16, 64, 2, 128, 3, 1, 1},
    {33, 128, 1, 64, 3, 1, 1}, {40, 96, 1, 200, 1, 1, 0}, {16, 64, 2, 64, 3, 2, 1},
    {9, 37, 11, 29, 3, 1, 1}, {2, 300, 12, 600, 1, 1, 0}, {6, 32, 4, 48, 3, 1, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static trmi_conv_problem problem_of(trmi_conv_direction d, int shape, trm_dtype type) {
    const int64_t *s = shapes[shape];
    trmi_conv_problem p = check_problem(d, s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
    p.image_type = p.result_type = type;
    return p;
}

static double tolerance_of(trm_dtype type) { return type == TRM_BFLOAT16 ? 1e-2 : 3e-5; }

static void affine(void **state) {
    for (int i = 0; i < SHAPES * 4; i++) {
        trm_dtype type = i / SHAPES & 1 ? TRM_BFLOAT16 : TRM_FLOAT32;
        trmi_conv_direction d = i / SHAPES & 2 ? TRMI_CONV_WEIGHTS : TRMI_CONV_FORWARD;
        trmi_conv_problem p = problem_of(d, i % SHAPES, type);
        p.affine = true;
        check(p, i & 1, tolerance_of(type));
    }
}

static void statistics(void **state) {
    for (int i = 0; i < SHAPES * 4; i++) {
        trm_dtype type = i / SHAPES & 1 ? TRM_BFLOAT16 : TRM_FLOAT32;
        trmi_conv_problem p = problem_of(TRMI_CONV_FORWARD, i % SHAPES, type);
        p.epilogue = TRMI_CONV_STATISTICS;
        p.affine = i / SHAPES & 2;
        check(p, 1, tolerance_of(type));
    }
}

static void gradient(void **state) {
    for (int i = 0; i < SHAPES * 8; i++) {
        trm_dtype type = i & 1 ? TRM_BFLOAT16 : TRM_FLOAT32;
        trmi_conv_problem p = problem_of(TRMI_CONV_DATA, i / 8, type);
        p.epilogue = TRMI_CONV_NORM_GRAD;
        check(p, i % 8, tolerance_of(type));
    }
}

static int64_t output_bytes(const trmi_conv_problem *p) {
    return p->direction == TRMI_CONV_FORWARD ? trmi_conv_result_count(p) * 4
           : p->direction == TRMI_CONV_DATA  ? trmi_conv_image_count(p) * 4
                                             : trmi_conv_weights_count(p) * 4;
}

/* Runs with `threads`; the output's bytes and then the two sums. owns: caller */
static char *run_with(const trmi_conv_algorithm *algorithm, const trmi_conv_problem *p, int threads,
                      const conv_data *t, const extras *e) {
    trm_error err;
    void *state;
    int64_t scratch_bytes, bytes = output_bytes(p), sums = p->epilogue != TRMI_CONV_PLAIN ? p->o * 8 : 0;
    trmi_onednn other = *trmi_onednn_of(backend);
    conv_memory m = check_memory(p, t);
    other.threads = threads;
    CHECK_OK(algorithm->create(&other, p, &state, &scratch_bytes, &err), err);
    trmi_conv_args args = check_args(&m, trmi_alloc((size_t)scratch_bytes));
    args.affine = p->affine ? (trmi_affine){e->scale, e->shift, true} : (trmi_affine){0};
    args.norm = (trmi_fuse_gradient){.x = e->stored_x, .relu = true, .scale = e->scale,
                                     .shift = e->shift, .mean = e->mean};
    args.sum = e->sum, args.sum_x = e->sum_x;
    CHECK_OK(algorithm->run(state, &args, &err), err);
    char *out = trmi_alloc((size_t)(bytes + 2 * sums));
    memcpy(out, p->direction == TRMI_CONV_FORWARD ? m.result
                : p->direction == TRMI_CONV_DATA  ? m.image
                                                  : m.weights, (size_t)bytes);
    memcpy(out + bytes, e->sum, (size_t)sums);
    memcpy(out + bytes + sums, e->sum_x, (size_t)sums);
    algorithm->destroy(state);
    trmi_free(args.scratch);
    check_memory_free(&m);
    return out;
}

/* Our own algorithms give the same bits with any number of threads, sums included. */
static void same_bits(void **state) {
    for (int i = 0; i < SHAPES * 3; i++) {
        trmi_conv_problem p = problem_of((trmi_conv_direction)(i % 3), i / 3, TRM_FLOAT32);
        p.affine = p.direction != TRMI_CONV_DATA;
        p.epilogue = p.direction == TRMI_CONV_FORWARD ? TRMI_CONV_STATISTICS
                     : p.direction == TRMI_CONV_DATA  ? TRMI_CONV_NORM_GRAD
                                                      : TRMI_CONV_PLAIN;
        p.o = p.c; /* sums of either length fit */
        check_finish(&p);
        conv_data t = check_make(&p);
        extras e = make_extras(&p);
        for (int a = 0; trmi_conv_algorithms[a] != NULL; a++) {
            if (!trmi_conv_algorithms[a]->can(&p) || trmi_conv_algorithms[a] == &trmi_conv_dnnl) {
                continue;
            }
            char *one = run_with(trmi_conv_algorithms[a], &p, 1, &t, &e);
            for (int threads = 2; threads <= 5; threads += 3) {
                char *many = run_with(trmi_conv_algorithms[a], &p, threads, &t, &e);
                int64_t sums = p.epilogue != TRMI_CONV_PLAIN ? 2 * p.o * 8 : 0;
                assert_memory_equal(one, many, (size_t)(output_bytes(&p) + sums));
                trmi_free(many);
            }
            trmi_free(one);
        }
        free_extras(&e);
        check_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(affine), cmocka_unit_test(statistics),
                                       cmocka_unit_test(gradient), cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
