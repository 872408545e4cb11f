/* SPDX-License-Identifier: Apache-2.0 */
/* base/memory.h: the one place that takes memory.
 *
 *   process  never freed      object  an arena, freed by its owner's destroy
 *   step     planned pools    call    a scratch arena, reset on return
 */
#ifndef TRMI_BASE_MEMORY_H
#define TRMI_BASE_MEMORY_H

#include "trireme/base.h"

/* Zeroed memory, 64-byte aligned, NULL when there is none. `bytes` 0 gives a valid pointer.
 * Blocks of 4 MB and more are advised to huge pages. Free with trmi_free (NULL is fine). */
void *trmi_alloc(size_t bytes);
void trmi_free(void *memory);

/* The same for arenas of many megabytes: straight from the kernel, so that pages cost nothing until
 * they are used; 2 MB aligned, in huge pages, but for an end that would fill less than half of one.
 * Free with trmi_unmap and the same size. */
void *trmi_map(size_t bytes);
void trmi_unmap(void *memory, size_t bytes);
/* For a piece of a mapping, from a page's beginning, of which parts will never be used: those cost
 * nothing then. Before it is used. */
void trmi_use_small_pages(void *memory, size_t bytes);
enum { TRMI_HUGE_PAGE_BYTES = 2 << 20 };
/* Gives the whole pages in it back, shared or private; they read as zeros, and cost nothing until
 * they are used again. */
void trmi_release_pages(void *memory, size_t bytes);
/* What a mapping of so many bytes takes once it is in use: whole pages, huge ones where the system
 * has them; how much of it is those. */
size_t trmi_map_resident(size_t bytes);
size_t trmi_map_huge(size_t bytes);
/* What memory that processes share takes (comm/shm/shm_memory.c): whole pages, huge ones if it
 * fills one; 0: there is no such. */
size_t trmi_shared_resident(size_t bytes);

/* Fails the k-th next allocation (1 = the next) of the calling thread; 0 switches it off.
 * For the fault sweeps of the tests. */
void trmi_alloc_fail_after(int64_t k);

/* Bump memory in chunks; everything goes at once. Zeroed on allocation.
 *   thread  one thread at a time */
typedef struct trmi_arena_chunk trmi_arena_chunk;
typedef struct trmi_arena {
    trmi_arena_chunk *chunks;
    size_t chunk_bytes; /* 0 = 64 KB */
    bool failed; /* an allocation found no memory: TRMI_CHECK_MEMORY reports it once for many */
} trmi_arena;
void *trmi_arena_alloc(trmi_arena *arena, size_t bytes); /* NULL when there is none */
char *trmi_arena_strdup(trmi_arena *arena, const char *text);
char *trmi_arena_printf(trmi_arena *arena, const char *format, ...) TRM_PRINTF(2, 3);
void trmi_arena_free(trmi_arena *arena);

/* Growable array: `items` of `item_bytes` each, at least `needed` of them. False when there is no
 * memory; the old array is then intact. Doubles, so appends are amortised. */
bool trmi_grow(void **items, int64_t *capacity, int64_t needed, size_t item_bytes);

/* Allocation that writes the error. Each is an expression of type trm_status: TRM_OK, or TRM_NOMEM
 * with the sentence "no memory PURPOSE (N bytes)", where the purpose is a format with its arguments:
 *
 *     TRMI_TRY(TRMI_NEW(err, rows, count, "for the rows of %s", name));
 *
 * Sets `pointer` to `count` zeroed items of its own type; NULL when there is no memory. */
#define TRMI_NEW(err, pointer, count, ...) TRMI_NEW_IN(err, NULL, pointer, count, __VA_ARGS__)
/* The same in an arena (NULL: a block of its own, freed by trmi_free). */
#define TRMI_NEW_IN(err, arena, pointer, count, ...)                                               \
    (((pointer) = trmi_new_items(TRMI_CALLER(err, arena), (size_t)(count), sizeof *(pointer),      \
                                 __VA_ARGS__)) != NULL                                             \
         ? TRM_OK                                                                                  \
         : TRM_NOMEM)
/* Makes room for `needed` items in a growable array (trmi_grow). */
#define TRMI_GROW(err, items, capacity, needed, ...)                                               \
    (trmi_grow((void **)&(items), &(capacity), (needed), sizeof *(items))                          \
         ? TRM_OK                                                                                  \
         : trmi_no_memory(TRMI_CALLER(err, NULL), (size_t)(needed) * sizeof *(items),              \
                          __VA_ARGS__))
/* Of a pointer to an arena or a text: has any allocation in it failed? */
#define TRMI_CHECK_MEMORY(err, holder, ...)                                                        \
    ((holder)->failed ? trmi_no_memory(TRMI_CALLER(err, NULL), 0, __VA_ARGS__) : TRM_OK)

/* Where the memory comes from, and where an error is written. */
typedef struct trmi_caller {
    trmi_arena *arena; /* NULL: a block of its own */
    trm_error *err;
    const char *file;
    int line;
} trmi_caller;
#define TRMI_CALLER(err, arena) ((trmi_caller){(arena), (err), __FILE__, __LINE__})
void *trmi_new_items(trmi_caller caller, size_t count, size_t item_bytes, const char *purpose, ...)
    TRM_PRINTF(4, 5);
/* Writes the sentence; `bytes` 0: unknown. Returns TRM_NOMEM. */
trm_status trmi_no_memory(trmi_caller caller, size_t bytes, const char *purpose, ...)
    TRM_PRINTF(3, 4);

/* A string under construction. Starts as {0}; on lack of memory `failed` sticks. */
typedef struct trmi_text {
    char *data; /* terminated whenever length > 0; NULL at the start */
    size_t length;
    size_t capacity;
    bool failed;
} trmi_text;
void trmi_text_printf(trmi_text *text, const char *format, ...) TRM_PRINTF(2, 3);
void trmi_text_append(trmi_text *text, const char *data, size_t length);
/* Appends a JSON string with quotes and escapes; invalid UTF-8 becomes U+FFFD. */
void trmi_text_json_string(trmi_text *text, const char *value);
/* Appends a JSON number that reads back to the same double; NaN and infinities become null. */
void trmi_text_json_number(trmi_text *text, double value);
void trmi_text_free(trmi_text *text);

/* "12.3 MB" in `text`, which is returned: amounts of memory in sentences and reports, in units of
 * 1000. */
enum { TRMI_BYTES_TEXT = 24 };
const char *trmi_bytes_text(double bytes, char text[TRMI_BYTES_TEXT]);

#endif
