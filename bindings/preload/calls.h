/*
 * How to make a call that may wait: the goroutine parks, gives its P away, or has another thread call. Also
 * GOSCHED_PRELOAD_DEBUG, which reports on these calls.
 */

#ifndef GOSCHED_PRELOAD_CALLS_H
#define GOSCHED_PRELOAD_CALLS_H

#include "callers.h"
#include "real.h"

/*
 * Whether the goroutine can give up its P now. It can't in gs_blocking, between gs_entersyscall and gs_exitsyscall, in
 * the child of a vfork, or in a signal handler with a stack of its own. There a function blocks the thread, as libc's
 * does.
 */
bool can_park(void);

/* Whether a signal handler with a stack of its own is running on the calling thread; *stack then describes that stack. */
bool on_alternate_stack(stack_t *stack);
/* Notes that this process owns its memory: at the start, and in the child of a fork. */
void note_process(void);

/*
 * Gives way at the end of a call that has not waited, if *asked_to_give_way says that libgosched wants it. A goroutine
 * whose calls never have to wait (an event loop whose files are always ready) would otherwise keep goroutines pinned to
 * its thread waiting for ever, since the signal doesn't preempt for them. Not for read and write, which signal handlers
 * call to tell an event loop of a signal. errno stays.
 */
extern const volatile uint32_t *asked_to_give_way;
static inline void give_way_as_asked(void)
{
    int error = errno;
    gs_preempt_check();
    errno = error;
}

/*
 * Makes a call that doesn't wait. The preemption signal may interrupt it with EINTR, which libc's caller must not see,
 * so the call is tried again. The second try blocks all signals: otherwise signals that come faster than the kernel
 * looks at many files would end every try. A goroutine that only ever looks gives way here. `taken`: whether a
 * goroutine calls.
 */
#define LOOK_IF(taken, call) \
    __extension__({ \
        int errno_ = errno, look_ = (call); \
        if (look_ < 0 && errno == EINTR && (taken)) { \
            sigset_t all_, before_; \
            sigfillset(&all_); \
            real.pthread_sigmask(SIG_SETMASK, &all_, &before_); \
            look_ = (call); \
            real.pthread_sigmask(SIG_SETMASK, &before_, NULL); \
        } \
        if (look_ >= 0) \
            errno = errno_; \
        if (!LIKELY(*asked_to_give_way == 0) && (taken)) \
            give_way_as_asked(); \
        look_; \
    })
#define LOOK(call) LOOK_IF(TAKEN, call)

/* poll of one file without waiting, for a function that is taken over. */
static inline int poll_now(struct pollfd *one)
{
    return LOOK_IF(true, real.poll(one, 1, 0));
}

/* GOSCHED_PRELOAD_DEBUG */
EXPORT _Noreturn void __chk_fail(void); /* glibc's, for FORTIFY_SOURCE */

struct counts {
    const char *name;
    struct counts *next;
    atomic_ulong parked, handed_off;
    atomic_bool listed;
};
extern int debug;
void count_parked(struct counts *c);
void count_handed_off(struct counts *c);
/* Writes a line, after the library's name, to standard error, cut off after 281 bytes. errno stays. */
void say(const char *format, ...);
/* Prints the counts; for atexit. */
void say_counts(void);
/* Defines the counts of a function that is taken over: `PARKS` and `KERNEL` add to them. */
#define COUNTED(fn) static struct counts counts = {.name = #fn}
#define PARKS (debug ? count_parked(&counts) : (void)0)

/*
 * Makes a call that may keep the thread in the kernel, with the P given to others meanwhile. Its value and errno are
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
 * Has another goroutine call f(arg) on a thread's own stack, and parks meanwhile. For waits that a goroutine pinned to
 * the caller's thread may have to end: during KERNEL it couldn't run. False: the caller can't park, or there is no
 * memory.
 */
bool call_elsewhere(void *(*f)(void *), void *arg, struct counts *c);

/* call_elsewhere of a function of up to 6 numbers and pointers, with the value of the call. errno and the thread's
   locale go along. */
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

/* Defines a function in which the kernel waits for others. */
#define WAITS_ELSEWHERE(result, name, params, args) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        return TAKEN ? ELSEWHERE(real.name, args) : real.name args; \
    }

/* Defines a function in which the kernel is busy, with the P given to others. */
#define IN_KERNEL(result, name, params, args) \
    EXPORT result name params \
    { \
        COUNTED(name); \
        return TAKEN ? KERNEL(real.name args) : real.name args; \
    }

/* Finds the address for is_known_last_call, on a goroutine that may park. */
void find_last_call(void);

#endif
