/* SPDX-License-Identifier: Apache-2.0 */
/* All spreads of a tensor on a mesh, for exhaustive tests. Two levels of recursion: list_letters
 * gives each mesh axis what it does (whole, partial sum, or which dimension it cuts), list_places
 * gives the axes that cut one dimension their order. The list is counted first, then written. */
#include "tests/lib/spreads.h"

#include "base/error.h"

/* What is listed, and where to. */
typedef struct lister {
    const trmi_mesh *mesh;
    const trm_shape *shape;
    bool sums, orders;
    trmi_spread *list; /* NULL: only count */
    int32_t count;
} lister;

/* Lists the orders of the axes from `axis` on, and adds each complete spread that fits the
 * shape. */
static void list_places(lister *l, trmi_spread s, int32_t axis) {
    while (axis < l->mesh->axes && s.at[axis] < TRMI_SPLIT) {
        axis++;
    }
    if (axis == l->mesh->axes) {
        if (trmi_spread_fits(l->mesh, l->shape, &s)) {
            if (l->list != NULL) {
                l->list[l->count] = s;
            }
            l->count++;
        }
        return;
    }
    int32_t same = 0, before = 0;
    for (int32_t i = 0; i < l->mesh->axes; i++) {
        same += s.at[i] == s.at[axis];
        before += i < axis && s.at[i] == s.at[axis];
    }
    for (int32_t place = 0; place < same; place++) {
        s.place[axis] = (uint8_t)place;
        if (l->orders || place == before) {
            list_places(l, s, axis + 1);
        }
    }
}

/* Lists what the axes from `axis` on may do. */
static void list_letters(lister *l, trmi_spread s, int32_t axis) {
    if (axis == l->mesh->axes) {
        list_places(l, s, 0);
        return;
    }
    for (int32_t letter = 0; letter < TRMI_SPLIT + l->shape->rank; letter++) {
        if (letter == TRMI_WHOLE || letter >= TRMI_SPLIT ||
            (letter == TRMI_PARTIAL_SUM && l->sums)) {
            s.at[axis] = (uint8_t)letter;
            list_letters(l, s, axis + 1);
        }
    }
}

trm_status trmi_spread_list(const trmi_mesh *mesh, const trm_shape *shape, bool sums, bool orders,
                            trmi_arena *arena, trmi_spread **out, int32_t *count, trm_error *err) {
    lister l = {.mesh = mesh, .shape = shape, .sums = sums, .orders = orders};
    list_letters(&l, (trmi_spread){{0}, {0}}, 0);
    TRMI_TRY(TRMI_NEW_IN(err, arena, l.list, l.count, "for %d spreads", l.count));
    l.count = 0;
    list_letters(&l, (trmi_spread){{0}, {0}}, 0);
    *out = l.list;
    *count = l.count;
    return TRM_OK;
}
