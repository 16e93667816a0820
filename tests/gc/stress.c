/*
 * The Boehm collector under goroutines (examples-c/gosched_gc.h), as hostile as can be: trees with checksums are held on
 * the stacks and in the registers of goroutines that compute, that are parked, preempted in the middle of an allocation, in
 * announced and unannounced system calls, in gs_blocking, on attached and on plain threads, and on their way through
 * channels; meanwhile goroutines and threads force collections, stop the world for themselves, end threads and fork. A tree
 * that was freed too early is soon overwritten, and its sum wrong. At the end finalizers and weak links are counted.
 *
 *     stress [--incremental] [--objects N] [--seconds S]
 *
 * It prints what it has seen and ends with 0, or says what is wrong and aborts.
 */
#define _GNU_SOURCE
#define GOSCHED_GC_IMPLEMENTATION
#include "gosched_gc.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS (1000 * 1000L)
#define CHECK(x) ((x) ? (void)0 : failed(__LINE__, #x))

static void failed(int line, const char *what)
{
    fprintf(stderr, "stress.c:%d: %s doesn't hold\n", line, what);
    abort();
}

static void must(int r, const char *what)
{
    if (r < 0) {
        fprintf(stderr, "stress: %s: %s\n", what, gs_strerror(r));
        abort();
    }
}

/* ---- Trees ---- */

struct node {
    struct node *left, *right;
    char *text; /* of GC_malloc_atomic; NULL: none */
    uint64_t id, sum;
};

static uint64_t objects; /* allocated so far */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    x ^= x >> 29;
    return x * 0xbf58476d1ce4e5b9u;
}

static uint64_t random_of(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15u);
}

static uint64_t sum_of(const struct node *n)
{
    uint64_t sum = mix(n->id);
    if (n->left != NULL)
        sum = mix(sum + n->left->sum);
    if (n->right != NULL)
        sum = mix(sum ^ n->right->sum);
    if (n->text != NULL)
        sum += (unsigned char)n->text[0];
    return sum;
}

static struct node *make(uint64_t *state, int depth)
{
    struct node *n, *left = NULL, *right = NULL;
    char *text = NULL;
    uint64_t id = random_of(state);
    if (depth > 0) {
        left = make(state, depth - 1);
        right = make(state, depth - 1);
    }
    if (id % 8 == 0) {
        text = GC_malloc_atomic(1 + id / 8 % 200);
        CHECK(text != NULL);
        text[0] = (char)id;
        __atomic_add_fetch(&objects, 1, __ATOMIC_RELAXED);
    }
    n = GC_malloc(sizeof *n);
    CHECK(n != NULL);
    CHECK(n->left == NULL && n->right == NULL && n->sum == 0); /* libgc clears it */
    n->id = id;
    n->left = left;
    n->right = right;
    n->text = text;
    n->sum = sum_of(n);
    __atomic_add_fetch(&objects, 1, __ATOMIC_RELAXED);
    return n;
}

static void verify(const struct node *n)
{
    if (n == NULL)
        return;
    CHECK(n->sum == sum_of(n));
    verify(n->left);
    verify(n->right);
}

/* ---- The state ---- */

static uint64_t wanted = 1000000; /* objects */
static int64_t until;             /* go on until then, if that is later */
static bool is_over;
static gs_waitgroup all;
static gs_chan *trees;       /* of gs_gc_send */
static gs_chan *never;       /* closed at the end: what parked goroutines wait for */
static int pipes[2];         /* likewise, for those in system calls */
static uint64_t dropped, finalized, received, forks, spawned, waited;

static bool over(void)
{
    return __atomic_load_n(&is_over, __ATOMIC_RELAXED);
}

static void count(uint64_t *what)
{
    __atomic_add_fetch(what, 1, __ATOMIC_RELAXED);
}

static void spawn(gs_fn f, void *arg)
{
    must(gs_waitgroup_add(&all, 1), "gs_waitgroup_add");
    must(gs_gc_spawn(f, arg), "gs_gc_spawn");
}

static void done(void)
{
    must(gs_waitgroup_done(&all), "gs_waitgroup_done");
}

/* ---- Finalizers and weak links ---- */

#define LINKS 64
static struct node *kept[LINKS];       /* static data is scanned */
static void *weak_kept[LINKS], *weak_lost[LINKS]; /* disguised: see hide */

static void *hide(void *p)
{
    return (void *)~(uintptr_t)p;
}

static void on_end(void *obj, void *unused)
{
    const struct node *n = obj;
    (void)unused;
    CHECK(n->sum == sum_of(n)); /* it is still whole */
    count(&finalized);
}

/* Objects that nothing refers to any more, each with a finalizer. */
static void drop(uint64_t *state)
{
    struct node *n = make(state, 0);
    GC_register_finalizer_no_order(n, on_end, NULL, NULL, NULL);
    count(&dropped);
}

static void __attribute__((noinline)) make_links(void)
{
    uint64_t state = 4711;
    for (int i = 0; i < LINKS; i++) {
        struct node *lost = make(&state, 1);
        kept[i] = make(&state, 1);
        weak_kept[i] = hide(kept[i]);
        weak_lost[i] = hide(lost);
        CHECK(GC_general_register_disappearing_link(&weak_kept[i], kept[i]) == GC_SUCCESS);
        CHECK(GC_general_register_disappearing_link(&weak_lost[i], lost) == GC_SUCCESS);
    }
}

/* ---- Those that hold trees ---- */

/* Allocates, keeps some, verifies, drops, sends and receives. */
static void work(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    struct node *roots[8] = {0};
    while (!over()) {
        uint64_t r = random_of(&state);
        struct node **at = &roots[r % 8], *other;
        verify(*at);
        *at = make(&state, (int)(r / 8 % 6));
        if (r % 31 == 0)
            drop(&state);
        if (r % 5 == 0 && gs_gc_send(trees, *at, GS_NOWAIT) == 0)
            *at = NULL;
        if (r % 7 == 0 && gs_gc_recv(trees, (void **)&other, GS_NOWAIT) == 0) {
            verify(other);
            count(&received);
        }
        if (r % 997 == 0)
            GC_gcollect();
        if (r % 101 == 0)
            gs_yield();
    }
    for (int i = 0; i < 8; i++)
        verify(roots[i]);
    done();
}

/* A tree on a stack, while its goroutine is parked. */
static void wait_parked(void *arg)
{
    struct node *own = arg;
    int64_t unused;
    CHECK(gs_chan_recv(never, &unused, GS_FOREVER) == -EPIPE);
    verify(own);
    count(&waited);
    done();
}

/* In an announced call. */
static void wait_announced(void *arg)
{
    struct node *own = arg;
    char c;
    ssize_t n;
    do {
        gs_entersyscall();
        n = read(pipes[0], &c, 1);
        gs_exitsyscall();
    } while (n < 0 && errno == EINTR);
    CHECK(n == 0);
    verify(own);
    count(&waited);
    done();
}

/* In a call that isn't announced. */
static void wait_unannounced(void *arg)
{
    struct node *own = arg;
    char c;
    ssize_t n;
    do
        n = read(pipes[0], &c, 1);
    while (n < 0 && errno == EINTR);
    CHECK(n == 0);
    verify(own);
    count(&waited);
    done();
}

/* Short ones, again and again. */
static void nap(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    struct node *own = make(&state, 5);
    while (!over()) {
        struct timespec t = {0, (long)(random_of(&state) % (2 * MS))};
        nanosleep(&t, NULL);
        verify(own);
        own = make(&state, 4);
    }
    done();
}

/* The thread's own stack, where libgc is to look. */
static void *in_blocking(void *arg)
{
    uint64_t *state = arg;
    struct node *own = make(state, 5), *other;
    struct timespec t = {0, MS};
    nanosleep(&t, NULL);
    other = make(state, 3);
    if (random_of(state) % 16 == 0)
        GC_gcollect();
    verify(own);
    verify(other);
    return own;
}

static void block(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    struct node *outer = make(&state, 4);
    while (!over()) {
        struct node *got = gs_blocking(in_blocking, &state);
        verify(got);
        verify(outer);
    }
    done();
}

/* Nothing but computing: the signal finds the tree in a register. */
static void compute(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    while (!over()) {
        struct node *own = make(&state, 6), *n = own;
        uint64_t sum = 0;
        for (int i = 0; i < 300000; i++) {
            sum += n->id;
            n = i & 1 ? n->left : n->right;
            if (n == NULL)
                n = own;
        }
        CHECK(sum != 1);
        verify(own);
    }
    done();
}

/* Ends its thread. */
static void end_thread(void *arg)
{
    must(gs_lock_os_thread(), "gs_lock_os_thread");
    verify(arg);
    gs_yield();
    verify(arg);
    done();
}

static void spawn_many(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    while (!over()) {
        struct node *n = make(&state, 3);
        spawn(end_thread, n);
        count(&spawned);
        must(gs_sleep(5 * MS), "gs_sleep");
    }
    done();
}

static void collect(void *arg)
{
    (void)arg;
    while (!over()) {
        GC_gcollect();
        must(gs_sleep(2 * MS), "gs_sleep");
    }
    done();
}

/* Stops the world for itself, without allocating. */
static void stop(void *arg)
{
    (void)arg;
    while (!over()) {
        must(gs_stop_the_world(), "gs_stop_the_world");
        must(gs_start_the_world(), "gs_start_the_world");
        must(gs_sleep(3 * MS), "gs_sleep");
    }
    done();
}

/* A child collects what it has from its parent, and goes on alone. */
static void fork_now_and_then(void *arg)
{
    uint64_t state = (uintptr_t)arg;
    struct node *own = make(&state, 8);
    while (!over()) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            for (int i = 0; i < 3; i++) {
                for (int j = 0; j < 50; j++)
                    make(&state, 5);
                GC_gcollect();
                verify(own);
            }
            _exit(7);
        }
        int status = 0;
        must(gs_waitpid(child, &status, 0, GS_FOREVER), "gs_waitpid");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "stress: the child of a fork ended with status 0x%x\n", status);
            abort();
        }
        count(&forks);
        must(gs_sleep(100 * MS), "gs_sleep");
        verify(own);
    }
    done();
}

/* ---- Plain threads ---- */

static void on_attached(uint64_t state)
{
    struct node *own = make(&state, 6);
    must(gs_gc_attach(0), "gs_gc_attach");
    for (int i = 0; i < 20 && !over(); i++) {
        struct node *got;
        must(gs_sleep(MS), "gs_sleep");
        verify(own);
        own = make(&state, 5);
        if (gs_gc_recv(trees, (void **)&got, GS_NOWAIT) == 0)
            verify(got);
    }
    must(gs_gc_detach(), "gs_gc_detach");
    verify(own);
}

static void *plain(void *arg)
{
    struct GC_stack_base base;
    uint64_t state = (uintptr_t)arg;
    struct node *own;
    CHECK(GC_get_stack_base(&base) == GC_SUCCESS);
    CHECK(GC_register_my_thread(&base) == GC_SUCCESS);
    own = make(&state, 6);
    for (int i = 0; !over(); i++) {
        struct node *n = make(&state, 5);
        if (i % 4 == 0)
            spawn(end_thread, make(&state, 4));
        if (i % 64 == 0)
            GC_gcollect();
        if (i % 16 == 0) {
            must(gs_stop_the_world(), "gs_stop_the_world");
            must(gs_start_the_world(), "gs_start_the_world");
        }
        if (i % 32 == 5)
            on_attached(state);
        must(gs_gc_send(trees, n, gs_after_ms(5)) == -ETIMEDOUT ? 0 : 1, "gs_gc_send");
        verify(own);
    }
    verify(own);
    CHECK(GC_unregister_my_thread() == GC_SUCCESS);
    return NULL;
}

/* ---- The beginning and the end ---- */

/* STRESS_WITHOUT lists parts to leave out, to find out which one brings out a failure. */
static bool with(const char *part)
{
    const char *without = getenv("STRESS_WITHOUT");
    return without == NULL || strstr(without, part) == NULL;
}

/* Each part has done what it is there for. */
static bool all_have_run(void)
{
    return getenv("STRESS_WITHOUT") != NULL || (__atomic_load_n(&received, __ATOMIC_RELAXED) > 0
        && __atomic_load_n(&forks, __ATOMIC_RELAXED) > 0 && __atomic_load_n(&spawned, __ATOMIC_RELAXED) > 0);
}

static void run(void *arg)
{
    uint64_t state = 1;
    pthread_t threads[2];
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *finalizers;
    void *left;
    (void)arg;

    opts.name = "finalizers";
    must(gs_spawn_with(gs_gc_finalizers, NULL, &opts, &finalizers), "gs_spawn_with");
    make_links();
    for (int i = 0; i < 200; i++)
        spawn(wait_parked, make(&state, 5));
    for (int i = 0; i < 4; i++) {
        spawn(wait_announced, make(&state, 5));
        spawn(wait_unannounced, make(&state, 5));
    }
    for (uintptr_t i = 1; i <= 16; i++)
        spawn(work, (void *)(i * 1000003));
    for (uintptr_t i = 1; i <= 2; i++) {
        if (with("nap"))
            spawn(nap, (void *)(i * 11));
        if (with("block"))
            spawn(block, (void *)(i * 13));
        if (with("compute"))
            spawn(compute, (void *)(i * 17));
    }
    if (with("spawn"))
        spawn(spawn_many, (void *)19);
    if (with("stop"))
        spawn(stop, NULL);
    if (with("collect"))
        spawn(collect, NULL);
    if (with("fork"))
        spawn(fork_now_and_then, (void *)23);
    for (uintptr_t i = 0; i < 2 && with("plain"); i++)
        CHECK(pthread_create(&threads[i], NULL, plain, (void *)(29 + i)) == 0);

    while (__atomic_load_n(&objects, __ATOMIC_RELAXED) < wanted || gs_now() < until || !all_have_run())
        must(gs_sleep(MS), "gs_sleep");
    __atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2 && with("plain"); i++) {
        gs_entersyscallblock();
        CHECK(pthread_join(threads[i], NULL) == 0);
        gs_exitsyscall();
    }
    must(gs_chan_close(never), "gs_chan_close");
    CHECK(close(pipes[1]) == 0);
    must(gs_waitgroup_wait(&all, GS_FOREVER), "gs_waitgroup_wait");
    while (gs_gc_recv(trees, &left, GS_NOWAIT) == 0)
        verify(left);

    /* A stale word may keep an object, so most must go, not all. */
    for (int i = 0; i < 1000 && __atomic_load_n(&finalized, __ATOMIC_RELAXED) < dropped * 9 / 10; i++) {
        GC_gcollect();
        must(gs_sleep(5 * MS), "gs_sleep");
    }
    must(gs_cancel(finalizers), "gs_cancel");
    must(gs_join(finalizers, GS_FOREVER), "gs_join");
    gs_release(finalizers);
}

int main(int argc, char **argv)
{
    uint32_t flags = 0;
    int lost = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--incremental") == 0)
            flags = GS_GC_INCREMENTAL;
        else if (strcmp(argv[i], "--objects") == 0 && i + 1 < argc)
            wanted = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            until = gs_now() + strtoll(argv[++i], NULL, 10) * 1000 * MS;
        else {
            fprintf(stderr, "usage: stress [--incremental] [--objects N] [--seconds S]\n");
            return 2;
        }
    }
    CHECK(gs_gc_init(8) == -EINVAL);
    must(gs_gc_init(flags), "gs_gc_init");
    CHECK(gs_gc_init(flags) == -EBUSY);
    CHECK(pipe(pipes) == 0);
    trees = gs_gc_chan_make(64);
    never = gs_chan_make(8, 0);
    must(gs_run(run, NULL), "gs_run");
    must(gs_gc_shutdown(GS_FOREVER), "gs_gc_shutdown");

    GC_gcollect(); /* without a runtime */
    for (int i = 0; i < LINKS; i++) {
        verify(kept[i]);
        CHECK(weak_kept[i] == hide(kept[i]));
        lost += weak_lost[i] == NULL;
    }
    CHECK(GC_is_incremental_mode() == (flags != 0));
    CHECK(objects >= wanted);
    CHECK(all_have_run());
    CHECK(waited == 208);
    CHECK(finalized <= dropped && finalized >= dropped * 9 / 10);
    CHECK(lost >= LINKS / 2);
    printf("%s: all trees whole, %lu collections, protection: %d\n", flags ? "incremental" : "stop-the-world",
           (unsigned long)GC_get_gc_no(), GC_incremental_protection_needs());
    printf("%lu objects, %lu received, %lu of %lu finalized, %d of %d weak links cleared, %lu forks\n", objects, received,
           finalized, dropped, lost, LINKS, forks);
    return 0;
}
