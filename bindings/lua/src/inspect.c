/* gosched.trace, gosched.flight, gosched.dump, gosched.metrics: what a running program shows of itself. */

#include "lgs.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The trace or the flight recorder of the process. */
struct recorder {
    bool is_on; /* it was started by this object, and not ended */
    int fd;     /* of the trace's file, or -1 */
    int (*stop)(void);
};

static const char *const names[] = {"gosched.trace", "gosched.flight"};
enum which { TRACE, FLIGHT };

/* Pushes a new recorder, which has not begun. */
static struct recorder *new_recorder(lua_State *L, enum which which)
{
    struct recorder *r = lua_newuserdatauv(L, sizeof *r, 0);
    *r = (struct recorder){false, -1, which == TRACE ? gs_trace_stop : gs_flight_stop};
    luaL_setmetatable(L, names[which]);
    return r;
}

/* The results of a call that has given r: those of lgs_fail, with the file's name, or the recorder on top of the
   stack. */
static int begun(struct state *S, lua_State *L, int r, const char *path)
{
    if (r >= 0)
        return 1;
    int n = lgs_fail(S, L, r);
    if (n == 3 && path) { /* an error, as io.open returns it */
        lua_pushfstring(L, "%s: %s", path, lua_tostring(L, -2));
        lua_replace(L, -3);
    }
    return n;
}

/* Opens a file for writing; the caller is between lgs_leave and lgs_enter. */
static int create(const char *path)
{
    return gs_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, GS_FOREVER);
}

/* gosched.trace(path) */
static int l_trace(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *path = luaL_checkstring(L, 1);
    struct recorder *t = new_recorder(L, TRACE);
    lgs_leave(S, false);
    int r = gs_trace_start(-1); /* a trace that goes on may be in this file */
    if (r == -EBADF && (r = t->fd = create(path)) >= 0 && (r = gs_trace_start(t->fd)) < 0)
        gs_close(t->fd);
    lgs_enter(S, false);
    t->is_on = r >= 0;
    return begun(S, L, r, path);
}

/* Ends it. -EINVAL: it has ended. */
static int end(struct state *S, struct recorder *r)
{
    if (!r->is_on)
        return -EINVAL;
    r->is_on = false;
    lgs_leave(S, false);
    int e = r->stop();
    if (r->fd >= 0)
        gs_close(r->fd);
    lgs_enter(S, false);
    return e;
}

static int trace_stop(lua_State *L)
{
    struct state *S = lgs_state(L);
    return lgs_done(S, L, end(S, luaL_checkudata(L, 1, names[TRACE])));
}

static int trace_close(lua_State *L)
{
    end(lgs_state(L), luaL_checkudata(L, 1, names[TRACE]));
    return 0;
}

/* gosched.flight(seconds) */
static int l_flight(lua_State *L)
{
    struct state *S = lgs_state(L);
    gs_duration ns = lgs_seconds(L, 1);
    struct recorder *f = new_recorder(L, FLIGHT);
    lgs_leave(S, false);
    int r = gs_flight_start(ns);
    lgs_enter(S, false);
    f->is_on = r >= 0;
    return begun(S, L, r, NULL);
}

static int flight_write(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct recorder *f = luaL_checkudata(L, 1, names[FLIGHT]);
    const char *path = luaL_checkstring(L, 2);
    if (!f->is_on)
        return lgs_fail(S, L, -EINVAL);
    lgs_leave(S, false);
    int fd = create(path), r = fd;
    if (fd >= 0) {
        r = gs_flight_write(fd);
        gs_close(fd);
    }
    lgs_enter(S, false);
    if (r < 0)
        return begun(S, L, r, path);
    lua_pushboolean(L, 1);
    return 1;
}

static int flight_stop(lua_State *L)
{
    struct state *S = lgs_state(L);
    return lgs_done(S, L, end(S, luaL_checkudata(L, 1, names[FLIGHT])));
}

static int flight_close(lua_State *L)
{
    end(lgs_state(L), luaL_checkudata(L, 1, names[FLIGHT]));
    return 0;
}

/* Pushes the text that a function of the library writes; returns the number of results. */
static int push_text(lua_State *L, int (*write)(int))
{
    struct state *S = lgs_state(L);
    const char *text;
    lgs_leave(S, false);
    ssize_t n = lgs_text(S, write, &text);
    lgs_enter(S, false);
    if (n < 0)
        return lgs_fail(S, L, (int)n);
    lua_pushlstring(L, text, (size_t)n);
    lgs_scratch_done(S);
    return 1;
}

static int l_dump(lua_State *L)
{
    return push_text(L, gs_dump);
}

static int l_leaks(lua_State *L)
{
    return push_text(L, gs_leaks);
}

static int l_metrics(lua_State *L)
{
    return push_text(L, gs_stats_write);
}

static const luaL_Reg trace_methods[] = {{"stop", trace_stop}, {NULL, NULL}};
static const luaL_Reg flight_methods[] = {{"write", flight_write}, {"stop", flight_stop}, {NULL, NULL}};
static const luaL_Reg functions[] = {
    {"trace", l_trace}, {"flight", l_flight}, {"dump", l_dump}, {"leaks", l_leaks}, {"metrics", l_metrics},
    {NULL, NULL}};

static void make_metatable(struct state *S, lua_State *L, enum which which, const luaL_Reg *methods, lua_CFunction end)
{
    const luaL_Reg meta[] = {{"__close", end}, {"__gc", end}, {NULL, NULL}};
    luaL_newmetatable(L, names[which]);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, meta, 1);
    lua_newtable(L);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, methods, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void lgs_inspect_open(struct state *S, lua_State *L)
{
    make_metatable(S, L, TRACE, trace_methods, trace_close);
    make_metatable(S, L, FLIGHT, flight_methods, flight_close);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
}
