/* SPDX-License-Identifier: Apache-2.0 */
/* The table of gradient sinks. */
#include "train/gradient_sink.h"

extern const trmi_gradient_sink trmi_sink_local, trmi_sink_servers, trmi_sink_leases,
    trmi_sink_hybrid;

/* In the order of choice: the first sink that takes a model's options is used. The last one
 * takes all options. */
static const trmi_gradient_sink *const table[] = {
    &trmi_sink_hybrid,  /* tables on servers, dense parameters here */
    &trmi_sink_leases,  /* all parameters on servers, which also lend the samples */
    &trmi_sink_servers, /* all parameters on servers */
    &trmi_sink_local,   /* the executor's optimiser */
};

const trmi_gradient_sink *trmi_gradient_sink_of(const trm_model_options *options) {
    int32_t i = 0;
    while (!table[i]->takes(options)) {
        i++;
    }
    return table[i];
}
