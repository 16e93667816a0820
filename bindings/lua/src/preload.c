/* package.preload: goroutines find the modules that the program has put there.

   A state writes out the functions once and gives that list to all goroutines that it starts, until its
   package.preload has other functions. A goroutine's state gets stand-ins, each of which reads its function
   when `require` calls it. */

#include "lgs.h"

#include <stdlib.h>
#include <string.h>

/* A function of package.preload. */
struct preloaded {
    _Atomic uint32_t refs;
    char *name;
    lua_CFunction c;   /* a C function without upvalues, or NULL */
    struct message *m; /* any other function, or NULL */
    char *why;         /* why it can't be copied, or NULL */
};

struct preloads {
    _Atomic uint32_t refs;
    size_t n;
    struct preloaded *all[];
};

/* Key of the registry for a table, by name, of the functions in package.preload from which the state's list was
   made. */
static const char seen_key;

static void release_one(struct preloaded *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    lgs_message_free(p->m);
    free(p->name);
    free(p->why);
    free(p);
}

void lgs_preloads_release(struct preloads *list)
{
    if (!list || atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < list->n; i++)
        release_one(list->all[i]);
    free(list);
}

static struct preloads *retain(struct preloads *list)
{
    if (list)
        atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
    return list;
}

/* The function with this name in the state's list, or NULL. */
static struct preloaded *find(struct state *S, const char *name)
{
    for (size_t i = 0; S->preloads && i < S->preloads->n; i++)
        if (strcmp(S->preloads->all[i]->name, name) == 0)
            return S->preloads->all[i];
    return NULL;
}

/* Reads a function from the list; called protected. */
static int read_in(lua_State *L)
{
    struct preloaded *p = lua_touserdata(L, 1);
    return lgs_unpack(lgs_state_of(L), L, p->m);
}

/* Stands in for a function of another state. Upvalue 2 is its name. */
static int stand_in(lua_State *L)
{
    const char *name = lua_tostring(L, lua_upvalueindex(2));
    struct preloaded *p = find(lgs_state(L), name);
    int n = lua_gettop(L);
    if (!p || p->why)
        return luaL_error(L, "%s", p ? p->why : lua_pushfstring(L, "package.preload['%s'] is gone", name));
    lua_pushcfunction(L, read_in);
    lua_pushlightuserdata(L, p);
    /* Counted, because a clone function may make the state drop its list. */
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    int status = lua_pcall(L, 1, 1, 0);
    release_one(p);
    if (status != LUA_OK)
        return lua_error(L);
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

/* Writes out the function at 2; called protected. */
static int write_out(lua_State *L)
{
    struct preloaded *p = lua_touserdata(L, 1);
    lua_pushfstring(L, "package.preload['%s']", p->name);
    p->m = lgs_pack(lgs_state_of(L), L, 2, 1, -1, lua_tostring(L, -1));
    return 0;
}

/* Makes an entry of the function on top of the stack, and pops the function. */
static struct preloaded *make_one(struct state *S, lua_State *L, const char *name)
{
    if (lua_tocfunction(L, -1) == stand_in) {
        lua_getupvalue(L, -1, 2);
        bool its_own = strcmp(lua_tostring(L, -1), name) == 0;
        lua_pop(L, 1);
        struct preloaded *known = its_own ? find(S, name) : NULL;
        if (known) {
            lua_pop(L, 1);
            atomic_fetch_add_explicit(&known->refs, 1, memory_order_relaxed);
            return known;
        }
    }
    struct preloaded *p = calloc(1, sizeof *p);
    if (!p || !(p->name = strdup(name))) {
        free(p);
        luaL_error(L, "not enough memory");
    }
    p->refs = 1;
    if (lua_iscfunction(L, -1)) {
        if (lua_getupvalue(L, -1, 1))
            lua_pop(L, 1);
        else
            p->c = lua_tocfunction(L, -1);
    }
    if (p->c) {
        lua_pop(L, 1);
        return p;
    }
    lua_pushcfunction(L, write_out);
    lua_insert(L, -2);
    lua_pushlightuserdata(L, p);
    lua_insert(L, -2);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
        const char *why = lua_tostring(L, -1);
        p->why = strdup(why ? why : "package.preload has a function that can't be copied");
        lua_pop(L, 1);
    }
    return p;
}

struct making {
    struct state *S;
    struct preloads *list;
};

/* Makes the list of package.preload's functions; called protected. */
static int make_list(lua_State *L)
{
    struct making *m = lua_touserdata(L, 1);
    size_t n = 0;
    lua_newtable(L);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushnil(L);
    for (; lua_next(L, 3); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1)) {
            lua_pushvalue(L, -2);
            lua_pushvalue(L, -2);
            lua_rawset(L, 2);
            n++;
        }
    }
    m->list = calloc(1, sizeof *m->list + n * sizeof *m->list->all);
    if (!m->list)
        return luaL_error(L, "not enough memory");
    m->list->refs = 1;
    lua_pushnil(L);
    while (lua_next(L, 2)) {
        m->list->all[m->list->n] = make_one(m->S, L, lua_tostring(L, -2));
        m->list->n++;
    }
    lua_settop(L, 2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &seen_key);
    return 0;
}

/* Whether the state's list has the functions that are in package.preload now. */
static bool is_current(struct state *S, lua_State *L)
{
    int top = lua_gettop(L);
    size_t n = 0;
    bool same = true;
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    if (!lua_istable(L, -1)) {
        lua_settop(L, top);
        return true;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &seen_key);
    lua_pushnil(L);
    for (; same && lua_next(L, top + 1); lua_settop(L, top + 3)) {
        if (lua_type(L, -2) != LUA_TSTRING || !lua_isfunction(L, -1))
            continue;
        n++;
        same = lua_istable(L, top + 2);
        if (same) {
            lua_pushvalue(L, -2);
            lua_rawget(L, top + 2);
            same = lua_rawequal(L, -1, -2);
        }
    }
    lua_settop(L, top);
    return same && n == (S->preloads ? S->preloads->n : 0);
}

struct preloads *lgs_preloads(struct state *S, lua_State *L)
{
    if (!is_current(S, L)) {
        struct making m = {S, NULL};
        lua_pushcfunction(L, make_list);
        lua_pushlightuserdata(L, &m);
        if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
            lgs_preloads_release(m.list);
            lua_error(L);
        }
        lgs_preloads_release(S->preloads);
        S->preloads = m.list;
    }
    return retain(S->preloads);
}

void lgs_preloads_install(struct state *S, lua_State *L, struct preloads *list)
{
    int top = lua_gettop(L);
    if (list == S->preloads)
        return;
    if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE) != LUA_TTABLE) {
        lua_settop(L, top);
        return;
    }
    /* Keeps the entries of an earlier list that still hold. */
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &seen_key) == LUA_TTABLE) {
        lua_pushnil(L);
        for (; lua_next(L, top + 2); lua_settop(L, top + 3)) {
            lua_pushvalue(L, -2);
            lua_rawget(L, top + 1);
            if (lua_rawequal(L, -1, -2)) {
                lua_pushvalue(L, top + 3);
                lua_pushnil(L);
                lua_rawset(L, top + 1);
            }
        }
    }
    lgs_preloads_release(S->preloads);
    S->preloads = retain(list);
    lua_settop(L, top + 1);
    lua_newtable(L);
    for (size_t i = 0; list && i < list->n; i++) {
        struct preloaded *p = list->all[i];
        lua_pushstring(L, p->name);
        if (p->c) {
            lua_pushcfunction(L, p->c);
        } else {
            lua_pushlightuserdata(L, S);
            lua_pushvalue(L, -2);
            lua_pushcclosure(L, stand_in, 2);
        }
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, top + 1);
        lua_rawset(L, top + 2);
    }
    lua_rawsetp(L, LUA_REGISTRYINDEX, &seen_key);
    lua_settop(L, top);
}
