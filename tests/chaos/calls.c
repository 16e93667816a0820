/* System calls announced or not, computing, the stopped world, statistics, memory of nodes. */
#include "chaos.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

enum { ECHOES = 6 };

static pthread_mutex_t plain_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int in_plain_mutex;
static int lock_file[2] = {-1, -1}; /* two opened files: flock(2) is between these */
static atomic_int in_flock;

/* A thread of the host that answers each byte, so that a goroutine can block in a plain read(2). */
static struct echo {
    int fds[2];
    atomic_bool busy;
    pthread_t thread;
} echoes[ECHOES];

static void *answer(void *arg)
{
    struct echo *e = arg;
    unsigned char c[2];
    while (read(e->fds[1], c, 2) == 2) {
        if (c[1])
            block_for(c[1] * 20 * US);
        if (write(e->fds[1], c, 1) != 1)
            break;
    }
    return NULL;
}

static ssize_t plain_read(int fd, void *buf, size_t n)
{
    ssize_t r;
    while ((r = read(fd, buf, n)) < 0 && errno == EINTR)
        ;
    return r;
}

static void ask_echo(struct actor *a)
{
    struct echo *e = &echoes[rnd(a, ECHOES)];
    unsigned char c[2] = {(unsigned char)rnd(a, 256), one_in(a, 3) ? (unsigned char)rnd(a, 250) : 0}, back = 0;
    if (in_bubble || atomic_exchange(&e->busy, true))
        return;
    MUST(write(e->fds[0], c, 2) == 2);
    MUST(plain_read(e->fds[0], &back, 1) == 1);
    MUST_BE(back, c[0]);
    atomic_store(&e->busy, false);
}

/* ---- Announced ---- */

static void op_syscall(struct actor *a)
{
    MUST_BE(gs_entersyscall(), 0);
    if (one_in(a, 3))
        block_for(rnd(a, 300) * US);
    MUST_BE(gs_exitsyscall(), 0);
}

static void op_syscall_by_number(struct actor *a)
{
    struct timespec t = {0, rnd(a, 300) * 1000};
    MUST_BE(gs_syscall(SYS_getpid), getpid());
    MUST_BE(gs_syscall(SYS_close, -1), -EBADF);
    if (one_in(a, 3))
        MUST_BE(gs_syscall(SYS_nanosleep, &t, NULL), 0, -EINTR);
}

/* A signal that is never sent. */
static void op_signal_wait(struct actor *a)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 9);
    MUST_BE(gs_signal_wait(&set, NULL, soon(a, 2000)), -EAGAIN, -ETIMEDOUT, -ECANCELED);
}

static void op_child(struct actor *a)
{
    char sh[] = "/bin/sh", c[] = "-c", script[] = "exit 7", *argv[] = {sh, c, script, NULL};
    int status = 0, r;
    pid_t pid;
    MUST(posix_spawn(&pid, sh, NULL, NULL, argv, environ) == 0);
    while ((r = gs_waitpid(pid, &status, 0, one_in(a, 2) ? soon(a, 5000) : GS_FOREVER)) != pid) {
        MUST_BE(r, -EAGAIN, -ETIMEDOUT, -ECANCELED);
        block_for(200 * US);
    }
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST_BE(gs_waitpid(getpid(), NULL, 0, GS_FOREVER), -ECHILD);
}

static void op_syscall_block(struct actor *a)
{
    MUST_BE(gs_entersyscallblock(), 0);
    block_for(rnd(a, 100) * US);
    MUST_BE(gs_exitsyscall(), 0);
}

static void op_syscall_echo(struct actor *a)
{
    MUST_BE(one_in(a, 3) ? gs_entersyscallblock() : gs_entersyscall(), 0);
    ask_echo(a);
    MUST_BE(gs_exitsyscall(), 0);
}

/* The next begins while others still look at the one before. */
static void op_syscalls_in_a_row(struct actor *a)
{
    int64_t ns = one_in(a, 3) ? 0 : rnd(a, 60) * US;
    for (int i = 0; i < 50; i++) {
        MUST_BE(gs_entersyscall(), 0);
        if (ns > 0)
            block_for(ns);
        else
            sched_yield();
        MUST_BE(gs_exitsyscall(), 0);
    }
}

static void op_syscall_nested(struct actor *a)
{
    gs_g *g = gs_self();
    for (int i = 0; i < 2; i++) {
        MUST_BE(gs_entersyscall(), 0);
        MUST_BE(gs_entersyscallblock(), 0);
        if (one_in(a, 2))
            block_for(rnd(a, 100) * US);
        MUST_BE(gs_exitsyscall(), 0);
        MUST_BE(gs_exitsyscall(), 0);
    }
    if (a->go)
        MUST_BE(gs_exitsyscall(), -EPERM);
    MUST(gs_self() == g);
}

/* In between the thread counts as a plain one, and may use the library as such. */
static void op_library_in_syscall(struct actor *a)
{
    gs_mutex m;
    memset(&m, 0, sizeof m);
    MUST_BE(gs_entersyscall(), 0);
    MUST_BE(gs_mutex_lock(&m, GS_FOREVER), 0);
    MUST_BE(gs_mutex_lock(&m, gs_after_us(rnd(a, 200))), -ETIMEDOUT);
    MUST_BE(gs_mutex_unlock(&m), 0);
    MUST_BE(gs_sleep(rnd(a, 100) * US), 0, -ECANCELED);
    MUST_BE(gs_spawn(short_life, (void *)(uintptr_t)rnd32(a)), 0);
    MUST_BE(gs_exitsyscall(), 0);
}

/* Compilers keep the address of errno, which is another after a switch. */
static __attribute__((noipa)) void set_errno(int e)
{
    errno = e;
}

static __attribute__((noipa)) int get_errno(void)
{
    return errno;
}

static __attribute__((noinline)) int deep(int n)
{
    volatile char room[1024];
    room[0] = (char)n;
    return n > 0 ? deep(n - 1) + 1 + (room[0] & 0) : 0;
}

static void *on_thread_stack(void *arg)
{
    struct actor *a = arg;
    MUST(deep(2000) == 2000); /* 2 MiB: more than most goroutines have */
    if (one_in(a, 3))
        block_for(rnd(a, 200) * US);
    else if (one_in(a, 3))
        ask_echo(a);
    errno = 1000 + (int)(a->magic & 1023);
    return a;
}

static void op_blocking(struct actor *a)
{
    MUST(gs_blocking(on_thread_stack, a) == a);
    MUST_BE(get_errno(), 1000 + (int)(a->magic & 1023));
    MUST(gs_blocking(NULL, a) == NULL);
}

/* ---- Not announced ---- */

static void op_unannounced(struct actor *a)
{
    if (one_in(a, 3))
        block_for(rnd(a, 6000) * US);
    else if (one_in(a, 2))
        usleep((unsigned)rnd(a, 2000));
    else
        poll(NULL, 0, rnd(a, 4));
}

static void op_unannounced_echo(struct actor *a)
{
    ask_echo(a);
}

static void op_plain_mutex(struct actor *a)
{
    pthread_mutex_lock(&plain_mutex);
    MUST(atomic_fetch_add(&in_plain_mutex, 1) == 0);
    if (one_in(a, 4))
        block_for(rnd(a, 100) * US);
    else
        compute_for(rnd(a, 50) * US);
    atomic_fetch_sub(&in_plain_mutex, 1);
    pthread_mutex_unlock(&plain_mutex);
}

static void op_flock(struct actor *a)
{
    int side = rnd(a, 2);
    /* Each side is one opened file, which would hold the lock already. */
    static atomic_flag busy[2] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    if (atomic_flag_test_and_set(&busy[side]))
        return;
    while (flock(lock_file[side], LOCK_EX) != 0)
        MUST(errno == EINTR);
    MUST(atomic_fetch_add(&in_flock, 1) == 0);
    compute_for(rnd(a, 200) * US);
    atomic_fetch_sub(&in_flock, 1);
    MUST(flock(lock_file[side], LOCK_UN) == 0);
    atomic_flag_clear(&busy[side]);
}

/* ---- Computing ---- */

static void op_compute(struct actor *a)
{
    compute_for((one_in(a, 10) ? rnd(a, 20000) : rnd(a, 100)) * US);
}

static void op_compute_malloc(struct actor *a)
{
    int64_t end = clock_now() + (one_in(a, 6) ? rnd(a, 15000) : rnd(a, 200)) * US;
    unsigned char *blocks[8] = {NULL};
    do {
        for (int i = 0; i < 8; i++) {
            size_t n = 16u << rnd(a, 10);
            if (blocks[i])
                MUST(blocks[i][0] == (unsigned char)i);
            free(blocks[i]);
            blocks[i] = malloc(n);
            memset(blocks[i], i, n);
        }
    } while (clock_now() < end);
    for (int i = 0; i < 8; i++)
        free(blocks[i]);
}

static void op_compute_float(struct actor *a)
{
    double x = 1.0 + rnd(a, 100), sum = 0, again = 0;
    int n = 100 + rnd(a, 20000);
    for (int i = 1; i < n; i++)
        sum += x / i;
    for (int i = 1; i < n; i++)
        again += x / i;
    if (memcmp(&sum, &again, sizeof sum) != 0)
        WRONG("the same sum is %a and %a", sum, again);
}

static void op_errno(struct actor *a)
{
    int mine = 2000 + rnd(a, 1000);
    set_errno(mine);
    gs_yield();
    MUST_BE(get_errno(), mine);
    compute_for(rnd(a, 30) * US);
    MUST_BE(get_errno(), mine);
}

/* ---- Values that are only in registers ---- */

#if defined(__x86_64__) || defined(__aarch64__)
/* uint64_t registers_keep(uint64_t value, void (*f)(void *), void *arg): calls f(arg) with values made of
   ~value in the registers that a function must keep; 0 if they are still there. */
#ifdef __x86_64__
__asm__(".text\n.globl registers_keep\n.type registers_keep, @function\nregisters_keep:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\npush %rdi\n"
        "not %rdi\nmov %rdi, %rbx\nlea 1(%rdi), %r12\nlea 2(%rdi), %r13\nlea 3(%rdi), %r14\nlea 4(%rdi), %r15\n"
        "lea 5(%rdi), %rbp\nmov %rdx, %rdi\ncall *%rsi\n"
        "pop %rdi\nnot %rdi\nmov %rdi, %rax\nxor %rbx, %rax\n"
        "lea 1(%rdi), %rcx\nxor %r12, %rcx\nor %rcx, %rax\nlea 2(%rdi), %rcx\nxor %r13, %rcx\nor %rcx, %rax\n"
        "lea 3(%rdi), %rcx\nxor %r14, %rcx\nor %rcx, %rax\nlea 4(%rdi), %rcx\nxor %r15, %rcx\nor %rcx, %rax\n"
        "lea 5(%rdi), %rcx\nxor %rbp, %rcx\nor %rcx, %rax\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size registers_keep, . - registers_keep\n");
#else
__asm__(".text\n.globl registers_keep\n.type registers_keep, %function\nregisters_keep:\n"
        "stp x29, x30, [sp, #-176]!\nstr x0, [sp, #160]\n"
        "stp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\nstp x23, x24, [sp, #48]\nstp x25, x26, [sp, #64]\nstp x27, x28, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mvn x19, x0\nadd x20, x19, #1\nadd x21, x19, #2\nadd x22, x19, #3\nadd x23, x19, #4\n"
        "add x24, x19, #5\nadd x25, x19, #6\nadd x26, x19, #7\nadd x27, x19, #8\nadd x28, x19, #9\n"
        "fmov d8, x19\nfmov d9, x20\nfmov d10, x21\nfmov d11, x22\nfmov d12, x23\nfmov d13, x24\nfmov d14, x25\nfmov d15, x26\n"
        "mov x9, x1\nmov x0, x2\nblr x9\n"
        "ldr x9, [sp, #160]\nmvn x9, x9\neor x0, x19, x9\n"
        "add x10, x9, #1\neor x10, x10, x20\norr x0, x0, x10\n"
        "add x10, x9, #2\neor x10, x10, x21\norr x0, x0, x10\n"
        "add x10, x9, #3\neor x10, x10, x22\norr x0, x0, x10\n"
        "add x10, x9, #4\neor x10, x10, x23\norr x0, x0, x10\n"
        "add x10, x9, #5\neor x10, x10, x24\norr x0, x0, x10\n"
        "add x10, x9, #6\neor x10, x10, x25\norr x0, x0, x10\n"
        "add x10, x9, #7\neor x10, x10, x26\norr x0, x0, x10\n"
        "add x10, x9, #8\neor x10, x10, x27\norr x0, x0, x10\n"
        "add x10, x9, #9\neor x10, x10, x28\norr x0, x0, x10\n"
        "add x10, x9, #0\nfmov x11, d8\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #1\nfmov x11, d9\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #2\nfmov x11, d10\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #3\nfmov x11, d11\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #4\nfmov x11, d12\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #5\nfmov x11, d13\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #6\nfmov x11, d14\neor x10, x10, x11\norr x0, x0, x10\n"
        "add x10, x9, #7\nfmov x11, d15\neor x10, x10, x11\norr x0, x0, x10\n"
        "ldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\nldp x23, x24, [sp, #48]\nldp x25, x26, [sp, #64]\nldp x27, x28, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "ldp x29, x30, [sp], #176\nret\n.size registers_keep, . - registers_keep\n");
#endif
uint64_t registers_keep(uint64_t value, void (*f)(void *), void *arg);

/* uint64_t registers_hold(uint64_t value, uint64_t n, unsigned char *flag): counts to n with ~value only in a
   register while *flag is 1; gives ~value. */
#ifdef __x86_64__
__asm__(".text\n.globl registers_hold\n.type registers_hold, @function\nregisters_hold:\n"
        "mov %rdi, %rax\nnot %rax\nmovb $1, (%rdx)\n1: dec %rsi\njnz 1b\nmovb $0, (%rdx)\nret\n"
        ".size registers_hold, . - registers_hold\n");
#else
__asm__(".text\n.globl registers_hold\n.type registers_hold, %function\nregisters_hold:\n"
        "mvn x0, x0\nmov w3, #1\nstrb w3, [x2]\n1: subs x1, x1, #1\nb.ne 1b\nstrb wzr, [x2]\nret\n"
        ".size registers_hold, . - registers_hold\n");
#endif
uint64_t registers_hold(uint64_t value, uint64_t n, unsigned char *flag);

static void switches(void *arg)
{
    struct actor *a = arg;
    switch (rnd(a, 4)) {
    case 0: gs_yield(); break;
    case 1: (void)gs_sleep(rnd(a, 200) * US); break;
    case 2: op_syscall(a); break;
    case 3: compute_for(rnd(a, 300) * US); break;
    }
}

static void op_registers(struct actor *a)
{
    if (one_in(a, 2)) {
        uint64_t lost = registers_keep(a->rng, switches, a);
        if (lost != 0)
            WRONG("a register has changed: %#llx", (unsigned long long)lost);
        return;
    }
    a->held_magic = ~(a->magic + 1);
    registers_hold(a->magic + 1, 100 + (uint64_t)rnd(a, 3000000), (unsigned char *)&a->held);
}
#else
static void op_registers(struct actor *a)
{
    gs_yield();
}
#endif

/* ---- The stopped world ---- */

static atomic_bool world_stopped;

/* A sanitizer has red zones between variables. */
__attribute__((no_sanitize_address)) static bool stack_has(const gs_g_info *info, uint64_t value)
{
    const char *p = (const char *)(((uintptr_t)info->sp + 7) & ~(uintptr_t)7);
    for (; p + 8 <= (const char *)info->stack_hi; p += 8)
        if (*(const volatile uint64_t *)p == value)
            return true;
    return false;
}

static bool registers_have(const gs_g_info *info, uint64_t value)
{
#ifdef __x86_64__
    const ucontext_t *uc = info->regs;
    for (int i = 0; uc && i < (int)NGREG; i++)
        if ((uint64_t)uc->uc_mcontext.gregs[i] == value)
            return true;
#elif defined(__aarch64__)
    const ucontext_t *uc = info->regs;
    for (int i = 0; uc && i < 31; i++)
        if (uc->uc_mcontext.regs[i] == value)
            return true;
#endif
    return false;
}

static void visit(const gs_g_info *info, void *ctx)
{
    const struct actor *a = info->arg;
    (*(long *)ctx)++;
    MUST(info->state >= GS_G_RUNNABLE && info->state <= GS_G_SYSCALL);
    MUST(info->node >= 0);
    if (!info->stack_lo) {
        MUST(info->sp == NULL || info->state != GS_G_WAITING);
        return;
    }
    if ((char *)info->sp < (char *)info->stack_lo || (char *)info->sp > (char *)info->stack_hi)
        WRONG("goroutine %llu in state %d has sp %p, outside its stack %p to %p; regs %p",
              (unsigned long long)info->id, info->state, info->sp, info->stack_lo, info->stack_hi, info->regs);
    /* An actor's entry is its goroutine's argument. */
    if (!is_actor(a) || !atomic_load(&a->live))
        return;
    if (!stack_has(info, a->magic) && atomic_load(&a->live))
        WRONG("goroutine %llu in state %d: what is on its stack (%p to %p) isn't above sp %p; regs %p, in %s",
              (unsigned long long)info->id, info->state, info->stack_lo, info->stack_hi, info->sp, info->regs,
              a->op);
    if (atomic_load(&a->held) && info->state != GS_G_SYSCALL && !registers_have(info, a->held_magic) &&
        !stack_has(info, a->held_magic) && atomic_load(&a->held) && atomic_load(&world_stopped))
        WRONG("goroutine %llu in state %d: what is in a register isn't shown; regs %p, sp %p",
              (unsigned long long)info->id, info->state, info->regs, info->sp);
}

static void op_stop_the_world(struct actor *a)
{
    long n = 0;
    if (!one_in(a, 6)) {
        MUST_BE(gs_foreach_g(visit, &n), -EPERM);
        MUST_BE(gs_start_the_world(), -EPERM);
        return;
    }
    MUST_BE(gs_stop_the_world(), 0);
    MUST(!atomic_exchange(&world_stopped, true));
    MUST_BE(gs_stop_the_world(), -EDEADLK);
    MUST_BE(gs_foreach_g(NULL, NULL), -EINVAL);
    MUST_BE(gs_foreach_g(visit, &n), 0);
    MUST(n >= 1 || in_bubble); /* goroutines of bubbles aren't among them */
    if (one_in(a, 4)) {
        compute_for(rnd(a, 300) * US);
        MUST_BE(gs_foreach_g(visit, &n), 0);
    }
    atomic_store(&world_stopped, false);
    MUST_BE(gs_start_the_world(), 0);
}

/* ---- Hooks ---- */

static char hands_over; /* the ctx of hooks that hand over */
static _Thread_local bool has_started;
static _Thread_local gs_g *is_in;

static void on_thread_start(void *ctx)
{
    MUST(ctx == &hands_over || ctx == NULL);
    MUST(!has_started && !is_in);
    has_started = true;
}

static void on_thread_stop(void *ctx)
{
    (void)ctx;
    MUST(has_started && !is_in);
    has_started = false;
}

static void on_switch_in(void *ctx, gs_g *g)
{
    (void)ctx;
    MUST(has_started && !is_in && gs_self() == NULL);
    is_in = g;
}

static void on_switch_out(void *ctx, gs_g *g)
{
    (void)ctx;
    MUST(has_started && is_in == g);
    is_in = NULL;
}

static bool on_switch_over(void *ctx, gs_g *from, gs_g *to)
{
    MUST(has_started && is_in == from && from != to);
    if (ctx)
        is_in = to;
    return ctx != NULL;
}

static void on_idle(void *ctx)
{
    (void)ctx;
    MUST(has_started && !is_in);
}

static void on_fork_child(void *ctx)
{
    (void)ctx;
    has_started = false;
    is_in = NULL;
}

static void op_hooks(struct actor *a)
{
    gs_hooks h = {.size = sizeof h,
                  .thread_start = on_thread_start,
                  .thread_stop = on_thread_stop,
                  .switch_in = on_switch_in,
                  .switch_out = on_switch_out,
                  .switch_over = on_switch_over,
                  .idle = on_idle,
                  .fork_child = on_fork_child,
                  .tick_every = 1 + (uint32_t)rnd(a, 9)};
    switch (rnd(a, 40)) {
    case 0: MUST_BE(AGAIN(gs_set_hooks(&h)), 0); break;
    case 1:
        h.ctx = &hands_over;
        MUST_BE(AGAIN(gs_set_hooks(&h)), 0);
        break;
    case 2:
    case 3: MUST_BE(gs_set_hooks(NULL), 0); break;
    default:
        h.reserved = 1;
        MUST_BE(gs_set_hooks(&h), -EINVAL);
        MUST_BE(gs_hold(), 0);
        gs_yield();
        MUST_BE(gs_unhold(), 0);
    }
}

/* An actor's word is its entry, if it has one. */
static void op_data(struct actor *a)
{
    void *before = gs_data(gs_self());
    MUST_BE(gs_set_data(NULL, a), -EINVAL);
    MUST(gs_data(NULL) == NULL);
    if (!gs_self())
        return;
    MUST(before == NULL || before == a);
    MUST_BE(gs_set_data(gs_self(), a), 0);
    gs_yield();
    MUST(gs_data(gs_self()) == a);
}

static void op_dump(struct actor *a)
{
    int null;
    if (!one_in(a, 10)) {
        MUST_BE(AGAIN(gs_dump(-1)), -EBADF);
        MUST_BE(AGAIN(gs_stats_write(-1)), -EBADF);
        return;
    }
    MUST((null = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0);
    if (one_in(a, 2)) {
        MUST_BE(AGAIN(gs_dump(null)), 0);
    } else {
        MUST_BE(AGAIN(gs_dump_json(null)), 0);
        MUST_BE(AGAIN(gs_dump_pprof(null)), 0);
    }
    MUST_BE(AGAIN(gs_stats_write(null)), 0);
    if (one_in(a, 4)) {
        /* A round without the preemption signal; or a thread gets no CPU for too long. */
        int leaked = gs_leaks(null);
        MUST(leaked >= 0 || leaked == -EBUSY || (in_bubble && leaked == -EPERM));
    }
    MUST(close(null) == 0);
}

static void no_line(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

static void op_log(struct actor *a)
{
    MUST_BE(gs_set_log(one_in(a, 2) ? no_line : NULL, a), 0);
    MUST_BE(gs_set_log(NULL, NULL), 0);
}

/* ---- Statistics, nodes ---- */

static void op_stats(struct actor *a)
{
    gs_stats s = {.size = sizeof s}, of_node = {.size = sizeof of_node};
    int nodes = gs_numa_nodes();
    MUST_BE(gs_stats_read(&s), 0);
    MUST(in_bubble || (s.goroutines >= 1 && s.procs >= 1 && s.threads >= 1));
    MUST_BE(gs_stats_node(rnd(a, nodes), &of_node), 0);
    MUST_BE(gs_stats_node(nodes, &of_node), -EINVAL);
    MUST(gs_stats_steals(rnd(a, nodes), rnd(a, nodes)) >= 0);
}

static void op_numa(struct actor *a)
{
    int nodes = gs_numa_nodes(), node = gs_numa_node();
    unsigned char mask[128];
    size_t size = 1 + (size_t)rnd(a, 200000);
    char *p = gs_numa_alloc(size, rnd(a, nodes + 2) - 2);
    MUST(nodes >= 1 && node >= 0 && node < nodes);
    MUST(p != NULL && p[0] == 0 && p[size - 1] == 0);
    memset(p, 7, size);
    gs_yield();
    MUST(p[0] == 7 && p[size - 1] == 7);
    gs_numa_free(p, size);
    MUST(gs_numa_distance(node, rnd(a, nodes)) >= 10);
    MUST(gs_numa_cpus(node, sizeof mask, mask) >= 0);
    MUST_BE(gs_numa_cpus(nodes, sizeof mask, mask), -EINVAL);
    MUST(gs_numa_unbound_cpus(sizeof mask, mask) >= 0);
    MUST(gs_numa_alloc(0, GS_NUMA_LOCAL) == NULL);
}

void calls_begin(void)
{
    world_stopped = false;
    if (in_bubble) {
        MUST_BE(gs_set_hooks(NULL), 0);
        return;
    }
    for (int i = 0; i < ECHOES; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, echoes[i].fds) == 0);
        MUST(pthread_create(&echoes[i].thread, NULL, answer, &echoes[i]) == 0);
    }
    lock_file[0] = memfd_create("chaos", MFD_CLOEXEC);
    if (lock_file[0] >= 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", lock_file[0]);
        lock_file[1] = open(path, O_RDWR | O_CLOEXEC);
    }
    MUST(lock_file[1] >= 0);
}

void calls_end(void)
{
    if (in_bubble) {
        MUST_BE(gs_set_hooks(NULL), 0);
        return;
    }
    for (int i = 0; i < ECHOES; i++) {
        close(echoes[i].fds[0]);
        gs_entersyscall();
        pthread_join(echoes[i].thread, NULL);
        gs_exitsyscall();
        close(echoes[i].fds[1]);
        atomic_store(&echoes[i].busy, false);
    }
    close(lock_file[0]);
    close(lock_file[1]);
}

const struct op ops_calls[] = {
    {"syscall", op_syscall, 5, NO_LOCKS},
    {"syscall_by_number", op_syscall_by_number, 2, NO_LOCKS},
    {"signal_wait", op_signal_wait, 1, REAL},
    {"child", op_child, 1, REAL},
    {"syscall_block", op_syscall_block, 3, NO_LOCKS},
    {"syscall_echo", op_syscall_echo, 5, REAL},
    {"syscalls_in_a_row", op_syscalls_in_a_row, 3, NO_LOCKS},
    {"syscall_nested", op_syscall_nested, 2, NO_LOCKS},
    {"library_in_syscall", op_library_in_syscall, 2, SHALLOW},
    {"blocking", op_blocking, 3, NO_LOCKS},
    {"unannounced", op_unannounced, 2, NO_LOCKS | REAL},
    {"unannounced_echo", op_unannounced_echo, 3, REAL},
    {"plain_mutex", op_plain_mutex, 2, YIELDS_P | REAL},
    {"flock", op_flock, 2, YIELDS_P | REAL},
    {"compute", op_compute, 3, NO_LOCKS},
    {"compute_malloc", op_compute_malloc, 2, REAL},
    {"compute_float", op_compute_float, 1, NO_LOCKS},
    {"errno", op_errno, 2, NO_LOCKS},
    {"registers", op_registers, 2, NO_LOCKS},
    {"stop_the_world", op_stop_the_world, 2, 0},
    {"hooks", op_hooks, 1, 0},
    {"data", op_data, 1, 0},
    {"dump", op_dump, 1, 0},
    {"log", op_log, 1, NO_LOCKS | REAL},
    {"stats", op_stats, 1, NO_LOCKS},
    {"numa", op_numa, 1, 0},
    {NULL, NULL, 0, 0},
};
