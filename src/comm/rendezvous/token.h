/* SPDX-License-Identifier: Apache-2.0 */
/* comm/rendezvous/token.h: how processes of one user on one host find the token of a job without a
 * token file.
 *
 *   /tmp/trireme-UID/token-HOST:PORT    32 bytes, mode 0600, in a folder of mode 0700 that belongs
 *                                       to the user
 *
 * The process that listens at HOST:PORT writes the file before it listens and removes it at its
 * end. A peer reads it after it has connected, by the address that it has reached. Another user can
 * neither write nor read it. */
#ifndef TRMI_COMM_TOKEN_H
#define TRMI_COMM_TOKEN_H

#include "trireme/dist.h"

/* Bytes of the path of a published token. */
enum { TRMI_TOKEN_PATH_BYTES = 160 };

/* Creates a token file of mode 0600 with 32 random bytes. An existing file is an error.
 *   errors  IO (also: the file exists), NOSPACE */
trm_status trmi_token_create(const char *path, trm_error *err);

/* Writes the token for `address` ("127.0.0.1:4000"). A file of a process that has died is replaced.
 * path[TRMI_TOKEN_PATH_BYTES] receives the path, for trmi_token_withdraw.
 *   errors  INVALID (the folder belongs to another user), IO */
trm_status trmi_token_publish(const char *address, const uint8_t token[TRM_TOKEN_BYTES], char *path,
                              trm_error *err);
/* Removes the file, unless another process has replaced it in the meantime. path "" does
 * nothing. */
void trmi_token_withdraw(const char *path, const uint8_t token[TRM_TOKEN_BYTES]);
/* Finds the token of the process that listens at `address`, or at its port on all addresses.
 *   errors  INVALID */
trm_status trmi_token_find(const char *address, uint8_t token[TRM_TOKEN_BYTES], trm_error *err);

#endif
