/*
 * The host's signals: the host's handlers for the signals that the library uses, its alternate stack, and
 * which signals reach the host while a goroutine waits for its turn.
 */
#include "check.h"

#include <setjmp.h>
#include <sys/mman.h>

#define KIB ((size_t)1024)

static void set_action(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = f;
    sa.sa_flags = flags | SA_SIGINFO;
    CHECK_EQ(sigaction(sig, &sa, NULL), 0);
}

static void start_with_one_p(int64_t slice)
{
    gs_config c = GS_CONFIG_INIT;
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    c.gomaxprocs = 1;
    c.time_slice_ns = (uint64_t)slice;
    CHECK_EQ(gs_init(&c), 0);
}

static void nothing(void *arg)
{
    (void)arg;
}

/* ---- The preemption signal ---- */

static int stop;

static void set_stop(void *arg)
{
    (void)arg;
    SET(stop, 1);
}

static void compute_until_another_runs(void *arg)
{
    (void)arg;
    go(set_stop, NULL);
    while (!GET(stop))
        ;
}

static void check_preemption(void)
{
    SET(stop, 0);
    start_with_one_p(MS);
    CHECK_EQ(gs_run(compute_until_another_runs, NULL), 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

static int hits;
static struct sigaction found;

static void count_hit(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    (void)context;
    ADD(hits, 1);
}

static void count_hit_and_pass_on(int sig, siginfo_t *info, void *context)
{
    count_hit(sig, info, context);
    if (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN)
        found.sa_sigaction(sig, info, context);
}

TEST(preemption_works_though_the_host_set_its_handler_between_two_runtimes)
{
    check_preemption();
    SET(hits, 0);
    set_action(SIGURG, count_hit, SA_RESTART);
    start_with_one_p(MS);
    CHECK_EQ(raise(SIGURG), 0);
    CHECK_EQ(GET(hits), 1);
    check_preemption();
    CHECK_EQ(GET(hits), 1);
}

TEST(preemption_works_though_the_host_put_a_saved_handler_back)
{
    struct sigaction saved;
    int round;
    CHECK_EQ(sigaction(SIGURG, NULL, &saved), 0);
    for (round = 0; round < 3; round++) {
        check_preemption();
        CHECK_EQ(sigaction(SIGURG, &saved, NULL), 0);
    }
}

TEST(a_handler_that_calls_the_one_it_found_is_called_once)
{
    int round;
    for (round = 0; round < 3; round++) {
        check_preemption();
        SET(hits, 0);
        CHECK_EQ(sigaction(SIGURG, NULL, &found), 0);
        set_action(SIGURG, count_hit_and_pass_on, SA_RESTART);
        start_with_one_p(MS);
        CHECK_EQ(raise(SIGURG), 0);
        CHECK_EQ(GET(hits), 1);
        CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
        set_action(SIGURG, count_hit, SA_RESTART);
    }
}

/* ---- Faults: the host's action is honoured as the kernel would ---- */

static volatile int *nowhere;

static void fault(void *arg)
{
    (void)arg;
    *nowhere = 1;
}

static volatile int *beyond_the_file;

static void bus_error(void *arg)
{
    (void)arg;
    *beyond_the_file = 1;
}

static void make_file(void)
{
    FILE *f = tmpfile();
    CHECK(f != NULL);
    beyond_the_file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
    CHECK(beyond_the_file != MAP_FAILED);
}

static jmp_buf back;
static int caught;

static void leave_handler(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    (void)context;
    caught++;
    _longjmp(back, 1);
}

static void fault_three_times(void *arg)
{
    gs_fn do_it = *(gs_fn *)arg;
    volatile int i;
    caught = 0;
    for (i = 0; i < 3; i++)
        if (!_setjmp(back))
            do_it(NULL);
    CHECK_EQ(caught, 3);
}

static void leave_by_longjmp(int sig, gs_fn do_it, int flags)
{
    set_action(sig, leave_handler, SA_NODEFER | flags);
    CHECK_EQ(gs_run(fault_three_times, &do_it), 0);
    fault_three_times(&do_it);
}

CHILD(a_handler_with_nodefer_leaves_by_longjmp)
{
    leave_by_longjmp(SIGSEGV, fault, 0);
}

CHILD(a_handler_on_the_alternate_stack_leaves_by_longjmp)
{
    leave_by_longjmp(SIGSEGV, fault, SA_ONSTACK);
}

CHILD(a_handler_of_bus_errors_leaves_by_longjmp)
{
    make_file();
    leave_by_longjmp(SIGBUS, bus_error, 0);
}

static void say_caught(int sig, siginfo_t *info, void *context)
{
    static const char text[] = "caught\n";
    (void)sig;
    (void)info;
    (void)context;
    if (write(2, text, sizeof text - 1) < 0)
        _exit(2);
}

CHILD(a_handler_with_resethand_is_called_once)
{
    set_action(SIGSEGV, say_caught, SA_RESETHAND);
    CHECK_EQ(gs_run(fault, NULL), 0);
}

CHILD(without_a_handler_a_signal_of_a_process_ends_the_program)
{
    CHECK_EQ(gs_run(nothing, NULL), 0);
    CHECK_EQ(kill(getpid(), SIGSEGV), 0);
    for (;;)
        nap(MS);
}

CHILD(without_a_handler_a_signal_to_a_goroutines_thread_ends_the_program)
{
    CHECK_EQ(gs_run(nothing, NULL), 0);
    CHECK_EQ(raise(SIGBUS), 0);
    for (;;)
        nap(MS);
}

CHILD(what_is_ignored_is_ignored)
{
    signal(SIGSEGV, SIG_IGN);
    CHECK_EQ(gs_run(nothing, NULL), 0);
    CHECK_EQ(raise(SIGSEGV), 0);
    CHECK_EQ(raise(SIGSEGV), 0);
    CHECK_EQ(kill(getpid(), SIGSEGV), 0);
    nap(MS);
}

CHILD(a_fault_is_never_ignored)
{
    signal(SIGSEGV, SIG_IGN);
    CHECK_EQ(gs_run(fault, NULL), 0);
}

static void fault_again(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)info;
    fault(context);
}

CHILD(a_fault_in_the_handler_ends_the_program)
{
    set_action(SIGSEGV, fault_again, 0);
    CHECK_EQ(gs_run(fault, NULL), 0);
}

CHILD(a_handler_that_was_installed_later_passes_on)
{
    CHECK_EQ(gs_run(nothing, NULL), 0);
    CHECK_EQ(sigaction(SIGSEGV, NULL, &found), 0);
    set_action(SIGSEGV, count_hit_and_pass_on, 0);
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
    CHECK_EQ(gs_run(fault, NULL), 0);
}

TEST(longjmp_out_of_a_handler_with_nodefer)
{
    check_child_succeeds("a_handler_with_nodefer_leaves_by_longjmp");
    check_child_succeeds("a_handler_on_the_alternate_stack_leaves_by_longjmp");
    check_child_succeeds("a_handler_of_bus_errors_leaves_by_longjmp");
}

TEST(the_default_action_comes_after_resethand)
{
    struct outcome out;
    check_child_dies("a_handler_with_resethand_is_called_once", SIGSEGV, &out);
    CHECK(strcmp(out.text, "caught\n") == 0);
}

TEST(the_default_action_ends_the_program_by_the_same_signal)
{
    struct outcome out;
    check_child_dies("without_a_handler_a_signal_of_a_process_ends_the_program", SIGSEGV, &out);
    check_child_dies("without_a_handler_a_signal_to_a_goroutines_thread_ends_the_program", SIGBUS, &out);
    check_child_dies("a_fault_in_the_handler_ends_the_program", SIGSEGV, &out);
    check_child_dies("a_handler_that_was_installed_later_passes_on", SIGSEGV, &out);
}

TEST(signals_are_ignored_and_faults_are_not)
{
    struct outcome out;
    check_child_succeeds("what_is_ignored_is_ignored");
    check_child_dies("a_fault_is_never_ignored", SIGSEGV, &out);
}

/* What a handler sees of its mask and stack. */
static struct {
    int segv, usr1, usr2, on_the_stack;
    char *frame;
} seen;

static void look_around(int sig, siginfo_t *info, void *context)
{
    sigset_t now;
    char here;
    (void)sig;
    (void)info;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    seen.segv = sigismember(&now, SIGSEGV);
    seen.usr1 = sigismember(&now, SIGUSR1);
    seen.usr2 = sigismember(&now, SIGUSR2);
    seen.on_the_stack = &here < seen.frame && (size_t)(seen.frame - &here) < 32 * KIB;
#if defined(__aarch64__)
    ((ucontext_t *)context)->uc_mcontext.pc += 4; /* str wzr, [x0] */
#else
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; /* mov %eax, (%rdi) */
#endif
}

static void fault_and_go_on(void *arg)
{
    sigset_t before, after;
    char here;
    (void)arg;
    seen.frame = &here;
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
#if defined(__aarch64__)
    __asm__ volatile("mov x0, xzr\n\tstr wzr, [x0]" : : : "x0", "memory");
#else
    __asm__ volatile("movl %%eax, (%%rdi)" : : "a"(0), "D"(0) : "memory");
#endif
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    CHECK(sigismember(&before, SIGUSR1) == sigismember(&after, SIGUSR1));
    CHECK(sigismember(&before, SIGSEGV) == sigismember(&after, SIGSEGV));
}

static void check_sight(int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = look_around;
    sa.sa_flags = flags | SA_SIGINFO;
    sigaddset(&sa.sa_mask, SIGUSR1);
    CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
    CHECK_EQ(gs_run(fault_and_go_on, NULL), 0);
    CHECK_EQ(seen.segv, !(flags & SA_NODEFER));
    CHECK_EQ(seen.usr1, 1);
    CHECK_EQ(seen.usr2, 0);
    CHECK_EQ(seen.on_the_stack, !(flags & SA_ONSTACK));
    CHECK_EQ(gs_shutdown(GS_FOREVER), 0);
}

CHILD(handlers_have_the_mask_and_the_stack_that_they_ask_for)
{
    check_sight(0);
    check_sight(SA_NODEFER);
    check_sight(SA_ONSTACK);
    check_sight(SA_ONSTACK | SA_NODEFER | SA_RESTART);
}

TEST(a_handler_has_its_mask_and_its_stack)
{
    check_child_succeeds("handlers_have_the_mask_and_the_stack_that_they_ask_for");
}

/* ---- Alternate stacks ---- */

static void check_alternate_stack(void *arg)
{
    stack_t now;
    CHECK_EQ(sigaltstack(NULL, &now), 0);
    CHECK_EQ(now.ss_flags & SS_DISABLE, 0);
    CHECK(arg == NULL || now.ss_sp == arg);
    CHECK(now.ss_size >= 64 * KIB);
}

TEST(a_large_alternate_stack_of_the_host_stays)
{
    size_t size = 1024 * KIB;
    stack_t large, off;
    memset(&large, 0, sizeof large);
    large.ss_sp = malloc(size);
    large.ss_size = size;
    CHECK(large.ss_sp != NULL);
    CHECK_EQ(sigaltstack(&large, &off), 0);
    start_with_one_p(MS);
    CHECK_EQ(gs_run(check_alternate_stack, large.ss_sp), 0);
    CHECK_EQ(sigaltstack(&off, NULL), 0);
    CHECK_EQ(gs_run(check_alternate_stack, NULL), 0);
    free(large.ss_sp);
}

/* ---- Signals of the host while its thread waits for a P ---- */

static pthread_t runner;

static void keep_the_p_until_hit(void *arg)
{
    (void)arg;
    SET(stop, 1);
    CHECK_EQ(pthread_kill(runner, SIGUSR1), 0);
    while (!GET(hits))
        ;
}

static void wait_preempted(void *arg)
{
    gs_spawn_opts o = GS_SPAWN_OPTS_INIT;
    (void)arg;
    o.flags = GS_SPAWN_NOPREEMPT;
    runner = pthread_self();
    gs_release(go_opts(keep_the_p_until_hit, NULL, &o));
    while (!GET(stop))
        ;
}

TEST(a_signal_of_the_host_reaches_a_thread_that_waits_for_its_p)
{
    SET(stop, 0);
    SET(hits, 0);
    set_action(SIGUSR1, count_hit, SA_RESTART);
    start_with_one_p(MS);
    CHECK_EQ(gs_run(wait_preempted, NULL), 0);
    CHECK_EQ(GET(hits), 1);
}

static char host_stack[3][4096] __attribute__((aligned(4096)));

static void use_some_stack(int sig, siginfo_t *info, void *context)
{
    volatile char some[2 * KIB];
    memset((void *)some, 0, sizeof some);
    count_hit(sig, info, context);
}

TEST(a_small_alternate_stack_of_the_host_is_not_overrun)
{
    stack_t small, now, off;
    size_t i;
    memset(host_stack, 0x5a, sizeof host_stack);
    memset(&small, 0, sizeof small);
    small.ss_sp = host_stack[1];
    small.ss_size = sizeof host_stack[1];
    CHECK_EQ(sigaltstack(&small, &off), 0);
    SET(stop, 0);
    SET(hits, 0);
    set_action(SIGUSR1, use_some_stack, SA_ONSTACK | SA_RESTART);
    start_with_one_p(MS);
    CHECK_EQ(gs_run(wait_preempted, NULL), 0);
    CHECK_EQ(GET(hits), 1);
    CHECK_EQ(sigaltstack(&off, &now), 0);
    CHECK(now.ss_sp == small.ss_sp && now.ss_size == small.ss_size && now.ss_flags == 0);
    for (i = 0; i < sizeof host_stack[0]; i++)
        CHECK_EQ(host_stack[0][i], 0x5a);
}
