/* When a goroutine's Lua code lets others run: at the end of its slice, and in calls that may switch. */

#include "lgs.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- The slice of Lua code ----

   Lua's count hook, while it is set, makes each instruction slower: loops take twice as long. So it isn't set
   until the slice is over. A timer of the thread, which counts the thread's CPU time, sends a signal to the
   thread. The signal's handler sets the hook of the state that the thread is running, and the hook lets others
   run. Signal handlers may call lua_sethook. */

struct thread {
    struct state *_Atomic running; /* the state that the thread runs; NULL: none */
    struct state *_Atomic ticked;  /* the state that the handler is using; NULL: none */
    unsigned age;                  /* the process's age when the thread got its timer; 0: never */
    struct thread *next, **at;     /* in `threads`: the next, and what points to this one */
};
static _Thread_local struct thread this_thread __attribute__((tls_model("initial-exec")));
static struct thread *threads; /* threads with timers */
static _Atomic bool threads_locked;
static int tick_signal;   /* 0: no signal */
static unsigned age = 1;  /* the process's: higher in a child of fork, which has no timers */
static pthread_key_t timer_key;

/* Not inlined: a goroutine may be on another thread after a switch, and a compiler may keep the address of a
   thread-local variable. */
__attribute__((noinline)) void lgs_set_running(struct state *S)
{
    atomic_store_explicit(&this_thread.running, S, memory_order_release);
}

void lgs_forget_state(struct state *S)
{
    lgs_spin_lock(&threads_locked);
    for (struct thread *t = threads; t; t = t->next) {
        struct state *running = S;
        atomic_compare_exchange_strong(&t->running, &running, NULL);
        while (atomic_load(&t->ticked) == S)
            lgs_pause();
    }
    lgs_spin_unlock(&threads_locked);
}

void lgs_on_slice(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    if (lua_gethook(L) == lgs_on_slice)
        lua_sethook(L, NULL, 0, 0);
    /* The state of the whole goroutine: L may be one of its coroutines. */
    struct state *S = lgs_state_of(L);
    if (!S)
        return;
    if (S->bubble) {
        lgs_look(S); /* at which the run ends: see on_tick */
        return;
    }
    bool held = S->held;
    S->held = false;
    if (gs_now() < S->clean_up) /* clean_up is 0 if the goroutine was not told to end */
        return;
    if (!gs_cancelled() && !lgs_is_stopped(S)) {
        lgs_leave(S, false);
        gs_yield();
        lgs_enter(S, false);
        if (!lgs_is_stopped(S))
            return;
    }
    if (held) /* not before the next instruction, which puts the mutex into the care of a <close> variable */
        lua_sethook(L, lgs_on_slice, LUA_MASKCOUNT, 1);
    else
        lgs_raise_cancelled(S, L);
}

static void on_tick(int signal)
{
    (void)signal;
    struct state *S = atomic_load(&this_thread.running);
    atomic_store(&this_thread.ticked, S);
    if (S && atomic_load(&this_thread.running) == S) {
        lua_State *L = S->coroutine ? S->coroutine : S->L;
        /* A hook of the program's, or lua5.4's for Ctrl-C, takes precedence. In a bubble nothing but the seed may have
           a say, unless the bubble is to end. */
        bool wanted = S->bubble ? atomic_load(&S->bubble->stop) : L && (lua_gethookmask(L) == 0 || lgs_is_stopped(S));
        if (L && wanted)
            lua_sethook(L, lgs_on_slice, LUA_MASKCOUNT, 1);
    }
    atomic_store(&this_thread.ticked, NULL);
}

static void delete_timer(void *timer)
{
    timer_delete((timer_t)((intptr_t)timer - 1));
    lgs_spin_lock(&threads_locked);
    struct thread *t = &this_thread;
    atomic_store(&t->running, NULL); /* a signal may still come */
    *t->at = t->next;
    if (t->next)
        t->next->at = t->at;
    lgs_spin_unlock(&threads_locked);
}

/* Makes the thread's timer. The goroutine stays on the thread meanwhile. */
static __attribute__((noinline)) void make_timer(void)
{
    struct thread *t = &this_thread;
    t->age = age;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = tick_signal};
    struct itimerspec each = {{0, LGS_SLICE}, {0, LGS_SLICE}};
    timer_t timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0)
        return;
    if (timer_settime(timer, 0, &each, NULL) != 0 || pthread_setspecific(timer_key, (void *)((intptr_t)timer + 1)) != 0) {
        timer_delete(timer);
        return;
    }
    lgs_spin_lock(&threads_locked);
    t->at = &threads;
    t->next = threads;
    if (threads)
        threads->at = &t->next;
    threads = t;
    lgs_spin_unlock(&threads_locked);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, tick_signal);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static __attribute__((noinline)) void start_ticking(void)
{
    if (this_thread.age == age || tick_signal == 0)
        return;
    gs_preempt_disable();
    make_timer();
    gs_preempt_enable();
}

void lgs_turns_here(void)
{
    if (tick_signal != 0)
        make_timer();
}

/* Chooses a real-time signal that is not in use. */
static void choose_signal(void)
{
    if (pthread_key_create(&timer_key, delete_timer) != 0)
        return;
    for (int s = SIGRTMIN + 4; s < SIGRTMAX; s++) {
        struct sigaction old;
        if (sigaction(s, NULL, &old) != 0 || old.sa_handler != SIG_DFL || (old.sa_flags & SA_SIGINFO))
            continue;
        struct sigaction ours = {.sa_handler = on_tick, .sa_flags = SA_RESTART | SA_ONSTACK};
        sigfillset(&ours.sa_mask);
        if (sigaction(s, &ours, NULL) == 0) {
            tick_signal = s;
            return;
        }
    }
}

/* Forgets the timers in a child of fork, which has none. */
static void forget_timers(void)
{
    age++;
    if (tick_signal != 0)
        pthread_setspecific(timer_key, NULL);
    threads = NULL;
    atomic_store(&threads_locked, false);
}

void lgs_turns_start(void)
{
    choose_signal();
    pthread_atfork(NULL, NULL, forget_timers);
}

/* ---- Around calls ---- */

/* lgs_leave in a bubble, where the library itself finds deadlocks, and no Ctrl-C comes. */
static void leave_in_bubble(struct state *S)
{
    lua_State *L = S->coroutine ? S->coroutine : S->L;
    if (S->checks)
        luaL_error(L, "a check must not wait or change anything: it may look only");
    if (L) /* not closing */
        lgs_collect_in_bubble(S, L, false);
    lgs_set_running(NULL); /* finalizers may have waited */
    atomic_store_explicit(&S->is_away, true, memory_order_release);
}

void lgs_leave(struct state *S, bool sync)
{
    if (S->bubble) {
        leave_in_bubble(S);
        return;
    }
    lgs_set_running(NULL);
    if (S->self)
        lgs_front_interrupts(S);
    /* Release: a thread that sees it sees the frames, too. */
    atomic_store_explicit(&S->is_away, true, memory_order_release);
    if (sync)
        lgs_falls_asleep();
}

void lgs_enter(struct state *S, bool sync)
{
    atomic_store_explicit(&S->is_away, false, memory_order_relaxed);
    if (S->bubble) {
        lgs_set_running(S->L ? S : NULL);
        return;
    }
    if (sync)
        lgs_wakes_up();
    if (S->self)
        lgs_settle_ctrl_c(S);
    start_ticking();
    lgs_set_running(S->L ? S : NULL);
}

void lgs_step_in_bubble(struct state *S)
{
    lgs_leave(S, false);
    gs_preempt_now();
    lgs_enter(S, false);
}

ssize_t lgs_text(struct state *S, int (*write)(int), const char **text)
{
    int fd = memfd_create("gosched", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd);
    if (n >= 0) {
        size_t size = (size_t)lseek(fd, 0, SEEK_END), done = 0;
        char *room = lgs_scratch(S, size + 1, false);
        while (room && done < size && (n = pread(fd, room + done, size - done, (off_t)done)) > 0)
            done += (size_t)n;
        n = room ? (ssize_t)done : -ENOMEM;
        *text = room;
    }
    close(fd);
    return n;
}

/* The most bytes of a dump that the error of a deadlock takes along. */
#define DUMP_IN_ERROR (64 * 1024)

static void push_dump(struct state *S, lua_State *L)
{
    const char *text = "";
    ssize_t n = lgs_text(S, gs_dump, &text);
    lua_pushlstring(L, text, n < 0 ? 0 : n < DUMP_IN_ERROR ? (size_t)n : DUMP_IN_ERROR);
    lgs_scratch_done(S);
}

/* Whether a finalizer runs: lua_gc can't do anything then. */
static bool in_finalizer(lua_State *L)
{
    return lua_gc(L, LUA_GCISRUNNING) < 0;
}

/* Raises the error that ends a goroutine of a closed program. The first time it leaves the goroutine time for
   clean-up that doesn't wait. From the second time on each instruction raises it again. */
static int raise_stopped(struct state *S, lua_State *L)
{
    if (S->clean_up == 0) {
        S->clean_up = gs_after_ns(LGS_CLEAN_UP);
    } else {
        S->clean_up = 1;
        lua_sethook(L, lgs_on_slice, LUA_MASKCOUNT, 1);
    }
    lua_pushliteral(L, "cancelled");
    return lua_error(L);
}

int lgs_raise_cancelled(struct state *S, lua_State *L)
{
    if (lgs_is_stopped(S))
        return raise_stopped(S, L);
    int reason = atomic_exchange(&S->reason, LGS_NO_REASON);
    /* An error ends a finalizer and goes no further, so the goroutine must still be ended. */
    if (reason != LGS_NO_REASON || !in_finalizer(L))
        gs_uncancel();
    if (reason == LGS_DEADLOCK) {
        luaL_where(L, 1);
        lua_pushliteral(L, "all goroutines are asleep - deadlock!\n");
        push_dump(S, L);
        lua_concat(L, 3);
        return lua_error(L);
    }
    if (reason == LGS_INTERRUPT) {
        /* lua5.4's hook raises the error when this function returns. */
        if (lua_gethook(L))
            return 0;
        return luaL_error(L, "interrupted!");
    }
    lua_pushliteral(L, "cancelled");
    return lua_error(L);
}
