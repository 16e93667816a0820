/* Channels, select, mutexes, wait groups. */

#include "lgs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Channels ---- */

/* The kinds of channels, by elements. */
enum { VALUES, TIME, TICKS };

/* A channel's memory for lgs_charge, in bytes: its objects, and at most this much for the buffer, because a
 * larger buffer takes memory only as it is used. */
#define CHAN 256
#define CHAN_BUFFER (64 * 1024)

struct chan {
    struct shared shared;
    uint8_t kind;
    _Atomic bool ticks; /* a ticker that is not stopped */
    gs_timer *timer;    /* for TIME */
    gs_chan *ch;
};

/* An element of any kind of channel. */
union element {
    struct value v;
    int64_t time;
};

/* lgs_timers for the channel's timer. Those of bubbles don't count: the library finds the deadlocks there. */
static void count_timers(struct chan *c, int more)
{
    if (!c->shared.inside)
        lgs_timers(more);
}

static void stop_ticks(struct chan *c)
{
    if (atomic_exchange(&c->ticks, false)) {
        gs_ticker_stop(c->ch);
        count_timers(c, -1);
    }
}

static void destroy_chan(struct shared *s, struct shared **gone)
{
    struct chan *c = (struct chan *)s;
    if (c->timer) {
        gs_cancel_disable();
        /* When its bubble is over, the timer's function never goes on. */
        bool waits = !c->shared.inside || lgs_bubble_here();
        if ((waits ? gs_timer_stop_wait(c->timer, GS_FOREVER) : gs_timer_stop(c->timer)) == 1)
            count_timers(c, -1);
        gs_cancel_enable();
        gs_timer_free(c->timer);
    }
    if (c->ch) {
        stop_ticks(c);
        union element e;
        while (c->kind == VALUES && gs_chan_recv(c->ch, &e, GS_NOWAIT) == 0)
            lgs_drop_into(&e.v, gone);
        gs_chan_free(c->ch);
    }
    free(c);
}

static struct chan *check_chan(lua_State *L, int arg)
{
    return lgs_check(L, arg, LGS_CHAN);
}

/* Pushes a channel of the kind, without its gs_chan. */
static struct chan *new_chan(lua_State *L, int kind)
{
    struct chan *c = lgs_new(L, sizeof *c, LGS_CHAN);
    c->kind = (uint8_t)kind;
    return c;
}

static int made_chan(lua_State *L, struct chan *c)
{
    if (!c->ch)
        return luaL_error(L, "no channel: not enough memory");
    lgs_boxed(L);
    size_t buffer = gs_chan_cap(c->ch) * sizeof(struct value);
    lgs_charge(lgs_state(L), L, CHAN + (buffer < CHAN_BUFFER ? buffer : CHAN_BUFFER));
    return 1;
}

static int l_chan(lua_State *L)
{
    lua_Integer cap = luaL_optinteger(L, 1, 0);
    luaL_argcheck(L, cap >= 0 && cap <= 1 << 30, 1, "a capacity from 0 to 2^30 expected");
    struct chan *c = new_chan(L, VALUES);
    lgs_leave(lgs_state(L), false);
    c->ch = gs_chan_make(sizeof(struct value), (size_t)cap);
    lgs_enter(lgs_state(L), false);
    return made_chan(L, c);
}

/* The timer's function. */
static void fire(void *arg)
{
    struct chan *c = arg;
    int64_t now = gs_now();
    gs_chan_send(c->ch, &now, GS_NOWAIT);
    count_timers(c, -1);
}

/* gosched.after: not by gs_after, whose timers can't be counted. */
static int l_after(lua_State *L)
{
    gs_duration ns = lgs_seconds(L, 1);
    struct chan *c = new_chan(L, TIME);
    lgs_leave(lgs_state(L), false);
    c->ch = gs_chan_make(sizeof(int64_t), 1);
    if (c->ch) {
        count_timers(c, 1);
        c->timer = gs_timer_start(ns, fire, c);
        if (!c->timer) {
            count_timers(c, -1);
            gs_chan_free(c->ch);
            c->ch = NULL;
        }
    }
    lgs_enter(lgs_state(L), false);
    return made_chan(L, c);
}

static int l_every(lua_State *L)
{
    gs_duration ns = lgs_seconds(L, 1);
    luaL_argcheck(L, ns > 0, 1, "a time above 0 expected");
    struct chan *c = new_chan(L, TICKS);
    lgs_leave(lgs_state(L), false);
    c->ch = gs_ticker_start(ns);
    lgs_enter(lgs_state(L), false);
    if (c->ch) {
        atomic_store(&c->ticks, true);
        count_timers(c, 1);
    }
    return made_chan(L, c);
}

/* Checks the value to send, which can't be nil: receiving returns nil at the end. */
static void check_value(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg))
        luaL_argerror(L, arg, "nil can't be sent: it means the end to who receives");
}

static void check_sender(lua_State *L, struct chan *c, int arg)
{
    if (c->kind != VALUES)
        luaL_argerror(L, arg, "only its timer sends on this channel");
}

static int closed(lua_State *L)
{
    return luaL_error(L, "send on a closed channel");
}

static int l_send(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct chan *c = check_chan(L, 1);
    struct value v;
    check_sender(L, c, 1);
    check_value(L, 2);
    gs_deadline deadline = lgs_deadline(L, 3);
    lua_settop(L, 2);
    lgs_encode(S, L, 2, "value", &v);
    int r = S->bubble ? -EAGAIN : gs_chan_put(c->ch, &v); /* which is no step */
    if (r == -EAGAIN) {
        bool forever = deadline == GS_FOREVER;
        lgs_leave(S, forever);
        r = gs_chan_send(c->ch, &v, deadline);
        lgs_enter(S, forever);
    }
    if (r == 0) {
        lua_pushboolean(L, 1);
        return 1;
    }
    lgs_drop(&v);
    return r == -EPIPE ? closed(L) : lgs_fail(S, L, r);
}

/* Pushes a received element. */
static void push_element(struct state *S, lua_State *L, struct chan *c, union element *e)
{
    if (c->kind == VALUES)
        lgs_receive(S, L, &e->v);
    else
        lua_pushnumber(L, (lua_Number)e->time / 1e9);
}

static int receive(lua_State *L, struct chan *c, gs_deadline deadline)
{
    struct state *S = lgs_state(L);
    union element e;
    int r = S->bubble ? -EAGAIN : gs_chan_take(c->ch, &e); /* which is no step */
    if (r == -EAGAIN) {
        bool forever = deadline == GS_FOREVER;
        lgs_leave(S, forever);
        r = gs_chan_recv(c->ch, &e, deadline);
        lgs_enter(S, forever);
    }
    if (r == 0) {
        push_element(S, L, c, &e);
        return 1;
    }
    if (r == -EPIPE) {
        lua_pushnil(L);
        lua_pushliteral(L, "closed");
        return 2;
    }
    return lgs_fail(S, L, r);
}

static int l_recv(lua_State *L)
{
    struct chan *c = check_chan(L, 1);
    gs_deadline deadline = lgs_deadline(L, 2);
    lua_settop(L, 1);
    return receive(L, c, deadline);
}

/* for v in ch do */
static int chan_call(lua_State *L)
{
    return receive(L, check_chan(L, 1), GS_FOREVER);
}

static int l_close(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct chan *c = check_chan(L, 1);
    if (c->kind == TIME)
        return luaL_argerror(L, 1, "the channel of a timer can't be closed");
    lgs_leave(S, false);
    stop_ticks(c);
    int r = gs_chan_close(c->ch);
    lgs_enter(S, false);
    if (r == -EPIPE)
        return luaL_error(L, "close of a closed channel");
    return 0;
}

static int l_cap(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)gs_chan_cap(check_chan(L, 1)->ch));
    return 1;
}

static int chan_len(lua_State *L)
{
    struct chan *c = check_chan(L, 1);
    lgs_look(lgs_state(L));
    lua_pushinteger(L, (lua_Integer)gs_chan_len(c->ch));
    return 1;
}

static int chan_tostring(lua_State *L)
{
    struct chan *c = check_chan(L, 1);
    lua_pushfstring(L, "channel (%d of %d): %p", (int)gs_chan_len(c->ch), (int)gs_chan_cap(c->ch), (void *)c);
    return 1;
}

static const luaL_Reg chan_meta[] = {
    {"__call", chan_call}, {"__len", chan_len}, {"__tostring", chan_tostring}, {NULL, NULL}};
static const luaL_Reg chan_methods[] = {
    {"send", l_send}, {"recv", l_recv}, {"close", l_close}, {"cap", l_cap}, {NULL, NULL}};

/* ---- Select ---- */

/* The most cases that need no memory from the heap. */
#define FEW 8

struct cases {
    gs_case few[FEW], *all;
    union element few_elements[FEW], *elements;
    int n;
};

/* Frees the cases. Also called by the finalizer of a userdata with many cases. */
static void free_cases(struct cases *c, int but)
{
    for (int i = 0; i < c->n; i++)
        if (c->all[i].op == GS_SEND && i != but)
            lgs_drop(&c->elements[i].v);
    c->n = 0;
}

static int bad_case(lua_State *L, int i, const char *text)
{
    return luaL_error(L, "bad case %d of select (%s)", i, text);
}

struct selecting {
    struct cases c;
    struct state *S;
    int n; /* cases in the table */
};

/* Reads the table of cases at 2, each case once; called protected. Returns the channel of each case, or nil.
   Each channel is on the stack as soon as its case is read: a function of gosched.clone may change the table,
   and collect garbage. */
static int read_cases(lua_State *L)
{
    struct selecting *s = lua_touserdata(L, 1);
    struct cases *c = &s->c;
    luaL_checkstack(L, s->n + 20, "too many cases");
    for (int i = 0; i < s->n; i++) {
        gs_case *one = &c->all[i];
        *one = (gs_case){.op = GS_RECV, .elem = &c->elements[i]};
        c->n = i + 1;
        int type = lua_rawgeti(L, 2, i + 1);
        if (type == LUA_TBOOLEAN && !lua_toboolean(L, -1)) {
            one->ch = NULL; /* never ready */
            lua_pushnil(L);
        } else if (type == LUA_TTABLE) {
            if (lua_rawgeti(L, -1, 1) == LUA_TNIL)
                bad_case(L, i + 1, "it has no channel");
            struct box *box = luaL_testudata(L, -1, lgs_names[LGS_CHAN]);
            if (!box || !box->s)
                bad_case(L, i + 1, lua_pushfstring(L, "channel expected, got %s", luaL_typename(L, -1)));
            struct chan *ch = (struct chan *)box->s;
            if (ch->kind != VALUES)
                bad_case(L, i + 1, "only its timer sends on this channel");
            if (lua_rawgeti(L, -2, 2) == LUA_TNIL)
                bad_case(L, i + 1, "nil can't be sent");
            char what[40];
            snprintf(what, sizeof what, "case %d of select", i + 1);
            lgs_encode(s->S, L, -1, what, &c->elements[i].v);
            one->op = GS_SEND;
            one->ch = ch->ch;
            lua_pop(L, 1);
        } else {
            struct box *box = luaL_testudata(L, -1, lgs_names[LGS_CHAN]);
            if (!box || !box->s)
                bad_case(L, i + 1, lua_pushfstring(L, "channel, {channel, value} or false expected, got %s",
                                                   luaL_typename(L, -1)));
            one->ch = ((struct chan *)box->s)->ch;
        }
        lua_copy(L, -1, 3 + i); /* the channel is on top */
        lua_settop(L, 3 + i);
    }
    return s->n;
}

static int l_select(lua_State *L)
{
    struct selecting s;
    struct cases *c = &s.c;
    struct state *S = lgs_state(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Unsigned n = lua_rawlen(L, 1);
    luaL_argcheck(L, n <= 65536, 1, "at most 65,536 cases");
    lua_settop(L, 1);
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool is_case = lua_isinteger(L, -2) && (lua_Unsigned)lua_tointeger(L, -2) - 1 < n;
        if (!is_case && strcmp(key, "default") != 0 && strcmp(key, "timeout") != 0)
            return luaL_error(L, "select: unknown option '%s': there are default and timeout, and a list of cases",
                              luaL_tolstring(L, -2, NULL));
        lua_pop(L, 1);
    }
    bool by_default = lua_getfield(L, 1, "default") != LUA_TNIL && lua_toboolean(L, -1);
    lua_getfield(L, 1, "timeout");
    gs_deadline deadline = lgs_timeout_option(L, "select");
    if (by_default)
        deadline = GS_NOWAIT;
    lua_settop(L, 1);
    s.S = S;
    s.n = (int)n;
    c->n = 0;
    c->all = c->few;
    c->elements = c->few_elements;
    if (n > FEW) {
        c->all = lgs_userdata(S, L, n * sizeof *c->all, 0);
        c->elements = lgs_userdata(S, L, n * sizeof *c->elements, 0);
    }
    luaL_checkstack(L, (int)n + 20, "too many cases");
    int channels = lua_gettop(L) + 1;
    lua_pushcfunction(L, read_cases);
    lua_pushlightuserdata(L, &s);
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 2, (int)n, 0) != LUA_OK) {
        free_cases(c, -1);
        return lua_error(L);
    }
    bool forever = deadline == GS_FOREVER;
    lgs_leave(S, forever);
    int i = gs_select(c->all, (size_t)n, deadline);
    lgs_enter(S, forever);
    free_cases(c, i >= 0 && c->all[i].result == 0 ? i : -1);
    if (i < 0)
        return lgs_fail(S, L, i);
    if (c->all[i].op == GS_SEND) {
        if (c->all[i].result != 0)
            return closed(L);
        lua_pushinteger(L, i + 1);
        lua_pushboolean(L, 1);
        return 2;
    }
    lua_pushinteger(L, i + 1);
    if (c->all[i].result != 0) {
        lua_pushnil(L);
        lua_pushliteral(L, "closed");
        return 3;
    }
    push_element(S, L, check_chan(L, channels + i), &c->elements[i]);
    return 2;
}

/* ---- Mutexes ---- */

struct mutex {
    struct shared shared;
    gs_mutex m;
};

static void destroy_mutex(struct shared *s, struct shared **gone)
{
    (void)gone;
    free(s);
}

static struct mutex *check_mutex(lua_State *L)
{
    return lgs_check(L, 1, LGS_MUTEX);
}

static int l_mutex(lua_State *L)
{
    lgs_new(L, sizeof(struct mutex), LGS_MUTEX);
    lgs_boxed(L);
    return 1;
}

static int lock(lua_State *L, struct mutex *m, gs_deadline deadline)
{
    struct state *S = lgs_state(L);
    int r = S->bubble ? -EBUSY : gs_mutex_trylock(&m->m); /* which is no step */
    if (r != 0) {
        bool forever = deadline == GS_FOREVER;
        lgs_leave(S, forever);
        r = gs_mutex_lock(&m->m, deadline);
        lgs_enter(S, forever);
    }
    return r;
}

static int l_lock(lua_State *L)
{
    struct mutex *m = check_mutex(L);
    int r = lock(L, m, lgs_deadline(L, 2));
    return lgs_done(lgs_state(L), L, r);
}

static int l_trylock(lua_State *L)
{
    struct mutex *m = check_mutex(L);
    lgs_step(lgs_state(L));
    lua_pushboolean(L, gs_mutex_trylock(&m->m) == 0);
    return 1;
}

static int l_unlock(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct mutex *m = check_mutex(L);
    lgs_leave(S, false);
    int r = gs_mutex_unlock(&m->m);
    lgs_enter(S, false);
    if (r < 0)
        return luaL_error(L, "unlock of a mutex that isn't locked");
    return 0;
}

/* local held <close> = m:hold(): the value whose closing unlocks, once. Its user value is the mutex. */
static const char hold_name[] = "gosched.hold";

static int l_hold(lua_State *L)
{
    struct mutex *m = check_mutex(L);
    gs_deadline deadline = lgs_deadline(L, 2);
    bool *held = lgs_userdata(lgs_state(L), L, sizeof *held, 1);
    *held = false;
    luaL_setmetatable(L, hold_name);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    int r = lock(L, m, deadline);
    if (r < 0)
        return lgs_fail(lgs_state(L), L, r);
    *held = true;
    lgs_state(L)->held = true;
    return 1;
}

static int hold_close(lua_State *L)
{
    struct state *S = lgs_state(L);
    bool *held = luaL_checkudata(L, 1, hold_name);
    if (!*held)
        return 0;
    *held = false;
    lua_getiuservalue(L, 1, 1);
    struct box *box = lua_touserdata(L, -1);
    if (box && box->s) {
        lgs_leave(S, false);
        gs_mutex_unlock(&((struct mutex *)box->s)->m);
        lgs_enter(S, false);
    }
    return 0;
}

static const luaL_Reg no_meta[] = {{NULL, NULL}};
static const luaL_Reg mutex_methods[] = {
    {"lock", l_lock}, {"trylock", l_trylock}, {"unlock", l_unlock}, {"hold", l_hold}, {NULL, NULL}};

/* ---- Wait groups ---- */

static void destroy_waitgroup(struct shared *s, struct shared **gone)
{
    (void)gone;
    free(s);
}

static struct waitgroup *check_waitgroup(lua_State *L)
{
    return lgs_check(L, 1, LGS_WAITGROUP);
}

static int l_waitgroup(lua_State *L)
{
    lgs_new(L, sizeof(struct waitgroup), LGS_WAITGROUP);
    lgs_boxed(L);
    return 1;
}

static int add(lua_State *L, struct waitgroup *w, lua_Integer n)
{
    struct state *S = lgs_state(L);
    lgs_leave(S, false);
    int r = lgs_waitgroup_add(&w->shared, n);
    lgs_enter(S, false);
    if (r < 0)
        return luaL_error(L, "the wait group's counter would be negative or too large");
    return 0;
}

static int l_add(lua_State *L)
{
    struct waitgroup *w = check_waitgroup(L);
    return add(L, w, luaL_optinteger(L, 2, 1));
}

static int l_done(lua_State *L)
{
    return add(L, check_waitgroup(L), -1);
}

static int l_wait(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct waitgroup *w = check_waitgroup(L);
    gs_deadline deadline = lgs_deadline(L, 2);
    bool forever = deadline == GS_FOREVER;
    lgs_leave(S, forever);
    int r = gs_waitgroup_wait(&w->wg, deadline);
    lgs_enter(S, forever);
    return lgs_done(S, L, r);
}

static int l_wg_go(lua_State *L)
{
    struct waitgroup *w = check_waitgroup(L);
    return lgs_go(lgs_state(L), L, 2, &w->shared);
}

static const luaL_Reg waitgroup_methods[] = {
    {"add", l_add}, {"done", l_done}, {"wait", l_wait}, {"go", l_wg_go}, {NULL, NULL}};

static const luaL_Reg functions[] = {{"chan", l_chan},           {"after", l_after},   {"every", l_every},
                                     {"select", l_select},       {"mutex", l_mutex},
                                     {"waitgroup", l_waitgroup}, {NULL, NULL}};

void lgs_sync_open(struct state *S, lua_State *L)
{
    lgs_metatable(S, L, LGS_CHAN, destroy_chan, chan_meta, chan_methods);
    lgs_metatable(S, L, LGS_MUTEX, destroy_mutex, no_meta, mutex_methods);
    lgs_metatable(S, L, LGS_WAITGROUP, destroy_waitgroup, no_meta, waitgroup_methods);
    luaL_newmetatable(L, hold_name);
    lua_pushlightuserdata(L, S);
    lua_pushcclosure(L, hold_close, 1);
    lua_setfield(L, -2, "__close");
    lua_pop(L, 1);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
}
