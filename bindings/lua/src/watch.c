/* The ends of a main program's waits: deadlocks, and Ctrl-C. */

#include "lgs.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The time, in ns, for which all goroutines must have waited before that is a deadlock. */
#define DEADLOCK_AFTER (20 * 1000 * 1000)

/* ---- Deadlocks ----

   The library doesn't report them itself, because a goroutine waits for Ctrl-C. And a program in Lua expects an
   error. */

_Atomic int64_t lgs_alive, lgs_asleep;
_Atomic uint64_t lgs_waits;
static _Atomic int64_t timers;  /* timers yet to fire, tickers included */
static _Atomic bool watched;         /* a timer to look again is running */
static uint64_t suspected;
static gs_timer *watch;

/* The state that gets deadlocks and Ctrl-C: the first main program's. The other states follow it. */
static gs_mutex main_lock;
static struct state *main_program;

/* The effect of the last Ctrl-C during a wait of the main program: the waits are to be ended, or were ended. */
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

static inline bool all_asleep(void)
{
    return atomic_load(&lgs_asleep) >= atomic_load(&lgs_alive) && atomic_load(&timers) == 0;
}

static void interrupt_main(int reason)
{
    int came = CTRL_C_CAME;
    bool wanted;
    lock_main();
    if (reason == LGS_INTERRUPT) /* unless the wait has already ended: lgs_settle_ctrl_c */
        wanted = atomic_compare_exchange_strong(&ctrl_c, &came, CTRL_C_ENDS_WAITS);
    else /* unless the main program has just been opened */
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

/* Looks for a deadlock, in a goroutine of the timer's. */
static void look_for_deadlock(void *arg)
{
    (void)arg;
    uint64_t now = atomic_load(&lgs_waits);
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
        if (active <= 1 && atomic_load(&lgs_waits) == now) { /* the timer's own goroutine */
            atomic_store(&watched, false);
            interrupt_main(LGS_DEADLOCK);
            return;
        }
    }
    suspected = now;
    gs_timer_reset(watch, DEADLOCK_AFTER);
}

void lgs_watch_if_all_asleep(void)
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
        lgs_watch_if_all_asleep();
}

void lgs_one_fewer_alive(void)
{
    atomic_fetch_sub(&lgs_alive, 1);
    lgs_watch_if_all_asleep();
}

/* ---- Ctrl-C ----

   lua5.4 installs a handler for SIGINT that makes the state raise an error at its next instruction. A main
   program that waits here reaches none, so this module's handler replaces that one during the wait. */

static struct sigaction behind; /* lua5.4's */
static int interrupts = -1;     /* an eventfd; -1: not yet made */
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

/* Anew for each wait: lua5.4 installs its handler for each line that is typed. */
void lgs_front_interrupts(struct state *S)
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
        /* lua5.4's handler may just have run. */
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

/* Settles a Ctrl-C that came during the wait just over. lua5.4's hook raises the error at the next instruction,
   whether the cancel has ended this wait or came too late for it. The cancel must not end the next wait. */
void lgs_settle_ctrl_c(struct state *S)
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

/* ---- Main programs ---- */

void lgs_watch_main(struct state *S)
{
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
}

struct state *lgs_unwatch_main(struct state *S)
{
    struct state *same = NULL;
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
    if (same)
        same->attached |= S->attached;
    unlock_main();
    return same;
}

bool lgs_watch_start(void)
{
    watch = gs_timer_start(INT64_MAX, look_for_deadlock, NULL);
    if (watch)
        gs_timer_stop(watch);
    return watch != NULL;
}
