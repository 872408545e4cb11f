/* SPDX-License-Identifier: Apache-2.0 */
/* Reads hardware files and prices what devices do (docs/reference/hardware-files.md has the
 * format).
 *
 *   product    FLOPs at the share of the peak rate that a product of this size reaches, or bytes
 *              at the rate of the memory if those take longer; and a start
 *   stream     bytes at the rate of the memory, and a start for each operator
 *   gather     a ring: (n - 1) / n of the bytes at the slowest link of the path, and a latency
 *   exchange   every pair of devices: the part within a node beside the part between nodes
 *
 * The file comes from a user, so each number is checked against a range; a message names the line
 * of the member. Members with unknown names are refused, because a misspelt one would silently keep
 * its default. *out is written as a whole or not at all. */
#include "plan/hardware/hardware.h"

#include "base/error.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Words of the types of products, in files and reports. */
static const char *const words[TRMI_PRODUCT_TYPES] = {"bf16", "fp16", "fp8", "fp32"};

const char *trmi_product_word(trmi_product_type type) { return words[type]; }

trmi_product_type trmi_product_of(const char *word) {
    int32_t i = 0;
    while (i < TRMI_PRODUCT_TYPES && strcmp(words[i], word) != 0) {
        i++;
    }
    return (trmi_product_type)i;
}

bool trmi_hardware_is(const char *text) { return text[strspn(text, " \t\r\n")] == '{'; }

/* ---- reading --------------------------------------------------------------------------------- */

/* A file that is being read. */
typedef struct hardware_file {
    const char *name, *text;
    const char *from; /* in the text: the object that is read, for the lines of errors */
    trm_error *err;
} hardware_file;

/* Returns the line of the first member of this name in the object that is read; that of the object
 * where there is none. */
static int find_line(const hardware_file *f, const char *key) {
    char quoted[48];
    int line = 1;
    snprintf(quoted, sizeof quoted, "\"%.40s\"", key);
    const char *found = strstr(f->from, quoted);
    const char *end = found != NULL ? found : f->from;
    for (const char *c = f->text; c < end; c++) {
        line += *c == '\n';
    }
    return line;
}

/* Returns the file with errors in the lines from member `key` on, or from the object number `index`
 * behind it on. */
static hardware_file at_object(const hardware_file *f, const char *key, size_t index) {
    hardware_file at = *f;
    char quoted[48];
    snprintf(quoted, sizeof quoted, "\"%.40s\"", key);
    const char *next = strstr(f->text, quoted);
    for (size_t i = 0; next != NULL && i <= index; i++) {
        at.from = next;
        next = strchr(next + 1, '{');
    }
    return at;
}

/* Reports a member: what was found and what was expected. */
static trm_status refuse_member(const hardware_file *f, const char *key, const json_t *found,
                                const char *expected) {
    char text[40] = "nothing";
    char *whole = found != NULL ? json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (whole != NULL) {
        snprintf(text, sizeof text, "%s", whole);
        for (char *c = text; *c != '\0'; c++) {
            *c = *c >= ' ' && *c < 127 ? *c : '?';
        }
    }
    free(whole);
    return TRMI_FAIL(f->err, TRM_INVALID, "%.80s, line %d: \"%s\": found %s, expected %s", f->name,
                     find_line(f, key), key, text, expected);
}

/* Refuses members with a name that is not in `known`, "name|device". */
static trm_status check_names(const hardware_file *f, const json_t *object, const char *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        size_t length = strlen(key);
        const char *at = known;
        while (strncmp(at, key, length) != 0 || (at[length] != '|' && at[length] != '\0')) {
            at += strcspn(at, "|");
            if (*at++ == '\0') {
                return TRMI_FAIL(f->err, TRM_INVALID,
                                 "%.80s, line %d: found a member \"%.40s\", expected %s", f->name,
                                 find_line(f, key), key, known);
            }
        }
    }
    return TRM_OK;
}

/* A member that is a number. */
typedef struct number_member {
    const char *key;
    double *to, least, most;
    bool optional; /* *to keeps its value where the member is missing */
} number_member;

/* Reads a number and checks its range. */
static trm_status read_number(const hardware_file *f, const json_t *object,
                              const number_member *m) {
    const json_t *value = json_object_get(object, m->key);
    char expected[64];
    if (value == NULL && m->optional) {
        return TRM_OK;
    }
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= m->least && number <= m->most)) {
        snprintf(expected, sizeof expected, "a number from %g to %g", m->least, m->most);
        return refuse_member(f, m->key, value, expected);
    }
    *m->to = number;
    return TRM_OK;
}

/* Reads numbers; a table ends with a member without key. */
static trm_status read_numbers(const hardware_file *f, const json_t *object,
                               const number_member *table) {
    for (; table->key != NULL; table++) {
        TRMI_TRY(read_number(f, object, table));
    }
    return TRM_OK;
}

/* Reads the member "name" of an object. */
static trm_status read_name(const hardware_file *f, const json_t *object, char *out, size_t size) {
    const json_t *value = json_object_get(object, "name");
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) >= size) {
        char expected[48];
        snprintf(expected, sizeof expected, "a text of 1 to %zu letters", size - 1);
        return refuse_member(f, "name", value, expected);
    }
    snprintf(out, size, "%s", json_string_value(value));
    return TRM_OK;
}

/* Reads the peak rates; the machine needs one type of products at least. */
static trm_status read_flops(const hardware_file *f, const json_t *device, trmi_hardware *out) {
    const json_t *flops = json_object_get(device, "flops");
    const char *key;
    json_t *value;
    static const char form[] = "an object of bf16, fp16, fp8, fp32 and FLOP/s, bf16 among them";
    if (!json_is_object(flops)) {
        return refuse_member(f, "flops", flops, form);
    }
    json_object_foreach((json_t *)flops, key, value) {
        trmi_product_type type = trmi_product_of(key);
        if (type == TRMI_PRODUCT_TYPES) {
            return refuse_member(f, "flops", flops, form);
        }
        const number_member member = {key, &out->flops[type], 1e6, 1e18, false};
        TRMI_TRY(read_number(f, flops, &member));
    }
    return out->flops[TRMI_PRODUCT_BF16] > 0 ? TRM_OK : refuse_member(f, "flops", flops, form);
}

/* Reads the curve [[seconds at the peak, share of the peak], ...]. */
static trm_status read_curve(const hardware_file *f, const json_t *device, trmi_hardware *out) {
    const json_t *curve = json_object_get(device, "efficiency");
    static const char form[] = "1 to 16 pairs [seconds at the peak, share from 0.001 to 1], "
                               "seconds rising";
    size_t count = json_array_size(curve);
    if (count < 1 || count > TRMI_HARDWARE_POINTS) {
        return refuse_member(f, "efficiency", curve, form);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(curve, i);
        double at = json_number_value(json_array_get(pair, 0)),
               share = json_number_value(json_array_get(pair, 1));
        bool ok = json_array_size(pair) == 2 && at > 0 && at < 1e3 && share >= 0.001 &&
                  share <= 1 && (i == 0 || at > out->at[i - 1]);
        if (!ok) {
            return refuse_member(f, "efficiency", pair, form);
        }
        out->at[i] = at;
        out->efficiency[i] = share;
    }
    out->points = (int32_t)count;
    return TRM_OK;
}

/* Reads the object "device": memory, rates and efficiencies. A row of the table is a member's
 * name, where it goes, its range, and whether it may be missing. */
static trm_status read_device(const hardware_file *file, const json_t *root, trmi_hardware *out) {
    const json_t *device = json_object_get(root, "device");
    if (!json_is_object(device)) {
        return refuse_member(file, "device", device, "an object");
    }
    const hardware_file at = at_object(file, "device", 0), *f = &at;
    const number_member table[] = {
        {"memory_bytes", &out->memory, 1e6, 1e15, false},
        {"reserved_bytes", &out->reserved, 0, 1e15, true},
        {"bytes_per_second", &out->bandwidth, 1e6, 1e16, false},
        {"memory_efficiency", &out->streaming, 0.01, 1, false},
        {"attention_forward", &out->attention[0], 0.001, 1, false},
        {"attention_backward", &out->attention[1], 0.001, 1, false},
        {"operator_seconds", &out->start, 0, 1, true},
        {NULL, NULL, 0, 0, false},
    };
    /* unknown names are errors: a misspelt member must not be its default */
    TRMI_TRY(check_names(f, device,
                         "memory_bytes|reserved_bytes|bytes_per_second|memory_efficiency|flops|"
                         "efficiency|attention_forward|attention_backward|operator_seconds"));
    TRMI_TRY(read_numbers(f, device, table));
    TRMI_TRY(read_flops(f, device, out));
    TRMI_TRY(read_curve(f, device, out));
    return out->reserved < out->memory
               ? TRM_OK
               : refuse_member(f, "reserved_bytes", json_object_get(device, "reserved_bytes"),
                               "less than memory_bytes");
}

/* Reads the levels, from the inside of a node outwards. */
static trm_status read_levels(const hardware_file *file, const json_t *root, trmi_hardware *out) {
    const json_t *links = json_object_get(root, "links");
    size_t count = json_array_size(links);
    if (count < 1 || count > TRMI_HARDWARE_LEVELS) {
        return refuse_member(file, "links", links, "a list of 1 to 4 levels, innermost first");
    }
    for (size_t i = 0; i < count; i++) {
        const hardware_file at = at_object(file, "links", i + 1), *f = &at;
        trmi_hardware_level *level = &out->levels[i];
        const json_t *from = json_array_get(links, i);
        double devices = 0;
        const number_member table[] = {
            {"devices", &devices, 1, 1 << 20, false},
            {"bytes_per_second", &level->bandwidth, 1e3, 1e15, false},
            {"latency_seconds", &level->latency, 0, 1, false},
            {NULL, NULL, 0, 0, false},
        };
        if (!json_is_object(from)) {
            return refuse_member(f, "links", from, "an object for each level");
        }
        TRMI_TRY(check_names(f, from, "name|devices|bytes_per_second|latency_seconds"));
        TRMI_TRY(read_name(f, from, level->name, sizeof level->name));
        TRMI_TRY(read_numbers(f, from, table));
        level->devices = (int64_t)devices;
        /* each level consists of whole groups of the one inside it */
        if ((double)level->devices != devices ||
            (i > 0 && level->devices % level[-1].devices != 0)) {
            return refuse_member(f, "devices", json_object_get(from, "devices"),
                                 "a whole multiple of the level before");
        }
    }
    out->levels_count = (int32_t)count;
    out->per_node = out->levels[0].devices;
    return TRM_OK;
}

/* Reads the whole file: name, device, links, and the parts of communication that computation
 * hides. */
static trm_status read_root(const hardware_file *f, const json_t *root, trmi_hardware *out) {
    const json_t *hide = json_object_get(root, "overlap");
    const number_member step = {"step_seconds", &out->step, 0, 100, true};
    const number_member table[] = {
        {"tensor", &out->hide_tensor, 0, 1, true},
        {"data", &out->hide_data, 0, 1, true},
        {"pipeline", &out->hide_stage, 0, 1, true},
        {"expert", &out->hide_expert, 0, 1, true},
        {NULL, NULL, 0, 0, false},
    };
    if (hide != NULL && !json_is_object(hide)) {
        return refuse_member(f, "overlap", hide, "an object");
    }
    TRMI_TRY(check_names(f, root, "name|sources|device|links|overlap|step_seconds"));
    TRMI_TRY(read_name(f, root, out->name, sizeof out->name));
    TRMI_TRY(read_device(f, root, out));
    TRMI_TRY(read_levels(f, root, out));
    TRMI_TRY(read_number(f, root, &step));
    if (hide == NULL) {
        return TRM_OK;
    }
    const hardware_file at = at_object(f, "overlap", 0);
    TRMI_TRY(check_names(&at, hide, "tensor|data|pipeline|expert"));
    return read_numbers(&at, hide, table);
}

/* Contract in hardware.h. The text is written to *out as a whole or not at all. */
trm_status trmi_hardware_parse(const char *name, const char *text, trmi_hardware *out,
                               trm_error *err) {
    const hardware_file f = {name, text, text, err};
    json_error_t where;
    size_t bytes = strlen(text);
    if (bytes > TRMI_HARDWARE_BYTES) {
        return TRMI_FAIL(err, TRM_INVALID, "%.80s: %zu bytes found, at most %d expected", name,
                         bytes, TRMI_HARDWARE_BYTES);
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL) {
        return TRMI_FAIL(err, TRM_INVALID, "%.80s, line %d: JSON expected: %.80s", name, where.line,
                         where.text);
    }
    /* Errors name the line of wrong JSON, and the member of a wrong value. */
    trmi_hardware read = {0};
    trm_status status =
        json_is_object(root)
            ? read_root(&f, root, &read)
            : TRMI_FAIL(err, TRM_INVALID, "%.80s, line 1: found no object, expected one", name);
    json_decref(root);
    if (status == TRM_OK) {
        *out = read;
    }
    return status;
}

/* ---- prices ---------------------------------------------------------------------------------- */

/* Returns the share of the peak that a product reaches which takes `seconds` at the peak: linear in
 * the logarithm of the seconds between points. */
static double find_efficiency(const trmi_hardware *h, double seconds) {
    int32_t i = 1;
    if (h->points == 1 || seconds <= h->at[0]) {
        return h->efficiency[0];
    }
    while (i < h->points && h->at[i] < seconds) {
        i++;
    }
    if (i == h->points) {
        return h->efficiency[i - 1];
    }
    double part = log(seconds / h->at[i - 1]) / log(h->at[i] / h->at[i - 1]);
    return h->efficiency[i - 1] + part * (h->efficiency[i] - h->efficiency[i - 1]);
}

double trmi_hardware_product(const trmi_hardware *h, trmi_product_type type, double count,
                             const double mnk[3]) {
    double m = mnk[0], n = mnk[1], k = mnk[2];
    double peak = 2 * m * n * k / h->flops[type];
    double width = type == TRMI_PRODUCT_FP8 ? 1 : type == TRMI_PRODUCT_FP32 ? 4 : 2;
    double moved = (width * (m * k + k * n) + 2 * m * n) / (h->bandwidth * h->streaming);
    return count * (fmax(peak / find_efficiency(h, peak), moved) + h->start);
}

double trmi_hardware_stream(const trmi_hardware *h, double bytes, double operators) {
    return bytes / (h->bandwidth * h->streaming) + operators * h->start;
}

/* The path between the devices of a group: its slowest link and the latency of a message. */
typedef struct group_path {
    double bandwidth, latency;
} group_path;

/* Finds the path of a group. A ring through units of a level uses the links of all ranks that the
 * group has in each unit, because each device has its own link to the next level. */
static group_path find_path(const trmi_hardware *h, trmi_device_group g) {
    group_path path = {INFINITY, 0};
    int64_t inside = 1; /* ranks of the group in one unit of the level below */
    for (int32_t i = 0; i < h->levels_count && inside < g.ranks; i++) {
        const trmi_hardware_level *level = &h->levels[i];
        int64_t here = level->devices / g.stride;
        here = here < 1 ? 1 : here > g.ranks || i == h->levels_count - 1 ? g.ranks : here;
        if (here > inside) {
            path.bandwidth = fmin(path.bandwidth, level->bandwidth * (double)inside);
            for (int64_t n = inside; n < here; n *= 2) { /* a tree */
                path.latency += level->latency;
            }
            inside = here;
        }
    }
    return path;
}

double trmi_hardware_gather(const trmi_hardware *h, trmi_device_group g, double bytes) {
    if (g.ranks < 2) {
        return 0;
    }
    group_path path = find_path(h, g);
    double n = (double)g.ranks;
    return path.latency + (n - 1) / n * bytes / path.bandwidth;
}

/* Contract in hardware.h. A device sends 1/n of its bytes to each other one; messages within the
 * node and those between nodes travel beside each other, so the longer of the two counts. */
double trmi_hardware_exchange(const trmi_hardware *h, trmi_device_group g, double bytes) {
    if (g.ranks < 2) {
        return 0;
    }
    group_path path = find_path(h, g);
    double n = (double)g.ranks;
    int64_t inside = h->per_node / g.stride;
    double near = fmin((double)(inside < 1 ? 1 : inside), n);
    double far = (n - near) / n;
    const trmi_hardware_level *outer = &h->levels[h->levels_count > 1 ? 1 : 0];
    return path.latency +
           fmax((near - 1) / n * bytes / h->levels[0].bandwidth, far * bytes / outer->bandwidth);
}

double trmi_hardware_send(const trmi_hardware *h, int64_t stride, double bytes) {
    int32_t i = 0;
    while (i < h->levels_count - 1 && h->levels[i].devices <= stride) {
        i++;
    }
    return h->levels[i].latency + bytes / h->levels[i].bandwidth;
}
