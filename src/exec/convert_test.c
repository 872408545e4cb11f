/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between all layouts beside the definition of each layout, element by element. */
#include "check.h"

#include "exec/convert.h"

#include <stdlib.h>

/* Returns the position, in elements, of element (a, b, y, x): the definition of the layouts. */
static int64_t find_position(trmi_layout layout, bool weights, const int64_t *dim, int64_t a,
                             int64_t b, int64_t y, int64_t x) {
    int64_t A = dim[0], B = dim[1], H = dim[2], W = dim[3], blocks = (B + 15) / 16;
    if (layout == TRMI_CHANNELS_LAST) {
        return weights ? ((y * W + x) * B + b) * A + a : ((a * H + y) * W + x) * B + b;
    }
    if (layout == TRMI_BLOCKED16 && weights) {
        return ((((a / 16 * blocks + b / 16) * H + y) * W + x) * 16 + b % 16) * 16 + a % 16;
    }
    if (layout == TRMI_BLOCKED16) {
        return (((a * blocks + b / 16) * H + y) * W + x) * 16 + b % 16;
    }
    return ((a * B + b) * H + y) * W + x;
}

/* Converts a tensor of distinct bytes from one layout to another, and compares all bytes. */
static void check_copy(trm_shape shape, trmi_layout from, trmi_layout to, trm_dtype dtype,
                       bool weights) {
    const size_t bytes = trm_dtype_bytes(dtype);
    const size_t from_bytes = (size_t)trmi_layout_bytes(dtype, &shape, from, weights);
    const size_t to_bytes = (size_t)trmi_layout_bytes(dtype, &shape, to, weights);
    uint8_t *source = calloc(from_bytes, 1), *found = malloc(to_bytes),
            *expected = calloc(to_bytes, 1);
    const int64_t *d = shape.dim;
    uint64_t number = 0;
    for (int64_t a = 0; a < d[0]; a++) {
        for (int64_t b = 0; b < d[1]; b++) {
            for (int64_t y = 0; y < d[2]; y++) {
                for (int64_t x = 0; x < d[3]; x++) {
                    number = number * 6364136223846793005u + 1442695040888963407u;
                    const uint64_t value = number >> 7;
                    memcpy(source + (size_t)find_position(from, weights, d, a, b, y, x) * bytes,
                           &value, bytes);
                    memcpy(expected + (size_t)find_position(to, weights, d, a, b, y, x) * bytes,
                           &value, bytes);
                }
            }
        }
    }
    memset(found, 0xAB, to_bytes);
    trmi_convert_layout(source, from, found, to, dtype, &shape, weights);
    if (from != to) { /* the padding of equal layouts is copied */
        assert_memory_equal(found, expected, to_bytes);
    } else {
        assert_memory_equal(found, source, to_bytes);
    }
    free(source);
    free(found);
    free(expected);
}

static void all_layouts_equal_their_definition(void **state) {
    static const trm_dtype types[] = {TRM_UINT8, TRM_BFLOAT16, TRM_FLOAT32, TRM_FLOAT64};
    static const trm_shape shapes[] = {
        {.rank = 4, .dim = {1, 1, 1, 1}},  {.rank = 4, .dim = {16, 32, 1, 1}},
        {.rank = 4, .dim = {33, 3, 7, 7}}, {.rank = 4, .dim = {16, 16, 3, 3}},
        {.rank = 4, .dim = {5, 17, 2, 3}}, {.rank = 4, .dim = {40, 31, 1, 5}},
    };
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int from = 0; from < TRMI_LAYOUTS; from++) {
            for (int to = 0; to < TRMI_LAYOUTS; to++) {
                for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
                    check_copy(shapes[s], (trmi_layout)from, (trmi_layout)to, types[t], false);
                    check_copy(shapes[s], (trmi_layout)from, (trmi_layout)to, types[t], true);
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_layouts_equal_their_definition)};
    return cmocka_run_group_tests_name("exec layouts", tests, NULL, NULL);
}
