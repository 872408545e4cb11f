/* From one command to many ranks and back:
 *
 *      trireme train ... -n 4        no rank of any job: starts itself 4 times, waits
 *        trireme train ... -n 4      rank r of 4 (environment): joins, makes the communicator, trains
 */
#include "app/ranks.h"

#include "trireme/cluster.h"
#include "trireme/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { NAMES_MAX = 64 };

typedef struct app_ranks {
    struct trmi_bootstrap *bootstrap;
    trm_comm *comm;
    int32_t cuts[NAMES_MAX];
    const char *names[NAMES_MAX];
    char text[1024]; /* of names */
} app_ranks;

/* ---- who am I ----------------------------------------------------------------------------------------- */

static trm_status resolve(const app_context *app, trm_cluster **out, trm_error *err) {
    const trm_cluster_flags flags = {.rank_table = app->o.rank_table};
    return trm_cluster_from_env(&flags, NULL, NULL, out, err);
}

static void write_through(void *context, trm_launch_stream stream, const char *data, size_t bytes) {
    (void)context;
    if (stream == TRM_LAUNCH_SAY) {
        app_note("%.*s\n", (int)bytes, data);
        return;
    }
    FILE *to = stream == TRM_LAUNCH_OUT ? stdout : stderr;
    fwrite(data, 1, bytes, to);
    fflush(to);
}

trm_status app_launch(const app_context *app, const char *const *command, int *code, trm_error *err) {
    const app_options *o = &app->o;
    const trm_launch_options options = {
        .ranks = (int32_t)(o->ranks > 0 ? o->ranks : 1),
        .command = command,
        .environment = (const char *const *)environ,
        .directory = o->launch_directory,
        .rank_table = o->rank_table,
        .threads = (int32_t)o->threads,
        .timeout_seconds = o->timeout,
        .dry_run = o->dry_run,
        .write = write_through};
    trm_launch_result result;
    trm_status status = trm_launch(&options, &result, err);
    if (status == TRM_OK) {
        *code = result.exit_code;
    }
    return status;
}

trm_status app_launch_self(app_context *app, bool *launched, int *code, trm_error *err) {
    static char self[4096];
    trm_cluster *cluster;
    *launched = false;
    if (app->o.ranks <= 1) {
        return TRM_OK;
    }
    /* A rank table alone does not make a rank: RANK_ID or the like must say which. */
    trm_cluster_flags none = {0};
    trm_status status = trm_cluster_from_env(&none, NULL, NULL, &cluster, err);
    if (status != TRM_OK) {
        return status;
    }
    int32_t size = trm_cluster_get(cluster)->size;
    trm_cluster_destroy(cluster);
    if (size == app->o.ranks) {
        return TRM_OK;
    }
    if (size > 1) {
        return app_fail(err, TRM_INVALID, "-n %lld, but this process is one of %d ranks already",
                        (long long)app->o.ranks, size);
    }
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return app_fail(err, TRM_IO, "/proc/self/exe cannot be read: start the ranks with trireme run");
    }
    self[length] = '\0';
    static const char *command[APP_FLAGS_MAX * 2 + APP_ARGUMENTS_MAX];
    int count = 0;
    command[count++] = self;
    for (char **a = app->argv + 1; *a != NULL && count < (int)(sizeof command / sizeof *command) - 1; a++) {
        command[count++] = *a;
    }
    command[count] = NULL;
    *launched = true;
    return app_launch(app, command, code, err);
}

static trm_deterministic order_of(const app_options *o) {
    return strcmp(o->deterministic, "strict") == 0 ? TRM_DETERMINISTIC_STRICT
           : strcmp(o->deterministic, "true") == 0 ? TRM_DETERMINISTIC_TRUE
                                                   : TRM_DETERMINISTIC_FALSE;
}

static trm_status meet(app_context *app, const trm_cluster *cluster, trm_error *err) {
    app_ranks *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return app_fail(err, TRM_NOMEM, "no memory");
    }
    app->ranks = r;
    trm_status status = trm_cluster_join(cluster, NULL, &r->bootstrap, err);
    if (status == TRM_OK) {
        const trm_comm_options options = {.engine = app->o.engine, .deterministic = order_of(&app->o)};
        status = trm_comm_create(r->bootstrap, &options, &r->comm, err);
    }
    return status;
}

trm_status app_join(app_context *app, trm_error *err) {
    const char *mode = app->o.parallel_mode;
    trm_cluster *cluster;
    if (mode != NULL && strcmp(mode, "stand_alone") == 0) {
        return TRM_OK;
    }
    trm_status status = resolve(app, &cluster, err);
    if (status != TRM_OK) {
        return status;
    }
    const trm_cluster_info *me = trm_cluster_get(cluster);
    if (me->size > 1 && me->role != TRM_ROLE_WORKER && me->role != TRM_ROLE_CHIEF) {
        status = app_fail(err, TRM_INVALID, "%s makes this process a %s, which does not train", me->source,
                          trm_role_name(me->role));
    } else if (me->size > 1) {
        status = meet(app, cluster, err);
    }
    trm_cluster_destroy(cluster);
    return status;
}

void app_leave(app_context *app) {
    if (app->ranks == NULL) {
        return;
    }
    trm_comm_destroy(app->ranks->comm);
    trm_cluster_leave(app->ranks->bootstrap);
    free(app->ranks);
    app->ranks = NULL;
}

trm_comm *app_comm(const app_context *app) { return app->ranks != NULL ? app->ranks->comm : NULL; }
int32_t app_rank(const app_context *app) {
    return app->ranks != NULL ? trm_comm_rank(app->ranks->comm) : 0;
}
int32_t app_rank_count(const app_context *app) {
    return app->ranks != NULL ? trm_comm_size(app->ranks->comm) : 1;
}

/* ---- options ------------------------------------------------------------------------------------------- */

static trm_status bucket_of(const char *text, app_ranks *r, trm_parallel_options *out, trm_error *err) {
    char *end;
    if (strcmp(text, "auto") == 0) {
        return TRM_OK;
    }
    if (strcmp(text, "off") == 0) {
        out->bucket = TRM_BUCKET_OFF;
        return TRM_OK;
    }
    if (strchr(text, ',') == NULL) {
        double mb = strtod(text, &end);
        out->bucket = TRM_BUCKET_SIZE;
        out->bucket_bytes = (int64_t)(mb * 1e6);
        return *end == '\0' && mb > 1e-5 && mb < 1e9
                   ? TRM_OK
                   : app_fail(err, TRM_INVALID, "--bucket %.40s: auto, off, megabytes, or a list 20,35,", text);
    }
    out->bucket = TRM_BUCKET_LIST;
    out->bucket_list = r->cuts;
    for (const char *at = text; *at != '\0'; at = *end == ',' ? end + 1 : end) {
        long cut = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || cut < 1 || cut > 1 << 20 ||
            out->bucket_list_count == NAMES_MAX) {
            return app_fail(err, TRM_INVALID, "--bucket %.40s: at most %d numbers of gradients, ascending", text,
                            NAMES_MAX);
        }
        r->cuts[out->bucket_list_count++] = (int32_t)cut;
    }
    return TRM_OK;
}

static trm_status norm_of(const char *text, trm_parallel_options *out, trm_error *err) {
    char *end;
    long group = strtol(text, &end, 10);
    if (strcmp(text, "off") == 0 || strcmp(text, "on") == 0) {
        out->sync_batch_norm = strcmp(text, "on") == 0 ? -1 : 0;
        return TRM_OK;
    }
    out->sync_batch_norm = (int32_t)group;
    return end != text && *end == '\0' && group >= 2 && group <= 4096
               ? TRM_OK
               : app_fail(err, TRM_INVALID, "--sync-batch-norm %.40s: off, on, or the ranks of a group", text);
}

static trm_status layerwise_of(const app_options *o, app_ranks *r, trm_parallel_options *out,
                               trm_error *err) {
    bool hybrid = o->parallel_mode != NULL && strcmp(o->parallel_mode, "hybrid_parallel") == 0;
    if (o->layerwise == NULL) {
        return TRM_OK;
    }
    if (!hybrid) {
        return app_fail(err, TRM_INVALID, "--layerwise is for --parallel-mode hybrid_parallel");
    }
    snprintf(r->text, sizeof r->text, "%s", o->layerwise);
    out->layerwise = r->names;
    for (char *name = strtok(r->text, ", "); name != NULL; name = strtok(NULL, ", ")) {
        if (out->layerwise_count == NAMES_MAX) {
            return app_fail(err, TRM_INVALID, "--layerwise: at most %d names", NAMES_MAX);
        }
        r->names[out->layerwise_count++] = name;
    }
    return TRM_OK;
}

/* Words are checked with one rank too, so that a wrong one does not wait for the big machine. */
trm_status app_parallel(app_context *app, trm_parallel_options *out, trm_error *err) {
    static app_ranks unused;
    const app_options *o = &app->o;
    app_ranks *r = app->ranks != NULL ? app->ranks : &unused;
    *out = (trm_parallel_options){
        .comm = r->comm,
        .sum = strcmp(o->reduce, "sum") == 0,
        .wire = strcmp(o->wire, "bf16") == 0   ? TRM_BFLOAT16
                : strcmp(o->wire, "fp16") == 0 ? TRM_FLOAT16
                                               : TRM_FLOAT32,
        .shard_optimizer = o->shard_optimizer};
    trm_status status = bucket_of(o->bucket, r, out, err);
    status = status == TRM_OK ? norm_of(o->sync_batch_norm, out, err) : status;
    return status == TRM_OK ? layerwise_of(o, r, out, err) : status;
}

void app_json_parallel(const app_context *app, const trm_exec *exec) {
    trm_parallel_info info;
    if (app->ranks == NULL) {
        return;
    }
    trm_exec_parallel_info(exec, &info);
    app_json_int("rank", info.rank);
    app_json_int("ranks", info.size);
    app_json_text("parallel_mode", app->o.parallel_mode != NULL ? app->o.parallel_mode : "data_parallel");
    app_json_text("engine", trm_comm_engine(app->ranks->comm));
    app_json_int("buckets", info.buckets);
    app_json_int("reduced_bytes", info.bytes);
    app_json_real("exposed_comm_fraction",
                  info.step_seconds > 0 ? info.exposed_seconds / info.step_seconds : 0);
}
