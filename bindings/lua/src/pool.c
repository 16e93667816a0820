/* Programs, and the pool of the states in which their goroutines run. */

#include "lgs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most states in the pool; each takes some 45 KiB. */
#define POOL 128
/* A state whose memory has grown by this many bytes since its last cleaning is cleaned before it goes to the
   pool ... */
#define DIRTY (128 * 1024)
/* ... and is not kept if it then has more bytes than this, */
#define TOO_LARGE (4 * 1024 * 1024)
/* or if its memory is this many times the bytes in use, and this many bytes more: those in use are
   scattered, */
#define SPARSE 2
#define TOO_SPARSE (256 * 1024)
/* or if a goroutine has left more globals than this: their table stays large, and each goroutine's end looks
   through all of it. */
#define TOO_MANY 1000

/* ---- Programs ----

   A program is a state that a host has made, with the goroutines that the state has started, those that they
   have started, and so on. When the state is closed, all of these goroutines have to end. Each is cancelled for
   good: its waits fail, and the slice's hook ends it if it computes. */

/* lua_close stops waiting when no goroutine has ended for this long, in ns: longer than LGS_CLEAN_UP. A
   goroutine can't end while it is in a C function that neither calls Lua nor waits here. */
#define WITHOUT_AN_END (LGS_SECOND / 5)

static gs_mutex pool_lock;
static struct state *pool;
static int pooled;
static struct state *busy;  /* the states of goroutines */
static gs_cond ended;       /* signalled when a goroutine ends while a program is closing */
static _Atomic int closing; /* programs whose goroutines are waited for */

struct program *lgs_join_program(struct state *S)
{
    struct program *p = S->program;
    if (!p)
        return NULL;
    /* One more user first: lgs_close_program reads the users after it has closed the program. */
    atomic_fetch_add(&p->users, 1);
    if (!atomic_load(&p->closed))
        return p;
    atomic_fetch_sub(&p->users, 1); /* not the last user: the caller is another */
    return NULL;
}

void lgs_leave_program(struct program *p)
{
    if (p->bubble)
        return; /* it counts its goroutines itself */
    if (atomic_fetch_sub(&p->users, 1) == 1)
        free(p);
    if (atomic_load(&closing) == 0)
        return;
    gs_cancel_disable();
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    gs_cond_broadcast(&ended);
    gs_mutex_unlock(&pool_lock);
    gs_cancel_enable();
}

struct state *lgs_close_program(struct program *p)
{
    struct state *callers = NULL;
    int users, remaining = 1; /* not waited for: the host's state, and the caller if it is one of the users */
    gs_cancel_disable();
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    atomic_fetch_add(&closing, 1);
    atomic_store(&p->closed, true);
    for (struct state *S = busy; S; S = S->next) {
        if (S->runs == gs_self())
            callers = S;
        if (S->program != p)
            continue;
        atomic_store(&S->stopped, true);
        gs_cancel(S->runs);
        remaining += S == callers;
    }
    while ((users = atomic_load(&p->users)) > remaining) {
        gs_deadline patience = gs_after_ns(WITHOUT_AN_END);
        while (atomic_load(&p->users) == users && gs_cond_wait(&ended, &pool_lock, patience) == 0)
            ;
        if (atomic_load(&p->users) == users)
            break;
    }
    atomic_fetch_sub(&closing, 1);
    gs_mutex_unlock(&pool_lock);
    gs_cancel_enable();
    return callers;
}

/* ---- The pool of states ---- */

/* Makes the libraries of a new state; called protected, with struct state as argument. */
static lua_CFunction fill_state;

void lgs_pool_start(lua_CFunction fill)
{
    fill_state = fill;
}

/* Calls the state's finalizers, and ends it for Lua. */
static void close_lua(struct state *S)
{
    lua_State *L = S->L;
    /* Keeps finalizers from making this the thread's running state: the slice's signal may come when it has
       been freed. */
    S->L = NULL;
    lgs_forget_state(S);
    S->heap.closing = true;
    if (L)
        lua_close(L);
}

static void free_state(struct state *S)
{
    lgs_heap_free(&S->heap);
    free(S->scratch);
    free(S->packing);
    lgs_preloads_release(S->preloads);
    free(S);
}

static void close_state(struct state *S)
{
    close_lua(S);
    free_state(S);
}

/* For a new object `old` is its kind in Lua. */
static void *allocate(void *state, void *p, size_t old, size_t size)
{
    struct state *S = state;
    if (!p && old == LUA_TUSERDATA)
        S->userdata++;
    return lgs_allocate(&S->heap, p, old, size);
}

/* Warnings, as luaL_newstate handles them */

static void warning(void *state, const char *text, int more)
{
    struct state *S = state;
    bool begins = !S->in_warning;
    S->in_warning = more;
    if (begins && !more && text[0] == '@') {
        if (strcmp(text, "@on") == 0)
            S->warns = true;
        else if (strcmp(text, "@off") == 0)
            S->warns = false;
    } else if (S->warns) {
        fprintf(stderr, "%s%s%s", begins ? "Lua warning: " : "", text, more ? "" : "\n");
    }
}

static int panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    fprintf(stderr, "PANIC: unprotected error in call to Lua API (%s)\n", text ? text : "error object is not a string");
    return 0;
}

static struct state *new_state(struct bubble *b)
{
    struct state *S = calloc(1, sizeof *S);
    if (S) {
        S->bubble = b;
        S->heap.keeps_list = b != NULL;
    }
    if (!S || !(S->L = lua_newstate(allocate, S))) {
        if (S)
            lgs_heap_free(&S->heap);
        free(S);
        return NULL;
    }
    if (b)
        lua_gc(S->L, LUA_GCSTOP); /* as long as there is no garbage to speak of */
    lua_atpanic(S->L, panic);
    lua_setwarnf(S->L, warning, S);
    lua_pushcfunction(S->L, fill_state);
    lua_pushlightuserdata(S->L, S);
    if (lua_pcall(S->L, 1, 0, 0) != LUA_OK) {
        close_state(S);
        return NULL;
    }
    S->userdata = 0;
    if (b)
        lgs_collect_in_bubble(S, S->L, true);
    return S;
}

/* ---- States of bubbles ----

   A bubble takes no state from the pool: what earlier goroutines have left there, their modules for instance, would
   have a say in the run. Each goroutine has a new state, which is closed at its end. */

static void *make_state(void *at)
{
    *(struct state **)at = new_state(lgs_bubble_here());
    return NULL;
}

/* A new state of the thread's bubble, or NULL. Made on the thread's own stack, where the library doesn't take it for
   the test's doing that lua_newstate and the library `math` ask for the time. */
static struct state *new_in_bubble(struct bubble *b)
{
    struct state *S = NULL;
    gs_blocking(make_state, &S);
    if (S)
        S->program = &b->program;
    return S;
}

static void add_busy(struct state **list, struct state *S)
{
    S->next = *list;
    S->at = list;
    if (*list)
        (*list)->at = &S->next;
    *list = S;
}

static void remove_busy(struct state *S)
{
    *S->at = S->next;
    if (S->next)
        S->next->at = S->at;
}

struct state *lgs_new_check(struct bubble *b)
{
    struct state *S = new_in_bubble(b);
    if (S)
        S->checks = true;
    return S;
}

void lgs_close_check(struct state *S)
{
    S->checks = false; /* for its finalizers */
    close_state(S);
}

void lgs_drop_state(struct bubble *b, struct state *S)
{
    if (S->L)
        lgs_boxes_drop(S->L, &b->gone);
    lgs_forget_state(S);
    free_state(S);
}

/* ---- Getting and putting ---- */

struct state *lgs_get_state(struct goroutine *g, struct program *p)
{
    if (p->bubble) {
        struct state *S = new_in_bubble(p->bubble);
        if (S) {
            S->g = g;
            add_busy(&p->bubble->busy, S);
        }
        return S;
    }
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    struct state *S = pool;
    if (S) {
        pool = S->next;
        pooled--;
    } else {
        gs_mutex_unlock(&pool_lock);
        if (!(S = new_state(NULL)))
            return NULL;
        (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    }
    S->g = g;
    S->program = p;
    S->runs = gs_self();
    S->clean_up = 0;
    atomic_store(&S->stopped, atomic_load(&p->closed));
    add_busy(&busy, S);
    gs_mutex_unlock(&pool_lock);
    return S;
}

/* Resets the globals. True: the state is to be kept. */
static bool restore_globals(struct state *S)
{
    lua_State *L = S->L;
    lua_pushcfunction(L, lgs_globals_restore);
    lua_pushlightuserdata(L, S);
    bool good = lua_pcall(L, 1, 1, 0) == LUA_OK && lua_tointeger(L, -1) <= TOO_MANY;
    lua_settop(L, 0);
    return good;
}

void lgs_put_state(struct state *S)
{
    lua_State *L = S->L;
    lua_settop(L, 0);
    lua_sethook(L, NULL, 0, 0);
    S->g = NULL;
    if (S->bubble) {
        close_lua(S); /* the run may end meanwhile */
        remove_busy(S);
        free_state(S);
        return;
    }
    if (!lua_gc(L, LUA_GCISRUNNING))
        lua_gc(L, LUA_GCRESTART);
    lua_gc(L, LUA_GCINC, 200, 100, 13); /* as in a new state, by the defaults in Lua's manual */
    lua_warning(L, "@off", 0);
    bool keep = !lgs_is_stopped(S) && restore_globals(S);
    /* Runs finalizers now, and not whenever Lua would: they close files that are still open, for instance. */
    if (keep && (S->open_files > 0 || S->userdata > 0 || S->finalizers || lgs_memory(L) > S->clean + DIRTY)) {
        S->userdata = 0;
        S->finalizers = false;
        lua_gc(L, LUA_GCCOLLECT);
        S->clean = lgs_memory(L);
        lgs_heap_trim(&S->heap);
        /* Finalizers may have set globals. */
        keep = S->clean < TOO_LARGE && S->heap.size < SPARSE * S->clean + TOO_SPARSE && restore_globals(S);
    }
    lgs_scratch_done(S);
    lgs_set_running(NULL); /* finalizers may have waited; the state may soon run on another thread */
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    remove_busy(S);
    keep = keep && pooled < POOL;
    if (keep) {
        S->next = pool;
        pool = S;
        pooled++;
    }
    gs_mutex_unlock(&pool_lock);
    if (keep)
        return;
    /* In a closed program finalizers can't wait either. */
    bool stopped = lgs_is_stopped(S);
    if (stopped)
        gs_cancel_enable();
    close_state(S);
    if (stopped)
        gs_cancel_disable();
}
