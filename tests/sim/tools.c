/* SPDX-License-Identifier: Apache-2.0 */
/* A process beside a job of servers (job.h), as it looks at the job with the functions of `trireme
 * ps`, and as one that the servers must refuse.
 *
 *   servers     adopts their tables, reads rows, statistics, workers and last writers
 *   folder      opens the newest snapshot with the logs that the servers are writing
 *   stranger    has another token or job, another version or protocol, says nothing, or asks for
 *               what is not there
 *
 * Checked: no row is more than the sum of what the workers push; the folder opens, unless a newer
 * snapshot takes its place meanwhile; a stranger gets nothing; the job goes on as without it
 * (roles.c). */
#include "job.h"

#include "base/error.h"
#include "base/net/net.h"
#include "base/os.h"
#include "ps/client/client.h"
#include "ps/server/server.h"
#include "ps/snapshot/snapshot_manifest.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { KEYS_MOST = JOB_WORKERS * (JOB_KEYS + JOB_WITNESSES) };
static const double patience_seconds = 15;

static uint64_t draw_below(uint64_t below) { return sim_random(DRAW_TOOLS, below); }

/* Ends the run where an error is none of a server that is away, or has no room or memory. */
static void check_error(const char *what, trm_status status, const trm_error *err) {
    const bool memory = status == TRM_NOMEM && job.comes[FAULT_MEMORY];
    const bool fails = status == TRM_IO && job.comes[FAULT_IO];
    if (status == TRM_OK || job.checking) { /* another number of servers may run */
        return;
    }
    sim_trace(sim.current->process, "%s: %s", what, err->message);
    if (status != TRM_TIMEOUT && status != TRM_PEER && status != TRM_NOSPACE && !memory && !fails) {
        sim_fail("tool, %s: %s", what, err->message);
    }
}

/* A row has each push once at most. */
static void check_value(const char *what, uint64_t key, float value) {
    if (value < 0 || value > (float)sim_job_expected(key)) {
        sim_fail("tool, %s: key %llu is %g, at most %lld expected", what, (unsigned long long)key,
                 (double)value, (long long)sim_job_expected(key));
    }
}

/* ---- servers --------------------------------------------------------------------------------- */

static trm_status read_rows(trm_ps_client *client, trm_error *err) {
    uint64_t keys[KEYS_MOST];
    float rows[KEYS_MOST];
    int64_t count = 0;
    trm_ps_batch *batch;
    while (count < KEYS_MOST && sim_job_key((int)count) != UINT64_MAX) {
        keys[count] = sim_job_key((int)count);
        count++;
    }
    TRMI_TRY(trm_ps_batch_create(client, &batch, err));
    trm_status status = trm_ps_batch_add(batch, 0, keys, count, rows, NULL, err);
    status = status == TRM_OK ? trm_ps_read(batch, err) : status;
    for (int64_t i = 0; status == TRM_OK && i < count; i++) {
        check_value("rows of the servers", keys[i], rows[i]);
    }
    trm_ps_batch_destroy(batch);
    return status;
}

/* Reads one row with its last writers, which are workers of the job. */
static trm_status read_writers(trm_ps_client *client, trm_error *err) {
    const uint64_t key = sim_job_key((int)draw_below(JOB_KEYS + JOB_WITNESSES));
    trm_ps_writer writers[TRM_PS_WRITERS];
    trm_row_info info;
    float value = 0;
    int32_t count = 0;
    trm_status status = trm_ps_audit_row(client, 0, key, &info, &value, NULL, writers, &count, err);
    if (status != TRM_OK) {
        return status == TRM_END ? TRM_OK : status;
    }
    check_value("row with writers", key, value);
    for (int32_t i = 0; i < count; i++) {
        if (writers[i].worker >= (uint32_t)job.workers) {
            sim_fail("tool: key %llu was written by worker %u of %d", (unsigned long long)key,
                     writers[i].worker, job.workers);
        }
    }
    return TRM_OK;
}

static trm_status read_lists(trm_ps_client *client, trm_error *err) {
    trm_table_stats stats;
    trm_ps_worker workers[JOB_WORKERS];
    int32_t count;
    TRMI_TRY(trm_ps_table_get_stats(client, 0, &stats, err));
    TRMI_TRY(trm_ps_workers(client, workers, JOB_WORKERS, &count, err));
    if (count > job.workers || stats.rows > KEYS_MOST) {
        sim_fail("tool: %d workers of %d, %lld rows", count, job.workers, (long long)stats.rows);
    }
    return TRM_OK;
}

static void look_at_servers(void) {
    trm_ps_client *client;
    trm_error err;
    int32_t tables = 0, slots;
    trm_status status =
        sim_job_reach(-1, patience_seconds, sim_job_token, sim_job_id, &client, &err);
    if (status != TRM_OK) {
        check_error("connecting", status, &err);
        return;
    }
    status = trm_ps_client_adopt(client, &tables, &err);
    const trm_table_options *o =
        status == TRM_OK && tables > 0 ? trm_ps_client_table_options(client, 0, &slots) : NULL;
    if (o != NULL && (strcmp(o->name, "counts") != 0 || o->width != 1 || slots != 0)) {
        sim_fail("tool: the table is '%s' of width %d with %d slots", o->name, o->width, slots);
    }
    status = o != NULL ? read_rows(client, &err) : status;
    status = o != NULL && status == TRM_OK ? read_writers(client, &err) : status;
    status = o != NULL && status == TRM_OK ? read_lists(client, &err) : status;
    check_error("looking at the servers", status, &err);
    trm_ps_client_destroy(client);
}

/* ---- the folder ------------------------------------------------------------------------------ */

static trm_status see_row(void *context, const trm_row_info *info, const float *values,
                          const float *slots) {
    const trm_ps_folder *files = context;
    trm_row_info again;
    trm_error err;
    float value;
    (void)slots;
    check_value("rows of the folder", info->key, values[0]);
    if (trm_ps_folder_row(files, 0, info->key, &again, &value, NULL, &err) != TRM_OK ||
        value != values[0]) {
        sim_fail("tool: the folder has two rows of key %llu", (unsigned long long)info->key);
    }
    return TRM_OK;
}

static void read_folder(const trm_ps_folder *files) {
    trm_ps_folder_info info;
    trm_ps_writer writers[TRM_PS_WRITERS];
    trm_error err;
    int64_t rows = 0, total;
    int32_t slots;
    trm_ps_folder_get_info(files, &info);
    if (info.tables > 0 &&
        (trm_ps_folder_table(files, 0, &rows, &slots) == NULL || rows > KEYS_MOST)) {
        sim_fail("tool: the folder has %lld rows", (long long)rows);
    }
    trm_status status = info.tables > 0
                            ? trm_ps_folder_each(files, 0, see_row, (void *)(uintptr_t)files, &err)
                            : TRM_OK;
    check_error("rows of the folder", status, &err);
    const int32_t count = trm_ps_folder_writers(files, writers, &total);
    sim_trace(sim.current->process, "the folder has %lld rows, %d writers, %lld logged pushes",
              (long long)rows, count, (long long)info.logged);
}

/* Opens the folder while the servers write to it. */
static void look_at_folder(void) {
    const uint64_t key = sim_job_key((int)draw_below(JOB_KEYS + JOB_WITNESSES)),
                   how = draw_below(8);
    const trm_ps_folder_options o = {.logs = how == 0 ? TRM_OFF : TRM_ON,
                                     .table = how == 1   ? "others"
                                              : how == 2 ? "counts"
                                                         : NULL,
                                     .key = how == 2 ? &key : NULL};
    trm_ps_folder *files;
    trm_error err;
    uint32_t newest = 0, later = 0;
    if (trmi_manifest_newest(sim_job_folder, &newest, &err) != TRM_OK || newest == 0) {
        return;
    }
    trm_status status = trm_ps_folder_open(sim_job_folder, &o, &files, &err);
    if (status == TRM_OK) {
        if (how == 1) {
            trm_ps_folder_info info;
            trm_ps_folder_get_info(files, &info);
            sim_fail("tool: the folder has no table 'others', but opens with %d tables",
                     info.tables);
        }
        read_folder(files);
        trm_ps_folder_close(files);
        return;
    }
    sim_trace(sim.current->process, "the folder: %s", err.message);
    trm_error ignored;
    const bool replaced =
        trmi_manifest_newest(sim_job_folder, &later, &ignored) != TRM_OK || later != newest;
    if (!replaced && how != 1 && !job.comes[FAULT_LIES] && !job.comes[FAULT_MEMORY]) {
        sim_fail("tool: the folder does not open: %s", err.message);
    }
}

/* ---- strangers ------------------------------------------------------------------------------- */

static trm_status connect_to_server(int *fd, trm_error *err) {
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + patience_seconds};
    char address[32], host[64];
    int32_t port;
    sim_job_address((int)draw_below((uint64_t)job.servers), address);
    TRMI_TRY(trmi_net_split(address, host, &port, err));
    return trmi_net_connect(host, port, &patience, fd, err);
}

/* A client of another job, or with another token. */
static void come_from_another_job(void) {
    static const uint8_t other[32] = {1};
    const bool token = draw_below(2) == 0;
    trm_ps_client *client;
    trm_error err;
    trm_status status = sim_job_reach(-1, patience_seconds, token ? other : sim_job_token,
                                      token ? sim_job_id : other, &client, &err);
    if (status == TRM_OK) {
        sim_fail("tool: servers accept a client with another %s", token ? "token" : "job");
    }
    sim_trace(sim.current->process, "refused: %s", err.message);
}

/* Proves the token of the job, for another version or service. */
static void speak_another_version(void) {
    const bool version = draw_below(2) == 0;
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + patience_seconds};
    trmi_credentials mine = {.service = version ? TRMI_SERVICE_PARAMETERS : TRMI_SERVICE_RENDEZVOUS,
                             .version =
                                 (uint16_t)(version ? TRMI_PS_VERSION - 1 : TRMI_PS_VERSION)};
    trmi_session session;
    trm_error err;
    int fd;
    memcpy(mine.token, sim_job_token, sizeof mine.token);
    if (connect_to_server(&fd, &err) != TRM_OK) {
        return;
    }
    if (trmi_net_prove_token(fd, &mine, &patience, &session, &err) == TRM_OK) {
        sim_fail("tool: a server accepts a client of another %s", version ? "version" : "service");
    }
    sim_trace(sim.current->process, "refused: %s", err.message);
    close(fd);
}

/* Proves the token, and then sends what is no message. */
static void send_nonsense(void) {
    trmi_credentials mine = {.service = TRMI_SERVICE_PARAMETERS, .version = TRMI_PS_VERSION};
    const trmi_wait_limit patience = {.deadline = trmi_os_now() + patience_seconds};
    trmi_session session;
    trmi_channel *channel;
    trm_error err;
    uint8_t bytes[96];
    int fd;
    memcpy(mine.token, sim_job_token, sizeof mine.token);
    if (connect_to_server(&fd, &err) != TRM_OK) {
        return;
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)draw_below(256);
    }
    const bool proves = draw_below(2) == 0;
    if (!proves || trmi_net_prove_token(fd, &mine, &patience, &session, &err) != TRM_OK ||
        draw_below(2) == 0) {
        trmi_net_send(fd, bytes, sizeof bytes, &patience, &err);
        usleep((useconds_t)draw_below(8000000));
        close(fd);
    } else if (trmi_tcp_wrap(fd, "a server", &channel, &err) == TRM_OK) {
        (void)!trmi_channel_send(channel, bytes, 8 + draw_below(sizeof bytes - 8), 1, &err);
        usleep((useconds_t)draw_below(1000000));
        channel->table->destroy(channel);
    }
}

/* More connections that say nothing than a server keeps. */
static void say_nothing(void) {
    enum { SILENT = 70 };
    int fds[SILENT], count = 0;
    trm_error err;
    const int most = draw_below(4) == 0 ? SILENT : 1;
    while (count < most && connect_to_server(&fds[count], &err) == TRM_OK) {
        count++;
    }
    usleep((useconds_t)draw_below(8000000));
    while (count > 0) {
        close(fds[--count]);
    }
}

/* Asks for a table that is not there, or gives an order that is none. */
static void ask_for_what_is_not_there(void) {
    static const int64_t orders[] = {TRMI_ORDER_STATS, TRMI_ORDER_ROW, 99};
    const trmi_ps_note note = {.value = {orders[draw_below(3)], 500, 1}};
    trm_ps_client *client;
    trm_error err;
    if (sim_job_reach(-1, patience_seconds, sim_job_token, sim_job_id, &client, &err) != TRM_OK) {
        return;
    }
    trm_status status =
        trmi_client_order(client, &client->peers[0], TRMI_PS_CONTROL, &note, NULL, NULL, 0, &err);
    if (status == TRM_OK) {
        sim_fail("tool: order %lld of table 500 is answered", (long long)note.value[0]);
    }
    sim_trace(sim.current->process, "refused: %s", err.message);
    trm_ps_client_destroy(client);
}

/* ---- the process ----------------------------------------------------------------------------- */

static int run_tool(void *argument) {
    static void (*const visits[])(void) = {
        look_at_servers, look_at_folder,        look_at_servers,
        look_at_folder,  come_from_another_job, speak_another_version,
        send_nonsense,   say_nothing,           ask_for_what_is_not_there};
    (void)argument;
    while (!job.checking) {
        usleep((useconds_t)(100000 + draw_below(3000000)));
        if (!job.checking) {
            visits[draw_below(sizeof visits / sizeof *visits)]();
        }
    }
    return 0;
}

void sim_tools_start(void) { sim_spawn("tool", JOB_TOOL, run_tool, NULL, NULL); }
