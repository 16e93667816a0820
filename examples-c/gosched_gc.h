/*
 * gosched_gc.h: the Boehm-Demers-Weiser collector (libgc 8.2) for programs on libgosched. Copy it into your project.
 *
 * GC_malloc and its kin then work in goroutines as they do in threads, on all P's at once: what a parked, preempted or
 * running goroutine refers to from its stack and its registers is kept. In one source file of the program:
 *
 *     #define GOSCHED_GC_IMPLEMENTATION
 *     #include "gosched_gc.h"
 *
 *     int main(void)
 *     {
 *         gs_gc_init(0);              // before the first call of libgosched that starts it
 *         return gs_run(go_main, NULL) < 0;
 *     }
 *
 * and in the others the #include alone. Link with -lgosched -lgc -lpthread.
 *
 * How it works. A collection first stops the goroutines (gs_stop_the_world) and notes their stacks and registers
 * (gs_foreach_g); then libgc stops the threads that it knows, by its signals, and marks; then all go on. The threads of
 * libgosched are made known to libgc by hooks. libgc scans a thread's stack from the stack pointer up to the bottom that it was
 * told; for a thread that is on a goroutine's stack by then this would cross half of the address space, so the handler of libgc's
 * signal is preceded by one here that says where the stack ends on which the thread is.
 *
 * What is scanned: goroutines' stacks and registers, their argument if they have not begun, the stacks of threads that call
 * gs_run, functions within gs_blocking, and all that libgc scans anyway (static data, its own heap, threads that are
 * registered with it).
 *
 * What isn't: libgosched's own memory. A pointer that is only
 *   - in a buffered channel: use gs_gc_send and gs_gc_recv,
 *   - the argument of gs_spawn from a plain thread that races a collection: use gs_gc_spawn,
 *   - the argument of a timer, a value of gs_setspecific, or the word of gs_set_data: keep it somewhere else too
 *     (GC_malloc_uncollectable),
 *   - in a thread-local variable: libgc doesn't scan those of threads that it didn't make
 * is not seen, and what it points to is freed.
 *
 * Rules.
 *   - No allocation with the world stopped by gs_stop_the_world, in a goroutine with GS_SPAWN_NOPREEMPT, or between
 *     gs_preempt_disable and gs_preempt_enable: whoever collects waits for these, and these for the collector's lock. Nor in the
 *     hooks of gs_set_hooks but goexit, and not in the functions of gs_set_log and gs_set_deadlock_handler.
 *   - The runtime needs its preemption signal (GOSCHED_PREEMPT_SIGNAL must not be 0): it shows registers.
 *   - Finalizers are called by gs_gc_finalizers, or by GC_invoke_finalizers where you call it, and nowhere else: a call in the
 *     middle of GC_malloc must not switch to another goroutine.
 *   - In incremental mode the kernel can't write to memory that is protected (GC_incremental_protection_needs): read(2) and its kin
 *     give EFAULT. Let them write to memory of GC_malloc_atomic, or on the stack.
 *   - Stacks: an allocation may use 24 KiB of it. libgosched's 240 KiB are enough; be careful with smaller ones.
 *   - gs_gc_init sets the hooks of gs_set_hooks. If you need hooks of your own, give them to gs_gc_init_with_hooks.
 */
#ifndef GOSCHED_GC_H
#define GOSCHED_GC_H

#ifndef GC_THREADS
#define GC_THREADS
#endif
#ifndef GC_NO_THREAD_REDIRECTS
#define GC_NO_THREAD_REDIRECTS /* pthread_create stays what it is: register threads of your own */
#endif
#include <gc.h>
#include <gosched.h>

/* gs_gc_init: collect a little with each allocation, and so pause shortly (GC_enable_incremental). */
#define GS_GC_INCREMENTAL 1u

/* Starts libgc (GC_INIT) and makes libgosched's threads known to it. From the main thread, before the runtime starts.
 * 0; -EINVAL: an unknown flag; -EBUSY: it was called before; -ENOSYS: this libgc has no threads; -ENOMEM, -EMFILE. */
int gs_gc_init(uint32_t flags);

/* The same with hooks of the caller's, copied, each of which is called after what this header does, thread_stop before. */
int gs_gc_init_with_hooks(uint32_t flags, const gs_hooks *hooks);

/* gs_shutdown, with its errors, for a program in which plain threads allocate meanwhile: none of them collects while the runtime
 * ends. Plain threads. */
int gs_gc_shutdown(gs_deadline deadline);

/* gs_attach and gs_detach, with their errors, for a thread that is registered with libgc. (Not those themselves: on the way
 * to another stack and back the thread is where libgc doesn't look for it.) */
int gs_gc_attach(uint32_t flags);
int gs_gc_detach(void);

/* gs_spawn, and gs_spawn_with, whose arg is kept until the goroutine has begun. Errors are theirs. */
int gs_gc_spawn(gs_fn f, void *arg);
int gs_gc_spawn_with(gs_fn f, void *arg, const gs_spawn_opts *opts, gs_g **out);

/* A channel of pointers: what they point to is kept while it is in the channel. NULL: as gs_chan_make. Only gs_gc_send,
 * gs_gc_recv, gs_chan_close, gs_chan_len and gs_chan_cap are for it; what is left in it when it is freed with
 * gs_chan_free stays for ever, so drain it before. */
gs_chan *gs_gc_chan_make(size_t cap);

/* gs_chan_send and gs_chan_recv of a pointer, with their errors. gs_gc_recv sets *p to NULL with any error. */
int gs_gc_send(gs_chan *ch, void *p, gs_deadline deadline);
int gs_gc_recv(gs_chan *ch, void **p, gs_deadline deadline);

/* The function of a goroutine that calls finalizers as they become due, until it is cancelled (gs_cancel). Nothing is a
 * deadlock as long as it is there, because it waits for a file. */
void gs_gc_finalizers(void *unused);

#endif /* GOSCHED_GC_H */

#ifdef GOSCHED_GC_IMPLEMENTATION
#undef GOSCHED_GC_IMPLEMENTATION

#include <gc/gc_mark.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* What there is to know of a thread that runs goroutines. */
struct gs_gc_thread {
    void *handle;      /* libgc's; NULL: the thread runs no goroutines */
    bool registered;   /* by us, so we unregister it */
    bool attached;     /* by gs_gc_attach */
    char *lo, *hi;     /* the thread's own stack */
    char *frame;       /* what is above in that is the caller's of gs_run */
    void *kept[96];    /* what lay below the frame, with the registers that this caller may have in use */
    struct gs_gc_thread *next;
};

/* A goroutine while the world stands. */
struct gs_gc_stack {
    char *sp, *lo, *hi;
    const ucontext_t *regs;
    void *arg;
};

static _Thread_local struct gs_gc_thread gs_gc_this;

/* libgc's lock guards all of this but what is set once. */
static struct {
    bool is_set_up;
    bool runs;              /* there is a runtime, so goroutines to stop */
    bool stopping;          /* libgc stops the world, or has stopped it */
    bool stopped;           /* the goroutines were stopped for that */
    struct gs_gc_thread *threads;
    struct gs_gc_stack *stacks; /* of all goroutines, while the world stands */
    size_t n, room;
    GC_push_other_roots_proc push;
    struct sigaction suspend; /* libgc's handler */
    int due;                  /* an eventfd: finalizers are due */
    gs_hooks hooks;           /* the caller's */
} gs_gc = {.due = -1};

static void gs_gc_fail(const char *what)
{
    (void)!write(2, what, strlen(what));
    abort();
}

/* ---- Stacks ---- */

static bool gs_gc_is_in(const char *p, const char *lo, const char *hi)
{
    return p >= lo && p < hi;
}

/* Tells libgc where the stack ends on which this thread is. In a signal handler too: libgc's lock is held, by whoever
 * collects. */
static void gs_gc_set_bottom(struct gs_gc_thread *t, char *hi)
{
    struct GC_stack_base base;
    memset(&base, 0, sizeof base);
    base.mem_base = hi;
    GC_set_stackbottom(t->handle, &base);
}

/* libgc's signal: a thread that isn't on its own stack is on a goroutine's, or on that of a handler in which the goroutine
 * waits. Both were noted before, so there is nothing for libgc to scan but what it adds itself. */
static void gs_gc_on_suspend(int sig, siginfo_t *info, void *context)
{
    char *here = __builtin_frame_address(0);
    if (gs_gc_this.handle != NULL)
        gs_gc_set_bottom(&gs_gc_this, gs_gc_is_in(here, gs_gc_this.lo, gs_gc_this.hi) ? gs_gc_this.hi : here);
    if (gs_gc.suspend.sa_flags & SA_SIGINFO)
        gs_gc.suspend.sa_sigaction(sig, info, context);
    else
        gs_gc.suspend.sa_handler(sig);
}

/* The end of the memory that begins at p, for a goroutine's stack in the child of a fork, where there is no runtime to ask: a guard
 * follows, which may be part of the same mapping. The kernel tells without a fault: it looks at the set of signals before it finds
 * that the request makes no sense. */
static char *gs_gc_end_of_memory(char *p)
{
    const uintptr_t page = 4096;
    char *end = (char *)(((uintptr_t)p | (page - 1)) + 1);
    while (syscall(SYS_rt_sigprocmask, -1, end, NULL, 8) == -1 && errno != EFAULT)
        end += page;
    return end;
}

/* ---- A collection ---- */

/* A goroutine; without the heap, whose lock a goroutine may have that was stopped in malloc. */
static void gs_gc_note(const gs_g_info *info, void *unused)
{
    struct gs_gc_stack *s;
    (void)unused;
    if (gs_gc.n == gs_gc.room) {
        size_t room = gs_gc.room == 0 ? 4096 / sizeof *s : 2 * gs_gc.room;
        void *more = gs_gc.room == 0
            ? mmap(NULL, room * sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            : mremap(gs_gc.stacks, gs_gc.room * sizeof *s, room * sizeof *s, MREMAP_MAYMOVE);
        if (more == MAP_FAILED)
            gs_gc_fail("gosched_gc: no memory for the list of goroutines\n");
        gs_gc.stacks = more;
        gs_gc.room = room;
    }
    s = &gs_gc.stacks[gs_gc.n++];
    s->lo = info->stack_lo;
    s->hi = info->stack_hi;
    s->sp = gs_gc_is_in(info->sp, s->lo, s->hi) ? info->sp : s->lo;
    s->regs = info->regs;
    s->arg = info->arg;
}

/* Before libgc stops threads: none has stopped yet, so libgosched's locks are free. */
static void gs_gc_stop(void)
{
    struct gs_gc_thread *me = &gs_gc_this;
    char *here = __builtin_frame_address(0), *hi = NULL;
    size_t i;
    int e = errno;

    gs_gc.stopping = true;
    gs_gc.n = 0;
    if (gs_gc.runs) {
        gs_gc.stopped = gs_stop_the_world() == 0;
        if (gs_foreach_g(gs_gc_note, NULL) != 0)
            gs_gc_fail("gosched_gc: the goroutines can't be stopped\n");
    }
    for (i = 0; i < gs_gc.n; i++) {
        if (gs_gc_is_in(here, gs_gc.stacks[i].lo, gs_gc.stacks[i].hi)) {
            /* The collecting one: libgc scans it from where it is by then. */
            hi = gs_gc.stacks[i].hi;
            gs_gc.stacks[i].sp = hi;
        }
    }
    if (me->handle != NULL) {
        if (gs_gc_is_in(here, me->lo, me->hi))
            hi = me->hi;
        gs_gc_set_bottom(me, hi != NULL ? hi : gs_gc_end_of_memory(here));
    }
    errno = e;
}

static void gs_gc_start(void)
{
    gs_gc.stopping = false;
    if (gs_gc.stopped) {
        gs_gc.stopped = false;
        gs_start_the_world();
    }
}

static void gs_gc_on_event(GC_EventType event)
{
    if (event == GC_EVENT_PRE_STOP_WORLD)
        gs_gc_stop();
    else if (event == GC_EVENT_POST_START_WORLD)
        gs_gc_start();
}

static void gs_gc_push_range(const void *lo, const void *hi)
{
    GC_push_all_eager((void *)(uintptr_t)lo, (void *)(uintptr_t)hi);
}

/* What a goroutine has in its registers, those of the vector unit included: a pointer may be on its way in one. */
static void gs_gc_push_registers(const ucontext_t *regs)
{
    const uint32_t *fp = (const uint32_t *)regs->uc_mcontext.fpregs;
    size_t size = 512;
    gs_gc_push_range(&regs->uc_mcontext.gregs, &regs->uc_mcontext.gregs + 1);
    if (fp == NULL)
        return;
    if (fp[464 / 4] == 0x46505853) /* FP_XSTATE_MAGIC1: the size of all that the kernel has saved comes next */
        size = fp[464 / 4 + 1];
    gs_gc_push_range(fp, (const char *)fp + size);
}

static void gs_gc_push_roots(void)
{
    const struct gs_gc_thread *t;
    size_t i;

    /* In incremental mode libgc also comes here while all run, to have less to do when they stand. */
    if (!gs_gc.stopping)
        return;
    gs_gc.push();
    for (t = gs_gc.threads; t != NULL; t = t->next) {
        gs_gc_push_range(t->frame, t->hi);
        gs_gc_push_range(t->kept, t->kept + sizeof t->kept / sizeof t->kept[0]);
    }
    for (i = 0; i < gs_gc.n; i++) {
        const struct gs_gc_stack *s = &gs_gc.stacks[i];
        gs_gc_push_range(s->sp, s->hi);
        gs_gc_push_range(&s->arg, &s->arg + 1);
        if (s->regs != NULL)
            gs_gc_push_registers(s->regs);
    }
}

/* ---- Threads ---- */

static void *gs_gc_link(void *thread)
{
    struct gs_gc_thread *t = thread;
    t->next = gs_gc.threads;
    gs_gc.threads = t;
    gs_gc.runs = true;
    return NULL;
}

static void *gs_gc_unlink(void *thread)
{
    struct gs_gc_thread *t = thread, **at = &gs_gc.threads;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    /* A thread that called gs_run stays libgc's, and is on its own stack from here on. */
    gs_gc_set_bottom(t, t->hi);
    return NULL;
}

/* What the caller, whose frame begins at top, and those above it have on the stack and in registers is scanned from here on. Its
 * frame is gone when the thread runs goroutines, and what it has pushed into that is in registers again, which the
 * library's own frames then have: so this part is copied. */
static void __attribute__((noinline)) gs_gc_note_caller(struct gs_gc_thread *t, char *top)
{
    char *sp;
    size_t n;
    __builtin_unwind_init(); /* all registers that a function must keep are on the stack now */
    __asm__ volatile("movq %%rsp, %0" : "=r"(sp) : : "memory");
    n = (size_t)(top - sp);
    if (n > sizeof t->kept)
        gs_gc_fail("gosched_gc: a frame is larger than its copy\n");
    memset(t->kept, 0, sizeof t->kept);
    memcpy(t->kept, sp, n);
    t->frame = top;
}

/* The calling thread is about to run goroutines. What is above this function's frame is scanned until it has stopped. */
static void __attribute__((noinline)) gs_gc_begin_thread(void)
{
    struct gs_gc_thread *t = &gs_gc_this;
    struct GC_stack_base base;
    pthread_attr_t attr;
    sigset_t signals;
    void *lo;
    size_t size;
    int r;

    memset(t, 0, sizeof *t);
    if (pthread_getattr_np(pthread_self(), &attr) != 0 || pthread_attr_getstack(&attr, &lo, &size) != 0)
        gs_gc_fail("gosched_gc: the bounds of a thread's stack are unknown\n");
    pthread_attr_destroy(&attr);
    t->lo = lo;
    t->hi = (char *)lo + size;
    gs_gc_note_caller(t, __builtin_frame_address(0));
    if (!gs_gc_is_in(t->frame, t->lo, t->hi))
        gs_gc_fail("gosched_gc: a thread of the collector's calls gs_attach: that takes gs_gc_attach\n");

    /* libgosched's threads block signals. */
    sigemptyset(&signals);
    sigaddset(&signals, GC_get_suspend_signal());
    sigaddset(&signals, GC_get_thr_restart_signal());
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);

    memset(&base, 0, sizeof base);
    base.mem_base = t->hi;
    r = GC_register_my_thread(&base);
    if (r != GC_SUCCESS && r != GC_DUPLICATE)
        gs_gc_fail("gosched_gc: libgc doesn't take a thread\n");
    t->registered = r == GC_SUCCESS;
    t->handle = GC_get_my_stackbottom(&base);
    GC_call_with_alloc_lock(gs_gc_link, t);
}

/* It runs none any more, and is on its own stack. */
static void gs_gc_end_thread(void)
{
    struct gs_gc_thread *t = &gs_gc_this;
    GC_call_with_alloc_lock(gs_gc_unlink, t);
    t->handle = NULL;
    if (t->registered)
        GC_unregister_my_thread();
}

static void gs_gc_thread_start(void *unused)
{
    (void)unused;
    if (!gs_gc_this.attached)
        gs_gc_begin_thread();
    if (gs_gc.hooks.thread_start != NULL)
        gs_gc.hooks.thread_start(gs_gc.hooks.ctx);
}

static void gs_gc_thread_stop(void *unused)
{
    (void)unused;
    if (gs_gc.hooks.thread_stop != NULL)
        gs_gc.hooks.thread_stop(gs_gc.hooks.ctx);
    if (!gs_gc_this.attached)
        gs_gc_end_thread();
}

int gs_gc_attach(uint32_t flags)
{
    int r;
    if (gs_self() != NULL || gs_gc_this.handle != NULL)
        return -EBUSY;
    gs_gc_begin_thread();
    gs_gc_this.attached = true;
    r = gs_attach(flags);
    if (r < 0) {
        gs_gc_this.attached = false;
        gs_gc_end_thread();
    }
    return r;
}

int gs_gc_detach(void)
{
    int r;
    if (gs_gc_this.attached)
        gs_gc_note_caller(&gs_gc_this, __builtin_frame_address(0));
    r = gs_detach();
    if (r == 0 && gs_gc_this.attached) {
        gs_gc_this.attached = false;
        gs_gc_end_thread();
    }
    return r;
}

static void *gs_gc_ended(void *unused)
{
    gs_gc.runs = false;
    return unused;
}

static void gs_gc_on_shutdown(void *unused)
{
    GC_call_with_alloc_lock(gs_gc_ended, unused);
    if (gs_gc.hooks.shutdown != NULL)
        gs_gc.hooks.shutdown(gs_gc.hooks.ctx);
}

/* The other threads are gone, and what their goroutines had is garbage. This thread goes on where it was, and is still in the
 * list with its own stack if it was there. */
static void gs_gc_fork_child(void *unused)
{
    (void)unused;
    gs_gc.runs = gs_gc.stopping = gs_gc.stopped = false;
    gs_gc_this.next = NULL;
    gs_gc.threads = gs_gc_this.handle != NULL ? &gs_gc_this : NULL;
    if (gs_gc.hooks.fork_child != NULL)
        gs_gc.hooks.fork_child(gs_gc.hooks.ctx);
}

/* ---- Finalizers ---- */

/* In the middle of an allocation: nothing of libgosched here. */
static void gs_gc_notify(void)
{
    int e = errno;
    uint64_t one = 1;
    (void)!write(gs_gc.due, &one, sizeof one);
    errno = e;
}

void gs_gc_finalizers(void *unused)
{
    uint64_t n;
    (void)unused;
    do {
        while (GC_should_invoke_finalizers())
            GC_invoke_finalizers();
    } while (gs_read(gs_gc.due, &n, sizeof n, GS_FOREVER) > 0);
}

/* ---- Start ---- */

int gs_gc_init_with_hooks(uint32_t flags, const gs_hooks *own)
{
    gs_hooks hooks;
    struct sigaction action;
    int r;

    if (flags & ~GS_GC_INCREMENTAL)
        return -EINVAL;
    if (gs_gc.is_set_up)
        return -EBUSY;
    if (gs_gc.due < 0) {
        gs_gc.due = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (gs_gc.due < 0)
            return -errno;
    }
    memset(&hooks, 0, sizeof hooks);
    memset(&gs_gc.hooks, 0, sizeof gs_gc.hooks);
    if (own != NULL) {
        if (own->size > sizeof gs_gc.hooks)
            return -EINVAL;
        memcpy(&gs_gc.hooks, own, own->size);
        hooks = gs_gc.hooks;
    }
    hooks.size = sizeof hooks;
    hooks.thread_start = gs_gc_thread_start;
    hooks.thread_stop = gs_gc_thread_stop;
    hooks.shutdown = gs_gc_on_shutdown;
    hooks.fork_child = gs_gc_fork_child;

    GC_set_handle_fork(1);
    GC_INIT();
    GC_set_finalizer_notifier(gs_gc_notify);
    GC_set_finalize_on_demand(1);
    if (flags & GS_GC_INCREMENTAL) {
        GC_enable_incremental();
        /* Where libgc protects pages, a write to one comes to its handler. The handler has a lock, so nothing may stop it:
         * neither libgosched's signal nor libgc's. */
        sigaction(SIGSEGV, NULL, &action);
        if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
            sigfillset(&action.sa_mask);
            sigaction(SIGSEGV, &action, NULL);
        }
    }
    GC_allow_register_threads();
    sigaction(GC_get_suspend_signal(), NULL, &gs_gc.suspend);
    action = gs_gc.suspend;
    action.sa_flags |= SA_SIGINFO;
    action.sa_sigaction = gs_gc_on_suspend;
    sigaction(GC_get_suspend_signal(), &action, NULL);
    gs_gc.push = GC_get_push_other_roots();
    GC_set_push_other_roots(gs_gc_push_roots);
    GC_set_on_collection_event(gs_gc_on_event);
    r = gs_set_hooks(&hooks);
    gs_gc.is_set_up = r == 0;
    return r;
}

int gs_gc_init(uint32_t flags)
{
    return gs_gc_init_with_hooks(flags, NULL);
}

/* A collector that has libgc's lock waits for the runtime to be ended before it finds that there is none, and the threads of the
 * runtime wait for libgc's lock when they end. So neither is begun during the other. */
int gs_gc_shutdown(gs_deadline deadline)
{
    for (;;) {
        int r;
        GC_disable();
        r = gs_shutdown(GS_NOWAIT);
        GC_enable();
        if (r != -EAGAIN || deadline == GS_NOWAIT)
            return r;
        if (deadline != GS_FOREVER && gs_now() >= deadline)
            return -ETIMEDOUT;
        gs_sleep(1000 * 1000);
    }
}

/* ---- Goroutines and channels ---- */

struct gs_gc_cell {
    void *p;
    gs_fn f;
};

static void gs_gc_begin(void *arg)
{
    struct gs_gc_cell *cell = arg;
    gs_fn f = cell->f;
    void *volatile kept = cell->p; /* on this stack before the cell goes */
    GC_free(cell);
    f(kept);
}

int gs_gc_spawn_with(gs_fn f, void *arg, const gs_spawn_opts *opts, gs_g **out)
{
    struct gs_gc_cell *cell;
    int r;
    if (f == NULL) {
        if (out != NULL)
            *out = NULL;
        return -EINVAL;
    }
    cell = GC_malloc_uncollectable(sizeof *cell);
    if (cell == NULL) {
        if (out != NULL)
            *out = NULL;
        return -ENOMEM;
    }
    cell->f = f;
    cell->p = arg;
    r = gs_spawn_with(gs_gc_begin, cell, opts, out);
    if (r < 0)
        GC_free(cell);
    return r;
}

int gs_gc_spawn(gs_fn f, void *arg)
{
    return gs_gc_spawn_with(f, arg, NULL, NULL);
}

gs_chan *gs_gc_chan_make(size_t cap)
{
    return gs_chan_make(sizeof(void *), cap);
}

int gs_gc_send(gs_chan *ch, void *p, gs_deadline deadline)
{
    void **cell = GC_malloc_uncollectable(sizeof *cell);
    int r;
    if (cell == NULL)
        return -ENOMEM;
    *cell = p;
    r = gs_chan_send(ch, &cell, deadline);
    if (r < 0)
        GC_free(cell);
    return r;
}

int gs_gc_recv(gs_chan *ch, void **p, gs_deadline deadline)
{
    void **cell = NULL;
    int r = gs_chan_recv(ch, &cell, deadline);
    *p = r == 0 ? *cell : NULL;
    if (r == 0)
        GC_free(cell);
    return r;
}

#endif /* GOSCHED_GC_IMPLEMENTATION */
