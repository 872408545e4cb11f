/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a model: one pass over ModelProto, GraphProto and their parts, on four levels, without
 * recursion. Names are copied, because they need a terminating NUL; data stay in the file. Unknown
 * fields are skipped. The numbers in the switches are the field numbers of onnx.proto.
 *
 *   trmi_onnx_open > trmi_onnx_parse > take_model_field > take_graph > take_node > take_attribute
 */
#include "save/formats/onnx_reader.h"

#include "base/error.h"
#include "base/format/utf8.h"
#include "save/path.h"

#include <string.h>

/* ---- nodes ----------------------------------------------------------------------------- */

/* Arrays that grow while a node is read. The node itself gets copies in the arena. */
typedef struct node_parts {
    const char **inputs, **outputs; /* names in the arena */
    int64_t input_count, input_capacity, output_count,
        output_capacity;                         /* lengths and capacities of the two lists */
    trmi_onnx_attribute *attributes;             /* complete ones */
    int64_t attribute_count, attribute_capacity; /* length and capacity of `attributes` */
    int64_t *integers;                           /* of the present attribute */
    int64_t integer_count, integer_capacity;     /* length and capacity of `integers` */
    float *numbers;                              /* of the present attribute */
    int64_t number_count, number_capacity;       /* length and capacity of `numbers` */
} node_parts;

/* Appends a number of a list attribute. */
static bool add_integer(node_parts *parts, uint64_t value) {
    if (!trmi_grow((void **)&parts->integers, &parts->integer_capacity, parts->integer_count + 1,
                   sizeof *parts->integers)) {
        return false;
    }
    parts->integers[parts->integer_count++] = (int64_t)value;
    return true;
}

/* Adds a number to the list of an attribute; false: no memory. */
static bool add_number(node_parts *parts, uint64_t value) {
    if (!trmi_grow((void **)&parts->numbers, &parts->number_capacity, parts->number_count + 1,
                   sizeof *parts->numbers)) {
        return false;
    }
    parts->numbers[parts->number_count++] = trmi_proto_to_float(value);
    return true;
}

/* Read a repeated field, which may be packed or not. */
static trm_status take_integers(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                node_parts *parts) {
    uint64_t value;
    if (field->wire != TRMI_PROTO_BYTES) {
        return add_integer(parts, field->value) ? TRM_OK : trmi_onnx_no_memory(r);
    }
    trmi_proto packed = trmi_proto_inside(field);
    while (trmi_proto_packed(&packed, &value)) {
        if (!add_integer(parts, value)) {
            return trmi_onnx_no_memory(r);
        }
    }
    return trmi_onnx_finish(r, &packed);
}

/* Appends the numbers of a repeated 32-bit field, packed or one at a time.
 *   errors  CORRUPT, NOMEM */
static trm_status take_numbers(const trmi_onnx_reader *r, const trmi_proto_field *field,
                               node_parts *parts) {
    if (field->wire != TRMI_PROTO_BYTES) {
        return add_number(parts, field->value) ? TRM_OK : trmi_onnx_no_memory(r);
    }
    for (size_t at = 0; at + 4 <= field->bytes; at += 4) {
        uint32_t bits;
        memcpy(&bits, field->data + at, 4);
        if (!add_number(parts, bits)) {
            return trmi_onnx_no_memory(r);
        }
    }
    return field->bytes % 4 == 0
               ? TRM_OK
               : trmi_onnx_fault(r, field->data, "a packed array that is cut off");
}

/* Copies an array to the model's arena. */
static void *keep_items(const trmi_onnx_reader *r, const void *items, int64_t count,
                        size_t item_bytes) {
    void *kept = trmi_arena_alloc(&r->model->arena, (size_t)count * item_bytes + 1);
    if (kept != NULL && count > 0) {
        memcpy(kept, items, (size_t)count * item_bytes);
    }
    return kept;
}

/* Reads one field of an attribute. Single values go to *out, lists to `parts`, and the kind to
 * *type. */
static trm_status take_attribute_field(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                       node_parts *parts, trmi_onnx_attribute *out,
                                       uint64_t *type) {
    trm_named_tensor tensor;
    trm_status status;
    /* 1 name, 2 f, 3 i, 4 s, 5 t, 7 floats, 8 ints, 20 type */
    switch (field->number) {
    case 1: return trmi_onnx_take_text(r, field, &out->name);
    case 2: out->number = trmi_proto_to_float(field->value); return TRM_OK;
    case 3: out->integer = (int64_t)field->value; return TRM_OK;
    case 4:
        /* A string attribute may hold any bytes. If they are no text, the kind is kept without a
         * value. */
        if (field->wire == TRMI_PROTO_BYTES &&
            trmi_utf8_valid((const char *)field->data, field->bytes) &&
            memchr(field->data, 0, field->bytes) == NULL) {
            return trmi_onnx_take_text(r, field, &out->text);
        }
        return TRM_OK;
    case 5:
        TRMI_TRY(trmi_onnx_expect_message(r, field, 0));
        status = trmi_onnx_take_tensor(r, field, &tensor);
        if (status == TRM_OK) {
            out->tensor = tensor.tensor;
        } else if (status == TRM_UNSUPPORTED) {
            *type = TRMI_ONNX_OTHER; /* a tensor of strings: the node may be one that is not used */
        }
        return status == TRM_UNSUPPORTED ? TRM_OK : status;
    case 7: return take_numbers(r, field, parts);
    case 8: return take_integers(r, field, parts);
    case 20: *type = field->value; return TRM_OK;
    default: return TRM_OK;
    }
}

/* Reads an AttributeProto. Kinds that trireme does not interpret become TRMI_ONNX_OTHER. */
static trm_status take_attribute(const trmi_onnx_reader *r, const trmi_proto_field *message,
                                 node_parts *parts) {
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    trmi_onnx_attribute out = {.name = ""};
    uint64_t type = 0;
    /* The lists are used again for each attribute. */
    parts->integer_count = parts->number_count = 0;
    while (trmi_proto_next(&proto, &field)) {
        TRMI_TRY(take_attribute_field(r, &field, parts, &out, &type));
    }
    TRMI_TRY(trmi_onnx_finish(r, &proto));
    /* 5 is GRAPH: subgraphs are not interpreted. */
    bool known = type >= TRMI_ONNX_FLOAT && type <= TRMI_ONNX_INTS && type != 5;
    out.kind = known ? (trmi_onnx_attribute_kind)type : TRMI_ONNX_OTHER;
    if (out.kind == TRMI_ONNX_STRING && out.text == NULL) {
        out.text = "";
    }
    out.count = out.kind == TRMI_ONNX_INTS     ? parts->integer_count
                : out.kind == TRMI_ONNX_FLOATS ? parts->number_count
                                               : 0;
    /* The values, of the kind that `type` states. */
    out.integers = keep_items(r, parts->integers, parts->integer_count, sizeof *parts->integers);
    out.numbers = keep_items(r, parts->numbers, parts->number_count, sizeof *parts->numbers);
    if (out.integers == NULL || out.numbers == NULL ||
        !trmi_grow((void **)&parts->attributes, &parts->attribute_capacity,
                   parts->attribute_count + 1, sizeof *parts->attributes)) {
        return trmi_onnx_no_memory(r);
    }
    parts->attributes[parts->attribute_count++] = out;
    return TRM_OK;
}

/* Appends a name to a list. */
static trm_status add_name(const trmi_onnx_reader *r, const trmi_proto_field *field,
                           const char ***names, int64_t *count, int64_t *capacity) {
    const char *name = "";
    TRMI_TRY(trmi_onnx_take_text(r, field, &name));
    if (!trmi_grow((void **)names, capacity, *count + 1, sizeof **names)) {
        return trmi_onnx_no_memory(r);
    }
    (*names)[(*count)++] = name;
    return TRM_OK;
}

/* Reads one field of a node. */
static trm_status take_node_field(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                  node_parts *parts, trmi_onnx_node *out) {
    /* 1 input, 2 output, 3 name, 4 op_type, 5 attribute, 7 domain */
    switch (field->number) {
    case 1: return add_name(r, field, &parts->inputs, &parts->input_count, &parts->input_capacity);
    case 2:
        return add_name(r, field, &parts->outputs, &parts->output_count, &parts->output_capacity);
    case 3: return trmi_onnx_take_text(r, field, &out->name);
    case 4: return trmi_onnx_take_text(r, field, &out->op);
    case 5:
        TRMI_TRY(trmi_onnx_expect_message(r, field, parts->attribute_count));
        return take_attribute(r, field, parts);
    case 7: return trmi_onnx_take_text(r, field, &out->domain);
    default: return TRM_OK;
    }
}

/* Reads a NodeProto and appends it to the model. The parts are temporary; what the node points to
 * is in the arena. */
static trm_status take_node(const trmi_onnx_reader *r, const trmi_proto_field *message) {
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    trmi_onnx_node out = {.op = "", .name = "", .domain = ""};
    node_parts parts = {0};
    trm_status status = TRM_OK;
    /* Collect the parts first, because the length of each list is known only at the end. */
    while (status == TRM_OK && trmi_proto_next(&proto, &field)) {
        status = take_node_field(r, &field, &parts, &out);
    }
    status = status == TRM_OK ? trmi_onnx_finish(r, &proto) : status;
    if (status == TRM_OK) {
        /* then move them to the arena */
        out.inputs = keep_items(r, parts.inputs, parts.input_count, sizeof *parts.inputs);
        out.outputs = keep_items(r, parts.outputs, parts.output_count, sizeof *parts.outputs);
        out.attributes =
            keep_items(r, parts.attributes, parts.attribute_count, sizeof *parts.attributes);
        out.input_count = parts.input_count;
        out.output_count = parts.output_count;
        out.attribute_count = parts.attribute_count;
        if (out.inputs == NULL || out.outputs == NULL || out.attributes == NULL ||
            !trmi_onnx_push_node(r->model, &out)) {
            status = trmi_onnx_no_memory(r);
        }
    }
    trmi_free(parts.inputs);
    trmi_free(parts.outputs);
    trmi_free(parts.attributes);
    trmi_free(parts.integers);
    trmi_free(parts.numbers);
    return status;
}

/* ---- inputs and outputs ---------------------------------------------------------------- */

/* Reads a TensorShapeProto. A dimension without size and symbol becomes the symbol "?". */
static trm_status take_shape(const trmi_onnx_reader *r, const trmi_proto_field *message,
                             trmi_onnx_value *out) {
    trmi_proto dims = trmi_proto_inside(message);
    trmi_proto_field dim, field;
    out->rank = 0;
    while (trmi_proto_next(&dims, &dim)) {
        if (dim.number != 1) {
            continue;
        }
        TRMI_TRY(trmi_onnx_expect_message(r, &dim, 0));
        if (out->rank == TRMI_ONNX_RANK_MAX) {
            return TRMI_FAIL(r->err, TRM_UNSUPPORTED, "%s: value %.60s has more than %d dimensions",
                             trmi_path_tail(r->path), out->name, TRMI_ONNX_RANK_MAX);
        }
        /* 1 dim_value, 2 dim_param (a symbol such as "N") */
        trmi_onnx_dim *place = &out->dims[out->rank++];
        *place = (trmi_onnx_dim){.symbol = "?"};
        trmi_proto proto = trmi_proto_inside(&dim);
        while (trmi_proto_next(&proto, &field)) {
            if (field.number == 1) {
                *place = (trmi_onnx_dim){.size = (int64_t)field.value};
            } else if (field.number == 2) {
                TRMI_TRY(trmi_onnx_take_text(r, &field, &place->symbol));
            }
        }
        TRMI_TRY(trmi_onnx_finish(r, &proto));
    }
    return trmi_onnx_finish(r, &dims);
}

/* Reads TypeProto { tensor_type 1 { elem_type 1, shape 2 } }. */
static trm_status take_type(const trmi_onnx_reader *r, const trmi_proto_field *message,
                            trmi_onnx_value *out) {
    trmi_proto types = trmi_proto_inside(message);
    trmi_proto_field type, field;
    while (trmi_proto_next(&types, &type)) {
        if (type.number != 1) {
            continue;
        }
        TRMI_TRY(trmi_onnx_expect_message(r, &type, 0));
        trmi_proto proto = trmi_proto_inside(&type);
        while (trmi_proto_next(&proto, &field)) {
            if (field.number == 1) {
                out->dtype = trmi_onnx_dtype_of(field.value);
            } else if (field.number == 2) {
                TRMI_TRY(trmi_onnx_expect_message(r, &field, 0));
                TRMI_TRY(take_shape(r, &field, out));
            }
        }
        TRMI_TRY(trmi_onnx_finish(r, &proto));
    }
    return trmi_onnx_finish(r, &types);
}

/* Reads a ValueInfoProto: an input or output of the graph. */
static trm_status take_value(const trmi_onnx_reader *r, const trmi_proto_field *message,
                             trmi_onnx_value **values, int64_t *count, int64_t *capacity) {
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    trmi_onnx_value out = {.name = "", .rank = -1};
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1) {
            TRMI_TRY(trmi_onnx_take_text(r, &field, &out.name));
        } else if (field.number == 2) {
            TRMI_TRY(trmi_onnx_expect_message(r, &field, 0));
            TRMI_TRY(take_type(r, &field, &out));
        }
    }
    TRMI_TRY(trmi_onnx_finish(r, &proto));
    /* A value that has no shape keeps rank -1. */
    if (!trmi_grow((void **)values, capacity, *count + 1, sizeof **values)) {
        return trmi_onnx_no_memory(r);
    }
    (*values)[(*count)++] = out;
    return TRM_OK;
}

/* ---- graph and model ------------------------------------------------------------------- */

/* Reads a weight. */
static trm_status take_initializer(const trmi_onnx_reader *r, const trmi_proto_field *field) {
    trmi_onnx_model *m = r->model;
    trm_named_tensor tensor;
    TRMI_TRY(trmi_onnx_expect_message(r, field, m->initializer_count));
    TRMI_TRY(trmi_onnx_take_tensor(r, field, &tensor));
    if (!trmi_grow((void **)&m->initializers, &m->initializer_capacity, m->initializer_count + 1,
                   sizeof *m->initializers)) {
        return trmi_onnx_no_memory(r);
    }
    m->initializers[m->initializer_count++] = tensor;
    return TRM_OK;
}

/* Reads a GraphProto into the model: nodes, weights, inputs, outputs. Value infos of intermediate
 * results are skipped. */
static trm_status take_graph(const trmi_onnx_reader *r, const trmi_proto_field *message) {
    trmi_onnx_model *m = r->model;
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    while (trmi_proto_next(&proto, &field)) {
        /* 1 node, 2 name, 5 initializer, 11 input, 12 output */
        trm_status status = TRM_OK;
        switch (field.number) {
        case 1:
            status = trmi_onnx_expect_message(r, &field, m->node_count);
            status = status == TRM_OK ? take_node(r, &field) : status;
            break;
        case 2: status = trmi_onnx_take_text(r, &field, &m->graph_name); break;
        case 5: status = take_initializer(r, &field); break;
        case 11:
            status = trmi_onnx_expect_message(r, &field, m->input_count);
            status = status == TRM_OK
                         ? take_value(r, &field, &m->inputs, &m->input_count, &m->input_capacity)
                         : status;
            break;
        case 12:
            status = trmi_onnx_expect_message(r, &field, m->output_count);
            status = status == TRM_OK
                         ? take_value(r, &field, &m->outputs, &m->output_count, &m->output_capacity)
                         : status;
            break;
        default: break;
        }
        TRMI_TRY(status);
    }
    return trmi_onnx_finish(r, &proto);
}

/* Reads an OperatorSetIdProto; only the version of the default domain is stored. */
static trm_status take_opset(const trmi_onnx_reader *r, const trmi_proto_field *message) {
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    const char *domain = "";
    uint64_t version = 0;
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1) {
            TRMI_TRY(trmi_onnx_take_text(r, &field, &domain));
        } else if (field.number == 2) {
            version = field.value;
        }
    }
    if (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0) {
        r->model->opset = (int64_t)version;
    }
    return trmi_onnx_finish(r, &proto);
}

/* Reads a pair of metadata. */
static trm_status take_metadata(const trmi_onnx_reader *r, const trmi_proto_field *message) {
    trmi_onnx_model *m = r->model;
    trmi_proto proto = trmi_proto_inside(message);
    trmi_proto_field field;
    trm_text_pair pair = {"", ""};
    while (trmi_proto_next(&proto, &field)) {
        if (field.number == 1 || field.number == 2) {
            TRMI_TRY(trmi_onnx_take_text(r, &field, field.number == 1 ? &pair.key : &pair.value));
        }
    }
    TRMI_TRY(trmi_onnx_finish(r, &proto));
    if (!trmi_grow((void **)&m->metadata, &m->metadata_capacity, m->metadata_count + 1,
                   sizeof *m->metadata)) {
        return trmi_onnx_no_memory(r);
    }
    m->metadata[m->metadata_count++] = pair;
    return TRM_OK;
}

/* Reads one field of the model. A second graph is refused. */
static trm_status take_model_field(const trmi_onnx_reader *r, const trmi_proto_field *field,
                                   bool *graph) {
    /* 1 ir_version, 2 producer_name, 7 graph, 8 opset_import, 14 metadata_props */
    switch (field->number) {
    case 1: r->model->ir_version = (int64_t)field->value; return TRM_OK;
    case 2: return trmi_onnx_take_text(r, field, &r->model->producer);
    case 7:
        TRMI_TRY(trmi_onnx_expect_message(r, field, *graph ? TRMI_ONNX_ITEMS_MAX : 0));
        *graph = true;
        return take_graph(r, field);
    case 8: TRMI_TRY(trmi_onnx_expect_message(r, field, 0)); return take_opset(r, field);
    case 14:
        TRMI_TRY(trmi_onnx_expect_message(r, field, r->model->metadata_count));
        return take_metadata(r, field);
    default: return TRM_OK;
    }
}

/* Contract in onnx.h. IR versions below 3 have no operator set, without which nodes have no
 * meaning. */
trm_status trmi_onnx_parse(const uint8_t *data, size_t bytes, const char *path,
                           trmi_onnx_model **out, trm_error *err) {
    trm_error local;
    trmi_onnx_reader r = {.start = data, .path = path, .err = err != NULL ? err : &local};
    /* A new model has the values that are written; here the file determines them. */
    TRMI_TRY(trmi_onnx_create("", &r.model, r.err));
    r.model->producer = "";
    r.model->ir_version = r.model->opset = 0;
    trmi_proto proto = {.data = data, .bytes = bytes};
    trmi_proto_field field;
    bool graph = false;
    trm_status status = TRM_OK;
    /* All fields, then the rest that is no field. */
    while (status == TRM_OK && trmi_proto_next(&proto, &field)) {
        status = take_model_field(&r, &field, &graph);
    }
    status = status == TRM_OK ? trmi_onnx_finish(&r, &proto) : status;
    if (status == TRM_OK && (!graph || r.model->ir_version < 3)) {
        status = TRMI_FAIL(err, TRM_CORRUPT, "%s: no ONNX model: %s", trmi_path_tail(path),
                           graph ? "its IR version is below 3" : "it has no graph");
    }
    if (status != TRM_OK) {
        trmi_onnx_destroy(r.model);
        return status;
    }
    *out = r.model;
    return TRM_OK;
}

/* Contract in onnx.h. The file stays mapped as long as the model lives. */
trm_status trmi_onnx_open(const char *path, trmi_onnx_model **out, trm_error *err) {
    trmi_mapping mapping;
    TRMI_TRY(trmi_mapping_open(path, &mapping, err));
    trmi_onnx_model *model = NULL;
    trm_status parsed = trmi_onnx_parse(mapping.data, mapping.bytes, path, &model, err);
    /* A page that could not be read makes the model invalid. */
    trm_status status = trmi_mapping_check(&mapping, parsed, err);
    if (status != TRM_OK) {
        trmi_onnx_destroy(parsed == TRM_OK ? model : NULL);
        trmi_mapping_close(&mapping);
        return status;
    }
    model->mapping = mapping;
    *out = model;
    return TRM_OK;
}
