/* Writing out values into messages. */

#include "message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    char *data;
    size_t len, size;
    char own[1024]; /* the first memory of data */
};

/* Addresses of objects and upvalues, and their numbers. */
struct memo {
    struct seen {
        const void *p;
        uint64_t number;
    } *seen, own[32];
    size_t count, size; /* size: a power of 2 */
};

struct encoder {
    struct state *S;
    lua_State *L;
    struct buffer heads, body;
    struct memo memo;
    uint32_t objects, owned;
    int list;    /* index of a table: number to object, false for a clone; [-number]: the number of the object in which it
                    was met, or that of the value, as -1 - value */
    uint32_t at; /* the object whose contents are being written; 0: the values themselves */
    int value;   /* the value being written, from 0 */
    int skip;    /* first values without a number, such as the function; -1: a single value, without one */
    const char *what;
    bool refused; /* the error is that a value can't be copied */
};

/* The slot of p in the table, or for p. */
static struct seen *find(struct memo *m, const void *p)
{
    size_t i = (size_t)(((uintptr_t)p >> 4) * 0x9E3779B97F4A7C15u >> 32) & (m->size - 1);
    while (m->seen[i].p && m->seen[i].p != p)
        i = (i + 1) & (m->size - 1);
    return &m->seen[i];
}

static void remember(struct encoder *e, const void *p, uint64_t number)
{
    struct memo *m = &e->memo;
    if (m->count * 2 >= m->size) {
        struct memo more = {.size = m->size * 4, .count = m->count};
        more.seen = calloc(more.size, sizeof *more.seen);
        if (!more.seen)
            luaL_error(e->L, "not enough memory");
        for (size_t i = 0; i < m->size; i++)
            if (m->seen[i].p)
                *find(&more, m->seen[i].p) = m->seen[i];
        if (m->seen != m->own)
            free(m->seen);
        m->seen = more.seen;
        m->size = more.size;
    }
    *find(m, p) = (struct seen){p, number};
    m->count++;
}

static void free_encoder(struct encoder *e)
{
    if (e->heads.data != e->heads.own)
        free(e->heads.data);
    if (e->body.data != e->body.own)
        free(e->body.data);
    if (e->memo.seen != e->memo.own)
        free(e->memo.seen);
}

/* Keys of the registry. */
static const char rev_key, clones_key, loading_key;

static void put(struct encoder *e, struct buffer *b, const void *data, size_t n)
{
    if (b->size - b->len < n) {
        size_t size = b->size * 2;
        while (size - b->len < n)
            size *= 2;
        char *more = realloc(b->data == b->own ? NULL : b->data, size);
        if (!more)
            luaL_error(e->L, "not enough memory");
        if (b->data == b->own)
            memcpy(more, b->own, b->len);
        b->data = more;
        b->size = size;
    }
    memcpy(b->data + b->len, data, n);
    b->len += n;
}

static void put_tag(struct encoder *e, struct buffer *b, enum tag t)
{
    uint8_t byte = (uint8_t)t;
    put(e, b, &byte, 1);
}

/* Writes a value of `n` bytes. */
static void put_value(struct encoder *e, enum tag t, const void *data, size_t n)
{
    put_tag(e, &e->body, t);
    put(e, &e->body, data, n);
}

static void put_u32(struct encoder *e, struct buffer *b, size_t n)
{
    uint32_t word = (uint32_t)n;
    if (n > UINT32_MAX)
        luaL_error(e->L, "a value with more than 2^32 parts can't be copied");
    put(e, b, &word, sizeof word);
}

static void put_string(struct encoder *e, struct buffer *b, int index)
{
    size_t len;
    const char *s = lua_tolstring(e->L, index, &len);
    put(e, b, &len, sizeof len);
    put(e, b, s, len);
}

/* Appends a key, in Lua's notation, to the string on top of the stack. */
static void name_key(lua_State *L, int key)
{
    key = lua_absindex(L, key);
    if (lua_type(L, key) == LUA_TSTRING) {
        lua_pushfstring(L, ".%s", lua_tostring(L, key));
    } else {
        const char *s = luaL_tolstring(L, key, NULL);
        lua_pushfstring(L, "[%s]", s);
        lua_remove(L, -2);
    }
}

/* Pushes the place in `parent` (an index) of the object at index `child`. */
static void name_place(struct encoder *e, int parent, int child)
{
    lua_State *L = e->L;
    if (lua_type(L, parent) == LUA_TFUNCTION) {
        for (int i = 1;; i++) {
            const char *name = lua_getupvalue(L, parent, i);
            if (!name)
                break;
            bool found = lua_rawequal(L, -1, child);
            lua_pop(L, 1);
            if (found) {
                lua_Debug ar;
                lua_pushvalue(L, parent);
                lua_getinfo(L, ">S", &ar);
                lua_pushfstring(L, ", in upvalue '%s' of the function at %s:%d", name, ar.short_src, ar.linedefined);
                return;
            }
        }
    } else if (lua_type(L, parent) == LUA_TTABLE) {
        lua_pushnil(L);
        while (lua_next(L, parent)) {
            if (lua_rawequal(L, -1, child)) {
                name_key(L, -2);
                lua_replace(L, -3);
                lua_pop(L, 1);
                return;
            }
            if (lua_rawequal(L, -2, child)) {
                lua_pop(L, 2);
                lua_pushliteral(L, ", as a key");
                return;
            }
            lua_pop(L, 1);
        }
        if (lua_getmetatable(L, parent)) {
            lua_pop(L, 1);
            lua_pushliteral(L, ", in its metatable");
            return;
        }
    }
    lua_pushliteral(L, "");
}

/* Raises the error that the value at index can't be copied, with its place, as ".list[3], in upvalue 'x' of
   ...". */
static int refuse(struct encoder *e, int index, const char *kind)
{
    lua_State *L = e->L;
    luaL_checkstack(L, 40, NULL);
    lua_pushvalue(L, index);
    int child = lua_gettop(L), text = child + 1;
    lua_pushliteral(L, "");
    /* From the inside out, and no further than is readable. */
    lua_Integer number = e->at ? (lua_Integer)e->at : -1 - e->value;
    for (int depth = 0; number > 0; depth++) {
        lua_rawgeti(L, e->list, number);
        if (depth < 8)
            name_place(e, text + 1, child);
        else
            lua_pushstring(L, depth == 8 ? " ..." : "");
        lua_pushvalue(L, text);
        lua_concat(L, 2);
        lua_replace(L, text);
        lua_replace(L, child);
        lua_rawgeti(L, e->list, -number);
        number = lua_tointeger(L, -1);
        lua_settop(L, text);
    }
    int value = (int)(-1 - number);
    if (e->skip < 0)
        lua_pushstring(L, e->what);
    else if (value < e->skip)
        lua_pushliteral(L, "function");
    else
        lua_pushfstring(L, "%s %d", e->what, value - e->skip + 1);
    lua_pushfstring(L, "%s can't be copied to another goroutine (%s%s)", kind, lua_tostring(L, -1),
                    lua_tostring(L, text));
    e->refused = true;
    return lua_error(L);
}

/* Notes the functions, userdata and tables in the module on top of the stack, in the table at rev. */
static void note_fields(lua_State *L, int rev, int name)
{
    bool globals = lgs_is_builtin(lua_tostring(L, name));
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        int type = lua_type(L, -1);
        bool wanted = lua_type(L, -2) == LUA_TSTRING
            && (lua_iscfunction(L, -1) || (!globals && (type == LUA_TUSERDATA || type == LUA_TTABLE)));
        if (wanted) {
            lua_pushvalue(L, -1);
            if (lua_rawget(L, rev) == LUA_TNIL) {
                lua_createtable(L, 2, 0);
                lua_pushvalue(L, name);
                lua_rawseti(L, -2, 1);
                lua_pushvalue(L, -4);
                lua_rawseti(L, -2, 2);
                lua_pushvalue(L, -3);
                lua_insert(L, -2);
                lua_rawset(L, rev);
            }
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
}

/* Pushes the table that finds modules by their values: a string is the name of a module, a table the name and
   field. Made anew if modules may have been loaded since. */
static void push_rev(struct state *S, lua_State *L)
{
    if (!S->rev_stale) {
        lua_rawgetp(L, LUA_REGISTRYINDEX, &rev_key);
        return;
    }
    lua_newtable(L);
    int rev = lua_gettop(L);
    lgs_make_weak(L, "k");
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    int loaded = lua_gettop(L);
    /* Modules before fields: a module that is also a field of another one is written as a module. */
    for (int fields = 0; fields < 2; fields++) {
        lua_pushnil(L);
        while (lua_next(L, loaded)) {
            int type = lua_type(L, -1);
            bool good = lua_type(L, -2) == LUA_TSTRING && (type == LUA_TTABLE || type == LUA_TUSERDATA || lua_iscfunction(L, -1));
            if (good && !fields && !lgs_is_builtin(lua_tostring(L, -2))) {
                lua_pushvalue(L, -1);
                if (lua_rawget(L, rev) == LUA_TNIL) {
                    lua_pushvalue(L, -2);
                    lua_pushvalue(L, -4);
                    lua_rawset(L, rev);
                }
                lua_pop(L, 1);
            } else if (good && fields && type == LUA_TTABLE) {
                note_fields(L, rev, lua_absindex(L, -2));
            }
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    lua_pushvalue(L, rev);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &rev_key);
    S->rev_stale = false;
    lua_settop(L, rev);
}

/* __index of package.loaded: notes a module that may be about to be loaded. */
static int note_module(lua_State *L)
{
    lgs_state(L)->rev_stale = true;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &loading_key);
    lua_pushvalue(L, 2);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    return 0;
}

/* Whether a module that was about to be loaded is loaded now. Forgets such modules. */
static bool have_come(lua_State *L)
{
    int top = lua_gettop(L);
    bool come = false;
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &loading_key);
    lua_pushnil(L);
    while (lua_next(L, top + 2)) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        if (lua_rawget(L, top + 1) != LUA_TNIL) {
            come = true;
            lua_pushvalue(L, -2);
            lua_pushnil(L);
            lua_rawset(L, top + 2);
        }
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    return come;
}

/* Writes a module or a field of a module. False: it is neither. as_meta: a field may be a table. */
static bool encode_known(struct encoder *e, int index, bool as_meta)
{
    lua_State *L = e->L;
    push_rev(e->S, L);
    lua_pushvalue(L, index);
    int type = lua_rawget(L, -2);
    if (type == LUA_TNIL && have_come(L)) {
        e->S->rev_stale = true;
        lua_pop(L, 2);
        return encode_known(e, index, as_meta);
    }
    if (type == LUA_TSTRING) {
        put_tag(e, &e->body, T_MODULE);
        put_string(e, &e->body, -1);
    } else if (type == LUA_TTABLE && (as_meta || lua_type(L, index) != LUA_TTABLE)) {
        put_tag(e, &e->body, T_FIELD);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        put_string(e, &e->body, -2);
        put_string(e, &e->body, -1);
        lua_pop(L, 2);
    } else {
        type = LUA_TNIL;
    }
    lua_pop(L, 2);
    return type != LUA_TNIL;
}

static int dump(lua_State *L, const void *p, size_t n, void *to)
{
    struct encoder *e = to;
    (void)L;
    put(e, &e->heads, p, n);
    return 0;
}

/* Writes a userdata or table registered with gosched.clone: the result of `save`, and `load`. */
static bool encode_clone(struct encoder *e, int index)
{
    lua_State *L = e->L;
    if (!lua_getmetatable(L, index))
        return false;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &clones_key);
    lua_insert(L, -2);
    if (lua_rawget(L, -2) == LUA_TNIL) {
        lua_pop(L, 2);
        return false;
    }
    lua_rawgeti(L, -1, 2); /* load */
    lua_rawgeti(L, -2, 1); /* save */
    lua_pushvalue(L, index);
    lua_call(L, 1, 1);
    struct message *m = lgs_pack(e->S, L, lua_gettop(L) - 1, 2, -1, "what a clone function has given");
    put_tag(e, &e->heads, (enum tag)K_CLONE);
    put(e, &e->heads, &m, sizeof m);
    e->owned++;
    lua_pop(L, 4);
    return true;
}

/* Writes the head of a new object. */
static void add_object(struct encoder *e, int index)
{
    lua_State *L = e->L;
    struct shared *s;
    bool cloned = false;
    switch (lua_type(L, index)) {
    case LUA_TTABLE:
        cloned = encode_clone(e, index);
        if (!cloned) {
            put_tag(e, &e->heads, (enum tag)K_TABLE);
            put_u32(e, &e->heads, lua_rawlen(L, index));
        }
        break;
    case LUA_TFUNCTION: {
        if (lua_iscfunction(L, index))
            refuse(e, index, "a function in C that is in no module");
        put_tag(e, &e->heads, (enum tag)K_FUNCTION);
        size_t at = e->heads.len, len = 0;
        put(e, &e->heads, &len, sizeof len);
        lua_pushvalue(L, index);
        lua_dump(L, dump, e, 0);
        lua_pop(L, 1);
        len = e->heads.len - at - sizeof len;
        memcpy(e->heads.data + at, &len, sizeof len);
        break;
    }
    default: /* a userdata */
        s = lgs_to(L, index);
        if (s) {
            put_tag(e, &e->heads, (enum tag)K_SHARED);
            put(e, &e->heads, &s, sizeof s);
            lgs_retain(s);
            e->owned++;
        } else if (!(cloned = encode_clone(e, index))) {
            const char *name = luaL_getmetafield(L, index, "__name") == LUA_TSTRING ? lua_tostring(L, -1) : "without a name";
            refuse(e, index, lua_pushfstring(L, "a userdata (%s) that has no gosched.clone", name));
        }
    }
    e->objects++;
    remember(e, lua_topointer(L, index), e->objects);
    if (cloned)
        lua_pushboolean(L, 0);
    else
        lua_pushvalue(L, index);
    lua_rawseti(L, e->list, (lua_Integer)e->objects);
    lua_pushinteger(L, e->at ? (lua_Integer)e->at : -1 - e->value);
    lua_rawseti(L, e->list, -(lua_Integer)e->objects);
}

/* Writes the value at an absolute index. */
static void encode_value(struct encoder *e, int index, bool as_meta)
{
    lua_State *L = e->L;
    struct buffer *b = &e->body;
    switch (lua_type(L, index)) {
    case LUA_TNIL:
        put_tag(e, b, T_NIL);
        return;
    case LUA_TBOOLEAN:
        put_tag(e, b, lua_toboolean(L, index) ? T_TRUE : T_FALSE);
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) {
            lua_Integer i = lua_tointeger(L, index);
            put_value(e, T_INTEGER, &i, sizeof i);
        } else {
            lua_Number n = lua_tonumber(L, index);
            put_value(e, T_NUMBER, &n, sizeof n);
        }
        return;
    case LUA_TSTRING:
        put_tag(e, b, T_STRING);
        put_string(e, b, index);
        return;
    case LUA_TLIGHTUSERDATA: {
        void *p = lua_touserdata(L, index);
        put_value(e, T_LIGHT, &p, sizeof p);
        return;
    }
    case LUA_TTHREAD:
        refuse(e, index, "a coroutine");
        return;
    default:
        break;
    }
    const struct seen *seen = find(&e->memo, lua_topointer(L, index));
    if (seen->p) {
        put_tag(e, b, T_OBJECT);
        put_u32(e, b, seen->number);
        return;
    }
    if (lua_type(L, index) == LUA_TTABLE) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
        bool globals = lua_rawequal(L, -1, index);
        lua_pop(L, 1);
        if (globals) {
            put_tag(e, b, T_GLOBALS);
            return;
        }
    }
    if ((lua_type(L, index) != LUA_TFUNCTION || lua_iscfunction(L, index)) && encode_known(e, index, as_meta))
        return;
    add_object(e, index);
    put_tag(e, b, T_OBJECT);
    put_u32(e, b, e->objects);
}

static void encode_table(struct encoder *e, int index)
{
    lua_State *L = e->L;
    if (lua_getmetatable(L, index)) {
        encode_value(e, lua_gettop(L), true);
        lua_pop(L, 1);
    } else {
        put_tag(e, &e->body, T_NIL);
    }
    lua_pushnil(L);
    while (lua_next(L, index)) {
        int top = lua_gettop(L);
        encode_value(e, top - 1, false);
        encode_value(e, top, false);
        lua_pop(L, 1);
    }
    put_tag(e, &e->body, T_END);
}

static void encode_upvalues(struct encoder *e, int index, uint32_t number)
{
    lua_State *L = e->L;
    for (int i = 1; lua_getupvalue(L, index, i); i++) {
        const void *id = lua_upvalueid(L, index, i);
        const struct seen *seen = find(&e->memo, id);
        if (seen->p) {
            put_value(e, T_UPVALUE, &seen->number, sizeof seen->number);
            lua_pop(L, 1);
            continue;
        }
        /* The number of the function and of the upvalue. */
        remember(e, id, (uint64_t)number * 256 + (unsigned)i);
        encode_value(e, lua_gettop(L), false);
        lua_pop(L, 1);
    }
    put_tag(e, &e->body, T_END);
}

/* Writes the values from the index first on, and all objects that they lead to. */
static void encode_all(struct encoder *e, int first, int n)
{
    lua_State *L = e->L;
    luaL_checkstack(L, 40, "copying a value");
    lua_newtable(L);
    e->list = lua_gettop(L);
    for (e->value = 0; e->value < n; e->value++)
        encode_value(e, first + e->value, false);
    for (uint32_t number = 1; number <= e->objects; number++) {
        e->at = number;
        int type = lua_rawgeti(L, e->list, (lua_Integer)number), index = lua_gettop(L);
        if (type == LUA_TTABLE)
            encode_table(e, index);
        else if (type == LUA_TFUNCTION)
            encode_upvalues(e, index, number);
        lua_settop(L, index - 1);
    }
}

static struct message *finish(struct encoder *e, uint32_t values)
{
    struct message *m = malloc(sizeof *m + e->heads.len + e->body.len);
    if (!m)
        luaL_error(e->L, "not enough memory");
    m->heads = (char *)(m + 1);
    m->body = m->heads + e->heads.len;
    m->objects = e->objects;
    m->values = values;
    m->owned = e->owned;
    if (e->heads.len)
        memcpy(m->heads, e->heads.data, e->heads.len);
    if (e->body.len)
        memcpy(m->body, e->body.data, e->body.len);
    return m;
}

struct packing {
    struct encoder e;
    struct message *m;
};

static int pack_protected(lua_State *L)
{
    struct packing *p = lua_touserdata(L, 1);
    int n = lua_gettop(L) - 1;
    encode_all(&p->e, 2, n);
    p->m = finish(&p->e, (uint32_t)n);
    return 0;
}

/* Gets a struct packing, off the C stack: a clone function may itself pack values, and so on. The state keeps
   one for its next message. */
static struct packing *get_packing(struct state *S, lua_State *L)
{
    struct packing *p = S->packing ? S->packing : malloc(sizeof *p);
    S->packing = NULL;
    if (!p)
        luaL_error(L, "not enough memory");
    return p;
}

static void put_packing(struct state *S, struct packing *p)
{
    if (S->packing)
        free(p);
    else
        S->packing = p;
}

struct message *lgs_pack(struct state *S, lua_State *L, int first, int n, int skip, const char *what)
{
    luaL_checkstack(L, n + 3, "copying values");
    struct packing *p = get_packing(S, L);
    struct encoder *e = &p->e;
    e->S = S;
    e->L = L;
    e->what = what;
    e->skip = skip;
    e->objects = e->owned = e->at = 0;
    e->refused = false;
    e->heads.data = e->heads.own;
    e->body.data = e->body.own;
    e->heads.len = e->body.len = 0;
    e->heads.size = e->body.size = sizeof e->body.own;
    e->memo.seen = memset(e->memo.own, 0, sizeof e->memo.own);
    e->memo.size = sizeof e->memo.own / sizeof *e->memo.own;
    e->memo.count = 0;
    lua_pushcfunction(L, pack_protected);
    lua_pushlightuserdata(L, p);
    for (int i = 0; i < n; i++)
        lua_pushvalue(L, first + i);
    int status = lua_pcall(L, n + 1, 0, 0);
    if (status != LUA_OK) {
        struct shared *gone = NULL;
        lgs_drop_heads(e->heads.data, e->owned, &gone);
        lgs_destroy(gone);
    }
    free_encoder(e);
    struct message *m = status == LUA_OK ? p->m : NULL;
    bool refused = e->refused;
    put_packing(S, p);
    if (!m) {
        if (refused) {
            luaL_where(L, 1);
            lua_insert(L, -2);
            lua_concat(L, 2);
        }
        lua_error(L);
    }
    return m;
}

/* ---- Clones ---- */

/* gosched.clone(metatable, save, load): sets how objects with this metatable are copied; without functions: as
   other objects. */
int lgs_clone(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 3);
    bool forget = lua_isnil(L, 2) && lua_isnil(L, 3);
    if (!forget) {
        luaL_checktype(L, 2, LUA_TFUNCTION);
        luaL_checktype(L, 3, LUA_TFUNCTION);
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &clones_key);
    lua_pushvalue(L, 1);
    if (forget) {
        lua_pushnil(L);
        lua_rawset(L, -3);
        return 0;
    }
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, 3);
    lua_rawseti(L, -2, 2);
    lua_rawset(L, -3);
    return 0;
}

void lgs_pack_open(struct state *S, lua_State *L)
{
    int top = lua_gettop(L);
    S->rev_stale = true;
    lua_newtable(L);
    lgs_make_weak(L, "k");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &clones_key);
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &loading_key);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (!lua_getmetatable(L, -1)) {
        lua_createtable(L, 0, 1);
        lua_pushlightuserdata(L, S);
        lua_pushcclosure(L, note_module, 1);
        lua_setfield(L, -2, "__index");
        lua_setmetatable(L, -2);
    }
    lua_settop(L, top);
}
