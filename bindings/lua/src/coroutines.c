/* Coroutines of goroutines.

   A coroutine has a hook of its own, so the slice's handler must know which coroutine runs. In the states of
   goroutines the functions below replace resume, wrap and close of the library `coroutine`: they note the
   running coroutine, and otherwise do as Lua's own. */

#include "lgs.h"

/* Notes that the coroutine `co` (NULL: none) runs; returns the one that ran before. */
static lua_State *switch_to(struct state *S, lua_State *co)
{
    lua_State *was = S->coroutine;
    S->coroutine = co;
    return was;
}

/* Ends a coroutine and closes its <close> variables in it. */
static int reset(struct state *S, lua_State *co)
{
    lua_State *was = switch_to(S, co);
    int status = lua_resetthread(co);
    switch_to(S, was);
    return status;
}

/* Resumes a coroutine, as auxresume in Lua's lcorolib.c. Returns the number of results on L; below 0: an error
   is on L. */
static int resume(struct state *S, lua_State *L, lua_State *co, int n)
{
    if (!lua_checkstack(co, n)) {
        lua_pushliteral(L, "too many arguments to resume");
        return -1;
    }
    lua_xmove(L, co, n);
    lua_State *was = switch_to(S, co);
    int results, status = lua_resume(co, L, n, &results);
    switch_to(S, was);
    if (status != LUA_OK && status != LUA_YIELD) {
        bool stopped = lgs_is_stopped(S);
        if (stopped) { /* the error ends the whole goroutine */
            if (lua_gethook(co) == lgs_on_slice)
                lua_sethook(L, lgs_on_slice, LUA_MASKCOUNT, 1);
            reset(S, co);
        }
        lua_xmove(co, L, 1);
        return stopped ? lua_error(L) : -1;
    }
    if (!lua_checkstack(L, results + 1)) {
        lua_pop(co, results);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, results);
    return results;
}

static int co_resume(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_checktype(L, 1, LUA_TTHREAD);
    int n = resume(lgs_state(L), L, co, lua_gettop(L) - 1);
    lua_pushboolean(L, n >= 0);
    n = n < 0 ? 1 : n;
    lua_insert(L, -(n + 1));
    return n + 1;
}

static int co_close(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    lua_Debug ar;
    luaL_checktype(L, 1, LUA_TTHREAD);
    if (co == L || (lua_status(co) == LUA_OK && lua_getstack(co, 0, &ar)))
        return luaL_error(L, "cannot close a %s coroutine", co == L ? "running" : "normal");
    bool good = reset(lgs_state(L), co) == LUA_OK;
    lua_pushboolean(L, good);
    if (!good)
        lua_xmove(co, L, 1);
    return good ? 1 : 2;
}

/* The function that wrap returns. */
static int co_wrapped(lua_State *L)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(2));
    int n = resume(lgs_state(L), L, co, lua_gettop(L));
    if (n >= 0)
        return n;
    int status = lua_status(co);
    if (status != LUA_OK && status != LUA_YIELD) { /* the error is the coroutine's own */
        status = reset(lgs_state(L), co);
        lua_xmove(co, L, 1);
    }
    if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

static int co_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_pushlightuserdata(L, lgs_state(L));
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    lua_pushcclosure(L, co_wrapped, 2);
    return 1;
}

void lgs_coroutines_replace(struct state *S, lua_State *L)
{
    const luaL_Reg ours[] = {{"resume", co_resume}, {"wrap", co_wrap}, {"close", co_close}, {NULL, NULL}};
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, ours, 1);
}
