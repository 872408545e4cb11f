/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN's engine and stream, one for each back-end, and the library's version for the tuning file:
 * what was measured with one version says nothing about another. */
#include "exec/cpu/dnnl/dnnl_compat_v.h"

#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>

/* Contract in dnnl_compat.h. */
trm_status trmi_dnnl_create(trmi_dnnl **out, trm_error *err) {
    trmi_dnnl *dnnl;
    TRMI_TRY(TRMI_NEW(err, dnnl, 1, "for the oneDNN engine"));
    if (dnnl_engine_create(&dnnl->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&dnnl->stream, dnnl->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
        trmi_dnnl_destroy(dnnl);
        return TRMI_FAIL(err, TRM_INTERNAL, "oneDNN: no CPU engine");
    }
    *out = dnnl;
    return TRM_OK;
}

void trmi_dnnl_destroy(trmi_dnnl *dnnl) {
    if (dnnl == NULL) {
        return;
    }
    if (dnnl->stream != NULL) {
        dnnl_stream_destroy(dnnl->stream);
    }
    if (dnnl->engine != NULL) {
        dnnl_engine_destroy(dnnl->engine);
    }
    trmi_free(dnnl);
}

static char version_text[32];
/* Writes the version once (pthread_once), because several back-ends may be created at a time. */
static void format_version(void) {
    const dnnl_version_t *v = dnnl_version();
    snprintf(version_text, sizeof version_text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const char *trmi_dnnl_version(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, format_version);
    return version_text;
}
