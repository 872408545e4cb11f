/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rate of a link with a plain TCP stream in one direction (for bench/ps_link.sh).
 * Usage: stream receive ADDRESS PORT | stream send ADDRESS PORT MEGABYTES. The receiver prints
 * GB/s. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

static double read_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int print_failure(const char *what) {
    perror(what);
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        return 2;
    }
    static char piece[PIECE];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argv[3]))};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, argv[2], &address.sin_addr);
    if (strcmp(argv[1], "receive") == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1) != 0) {
            return print_failure("listen");
        }
        int peer = accept(fd, NULL, NULL);
        double start = 0, bytes = 0;
        for (ssize_t got; (got = recv(peer, piece, PIECE, 0)) > 0; bytes += (double)got) {
            start = start == 0 ? read_clock() : start;
        }
        printf("%.3f\n", bytes * 1e-9 / (read_clock() - start));
        return 0;
    }
    for (int tries = 0; connect(fd, (struct sockaddr *)&address, sizeof address) != 0; tries++) {
        if (tries == 50) {
            return print_failure("connect");
        }
        usleep(100000);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    for (long left = atol(argv[4]) << 20; left > 0;) {
        ssize_t sent = send(fd, piece, PIECE, MSG_NOSIGNAL);
        if (sent <= 0) {
            return print_failure("send");
        }
        left -= sent;
    }
    close(fd);
    return 0;
}
