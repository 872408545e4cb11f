/* SPDX-License-Identifier: Apache-2.0 */
/* base/memory.h: allocation of memory: blocks, mappings, arenas, growable arrays, strings.
 *
 *   lifetime of a process  never freed      of an object  an arena, freed by the owner's destroy
 *   of a training step     planned pools    of a call     a scratch arena, freed on return
 *
 * Every allocation can fail; callers report TRM_NOMEM. The fault injection of the tests makes the
 * k-th allocation fail. */
#ifndef TRMI_BASE_MEMORY_H
#define TRMI_BASE_MEMORY_H

#include "trireme/base.h"

/* Allocates zeroed memory, 64-byte aligned; NULL: no memory. `bytes` 0 gives a valid pointer. For
 * blocks of 4 MB and more, huge pages are requested. Free with trmi_free (NULL is fine). */
void *trmi_alloc(size_t bytes);
void trmi_free(void *memory);

/* Maps zeroed memory for arenas of many megabytes, directly from the kernel, so that unused pages
 * cost nothing. 2 MB aligned, in huge pages, except for an end that would fill less than half of
 * one. NULL: no memory. Free with trmi_unmap and the same size. */
void *trmi_map(size_t bytes);
void trmi_unmap(void *memory, size_t bytes);
/* Requests small pages for a part of a mapping (from the begin of a page) that will be used
 * sparsely; call it before the part is used. */
void trmi_use_small_pages(void *memory, size_t bytes);
/* Bytes of a huge page of the kernel. */
enum { TRMI_HUGE_PAGE_BYTES = 2 << 20 };
/* Returns the whole pages within the range to the system, private or shared; they read as zeros and
 * cost nothing until they are used again. */
void trmi_release_pages(void *memory, size_t bytes);
/* Returns the bytes that a mapping of `bytes` takes once all of it is used (whole pages, huge ones
 * if the system has them), and how many of these are in huge pages. */
size_t trmi_map_resident(size_t bytes);
size_t trmi_map_huge(size_t bytes);
/* Returns the bytes that shared memory of `bytes` takes (comm/shm/shm_memory.c): whole pages, huge
 * ones if it fills one; 0: no such size is possible. */
size_t trmi_shared_resident(size_t bytes);

/* Makes the k-th next allocation of the calling thread fail (1 = the next); 0 = none. For fault
 * injection in tests. */
void trmi_alloc_fail_after(int64_t k);

/* Memory that is freed as a whole: allocations are taken from chunks in sequence and are zeroed.
 * One thread at a time. */
typedef struct trmi_arena_chunk trmi_arena_chunk;
/* A list of chunks that are freed together. */
typedef struct trmi_arena {
    trmi_arena_chunk *chunks;
    size_t chunk_bytes; /* 0 = 64 KB */
    /* an allocation has failed: TRMI_CHECK_MEMORY reports it once for many allocations */
    bool failed;
} trmi_arena;
void *trmi_arena_alloc(trmi_arena *arena, size_t bytes); /* NULL: no memory */
/* Copies or formats a string into the arena; NULL: no memory. */
char *trmi_arena_strdup(trmi_arena *arena, const char *text);
char *trmi_arena_printf(trmi_arena *arena, const char *format, ...) TRM_PRINTF(2, 3);
/* Frees all memory of an arena, which can be used again. */
void trmi_arena_free(trmi_arena *arena);

/* Makes a growable array hold at least `needed` items of `item_bytes` each; new items are zero.
 * Doubles the array, so that appending is cheap on average. False: no memory; the array is
 * unchanged. */
bool trmi_grow(void **items, int64_t *capacity, int64_t needed, size_t item_bytes);

/* Allocates and writes the error. Each macro is an expression of type trm_status: TRM_OK, or
 * TRM_NOMEM with the message "no memory PURPOSE (N bytes)", where the purpose is a format with
 * arguments:
 *
 *     TRMI_TRY(TRMI_NEW(err, rows, count, "for the rows of %s", name));
 *
 * Sets `pointer` to `count` zeroed items of its own type; NULL if there is no memory. */
#define TRMI_NEW(err, pointer, count, ...) TRMI_NEW_IN(err, NULL, pointer, count, __VA_ARGS__)
/* Allocates as TRMI_NEW does, in an arena (NULL: a separate block, freed by trmi_free). */
#define TRMI_NEW_IN(err, arena, pointer, count, ...)                                               \
    (((pointer) = trmi_new_items(TRMI_CALLER(err, arena), (size_t)(count), sizeof *(pointer),      \
                                 __VA_ARGS__)) != NULL                                             \
         ? TRM_OK                                                                                  \
         : TRM_NOMEM)
/* Makes room for `needed` items in a growable array (trmi_grow) and writes the error. */
#define TRMI_GROW(err, items, capacity, needed, ...)                                               \
    (trmi_grow((void **)&(items), &(capacity), (needed), sizeof *(items))                          \
         ? TRM_OK                                                                                  \
         : trmi_no_memory(TRMI_CALLER(err, NULL), (size_t)(needed) * sizeof *(items),              \
                          __VA_ARGS__))
/* Writes the error of an allocation that has failed, "no memory PURPOSE". An expression: TRM_NOMEM.
 */
#define TRMI_NO_MEMORY(err, ...) trmi_no_memory(TRMI_CALLER(err, NULL), 0, __VA_ARGS__)
/* Reports whether any allocation in an arena or a text (pointer `holder`) has failed. */
#define TRMI_CHECK_MEMORY(err, holder, ...)                                                        \
    ((holder)->failed ? trmi_no_memory(TRMI_CALLER(err, NULL), 0, __VA_ARGS__) : TRM_OK)

/* Arguments of the macros: source of the memory, and where an error is written. */
typedef struct trmi_caller {
    trmi_arena *arena; /* NULL: a separate block */
    trm_error *err;
    const char *file;
    int line;
} trmi_caller;
#define TRMI_CALLER(err, arena) ((trmi_caller){(arena), (err), __FILE__, __LINE__})
void *trmi_new_items(trmi_caller caller, size_t count, size_t item_bytes, const char *purpose, ...)
    TRM_PRINTF(4, 5);
/* Writes the error message; `bytes` 0: unknown. Returns TRM_NOMEM. */
trm_status trmi_no_memory(trmi_caller caller, size_t bytes, const char *purpose, ...)
    TRM_PRINTF(3, 4);

/* A string under construction. Starts as {0}; `failed` stays set once there is no memory. */
typedef struct trmi_text {
    char *data; /* terminated whenever length > 0; NULL at the start */
    size_t length;
    size_t capacity;
    bool failed;
} trmi_text;
/* Append formatted text, and bytes. */
void trmi_text_printf(trmi_text *text, const char *format, ...) TRM_PRINTF(2, 3);
void trmi_text_append(trmi_text *text, const char *data, size_t length);
/* Returns whether a string ends with another one. */
bool trmi_ends_with(const char *text, const char *end);
/* Appends a JSON string with quotes and escapes; invalid UTF-8 becomes U+FFFD
 * (trmi_utf8_invalid_length). */
void trmi_text_json_string(trmi_text *text, const char *value);
/* Appends a JSON number that reads back to the same double; NaN and infinities become null. */
void trmi_text_json_number(trmi_text *text, double value);
/* Frees a text; it can be used again. */
void trmi_text_free(trmi_text *text);

/* Writes an amount of memory for messages, "12.3 MB", in units of 1000. Returns text. */
enum { TRMI_BYTES_TEXT = 24 };
const char *trmi_bytes_text(double bytes, char text[TRMI_BYTES_TEXT]);

#endif
