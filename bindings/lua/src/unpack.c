/* Building the values of a message anew. */

#include "message.h"

#include <stdlib.h>
#include <string.h>

/* Key of the registry for Lua's own function `require`. */
static const char require_key;

struct decoder {
    struct state *S;
    lua_State *L;
    const char *head, *body;
    int table; /* the index of a table with the objects if there are more than ON_STACK, else 0 */
    int metas; /* the index of nil, or of a list of tables and their metatables, which are set at the end */
    int first; /* the index of the first object, if there is no table */
};

/* The most objects that are kept on Lua's stack; more go into a table. */
#define ON_STACK 150

static void push_string(lua_State *L, const char **p)
{
    size_t len;
    lgs_take(p, &len, sizeof len);
    lua_pushlstring(L, *p, len);
    *p += len;
}

static void push_object(struct decoder *d, uint32_t number)
{
    if (d->table)
        lua_rawgeti(d->L, d->table, (lua_Integer)number);
    else
        lua_pushvalue(d->L, d->first + (int)number - 1);
}

/* Pushes require(name) for the name on top of the stack. A goroutine's `require` is told that a message names
   the module. */
static void push_module(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &require_key);
        lua_pushvalue(L, -3);
        lua_pushboolean(L, 1);
        lua_call(L, 2, 1);
    }
    lua_replace(L, -3);
    lua_pop(L, 1);
}

/* Pushes a value, unless it is T_END or T_UPVALUE, which the caller handles. */
static enum tag push_value(struct decoder *d)
{
    lua_State *L = d->L;
    const char **p = &d->body;
    enum tag tag = (enum tag)*(const uint8_t *)(*p)++;
    switch (tag) {
    case T_NIL:
        lua_pushnil(L);
        break;
    case T_FALSE:
    case T_TRUE:
        lua_pushboolean(L, tag == T_TRUE);
        break;
    case T_INTEGER: {
        lua_Integer i;
        lgs_take(p, &i, sizeof i);
        lua_pushinteger(L, i);
        break;
    }
    case T_NUMBER: {
        lua_Number n;
        lgs_take(p, &n, sizeof n);
        lua_pushnumber(L, n);
        break;
    }
    case T_STRING:
        push_string(L, p);
        break;
    case T_LIGHT: {
        void *it;
        lgs_take(p, &it, sizeof it);
        lua_pushlightuserdata(L, it);
        break;
    }
    case T_OBJECT: {
        uint32_t number;
        lgs_take(p, &number, sizeof number);
        push_object(d, number);
        break;
    }
    case T_GLOBALS:
        lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
        break;
    case T_MODULE:
        push_string(L, p);
        push_module(L);
        break;
    case T_FIELD:
        push_string(L, p);
        if (lgs_is_builtin(lua_tostring(L, -1))) {
            lua_pop(L, 1);
            lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
        } else {
            push_module(L);
        }
        push_string(L, p);
        if (lua_type(L, -2) == LUA_TTABLE)
            lua_rawget(L, -2);
        else
            lua_pushnil(L);
        lua_replace(L, -2);
        break;
    default:
        break;
    }
    return tag;
}

struct chunk {
    const char *data;
    size_t len;
};

static const char *read_chunk(lua_State *L, void *from, size_t *len)
{
    struct chunk *c = from;
    (void)L;
    *len = c->len;
    c->len = 0;
    return *len ? c->data : NULL;
}

/* Pushes a new object, without its contents. */
static void make_object(struct decoder *d)
{
    lua_State *L = d->L;
    enum kind kind = (enum kind)*(const uint8_t *)d->head++;
    if (kind == K_TABLE) {
        uint32_t n;
        lgs_take(&d->head, &n, sizeof n);
        lua_createtable(L, (int)(n < 1 << 24 ? n : 1 << 24), 0);
    } else if (kind == K_FUNCTION) {
        struct chunk c;
        lgs_take(&d->head, &c.len, sizeof c.len);
        c.data = d->head;
        d->head += c.len;
        if (lua_load(L, read_chunk, &c, "=?", "b") != LUA_OK)
            lua_error(L);
    } else {
        void *it;
        lgs_take(&d->head, &it, sizeof it);
        if (kind == K_SHARED) {
            lgs_push(d->S, L, it);
        } else {
            int top = lua_gettop(L);
            lgs_unpack(d->S, L, it); /* load, and the result of save */
            lua_call(L, 1, 1);
            lua_settop(L, top + 1);
        }
    }
}

/* Fills the function on top of the stack. */
static void fill_function(struct decoder *d)
{
    lua_State *L = d->L;
    int f = lua_gettop(L);
    for (int i = 1;; i++) {
        enum tag tag = push_value(d);
        if (tag == T_END)
            return;
        if (tag == T_UPVALUE) {
            uint64_t where;
            lgs_take(&d->body, &where, sizeof where);
            push_object(d, (uint32_t)(where / 256));
            lua_upvaluejoin(L, f, i, -1, (int)(where % 256));
            lua_pop(L, 1);
        } else {
            lua_setupvalue(L, f, i);
        }
    }
}

/* Fills the table on top of the stack. */
static void fill_table(struct decoder *d)
{
    lua_State *L = d->L;
    int t = lua_gettop(L);
    if (push_value(d) == T_NIL) {
        lua_pop(L, 1);
    } else {
        if (lua_isnil(L, d->metas)) {
            lua_newtable(L);
            lua_replace(L, d->metas);
        }
        lua_Integer n = (lua_Integer)lua_rawlen(L, d->metas);
        lua_rawseti(L, d->metas, n + 2);
        lua_pushvalue(L, t);
        lua_rawseti(L, d->metas, n + 1);
    }
    while (push_value(d) != T_END) {
        push_value(d);
        /* Unless the module, or its field, is something else here. */
        if (lua_isnil(L, -2))
            lua_pop(L, 2);
        else
            lua_rawset(L, t);
    }
}

int lgs_unpack(struct state *S, lua_State *L, const struct message *m)
{
    if (!m)
        return 0;
    struct decoder d = {.S = S, .L = L, .head = m->heads, .body = m->body};
    int base = lua_gettop(L), n = (int)m->values;
    bool on_stack = m->objects <= ON_STACK;
    luaL_checkstack(L, (on_stack ? (int)m->objects : 1) + n + 30, "receiving a value");
    lua_pushnil(L);
    d.metas = base + 1;
    d.first = base + 2;
    if (!on_stack) {
        lua_createtable(L, (int)m->objects, 0);
        d.table = base + 2;
    }
    for (uint32_t i = 1; i <= m->objects; i++) {
        make_object(&d);
        if (d.table)
            lua_rawseti(L, d.table, (lua_Integer)i);
    }
    int values = lua_gettop(L);
    for (int i = 0; i < n; i++)
        push_value(&d);
    d.head = m->heads;
    for (uint32_t i = 1; i <= m->objects; i++) {
        void *owned;
        enum kind kind = lgs_skip_head(&d.head, &owned);
        if (kind == K_TABLE || kind == K_FUNCTION) {
            push_object(&d, i);
            if (kind == K_TABLE)
                fill_table(&d);
            else
                fill_function(&d);
            lua_pop(L, 1);
        }
    }
    if (!lua_isnil(L, d.metas)) {
        for (lua_Integer i = (lua_Integer)lua_rawlen(L, d.metas); i > 0; i -= 2) {
            lua_rawgeti(L, d.metas, i - 1);
            lua_rawgeti(L, d.metas, i);
            if (lua_type(L, -1) == LUA_TTABLE) {
                lgs_note_meta(S, L);
                lua_setmetatable(L, -2);
            }
            lua_settop(L, values + n);
        }
    }
    for (int i = 1; i <= n; i++)
        lua_copy(L, values + i, base + i);
    lua_settop(L, base + n);
    return n;
}

void lgs_unpack_open(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &require_key);
}
