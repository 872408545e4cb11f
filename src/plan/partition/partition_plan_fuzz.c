/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: plan files, meshes and spreads from any bytes. What the parser accepts is written
 * and read back as the same text. */
#include "fuzz_seed.h"

#include "plan/partition/partition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
    "trireme-plan 1\nmesh a=2xb=4\ngraph 0123456789abcdef\nop conv1 nh pinned\nop fc.linear0 kc -> "
    "S1,R # by classes\n"
    "store fc.weight S0,R\n",
    "trireme-plan 1\nmesh 2x2x2\nop a n.+ -> P+,R,Pmax\nop b ... pinned\nstore w S0.1,S0.0,R\n",
    "trireme-plan 1\nmesh host=2xlocal=4\n\n# nothing else\n",
    "trireme-plan 1\nmesh 8\nop x n\nop x k\nstore y -\n",
    "trireme-plan 1\nmesh 2x2\nop norm nn again\nop a n. -> S0,R kept pinned\nop b .. again "
    "kept\n"};

size_t trireme_fuzz_seed(int index, uint8_t *data, size_t capacity) {
    const char *seed = seeds[(size_t)index % (sizeof seeds / sizeof seeds[0])];
    size_t bytes = strlen(seed);
    memcpy(data, seed, bytes < capacity ? bytes : capacity);
    return bytes;
}

static void end_fuzz(const char *what, const char *text) {
    fprintf(stderr, "%s:\n%s\n", what, text);
    abort();
}

static void try_plan(const char *text, size_t length) {
    trm_error err;
    trmi_partition_plan *plan, *again;
    if (trmi_partition_plan_parse(text, length, "fuzz", &plan, &err) != TRM_OK) {
        return;
    }
    char *written = trmi_partition_plan_text(plan);
    if (written == NULL ||
        trmi_partition_plan_parse(written, strlen(written), "written", &again, &err) != TRM_OK) {
        end_fuzz("a plan that was taken is not read back", written != NULL ? written : text);
    }
    char *twice = trmi_partition_plan_text(again);
    if (twice == NULL || strcmp(written, twice) != 0) {
        end_fuzz("a plan changes when it is written and read", written);
    }
    trm_free(written);
    trm_free(twice);
    trmi_partition_plan_destroy(plan);
    trmi_partition_plan_destroy(again);
}

static void try_words(const char *text) {
    trm_error err;
    trmi_mesh mesh, two;
    trmi_spread spread;
    char out[128];
    if (trmi_mesh_parse(text, &mesh, &err) == TRM_OK) {
        (void)trmi_mesh_text(&mesh, out, sizeof out);
        (void)trmi_mesh_ranks(&mesh);
    }
    if (trmi_mesh_parse("2x4", &two, &err) == TRM_OK &&
        trmi_spread_parse(&two, text, &spread, &err) == TRM_OK) {
        (void)trmi_spread_text(&two, &spread, out, sizeof out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = malloc(bytes + 1);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    try_plan(text, bytes);
    for (char *rest = NULL, *word = strtok_r(text, " \n", &rest); word != NULL;
         word = strtok_r(NULL, " \n", &rest)) {
        try_words(word);
    }
    free(text);
    return 0;
}
