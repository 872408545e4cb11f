/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the time of one thread for a sample, beside libjpeg-turbo's own decode of the same
 * bytes: `trireme bench data` prints both.
 *
 * Times are CPU seconds of the calling thread, which other processes do not change. The dataset
 * must have no worker threads, so that this thread fills the batches. What is compared belongs to
 * the same samples: a batch is filled, and then its images are decoded alone. A dataset with a
 * sample that is no JPEG has no second figure. */
#include "bench/bench.h"

#include "data/pipeline/dataset.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/os.h"

#include <turbojpeg.h>

enum { ROUNDS_MAX = 4096 };

/* Decodes the samples of a batch to RGB with a plain call of TurboJPEG. Clears `jpeg` if a sample
 * is no JPEG. */
static trm_status decode_batch(const trm_dataset *dataset, trmi_picture_scratch *scratch,
                               const trmi_batch_slot *slot, bool *jpeg, double *seconds,
                               trm_error *err) {
    *seconds = 0;
    for (int64_t i = 0; i < slot->batch.samples; i++) {
        trmi_sample sample;
        TRMI_TRY(
            dataset->source->ops->load(dataset->source, scratch, slot->indices[i], &sample, err));
        int width = 0, height = 0, subsampling = 0, space = 0;
        double start = trmi_os_thread_now();
        if (scratch->decoder == NULL) {
            scratch->decoder = tjInitDecompress();
        }
        if (scratch->decoder == NULL ||
            tjDecompressHeader3(scratch->decoder, sample.data, sample.bytes, &width, &height,
                                &subsampling, &space) != 0) {
            *jpeg = false;
            return TRM_OK;
        }
        int format = space == TJCS_CMYK || space == TJCS_YCCK ? TJPF_CMYK : TJPF_RGB;
        size_t bytes = (size_t)width * (size_t)height * (size_t)tjPixelSize[format];
        uint8_t *pixels = trmi_scratch_get(scratch, TRMI_SCRATCH_SOURCE, bytes);
        if (pixels == NULL) {
            return TRMI_NO_MEMORY(err, "for an image of %d x %d", height, width);
        }
        (void)tjDecompress2(scratch->decoder, sample.data, sample.bytes, pixels, width, 0, height,
                            format, 0);
        *seconds += trmi_os_thread_now() - start;
    }
    return TRM_OK;
}

/* Contract in bench.h. The dataset has no threads here: this thread fills each batch, and then
 * decodes its images alone, so that both CPU times belong to the same samples. */
trm_status bench_dataset(trm_dataset *dataset, double seconds, bench_data_rate *out,
                         trm_error *err) {
    TRMI_TRY(trmi_dataset_seal(dataset, err));
    if (dataset->workers != NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "bench: the dataset is being read; open another");
    }
    dataset->threads = dataset->depth = 0;
    TRMI_TRY(trmi_dataset_start(dataset, err));
    bool jpeg = dataset->source->form == TRMI_FORM_ENCODED && dataset->source->ops->load != NULL;
    double *own = trmi_alloc(3 * ROUNDS_MAX * sizeof *own);
    double *decode = own + ROUNDS_MAX, *ratio = decode + ROUNDS_MAX;
    trmi_picture_scratch scratch = {0};
    trm_status status = own == NULL ? TRMI_NO_MEMORY(err, "to measure") : TRM_OK;
    *out = (bench_data_rate){0};
    int64_t rounds = 0;
    double start = trmi_os_now();
    trmi_batch_slot *slot = dataset->slots;
    /* The first batch warms caches and scratch; it is not counted. */
    for (int64_t number = 0; status == TRM_OK && rounds < ROUNDS_MAX; number++) {
        double before = trmi_os_thread_now();
        trmi_slot_fill(dataset, dataset->workers, number, slot);
        double taken = trmi_os_thread_now() - before;
        status = slot->status;
        if (status != TRM_OK) {
            if (err != NULL) {
                *err = slot->error;
            }
            break;
        }
        /* Images that are not JPEG end this part: decode_batch sets `jpeg` to false. */
        double decoding = 0;
        if (jpeg) {
            status = decode_batch(dataset, &scratch, slot, &jpeg, &decoding, err);
        }
        if (number == 0 || slot->batch.samples == 0) {
            continue;
        }
        own[rounds] = taken / (double)slot->batch.samples * 1e6;
        decode[rounds] = decoding / (double)slot->batch.samples * 1e6;
        ratio[rounds] = decoding / taken;
        rounds++;
        out->samples += slot->batch.samples;
        if (trmi_os_now() - start > seconds) {
            break;
        }
    }
    if (status == TRM_OK) {
        out->microseconds_per_sample = trmi_median(own, rounds);
        out->decode_microseconds_per_sample = jpeg ? trmi_median(decode, rounds) : 0;
        out->decode_ratio = jpeg ? trmi_median(ratio, rounds) : 0;
    }
    trmi_free(own);
    trmi_scratch_free(&scratch);
    trmi_dataset_stop(dataset);
    return status;
}
