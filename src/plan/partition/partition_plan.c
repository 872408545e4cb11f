/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as lists and as text. A text has one line for each operator, in the order of the graph:
 *
 *      trireme-plan 1
 *      mesh 2x4
 *      graph 0f3a...                     digest of the graph it was made for; without it, any graph
 *      op fc k. -> R,R pinned            letters by mesh axis; result redistributed to a spread; kept by searches
 *      op norm1 nn again                 its result is recomputed in backward (kept: never; neither: as the back-end decides)
 *      store fc.weight S0,R              between steps
 *
 * Names write blanks, '#' and '%' as %20, %23, %25. The parser accepts any bytes: every error is
 * reported with file and line (fuzz target partition_plan_fuzz.c). */
#include "plan/partition/partition_plan_stages.h"

#include "base/error.h"
#include "base/hash/hash.h"
#include "base/os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a name in a file, at most. */
enum { NAME_LIMIT = 512 };

/* ---- lists ---- */

trm_status trmi_partition_plan_create(const trmi_mesh *mesh, trmi_partition_plan **out,
                                      trm_error *err) {
    trmi_partition_plan *plan;
    TRMI_TRY(TRMI_NEW(err, plan, 1, "for a plan"));
    plan->mesh = *mesh;
    *out = plan;
    return TRM_OK;
}

void trmi_partition_plan_destroy(trmi_partition_plan *plan) {
    if (plan != NULL) {
        free(plan->choices);
        free(plan->stores);
        trmi_arena_free(&plan->arena);
        trmi_free(plan);
    }
}

const trmi_partition_choice *trmi_partition_plan_find(const trmi_partition_plan *plan,
                                                      const char *op) {
    for (int64_t i = 0; i < plan->choices_count; i++) {
        if (strcmp(plan->choices[i].op, op) == 0) {
            return &plan->choices[i];
        }
    }
    return NULL;
}

/* Contract in partition.h. A second call for an operator replaces the first. */
trm_status trmi_partition_plan_set(trmi_partition_plan *plan, const char *op, const char *letters,
                                   bool pinned, const trmi_spread *output, trm_error *err) {
    if (strlen(letters) != (size_t)plan->mesh.axes) {
        char mesh[64];
        return TRMI_FAIL(err, TRM_INVALID,
                         "%s: '%s': one letter for each of the %d axes of mesh %s expected", op,
                         letters, plan->mesh.axes, trmi_mesh_text(&plan->mesh, mesh, sizeof mesh));
    }
    trmi_partition_choice *choice =
        (trmi_partition_choice *)(uintptr_t)trmi_partition_plan_find(plan, op);
    if (choice == NULL) {
        const char *name = trmi_arena_strdup(&plan->arena, op);
        if (name == NULL || !trmi_grow((void **)&plan->choices, &plan->choices_capacity,
                                       plan->choices_count + 1, sizeof *plan->choices)) {
            return TRMI_NO_MEMORY(err, "for a plan");
        }
        choice = &plan->choices[plan->choices_count++];
        *choice = (trmi_partition_choice){.op = name};
    }
    snprintf(choice->letters, sizeof choice->letters, "%s", letters);
    choice->pinned = pinned;
    choice->recompute = TRMI_RECOMPUTE_RULE;
    choice->has_output = output != NULL;
    choice->output = output != NULL ? *output : (trmi_spread){{0}, {0}};
    return TRM_OK;
}

trm_status trmi_partition_plan_set_recompute(trmi_partition_plan *plan, const char *op,
                                             trmi_recompute_choice recompute, trm_error *err) {
    trmi_partition_choice *choice =
        (trmi_partition_choice *)(uintptr_t)trmi_partition_plan_find(plan, op);
    if (choice == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%s has no line in the plan", op);
    }
    choice->recompute = recompute;
    return TRM_OK;
}

/* Returns the index of a store; stores_count if there is none. */
static int64_t place_of_store(const trmi_partition_plan *plan, const char *name) {
    int64_t i = 0;
    while (i < plan->stores_count && strcmp(plan->stores[i].name, name) != 0) {
        i++;
    }
    return i;
}

const trmi_partition_store *trmi_partition_plan_stored(const trmi_partition_plan *plan,
                                                       const char *name) {
    int64_t place = place_of_store(plan, name);
    return place < plan->stores_count ? &plan->stores[place] : NULL;
}

/* Contract in partition.h. A second line for a parameter replaces the first one. */
trm_status trmi_partition_plan_store(trmi_partition_plan *plan, const char *name,
                                     const trmi_spread *spread, bool again, trm_error *err) {
    int64_t place = place_of_store(plan, name);
    if (place < plan->stores_count) {
        plan->stores[place].spread = *spread;
        plan->stores[place].again = again;
        return TRM_OK;
    }
    const char *copy = trmi_arena_strdup(&plan->arena, name);
    if (copy == NULL || !trmi_grow((void **)&plan->stores, &plan->stores_capacity,
                                   plan->stores_count + 1, sizeof *plan->stores)) {
        return TRMI_NO_MEMORY(err, "for a plan");
    }
    plan->stores[plan->stores_count++] =
        (trmi_partition_store){.name = copy, .spread = *spread, .again = again};
    return TRM_OK;
}

/* Contract in partition.h. Makes the plan "data parallel": every forward operator that has a
 * loop over samples is cut along it. Backward operators follow their forward ones. */
trm_status trmi_partition_plan_samples(const trm_graph *graph, const trmi_mesh *mesh,
                                       trmi_partition_plan **out, trm_error *err) {
    trmi_partition_plan *plan;
    TRMI_TRY(trmi_partition_plan_create(mesh, &plan, err));
    char all[TRMI_MESH_AXES + 1] = "";
    memset(all, 'n', (size_t)mesh->axes);
    trm_status status = TRM_OK;
    for (int64_t i = 1; i < graph->ops_count && status == TRM_OK; i++) {
        const trmi_op *op = &graph->ops[i];
        trmi_strategy strategy;
        /* the cast of a parameter has no samples */
        bool weight = op->kind == TRMI_OP_CAST && trmi_parameter_of(graph, op->outputs[0]) != NULL;
        if (op->phase == TRMI_FORWARD && !weight &&
            trmi_partition_strategy(graph, op, mesh, all, &strategy)) {
            status = trmi_partition_plan_set(plan, op->name, all, false, NULL, err);
        }
    }
    if (status != TRM_OK) {
        trmi_partition_plan_destroy(plan);
        return status;
    }
    plan->digest = trmi_partition_digest(graph);
    *out = plan;
    return TRM_OK;
}

/* ---- digest ---- */

/* Contract in partition.h. Names, kinds, inputs and shapes of forward operators decide which plan
 * fits; 0 is kept for "any graph". */
uint64_t trmi_partition_digest(const trm_graph *graph) {
    uint64_t hash = TRMI_HASH_BEGIN;
    for (int64_t i = 1; i < graph->ops_count; i++) {
        const trmi_op *op = &graph->ops[i];
        if (op->phase != TRMI_FORWARD) {
            continue; /* backward follows from forward */
        }
        const char *kind = trmi_op_def_of(op)->name;
        hash = trmi_hash(hash, kind, strlen(kind) + 1);
        hash = trmi_hash(hash, op->name, strlen(op->name) + 1);
        for (int32_t j = 0; j < op->inputs_count; j++) {
            const char *from =
                op->inputs[j] == 0 ? "" : graph->ops[graph->values[op->inputs[j]].op].name;
            hash = trmi_hash(hash, from, strlen(from) + 1);
        }
        for (int32_t j = 0; j < op->outputs_count; j++) {
            const trm_shape *s = &graph->values[op->outputs[j]].shape;
            hash = trmi_hash(hash, s->dim, (size_t)s->rank * sizeof s->dim[0]);
        }
    }
    return hash == 0 ? 1 : hash;
}

/* ---- text ---- */

/* Appends a name in the form of the file. */
static void write_name(trmi_text *text, const char *name) {
    trmi_plan_name_write(text, name, strlen(name));
}

/* Contract in partition.h. The form is described in docs/reference/plan-file.md. A NULL result
 * means that memory was out. */
char *trmi_partition_plan_text(const trmi_partition_plan *plan) {
    char word[64];
    trmi_text text = {0};
    trmi_text_printf(&text, "trireme-plan 1\nmesh %s\n",
                     trmi_mesh_text(&plan->mesh, word, sizeof word));
    if (plan->digest != 0) {
        trmi_text_printf(&text, "graph %016" PRIx64 "\n", plan->digest);
    }
    trmi_plan_stages_write(&plan->staged, &text);
    for (int64_t i = 0; i < plan->choices_count; i++) {
        const trmi_partition_choice *c = &plan->choices[i];
        trmi_text_printf(&text, "op ");
        write_name(&text, c->op);
        trmi_text_printf(&text, " %s", plan->mesh.axes == 0 ? "-" : c->letters);
        if (c->has_output) {
            trmi_text_printf(&text, " -> %s",
                             trmi_spread_text(&plan->mesh, &c->output, word, sizeof word));
        }
        trmi_text_printf(&text, "%s%s\n",
                         c->recompute == TRMI_RECOMPUTE_YES  ? " again"
                         : c->recompute == TRMI_RECOMPUTE_NO ? " kept"
                                                             : "",
                         c->pinned ? " pinned" : "");
    }
    for (int64_t i = 0; i < plan->stores_count; i++) {
        trmi_text_printf(&text, "store ");
        write_name(&text, plan->stores[i].name);
        trmi_text_printf(&text, " %s%s\n",
                         trmi_spread_text(&plan->mesh, &plan->stores[i].spread, word, sizeof word),
                         plan->stores[i].again ? " again" : "");
    }
    if (text.failed) {
        trmi_text_free(&text);
        return NULL;
    }
    return text.data;
}

/* Words of a line, at most. */
enum { WORDS = 7 };

/* State of the parser. */
typedef struct reader {
    const char *file;
    int line;
    char *words[WORDS]; /* of the line; `count` may be above WORDS */
    int count;
    trmi_partition_plan *plan;
    bool has_mesh; /* the line "mesh" was read */
    trmi_plan_stages staged;
    trmi_text begins; /* names, with ',' between */
} reader;

/* Splits a line at blanks, up to '#'. Returns the number of words; words beyond WORDS are counted,
 * not stored. */
static int split_line(char *line, char *words[WORDS]) {
    int count = 0;
    for (char *at = line; *at != '\0' && *at != '#';) {
        if (*at == ' ' || *at == '\t' || *at == '\r') {
            *at++ = '\0';
            continue;
        }
        if (count < WORDS) {
            words[count] = at;
        }
        count++;
        while (*at != '\0' && *at != ' ' && *at != '\t' && *at != '\r' && *at != '#') {
            at++;
        }
        if (*at == '#') {
            *at = '\0';
            break;
        }
    }
    return count;
}

/* Returns the file named by the first line "trireme-plan 1 # from FILE", or else the name given by
 * the caller; in the plan's memory. */
static const char *named_file(const reader *r, const char *first_line) {
    static const char from[] = "# from ";
    const char *at = strstr(first_line, from);
    return trmi_arena_strdup(&r->plan->arena, at != NULL ? at + strlen(from) : r->file);
}

/* Decodes a name. False: bad %xx, empty or too long. */
static bool read_name(const char *word, char name[NAME_LIMIT]) {
    size_t used = 0;
    for (; *word != '\0' && used + 1 < NAME_LIMIT; word++) {
        unsigned code;
        if (*word == '%') {
            if (sscanf(word + 1, "%2x", &code) != 1 || word[1] == '\0' || word[2] == '\0' ||
                code == 0) {
                return false;
            }
            name[used++] = (char)code;
            word += 2;
        } else {
            name[used++] = *word;
        }
    }
    name[used] = '\0';
    return *word == '\0' && used > 0;
}

/* Reports a line, with its first words, and what was expected. The words come from a file that may
 * be anything: bytes that are not ASCII text are shown as '?'. */
static trm_status bad_line(const reader *r, const char *expected, trm_error *err) {
    char found[80] = "";
    for (int i = 0; i < r->count && i < WORDS; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%s", i > 0 ? " " : "", r->words[i]);
    }
    for (char *at = found; *at != '\0'; at++) {
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d: found '%s', expected %s", r->file, r->line,
                     found, expected);
}

/* Adds file and line to an error about a mesh or spread. */
static trm_status bad_spread(const reader *r, trm_error *err) {
    char text[200];
    snprintf(text, sizeof text, "%.180s", err->message);
    return TRMI_FAIL(err, TRM_CORRUPT, "%s: line %d: %s", r->file, r->line, text);
}

/* Reads a line "op". Options are recognised from the end: pinned, then again or kept. */
static trm_status read_op(reader *r, char *const *words, int count, trm_error *err) {
    static const char form[] = "op NAME LETTERS [-> SPREAD] [again|kept] [pinned]";
    char name[NAME_LIMIT];
    trm_error local;
    err = err != NULL ? err : &local;
    if (count < 3 || count > WORDS || !read_name(words[1], name)) {
        return bad_line(r, form, err);
    }
    bool pinned = strcmp(words[count - 1], "pinned") == 0;
    const char *last = words[count - 1 - pinned];
    trmi_recompute_choice recompute = count - pinned < 4           ? TRMI_RECOMPUTE_RULE
                                      : strcmp(last, "again") == 0 ? TRMI_RECOMPUTE_YES
                                      : strcmp(last, "kept") == 0  ? TRMI_RECOMPUTE_NO
                                                                   : TRMI_RECOMPUTE_RULE;
    int rest = count - 3 - pinned - (recompute != TRMI_RECOMPUTE_RULE);
    trmi_spread spread;
    if ((rest != 0 && rest != 2) || (rest == 2 && strcmp(words[3], "->") != 0)) {
        return bad_line(r, form, err);
    }
    if (rest == 2 && trmi_spread_parse(&r->plan->mesh, words[4], &spread, err) != TRM_OK) {
        return bad_spread(r, err);
    }
    const char *letters = r->plan->mesh.axes == 0 && strcmp(words[2], "-") == 0 ? "" : words[2];
    if (strlen(letters) != (size_t)r->plan->mesh.axes) {
        return bad_line(r, "one letter for each mesh axis", err);
    }
    if (trmi_partition_plan_find(r->plan, name) != NULL) {
        return bad_line(r, "one line an operator, this one has two", err);
    }
    TRMI_TRY(
        trmi_partition_plan_set(r->plan, name, letters, pinned, rest == 2 ? &spread : NULL, err));
    r->plan->choices[r->plan->choices_count - 1].line = r->line;
    return trmi_partition_plan_set_recompute(r->plan, name, recompute, err);
}

/* Reads one line of a plan. */
static trm_status read_line(reader *r, char *line, trm_error *err) {
    char **words = r->words, name[NAME_LIMIT], *end;
    trm_error local;
    err = err != NULL ? err : &local;
    int count = r->count = split_line(line, words);
    if (count == 0) {
        return TRM_OK;
    }
    /* the first line identifies the format, the mesh must come before all other lines */
    if (r->line == 1) {
        return count == 2 && strcmp(words[0], "trireme-plan") == 0 && strcmp(words[1], "1") == 0
                   ? TRM_OK
                   : bad_line(r, "trireme-plan 1", err);
    }
    /* Read the header: mesh and graph. */
    if (strcmp(words[0], "mesh") == 0 && count == 2 && !r->has_mesh) {
        r->has_mesh = true;
        return trmi_mesh_parse(words[1], &r->plan->mesh, err) == TRM_OK ? TRM_OK
                                                                        : bad_spread(r, err);
    }
    if (!r->has_mesh) {
        return bad_line(r, "mesh AxB before anything else", err);
    }
    if (strcmp(words[0], "graph") == 0 && count == 2) {
        r->plan->digest = strtoull(words[1], &end, 16);
        return *end == '\0' && end - words[1] == 16
                   ? TRM_OK
                   : bad_line(r, "graph and 16 hexadecimal digits", err);
    }
    /* Read one line for each operator, stage and store; stages are kept in `r` until the last
     * line. */
    if (strcmp(words[0], "op") == 0) {
        return read_op(r, words, count, err);
    }
    if (strcmp(words[0], "pipeline") == 0) {
        return trmi_plan_stages_read(&r->staged, words, count)
                   ? TRM_OK
                   : bad_line(r,
                              "pipeline stages=N chunks=N micro-batches=N "
                              "schedule=1f1b|gpipe|interleaved recompute=off|block, once",
                              err);
    }
    if (strcmp(words[0], "begin") == 0 && count == 2 && r->staged.stages > 0 &&
        read_name(words[1], name)) {
        trmi_text_printf(&r->begins, "%s%s", r->begins.length > 0 ? "," : "", name);
        return TRM_OK;
    }
    bool again = count == 4 && strcmp(words[3], "again") == 0;
    if (strcmp(words[0], "store") == 0 && (count == 3 || again) && read_name(words[1], name)) {
        trmi_spread spread;
        if (trmi_spread_parse(&r->plan->mesh, words[2], &spread, err) != TRM_OK) {
            return bad_spread(r, err);
        }
        TRMI_TRY(trmi_partition_plan_store(r->plan, name, &spread, again, err));
        r->plan->stores[place_of_store(r->plan, name)].line = r->line;
        return TRM_OK;
    }
    return bad_line(r,
                    "mesh AxB, graph DIGEST, pipeline ..., begin NAME, op NAME LETTERS, or store "
                    "NAME SPREAD [again]",
                    err);
}

/* Contract in partition.h. Lines are cut in a copy of the text. The first line may name the file
 * from which the plan came, so that errors of a plan that rank 0 has sent name that file. */
trm_status trmi_partition_plan_parse(const char *text, size_t length, const char *file,
                                     trmi_partition_plan **out, trm_error *err) {
    char *copy = trmi_alloc(length + 1);
    reader r = {.file = file};
    if (copy == NULL) {
        return TRMI_NO_MEMORY(err, "to read %s", file);
    }
    memcpy(copy, text, length);
    trm_status status = trmi_partition_plan_create(&(trmi_mesh){0}, &r.plan, err);
    if (status == TRM_OK && memchr(text, '\0', length) != NULL) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: not a plan: it holds zero bytes", file);
    }
    /* Read line by line; a zero ends each in the copy. */
    for (char *line = copy; status == TRM_OK && line != NULL;) {
        char *end = strchr(line, '\n');
        if (end != NULL) {
            *end++ = '\0';
        }
        if (++r.line == 1) {
            r.plan->file = named_file(&r, line);
            r.file = r.plan->file != NULL ? r.plan->file : file;
        }
        status = read_line(&r, line, err);
        line = end;
    }
    /* Only the end of the text shows whether there are a mesh, and stages with all their begins. */
    if (status == TRM_OK && !r.has_mesh) {
        status = TRMI_FAIL(err, TRM_CORRUPT,
                           "%s: a plan has a line 'mesh'; this file ends before it", file);
    }
    if (status == TRM_OK && r.staged.stages > 0) {
        r.staged.begins = r.begins.failed ? NULL : r.begins.data;
        trm_error why;
        status = trmi_partition_plan_stage(r.plan, &r.staged, &why);
        status = status == TRM_INVALID
                     ? TRMI_FAIL(err, TRM_CORRUPT, "%s: %.200s", r.file, why.message)
                 : status != TRM_OK ? TRMI_NO_MEMORY(err, "to read %s", r.file)
                                    : TRM_OK;
    }
    trmi_text_free(&r.begins);
    trmi_free(copy);
    if (status != TRM_OK) {
        trmi_partition_plan_destroy(r.plan);
        return status;
    }
    *out = r.plan;
    return TRM_OK;
}

trm_status trmi_partition_plan_save(const trmi_partition_plan *plan, const char *file,
                                    trm_error *err) {
    char *text = trmi_partition_plan_text(plan);
    if (text == NULL) {
        return TRMI_NO_MEMORY(err, "to write %s", file);
    }
    trm_status status = trmi_os_replace_file(NULL, file, text, strlen(text), err);
    trm_free(text);
    return status;
}
