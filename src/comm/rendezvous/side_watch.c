/* SPDX-License-Identifier: Apache-2.0 */
/* A process outside the ranks that waits for the end of their job: MindSpore's scheduler
 * (MS_SCHED).
 *
 *   connect and prove the token --rank 0 keeps the link--> wait until rank 0 closes it, for any reason
 */
#include "comm/rendezvous/side.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const double say_seconds = 10; /* interval of the log messages */

/* Connects to rank 0 until the deadline.
 *   errors  END if no rank 0 was there, else as trmi_side_introduce */
static trm_status find_root(trmi_join *join, trmi_link *link, trm_error *err) {
    double start = trmi_os_now(), said = start, limit = join->options.timeout_seconds;
    trm_error why;
    for (int32_t number = 0;; number++) {
        int fd;
        uint8_t secret[32];
        bool wrong_token = false;
        /* Connect, then prove the token. */
        trm_status status = trmi_connect(&join->place, number, &fd, secret, &why);
        if (status == TRM_OK) {
            status = trmi_side_introduce(join, fd, secret, link, &wrong_token, &why);
            if (status != TRM_OK) {
                close(fd);
            }
        }
        /* Success, or an error that another attempt would meet again. */
        if (status != TRM_PENDING) {
            if (status != TRM_OK && err != NULL) {
                *err = why;
            }
            return status;
        }
        double now = trmi_os_now();
        if (now - start >= limit) {
            return TRMI_FAIL(
                err, TRM_END,
                "no rank 0 answered at %s in %.0f s: the job has ended, or was never started",
                join->place.text, limit);
        }
        if (now - said >= say_seconds) {
            said = now;
            trmi_log(TRM_LOG_WARN, "comm", "the scheduler waited %.0f s for rank 0: %s",
                     now - start, why.message);
        }
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
}

trm_status trmi_side_watch(trmi_join *join, trm_error *err) {
    trmi_link link = {.fd = -1};
    char rest[256];
    if (join->hello.size == 1) {
        return TRMI_FAIL(err, TRM_END, "a job of one worker needs no scheduler");
    }
    join->hello.rank = TRMI_WATCHER;
    TRMI_TRY(find_root(join, &link, err));
    /* There is no deadline: the job may last for months, and the kernel closes the link when rank 0
     * dies. */
    for (;;) {
        struct pollfd wait = {.fd = link.fd, .events = POLLIN};
        ssize_t bytes =
            poll(&wait, 1, -1) > 0 ? recv(link.fd, rest, sizeof rest, MSG_DONTWAIT) : -1;
        if (bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR)) {
            break;
        }
    }
    trmi_link_close(&link);
    return TRMI_FAIL(err, TRM_END, "the job of %d ranks at %s has ended", join->hello.size,
                     join->place.text);
}
