/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the machine for `doctor` and the benchmarks, from /proc, /sys and the libraries
 * (trireme/base.h). A property that cannot be read is left empty or -1; nothing here fails.
 *
 * It is a description only: no choice of kernels, threads or plans reads it. They ask the operating
 * system's table (base/os.h) and the CPU's features (base/cpu.h) themselves. */
#include "trireme/base.h"

#include "base/arguments.h"
#include "base/cpu.h"
#include "base/os.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef TRIREME_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

/* Reads the first line of a file without its newline; returns false if there is none. */
static bool first_line(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "r");
    bool ok = file != NULL && fgets(text, (int)size, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    if (ok) {
        text[strcspn(text, "\n")] = '\0';
    }
    return ok;
}

/* Writes the setting of transparent huge pages: "always [madvise] never" -> "madvise". */
static void huge_pages(char *out, size_t size) {
    char text[128];
    out[0] = '\0';
    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
        return;
    }
    char *open = strchr(text, '['), *close = strchr(text, ']');
    if (open != NULL && close > open) {
        snprintf(out, size, "%.*s", (int)(close - open - 1), open + 1);
    }
}

/* Returns the value of a line "NAME:   123 kB" of a file of /proc in bytes; -1 if there is none. */
static int64_t proc_bytes(const char *path, const char *name) {
    FILE *file = fopen(path, "r");
    char line[256];
    long long kilobytes = -1;
    size_t length = strlen(name);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            sscanf(line + length + 1, "%lld", &kilobytes);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kilobytes < 0 ? -1 : (int64_t)kilobytes * 1024;
}

/* Returns the name of the widest vector instructions that the kernels use. */
static const char *isa_name(const trmi_cpu_features *cpu) {
    return cpu->avx512_bf16 ? "avx512_bf16" : cpu->avx512 ? "avx512" : cpu->avx2 ? "avx2" : "plain";
}

/* Contract in trireme/base.h. */
void trm_machine_get(trm_machine *out) {
    TRMI_NEED_OR(, NULL, out);
    memset(out, 0, sizeof *out);
    const trmi_cpu_features *cpu = trmi_cpu();
    snprintf(out->cpu, sizeof out->cpu, "%s", cpu->model);
    snprintf(out->isa, sizeof out->isa, "%s", isa_name(cpu));
    out->cores = trmi_os_cpu_count();
    out->cores_online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    out->memory_bytes = trmi_os_memory_bytes();
    out->memory_free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
#ifdef TRIREME_ONEDNN
    const dnnl_version_t *version = dnnl_version();
    snprintf(out->onednn, sizeof out->onednn, "%d.%d.%d", version->major, version->minor,
             version->patch);
#endif
#ifdef _OPENMP
    out->omp_threads = omp_get_max_threads();
#endif
    huge_pages(out->huge_pages, sizeof out->huge_pages);
    /* /dev/shm bounds what the ranks of a host can share; containers often give it 64 MB. */
    struct statvfs shm;
    bool has_shm = statvfs("/dev/shm", &shm) == 0;
    out->shm_bytes = has_shm ? (int64_t)shm.f_blocks * (int64_t)shm.f_frsize : -1;
    out->shm_free_bytes = has_shm ? (int64_t)shm.f_bavail * (int64_t)shm.f_frsize : -1;
    if (!trmi_os_cache_dir(out->cache, sizeof out->cache)) {
        out->cache[0] = '\0';
    }
    struct utsname name;
    if (uname(&name) == 0) {
        snprintf(out->host, sizeof out->host, "%.63s", name.nodename);
        snprintf(out->kernel, sizeof out->kernel, "%.20s %.40s", name.sysname, name.release);
    }
}

/* The rest of the machine that trireme/base.h offers: figures of this process and the clock, each a
 * reading of the operating system's table (base/os.h). */
int64_t trm_peak_bytes(void) { return trmi_os_peak_bytes(); }

int64_t trm_resident_bytes(void) { return trmi_os_resident_bytes(); }
int64_t trm_shared_bytes(void) { return trmi_os_shared_bytes(); }

double trm_now_seconds(void) { return trmi_os_now(); }
