/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: properties of this machine and this build, with remarks about what should be fixed.
 * Remarks never change the exit code. */
#include "app/app.h"

#include "trireme/base.h"

#include <string.h>

/* remarks so far */
static int remarks;

/* Puts a remark about the property before it and counts it. */
static void put_remark(bool is_due, const char *words) {
    if (is_due) {
        remarks++;
        app_put(app_words("\n  ! "), app_words(words));
    }
}

/* Puts a text property; "" is unknown: null in JSON, `missing` in text. */
static void put_property(const char *key, const char *value, const char *format,
                         const char *missing) {
    bool known = *value != '\0';
    app_put(app_text(key, known ? value : NULL, known ? format : missing));
}

/* Runs `doctor`: prints one line for each property, with its remark. */
int app_run_doctor(app_context *app) {
    (void)app;
    trm_machine m;
    trm_machine_get(&m);
    bool shm = m.shm_bytes >= 0;
    app_begin(APP_RESULT, "event", "doctor");
    app_put(app_text("version", trm_version(), "trireme        %s"),
            app_text("host", m.host, "\nhost           %s"), app_text("kernel", m.kernel, ", %s"),
            app_text("cpu", m.cpu, "\ncpu            %s"),
            app_text("isa", m.isa, ", kernels use %s"));
    put_remark(strcmp(m.isa, "plain") == 0, "no AVX2: training will be many times slower");
    app_put(app_int("cores", m.cores, "\ncores          %d"),
            app_int("cores_online", m.cores_online, " of %d may be used"),
            app_int("omp_threads", m.omp_threads,
                    m.omp_threads > 0 ? ", OMP_NUM_THREADS gives %d threads" : NULL));
    put_remark(m.omp_threads > m.cores,
               "OMP_NUM_THREADS gives more threads than cores; --threads overrides it");
    app_put(app_int("memory_bytes", m.memory_bytes, "\nmemory         %b"),
            app_int("memory_free_bytes", m.memory_free_bytes, ", %b free"));
    put_property("onednn", m.onednn, "\noneDNN         %s", "\noneDNN         none");
    put_remark(*m.onednn == '\0',
               "built without oneDNN: only the slow reference back-end (--backend ref)");
    put_property("huge_pages", m.huge_pages, "\nhuge pages     %s", "\nhuge pages     unknown");
    put_remark(strcmp(m.huge_pages, "never") == 0,
               "transparent huge pages are off: a few percent slower");
    app_put(app_int("shm_bytes", m.shm_bytes, shm ? "\n/dev/shm       %b" : NULL),
            app_int("shm_free_bytes", m.shm_free_bytes, shm ? ", %b free" : NULL));
    put_remark(m.shm_bytes < (int64_t)64 << 20,
               shm ? "/dev/shm is small: several ranks on this host need it"
                   : "/dev/shm is missing: several ranks on this host need it");
    put_property("cache", m.cache, "\ncache          %s", "\ncache          none");
    put_remark(*m.cache == '\0', "no cache directory that can be written (XDG_CACHE_HOME, or HOME, "
                                 "says where): measured choices are not kept");
    app_put(app_int("remarks", remarks, NULL));
    app_end();
    return 0;
}
