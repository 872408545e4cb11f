/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes of ranks and spreads of tensors: parts, adjoints, text, lists of spreads, boxes.
 *
 * All functions are pure. A spread is valid for a shape only if trmi_spread_fits(); the other
 * functions require that. */
#include "plan/partition/partition.h"

#include "base/checked.h"
#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- mesh ---- */

/* Reports a bad mesh text and the position of the error. */
static trm_status bad_mesh(const char *text, const char *at, trm_error *err) {
    return TRMI_FAIL(err, TRM_INVALID,
                     "mesh '%.60s': at character %d: sizes with x between them expected, at most "
                     "%d axes: 8, 2x4, "
                     "host=2xlocal=4",
                     text, (int)(at - text) + 1, TRMI_MESH_AXES);
}

/* Parses "host=" into `name`; without a name, the axis gets its own letter. Returns the end. */
static const char *parse_name(const char *at, int32_t axis, char name[8]) {
    const char *equals = at;
    while (isalnum((unsigned char)*equals) || *equals == '_') {
        equals++;
    }
    memset(name, 0, 8);
    name[0] = (char)('a' + axis);
    if (*equals != '=' || equals == at || equals - at > 7 || isdigit((unsigned char)*at)) {
        return at;
    }
    memcpy(name, at, (size_t)(equals - at));
    name[equals - at] = '\0';
    return equals + 1;
}

/* Ranks of a mesh, at most. */
enum { MOST_RANKS = 1 << 20 };

/* Contract in partition.h. Axes of size 1 are dropped, so that "1x4" and "4" are one mesh; the
 * sizes are limited before they are multiplied. */
trm_status trmi_mesh_parse(const char *text, trmi_mesh *out, trm_error *err) {
    trmi_mesh mesh = {0};
    int64_t ranks = 1;
    /* Read one axis after another: name, size, separator. */
    for (const char *at = text;; at++) {
        char name[8] = "";
        at = parse_name(at, mesh.axes, name);
        char *end;
        long size = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
        if (size < 1 || (size > 1 && mesh.axes == TRMI_MESH_AXES)) {
            return bad_mesh(text, at, err);
        }
        if (!trmi_mul_i64(ranks, size, &ranks) || ranks > MOST_RANKS) {
            return TRMI_FAIL(err, TRM_INVALID,
                             "mesh '%.60s': more than %d ranks found, at most %d expected", text,
                             MOST_RANKS, MOST_RANKS);
        }
        /* axes of size 1 are dropped; names must be unique */
        if (size > 1) {
            for (int32_t i = 0; i < mesh.axes; i++) {
                if (strcmp(mesh.name[i], name) == 0) {
                    return TRMI_FAIL(err, TRM_INVALID, "mesh '%.60s': two axes have the name '%s'",
                                     text, name);
                }
            }
            memcpy(mesh.name[mesh.axes], name, sizeof name);
            mesh.size[mesh.axes++] = (int32_t)size;
        }
        at = end;
        if (*at == '\0') {
            break;
        }
        if (*at != 'x' && *at != 'X' && *at != ',') {
            return bad_mesh(text, at, err);
        }
    }
    *out = mesh;
    return TRM_OK;
}

/* Contract in partition.h. Axes with the names a, b, ... are written by their sizes alone. */
const char *trmi_mesh_text(const trmi_mesh *mesh, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "1");
    for (int32_t i = 0; i < mesh->axes && used < size; i++) {
        int wrote = mesh->name[i][0] == 'a' + i && mesh->name[i][1] == '\0'
                        ? snprintf(text + used, size - used, "%s%d", i ? "x" : "", mesh->size[i])
                        : snprintf(text + used, size - used, "%s%s=%d", i ? "x" : "", mesh->name[i],
                                   mesh->size[i]);
        used += (size_t)wrote;
    }
    return text;
}

int32_t trmi_mesh_ranks(const trmi_mesh *mesh) {
    return trmi_mesh_group(mesh, (1u << TRMI_MESH_AXES) - 1);
}

int32_t trmi_mesh_group(const trmi_mesh *mesh, uint32_t mask) {
    int32_t ranks = 1;
    for (int32_t i = 0; i < mesh->axes; i++) {
        ranks *= mask >> i & 1 ? mesh->size[i] : 1;
    }
    return ranks;
}

/* Appends every ordered factorisation of `rest` to the axes of `mesh`, then of `next`: axes of
 * hosts come first. */
static void add_factorisations(trmi_mesh mesh, int32_t rest, int32_t next, trmi_mesh *out,
                               int32_t *count) {
    if (rest == 1 && next > 1) {
        add_factorisations(mesh, next, 1, out, count);
        return;
    }
    if (rest == 1) {
        if (*count < TRMI_MESH_LIST) {
            out[(*count)++] = mesh;
        }
        return;
    }
    if (mesh.axes == TRMI_MESH_AXES) {
        return;
    }
    for (int32_t size = rest; size >= 2; size--) {
        if (rest % size == 0) {
            trmi_mesh longer = mesh;
            longer.size[longer.axes] = size;
            snprintf(longer.name[longer.axes], sizeof longer.name[0], "%c", 'a' + longer.axes);
            longer.axes++;
            add_factorisations(longer, rest / size, next, out, count);
        }
    }
}

/* Compares meshes by their number of axes. */
static int by_axes(const void *a, const void *b) {
    return ((const trmi_mesh *)a)->axes - ((const trmi_mesh *)b)->axes;
}

/* Contract in partition.h. qsort is not stable, and the order within a number of axes must be the
 * same everywhere. */
int32_t trmi_mesh_list(int32_t hosts, int32_t local, trmi_mesh out[TRMI_MESH_LIST]) {
    int32_t count = 0;
    add_factorisations((trmi_mesh){0}, hosts, local, out, &count);
    /* Sort stably by insertion: few axes come first. */
    for (int32_t i = 1; i < count; i++) {
        for (int32_t j = i; j > 0 && by_axes(&out[j - 1], &out[j]) > 0; j--) {
            trmi_mesh swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
    }
    return count;
}

void trmi_mesh_coordinates(const trmi_mesh *mesh, int32_t rank, int32_t at[TRMI_MESH_AXES]) {
    for (int32_t i = TRMI_MESH_AXES - 1; i >= 0; i--) {
        at[i] = i < mesh->axes ? rank % mesh->size[i] : 0;
        rank = i < mesh->axes ? rank / mesh->size[i] : rank;
    }
}

int32_t trmi_mesh_rank(const trmi_mesh *mesh, const int32_t at[TRMI_MESH_AXES]) {
    int32_t rank = 0;
    for (int32_t i = 0; i < mesh->axes; i++) {
        rank = rank * mesh->size[i] + at[i];
    }
    return rank;
}

/* ---- spread ---- */

uint32_t trmi_spread_key(const trmi_spread *s) {
    uint32_t key = 0;
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        key = key << 8 | (uint32_t)s->at[i] << 2 | s->place[i];
    }
    return key;
}

bool trmi_spread_equal(const trmi_spread *a, const trmi_spread *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

trmi_spread trmi_spread_adjoint(const trmi_mesh *mesh, const trmi_spread *spread) {
    trmi_spread out = *spread;
    /* a whole value has a partial gradient, and the reverse; cuts remain */
    for (int i = 0; i < mesh->axes; i++) {
        if (out.at[i] < TRMI_SPLIT) {
            out.at[i] = out.at[i] == TRMI_WHOLE ? TRMI_PARTIAL_SUM : TRMI_WHOLE;
        }
    }
    return out;
}

bool trmi_spread_has_partial(const trmi_spread *spread) {
    bool any = false;
    for (int i = 0; i < TRMI_MESH_AXES; i++) {
        any = any || trmi_is_partial(spread->at[i]);
    }
    return any;
}

/* Contract in partition.h. Where several axes cut one dimension, `place` says which cuts first. */
int32_t trmi_spread_cuts(const trmi_mesh *mesh, const trmi_spread *s, int32_t d,
                         int32_t out[TRMI_MESH_AXES]) {
    int32_t count = 0;
    for (int32_t place = 0; place < mesh->axes; place++) {
        for (int32_t i = 0; i < mesh->axes; i++) {
            if (s->at[i] == TRMI_SPLIT + d && s->place[i] == place) {
                out[count++] = i;
            }
        }
    }
    return count;
}

/* Contract in partition.h. A spread fits if it has nothing on axes that do not exist, cuts only
 * dimensions that exist into at most as many parts as they have elements, numbers the axes of a
 * dimension without gaps, and does not mix two kinds of partial values. */
bool trmi_spread_fits(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *s) {
    /* a sum along one axis and a maximum along another is no one value */
    uint8_t partial = TRMI_WHOLE;
    for (int32_t i = 0; i < TRMI_MESH_AXES; i++) {
        bool split = s->at[i] >= TRMI_SPLIT;
        if ((i >= mesh->axes && s->at[i] != 0) || (!split && s->place[i] != 0) ||
            (split && s->at[i] - TRMI_SPLIT >= shape->rank) ||
            (trmi_is_partial(s->at[i]) && partial != TRMI_WHOLE && partial != s->at[i])) {
            return false;
        }
        partial = trmi_is_partial(s->at[i]) ? s->at[i] : partial;
    }
    for (int32_t d = 0; d < shape->rank; d++) {
        /* The places of the axes that cut dimension d are 0, 1, ... without gaps, and no part is
         * empty. */
        int64_t parts = 1;
        uint32_t places = 0;
        int32_t count = 0;
        for (int32_t i = 0; i < mesh->axes; i++) {
            if (s->at[i] == TRMI_SPLIT + d) {
                parts *= mesh->size[i];
                places |= 1u << s->place[i];
                count++;
            }
        }
        if (places != (1u << count) - 1 || (count > 0 && shape->dim[d] < parts)) {
            return false;
        }
    }
    return true;
}

/* Contract in partition.h. Parts of a length that does not divide differ by one element; the first
 * ones are longer. */
trmi_box trmi_spread_box(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *s,
                         int32_t rank) {
    int32_t at[TRMI_MESH_AXES];
    trmi_mesh_coordinates(mesh, rank, at);
    trmi_box box = trmi_box_whole(shape);
    for (int32_t d = 0; d < shape->rank; d++) {
        int32_t axes[TRMI_MESH_AXES], count = trmi_spread_cuts(mesh, s, d, axes);
        for (int32_t k = 0; k < count; k++) {
            int64_t parts = mesh->size[axes[k]], mine = at[axes[k]];
            int64_t length = box.end[d] - box.begin[d], each = length / parts,
                    more = length % parts;
            box.begin[d] += mine * each + (mine < more ? mine : more);
            box.end[d] = box.begin[d] + each + (mine < more);
        }
    }
    return box;
}

/* Contract in partition.h. Counts the longest part of each dimension. */
int64_t trmi_spread_most(const trmi_mesh *mesh, const trm_shape *shape, const trmi_spread *s) {
    int64_t count = 1;
    for (int32_t d = 0; d < shape->rank; d++) {
        int64_t parts = 1;
        for (int32_t i = 0; i < mesh->axes; i++) {
            parts *= s->at[i] == TRMI_SPLIT + d ? mesh->size[i] : 1;
        }
        count *= (shape->dim[d] + parts - 1) / parts;
    }
    return count;
}

/* Contract in partition.h. R whole, S0 cut along dimension 0, P+ partial sums; one word an axis. */
const char *trmi_spread_text(const trmi_mesh *mesh, const trmi_spread *s, char *text, size_t size) {
    static const char *const partial[] = {"R", "P+", "Pmax", "Pmin"};
    size_t used = 0;
    snprintf(text, size, "-");
    for (int32_t i = 0; i < mesh->axes && used < size; i++) {
        int32_t same = 0; /* earlier axes on the same dimension: the place in mesh order */
        for (int32_t j = 0; j < i; j++) {
            same += s->at[j] == s->at[i];
        }
        const char *comma = i ? "," : "";
        int wrote;
        if (s->at[i] < TRMI_SPLIT) {
            wrote = snprintf(text + used, size - used, "%s%s", comma, partial[s->at[i]]);
        } else if (s->place[i] == same) {
            wrote = snprintf(text + used, size - used, "%sS%d", comma, s->at[i] - TRMI_SPLIT);
        } else {
            wrote = snprintf(text + used, size - used, "%sS%d.%d", comma, s->at[i] - TRMI_SPLIT,
                             s->place[i]);
        }
        used += (size_t)wrote;
    }
    return text;
}

/* Parses one letter of a spread; *place -1: not given. Returns the end; NULL: no letter. */
static const char *parse_letter(const char *at, uint8_t *letter, int *place) {
    static const struct {
        const char *text;
        uint8_t letter;
    } words[] = {{"R", TRMI_WHOLE},
                 {"Pmax", TRMI_PARTIAL_MAX},
                 {"Pmin", TRMI_PARTIAL_MIN},
                 {"P+", TRMI_PARTIAL_SUM}};
    *place = -1;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i].text);
        if (strncmp(at, words[i].text, length) == 0) {
            *letter = words[i].letter;
            return at + length;
        }
    }
    if (at[0] != 'S' || at[1] < '0' || at[1] >= '0' + TRM_MAX_RANK) {
        return NULL;
    }
    *letter = (uint8_t)(TRMI_SPLIT + at[1] - '0');
    at += 2;
    if (at[0] == '.' && at[1] >= '0' && at[1] < '0' + TRMI_MESH_AXES) {
        *place = at[1] - '0';
        at += 2;
    }
    return at;
}

/* Contract in partition.h. Axes that cut one dimension are ordered by `place`; a text that does
 * not name places means the order of the axes. */
trm_status trmi_spread_parse(const trmi_mesh *mesh, const char *text, trmi_spread *out,
                             trm_error *err) {
    trmi_spread s = {{0}, {0}};
    const char *at = text;
    if (mesh->axes == 0 && strcmp(text, "-") == 0) {
        *out = s;
        return TRM_OK;
    }
    for (int32_t i = 0; i < mesh->axes; i++) {
        int place;
        const char *end = parse_letter(at, &s.at[i], &place);
        if (end == NULL || *end != (i + 1 < mesh->axes ? ',' : '\0')) {
            return TRMI_FAIL(
                err, TRM_INVALID,
                "spread '%.40s': %d letters with commas expected: R, S0 to S%d, P+, Pmax, Pmin",
                text, mesh->axes, TRM_MAX_RANK - 1);
        }
        int before = 0;
        for (int32_t j = 0; j < i; j++) {
            before += s.at[j] == s.at[i];
        }
        s.place[i] = (uint8_t)(s.at[i] < TRMI_SPLIT ? 0 : place >= 0 ? place : before);
        at = end + 1;
    }
    *out = s;
    return TRM_OK;
}

/* ---- boxes ---- */

/* Boxes are half-open: [begin, end) in each dimension. */
trmi_box trmi_box_whole(const trm_shape *shape) {
    trmi_box box = {.rank = shape->rank};
    for (int32_t d = 0; d < shape->rank; d++) {
        box.end[d] = shape->dim[d];
    }
    return box;
}

trm_shape trmi_box_shape(const trmi_box *box) {
    trm_shape shape = {.rank = box->rank};
    for (int32_t d = 0; d < box->rank; d++) {
        shape.dim[d] = box->end[d] - box->begin[d];
    }
    return shape;
}

int64_t trmi_box_count(const trmi_box *box) {
    int64_t count = box->rank < 0 ? 0 : 1;
    for (int32_t d = 0; d < box->rank; d++) {
        int64_t length = box->end[d] - box->begin[d];
        count *= length > 0 ? length : 0;
    }
    return count;
}

bool trmi_box_intersect(const trmi_box *a, const trmi_box *b, trmi_box *out) {
    bool some = a->rank >= 0 && b->rank >= 0;
    *out = (trmi_box){.rank = a->rank};
    for (int32_t d = 0; d < a->rank; d++) {
        out->begin[d] = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
        out->end[d] = a->end[d] < b->end[d] ? a->end[d] : b->end[d];
        some = some && out->begin[d] < out->end[d];
    }
    return some;
}

bool trmi_box_equal(const trmi_box *a, const trmi_box *b) {
    bool same = a->rank == b->rank;
    for (int32_t d = 0; same && d < a->rank; d++) {
        same = a->begin[d] == b->begin[d] && a->end[d] == b->end[d];
    }
    return same;
}

/* Contract in partition.h. Each member must give its box to one other member as it is: then the
 * exchange can be a copy or a message without cutting. */
bool trmi_exchange_passes_on(const trmi_box_exchange *exchange) {
    const trmi_box *has = trmi_exchange_has(exchange), *wants = trmi_exchange_wants(exchange);
    bool passes = exchange->members > 1 && exchange->combine == TRMI_COMBINE_NONE;
    for (int32_t m = 0; passes && m < exchange->members; m++) {
        int32_t givers = 0, takers = 0;
        for (int32_t k = 0; passes && k < exchange->members; k++) {
            trmi_box both;
            bool gives = trmi_box_intersect(&has[k], &wants[m], &both);
            givers += gives;
            takers += trmi_box_intersect(&has[m], &wants[k], &both);
            passes = !gives || (k != m && trmi_box_equal(&has[k], &wants[m]));
        }
        passes = passes && givers == (trmi_box_count(&wants[m]) > 0) && takers <= 1;
    }
    return passes;
}
