/* Files, sockets, processes. */

#include "lgs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A read asks the system for this number of bytes at least. */
#define CHUNK 16384
/* No datagram has more bytes than this. */
#define DATAGRAM 65536

enum kind { DISK, STREAM, LISTENER, DATAGRAMS };
static const char *const kinds[] = {"file", "connection", "listener", "UDP socket"};

/* A file or a socket. Goroutines may share it: reads take turns, and so do writes; close is allowed at any time. */
struct file {
    struct shared shared;
    uint8_t kind;
    bool appends;
    int fd;
    _Atomic uint32_t users; /* calls that use fd now, and CLOSED. The last one closes it */
    gs_mutex reading, writing;
    /* What was read and not yet asked for: from lo up to hi. `reading` guards it. */
    char *data;
    size_t lo, hi, size;
};

#define CLOSED (UINT32_C(1) << 31)

static bool use(struct file *f)
{
    uint32_t now = atomic_load(&f->users);
    do {
        if (now & CLOSED)
            return false;
    } while (!atomic_compare_exchange_weak(&f->users, &now, now + 1));
    return true;
}

static int unuse(struct file *f)
{
    return atomic_fetch_sub(&f->users, 1) == (CLOSED | 1) ? gs_close(f->fd) : 0;
}

/* -EBADF: it was closed before. */
static int close_file(struct file *f)
{
    uint32_t before = atomic_fetch_or(&f->users, CLOSED);
    if (before & CLOSED)
        return -EBADF;
    if (before == 0)
        return gs_close(f->fd);
    /* The waiters come back, and the last of them closes the file. No waiter meets a file that gets the number next. */
    if (f->kind != DISK)
        shutdown(f->fd, SHUT_RDWR);
    return 0;
}

void lgs_file_destroy(struct shared *s)
{
    struct file *f = (struct file *)s;
    if (f->fd >= 0)
        close_file(f);
    free(f->data);
    free(f);
}

/* The results of a call on a file that was closed. */
static int push_closed(lua_State *L)
{
    lua_pushnil(L);
    lua_pushliteral(L, "closed");
    return 2;
}

static bool is_closed(struct file *f)
{
    return atomic_load(&f->users) & CLOSED;
}

static struct file *check_file(lua_State *L, int arg)
{
    return lgs_check(L, arg, LGS_FILE);
}

static struct file *check_kind(lua_State *L, int arg, enum kind kind)
{
    struct file *f = check_file(L, arg);
    if (f->kind != kind)
        luaL_argerror(L, arg, lua_pushfstring(L, "%s expected, got a %s", kinds[kind], kinds[f->kind]));
    return f;
}

/* A file that data is read from and written to. */
static struct file *check_stream(lua_State *L, int arg)
{
    struct file *f = check_file(L, arg);
    if (f->kind != DISK && f->kind != STREAM)
        luaL_argerror(L, arg, lua_pushfstring(L, "file or connection expected, got a %s", kinds[f->kind]));
    return f;
}

/* Pushes a file that has no descriptor yet. */
static struct file *new_file(lua_State *L, enum kind kind)
{
    struct file *f = lgs_new(L, sizeof *f, LGS_FILE);
    f->kind = (uint8_t)kind;
    f->fd = -1;
    return f;
}

static int made_file(lua_State *L, struct file *f, int fd)
{
    struct state *S = lgs_state(L);
    if (fd < 0)
        return lgs_fail(S, L, fd);
    f->fd = fd;
    ((struct box *)lua_touserdata(L, -1))->counted = true;
    S->open_files++;
    lgs_boxed(L);
    return 1;
}

/* ---- Reading ---- */

/* What is read: at most n bytes, n bytes, a line (with its end), or all. */
enum what { SOME, BYTES, LINE, LINE_WITH_END, ALL };

/* Waits for more data. > 0: there is more; 0: the end. With `reading` held. */
static ssize_t fill(struct file *f, gs_deadline deadline)
{
    if (f->lo == f->hi)
        f->lo = f->hi = 0;
    if (f->size - f->hi < CHUNK / 2) {
        if (f->lo > 0) {
            memmove(f->data, f->data + f->lo, f->hi - f->lo);
            f->hi -= f->lo;
            f->lo = 0;
        }
        if (f->size - f->hi < CHUNK / 2) {
            size_t size = f->size ? f->size * 2 : CHUNK;
            char *more = realloc(f->data, size);
            if (!more)
                return -ENOMEM;
            f->data = more;
            f->size = size;
        }
    }
    ssize_t r = gs_read(f->fd, f->data + f->hi, f->size - f->hi, deadline);
    if (r > 0)
        f->hi += (size_t)r;
    return r;
}

/* The length of the result, which is in the state's scratch; or an error. *end: nothing is left. */
static ssize_t read_locked(struct state *S, struct file *f, enum what what, size_t n, gs_deadline deadline, bool *end)
{
    size_t looked = 0, want = 0, skip = 0;
    for (;;) {
        size_t have = f->hi - f->lo;
        bool enough = false;
        if (what == SOME) {
            enough = have > 0 || n == 0;
            want = have < n ? have : n;
        } else if (what == BYTES) {
            /* No bytes of a file are read to see whether it is at its end. A connection isn't waited for. */
            enough = have >= n && (n > 0 || have > 0 || f->kind != DISK);
            want = have < n ? have : n;
        } else if (what == ALL) {
            want = have;
        } else {
            char *nl = have > looked ? memchr(f->data + f->lo + looked, '\n', have - looked) : NULL;
            enough = nl != NULL;
            want = nl ? (size_t)(nl - (f->data + f->lo)) + 1 : have;
            skip = nl && what == LINE;
            looked = have;
        }
        ssize_t r = enough ? 1 : fill(f, deadline);
        if (r < 0)
            return r; /* what was read stays, for the next call */
        if (enough || r == 0) {
            *end = want == 0 && !enough;
            break;
        }
    }
    if (!lgs_scratch(S, want + 1, false))
        return -ENOMEM;
    if (want)
        memcpy(S->scratch, f->data + f->lo, want);
    f->lo += want;
    if (f->lo == f->hi && f->size > 8 * CHUNK) {
        free(f->data);
        f->data = NULL;
        f->lo = f->hi = f->size = 0;
    }
    return (ssize_t)(want - skip);
}

static int read_file(lua_State *L, struct file *f, enum what what, size_t n, gs_deadline deadline)
{
    struct state *S = lgs_state(L);
    bool end = false;
    if (!use(f))
        return push_closed(L);
    lgs_leave(S, false);
    ssize_t r = gs_mutex_lock(&f->reading, deadline);
    if (r == 0) {
        r = read_locked(S, f, what, n, deadline, &end);
        gs_mutex_unlock(&f->reading);
    }
    bool closed = is_closed(f);
    unuse(f);
    lgs_enter(S, false);
    if (r < 0 && !(closed && r != -ETIMEDOUT && r != -EAGAIN && !gs_cancelled()))
        return lgs_fail(S, L, (int)r);
    if (r < 0 || (end && closed))
        return push_closed(L);
    if (end && what != ALL) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushlstring(L, S->scratch, (size_t)r);
    lgs_scratch_done(S);
    return 1;
}

/* The optional format at arg, as those of Lua's own files. */
static enum what check_format(lua_State *L, int arg, size_t *n)
{
    *n = 0;
    if (lua_type(L, arg) == LUA_TNUMBER) {
        lua_Integer want = luaL_checkinteger(L, arg);
        luaL_argcheck(L, want >= 0, arg, "a number of bytes can't be negative");
        *n = (size_t)want;
        return BYTES;
    }
    const char *format = luaL_optstring(L, arg, "l");
    switch (format[0] == '*' ? format[1] : format[0]) {
    case 'l':
        return LINE;
    case 'L':
        return LINE_WITH_END;
    case 'a':
        return ALL;
    default:
        luaL_argerror(L, arg, "'l', 'L', 'a' or a number of bytes expected");
        return LINE;
    }
}

static int l_read(lua_State *L)
{
    size_t n;
    struct file *f = check_stream(L, 1);
    enum what what = check_format(L, 2, &n);
    return read_file(L, f, what, n, lgs_deadline(L, 3));
}

/* What lines() gives: upvalues are the state, the file, the format and the timeout. */
static int next_line(lua_State *L)
{
    size_t n;
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_pushvalue(L, lua_upvalueindex(4));
    struct file *f = check_stream(L, 1);
    enum what what = check_format(L, 2, &n);
    int results = read_file(L, f, what, n, lgs_deadline(L, 3));
    if (results >= 2 && lua_isnil(L, -results) && strcmp(lua_tostring(L, 1 - results), "closed") != 0)
        return luaL_error(L, "%s", lua_tostring(L, 1 - results));
    return results;
}

static int l_lines(lua_State *L)
{
    size_t n;
    check_stream(L, 1);
    check_format(L, 2, &n);
    lgs_deadline(L, 3);
    lua_settop(L, 3);
    lua_pushlightuserdata(L, lgs_state(L));
    lua_insert(L, 1);
    lua_pushcclosure(L, next_line, 4);
    return 1;
}

/* ---- Writing ---- */

/* The file's position is before what was read and not asked for. With `reading` held. */
static void step_back(struct file *f)
{
    if (f->kind == DISK && f->hi > f->lo && lseek(f->fd, -(off_t)(f->hi - f->lo), SEEK_CUR) >= 0)
        f->lo = f->hi = 0;
}

static int l_write(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = check_stream(L, 1);
    size_t n, done = 0;
    const char *text = luaL_checklstring(L, 2, &n);
    gs_deadline deadline = lgs_deadline(L, 3);
    if (!use(f))
        return push_closed(L);
    lgs_leave(S, false);
    ssize_t r = gs_mutex_lock(&f->writing, deadline);
    if (r == 0) {
        if (f->kind == DISK && (r = gs_mutex_lock(&f->reading, deadline)) == 0) {
            step_back(f);
            gs_mutex_unlock(&f->reading);
        }
        while (r >= 0 && done < n) {
            r = gs_write(f->fd, text + done, n - done, deadline);
            if (r > 0)
                done += (size_t)r;
        }
        gs_mutex_unlock(&f->writing);
    }
    bool closed = is_closed(f);
    unuse(f);
    lgs_enter(S, false);
    if (r < 0 && closed && !gs_cancelled())
        return push_closed(L);
    if (r < 0)
        return lgs_fail(S, L, (int)r);
    lua_settop(L, 1);
    return 1;
}

static int l_close(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = check_file(L, 1);
    struct box *box = lua_touserdata(L, 1);
    S->open_files -= box->counted;
    box->counted = false;
    lgs_leave(S, false);
    int r = close_file(f);
    lgs_enter(S, false);
    return lgs_done(S, L, r == -EBADF ? 0 : r);
}

/* A to-be-closed variable may be given an error as the second argument. */
static int file_close(lua_State *L)
{
    lua_settop(L, 1);
    l_close(L);
    return 0;
}

static int l_shutdown(lua_State *L)
{
    static const char *const names[] = {"write", "read", "both", NULL};
    static const int how[] = {SHUT_WR, SHUT_RD, SHUT_RDWR};
    struct file *f = check_kind(L, 1, STREAM);
    int which = luaL_checkoption(L, 2, "write", names);
    if (!use(f))
        return push_closed(L);
    int r = shutdown(f->fd, how[which]) != 0 ? -errno : 0;
    bool closed = is_closed(f);
    unuse(f);
    return r < 0 && closed ? push_closed(L) : lgs_done(lgs_state(L), L, r);
}

static int l_seek(lua_State *L)
{
    static const char *const names[] = {"set", "cur", "end", NULL};
    static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    struct state *S = lgs_state(L);
    struct file *f = check_kind(L, 1, DISK);
    int which = luaL_checkoption(L, 2, "cur", names);
    lua_Integer offset = luaL_optinteger(L, 3, 0);
    off_t at = -1;
    if (!use(f))
        return push_closed(L);
    lgs_leave(S, false);
    int r = gs_mutex_lock(&f->reading, GS_FOREVER);
    if (r == 0) {
        step_back(f);
        at = lseek(f->fd, (off_t)offset, whence[which]);
        r = at < 0 ? -errno : 0;
        gs_mutex_unlock(&f->reading);
    }
    unuse(f);
    lgs_enter(S, false);
    if (r < 0)
        return lgs_fail(S, L, r);
    lua_pushinteger(L, at);
    return 1;
}

static int l_sync(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = check_kind(L, 1, DISK);
    if (!use(f))
        return push_closed(L);
    lgs_leave(S, false);
    int r = gs_fsync(f->fd, GS_FOREVER);
    unuse(f);
    lgs_enter(S, false);
    return lgs_done(S, L, r);
}

static int l_open(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1), *mode = luaL_optstring(L, 2, "r");
    const char *m = mode + (mode[0] != '\0');
    bool plus = *m == '+';
    m += plus;
    m += *m == 'b';
    luaL_argcheck(L, mode[0] && strchr("rwa", mode[0]) && *m == '\0', 2, "invalid mode");
    int flags = plus ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
    flags |= mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
    struct file *f = new_file(L, DISK);
    f->appends = mode[0] == 'a';
    lgs_leave(S, false);
    int fd = gs_open(path, flags, 0666, GS_FOREVER);
    lgs_enter(S, false);
    if (fd < 0) {
        int n = made_file(L, f, fd);
        if (n == 3) { /* as io.open says it */
            lua_pushfstring(L, "%s: %s", path, lua_tostring(L, -2));
            lua_replace(L, -3);
        }
        return n;
    }
    return made_file(L, f, fd);
}

/* ---- Sockets ---- */

static uint16_t check_port(lua_State *L, int arg)
{
    lua_Integer port = luaL_checkinteger(L, arg);
    luaL_argcheck(L, port >= 0 && port <= 65535, arg, "a port from 0 to 65535 expected");
    return (uint16_t)port;
}

/* The address of a socket as a host and a port. */
static int push_address(lua_State *L, const struct sockaddr_storage *a)
{
    char host[INET6_ADDRSTRLEN];
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
    const struct sockaddr_in *four = (const struct sockaddr_in *)a;
    if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
        inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, host, sizeof host);
        lua_pushstring(L, host);
        lua_pushinteger(L, ntohs(six->sin6_port));
    } else if (a->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
        lua_pushstring(L, host);
        lua_pushinteger(L, ntohs(six->sin6_port));
    } else if (a->ss_family == AF_INET) {
        inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
        lua_pushstring(L, host);
        lua_pushinteger(L, ntohs(four->sin_port));
    } else {
        lua_pushliteral(L, "");
        lua_pushinteger(L, 0);
    }
    return 2;
}

static int name_of(lua_State *L, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct file *f = check_file(L, 1);
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    luaL_argcheck(L, f->kind != DISK, 1, "socket expected, got a file");
    if (!use(f))
        return push_closed(L);
    int r = get(f->fd, (struct sockaddr *)&a, &len) != 0 ? -errno : 0;
    bool closed = is_closed(f);
    unuse(f);
    if (r < 0)
        return closed ? push_closed(L) : lgs_fail(lgs_state(L), L, r);
    return push_address(L, &a);
}

static int l_address(lua_State *L)
{
    return name_of(L, getsockname);
}

static int l_peer(lua_State *L)
{
    return name_of(L, getpeername);
}

static int tcp_listen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_optstring(L, 1, NULL);
    uint16_t port = check_port(L, 2);
    int backlog = (int)luaL_optinteger(L, 3, 0);
    struct file *f = new_file(L, LISTENER);
    lgs_leave(S, false);
    int fd = gs_tcp_listen(host, port, backlog);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

static int tcp_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_checkstring(L, 1);
    uint16_t port = check_port(L, 2);
    gs_deadline deadline = lgs_deadline(L, 3);
    struct file *f = new_file(L, STREAM);
    lgs_leave(S, false);
    int fd = gs_tcp_connect(host, port, deadline);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

static int unix_listen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1);
    int backlog = (int)luaL_optinteger(L, 2, 0);
    struct file *f = new_file(L, LISTENER);
    lgs_leave(S, false);
    int fd = gs_unix_listen(path, backlog);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

static int unix_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1);
    gs_deadline deadline = lgs_deadline(L, 2);
    struct file *f = new_file(L, STREAM);
    lgs_leave(S, false);
    int fd = gs_unix_connect(path, deadline);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

static int l_accept(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *from = check_kind(L, 1, LISTENER);
    gs_deadline deadline = lgs_deadline(L, 2);
    struct file *f = new_file(L, STREAM);
    int fd = -ECANCELED, one = 1;
    bool closed = true;
    if (use(from)) {
        lgs_leave(S, false);
        fd = gs_accept(from->fd, NULL, NULL, deadline);
        closed = is_closed(from);
        unuse(from);
        lgs_enter(S, false);
    }
    if (fd < 0 && closed && !gs_cancelled())
        fd = -ECANCELED; /* "closed" */
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails for Unix sockets */
    return made_file(L, f, fd);
}

static int udp_bind(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_optstring(L, 1, NULL);
    uint16_t port = check_port(L, 2);
    struct file *f = new_file(L, DATAGRAMS);
    lgs_leave(S, false);
    int fd = gs_udp_bind(host, port);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

static int udp_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_checkstring(L, 1);
    uint16_t port = check_port(L, 2);
    gs_deadline deadline = lgs_deadline(L, 3);
    struct file *f = new_file(L, DATAGRAMS);
    lgs_leave(S, false);
    int fd = gs_udp_connect(host, port, deadline);
    lgs_enter(S, false);
    return made_file(L, f, fd);
}

/* Whether a call on a socket that was closed meanwhile has failed: says so. */
static bool was_closed(lua_State *L, bool closed, ssize_t r)
{
    if (!closed || gs_cancelled() || r > 0)
        return false;
    push_closed(L);
    return true;
}

/* A goroutine that waits for a datagram checks at this interval, in ns, whether the socket was closed.
   shutdown(2), which wakes waits for a connection, leaves a UDP socket that doesn't block at EAGAIN. */
#define LOOK_EVERY (100 * 1000 * 1000)

static ssize_t receive(struct file *f, char *to, size_t n, struct sockaddr_storage *a, socklen_t *len, gs_deadline deadline)
{
    for (;;) {
        gs_deadline soon = gs_after_ns(LOOK_EVERY);
        bool last = deadline != GS_FOREVER && deadline <= soon;
        *len = sizeof *a;
        ssize_t r = gs_recvfrom(f->fd, to, n, 0, (struct sockaddr *)a, len, last ? deadline : soon);
        if (r != -ETIMEDOUT || last || is_closed(f))
            return r;
    }
}

/* The optional number of bytes at arg. */
static size_t check_most(lua_State *L, int arg, size_t otherwise)
{
    lua_Integer n = luaL_optinteger(L, arg, (lua_Integer)otherwise);
    luaL_argcheck(L, n > 0, arg, "a number of bytes above 0 expected");
    return (size_t)n;
}

/* Pushes a datagram without the bytes beyond `most`, and with_sender: the sender's host and port. */
static int receive_datagram(lua_State *L, struct file *f, bool with_sender)
{
    struct state *S = lgs_state(L);
    size_t most = check_most(L, 2, DATAGRAM);
    gs_deadline deadline = lgs_deadline(L, 3);
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    ssize_t r = -ECANCELED;
    bool closed = true;
    if (most > DATAGRAM)
        most = DATAGRAM;
    if (use(f)) {
        lgs_leave(S, false);
        r = lgs_scratch(S, most, false) ? receive(f, S->scratch, most, &a, &len, deadline) : -ENOMEM;
        closed = is_closed(f);
        unuse(f);
        lgs_enter(S, false);
    }
    if (was_closed(L, closed, r))
        return 2;
    if (r < 0)
        return lgs_fail(S, L, (int)r);
    lua_pushlstring(L, S->scratch, (size_t)r);
    lgs_scratch_done(S);
    return with_sender ? 1 + push_address(L, &a) : 1;
}

/* datagram, host, port = u:recvfrom([most[, timeout]]) */
static int l_recvfrom(lua_State *L)
{
    return receive_datagram(L, check_kind(L, 1, DATAGRAMS), true);
}

/* recv([most[, timeout]]) of a file, a connection or a UDP socket */
static int l_recv(lua_State *L)
{
    struct file *f = check_file(L, 1);
    if (f->kind == DATAGRAMS)
        return receive_datagram(L, f, false);
    f = check_stream(L, 1);
    size_t most = check_most(L, 2, CHUNK);
    return read_file(L, f, SOME, most, lgs_deadline(L, 3));
}

/* The address of a host and a port for a socket, which may be one of IPv6 that takes both. *family: the socket's. */
static int resolve(int fd, const char *host, uint16_t port, gs_deadline deadline, struct sockaddr_storage *to, socklen_t *len,
                   int *family)
{
    struct sockaddr_storage own = {0};
    socklen_t own_len = sizeof own;
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    char service[8];
    if (getsockname(fd, (struct sockaddr *)&own, &own_len) != 0)
        return -errno;
    hints.ai_family = *family = own.ss_family;
    hints.ai_flags = AI_NUMERICSERV | (own.ss_family == AF_INET6 ? AI_V4MAPPED | AI_ALL : 0);
    snprintf(service, sizeof service, "%u", port);
    int r = gs_getaddrinfo(host, service, &hints, &found, deadline);
    if (r != 0)
        return r;
    memcpy(to, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

/* u:sendto(datagram, host, port[, timeout]) and u:send(datagram[, timeout]) */
static int send_datagram(lua_State *L, const char *host, uint16_t port, gs_deadline deadline)
{
    struct state *S = lgs_state(L);
    struct file *f = check_kind(L, 1, DATAGRAMS);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    struct sockaddr_storage to;
    socklen_t len = 0;
    ssize_t r = -ECANCELED;
    int family = AF_UNSPEC;
    bool closed = true;
    if (use(f)) {
        lgs_leave(S, false);
        r = host ? resolve(f->fd, host, port, deadline, &to, &len, &family) : 0;
        if (r == 0)
            r = gs_sendto(f->fd, text, n, 0, len ? (struct sockaddr *)&to : NULL, len, deadline);
        closed = is_closed(f);
        unuse(f);
        lgs_enter(S, false);
    }
    if (r < 0 && was_closed(L, closed, r))
        return 2;
    if (r < 0 && gs_eai((int)r) == EAI_ADDRFAMILY) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s is no address for this socket, which is one of %s", host, family == AF_INET6 ? "IPv6" : "IPv4");
        return 2;
    }
    return lgs_done(S, L, (int)r);
}

static int l_sendto(lua_State *L)
{
    const char *host = luaL_checkstring(L, 3);
    uint16_t port = check_port(L, 4);
    return send_datagram(L, host, port, lgs_deadline(L, 5));
}

static int l_send(lua_State *L)
{
    return send_datagram(L, NULL, 0, lgs_deadline(L, 3));
}

static int file_tostring(lua_State *L)
{
    struct file *f = check_file(L, 1);
    if (is_closed(f))
        lua_pushfstring(L, "%s (closed)", kinds[f->kind]);
    else
        lua_pushfstring(L, "%s (%p)", kinds[f->kind], (void *)f);
    return 1;
}

/* ---- Processes ---- */

/* The signals that are blocked in the program's main thread. The library's own threads block all signals. */
static sigset_t program_mask;

static int start_process(pid_t *pid, const char *file, char *const argv[], char *const envp[], const char *cwd,
                         const int fds[3])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    if ((r = posix_spawnattr_init(&attributes)) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -r;
    }
    for (int i = 0; i < 3 && r == 0; i++)
        if (fds[i] >= 0)
            r = posix_spawn_file_actions_adddup2(&actions, fds[i], i);
    if (r == 0 && cwd)
        r = posix_spawn_file_actions_addchdir_np(&actions, cwd);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setsigmask(&attributes, &program_mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (r == 0)
        r = posix_spawnp(pid, file, &actions, &attributes, argv, envp);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* One of the three pipes of a process, which a goroutine of its own serves. */
struct pump {
    int fd; /* our end; -1: there is none */
    bool writes;
    gs_g *g;
    const char *text; /* what is written */
    char *data;       /* what was read */
    size_t len, size;
    int error;
};

static void pump(void *arg)
{
    struct pump *p = arg;
    ssize_t r = 1;
    while (r > 0) {
        if (p->writes) {
            if (p->size == p->len)
                break;
            r = gs_write(p->fd, p->text + p->len, p->size - p->len, GS_FOREVER);
        } else {
            if (p->size - p->len < CHUNK / 2) {
                size_t size = p->size ? p->size * 2 : CHUNK;
                char *more = realloc(p->data, size);
                if (!more) {
                    r = -ENOMEM;
                    break;
                }
                p->data = more;
                p->size = size;
            }
            r = gs_read(p->fd, p->data + p->len, p->size - p->len, GS_FOREVER);
        }
        if (r > 0)
            p->len += (size_t)r;
    }
    /* A process need not read what it is given. */
    p->error = r < 0 && r != -EPIPE && r != -ECANCELED ? (int)r : 0;
    gs_close(p->fd);
    p->fd = -1;
}

struct process {
    struct pump pumps[3];
    int ends[3]; /* the process's */
    pid_t pid;
    int status;
};

static void close_ends(struct process *p)
{
    for (int i = 0; i < 3; i++) {
        if (p->ends[i] >= 0)
            close(p->ends[i]);
        p->ends[i] = -1;
    }
}

/* Runs a process until it has ended and its pipes are closed, or the deadline has passed: then it is killed. */
static int run_process(struct process *p, const char *file, char *const argv[], char *const envp[], const char *cwd,
                       gs_deadline deadline)
{
    int r = 0, fds[2];
    for (int i = 0; i < 3; i++)
        p->ends[i] = p->pumps[i].fd = -1;
    for (int i = 0; i < 3 && r == 0; i++) {
        if (pipe2(fds, O_CLOEXEC) != 0) {
            r = -errno;
            break;
        }
        p->pumps[i].writes = i == 0;
        p->ends[i] = fds[i != 0];
        p->pumps[i].fd = fds[i == 0];
    }
    if (r == 0)
        r = start_process(&p->pid, file, argv, envp, cwd, p->ends);
    close_ends(p);
    if (r != 0) {
        for (int i = 0; i < 3; i++)
            if (p->pumps[i].fd >= 0)
                close(p->pumps[i].fd);
        return r;
    }
    for (int i = 0; i < 3; i++) {
        int s = gs_spawn_with(pump, &p->pumps[i], NULL, &p->pumps[i].g);
        if (s != 0) {
            r = s;
            gs_close(p->pumps[i].fd);
        }
    }
    for (int i = 1; i < 3 && r == 0; i++)
        r = gs_join(p->pumps[i].g, deadline);
    if (r == 0)
        r = gs_waitpid(p->pid, &p->status, 0, deadline);
    bool ended = r > 0;
    gs_cancel_disable();
    if (!ended) {
        kill(p->pid, SIGKILL);
        gs_waitpid(p->pid, &p->status, 0, GS_FOREVER);
    }
    /* Its children may still have the pipes. */
    for (int i = 0; i < 3; i++) {
        if (p->pumps[i].g) {
            gs_cancel(p->pumps[i].g);
            gs_join(p->pumps[i].g, GS_FOREVER);
            gs_release(p->pumps[i].g);
        }
    }
    gs_cancel_enable();
    for (int i = 0; i < 3 && ended; i++)
        if (p->pumps[i].error)
            r = p->pumps[i].error;
    return r;
}

/* The strings of the list at index as argv, in a userdata that is pushed. */
static char **strings(lua_State *L, int index, const char *what)
{
    size_t n = (size_t)lua_rawlen(L, index);
    char **all = lgs_userdata(lgs_state(L), L, (n + 1) * sizeof *all, 0);
    for (size_t i = 0; i < n; i++) {
        if (lua_rawgeti(L, index, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "%s: string expected at %d, got %s", what, (int)i + 1, luaL_typename(L, -1));
        all[i] = (char *)lua_tostring(L, -1);
        if (strlen(all[i]) != lua_rawlen(L, -1))
            luaL_error(L, "%s: the string at %d has a zero byte", what, (int)i + 1);
        lua_pop(L, 1); /* the list keeps it */
    }
    all[n] = NULL;
    return all;
}

/* The environment with the changes in the table at index: a list of "NAME=value", pushed as strings() does. */
static char **environment(lua_State *L, int index)
{
    lua_newtable(L);
    int all = lua_gettop(L);
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (eq) {
            lua_pushlstring(L, *e, (size_t)(eq - *e));
            lua_pushstring(L, eq + 1);
            lua_rawset(L, all);
        }
    }
    lua_pushnil(L);
    while (lua_next(L, index)) {
        bool none = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
        if (lua_type(L, -2) != LUA_TSTRING || (lua_type(L, -1) != LUA_TSTRING && !none))
            luaL_error(L, "exec: 'env' is a table of names and strings (false: none)");
        if (lua_rawlen(L, -2) == 0 || strchr(lua_tostring(L, -2), '='))
            luaL_error(L, "exec: 'env' has no name '%s'", lua_tostring(L, -2));
        if (strlen(lua_tostring(L, -2)) != lua_rawlen(L, -2) || (!none && strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1)))
            luaL_error(L, "exec: the variable '%s' of 'env' has a zero byte", lua_tostring(L, -2));
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, all);
        lua_pop(L, 1);
    }
    lua_newtable(L);
    int list = lua_gettop(L);
    lua_Integer n = 0;
    lua_pushnil(L);
    while (lua_next(L, all)) {
        if (lua_type(L, -1) == LUA_TSTRING) {
            lua_pushfstring(L, "%s=%s", lua_tostring(L, -2), lua_tostring(L, -1));
            lua_rawseti(L, list, ++n);
        }
        lua_pop(L, 1);
    }
    return strings(L, list, "exec: env");
}

/* gosched.exec({"program", "argument"...}[, {stdin =, cwd =, env =, timeout =}]) */
static int l_exec(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct process p = {0};
    char **envp = environ;
    const char *cwd = NULL;
    gs_deadline deadline = GS_FOREVER;
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 2);
    char **argv = strings(L, 1, "exec");
    luaL_argcheck(L, argv[0] != NULL, 1, "it names no program");
    if (!lua_isnil(L, 2)) {
        luaL_checktype(L, 2, LUA_TTABLE);
        lua_pushnil(L);
        while (lua_next(L, 2)) {
            const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
            if (strcmp(key, "stdin") && strcmp(key, "cwd") && strcmp(key, "env") && strcmp(key, "timeout"))
                return luaL_error(L, "exec: unknown option '%s': there are stdin, cwd, env and timeout",
                                  luaL_tolstring(L, -2, NULL));
            lua_pop(L, 1);
        }
        if (lua_getfield(L, 2, "stdin") != LUA_TNIL) {
            if (lua_type(L, -1) != LUA_TSTRING)
                return luaL_error(L, "exec: 'stdin' is a string, got %s", luaL_typename(L, -1));
            p.pumps[0].text = lua_tolstring(L, -1, &p.pumps[0].size);
        }
        if (lua_getfield(L, 2, "cwd") != LUA_TNIL) {
            if (lua_type(L, -1) != LUA_TSTRING)
                return luaL_error(L, "exec: 'cwd' is a string, got %s", luaL_typename(L, -1));
            cwd = lua_tostring(L, -1);
            if (strlen(cwd) != lua_rawlen(L, -1))
                return luaL_error(L, "exec: 'cwd' has a zero byte");
        }
        if (lua_getfield(L, 2, "timeout") == LUA_TSTRING)
            return luaL_error(L, "exec: 'timeout' is a number of seconds, got string");
        deadline = lgs_timeout_option(L, "exec");
        if (lua_getfield(L, 2, "env") != LUA_TNIL) {
            if (!lua_istable(L, -1))
                return luaL_error(L, "exec: 'env' is a table, got %s", luaL_typename(L, -1));
            envp = environment(L, lua_gettop(L));
        }
    }
    lgs_leave(S, false);
    int r = run_process(&p, argv[0], argv, envp, cwd, deadline);
    lgs_enter(S, false);
    /* What was read is the state's now, in case Lua has no memory for it. */
    size_t out = p.pumps[1].len, err = p.pumps[2].len;
    bool kept = r >= 0 && lgs_scratch(S, out + err + 1, false);
    if (kept && out)
        memcpy(S->scratch, p.pumps[1].data, out);
    if (kept && err)
        memcpy(S->scratch + out, p.pumps[2].data, err);
    free(p.pumps[1].data);
    free(p.pumps[2].data);
    if (r < 0)
        return lgs_fail(S, L, r);
    if (!kept)
        return luaL_error(L, "not enough memory");
    lua_createtable(L, 0, 4);
    lua_pushlstring(L, S->scratch, out);
    lua_setfield(L, -2, "out");
    lua_pushlstring(L, S->scratch + out, err);
    lua_setfield(L, -2, "err");
    lgs_scratch_done(S);
    lua_pushinteger(L, WIFEXITED(p.status) ? WEXITSTATUS(p.status) : WTERMSIG(p.status));
    lua_setfield(L, -2, WIFEXITED(p.status) ? "code" : "signal");
    return 1;
}

/* ---- os.execute and io.popen of goroutines ----

   Lua's own would give the process the thread's signal mask, in which all signals are blocked, and block the thread in the wait. */

static int push_status(lua_State *L, int status)
{
    bool exited = WIFEXITED(status);
    int code = exited ? WEXITSTATUS(status) : WTERMSIG(status);
    if (exited && code == 0)
        lua_pushboolean(L, 1);
    else
        lua_pushnil(L);
    lua_pushstring(L, exited ? "exit" : "signal");
    lua_pushinteger(L, code);
    return 3;
}

static int os_execute(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *command = luaL_optstring(L, 1, NULL);
    if (!command) {
        lua_pushboolean(L, system(NULL));
        return 1;
    }
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    pid_t pid;
    int status = 0;
    lgs_leave(S, false);
    int r = start_process(&pid, "/bin/sh", argv, environ, NULL, (const int[3]){-1, -1, -1});
    if (r == 0 && (r = gs_waitpid(pid, &status, 0, GS_FOREVER)) < 0) {
        gs_cancel_disable();
        kill(pid, SIGKILL);
        gs_waitpid(pid, &status, 0, GS_FOREVER);
        gs_cancel_enable();
    }
    lgs_enter(S, false);
    if (r < 0)
        return lgs_fail(S, L, r);
    return push_status(L, status);
}

/* A file of io.popen's: what Lua's own functions for files expect, and the process behind it. */
struct popen_file {
    luaL_Stream stream;
    pid_t pid;
};

static int popen_close(lua_State *L)
{
    struct popen_file *p = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    struct state *S = lgs_state_of(L);
    int status = 0;
    lgs_leave(S, false);
    fclose(p->stream.f);
    int r = gs_waitpid(p->pid, &status, 0, GS_FOREVER);
    lgs_enter(S, false);
    return r < 0 ? lgs_fail(S, L, r) : push_status(L, status);
}

static int io_popen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *command = luaL_checkstring(L, 1), *mode = luaL_optstring(L, 2, "r");
    luaL_argcheck(L, (mode[0] == 'r' || mode[0] == 'w') && mode[1] == '\0', 2, "invalid mode");
    bool reads = mode[0] == 'r';
    struct popen_file *p = lua_newuserdatauv(L, sizeof *p, 0);
    p->stream.closef = NULL; /* closed, for now */
    p->stream.f = NULL;
    luaL_setmetatable(L, LUA_FILEHANDLE);
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)command, NULL};
    int fds[2], ends[3] = {-1, -1, -1};
    fflush(NULL);
    lgs_leave(S, false);
    int r = pipe2(fds, O_CLOEXEC) != 0 ? -errno : 0;
    if (r == 0) {
        ends[reads] = fds[reads];
        r = start_process(&p->pid, "/bin/sh", argv, environ, NULL, ends);
        close(fds[reads]);
        p->stream.f = r == 0 ? fdopen(fds[!reads], mode) : NULL;
        if (!p->stream.f)
            close(fds[!reads]);
    }
    lgs_enter(S, false);
    if (r == 0 && !p->stream.f)
        r = -ENOMEM;
    if (r < 0) {
        lgs_fail(S, L, r);
        lua_pushfstring(L, "%s: %s", command, lua_tostring(L, -2));
        lua_replace(L, -3);
        return 3;
    }
    p->stream.closef = popen_close;
    return 1;
}

void lgs_io_replace(struct state *S, lua_State *L)
{
    const struct {
        const char *library, *name;
        lua_CFunction f;
    } ours[] = {{"os", "execute", os_execute}, {"io", "popen", io_popen}};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        lua_getglobal(L, ours[i].library);
        lua_pushlightuserdata(L, S);
        lua_pushcclosure(L, ours[i].f, 1);
        lua_setfield(L, -2, ours[i].name);
        lua_pop(L, 1);
    }
}

/* ---- The module ---- */

static const luaL_Reg file_meta[] = {{"__tostring", file_tostring}, {"__close", file_close}, {NULL, NULL}};
static const luaL_Reg file_methods[] = {
    {"read", l_read},         {"recv", l_recv},       {"lines", l_lines}, {"write", l_write},   {"close", l_close},
    {"shutdown", l_shutdown}, {"seek", l_seek},       {"sync", l_sync},   {"accept", l_accept}, {"address", l_address},
    {"peer", l_peer},         {"recvfrom", l_recvfrom}, {"sendto", l_sendto}, {"send", l_send},  {NULL, NULL}};
static const luaL_Reg functions[] = {{"open", l_open}, {"exec", l_exec}, {NULL, NULL}};
static const luaL_Reg tcp[] = {{"listen", tcp_listen}, {"connect", tcp_connect}, {NULL, NULL}};
static const luaL_Reg udp[] = {{"bind", udp_bind}, {"connect", udp_connect}, {NULL, NULL}};
static const luaL_Reg local[] = {{"listen", unix_listen}, {"connect", unix_connect}, {NULL, NULL}};

static void add_table(struct state *S, lua_State *L, const char *name, const luaL_Reg *its)
{
    lua_newtable(L);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, its, 1);
    lua_setfield(L, -2, name);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note_mask(void)
{
    pthread_sigmask(SIG_SETMASK, NULL, &program_mask);
}

void lgs_io_open(struct state *S, lua_State *L)
{
    pthread_once(&once, note_mask);
    lgs_metatable(S, L, LGS_FILE, file_meta, file_methods);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
    add_table(S, L, "tcp", tcp);
    add_table(S, L, "udp", udp);
    add_table(S, L, "unix", local);
}
