/* Calls that may wait: whether the goroutine can park, calls on another thread, and debug output. */
#include "calls.h"

#include <locale.h>

static pid_t process; /* the process that owns this memory: not a vfork's child */

void note_process(void)
{
    process = getpid();
}

static const uint32_t never;
const volatile uint32_t *asked_to_give_way = &never;

bool on_alternate_stack(stack_t *stack)
{
    return raw_syscall(SYS_sigaltstack, NULL, stack) == 0 && (stack->ss_flags & SS_ONSTACK);
}

bool can_park(void)
{
    gs_g_info info;
    stack_t stack;
    gs_g *g = gs_self();
    /* GS_G_SYSCALL: in gs_blocking, or after gs_entersyscall. There the thread counts as a plain one. */
    if (g == NULL || gs_g_info_read(g, &info, sizeof info) != 0 || info.state != GS_G_RUNNING)
        return false;
    /* The child of a vfork runs in its parent's memory: libgosched takes it for the goroutine. */
    if (getpid() != process)
        return false;
    return !on_alternate_stack(&stack);
}

/* Calls on another thread */

struct errand {
    void *(*f)(void *);
    void *arg;
};

static void run_errand(void *arg)
{
    struct errand *e = arg;
    /* Notes the right address even where the program's goroutines have no unwind tables. */
    note_last_call(__builtin_return_address(0));
    gs_lock_os_thread(); /* moves to a thread without pinned goroutines */
    gs_blocking(e->f, e->arg);
    gs_unlock_os_thread();
}

bool call_elsewhere(void *(*f)(void *), void *arg, struct counts *c)
{
    struct errand e = {f, arg};
    gs_spawn_opts opts = GS_SPAWN_OPTS_INIT;
    gs_g *g;
    opts.name = c->name;
    if (!can_park() || gs_spawn_with(run_errand, &e, &opts, &g) != 0)
        return false;
    if (debug)
        count_handed_off(c);
    gs_cancel_disable();
    gs_join(g, GS_FOREVER);
    gs_cancel_enable();
    gs_release(g);
    return true;
}

static void *nothing(void *arg)
{
    return arg;
}

void find_last_call(void)
{
    static struct counts counts = {.name = "syscall"};
    if (is_known_last_call(NULL) /* it is not known yet */)
        call_elsewhere(nothing, NULL, &counts); /* call_elsewhere makes the address known by run_errand */
}

struct kernel_call {
    void (*f)(void);
    const long *args;
    locale_t locale; /* the thread's locale */
    long result;
    int error;
};

/* Numbers and pointers are passed in the same registers, whatever their types. */
static void *make_call(void *arg)
{
    struct kernel_call *c = arg;
    const long *a = c->args;
    locale_t before = uselocale(c->locale);
    errno = c->error;
    c->result = ((long (*)(long, long, long, long, long, long))c->f)(a[0], a[1], a[2], a[3], a[4], a[5]);
    c->error = errno;
    uselocale(before);
    return NULL;
}

long wait_elsewhere(void (*f)(void), const long args[6], struct counts *c)
{
    struct kernel_call call = {f, args, uselocale(NULL), 0, errno};
    if (!call_elsewhere(make_call, &call, c))
        make_call(&call); /* as libc does */
    errno = call.error;
    return call.result;
}

/* GOSCHED_PRELOAD_DEBUG: 1: each function that is taken over, once, and the counts at the end; 2: each time. */

int debug;
static _Atomic(struct counts *) all_counts;

void say(const char *format, ...)
{
    char line[300] = "gosched-preload: ";
    va_list list;
    va_start(list, format);
    int error = errno, n = 17 + vsnprintf(line + 17, sizeof line - 18, format, list);
    va_end(list);
    n = n > (int)sizeof line - 2 ? (int)sizeof line - 2 : n;
    line[n] = '\n';
    (void)!raw_syscall(SYS_write, 2, line, n + 1);
    errno = error;
}

static void count(struct counts *c, atomic_ulong *n, const char *what)
{
    atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
    if (!atomic_exchange(&c->listed, true)) {
        struct counts *head = atomic_load(&all_counts);
        do
            c->next = head;
        while (!atomic_compare_exchange_weak(&all_counts, &head, c));
        say("%s is taken over", c->name);
    }
    if (debug > 1)
        say("%s %s goroutine %llu", c->name, what, (unsigned long long)gs_id(gs_self()));
}

void count_parked(struct counts *c)
{
    count(c, &c->parked, "parks");
}

void count_handed_off(struct counts *c)
{
    count(c, &c->handed_off, "may block the thread of");
}

void say_counts(void)
{
    for (struct counts *c = atomic_load(&all_counts); c != NULL; c = c->next)
        say("%s: goroutines have parked %lu times, and given up their P for a call of the kernel %lu times",
            c->name, atomic_load(&c->parked), atomic_load(&c->handed_off));
}
