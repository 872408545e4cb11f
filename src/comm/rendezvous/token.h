/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/token.h: how processes of one user on one host find the token of a job when no
 * file of it was named.
 *
 *   /tmp/trireme-UID/token-HOST:PORT      32 bytes, mode 0600, in a folder of mode 0700 that is the
 * user's own
 *
 * The process that will listen at HOST:PORT writes the file before it listens and removes it when
 * it ends. A peer reads it after it has connected, by the address that it has reached. Another user
 * can do neither. */
#ifndef TRMI_COMM_TOKEN_H
#define TRMI_COMM_TOKEN_H

#include "trireme/cluster.h"

enum { TRMI_TOKEN_PATH_BYTES = 160 };

/* Writes the token for `address` ("127.0.0.1:4000"); replaces that of a process which has died.
 *   out   path[TRMI_TOKEN_PATH_BYTES], for trmi_token_withdraw    errors  INVALID (the folder is
 * another user's), IO */
trm_status trmi_token_publish(const char *address, const uint8_t token[TRM_TOKEN_BYTES], char *path,
                              trm_error *err);
/* Removes the file, unless another process has replaced it since. "" is fine. */
void trmi_token_withdraw(const char *path, const uint8_t token[TRM_TOKEN_BYTES]);
/* The token of the process that listens at `address`, or at its port on all addresses.   errors
 * INVALID */
trm_status trmi_token_find(const char *address, uint8_t token[TRM_TOKEN_BYTES], trm_error *err);

#endif
