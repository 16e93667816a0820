/* One value on its way, as a channel's element: most values take no memory of their own, others are
   messages. */

#include "message.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct text {
    size_t len;
    char data[];
};

void lgs_encode(struct state *S, lua_State *L, int index, const char *what, struct value *v)
{
    index = lua_absindex(L, index);
    *v = (struct value){.tag = T_NIL};
    switch (lua_type(L, index)) {
    case LUA_TNIL:
        return;
    case LUA_TBOOLEAN:
        v->tag = lua_toboolean(L, index) ? T_TRUE : T_FALSE;
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) {
            v->tag = T_INTEGER;
            v->u.i = lua_tointeger(L, index);
        } else {
            v->tag = T_NUMBER;
            v->u.n = lua_tonumber(L, index);
        }
        return;
    case LUA_TLIGHTUSERDATA:
        v->tag = T_LIGHT;
        v->u.p = lua_touserdata(L, index);
        return;
    case LUA_TSTRING: {
        size_t len;
        const char *s = lua_tolstring(L, index, &len);
        if (len <= LGS_SHORT) {
            v->tag = T_SHORT;
            v->len = (uint8_t)len;
            memcpy((char *)v + offsetof(struct value, text), s, len);
            return;
        }
        struct text *t = malloc(sizeof *t + len);
        if (!t)
            luaL_error(L, "not enough memory");
        t->len = len;
        memcpy(t->data, s, len);
        v->tag = T_STRING;
        v->u.p = t;
        return;
    }
    case LUA_TUSERDATA: {
        struct shared *s = lgs_to(L, index);
        if (s) {
            v->tag = T_SHARED;
            v->u.p = lgs_retain(s);
            return;
        }
        break;
    }
    default:
        break;
    }
    v->u.p = lgs_pack(S, L, index, 1, -1, what);
    v->tag = T_MESSAGE;
}

void lgs_decode(struct state *S, lua_State *L, struct value *v)
{
    switch ((enum tag)v->tag) {
    case T_FALSE:
    case T_TRUE:
        lua_pushboolean(L, v->tag == T_TRUE);
        break;
    case T_INTEGER:
        lua_pushinteger(L, v->u.i);
        break;
    case T_NUMBER:
        lua_pushnumber(L, v->u.n);
        break;
    case T_LIGHT:
        lua_pushlightuserdata(L, v->u.p);
        break;
    case T_SHORT:
        lua_pushlstring(L, (char *)v + offsetof(struct value, text), v->len);
        break;
    case T_STRING:
        lua_pushlstring(L, ((struct text *)v->u.p)->data, ((struct text *)v->u.p)->len);
        break;
    case T_SHARED:
        lgs_push(S, L, v->u.p);
        break;
    case T_MESSAGE:
        lgs_unpack(S, L, v->u.p);
        break;
    default:
        lua_pushnil(L);
    }
}

void lgs_drop_into(struct value *v, struct shared **gone)
{
    if (v->tag == T_STRING)
        free(v->u.p);
    else if (v->tag == T_SHARED)
        lgs_give_up(v->u.p, gone);
    else if (v->tag == T_MESSAGE)
        lgs_message_drop_into(v->u.p, gone);
    v->tag = T_NIL;
}

void lgs_drop(struct value *v)
{
    struct shared *gone = NULL;
    lgs_drop_into(v, &gone);
    lgs_destroy(gone);
}

struct arrival {
    struct state *S;
    struct value *v;
};

static int receive_protected(lua_State *L)
{
    struct arrival *a = lua_touserdata(L, 1);
    lgs_decode(a->S, L, a->v);
    return 1;
}

void lgs_receive(struct state *S, lua_State *L, struct value *v)
{
    /* There is nothing to drop. */
    if (v->tag != T_STRING && v->tag != T_SHARED && v->tag != T_MESSAGE) {
        lgs_decode(S, L, v);
        return;
    }
    struct arrival a = {S, v};
    lua_pushcfunction(L, receive_protected);
    lua_pushlightuserdata(L, &a);
    int status = lua_pcall(L, 1, 1, 0);
    lgs_drop(v);
    if (status != LUA_OK)
        lua_error(L);
}
