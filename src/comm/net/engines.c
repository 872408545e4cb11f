/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the engines of a communicator: shared memory alone, or together with a network engine
 * over TCP, over a plug-in (UCX, MPI) or over the tests' simulated network.
 *
 *   one host, auto or shm      shm                     all ranks share memory
 *   several hosts              shm + network           levels.c divides an operation between them
 *   one host, network named    network                 net_only: also between ranks of one host
 *
 * The choice depends on the options and on the hosts only, which all ranks have alike. */
#define _GNU_SOURCE
#include "comm/net/engines.h"

#include "base/arguments.h"
#include "base/error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the plug-in for the MPI that started this process, from the MPI's own environment
 * variables, or NULL if no MPI did. */
static const char *started_by(void) {
    if (getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL) {
        return "mpi_openmpi";
    }
    return getenv("PMI_RANK") != NULL || getenv("PMI_ID") != NULL ? "mpi_mpich" : NULL;
}

/* How a plug-in is loaded. It stays until the process ends (NODELETE), because MPI and UCX cannot
 * be initialised twice. An MPI's symbols are global, because the components that it loads need
 * them. */
static int plugin_flags(const char *name) {
    return RTLD_NOW | RTLD_NODELETE | (strncmp(name, "mpi", 3) == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
}

/* Loads the plug-in from its places beside `file`, the program or the library. NULL: it is in none
 * of them. */
static void *open_beside(const char *file, const char *name) {
    /* The last is where the program is installed: TRIREME_LIBDIR is lib or lib/x86_64-linux-gnu. */
    static const char *const places[] = {"", "plugins/", "trireme/",
                                         "../" TRIREME_LIBDIR "/trireme/"};
    const char *slash = strrchr(file, '/');
    char path[2 * PATH_MAX];
    void *plugin = NULL;
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof *places && plugin == NULL; i++) {
        snprintf(path, sizeof path, "%.*s/%strireme_comm_%.32s.so", (int)(slash - file), file,
                 places[i], name);
        plugin = access(path, R_OK) == 0 ? dlopen(path, plugin_flags(name)) : NULL;
    }
    return plugin;
}

/* Loads trireme_comm_NAME.so from the folder of the options, else from beside the program, else
 * from beside the library, else from where the dynamic linker searches. On failure it returns NULL
 * and `tried` is the reason. */
static void *open_plugin(const trm_comm *comm, const char *name, char *tried, size_t size) {
    char path[PATH_MAX + 320], self[PATH_MAX] = "";
    void *plugin = NULL;
    if (comm->plugin_dir[0] != '\0') { /* only that folder counts */
        snprintf(path, sizeof path, "%s/trireme_comm_%s.so", comm->plugin_dir, name);
        plugin = dlopen(path, plugin_flags(name));
    } else {
        static const char in_library;
        Dl_info library;
        ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        self[length > 0 ? length : 0] = '\0';
        plugin = open_beside(self, name);
        if (plugin == NULL && dladdr(&in_library, &library) != 0 && library.dli_fname != NULL) {
            plugin = open_beside(library.dli_fname, name);
        }
        if (plugin == NULL) {
            snprintf(path, sizeof path, "trireme_comm_%s.so", name);
            plugin = dlopen(path, plugin_flags(name));
        }
    }
    if (plugin == NULL) {
        const char *why = dlerror();
        snprintf(tried, size, "%.120s", why != NULL ? why : path);
    }
    return plugin;
}

/* Loads the plug-in `name` and creates its transport. *plugin is the handle, which the engine
 * closes.
 *   errors  UNSUPPORTED (not found, another version), INVALID, those of the plug-in */
static trm_status make_plugin_transport(trm_comm *comm, const char *name,
                                        const trmi_exchange *exchange, void **plugin,
                                        trmi_transport **transport, trm_error *err) {
    char why[160] = "";
    /* "mpi" stands for the MPI of the job. */
    if (strcmp(name, "mpi") == 0 && (name = started_by()) == NULL) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "engine mpi: neither Open MPI nor MPICH has started this process; "
                         "start it with mpirun or srun, or leave the engine to itself (auto)");
    }
    *plugin = open_plugin(comm, name, why, sizeof why);
    if (*plugin == NULL) {
        return TRMI_FAIL(err, TRM_UNSUPPORTED,
                         "engine %s: its plug-in could not be loaded (%.120s)", name, why);
    }
    /* A plug-in has one symbol, a table with its version and its constructor. */
    const trmi_transport_plugin_table *table = dlsym(*plugin, "trmi_transport_plugin");
    trm_status status;
    if (table == NULL || table->version != TRMI_PLUGIN_VERSION) {
        status = TRMI_FAIL(
            err, TRM_UNSUPPORTED,
            "engine %s: its plug-in is of another version; install the one of this trireme", name);
    } else {
        status = table->create(&comm->group, exchange, transport, err);
    }
    if (status != TRM_OK) {
        dlclose(*plugin);
        *plugin = NULL;
    }
    return status;
}

/* Creates the network engine `name`. A child of a communicator uses the model that its root
 * measured. */
static trm_status make_net(trm_comm *comm, const char *name, const trmi_exchange *exchange,
                           trm_error *err) {
    /* Polling would take the CPU from ranks that share it. */
    trmi_net_options o = {.algorithm = comm->algorithm,
                          .spin_seconds =
                              comm->crowded ? 0 : 1e-6 * comm->options.spin_microseconds};
    if (strcmp(name, "tcp") == 0) {
        TRMI_TRY(trmi_tcp_create(&comm->group, exchange, &o.transport, err));
    } else if (strncmp(name, "sim", 3) == 0) {
        TRMI_TRY(trmi_sim_create(&comm->group, name, exchange, &o.transport, err));
    } else {
        TRMI_TRY(make_plugin_transport(comm, name, exchange, &o.plugin, &o.transport, err));
    }
    const trmi_net *first = comm->root != comm ? (const trmi_net *)(void *)comm->root->net : NULL;
    o.known = first != NULL ? &first->model : NULL;
    return trmi_net_create(&comm->group, &o, exchange, &comm->net, err);
}

/* Returns whether a name is that of an engine in a plug-in. */
static bool is_plugin(const char *name) {
    return strcmp(name, "ucx") == 0 || strcmp(name, "mpi") == 0 ||
           strcmp(name, "mpi_openmpi") == 0 || strcmp(name, "mpi_mpich") == 0;
}

/* Checks the options that can be wrong before any rank is contacted (see trireme/dist.h). */
trm_status trm_comm_check(const trm_comm_options *options, trm_error *err) {
    TRMI_NEED(err, options);
    const char *name = options->engine != NULL ? options->engine : "auto";
    bool own = strcmp(name, "auto") == 0 || strcmp(name, "shm") == 0 || strcmp(name, "tcp") == 0;
    bool sim =
        trmi_sim_create != NULL && (strcmp(name, "sim") == 0 || strncmp(name, "sim:", 4) == 0);
    trmi_algorithms checked;
    TRMI_TRY(trmi_algorithms_parse(options->algorithm != NULL ? options->algorithm : "",
                                   "algorithm", &checked, err));
    if (!own && !sim && !is_plugin(name)) {
        return TRMI_FAIL(err, TRM_INVALID, "engine '%s': auto, shm, tcp, ucx or mpi expected",
                         name);
    }
    return TRM_OK;
}

/* Contract in engines.h. "auto" takes shared memory inside a host and TCP between hosts. A
 * network that is named takes all traffic, also inside a host, so that it can be tested and
 * measured there. */
trm_status trmi_net_choose(trm_comm *comm, const trmi_exchange *exchange, trm_error *err) {
    const char *name = comm->engine_name;
    bool automatic = strcmp(name, "auto") == 0, shm = strcmp(name, "shm") == 0;
    bool sim = strncmp(name, "sim", 3) == 0;
    TRMI_TRY(
        trm_comm_check(&(trm_comm_options){.engine = name, .algorithm = comm->algorithm}, err));
    if (shm && comm->host_count > 1) {
        return TRMI_FAIL(err, TRM_INVALID,
                         "engine shm: the ranks of '%s' are on %d hosts; use auto, "
                         "tcp, ucx or mpi",
                         comm->name, comm->host_count);
    }
    /* On one host shared memory is enough. */
    if (comm->host_count == 1 && (automatic || shm)) {
        snprintf(comm->engine_text, sizeof comm->engine_text, "shm");
        return TRM_OK;
    }
    /* A network that the user names is used inside a host, too. */
    comm->net_only = comm->host_count == 1 || sim;
    const char *network = automatic ? "tcp" : name;
    if (comm->group.size > 1) {
        TRMI_TRY(make_net(comm, network, exchange, err));
    }
    snprintf(comm->engine_text, sizeof comm->engine_text, "%s%.24s", comm->net_only ? "" : "shm+",
             network);
    return comm->net_only ? TRM_OK : trmi_levels_create(comm, err);
}

void trmi_net_release(trm_comm *comm) {
    trmi_levels_destroy(comm);
    if (comm->net != NULL) {
        comm->net->table->destroy(comm->net);
        comm->net = NULL;
    }
}

trm_status trmi_net_run(trm_comm *comm, const trmi_engine_call *op, bool background,
                        trm_error *err) {
    comm->net->background = background;
    if (trmi_levels_can_run(comm, op)) {
        return trmi_levels_run(comm, op, background, err);
    }
    return comm->net->table->run(comm->net, op, err);
}
