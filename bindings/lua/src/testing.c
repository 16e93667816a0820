/* gosched.test: runs of a function in a bubble, by seeds.

   A bubble is run by a plain thread that is made for it, because the caller's thread runs goroutines already. The
   caller waits as for any other goroutine. The test's function is copied, as for gosched.go, to a new state in each
   run, and so are its results, or its error, to the caller in the end. So no run leaves anything behind in Lua.

   Goroutines that are left when a run is over never go on. The library keeps their stacks, on which it may have
   waiters, and this module what these stacks point to outside of Lua: channels, mutexes, handles. Their states are
   freed as a whole: nothing but these goroutines could use them. */

#include "lgs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The seeds of gosched.test.explore without a number. */
#define RUNS 1000

/* One call of gosched.test.run or explore. */
struct call {
    struct bubble b;
    gs_test_opts opts;
    struct message *check; /* opts.check, which begins with each run; or NULL */
    bool explores;
    uint64_t runs;
    int64_t result; /* the library's */
    gs_waitgroup over;
};

/* ---- The check ---- */

static int load_check(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    const struct message *m = lua_touserdata(L, 2);
    lua_settop(L, 0);
    return lgs_unpack(S, L, m);
}

/* Makes the run's check: a state with the function at the bottom of its stack. The error's text, for the caller to free;
   NULL: there is none. */
static char *begin_check(struct bubble *b, const struct message *m)
{
    struct state *old = b->check, *S = lgs_new_check(b);
    if (!S)
        return strdup("not enough memory for the check");
    lua_pushcfunction(S->L, load_check);
    lua_pushlightuserdata(S->L, S);
    lua_pushlightuserdata(S->L, (void *)m);
    if (lua_pcall(S->L, 2, 1, 0) != LUA_OK) {
        const char *text = lua_tostring(S->L, -1);
        char *error = strdup(text ? text : "the check can't be copied");
        lgs_close_check(S);
        return error;
    }
    b->check = S;
    if (old)
        lgs_close_check(old);
    return NULL;
}

/* The message handler of the check. */
static int with_traceback(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

/* Called after each step, between two goroutines: whether the run is to end. */
static int after_step(void *bubble)
{
    struct bubble *b = bubble;
    if (atomic_load_explicit(&b->stop, memory_order_relaxed))
        return 1;
    if (!b->check)
        return 0;
    lua_State *L = b->check->L;
    lua_pushcfunction(L, with_traceback);
    lua_pushvalue(L, 1);
    int r = lua_pcall(L, 0, 2, 2);
    bool is_false = r == LUA_OK && lua_isboolean(L, -2) && !lua_toboolean(L, -2);
    if (r != LUA_OK || is_false) {
        const char *why = lua_tostring(L, -1);
        free(b->said);
        b->said = strdup(why ? why : "the check returned false");
        lua_settop(L, 1);
        return 1;
    }
    lua_settop(L, 1);
    return 0;
}

/* ---- The thread ---- */

/* Drops what a run has left. */
static void sweep(struct bubble *b)
{
    bool has_failed = lgs_sweep(b);
    lgs_sweep_files(b, has_failed);
}

/* The goroutine with which each run begins. */
static void begin(void *arg)
{
    struct call *c = arg;
    sweep(&c->b);
    if (c->check && (c->b.said = begin_check(&c->b, c->check)) != NULL)
        gs_test_fail(c->b.said);
    lgs_run_main(&c->b);
}

static size_t frames(void *ctx, gs_g *g, gs_frame *to, size_t room)
{
    (void)ctx;
    return lgs_main_frames(lgs_bubble_here(), g, to, room);
}

static void *run_thread(void *arg)
{
    struct call *c = arg;
    /* For the program's other threads. */
    sigset_t theirs;
    sigemptyset(&theirs);
    sigaddset(&theirs, SIGINT);
    sigaddset(&theirs, SIGTERM);
    sigaddset(&theirs, SIGHUP);
    sigaddset(&theirs, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &theirs, NULL);
    lgs_bubble = &c->b;
    lgs_turns_here();
    c->result = c->explores ? gs_test_explore(begin, c, &c->opts, c->runs) : gs_test_run(begin, c, &c->opts);
    lgs_set_running(NULL);
    lgs_bubble = NULL;
    gs_waitgroup_done(&c->over);
    return NULL;
}

/* Runs the bubble while the caller waits. 0; -ECANCELED: the caller was cancelled; another error: there is no thread. */
static int run_bubble(struct call *c)
{
    pthread_t thread;
    (void)!gs_waitgroup_add(&c->over, 1);
    gs_preempt_disable();
    int e = pthread_create(&thread, NULL, run_thread, c);
    gs_preempt_enable();
    if (e != 0)
        return -e;
    int r = gs_waitgroup_wait(&c->over, GS_FOREVER);
    if (r < 0) {
        atomic_store(&c->b.stop, true);
        gs_cancel_disable();
        (void)!gs_waitgroup_wait(&c->over, GS_FOREVER);
        gs_cancel_enable();
    }
    pthread_join(thread, NULL); /* it has nothing left to do */
    return r;
}

/* ---- What a failure is ---- */

static const char failure_name[] = "gosched.failure";

static int failure_tostring(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_getfield(L, 1, "report") != LUA_TSTRING)
        lua_pushliteral(L, "a run has failed");
    return 1;
}

/* Appends n bytes of text, in which `to` stands in place of the first `from`. NULL: as it is. */
static void add_report(luaL_Buffer *b, const char *text, size_t n, const char *from, const char *to)
{
    const char *at = from ? memmem(text, n, from, strlen(from)) : NULL;
    if (at) {
        luaL_addlstring(b, text, (size_t)(at - text));
        luaL_addstring(b, to);
        n -= (size_t)(at + strlen(from) - text);
        text = at + strlen(from);
    }
    luaL_addlstring(b, text, n);
}

/* The library's report, without what it has said before: from its last line with a seed on. */
static const char *last_report(const char *text)
{
    static const char begins[] = "gosched: test: seed ";
    const char *last = text;
    for (const char *at = text; (at = strstr(at, begins)) != NULL; at++)
        if (at == text || at[-1] == '\n')
            last = at;
    return last;
}

/* Whether a run has failed, by the library's result. All other errors are those of a call that made none. */
static bool is_failure(int64_t result)
{
    return result == -EDEADLK || result == -ETIMEDOUT || result == -EPROTO || result == -EPERM;
}

/* Pushes the error of a run that has failed: a table. */
static void push_failure(struct state *S, lua_State *L, struct call *c, const char *text)
{
    const char *report = last_report(text), *traceback = NULL, *at;
    uint64_t number = 0;
    lua_createtable(L, 0, 8);
    int table = lua_gettop(L);
    luaL_setmetatable(L, failure_name);
    unsigned long long seed;
    if (sscanf(report, "gosched: test: seed %llu", &seed) == 1) {
        lua_pushinteger(L, (lua_Integer)seed);
        lua_setfield(L, table, "seed");
    }
    if ((at = strstr(report, "GOSCHED_TEST=replay=")) != NULL) {
        at += strlen("GOSCHED_TEST=replay=");
        lua_pushlstring(L, at, strcspn(at, "\n"));
        lua_setfield(L, table, "replay");
    }
    const char *kind = "failed", *message = c->b.said;
    if (c->result == -EDEADLK) {
        kind = "deadlock";
        message = "all goroutines are asleep - deadlock!";
    } else if (c->result == -ETIMEDOUT) {
        kind = "steps";
        message = "the run takes too many steps";
    } else if (c->result == -EPERM) {
        kind = "disturbed";
        message = NULL;
    } else if (c->b.failure) {
        kind = "error";
    }
    lua_pushstring(L, kind);
    lua_setfield(L, table, "kind");
    if (!message) { /* the rest of the first line */
        at = strstr(report, ": ");
        at = at ? strstr(at + 2, ": ") : NULL;
        at = at ? at + 2 : report;
        lua_pushlstring(L, at, strcspn(at, "\n"));
    } else {
        lua_pushstring(L, message);
    }
    lua_setfield(L, table, "message");
    /* The error of a goroutine that was not joined may be the cause of a deadlock. */
    lgs_find_failure(&c->b);
    if (c->b.failure) {
        traceback = lgs_push_failure(S, L, &c->b, &number);
        lua_setfield(L, table, "error");
        lua_pushinteger(L, (lua_Integer)number);
        lua_setfield(L, table, "goroutine");
        lua_pushstring(L, traceback);
        lua_setfield(L, table, "traceback");
    }
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    add_report(&b, report, strlen(report), c->b.said ? "the check returned 1" : NULL, c->b.said);
    while (luaL_bufflen(&b) > 0 && luaL_buffaddr(&b)[luaL_bufflen(&b) - 1] == '\n')
        luaL_buffsub(&b, 1);
    if (traceback) {
        char head[64];
        snprintf(head, sizeof head, "\ngoroutine %llu has failed: ", (unsigned long long)number);
        luaL_addstring(&b, head);
        luaL_addstring(&b, traceback);
    }
    luaL_pushresult(&b);
    lua_setfield(L, table, "report");
}

/* What has been written to a file, with a zero at its end, in the state's scratch. */
static const char *text_of(struct state *S, int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *text = lgs_scratch(S, (size_t)(size > 0 ? size : 0) + 1, false);
    ssize_t n = text ? pread(fd, text, (size_t)(size > 0 ? size : 0), 0) : 0;
    if (!text)
        return "";
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* Pushes true and the results, or false and the failure; called protected. */
static int push_outcome(lua_State *L)
{
    struct call *c = lua_touserdata(L, 1);
    struct state *S = lgs_state(L);
    lua_settop(L, 0);
    if (c->result < 0) {
        /* Copied: what is pushed may use the scratch. */
        lua_pushstring(L, text_of(S, c->opts.report));
        lua_pushboolean(L, 0);
        push_failure(S, L, c, lua_tostring(L, 1));
        return 2;
    }
    lua_pushboolean(L, 1);
    if (c->explores) {
        lua_pushinteger(L, (lua_Integer)c->result);
        return 2;
    }
    return 1 + lgs_push_results(S, L, &c->b);
}

/* ---- Options ---- */

static int bad_option(lua_State *L, const char *name, const char *wanted)
{
    return luaL_error(L, "option '%s': %s expected, got %s", name, wanted, luaL_tolstring(L, -1, NULL));
}

/* An integer from `least` on, on top of the stack. */
static uint64_t integer_option(lua_State *L, const char *name, lua_Integer least, lua_Integer most)
{
    int is_one;
    lua_Integer n = lua_tointegerx(L, -1, &is_one);
    if (!is_one || lua_type(L, -1) != LUA_TNUMBER || n < least || n > most)
        bad_option(L, name, least == 1 ? "an integer above 0" : "an integer");
    return (uint64_t)n;
}

static uint32_t chance_option(lua_State *L, const char *name)
{
    lua_Number x = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(x >= 0 && x <= 1))
        bad_option(L, name, "a chance from 0 to 1");
    return (uint32_t)lround((double)x * 1000);
}

static gs_duration time_option(lua_State *L, const char *name)
{
    lua_Number x = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || !(x >= 0 && x < 9e9))
        bad_option(L, name, "a number of seconds");
    return (gs_duration)llround((double)x * LGS_SECOND);
}

static const char *string_option(lua_State *L, const char *name)
{
    if (lua_type(L, -1) != LUA_TSTRING)
        bad_option(L, name, "a string");
    return lua_tostring(L, -1);
}

static const char *key_of(lua_State *L)
{
    return lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
}

/* Reads the table `net` on top of the stack. */
static void read_net(lua_State *L, gs_test_net *net)
{
    const struct {
        const char *name;
        uint32_t *to;
    } chances[] = {{"loss", &net->loss},   {"duplicate", &net->duplicate}, {"cut", &net->cut},
                   {"reset", &net->reset}, {"refuse", &net->refuse},       {"short_io", &net->short_io}};
    if (!lua_istable(L, -1))
        bad_option(L, "net", "a table");
    lua_pushnil(L);
    for (; lua_next(L, -2); lua_pop(L, 1)) {
        const char *key = key_of(L);
        size_t i = 0;
        while (i < sizeof chances / sizeof *chances && strcmp(chances[i].name, key) != 0)
            i++;
        if (i < sizeof chances / sizeof *chances)
            *chances[i].to = chance_option(L, key);
        else if (strcmp(key, "delay") == 0)
            net->delay = time_option(L, key);
        else if (strcmp(key, "jitter") == 0)
            net->jitter = time_option(L, key);
        else
            luaL_error(L,
                       "unknown option '%s' of net: there are delay, jitter, loss, duplicate, cut, reset, refuse and short_io",
                       luaL_tolstring(L, -2, NULL));
    }
}

/* Reads the table of options at 1. Strings that the options point to stay in the table. */
static void read_options(struct state *S, lua_State *L, struct call *c, const char **log)
{
    static const char *const schedules[] = {"random", "pct", "round_robin"};
    lua_pushnil(L);
    for (; lua_next(L, 1); lua_pop(L, 1)) {
        const char *key = key_of(L);
        if (strcmp(key, "seed") == 0) {
            c->opts.seed = integer_option(L, key, 1, LUA_MAXINTEGER);
        } else if (strcmp(key, "schedule") == 0) {
            const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
            while (c->opts.schedule < 3 && strcmp(schedules[c->opts.schedule], name) != 0)
                c->opts.schedule++;
            if (c->opts.schedule == 3)
                bad_option(L, key, "'random', 'pct' or 'round_robin'");
        } else if (strcmp(key, "depth") == 0) {
            c->opts.depth = (uint32_t)integer_option(L, key, 1, INT32_MAX);
        } else if (strcmp(key, "max_steps") == 0) {
            c->opts.max_steps = integer_option(L, key, 1, LUA_MAXINTEGER);
        } else if (strcmp(key, "check") == 0) {
            if (!lua_isfunction(L, -1))
                bad_option(L, key, "a function");
            lgs_message_free(c->check);
            c->check = NULL;
            c->check = lgs_pack(S, L, lua_gettop(L), 1, -1, "check");
        } else if (strcmp(key, "replay") == 0) {
            c->opts.replay = string_option(L, key);
        } else if (strcmp(key, "log") == 0) {
            *log = string_option(L, key);
        } else if (strcmp(key, "net") == 0) {
            read_net(L, &c->opts.net);
        } else if (strcmp(key, "cancel") == 0) {
            c->opts.cancel = chance_option(L, key);
        } else if (strcmp(key, "no_memory") == 0) {
            c->opts.no_memory = chance_option(L, key);
        } else if (strcmp(key, "strict") == 0) {
            if (!lua_isboolean(L, -1))
                bad_option(L, key, "a boolean");
            c->opts.flags |= lua_toboolean(L, -1) ? GS_TEST_STRICT : 0;
        } else {
            luaL_error(L,
                       "unknown option '%s': there are seed, schedule, depth, max_steps, check, replay, log, net, cancel, "
                       "no_memory and strict",
                       luaL_tolstring(L, -2, NULL));
        }
    }
}

/* ---- The functions ---- */

/* Reads the arguments, at 2 and up, and packs them; called protected, with the struct call at 1. Returns the path of
   the log, or nil, and b->main's handle. */
static int read_arguments(lua_State *L)
{
    struct call *c = lua_touserdata(L, 1);
    struct state *S = lgs_state(L);
    const char *log = NULL;
    lua_remove(L, 1);
    if (!lua_istable(L, 1)) {
        lua_pushnil(L);
        lua_insert(L, 1);
    } else {
        read_options(S, L, c, &log);
    }
    c->runs = RUNS;
    if (c->explores && lua_type(L, 2) == LUA_TNUMBER) {
        lua_Integer n = luaL_checkinteger(L, 2);
        if (n < 0)
            luaL_error(L, "the number of runs is negative");
        c->runs = (uint64_t)n;
        lua_remove(L, 2);
    }
    if (!lua_isfunction(L, 2))
        luaL_error(L, "function to test expected, got %s", luaL_typename(L, 2));
    lgs_new_main(S, L, 2, &c->b);
    if (log)
        lua_pushstring(L, log);
    else
        lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

/* Frees what is left of the call. The caller is between lgs_leave and lgs_enter. */
static void free_call(struct call *c)
{
    sweep(&c->b);
    lgs_destroy(c->b.gone);
    lgs_message_free(c->check);
    if (c->opts.report > 0)
        close(c->opts.report);
    if (c->opts.log > 0)
        close(c->opts.log);
    free(c);
}

static int run_or_explore(lua_State *L, bool explores)
{
    struct state *S = lgs_state(L);
    if (S->bubble)
        return luaL_error(L, "a run can't be made within a run");
    struct call *c = calloc(1, sizeof *c);
    if (!c)
        return luaL_error(L, "not enough memory");
    c->b.program.users = 1;
    c->b.program.bubble = &c->b;
    c->explores = explores;
    c->opts.size = sizeof c->opts;
    c->opts.flags = GS_TEST_CRASH; /* a goroutine that crashes leaves the interpreter as it is */
    c->opts.check = after_step;
    c->opts.check_arg = &c->b;
    int n = lua_gettop(L);
    luaL_checkstack(L, n + 10, NULL);
    lua_pushlightuserdata(L, S);
    lua_pushcclosure(L, read_arguments, 1);
    lua_pushlightuserdata(L, c);
    for (int i = 1; i <= n; i++)
        lua_pushvalue(L, i);
    int r = lua_pcall(L, n + 1, 2, 0);
    const char *error = NULL;
    if (r == LUA_OK) {
        const char *log = lua_tostring(L, -2);
        if ((c->opts.report = memfd_create("gosched", MFD_CLOEXEC)) < 0)
            r = -errno;
        else if (log && (c->opts.log = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
            r = -errno;
        error = log;
        lgs_leave(S, false);
        if (r == 0)
            r = run_bubble(c);
        lgs_enter(S, false);
        if (r == 0 && c->result < 0 && !is_failure(c->result))
            r = (int)c->result;
        bool was_bad = r == -EINVAL && c->result == -EINVAL;
        if (r == -ECANCELED) {
            lua_settop(L, 0);
        } else if (was_bad) {
            lua_pushliteral(L, "the schedule to replay is none, or GOSCHED_TEST is neither seed=NUMBER nor replay=SCHEDULE");
        } else if (r < 0) {
            char text[128];
            lua_pushfstring(L, "no run: %s%s%s", error ? error : "", error ? ": " : "", strerror_r(-r, text, sizeof text));
        } else {
            lua_pushlightuserdata(L, S);
            lua_pushcclosure(L, push_outcome, 1);
            lua_pushlightuserdata(L, c);
            r = lua_pcall(L, 1, LUA_MULTRET, 0);
        }
    }
    bool cancelled = r == -ECANCELED;
    int top = lua_gettop(L);
    lgs_leave(S, false);
    free_call(c);
    lgs_enter(S, false);
    if (cancelled)
        return lgs_fail(S, L, -ECANCELED);
    if (r != LUA_OK) {
        /* An error in an argument is one of the caller's. */
        if (lua_type(L, -1) == LUA_TSTRING) {
            luaL_where(L, 1);
            lua_insert(L, -2);
            lua_concat(L, 2);
        }
        return lua_error(L);
    }
    /* Behind the two results of read_arguments: true and the results, or false and the failure. */
    int first = n + 3;
    if (!lua_toboolean(L, first))
        return lua_error(L);
    return top - first;
}

static int l_run(lua_State *L)
{
    return run_or_explore(L, false);
}

static int l_explore(lua_State *L)
{
    return run_or_explore(L, true);
}

/* gosched.test.replay([options, ]schedule, f, ...): run with the option `replay` */
static int l_replay(lua_State *L)
{
    lua_newtable(L);
    if (lua_istable(L, 1)) {
        lua_pushnil(L);
        while (lua_next(L, 1)) {
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_settable(L, -4);
        }
        lua_remove(L, 1);
    }
    luaL_argexpected(L, lua_type(L, 1) == LUA_TSTRING, 1, "schedule");
    lua_pushvalue(L, 1);
    lua_setfield(L, -2, "replay");
    lua_replace(L, 1);
    return run_or_explore(L, false);
}

static int l_fail(lua_State *L)
{
    struct state *S = lgs_state(L);
    const char *message = luaL_tolstring(L, 1, NULL);
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
    message = lua_tostring(L, -1);
    if (!S->bubble || S->checks)
        return lua_error(L);
    char *said = strdup(message);
    lgs_leave(S, false);
    free(S->bubble->said);
    S->bubble->said = said;
    gs_test_fail(said);
    lgs_enter(S, false);
    return 0;
}

static int l_check(lua_State *L)
{
    struct state *S = lgs_state(L);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    if (!S->bubble)
        return luaL_error(L, "a check belongs into a run");
    lua_settop(L, 1);
    struct message *m = lgs_pack(S, L, 1, 1, -1, "check");
    lgs_leave(S, false);
    char *error = begin_check(S->bubble, m);
    lgs_message_free(m);
    lgs_enter(S, false);
    if (!error)
        return 0;
    lua_pushstring(L, error);
    free(error);
    return lua_error(L);
}

static int l_seed(lua_State *L)
{
    uint64_t seed = gs_test_seed();
    if (seed == 0)
        return 0;
    lua_pushinteger(L, (lua_Integer)seed);
    return 1;
}

static const luaL_Reg functions[] = {{"run", l_run},   {"explore", l_explore}, {"replay", l_replay}, {"fail", l_fail},
                                     {"check", l_check}, {"seed", l_seed},     {NULL, NULL}};

void lgs_testing_open(struct state *S, lua_State *L)
{
    gs_add_frames(begin, frames, NULL);
    luaL_newmetatable(L, failure_name);
    lua_pushcfunction(L, failure_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushliteral(L, "gosched.failure");
    lua_setfield(L, -2, "__name");
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
    /* A module of its own, so that a goroutine that gets it as an upvalue finds its own. */
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "gosched.test");
    lua_pop(L, 1);
    lua_setfield(L, -2, "test");
}
