/* SPDX-License-Identifier: Apache-2.0 */
/* comm/schedule/calibration.h: the network's figures (alpha, beta, gamma), measured once per
 * cluster and kept.
 *
 *   first communicator   rank 0 looks into links.txt of its cache; all ranks take its word
 *                        not there: measured between neighbours, written by rank 0
 *   sub-communicators    the first one's figures
 *
 * links.txt has a line for each cluster and engine: digest of hosts (name, address, ranks of each,
 * in order), engine, seconds a round, a byte, a byte summed. Other hosts, numbers of ranks or
 * engines are another line. */
#ifndef TRMI_COMM_CALIBRATION_H
#define TRMI_COMM_CALIBRATION_H

#include "base/memory.h"
#include "comm/net/net.h"

enum { TRMI_LINKS_MAX = 256 }; /* lines kept; the oldest go */

/* The line of (cluster, engine) in a file's text. False if there is none, or one that cannot be
 * right. */
bool trmi_links_find(const char *text, const uint8_t cluster[32], const char *engine,
                     trmi_model *out);
/* The file's new text: the line of (cluster, engine) replaced or added at the end. What is no such
 * line is left
 * out.   owns caller, trmi_text_free   error NOMEM */
trm_status trmi_links_put(const char *text, const uint8_t cluster[32], const char *engine,
                          const trmi_model *model, trmi_text *out, trm_error *err);

/* Collective. Kept figures, or measured ones. A cache that cannot be read or written is no error.
 */
trm_status trmi_calibrate(trmi_transport *transport, const trmi_exchange *exchange, trmi_model *out,
                          trm_error *err);

#endif
