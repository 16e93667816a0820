/*
 * http.h: the requests, ranges and dates of HTTP/1 that httpd.c understands. Nothing here knows of
 * goroutines or sockets.
 *
 * The parser takes a whole head (request line and fields) and is strict, because what two programs
 * read differently can be used to smuggle a request past one of them (RFC 9112, section 11):
 *
 *   - lines end with CR LF; no other control characters but tabs within a field's value
 *   - METHOD SP TARGET SP HTTP/d.d with exactly one space; the target is a path or an http:// URL
 *   - a field is NAME:VALUE, no space before the colon, not folded into a second line
 *   - HTTP/1.1 has one Host field; Content-Length is digits, once, and not beside
 *     Transfer-Encoding, which is chunked or not understood
 *   - the path: %XX once; no NUL, no slash and no '..' may come out of it
 *   - TARGET_MAX bytes of target, FIELDS_MAX fields, HEAD_MAX bytes in all
 */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { HEAD_MAX = 16 * 1024, TARGET_MAX = 8 * 1024, FIELDS_MAX = 100 };

/* The strings are in the head that was parsed, which is changed for them; NULL: not given. */
typedef struct request {
    bool head_only;        /* HEAD, not GET */
    const char *path;      /* decoded, without the slash at its beginning; "" is the root */
    bool keep_alive, expects_continue;
    bool chunked;          /* how the body comes, if there is one: */
    uint64_t body_length;
    const char *range, *if_range, *if_modified_since;
    bool has_if_none_match;
} request;

static const char *http_reason(int status)
{
    static const struct { int status; const char *reason; } reasons[] = {
        {200, "OK"}, {206, "Partial Content"}, {301, "Moved Permanently"}, {304, "Not Modified"},
        {400, "Bad Request"}, {403, "Forbidden"}, {404, "Not Found"},
        {405, "Method Not Allowed"}, {408, "Request Timeout"}, {413, "Content Too Large"},
        {414, "URI Too Long"}, {416, "Range Not Satisfiable"}, {417, "Expectation Failed"},
        {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
        {501, "Not Implemented"}, {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Error";
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The value of a hexadecimal digit, or -1. */
static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A character of a method's or field's name. */
static bool is_token_char(char c)
{
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_token(const char *text)
{
    const char *p = text;
    while (is_token_char(*p))
        p++;
    return p > text && *p == '\0';
}

/* Is the word in the comma-separated list? Upper and lower case are the same. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t length = strcspn(list, " \t,");
        if (length == n && strncasecmp(list, word, n) == 0)
            return true;
        list += length;
    }
    return false;
}

/* The number at *p, which is moved behind it; at most INT64_MAX. -1: there is no digit. */
static int64_t read_digits(const char **p)
{
    if (!is_digit(**p))
        return -1;
    int64_t n = 0;
    for (; is_digit(**p); ++*p)
        n = n > (INT64_MAX - 9) / 10 ? INT64_MAX : n * 10 + (**p - '0');
    return n;
}

/* The length of the head at the beginning of data: up to its empty line, or the first line that
 * might be meant as such. 0: it isn't there yet. */
static size_t http_head_length(const char *data, size_t n)
{
    for (const char *p = data; (p = memchr(p, '\n', n - (size_t)(p - data))) != NULL;) {
        p++;
        size_t left = n - (size_t)(p - data);
        if (left >= 1 && p[0] == '\n')
            return (size_t)(p + 1 - data);
        if (left >= 2 && p[0] == '\r' && p[1] == '\n')
            return (size_t)(p + 2 - data);
    }
    return 0;
}

/* Ends the line at *p with a NUL and moves *p to the next one. NULL if the line is malformed. */
static char *next_line(char **p, const char *end)
{
    char *line = *p;
    for (char *c = line; c < end; c++) {
        if (c[0] == '\r' && c + 1 < end && c[1] == '\n') {
            *c = '\0';
            *p = c + 2;
            return line;
        }
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return NULL;
    }
    return NULL;
}

/* Decodes a path in its place, up to the query. 0, or a status. */
static int decode_path(char *path)
{
    char *out = path, *segment = path;
    for (const char *p = path;; p++) {
        char c = *p == '?' ? '\0' : *p;
        if (c == '\0' || c == '/') {
            if (out - segment == 2 && memcmp(segment, "..", 2) == 0)
                return 403;
            *out++ = c;
            segment = out;
            if (c == '\0')
                return 0;
            continue;
        }
        if (c == '%') {
            int high = hex_digit(p[1]), low = high < 0 ? -1 : hex_digit(p[2]);
            if (low < 0)
                return 400;
            c = (char)(high << 4 | low);
            if (c == '\0' || c == '/')
                return 400;
            p += 2;
        } else if (c == '#') {
            return 400;
        }
        *out++ = c;
    }
}

static int parse_target(char *target, request *r)
{
    if (strlen(target) > TARGET_MAX)
        return 414;
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            return 400;
    if (strncasecmp(target, "http://", 7) == 0) {
        size_t host = strcspn(target + 7, "/?");
        if (host == 0)
            return 400;
        target += 7 + host;
    } else if (*target != '/') {
        return 400;
    }
    int status = decode_path(target);
    r->path = target + strspn(target, "/");
    return status;
}

/* 405: everything else may be parsed, so that the connection can go on. */
static int parse_method(const char *method, request *r)
{
    static const char *const others[] = {"POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE",
                                         "PATCH"};
    if (!is_token(method))
        return 400;
    r->head_only = strcmp(method, "HEAD") == 0;
    if (r->head_only || strcmp(method, "GET") == 0)
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(method, others[i]) == 0)
            return 405;
    return 501;
}

/* Sets *minor to the version's second number. */
static int parse_version(const char *version, int *minor)
{
    if (strncmp(version, "HTTP/", 5) != 0 || !is_digit(version[5]) || version[6] != '.' ||
        !is_digit(version[7]) || version[8] != '\0')
        return 400;
    *minor = version[7] - '0';
    return version[5] == '1' ? 0 : 505;
}

/* Parses the head of n bytes. 0, or the status that the request is to be answered with; after 405
 * all of *r is set but the path, otherwise the connection can't go on. */
static int http_parse(char *head, size_t n, request *r)
{
    const char *end = head + n;
    memset(r, 0, sizeof *r);
    char *line = next_line(&head, end);
    if (!line)
        return 400;
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return 400;
    *target++ = *version++ = '\0';

    int minor, status = parse_version(version, &minor);
    if (status != 0)
        return status;
    int method_status = parse_method(line, r);
    if (method_status != 0 && method_status != 405)
        return method_status;
    if (method_status == 0 && (status = parse_target(target, r)) != 0)
        return status;

    bool wants_close = false, wants_keep = false, has_length = false, has_host = false;
    for (int fields = 0; (line = next_line(&head, end)) != NULL && *line; fields++) {
        char *value = strchr(line, ':');
        if (!value)
            return 400;
        *value++ = '\0';
        if (!is_token(line))
            return 400;
        if (fields == FIELDS_MAX)
            return 431;
        value += strspn(value, " \t");
        size_t length = strlen(value);
        while (length > 0 && (value[length - 1] == ' ' || value[length - 1] == '\t'))
            value[--length] = '\0';

        if (strcasecmp(line, "Host") == 0) {
            if (has_host)
                return 400;
            has_host = true;
        } else if (strcasecmp(line, "Connection") == 0) {
            wants_close |= has_word(value, "close");
            wants_keep |= has_word(value, "keep-alive");
        } else if (strcasecmp(line, "Content-Length") == 0) {
            const char *p = value;
            int64_t number = read_digits(&p);
            if (has_length || number < 0 || *p)
                return 400;
            has_length = true;
            r->body_length = (uint64_t)number;
        } else if (strcasecmp(line, "Transfer-Encoding") == 0) {
            if (r->chunked || minor == 0)
                return 400;
            if (strcasecmp(value, "chunked") != 0)
                return 501;
            r->chunked = true;
        } else if (strcasecmp(line, "Expect") == 0) {
            if (strcasecmp(value, "100-continue") != 0)
                return 417;
            r->expects_continue = minor > 0;
        } else if (strcasecmp(line, "Range") == 0) {
            r->range = value;
        } else if (strcasecmp(line, "If-Range") == 0) {
            r->if_range = value;
        } else if (strcasecmp(line, "If-Modified-Since") == 0) {
            r->if_modified_since = value;
        } else if (strcasecmp(line, "If-None-Match") == 0) {
            r->has_if_none_match = true;
        }
    }
    if (!line || (minor > 0 && !has_host) || (r->chunked && has_length))
        return 400;
    r->keep_alive = !wants_close && (minor > 0 || wants_keep);
    return method_status;
}

/* What the Range field asks for of `size` bytes. 206: *first to *last, both included; 416: nothing
 * that there is; 200: all, because the field is not understood. */
static int http_range(const char *range, int64_t size, int64_t *first, int64_t *last)
{
    if (strncasecmp(range, "bytes=", 6) != 0)
        return 200;
    const char *p = range + 6;
    int64_t from = read_digits(&p);
    if (*p++ != '-')
        return 200;
    int64_t to = read_digits(&p);
    if (*p || (from < 0 && to < 0) || (to >= 0 && from > to))
        return 200;
    if (from < 0) { /* the last bytes, this many */
        *first = to < size ? size - to : 0;
        *last = size - 1;
        return to == 0 || size == 0 ? 416 : 206;
    }
    *first = from;
    *last = to < 0 || to >= size ? size - 1 : to;
    return from >= size ? 416 : 206;
}

enum { DATE_SIZE = 32 };

/* By hand: it is in every answer, and strftime takes as long as a system call. */
static void http_date(time_t time, char text[DATE_SIZE])
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm tm;
    if (!gmtime_r(&time, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
        gmtime_r(&(time_t){0}, &tm); /* the format has no such years */
    const int numbers[] = {tm.tm_mday, (tm.tm_year + 1900) / 100, (tm.tm_year + 1900) % 100, tm.tm_hour,
                           tm.tm_min, tm.tm_sec};
    static const size_t places[] = {5, 12, 14, 17, 20, 23};
    memcpy(text, "Day, 00 Mon 0000 00:00:00 GMT", 30);
    memcpy(text, days + 3 * tm.tm_wday, 3);
    memcpy(text + 8, months + 3 * tm.tm_mon, 3);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        text[places[i]] = (char)('0' + numbers[i] / 10);
        text[places[i] + 1] = (char)('0' + numbers[i] % 10);
    }
}

/* Reads a date in one of the three formats that there are. -1: it is none. */
static time_t http_parse_date(const char *text)
{
    static const char *const formats[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                          "%a %b %d %H:%M:%S %Y"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        struct tm tm = {0};
        const char *end = strptime(text, formats[i], &tm);
        if (end && *end == '\0')
            return timegm(&tm);
    }
    return -1;
}

#endif
