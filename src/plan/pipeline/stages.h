/* SPDX-License-Identifier: Apache-2.0 */
/* plan/pipeline/stages.h: the operators of a training graph, cut into virtual stages
 * (plan/pipeline/stage_schedule.h), and the graph of one rank.
 *
 *      training graph --stage_cut--> virtual stage of each forward operator, by name
 *           |  fusion, partition over the other axes, recompute: as without stages
 *      graph of a rank of all stages --stage_graph--> its operators, with SEND and RECEIVE
 *           |  lower_steps, stage_lower
 *      program: forward of chunk 0, 1, ..., backward of chunk ..., 1, 0;  trm_program.staged */
#ifndef TRMI_PLAN_PIPELINE_STAGES_H
#define TRMI_PLAN_PIPELINE_STAGES_H

#include "plan/passes/pass.h"
#include "plan/pipeline/stage_schedule.h"

/* The stages to plan: trmi_plan_options.stages. */
typedef struct trmi_stage_options {
    int32_t stages, chunks, micros;
    trmi_pipeline_order order;
    int32_t stage;      /* of this rank */
    const char *begins; /* trm_pipeline_options.begins; NULL = runs of equal time */
} trmi_stage_options;

/* Virtual stage of each forward operator of the training graph, in its order. */
typedef struct trmi_stage_map {
    const char **names;
    int32_t *stages;
    int32_t count;
} trmi_stage_map;

/* Steps of one chunk of this rank. Values that live from its forward to its backward lie in
 * KEPT, one copy for each micro-batch in flight. */
typedef struct trmi_stage_chunk {
    int32_t steps[2][2];                    /* [backward]: begin and end */
    int64_t gradients_begin, gradients_end; /* bytes of GRAD that its backward completes */
    int64_t kept_bytes; /* of one copy; the first begins at the chunk's offsets */
    int32_t copies;
} trmi_stage_chunk;

/* A parameter or state of the whole graph. */
typedef struct trmi_stage_leaf {
    const char *name;
    trm_dtype dtype;
    trm_shape shape; /* of the whole */
    bool state;
    bool trained;     /* it has a gradient */
    bool frozen;      /* no optimiser updates it */
    int32_t owner;    /* the stage that updates it */
    uint64_t holders; /* bit by stage: those that have it, the owner among them */
} trmi_stage_leaf;

/* The value that is sent along an edge. */
typedef struct trmi_stage_message {
    const char *name; /* of the value */
    trm_dtype dtype;
    int64_t count;         /* elements */
    int32_t kept, waiting; /* copies at the sender and the receiver (trmi_pipeline_play) */
} trmi_stage_message;

/* The data of a program that is one stage of a pipeline, beside its steps; in the program's
 * arena. */
typedef struct trmi_staged {
    trmi_pipeline pipeline; /* owned: trmi_staged_free */
    int32_t stage;          /* of this rank */
    trmi_stage_chunk *chunks;
    trmi_pipeline_edge *edges; /* of all stages, the same on all ranks */
    trmi_stage_message *messages;
    int32_t edges_count;
    trmi_stage_leaf *leaves; /* the same on all ranks */
    int32_t leaves_count;
    /* operators of the program's graph: [chunk][backward][begin, end) */
    int32_t (*operators)[2][2];
} trmi_staged;

/* stage_cut.c: cuts the forward operators of a training graph.
 *   errors  INVALID (fewer operators than virtual stages, a name that is no forward operator, names
 *           not in order), NOMEM
 *   owns    out: in the arena */
trm_status trmi_stage_cut(const trm_graph *training, const trmi_stage_options *options,
                          trmi_arena *arena, trmi_stage_map *out, trm_error *err);
/* stage_graph.c: replaces the graph of a rank of all stages by that of this stage, and its roots;
 * sets program->staged.
 *   errors  INVALID (what a pipeline cannot do: a norm over all samples), NOMEM */
trm_status trmi_stage_graph(trm_program *program, const trmi_plan_options *options,
                            const trmi_stage_map *map, trmi_roots *roots, trm_error *err);
/* stage_lower.c: finds the chunks' steps, and moves what they keep to KEPT. After lifetimes are
 * known, before activations are placed.
 *   errors  INTERNAL (a value of one chunk that another reads) */
trm_status trmi_stage_lower(trm_program *program, trm_error *err);
/* Returns the bytes of a message. */
static inline int64_t trmi_stage_message_bytes(const trmi_stage_message *message) {
    return message->count * (int64_t)trm_dtype_bytes(message->dtype);
}
/* Returns how many messages of an edge this stage has room for (trmi_pipeline_slots). */
int32_t trmi_stage_slots(const trmi_staged *staged, int32_t edge);
/* Returns the bytes that a program of a stage takes beside its arenas: messages, and the inputs of
 * its micro-batches. 0: the program has no stages. */
int64_t trmi_staged_bytes(const trm_program *program);
void trmi_staged_free(trmi_staged *staged);

#endif
