/* The module, in the states of main programs and of goroutines. */

#include "lgs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

LUALIB_API int luaopen_gosched(lua_State *L);
LUALIB_API int luaopen_gosched_test(lua_State *L);

static pthread_once_t started = PTHREAD_ONCE_INIT;
static bool watched; /* for deadlocks; if false the module can't start */

/* Makes the libraries of a new state; called protected. */
static int fill_state(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    luaL_openlibs(L);
    lua_pushlightuserdata(L, S);
    lgs_note_state(L);
    if (S->bubble)
        lgs_pairs_replace(L);
    lgs_globals_open(S, L);
    luaL_requiref(L, "gosched", luaopen_gosched, 0);
    lua_pop(L, 1);
    lgs_processes_replace(S, L);
    lua_getglobal(L, "coroutine");
    lgs_coroutines_replace(S, L);
    lua_pop(L, 1);
    return 0;
}

/* Keeps the module loaded: lua_close unloads a state's modules while goroutines still run here. */
static void stay_loaded(void)
{
    Dl_info here;
    if (dladdr(lgs_names, &here) && here.dli_fname)
        dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void start_module(void)
{
    stay_loaded();
    gs_config config = GS_CONFIG_INIT;
    if (!getenv("GOSCHED_STACK_SIZE"))
        config.stack_size = LGS_STACK;
    /* -EBUSY: the host has started the library, with stacks for its own purposes. */
    lgs_goroutines_start(gs_init(&config) == -EBUSY ? LGS_STACK : 0);
    lgs_turns_start();
    lgs_frames_start();
    watched = lgs_watch_start();
    lgs_pool_start(fill_state);
}

/* Closes a main program's state. */
static int main_gc(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    lgs_set_running(NULL);
    /* Keeps finalizers that run later from making this the thread's running state. */
    S->L = S->coroutine = NULL;
    lgs_forget_state(S);
    lgs_hide_main(S);
    struct state *callers = lgs_close_program(S->program);
    lgs_leave_program(S->program);
    S->program = NULL;
    struct state *same = lgs_unwatch_main(S);
    bool attached = S->attached && S->self == gs_self();
    gs_release(S->self);
    S->self = NULL;
    lgs_one_fewer_alive();
    free(S->scratch);
    free(S->packing);
    lgs_preloads_release(S->preloads);
    S->preloads = NULL;
    S->scratch = NULL;
    S->scratch_size = 0;
    S->packing = NULL;
    S->attached = false;
    if (attached && !same)
        gs_detach();
    if (callers)
        lgs_enter(callers, false);
    return 0;
}

static struct state *open_main(lua_State *L)
{
    struct state *S = lua_newuserdatauv(L, sizeof *S, 0);
    memset(S, 0, sizeof *S);
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    S->L = lua_tothread(L, -1);
    lua_pop(L, 1);
    pthread_once(&started, start_module);
    if (!watched || !(S->program = calloc(1, sizeof *S->program)))
        luaL_error(L, "gosched can't start: not enough memory or threads");
    S->program->users = 1;
    int r = gs_attach(0);
    if (r < 0 && r != -EBUSY && r != -ENOSYS) {
        lgs_leave_program(S->program);
        luaL_error(L, "gosched can't start: %s", gs_strerror(r));
    }
    S->attached = r == 0;
    S->self = gs_retain(gs_self());
    atomic_fetch_add(&lgs_alive, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, main_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lgs_note_state(L);
    lgs_watch_main(S);
    lgs_show_main(S);
    return S;
}

LUALIB_API int luaopen_gosched(lua_State *L)
{
    luaL_checkversion(L);
    struct state *S = lgs_state_of(L);
    if (!S)
        S = open_main(L);
    lgs_boxes_open(L);
    lgs_pack_open(S, L);
    lgs_unpack_open(L);
    lua_createtable(L, 0, 32);
    lgs_goroutines_open(S, L);
    lgs_sync_open(S, L);
    lgs_files_open(S, L);
    lgs_sockets_open(S, L);
    lgs_processes_open(S, L);
    lgs_inspect_open(S, L);
    lgs_testing_open(S, L);
    lua_pushstring(L, gs_version());
    lua_setfield(L, -2, "version");
    lgs_enter(S, false);
    return 1;
}

/* For `require "gosched.test"` before `require "gosched"`. */
LUALIB_API int luaopen_gosched_test(lua_State *L)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "gosched");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "test");
    return 1;
}
