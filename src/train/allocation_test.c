/* SPDX-License-Identifier: Apache-2.0 */
/* After model creation a step allocates nothing: not in reading, augmenting, feeding, computing,
 * reducing, updating or reporting. This program replaces the C library's allocating functions with
 * functions that count their callers; the first five steps are not counted. What oneDNN and OpenMP
 * take inside their own calls (an argument list for each primitive, a team of one thread) is
 * counted apart and printed. */
#include "check.h"

#include "trireme/train.h"
#include "trireme/nn.h"

#include "ranks.h"

#include <link.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#if TRMI_ADDRESS_SANITIZER || TRMI_THREAD_SANITIZER || !defined(__GLIBC__)
#define COUNTS 0 /* a sanitizer brings its own; other C libraries have no second names */
#else
#define COUNTS 1
static atomic_bool counting;
static atomic_llong allocations, mappings, of_libraries;
static atomic_size_t first_bytes;

/* Where the code of oneDNN, OpenMP and the C++ library lies. */
enum { RANGES = 64 };
static struct { uintptr_t begin, end; } ranges[RANGES];
static int ranges_count;

static int note_object(struct dl_phdr_info *object, size_t size, void *context) {
    static const char *const names[] = {"libdnnl", "libgomp", "libomp", "libstdc++"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        for (int i = 0; strstr(object->dlpi_name, names[n]) != NULL && i < object->dlpi_phnum;
             i++) {
            const ElfW(Phdr) *part = &object->dlpi_phdr[i];
            if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && ranges_count < RANGES) {
                ranges[ranges_count].begin = object->dlpi_addr + part->p_vaddr;
                ranges[ranges_count++].end = object->dlpi_addr + part->p_vaddr + part->p_memsz;
            }
        }
    }
    return 0;
}

static void note_allocation(size_t bytes, const void *caller) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) {
        return;
    }
    for (int i = 0; i < ranges_count; i++) {
        if ((uintptr_t)caller >= ranges[i].begin && (uintptr_t)caller < ranges[i].end) {
            atomic_fetch_add(&of_libraries, 1);
            return;
        }
    }
    if (atomic_fetch_add(&allocations, 1) == 0) {
        atomic_store(&first_bytes, bytes);
    }
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
__attribute__((visibility("default"))) void *malloc(size_t bytes) {
    note_allocation(bytes, __builtin_return_address(0));
    return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t bytes) {
    note_allocation(count * bytes, __builtin_return_address(0));
    return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes) {
    note_allocation(bytes, __builtin_return_address(0));
    return __libc_realloc(old, bytes);
}
__attribute__((visibility("default"))) void *memalign(size_t alignment, size_t bytes) {
    note_allocation(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t bytes) {
    note_allocation(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment,
                                                          size_t bytes) {
    note_allocation(bytes, __builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out == NULL ? 12 : 0;
}
__attribute__((visibility("default"))) void *mmap(void *at, size_t bytes, int protection, int flags,
                                                  int fd, off_t offset) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        atomic_fetch_add(&mappings, 1);
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}
#endif

/* Ranks cut their buckets anew, once, after the first steps have been timed. */
enum { BATCH = 4, WARM = 5, STEPS = 9 };

/* A training whose steps must not allocate. size: ranks. */
typedef struct setup {
    const char *model;
    trm_precision precision;
    trm_optimizer_kind optimizer;
    int threads, size;
    int32_t accumulate;
    bool shard_optimizer, loss_scale;
    trm_dtype wire;
} setup;

static trm_node build_network(trm_graph *g, const trm_inputs *inputs, void *context) {
    const setup *s = context;
    return trm_network_build(g, s->model, trm_inputs_get(inputs, "image"),
                             &(trm_network_options){.classes = 10, .stem = TRM_STEM_CIFAR});
}

static trm_status at_step(void *context, const trm_progress *p, trm_error *err) {
#if COUNTS
    if (p->global_step == WARM) {
        atomic_store(&counting, true);
    } else if (p->global_step == STEPS) {
        atomic_store(&counting, false);
    }
#endif
    return TRM_OK;
}

static int printed;
static int print_nothing(const char *line) {
    printed += line != NULL;
    return 0;
}

static trm_status train_rank(const setup *s, trm_comm *comm, int rank, trm_error *err) {
    trm_dataset *data = NULL;
    trm_model *model = NULL;
    const trm_dataset_spec spec = {.path = "synth",
                                   .batch_size = BATCH,
                                   .shard_count = s->size,
                                   .shard_index = rank,
                                   .shapes =
                                       &(trm_shapes_options){.train_count = 512, .test_count = 16}};
    trm_status status = trm_dataset_open(&spec, &data, err);
    const trm_model_options options = {
        .network = build_network,
        .network_context = (void *)(uintptr_t)s,
        .data = data,
        .exec.threads = s->threads,
        .exec.precision = s->precision,
        .exec.tuning_file = "",
        .learning_rate = {.base = 0.01},
        .exec.accumulate = s->accumulate,
        .exec.loss_scale = {.on = s->loss_scale, .dynamic = true},
        .exec.optimizer = {.kind = s->optimizer, .momentum = 0.9, .clip_norm = 10},
        .exec.parallel = {.comm = comm, .shard_optimizer = s->shard_optimizer, .wire = s->wire}};
    status = status == TRM_OK ? trm_model_create(&options, &model, err) : status;
    const trm_train_options training = {
        .data = data,
        .until_step = STEPS + 1,
        .callbacks = {trm_loss_monitor(1, print_nothing), {.on_step_end = at_step}}};
    status = status == TRM_OK ? trm_model_train(model, &training, err) : status;
    trm_model_destroy(model);
    trm_dataset_destroy(data);
    return status;
}

static void rank_main(rank_context *context, trm_comm *comm) {
    trm_error err;
    trm_status status = train_rank(context->arg, comm, context->rank, &err);
    EXPECT(status == TRM_OK, "%s", err.message);
}

static void check_allocations(setup s) {
#if COUNTS
    trm_error err;
    atomic_store(&allocations, 0);
    atomic_store(&mappings, 0);
    atomic_store(&of_libraries, 0);
    s.size = s.size > 0 ? s.size : 1;
    if (s.size == 1) {
        CHECK_OK(train_rank(&s, NULL, 0, &err), err);
    } else {
        ranks_run_joined(s.size, false, rank_main, &s, "ranks");
    }
    printf("%s, precision %d, %d threads, %d ranks: oneDNN and OpenMP took memory %lld times in %d "
           "steps\n",
           s.model, (int)s.precision, s.threads, s.size, (long long)atomic_load(&of_libraries),
           STEPS - WARM);
    if (atomic_load(&allocations) != 0 || atomic_load(&mappings) != 0) {
        fail_msg("%s, precision %d, %d threads, %d ranks: %lld allocations (the first of %zu "
                 "bytes) and %lld "
                 "mappings in %d steps",
                 s.model, (int)s.precision, s.threads, s.size, (long long)atomic_load(&allocations),
                 atomic_load(&first_bytes), (long long)atomic_load(&mappings), STEPS - WARM);
    }
#else
    (void)s, (void)rank_main;
    skip();
#endif
}

/* The counter counts. */
static void allocations_are_seen(void **state) {
#if COUNTS
    atomic_store(&allocations, 0);
    atomic_store(&counting, true);
    void *volatile memory = malloc(10);
    atomic_store(&counting, false);
    free(memory);
    assert_true(atomic_load(&allocations) >= 1);
#else
    skip();
#endif
}

static void one_rank(void **state) {
    check_allocations((setup){.model = "resnet18", .optimizer = TRM_MOMENTUM, .threads = 1});
    check_allocations((setup){.model = "resnet18",
                              .optimizer = TRM_MOMENTUM,
                              .threads = 2,
                              .precision = TRM_PRECISION_MIXED,
                              .loss_scale = true});
    check_allocations(
        (setup){.model = "mlp", .optimizer = TRM_ADAM, .threads = 2, .accumulate = 2});
    check_allocations((setup){
        .model = "lenet", .optimizer = TRM_LARS, .threads = 1, .precision = TRM_PRECISION_MIXED});
}

static void two_ranks(void **state) {
    check_allocations(
        (setup){.model = "lenet", .optimizer = TRM_MOMENTUM, .threads = 1, .size = 2});
    check_allocations((setup){.model = "lenet",
                              .optimizer = TRM_MOMENTUM,
                              .threads = 1,
                              .size = 2,
                              .precision = TRM_PRECISION_MIXED,
                              .shard_optimizer = true,
                              .wire = TRM_BFLOAT16});
}

int main(void) {
#if COUNTS
    dl_iterate_phdr(note_object, NULL);
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(allocations_are_seen),
                                       cmocka_unit_test(one_rank), cmocka_unit_test(two_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
