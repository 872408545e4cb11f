/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective between network name spaces: over tcp and ucx, flat and in two levels (2x2,
 * 2x4), against brute force. Needs root; skipped where name spaces cannot be made. */
#include "collective_cases.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#define PLUGINS TRIREME_BUILD_DIR "/plugins"

static char spaces[2][32];
static const char *const addresses[2] = {"10.78.0.1", "10.78.0.2"};

static int run_command(const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return system(line);
}

static int remove_hosts(void **state) {
    for (int h = 0; h < 2 && spaces[h][0] != '\0'; h++) {
        run_command("ip netns del %s 2>/dev/null", spaces[h]);
    }
    return 0;
}

static bool enter_host(int h);

/* Returns whether a child process can set up the host of a rank; a container may let it make name
 * spaces, but not mount. */
static bool can_enter(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        _exit(enter_host(0) ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int make_hosts(void **state) {
    for (int h = 0; h < 2; h++) {
        sprintf(spaces[h], "trmhosts%d-%d", h, (int)getpid());
    }
    bool made = run_command("ip netns add %s 2>/dev/null && ip netns add %s 2>/dev/null", spaces[0],
                            spaces[1]) == 0 &&
                run_command("ip -n %s link add w type veth peer name w netns %s", spaces[0],
                            spaces[1]) == 0;
    for (int h = 0; made && h < 2; h++) {
        made = run_command("ip -n %s addr add %s/24 dev w && ip -n %s link set lo up", spaces[h],
                           addresses[h], spaces[h]) == 0;
    }
    made = made && run_command("ip -n %s link set w up && ip -n %s link set w up", spaces[0],
                               spaces[1]) == 0;
    made = made && can_enter();
    for (int i = 0; made && i < 100; i++) { /* UCX looks for links that are up */
        if (run_command("ip -n %s link show w | grep -q 'state UP'", spaces[0]) == 0 &&
            run_command("ip -n %s link show w | grep -q 'state UP'", spaces[1]) == 0) {
            return 0;
        }
        usleep(20000);
    }
    remove_hosts(state);
    spaces[0][0] = '\0';
    print_message("skipped: two hosts need root, network name spaces and the right to mount\n");
    return 0;
}

/* UCX reads /sys, which shows the devices of the name space that mounted it. */
static bool enter_host(int h) {
    char path[64];
    snprintf(path, sizeof path, "/var/run/netns/%s", spaces[h]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0 && unshare(CLONE_NEWNS) == 0 &&
                   mount("", "/", NULL, MS_SLAVE | MS_REC, NULL) == 0 &&
                   umount2("/sys", MNT_DETACH) == 0 &&
                   mount("sysfs", "/sys", "sysfs", 0, NULL) == 0;
    close(fd);
    return entered;
}

static void body_on_host(rank_context *context) {
    case_run *run = context->arg;
    int h = context->rank * 2 / context->size;
    EXPECT(enter_host(h), "cannot enter %s", spaces[h]);
    run->address = addresses[h];
    case_body(context);
}

static void on_two_hosts(int size, case_run *run, const char *what) {
    if (spaces[0][0] == '\0') {
        skip();
    }
    ranks_run(size, size / 2, true, body_on_host, run, what);
}

static const int64_t every_count[] = {0, 1, 1021, -1};
static const int64_t few_counts[] = {7, 20011, -1};

static void two_hosts_over_tcp(void **state) {
    case_run flat = {.counts = every_count, .options = {.engine = "tcp"}};
    on_two_hosts(2, &flat, "tcp, every type");
    case_run large = {.counts = few_counts, .quick = true, .options = {.engine = "tcp"}};
    on_two_hosts(2, &large, "tcp");
}

static void two_hosts_over_ucx(void **state) {
    if (access(PLUGINS "/trireme_comm_ucx.so", R_OK) != 0) {
        print_message("skipped: no UCX when this was configured\n");
        skip();
    }
    case_run flat = {.counts = every_count, .options = {.engine = "ucx", .plugin_dir = PLUGINS}};
    on_two_hosts(2, &flat, "ucx, every type");
    case_run large = {
        .counts = few_counts, .quick = true, .options = {.engine = "ucx", .plugin_dir = PLUGINS}};
    on_two_hosts(4, &large, "ucx, 2 x 2");
}

static void two_levels(void **state) {
    static const char *const algorithms[] = {NULL, "level0:NA;level1:ring"};
    for (int size = 4; size <= 8; size += 4) {
        case_run run = {.counts = few_counts,
                        .quick = true,
                        .options = {.algorithm = algorithms[size / 8],
                                    .deterministic = size == 8 ? TRM_DETERMINISTIC_TRUE
                                                               : TRM_DETERMINISTIC_FALSE}};
        on_two_hosts(size, &run, size == 4 ? "2 x 2" : "2 x 4");
    }
    case_run strict = {.counts = few_counts,
                       .quick = true,
                       .options = {.deterministic = TRM_DETERMINISTIC_STRICT}};
    on_two_hosts(4, &strict, "2 x 2, strict");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts_over_tcp),
        cmocka_unit_test(two_hosts_over_ucx),
        cmocka_unit_test(two_levels),
    };
    return cmocka_run_group_tests(tests, make_hosts, remove_hosts);
}
