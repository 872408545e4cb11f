/* SPDX-License-Identifier: Apache-2.0 */
/* Effective GF/s (direct count) of every convolution algorithm on ResNet-50's shapes, per
 * direction. A program of the tests' build, because the algorithms are internal; the choice among
 * them, which `trireme bench ops` shows, is the library's own.
 *
 *   build/release/tests/conv_bench [image=224] [batch=32] [bf16=0] [threads=2] [repeats=5]
 *              [only: a key's part]
 *              [clock: cpu = CPU seconds / threads instead of wall seconds, for a shared machine]
 *
 * Algorithms are interleaved within each repeat and the median is shown, so that a shared machine
 * disturbs all alike; quote ratios. */
#include "exec/cpu/conv/conv.h"

#include "base/memory.h"
#include "base/os.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 8, REPEATS = 64 };

typedef struct shape {
    int64_t c, o, hw, k, s, times;
} shape;

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_time(double *t, int count) {
    qsort(t, (size_t)count, sizeof *t, compare_times);
    return t[count / 2];
}

/* The 23 different convolutions of ResNet-50, with how often each occurs. */
static int list_resnet50(int64_t image, shape *out) {
    int64_t hw = image / 4, in = 64;
    int count = 0;
    out[count++] = (shape){3, 64, image, 7, 2, 1};
    static const int64_t blocks[4] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; stage++) {
        int64_t w = 64 << stage, s = stage == 0 ? 1 : 2, small = (hw + s - 1) / s;
        out[count++] = (shape){in, w, hw, 1, 1, 1};
        out[count++] = (shape){w, w, hw, 3, s, s == 1 ? blocks[0] : 1};
        out[count++] = (shape){in, 4 * w, hw, 1, s, 1};
        hw = small;
        out[count++] = (shape){w, 4 * w, hw, 1, 1, blocks[stage]};
        out[count++] = (shape){4 * w, w, hw, 1, 1, blocks[stage] - 1};
        if (s != 1) {
            out[count++] = (shape){w, w, hw, 3, 1, blocks[stage] - 1};
        }
        in = 4 * w;
    }
    return count;
}

static void *make_filled(int64_t count) {
    uint32_t *v = trmi_alloc((size_t)count * 4), x = 1;
    for (int64_t i = 0; i < count; i++) {
        x = x * 1664525u + 1013904223u;
        v[i] = 0x3F003F00u | (x >> 9 & 0x007F007Fu); /* 0.5 .. 1 as float32 and as bfloat16 */
    }
    return v;
}

typedef struct entry {
    const trmi_conv_algorithm *algorithm;
    void *state;
    char *scratch;
    double t[REPEATS];
} entry;

static int prepare_entry(trmi_onednn *backend, const trmi_conv_problem *p, entry *e) {
    int count = 0;
    for (int i = 0; trmi_conv_algorithms[i] != NULL; i++) {
        const trmi_conv_algorithm *a = trmi_conv_algorithms[i];
        int64_t bytes = 0;
        trm_error err;
        e[count].algorithm = a;
        if (a->can(p) && a->create(a, backend, p, &e[count].state, &bytes, &err) == TRM_OK) {
            e[count++].scratch = trmi_alloc((size_t)bytes);
        }
    }
    return count;
}

static int cpu_threads; /* 0 = wall clock */

static double read_clock(void) {
    if (cpu_threads == 0) {
        return trmi_os_now();
    }
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / cpu_threads;
}

static double best_total[3], direct_total[3];

static void bench_conv(trmi_onednn *backend, const trmi_conv_problem *p, int64_t times,
                       int repeats) {
    entry e[MOST];
    trm_error err;
    char key[320];
    trmi_conv_args args = {.image = make_filled(trmi_conv_image_count(p)),
                           .weights = make_filled(trmi_conv_weights_count(p)),
                           .result = make_filled(trmi_conv_result_count(p))};
    int count = prepare_entry(backend, p, e);
    double flops = trmi_conv_flops(p), best = 1e30;
    int inner = flops < 2e8 ? 10 : flops < 1e9 ? 4 : 1;
    for (int r = -1; r < repeats; r++) {
        for (int i = 0; i < count; i++) {
            args.scratch = e[i].scratch;
            double t = read_clock();
            for (int q = 0; q < inner; q++) {
                if (e[i].algorithm->run(e[i].state, &args, &err) != TRM_OK) {
                    printf("%s\n", err.message);
                }
            }
            if (r >= 0) {
                e[i].t[r] = (read_clock() - t) / inner;
            }
        }
    }
    printf("%-78s x%ld", trmi_conv_key(p, key, sizeof key), (long)times);
    for (int i = 0; i < count; i++) {
        double t = median_time(e[i].t, repeats);
        printf("  %s %.0f", e[i].algorithm->name, flops / t * 1e-9);
        best = t < best ? t : best;
        if (strcmp(e[i].algorithm->name, "direct") == 0) {
            direct_total[p->direction] += t * (double)times;
        }
        e[i].algorithm->destroy(e[i].state);
        trmi_free(e[i].scratch);
    }
    printf("  | %.2f ms\n", best * 1e3);
    best_total[p->direction] += best * (double)times;
    trmi_free(args.image);
    trmi_free(args.weights);
    trmi_free(args.result);
}

int main(int argc, char **argv) {
    int64_t image = argc > 1 ? atoi(argv[1]) : 224, batch = argc > 2 ? atoi(argv[2]) : 32;
    bool bf16 = argc > 3 && atoi(argv[3]);
    int threads = argc > 4 ? atoi(argv[4]) : 2, repeats = argc > 5 ? atoi(argv[5]) : 5;
    const char *only = argc > 6 ? argv[6] : "";
    cpu_threads = argc > 7 && strcmp(argv[7], "cpu") == 0 ? threads : 0;
    trm_error err;
    trmi_backend *backend;
    /* as in exec/exec.c: the number of threads does not depend on OMP_NUM_THREADS */
    omp_set_num_threads(threads);
    if (repeats > REPEATS || trmi_backend_onednn(threads, NULL, &backend, &err) != TRM_OK) {
        return 1;
    }
    shape shapes[32];
    int count = list_resnet50(image, shapes);
    for (int i = 0; i < count; i++) {
        for (int d = 0; d < 3; d++) {
            const shape *s = &shapes[i];
            trm_dtype type = bf16 ? TRM_BFLOAT16 : TRM_FLOAT32;
            int64_t pad = s->k / 2, out = (s->hw + 2 * pad - s->k) / s->s + 1;
            trmi_conv_problem p = {.direction = (trmi_conv_direction)d,
                                   .image_type = type,
                                   .weights_type = TRM_FLOAT32,
                                   .result_type = type,
                                   .layout = TRMI_CHANNELS_LAST,
                                   .weights_layout = TRMI_CHANNELS_LAST,
                                   .n = batch,
                                   .c = s->c,
                                   .h = s->hw,
                                   .w = s->hw,
                                   .o = s->o,
                                   .oh = out,
                                   .ow = out,
                                   .kh = s->k,
                                   .kw = s->k,
                                   .groups = 1,
                                   .stride = {s->s, s->s},
                                   .dilation = {1, 1},
                                   .pad = {pad, pad, pad, pad}};
            char key[320];
            if (strstr(trmi_conv_key(&p, key, sizeof key), only) == NULL || (i == 0 && d == 1)) {
                continue;
            }
            bench_conv(backend->state, &p, s->times, repeats);
        }
    }
    double b = best_total[0] + best_total[1] + best_total[2];
    double o = direct_total[0] + direct_total[1] + direct_total[2];
    printf(
        "best %.1f + %.1f + %.1f = %.1f ms, %.2f img/s; direct %.1f ms, %.2f img/s; ratio %.2f\n",
        best_total[0] * 1e3, best_total[1] * 1e3, best_total[2] * 1e3, b * 1e3, (double)batch / b,
        o * 1e3, (double)batch / o, o / b);
    backend->destroy(backend);
    return 0;
}
