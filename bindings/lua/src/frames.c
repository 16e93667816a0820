/* Lua's frames for the dumps and traces of the library.

   The hook is called by a goroutine that is being traced, or for any goroutine while the world is stopped. Only a state
   that is in a call of the library stands still with its frames complete: elsewhere the goroutine may have been stopped
   between any two instructions of the interpreter, or go on. Of such a state nothing is shown. */

#include "lgs.h"

#include <stdio.h>
#include <string.h>

/* The number of names that are made of places, for one state. */
#define NAMES (sizeof(((struct state *)0)->names) / sizeof(((struct state *)0)->names[0]))

/* The name of a function for which Lua has none, as its tracebacks have it. */
static const char *name_of(struct state *S, const lua_Debug *ar, size_t *made)
{
    if (*ar->what == 'm')
        return "main chunk";
    if (*ar->what == 'C' || *made == NAMES)
        return "?";
    char *name = S->names[(*made)++];
    const char *base = strrchr(ar->short_src, '/');
    snprintf(name, sizeof S->names[0], "function <%s:%d>", base ? base + 1 : ar->short_src, ar->linedefined);
    return name;
}

/* Adds the frames of L, which stands still. */
static size_t add_frames(struct state *S, lua_State *L, gs_frame *frames, size_t n, size_t room, size_t *made)
{
    lua_Debug ar;
    for (int level = 0; n < room && lua_getstack(L, level, &ar); level++) {
        /* Neither allocates nor changes L. */
        lua_getinfo(L, "Sln", &ar);
        bool is_c = *ar.what == 'C';
        if (is_c && !ar.name) /* between Lua and the module */
            continue;
        frames[n++] = (gs_frame){
            .function = ar.name ? ar.name : name_of(S, &ar, made),
            /* The text stays as long as the function. */
            .file = is_c ? "[C]" : *ar.source == '@' ? ar.source + 1 : *ar.source == '=' ? ar.source + 1 : "[string]",
            .line = ar.currentline > 0 ? ar.currentline : 0,
        };
    }
    return n;
}

size_t lgs_frames(struct state *S, gs_frame *frames, size_t room)
{
    size_t made = 0, n = 0;
    if (!S || !atomic_load_explicit(&S->is_away, memory_order_acquire) || !S->L)
        return 0;
    if (S->coroutine && S->coroutine != S->L)
        n = add_frames(S, S->coroutine, frames, n, room, &made);
    return add_frames(S, S->L, frames, n, room, &made);
}

/* ---- Main programs ---- */

/* The states of main programs by their goroutines. Main programs beyond these have no frames. */
static struct {
    _Atomic(gs_g *) g;
    struct state *_Atomic S;
} mains[16];

static size_t main_frames(void *ctx, gs_g *g, gs_frame *frames, size_t room)
{
    (void)ctx;
    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++)
        if (atomic_load(&mains[i].g) == g)
            return lgs_frames(atomic_load(&mains[i].S), frames, room);
    return 0;
}

void lgs_frames_start(void)
{
    gs_add_frames(NULL, main_frames, NULL);
}

void lgs_show_main(struct state *S)
{
    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++) {
        struct state *none = NULL;
        if (atomic_compare_exchange_strong(&mains[i].S, &none, S)) {
            atomic_store(&mains[i].g, S->self);
            return;
        }
    }
}

void lgs_hide_main(struct state *S)
{
    for (size_t i = 0; i < sizeof mains / sizeof *mains; i++)
        if (atomic_load(&mains[i].S) == S) {
            atomic_store(&mains[i].g, NULL);
            atomic_store(&mains[i].S, NULL);
        }
}
