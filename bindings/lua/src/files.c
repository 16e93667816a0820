/* Files and connections: reading, writing, closing. */

#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const lgs_kinds[] = {"file", "connection", "listener", "UDP socket"};

/* Closes a file. -EBADF: it was already closed. */
static int close_file(struct file *f)
{
    uint32_t before = atomic_load(&f->users);
    do {
        if (before & CLOSED)
            return -EBADF;
    } while (!atomic_compare_exchange_weak(&f->users, &before, before == 0 ? CLOSED : (before + 1) | CLOSED));
    if (before == 0)
        return gs_close(f->fd);
    /* The waiters return, and the last user closes the file: a waiter, or this call. So none of them meets the next file
       with this number. */
    if (f->kind != DISK)
        (void)gs_shutdown_fd(f->fd, SHUT_RDWR);
    return lgs_unuse(f);
}

/* ---- Files of bubbles ----

   The network of a bubble ends with its run, and the numbers of its sockets go to other files. So a socket that is
   left, or that others have by then, counts as closed. */

static _Atomic bool bubbles_locked; /* guards the lists of files of all bubbles */

static void join_bubble(struct bubble *b, struct file *f)
{
    lgs_spin_lock(&bubbles_locked);
    f->next = b->files;
    f->at = &b->files;
    if (f->next)
        f->next->at = &f->next;
    b->files = f;
    lgs_spin_unlock(&bubbles_locked);
}

static void unlink_file(struct file *f)
{
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    f->at = NULL;
}

static void leave_bubble(struct file *f)
{
    if (!f->shared.inside)
        return;
    lgs_spin_lock(&bubbles_locked);
    if (f->at)
        unlink_file(f);
    lgs_spin_unlock(&bubbles_locked);
}

void lgs_sweep_files(struct bubble *b, bool has_failed)
{
    lgs_spin_lock(&bubbles_locked);
    for (struct file *f; (f = b->files) != NULL;) {
        unlink_file(f);
        bool is_on_disk = f->kind == DISK;
        if (is_on_disk && !has_failed) /* what has it still has it by right */
            continue;
        bool was_closed = atomic_fetch_or(&f->users, CLOSED) & CLOSED;
        if (is_on_disk && !was_closed)
            close(f->fd); /* by a call that is no step; the library forgets the number with its next file */
    }
    lgs_spin_unlock(&bubbles_locked);
}

static void destroy_file(struct shared *s, struct shared **gone)
{
    (void)gone;
    struct file *f = (struct file *)s;
    leave_bubble(f);
    if (f->fd >= 0)
        close_file(f);
    free(f->data);
    free(f);
}

int lgs_push_closed(lua_State *L)
{
    lua_pushnil(L);
    lua_pushliteral(L, "closed");
    return 2;
}

struct file *lgs_check_kind(lua_State *L, int arg, enum kind kind)
{
    struct file *f = lgs_check_file(L, arg);
    if (f->kind != kind)
        luaL_argerror(L, arg, lua_pushfstring(L, "%s expected, got a %s", lgs_kinds[kind], lgs_kinds[f->kind]));
    return f;
}

struct file *lgs_check_stream(lua_State *L, int arg)
{
    struct file *f = lgs_check_file(L, arg);
    if (f->kind != DISK && f->kind != STREAM)
        luaL_argerror(L, arg, lua_pushfstring(L, "file or connection expected, got a %s", lgs_kinds[f->kind]));
    return f;
}

struct file *lgs_new_file(lua_State *L, enum kind kind)
{
    struct file *f = lgs_new(L, sizeof *f, LGS_FILE);
    f->kind = (uint8_t)kind;
    f->fd = -1;
    return f;
}

int lgs_made_file(lua_State *L, struct file *f, int fd)
{
    struct state *S = lgs_state(L);
    if (fd < 0)
        return lgs_fail(S, L, fd);
    f->fd = fd;
    if (S->bubble)
        join_bubble(S->bubble, f);
    ((struct box *)lua_touserdata(L, -1))->counted = true;
    S->open_files++;
    lgs_boxed(L);
    return 1;
}

/* ---- Reading ---- */

/* Waits for more data. > 0: there is more; 0: the end. Called with `reading` held. */
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

/* Reads into the state's scratch. Returns the length of the result, or an error. *end: nothing is left. */
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
            /* A read of 0 bytes tells whether a file is at its end. It doesn't wait for a connection. */
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
            return r; /* the bytes read stay for the next call */
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

int lgs_read_file(lua_State *L, struct file *f, enum what what, size_t n, gs_deadline deadline)
{
    struct state *S = lgs_state(L);
    bool end = false;
    if (!lgs_use(f))
        return lgs_push_closed(L);
    lgs_leave(S, false);
    ssize_t r = gs_mutex_lock(&f->reading, deadline);
    if (r == 0) {
        r = read_locked(S, f, what, n, deadline, &end);
        gs_mutex_unlock(&f->reading);
    }
    bool closed = lgs_is_closed(f);
    lgs_unuse(f);
    lgs_enter(S, false);
    if (r < 0 && !(closed && r != -ETIMEDOUT && r != -EAGAIN && !gs_cancelled()))
        return lgs_fail(S, L, (int)r);
    if (r < 0 || (end && closed))
        return lgs_push_closed(L);
    if (end && what != ALL) {
        lua_pushnil(L);
        return 1;
    }
    lua_pushlstring(L, S->scratch, (size_t)r);
    lgs_scratch_done(S);
    return 1;
}

/* Checks the optional format at arg, with the formats of Lua's own files. */
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
    struct file *f = lgs_check_stream(L, 1);
    enum what what = check_format(L, 2, &n);
    return lgs_read_file(L, f, what, n, lgs_deadline(L, 3));
}

/* The iterator that lines() returns. Upvalues: the state, the file, the format and the timeout. */
static int next_line(lua_State *L)
{
    size_t n;
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_pushvalue(L, lua_upvalueindex(4));
    struct file *f = lgs_check_stream(L, 1);
    enum what what = check_format(L, 2, &n);
    int results = lgs_read_file(L, f, what, n, lgs_deadline(L, 3));
    if (results >= 2 && lua_isnil(L, -results) && strcmp(lua_tostring(L, 1 - results), "closed") != 0)
        return luaL_error(L, "%s", lua_tostring(L, 1 - results));
    return results;
}

static int l_lines(lua_State *L)
{
    size_t n;
    lgs_check_stream(L, 1);
    check_format(L, 2, &n);
    lgs_deadline(L, 3);
    lua_settop(L, 3);
    lua_pushlightuserdata(L, lgs_state(L));
    lua_insert(L, 1);
    lua_pushcclosure(L, next_line, 4);
    return 1;
}

/* ---- Writing ---- */

/* Moves the file's position back over bytes read but not asked for. Called with `reading` held. */
static void step_back(struct file *f)
{
    if (f->kind == DISK && f->hi > f->lo && lseek(f->fd, -(off_t)(f->hi - f->lo), SEEK_CUR) >= 0)
        f->lo = f->hi = 0;
}

static int l_write(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = lgs_check_stream(L, 1);
    size_t n, done = 0;
    const char *text = luaL_checklstring(L, 2, &n);
    gs_deadline deadline = lgs_deadline(L, 3);
    if (!lgs_use(f))
        return lgs_push_closed(L);
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
    bool closed = lgs_is_closed(f);
    lgs_unuse(f);
    lgs_enter(S, false);
    if (r < 0 && closed && !gs_cancelled())
        return lgs_push_closed(L);
    if (r < 0)
        return lgs_fail(S, L, (int)r);
    lua_settop(L, 1);
    return 1;
}

static int l_close(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = lgs_check_file(L, 1);
    struct box *box = lua_touserdata(L, 1);
    S->open_files -= box->counted;
    box->counted = false;
    lgs_leave(S, false);
    int r = close_file(f);
    lgs_enter(S, false);
    return lgs_done(S, L, r == -EBADF ? 0 : r);
}

/* A to-be-closed variable's file may get an error as its second argument. */
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
    struct file *f = lgs_check_kind(L, 1, STREAM);
    int which = luaL_checkoption(L, 2, "write", names);
    if (!lgs_use(f))
        return lgs_push_closed(L);
    lgs_leave(lgs_state(L), false);
    int r = gs_shutdown_fd(f->fd, how[which]);
    bool closed = lgs_is_closed(f);
    lgs_unuse(f);
    lgs_enter(lgs_state(L), false);
    return r < 0 && closed ? lgs_push_closed(L) : lgs_done(lgs_state(L), L, r);
}

static int l_seek(lua_State *L)
{
    static const char *const names[] = {"set", "cur", "end", NULL};
    static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END};
    struct state *S = lgs_state(L);
    struct file *f = lgs_check_kind(L, 1, DISK);
    int which = luaL_checkoption(L, 2, "cur", names);
    lua_Integer offset = luaL_optinteger(L, 3, 0);
    off_t at = -1;
    if (!lgs_use(f))
        return lgs_push_closed(L);
    lgs_leave(S, false);
    int r = gs_mutex_lock(&f->reading, GS_FOREVER);
    if (r == 0) {
        step_back(f);
        at = lseek(f->fd, (off_t)offset, whence[which]);
        r = at < 0 ? -errno : 0;
        gs_mutex_unlock(&f->reading);
    }
    lgs_unuse(f);
    lgs_enter(S, false);
    if (r < 0)
        return lgs_fail(S, L, r);
    lua_pushinteger(L, at);
    return 1;
}

static int l_sync(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct file *f = lgs_check_kind(L, 1, DISK);
    if (!lgs_use(f))
        return lgs_push_closed(L);
    lgs_leave(S, false);
    int r = gs_fsync(f->fd, GS_FOREVER);
    lgs_unuse(f);
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
    struct file *f = lgs_new_file(L, DISK);
    f->appends = mode[0] == 'a';
    lgs_leave(S, false);
    int fd = gs_open(path, flags, 0666, GS_FOREVER);
    lgs_enter(S, false);
    if (fd < 0) {
        int n = lgs_made_file(L, f, fd);
        if (n == 3) { /* an error, as io.open returns it */
            lua_pushfstring(L, "%s: %s", path, lua_tostring(L, -2));
            lua_replace(L, -3);
        }
        return n;
    }
    return lgs_made_file(L, f, fd);
}

static int file_tostring(lua_State *L)
{
    struct file *f = lgs_check_file(L, 1);
    if (lgs_is_closed(f))
        lua_pushfstring(L, "%s (closed)", lgs_kinds[f->kind]);
    else
        lua_pushfstring(L, "%s (%p)", lgs_kinds[f->kind], (void *)f);
    return 1;
}

static const luaL_Reg file_meta[] = {{"__tostring", file_tostring}, {"__close", file_close}, {NULL, NULL}};
static const luaL_Reg file_methods[] = {
    {"read", l_read},   {"lines", l_lines}, {"write", l_write}, {"close", l_close}, {"shutdown", l_shutdown},
    {"seek", l_seek},   {"sync", l_sync},   {NULL, NULL}};
static const luaL_Reg functions[] = {{"open", l_open}, {NULL, NULL}};

void lgs_files_open(struct state *S, lua_State *L)
{
    lgs_metatable(S, L, LGS_FILE, destroy_file, file_meta, file_methods);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
}
