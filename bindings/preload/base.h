/* The basis of every part: the weak symbols of libgosched, errno, system calls and spin locks. */

#ifndef GOSCHED_PRELOAD_BASE_H
#define GOSCHED_PRELOAD_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* Keeps the headers from defining functions that are taken over. */
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define GS_NO_INLINE
#include <gosched.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define EXPORT __attribute__((visibility("default")))
/* For a function that reads or writes a thread-local variable: the compiler makes every call, and takes no earlier
 * result in place of a call. */
#ifdef __clang__
#define EACH_CALL __attribute__((noinline, optnone))
#define SAME_ATTRIBUTES(of)
#else
#define EACH_CALL __attribute__((noinline, noipa))
#define SAME_ATTRIBUTES(of) copy(of),
#endif
/* A second name of a function that is taken over. */
#define ALIAS(name, of) \
    extern __typeof__(of) name __attribute__((SAME_ATTRIBUTES(of) alias(#of), visibility("default")))

/*
 * This library is not linked with libgosched. If the program links libgosched, the dynamic linker fills in these
 * symbols; else they are NULL, and nothing is taken over. So programs without goroutines load no further library.
 */
#pragma weak gs_self
#pragma weak gs_g_info_read
#pragma weak gs_poll_fd
#pragma weak gs_recv
#pragma weak gs_close
#pragma weak gs_entersyscall
#pragma weak gs_exitsyscall
#pragma weak gs_blocking
#pragma weak gs_spawn_with
#pragma weak gs_lock_os_thread
#pragma weak gs_unlock_os_thread
#pragma weak gs_join
#pragma weak gs_release
#pragma weak gs_park
#pragma weak gs_ready
#pragma weak gs_sleep
#pragma weak gs_sleep_until
#pragma weak gs_now
#pragma weak gs_numa_unbound_cpus
#pragma weak gs_hold
#pragma weak gs_unhold
#pragma weak gs_cancel_disable
#pragma weak gs_cancel_enable
#pragma weak gs_preempt_check
#pragma weak gs_preempt_flag
#pragma weak gs_preempt_disable
#pragma weak gs_preempt_enable
#pragma weak gs_key_create
#pragma weak gs_getspecific
#pragma weak gs_setspecific
#pragma weak gs_mutex_lock
#pragma weak gs_mutex_trylock
#pragma weak gs_mutex_unlock
#pragma weak gs_version
#pragma weak gs_id
#pragma weak gs_yield
#pragma weak gs_exit

/*
 * errno's address belongs to a thread, and a compiler may keep it across calls. Here a call may end on another thread,
 * so errno_here gets the address anew each time.
 */
EACH_CALL int *errno_here(void);
#undef errno
#define errno (*errno_here())

/* A system call, as libc's syscall makes it. futex.c takes over the name `syscall`. */
long raw_syscall(long number, ...);

/* Pauses, for a moment, while another thread has a lock of ours. Not by sched_yield, which is taken over. */
static inline void spin(void)
{
    raw_syscall(SYS_sched_yield);
}

/* Locks a lock whose holder has it for a few instructions, and is not preempted meanwhile. */
static inline void spin_lock(atomic_uint *lock)
{
    gs_preempt_disable();
    while (atomic_exchange_explicit(lock, 1, memory_order_acquire))
        spin();
}

static inline void spin_unlock(atomic_uint *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
    gs_preempt_enable();
}

/* Sets errno and returns -1. */
static inline int failed(int error)
{
    errno = error;
    return -1;
}

/* Copies n bytes that a program points to, as the kernel would. False, and no fault: the memory can't be read. */
bool copy_in(void *to, const void *from, size_t n);
/* copy_in of n pieces. */
bool copy_in_several(const struct iovec *to, const struct iovec *from, int n);

#endif
