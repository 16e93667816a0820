/* What the steps of docs/tutorial.md share: a listening socket, lines in and lines out. */
#ifndef CHAT_H
#define CHAT_H

#include <errno.h>
#include <gosched.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Ends the program if a call has failed; else its result. */
static inline int must(const char *call, int result)
{
    if (result < 0) {
        fprintf(stderr, "chat: %s: %s\n", call, gs_strerror(result));
        exit(1);
    }
    return result;
}

/* A socket that listens on a port of this machine; 0: a free one. */
static inline int listen_on(const char *port)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int fd = must("gs_tcp_listen", gs_tcp_listen("127.0.0.1", (uint16_t)atoi(port), 0));
    getsockname(fd, (struct sockaddr *)&address, &length);
    printf("chat: port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* The next connection, or -ECANCELED. If there are too many files, it waits until some are closed. */
static inline int accept_next(int listener)
{
    int fd;
    while ((fd = gs_accept(listener, NULL, NULL, GS_FOREVER)) < 0 && !gs_cancelled())
        gs_sleep(10 * 1000 * 1000);
    return fd;
}

/* Sends a text. False: the client has gone, or takes nothing until the deadline. */
static inline bool send_text(int fd, const char *text, gs_deadline deadline)
{
    for (size_t left = strlen(text); left > 0;) {
        ssize_t n = gs_write(fd, text, left, deadline);
        if (n < 0)
            return false;
        text += n;
        left -= (size_t)n;
    }
    return true;
}

/* The longest line with its newline and the NUL; longer lines come in parts. */
enum { LINE = 256 };

/* A line, which channels pass on by value: no one has to free it. */
struct line {
    char text[LINE];
};

/* What has been read of a connection and not been given out yet. All bytes zero: nothing. */
struct input {
    char bytes[LINE - 2];
    size_t count;
};

/* Reads a line, with a newline at its end. False: the client has gone, or says nothing until the deadline. */
static inline bool read_line(int fd, struct input *in, struct line *line, gs_deadline deadline)
{
    char *end;
    size_t length;
    while ((end = memchr(in->bytes, '\n', in->count)) == NULL && in->count < sizeof in->bytes) {
        ssize_t n = gs_read(fd, in->bytes + in->count, sizeof in->bytes - in->count, deadline);
        if (n <= 0)
            return false;
        in->count += (size_t)n;
    }
    length = end ? (size_t)(end - in->bytes) : in->count;
    memcpy(line->text, in->bytes, length);
    memcpy(line->text + length, "\n", 2);
    length += end != NULL;
    in->count -= length;
    memmove(in->bytes, in->bytes + length, in->count);
    return true;
}

#endif
