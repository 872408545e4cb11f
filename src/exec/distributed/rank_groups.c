/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the part of each leaf that a rank has, and the ranks with the same parts of all parameters
 * (MindSpore's group_ckpt_save_file): those that differ only in mesh axes that cut no parameter.
 *
 *      mesh 2x4, the classes of fc.weight over axis 1:     trireme-groups 1
 *                                                          mesh 2x4
 *                                                          0 4
 *                                                          1 5   ... */
#include "exec/exec.h"
#include "exec/distributed/ranks_state.h"
#include "exec/distributed/split.h"

#include "base/error.h"
#include "base/os.h"

#include <string.h>

/* Returns the axes that cut no parameter. */
static uint32_t common_axes(const trm_program *program, const trmi_mesh *mesh) {
    uint32_t mask = (1u << mesh->axes) - 1;
    for (int32_t i = 0; i < program->params_count; i++) {
        const char *name = program->buffers[program->params[i].param_buffer].name;
        const trmi_partition_leaf *leaf = trmi_program_leaf(program, name);
        for (int32_t a = 0; leaf != NULL && a < mesh->axes; a++) {
            mask &= leaf->spread.at[a] >= TRMI_SPLIT ? ~(1u << a) : ~0u;
        }
    }
    return mask;
}

/* Appends the group whose first rank is `first`, if there is one. */
static void put_group(trmi_text *text, const trmi_mesh *mesh, uint32_t common, int32_t first) {
    int32_t at[TRMI_MESH_AXES], other[TRMI_MESH_AXES];
    trmi_mesh_coordinates(mesh, first, at);
    for (int32_t a = 0; a < mesh->axes; a++) {
        if ((common >> a & 1) != 0 && at[a] != 0) {
            return;
        }
    }
    for (int32_t r = first; r < trmi_mesh_ranks(mesh); r++) {
        bool same = true;
        trmi_mesh_coordinates(mesh, r, other);
        for (int32_t a = 0; a < mesh->axes; a++) {
            same = same && ((common >> a & 1) != 0 || at[a] == other[a]);
        }
        if (same) {
            trmi_text_printf(text, r == first ? "%d" : " %d", r);
        }
    }
    trmi_text_printf(text, "\n");
}

/* Contract in split.h. Rank 0 writes the file; it follows from the plan, which all ranks have. */
trm_status trmi_split_save_groups(const trm_exec *exec, trm_error *err) {
    const trmi_parallel *p = trmi_parallel_of(exec);
    if (p == NULL || p->split == NULL || p->options.split.save_groups == NULL || p->rank != 0 ||
        !exec->program->training) {
        return TRM_OK;
    }
    const trmi_mesh *mesh = &p->split->plan->mesh;
    trmi_text text = {0};
    char name[64];
    trmi_text_printf(&text, "trireme-groups 1\nmesh %s\n", trmi_mesh_text(mesh, name, sizeof name));
    uint32_t common = common_axes(exec->program, mesh);
    for (int32_t r = 0; r < trmi_mesh_ranks(mesh); r++) {
        put_group(&text, mesh, common, r);
    }
    trm_status status =
        text.failed
            ? TRMI_NO_MEMORY(err, "to write %s", p->options.split.save_groups)
            : trmi_os_replace_file(NULL, p->options.split.save_groups, text.data, text.length, err);
    trmi_text_free(&text);
    return status;
}
