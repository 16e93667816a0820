/*
 * ares goroutines|threads CROWD CALLS: c-ares with the loop of its manual, around select, and name servers that share
 * one socket.
 */
#include "crowd.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/select.h>
#include <sys/socket.h>

enum { HEADER = 12, SERVERS = 4, CALLS_MAX = 1000 };
static int served, port; /* the servers' socket, and its number */

/* The address of "h<number>.example" is 10.<number in 3 bytes>. */
static void serve(void *unused)
{
    unsigned char message[600];
    struct sockaddr_in from;
    (void)unused;
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(served, message, 500, 0, (struct sockaddr *)&from, &size);
        MUST(n >= 0, "recvfrom: %s", strerror(errno));
        if (n == 0)
            return; /* the socket was shut down */
        MUST(n > HEADER && message[HEADER + 1] == 'h', "%zd bytes", n);
        int end = HEADER, number = atoi((char *)message + HEADER + 2);
        while (message[end] != 0)
            end += message[end] + 1;
        end += 1 + 4; /* the end of the name, type and class */
        const unsigned char answer[] = {0xc0, HEADER, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, (unsigned char)(number >> 16),
                                        (unsigned char)(number >> 8), (unsigned char)number};
        message[2] |= 0x80; /* a response */
        message[3] = 0x80;  /* without an error */
        message[7] = 1;     /* one answer */
        message[9] = message[11] = 0;
        memcpy(message + end, answer, sizeof answer);
        usleep(500);
        n = end + (ssize_t)sizeof answer;
        MUST(sendto(served, message, (size_t)n, 0, (struct sockaddr *)&from, size) == n, "sendto: %s", strerror(errno));
    }
}

static void answered(void *arg, int status, int timeouts, struct hostent *host)
{
    (void)timeouts;
    MUST(status == ARES_SUCCESS, "%s", ares_strerror(status));
    memcpy(arg, host->h_addr_list[0], sizeof(struct in_addr));
}

static void client(int i)
{
    struct ares_options options = {.timeout = 60000, .tries = 2, .lookups = (char *)"b"};
    char text[64];
    ares_channel channel;
    int r = ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS);
    MUST(r == ARES_SUCCESS, "%s", ares_strerror(r));
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    MUST(ares_set_servers_ports_csv(channel, text) == ARES_SUCCESS, "%s", text);
    meet();
    for (int n = 0; n < calls; n++) {
        int number = i * CALLS_MAX + n;
        struct in_addr address = {0};
        snprintf(text, sizeof text, "h%d.example", number);
        ares_gethostbyname(channel, text, AF_INET, answered, &address);
        for (;;) {
            fd_set reads, writes;
            struct timeval room;
            FD_ZERO(&reads);
            FD_ZERO(&writes);
            int most = ares_fds(channel, &reads, &writes);
            if (most == 0)
                break;
            MUST(select(most, &reads, &writes, NULL, ares_timeout(channel, NULL, &room)) >= 0, "%s", strerror(errno));
            ares_process(channel, &reads, &writes);
        }
        MUST(ntohl(address.s_addr) == 0x0a000000u + (unsigned)number, "%s is %x", text, ntohl(address.s_addr));
        if (i == 0 && n == calls / 2)
            note_threads();
    }
    finish();
    ares_destroy(channel);
}

static void servers_and_all(void *unused)
{
    task servers[SERVERS];
    for (int i = 0; i < SERVERS; i++)
        begin(&servers[i], serve, NULL);
    all(unused);
    shutdown(served, SHUT_RDWR); /* ENOTCONN, and yet it ends recvfrom */
    for (int i = 0; i < SERVERS; i++)
        end(&servers[i]);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    MUST(ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS, "ares_library_init");
    served = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(bind(served, (struct sockaddr *)&at, size) == 0, "bind: %s", strerror(errno));
    MUST(getsockname(served, (struct sockaddr *)&at, &size) == 0, "%s", strerror(errno));
    port = ntohs(at.sin_port);
    around_all = servers_and_all;
    return run_crowd(argc, argv, 0, client);
}
