/* Goroutines of Lua. */

#include "lgs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory, in bytes, of an ended goroutine that still has a handle: the library's descriptor and the copies
   of its name, paths and result. */
#define GOROUTINE 1024

/* An error that no caller has asked for is printed after this time, in ns. */
#define REPORT_AFTER LGS_SECOND

struct goroutine {
    struct shared shared;
    gs_g *g;
    struct message *job;    /* the function and its arguments */
    char *paths;            /* package.path, then package.cpath, of the goroutine that started this one */
    struct preloads *preloads; /* for package.preload; a reference, or NULL */
    struct message *result; /* the return values, or the error */
    char *traceback;
    struct state *_Atomic state; /* in which it runs; NULL: in none yet, or no longer */
    struct shared *done;         /* a wait group to count down, or NULL */
    _Atomic int status;          /* G_... */
    _Atomic bool joined;         /* a caller has been told how the goroutine ended, or waits to be */
    struct program *program;     /* the goroutine is one of its users until its end */
    struct goroutine *next_failed, **at_failed; /* the links of `failed`, also a bubble's; NULL: not in it */
    int64_t report_at;                          /* when to print the error, by gs_now */
    uint64_t number;                            /* in the run of its bubble; 0: in none */
    struct place *place;                        /* where its function begins; NULL: not in a bubble */
};

enum { G_RUNS, G_DONE, G_FAILED };

/* A Lua function, for the frames of a goroutine that hasn't begun. */
struct place {
    char function[LUA_IDSIZE + 24];
    char file[LUA_IDSIZE];
    uint32_t line;
};

/* The stack size of spawned goroutines, in bytes; 0: the library's default. */
static size_t stack_size;


/* ---- Errors that no caller has asked for ---- */

/* Goroutines whose error no caller has asked for yet, the oldest failure first; each a reference. One
 * goroutine, the reporter, waits for all of them. */
static gs_mutex failed_lock;
static struct goroutine *failed, **failed_end = &failed;
static bool reporting; /* there is a reporter; guarded by failed_lock */

static void report(struct goroutine *g)
{
    char name[128] = "";
    gs_name(g->g, name, sizeof name);
    fprintf(stderr, "gosched: goroutine %llu (%s) failed: %s\n", (unsigned long long)gs_id(g->g), name,
            g->traceback ? g->traceback : "not enough memory");
}

/* Takes the goroutine out of `failed`, or a bubble's. Called with failed_lock held, or in the bubble. */
static void remove_failed(struct goroutine *g)
{
    *g->at_failed = g->next_failed;
    if (g->next_failed)
        g->next_failed->at_failed = g->at_failed;
    else if (failed_end == &g->next_failed)
        failed_end = g->at_failed;
    g->at_failed = NULL;
}

/* Takes the goroutine out of `failed`, and passes the reference to the caller. False: it isn't there. */
static bool take_failed(struct goroutine *g)
{
    if (g->shared.inside) {
        bool is_there = g->at_failed != NULL;
        if (is_there)
            remove_failed(g);
        return is_there;
    }
    gs_cancel_disable();
    (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
    bool found = g->at_failed != NULL;
    if (found)
        remove_failed(g);
    gs_mutex_unlock(&failed_lock);
    gs_cancel_enable();
    return found;
}

/* The reporter goroutine's function. */
static void report_late(void *unused)
{
    (void)unused;
    for (;;) {
        (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
        struct goroutine *g = failed;
        int64_t at = g ? g->report_at : 0;
        bool due = g && at <= gs_now();
        if (due)
            remove_failed(g);
        reporting = g != NULL;
        gs_mutex_unlock(&failed_lock);
        if (!g)
            return;
        if (due) {
            if (!atomic_load(&g->joined))
                report(g);
            lgs_release(&g->shared);
        } else {
            (void)!gs_sleep_until(at);
        }
    }
}

/* Has a goroutine's error printed unless a caller asks for it in time. */
static void add_failed(struct goroutine *g)
{
    lgs_retain(&g->shared);
    g->report_at = gs_now() + REPORT_AFTER;
    (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
    g->at_failed = failed_end;
    *failed_end = g;
    failed_end = &g->next_failed;
    bool starts = !reporting;
    reporting = true;
    gs_mutex_unlock(&failed_lock);
    if (starts && gs_spawn(report_late, NULL) != 0) {
        /* The next failure tries again; if there is none, the error is reported at the end. */
        (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
        reporting = false;
        gs_mutex_unlock(&failed_lock);
    }
}

/* Reports, at the end of the program, the errors that have not been reported yet. */
static __attribute__((destructor)) void report_all(void)
{
    while (failed) {
        struct goroutine *g = failed;
        failed = g->next_failed;
        if (!atomic_load(&g->joined))
            report(g);
    }
}

/* ---- A goroutine's life ---- */

static void destroy_goroutine(struct shared *s, struct shared **gone)
{
    struct goroutine *g = (struct goroutine *)s;
    gs_release(g->g);
    lgs_message_drop_into(g->job, gone);
    lgs_message_drop_into(g->result, gone);
    if (g->done)
        lgs_give_up(g->done, gone);
    lgs_preloads_release(g->preloads);
    free(g->traceback);
    free(g->paths);
    free(g->place);
    free(g);
}

static void set_traceback(struct goroutine *g, const char *text)
{
    free(g->traceback);
    g->traceback = strdup(text);
}

/* The message handler: keeps the traceback, and returns the error. An error in a __close that runs because of
   an earlier error replaces that error and its traceback. */
static int note_error(lua_State *L)
{
    struct state *S = lgs_state_of(L);
    struct goroutine *g = S->g;
    lua_settop(L, 1);
    if (lgs_is_stopped(S)) /* no program is left that could ask for the error */
        return 1;
    const char *text = luaL_tolstring(L, 1, NULL);
    luaL_traceback(L, L, text, 1);
    if (g)
        set_traceback(g, lua_tostring(L, -1));
    lua_settop(L, 1);
    return 1;
}

/* Sets a field of the table `package`, which is on top of the stack. */
static void set_path(lua_State *L, const char *field, const char *path)
{
    lua_getfield(L, -1, field);
    const char *now = lua_tostring(L, -1);
    if (!now || strcmp(now, path) != 0) {
        lua_pushstring(L, path);
        lua_setfield(L, -3, field);
    }
    lua_pop(L, 1);
}

/* Drops what the goroutine has been given. A bubble's first goroutine keeps it for further runs. */
static void drop_job(struct goroutine *g)
{
    if (g->program->bubble && g->program->bubble->main == g)
        return;
    lgs_message_free(g->job);
    g->job = NULL;
    lgs_preloads_release(g->preloads);
    g->preloads = NULL;
}

/* The whole life of a goroutine; called protected. */
static int goroutine_body(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    struct goroutine *g = S->g;
    lua_settop(L, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, "package");
    if (g->paths && lua_istable(L, -1)) {
        set_path(L, "path", g->paths);
        set_path(L, "cpath", g->paths + strlen(g->paths) + 1);
    }
    lua_settop(L, 0);
    lgs_preloads_install(S, L, g->preloads);
    if (S->bubble)
        lgs_seed_random(L, (lua_Integer)gs_test_seed(), (lua_Integer)g->number);
    int n = lgs_unpack(S, L, g->job);
    drop_job(g);
    lua_call(L, n - 1, LUA_MULTRET);
    n = lua_gettop(L);
    if (n > 0)
        g->result = lgs_pack(S, L, 1, n, 0, "result");
    return 0;
}

static int pack_error(lua_State *L)
{
    struct goroutine *g = lua_touserdata(L, 1);
    g->result = lgs_pack(lgs_state_of(L), L, 2, 1, -1, "error");
    return 0;
}

static int pack_text(lua_State *L)
{
    struct goroutine *g = lua_touserdata(L, 1);
    luaL_tolstring(L, 2, NULL);
    g->result = lgs_pack(lgs_state_of(L), L, lua_gettop(L), 1, -1, "error");
    return 0;
}

/* ---- In bubbles ---- */

/* Ends the run of the calling goroutine's bubble because of g's error; g's reference becomes the bubble's. */
static void fail_run(struct bubble *b, struct goroutine *g)
{
    b->failure = g;
    /* The first lines, without the traceback. */
    char *text = strdup(g->traceback ? g->traceback : "not enough memory");
    char *trace = text ? strstr(text, "\nstack traceback:") : NULL;
    if (trace)
        *trace = '\0';
    /* Never returns, so it must not be told what is to be freed. */
    free(b->said);
    b->said = text;
    gs_test_fail(text);
}

void lgs_find_failure(struct bubble *b)
{
    for (struct goroutine *g = b->failed; g && !b->failure; g = g->next_failed)
        if (!atomic_load(&g->joined))
            b->failure = (struct goroutine *)lgs_retain(&g->shared);
}

/* The end of a goroutine of a bubble; was_cancelled: its error is that of a cancel. If the program has
   no handle of the goroutine any more, the error ends the run at once; if the handle is never joined, at the run's end. */
static void end_in_bubble(struct bubble *b, struct goroutine *g, int status, bool was_cancelled)
{
    bool is_main = g == b->main;
    atomic_store(&g->status, status);
    if (status == G_FAILED && !atomic_load(&g->joined) && (is_main || !was_cancelled)) {
        bool may_ask = atomic_load(&g->shared.refs) > 1; /* besides this goroutine's own reference */
        if (is_main)
            lgs_retain(&g->shared);
        if (is_main || !may_ask)
            fail_run(b, g);
        lgs_retain(&g->shared);
        struct goroutine **end = &b->failed;
        while (*end)
            end = &(*end)->next_failed;
        g->at_failed = end;
        g->next_failed = NULL;
        *end = g;
    }
    if (!is_main) {
        gs_set_data(gs_self(), NULL); /* for `frames` */
        lgs_release(&g->shared);
    }
    if (--b->alive > 0)
        return;
    lgs_find_failure(b);
    if (b->failure)
        fail_run(b, b->failure);
    struct state *check = b->check;
    struct shared *unseen = b->unseen;
    b->check = NULL;
    if (check)
        lgs_close_check(check);
    b->unseen = NULL;
    lgs_destroy(unseen);
}

static void run_goroutine(void *arg)
{
    struct goroutine *g = arg;
    struct bubble *b = g->program->bubble;
    bool was_cancelled = false;
    /* The program can't cancel the code from here on. */
    gs_cancel_disable();
    struct state *S = atomic_load(&g->program->closed) ? NULL : lgs_get_state(g, g->program);
    int status = G_FAILED;
    if (S) {
        lua_State *L = S->L;
        lua_pushcfunction(L, note_error);
        lua_pushcfunction(L, goroutine_body);
        lua_pushlightuserdata(L, S);
        atomic_store(&g->state, S);
        gs_cancel_enable();
        lgs_enter(S, false);
        int r = lgs_is_stopped(S) ? LUA_ERRRUN : lua_pcall(L, 1, 0, 1);
        if (r == LUA_OK) {
            status = G_DONE;
        } else if (!lgs_is_stopped(S)) {
            /* For these errors Lua calls no message handler; the error is a string. */
            if (r == LUA_ERRMEM || r == LUA_ERRERR)
                set_traceback(g, lua_tostring(L, 2));
            was_cancelled = lua_type(L, 2) == LUA_TSTRING && strcmp(lua_tostring(L, 2), "cancelled") == 0;
            /* Packs the error at 2, as it is or as tostring's text. */
            lua_pushcfunction(L, pack_error);
            lua_pushlightuserdata(L, g);
            lua_pushvalue(L, 2);
            if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
                lua_settop(L, 2);
                lua_pushcfunction(L, pack_text);
                lua_pushlightuserdata(L, g);
                lua_pushvalue(L, 2);
                lua_pcall(L, 2, 0, 0);
            }
        }
        lgs_set_running(NULL);
        gs_cancel_disable();
        atomic_store(&g->state, NULL);
        lgs_put_state(S);
    }
    drop_job(g);
    if (g->done) {
        lgs_waitgroup_add(g->done, -1);
        lgs_release(g->done);
        g->done = NULL;
    }
    if (b) {
        end_in_bubble(b, g, status, was_cancelled);
        return;
    }
    /* Before the status changes: a caller of join that sees the failure takes the goroutine out again. */
    if (status == G_FAILED && !atomic_load(&g->program->closed))
        add_failed(g);
    atomic_store(&g->status, status);
    lgs_one_fewer_alive();
    lgs_leave_program(g->program);
    gs_set_data(gs_self(), NULL); /* for `frames` */
    lgs_release(&g->shared);
}

/* The frames of a goroutine, or where it is to begin. */
static size_t frames_of(struct goroutine *g, gs_frame *to, size_t room)
{
    struct state *S = atomic_load(&g->state);
    if (S || !g->place || room == 0)
        return lgs_frames(S, to, room);
    *to = (gs_frame){.function = g->place->function, .file = g->place->file, .line = g->place->line};
    return 1;
}

static size_t frames(void *ctx, gs_g *g, gs_frame *to, size_t room)
{
    (void)ctx;
    struct goroutine *own = gs_data(g);
    return own ? frames_of(own, to, room) : 0;
}

size_t lgs_main_frames(void *bubble, gs_g *g, gs_frame *to, size_t room)
{
    (void)g;
    struct bubble *b = bubble;
    return b && b->main ? frames_of(b->main, to, room) : 0;
}

void lgs_run_main(struct bubble *b)
{
    struct goroutine *g = b->main;
    lgs_message_free(g->result);
    g->result = NULL;
    free(g->traceback);
    g->traceback = NULL;
    b->alive = 1;
    g->number = b->spawned = 1;
    atomic_store(&g->status, G_RUNS);
    run_goroutine(g);
}

bool lgs_sweep(struct bubble *b)
{
    bool has_failed = b->alive > 0 || b->failure;
    while (b->busy) {
        struct state *S = b->busy;
        b->busy = S->next;
        if (S->g) /* the library keeps the goroutine, and asks for its frames */
            atomic_store(&S->g->state, NULL);
        lgs_drop_state(b, S);
    }
    if (b->check)
        lgs_drop_state(b, b->check);
    b->check = NULL;
    b->unseen = NULL; /* they may have waiters */
    while (b->failed) {
        struct goroutine *g = b->failed;
        remove_failed(g);
        lgs_give_up(&g->shared, &b->gone);
    }
    if (b->failure)
        lgs_give_up(&b->failure->shared, &b->gone);
    b->failure = NULL;
    free(b->said);
    b->said = NULL;
    b->alive = 0;
    return has_failed;
}

void lgs_goroutines_start(size_t stack)
{
    stack_size = stack;
    gs_add_frames(run_goroutine, frames, NULL);
}

/* ---- Functions of the module ---- */

/* Reads the options of gosched.go from the table at index. */
static void read_options(lua_State *L, int index, gs_spawn_opts *opts, const char **name)
{
    lua_pushnil(L);
    while (lua_next(L, index)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "name") == 0) {
            *name = lua_tostring(L, -1);
            if (lua_type(L, -1) != LUA_TSTRING)
                luaL_error(L, "option 'name': string expected, got %s", luaL_typename(L, -1));
        } else if (strcmp(key, "stack") == 0) {
            lua_Integer n = lua_tointeger(L, -1);
            if (!lua_isinteger(L, -1) || n < 0 || n > 1 << 30)
                luaL_error(L, "option 'stack': a number of bytes up to 1 GiB expected");
            opts->stack_size = n == 0 || (size_t)n >= LGS_LEAST_STACK ? (size_t)n : LGS_LEAST_STACK;
        } else if (strcmp(key, "priority") == 0) {
            const char *names[] = {"idle", "low", "normal", "high"};
            const char *value = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
            int i = 0;
            while (i < 4 && strcmp(names[i], value) != 0)
                i++;
            if (i == 4)
                luaL_error(L, "option 'priority': 'high', 'normal', 'low' or 'idle' expected");
            opts->priority = i - 2;
        } else {
            luaL_error(L, "unknown option '%s': there are name, stack and priority", luaL_tolstring(L, -2, NULL));
        }
        lua_pop(L, 1);
    }
}

/* Where the function at index begins; NULL: no memory. */
static struct place *place_of(lua_State *L, int index)
{
    struct place *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    lua_Debug ar;
    lua_pushvalue(L, index);
    lua_getinfo(L, ">S", &ar);
    snprintf(p->file, sizeof p->file, "%s", *ar.what == 'C' ? "[C]" : ar.short_src);
    const char *base = strrchr(p->file, '/');
    snprintf(p->function, sizeof p->function, "function <%s:%d>", base ? base + 1 : p->file, ar.linedefined);
    p->line = ar.linedefined > 0 ? (uint32_t)ar.linedefined : 0;
    return p;
}

/* The state's package.path and package.cpath, one after the other; NULL: there are none. */
static char *copy_paths(lua_State *L)
{
    int top = lua_gettop(L);
    char *both = NULL;
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "package") == LUA_TTABLE && lua_getfield(L, top + 2, "path") == LUA_TSTRING
        && lua_getfield(L, top + 2, "cpath") == LUA_TSTRING) {
        size_t n = strlen(lua_tostring(L, -2)) + 1, m = strlen(lua_tostring(L, -1)) + 1;
        both = malloc(n + m);
        if (both) {
            memcpy(both, lua_tostring(L, -2), n);
            memcpy(both + n, lua_tostring(L, -1), m);
        }
    }
    lua_settop(L, top);
    return both;
}

/* Adds to the number of goroutines that have not ended, in the state's bubble or outside of bubbles. */
static void count_alive(struct state *S, int more)
{
    if (S->bubble)
        S->bubble->alive += more;
    else
        atomic_fetch_add(&lgs_alive, more);
}

int lgs_go(struct state *S, lua_State *L, int index, struct shared *done)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    const char *name = NULL;
    char place[80];
    opts.stack_size = stack_size;
    if (lua_istable(L, index)) {
        read_options(L, index, &opts, &name);
        if (name) {
            /* Kept on the stack in the table's place: a function of gosched.clone may take the name out of the
               table. */
            lua_pushstring(L, name);
            lua_replace(L, index);
            name = lua_tostring(L, index);
        }
        index++;
    }
    luaL_checktype(L, index, LUA_TFUNCTION);
    if (!name) {
        lua_Debug ar;
        lua_pushvalue(L, index);
        lua_getinfo(L, ">S", &ar);
        snprintf(place, sizeof place, "%s:%d", ar.short_src, ar.linedefined);
        name = place;
    }
    int top = lua_gettop(L);
    struct goroutine *g = lgs_new(L, sizeof *g, LGS_GOROUTINE);
    g->job = lgs_pack(S, L, index, top - index + 1, 1, "argument");
    g->paths = copy_paths(L);
    g->preloads = lgs_preloads(S, L);
    if (S->bubble) {
        g->number = ++S->bubble->spawned;
        g->place = place_of(L, index);
    }
    if (done) {
        lgs_leave(S, false);
        int r = lgs_waitgroup_add(done, 1);
        lgs_enter(S, false);
        if (r < 0)
            return luaL_error(L, "the wait group's counter would be too large");
        g->done = lgs_retain(done);
    }
    opts.name = name;
    opts.data = g;
    struct program *p = g->program = lgs_join_program(S);
    lgs_retain(&g->shared);
    count_alive(S, 1);
    lgs_leave(S, false);
    int r = p ? gs_spawn_with(run_goroutine, g, &opts, &g->g) : -ECANCELED;
    if (p && r < 0)
        lgs_leave_program(p);
    lgs_enter(S, false);
    if (r < 0) {
        count_alive(S, -1);
        g->shared.refs = 1;
        atomic_store(&g->joined, true);
        if (done) {
            lgs_leave(S, false);
            lgs_waitgroup_add(done, -1);
            lgs_enter(S, false);
        }
        return luaL_error(L, "no goroutine: %s", p ? gs_strerror(r) : "the main program's state is closed");
    }
    lua_settop(L, top + 1);
    lgs_boxed(L);
    lgs_charge(S, L, GOROUTINE);
    return 1;
}

void lgs_new_main(struct state *S, lua_State *L, int index, struct bubble *b)
{
    int top = lua_gettop(L);
    struct goroutine *g = lgs_new(L, sizeof *g, LGS_GOROUTINE);
    g->job = lgs_pack(S, L, index, top - index + 1, 1, "argument");
    g->paths = copy_paths(L);
    g->preloads = lgs_preloads(S, L);
    g->place = place_of(L, index);
    g->program = &b->program;
    atomic_store(&g->joined, false);
    b->main = g;
    lgs_boxed(L);
}

int lgs_push_results(struct state *S, lua_State *L, struct bubble *b)
{
    return b->main->result ? lgs_unpack(S, L, b->main->result) : 0;
}

const char *lgs_push_failure(struct state *S, lua_State *L, struct bubble *b, uint64_t *number)
{
    struct goroutine *g = b->failure;
    if (g->result)
        lgs_unpack(S, L, g->result);
    else
        lua_pushliteral(L, "not enough memory");
    *number = g->number;
    return g->traceback;
}

static int l_go(lua_State *L)
{
    return lgs_go(lgs_state(L), L, 1, NULL);
}

static int l_join(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct goroutine *g = lgs_check(L, 1, LGS_GOROUTINE);
    gs_deadline deadline = lgs_deadline(L, 2);
    lua_settop(L, 1);
    bool was = atomic_exchange(&g->joined, true);
    lgs_leave(S, deadline == GS_FOREVER);
    int r = gs_join(g->g, deadline);
    lgs_enter(S, deadline == GS_FOREVER);
    if (r < 0) {
        /* This call has failed, so it no longer asks for the goroutine's error. */
        if (!was)
            atomic_store(&g->joined, false);
        if (r == -EDEADLK)
            return luaL_error(L, "a goroutine can't join itself");
        return lgs_fail(S, L, r);
    }
    bool failed_it = atomic_load(&g->status) == G_FAILED;
    if (failed_it) {
        lgs_leave(S, false);
        if (take_failed(g))
            lgs_release(&g->shared);
        lgs_enter(S, false);
    }
    lua_pushboolean(L, !failed_it);
    if (failed_it && !g->result)
        lua_pushliteral(L, "not enough memory");
    else
        lgs_unpack(S, L, g->result);
    if (failed_it)
        lua_pushstring(L, g->traceback);
    return lua_gettop(L) - 1;
}

static int l_cancel(lua_State *L)
{
    struct state *S = lgs_state(L);
    struct goroutine *g = lgs_check(L, 1, LGS_GOROUTINE);
    lgs_leave(S, false);
    gs_cancel(g->g);
    lgs_enter(S, false);
    return 0;
}

static int l_status(lua_State *L)
{
    static const char *const names[] = {"running", "done", "failed"};
    struct goroutine *g = lgs_check(L, 1, LGS_GOROUTINE);
    lgs_look(lgs_state(L));
    lua_pushstring(L, names[atomic_load(&g->status)]);
    return 1;
}

static int l_name(lua_State *L)
{
    struct goroutine *g = lgs_check(L, 1, LGS_GOROUTINE);
    char name[256];
    gs_name(g->g, name, sizeof name);
    lua_pushstring(L, name);
    return 1;
}

static int goroutine_tostring(lua_State *L)
{
    struct goroutine *g = lgs_check(L, 1, LGS_GOROUTINE);
    l_name(L);
    lua_pushfstring(L, "goroutine (%s): %p", lua_tostring(L, -1), (void *)g);
    return 1;
}

static const luaL_Reg goroutine_meta[] = {{"__tostring", goroutine_tostring}, {NULL, NULL}};
static const luaL_Reg goroutine_methods[] = {
    {"join", l_join}, {"cancel", l_cancel}, {"status", l_status}, {"name", l_name}, {NULL, NULL}};

static int l_yield(lua_State *L)
{
    struct state *S = lgs_state(L);
    lgs_leave(S, false);
    gs_yield();
    lgs_enter(S, false);
    return gs_cancelled() ? lgs_raise_cancelled(S, L) : 0;
}

static int l_sleep(lua_State *L)
{
    struct state *S = lgs_state(L);
    gs_duration ns = lgs_seconds(L, 1);
    lgs_leave(S, false);
    int r = gs_sleep(ns);
    lgs_enter(S, false);
    return r < 0 ? lgs_fail(S, L, r) : 0;
}

static int l_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gs_now() / LGS_SECOND);
    return 1;
}

static int l_id(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)gs_id(gs_self()));
    return 1;
}

static int l_procs(lua_State *L)
{
    struct state *S = lgs_state(L);
    lua_Integer n = luaL_optinteger(L, 1, 0);
    luaL_argcheck(L, lua_isnoneornil(L, 1) || (n >= 1 && n <= GS_MAX_PROCS), 1, "a number from 1 to 1024 expected");
    lgs_leave(S, false);
    int r = gs_gomaxprocs((int)n);
    lgs_enter(S, false);
    if (r < 0)
        return luaL_error(L, "%s", gs_strerror(r));
    lua_pushinteger(L, r);
    return 1;
}

static int l_count(lua_State *L)
{
    struct state *S = lgs_state(L);
    lgs_look(S);
    lua_pushinteger(L, S->bubble ? S->bubble->alive : atomic_load(&lgs_alive));
    return 1;
}

static const luaL_Reg functions[] = {
    {"go", l_go},       {"yield", l_yield}, {"sleep", l_sleep}, {"now", l_now},       {"id", l_id},
    {"procs", l_procs}, {"count", l_count}, {"clone", lgs_clone}, {NULL, NULL}};

void lgs_goroutines_open(struct state *S, lua_State *L)
{
    lgs_metatable(S, L, LGS_GOROUTINE, destroy_goroutine, goroutine_meta, goroutine_methods);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
}
