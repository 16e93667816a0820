/* Times, errors and results of the module's functions. */

#include "lgs.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int lgs_fail(struct state *S, lua_State *L, int r)
{
    if (r == -ECANCELED && gs_cancelled())
        return lgs_raise_cancelled(S, L);
    lua_pushnil(L);
    if (r == -EAGAIN || r == -ETIMEDOUT) {
        lua_pushliteral(L, "timeout");
        return 2;
    }
    if (r == -ECANCELED) {
        lua_pushliteral(L, "closed");
        return 2;
    }
    if (gs_eai(r) != 0) {
        lua_pushstring(L, gs_strerror(r));
        return 2;
    }
    char text[128];
    lua_pushstring(L, strerror_r(-r, text, sizeof text));
    lua_pushinteger(L, -r);
    return 3;
}

int lgs_done(struct state *S, lua_State *L, int r)
{
    if (r < 0)
        return lgs_fail(S, L, r);
    lua_pushboolean(L, 1);
    return 1;
}

static gs_duration to_ns(lua_State *L, int arg, lua_Number seconds)
{
    luaL_argcheck(L, !isnan(seconds), arg, "a time in seconds expected, got nan");
    if (seconds <= 0)
        return 0;
    return seconds >= 9e9 ? INT64_MAX : (gs_duration)ceil(seconds * LGS_SECOND);
}

gs_duration lgs_seconds(lua_State *L, int arg)
{
    return to_ns(L, arg, luaL_checknumber(L, arg));
}

gs_deadline lgs_deadline(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg))
        return GS_FOREVER;
    gs_duration ns = lgs_seconds(L, arg);
    if (ns == INT64_MAX)
        return GS_FOREVER;
    return ns == 0 ? GS_NOWAIT : gs_after_ns(ns);
}

gs_deadline lgs_timeout_option(lua_State *L, const char *function)
{
    lua_Number seconds = lua_tonumber(L, -1);
    if (!lua_isnil(L, -1) && (!lua_isnumber(L, -1) || isnan(seconds)))
        luaL_error(L, "%s: 'timeout' is a number of seconds, got %s", function, isnan(seconds) ? "nan" : luaL_typename(L, -1));
    return lgs_deadline(L, lua_gettop(L));
}
