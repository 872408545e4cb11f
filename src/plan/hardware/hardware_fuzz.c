/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: hardware files and plans in words from any bytes. What is accepted has prices that
 * are numbers; words that are written are read back. */
#include "fuzz_seed.h"

#include "plan/hardware/parallelism.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
    "{\"name\":\"a\",\"device\":{\"memory_bytes\":8e10,\"bytes_per_second\":3e12,"
    "\"memory_efficiency\":0.8,\"flops\":{\"bf16\":1e15},\"efficiency\":[[1e-5,0.3],[1e-3,0.7]],"
    "\"attention_forward\":0.5,\"attention_backward\":0.4},\"links\":[{\"name\":\"n\",\"devices\":"
    "8,"
    "\"bytes_per_second\":4e11,\"latency_seconds\":5e-6}],\"overlap\":{\"data\":0.9}}",
    "tp=8,pp=4,cp=1,micro-batch=1,recompute=full", "tp=2,vp=2,schedule=interleaved,zero=1",
    "recompute=full:3,overlap-tp=off,ep=4,dp=2"};

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    const char *seed = seeds[(size_t)index % (sizeof seeds / sizeof seeds[0])];
    size_t bytes = strlen(seed);
    memcpy(data, seed, bytes < capacity ? bytes : capacity);
    return bytes;
}

static void try_machine(const char *text) {
    trmi_hardware h;
    trm_error err;
    const double mnk[3] = {100, 200, 300};
    if (trmi_hardware_parse("fuzz", text, &h, &err) != TRM_OK) {
        return;
    }
    for (int64_t ranks = 1; ranks <= 64; ranks *= 4) {
        const trmi_device_group group = {ranks, 3};
        double seconds = trmi_hardware_product(&h, TRMI_PRODUCT_BF16, 1, mnk) +
                         trmi_hardware_gather(&h, group, 1e6) +
                         trmi_hardware_exchange(&h, group, 1e6);
        if (!(seconds > 0 && isfinite(seconds))) {
            fprintf(stderr, "a price is %g:\n%s\n", seconds, text);
            abort();
        }
    }
}

static void try_words(const char *text) {
    trmi_parallelism plan, again;
    trm_error err;
    char words[256];
    if (trmi_parallelism_parse(text, &plan, &err) != TRM_OK || plan.data == 0 ||
        (plan.recompute == TRMI_RECOMPUTE_FULL && plan.blocks == 0)) {
        return; /* words of a plan that is not complete have zeros */
    }
    trmi_parallelism_words(&plan, words, sizeof words);
    if (trmi_parallelism_parse(words, &again, &err) != TRM_OK ||
        memcmp(&plan, &again, sizeof plan) != 0) {
        fprintf(stderr, "a plan is not read back:\n%s\n", words);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    try_machine(text);
    try_words(text);
    free(text);
    return 0;
}
