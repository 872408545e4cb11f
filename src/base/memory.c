/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of memory (base/memory.h), in this order:
 *
 *   blocks     trmi_alloc: zeroed, aligned to a cache line; large ones to huge pages
 *   mappings   trmi_map: whole pages of the kernel; an unmapped one may be kept for the next
 *              request of its size (base/kept_mappings.h)
 *   arenas     a list of chunks that are freed together:
 *              chunks -> [header|used.....|free] -> [header|used|lost] -> NULL
 *   arrays     trmi_grow: capacity doubles, new elements are zero
 *   messages   one form for memory that is missing (TRMI_NO_MEMORY, TRMI_NEW)
 *   texts      trmi_text: grows at its end; a failure is kept and checked once, at the end
 *
 * Invariants: memory is zero when it is handed out, so that no result depends on what was there
 * before. Every path to the system passes allocation_refused(), so that tests can make any single
 * allocation fail. One thread at a time uses an arena, an array or a text. */
#include "base/memory.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/format/utf8.h"
#include "base/kept_mappings.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Alignment of blocks (a cache line), bytes from which a block is aligned to huge pages, sizes of
 * pages. */
enum {
    ALIGNMENT = 64,
    HUGE_BLOCK_BYTES = 4 << 20,
    HUGE_PAGE_BYTES = TRMI_HUGE_PAGE_BYTES,
    PAGE_BYTES = 4096
};

/* Allocations until one fails; 0 = none. */
static _Thread_local int64_t fail_after;

void trmi_alloc_fail_after(int64_t k) { fail_after = k; }

/* Counts an allocation; true: this one must fail. */
static bool allocation_refused(void) { return fail_after > 0 && --fail_after == 0; }

/* Contract in memory.h. The memory is zeroed, so that no result depends on what was there
 * before. */
void *trmi_alloc(size_t bytes) {
    if (allocation_refused() || bytes > SIZE_MAX - HUGE_PAGE_BYTES) {
        return NULL;
    }
    /* large blocks are aligned to huge pages, so that the kernel can use them */
    bool huge = bytes >= HUGE_BLOCK_BYTES;
    size_t alignment = huge ? HUGE_PAGE_BYTES : ALIGNMENT;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    rounded = rounded == 0 ? ALIGNMENT : rounded;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, rounded) != 0) {
        return NULL;
    }
    if (huge) {
        madvise(memory, rounded, MADV_HUGEPAGE);
    }
    memset(memory, 0, rounded);
    return memory;
}

void trmi_free(void *memory) { free(memory); }
void trm_free(void *memory) { free(memory); }

/* Returns how much of a mapping is huge pages: all whole ones, and one more if more than half of it
 * would be used. */
static size_t huge_part(size_t bytes) {
    size_t rest = bytes % HUGE_PAGE_BYTES;
    return bytes - rest + (rest > HUGE_PAGE_BYTES / 2 ? HUGE_PAGE_BYTES : 0);
}

/* Returns the bytes of the mapping for a request. */
static size_t mapped_bytes(size_t bytes) {
    size_t huge = huge_part(bytes);
    return bytes == 0      ? PAGE_BYTES
           : bytes <= huge ? huge
                           : (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* The kernel aligns a mapping to small pages only: a larger one is taken, and the parts before and
 * after the aligned range are unmapped. */
void *trmi_map(size_t bytes) {
    if (allocation_refused() || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    size_t wanted = mapped_bytes(bytes), mapped = wanted + HUGE_PAGE_BYTES;
    char *again = trmi_kept_take(wanted);
    if (again != NULL) {
        if (huge_part(bytes) > 0) { /* parts of it may have had small pages */
            madvise(again, huge_part(bytes), MADV_HUGEPAGE);
        }
        trmi_kept_clear(again, wanted);
        return again;
    }
    char *origin = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (origin == MAP_FAILED) {
        return NULL;
    }
    /* cut the mapping to an aligned range */
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)origin % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (before > 0) {
        munmap(origin, before);
    }
    munmap(origin + before + wanted, HUGE_PAGE_BYTES - before);
    if (huge_part(bytes) > 0) {
        madvise(origin + before, huge_part(bytes), MADV_HUGEPAGE);
    }
    return origin + before;
}

void trmi_unmap(void *memory, size_t bytes) {
    if (memory != NULL && !trmi_kept_add(memory, mapped_bytes(bytes))) {
        munmap(memory, mapped_bytes(bytes));
    }
}

void trmi_use_small_pages(void *memory, size_t bytes) { madvise(memory, bytes, MADV_NOHUGEPAGE); }

void trmi_release_pages(void *memory, size_t bytes) {
    uintptr_t begin = ((uintptr_t)memory + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uintptr_t end = ((uintptr_t)memory + bytes) / PAGE_BYTES * PAGE_BYTES;
    if (end > begin && madvise((void *)begin, end - begin, MADV_REMOVE) != 0) {
        /* private memory has no file from which pages could be removed */
        madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
}

/* Returns whether the kernel has huge pages for private memory. Its setting is read once: callers
 * ask for each range of a program, and it changes only when an administrator changes it. */
static bool has_huge_pages(void) {
    enum { UNKNOWN, NO, YES };
    static atomic_int known = UNKNOWN;
    if (atomic_load(&known) == UNKNOWN) {
        char text[64] = "";
        FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
        bool huge = file != NULL && fgets(text, sizeof text, file) != NULL &&
                    strstr(text, "[never]") == NULL;
        if (file != NULL) {
            fclose(file);
        }
        atomic_store(&known, huge ? YES : NO);
    }
    return atomic_load(&known) == YES;
}

size_t trmi_map_huge(size_t bytes) { return has_huge_pages() ? huge_part(bytes) : 0; }

size_t trmi_map_resident(size_t bytes) {
    size_t huge = trmi_map_huge(bytes);
    return bytes <= huge ? huge : (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

size_t trmi_shared_resident(size_t bytes) {
    size_t small = bytes == 0 ? PAGE_BYTES : (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    return bytes > SIZE_MAX / 2 ? 0 : bytes < HUGE_PAGE_BYTES ? small : mapped_bytes(bytes);
}

/* A chunk of an arena; its memory follows the struct. */
struct trmi_arena_chunk {
    trmi_arena_chunk *next;
    size_t used;
    size_t capacity;
};

/* The header of a chunk takes one alignment unit, so that the memory after it is aligned. */
_Static_assert(sizeof(trmi_arena_chunk) <= ALIGNMENT, "the header fits its slot");

/* Alignment of what an arena hands out, and bytes of a chunk unless more are asked for. */
enum { ARENA_ALIGNMENT = 16, ARENA_CHUNK_BYTES = 64 << 10 };

/* Contract in memory.h. What is left of a full chunk is given up; arenas hold small things. */
void *trmi_arena_alloc(trmi_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 2) {
        arena->failed = true;
        return NULL;
    }
    bytes = (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
    trmi_arena_chunk *chunk = arena->chunks;
    /* Take a new chunk; a larger allocation gets one of its own size. */
    if (chunk == NULL || chunk->capacity - chunk->used < bytes) {
        size_t capacity = arena->chunk_bytes ? arena->chunk_bytes : ARENA_CHUNK_BYTES;
        capacity = bytes > capacity ? bytes : capacity;
        chunk = trmi_alloc(ALIGNMENT + capacity);
        if (chunk == NULL) {
            arena->failed = true;
            return NULL;
        }
        chunk->capacity = capacity;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *memory = (char *)chunk + ALIGNMENT + chunk->used;
    chunk->used += bytes;
    return memory;
}

char *trmi_arena_strdup(trmi_arena *arena, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = trmi_arena_alloc(arena, bytes);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

char *trmi_arena_printf(trmi_arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    /* measure first, then format */
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : trmi_arena_alloc(arena, (size_t)length + 1);
    if (text != NULL) {
        va_start(args, format);
        vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
    }
    return text;
}

void trmi_arena_free(trmi_arena *arena) {
    trmi_arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        trmi_arena_chunk *next = chunk->next;
        trmi_free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
    arena->failed = false;
}

/* Contract in memory.h. Doubling makes the cost of n additions proportional to n. */
bool trmi_grow(void **items, int64_t *capacity, int64_t needed, size_t item_bytes) {
    if (needed <= *capacity) {
        return true;
    }
    /* Take at least twice the old capacity. */
    int64_t grown = trmi_max_i64(needed, trmi_max_i64(16, *capacity * 2));
    size_t bytes;
    if (!trmi_mul_size((size_t)grown, item_bytes, &bytes) || allocation_refused()) {
        return false;
    }
    char *moved = realloc(*items, bytes);
    if (moved == NULL) {
        return false;
    }
    memset(moved + (size_t)*capacity * item_bytes, 0, bytes - (size_t)*capacity * item_bytes);
    *items = moved;
    *capacity = grown;
    return true;
}

/* Writes the error "no memory PURPOSE (N bytes)". */
static void write_no_memory(trmi_caller caller, size_t bytes, const char *purpose, va_list args) {
    char what[160], size[40] = "";
    vsnprintf(what, sizeof what, purpose, args);
    if (bytes > 0) {
        snprintf(size, sizeof size, " (%zu bytes)", bytes);
    }
    trmi_error_set(caller.err, TRM_NOMEM, caller.file, caller.line, "no memory %s%s", what, size);
}

trm_status trmi_no_memory(trmi_caller caller, size_t bytes, const char *purpose, ...) {
    va_list args;
    va_start(args, purpose);
    write_no_memory(caller, bytes, purpose, args);
    va_end(args);
    return TRM_NOMEM;
}

/* Contract in memory.h. The product is checked, since counts come from files and users; the message
 * is written here once for all callers. */
void *trmi_new_items(trmi_caller caller, size_t count, size_t item_bytes, const char *purpose,
                     ...) {
    size_t bytes = SIZE_MAX;
    void *memory = NULL;
    if (trmi_mul_size(count, item_bytes, &bytes)) {
        memory = caller.arena != NULL ? trmi_arena_alloc(caller.arena, bytes) : trmi_alloc(bytes);
    }
    if (memory == NULL) {
        va_list args;
        va_start(args, purpose);
        write_no_memory(caller, bytes, purpose, args);
        va_end(args);
    }
    return memory;
}

/* Makes room for `extra` bytes and a terminator. False: no memory. */
static bool text_reserve(trmi_text *text, size_t extra) {
    if (text->failed || extra > SIZE_MAX / 4 || text->length > SIZE_MAX / 4) {
        text->failed = true;
        return false;
    }
    size_t needed = text->length + extra + 1;
    if (needed > text->capacity) {
        /* at least 256 bytes, else twice what is needed */
        size_t grown = needed < 256 ? 256 : needed * 2;
        char *moved = allocation_refused() ? NULL : realloc(text->data, grown);
        if (moved == NULL) {
            text->failed = true;
            return false;
        }
        text->data = moved;
        text->capacity = grown;
    }
    return true;
}

void trmi_text_append(trmi_text *text, const char *data, size_t length) {
    if (!text_reserve(text, length)) {
        return;
    }
    memcpy(text->data + text->length, data, length);
    text->length += length;
    text->data[text->length] = '\0';
}

bool trmi_ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

void trmi_text_printf(trmi_text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !text_reserve(text, (size_t)length)) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

/* Contract in memory.h. Bytes that are not UTF-8 become U+FFFD: JSON must be UTF-8, and a name from
 * a file may be anything. */
void trmi_text_json_string(trmi_text *text, const char *value) {
    trmi_text_append(text, "\"", 1);
    for (const char *s = value, *end = value + strlen(value); s < end;) {
        /* A character is invalid bytes, a quote or backslash, a control character, or another
         * one. */
        int length = trmi_utf8_length(s, (size_t)(end - s));
        if (length == 0) {
            trmi_text_append(text, "\xEF\xBF\xBD", 3);
            s += trmi_utf8_invalid_length(s, (size_t)(end - s));
        } else if (*s == '"' || *s == '\\') {
            trmi_text_printf(text, "\\%c", *s++);
        } else if ((unsigned char)*s < 0x20) {
            trmi_text_printf(text, "\\u%04x", *s++);
        } else {
            trmi_text_append(text, s, (size_t)length);
            s += length;
        }
    }
    trmi_text_append(text, "\"", 1);
}

/* Contract in memory.h. JSON has no NaN and no infinity; other numbers are written with as few
 * digits as give the same double again. */
void trmi_text_json_number(trmi_text *text, double value) {
    if (!isfinite(value)) {
        trmi_text_append(text, "null", 4);
        return;
    }
    char digits[40];
    /* Find the shortest number of digits that reads back to the same double. */
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    trmi_text_append(text, digits, strlen(digits));
}

void trmi_text_free(trmi_text *text) {
    free(text->data);
    *text = (trmi_text){0};
}

/* Contract in memory.h. Limits such as 999.5 keep a rounded number below 1000. */
const char *trmi_bytes_text(double bytes, char text[TRMI_BYTES_TEXT]) {
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int u = 0;
    while (bytes >= 999.5 && u < 5) {
        bytes /= 1000;
        u++;
    }
    snprintf(text, TRMI_BYTES_TEXT, "%.*f %s",
             u == 0 || bytes >= 99.95 ? 0
             : bytes < 9.995          ? 2
                                      : 1,
             bytes, units[u]);
    return text;
}
