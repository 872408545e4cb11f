/* SPDX-License-Identifier: Apache-2.0 */
/* comm/schedule/calibration.h: the figures of a network (trmi_model), measured once for each
 * cluster and kept in a file.
 *
 *   first communicator   rank 0 reads links.txt of its cache folder; all ranks take its figures
 *                        without an entry: measured between neighbours, written by rank 0
 *   children             the first communicator's figures
 *
 * links.txt has a line for each cluster and engine: digest of the hosts (name, address and ranks of
 * each, in order), engine, seconds for a round, for a byte, for a byte summed. Other hosts, another
 * number of ranks or another engine have another line. */
#ifndef TRMI_COMM_CALIBRATION_H
#define TRMI_COMM_CALIBRATION_H

#include "base/memory.h"
#include "comm/net/engines.h"

enum { TRMI_LINKS_MAX = 256 }; /* lines that are kept; the oldest are removed */

/* Finds the line of (cluster, engine) in the text of links.txt. Returns false if there is none or
 * if its figures are implausible. */
bool trmi_links_find(const char *text, const uint8_t cluster[32], const char *engine,
                     trmi_model *out);
/* Appends to `out` the new text of the file: the line of (cluster, engine) is replaced, or added at
 * the end. Lines of another form are left out. The caller frees `out` (trmi_text_free).
 *   errors  NOMEM */
trm_status trmi_links_put(const char *text, const uint8_t cluster[32], const char *engine,
                          const trmi_model *model, trmi_text *out, trm_error *err);

/* Returns the figures of the transport: kept ones, or measured ones. All ranks call it together. A
 * cache that cannot be read or written is not an error: the figures are then measured. */
trm_status trmi_calibrate(trmi_transport *transport, const trmi_exchange *exchange, trmi_model *out,
                          trm_error *err);

#endif
