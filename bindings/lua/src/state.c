/* Lua's states, the goroutines that run in them, and the main program's. */

#include "lgs.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000

/* States that wait in the pool for the next goroutine, at most; each takes some 45 KiB. */
#define POOL 128
/* A state whose memory has grown by this many bytes since it was last cleaned is cleaned before the pool ... */
#define DIRTY (128 * 1024)
/* ... and is not kept if it still has more than this, */
#define TOO_LARGE (4 * 1024 * 1024)
/* or if its memory is this many times as large as what is in use there, and this many bytes more, because that lies scattered, */
#define SPARSE 2
#define TOO_SPARSE (256 * 1024)
/* or if a goroutine has left more globals than this: their table stays large, and each goroutine's end looks at all of it. */
#define TOO_MANY 1000
/* The collector is told of memory outside of Lua in steps of this many bytes. */
#define CHARGE (16 * 1024)
/* What a goroutine that has ended takes as long as it has a handle, in bytes: the library's descriptor and the copies of
   its name, paths and result. */
#define GOROUTINE 1024
/* A goroutine whose program is closed may compute for this long, in ns, while the error that ends it is on its way. */
#define CLEAN_UP (SECOND / 10)
/* An error that was not asked for is printed after this time, in ns. */
#define REPORT_AFTER SECOND
/* All goroutines must have waited for this long, in ns, before that counts as a deadlock. */
#define DEADLOCK_AFTER (20 * 1000 * 1000)

struct goroutine {
    struct shared shared;
    gs_g *g;
    struct message *job;    /* the function, its arguments */
    char *paths;            /* package.path and then package.cpath of the goroutine that started this one */
    struct preloads *preloads; /* for package.preload; a reference, or NULL */
    struct message *result; /* what it has returned, or the error */
    char *traceback;
    struct shared *done;         /* a wait group to count down, or NULL */
    _Atomic int status;          /* G_... */
    _Atomic bool joined;         /* a caller has been told how it ended, or waits to be */
    struct program *program;     /* that it belongs to; as long as it has not ended, one of the program's users */
    struct goroutine *next_failed, **at_failed; /* in `failed`: the next, and what points to this; NULL: not in it */
    int64_t report_at;                          /* when its error is printed, by gs_now */
};

enum { G_RUNS, G_DONE, G_FAILED };

/* ---- The slice of Lua code ----

   Lua's count hook, while it is set, makes each instruction slower: loops take twice as long. So it isn't set until the slice
   is over. A timer of the thread, which runs only while the thread computes, sends a signal to that thread; its handler
   sets the hook for the state that the thread runs just then, and the hook lets others run. Signal handlers may call lua_sethook. */

struct thread {
    struct state *_Atomic running; /* NULL: none */
    struct state *_Atomic ticked;  /* that the handler uses now; NULL: none */
    unsigned age;                  /* of the process when the thread got its timer; 0: never */
    struct thread *next, **at;     /* in `threads`: the next, and what points to this */
};
static _Thread_local struct thread this_thread __attribute__((tls_model("initial-exec")));
static struct thread *threads; /* that have timers */
static _Atomic bool threads_locked;
static int tick_signal;   /* 0: there is none */
static unsigned age = 1;  /* of the process: a child of fork has no timers */
static pthread_key_t timer_key;

/* Not inlined: the goroutine may be on another thread after a switch, and a compiler may keep the
   address of a thread's variable. */
static __attribute__((noinline)) void set_running(struct state *S)
{
    atomic_store_explicit(&this_thread.running, S, memory_order_release);
}

/* Before the state is freed: no thread's handler uses it from now on. A thread may still count it as the state that it runs: the
   library has preempted the state's goroutine, which went on elsewhere, or a host closes the state on another thread. */
static void forget_state(struct state *S)
{
    lgs_spin_lock(&threads_locked);
    for (struct thread *t = threads; t; t = t->next) {
        struct state *running = S;
        atomic_compare_exchange_strong(&t->running, &running, NULL);
        while (atomic_load(&t->ticked) == S)
            __builtin_ia32_pause();
    }
    lgs_spin_unlock(&threads_locked);
}

/* Whether the program of the state's goroutine is closed. */
static bool is_stopped(const struct state *S)
{
    return atomic_load_explicit(&S->stopped, memory_order_relaxed);
}

static int raise_cancelled(struct state *S, lua_State *L);

static void on_slice(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    if (lua_gethook(L) == on_slice)
        lua_sethook(L, NULL, 0, 0);
    /* The state of the whole goroutine: L may be a coroutine in it. */
    struct state *S = lgs_state_of(L);
    if (!S)
        return;
    bool held = S->held;
    S->held = false;
    if (gs_now() < S->clean_up) /* 0, if it was not told to end */
        return;
    if (!gs_cancelled() && !is_stopped(S)) {
        lgs_leave(S, false);
        gs_yield();
        lgs_enter(S, false);
        if (!is_stopped(S))
            return;
    }
    if (held) /* not before the next instruction, which makes the mutex the business of a <close> variable */
        lua_sethook(L, on_slice, LUA_MASKCOUNT, 1);
    else
        raise_cancelled(S, L);
}

static void on_tick(int signal)
{
    (void)signal;
    struct state *S = atomic_load(&this_thread.running);
    atomic_store(&this_thread.ticked, S);
    if (S && atomic_load(&this_thread.running) == S) {
        lua_State *L = S->coroutine ? S->coroutine : S->L;
        /* A hook of the program's, or lua5.4's for Ctrl-C, comes first. */
        if (L && (lua_gethookmask(L) == 0 || is_stopped(S)))
            lua_sethook(L, on_slice, LUA_MASKCOUNT, 1);
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

/* The goroutine stays on the thread meanwhile. */
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

/* Takes a real-time signal that is not in use. */
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

/* In a child of fork, which has no timers. */
static void forget_timers(void)
{
    age++;
    if (tick_signal != 0)
        pthread_setspecific(timer_key, NULL);
    threads = NULL;
    atomic_store(&threads_locked, false);
}

/* ---- Deadlocks ----

   The library would report them itself if no goroutine waited for Ctrl-C. And a program in Lua expects an error. */

static _Atomic int64_t alive;   /* goroutines of Lua that have not ended, main programs included */
static _Atomic int64_t asleep;  /* goroutines that wait for nothing but other goroutines */
static _Atomic uint64_t waits;  /* how often such a wait has begun or ended */
static _Atomic int64_t timers;  /* timers that have not fired yet, tickers included */
static _Atomic bool watched;         /* a timer to look again runs */
static uint64_t suspected;
static gs_timer *watch;

/* The state that is told of deadlocks and of Ctrl-C: that of the first main program. The others are next to it. */
static gs_mutex main_lock;
static struct state *main_program;

/* What the last Ctrl-C that came while the main program waited has led to: the waits are to be ended, or were
 * ended. */
enum { NO_CTRL_C, CTRL_C_CAME, CTRL_C_ENDS_WAITS };
static _Atomic int ctrl_c;

static void lock_main(void)
{
    gs_cancel_disable();
    (void)!gs_mutex_lock(&main_lock, GS_FOREVER);
}

static void unlock_main(void)
{
    gs_mutex_unlock(&main_lock);
    gs_cancel_enable();
}

static bool all_asleep(void)
{
    return atomic_load(&asleep) >= atomic_load(&alive) && atomic_load(&timers) == 0;
}

static void interrupt_main(int reason)
{
    int came = CTRL_C_CAME;
    bool wanted;
    lock_main();
    if (reason == LGS_INTERRUPT) /* unless the wait has ended by itself: settle_ctrl_c */
        wanted = atomic_compare_exchange_strong(&ctrl_c, &came, CTRL_C_ENDS_WAITS);
    else /* unless the main program has only been opened now */
        wanted = all_asleep();
    if (wanted && main_program && main_program->self) {
        atomic_store(&main_program->reason, reason);
        gs_cancel(main_program->self);
    }
    unlock_main();
}

static void count_active(const gs_g_info *info, void *count)
{
    if (info->state != GS_G_WAITING)
        ++*(int *)count;
}

/* In a goroutine of the timer's. */
static void look_for_deadlock(void *arg)
{
    (void)arg;
    uint64_t now = atomic_load(&waits);
    if (!all_asleep()) {
        /* The next goroutine that waits starts the timer again. */
        atomic_store(&watched, false);
        if (!all_asleep() || atomic_exchange(&watched, true))
            return;
    } else if (suspected == now) {
        int active = 0;
        if (gs_stop_the_world() == 0) {
            gs_foreach_g(count_active, &active);
            gs_start_the_world();
        }
        if (active <= 1 && atomic_load(&waits) == now) { /* this one */
            atomic_store(&watched, false);
            interrupt_main(LGS_DEADLOCK);
            return;
        }
    }
    suspected = now;
    gs_timer_reset(watch, DEADLOCK_AFTER);
}

/* After each change that may have left nothing but goroutines that wait: a goroutine falls asleep, the last that was
   awake ends, the last timer has fired. */
static void watch_if_all_asleep(void)
{
    if (!all_asleep())
        return;
    if (!atomic_load_explicit(&watched, memory_order_relaxed) && !atomic_exchange(&watched, true))
        gs_timer_reset(watch, DEADLOCK_AFTER);
}

void lgs_timers(int more)
{
    atomic_fetch_add(&timers, more);
    if (more < 0)
        watch_if_all_asleep();
}

static void one_fewer_alive(void)
{
    atomic_fetch_sub(&alive, 1);
    watch_if_all_asleep();
}

static void falls_asleep(void)
{
    atomic_fetch_add(&waits, 1);
    atomic_fetch_add(&asleep, 1);
    watch_if_all_asleep();
}

static void wakes_up(void)
{
    atomic_fetch_add(&waits, 1);
    atomic_fetch_sub(&asleep, 1);
}

/* ---- Ctrl-C ----

   lua5.4 installs a handler for SIGINT that makes the state raise an error at its next instruction. A main program that
   waits here comes to none, so this module stands in front of that handler while its main program waits. */

static struct sigaction behind; /* lua5.4's */
static int interrupts = -1;     /* an eventfd; -1: none yet */
static _Atomic bool main_waits;

static void end_wait(void)
{
    uint64_t one = 1;
    atomic_store(&ctrl_c, CTRL_C_CAME);
    (void)!write(interrupts, &one, sizeof one);
}

static void on_interrupt(int signal)
{
    int saved = errno;
    behind.sa_handler(signal);
    if (atomic_load(&main_waits))
        end_wait();
    errno = saved;
}

static void watch_interrupts(void *arg)
{
    (void)arg;
    for (;;) {
        uint64_t count;
        if (gs_read(interrupts, &count, sizeof count, GS_FOREVER) != sizeof count)
            return;
        interrupt_main(LGS_INTERRUPT);
    }
}

/* Before the main program waits. lua5.4 installs its handler anew for each line that is typed. */
static void front_interrupts(struct state *S)
{
    struct sigaction now;
    if (interrupts < 0 || S != main_program || sigaction(SIGINT, NULL, &now) != 0)
        return;
    if ((now.sa_flags & SA_SIGINFO) || now.sa_handler == SIG_IGN)
        return;
    if (now.sa_handler != on_interrupt && now.sa_handler != SIG_DFL) {
        sigset_t sigint, before;
        sigemptyset(&sigint);
        sigaddset(&sigint, SIGINT);
        pthread_sigmask(SIG_BLOCK, &sigint, &before);
        /* lua5.4's handler may have run just now. */
        if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler != SIG_DFL) {
            behind = now;
            now.sa_handler = on_interrupt;
            sigaction(SIGINT, &now, NULL);
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    atomic_store(&main_waits, true);
    /* Ctrl-C may have come after the last instruction: lua5.4's handler has set its hook, and SIGINT to SIG_DFL. */
    const int all = LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT;
    if (lua_gethookmask(S->L) == all && lua_gethookcount(S->L) == 1 && sigaction(SIGINT, NULL, &now) == 0
        && now.sa_handler == SIG_DFL)
        end_wait();
}

/* The main program has waited. If Ctrl-C came meanwhile, lua5.4's hook raises the error at the next instruction, whether the
   cancel has ended this wait or comes too late for it: it must not end the next one. */
static void settle_ctrl_c(struct state *S)
{
    int reason = LGS_INTERRUPT;
    atomic_store(&main_waits, false);
    if (atomic_load(&ctrl_c) == NO_CTRL_C || !lua_gethook(S->L))
        return;
    lock_main(); /* no cancel is under way */
    bool ends_waits = atomic_exchange(&ctrl_c, NO_CTRL_C) == CTRL_C_ENDS_WAITS;
    unlock_main();
    if (ends_waits && atomic_compare_exchange_strong(&S->reason, &reason, LGS_NO_REASON))
        gs_uncancel();
}

/* ---- Around calls ---- */

void lgs_leave(struct state *S, bool sync)
{
    set_running(NULL);
    if (S->self)
        front_interrupts(S);
    if (sync)
        falls_asleep();
}

void lgs_enter(struct state *S, bool sync)
{
    if (sync)
        wakes_up();
    if (S->self)
        settle_ctrl_c(S);
    start_ticking();
    set_running(S->L ? S : NULL);
}

/* What gs_dump writes, on top of the stack. */
static void push_dump(lua_State *L)
{
    int fd = memfd_create("gosched", MFD_CLOEXEC);
    if (fd < 0 || gs_dump(fd) < 0) {
        if (fd >= 0)
            close(fd);
        lua_pushliteral(L, "");
        return;
    }
    char text[4096];
    ssize_t n = pread(fd, text, sizeof text, 0);
    close(fd);
    lua_pushlstring(L, text, n > 0 ? (size_t)n : 0);
}

/* Whether a finalizer runs: lua_gc can't do anything then. */
static bool in_finalizer(lua_State *L)
{
    return lua_gc(L, LUA_GCISRUNNING) < 0;
}

/* The error that ends a goroutine whose program is closed. The first one leaves it time for clean-up that doesn't wait. From the
   second one on, each instruction raises it again. */
static int raise_stopped(struct state *S, lua_State *L)
{
    if (S->clean_up == 0) {
        S->clean_up = gs_after_ns(CLEAN_UP);
    } else {
        S->clean_up = 1;
        lua_sethook(L, on_slice, LUA_MASKCOUNT, 1);
    }
    lua_pushliteral(L, "cancelled");
    return lua_error(L);
}

static int raise_cancelled(struct state *S, lua_State *L)
{
    if (is_stopped(S))
        return raise_stopped(S, L);
    int reason = atomic_exchange(&S->reason, LGS_NO_REASON);
    /* An error ends a finalizer and goes no further, so the goroutine is still to be ended. */
    if (reason != LGS_NO_REASON || !in_finalizer(L))
        gs_uncancel();
    if (reason == LGS_DEADLOCK) {
        luaL_where(L, 1);
        lua_pushliteral(L, "all goroutines are asleep - deadlock!\n");
        push_dump(L);
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

int lgs_fail(struct state *S, lua_State *L, int r)
{
    if (r == -ECANCELED && gs_cancelled())
        return raise_cancelled(S, L);
    lua_pushnil(L);
    if (r == -EAGAIN || r == -ETIMEDOUT) {
        lua_pushliteral(L, "timeout");
        return 2;
    }
    if (r == -ECANCELED) {
        lua_pushliteral(L, "closed");
        return 2;
    }
    if (gs_eai(r) != 0) {
        lua_pushstring(L, gs_strerror(r));
        return 2;
    }
    char text[128];
    lua_pushstring(L, strerror_r(-r, text, sizeof text));
    lua_pushinteger(L, -r);
    return 3;
}

int lgs_done(struct state *S, lua_State *L, int r)
{
    if (r < 0)
        return lgs_fail(S, L, r);
    lua_pushboolean(L, 1);
    return 1;
}

static gs_duration to_ns(lua_State *L, int arg, lua_Number seconds)
{
    luaL_argcheck(L, !isnan(seconds), arg, "a time in seconds expected, got nan");
    if (seconds <= 0)
        return 0;
    return seconds >= 9e9 ? INT64_MAX : (gs_duration)ceil(seconds * SECOND);
}

gs_duration lgs_seconds(lua_State *L, int arg)
{
    return to_ns(L, arg, luaL_checknumber(L, arg));
}

gs_deadline lgs_deadline(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg))
        return GS_FOREVER;
    gs_duration ns = lgs_seconds(L, arg);
    if (ns == INT64_MAX)
        return GS_FOREVER;
    return ns == 0 ? GS_NOWAIT : gs_after_ns(ns);
}

gs_deadline lgs_timeout_option(lua_State *L, const char *function)
{
    lua_Number seconds = lua_tonumber(L, -1);
    if (!lua_isnil(L, -1) && (!lua_isnumber(L, -1) || isnan(seconds)))
        luaL_error(L, "%s: 'timeout' is a number of seconds, got %s", function, isnan(seconds) ? "nan" : luaL_typename(L, -1));
    return lgs_deadline(L, lua_gettop(L));
}

char *lgs_scratch(struct state *S, size_t size, bool keep)
{
    if (size <= S->scratch_size)
        return S->scratch;
    size_t more = S->scratch_size * 2 > size ? S->scratch_size * 2 : size;
    char *p = keep ? realloc(S->scratch, more) : malloc(more);
    if (!p)
        return NULL;
    if (!keep)
        free(S->scratch);
    S->scratch = p;
    S->scratch_size = more;
    return p;
}

void lgs_scratch_done(struct state *S)
{
    if (S->scratch_size > 1 << 16) {
        free(S->scratch);
        S->scratch = NULL;
        S->scratch_size = 0;
    }
}

/* ---- Shared objects ---- */

const char *const lgs_names[LGS_TYPES] = {"gosched.chan", "gosched.mutex", "gosched.waitgroup", "gosched.goroutine",
                                          "gosched.file"};

static const char boxes_key, state_key;

struct shared *lgs_retain(struct shared *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void lgs_give_up(struct shared *s, struct shared **gone)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    s->next = *gone;
    *gone = s;
}

static void destroy(struct shared *s, struct shared **gone)
{
    switch ((enum lgs_type)s->type) {
    case LGS_CHAN:
        lgs_chan_destroy(s, gone);
        break;
    case LGS_MUTEX:
        lgs_mutex_destroy(s);
        break;
    case LGS_WAITGROUP:
        lgs_waitgroup_destroy(s);
        break;
    case LGS_GOROUTINE:
        lgs_goroutine_destroy(s, gone);
        break;
    default:
        lgs_file_destroy(s);
    }
}

void lgs_destroy(struct shared *gone)
{
    while (gone) {
        struct shared *s = gone;
        gone = s->next;
        destroy(s, &gone);
    }
}

void lgs_release(struct shared *s)
{
    struct shared *gone = NULL;
    lgs_give_up(s, &gone);
    lgs_destroy(gone);
}

void *lgs_userdata(struct state *S, lua_State *L, size_t size, int values)
{
    void *p = lua_newuserdatauv(L, size, values);
    S->userdata--;
    return p;
}

/* Pushes an empty userdata for an object. */
static struct box *push_box(struct state *S, lua_State *L, enum lgs_type type)
{
    struct box *box = lgs_userdata(S, L, sizeof *box, 0);
    *box = (struct box){0};
    luaL_setmetatable(L, lgs_names[type]);
    return box;
}

void *lgs_new(lua_State *L, size_t size, enum lgs_type type)
{
    /* The userdata first: nothing can fail once there is the object. */
    struct box *box = push_box(lgs_state(L), L, type);
    struct shared *s = calloc(1, size);
    if (!s)
        luaL_error(L, "not enough memory");
    s->refs = 1;
    s->type = (uint8_t)type;
    box->s = s;
    return s;
}

void lgs_charge(struct state *S, lua_State *L, size_t size)
{
    S->charged += size;
    if (S->charged < CHARGE)
        return;
    size_t kib = S->charged / 1024;
    S->charged %= 1024;
    /* The program may have stopped the collector. */
    if (lua_gc(L, LUA_GCISRUNNING))
        lua_gc(L, LUA_GCSTEP, (int)kib);
}

void lgs_boxed(lua_State *L)
{
    struct box *box = lua_touserdata(L, -1);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
    lua_pushvalue(L, -2);
    lua_rawsetp(L, -2, box->s);
    lua_pop(L, 1);
}

void lgs_push(struct state *S, lua_State *L, struct shared *s)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &boxes_key);
    if (lua_rawgetp(L, -1, s) == LUA_TNIL) {
        lua_pop(L, 1);
        struct box *box = push_box(S, L, (enum lgs_type)s->type);
        box->s = lgs_retain(s);
        if (s->type == LGS_FILE) {
            box->counted = true;
            S->open_files++;
        }
        lua_pushvalue(L, -1);
        lua_rawsetp(L, -3, s);
    }
    lua_replace(L, -2);
}

void *lgs_check(lua_State *L, int arg, enum lgs_type type)
{
    struct box *box = luaL_checkudata(L, arg, lgs_names[type]);
    if (!box->s) /* in a finalizer that runs after the object's own */
        luaL_argerror(L, arg, "it was collected");
    return box->s;
}

struct shared *lgs_to(lua_State *L, int index)
{
    if (lua_rawlen(L, index) != sizeof(struct box))
        return NULL;
    for (int type = 0; type < LGS_TYPES; type++) {
        struct box *box = luaL_testudata(L, index, lgs_names[type]);
        if (box)
            return box->s;
    }
    return NULL;
}

static int box_gc(lua_State *L)
{
    struct box *box = lua_touserdata(L, 1);
    struct shared *s = box->s;
    if (s) {
        box->s = NULL;
        lgs_state(L)->open_files -= box->counted;
        lgs_leave(lgs_state(L), false);
        lgs_release(s);
        lgs_enter(lgs_state(L), false);
    }
    return 0;
}

void lgs_metatable(struct state *S, lua_State *L, enum lgs_type type, const luaL_Reg *meta, const luaL_Reg *methods)
{
    luaL_newmetatable(L, lgs_names[type]);
    lua_pushlightuserdata(L, S);
    lua_pushcclosure(L, box_gc, 1);
    lua_setfield(L, -2, "__gc");
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, meta, 1);
    lua_newtable(L);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, methods, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

struct state *lgs_state_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &state_key);
    struct state *S = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return S;
}

/* ---- Programs ----

   A program is a state that a host has made, with the goroutines that the state has started, and those that they have started.
   When the state is closed, all of these goroutines have to end. Each is cancelled for good, so its waits fail, and the slice's
   hook ends it if it computes. */

struct program {
    _Atomic int users;   /* the host's state, and the goroutines that have not ended */
    _Atomic bool closed; /* no goroutine begins any more */
};

/* lua_close goes on when no goroutine has ended for this long, in ns: longer than CLEAN_UP. A goroutine can't end while it is in
   a function in C that neither calls Lua nor waits here. */
#define WITHOUT_AN_END (SECOND / 5)

static gs_mutex pool_lock;
static struct state *pool;
static int pooled;
static struct state *busy;  /* the states of goroutines */
static gs_cond ended;       /* a goroutine has ended, while a program is closed */
static _Atomic int closing; /* programs whose goroutines are waited for */

/* For a goroutine that the state starts; NULL if the program is closed. */
static struct program *join_program(struct state *S)
{
    struct program *p = S->program;
    if (!p)
        return NULL;
    /* First one user more: close_program looks at the users after it has closed the program. */
    atomic_fetch_add(&p->users, 1);
    if (!atomic_load(&p->closed))
        return p;
    atomic_fetch_sub(&p->users, 1); /* not the last one: the caller is another */
    return NULL;
}

static void leave_program(struct program *p)
{
    if (atomic_fetch_sub(&p->users, 1) == 1)
        free(p);
    if (atomic_load(&closing) == 0)
        return;
    gs_cancel_disable();
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    gs_cond_broadcast(&ended);
    gs_mutex_unlock(&pool_lock);
    gs_cancel_enable();
}

/* Ends the goroutines of a program. Gives the state of the goroutine that calls, of this program or another; NULL: it has
   none. */
static struct state *close_program(struct program *p)
{
    struct state *callers = NULL;
    int users, remaining = 1; /* users that aren't waited for: the host's state, and the caller if it is one of the goroutines */
    gs_cancel_disable();
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    atomic_fetch_add(&closing, 1);
    atomic_store(&p->closed, true);
    for (struct state *S = busy; S; S = S->next) {
        if (S->runs == gs_self())
            callers = S;
        if (S->program != p)
            continue;
        atomic_store(&S->stopped, true);
        gs_cancel(S->runs);
        remaining += S == callers;
    }
    while ((users = atomic_load(&p->users)) > remaining) {
        gs_deadline patience = gs_after_ns(WITHOUT_AN_END);
        while (atomic_load(&p->users) == users && gs_cond_wait(&ended, &pool_lock, patience) == 0)
            ;
        if (atomic_load(&p->users) == users)
            break;
    }
    atomic_fetch_sub(&closing, 1);
    gs_mutex_unlock(&pool_lock);
    gs_cancel_enable();
    return callers;
}

/* ---- The pool of states ---- */

int luaopen_gosched(lua_State *L);

static void close_state(struct state *S)
{
    lua_State *L = S->L;
    /* Finalizers don't make it the state that the thread runs: the slice's signal may come when it has been freed. */
    S->L = NULL;
    forget_state(S);
    S->heap.closing = true;
    if (L)
        lua_close(L);
    lgs_heap_free(&S->heap);
    free(S->scratch);
    free(S->packing);
    lgs_preloads_release(S->preloads);
    free(S);
}

/* ---- Coroutines ----

   A coroutine has a hook of its own, so the handler of the slice must know which one runs. In the states of goroutines, resume,
   wrap and close of the library `coroutine` are these, which say so, and else do as Lua's own. */

/* Says that the coroutine `co` (NULL: none) runs; gives what ran before. */
static lua_State *switch_to(struct state *S, lua_State *co)
{
    lua_State *was = S->coroutine;
    S->coroutine = co;
    return was;
}

/* Ends a coroutine, whose <close> variables are closed in it. */
static int reset(struct state *S, lua_State *co)
{
    lua_State *was = switch_to(S, co);
    int status = lua_resetthread(co);
    switch_to(S, was);
    return status;
}

/* As auxresume in Lua's lcorolib.c: gives how many results are on L; below 0: an error is. */
static int resume(struct state *S, lua_State *L, lua_State *co, int n)
{
    if (!lua_checkstack(co, n)) {
        lua_pushliteral(L, "too many arguments to resume");
        return -1;
    }
    lua_xmove(L, co, n);
    lua_State *was = switch_to(S, co);
    int results, status = lua_resume(co, L, n, &results);
    switch_to(S, was);
    if (status != LUA_OK && status != LUA_YIELD) {
        bool stopped = is_stopped(S);
        if (stopped) { /* the error is for the whole goroutine */
            if (lua_gethook(co) == on_slice)
                lua_sethook(L, on_slice, LUA_MASKCOUNT, 1);
            reset(S, co);
        }
        lua_xmove(co, L, 1);
        return stopped ? lua_error(L) : -1;
    }
    if (!lua_checkstack(L, results + 1)) {
        lua_pop(co, results);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, results);
    return results;
}

static int co_resume(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_checktype(L, 1, LUA_TTHREAD);
    int n = resume(lgs_state(L), L, co, lua_gettop(L) - 1);
    lua_pushboolean(L, n >= 0);
    n = n < 0 ? 1 : n;
    lua_insert(L, -(n + 1));
    return n + 1;
}

static int co_close(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    lua_Debug ar;
    luaL_checktype(L, 1, LUA_TTHREAD);
    if (co == L || (lua_status(co) == LUA_OK && lua_getstack(co, 0, &ar)))
        return luaL_error(L, "cannot close a %s coroutine", co == L ? "running" : "normal");
    bool good = reset(lgs_state(L), co) == LUA_OK;
    lua_pushboolean(L, good);
    if (!good)
        lua_xmove(co, L, 1);
    return good ? 1 : 2;
}

/* What wrap gives. */
static int co_wrapped(lua_State *L)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(2));
    int n = resume(lgs_state(L), L, co, lua_gettop(L));
    if (n >= 0)
        return n;
    int status = lua_status(co);
    if (status != LUA_OK && status != LUA_YIELD) { /* the error is the coroutine's own */
        status = reset(lgs_state(L), co);
        lua_xmove(co, L, 1);
    }
    if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

static int co_wrap(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_pushlightuserdata(L, lgs_state(L));
    lua_State *co = lua_newthread(L);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    lua_pushcclosure(L, co_wrapped, 2);
    return 1;
}

/* The library is on top of the stack. */
static void replace_coroutines(struct state *S, lua_State *L)
{
    const luaL_Reg ours[] = {{"resume", co_resume}, {"wrap", co_wrap}, {"close", co_close}, {NULL, NULL}};
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, ours, 1);
}

/* Protected: makes the libraries of a new state. */
static int fill_state(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    luaL_openlibs(L);
    lua_pushlightuserdata(L, S);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
    lgs_globals_open(S, L);
    luaL_requiref(L, "gosched", luaopen_gosched, 0);
    lua_pop(L, 1);
    lgs_io_replace(S, L);
    lua_getglobal(L, "coroutine");
    replace_coroutines(S, L);
    lua_pop(L, 1);
    return 0;
}

/* Of a new object Lua says in `old` which kind it is. */
static void *allocate(void *state, void *p, size_t old, size_t size)
{
    struct state *S = state;
    if (!p && old == LUA_TUSERDATA)
        S->userdata++;
    return lgs_allocate(&S->heap, p, old, size);
}

/* As luaL_newstate has them. */

static void warning(void *state, const char *text, int more)
{
    struct state *S = state;
    bool begins = !S->in_warning;
    S->in_warning = more;
    if (begins && !more && text[0] == '@') {
        if (strcmp(text, "@on") == 0)
            S->warns = true;
        else if (strcmp(text, "@off") == 0)
            S->warns = false;
    } else if (S->warns) {
        fprintf(stderr, "%s%s%s", begins ? "Lua warning: " : "", text, more ? "" : "\n");
    }
}

static int panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    fprintf(stderr, "PANIC: unprotected error in call to Lua API (%s)\n", text ? text : "error object is not a string");
    return 0;
}

static struct state *new_state(void)
{
    struct state *S = calloc(1, sizeof *S);
    if (!S || !(S->L = lua_newstate(allocate, S))) {
        if (S)
            lgs_heap_free(&S->heap);
        free(S);
        return NULL;
    }
    lua_atpanic(S->L, panic);
    lua_setwarnf(S->L, warning, S);
    lua_pushcfunction(S->L, fill_state);
    lua_pushlightuserdata(S->L, S);
    if (lua_pcall(S->L, 1, 0, 0) != LUA_OK) {
        close_state(S);
        return NULL;
    }
    S->userdata = 0;
    return S;
}

/* A state for the goroutine that calls, which close_program finds from now on. NULL: no memory. */
static struct state *get_state(struct goroutine *g)
{
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    struct state *S = pool;
    if (S) {
        pool = S->next;
        pooled--;
    } else {
        gs_mutex_unlock(&pool_lock);
        if (!(S = new_state()))
            return NULL;
        (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    }
    S->g = g;
    S->program = g->program;
    S->runs = gs_self();
    S->clean_up = 0;
    atomic_store(&S->stopped, atomic_load(&g->program->closed));
    S->next = busy;
    S->at = &busy;
    if (busy)
        busy->at = &S->next;
    busy = S;
    gs_mutex_unlock(&pool_lock);
    return S;
}

static size_t memory(lua_State *L)
{
    return (size_t)lua_gc(L, LUA_GCCOUNT) * 1024 + (size_t)lua_gc(L, LUA_GCCOUNTB);
}

/* Whether it could be done, and the state is to be kept. */
static bool restore_globals(struct state *S)
{
    lua_State *L = S->L;
    lua_pushcfunction(L, lgs_globals_restore);
    lua_pushlightuserdata(L, S);
    bool good = lua_pcall(L, 1, 1, 0) == LUA_OK && lua_tointeger(L, -1) <= TOO_MANY;
    lua_settop(L, 0);
    return good;
}

static void put_state(struct state *S)
{
    lua_State *L = S->L;
    lua_settop(L, 0);
    lua_sethook(L, NULL, 0, 0);
    S->g = NULL;
    if (!lua_gc(L, LUA_GCISRUNNING))
        lua_gc(L, LUA_GCRESTART);
    lua_gc(L, LUA_GCINC, 200, 100, 13); /* as in a new state: the defaults in Lua's manual */
    lua_warning(L, "@off", 0);
    bool keep = !is_stopped(S) && restore_globals(S);
    /* Finalizers run now, not when Lua comes to it: they close files that are still open, for instance. */
    if (keep && (S->open_files > 0 || S->userdata > 0 || S->finalizers || memory(L) > S->clean + DIRTY)) {
        S->userdata = 0;
        S->finalizers = false;
        lua_gc(L, LUA_GCCOLLECT);
        S->clean = memory(L);
        lgs_heap_trim(&S->heap);
        /* Finalizers may have set globals. */
        keep = S->clean < TOO_LARGE && S->heap.size < SPARSE * S->clean + TOO_SPARSE && restore_globals(S);
    }
    lgs_scratch_done(S);
    set_running(NULL); /* finalizers may have waited, and another thread may run the state as soon as it is in the pool */
    (void)!gs_mutex_lock(&pool_lock, GS_FOREVER);
    *S->at = S->next;
    if (S->next)
        S->next->at = S->at;
    keep = keep && pooled < POOL;
    if (keep) {
        S->next = pool;
        pool = S;
        pooled++;
    }
    gs_mutex_unlock(&pool_lock);
    if (keep)
        return;
    /* If the program is closed, finalizers can't wait either. */
    bool stopped = is_stopped(S);
    if (stopped)
        gs_cancel_enable();
    close_state(S);
    if (stopped)
        gs_cancel_disable();
}

/* ---- Goroutines ---- */

static pthread_once_t started = PTHREAD_ONCE_INIT;
static size_t stack_size; /* what goroutines are spawned with; 0: the library's default */

/* Goroutines whose error was not asked for yet, the oldest failure first; each a reference. One goroutine, the reporter,
 * waits for all of them. */
static gs_mutex failed_lock;
static struct goroutine *failed, **failed_end = &failed;
static bool reporting; /* with failed_lock: there is a reporter */

static void report(struct goroutine *g)
{
    char name[128] = "";
    gs_name(g->g, name, sizeof name);
    fprintf(stderr, "gosched: goroutine %llu (%s) failed: %s\n", (unsigned long long)gs_id(g->g), name,
            g->traceback ? g->traceback : "not enough memory");
}

/* The caller holds failed_lock. */
static void remove_failed(struct goroutine *g)
{
    *g->at_failed = g->next_failed;
    if (g->next_failed)
        g->next_failed->at_failed = g->at_failed;
    else
        failed_end = g->at_failed;
    g->at_failed = NULL;
}

/* Takes the goroutine out of `failed`; false: it isn't there. The reference is the caller's then. */
static bool take_failed(struct goroutine *g)
{
    gs_cancel_disable();
    (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
    bool found = g->at_failed != NULL;
    if (found)
        remove_failed(g);
    gs_mutex_unlock(&failed_lock);
    gs_cancel_enable();
    return found;
}

/* A goroutine's: the reporter. */
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

/* A goroutine has failed: it is reported unless its error is asked for in time. */
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
        /* The next failure tries again; else it is reported at the end. */
        (void)!gs_mutex_lock(&failed_lock, GS_FOREVER);
        reporting = false;
        gs_mutex_unlock(&failed_lock);
    }
}

/* At the end of the program: what has not been reported yet. */
static __attribute__((destructor)) void report_all(void)
{
    while (failed) {
        struct goroutine *g = failed;
        failed = g->next_failed;
        if (!atomic_load(&g->joined))
            report(g);
    }
}

void lgs_goroutine_destroy(struct shared *s, struct shared **gone)
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
    free(g);
}

static void set_traceback(struct goroutine *g, const char *text)
{
    free(g->traceback);
    g->traceback = strdup(text);
}

/* The message handler: keeps the traceback, and gives the error. An error in a __close that an earlier error has called
   replaces that error, and so does its traceback. */
static int note_error(lua_State *L)
{
    struct state *S = lgs_state_of(L);
    struct goroutine *g = S->g;
    lua_settop(L, 1);
    if (is_stopped(S)) /* no program is left that could ask */
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

/* Protected: all that a goroutine does. */
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
    lgs_preloads_release(g->preloads);
    g->preloads = NULL;
    int n = lgs_unpack(S, L, g->job);
    lgs_message_free(g->job);
    g->job = NULL;
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

static void run_goroutine(void *arg)
{
    struct goroutine *g = arg;
    /* The program can't cancel what happens here. */
    gs_cancel_disable();
    struct state *S = atomic_load(&g->program->closed) ? NULL : get_state(g);
    int status = G_FAILED;
    if (S) {
        lua_State *L = S->L;
        lua_pushcfunction(L, note_error);
        lua_pushcfunction(L, goroutine_body);
        lua_pushlightuserdata(L, S);
        gs_cancel_enable();
        lgs_enter(S, false);
        int r = is_stopped(S) ? LUA_ERRRUN : lua_pcall(L, 1, 0, 1);
        if (r == LUA_OK) {
            status = G_DONE;
        } else if (!is_stopped(S)) {
            /* Of these Lua tells no message handler; what it says is a string. */
            if (r == LUA_ERRMEM || r == LUA_ERRERR)
                set_traceback(g, lua_tostring(L, 2));
            /* The error is at 2: as it is, or what tostring says. */
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
        set_running(NULL);
        gs_cancel_disable();
        put_state(S);
    }
    lgs_message_free(g->job);
    g->job = NULL;
    if (g->done) {
        lgs_waitgroup_add(g->done, -1);
        lgs_release(g->done);
        g->done = NULL;
    }
    /* Before the status says so: a caller of join that learns of the failure takes it out again. */
    if (status == G_FAILED && !atomic_load(&g->program->closed))
        add_failed(g);
    atomic_store(&g->status, status);
    one_fewer_alive();
    leave_program(g->program);
    lgs_release(&g->shared);
}

/* The options of gosched.go, a table at an index. */
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

int lgs_go(struct state *S, lua_State *L, int index, struct shared *done)
{
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    const char *name = NULL;
    char place[80];
    opts.stack_size = stack_size;
    if (lua_istable(L, index)) {
        read_options(L, index, &opts, &name);
        if (name) {
            /* In the table's place: a function of gosched.clone may take the name out of the table. */
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
    if (done) {
        int r = lgs_waitgroup_add(done, 1);
        if (r < 0)
            return luaL_error(L, "the wait group's counter would be too large");
        g->done = lgs_retain(done);
    }
    opts.name = name;
    struct program *p = g->program = join_program(S);
    lgs_retain(&g->shared);
    atomic_fetch_add(&alive, 1);
    lgs_leave(S, false);
    int r = p ? gs_spawn_with(run_goroutine, g, &opts, &g->g) : -ECANCELED;
    if (p && r < 0)
        leave_program(p);
    lgs_enter(S, false);
    if (r < 0) {
        atomic_fetch_sub(&alive, 1);
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
        /* Its error is not asked for again. */
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
    return gs_cancelled() ? raise_cancelled(S, L) : 0;
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
    lua_pushnumber(L, (lua_Number)gs_now() / SECOND);
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
    lua_pushinteger(L, atomic_load(&alive));
    return 1;
}

static int l_dump(lua_State *L)
{
    (void)lgs_state(L);
    push_dump(L);
    return 1;
}

static const luaL_Reg functions[] = {
    {"go", l_go},       {"yield", l_yield}, {"sleep", l_sleep}, {"now", l_now},       {"id", l_id},
    {"procs", l_procs}, {"count", l_count}, {"dump", l_dump},   {"clone", lgs_clone}, {NULL, NULL}};

/* ---- The module ---- */

/* lua_close unloads the modules of a state, and goroutines still run here then. */
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
    /* -EBUSY: the host has started it, with stacks for its own purposes. */
    if (gs_init(&config) == -EBUSY)
        stack_size = LGS_STACK;
    choose_signal();
    pthread_atfork(NULL, NULL, forget_timers);
    watch = gs_timer_start(INT64_MAX, look_for_deadlock, NULL);
    if (watch)
        gs_timer_stop(watch);
}

/* A main program's state is closed. */
static int main_gc(lua_State *L)
{
    struct state *S = lua_touserdata(L, 1);
    set_running(NULL);
    /* Finalizers that run later don't make it the state that the thread runs. */
    S->L = S->coroutine = NULL;
    forget_state(S);
    struct state *callers = close_program(S->program);
    leave_program(S->program);
    S->program = NULL;
    struct state *same = NULL; /* another main program of the same goroutine */
    lock_main();
    for (struct state **at = &main_program; *at;) {
        if (*at == S) {
            *at = S->next;
            continue;
        }
        if ((*at)->self == S->self)
            same = *at;
        at = &(*at)->next;
    }
    bool attached = S->attached && S->self == gs_self();
    if (same)
        same->attached |= S->attached;
    unlock_main();
    gs_release(S->self);
    S->self = NULL;
    one_fewer_alive();
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
    if (!watch || !(S->program = calloc(1, sizeof *S->program)))
        luaL_error(L, "gosched can't start: not enough memory or threads");
    S->program->users = 1;
    int r = gs_attach(0);
    if (r < 0 && r != -EBUSY && r != -ENOSYS) {
        leave_program(S->program);
        luaL_error(L, "gosched can't start: %s", gs_strerror(r));
    }
    S->attached = r == 0;
    S->self = gs_retain(gs_self());
    atomic_fetch_add(&alive, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, main_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &state_key);
    lock_main();
    struct state **at = &main_program;
    while (*at)
        at = &(*at)->next;
    if (S->self)
        *at = S;
    bool first = main_program == S;
    unlock_main();
    if (first && interrupts < 0) {
        int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
        opts.name = "lua's Ctrl-C";
        if (fd >= 0) {
            interrupts = fd;
            if (gs_spawn_with(watch_interrupts, NULL, &opts, NULL) != 0) {
                interrupts = -1;
                close(fd);
            }
        }
    }
    return S;
}

LUALIB_API int luaopen_gosched(lua_State *L)
{
    luaL_checkversion(L);
    struct state *S = lgs_state_of(L);
    if (!S)
        S = open_main(L);
    /* Userdata by their objects: a state has one userdata for each object. */
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &boxes_key);
    lgs_copy_open(S, L);
    lgs_metatable(S, L, LGS_GOROUTINE, goroutine_meta, goroutine_methods);
    luaL_newlibtable(L, functions);
    lua_pushlightuserdata(L, S);
    luaL_setfuncs(L, functions, 1);
    lgs_sync_open(S, L);
    lgs_io_open(S, L);
    lua_pushstring(L, gs_version());
    lua_setfield(L, -2, "version");
    lgs_enter(S, false);
    return 1;
}
