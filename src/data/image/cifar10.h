/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/cifar10.h: CIFAR-10's binary form, as bytes. */
#ifndef TRMI_DATA_CIFAR10_H
#define TRMI_DATA_CIFAR10_H

#include "trireme/data.h"

enum {
    TRMI_CIFAR10_SIDE = 32,
    TRMI_CIFAR10_PIXELS = 3 * 32 * 32,
    TRMI_CIFAR10_RECORD = 1 + TRMI_CIFAR10_PIXELS,
    TRMI_CIFAR10_CLASSES = 10,
    TRMI_CIFAR10_RECORDS = 10000 /* in each official file */
};

/* Checks that a file has exactly `records` records with labels below ten; `name` is for the
 * message. */
trm_status trmi_cifar10_check(const char *name, const uint8_t *data, size_t bytes, int64_t records,
                              trm_error *err);
/* The count that records.txt ("name count" a line) gives for `name`: -1 if it is not listed. The
 * text is terminated. TRM_CORRUPT for other lines. */
trm_status trmi_cifar10_listed(const char *text, const char *name, int64_t *out, trm_error *err);

#endif
