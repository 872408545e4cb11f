#include "exec/peak.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20000, SMALLEST = 3 << 18, ROOM = 3 << 28, STEP = 2, FIRST_ROOM = 256 };

typedef double loop(int64_t rounds, float *sink);

/* Rates of one loop, in order of time. */
typedef struct samples {
    double *rate;
    int64_t count, room;
} samples;

struct trm_machine {
    const trmi_peak_kernels *kernels;
    int threads;
    float *memory;
    int64_t memory_bytes;
    samples float32, bfloat16;
    int32_t sets;
    samples plain[TRM_PEAK_SETS], streamed[TRM_PEAK_SETS]; /* stores */
};

/* ---- samples -------------------------------------------------------------------------------------- */

/* A sample for which there is no memory is left out. */
static void keep(samples *s, double rate) {
    if (s->count == s->room) {
        int64_t room = s->room > 0 ? 2 * s->room : FIRST_ROOM;
        double *rates = trmi_alloc((size_t)room * sizeof *rates);
        if (rates == NULL) {
            return;
        }
        if (s->count > 0) {
            memcpy(rates, s->rate, (size_t)s->count * sizeof *rates);
        }
        trmi_free(s->rate);
        *s = (samples){rates, s->count, room};
    }
    s->rate[s->count++] = rate;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* 0 without samples. */
static double median(const samples *s) {
    double *sorted = s->count > 0 ? trmi_alloc((size_t)s->count * sizeof *sorted) : NULL;
    if (sorted == NULL) {
        return s->count > 0 ? s->rate[s->count - 1] : 0;
    }
    memcpy(sorted, s->rate, (size_t)s->count * sizeof *sorted);
    qsort(sorted, (size_t)s->count, sizeof *sorted, by_value);
    double middle = sorted[s->count / 2];
    trmi_free(sorted);
    return middle;
}

static double highest(const samples *s) {
    double most = 0;
    for (int64_t i = 0; i < s->count; i++) {
        most = s->rate[i] > most ? s->rate[i] : most;
    }
    return most;
}

/* ---- loops ---------------------------------------------------------------------------------------- */

/* Flops per second of all threads together. */
static double arithmetic(loop *run, int threads) {
    double flops = 0, begin = trmi_os_now();
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    {
        float sink[3] = {1e-6f, 1e-3f, 0};
        flops += run(ROUNDS, sink) + (sink[2] == 1e-30f);
    }
    return flops / (trmi_os_now() - begin);
}

/* Bytes per second of the triad over three arrays of `each` floats. Stored words count once. */
static double bandwidth(const trm_machine *m, int64_t each, bool stream) {
    int64_t share = each / m->threads / 16 * 16;
    int64_t repeats = (int64_t)(1 << 22) / (3 * each) + 1;
    double begin = trmi_os_now();
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int i = 0; i < m->threads; i++) {
        float *a = m->memory + i * share;
        for (int64_t r = 0; r < repeats; r++) {
            (stream ? m->kernels->triad_stream : m->kernels->triad)(a, a + each, a + 2 * each, share);
        }
    }
    return 12.0 * (double)(share * m->threads * repeats) / (trmi_os_now() - begin);
}

static int64_t set_bytes(int32_t set) { return (int64_t)SMALLEST << set; }

void trmi_machine_sample_arithmetic(trm_machine *m) {
    keep(&m->float32, arithmetic(m->kernels->multiply_add, m->threads));
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        keep(&m->bfloat16, arithmetic(trmi_peak_pairs, m->threads));
    }
#endif
}

static void sample_memory(trm_machine *m) {
    for (int32_t i = 0; i < m->sets; i++) {
        int64_t each = set_bytes(i) / 12 / 16 * 16;
        (void)bandwidth(m, each, false); /* fills the caches */
        keep(&m->plain[i], bandwidth(m, each, false));
        keep(&m->streamed[i], bandwidth(m, each, true));
    }
}

/* ---- the machine ---------------------------------------------------------------------------------- */

trm_status trm_machine_create(int threads, trm_machine **out, trm_error *err) {
    trm_machine *m = trmi_alloc(sizeof *m);
    if (m == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure the machine");
    }
    *m = (trm_machine){.kernels = TRMI_CPU_CHOICE(&trmi_peak),
                       .threads = threads > 0 ? threads : trmi_os_cpu_count(),
                       .memory_bytes = ROOM};
    while (m->memory_bytes > trmi_os_memory_bytes() / 4) {
        m->memory_bytes /= STEP;
    }
    m->memory = trmi_map((size_t)m->memory_bytes);
    if (m->memory == NULL) {
        long long bytes = (long long)m->memory_bytes;
        trmi_free(m);
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure the machine's peak (%lld bytes)", bytes);
    }
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < m->memory_bytes / 4; i++) { /* pages that were never written are all one page */
        m->memory[i] = 1;
    }
    while (m->sets < TRM_PEAK_SETS && set_bytes(m->sets) <= m->memory_bytes) {
        m->sets++;
    }
    (void)arithmetic(m->kernels->multiply_add, m->threads); /* the clock settles */
    *out = m;
    return TRM_OK;
}

void trm_machine_destroy(trm_machine *m) {
    if (m == NULL) {
        return;
    }
    for (int32_t i = 0; i < m->sets; i++) {
        trmi_free(m->plain[i].rate);
        trmi_free(m->streamed[i].rate);
    }
    trmi_free(m->float32.rate);
    trmi_free(m->bfloat16.rate);
    trmi_unmap(m->memory, (size_t)m->memory_bytes);
    trmi_free(m);
}

void trm_machine_sample(trm_machine *m) {
    trmi_machine_sample_arithmetic(m);
    sample_memory(m);
}

/* All rates by one statistic; of memory the better way to store. */
static void describe(const trm_machine *m, double (*statistic)(const samples *), trm_machine_peak *out) {
    *out = (trm_machine_peak){.threads = m->threads,
                              .float32_flops = statistic(&m->float32),
                              .bfloat16_flops = statistic(&m->bfloat16),
                              .memory_count = m->sets};
    for (int32_t i = 0; i < m->sets; i++) {
        double plain = statistic(&m->plain[i]), streamed = statistic(&m->streamed[i]);
        out->memory[i] = (trm_peak_memory){set_bytes(i), plain > streamed ? plain : streamed};
    }
}

void trm_machine_describe(const trm_machine *m, trm_machine_peak *middle, trm_machine_peak *best) {
    if (middle != NULL) {
        describe(m, median, middle);
    }
    if (best != NULL) {
        describe(m, highest, best);
    }
}
