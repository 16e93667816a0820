/*
 * httpd: a web server for the files of a directory, with a goroutine for each connection.
 *
 * HTTP/1.1 and 1.0: GET and HEAD, keep-alive, pipelining, ranges, If-Modified-Since, index.html or
 * a list of the directory. Nothing outside the directory is served: the kernel resolves each path
 * beneath it (openat2, Linux 5.6), whatever '..' or symbolic links are in it.
 *
 * It shows reads and writes with deadlines, so that slow clients hold up no other client and are ended;
 * system calls that may wait for a disk between gs_entersyscall and gs_exitsyscall, so that a slow
 * call holds up no other client either; and gs_blocking for a library function that may block for long, readdir.
 * With -m a Prometheus server can read at /metrics how the scheduler does (gs_stats_write). http.h parses, server.h
 * accepts and stops.
 *
 *   cc -std=c11 -O2 -Iinclude examples-c/httpd.c -Ltarget/release -lgosched \
 *      -Wl,-rpath,$PWD/target/release -o httpd
 *   ./httpd -p 8080 /usr/share/doc & curl -I http://127.0.0.1:8080/; kill $!
 *
 * It prints:
 *
 *   httpd: /usr/share/doc is at http://127.0.0.1:8080/
 *   HTTP/1.1 200 OK
 *   ...
 *   httpd: stopped: 0 connections open, 1 accepted, 1 requests, 0 bytes of files
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "http.h"
#include "server.h"

static const char help[] =
    "usage: httpd [-p PORT] [-b ADDRESS] [-t SECONDS] [-m] DIR\n"
    "Serves the files under DIR over HTTP.\n\n"
    "  -p PORT      listen on this port; 0: a free one, which is printed (8080)\n"
    "  -b ADDRESS   listen on this address (127.0.0.1); '' is all of this machine's\n"
    "  -t SECONDS   how long a client may take to send a request, to take 128 KiB of the answer,\n"
    "               or to come with the next request (15)\n"
    "  -m           answer /metrics with the scheduler's statistics, for Prometheus\n"
    "  -h, --help   print this\n\n"
    "Symbolic links are followed if they are relative and don't leave DIR.\n"
    "SIGTERM and SIGINT: it finishes what it is sending, for 5 s at most, then ends. SIGUSR1\n"
    "prints the numbers.\n\n"
    "Exit status: 0; 1 if DIR can't be opened or it can't listen; 2 for a wrong option.\n";

enum {
    SMALL = 16 * 1024,       /* files up to this are read and sent with the head, in one write */
    FILE_BLOCK = 128 * 1024, /* that a client takes within the limit */
    SEND_MAX = 1024 * 1024,  /* sent at a time */
    BODY_MAX = 1024 * 1024,  /* of a request, which is read and dropped */
    BODY_BLOCK = 4 * 1024,
};

static long limit_s = 15;
static bool has_metrics;
static int root;
static atomic_uint_fast64_t requests, file_bytes;

/* What a connection has read: in[0] up to head_length is the request being answered, in[next] up to
 * filled is what has come behind it. */
typedef struct client {
    int fd;
    bool keep;         /* another request may follow */
    bool head_only;
    size_t head_length, next, filled;
    char in[HEAD_MAX + BODY_BLOCK];
} client;

/* A file or directory that is open, or the status that says why it isn't. */
typedef struct opened { int fd, status; struct stat st; } opened;

/* Blocking system calls: see wordcount.c. Each gives a negative errno value for an error. */
#define SYSCALL static __attribute__((noinline))

static int open_beneath(const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve};
    long fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

SYSCALL int sys_open(const char *path)
{
    gs_entersyscall();
    int fd;
    do
        fd = open_beneath(path, 0);
    while (fd == -EAGAIN); /* something was renamed meanwhile */
    gs_exitsyscall();
    return fd;
}

SYSCALL ssize_t sys_sendfile(int to, int from, off_t *offset, size_t n)
{
    gs_entersyscall();
    ssize_t sent = sendfile(to, from, offset, n);
    ssize_t result = sent < 0 ? -errno : sent;
    gs_exitsyscall();
    return result;
}

/* Opens a path under the root. A FIFO is not waited for, a terminal not taken. What the kernel has
 * in memory it opens at once (Linux 5.12); what it must ask a disk for may block. */
static __attribute__((noinline)) int open_cached(const char *path)
{
    int fd = open_beneath(path, RESOLVE_CACHED);
    return fd == -EAGAIN || fd == -EINVAL ? sys_open(path) : fd;
}

static opened open_path(const char *path)
{
    opened o = {.status = 0};
    o.fd = open_cached(path);
    if (o.fd >= 0 && fstat(o.fd, &o.st) != 0) {
        close(o.fd);
        o.fd = -EIO;
    }
    switch (o.fd) {
    case -ENOENT: case -ENOTDIR: case -ENAMETOOLONG: o.status = 404; break;
    case -EACCES: case -EPERM: case -ELOOP: case -EXDEV: case -ENXIO: o.status = 403; break;
    case -EMFILE: case -ENFILE: case -ENOMEM: o.status = 503; break;
    default: o.status = o.fd < 0 ? 500 : 0;
    }
    if (o.status == 0 && !S_ISREG(o.st.st_mode) && !S_ISDIR(o.st.st_mode)) {
        close(o.fd);
        o.status = 403;
    }
    return o;
}

/* Appends to the text that ends at *end. */
static void append(char **end, const char *text)
{
    size_t n = strlen(text);
    memcpy(*end, text, n);
    *end += n;
}

static void append_number(char **end, uint64_t n)
{
    char digits[24], *at = digits + sizeof digits - 1;
    *at = '\0';
    do
        *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    append(end, at);
}

enum { FIELDS_SIZE = 1024, ANSWER_HEAD_MAX = FIELDS_SIZE + 256 };

/* Makes the head of an answer: its length. fields: lines of their own, each with its end, at most
 * FIELDS_SIZE. length: of what follows; -1: nothing can. */
static size_t make_head(client *c, char head[ANSWER_HEAD_MAX], int status, const char *fields, int64_t length)
{
    char date[DATE_SIZE], *end = head;
    http_date(time(NULL), date);
    if (the_server.stopping)
        c->keep = false;
    requests++;
    append(&end, "HTTP/1.1 ");
    append_number(&end, (uint64_t)status);
    append(&end, " ");
    append(&end, http_reason(status));
    append(&end, "\r\nDate: ");
    append(&end, date);
    append(&end, "\r\nServer: httpd\r\n");
    append(&end, fields);
    if (length >= 0) {
        append(&end, "Content-Length: ");
        append_number(&end, (uint64_t)length);
        append(&end, "\r\n");
    }
    append(&end, c->keep ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
    return (size_t)(end - head);
}

/* Sends the head of an answer. more: the rest follows at once. */
static int send_head(client *c, int status, const char *fields, int64_t length, bool more)
{
    char head[ANSWER_HEAD_MAX];
    size_t n = make_head(c, head, status, fields, length);
    return send_all(c->fd, head, n, more ? MSG_MORE : 0, after_s(limit_s));
}

/* An answer that is in memory. */
static int send_text(client *c, int status, const char *fields, const char *text, size_t n)
{
    char head[ANSWER_HEAD_MAX];
    size_t first = n < FILE_BLOCK ? n : FILE_BLOCK;
    struct iovec parts[2] = {{head, make_head(c, head, status, fields, (int64_t)n)},
                             {(void *)(uintptr_t)text, c->head_only ? 0 : first}};
    int err = send_parts(c->fd, parts, 2, after_s(limit_s));
    for (size_t at = first; err == 0 && at < n && !c->head_only;) {
        size_t part = n - at < FILE_BLOCK ? n - at : FILE_BLOCK;
        err = send_all(c->fd, text + at, part, 0, after_s(limit_s));
        at += part;
    }
    return err;
}

static int send_status(client *c, int status, const char *fields)
{
    char all[FIELDS_SIZE], text[64];
    snprintf(all, sizeof all, "Content-Type: text/plain\r\n%s", fields);
    snprintf(text, sizeof text, "%d %s\n", status, http_reason(status));
    return send_text(c, status, all, text, strlen(text));
}

/* Sends n bytes of a file. The socket doesn't block, the disk may. */
static int send_part(client *c, int file, off_t offset, int64_t n)
{
    int64_t deadline = after_s(limit_s), taken = 0;
    while (n > 0) {
        ssize_t sent = sys_sendfile(c->fd, file, &offset, (size_t)(n < SEND_MAX ? n : SEND_MAX));
        if (sent == -EAGAIN) {
            int events = gs_poll_fd(c->fd, POLLOUT, deadline);
            if (events < 0)
                return events;
            continue;
        }
        if (sent <= 0)
            return sent < 0 ? (int)sent : -EIO; /* -EIO: the file has become shorter */
        file_bytes += (uint64_t)sent;
        n -= sent;
        taken += sent;
        if (taken >= FILE_BLOCK) {
            taken = 0;
            deadline = after_s(limit_s);
        }
    }
    return 0;
}

/* A small file is read into memory: one write then does for head and file. */
static int send_small(client *c, int status, const char *fields, int file, off_t offset, size_t n)
{
    char bytes[SMALL];
    for (size_t there = 0; there < n;) {
        ssize_t got = gs_pread(file, bytes + there, n - there, offset + (off_t)there, GS_FOREVER);
        if (got <= 0)
            return send_status(c, 500, ""); /* it has become shorter, or can't be read */
        there += (size_t)got;
    }
    int err = send_text(c, status, fields, bytes, n);
    if (err == 0)
        file_bytes += n;
    return err;
}

static const char *content_type(const char *path)
{
    static const char *const types[][2] = {
        {"html", "text/html; charset=utf-8"}, {"htm", "text/html; charset=utf-8"},
        {"css", "text/css; charset=utf-8"}, {"js", "text/javascript; charset=utf-8"},
        {"txt", "text/plain; charset=utf-8"}, {"md", "text/plain; charset=utf-8"},
        {"c", "text/plain; charset=utf-8"}, {"h", "text/plain; charset=utf-8"},
        {"json", "application/json"}, {"xml", "application/xml"}, {"pdf", "application/pdf"},
        {"wasm", "application/wasm"}, {"gz", "application/gzip"}, {"zip", "application/zip"},
        {"png", "image/png"}, {"jpg", "image/jpeg"}, {"jpeg", "image/jpeg"},
        {"gif", "image/gif"}, {"svg", "image/svg+xml"}, {"ico", "image/x-icon"},
        {"webp", "image/webp"}, {"mp4", "video/mp4"}, {"mp3", "audio/mpeg"},
        {"woff2", "font/woff2"}};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof types[0]; i++)
        if (strcasecmp(dot + 1, types[i][0]) == 0)
            return types[i][1];
    return "application/octet-stream";
}

static int send_file(client *c, const request *r, const char *path, const opened *file)
{
    int64_t size = file->st.st_size, first = 0, last = size - 1;
    time_t modified = file->st.st_mtim.tv_sec;
    char fields[512], date[DATE_SIZE], range[80] = "";
    http_date(modified, date);

    if (r->if_modified_since && !r->has_if_none_match) {
        time_t since = http_parse_date(r->if_modified_since);
        if (since != -1 && modified <= since) {
            snprintf(fields, sizeof fields, "Last-Modified: %s\r\n", date);
            return send_head(c, 304, fields, -1, false);
        }
    }
    int status = 200;
    if (r->range && !r->head_only && (!r->if_range || strcmp(r->if_range, date) == 0))
        status = http_range(r->range, size, &first, &last);
    if (status == 416) {
        snprintf(fields, sizeof fields, "Content-Range: bytes */%" PRId64 "\r\n", size);
        return send_status(c, 416, fields);
    }
    if (status == 206)
        snprintf(range, sizeof range,
                 "Content-Range: bytes %" PRId64 "-%" PRId64 "/%" PRId64 "\r\n", first, last, size);
    char *end = fields;
    append(&end, "Content-Type: ");
    append(&end, content_type(path));
    append(&end, "\r\nLast-Modified: ");
    append(&end, date);
    append(&end, "\r\nAccept-Ranges: bytes\r\n");
    append(&end, range);
    *end = '\0';
    int64_t length = last - first + 1;
    bool sends = length > 0 && !r->head_only;
    if (sends && length <= SMALL)
        return send_small(c, status, fields, file->fd, first, (size_t)length);
    int err = send_head(c, status, fields, length, sends);
    return err == 0 && sends ? send_part(c, file->fd, first, length) : err;
}

/* For HTML. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: putc(*text, out);
        }
    }
}

/* For a URL. */
static void print_encoded(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char ch = (unsigned char)*text;
        if (is_digit(*text) || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') || strchr("-._~", ch))
            putc(ch, out);
        else
            fprintf(out, "%%%02X", ch);
    }
}

/* A directory as a page. fd is closed. */
typedef struct listing { int fd; const char *path; char *text; size_t size; int err; } listing;

static int not_dot(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0;
}

/* Runs in gs_blocking: on the thread's own stack, and without the P. */
static void *list_directory(void *arg)
{
    listing *l = arg;
    struct dirent **entries;
    int n = scandirat(l->fd, ".", &entries, not_dot, alphasort);
    if (n < 0) {
        l->err = errno;
        close(l->fd);
        return NULL;
    }
    FILE *page = open_memstream(&l->text, &l->size);
    if (page) {
        fputs("<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>/", page);
        print_escaped(page, l->path);
        fputs("</title>\n<h1>/", page);
        print_escaped(page, l->path);
        fputs("</h1>\n<ul>\n", page);
    }
    for (int i = 0; i < n; i++) {
        struct stat st;
        const char *name = entries[i]->d_name;
        bool is_dir = entries[i]->d_type == DT_DIR;
        if (entries[i]->d_type == DT_LNK || entries[i]->d_type == DT_UNKNOWN)
            is_dir = fstatat(l->fd, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
        if (page && (*l->path || strcmp(name, "..") != 0)) {
            fputs("<li><a href=\"./", page);
            print_encoded(page, name);
            fputs(is_dir ? "/\">" : "\">", page);
            print_escaped(page, name);
            fputs(is_dir ? "/</a>\n" : "</a>\n", page);
        }
        free(entries[i]);
    }
    free(entries);
    if (page)
        fputs("</ul>\n", page);
    if (!page || ferror(page) | fclose(page))
        l->err = ENOMEM;
    close(l->fd);
    return NULL;
}

/* Takes over dir->fd. */
static int send_listing(client *c, const char *path, const opened *dir)
{
    listing l = {.fd = dir->fd, .path = path};
    gs_blocking(list_directory, &l);
    int err = l.err ? send_status(c, l.err == EMFILE || l.err == ENOMEM ? 503 : 500, "")
                    : send_text(c, 200, "Content-Type: text/html; charset=utf-8\r\n", l.text,
                                l.size);
    free(l.text);
    return err;
}

/* Sends the client to the directory's name with a slash, from where relative links go into it. */
static int send_slash(client *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *field = NULL;
    size_t size;
    FILE *out = open_memstream(&field, &size);
    if (!out)
        return send_status(c, 503, "");
    fputs("Location: ./", out);
    print_encoded(out, slash ? slash + 1 : path);
    fputs("/\r\n", out);
    fclose(out);
    int err = send_status(c, 301, field);
    free(field);
    return err;
}

static int send_directory(client *c, const request *r, const opened *dir)
{
    size_t n = strlen(r->path);
    if (n > 0 && r->path[n - 1] != '/') {
        close(dir->fd);
        return send_slash(c, r->path);
    }
    char index[TARGET_MAX + 16];
    snprintf(index, sizeof index, "%sindex.html", r->path);
    opened file = open_path(index);
    if (file.status == 404)
        return send_listing(c, r->path, dir);
    close(dir->fd);
    if (file.status != 0)
        return send_status(c, file.status, "");
    int err = S_ISREG(file.st.st_mode) ? send_file(c, r, index, &file) : send_status(c, 403, "");
    close(file.fd);
    return err;
}

/* The statistics as OpenMetrics text. */
static int send_metrics(client *c)
{
    static const char type[] = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    int file = memfd_create("metrics", MFD_CLOEXEC), err;
    off_t size = file >= 0 && gs_stats_write(file) == 0 ? lseek(file, 0, SEEK_CUR) : -1;
    if (size < 0)
        err = send_status(c, 503, "");
    else if ((err = send_head(c, 200, type, size, !c->head_only)) == 0 && !c->head_only)
        err = send_part(c, file, 0, size);
    if (file >= 0)
        close(file);
    return err;
}

static int send_answer(client *c, const request *r)
{
    if (has_metrics && strcmp(r->path, "metrics") == 0)
        return send_metrics(c);
    opened o = open_path(r->path);
    if (o.status != 0)
        return send_status(c, o.status, o.status == 503 ? "Retry-After: 1\r\n" : "");
    if (S_ISDIR(o.st.st_mode))
        return send_directory(c, r, &o);
    int err = send_file(c, r, r->path, &o);
    close(o.fd);
    return err;
}

/* Reads what there is behind the head, if all of it is used up. Above 0, or the status. */
static int more_body(client *c, int64_t deadline)
{
    if (c->next < c->filled)
        return 1;
    c->next = c->filled = c->head_length;
    ssize_t n = gs_read(c->fd, c->in + c->filled, sizeof c->in - c->filled, deadline);
    if (n <= 0)
        return n == -ETIMEDOUT ? -408 : -400;
    c->filled += (size_t)n;
    return 1;
}

static int skip(client *c, uint64_t n, int64_t deadline)
{
    while (n > 0) {
        int status = more_body(c, deadline);
        if (status < 0)
            return -status;
        size_t there = c->filled - c->next;
        there = there < n ? there : (size_t)n;
        c->next += there;
        n -= there;
    }
    return 0;
}

/* Reads a line of a chunked body, without its end. Longer ones than there is room for: 400. */
static int body_line(client *c, char *line, size_t size, int64_t deadline)
{
    for (size_t n = 0;;) {
        int status = more_body(c, deadline);
        if (status < 0)
            return -status;
        char ch = c->in[c->next++];
        if (ch == '\n') {
            if (n == 0 || line[n - 1] != '\r')
                return 400;
            line[n - 1] = '\0';
            return 0;
        }
        if (n + 1 == size)
            return 400;
        line[n++] = ch;
    }
}

/* Chunks are a line with their size in hexadecimal, the data and an empty line; the last is of size
 * 0, and fields may follow it. */
static int skip_chunks(client *c, int64_t deadline)
{
    char line[256];
    for (uint64_t left = BODY_MAX;;) {
        int status = body_line(c, line, sizeof line, deadline), digits = 0;
        if (status != 0)
            return status;
        uint64_t size = 0;
        for (; hex_digit(line[digits]) >= 0; digits++)
            if ((size = size * 16 + (uint64_t)hex_digit(line[digits])) > left)
                return 413;
        if (digits == 0 || (line[digits] && !strchr("; \t", line[digits])))
            return 400;
        if (size == 0)
            break;
        left -= size;
        if ((status = skip(c, size, deadline)) != 0 ||
            (status = body_line(c, line, sizeof line, deadline)) != 0)
            return status;
        if (*line)
            return 400;
    }
    for (int fields = 0; fields <= FIELDS_MAX; fields++) {
        int status = body_line(c, line, sizeof line, deadline);
        if (status != 0 || *line == '\0')
            return status;
    }
    return 431;
}

/* A request may have a body, which means nothing here but has to be out of the way. */
static int skip_body(client *c, const request *r)
{
    if (r->body_length > BODY_MAX)
        return 413;
    if (!r->chunked && r->body_length == 0)
        return 0;
    int64_t deadline = after_s(limit_s);
    if (r->expects_continue && c->next == c->filled) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (send_all(c->fd, go_on, sizeof go_on - 1, 0, deadline) != 0)
            return 400;
    }
    return r->chunked ? skip_chunks(c, deadline) : skip(c, r->body_length, deadline);
}

/* Reads until a head is there. 0; the status of a bad one; -1: there won't be another request. */
static int read_head(client *c)
{
    memmove(c->in, c->in + c->next, c->filled - c->next);
    c->filled -= c->next;
    c->next = 0;
    int64_t deadline = after_s(limit_s);
    for (;;) {
        /* Empty lines before a request don't count. */
        size_t empty = 0;
        while (c->filled - empty >= 2 && memcmp(c->in + empty, "\r\n", 2) == 0)
            empty += 2;
        memmove(c->in, c->in + empty, c->filled - empty);
        c->filled -= empty;

        c->head_length = http_head_length(c->in, c->filled);
        if (c->head_length > HEAD_MAX || (c->head_length == 0 && c->filled >= HEAD_MAX))
            return memchr(c->in, '\n', HEAD_MAX) ? 431 : 414;
        if (c->head_length > 0)
            return 0;
        bool waiting = c->filled == 0;
        ssize_t n = gs_read(c->fd, c->in + c->filled, sizeof c->in - c->filled, deadline);
        if (n <= 0)
            return !waiting && n == -ETIMEDOUT ? 408 : -1;
        if (waiting) /* the whole head must come within the limit, however small its pieces */
            deadline = after_s(limit_s);
        c->filled += (size_t)n;
    }
}

/* Answers one request. False: the connection is to be ended. */
static bool answer(client *c)
{
    request r = {.head_only = false};
    c->keep = c->head_only = false;
    int status = read_head(c);
    if (status < 0)
        return false;
    if (status == 0) {
        status = http_parse(c->in, c->head_length, &r);
        c->next = c->head_length;
        c->head_only = r.head_only;
    }
    if (status == 0 || (status == 405 && !r.expects_continue)) {
        int body = skip_body(c, &r);
        if (body == 0)
            c->keep = r.keep_alive;
        else
            status = body;
    }
    int err = status == 0 ? send_answer(c, &r)
                          : send_status(c, status, status == 405 ? "Allow: GET, HEAD\r\n" : "");
    return err == 0 && c->keep && !the_server.stopping;
}

static void serve(connection *connection)
{
    client c;
    c.fd = connection->fd;
    c.next = c.filled = 0;
    while (answer(&c))
        ;
    linger(c.fd);
}

static const char *directory;

static void greet(const char *address)
{
    printf("httpd: %s is at http://%s/\n", directory, address);
}

static void print_requests(void)
{
    printf(", %" PRIu64 " requests, %" PRIu64 " bytes of files", (uint64_t)requests,
           (uint64_t)file_bytes);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    the_server = (server){.name = "httpd", .host = "127.0.0.1", .port = 8080,
                          .greet = greet, .serve = serve, .print_more = print_requests};
    for (int c; (c = getopt_long(argc, argv, "p:b:t:mh", longs, NULL)) != -1;) {
        switch (c) {
        case 'p': the_server.port = (uint16_t)number('p', optarg, 0, 65535); break;
        case 'b': the_server.host = optarg; break;
        case 't': limit_s = number('t', optarg, 1, 1000 * 1000); break;
        case 'm': has_metrics = true; break;
        case 'h': fputs(help, stdout); return 0;
        default: fprintf(stderr, "Try 'httpd --help'.\n"); return 2;
        }
    }
    if (optind == argc)
        misuse("no directory given");
    if (argc - optind > 1)
        misuse("one DIR, not %d", argc - optind);
    directory = argv[optind];
    root = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        fail(directory, strerror(errno));
    server_run();
    close(root);
    return 0;
}
