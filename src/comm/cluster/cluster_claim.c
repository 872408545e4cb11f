/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the readers of all sources: reading variables, adding claims and warnings. */
#include "comm/cluster/cluster_claim.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/cluster/cluster_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void trmi_cluster_log_warnings(const trm_cluster *cluster) {
    for (int32_t w = 0; w < cluster->info.warning_count; w++) {
        trmi_log(TRM_LOG_WARN, "comm", "%s", cluster->info.warnings[w]);
    }
}

const char *trmi_env_text(const trmi_environment *env, const char *name) {
    const char *text = env->lookup(env->context, name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Contract in cluster_claim.h. A variable that is set to nonsense is an error, not as if it were
 * not set: the launcher meant something. */
trm_status trmi_env_integer(const trmi_environment *env, const char *name, int64_t low,
                            int64_t high, int32_t *out, trm_error *err) {
    const char *text = trmi_env_text(env, name);
    int64_t value;
    char part[40];
    if (text == NULL) {
        return TRM_OK;
    }
    if (!trmi_decimal(text, &value) || value < low || value > high) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: a whole number from %lld to %lld expected, found \"%s\"", name,
                         (long long)low, (long long)high, trmi_printable(text, part, sizeof part));
    }
    *out = (int32_t)value;
    return TRM_OK;
}

trmi_claim *trmi_claim_add(trmi_claims *claims, const char *format, ...) {
    TRMI_ASSERT(claims->count < TRMI_CLAIMS_MAX);
    trmi_claim *claim = &claims->items[claims->count++];
    memset(claim, 0, sizeof *claim);
    claim->rank = claim->local_rank = -1;
    va_list args;
    va_start(args, format);
    vsnprintf(claim->source, sizeof claim->source, format, args);
    va_end(args);
    return claim;
}
