/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the peak rates of the machine (trm_meter): FLOP/s in float32 and bfloat16, and bytes per
 * second for working sets of several sizes and mixes of reads and writes. The profile compares
 * operators with them. Samples are taken between runs, so that both see the same clock and load;
 * the median is what the machine gives usually, the highest its peak. */
#include "exec/measure/peak.h"

#include "base/arguments.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <string.h>

enum { ROUNDS = 20000, SMALLEST = 3 << 18, ROOM = 3 << 27, STEP = 2, FIRST_ROOM = 256 };
enum { TRAFFIC = 48 << 20 }; /* bytes of one sample at least */

/* For each mix: the arrays of the working set, and the fraction of its words that are written. */
static const int arrays[TRM_PEAK_MIXES] = {1, 3, 2, 1};
static const double written[TRM_PEAK_MIXES] = {0, 1.0 / 3, 0.5, 1};

typedef double loop(int64_t rounds, float *sink);

/* Rates of one loop, in order of time. */
typedef struct samples {
    double *rate;
    int64_t count, room;
} samples;

struct trm_meter {
    const trmi_peak_kernels *kernels;
    int threads;
    float *memory;
    int64_t memory_bytes;
    samples float32, bfloat16;
    int32_t sets;
    samples memory_rate[TRM_PEAK_SETS][TRM_PEAK_MIXES][2]; /* stores: plain, past the caches */
};

/* ---- samples --------------------------------------------------------------------------------- */

/* Adds a sample. Without memory it is left out. */
static void add_sample(samples *s, double rate) {
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

/* Returns the median; 0 without samples, the last one without memory to sort. */
static double median_rate(const samples *s) {
    double *sorted = s->count > 0 ? trmi_alloc((size_t)s->count * sizeof *sorted) : NULL;
    if (sorted == NULL) {
        return s->count > 0 ? s->rate[s->count - 1] : 0;
    }
    memcpy(sorted, s->rate, (size_t)s->count * sizeof *sorted);
    double middle = trmi_median(sorted, s->count);
    trmi_free(sorted);
    return middle;
}

static double highest_rate(const samples *s) {
    double most = 0;
    for (int64_t i = 0; i < s->count; i++) {
        most = s->rate[i] > most ? s->rate[i] : most;
    }
    return most;
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* Returns the FLOP/s of all threads together. */
static double measure_arithmetic(loop *run, int threads) {
    double flops = 0, begin = trmi_os_now();
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    {
        float sink[3] = {1e-6f, 1e-3f, 0};
        flops += run(ROUNDS, sink) + (sink[2] == 1e-30f);
    }
    return flops / (trmi_os_now() - begin);
}

/* Returns the bytes per second of a loop over a working set of `bytes`. A stored word counts once.
 * `stream`: stores past the caches. */
static double measure_bandwidth(const trm_meter *m, int mix, bool stream, int64_t bytes) {
    int64_t each = bytes / 4 / arrays[mix] / 16 * 16, share = each / m->threads / 16 * 16;
    int64_t repeats = TRAFFIC / bytes + 1;
    double begin = trmi_os_now();
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int i = 0; i < m->threads; i++) {
        float *a = m->memory + i * share;
        for (int64_t r = 0; r < repeats; r++) {
            m->kernels->memory[mix][stream](a, a + each, a + 2 * each, share);
        }
    }
    return 4.0 * arrays[mix] * (double)(share * m->threads * repeats) / (trmi_os_now() - begin);
}

static int64_t set_bytes(int32_t set) { return (int64_t)SMALLEST << set; }

void trmi_meter_sample_arithmetic(trm_meter *m) {
    add_sample(&m->float32, measure_arithmetic(m->kernels->multiply_add, m->threads));
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        add_sample(&m->bfloat16, measure_arithmetic(trmi_peak_pairs, m->threads));
    }
#endif
}

static void sample_memory(trm_meter *m) {
    for (int32_t i = 0; i < m->sets; i++) {
        for (int mix = 0; mix < TRM_PEAK_MIXES; mix++) {
            (void)measure_bandwidth(m, mix, false, set_bytes(i)); /* fills the caches */
            for (int stream = 0; stream < 2 && m->kernels->memory[mix][stream] != NULL; stream++) {
                add_sample(&m->memory_rate[i][mix][stream],
                           measure_bandwidth(m, mix, stream, set_bytes(i)));
            }
        }
    }
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* Contract in trireme/exec.h. The memory is at most a quarter of the machine's, and every page
 * is written once. */
trm_status trm_meter_create(int threads, trm_meter **out, trm_error *err) {
    TRMI_NEED(err, out);
    trm_meter *m;
    TRMI_TRY(TRMI_NEW(err, m, 1, "to measure the machine"));
    *m = (trm_meter){.kernels = TRMI_CPU_CHOICE(&trmi_peak),
                     .threads = threads > 0 ? threads : trmi_os_cpu_count(),
                     .memory_bytes = ROOM};
    while (m->memory_bytes > trmi_os_memory_bytes() / 4) {
        m->memory_bytes /= STEP;
    }
    m->memory = trmi_map((size_t)m->memory_bytes);
    if (m->memory == NULL) {
        long long bytes = (long long)m->memory_bytes;
        trmi_free(m);
        return TRMI_NO_MEMORY(err, "to measure the machine's peak (%lld bytes)", bytes);
    }
#pragma omp parallel for num_threads(m->threads) schedule(static)
    /* unwritten pages would all map to one zero page, which caches hold */
    for (int64_t i = 0; i < m->memory_bytes / 4; i++) {
        m->memory[i] = 1;
    }
    while (m->sets < TRM_PEAK_SETS && set_bytes(m->sets) <= m->memory_bytes) {
        m->sets++;
    }
    (void)measure_arithmetic(m->kernels->multiply_add,
                             m->threads); /* warm-up of the clock frequency */
    *out = m;
    return TRM_OK;
}

void trm_meter_destroy(trm_meter *m) {
    if (m == NULL) {
        return;
    }
    for (int32_t i = 0; i < m->sets; i++) {
        for (int k = 0; k < 2 * TRM_PEAK_MIXES; k++) {
            trmi_free(m->memory_rate[i][k / 2][k % 2].rate);
        }
    }
    trmi_free(m->float32.rate);
    trmi_free(m->bfloat16.rate);
    trmi_unmap(m->memory, (size_t)m->memory_bytes);
    trmi_free(m);
}

void trm_meter_sample(trm_meter *m) {
    TRMI_NEED_OR(, NULL, m);
    trmi_meter_sample_arithmetic(m);
    sample_memory(m);
}

/* Fills in all rates by one statistic; for memory the better of the two ways to store. */
static void describe_rates(const trm_meter *m, double (*statistic)(const samples *),
                           trm_machine_peak *out) {
    *out = (trm_machine_peak){.threads = m->threads,
                              .float32_flops = statistic(&m->float32),
                              .bfloat16_flops = statistic(&m->bfloat16),
                              .memory_count = m->sets};
    for (int32_t i = 0; i < m->sets; i++) {
        out->memory[i].bytes = set_bytes(i);
        for (int mix = 0; mix < TRM_PEAK_MIXES; mix++) {
            const samples *of = m->memory_rate[i][mix];
            double plain = statistic(&of[0]), streamed = statistic(&of[1]);
            out->memory[i].bytes_per_second[mix] = plain > streamed ? plain : streamed;
        }
    }
}

void trm_meter_get_peaks(const trm_meter *m, trm_machine_peak *middle, trm_machine_peak *best) {
    TRMI_NEED_OR(, NULL, m);
    if (middle != NULL) {
        describe_rates(m, median_rate, middle);
    }
    if (best != NULL) {
        describe_rates(m, highest_rate, best);
    }
}

/* A fraction of writes between two mixes is priced as a part of each, one after the other. */
double trm_machine_memory_seconds(const trm_machine_peak *p, double bytes, double bytes_written,
                                  double held) {
    TRMI_NEED_OR(0, NULL, p);
    int32_t set = 0;
    while (set + 1 < p->memory_count && (double)p->memory[set + 1].bytes <= held) {
        set++;
    }
    if (bytes <= 0 || p->memory_count == 0) {
        return 0;
    }
    double share = bytes_written / bytes;
    int mix = 0;
    while (mix + 2 < TRM_PEAK_MIXES && share > written[mix + 1]) {
        mix++;
    }
    double of_next = (share - written[mix]) / (written[mix + 1] - written[mix]);
    const double *rate = p->memory[set].bytes_per_second;
    return bytes * ((1 - of_next) / rate[mix] + of_next / rate[mix + 1]);
}
