/* backtrace(3), and so any unwinder that reads CFI, ends where the goroutine or the thread begins. */
#include "check.h"
#include <execinfo.h>

#define KEEP __attribute__((noinline, noipa))
/* More than the deepest backtrace here: one that reached this length would not have ended. */
#define MOST 100
/* An upper bound of the bytes of each function here. */
#define SIZE 400

static volatile int after; /* a function that writes it last doesn't end with a jump */

struct trace {
    void *pc[MOST];
    int length;
};

static int is_in(const void *pc, const void *function)
{
    return (uintptr_t)pc - (uintptr_t)function < SIZE;
}

/* The number of the frame of this function, from the innermost; -1: it has none. */
static int frame_of(const struct trace *t, const void *function)
{
    for (int i = 0; i < t->length; i++) {
        if (is_in(t->pc[i], function))
            return i;
    }
    return -1;
}

KEEP static void take(struct trace *t)
{
    t->length = backtrace(t->pc, MOST);
    after++;
}

KEEP static void deeper(struct trace *t, int depth)
{
    if (depth > 0)
        deeper(t, depth - 1);
    else
        take(t);
    after++;
}

/* Of a goroutine with this function: behind the function there is one frame, the library's. */
static void check_ends_behind(const struct trace *t, const void *function)
{
    int at = frame_of(t, function);
    CHECK(at >= 0);
    CHECK_EQ(t->length, at + 2);
}

static void goroutine(void *arg)
{
    struct trace *t = arg;
    deeper(t, 10);
    after++;
}

GO_TEST(of_a_goroutine)
{
    struct trace t = {.length = 0};
    struct gs_g *g;
    CHECK_EQ(gs_spawn_with(goroutine, &t, NULL, &g), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    CHECK_EQ(frame_of(&t, deeper), 1);
    check_ends_behind(&t, goroutine);
}

/* It has waited, so it may be on another thread, and was resumed by a switch. */
static void goroutine_that_waits(void *arg)
{
    gs_yield();
    gs_sleep(MS);
    deeper(arg, 10);
    after++;
}

GO_TEST(of_a_goroutine_that_has_waited)
{
    struct trace t = {.length = 0};
    struct gs_g *g;
    CHECK_EQ(gs_spawn_with(goroutine_that_waits, &t, NULL, &g), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    check_ends_behind(&t, goroutine_that_waits);
}

static struct trace in_handler;

static void handler(int sig)
{
    (void)sig;
    take(&in_handler);
}

KEEP static void compute(void)
{
    raise(SIGUSR1);
    after++;
}

static void goroutine_with_signal(void *arg)
{
    sigset_t one, before;
    (void)arg;
    /* The library's own threads block the host's signals. */
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &one, &before), 0);
    compute();
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    after++;
}

GO_TEST(of_a_signal_handler_in_a_goroutine)
{
    struct sigaction action = {.sa_handler = handler};
    struct gs_g *g;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(gs_spawn_with(goroutine_with_signal, NULL, NULL, &g), 0);
    CHECK_EQ(gs_join(g, GS_FOREVER), 0);
    gs_release(g);
    CHECK(frame_of(&in_handler, compute) > 0);
    check_ends_behind(&in_handler, goroutine_with_signal);
}

KEEP static void *blocking(void *arg)
{
    take(arg);
    return NULL;
}

GO_TEST(of_a_call_of_gs_blocking)
{
    struct trace t = {.length = 0};
    gs_blocking(blocking, &t);
    CHECK(frame_of(&t, blocking) >= 0);
    CHECK(t.length < MOST);
}

KEEP static void *attached(void *arg)
{
    CHECK_EQ(gs_attach(0), 0);
    gs_yield();
    deeper(arg, 10);
    CHECK_EQ(gs_detach(), 0);
    return NULL;
}

TEST(of_an_attached_thread)
{
    struct trace t = {.length = 0};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, attached, &t), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(frame_of(&t, attached) > 0);
    CHECK(t.length < MOST);
    
}
