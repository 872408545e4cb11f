/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of an executor: parameters, states and optimiser slots, by name. Callers see plain
 * layout and whole tensors; the program may use other layouts, and a split program may hold only
 * this rank's part.
 *
 *      part        which part of a variable this rank has, where it lies, its layout
 *      list        once, at creation: names, shapes, buffers
 *      initialise  first values, from (seed, name, element)
 *      read, write, gradient
 *
 * The whole of a cut variable is gathered by trm_exec_gather, which is collective; read and
 * write are local to a rank. */
#include "exec/exec.h"

#include "exec/box_walk.h"
#include "exec/convert.h"

#include "plan/pipeline/stages.h"

#include "base/arguments.h"
#include "base/element.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>

/* ---- this rank's part ------------------------------------------------------------------------ */

/* Contract in exec.h. A leaf of which this rank has the whole is not cut. */
const trmi_partition_leaf *trmi_exec_cut_of(const trm_exec *exec, int32_t variable) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[variable]];
    const trmi_partition_leaf *leaf =
        trmi_exec_is_elsewhere(exec, variable) ? NULL : trmi_program_leaf(exec->program, b->name);
    if (leaf == NULL) {
        return NULL;
    }
    trmi_box whole = trmi_box_whole(&leaf->global);
    return trmi_box_equal(&whole, &leaf->box) ? NULL : leaf;
}

void *trmi_exec_variable_address(const trm_exec *exec, int32_t index) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    /* A slot lies at the offset of its parameter, in the optimiser's array. */
    int32_t slot = exec->variable_slots[index];
    if (slot < 0) {
        return exec->env.arena[b->arena] + b->offset;
    }
    return trmi_update_slot(exec->update, slot, b->offset / (int64_t)sizeof(float));
}

/* Writes this rank's part of variable `index`, given in plain layout. */
static void write_part(trm_exec *exec, int32_t index, const void *data) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_convert_from_plain(b, data, trmi_exec_variable_address(exec, index));
}

/* Reads this rank's part of variable `index`, in plain layout. */
static void read_part(const trm_exec *exec, int32_t index, void *data) {
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    trmi_convert_to_plain(b, trmi_exec_variable_address(exec, index), data);
}

/* ---- the list of variables ------------------------------------------------------------------- */

/* A parameter or state as it is listed: its buffer, 0 where another stage has it. */
typedef struct listed {
    const char *name;
    trm_dtype dtype;
    trm_shape shape;    /* of the whole tensor */
    bool state, frozen; /* frozen: it has no slots */
    int32_t buffer, slots_buffer;
} listed;

/* Appends a variable to the list. `slot` -1: not a slot. */
static void add_variable(trm_exec *exec, const char *name, trm_variable_kind kind, const listed *of,
                         int32_t slot) {
    int32_t i = exec->variables_count++;
    exec->variables[i] =
        (trm_variable){.name = name, .kind = kind, .dtype = of->dtype, .shape = of->shape};
    exec->variable_buffers[i] = slot < 0 ? of->buffer : of->slots_buffer;
    exec->variable_slots[i] = slot;
}

/* Describes the parameter or state in a buffer. */
static listed describe_buffer(const trm_program *p, int32_t buffer, bool state) {
    const trmi_buffer *b = &p->buffers[buffer];
    const trmi_partition_leaf *leaf = trmi_program_leaf(p, b->name);
    return (listed){.name = b->name,
                    .dtype = b->dtype,
                    .shape = leaf != NULL ? leaf->shape : b->shape,
                    .state = state,
                    .buffer = buffer,
                    .slots_buffer = buffer};
}

/* Lists the parameters, then the states, of this program. Parameters come in their order in the
 * graph, which is the same for every plan; the order of arenas is not. */
static void list_own(const trm_program *p, listed *out) {
    for (int32_t i = 0; i < p->params_count; i++) {
        listed item = describe_buffer(p, p->params[i].param_buffer, false);
        item.frozen = p->params[i].frozen;
        int32_t j = i;
        for (; j > 0 && p->buffers[item.buffer].value < p->buffers[out[j - 1].buffer].value; j--) {
            out[j] = out[j - 1];
        }
        out[j] = item;
    }
    for (int32_t i = 0; i < p->states_count; i++) {
        out[p->params_count + i] = describe_buffer(p, p->states[i], true);
    }
}

/* Lists those of all stages in the same order. `own`: [own_count] those of this stage. */
static void list_all_stages(const trm_program *p, const listed *own, int32_t own_count,
                            listed *out) {
    const trmi_staged *staged = p->staged;
    for (int32_t i = 0; i < 2 * staged->leaves_count; i++) {
        const trmi_stage_leaf *leaf = &staged->leaves[i % staged->leaves_count];
        if (leaf->state != (i >= staged->leaves_count)) {
            continue;
        }
        listed item = {
            .name = leaf->name, .dtype = leaf->dtype, .shape = leaf->shape, .state = leaf->state};
        for (int32_t k = 0; k < own_count; k++) {
            item = strcmp(own[k].name, leaf->name) == 0 ? own[k] : item;
        }
        item.frozen = leaf->frozen; /* one that another stage updates is frozen here only */
        item.slots_buffer = leaf->owner == staged->stage ? item.buffer : 0;
        *out++ = item;
    }
}

/* Contract in exec.h. The order of variables is part of what checkpoints and callers see. With a
 * pipeline all stages list the variables of the whole model in one order, also those that this
 * rank does not hold. */
trm_status trmi_exec_list_variables(trm_exec *exec, trm_error *err) {
    const trm_program *p = exec->program;
    int32_t slots = trmi_update_slots(exec->update), own = p->params_count + p->states_count;
    int32_t all = p->staged != NULL ? p->staged->leaves_count : own, rows = all * (1 + slots) + 1;
    listed *list, *mine;
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->variables, rows, "for variables"));
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->variable_buffers, rows, "for variables"));
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->variable_slots, rows, "for variables"));
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, exec->wholes, rows, "for variables"));
    TRMI_TRY(TRMI_NEW_IN(err, &exec->memory, list, all + own + 1, "for variables"));
    mine = p->staged != NULL ? list + all : list;
    list_own(p, mine);
    if (p->staged != NULL) {
        list_all_stages(p, mine, own, list);
    }
    /* Parameters, then states, then the slots of parameters that are not frozen, one slot after the
     * other. */
    for (int32_t i = 0; i < all; i++) {
        add_variable(exec, list[i].name,
                     list[i].state ? TRM_VARIABLE_STATE : TRM_VARIABLE_PARAMETER, &list[i], -1);
        exec->parameter_count += list[i].state ? 0 : trm_shape_count(&list[i].shape);
    }
    for (int32_t slot = 0; slot < slots; slot++) {
        for (int32_t i = 0; i < all && !list[i].state; i++) {
            if (list[i].frozen) {
                continue;
            }
            const char *name = trmi_arena_printf(&exec->memory, "%s/%s", list[i].name,
                                                 trmi_update_slot_name(exec->update, slot));
            TRMI_TRY(TRMI_CHECK_MEMORY(err, &exec->memory, "for variables"));
            add_variable(exec, name, TRM_VARIABLE_SLOT, &list[i], slot);
        }
    }
    return TRM_OK;
}

/* Elements from which all threads initialise one variable; into how many pieces. */
enum { LARGE_VARIABLE = 1 << 20, ROWS_PIECES = 32 };

/* Returns the seed of first values: all ranks that share parameters have the same one for them. */
static uint64_t seed_of(const trm_exec *exec, const trmi_buffer *b) {
    return b->arena == TRMI_ARENA_PARAM ? exec->parameter_seed : exec->env.seed;
}

/* Writes the first values of a variable, or of this rank's part. Values are generated in plain
 * layout: directly in their place if the program uses that layout; else in the parameter's range of
 * GRAD, which is unused before the first step and is set to zero again afterwards; else in
 * allocated memory. Returns false if that allocation fails. */
static bool initialise_one(trm_exec *exec, int32_t index) {
    const trm_program *p = exec->program;
    const trm_variable *v = &exec->variables[index];
    const trmi_buffer *b = &p->buffers[exec->variable_buffers[index]];
    const trmi_op *leaf = &p->graph->ops[p->graph->values[b->value].op];
    const trmi_partition_leaf *part = trmi_exec_cut_of(exec, index);
    trmi_box box = part != NULL ? part->box : trmi_box_whole(&v->shape);
    size_t bytes = (size_t)trmi_box_count(&box) * trm_dtype_bytes(v->dtype);
    bool in_place = b->layout == TRMI_PLAIN;
    uint64_t seed = seed_of(exec, b);
    bool borrows =
        !in_place && b->arena == TRMI_ARENA_PARAM && b->offset < p->arena_bytes[TRMI_ARENA_GRAD];
    void *plain = in_place  ? trmi_exec_variable_address(exec, index)
                  : borrows ? exec->env.arena[TRMI_ARENA_GRAD] + b->offset
                            : trmi_alloc(bytes);
    if (plain == NULL) {
        return false;
    }
    /* A part has the same values as those elements of the whole tensor. */
    if (part != NULL) {
        trmi_init_fill_box(leaf->attrs.leaf.init, seed, v->name, &part->global, &box, v->dtype,
                           plain);
    } else {
        trmi_init_fill(leaf->attrs.leaf.init, seed, v->name, &v->shape, v->dtype, plain);
    }
    if (!in_place) {
        write_part(exec, index, plain);
    }
    if (borrows) {
        memset(plain, 0, bytes);
    } else if (!in_place) {
        trmi_free(plain);
    }
    return true;
}

/* Returns whether all threads initialise a variable together, in pieces of rows: if it is large,
 * plain and not cut. Otherwise one thread initialises it. */
static bool is_shared_out(const trm_exec *exec, int32_t index) {
    const trm_variable *v = &exec->variables[index];
    return trm_shape_count(&v->shape) >= LARGE_VARIABLE && v->shape.dim[0] >= ROWS_PIECES &&
           exec->program->buffers[exec->variable_buffers[index]].layout == TRMI_PLAIN &&
           trmi_exec_cut_of(exec, index) == NULL;
}

/* Initialises one large variable with all threads, ROWS_PIECES ranges of its first dimension. */
static void initialise_by_rows(trm_exec *exec, int32_t index) {
    const trm_variable *v = &exec->variables[index];
    const trmi_buffer *b = &exec->program->buffers[exec->variable_buffers[index]];
    const trm_graph *g = exec->program->graph;
    uint64_t seed = seed_of(exec, b);
    size_t row = (size_t)(trm_shape_count(&v->shape) / v->shape.dim[0]) * trm_dtype_bytes(v->dtype);
    char *data = trmi_exec_variable_address(exec, index);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t i = 0; i < ROWS_PIECES; i++) {
        trmi_box box = trmi_box_whole(&v->shape);
        box.begin[0] = v->shape.dim[0] * i / ROWS_PIECES;
        box.end[0] = v->shape.dim[0] * (i + 1) / ROWS_PIECES;
        trmi_init_fill_box(g->ops[g->values[b->value].op].attrs.leaf.init, seed, v->name, &v->shape,
                           &box, v->dtype, data + (size_t)box.begin[0] * row);
    }
}

/* Divides the work of making first values among the ranks that have one copy of the parameters:
 * clears mine[index] of those that another rank makes. Each parameter goes to the rank that has the
 * fewest elements so far. */
static trm_status divide_parameters(const trm_exec *exec, uint8_t *mine, trm_error *err) {
    int64_t *loads;
    TRMI_TRY(TRMI_NEW(err, loads, (size_t)exec->copy_ranks, "to share out initial values"));
    for (int32_t i = 0; i < exec->variables_count; i++) {
        const trm_variable *v = &exec->variables[i];
        int32_t least = 0;
        if (v->kind != TRM_VARIABLE_PARAMETER || trmi_exec_is_elsewhere(exec, i)) {
            continue;
        }
        for (int32_t r = 1; r < exec->copy_ranks; r++) {
            least = loads[r] < loads[least] ? r : least;
        }
        loads[least] += trm_shape_count(&v->shape);
        mine[i] = least == exec->copy_rank;
    }
    trmi_free(loads);
    return TRM_OK;
}

/* Initialises parameters and states, and leaves slots at zero. A value depends on (seed, name,
 * element) alone, so any thread of any rank may compute it. */
trm_status trmi_exec_initialise(trm_exec *exec, trm_error *err) {
    int32_t failed = 0;
    uint8_t *mine;
    TRMI_TRY(TRMI_NEW(err, mine, (size_t)exec->variables_count + 1, "to initialise %d variables",
                      exec->variables_count));
    for (int32_t i = 0; i < exec->variables_count; i++) {
        mine[i] = exec->variables[i].kind != TRM_VARIABLE_SLOT && !trmi_exec_is_elsewhere(exec, i);
    }
    trm_status divided = exec->copy_ranks > 0 ? divide_parameters(exec, mine, err) : TRM_OK;
    if (divided != TRM_OK) {
        trmi_free(mine);
        return divided;
    }
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : failed)
    for (int32_t i = 0; i < exec->variables_count; i++) {
        failed += mine[i] && !is_shared_out(exec, i) && !initialise_one(exec, i);
    }
    for (int32_t i = 0; i < exec->variables_count; i++) {
        if (mine[i] && is_shared_out(exec, i)) {
            initialise_by_rows(exec, i);
        }
    }
    trmi_free(mine);
    return failed == 0 ? TRM_OK : TRMI_NO_MEMORY(err, "to initialise %d variables", failed);
}

/* Returns whether the executor has a variable of this index; trm_exec_find gives -1 for a name
 * that it does not have. */
static bool has_variable(const trm_exec *exec, int32_t index) {
    return index >= 0 && index < exec->variables_count;
}

int32_t trm_exec_variable_count(const trm_exec *exec) {
    TRMI_NEED_OR(0, NULL, exec);
    return exec->variables_count;
}

trm_variable trm_exec_variable(const trm_exec *exec, int32_t index) {
    TRMI_NEED_OR((trm_variable){0}, NULL, exec);
    return has_variable(exec, index) ? exec->variables[index] : (trm_variable){0};
}

int32_t trm_exec_find(const trm_exec *exec, const char *name) {
    TRMI_NEED_OR(-1, NULL, exec, name);
    for (int32_t i = 0; i < exec->variables_count; i++) {
        if (strcmp(exec->variables[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Copies a variable as the last gather has assembled it; zeros before the first gather. */
static void read_whole(const trm_exec *exec, int32_t index, void *data) {
    const trm_variable *v = &exec->variables[index];
    size_t bytes = (size_t)trm_shape_count(&v->shape) * trm_dtype_bytes(v->dtype);
    if (exec->wholes[index] != NULL) {
        memcpy(data, exec->wholes[index], bytes);
    } else {
        memset(data, 0, bytes);
    }
}

/* Contract in trireme/exec.h. Takes no memory, because a caller would not learn that it is missing.
 * This rank's own part in `wholes` may be older than the arena, and is copied again. */
void trm_exec_read(const trm_exec *exec, int32_t index, void *data) {
    TRMI_NEED_OR(, NULL, exec, data);
    if (!has_variable(exec, index)) {
        return;
    }
    if (trmi_exec_is_elsewhere(exec, index)) {
        read_whole(exec, index, data);
        return;
    }
    read_part(exec, index, data);
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    if (leaf != NULL) {
        trmi_complete_box(data, &leaf->global, &leaf->box, exec->wholes[index],
                          trm_dtype_bytes(exec->variables[index].dtype));
    }
}

/* Contract in trireme/exec.h. Of a cut variable the box of this rank is taken from the whole one;
 * memory for that may be missing: the next step then says so. */
void trm_exec_write(trm_exec *exec, int32_t index, const void *data) {
    TRMI_NEED_OR(, NULL, exec, data);
    if (!has_variable(exec, index)) {
        return;
    }
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    trmi_exec_parameters_changed(exec);
    if (trmi_exec_is_elsewhere(exec, index)) {
        return;
    }
    if (leaf == NULL) {
        write_part(exec, index, data);
        return;
    }
    size_t element = trm_dtype_bytes(exec->variables[index].dtype);
    void *part = trmi_alloc((size_t)trmi_box_count(&leaf->box) * element);
    if (part != NULL) {
        trmi_copy_box((void *)(uintptr_t)data, &leaf->global, &leaf->box, part, element, false);
        write_part(exec, index, part);
    }
    exec->lacks_values |= part == NULL;
    trmi_free(part);
}

/* Contract in exec.h. A parameter without a gradient of its own (rows of a sparse table) is not
 * found, unless it is frozen. */
bool trmi_exec_find_parameter(const trm_exec *exec, const char *name, float **values,
                              float **gradient, bool *plain) {
    const trm_program *p = exec->program;
    for (int32_t i = 0; i < p->params_count; i++) {
        const trmi_param *param = &p->params[i];
        if (strcmp(p->buffers[param->param_buffer].name, name) != 0 ||
            (param->grad_buffer == 0 && !param->frozen)) {
            continue;
        }
        const trmi_buffer *b = &p->buffers[param->param_buffer];
        *values = (float *)(void *)(exec->env.arena[b->arena] + b->offset);
        *gradient =
            param->frozen ? NULL : (float *)(void *)(exec->env.arena[TRMI_ARENA_GRAD] + b->offset);
        *plain = b->layout == TRMI_PLAIN;
        return true;
    }
    return false;
}

/* Writes the sparse gradient of a table as a dense one: rows of equal ids are added. */
static void densify_gradient(const trm_exec *exec, const trmi_param *param, float *data) {
    const trm_program *p = exec->program;
    const trmi_buffer *ids = &p->buffers[param->sparse_ids];
    const trmi_buffer *rows = &p->buffers[param->sparse_rows];
    const trm_shape *table = &p->buffers[param->param_buffer].shape;
    int64_t width = table->dim[1], count = trm_shape_count(&ids->shape);
    const char *id_data = exec->env.arena[ids->arena] + ids->offset;
    const float *row_data = (const float *)(exec->env.arena[rows->arena] + rows->offset);
    memset(data, 0, (size_t)trm_shape_count(table) * sizeof *data);
    for (int64_t i = 0; i < count; i++) {
        int64_t id = trmi_element_id(id_data, ids->dtype == TRM_INT64, i);
        for (int64_t j = 0; j < width; j++) {
            data[id * width + j] += row_data[i * width + j];
        }
    }
}

/* Writes the dense gradient of this rank's part of a parameter to `data`, in plain layout. */
static void write_own_gradient(const trm_exec *exec, int32_t parameter, float *data) {
    const trmi_param *param = &exec->program->params[parameter];
    const trmi_buffer *b = &exec->program->buffers[param->param_buffer];
    const char *base = (const char *)trmi_exec_gradient_range(exec);
    if (!exec->gradients_handed_out && param->factor_left != 0) {
        trmi_update_product(exec->update, parameter, data);
    } else {
        trmi_convert_to_plain(b, base + b->offset, data); /* like its parameter: float32 */
    }
}

/* Puts a variable or its gradient together; an error names the variable. */
static trm_status gather_named(trm_exec *exec, int32_t index, const void *part, void *whole,
                               trm_error *why) {
    const char *name = exec->variables[index].name;
    trm_status status = trmi_distribution_gather(exec, index, part, whole, why);
    if (status != TRM_OK && strstr(why->message, name) == NULL) {
        trmi_error_append(why, " while gathering %.60s", name);
    }
    return status;
}

/* Ends a collective with its status. The other ranks learn of an error: they would wait for what
 * this rank has not sent. */
static trm_status end_gather(const trm_exec *exec, trm_status status, const trm_error *why,
                             trm_error *err) {
    if (status != TRM_OK) {
        trmi_exec_abort(exec, why);
        if (err != NULL) {
            *err = *why;
        }
    }
    return status;
}

/* Contract in trireme/exec.h. A gradient has one of four forms: rows by id (sparse), never
 * written (a frozen parameter), a part of a cut parameter, or an array in the arena. */
trm_status trm_exec_gradient(const trm_exec *exec, int32_t index, float *data, trm_error *err) {
    TRMI_NEED(err, exec, data);
    const trm_program *p = exec->program;
    if (!has_variable(exec, index) || exec->variables[index].kind != TRM_VARIABLE_PARAMETER ||
        !p->training) {
        return TRMI_FAIL(
            err, TRM_INVALID,
            "variable %d has no gradient; the index of a parameter of a training graph "
            "expected (found %s)",
            index, has_variable(exec, index) ? exec->variables[index].name : "none");
    }
    TRMI_TRY(trmi_exec_check_gradients(exec, err));
    trm_error why;
    trm_status status = TRM_OK;
    float *part = NULL; /* of a cut parameter */
    for (int32_t i = 0; status == TRM_OK && i < p->params_count; i++) {
        const trmi_param *param = &p->params[i];
        if (param->param_buffer != exec->variable_buffers[index]) {
            continue;
        }
        const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
        if (param->sparse_rows != 0) {
            densify_gradient(exec, param, data);
        } else if (param->grad_buffer == 0 && param->factor_left == 0) {
            memset(data, 0, (size_t)trm_shape_count(&exec->variables[index].shape) * sizeof *data);
        } else if (leaf != NULL) {
            status = TRMI_NEW(&why, part, (size_t)trmi_box_count(&leaf->box),
                              "to gather a gradient of %s", leaf->name);
            if (status == TRM_OK) {
                write_own_gradient(exec, i, part);
            }
        } else {
            write_own_gradient(exec, i, data);
        }
    }
    if (status == TRM_OK) {
        status = gather_named((trm_exec *)(uintptr_t)exec, index, part, data, &why);
    }
    trmi_free(part);
    TRMI_TRY(end_gather(exec, status, &why, err));
    /* The arenas hold gradients times the loss scale. */
    double unscale = trmi_exec_unscale(exec);
    int64_t count = trm_shape_count(&exec->variables[index].shape);
    for (int64_t i = 0; unscale != 1 && i < count; i++) {
        data[i] = (float)(data[i] * unscale);
    }
    return TRM_OK;
}

/* Puts a variable together in exec->wholes, where this rank has a part of it or nothing, and
 * trm_exec_read finds it. A stage that has all of it takes part, because others have nothing. */
static trm_status gather_variable(trm_exec *exec, int32_t index, trm_error *why) {
    const trm_variable *v = &exec->variables[index];
    const trmi_partition_leaf *leaf = trmi_exec_cut_of(exec, index);
    size_t element = trm_dtype_bytes(v->dtype);
    size_t bytes = (size_t)trm_shape_count(&v->shape) * element;
    bool keeps = leaf != NULL || trmi_exec_is_elsewhere(exec, index);
    void *whole =
        keeps && exec->wholes[index] != NULL ? exec->wholes[index] : trmi_alloc(bytes + 1);
    void *part = leaf != NULL ? trmi_alloc((size_t)trmi_box_count(&leaf->box) * element + 1) : NULL;
    if (keeps) {
        exec->wholes[index] = whole;
    }
    trm_status status = whole == NULL || (leaf != NULL && part == NULL)
                            ? TRMI_NO_MEMORY(why, "to gather %s", v->name)
                            : TRM_OK;
    if (status == TRM_OK) {
        if (!trmi_exec_is_elsewhere(exec, index)) {
            read_part(exec, index, part != NULL ? part : whole);
        }
        status = gather_named(exec, index, part, whole, why);
    }
    trmi_free(part);
    if (!keeps) {
        trmi_free(whole);
    }
    return status;
}

/* Contract in trireme/exec.h. Without stages a variable that is not cut is whole on every rank. */
trm_status trm_exec_gather(trm_exec *exec, trm_error *err) {
    TRMI_NEED(err, exec);
    trm_error why;
    trm_status status = trmi_distribution_publish(exec, true, &why);
    for (int32_t i = 0; status == TRM_OK && i < exec->variables_count; i++) {
        if (exec->program->staged != NULL || trmi_exec_cut_of(exec, i) != NULL) {
            status = gather_variable(exec, i, &why);
        }
    }
    return end_gather(exec, status, &why, err);
}
