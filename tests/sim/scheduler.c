/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of the simulator (sim.h): coroutines, the virtual clock, events, and threads as the
 * C library has them. */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK_BYTES = 256 << 10, CALL_COST = 1500, SLICE = 300000 };

/* A call at a moment of the virtual clock. */
typedef struct event {
    int64_t time;    /* nanoseconds of the virtual clock */
    uint64_t number; /* events of one time run in the order of their numbers */
    void (*run)(void *a, uint64_t b);
    void *a; /* arguments of run; borrowed */
    uint64_t b;
} event;

sim_world sim;

static jmp_buf scheduler;
static uint64_t random_state[DRAWS];
static event *heap;
static size_t heap_count, heap_room;
static sim_task **ready;
static size_t ready_count, ready_room;
static void *free_stacks[256];
static int free_stack_count, task_count, pid_count;
static int64_t slice_began;

/* ---- random numbers, trace ------------------------------------------------------------------- */

uint64_t sim_random(sim_draw stream, uint64_t below) {
    uint64_t z = random_state[stream] += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return below == 0 ? z : z % below;
}

double sim_unit(sim_draw stream) { return (double)(sim_random(stream, 0) >> 11) * 0x1p-53; }

static void hash_bytes(const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++) {
        sim.hash = (sim.hash ^ p[i]) * 0x100000001B3u; /* FNV-1a */
    }
}

void sim_trace(const sim_process *process, const char *format, ...) {
    if (sim.tracing == TRACE_NONE) {
        return;
    }
    char line[512];
    int head = snprintf(line, sizeof line, "%12.6f %-10s ", (double)sim.now * 1e-9,
                        process == NULL ? "-" : process->name);
    va_list args;
    va_start(args, format);
    vsnprintf(line + head, sizeof line - (size_t)head, format, args);
    va_end(args);
    hash_bytes(line, strlen(line));
    if (sim.tracing == TRACE_PRINTED) {
        printf("%s\n", line);
    }
}

void sim_fail(const char *format, ...) {
    if (sim.failure[0] == '\0') {
        va_list args;
        va_start(args, format);
        vsnprintf(sim.failure, sizeof sim.failure, format, args);
        va_end(args);
        sim_trace(NULL, "FAILED: %s", sim.failure);
    }
    sim.over = true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool is_earlier(const event *a, const event *b) {
    return a->time != b->time ? a->time < b->time : a->number < b->number;
}

/* The heap: each event is earlier than its CHILDREN, which begin at CHILDREN * i + 1. */
enum { CHILDREN = 4 };

/* Puts an event at place i or below, where a place is empty. */
static void sink_event(size_t i, event e) {
    for (size_t first; (first = CHILDREN * i + 1) < heap_count;) {
        size_t least = first;
        for (size_t c = first + 1; c < first + CHILDREN && c < heap_count; c++) {
            least = is_earlier(&heap[c], &heap[least]) ? c : least;
        }
        if (!is_earlier(&heap[least], &e)) {
            break;
        }
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = e;
}

void sim_at(int64_t time, void (*run)(void *, uint64_t), void *a, uint64_t b) {
    if (heap_count == heap_room) {
        heap_room = heap_room == 0 ? 1024 : 2 * heap_room;
        heap = realloc(heap, heap_room * sizeof *heap);
    }
    event e = {time < sim.now ? sim.now : time, sim.events++, run, a, b};
    size_t i = heap_count++;
    for (; i > 0 && is_earlier(&e, &heap[(i - 1) / CHILDREN]); i = (i - 1) / CHILDREN) {
        heap[i] = heap[(i - 1) / CHILDREN];
    }
    heap[i] = e;
}

static void run_event(void) {
    event e = heap[0];
    heap_count--;
    if (heap_count > 0) {
        sink_event(0, heap[heap_count]);
    }
    sim.now = e.time > sim.now ? e.time : sim.now;
    e.run(e.a, e.b);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void make_ready(sim_task *task) {
    if (ready_count == ready_room) {
        ready_room = ready_room == 0 ? 256 : 2 * ready_room;
        ready = realloc(ready, ready_room * sizeof *ready);
    }
    task->ready = true;
    task->wait = SIM_RUNS;
    ready[ready_count++] = task;
}

void sim_wake(sim_task *task) {
    if (!task->ready && !task->finished && !task->process->dead && task->wait != SIM_RUNS) {
        task->wakes++;
        make_ready(task);
    }
}

static void time_is_up(void *a, uint64_t wakes) {
    sim_task *task = a;
    if (task->wakes == wakes && task->wait != SIM_RUNS) {
        task->timed_out = true;
        sim_wake(task);
    }
}

/* Leaves the current task; it continues here when it is chosen again. */
static void leave_task(void) {
    sim_task *task = sim.current;
    task->saved_errno = errno;
    if (_setjmp(task->context) == 0) {
        _longjmp(scheduler, 1);
    }
    errno = task->saved_errno;
}

void sim_yield(void) {
    make_ready(sim.current);
    leave_task();
}

bool sim_block(sim_wait wait, const void *subject, int64_t until) {
    sim_task *task = sim.current;
    task->wait = wait;
    task->subject = subject;
    task->timed_out = false;
    task->wakes++;
    if (until != SIM_NEVER) {
        sim_at(until, time_is_up, task, task->wakes);
    }
    leave_task();
    return !task->timed_out;
}

void sim_enter(void) {
    sim_process *p = sim.current->process;
    p->calls++;
    sim.now += (int64_t)((double)(CALL_COST / 4 + sim_random(DRAW_ORDER, CALL_COST)) * p->slow);
    if (p->dies_at != 0 && p->calls >= p->dies_at) {
        p->dies_at = 0;
        sim_trace(p, "dies at its call %llu", (unsigned long long)p->calls);
        sim_kill(p);
    }
    if (sim_random(DRAW_ORDER, 8) == 0 || sim.now - slice_began > SLICE) {
        sim_yield();
    }
}

static void begin_task(void) {
    sim_task *task = sim.current;
    task->result = task->run(task->argument);
    task = sim.current;
    task->finished = true;
    for (sim_task *t = task->process->tasks; t != NULL; t = t->next) {
        if (t->wait == SIM_JOIN && t->subject == task) {
            sim_wake(t);
        }
    }
    _longjmp(scheduler, 2);
}

sim_task *sim_add_task(sim_process *process, void *(*run)(void *), void *argument) {
    sim_task *task = calloc(1, sizeof *task);
    *task = (sim_task){.number = ++task_count,
                       .process = process,
                       .next = process->tasks,
                       .run = run,
                       .argument = argument};
    process->tasks = task;
    task->stack = free_stack_count > 0
                      ? free_stacks[--free_stack_count]
                      : mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (task->stack == MAP_FAILED) {
        perror("trireme-sim: stack of a task");
        abort();
    }
    getcontext(&task->first);
    task->first.uc_stack.ss_sp = task->stack;
    task->first.uc_stack.ss_size = STACK_BYTES;
    task->first.uc_link = NULL;
    makecontext(&task->first, begin_task, 0);
    make_ready(task);
    return task;
}

static void end_process(sim_process *p, int code) {
    p->dead = true;
    sim_files_close_all(p);
    sim_trace(p, code < 0 ? "is dead" : "exits with %d", code);
    if (p->ended != NULL) {
        p->ended(p, code);
    }
}

static void *run_main(void *argument) {
    sim_process *p = argument;
    int code = p->run(p->argument);
    sim_task *self = sim.current;
    sim.current = NULL; /* what follows is not of the process */
    end_process(p, code);
    sim.current = self;
    return NULL;
}

sim_process *sim_spawn(const char *name, int host, int (*run)(void *), void *argument,
                       void (*ended)(sim_process *, int)) {
    sim_process *p = calloc(1, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    p->pid = 1000 + ++pid_count;
    p->host = host;
    p->slow = 1;
    p->run = run;
    p->argument = argument;
    p->ended = ended;
    p->next = sim.processes;
    sim.processes = p;
    sim_trace(p, "starts, pid %d on host %d", p->pid, host);
    sim_add_task(p, run_main, p);
    return p;
}

void sim_kill(sim_process *process) {
    sim_task *self = sim.current;
    if (process->dead) {
        return;
    }
    sim.current = NULL;
    end_process(process, -1);
    sim.current = self;
    if (self != NULL && self->process == process) {
        _longjmp(scheduler, 1);
    }
}

sim_process *sim_find(int pid) {
    for (sim_process *p = sim.processes; p != NULL; p = p->next) {
        if (p->pid == pid && !p->dead) {
            return p;
        }
    }
    return NULL;
}

void sim_pause(sim_process *process, int64_t nanoseconds) {
    if (process->paused_until <= sim.now) {
        process->paused_from = sim.now;
    }
    const int64_t until = sim.now + nanoseconds;
    process->paused_until = until > process->paused_until ? until : process->paused_until;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void resume_task(void *a, uint64_t wakes) {
    (void)wakes;
    sim_task *task = a;
    if (!task->process->dead) {
        make_ready(task);
    }
}

/* Runs a ready task until it blocks. */
static void run_task(sim_task *task) {
    sim.current = task;
    slice_began = sim.now;
    sim.switches++;
    if (sim.tracing != TRACE_NONE) {
        uint64_t mark[2] = {(uint64_t)sim.now, (uint64_t)task->number};
        hash_bytes(mark, sizeof mark);
    }
    if (_setjmp(scheduler) == 0) {
        if (task->entered) {
            _longjmp(task->context, 1);
        }
        task->entered = true;
        setcontext(&task->first);
    }
    sim.current = NULL;
    if (task->finished && free_stack_count < 256) {
        free_stacks[free_stack_count++] = task->stack;
    }
}

void sim_run(void) {
    while (!sim.over && sim.now < sim.ends) {
        while (heap_count > 0 && heap[0].time <= sim.now && !sim.over) {
            run_event();
        }
        if (sim.over) {
            break;
        }
        if (ready_count == 0) {
            if (heap_count == 0) {
                sim_fail("no process can ever run again");
                break;
            }
            run_event();
            continue;
        }
        size_t i = sim_random(DRAW_ORDER, ready_count);
        sim_task *task = ready[i];
        ready[i] = ready[--ready_count];
        task->ready = false;
        if (task->process->dead) {
            continue;
        }
        if (task->process->paused_until > sim.now) {
            sim_at(task->process->paused_until, resume_task, task, 0);
            continue;
        }
        run_task(task);
    }
}

void sim_start(uint64_t seed, sim_tracing tracing) {
    sim.seed = seed;
    sim.tracing = tracing;
    sim.now = SIM_SECOND;
    sim.hash = 0xCBF29CE484222325u;
    for (int i = 0; i < DRAWS; i++) {
        random_state[i] = seed * 0xD1342543DE82EF95u + (uint64_t)i * 0xA0761D6478BD642Fu;
        sim_random((sim_draw)i, 0);
    }
    for (int h = 0; h < SIM_HOSTS; h++) {
        sim.hosts[h] = (sim_host){.up = true, .next_port = 40000};
    }
}

int64_t sim_monotonic(const sim_process *process) {
    return sim.now + sim.hosts[process->host].uptime;
}
int64_t sim_wall(const sim_process *process) {
    return sim.now + sim.hosts[process->host].wall + 1700000000 * SIM_SECOND;
}
