/* SPDX-License-Identifier: Apache-2.0 */
/* plan/hardware/hardware.h: a machine that is not here: rates of its devices, their memory, links
 * by level.
 *
 *      text of a hardware file --trmi_hardware_parse--> trmi_hardware --> seconds of products,
 *                                                                         copies, collectives
 *
 * A file describes one kind of device with one efficiency curve (docs/reference/hardware-files.md).
 * All ranks of a group communicate at the same time, each with its own link to the network. */
#ifndef TRMI_PLAN_HARDWARE_H
#define TRMI_PLAN_HARDWARE_H

#include "trireme/base.h"

#include <stdbool.h>
#include <stdint.h>

/* Most levels, points of the efficiency curve, sources, bytes of a file. */
enum {
    TRMI_HARDWARE_LEVELS = 4,
    TRMI_HARDWARE_POINTS = 16,
    TRMI_HARDWARE_SOURCES = 8,
    TRMI_HARDWARE_BYTES = 1 << 16
};
/* Bytes that an update by Adam reads and writes for one parameter: the gradient in float32 (4), the
 * parameter and two moments in float32 (read and written, 24), the copy for products (2). */
enum { TRMI_UPDATE_BYTES = 30 };

/* Types of products. */
typedef enum trmi_product_type {
    TRMI_PRODUCT_BF16,
    TRMI_PRODUCT_FP16,
    TRMI_PRODUCT_FP8,
    TRMI_PRODUCT_FP32,
    TRMI_PRODUCT_TYPES
} trmi_product_type;

/* One level of links: bytes a second of one device in one direction, seconds of a message. */
typedef struct trmi_hardware_level {
    char name[16];
    int64_t devices; /* in one unit of this level */
    double bandwidth, latency;
} trmi_hardware_level;

/* A machine. Rates are a second; shares are between 0 and 1. */
typedef struct trmi_hardware {
    char name[64];
    double memory, reserved; /* bytes of a device, and those that a job cannot use */
    double bandwidth;        /* bytes of memory; `streaming`: the share of it that kernels reach */
    double streaming;
    double flops[TRMI_PRODUCT_TYPES]; /* peak; 0 = the device has no such products */
    /* share of the peak by seconds at the peak, rising; constant outside */
    double at[TRMI_HARDWARE_POINTS], efficiency[TRMI_HARDWARE_POINTS];
    int32_t points;
    double attention[2]; /* share of the bf16 peak, forward and backward */
    double start;        /* seconds of an operator beside its work */
    double step;         /* seconds of a step beside its operators */
    int64_t per_node;
    trmi_hardware_level levels[TRMI_HARDWARE_LEVELS];
    int32_t levels_count;
    /* shares of messages that can run beside operators: of tensor parallel (where the engine does
     * that), of gradients and parameters, of stages, of experts */
    double hide_tensor, hide_data, hide_stage, hide_expert;
} trmi_hardware;

/* Returns the word of a type: "bf16", "fp16", "fp8", "fp32". Static. */
const char *trmi_product_word(trmi_product_type type);
/* Returns the type of a word; TRMI_PRODUCT_TYPES: none. */
trmi_product_type trmi_product_of(const char *word);
/* Returns whether a text is a hardware file and not a description of links: it begins with "{". */
bool trmi_hardware_is(const char *text);
/* Parses a hardware file.
 *   param   name: of the file, for messages
 *   errors  INVALID, with line, found and expected text */
trm_status trmi_hardware_parse(const char *name, const char *text, trmi_hardware *out,
                               trm_error *err);

/* Returns the seconds of `count` products [m, k] x [k, n] one after another. */
double trmi_hardware_product(const trmi_hardware *h, trmi_product_type type, double count,
                             const double mnk[3]);
/* Returns the seconds of reading or writing `bytes` of memory in `operators` operators. */
double trmi_hardware_stream(const trmi_hardware *h, double bytes, double operators);

/* Ranks that communicate: `ranks` devices, `stride` apart. */
typedef struct trmi_device_group {
    int64_t ranks, stride;
} trmi_device_group;
/* Returns the seconds of an all-gather or reduce-scatter of `bytes`, the size of the whole. */
double trmi_hardware_gather(const trmi_hardware *h, trmi_device_group group, double bytes);
/* Returns the seconds of an all-to-all in which each rank has `bytes`. */
double trmi_hardware_exchange(const trmi_hardware *h, trmi_device_group group, double bytes);
/* Returns the seconds of a message of `bytes` to the device `stride` away. */
double trmi_hardware_send(const trmi_hardware *h, int64_t stride, double bytes);

#endif
