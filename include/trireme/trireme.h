/* SPDX-License-Identifier: Apache-2.0 */
/* trireme/trireme.h: all of the library. trireme/base.h names its three doors (train, exec, dist)
 * and the form of all comments. */
#ifndef TRIREME_TRIREME_H
#define TRIREME_TRIREME_H

#include "trireme/base.h"
#include "trireme/data.h"
#include "trireme/dist.h"
#include "trireme/estimator.h"
#include "trireme/exec.h"
#include "trireme/graph.h"
#include "trireme/io.h"
#include "trireme/language.h"
#include "trireme/nn.h"
#include "trireme/plan.h"
#include "trireme/ps.h"
#include "trireme/train.h"

#endif
