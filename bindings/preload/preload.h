/*
 * What the parts of libgosched-preload.so share. README.md says how it works; start there.
 *
 *   functions.h  every function that is taken over
 *   real.c       finding libc's own, who calls, GOSCHED_PRELOAD_DEBUG, fork
 *   files.c      read, write and their kin, sockets, close, locks of files
 *   streams.c    getline, fprintf and the rest of stdio
 *   several.c    poll, select, epoll_wait, sigsuspend
 *   others.c     sleeping, waiting for children, names, signals, messages
 *   masks.c      signal masks: pthread_sigmask, siglongjmp, fork, exec, posix_spawn, pthread_create and their kin
 *   waiters.c    the table of waiters, by the address that they wait for
 *   sync.c       pthread_mutex_*, pthread_cond_* and the rest of them
 *   futex.c      syscall: the futexes of code that has locks of its own
 *   keys.c       pthread_key_create and its kin
 *   exits.c      pthread_exit, thrd_exit, pthread_cleanup_push
 *   openmp.c     what compilers call for OpenMP
 */
#ifndef GOSCHED_PRELOAD_H
#define GOSCHED_PRELOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* So that the headers define none of the functions that are taken over. */
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <mqueue.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>
#undef fread_unlocked
#undef fwrite_unlocked

#define GS_NO_INLINE
#include <gosched.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define EXPORT __attribute__((visibility("default")))
/* Before a function that reads or writes a thread-local variable: each call is made, and none is taken to give what an
 * earlier one gave. */
#ifdef __clang__
#define EACH_CALL __attribute__((noinline, optnone))
#define SAME_ATTRIBUTES(of)
#else
#define EACH_CALL __attribute__((noinline, noipa))
#define SAME_ATTRIBUTES(of) copy(of),
#endif
/* Another name of a function that is taken over. */
#define ALIAS(name, of) \
    extern __typeof__(of) name __attribute__((SAME_ATTRIBUTES(of) alias(#of), visibility("default")))

/*
 * libgosched is not linked. If the program links it, the dynamic linker fills in these symbols; else they are NULL,
 * and nothing is taken over. So programs without goroutines load no further library.
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
 * errno's address is the thread's, and a compiler keeps it across calls, as it may on threads. Here a call may end on
 * another thread, so the address is asked for each time.
 */
EACH_CALL int *errno_here(void);
#undef errno
#define errno (*errno_here())

/* A system call, as libc's syscall makes it. futex.c takes over the name `syscall`. */
long raw_syscall(long number, ...);

/* While another thread has a lock of ours, for a moment: sched_yield would be our own. */
static inline void spin(void)
{
    raw_syscall(SYS_sched_yield);
}

/* The caller holds the lock for a few instructions, and is not preempted meanwhile. */
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

/* real.c */

struct real {
#define F(result, name, params, args) result(*name) params;
#define R F
#define V F
#include "functions.h"
#undef F
#undef R
#undef V
};
extern struct real real;
/* Finds libc's functions, if they haven't been found yet. */
void find_all(void);
/* The default version of a function that an object defines, or NULL. Uses no dlsym, and so no malloc. */
void *defined_in(const struct dl_phdr_info *object, const char *name);

/* The objects whose calls are never taken over: libgosched.so, and a malloc that isn't libc's. */
struct range {
    uintptr_t from;
    size_t size;
};
extern struct range library, allocator;
/* Where an object is loaded. */
struct range range_of(const struct dl_phdr_info *object);
static inline bool is_within(const void *address, const struct range *r)
{
    return (uintptr_t)address - r->from < r->size;
}

/* For a call that seems to come from libgosched: whether it is the last call of a goroutine's function, which
 * returns to where that function would. Must not be called where libgosched may hold a lock. */
bool is_last_call(const void *caller);
/* As is_last_call, without the look at the stack that only its first call takes: false before that. */
bool is_known_last_call(const void *caller);
/* For a goroutine that may park: from here on is_known_last_call knows. */
void find_last_call(void);

/* Whether libgosched is the caller. */
static inline bool is_librarys(const void *caller)
{
    return is_within(caller, &library) && !is_last_call(caller);
}

/* Whether a goroutine has called, and neither libgosched nor a malloc has called for it. */
static inline bool in_goroutine(const void *caller)
{
    if (LIKELY(!gs_self) || LIKELY(!gs_self()))
        return false;
    return !is_librarys(caller) && !is_within(caller, &allocator);
}

/* openmp.c: the runtimes of OpenMP that are loaded. What they keep is the thread's, and they don't expect another goroutine. */
enum { MOST_RUNTIMES = 16 };
extern struct range openmp_runtimes[MOST_RUNTIMES];
extern atomic_uint how_many_runtimes;
static inline bool is_in_openmp(const void *caller)
{
    for (unsigned i = 0, n = atomic_load_explicit(&how_many_runtimes, memory_order_acquire); i < n; i++)
        if (is_within(caller, &openmp_runtimes[i]))
            return true;
    return false;
}
/*
 * If a runtime of OpenMP has called, it is one of them from now on. For runtimes that are loaded later than this library: before
 * they call anything else that is taken over, they make a key or wait for a lock by sched_yield.
 */
void note_runtime(const void *caller, bool makes_key);

/* Whether the function that `caller` has called is to be taken over. */
static inline bool on_goroutine(const void *caller)
{
    return in_goroutine(caller) && !is_in_openmp(caller);
}
#define TAKEN on_goroutine(__builtin_return_address(0))

/*
 * Whether the goroutine can give up its P now. It can't in gs_blocking, between gs_entersyscall and gs_exitsyscall,
 * in the child of a vfork, or in a signal handler with a stack of its own. There a function does what libc's does: it
 * blocks the thread.
 */
bool can_park(void);

/* Whether a signal handler with a stack of its own is running on the calling thread; *stack then describes that stack. */
bool on_alternate_stack(stack_t *stack);

/*
 * At the end of a call that has not waited: gives way. For when *asked_to_give_way says that the library wants it. A goroutine whose
 * calls never have to wait (an event loop whose files are always ready) would keep those that are pinned to its thread
 * waiting for ever, since the signal doesn't preempt for them. Not in read and write, which signal handlers call to
 * tell an event loop of a signal. errno stays.
 */
extern const volatile uint32_t *asked_to_give_way;
static inline void give_way_as_asked(void)
{
    int error = errno;
    gs_preempt_check();
    errno = error;
}

/* GOSCHED_PRELOAD_DEBUG */
EXPORT _Noreturn void __chk_fail(void); /* glibc's, of FORTIFY_SOURCE */

struct counts {
    const char *name;
    struct counts *next;
    atomic_ulong parked, handed_off;
    atomic_bool listed;
};
extern int debug;
void count_parked(struct counts *c);
void count_handed_off(struct counts *c);
/* In each function that is taken over: its counts, which `PARKS` and `KERNEL` add to. */
#define COUNTED(fn) static struct counts counts = {.name = #fn}
#define PARKS (debug ? count_parked(&counts) : (void)0)

/*
 * Gives the value of a call that may keep the thread in the kernel, with the P given to others meanwhile. errno is
 * the call's.
 */
#define KERNEL(call) \
    __extension__({ \
        bool announced_ = can_park(); \
        if (announced_) { \
            gs_entersyscall(); \
            if (debug) \
                count_handed_off(&counts); \
        } \
        __typeof__(call) result_ = (call); \
        if (announced_) \
            gs_exitsyscall(); /* leaves errno as it is */ \
        result_; \
    })

/*
 * Lets another goroutine call f(arg) on a thread's own stack, and parks meanwhile. For waits that may have to be
 * ended by goroutines pinned to the caller's thread: in KERNEL these couldn't run. False: the caller can't park, or
 * there is no memory.
 */
bool call_elsewhere(void *(*f)(void *), void *arg, struct counts *c);

/* As KERNEL, of a function of up to 6 numbers and pointers, for waits as in call_elsewhere. errno and the thread's locale go along. */
#define LONG1(a) (long)(a)
#define LONG2(a, ...) (long)(a), LONG1(__VA_ARGS__)
#define LONG3(a, ...) (long)(a), LONG2(__VA_ARGS__)
#define LONG4(a, ...) (long)(a), LONG3(__VA_ARGS__)
#define LONG5(a, ...) (long)(a), LONG4(__VA_ARGS__)
#define LONG6(a, ...) (long)(a), LONG5(__VA_ARGS__)
#define THE_SEVENTH(a, b, c, d, e, f, g, ...) g
#define LONGS(...) THE_SEVENTH(__VA_ARGS__, LONG6, LONG5, LONG4, LONG3, LONG2, LONG1, )(__VA_ARGS__)
#define ELSEWHERE(f, args) \
    ((__typeof__(f args))wait_elsewhere((void (*)(void))(f), (const long[6]){LONGS args}, &counts))
long wait_elsewhere(void (*f)(void), const long args[6], struct counts *c);

/* A function in which the kernel waits for others. */
#define WAITS_ELSEWHERE(result, name, params, args) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        return TAKEN ? ELSEWHERE(real.name, args) : real.name args; \
    }

/* A function in which the kernel is busy, with the P given to others. */
#define IN_KERNEL(result, name, params, args) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        return TAKEN ? KERNEL(real.name args) : real.name args; \
    }

/* Sets errno and gives -1. */
static inline int failed(int error)
{
    errno = error;
    return -1;
}

/* Times: deadlines on CLOCK_MONOTONIC, in ns, as the library's. */
#define NS_PER_S INT64_C(1000000000)
static inline bool is_time(const struct timespec *t)
{
    return t->tv_sec >= 0 && (uint64_t)t->tv_nsec < (uint64_t)NS_PER_S;
}
/* The time in ns, or the largest number if that is too large. */
static inline int64_t ns_of(const struct timespec *t)
{
    return t->tv_sec >= INT64_MAX / NS_PER_S ? INT64_MAX : t->tv_sec * NS_PER_S + t->tv_nsec;
}
/* The deadline that is ns nanoseconds from now. */
gs_deadline after(int64_t ns);
/* The deadline of an absolute time on a clock; of CLOCK_REALTIME by what that shows now. */
gs_deadline deadline_on(clockid_t clock, const struct timespec *t);
/* Copies what a program points to, as the kernel would. False, and no fault, if the memory can't be read. */
bool copy_in(void *to, const void *from, size_t n);
/* As copy_in, of n pieces. */
bool copy_in_several(const struct iovec *to, const struct iovec *from, int n);
/* How much of the time up to the deadline is left. */
struct timespec time_left(gs_deadline deadline);

/* waiters.c */

enum what { MUTEX, MUTEX_DELEGATE, COND, READER, WRITER, SEMAPHORE, FUTEX };

struct waiter {
    struct waiter *next, *prev;
    const void *addr;
    enum what what;
    uint32_t bits;     /* of a FUTEX: which wake-ups it waits for */
    gs_g *g;           /* NULL: it blocks its thread on `woken` */
    atomic_uint woken; /* 1: a waker has taken it off the table */
    bool at_rest;
};

struct bucket {
    atomic_uint lock;
    atomic_uint waiting;
    struct waiter first; /* head of a ring; next is NULL before its first use */
} __attribute__((aligned(64)));

struct bucket *bucket_of(const void *addr);
/* Whether a waiter may be waiting for the address. Called after a locked instruction on the object. */
static inline bool has_waiters(const void *addr)
{
    return atomic_load_explicit(&bucket_of(addr)->waiting, memory_order_relaxed) != 0;
}
void bucket_lock(struct bucket *b);
bool bucket_try_lock(struct bucket *b);
void bucket_unlock(struct bucket *b);
/* With the bucket locked. */
void enqueue(struct bucket *b, struct waiter *w, bool first_of_all);
void dequeue(struct bucket *b, struct waiter *w);
/*
 * The bucket is locked and the waiter in it; unlocks it, and waits until the waiter has been woken: true.
 * False: the deadline has passed first, and the waiter is not in the table any more.
 */
bool park(struct bucket *b, struct waiter *w, gs_deadline deadline);
/* Wakes up to n waiters for the address, in their order; gives how many. Of a FUTEX: those that wait for one of the bits. */
unsigned wake_some(const void *addr, unsigned n, uint32_t bits);
static inline unsigned wake(const void *addr, unsigned n)
{
    return wake_some(addr, n, UINT32_MAX);
}
/* Wakes those who can share the lock: the readers that wait before the first writer, or the first writer. */
void wake_lockers(const void *addr);
/* With the bucket locked: takes it off the table and wakes it. */
void wake_waiter(struct bucket *b, struct waiter *w);
/* Waits in the kernel until the word has another value, the deadline passes, or for no reason; wakes up to n threads that
 * do. The word is this process's alone. */
void futex_wait(const void *word, unsigned value, gs_deadline deadline);
void futex_wake(const void *word, int n);
void waiters_in_child(void);

/* files.c, masks.c, sync.c, keys.c and others */
void files_in_child(void);
void streams_in_child(void);
void masks_in_child(void);
void masks_start(void);
/*
 * A call in which handlers run on a thread of libgosched. A handler may leave the call by a jump, which then does what the
 * call would have done at its end.
 */
struct taking {
    struct taking *outer; /* in whose handler this call was made */
    sigset_t mask;        /* the thread's before, if libgosched has made it */
    bool librarys, announced;
    const int *files;     /* two to be closed after a jump, or NULL; -1: none */
};
void begin_taking(struct taking *t, const int *files, struct counts *c);
void end_taking(struct taking *t);
/* Before a goroutine ends in a handler that such a call runs. On an alternate stack it does nothing. */
void end_all_taking(void);
/* As KERNEL, of such a call; not counted if `c` is NULL. */
#define TAKING_SIGNALS(call, files, c) \
    __extension__({ \
        struct taking taking_; \
        begin_taking(&taking_, files, c); \
        __typeof__(call) taken_ = (call); \
        end_taking(&taking_); \
        taken_; \
    })
/* Whether libgosched has made the calling thread, so that it blocks all signals and goroutines have masks of their own. */
bool is_librarys_thread(void);
/* The mask that the calling goroutine sees. */
sigset_t callers_mask(void);
void sync_in_child(void);
void sync_start(void);
void several_start(void);
void streams_start(void);
void keys_start(void);
void exits_start(void);
void futex_start(void);
void openmp_start(void);
/* Gives the calling goroutine other values of pthread keys, or another mask, and returns what it had. NULL: as at its start. */
void *exchange_values(void *given);
void *exchange_mask(void *given);

/* A file in use. It stays the same file if its number is closed meanwhile, or becomes another file's. */
struct file {
    int fd;
    struct moved *moved;
};
enum how { HOW_PARK, HOW_KERNEL, HOW_NOT };
/* Waits until the file has one of the events: 0 or an error number; `found`: the events that it has, or NULL. */
int wait_for_file(struct file *f, int events, gs_deadline deadline, int *found);
void leave_file(struct file *f);
/* Whether opening waits for the other end of a FIFO, which may be opened by a goroutine that is pinned to the same thread. */
bool is_fifo(int dir, const char *path, int flags);
/* As write does it in a goroutine. */
ssize_t do_write(int fd, const void *buf, size_t n, struct counts *c);

/* For calls in which libc itself reads or writes a file. errno may change. */

/* Whether such a call doesn't wait for others: the file is on a disk, or was made non-blocking. */
bool never_waits(int fd);
/* Whether poll says now that one read, or one write of a little, doesn't wait. */
bool is_ready(int fd, int events);
/* Waits until is_ready may say so. ENDED: gs_cancel has ended the wait. */
enum ready { READY, NEVER_WAITS, ONLY_CALL_WAITS, ENDED };
enum ready wait_until_ready(int fd, int events, struct counts *c);

/* The highest number of a file that the program has closed, and of a file of the program's that is open; -1: none. */
extern atomic_int highest_closed;
void note_closed(int fd);
int highest_file(void);

#endif
