#include "exec/peak.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

enum { ROUNDS = 40000, TRIALS = 5, SMALLEST = 3 << 18, ROOM = 3 << 28, STEP = 2 };

typedef double loop(int64_t rounds, float *sink);

static const trmi_peak_kernels *kernels(void) { return TRMI_CPU_CHOICE(&trmi_peak); }

/* Flops per second of all threads together, the best of a few trials. */
static double arithmetic(loop *run, int threads) {
    double best = 0;
    (void)threads; /* without OpenMP */
    for (int t = 0; t < TRIALS; t++) {
        double flops = 0, begin = trmi_os_now();
#pragma omp parallel num_threads(threads) reduction(+ : flops)
        {
            float sink[3] = {1e-6f, 1e-3f, 0};
            flops += run(ROUNDS, sink) + (sink[2] == 1e-30f);
        }
        double rate = flops / (trmi_os_now() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Bytes per second of the triad over three arrays of `each` floats. Stored words count once. */
static double bandwidth(const trmi_peak_kernels *k, int threads, float *room, int64_t each, bool stream) {
    int64_t share = each / threads / 16 * 16;
    int64_t repeats = (int64_t)(1 << 24) / (3 * each) + 1;
    double best = 0;
    for (int t = 0; t < TRIALS && share > 0; t++) {
        double begin = trmi_os_now();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int i = 0; i < threads; i++) {
            float *a = room + i * share;
            for (int64_t r = 0; r < repeats; r++) {
                (stream ? k->triad_stream : k->triad)(a, a + each, a + 2 * each, share);
            }
        }
        double rate = 12.0 * (double)(share * threads * repeats) / (trmi_os_now() - begin);
        best = t > 0 && rate > best ? rate : best; /* the first fills the caches */
    }
    return best;
}

trm_status trm_machine_measure(int threads, trm_machine_peak *out, trm_error *err) {
    const trmi_peak_kernels *k = kernels();
    threads = threads > 0 ? threads : trmi_os_cpu_count();
    int64_t room = ROOM;
    while (room > trmi_os_memory_bytes() / 4) {
        room /= STEP;
    }
    float *memory = trmi_map((size_t)room);
    if (memory == NULL) {
        return TRMI_FAIL(err, TRM_NOMEM, "no memory to measure the machine's peak (%lld bytes)",
                         (long long)room);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < room / 4; i++) { /* pages that were never written are all one page */
        memory[i] = 1;
    }
    *out = (trm_machine_peak){.threads = threads, .float32_flops = arithmetic(k->multiply_add, threads)};
#if defined(__x86_64__)
    if (trmi_cpu()->avx512_bf16) {
        out->bfloat16_flops = arithmetic(trmi_peak_pairs, threads);
    }
#endif
    for (int64_t bytes = SMALLEST; bytes <= room && out->memory_count < TRM_PEAK_SETS; bytes *= STEP) {
        int64_t each = bytes / 12 / 16 * 16;
        double plain = bandwidth(k, threads, memory, each, false);
        double streamed = bandwidth(k, threads, memory, each, true);
        out->memory[out->memory_count++] =
            (trm_peak_memory){bytes, plain > streamed ? plain : streamed};
    }
    trmi_unmap(memory, (size_t)room);
    return TRM_OK;
}
