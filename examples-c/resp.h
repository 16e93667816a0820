/*
 * resp.h: requests in the protocol of Redis, the same in RESP2 and RESP3. Nothing here knows of goroutines or sockets.
 *
 * A request is an array of bulk strings, "*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n", or one line of words,
 * "ECHO hi\r\n", in which "..." has \n \r \t \b \a \xHH \" and \\, and '...' has \'. The parser goes on
 * where it stopped when more bytes have come, so a request may come in pieces of any size and each
 * byte is looked at once. What a request says of its size is believed only when the bytes are there.
 */
#ifndef RESP_H
#define RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 64 * 1024,     /* of a request that is a line */
    COUNT_MAX_BYTES = 32,           /* of a line "*N" or "$N" */
    ARGS_MAX = 1024 * 1024,         /* arguments of a request */
    BULK_MAX = 512 * 1024 * 1024,   /* bytes of an argument */
    REQUEST_MAX = 1024 * 1024 * 1024, /* bytes of a request */
    FEW_ARGS = 8,                   /* that need no memory of their own */
    KEPT_ARGS = 4096,               /* for which memory is kept from one request to the next */
};

/* An argument: bytes from this offset on of the buffer that was parsed. */
typedef struct arg { size_t offset, length; } arg;

/* Zero all bytes and set args to few before the first request. */
typedef struct parser {
    size_t at;       /* how much of the buffer it is through with; after a request its length */
    long left;       /* arguments that are still to come; 0: at the beginning of a request */
    int64_t bulk;    /* bytes of the next one, if has_bulk */
    bool has_bulk;
    size_t count, room;
    arg *args;       /* of the request; few, or from malloc */
    arg few[FEW_ARGS];
    char error[80];  /* why RESP_BAD */
} parser;

typedef enum { RESP_MORE, RESP_REQUEST, RESP_BAD, RESP_NO_MEMORY } resp_result;

static void resp_init(parser *p)
{
    memset(p, 0, offsetof(parser, few));
    p->args = p->few;
    p->room = FEW_ARGS;
}

static void resp_free(parser *p)
{
    if (p->args != p->few)
        free(p->args);
}

/* Makes it ready for the next request, which begins at the buffer's beginning. */
static void resp_next(parser *p)
{
    p->at = p->count = 0;
    if (p->room > KEPT_ARGS) {
        resp_free(p);
        p->args = p->few;
        p->room = FEW_ARGS;
    }
}

static bool resp_add(parser *p, size_t offset, size_t length)
{
    if (p->count == p->room) {
        arg *more = malloc(2 * p->room * sizeof *more);
        if (!more)
            return false;
        memcpy(more, p->args, p->count * sizeof *more);
        resp_free(p);
        p->args = more;
        p->room *= 2;
    }
    p->args[p->count++] = (arg){offset, length};
    return true;
}

static resp_result resp_bad(parser *p, const char *why)
{
    snprintf(p->error, sizeof p->error, "%s", why);
    return RESP_BAD;
}

/* The number from p to end, with nothing beside it. */
static bool resp_number(const char *p, const char *end, int64_t *value)
{
    bool negative = p < end && *p == '-';
    p += negative;
    if (p == end || end - p > 18)
        return false;
    int64_t n = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = n * 10 + (*p - '0');
    }
    *value = negative ? -n : n;
    return true;
}

/* Reads "N\r\n" behind the character at p->at. RESP_REQUEST: it is there, and p->at is behind it. */
static resp_result resp_count(parser *p, const char *buffer, size_t n, int64_t *value, const char *bad)
{
    const char *start = buffer + p->at + 1;
    size_t there = n - p->at - 1;
    const char *end = memchr(start, '\n', there < COUNT_MAX_BYTES ? there : COUNT_MAX_BYTES);
    if (!end)
        return there < COUNT_MAX_BYTES ? RESP_MORE : resp_bad(p, bad);
    if (end == start || end[-1] != '\r' || !resp_number(start, end - 1, value))
        return resp_bad(p, bad);
    p->at = (size_t)(end + 1 - buffer);
    return RESP_REQUEST;
}

static int resp_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Splits the line from buffer up to end into words, in place: no word gets longer. */
static resp_result resp_split(parser *p, char *buffer, char *end)
{
    static const char unbalanced[] = "unbalanced quotes in request";
    static const char blanks[] = " \t\r\v\f";
    char *from = buffer, *to = buffer;
    for (;;) {
        while (from < end && memchr(blanks, *from, sizeof blanks - 1))
            from++;
        if (from == end)
            return RESP_REQUEST;
        size_t begin = (size_t)(to - buffer);
        char quote = '\0';
        for (; from < end; from++) {
            if (quote && *from == quote) {
                if (from + 1 < end && !memchr(blanks, from[1], sizeof blanks - 1))
                    return resp_bad(p, unbalanced);
                quote = '\0';
            } else if (quote == '"' && *from == '\\' && from + 1 < end) {
                static const char names[] = "nrtba", meant[] = "\n\r\t\b\a";
                const char *name = memchr(names, *++from, sizeof names - 1);
                if (*from == 'x' && end - from > 2 && resp_hex(from[1]) >= 0 && resp_hex(from[2]) >= 0) {
                    *to++ = (char)(resp_hex(from[1]) * 16 + resp_hex(from[2]));
                    from += 2;
                } else {
                    *to++ = name ? meant[name - names] : *from;
                }
            } else if (quote == '\'' && *from == '\\' && from + 1 < end && from[1] == '\'') {
                *to++ = *++from;
            } else if (quote) {
                *to++ = *from;
            } else if (*from == '"' || *from == '\'') {
                quote = *from;
            } else if (memchr(blanks, *from, sizeof blanks - 1)) {
                break;
            } else {
                *to++ = *from;
            }
        }
        if (quote)
            return resp_bad(p, unbalanced);
        if (!resp_add(p, begin, (size_t)(to - buffer) - begin))
            return RESP_NO_MEMORY;
    }
}

static resp_result resp_line(parser *p, char *buffer, size_t n)
{
    char *end = memchr(buffer + p->at, '\n', n - p->at);
    p->at = n; /* there is none before that */
    if ((end ? (size_t)(end - buffer) : n) >= LINE_MAX_BYTES)
        return resp_bad(p, "too big inline request");
    if (!end)
        return RESP_MORE;
    p->at = (size_t)(end + 1 - buffer);
    return resp_split(p, buffer, end);
}

/* Parses n bytes, which begin with a request. RESP_REQUEST: it has p->count arguments (maybe none:
 * that is to be ignored) and p->at bytes; resp_next is to be called before the next one. RESP_MORE:
 * to be called again when there are more than n bytes; the buffer may be elsewhere by then. After the
 * others, which leave the reason in p->error, nothing that follows can be understood. */
static resp_result resp_parse(parser *p, char *buffer, size_t n)
{
    resp_result r;
    if (p->left == 0) {
        if (n == 0)
            return RESP_MORE;
        if (buffer[0] != '*')
            return resp_line(p, buffer, n);
        int64_t count;
        if ((r = resp_count(p, buffer, n, &count, "invalid multibulk length")) != RESP_REQUEST)
            return r;
        if (count > ARGS_MAX)
            return resp_bad(p, "invalid multibulk length");
        if (count <= 0)
            return RESP_REQUEST;
        p->left = (long)count;
    }
    for (; p->left > 0; p->left--) {
        if (!p->has_bulk) {
            if (p->at == n)
                return RESP_MORE;
            if (buffer[p->at] != '$') {
                char c = buffer[p->at];
                snprintf(p->error, sizeof p->error,
                         c >= ' ' && c < 127 ? "expected '$', got '%c'" : "expected '$', got byte %d",
                         (unsigned char)c);
                return RESP_BAD;
            }
            if ((r = resp_count(p, buffer, n, &p->bulk, "invalid bulk length")) != RESP_REQUEST)
                return r;
            if (p->bulk < 0 || p->bulk > BULK_MAX)
                return resp_bad(p, "invalid bulk length");
            if (p->at + (size_t)p->bulk > REQUEST_MAX)
                return resp_bad(p, "too big request");
            p->has_bulk = true;
        }
        size_t length = (size_t)p->bulk;
        if (n - p->at < length + 2)
            return RESP_MORE;
        if (memcmp(buffer + p->at + length, "\r\n", 2) != 0)
            return resp_bad(p, "expected CR LF behind a bulk string");
        if (!resp_add(p, p->at, length))
            return RESP_NO_MEMORY;
        p->at += length + 2;
        p->has_bulk = false;
    }
    return RESP_REQUEST;
}

#endif
