/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline from a source to batches: order, shards, threads, prefetching, resuming, and the
 * CIFAR-10 and generated sources.
 *
 * Two pipelines of one description must give the same batches in the same order with any number
 * of threads, and a seek must continue bit for bit. After the first batch nothing may be
 * allocated: trmi_alloc_fail_after would make it fail. */
#include "folder.h"
#include "real_data.h"

#include "base/hash/hash.h"
#include "base/memory.h"
#include "base/os.h"
#include "data/image/cifar10.h"
#include "data/pipeline/source.h"

#include "trireme/data.h"

#include <sys/stat.h>
#include <unistd.h>

static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.2010};

/* A dataset of generated shapes. */
typedef struct setup {
    int64_t samples;
    int64_t shards, shard; /* 0: not sharded */
    int64_t window;        /* of the shuffle */
    int64_t batch;
    int64_t depth, threads; /* of the prefetch */
    trm_shard_mode mode;
    bool shuffled, drop, plain; /* drop: the last short batch; plain: without transforms */
} setup;

static trm_dataset *open_dataset(const setup *s) {
    trm_error err;
    trm_dataset *data;
    CHECK_OK(trm_dataset_shapes(&(trm_shapes_options){.train_count = s->samples, .seed = 3},
                                TRM_USAGE_TRAIN, &data, &err),
             err);
    CHECK_OK(trm_dataset_seed(data, 42, &err), err);
    if (s->shuffled) {
        CHECK_OK(trm_dataset_shuffle(data, s->window, &err), err);
    }
    if (s->shards) {
        CHECK_OK(trm_dataset_shard(data, s->shards, s->shard, s->mode, &err), err);
    }
    trm_transform steps[] = {trm_transform_random_crop(32, 32, 4), trm_transform_random_flip(0.5),
                             trm_transform_rescale(1 / 255.0, 0),
                             trm_transform_normalize(mean, deviation), trm_transform_hwc2chw()};
    CHECK_OK(trm_dataset_map(data, steps, s->plain ? 0 : 5, &err), err);
    CHECK_OK(trm_dataset_batch(data, s->batch, s->drop, &err), err);
    CHECK_OK(trm_dataset_prefetch(data, s->depth, s->threads, &err), err);
    return data;
}

static uint64_t batch_hash(const trm_batch *batch) {
    uint64_t h = (uint64_t)(batch->epoch * 1000003 + batch->index * 1009 + batch->samples);
    for (int i = 0; i < batch->field_count; i++) {
        const trm_tensor *t = &batch->fields[i].tensor;
        h = h * 31 + trmi_hash(TRMI_HASH_BEGIN, t->data, (size_t)trm_tensor_bytes(t));
    }
    return h;
}

/* Hashes of `count` batches; a TRM_END is 0. */
static void collect_hashes(trm_dataset *data, uint64_t *hashes, int count) {
    trm_error err;
    const trm_batch *batch;
    for (int i = 0; i < count; i++) {
        trm_status status = trm_dataset_next(data, &batch, &err);
        if (status != TRM_END) {
            CHECK_OK(status, err);
        }
        hashes[i] = status == TRM_END ? 0 : batch_hash(batch);
    }
}

static void threads_change_nothing(void **state) {
    enum { COUNT = 30 };
    uint64_t expected[COUNT], got[COUNT];
    for (int64_t window = 0; window <= 10; window += 10) {
        setup s = {.samples = 150, .batch = 16, .shuffled = true, .window = window};
        trm_dataset *data = open_dataset(&s);
        collect_hashes(data, expected, COUNT);
        trm_dataset_destroy(data);
        assert_int_equal(expected[10], 0);
        for (s.threads = 1; s.threads <= 4; s.threads++) {
            for (s.depth = 1; s.depth <= 5; s.depth += 2) {
                data = open_dataset(&s);
                collect_hashes(data, got, COUNT);
                trm_dataset_destroy(data);
                assert_memory_equal(got, expected, sizeof got);
            }
        }
    }
}

static void seek_continues_bit_for_bit(void **state) {
    enum { COUNT = 33 };
    uint64_t straight[COUNT], got[COUNT];
    trm_error err;
    setup s = {.samples = 150,
               .batch = 16,
               .shuffled = true,
               .window = 7,
               .threads = 2,
               .depth = 3,
               .shards = 2,
               .shard = 1};
    trm_dataset *data = open_dataset(&s);
    collect_hashes(data, straight, COUNT);
    trm_dataset_destroy(data);
    for (int stop = 0; stop < COUNT; stop++) {
        int64_t epoch, index;
        data = open_dataset(&s);
        collect_hashes(data, got, stop);
        trm_dataset_position(data, &epoch, &index);
        trm_dataset_destroy(data);
        s.threads = stop % 3; /* also another number of threads */
        data = open_dataset(&s);
        CHECK_OK(trm_dataset_seek(data, epoch, index, &err), err);
        collect_hashes(data, got + stop, COUNT - stop);
        assert_memory_equal(got, straight, sizeof got);
        CHECK_OK(trm_dataset_seek(data, 0, 0, &err), err); /* and back, on the same object */
        collect_hashes(data, got, COUNT);
        assert_memory_equal(got, straight, sizeof got);
        trm_dataset_destroy(data);
    }
    data = open_dataset(&s);
    const trm_batch *kept;
    CHECK_OK(trm_dataset_next(data, &kept, &err), err);
    const trm_tensor *image = trm_batch_tensor(kept, "image");
    const uint64_t before =
        trmi_hash(TRMI_HASH_BEGIN, image->data, (size_t)trm_tensor_bytes(image));
    CHECK_OK(trm_dataset_seek(data, 0, 2, &err), err); /* a batch can be read until the next one */
    assert_true(before == trmi_hash(TRMI_HASH_BEGIN, image->data, (size_t)trm_tensor_bytes(image)));
    CHECK_FAILS(trm_dataset_seek(data, 0, 6, &err), TRM_INVALID, err, "an epoch has 5");
    CHECK_FAILS(trm_dataset_seek(data, -1, 0, &err), TRM_INVALID, err, "epoch -1");
    trm_dataset_destroy(data);
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Hashes of the real samples of one epoch of one shard; their number. */
static int64_t epoch_samples(trm_dataset *data, uint64_t *out) {
    trm_error err;
    const trm_batch *batch;
    int64_t count = 0;
    trm_status status;
    while ((status = trm_dataset_next(data, &batch, &err)) == TRM_OK) {
        const trm_tensor *image = trm_batch_tensor(batch, "image");
        size_t bytes = (size_t)trm_tensor_bytes(image) / (size_t)image->shape.dim[0];
        for (int64_t i = 0; i < batch->samples; i++) {
            out[count++] =
                trmi_hash(TRMI_HASH_BEGIN, (const uint8_t *)image->data + (size_t)i * bytes, bytes);
        }
        const int32_t *label = trm_batch_tensor(batch, "label")->data;
        for (int64_t i = batch->samples; i < image->shape.dim[0]; i++) {
            assert_int_equal(label[i], -1);
        }
    }
    assert_int_equal(status, TRM_END);
    return count;
}

static void shards_divide_one_epoch(void **state) {
    enum { N = 101 };
    uint64_t whole[2 * N], parts[2 * N];
    for (int epoch = 0; epoch < 2; epoch++) {
        trm_error err;
        setup s = {.samples = N, .batch = 8, .shuffled = true, .shards = 1};
        trm_dataset *data = open_dataset(&s);
        CHECK_OK(trm_dataset_seek(data, epoch, 0, &err), err);
        assert_int_equal(epoch_samples(data, whole), N);
        trm_dataset_destroy(data);
        qsort(whole, N, sizeof *whole, by_value);
        for (int i = 1; i < N; i++) {
            assert_true(whole[i] != whole[i - 1]); /* each sample once */
        }
        for (s.shards = 1; s.shards <= 8; s.shards++) {
            for (int mode = TRM_SHARD_WRAP; mode <= TRM_SHARD_PAD; mode++) {
                int64_t got = 0, batches = -1;
                for (s.shard = 0; s.shard < s.shards; s.shard++) {
                    s.mode = (trm_shard_mode)mode;
                    s.window = s.shards % 2 ? 10 : 0;
                    data = open_dataset(&s);
                    assert_true(batches == -1 || batches == trm_dataset_epoch_batches(data));
                    batches = trm_dataset_epoch_batches(data);
                    CHECK_OK(trm_dataset_seek(data, epoch, 0, &err), err);
                    int64_t count = epoch_samples(data, parts + got);
                    int64_t even = N / s.shards;
                    if (mode != TRM_SHARD_PAD) {
                        assert_int_equal(
                            count, mode == TRM_SHARD_DROP ? even : (N + s.shards - 1) / s.shards);
                    }
                    got += count;
                    trm_dataset_destroy(data);
                }
                if (mode == TRM_SHARD_PAD) {
                    assert_int_equal(got, N);
                }
                /* The union is the epoch: nothing else, and nothing missing but what was dropped.
                 */
                qsort(parts, (size_t)got, sizeof *parts, by_value);
                int64_t distinct = 0;
                for (int64_t i = 0; i < got; i++) {
                    assert_non_null(bsearch(&parts[i], whole, N, sizeof *whole, by_value));
                    distinct += i == 0 || parts[i] != parts[i - 1];
                }
                assert_int_equal(distinct, mode == TRM_SHARD_DROP ? N / s.shards * s.shards : N);
            }
        }
    }
}

static void shards_interleave_one_order(void **state) {
    uint64_t whole[30], part[10];
    setup s = {.samples = 30, .batch = 5, .shuffled = true};
    trm_dataset *data = open_dataset(&s);
    assert_int_equal(epoch_samples(data, whole), 30);
    trm_dataset_destroy(data);
    s.shards = 3;
    for (s.shard = 0; s.shard < 3; s.shard++) {
        data = open_dataset(&s);
        assert_int_equal(epoch_samples(data, part), 10);
        for (int k = 0; k < 10; k++) {
            assert_int_equal(part[k], whole[k * 3 + s.shard]);
        }
        trm_dataset_destroy(data);
    }
}

static void epochs_end_and_repeat(void **state) {
    trm_error err;
    const trm_batch *batch;
    setup s = {.samples = 20, .batch = 8, .threads = 1, .depth = 2};
    for (int passes = 0; passes <= 3; passes++) {
        trm_dataset *data = open_dataset(&s);
        CHECK_OK(trm_dataset_repeat(data, passes, &err), err);
        assert_int_equal(trm_dataset_epoch_batches(data), 3);
        for (int i = 0; i < 18; i++) {
            if (passes > 0 && i > 0 && i % (3 * passes) == 0) {
                assert_int_equal(trm_dataset_next(data, &batch, &err), TRM_END);
            }
            CHECK_OK(trm_dataset_next(data, &batch, &err), err);
            assert_int_equal(batch->epoch, i / 3);
            assert_int_equal(batch->index, i % 3);
            assert_int_equal(batch->last, i % 3 == 2);
            assert_int_equal(batch->samples, i % 3 == 2 ? 4 : 8);
            const trm_tensor *image = trm_batch_tensor(batch, "image");
            assert_int_equal(image->shape.dim[0], 8);
            const float *last = (const float *)image->data + 7 * 3072;
            assert_true((last[100] == 0) == (i % 3 == 2));
        }
        assert_null(trm_batch_tensor(batch, "keys"));
        trm_dataset_destroy(data);
    }
    s.drop = true;
    trm_dataset *data = open_dataset(&s);
    assert_int_equal(trm_dataset_epoch_batches(data), 2);
    trm_dataset_destroy(data);
}

static void unshuffled_is_sequential_and_epochs_differ(void **state) {
    uint64_t first[40], second[40];
    trm_error err;
    const trm_batch *batch;
    setup s = {.samples = 40, .batch = 40, .plain = true};
    trm_dataset *data = open_dataset(&s);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    const uint8_t *pixels = trm_batch_tensor(batch, "image")->data;
    const int32_t *label = trm_batch_tensor(batch, "label")->data;
    uint8_t planar[3072];
    for (int i = 0; i < 40; i++) {
        trmi_shape_draw(3, i, planar);
        assert_int_equal(label[i], trmi_shape_label(3, i));
        for (int k = 0; k < 3072; k++) {
            assert_int_equal(pixels[i * 3072 + k], planar[k % 3 * 1024 + k / 3]);
        }
    }
    trm_dataset_destroy(data);
    s.shuffled = true;
    s.batch = 8;
    data = open_dataset(&s);
    assert_int_equal(epoch_samples(data, first), 40);
    assert_int_equal(epoch_samples(data, second), 40);
    int same = 0;
    for (int i = 0; i < 40; i++) {
        same += first[i] == second[i];
    }
    assert_true(same < 10);
    trm_dataset_destroy(data);
}

static void a_window_alone_moves_samples_little(void **state) {
    /* shuffle(10) without permutation is not offered; the window acts on the permuted order: an
     * output at place k comes from a place below k + window. */
    uint64_t order[200], windowed[200];
    setup s = {.samples = 200, .batch = 10, .shuffled = true};
    trm_dataset *data = open_dataset(&s);
    epoch_samples(data, order);
    trm_dataset_destroy(data);
    s.window = 10;
    data = open_dataset(&s);
    epoch_samples(data, windowed);
    trm_dataset_destroy(data);
    int moved = 0;
    for (int k = 0; k < 200; k++) {
        int from = 0;
        while (order[from] != windowed[k]) {
            from++;
            assert_true(from < 200);
        }
        assert_true(from < k + 10);
        moved += from != k;
    }
    assert_true(moved > 150);
}

static void after_the_first_batch_nothing_is_allocated(void **state) {
    trm_error err;
    const trm_batch *batch;
    setup s = {.samples = 64, .batch = 8, .shuffled = true, .window = 5};
    trm_dataset *data = open_dataset(&s);
    CHECK_OK(trm_dataset_next(data, &batch, &err), err);
    trmi_alloc_fail_after(1);
    for (int i = 1; i < 24; i++) {
        trm_status status = trm_dataset_next(data, &batch, &err);
        assert_true(status == TRM_OK || status == TRM_END);
    }
    void *probe = trmi_alloc(8); /* the error is still pending: no earlier call has returned it */
    assert_null(probe);
    trm_dataset_destroy(data);
}

static void lack_of_memory_is_an_error(void **state) {
    for (int64_t k = 1; k < 200; k++) {
        trm_error err = {0};
        trm_dataset *data = NULL;
        const trm_batch *batch;
        trmi_alloc_fail_after(k);
        trm_status status = trm_dataset_shapes(NULL, TRM_USAGE_TRAIN, &data, &err);
        if (status == TRM_OK) {
            status = trm_dataset_shuffle(data, 4, &err);
            status = status ? status : trm_dataset_batch(data, 4, true, &err);
            status = status ? status : trm_dataset_prefetch(data, 2, 2, &err);
            status = status ? status : trm_dataset_next(data, &batch, &err);
        }
        trmi_alloc_fail_after(0);
        trm_dataset_destroy(data);
        if (status == TRM_OK) {
            assert_true(k > 10);
            return;
        }
        assert_int_equal(status, TRM_NOMEM);
    }
    fail_msg("still out of memory");
}

static void random_batches_are_constant(void **state) {
    trm_error err;
    const trm_batch *batch;
    trm_dataset *data;
    CHECK_OK(trm_dataset_random(&(trm_random_options){.height = 8, .width = 9, .classes = 5}, &data,
                                &err),
             err);
    CHECK_OK(trm_dataset_batch(data, 16, true, &err), err);
    CHECK_OK(trm_dataset_prefetch(data, 2, 2, &err), err);
    uint64_t first = 0;
    double sum = 0;
    for (int i = 0; i < 9; i++) {
        CHECK_OK(trm_dataset_next(data, &batch, &err), err);
        const trm_tensor *image = &batch->fields[0].tensor;
        uint64_t h = trmi_hash(TRMI_HASH_BEGIN, image->data, (size_t)trm_tensor_bytes(image));
        assert_true(i == 0 || h == first);
        first = h;
        sum += ((const float *)image->data)[i];
        assert_int_equal(image->shape.dim[1], 3);
        assert_in_range(((const int32_t *)batch->fields[1].tensor.data)[i], 0, 4);
    }
    assert_true(sum != 0);
    trm_transform step = trm_transform_hwc2chw();
    trm_dataset_destroy(data);
    CHECK_OK(trm_dataset_random(&(trm_random_options){.height = 8, .width = 9}, &data, &err), err);
    CHECK_FAILS(trm_dataset_map(data, &step, 1, &err), TRM_INVALID, err, "no image transforms");
    trm_dataset_destroy(data);
    CHECK_FAILS(trm_dataset_random(&(trm_random_options){.height = -1, .width = 9}, &data, &err),
                TRM_INVALID, err, "random data");
}

/* ---- files --------------------------------------------------------------------------------- */

static void shapes_on_disk_are_the_generated_ones(void **state) {
    trm_error err;
    trm_shapes_options options = {.train_count = 53, .test_count = 11, .seed = 9};
    CHECK_OK(trm_shapes_write(&options, folder, &err), err);
    for (int usage = TRM_USAGE_TRAIN; usage <= TRM_USAGE_ALL; usage++) {
        trm_dataset *disk, *drawn;
        const trm_batch *a, *b;
        CHECK_OK(trm_dataset_cifar10(folder, (trm_usage)usage, &disk, &err), err);
        CHECK_OK(trm_dataset_shapes(&options, (trm_usage)usage, &drawn, &err), err);
        assert_int_equal(trm_dataset_sample_count(disk), trm_dataset_sample_count(drawn));
        CHECK_OK(trm_dataset_batch(disk, 9, false, &err), err);
        CHECK_OK(trm_dataset_batch(drawn, 9, false, &err), err);
        trm_status status;
        while ((status = trm_dataset_next(disk, &a, &err)) == TRM_OK) {
            CHECK_OK(trm_dataset_next(drawn, &b, &err), err);
            assert_int_equal(batch_hash(a), batch_hash(b));
        }
        assert_int_equal(status, TRM_END);
        trm_dataset_destroy(disk);
        trm_dataset_destroy(drawn);
    }
}

static void damaged_cifar_files_are_named(void **state) {
    trm_error err;
    trm_dataset *data;
    trm_shapes_options options = {.train_count = 50, .test_count = 10};
    CHECK_FAILS(trm_dataset_cifar10("/nowhere/at/all", TRM_USAGE_TRAIN, &data, &err), TRM_IO, err,
                "/nowhere/at/all");
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_TRAIN, &data, &err), TRM_IO, err,
                "0 of the 5 files");
    CHECK_OK(trm_shapes_write(&options, folder, &err), err);
    /* Truncated. */
    assert_int_equal(truncate(in_folder("data_batch_3.bin"), 30729), 0);
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_TRAIN, &data, &err), TRM_CORRUPT, err,
                "data_batch_3.bin: 30729 bytes, expected 30730");
    CHECK_OK(trm_dataset_cifar10(folder, TRM_USAGE_TEST, &data, &err), err);
    trm_dataset_destroy(data);
    CHECK_OK(trm_shapes_write(&options, folder, &err), err);
    /* A label of ten, in record 4. */
    FILE *file = fopen(in_folder("data_batch_2.bin"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 4 * TRMI_CIFAR10_RECORD, SEEK_SET), 0);
    fputc(10, file);
    fclose(file);
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_TRAIN, &data, &err), TRM_CORRUPT, err,
                "data_batch_2.bin: record 4: label 10");
    /* Without records.txt the official size is expected. */
    unlink(in_folder("records.txt"));
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_TEST, &data, &err), TRM_CORRUPT, err,
                "expected 30730000");
    /* it may be CIFAR-10 itself */
    CHECK_FAILS(trm_shapes_write(&options, folder, &err), TRM_INVALID, err, "has other data");
    file = fopen(in_folder("records.txt"), "wb");
    fputs("test_batch.bin ten\n", file);
    fclose(file);
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_TEST, &data, &err), TRM_CORRUPT, err,
                "records.txt: line 1");
    /* All with one file missing. */
    unlink(in_folder("data_batch_1.bin"));
    CHECK_FAILS(trm_dataset_cifar10(folder, TRM_USAGE_ALL, &data, &err), TRM_IO, err, "5 of the 6");
}

static void real_cifar_is_read_whole(void **state) {
    const char *path = real_data("cifar-10-batches-bin");
    if (path == NULL) {
        skip();
    }
    trm_error err;
    static const int64_t expected[] = {50000, 10000, 60000};
    for (int usage = TRM_USAGE_TRAIN; usage <= TRM_USAGE_ALL; usage++) {
        trm_dataset *data;
        const trm_batch *batch;
        CHECK_OK(trm_dataset_cifar10(path, (trm_usage)usage, &data, &err), err);
        assert_int_equal(trm_dataset_sample_count(data), expected[usage]);
        assert_int_equal(trm_dataset_class_count(data), 10);
        trm_transform steps[] = {trm_transform_rescale(1 / 255.0, 0), trm_transform_hwc2chw()};
        CHECK_OK(trm_dataset_map(data, steps, 2, &err), err);
        CHECK_OK(trm_dataset_batch(data, 100, true, &err), err);
        CHECK_OK(trm_dataset_shuffle(data, 0, &err), err);
        int64_t per_class[10] = {0}, batches = 0;
        double sum[3] = {0};
        while (trm_dataset_next(data, &batch, &err) == TRM_OK) {
            const int32_t *label = trm_batch_tensor(batch, "label")->data;
            const float *image = trm_batch_tensor(batch, "image")->data;
            for (int i = 0; i < 100; i++) {
                per_class[label[i]]++;
            }
            for (int i = 0; i < 100 * 3072; i += 17) {
                sum[i % 3072 / 1024] += image[i];
            }
            batches++;
        }
        for (int c = 0; c < 10; c++) {
            assert_int_equal(per_class[c], expected[usage] / 10);
        }
        if (usage == TRM_USAGE_TRAIN) { /* R, G, B, not B, G, R: the guide's numbers are swapped */
            for (int c = 0; c < 3; c++) {
                CHECK_CLOSE(sum[c] / ((double)batches * 100 * 3072 / 17 / 3), mean[c], 0.003);
            }
        }
        trm_dataset_destroy(data);
    }
}

static void describe_tells_the_pipeline(void **state) {
    trm_error err;
    setup s = {.samples = 101,
               .batch = 8,
               .shuffled = true,
               .window = 10,
               .shards = 4,
               .shard = 2,
               .depth = 3,
               .threads = 2};
    trm_dataset *data = open_dataset(&s);
    char *text = trm_dataset_json(data);
    assert_non_null(text);
    static const char *const parts[] = {
        "\"kind\":\"shapes\"",
        "\"samples\":101",
        "\"name\":\"RandomCrop\"",
        "\"padding\":4",
        "\"shard\":{\"count\":4,\"index\":2,\"mode\":\"wrap\"}",
        "\"epoch_batches\":4",
        "{\"name\":\"image\",\"dtype\":\"float32\",\"shape\":[8, 3, 32, 32]}",
        "\"window\":10",
        "\"mean\":[0.4914,0.4822,0.4465]",
        "\"prefetch\":{\"depth\":3,\"threads\":2}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(text, parts[i]) == NULL) {
            fail_msg("no %s in %s", parts[i], text);
        }
    }
    trm_free(text);
    trm_batch_field field;
    assert_true(trm_dataset_field(data, 1, &field));
    assert_string_equal(field.name, "label");
    assert_int_equal(field.tensor.dtype, TRM_INT32);
    assert_false(trm_dataset_field(data, 2, &field));
    CHECK_FAILS(trm_dataset_batch(data, 4, true, &err), TRM_INVALID, err, "refine it before");
    trm_dataset_destroy(data);
}

static void wrong_use_is_refused(void **state) {
    trm_error err;
    trm_dataset *data;
    setup s = {.samples = 10, .batch = 4};
    data = open_dataset(&s);
    CHECK_FAILS(trm_dataset_shard(data, 4, 4, 0, &err), TRM_INVALID, err, "shard 4 of 4");
    CHECK_FAILS(trm_dataset_shard(data, 4, 1, 7, &err), TRM_INVALID, err, "shard mode 7");
    CHECK_FAILS(trm_dataset_shuffle(data, -1, &err), TRM_INVALID, err, "window -1");
    CHECK_FAILS(trm_dataset_batch(data, 0, true, &err), TRM_INVALID, err, "batch of 0");
    CHECK_FAILS(trm_dataset_repeat(data, -2, &err), TRM_INVALID, err, "repeat -2");
    CHECK_FAILS(trm_dataset_prefetch(data, 1, 1000, &err), TRM_INVALID, err, "prefetch");
    trm_transform nonsense = {0};
    CHECK_FAILS(trm_dataset_map(data, &nonsense, 1, &err), TRM_INVALID, err, "unknown kind");
    trm_transform many[17];
    CHECK_FAILS(trm_dataset_map(data, many, 17, &err), TRM_INVALID, err, "at most 16");
    CHECK_OK(trm_dataset_batch(data, 11, true, &err), err);
    CHECK_FAILS(trm_dataset_check(data, &err), TRM_INVALID, err, "an epoch has no batch");
    assert_int_equal(trm_dataset_epoch_batches(data), 0);
    trm_dataset_destroy(data);
    trm_dataset_destroy(NULL);
    CHECK_FAILS(trm_dataset_shapes(&(trm_shapes_options){.train_count = -5}, 0, &data, &err),
                TRM_INVALID, err, "shapes: -5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(seek_continues_bit_for_bit),
        cmocka_unit_test(shards_divide_one_epoch),
        cmocka_unit_test(shards_interleave_one_order),
        cmocka_unit_test(epochs_end_and_repeat),
        cmocka_unit_test(unshuffled_is_sequential_and_epochs_differ),
        cmocka_unit_test(a_window_alone_moves_samples_little),
        cmocka_unit_test(after_the_first_batch_nothing_is_allocated),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(random_batches_are_constant),
        cmocka_unit_test_setup_teardown(shapes_on_disk_are_the_generated_ones, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(damaged_cifar_files_are_named, make_folder, remove_folder),
        cmocka_unit_test(real_cifar_is_read_whole),
        cmocka_unit_test(describe_tells_the_pipeline),
        cmocka_unit_test(wrong_use_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
