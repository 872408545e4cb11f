/* SPDX-License-Identifier: Apache-2.0 */
/* plan/hardware/parallelism.h: a plan in the words of Megatron-LM, its price on a machine, and the
 * search over all such plans.
 *
 *      "tp=8,pp=4,micro-batch=1" --trmi_parallelism_parse--> trmi_parallelism --trmi_step_price--> trmi_step_cost
 *      transformer, machine, devices --trmi_parallelism_search--> the fastest plan, runners-up, bound
 *
 * Devices are numbered with tensor parallel innermost, then context, data, and stages outermost.
 * Experts are spread over neighbouring devices of a stage. */
#ifndef TRMI_PLAN_PARALLELISM_H
#define TRMI_PLAN_PARALLELISM_H

#include "plan/hardware/hardware.h"
#include "plan/hardware/transformer.h"
#include "plan/pipeline/stage_schedule.h"

/* The values that backward recomputes: none; norms and activations; whole blocks. */
typedef enum trmi_recompute_kind {
    TRMI_RECOMPUTE_NONE,
    TRMI_RECOMPUTE_SELECTIVE,
    TRMI_RECOMPUTE_FULL
} trmi_recompute_kind;

/* A plan. All numbers but `blocks` and `selective` are at least 1 in a complete plan. */
typedef struct trmi_parallelism {
    int64_t tensor, stages, context, experts, data;
    int64_t micro_batch; /* samples of one micro-batch */
    int64_t micro_count; /* micro-batches of a step in each pipeline */
    int64_t chunks;      /* runs of blocks of each stage; more than 1: interleaved */
    int32_t zero;        /* parts: 1 optimiser, 2 gradients too, 3 parameters too; 0 none */
    trmi_recompute_kind recompute;
    int64_t blocks; /* FULL: blocks of a stage that are recomputed */
    /* SELECTIVE, FULL: further blocks of a stage whose norms and activations are */
    int64_t selective;
    /* each stage recomputes by itself, in the least time with which it keeps `within` bytes;
     * recompute, blocks and selective are those of the first stage */
    bool by_stage;
    double within;
    bool gpipe;        /* all forward before backward */
    bool plain_tensor; /* messages of tensor parallel wait for products and products for them */
} trmi_parallelism;

/* The model to plan and its machine. */
typedef struct trmi_plan_problem {
    const trmi_transformer *model;
    const trmi_hardware *hardware;
    int64_t devices, batch; /* samples of a step */
    trmi_product_type type;
    double gradient_width; /* bytes of a gradient on its way: 4 or 2 */
    double memory;         /* bytes of a device that a plan may use */
    int32_t zero;          /* most of trmi_parallelism.zero */
} trmi_plan_problem;

/* Parses a plan,
 * "tp=8,pp=4,cp=1,ep=1,vp=2,micro-batch=1,zero=1,
 * recompute=none|selective|selective:N|full|full:N|full:N+selective|full:N+selective:M|by-stage,
 * schedule=1f1b|gpipe|interleaved,overlap-tp=on|off". Words that are missing have 1, none, or what
 * follows from the others.
 *   errors  INVALID: a word or number, what was found and expected */
trm_status trmi_parallelism_parse(const char *text, trmi_parallelism *out, trm_error *err);
/* Sets the members that follow from the problem: data, micro_count, recompute.
 *   errors  INVALID: the plan cannot be, in one sentence */
trm_status trmi_parallelism_complete(const trmi_plan_problem *problem, trmi_parallelism *plan,
                                     trm_error *err);
/* Bytes of a plan in words, at most. */
enum { TRMI_PARALLELISM_TEXT = 320 };
/* Writes the plan in the words of trmi_parallelism_parse. */
void trmi_parallelism_words(const trmi_parallelism *plan, char *text, size_t size);
/* Writes the plan for people: "TP 8, PP 4, 1F1B interleaved 2, ...". */
void trmi_parallelism_describe(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                               char *text, size_t size);

/* ---- price ----------------------------------------------------------------------------------- */

/* Where the seconds of a step go, on the stage that ends last. Exposed: what operators do not
 * hide. */
typedef enum trmi_step_part {
    TRMI_PART_PRODUCTS,
    TRMI_PART_ATTENTION,
    TRMI_PART_ELEMENTWISE,
    TRMI_PART_RECOMPUTE,
    TRMI_PART_TENSOR,  /* exposed messages of tensor parallel */
    TRMI_PART_CONTEXT, /* ... of context parallel */
    TRMI_PART_EXPERT,  /* ... of experts */
    TRMI_PART_STAGES,  /* ... between stages */
    TRMI_PART_BUBBLE,  /* waiting for other stages */
    TRMI_PART_DATA,    /* exposed messages of gradients and parameters */
    TRMI_PART_UPDATE,
    TRMI_PART_OTHER,
    TRMI_PARTS
} trmi_step_part;
/* Kinds of memory of the busiest device. */
typedef enum trmi_memory_part {
    TRMI_MEMORY_PARAMETERS,
    TRMI_MEMORY_GRADIENTS,
    TRMI_MEMORY_OPTIMIZER, /* masters and moments in float32 */
    TRMI_MEMORY_KEPT,      /* values that backward reads, of all micro-batches in flight */
    TRMI_MEMORY_WORK,      /* of the block that runs, and of the loss */
    TRMI_MEMORY_PARTS
} trmi_memory_part;
/* The price of a plan. */
typedef struct trmi_step_cost {
    double seconds, part[TRMI_PARTS];
    double bytes, memory[TRMI_MEMORY_PARTS];
    double forward, backward; /* seconds of a micro-batch on the stage that ends last */
    double message;           /* seconds of a message to the next stage */
} trmi_step_cost;

/* Returns the name of a part, for reports: "products". Static. */
const char *trmi_step_part_name(trmi_step_part part);
const char *trmi_memory_part_name(trmi_memory_part part);

/* Prices a complete plan. */
void trmi_step_price(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                     trmi_step_cost *out);
/* Returns the model FLOP utilisation of a step: model FLOPs over the peak of all devices. */
double trmi_plan_utilisation(const trmi_plan_problem *problem, double seconds);
/* A step as its schedule was played, action by action. */
typedef struct trmi_played_step {
    trmi_pipeline pipeline;
    double *starts, *ends; /* seconds at which actions compute, [stages][pipeline.count]; owned */
    double *after;         /* seconds of gradients and update after the actions, [stages] */
    double seconds;        /* of the step, with gradients and update */
} trmi_played_step;

/* Plays the schedule of a step.
 *   errors  INVALID (a schedule that cannot be), NOMEM
 *   owns    caller: trmi_played_step_free, also after an error */
trm_status trmi_step_play(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                          const trmi_step_cost *cost, trmi_played_step *out, trm_error *err);
void trmi_played_step_free(trmi_played_step *step);

/* ---- search ---------------------------------------------------------------------------------- */

/* The choices of a plan, by kind. */
typedef enum trmi_plan_kind {
    TRMI_KIND_TENSOR,
    TRMI_KIND_STAGES,
    TRMI_KIND_CONTEXT,
    TRMI_KIND_EXPERTS,
    TRMI_KIND_MICRO_BATCH,
    TRMI_KIND_CHUNKS,
    TRMI_KIND_ZERO,
    TRMI_KIND_RECOMPUTE,
    TRMI_KINDS
} trmi_plan_kind;
/* A plan with its price. seconds INFINITY: none. */
typedef struct trmi_priced_plan {
    trmi_parallelism plan;
    trmi_step_cost cost;
} trmi_priced_plan;
/* Seconds that no plan is below. */
typedef struct trmi_block_bounds {
    double all;       /* also none whose blocks differ in everything */
    double cut_alike; /* none whose blocks are all cut alike, stored and recomputed as they want */
    bool stopped;     /* `all`: at the limit of work; a larger bound may hold */
} trmi_block_bounds;
/* The result of a search. */
typedef struct trmi_parallelism_found {
    bool fits;                  /* false: `best` is the plan of least memory */
    trmi_priced_plan best;      /* the fastest plan that fits */
    trmi_priced_plan unlimited; /* the fastest plan if memory had no limit */
    trmi_priced_plan least;     /* the plan of least memory */
    /* the fastest that recomputes blocks in one way only, as many in all stages */
    trmi_priced_plan alike;
    trmi_priced_plan runners[TRMI_KINDS]; /* the fastest that differs in this choice */
    double priced, excluded;              /* plans; excluded: do not fit */
    trmi_block_bounds bounds;             /* INFINITY: no plan whose blocks differ fits, either */
    double seconds;                       /* wall-clock time of the search */
} trmi_parallelism_found;

/* Returns the name of a kind: "tensor parallel". Static. */
const char *trmi_plan_kind_name(trmi_plan_kind kind);
/* Prices every plan of the problem whose blocks are cut and stored alike, and keeps the best ones;
 * the fastest is exact. Bounds plans whose blocks differ.
 *   errors  INVALID: no plan is possible (batch, heads, devices), NOMEM */
trm_status trmi_parallelism_search(const trmi_plan_problem *problem, trmi_parallelism_found *out,
                                   trm_error *err);
/* Finds the fastest plan within each of `count` limits of memory (bytes, falling). out: [count];
 * cost.seconds INFINITY: no plan fits.
 *   errors  those of trmi_parallelism_search */
trm_status trmi_parallelism_curve(const trmi_plan_problem *problem, const double *limits, int count,
                                  trmi_priced_plan *out, trm_error *err);
/* The part of a price that is the same for all plans with these sizes (step_price.c). */
typedef struct trmi_block_price {
    double products[2], attention[2], elementwise[2], tensor[2], context[2], expert[2];
    double kept, kept_selective, kept_full, work; /* bytes of a micro-batch */
    double selective, full;                       /* seconds of recomputing */
    double parameters, experts;                   /* of a device; without, and only, experts */
    double gathered;                              /* parameters that ZeRO-3 gathers */
} trmi_block_price;
/* Prices one block (its mean, where blocks differ) and the output layer with its loss. */
void trmi_block_price_of(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                         trmi_block_price *block, trmi_block_price *head);
/* The blocks of a stage that are recomputed, whole or their norms and activations; the seconds that
 * this takes for a micro-batch. */
typedef struct trmi_stage_again {
    double full, selective, seconds;
} trmi_stage_again;
/* Returns what a stage recomputes. */
trmi_stage_again trmi_stage_recompute(const trmi_plan_problem *problem,
                                      const trmi_parallelism *plan, const trmi_block_price block[2],
                                      int64_t stage);
/* Lets each stage recompute by itself, in the least time with which it keeps `within` bytes. */
void trmi_recompute_by_stage(const trmi_plan_problem *problem, const trmi_block_price block[2],
                             double within, trmi_parallelism *plan);
/* Sets the seconds of a micro-batch on a stage, forward [0] and backward [1] with recompute. */
void trmi_stage_seconds(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                        const trmi_block_price block[2], int64_t stage, double out[2]);
/* Computes the memory of one stage of a complete plan, without what the machine reserves. */
void trmi_stage_memory(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                       const trmi_block_price block[2], int64_t stage,
                       double memory[TRMI_MEMORY_PARTS]);
/* Returns the stage after `stage` whose memory may be the most of all: the first has most
 * micro-batches in flight, the second may have a block more, the last has the loss. */
static inline int64_t trmi_next_full_stage(int64_t stages, int64_t stage) {
    return stage == 1 && stages > 2 ? stages - 1 : stage + 1;
}
/* Prices a complete plan of known blocks. */
void trmi_step_price_of(const trmi_plan_problem *problem, const trmi_parallelism *plan,
                        const trmi_block_price block[2], trmi_step_cost *out);
/* Returns the micro-batches whose activations a stage keeps at the same time: all (GPipe), or as
 * many as the schedule has between forward and backward of one. */
double trmi_stage_flight(const trmi_parallelism *plan, int64_t stage);
/* The seconds of messages of gradients and parameters, in forward [0] and in backward [1]: once a
 * step, and for each micro-batch. */
typedef struct trmi_parameter_messages {
    double once[2], each[2];
} trmi_parameter_messages;
/* Adds the messages of parameters that a group has in common. starts: how often their start-up time
 * counts. */
void trmi_add_messages(const trmi_plan_problem *problem, int32_t zero, trmi_device_group group,
                       double parameters, double starts, trmi_parameter_messages *out);
/* Returns how many blocks a stage has, in all its chunks. */
int64_t trmi_stage_count(const trmi_transformer *model, const trmi_parallelism *plan,
                         int64_t stage);
/* Returns how many blocks virtual stage `run` has, as Megatron-LM counts them: with chunks the
 * embedding and the loss count as blocks where blocks do not divide, without them the last stage
 * has fewer. */
int64_t trmi_run_blocks(const trmi_transformer *model, const trmi_parallelism *plan, int64_t run);
/* One way to cut blocks, with their price. */
typedef struct trmi_block_cut {
    int64_t tensor, context, experts, micro_batch;
    trmi_block_price price[2]; /* of a block; of the output layer */
} trmi_block_cut;
/* Bounds the seconds of all plans in which each block of each stage is of one of these kinds, has a
 * ZeRO stage, and recomputes nothing, norms and activations, or all, by itself (block_bound.c).
 * best: seconds of the best plan that is known, or INFINITY; the bounds are at most that, and
 * INFINITY if no plan fits. The work is limited.
 *   errors  NOMEM */
trm_status trmi_block_bound(const trmi_plan_problem *problem, const trmi_block_cut *kinds,
                            int64_t count, double best, trmi_block_bounds *out, trm_error *err);
/* Returns whether the stages can have these chunks, and sets the most blocks of a stage. */
bool trmi_stage_blocks(const trmi_transformer *model, const trmi_parallelism *plan, int64_t *most);

#endif
