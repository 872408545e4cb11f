/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: properties of this machine and this build, with remarks about what should be fixed.
 * Remarks never change the exit code. */
#include "app/app.h"

#include "trireme/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* remarks so far */
static int remarks;

static void remark(const char *format, ...) TRM_PRINTF(1, 2);

/* Prints a remark and counts it. */
static void remark(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    remarks++;
    app_print("  ! %s\n", line);
}

/* Prints a size and how much of it is free. */
static void say_bytes(const char *label, int64_t bytes, int64_t free_bytes) {
    char a[32], b[32];
    app_print("%-14s %s, %s free\n", label, app_bytes((double)bytes, a, sizeof a),
              app_bytes((double)free_bytes, b, sizeof b));
}

/* Prints the JSON event "doctor". */
static void print_json(const trm_machine *m) {
    app_json_open();
    app_json_text("event", "doctor");
    app_json_text("version", trm_version());
    app_json_text("cpu", m->cpu);
    app_json_text("isa", m->isa);
    app_json_int("cores", m->cores);
    app_json_int("cores_online", m->cores_online);
    app_json_int("memory_bytes", m->memory_bytes);
    app_json_int("memory_free_bytes", m->memory_free_bytes);
    app_json_text("onednn", *m->onednn != '\0' ? m->onednn : NULL);
    app_json_int("omp_threads", m->omp_threads);
    app_json_text("huge_pages", *m->huge_pages != '\0' ? m->huge_pages : NULL);
    app_json_int("shm_bytes", m->shm_bytes);
    app_json_int("shm_free_bytes", m->shm_free_bytes);
    app_json_text("cache", *m->cache != '\0' ? m->cache : NULL);
    app_json_text("host", m->host);
    app_json_text("kernel", m->kernel);
    app_json_int("remarks", remarks);
    app_json_close();
}

/* doctor: one line per property, its remark behind it. */
int app_run_doctor(app_context *app) {
    (void)app;
    trm_machine m;
    trm_machine_get(&m);
    app_print("trireme        %s\n", trm_version());
    app_print("host           %s, %s\n", m.host, m.kernel);
    app_print("cpu            %s, kernels use %s\n", m.cpu, m.isa);
    if (strcmp(m.isa, "plain") == 0) {
        remark("no AVX2: training will be many times slower");
    }
    app_print("cores          %d of %d may be used\n", m.cores, m.cores_online);
    if (m.omp_threads > m.cores) {
        remark("OMP_NUM_THREADS gives %d threads for %d cores; --threads overrides it",
               m.omp_threads, m.cores);
    }
    say_bytes("memory", m.memory_bytes, m.memory_free_bytes);
    app_print("oneDNN         %s\n", *m.onednn != '\0' ? m.onednn : "none");
    if (*m.onednn == '\0') {
        remark("built without oneDNN: only the slow reference back-end (--backend ref)");
    }
    app_print("huge pages     %s\n", *m.huge_pages != '\0' ? m.huge_pages : "unknown");
    if (strcmp(m.huge_pages, "never") == 0) {
        remark("transparent huge pages are off: a few percent slower");
    }
    if (m.shm_bytes >= 0) {
        say_bytes("/dev/shm", m.shm_bytes, m.shm_free_bytes);
    }
    if (m.shm_bytes < (int64_t)64 << 20) {
        remark("/dev/shm is %s: several ranks on this host need it",
               m.shm_bytes < 0 ? "missing" : "small");
    }
    app_print("cache          %s\n", *m.cache != '\0' ? m.cache : "none");
    if (*m.cache == '\0') {
        remark("no cache directory that can be written (XDG_CACHE_HOME, or HOME, says where): "
               "measured choices are not kept");
    }
    print_json(&m);
    return 0;
}
