/* pairs in an order that doesn't depend on the state.

   Lua puts strings into tables by a hash that is another in each state, so `pairs` goes through the same fields in
   another order each time. In a bubble the order is part of the run: numbers first, then strings, each by size, then
   false and true. Keys of other types come last, as Lua has them. */

#include "lgs.h"

static int rank(lua_State *L, int index)
{
    switch (lua_type(L, index)) {
    case LUA_TNUMBER:
        return 0;
    case LUA_TSTRING:
        return 1;
    case LUA_TBOOLEAN:
        return 2;
    default:
        return 3;
    }
}

/* For table.sort. */
static int is_before(lua_State *L)
{
    int a = rank(L, 1), b = rank(L, 2);
    bool before = a < b;
    if (a == b && a < 2) {
        before = lua_compare(L, 1, 2, LUA_OPLT);
    } else if (a == b && a == 2) {
        before = !lua_toboolean(L, 1) && lua_toboolean(L, 2);
    }
    lua_pushboolean(L, before);
    return 1;
}

/* The iterator. Upvalues: the list of keys, and how many have been given. */
static int next_pair(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        if (lua_rawgeti(L, lua_upvalueindex(1), ++i) == LUA_TNIL)
            return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) != LUA_TNIL)
            break; /* not taken out meanwhile */
        lua_pop(L, 2);
    }
    lua_pushinteger(L, i);
    lua_replace(L, lua_upvalueindex(2));
    return 2;
}

/* pairs(t). Upvalues: Lua's own, table.sort. */
static int ordered_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (!lua_istable(L, 1) || luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_settop(L, 1);
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_insert(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    lua_settop(L, 1);
    lua_newtable(L); /* keys to be sorted */
    lua_newtable(L); /* others */
    lua_Integer sorted = 0, others = 0, last = LUA_MININTEGER;
    bool is_list = true;
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        if (rank(L, -1) == 3) {
            lua_rawseti(L, 3, ++others);
            continue;
        }
        is_list = is_list && lua_isinteger(L, -1) && (sorted == 0 || lua_tointeger(L, -1) > last);
        last = lua_tointeger(L, -1);
        lua_rawseti(L, 2, ++sorted);
    }
    if (!is_list) {
        lua_pushvalue(L, lua_upvalueindex(2));
        lua_pushvalue(L, 2);
        lua_pushcfunction(L, is_before);
        lua_call(L, 2, 0);
    }
    for (lua_Integer i = 1; i <= others; i++) {
        lua_rawgeti(L, 3, i);
        lua_rawseti(L, 2, sorted + i);
    }
    lua_settop(L, 2);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_pair, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

void lgs_pairs_replace(lua_State *L)
{
    lua_getglobal(L, "pairs");
    lua_getglobal(L, "table");
    lua_getfield(L, -1, "sort");
    lua_replace(L, -2);
    lua_pushcclosure(L, ordered_pairs, 2);
    lua_setglobal(L, "pairs");
}
