/*
 * A goroutine that was stopped while it held the lock of the C library's heap: making a thread takes that lock too
 * (pthread_create calls calloc). This program's heap has one lock for all threads, like a heap without arenas; with
 * glibc's heap the same happens if two threads share an arena.
 */
#include "check.h"
#include <netdb.h>
#include <netinet/in.h>

static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;

extern void *__libc_calloc(size_t n, size_t size);

/* In place of the C library's. */
void *calloc(size_t n, size_t size)
{
    pthread_mutex_lock(&heap);
    void *block = __libc_calloc(n, size);
    pthread_mutex_unlock(&heap);
    return block;
}

/* Whether the heap is locked, how many others have begun, and whether it is free again. */
static struct { long held, begun, released; } now;

/* Has the heap's lock until others have begun, which takes its P; but not for ever, as they may have
 * to wait for a thread. */
static void hold_heap(void *arg)
{
    int64_t end = gs_now() + 100 * MS;
    (void)arg;
    pthread_mutex_lock(&heap);
    SET(now.held, 1);
    while (!GET(now.begun) && gs_now() < end)
        ;
    SET(now.released, 1);
    pthread_mutex_unlock(&heap);
}

static void compute(void *arg)
{
    (void)arg;
    ADD(now.begun, 1);
    while (!GET(now.released))
        ;
}

/* Blocks its thread without saying so. */
static void block(void *arg)
{
    (void)arg;
    ADD(now.begun, 1);
    while (!GET(now.released))
        usleep(20000);
}

static void make_calls(void *arg)
{
    (void)arg;
    ADD(now.begun, 1);
    while (!GET(now.released)) {
        gs_entersyscall();
        usleep(500);
        gs_exitsyscall();
        gs_yield();
    }
}

/* Computes for longer than a P takes to find a thread. */
static void warm_up(void *arg)
{
    int64_t end = gs_now() + 5 * MS;
    while (gs_now() < end)
        ;
    CHECK_EQ(gs_waitgroup_done(arg), 0);
}

static void have_others(void (*const kinds[])(void *), long n_kinds)
{
    gs_waitgroup warm = {0};
    long i, procs = gs_gomaxprocs(0), others = 6 * n_kinds * procs;
    CHECK_EQ(gs_waitgroup_add(&warm, procs), 0);
    for (i = 0; i < procs; i++)
        go(warm_up, &warm);
    CHECK_EQ(gs_waitgroup_wait(&warm, GS_FOREVER), 0);
    now.held = now.begun = now.released = 0;
    go(hold_heap, NULL);
    while (!GET(now.held))
        gs_yield();
    for (i = 0; i < others; i++)
        go(kinds[i * n_kinds / others], NULL);
    while (!GET(now.released))
        gs_yield();
}

static void beside_loops(void *arg)
{
    (void)arg;
    have_others((void (*const[])(void *)){compute}, 1);
}

static void beside_all(void *arg)
{
    (void)arg;
    have_others((void (*const[])(void *)){block, compute, make_calls}, 3);
}

/* In a runtime of its own: there are no threads yet. */
static void run_anew(void (*f)(void *))
{
    int round;
    for (round = 0; round < 3; round++) {
        CHECK_EQ(gs_run(f, NULL), 0);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    }
}

TEST(who_has_the_heap_goes_on_though_all_others_compute)
{
    run_anew(beside_loops);
}

TEST(who_has_the_heap_goes_on_whatever_others_do)
{
    run_anew(beside_all);
}

/* ---- The library frees the list of addresses of a lookup, and waits for the heap's lock ---- */

static struct sockaddr_in loopback = {.sin_family = AF_INET};
static struct addrinfo answer = {.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&loopback, .ai_addrlen = sizeof loopback};
static struct { long asked, may_answer, freeing, freed; } lookup;

/* Both in place of the C library's. An answer to a name comes late. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **res)
{
    (void)node;
    (void)service;
    if (hints && hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SET(lookup.asked, 1);
    NAP_UNTIL(GET(lookup.may_answer));
    *res = &answer;
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    CHECK(list == &answer);
    SET(lookup.freeing, 1);
    pthread_mutex_lock(&heap);
    SET(lookup.freed, 1);
    pthread_mutex_unlock(&heap);
}

/* Stands for a goroutine that was stopped with the heap's lock, and needs a P to go on. */
static void hold_heap_until_the_answer_is_freed(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&heap);
    SET(lookup.may_answer, 1);
    WAIT_UNTIL(GET(lookup.freeing));
    pthread_mutex_unlock(&heap);
}

static void look_up(void *arg)
{
    struct addrinfo *res = NULL;
    (void)arg;
    CHECK_EQ(gs_getaddrinfo("host", NULL, NULL, &res, GS_FOREVER), -ECANCELED);
}

static void leave_a_lookup(void *arg)
{
    gs_g *asker = go_ref(look_up, NULL);
    (void)arg;
    CHECK_GE(gs_gomaxprocs(1), 1);
    WAIT_UNTIL(GET(lookup.asked));
    CHECK_EQ(gs_cancel(asker), 0);
    join(asker);
    join(go_ref(hold_heap_until_the_answer_is_freed, NULL));
    WAIT_UNTIL(GET(lookup.freed));
}

static void connect_to_host(void *arg)
{
    (void)arg;
    CHECK_EQ(gs_tcp_connect("host", 1, GS_FOREVER), -ECONNREFUSED);
}

static void connect_by_name(void *arg)
{
    gs_g *asker = go_ref(connect_to_host, NULL);
    (void)arg;
    CHECK_GE(gs_gomaxprocs(1), 1);
    WAIT_UNTIL(GET(lookup.asked));
    join(go_ref(hold_heap_until_the_answer_is_freed, NULL));
    join(asker);
    CHECK(GET(lookup.freed));
}

TEST(who_has_the_heap_goes_on_though_the_library_frees_an_answer)
{
    CHECK_EQ(gs_run(leave_a_lookup, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

TEST(who_has_the_heap_goes_on_though_the_library_has_used_an_answer)
{
    memset(&lookup, 0, sizeof lookup);
    CHECK_EQ(gs_run(connect_by_name, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}
