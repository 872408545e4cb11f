/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/trireme.h: all of the library. trireme/base.h says through which of the three doors
 * (train, exec, dist) a program enters, and the form of all comments.
 *
 *   base.h    status and errors, types, shapes, tensors, the log, optimisers, this machine
 *   data.h    datasets of images, clicks and text: sources, transforms, batches
 *   graph.h   operators, operators of your own, gradients
 *   nn.h      networks and language models, and the text that these generate
 *   train.h   door: models, learning rates, callbacks, checkpoints, metrics, jobs with roles
 *   exec.h    door: compile a graph and run it step by step; options of many ranks, also by name
 *   dist.h    door: rank and hosts of a process, launching, collectives, elastic jobs, three calls
 *   plan.h    how a model is split over ranks; whether a split computes the same
 *   ps.h      parameter servers, their clients and tables
 *   io.h      files: checkpoints, safetensors, events, NumPy, inspection, export of weights */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/dist.h"
#include "trireme/exec.h"
#include "trireme/graph.h"
#include "trireme/io.h"
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
