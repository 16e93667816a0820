/* embed: main programs in states that a host makes and closes. Prints a line for each test; `make test-lua` runs it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <gosched.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MUST(cond, ...) \
    do { \
        if (!(cond)) { \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n"); \
            exit(1); \
        } \
    } while (0)

static void run(lua_State *L, const char *text)
{
    MUST(luaL_dostring(L, text) == LUA_OK, "%s", lua_tostring(L, -1));
}

static int marks[2]; /* a pipe: what goroutines write there says how far they have come */
static char mark_path[100];

/* How many marks there are. */
static long count_marks(void)
{
    char buf[4096];
    long n = 0;
    ssize_t r;
    while ((r = read(marks[0], buf, sizeof buf)) > 0)
        n += r;
    return n;
}

static void prepare(lua_State *L, const char *text)
{
    MUST(L != NULL, "no memory");
    luaL_openlibs(L);
    lua_pushstring(L, mark_path);
    lua_setglobal(L, "mark_path");
    run(L, text);
}

static lua_State *begin(const char *text)
{
    lua_State *L = luaL_newstate();
    prepare(L, text);
    return L;
}

/* Until there are no goroutines of Lua but `n`, main programs included; the watchdog ends the program if that never is so. */
static void until_only(int n)
{
    lua_State *L = begin("gosched = require 'gosched'");
    lua_pushinteger(L, n + 1);
    lua_setglobal(L, "n");
    run(L, "while gosched.count() > n do gosched.sleep(0.002) end assert(gosched.count() == n)");
    lua_close(L);
}

/* Nothing of the module was loaded. */
static void test_without_the_module(void)
{
    lua_close(begin(""));
    printf("a state without the module\n");
}

/* Of lua_Alloc: no use of what was given back goes unnoticed. */
static void *allocate_pages(void *unused, void *p, size_t old, size_t size)
{
    (void)unused;
    void *moved = NULL;
    if (size > 0) {
        moved = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (moved == MAP_FAILED)
            return NULL;
        if (p)
            memcpy(moved, p, old < size ? old : size);
    }
    if (p)
        mmap(p, old, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return moved;
}

static void *close_in_thread(void *L)
{
    lua_close(L);
    return NULL;
}

/* A plain thread closes the state, and the thread that has run it goes on. */
static void test_closed_by_another_thread(void)
{
    pthread_t thread;
    lua_State *L = lua_newstate(allocate_pages, NULL);
    prepare(L, "require('gosched').go(function() while true do end end)");
    MUST(pthread_create(&thread, NULL, close_in_thread, L) == 0, "no thread");
    pthread_join(thread, NULL);
    clock_t end = clock() + CLOCKS_PER_SEC / 10; /* many slices */
    while (clock() < end)
        ;
    until_only(0);
    MUST(gs_detach() == 0, "the other thread could not do that for this one");
    printf("a state that another thread closes\n");
}

/* A state that is opened while there is no other: nothing waits for another, so that is no deadlock. */
static void test_one_after_another(void)
{
    for (int i = 0; i < 200; i++) {
        lua_State *L = begin("require 'gosched'"), *next = begin("");
        /* The module looks for a deadlock 20 ms after the last state was closed. */
        gs_deadline opened = gs_now() + 20 * 1000 * 1000 + i * 2000 - 50 * 1000;
        lua_close(L);
        while (gs_now() < opened)
            ;
        run(next, "require('gosched').sleep(0.001)");
        lua_close(next);
    }
    printf("one state after another\n");
}

/* Two states of one thread: when the one that was opened first is closed, the other one's main program is still a goroutine. */
static void test_two_in_a_thread(void)
{
    lua_State *first = begin("require 'gosched'"), *second = begin("gosched = require 'gosched'");
    lua_close(first);
    run(second, "local ok, err = pcall(function() gosched.chan():recv() end) assert(err:find 'deadlock')");
    lua_close(second);
    MUST(gs_self() == NULL, "the thread is still a goroutine");
    printf("two states of one thread\n");
}

/* What goroutines do that nothing but their program's end ends. `mark` says that one goes on. */
static const char *const endless[][2] = {
    {"computes", "while true do mark() end"},
    {"sleeps", "while true do gosched.sleep(0.001) mark() end"},
    {"waits for a channel", "local c = gosched.chan() mark() c:recv() mark(1)"},
    {"sends to a channel", "local c = gosched.chan() mark() c:send(1) mark(1)"},
    {"selects", "local c = gosched.chan() mark() while true do gosched.select { c } mark(1) end"},
    {"waits for a ticker", "local c = gosched.every(0.001) while true do c:recv() mark() end"},
    {"yields", "while true do gosched.yield() mark() end"},
    {"catches errors of waits", "while true do pcall(gosched.sleep, 0.001) mark() end"},
    {"catches errors of functions", "while true do pcall(function() while true do mark() end end) mark() end"},
    {"catches errors of functions that catch errors",
     "local function f(n) while true do if n > 0 then pcall(f, n - 1) else pcall(gosched.sleep, 0.001) end mark() end end f(5)"},
    {"handles errors", "while true do xpcall(function() gosched.sleep(0.001) mark() end, function(e) gosched.sleep(0.001) mark() return e end) end"},
    {"resumes coroutines",
     "local co = coroutine.wrap(function() while true do coroutine.yield(1) mark() end end) while true do co() mark() end"},
    {"has coroutines that wait",
     "while true do local co = coroutine.create(function() while true do pcall(gosched.sleep, 0.001) mark() end end) "
     "while coroutine.resume(co) do mark() end mark() end"},
    {"has a hook of its own", "debug.sethook(function() end, '', 10) while true do mark() end"},
    {"calls back from C", "while true do mark() local _ = ('x'):rep(100):gsub('x', function() gosched.sleep(0.0001) mark() end) end"},
    {"sorts", "local t = {} for i = 1, 1000 do t[i] = i end while true do table.sort(t, function(a, b) mark() return a > b end) end"},
    {"holds a mutex", "local m = gosched.mutex() while true do local held <close> = m:hold() gosched.sleep(0.001) mark() end"},
    {"closes late", "while true do pcall(function() local x <close> = setmetatable({}, { __close = function() while true do "
                    "gosched.sleep(0.001) mark() end end }) gosched.sleep(0.001) error('x') end) end"},
    {"starts goroutines", "while true do gosched.go(function() local gosched = require 'gosched' gosched.sleep(0.001) end):join() mark() end"},
    {"starts goroutines that start more",
     "local function more(more) local gosched = require 'gosched' gosched.sleep(0.01) "
     "if gosched.count() < 50 then gosched.go(more, more) end gosched.go(more, more) end mark() more(more)"},
    {"accepts", "local l = assert(gosched.tcp.listen('127.0.0.1', 0)) mark() l:accept() mark(1)"},
    {"runs a program", "mark() gosched.exec { 'sleep', '1000' } mark(1)"},
    {"locks", "local m = gosched.mutex() m:lock() mark() m:lock() mark(1)"},
    {"joins", "local c = gosched.chan() local g = gosched.go(function() c:recv() end) mark() g:join() mark(1)"},
};
enum { ENDLESS = sizeof endless / sizeof endless[0] };

static const char *const host_text =
    "gosched = require 'gosched'\n"
    "function endless(text)\n"
    "  local path = mark_path\n"
    "  return gosched.go(function()\n"
    "    gosched = require 'gosched'\n"
    "    local f = assert(io.open(path, 'w'))\n"
    "    f:setvbuf('no')\n"
    "    local last = -1\n"
    "    function mark() if os.clock() > last + 0.0005 then last = os.clock() f:write('.') end end\n"
    "    assert(load(text))()\n"
    "  end)\n"
    "end";

static void start_endless(lua_State *L, const char *text)
{
    lua_getglobal(L, "endless");
    lua_pushstring(L, text);
    MUST(lua_pcall(L, 1, 0, 0) == LUA_OK, "%s", lua_tostring(L, -1));
}

/* Each of them ends soon after its program's state is closed, alone and beside all others. */
static void test_endless(void)
{
    for (int i = 0; i <= ENDLESS; i++) {
        lua_State *L = begin(host_text);
        for (int k = 0; k < ENDLESS; k++)
            if (k == i || i == ENDLESS)
                start_endless(L, endless[k][1]);
        do
            run(L, "gosched.sleep(0.02)");
        while (count_marks() == 0);
        lua_close(L);
        until_only(0);
        count_marks();
        usleep(20000);
        MUST(count_marks() == 0, "what %s goes on", i < ENDLESS ? endless[i][0] : "does all");
        if (i < ENDLESS)
            printf("%s, and ends\n", endless[i][0]);
    }
}

/* Goroutines that have not begun when the state is closed never do. */
static void test_not_begun(void)
{
    lua_State *L = begin(host_text);
    int procs = gs_gomaxprocs(1);
    count_marks();
    for (int i = 0; i < 200; i++)
        start_endless(L, "mark()");
    lua_close(L);
    until_only(0);
    long n = count_marks();
    gs_gomaxprocs(procs);
    MUST(n < 200, "all of them have begun");
    printf("goroutines that have not begun don't begin\n");
}

/* The goroutines of another program go on. */
static void test_several_programs(void)
{
    static const char *const echo =
        "gosched = require 'gosched'\n"
        "local from, to = gosched.chan(), gosched.chan()\n"
        "ask, answer = from, to\n"
        "gosched.go(function() for v in from do to:send(v + 1) end end)\n"
        "gosched.go(function() while true do end end)";
    lua_State *all[4];
    for (int i = 0; i < 4; i++)
        all[i] = begin(echo);
    for (int i = 0; i < 4; i++) {
        int closed = i == 0 ? 1 : i == 1 ? 3 : i == 2 ? 0 : 2;
        lua_close(all[closed]);
        all[closed] = NULL;
        until_only(3 * (3 - i));
        for (int k = 0; k < 4; k++)
            if (all[k])
                run(all[k], "for i = 1, 10 do ask:send(i) assert(answer:recv(60) == i + 1) end");
    }
    printf("programs end one by one\n");
}

static void close_and_find_a_mark(lua_State *L)
{
    lua_close(L);
    until_only(0);
    long n = count_marks();
    MUST(n == 1, "%ld", n);
}

/* A goroutine may clean up, but not wait. */
static void test_clean_up(void)
{
    static const char *const way[] = {"function(f) f() end",
                                      "function(f) coroutine.resume(coroutine.create(f)) mark('goes on') end"};
    for (int i = 0; i < 2; i++) {
        lua_State *L = begin(
            "local gosched = require 'gosched'\n"
            "local path = mark_path\n"
            "function mark(text) assert(io.open(path, 'w')):write(text):close() end\n"
            "local mark = mark\n"
            "function in_goroutine(wait)\n"
            "  local ready = gosched.chan()\n"
            "  gosched.go(function()\n"
            "    local x <close> = setmetatable({}, { __close = function()\n"
            "      for i = 1, 10000 do end\n"
            "      mark('.') pcall(gosched.sleep, 1e6) mark('has waited') end })\n"
            "    wait(function() ready:send(true) gosched.sleep(1e6) end)\n"
            "  end)\n"
            "  ready:recv()\n"
            "end");
        lua_pushfstring(L, "local mark = mark in_goroutine(%s)", way[i]);
        run(L, lua_tostring(L, -1));
        close_and_find_a_mark(L);
    }
    printf("clean-up\n");
}

/* A program's finalizers can stop its goroutines, and can't start any after the module's own finalizer. */
static void test_finalizers(void)
{
    lua_State *L = begin(
        "local gosched = require 'gosched'\n"
        "local path, stop = mark_path, gosched.chan()\n"
        "local g = gosched.go(function() stop:recv() return '.' end)\n"
        "keep = setmetatable({}, { __gc = function()\n"
        "  stop:close() io.open(path, 'w'):write(select(2, g:join())):close() end })");
    close_and_find_a_mark(L);
    L = begin(
        "keep = setmetatable({}, { __gc = function()\n"
        "  local ok, err = pcall(gosched.go, print)\n"
        "  if not ok and err:find 'state is closed' then io.open(mark_path, 'w'):write('.'):close() end end })\n"
        "gosched = require 'gosched'");
    close_and_find_a_mark(L);
    printf("finalizers\n");
}

/* A finalizer of a goroutine that ends with its program can't start another one, nor wait. */
static void test_goroutines_at_the_end(void)
{
    lua_State *L = begin(
        "local gosched = require 'gosched'\n"
        "local path, ready = mark_path, gosched.chan()\n"
        "gosched.go(function() local gosched = require 'gosched'\n"
        "  keep = setmetatable({}, { __gc = function()\n"
        "    local ok, err = pcall(gosched.go, print)\n"
        "    local waited, why = pcall(gosched.sleep, 1e6)\n"
        "    if not ok and err:find 'state is closed' and not waited and why == 'cancelled' then\n"
        "      io.open(path, 'w'):write('.'):close()\n"
        "    end\n"
        "  end })\n"
        "  ready:send(1) gosched.sleep(1e6) end)\n"
        "ready:recv()");
    close_and_find_a_mark(L);
    printf("finalizers of goroutines\n");
}

static void open_and_close(void *arg)
{
    lua_State *L = begin(host_text);
    for (int k = 0; k < 4; k++)
        start_endless(L, endless[k][1]);
    run(L, "gosched.sleep(0.005) assert(gosched.go(function() return 7 end):join())");
    lua_close(L);
    *(int *)arg += 1;
}

static void *open_and_close_in_thread(void *arg)
{
    open_and_close(arg);
    return NULL;
}

/* States of main programs in goroutines of the host, and in threads. */
static void test_hosts(void)
{
    enum { HOSTS = 6 };
    int done[2 * HOSTS] = {0};
    gs_g *g[HOSTS];
    pthread_t thread[HOSTS];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    opts.stack_size = 1 << 20;
    opts.flags = GS_SPAWN_PINNED;
    for (int i = 0; i < HOSTS; i++) {
        MUST(gs_spawn_with(open_and_close, &done[i], &opts, &g[i]) == 0, "no goroutine");
        MUST(pthread_create(&thread[i], NULL, open_and_close_in_thread, &done[HOSTS + i]) == 0, "no thread");
    }
    for (int i = 0; i < HOSTS; i++) {
        gs_join(g[i], GS_FOREVER);
        gs_release(g[i]);
        pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < 2 * HOSTS; i++)
        MUST(done[i] == 1, "%d", i);
    until_only(0);
    printf("states of goroutines and of threads\n");
}

/* `require` finds a module in C. */
static void preload(lua_State *L, const char *name, lua_CFunction open)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, open);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

static lua_State *to_close;
static _Atomic bool may_close; /* the host doesn't use it any more */

static int close_main(lua_State *L)
{
    (void)L;
    while (!atomic_load(&may_close))
        usleep(1000);
    lua_close(to_close);
    return 0;
}

static int open_closer(lua_State *L)
{
    lua_pushcfunction(L, close_main);
    return 1;
}

/* A goroutine of the program closes the program's state, while the host doesn't use it, and ends after that. */
static void test_closed_by_its_goroutine(void)
{
    to_close = begin(host_text);
    preload(to_close, "closer", open_closer);
    start_endless(to_close, endless[0][1]);
    run(to_close, "gosched.go(function() require('closer')() while true do end end)");
    atomic_store(&may_close, true);
    until_only(0);
    gs_detach(); /* the goroutine could not do that for this thread */
    printf("a state that its own goroutine closes\n");
}

static _Atomic bool go_on, is_stuck;

static int be_stuck(lua_State *L)
{
    (void)L;
    atomic_store(&is_stuck, true);
    while (!atomic_load(&go_on))
        usleep(1000);
    return 0;
}

static int open_stuck(lua_State *L)
{
    lua_pushcfunction(L, be_stuck);
    return 1;
}

/* A goroutine is in a function in C that doesn't return: lua_close does, and the goroutine ends when the function returns. */
static void test_stuck_in_c(void)
{
    lua_State *L = begin(host_text);
    preload(L, "stuck", open_stuck);
    run(L, "gosched.go(function() while true do pcall(require 'stuck') end end)");
    while (!atomic_load(&is_stuck))
        run(L, "gosched.sleep(0.001)");
    lua_close(L);
    until_only(1);
    atomic_store(&go_on, true);
    until_only(0);
    printf("a function in C that doesn't return\n");
}

/* The memory of what was stopped comes back. */
static long resident(void)
{
    long kib = 0;
    char line[200];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(f);
    return kib;
}

static void test_memory(void)
{
    long before = 0;
    for (int i = 0; i < 120; i++) {
        lua_State *L = begin(
            "local gosched = require 'gosched'\n"
            "local c, ready = gosched.chan(), gosched.chan()\n"
            "for i = 1, 20 do gosched.go(function() local t = {} for i = 1, 2000 do t[i] = { i } end ready:send(1) c:recv() end) end\n"
            "for i = 1, 20 do ready:recv() end");
        lua_close(L);
        if (i == 19) {
            until_only(0);
            before = resident();
        }
    }
    until_only(0);
    long after = resident();
    MUST(after < before + 16 * 1024, "%ld KiB, then %ld", before, after); /* 2000 goroutines take 400 MiB */
    printf("memory comes back\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } tests[] = {
        {"without", test_without_the_module}, {"thread", test_closed_by_another_thread}, {"one", test_one_after_another},
        {"two", test_two_in_a_thread}, {"endless", test_endless}, {"not_begun", test_not_begun}, {"several", test_several_programs},
        {"clean_up", test_clean_up}, {"finalizers", test_finalizers}, {"late", test_goroutines_at_the_end}, {"hosts", test_hosts},
        {"own", test_closed_by_its_goroutine}, {"stuck", test_stuck_in_c}, {"memory", test_memory},
    };
    alarm(300); /* a hang */
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(pipe2(marks, O_NONBLOCK) == 0, "no pipe");
    snprintf(mark_path, sizeof mark_path, "/proc/self/fd/%d", marks[1]);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].f();
    return 0;
}
