/* SPDX-License-Identifier: Apache-2.0 */
/* A client that changes its place in the job: another first batch, or a disappearance without
 * signing off (contracts in life.h). */
#include "ps/client/client.h"
#include "ps/client/life.h"

/* seconds for pushes under way: those that arrive need not be repeated */
static const double last_words_seconds = 1;

void trmi_client_begin_at(trm_ps_client *client, int64_t batch) {
    client->next_batch = client->joined = batch;
}

void trmi_client_set_timeout(trm_ps_client *client, double timeout_seconds) {
    client->options.timeout_seconds = timeout_seconds;
}

void trmi_client_vanish(trm_ps_client *client) {
    trm_error ignored;
    if (client != NULL) {
        client->options.timeout_seconds = last_words_seconds;
        client->options.lost = NULL;
        (void)!trm_ps_flush(client, &ignored);
        client->incarnation = 0;
        trm_ps_client_destroy(client);
    }
}
