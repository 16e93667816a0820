/* The contents of a goroutine's state besides modules: the globals, the metatables of basic types, io's default
   files, and numbers of math.random that no earlier goroutine has chosen by math.randomseed.

   A state keeps one table of globals for life, because it is the _ENV of the functions of loaded modules.
   Between goroutines its fields are reset to the first ones, plus those that modules defined while `require`
   loaded them. The metatables of basic types, and of the table of globals, are reset in the same way, with
   their fields: all strings of a state share one metatable. */

#include "lgs.h"

#include <pthread.h>
#include <sys/random.h>

/* Keys of the registry. */
static const char table_key;  /* the table of globals */
static const char fields_key; /* a table: the fields that each goroutine finds in the table of globals */
static const char metas_key;  /* a list: the metatable of each holder, or false */
static const char parts_key;  /* a list: the fields that each goroutine finds in these metatables, or false */
static const char files_key;  /* a list: the first values of FILES */
static const char seed_key;   /* Lua's own math.randomseed */

/* io's default files, in the registry. */
static const char *const files[] = {"_IO_input", "_IO_output"};
#define FILES 2

/* The holders: values whose metatables are reset, one of each basic type and the table of globals. */
#define HOLDERS 8

static void push_holder(lua_State *L, int i)
{
    switch (i) {
    case 1:
        lua_pushnil(L);
        break;
    case 2:
        lua_pushboolean(L, 0);
        break;
    case 3:
        lua_pushinteger(L, 0);
        break;
    case 4:
        lua_pushliteral(L, "");
        break;
    case 5:
        lua_pushcfunction(L, luaopen_base);
        break;
    case 6:
        lua_pushlightuserdata(L, NULL);
        break;
    case 7:
        lua_pushthread(L);
        break;
    default:
        lua_rawgetp(L, LUA_REGISTRYINDEX, &table_key);
    }
}

/* Pushes the metatable of a holder, or false. */
static void push_meta(lua_State *L, int i)
{
    push_holder(L, i);
    if (!lua_getmetatable(L, -1))
        lua_pushboolean(L, 0);
    lua_replace(L, -2);
}

/* Sets all fields of the table at `fields` in the table at `table`. */
static void set_fields(lua_State *L, int table, int fields)
{
    lua_pushnil(L);
    while (lua_next(L, fields)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, table);
    }
}

/* Pushes a table with the fields of the table on top of the stack. */
static void push_copy(lua_State *L)
{
    int from = lua_gettop(L);
    lua_newtable(L);
    set_fields(L, from + 1, from);
}

/* Pushes three tables: the globals, the holders' metatables, and the fields of these. */
static void push_all(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &table_key);
    push_copy(L);
    lua_replace(L, -2);
    lua_createtable(L, HOLDERS, 0);
    lua_createtable(L, HOLDERS, 0);
    for (int i = 1; i <= HOLDERS; i++) {
        push_meta(L, i);
        lua_pushvalue(L, -1);
        lua_rawseti(L, -4, i);
        if (lua_istable(L, -1)) {
            push_copy(L);
            lua_replace(L, -2);
        }
        lua_rawseti(L, -2, i);
    }
}

/* The number of fields of the table on top of the stack. */
static int count_fields(lua_State *L)
{
    int n = 0;
    lua_pushnil(L);
    for (; lua_next(L, -2); lua_pop(L, 1))
        n++;
    return n;
}

/* Counts the fields that a goroutine finds, to detect later whether some are gone. */
static void count_all(struct state *S, lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &fields_key);
    S->globals = count_fields(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &parts_key);
    S->parts = 0;
    for (int i = 1; i <= HOLDERS; i++) {
        if (lua_rawgeti(L, -1, i) == LUA_TTABLE)
            S->parts += count_fields(L);
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
}

/* Copies to the table at `kept` the fields that differ between `before` and `now`, two copies of one table. */
static void keep_fields(lua_State *L, int before, int now, int kept)
{
    lua_pushnil(L);
    while (lua_next(L, now)) {
        lua_pushvalue(L, -2);
        lua_rawget(L, before);
        if (!lua_rawequal(L, -1, -2)) {
            lua_pushvalue(L, -3);
            lua_pushvalue(L, -3);
            lua_rawset(L, kept);
        }
        lua_pop(L, 2);
    }
    lua_pushnil(L);
    while (lua_next(L, before)) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, now) == LUA_TNIL) {
            lua_pushvalue(L, -2);
            lua_pushnil(L);
            lua_rawset(L, kept);
        }
        lua_pop(L, 1);
    }
}

/* Keeps, for each later goroutine, what has changed since push_all gave the tables at `before` and after it. */
static void keep_changes(struct state *S, lua_State *L, int before)
{
    int now = lua_gettop(L) + 1, fields = now + 3, metas = now + 4, parts = now + 5, at = now + 6;
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    push_all(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &fields_key);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &metas_key);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &parts_key);
    keep_fields(L, before, now, fields);
    for (int i = 1; i <= HOLDERS; i++) {
        lua_rawgeti(L, before + 1, i);
        lua_rawgeti(L, now + 1, i);
        lua_rawgeti(L, metas, i);
        if (!lua_rawequal(L, at, at + 1)) { /* another metatable */
            lua_pushvalue(L, at + 1);
            lua_rawseti(L, metas, i);
            lua_rawgeti(L, now + 2, i);
            lua_rawseti(L, parts, i);
        } else if (lua_istable(L, at) && lua_rawequal(L, at, at + 2)) { /* and not the goroutine's own */
            lua_settop(L, at - 1);
            lua_rawgeti(L, before + 2, i);
            lua_rawgeti(L, now + 2, i);
            lua_rawgeti(L, parts, i);
            keep_fields(L, at, at + 1, at + 2);
        }
        lua_settop(L, at - 1);
    }
    lua_settop(L, now - 1);
    count_all(S, L);
}

/* Of the process: the part common to all states' seeds, and the number of seeds given. */
static lua_Integer process_seed;
static _Atomic lua_Integer seeds;

static void make_process_seed(void)
{
    if (getrandom(&process_seed, sizeof process_seed, GRND_NONBLOCK) != sizeof process_seed)
        process_seed = gs_now();
}

/* Gives math.random a seed that no other state has, and this one never had. */
static void seed_anew(lua_State *L)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_process_seed);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &seed_key);
    lua_pushinteger(L, process_seed);
    lua_pushinteger(L, atomic_fetch_add(&seeds, 1));
    lua_call(L, 2, 0);
}

/* Pushes the loader of the name at 1 and the loader's data, as findloader in Lua's loadlib.c. */
static void find_loader(lua_State *L, const char *name, bool sent)
{
    luaL_Buffer text;
    if (lua_getfield(L, lua_upvalueindex(2), "searchers") != LUA_TTABLE)
        luaL_error(L, "'package.searchers' must be a table");
    int searchers = lua_gettop(L);
    luaL_buffinit(L, &text);
    for (int i = 1;; i++) {
        luaL_addstring(&text, "\n\t");
        if (lua_rawgeti(L, searchers, i) == LUA_TNIL) {
            lua_pop(L, 1);
            luaL_buffsub(&text, 2);
            if (sent) {
                lua_pushfstring(L, "\n\ta value of this module was sent to a goroutine, which doesn't know what the program "
                                   "has put into package.loaded by hand: give package.preload['%s'] a function that makes "
                                   "the module", name);
                luaL_addvalue(&text);
            }
            luaL_pushresult(&text);
            luaL_error(L, "module '%s' not found:%s", name, lua_tostring(L, -1));
        }
        lua_pushstring(L, name);
        lua_call(L, 1, 2);
        if (lua_isfunction(L, -2))
            return;
        if (lua_isstring(L, -2)) {
            lua_pop(L, 1);
            luaL_addvalue(&text);
        } else {
            lua_pop(L, 2);
            luaL_buffsub(&text, 2);
        }
    }
}

/* `require`, as ll_require in Lua's loadlib.c; also keeps what the module changes. Upvalue 2 is the library
   `package`. A second argument: a message names the module. */
static int require(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *name = luaL_checkstring(L, 1);
    bool sent = lua_toboolean(L, 2);
    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, 2, name);
    if (lua_toboolean(L, -1))
        return 1;
    lua_pop(L, 1);
    push_all(L); /* at 3, 4 and 5 */
    find_loader(L, name, sent);
    lua_rotate(L, -2, 1);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, -3);
    lua_call(L, 2, 1);
    if (!lua_isnil(L, -1))
        lua_setfield(L, 2, name);
    else
        lua_pop(L, 1);
    if (lua_getfield(L, 2, name) == LUA_TNIL) {
        lua_pushboolean(L, 1);
        lua_copy(L, -1, -2);
        lua_setfield(L, 2, name);
    }
    keep_changes(S, L, 3);
    lua_rotate(L, -2, 1);
    return 2;
}

void lgs_note_meta(struct state *S, lua_State *L)
{
    lua_pushliteral(L, "__gc");
    S->finalizers |= lua_rawget(L, -2) != LUA_TNIL;
    lua_pop(L, 1);
}

/* Lua's own setmetatable, which also notes metatables with finalizers. Upvalue 2 is "__gc". */
static int set_metatable(lua_State *L)
{
    struct state *S = lgs_state(L);
    int type = lua_type(L, 2);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, type == LUA_TNIL || type == LUA_TTABLE, 2, "nil or table");
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        return luaL_error(L, "cannot change a protected metatable");
    lua_settop(L, 2);
    if (type == LUA_TTABLE && !S->finalizers) {
        lua_pushvalue(L, lua_upvalueindex(2));
        S->finalizers = lua_rawget(L, 2) != LUA_TNIL;
        lua_settop(L, 2);
    }
    lua_setmetatable(L, 1);
    return 1;
}

void lgs_seed_random(lua_State *L, lua_Integer seed, lua_Integer more)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &seed_key);
    lua_pushinteger(L, seed);
    lua_pushinteger(L, more);
    lua_call(L, 2, 0);
}

void lgs_globals_open(struct state *S, lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &table_key);
    lua_pushlightuserdata(L, S);
    lua_getfield(L, -2, "package");
    lua_pushcclosure(L, require, 2);
    lua_setfield(L, -2, "require");
    lua_pushlightuserdata(L, S);
    lua_pushliteral(L, "__gc");
    lua_pushcclosure(L, set_metatable, 2);
    lua_setfield(L, -2, "setmetatable");
    lua_pop(L, 1);
    push_all(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &parts_key);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &metas_key);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &fields_key);
    count_all(S, L);
    lua_createtable(L, FILES, 0);
    for (int i = 0; i < FILES; i++) {
        lua_getfield(L, LUA_REGISTRYINDEX, files[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_rawsetp(L, LUA_REGISTRYINDEX, &files_key);
    lua_getglobal(L, LUA_MATHLIBNAME);
    lua_getfield(L, -1, "randomseed");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &seed_key);
    lua_pop(L, 1);
}

/* Resets the table at `table` to the fields of the table at `fields`. Returns the number of fields dropped;
   adds to *kept those that were still there. */
static int restore_fields(lua_State *L, int table, int fields, int *kept)
{
    int dropped = 0;
    lua_pushnil(L);
    while (lua_next(L, table)) {
        lua_pushvalue(L, -2);
        if (lua_rawget(L, fields) != LUA_TNIL)
            (*kept)++;
        else
            dropped++;
        if (!lua_rawequal(L, -1, -2)) {
            lua_pushvalue(L, -3);
            lua_pushvalue(L, -2);
            lua_rawset(L, table);
        }
        lua_pop(L, 2);
    }
    return dropped;
}

/* Resets the globals; returns the number dropped. */
static int restore_globals(struct state *S, lua_State *L)
{
    int kept = 0, top = lua_gettop(L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &table_key);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &fields_key);
    int dropped = restore_fields(L, top + 1, top + 2, &kept);
    if (kept < S->globals)
        set_fields(L, top + 1, top + 2);
    lua_settop(L, top);
    return dropped;
}

/* Resets the holders' metatables and their fields. */
static void restore_metas(struct state *S, lua_State *L)
{
    int kept = 0, top = lua_gettop(L), metas = top + 1, parts = top + 2;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &metas_key);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &parts_key);
    for (int i = 1; i <= HOLDERS; i++) {
        push_meta(L, i);
        lua_rawgeti(L, metas, i);
        if (!lua_rawequal(L, -1, -2)) {
            push_holder(L, i);
            if (lua_toboolean(L, -2))
                lua_pushvalue(L, -2);
            else
                lua_pushnil(L);
            lua_setmetatable(L, -2);
            lua_pop(L, 1);
        }
        if (lua_istable(L, -1)) {
            lua_rawgeti(L, parts, i);
            restore_fields(L, parts + 2, parts + 3, &kept);
        }
        lua_settop(L, parts);
    }
    for (int i = 1; i <= HOLDERS && kept < S->parts; i++) {
        if (lua_rawgeti(L, metas, i) == LUA_TTABLE) {
            lua_rawgeti(L, parts, i);
            set_fields(L, parts + 1, parts + 2);
        }
        lua_settop(L, parts);
    }
    lua_settop(L, top);
}

int lgs_globals_restore(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    int dropped = restore_globals(S, L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &table_key);
    lua_pushvalue(L, -1);
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_pushliteral(L, "_G");
    lua_pushvalue(L, -3);
    lua_rawset(L, -3);
    lua_settop(L, 1);
    restore_metas(S, L);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &files_key);
    for (int i = 0; i < FILES; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_setfield(L, LUA_REGISTRYINDEX, files[i]);
    }
    seed_anew(L);
    lua_pushinteger(L, dropped);
    return 1;
}
