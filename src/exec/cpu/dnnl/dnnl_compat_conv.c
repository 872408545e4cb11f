/* SPDX-License-Identifier: Apache-2.0 */
/* One oneDNN convolution. Image and result have the caller's layout; the weights have the layout
 * that oneDNN chooses, with a reorder before each run, or after it for the gradient of weights.
 *
 *      scratch:  [ weights in the library's form | weights reorder's own | convolution's own ]
 */
#include "exec/cpu/dnnl/dnnl_compat_v.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/os.h"

#include <string.h>

/* Parts of the scratch begin at cache lines. ROOM_BYTES: oneDNN aborts where it finds no memory for
 * its own objects, so that much must be free before it is called. */
enum { ALIGN = 64, ROOM_BYTES = 32 << 20 };

/* A primitive with its arguments; handles are set in each run. */
typedef struct call {
    dnnl_primitive_desc_t pd; /* owned, like the primitive */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[5]; /* [args_count]; memory objects of the convolution, borrowed */
    int args_count;
} call;

struct trmi_dnnl_conv {
    trmi_dnnl *dnnl;
    trmi_conv_direction direction;
    trmi_md image, weights, bias, result, any_weights;
    call conv, reorder;
    bool reordered;
    dnnl_memory_t image_memory, weights_memory, bias_memory, result_memory; /* the caller's */
    dnnl_memory_t inner_weights, conv_scratch, reorder_scratch;
    int64_t inner_bytes, conv_scratch_bytes, reorder_scratch_bytes;
};

static dnnl_data_type_t type_of(trm_dtype dtype) {
    return dtype == TRM_BFLOAT16 ? dnnl_bf16 : dnnl_f32;
}

/* Makes the descriptor of a tensor with strides. */
static dnnl_status_t describe_tensor(trmi_md *box, const trmi_dnnl_tensor *t) {
    return trmi_md_strides(box, t->rank, t->dim, type_of(t->dtype), t->stride);
}

/* Returns the bytes of a descriptor's memory, rounded up to a line; 0 for none. */
static int64_t md_bytes(trmi_md_ref md) {
    return md == NULL ? 0 : trmi_round_up((int64_t)dnnl_memory_desc_get_size(md), ALIGN);
}

/* Adds an argument of a primitive, if there is one. */
static void add_arg(call *c, int arg, dnnl_memory_t memory) {
    if (memory != NULL) {
        c->args[c->args_count++] = (dnnl_exec_arg_t){.arg = arg, .memory = memory};
    }
}

/* Makes a memory object without bytes. Makes none for an absent or empty descriptor. */
static dnnl_status_t bare_memory(trmi_dnnl *dnnl, trmi_md_ref md, dnnl_memory_t *out) {
    if (md == NULL || dnnl_memory_desc_get_size(md) == 0) {
        return dnnl_success;
    }
    return dnnl_memory_create(out, md, dnnl->engine, DNNL_MEMORY_NONE);
}

/* Describes the tensors. Inside oneDNN the weights have any layout, and are bfloat16 where image
 * or result are; a gradient of the weights has the type of the weights. */
static dnnl_status_t make_descriptors(trmi_dnnl_conv *c, const trmi_dnnl_conv_options *o) {
    trm_dtype inner = o->image.dtype == TRM_BFLOAT16 || o->result.dtype == TRM_BFLOAT16
                          ? TRM_BFLOAT16
                          : TRM_FLOAT32;
    if (o->direction == TRMI_CONV_WEIGHTS) {
        inner = o->weights.dtype;
    }
    dnnl_status_t s = describe_tensor(&c->image, &o->image);
    s = s != dnnl_success ? s : describe_tensor(&c->weights, &o->weights);
    s = s != dnnl_success ? s : describe_tensor(&c->result, &o->result);
    if (s == dnnl_success && o->bias) {
        s = trmi_md_strides(&c->bias, 1, &o->result.dim[1], dnnl_f32, (const int64_t[]){1});
    }
    return s != dnnl_success
               ? s
               : trmi_md_any(&c->any_weights, o->weights.rank, o->weights.dim, type_of(inner));
}

/* Makes oneDNN's primitive. Weights have the layout that oneDNN prefers (make_all reorders them
 * if it is another one than the caller's). For a gradient oneDNN wants the descriptor of the
 * forward pass as a hint; any forward descriptor of these shapes serves. */
static dnnl_status_t make_conv(trmi_dnnl_conv *c, const trmi_dnnl_conv_options *o,
                               dnnl_primitive_attr_t attr) {
    trmi_conv_mds m = {.image = trmi_md_of(&c->image),
                       .weights = trmi_md_of(&c->any_weights),
                       .bias = o->bias ? trmi_md_of(&c->bias) : NULL,
                       .result = trmi_md_of(&c->result),
                       .stride = {o->stride[0], o->stride[1]},
                       .dilation = {o->dilation[0] - 1, o->dilation[1] - 1},
                       .pad_begin = {o->pad[0], o->pad[2]},
                       .pad_end = {o->pad[1], o->pad[3]}};
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = dnnl_success;
    /* A forward descriptor of any kind guides the choice. */
    if (o->direction != TRMI_CONV_FORWARD) {
        trmi_conv_mds f = m;
        f.bias = NULL;
        trmi_md plain = {0};
        s = trmi_md_any(&plain, o->weights.rank, o->weights.dim,
                        o->image.dtype == TRM_BFLOAT16 ? dnnl_bf16 : dnnl_f32);
        f.weights = trmi_md_of(&plain);
        s = s != dnnl_success
                ? s
                : trmi_conv_pd(&hint, c->dnnl->engine, TRMI_CONV_FORWARD, &f, NULL, NULL);
        trmi_md_free(&plain);
    }
    s = s != dnnl_success
            ? s
            : trmi_conv_pd(&c->conv.pd, c->dnnl->engine, o->direction, &m, hint, attr);
    if (hint != NULL) {
        dnnl_primitive_desc_destroy(hint);
    }
    return s != dnnl_success ? s : dnnl_primitive_create(&c->conv.primitive, c->conv.pd);
}

/* Makes the reorder between the caller's weights and oneDNN's layout: before the convolution, or
 * after it for a gradient of weights. */
static dnnl_status_t make_reorder(trmi_dnnl_conv *c, trmi_md_ref inner,
                                  dnnl_primitive_attr_t attr) {
    bool gradient = c->direction == TRMI_CONV_WEIGHTS;
    trmi_md_ref outer = trmi_md_of(&c->weights);
    dnnl_engine_t engine = c->dnnl->engine;
    dnnl_status_t s = dnnl_reorder_primitive_desc_create(
        &c->reorder.pd, gradient ? inner : outer, engine, gradient ? outer : inner, engine, attr);
    s = s != dnnl_success ? s : dnnl_primitive_create(&c->reorder.primitive, c->reorder.pd);
    s = s != dnnl_success ? s : bare_memory(c->dnnl, inner, &c->inner_weights);
    if (s != dnnl_success) {
        return s;
    }
    /* Both reorder and primitive take their scratch from the caller. */
    trmi_md_ref own = dnnl_primitive_desc_query_md(c->reorder.pd, dnnl_query_scratchpad_md, 0);
    c->inner_bytes = md_bytes(inner);
    c->reorder_scratch_bytes = md_bytes(own);
    s = bare_memory(c->dnnl, own, &c->reorder_scratch);
    add_arg(&c->reorder, DNNL_ARG_FROM, gradient ? c->inner_weights : c->weights_memory);
    add_arg(&c->reorder, DNNL_ARG_TO, gradient ? c->weights_memory : c->inner_weights);
    add_arg(&c->reorder, DNNL_ARG_SCRATCHPAD, c->reorder_scratch);
    c->reordered = true;
    return s;
}

/* Lists the arguments of the convolution. oneDNN names them by the direction. */
static void bind_conv_args(trmi_dnnl_conv *c) {
    static const int names[3][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
    add_arg(&c->conv, names[c->direction][0], c->image_memory);
    add_arg(&c->conv, names[c->direction][1], c->reordered ? c->inner_weights : c->weights_memory);
    add_arg(&c->conv, names[c->direction][2], c->result_memory);
    add_arg(&c->conv, DNNL_ARG_BIAS, c->bias_memory);
    add_arg(&c->conv, DNNL_ARG_SCRATCHPAD, c->conv_scratch);
}

/* Makes everything that a run needs: descriptors, the primitive, memory objects without data,
 * and a reorder of the weights if the primitive wants another layout. */
static dnnl_status_t make_all(trmi_dnnl_conv *c, const trmi_dnnl_conv_options *o,
                              dnnl_primitive_attr_t attr) {
    dnnl_status_t s = make_descriptors(c, o);
    s = s != dnnl_success ? s : make_conv(c, o, attr);
    s = s != dnnl_success ? s : bare_memory(c->dnnl, trmi_md_of(&c->image), &c->image_memory);
    s = s != dnnl_success ? s : bare_memory(c->dnnl, trmi_md_of(&c->weights), &c->weights_memory);
    s = s != dnnl_success ? s : bare_memory(c->dnnl, trmi_md_of(&c->result), &c->result_memory);
    if (s == dnnl_success && o->bias) {
        s = bare_memory(c->dnnl, trmi_md_of(&c->bias), &c->bias_memory);
    }
    if (s != dnnl_success) {
        return s;
    }
    /* The primitive has chosen a layout of the weights: if it is not the caller's, a reorder
     * connects both. */
    dnnl_query_t weights_query =
        o->direction == TRMI_CONV_WEIGHTS ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    trmi_md_ref inner = dnnl_primitive_desc_query_md(c->conv.pd, weights_query, 0);
    if (!dnnl_memory_desc_equal(inner, trmi_md_of(&c->weights))) {
        s = make_reorder(c, inner, attr);
    }
    trmi_md_ref own = dnnl_primitive_desc_query_md(c->conv.pd, dnnl_query_scratchpad_md, 0);
    c->conv_scratch_bytes = md_bytes(own);
    s = s != dnnl_success ? s : bare_memory(c->dnnl, own, &c->conv_scratch);
    bind_conv_args(c);
    return s;
}

/* Contract in dnnl_compat.h. Scratch memory is the caller's (scratchpad mode user), so that a
 * step allocates nothing. */
trm_status trmi_dnnl_conv_create(trmi_dnnl *dnnl, const trmi_dnnl_conv_options *options,
                                 trmi_dnnl_conv **out, trm_error *err) {
    /* oneDNN generates code, and crashes if it gets no memory for it */
    trmi_dnnl_conv *c = trmi_os_has_room(ROOM_BYTES) ? trmi_alloc(sizeof *c) : NULL;
    if (c == NULL) {
        return TRMI_NO_MEMORY(err, "for the kernels of oneDNN's convolution");
    }
    c->dnnl = dnnl;
    c->direction = options->direction;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(&attr);
    s = s != dnnl_success
            ? s
            : dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    s = s != dnnl_success ? s : make_all(c, options, attr);
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
    if (s != dnnl_success) {
        trmi_dnnl_conv_destroy(c);
        return s == dnnl_out_of_memory
                   ? TRMI_FAIL(err, TRM_NOMEM, "convolution: oneDNN has no memory")
                   : TRMI_FAIL(err, TRM_UNSUPPORTED,
                               "convolution: oneDNN has no kernel (status %d)", (int)s);
    }
    *out = c;
    return TRM_OK;
}

static void free_call(call *c) {
    if (c->primitive != NULL) {
        dnnl_primitive_destroy(c->primitive);
    }
    if (c->pd != NULL) {
        dnnl_primitive_desc_destroy(c->pd);
    }
}

void trmi_dnnl_conv_destroy(trmi_dnnl_conv *c) {
    if (c == NULL) {
        return;
    }
    dnnl_memory_t memories[] = {c->image_memory,   c->weights_memory, c->bias_memory,
                                c->result_memory,  c->inner_weights,  c->conv_scratch,
                                c->reorder_scratch};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        if (memories[i] != NULL) {
            dnnl_memory_destroy(memories[i]);
        }
    }
    free_call(&c->conv);
    free_call(&c->reorder);
    trmi_md_free(&c->image);
    trmi_md_free(&c->weights);
    trmi_md_free(&c->bias);
    trmi_md_free(&c->result);
    trmi_md_free(&c->any_weights);
    trmi_free(c);
}

int64_t trmi_dnnl_conv_scratch(const trmi_dnnl_conv *c) {
    return c->inner_bytes + c->reorder_scratch_bytes + c->conv_scratch_bytes;
}

/* Points a memory object at the data of this run; objects are made once, at creation. */
static dnnl_status_t set_data(dnnl_memory_t memory, void *data) {
    return memory == NULL ? dnnl_success : dnnl_memory_set_data_handle(memory, data);
}

/* Starts a primitive. The stream is in order, so a reorder ends before the convolution begins. */
static dnnl_status_t execute_call(const trmi_dnnl_conv *c, const call *what) {
    return dnnl_primitive_execute(what->primitive, c->dnnl->stream, what->args_count, what->args);
}

/* Contract in dnnl_compat.h. The scratch holds the weights in oneDNN's layout, then the scratch of
 * the reorder and of the primitive. */
trm_status trmi_dnnl_conv_run(const trmi_dnnl_conv *c, void *image, void *weights, void *bias,
                              void *result, void *scratch, trm_error *err) {
    char *place = scratch;
    dnnl_status_t s = set_data(c->image_memory, image);
    s = s != dnnl_success ? s : set_data(c->weights_memory, weights);
    s = s != dnnl_success ? s : set_data(c->bias_memory, bias);
    s = s != dnnl_success ? s : set_data(c->result_memory, result);
    s = s != dnnl_success ? s : set_data(c->inner_weights, place);
    place += c->inner_bytes;
    s = s != dnnl_success ? s : set_data(c->reorder_scratch, place);
    place += c->reorder_scratch_bytes;
    s = s != dnnl_success ? s : set_data(c->conv_scratch, place);
    /* Weights that are read are reordered before, a gradient of weights after. */
    if (c->reordered && c->direction != TRMI_CONV_WEIGHTS) {
        s = s != dnnl_success ? s : execute_call(c, &c->reorder);
    }
    s = s != dnnl_success ? s : execute_call(c, &c->conv);
    if (c->reordered && c->direction == TRMI_CONV_WEIGHTS) {
        s = s != dnnl_success ? s : execute_call(c, &c->reorder);
    }
    s = s != dnnl_success ? s : dnnl_stream_wait(c->dnnl->stream);
    return s == dnnl_success
               ? TRM_OK
               : TRMI_FAIL(err, TRM_INTERNAL, "convolution: oneDNN status %d", (int)s);
}
