/* Shared objects: see lgs.h. */

#include "lgs.h"

#include <stdlib.h>

/* The collector hears of memory outside Lua in steps of this many bytes. */
#define CHARGE (16 * 1024)

const char *const lgs_names[LGS_TYPES] = {"gosched.chan", "gosched.mutex", "gosched.waitgroup", "gosched.goroutine",
                                          "gosched.file"};

/* Key of the registry for a table of userdata by object. A state has one userdata for each object. */
static const char boxes_key;

_Thread_local struct bubble *lgs_bubble;

#if !defined(__x86_64__)
struct bubble *lgs_bubble_here(void)
{
    __asm__ volatile("" : : : "memory");
    return lgs_bubble;
}
#endif

/* The function that destroys an object, by type. Each state that makes the metatable sets the same one. */
static lgs_destroyer *_Atomic destroy[LGS_TYPES];

struct shared *lgs_retain(struct shared *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void lgs_give_up(struct shared *s, struct shared **gone)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    s->next = *gone;
    *gone = s;
}

void lgs_destroy(struct shared *gone)
{
    while (gone) {
        struct shared *s = gone;
        gone = s->next;
        atomic_load_explicit(&destroy[s->type], memory_order_relaxed)(s, &gone);
    }
}

void lgs_release(struct shared *s)
{
    struct shared *gone = NULL;
    lgs_give_up(s, &gone);
    lgs_destroy(gone);
}

void *lgs_userdata(struct state *S, lua_State *L, size_t size, int values)
{
    void *p = lua_newuserdatauv(L, size, values);
    S->userdata--;
    return p;
}

/* Pushes an empty userdata for an object. */
static struct box *push_box(struct state *S, lua_State *L, enum lgs_type type)
{
    struct box *box = lgs_userdata(S, L, sizeof *box, 0);
    *box = (struct box){0};
    luaL_setmetatable(L, lgs_names[type]);
    return box;
}

void *lgs_new(lua_State *L, size_t size, enum lgs_type type)
{
    /* The userdata comes first: nothing can fail once the object exists. */
    struct box *box = push_box(lgs_state(L), L, type);
    struct shared *s = calloc(1, size);
    if (!s)
        luaL_error(L, "not enough memory");
    s->refs = 1;
    s->type = (uint8_t)type;
    s->inside = lgs_bubble_here() != NULL;
    box->s = s;
    return s;
}

void lgs_charge(struct state *S, lua_State *L, size_t size)
{
    S->charged += size;
    if (S->bubble || S->charged < CHARGE)
        return;
    size_t kib = S->charged / 1024;
    S->charged %= 1024;
    /* The program may have stopped the collector. */
    if (lua_gc(L, LUA_GCISRUNNING))
        lua_gc(L, LUA_GCSTEP, (int)kib);
}

void lgs_boxed(lua_State *L)
{
    struct box *box = lua_touserdata(L, -1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
    lua_pushvalue(L, -2);
    lua_rawsetp(L, -2, box->s);
    lua_pop(L, 1);
}

void lgs_push(struct state *S, lua_State *L, struct shared *s)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
    if (lua_rawgetp(L, -1, s) == LUA_TNIL) {
        lua_pop(L, 1);
        struct box *box = push_box(S, L, (enum lgs_type)s->type);
        box->s = lgs_retain(s);
        if (s->type == LGS_FILE) {
            box->counted = true;
            S->open_files++;
        }
        lua_pushvalue(L, -1);
        lua_rawsetp(L, -3, s);
    }
    lua_replace(L, -2);
}

void *lgs_check(lua_State *L, int arg, enum lgs_type type)
{
    struct box *box = luaL_checkudata(L, arg, lgs_names[type]);
    if (!box->s) /* in a finalizer that runs after the object's own */
        luaL_argerror(L, arg, "it was collected");
    return box->s;
}

struct shared *lgs_to(lua_State *L, int index)
{
    if (lua_rawlen(L, index) != sizeof(struct box))
        return NULL;
    for (int type = 0; type < LGS_TYPES; type++) {
        struct box *box = luaL_testudata(L, index, lgs_names[type]);
        if (box)
            return box->s;
    }
    return NULL;
}

static int box_gc(lua_State *L)
{
    struct box *box = lua_touserdata(L, 1);
    struct shared *s = box->s;
    if (s) {
        box->s = NULL;
        lgs_state(L)->open_files -= box->counted;
        if (lgs_state(L)->checks) {
            lgs_give_up(s, s->inside ? &lgs_state(L)->bubble->unseen : &lgs_state(L)->bubble->gone);
            return 0;
        }
        lgs_leave(lgs_state(L), false);
        lgs_release(s);
        lgs_enter(lgs_state(L), false);
    }
    return 0;
}

void lgs_metatable(struct state *S, lua_State *L, enum lgs_type type, lgs_destroyer *its, const luaL_Reg *meta,
                   const luaL_Reg *methods)
{
    atomic_store_explicit(&destroy[type], its, memory_order_relaxed);
    luaL_newmetatable(L, lgs_names[type]);
    lua_pushlightuserdata(L, S);
    lua_pushcclosure(L, box_gc, 1);
    lua_setfield(L, -2, "__gc");
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, meta, 1);
    lua_newtable(L);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, methods, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void lgs_methods(struct state *S, lua_State *L, enum lgs_type type, const luaL_Reg *methods)
{
    luaL_getmetatable(L, lgs_names[type]);
    lua_getfield(L, -1, "__index");
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, methods, 1);
    lua_pop(L, 2);
}

void lgs_boxes_open(lua_State *L)
{
    lua_newtable(L);
    lgs_make_weak(L, "v");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &boxes_key);
}

void lgs_boxes_drop(lua_State *L, struct shared **gone)
{
    if (!lua_checkstack(L, 4))
        return;
    int top = lua_gettop(L);
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key) == LUA_TTABLE) {
        lua_pushnil(L);
        while (lua_next(L, top + 1)) {
            struct box *box = lua_touserdata(L, -1);
            if (box && box->s && !box->s->inside) {
                lgs_give_up(box->s, gone);
                box->s = NULL;
            }
            lua_pop(L, 1);
        }
    }
    lua_settop(L, top);
}
