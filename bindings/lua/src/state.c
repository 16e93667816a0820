/* The data of each state: how it is found, and scratch room. */

#include "lgs.h"

#include <stdlib.h>

/* Key of the registry for the struct state. */
static const char state_key;

struct state *lgs_state_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
    struct state *S = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return S;
}

void lgs_note_state(lua_State *L)
{
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
}

/* Lua's own collector begins when a bubble's state has taken this many more KiB since its last step. */
#define HELP (64 * 1024)
/* A state of a bubble is collected when its size has doubled and has grown by this many bytes. */
#define GARBAGE (128 * 1024)

void lgs_collect_in_bubble(struct state *S, lua_State *L, bool fresh)
{
    if (!fresh && lua_gc(L, LUA_GCISRUNNING) <= 0)
        return; /* stopped by the program, or this is a finalizer */
    if (fresh || lgs_memory(L) + S->charged > S->collect_at) {
        if (!fresh)
            lua_gc(L, LUA_GCCOLLECT);
        S->charged = 0;
        S->collect_at = 2 * lgs_memory(L) + GARBAGE;
    }
    lua_gc(L, LUA_GCRESTART);
    lua_gc(L, LUA_GCSTEP, -HELP);
}

char *lgs_scratch(struct state *S, size_t size, bool keep)
{
    if (size <= S->scratch_size)
        return S->scratch;
    size_t more = S->scratch_size * 2 > size ? S->scratch_size * 2 : size;
    char *p = keep ? realloc(S->scratch, more) : malloc(more);
    if (!p)
        return NULL;
    if (!keep)
        free(S->scratch);
    S->scratch = p;
    S->scratch_size = more;
    return p;
}

void lgs_scratch_done(struct state *S)
{
    if (S->scratch_size > 1 << 16) {
        free(S->scratch);
        S->scratch = NULL;
        S->scratch_size = 0;
    }
}
