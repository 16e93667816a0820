/*
 * syscall, for the futexes of code with its own locks: GLib's GMutex and GCond, C++'s std::atomic::wait and what is
 * built on it, Rust's Mutex. README.md has the protocol. All other system calls are made as they are.
 */
#include "calls.h"
#include "parts.h"
#include "times.h"
#include "waiters.h"

#include <dlfcn.h>
#include <linux/futex.h>

/* The number of the system call is the first argument. */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    .cfi_startproc\n"
        "    endbr64\n"
        "    cmp $202, %rdi\n" /* SYS_futex */
        "    je take_futex\n"
        "    jmp *next_syscall(%rip)\n"
        "    .cfi_endproc\n"
        ".size syscall, . - syscall\n");
_Static_assert(SYS_futex == 202, "the number in the code above");

/* The function to call otherwise: libc's, or that of a library preloaded after this one. */
__attribute__((used)) static long (*next_syscall)(long number, ...) = raw_syscall;

void futex_start(void)
{
    void *f = dlsym(RTLD_NEXT, "syscall");
    if (f != NULL)
        memcpy(&next_syscall, &f, sizeof f);
}

/* Waits in the table of waiters. */
static long wait_in_table(const uint32_t *word, uint32_t value, gs_deadline deadline, uint32_t bits, struct counts *c)
{
    struct bucket *b = bucket_of(word);
    struct waiter w = {.addr = word, .what = FUTEX, .bits = bits};
    int before = errno;
    bucket_lock(b);
    enqueue(b, &w, false);
    if (__atomic_load_n(word, __ATOMIC_RELAXED) != value) {
        dequeue(b, &w);
        bucket_unlock(b);
        return failed(EAGAIN);
    }
    if (debug)
        count_parked(c);
    if (!park(b, &w, deadline))
        return failed(ETIMEDOUT);
    errno = before;
    return 0;
}

/* FUTEX_WAIT on a word of this process. Checks the arguments as the kernel does, in its order. */
static long wait_private(const uint32_t *word, int op, uint32_t value, const struct timespec *t, uint32_t bits,
                         struct counts *c)
{
    struct timespec time;
    gs_deadline deadline = GS_FOREVER;
    uint32_t there;
    bool absolute = (op & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    if (t != NULL) {
        if (!copy_in(&time, t, sizeof time))
            return failed(EFAULT);
        if (!is_time(&time))
            return failed(EINVAL);
        if (!absolute)
            deadline = after(ns_of(&time));
        else if (op & FUTEX_CLOCK_REALTIME)
            deadline = deadline_on(CLOCK_REALTIME, &time);
        else
            deadline = ns_of(&time) > 0 ? ns_of(&time) : 1;
    }
    if (bits == 0 || (uintptr_t)word % sizeof *word != 0)
        return failed(EINVAL);
    if (!copy_in(&there, word, sizeof there)) /* before the bucket is locked: a fault would leave it locked */
        return failed(EFAULT);
    return wait_in_table(word, value, deadline, bits, c);
}

/* FUTEX_WAIT on a word that other processes may share. */
static long wait_shared(const uint32_t *word, int op, uint32_t value, const struct timespec *t, uint32_t bits)
{
    return raw_syscall(SYS_futex, word, op, value, t, NULL, bits);
}

/* The number of waiters for FUTEX_WAKE and its kin, which take 0 and negative numbers for 1. */
static uint32_t at_least_one(uint32_t n)
{
    return (int32_t)n > 0 ? n : 1;
}

/*
 * Wakes up to n goroutines that wait in the table for the word and one of the bits; returns how many. errno stays. The
 * full barrier is the waker's part of the protocol: the caller may have changed the word by a plain store.
 */
static uint32_t wake_in_table(const uint32_t *word, int op, uint32_t n, uint32_t bits)
{
    if (!(op & FUTEX_PRIVATE_FLAG))
        return 0;
    atomic_thread_fence(memory_order_seq_cst);
    if (!has_waiters(word))
        return 0;
    int before = errno;
    uint32_t woken = wake_some(word, n, bits);
    errno = before;
    return woken;
}

/* syscall(SYS_futex, word, op, value, fourth, other, third): futex(2) explains the arguments. */
__attribute__((used)) static long take_futex(long number, uint32_t *word, int op, uint32_t value, void *fourth,
                                             uint32_t *other, uint32_t third)
{
    COUNTED(futex);
    const void *caller = __builtin_return_address(0);
    uint32_t woken = 0, n = at_least_one(value);
    /* libgosched makes its own calls with locks held, and no goroutine waits in the table for its words. */
    if (is_within(caller, &library) && !is_known_last_call(caller))
        return next_syscall(number, word, op, value, fourth, other, third);
    switch (op & ~FUTEX_PRIVATE_FLAG) {
    case FUTEX_WAIT:
        third = FUTEX_BITSET_MATCH_ANY;
        /* fall through */
    case FUTEX_WAIT_BITSET:
    case FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME:
        if (!on_goroutine(caller))
            break;
        if ((op & FUTEX_PRIVATE_FLAG) && can_park()) {
            find_last_call(); /* the wake-up may be the last call of a goroutine's function */
            return wait_private(word, op, value, fourth, third, &counts);
        }
        return ELSEWHERE(wait_shared, (word, op, value, fourth, third));
    case FUTEX_WAKE:
        third = FUTEX_BITSET_MATCH_ANY;
        /* fall through */
    case FUTEX_WAKE_BITSET:
        woken = wake_in_table(word, op, n, third);
        if (woken == n)
            return woken;
        value = n - woken;
        break;
    case FUTEX_WAKE_OP: {
        /* The kernel changes the other word first. Both words' waiters are woken: a wait may end for no reason. */
        long r = next_syscall(number, word, op, value, fourth, other, third);
        if (r >= 0) {
            r += wake_in_table(word, op, n, FUTEX_BITSET_MATCH_ANY);
            r += wake_in_table(other, op, at_least_one((uint32_t)(uintptr_t)fourth), FUTEX_BITSET_MATCH_ANY);
        }
        return r;
    }
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE: {
        /* The goroutines that would have to wait for the other word are woken instead: a wait may end for no reason. */
        long r = next_syscall(number, word, op, value, fourth, other, third);
        if (r >= 0)
            r += wake_in_table(word, op, UINT32_MAX, FUTEX_BITSET_MATCH_ANY);
        return r;
    }
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_WAIT_REQUEUE_PI | FUTEX_CLOCK_REALTIME:
    case FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME:
        /* The thread, not the goroutine, owns the lock. */
        return on_goroutine(caller) ? KERNEL(next_syscall(number, word, op, value, fourth, other, third))
                                    : next_syscall(number, word, op, value, fourth, other, third);
    }
    long r = next_syscall(number, word, op, value, fourth, other, third);
    return r < 0 && woken > 0 ? woken : r + woken;
}
