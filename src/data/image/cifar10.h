/* SPDX-License-Identifier: Apache-2.0 */
/* data/image/cifar10.h: the binary form of CIFAR-10: records of a label byte and 32x32 bytes for
 * each of red, green and blue. */
#ifndef TRMI_DATA_CIFAR10_H
#define TRMI_DATA_CIFAR10_H

#include "trireme/data.h"

/* Pixels of a side, bytes of a picture and of a record, classes. */
enum {
    TRMI_CIFAR10_SIDE = 32,
    TRMI_CIFAR10_PIXELS = 3 * 32 * 32,
    TRMI_CIFAR10_RECORD = 1 + TRMI_CIFAR10_PIXELS,
    TRMI_CIFAR10_CLASSES = 10,
    TRMI_CIFAR10_RECORDS = 10000 /* in each of the six official files */
};

/* Checks that a file has exactly `records` records, all with labels below ten. `name` is for
 * messages.
 *   errors  CORRUPT */
trm_status trmi_cifar10_check(const char *name, const uint8_t *data, size_t bytes, int64_t records,
                              trm_error *err);
/* Finds the number of records that records.txt ("name count" in each line) gives for `name`; *out
 * is -1 if it is not listed. The text is terminated.
 *   errors  CORRUPT for lines of another form */
trm_status trmi_cifar10_listed(const char *text, const char *name, int64_t *out, trm_error *err);

#endif
