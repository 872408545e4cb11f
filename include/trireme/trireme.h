/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/trireme.h: all of the library. trireme/base.h names its three doors (train, exec, dist)
 * and the form of all comments. */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/dist.h"
#include "trireme/elastic.h"
#include "trireme/estimator.h"
#include "trireme/exec.h"
#include "trireme/graph.h"
#include "trireme/io.h"
#include "trireme/language.h"
#include "trireme/nn.h"
#include "trireme/plan.h"
#include "trireme/ps.h"
#include "trireme/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the layout of all public structs in the order of the headers: the size of each, followed
 * by the offsets of its members. A binding for another language compares it with its own
 * declarations and so recognises a library of another version.
 *   param    count: length of the list, written
 *   owns     static
 *   threads  any */
TRM_API const uint32_t *trm_layout(int32_t *count);

#ifdef __cplusplus
}
#endif

#endif
