/*
 * A program of the first release: compiled with that release's header, it runs with the library of
 * today. With -DDLOPEN it loads the library with dlopen; otherwise it is linked with a library that
 * has just the symbols of the first release (symbols-1.0), and refers to a word in it by its name.
 */
#include "gosched-1.0.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(cond)                                                    \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                   \
        }                                                              \
    } while (0)

#ifdef DLOPEN
static void *find(const char *name)
{
    static void *lib;
    void *at;
    if (!lib)
        lib = dlopen("libgosched.so.1", RTLD_NOW | RTLD_LOCAL);
    at = lib ? dlsym(lib, name) : NULL;
    if (!at)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(at);
    return at;
}
#define F(name) ((__typeof__(&name))find(#name))
#else
#define F(name) name
#endif

static gs_chan *numbers;
static gs_mutex mutex;
static gs_once once;
static gs_waitgroup all;
static long sum, times, seen;

static void count(void *n)
{
    ++*(long *)n;
}

static void add(void *arg)
{
    int64_t n;
    (void)arg;
    while (F(gs_chan_recv)(numbers, &n, GS_FOREVER) == 0) {
        CHECK(F(gs_mutex_lock)(&mutex, F(gs_after_ms)(10000)) == 0);
        sum += n;
        CHECK(F(gs_mutex_unlock)(&mutex) == 0);
        CHECK(F(gs_once_do)(&once, count, &times) == 0);
    }
    CHECK(F(gs_waitgroup_done)(&all) == 0);
}

static void visit(const gs_g_info *info, void *ctx)
{
    CHECK(info->state >= GS_G_RUNNABLE && info->state <= GS_G_SYSCALL);
    CHECK(info->stack_lo <= info->stack_hi);
    if (info->state == GS_G_RUNNING)
        CHECK((char *)info->stack_lo < (char *)&info && (char *)&info < (char *)info->stack_hi);
    ++*(long *)ctx;
}

static void work(void *arg)
{
    static unsigned char raw[sizeof(gs_spawn_opts)];
    gs_spawn_opts init = GS_SPAWN_OPTS_INIT, *opts = (gs_spawn_opts *)raw;
    gs_stats stats = {.size = sizeof stats};
    int64_t n;
    gs_g *g;
    gs_case c;

    CHECK(arg == &sum);
    numbers = F(gs_chan_make)(sizeof n, 1);
    /* Padding has anything in it. */
    memset(raw, 0xee, sizeof raw);
    opts->size = init.size, opts->name = "adder", opts->stack_size = 0;
    opts->priority = init.priority, opts->node = init.node, opts->flags = GS_SPAWN_NOPREEMPT;
    CHECK(F(gs_waitgroup_add)(&all, 2) == 0);
    CHECK(F(gs_spawn_with)(add, NULL, opts, &g) == 0);
    CHECK(F(gs_spawn)(add, NULL) == 0);
    for (n = 1; n <= 1000; n++) {
        c = (gs_case){numbers, &n, GS_SEND, -1};
        CHECK(F(gs_select)(&c, 1, GS_FOREVER) == 0 && c.result == 0);
#ifndef DLOPEN
        gs_preempt_check();
#endif
    }
    CHECK(F(gs_stop_the_world)() == 0);
    CHECK(F(gs_foreach_g)(visit, &seen) == 0 && seen >= 3);
    CHECK(F(gs_start_the_world)() == 0);
    CHECK(F(gs_chan_close)(numbers) == 0);
    CHECK(F(gs_waitgroup_wait)(&all, GS_FOREVER) == 0);
    CHECK(F(gs_join)(g, GS_FOREVER) == 0);
    F(gs_release)(g);
    CHECK(sum == 500500 && times == 1);
    CHECK(F(gs_chan_free)(numbers) == 0);
    CHECK(F(gs_stats_read)(&stats) == 0 && stats.size == sizeof stats && stats.goroutines >= 1);
}

int main(void)
{
    gs_config config = GS_CONFIG_INIT;
    CHECK(sizeof(gs_config) == 48 && sizeof(gs_spawn_opts) == 40 && sizeof(gs_stats) == 120);
    config.gomaxprocs = 2;
    CHECK(F(gs_init)(&config) == 0);
    CHECK(F(gs_run)(work, &sum) == 0);
    CHECK(F(gs_abi_version)() == 1);
    CHECK(F(gs_shutdown)(GS_FOREVER) == 0);
    return 0;
}
