/* embed: main programs in states that a host makes and closes. Prints a line for each test; `make test-lua` runs it. */
#define _GNU_SOURCE
#include <gosched.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
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

static void prepare(lua_State *L, const char *text)
{
    MUST(L != NULL, "no memory");
    luaL_openlibs(L);
    run(L, text);
}

static lua_State *begin(const char *text)
{
    lua_State *L = luaL_newstate();
    prepare(L, text);
    return L;
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
    prepare(L, "require 'gosched'");
    MUST(pthread_create(&thread, NULL, close_in_thread, L) == 0, "no thread");
    pthread_join(thread, NULL);
    clock_t end = clock() + CLOCKS_PER_SEC / 10; /* many slices */
    while (clock() < end)
        ;
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } tests[] = {
        {"without", test_without_the_module}, {"thread", test_closed_by_another_thread}, {"one", test_one_after_another},
        {"two", test_two_in_a_thread},
    };
    alarm(300); /* a hang */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc < 2 || strcmp(argv[1], tests[i].name) == 0)
            tests[i].f();
    return 0;
}
