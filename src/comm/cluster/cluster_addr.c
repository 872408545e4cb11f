/* SPDX-License-Identifier: Apache-2.0 */
/* Reads addresses as users write them: "host:port", "1.2.3.4:5", "[::1]:2222". No function asks a
 * name server: all work on the text alone, except trmi_is_local_ip, which lists the interfaces of
 * this machine. */
#include "comm/cluster/cluster_addr.h"

#include "comm/cluster/cluster_json.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

int trmi_ip_family(const char *text) {
    unsigned char bytes[16];
    if (inet_pton(AF_INET, text, bytes) == 1) {
        return 4;
    }
    return inet_pton(AF_INET6, text, bytes) == 1 ? 6 : 0;
}

bool trmi_is_loopback(const char *host) {
    unsigned char bytes[16];
    static const unsigned char loopback[16] = {[15] = 1}; /* ::1 */
    if (inet_pton(AF_INET, host, bytes) == 1) {
        return bytes[0] == 127;
    }
    if (inet_pton(AF_INET6, host, bytes) == 1) {
        return memcmp(bytes, loopback, 16) == 0;
    }
    return strcmp(host, "localhost") == 0;
}

/* Compares the address with those of all interfaces (getifaddrs). */
bool trmi_is_local_ip(const char *host) {
    unsigned char wanted[16];
    int family = trmi_ip_family(host) == 4 ? AF_INET : AF_INET6;
    struct ifaddrs *all = NULL;
    if (inet_pton(family, host, wanted) != 1 || getifaddrs(&all) != 0) {
        return false;
    }
    bool found = trmi_is_loopback(host);
    for (struct ifaddrs *one = all; one != NULL && !found; one = one->ifa_next) {
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != family) {
            continue;
        }
        const void *bytes = family == AF_INET
                                ? (const void *)&((struct sockaddr_in *)one->ifa_addr)->sin_addr
                                : (const void *)&((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr;
        found = memcmp(bytes, wanted, family == AF_INET ? 4 : 16) == 0;
    }
    freeifaddrs(all);
    return found;
}

/* Returns whether `host` has only characters that occur in host names. */
static bool has_host_characters(const char *host) {
    return strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
           strlen(host);
}

/* The last colon separates host and port; an IPv6 address needs brackets, so that its own colons do
 * not count. */
const char *trmi_host_port_parse(const char *text, bool zero, trmi_host_port *out) {
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (text[0] == '[' && strchr(text, ']') > colon)) {
        return "no port: host:port expected";
    }
    if (strchr(text, ' ') != NULL || strchr(text, '\t') != NULL) {
        return "a blank inside the address";
    }
    size_t length = (size_t)(colon - text);
    const char *host = text;
    bool bracket = text[0] == '[';
    if (bracket) {
        if (length < 3 || text[length - 1] != ']') {
            return "a bracketed IPv6 address like [::1]:2222 expected";
        }
        host++;
        length -= 2;
    }
    if (length == 0) {
        return "no host before the port";
    }
    if (length >= TRMI_HOST_BYTES - 2) {
        return "the host name is longer than 253 characters";
    }
    memset(out, 0, sizeof *out);
    memcpy(out->host, host, length);
    if (bracket ? trmi_ip_family(out->host) != 6 : !has_host_characters(out->host)) {
        return bracket                          ? "no valid IPv6 address in the brackets"
               : strchr(out->host, ':') != NULL ? "an IPv6 address needs brackets: [::1]:2222"
                                                : "a character that no host name has";
    }
    /* Only digits and dots mean an IPv4 address, not a name. */
    if (strspn(out->host, "0123456789.") == strlen(out->host) && trmi_ip_family(out->host) == 0) {
        return "no valid IPv4 address";
    }
    int64_t port;
    if (!trmi_decimal(colon + 1, &port) || port > 65535 || (port == 0 && !zero)) {
        return "a port from 1 to 65535 expected";
    }
    out->port = (int32_t)port;
    return NULL;
}
