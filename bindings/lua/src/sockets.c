/* Sockets: connections, listeners, datagrams. */

#include "file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The most bytes of a datagram. */
#define DATAGRAM 65536

static uint16_t check_port(lua_State *L, int arg)
{
    lua_Integer port = luaL_checkinteger(L, arg);
    luaL_argcheck(L, port >= 0 && port <= 65535, arg, "a port from 0 to 65535 expected");
    return (uint16_t)port;
}

/* Pushes the address of a socket, as a host and a port. */
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

static int name_of(lua_State *L, bool peer)
{
    struct file *f = lgs_check_file(L, 1);
    struct sockaddr_storage a = {0};
    luaL_argcheck(L, f->kind != DISK, 1, "socket expected, got a file");
    if (!lgs_use(f))
        return lgs_push_closed(L);
    lgs_leave(lgs_state(L), false);
    int r = lgs_sockname(f->fd, peer, &a);
    bool closed = lgs_is_closed(f);
    lgs_unuse(f);
    lgs_enter(lgs_state(L), false);
    if (r < 0)
        return closed ? lgs_push_closed(L) : lgs_fail(lgs_state(L), L, r);
    return push_address(L, &a);
}

static int l_address(lua_State *L)
{
    return name_of(L, false);
}

static int l_peer(lua_State *L)
{
    return name_of(L, true);
}

static int tcp_listen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_optstring(L, 1, NULL);
    uint16_t port = check_port(L, 2);
    int backlog = (int)luaL_optinteger(L, 3, 0);
    struct file *f = lgs_new_file(L, LISTENER);
    lgs_leave(S, false);
    int fd = gs_tcp_listen(host, port, backlog);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

static int tcp_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_checkstring(L, 1);
    uint16_t port = check_port(L, 2);
    gs_deadline deadline = lgs_deadline(L, 3);
    struct file *f = lgs_new_file(L, STREAM);
    lgs_leave(S, false);
    int fd = gs_tcp_connect(host, port, deadline);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

static int unix_listen(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1);
    int backlog = (int)luaL_optinteger(L, 2, 0);
    struct file *f = lgs_new_file(L, LISTENER);
    lgs_leave(S, false);
    int fd = gs_unix_listen(path, backlog);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

static int unix_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1);
    gs_deadline deadline = lgs_deadline(L, 2);
    struct file *f = lgs_new_file(L, STREAM);
    lgs_leave(S, false);
    int fd = gs_unix_connect(path, deadline);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

static int l_accept(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *from = lgs_check_kind(L, 1, LISTENER);
    gs_deadline deadline = lgs_deadline(L, 2);
    struct file *f = lgs_new_file(L, STREAM);
    int fd = -ECANCELED, one = 1;
    bool closed = true;
    if (lgs_use(from)) {
        lgs_leave(S, false);
        fd = gs_accept(from->fd, NULL, NULL, deadline);
        closed = lgs_is_closed(from);
        lgs_unuse(from);
        lgs_enter(S, false);
    }
    if (fd < 0 && closed && !gs_cancelled())
        fd = -ECANCELED; /* "closed" */
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails for Unix sockets */
    return lgs_made_file(L, f, fd);
}

static int udp_bind(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_optstring(L, 1, NULL);
    uint16_t port = check_port(L, 2);
    struct file *f = lgs_new_file(L, DATAGRAMS);
    lgs_leave(S, false);
    int fd = gs_udp_bind(host, port);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

static int udp_connect(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *host = luaL_checkstring(L, 1);
    uint16_t port = check_port(L, 2);
    gs_deadline deadline = lgs_deadline(L, 3);
    struct file *f = lgs_new_file(L, DATAGRAMS);
    lgs_leave(S, false);
    int fd = gs_udp_connect(host, port, deadline);
    lgs_enter(S, false);
    return lgs_made_file(L, f, fd);
}

/* Whether a call has failed because the socket was closed meanwhile. If so, pushes the results. */
static bool was_closed(lua_State *L, bool closed, ssize_t r)
{
    if (!closed || gs_cancelled() || r > 0)
        return false;
    lgs_push_closed(L);
    return true;
}

/* A goroutine that waits for a datagram checks at this interval, in ns, whether the socket was closed.
   shutdown(2), which ends waits for a connection, leaves a UDP socket that doesn't block at EAGAIN. */
#define LOOK_EVERY (100 * 1000 * 1000)

static ssize_t receive(struct file *f, char *to, size_t n, struct sockaddr_storage *a, socklen_t *len, gs_deadline deadline)
{
    for (;;) {
        gs_deadline soon = gs_after_ns(LOOK_EVERY);
        /* In a bubble sockets never block the thread. */
        bool last = lgs_bubble_here() || (deadline != GS_FOREVER && deadline <= soon);
        *len = sizeof *a;
        ssize_t r = gs_recvfrom(f->fd, to, n, 0, (struct sockaddr *)a, len, last ? deadline : soon);
        if (r != -ETIMEDOUT || last || lgs_is_closed(f))
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

/* Pushes a datagram cut off after `most` bytes; with_sender: also the sender's host and port. */
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
    if (lgs_use(f)) {
        lgs_leave(S, false);
        r = lgs_scratch(S, most, false) ? receive(f, S->scratch, most, &a, &len, deadline) : -ENOMEM;
        closed = lgs_is_closed(f);
        lgs_unuse(f);
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
    return receive_datagram(L, lgs_check_kind(L, 1, DATAGRAMS), true);
}

/* recv([most[, timeout]]) of a file, a connection or a UDP socket */
static int l_recv(lua_State *L)
{
    struct file *f = lgs_check_file(L, 1);
    if (f->kind == DATAGRAMS)
        return receive_datagram(L, f, false);
    f = lgs_check_stream(L, 1);
    size_t most = check_most(L, 2, CHUNK);
    return lgs_read_file(L, f, SOME, most, lgs_deadline(L, 3));
}

/* Resolves host and port to an address for a socket, which may be an IPv6 socket that takes IPv4 too. *family:
   the socket's. */
static int resolve(int fd, const char *host, uint16_t port, gs_deadline deadline, struct sockaddr_storage *to, socklen_t *len,
                   int *family)
{
    struct sockaddr_storage own = {0};
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    char service[8];
    int r = lgs_sockname(fd, false, &own);
    if (r != 0)
        return r;
    hints.ai_family = *family = own.ss_family;
    hints.ai_flags = AI_NUMERICSERV | (own.ss_family == AF_INET6 ? AI_V4MAPPED | AI_ALL : 0);
    snprintf(service, sizeof service, "%u", port);
    r = gs_getaddrinfo(host, service, &hints, &found, deadline);
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
    struct file *f = lgs_check_kind(L, 1, DATAGRAMS);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    struct sockaddr_storage to;
    socklen_t len = 0;
    ssize_t r = -ECANCELED;
    int family = AF_UNSPEC;
    bool closed = true;
    if (lgs_use(f)) {
        lgs_leave(S, false);
        r = host ? resolve(f->fd, host, port, deadline, &to, &len, &family) : 0;
        if (r == 0)
            r = gs_sendto(f->fd, text, n, 0, len ? (struct sockaddr *)&to : NULL, len, deadline);
        closed = lgs_is_closed(f);
        lgs_unuse(f);
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

/* Further methods of files. */
static const luaL_Reg methods[] = {
    {"recv", l_recv},     {"accept", l_accept},     {"address", l_address}, {"peer", l_peer},
    {"sendto", l_sendto}, {"recvfrom", l_recvfrom}, {"send", l_send},       {NULL, NULL}};
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

void lgs_sockets_open(struct state *S, lua_State *L)
{
    lgs_methods(S, L, LGS_FILE, methods);
    add_table(S, L, "tcp", tcp);
    add_table(S, L, "udp", udp);
    add_table(S, L, "unix", local);
}
