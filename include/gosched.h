/* libgosched: Go's scheduler as a C library.

   Errors are returned: 0 or a count on success, a negative errno value on failure;
   gs_strerror() explains each. errno itself is never set, and belongs to the
   goroutine, as do the rounding modes. Bad input gives an error and changes nothing.

   Calls that can block take a deadline, an absolute time in ns on CLOCK_MONOTONIC:
   GS_FOREVER (wait without limit), GS_NOWAIT (return -EAGAIN instead of waiting), or
   gs_after_ms(n) and its kin. Once the deadline has passed, the call returns -ETIMEDOUT.
   Any other number below 0 counts as a time that has passed. What can be done at once is
   done, even after the deadline or in a cancelled goroutine. (Calls on files check the
   deadline first: see gs_read.)

   Every call that can block may be made by goroutines, which park, and by plain threads,
   which block. A plain thread needs no other call before or after.

   The child of fork(2) has the calling thread alone, and no goroutines; its first call that
   needs a runtime starts another. An object that other goroutines or threads used or waited
   for at the time of the fork must not be used in the child, not even to unlock it. A mutex
   or its kin can be used once the child has set all its bytes to zero.

   A function that may switch lets other goroutines run on the thread meanwhile, and may
   return on another thread. These never switch:
   gs_abi_version, gs_add_frames, gs_after_ms, gs_after_ns, gs_after_us,
   gs_cancel_disable, gs_cancel_enable, gs_cancelled, gs_chan_cap, gs_chan_len,
   gs_chan_put, gs_chan_take, gs_data, gs_eai, gs_g_info_read, gs_getspecific,
   gs_hold, gs_id, gs_mutex_trylock, gs_name, gs_now, gs_numa_unbound_cpus,
   gs_own_threads, gs_preempt_disable, gs_preempt_flag, gs_retain, gs_self,
   gs_set_data, gs_set_log, gs_strerror, gs_test_seed, gs_uncancel, gs_unhold,
   gs_version.
   A signal handler may call those that are async-signal-safe.

   A struct with a size member gets new fields at its end in later versions. Set size to
   sizeof the struct, and every field that you don't use to 0 (the GS_..._INIT macros do
   both). If the program's struct is older than the library, the fields that it lacks have
   their defaults. If it is newer, the fields that the library doesn't know must be 0;
   otherwise the call returns -EINVAL, as for a size above 4096 bytes. Structs without a
   size member don't change, except those that only the library fills in (gs_g_info),
   which also grow at their end.

   Generated from src/capi by `make header`: change it there. */

#ifndef GOSCHED_H
#define GOSCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Defined in sys/socket.h, sys/uio.h and netdb.h. This header doesn't include those,
   because they declare names like send: include them where you need them. A socklen_t is
   a uint32_t. */
struct addrinfo;
struct iovec;
struct msghdr;
struct sockaddr;

/* The version of this header. If the header is newer than the library, gs_init and gs_run
   fail: see gs_init_for. */
#define GS_VERSION_MAJOR 1
#define GS_VERSION_MINOR 1
#define GS_VERSION_PATCH 0
#define GS_VERSION (GS_VERSION_MAJOR * 10000 + GS_VERSION_MINOR * 100 + GS_VERSION_PATCH)

/* Marks functions whose result the caller needs: a new object, or whether a lock was taken.
   Compilers warn if the result is ignored (-Wunused-result), unless it is cast to void. */
#ifndef GS_MUST_CHECK
#if (defined(__cplusplus) && __cplusplus >= 201703L) \
    || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202311L)
#define GS_MUST_CHECK [[nodiscard]]
#elif defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
/* GCC's warn_unused_result would warn of a cast to void too. */
#define GS_MUST_CHECK __extension__ [[__nodiscard__]]
#elif defined(__GNUC__)
#define GS_MUST_CHECK __attribute__((__warn_unused_result__))
#else
#define GS_MUST_CHECK
#endif
#endif

#define GS_CONFIG_INIT { sizeof(gs_config), 0, 0, 0, NULL, 0, 0, 0 }
#define GS_SPAWN_OPTS_INIT { sizeof(gs_spawn_opts), NULL, 0, 0, -1, 0, 0, NULL, NULL }

/**
 * A deadline: wait without end. With any other deadline a wait needs memory for a timer. If there
 * is no memory, the function doesn't wait and returns -ENOMEM, with the effect of -ETIMEDOUT.
 */
#define GS_FOREVER (-INT64_C(1))

/**
 * A deadline: never wait. If the call can't be done at once it fails with -EAGAIN.
 */
#define GS_NOWAIT (INT64_C(0))

/**
 * The largest GOMAXPROCS.
 */
#define GS_MAX_PROCS (1024)

/**
 * gs_config.flags: goroutines switch only in calls of this library. No signal preempts them, and a
 * goroutine that blocks its thread without announcing it keeps its P. With one P exactly one
 * goroutine runs at a time. Environment: GOSCHED_COOPERATIVE=1.
 */
#define GS_CONFIG_COOPERATIVE (UINT32_C(1))

/**
 * gs_config.flags: threads are not bound to NUMA nodes, and memory comes from the node that first
 * touches it. Without this flag, on a machine with several nodes, each thread that runs goroutines
 * is bound to the CPUs of one node: threads that the library has started, and threads that call
 * gs_run, which get their affinity back when gs_run returns. (A thread in gs_run is bound to those
 * CPUs of the node that its own affinity allows; if there are none, it is not bound.) Other
 * threads of the program are never bound, nor are threads in gs_attach. While a goroutine locks a
 * thread (gs_lock_os_thread) the thread is not bound: it has the affinity that it came to gs_run
 * with, or the process's. A child of fork(2) has that affinity, too. A thread that a goroutine
 * starts by pthread_create(3), and a program that it starts by posix_spawn(3), system(3), vfork(2)
 * or exec(3), inherits the binding: start these while the goroutine locks its thread, or give them
 * the CPUs of gs_numa_unbound_cpus. With libgosched-preload.so they have that affinity without
 * more ado. Environment: GOSCHED_BIND=0.
 */
#define GS_CONFIG_UNBOUND (UINT32_C(2))

/**
 * gs_config.flags: threads that call gs_run are never bound, because they start threads or
 * programs that must be able to use all CPUs (gs_numa_unbound_cpus and libgosched-preload.so serve
 * that too, also on the library's threads). On a thread that is not bound goroutines may run on
 * another node than their own. Concerns machines with several nodes.
 */
#define GS_CONFIG_KEEP_AFFINITY (UINT32_C(4))

/**
 * gs_config.flags: the default of gomaxprocs is that of the start. Without this flag, if no number
 * was asked for, the library looks at the affinity mask and the cgroup's quota again while
 * goroutines run, at most once a second, and sets GOMAXPROCS when they have changed (as Go since
 * 1.25); gs_gomaxprocs with a number ends that, gs_set_default_gomaxprocs begins it anew. The mask
 * is that of the library's own threads, which begin with the mask of the thread that starts the
 * runtime: `taskset -a -p` changes it, and so does a cpuset. Environment:
 * GOSCHED_DEBUG=updatemaxprocs=0.
 */
#define GS_CONFIG_FIXED_PROCS (UINT32_C(8))

/**
 * After its first run the goroutine stays on one OS thread, so that thread-local variables of the
 * code it runs are safe. Other goroutines run on the thread too, and the pinned goroutine waits
 * while one of them computes without calling the library (gs_lock_os_thread keeps the others
 * away). A goroutine that isn't pinned leaves the thread before an announced call
 * (gs_entersyscall, gs_blocking). So a pinned goroutine waits for announced calls of pinned
 * goroutines, and for all blocking calls that aren't announced.
 */
#define GS_SPAWN_PINNED (UINT32_C(1))

/**
 * The goroutine is never preempted by a signal, and keeps its P even if it blocks its thread
 * without gs_entersyscall. So it must not block its thread to wait for something that another
 * goroutine holds: if such goroutines block all P's, no goroutine can run that would end their
 * wait. malloc(3) is a case of this: a goroutine that the signal has preempted may hold malloc's
 * lock. A program with n such goroutines therefore needs at least n + 1 P's, or no preemption
 * (GS_CONFIG_COOPERATIVE).
 */
#define GS_SPAWN_NOPREEMPT (UINT32_C(2))

/**
 * The preemption signal never stops the goroutine: it gives way only in calls of the library.
 * Unlike with GS_SPAWN_NOPREEMPT, other goroutines get its P when it blocks its thread. For code
 * that must not be stopped at an arbitrary instruction because it may hold a lock that threads
 * wait for outside of the library, as interpreters do. gs_stop_the_world waits for the goroutine's
 * next call. If the goroutine belongs to a worker group (gs_workers_create) and computes for
 * longer than a time slice while others wait, it loses its P and computes on without a P until its
 * next call.
 */
#define GS_SPAWN_NOSIGNAL (UINT32_C(4))

/**
 * Runs before all goroutines except a goroutine that the running goroutine has just made ready.
 */
#define GS_PRIO_HIGH (1)

/**
 * The priority of a goroutine that gs_spawn starts.
 */
#define GS_PRIO_NORMAL (0)

/**
 * Runs when no goroutine of normal priority waits on its node; otherwise in a small share of the
 * scheduling decisions, so as not to starve.
 */
#define GS_PRIO_LOW (-1)

/**
 * Runs only when no other goroutine can run. seed: S10
 */
#define GS_PRIO_IDLE (-2)

/**
 * A flag of gs_workers_create: one of the group's threads is a thread that calls gs_run. A thread
 * that calls gs_run joins the first group that lacks such a thread (a group whose goroutines wait
 * for it comes before the others), and other groups too when their goroutines would otherwise wait
 * for such a thread. The thread leaves its groups when gs_run returns, which is not before the
 * goroutines that have begun on it have ended.
 */
#define GS_WORKERS_RUNNER (UINT32_C(1))

/**
 * A flag of gs_workers_create: all of the group's threads are threads that call gs_run or
 * gs_attach, each as with GS_WORKERS_RUNNER. The library starts no thread for the group: its
 * goroutines wait until the first such thread calls.
 */
#define GS_WORKERS_RUNNERS (UINT32_C(2))

/**
 * gs_case.op: send.
 */
#define GS_SEND (1)

/**
 * gs_case.op: receive.
 */
#define GS_RECV (2)

/**
 * gs_g_info.state: the goroutine has ended. gs_foreach_g shows no such goroutine.
 */
#define GS_G_ENDED (0)

/**
 * gs_g_info.state: the goroutine can run, and waits for a P.
 */
#define GS_G_RUNNABLE (1)

/**
 * gs_g_info.state: the goroutine runs; in gs_foreach_g only the caller does.
 */
#define GS_G_RUNNING (2)

/**
 * gs_g_info.state: the goroutine waits; gs_g_info.wait_reason says for what.
 */
#define GS_G_WAITING (3)

/**
 * gs_g_info.state: the goroutine is in a system call that it has announced.
 */
#define GS_G_SYSCALL (4)

/**
 * gs_numa_alloc: memory of the caller's node.
 */
#define GS_NUMA_LOCAL (-1)

/**
 * gs_numa_alloc: pages from all nodes in turn, for data that all nodes use alike.
 */
#define GS_NUMA_STRIPE (-2)

/**
 * Number of elements of gs_stats.run_waits.
 */
#define GS_RUN_WAITS (20)

/**
 * Any goroutine that can run goes on, at each step.
 */
#define GS_TEST_RANDOM (UINT32_C(0))

/**
 * Probabilistic concurrency testing: goroutines have random priorities, which change at depth - 1
 * random steps. Finds a bug that needs depth things to happen in a certain order with a known
 * chance, however long the run is. A goroutine that calls gs_yield comes last from then on.
 */
#define GS_TEST_PCT (UINT32_C(1))

/**
 * The next goroutine goes on, at each step.
 */
#define GS_TEST_ROUND_ROBIN (UINT32_C(2))

/**
 * A flag: nothing is printed.
 */
#define GS_TEST_QUIET (UINT32_C(1))

/**
 * A flag: a crash ends the process, in gs_test_explore too. For interpreters, whose locks a goroutine
 * may hold when it crashes.
 */
#define GS_TEST_CRASH (UINT32_C(2))

/**
 * A flag: a run fails with -EPERM if not only the seed decides it. Each run is made twice: both must
 * do the same, and no goroutine may read the system's clock, get random bytes of the kernel or start
 * a thread. The report names the goroutine and the place. If a goroutine blocks the thread for 5 ms
 * or more, a message says so.
 */
#define GS_TEST_STRICT (UINT32_C(4))

/**
 * A channel. Any number of goroutines and plain threads may use it at once.
 */
typedef struct gs_chan gs_chan;

/**
 * A reference to a goroutine.
 */
typedef struct gs_g gs_g;

/**
 * A gang: goroutines that exchange messages, or wait for each other, all the time. Its members run
 * at the same time, each on a P of its own (on one NUMA node if that has enough), for one time
 * slice. Then all other goroutines have their turn.
 *
 * In its turn a gang has as many P's as it has members; if there are fewer P's than members, the
 * gang has all P's, for several slices. A P whose member has to wait is lent to other goroutines
 * after a while, and taken back when a member becomes ready. The other goroutines' turn lasts
 * until each of them has run once; meanwhile members run on P's that have nothing else to do. A
 * gang pays off if its members exchange messages many times in a slice (gs_config.time_slice_ns)
 * while other goroutines want their P's.
 */
typedef struct gs_gang gs_gang;

/**
 * A timer that runs a function.
 */
typedef struct gs_timer gs_timer;

/**
 * A group of threads: see gs_workers_create.
 */
typedef struct gs_workers gs_workers;

/**
 * Settings for gs_init. A field that is 0 or NULL is taken from its environment variable, or else
 * has its default. Use GS_CONFIG_INIT, or zero all bytes and set size.
 */
typedef struct gs_config {
    /**
     * sizeof(gs_config).
     */
    size_t size;
    /**
     * How many goroutines run at the same time, at most GS_MAX_PROCS.
     * Environment: GOSCHED_PROCS, GOMAXPROCS. Default: the CPUs of the affinity
     * mask, lowered to the cgroup's CPU quota rounded up (at least 2), as Go. The default follows
     * both while the program runs: see GS_CONFIG_FIXED_PROCS.
     */
    uint32_t gomaxprocs;
    /**
     * The most OS threads that the library starts to run goroutines; threads that call gs_run
     * don't count. At the limit, work waits for a thread. Environment: GOSCHED_MAX_THREADS.
     * Default: 10,000.
     */
    uint32_t max_threads;
    /**
     * Bytes of stack that a goroutine can use, at most 1 GiB; they take memory only as they are
     * touched. Environment: GOSCHED_STACK_SIZE. Default: 240 KiB.
     */
    size_t stack_size;
    /**
     * The machine: "" for the real one, "flat" for one NUMA node, or hwloc's notation for a
     * synthetic one, such as "node:2 core:4 pu:1". Environment: GOSCHED_TOPOLOGY. Default: "".
     */
    const char *topology;
    /**
     * The time slice in ns, 100 us to 1 h: a goroutine that runs for that long while others wait
     * gives way at its next call of the library; if none comes, its thread gets a signal. 0: 10
     * ms.
     */
    uint64_t time_slice_ns;
    /**
     * GS_CONFIG_COOPERATIVE, GS_CONFIG_UNBOUND, GS_CONFIG_KEEP_AFFINITY, GS_CONFIG_FIXED_PROCS,
     * or'ed; or 0.
     */
    uint32_t flags;
    /**
     * The signal that preempts. 0: SIGURG, which programs ignore by default; -1: none. If another
     * process or thread sends the signal, the library calls the host's handler for it, if that was
     * installed before the start. System calls are then restarted even if the handler was
     * installed without SA_RESTART. The signal may interrupt a goroutine's system call that the
     * kernel doesn't restart (nanosleep, poll), which then fails with EINTR, as with any signal.
     * Environment: GOSCHED_PREEMPT_SIGNAL, where 0 means none.
     */
    int32_t preempt_signal;
} gs_config;

/**
 * The function of a goroutine.
 */
typedef void (*gs_fn)(void *arg);

/**
 * The time at which a call stops waiting: ns on CLOCK_MONOTONIC, as gs_now() returns, or
 * GS_FOREVER or GS_NOWAIT.
 */
typedef int64_t gs_deadline;

/**
 * A length of time in ns.
 */
typedef int64_t gs_duration;

/**
 * Options of gs_spawn_with. Start from GS_SPAWN_OPTS_INIT, not from zeros: node 0 is a node.
 */
typedef struct gs_spawn_opts {
    /**
     * sizeof(gs_spawn_opts).
     */
    size_t size;
    /**
     * A name for reports, copied; or NULL.
     */
    const char *name;
    /**
     * Bytes of stack that the goroutine can use, at most 1 GiB; 0: gs_config.stack_size. A size
     * that is too small to work is raised to the least that works.
     */
    size_t stack_size;
    /**
     * GS_PRIO_...
     */
    int priority;
    /**
     * The NUMA node that the goroutine starts on, by this process's numbering; -1: any.
     */
    int node;
    /**
     * GS_SPAWN_... or'ed.
     */
    uint32_t flags;
    /**
     * Must be 0.
     */
    uint32_t reserved;
    /**
     * The first value of gs_data(g).
     */
    void *data;
    /**
     * The group whose threads run the goroutine, with GS_SPAWN_PINNED, GS_PRIO_NORMAL and node -1;
     * or NULL.
     */
    struct gs_workers *workers;
} gs_spawn_opts;

/**
 * A key of goroutine-local values; never 0.
 */
typedef uint32_t gs_key;

/**
 * One case of a select.
 */
typedef struct gs_case {
    /**
     * NULL: never ready.
     */
    struct gs_chan *ch;
    /**
     * GS_SEND: the element to send. GS_RECV: where to put the received element; NULL: drop it.
     */
    void *elem;
    /**
     * GS_SEND or GS_RECV.
     */
    int op;
    /**
     * Written if this case is chosen: 0, or -EPIPE: the channel is closed.
     */
    int result;
} gs_case;

/**
 * A mutex, with the normal and the starvation mode of Go's. No goroutine owns it: any may unlock
 * it. All bytes zero: unlocked. Go's sync.Mutex.
 */
typedef struct gs_mutex {
    uint64_t opaque[4];
} gs_mutex;

/**
 * A lock for many readers or one writer; new readers wait while a writer waits.
 * All bytes zero: unlocked. Go's sync.RWMutex.
 */
typedef struct gs_rwmutex {
    uint64_t opaque[8];
} gs_rwmutex;

/**
 * A condition variable. All bytes zero: a condition variable without waiters. Go's sync.Cond.
 */
typedef struct gs_cond {
    uint64_t opaque[4];
} gs_cond;

/**
 * A counter to wait for. All bytes zero: 0. Go's sync.WaitGroup.
 */
typedef struct gs_waitgroup {
    uint64_t opaque[6];
} gs_waitgroup;

/**
 * A weighted semaphore, first come first served. All bytes zero: no units.
 */
typedef struct gs_sem {
    uint64_t opaque[6];
} gs_sem;

/**
 * Does something once. All bytes zero: not done yet. Go's sync.Once.
 */
typedef struct gs_once {
    uint64_t opaque[6];
} gs_once;

/**
 * A goroutine, as gs_foreach_g and gs_g_info_read show it.
 */
typedef struct gs_g_info {
    /**
     * The goroutine's id; 0: it has not run yet.
     */
    uint64_t id;
    /**
     * GS_G_RUNNABLE and so on.
     */
    int state;
    /**
     * The NUMA node where the goroutine last ran.
     */
    int node;
    /**
     * The goroutine's stack: the lowest address, and the address after the highest. NULL: the
     * goroutine has no stack yet, only its argument.
     */
    void *stack_lo;
    void *stack_hi;
    /**
     * The goroutine's stack pointer: the stack is in use from here up.
     */
    void *sp;
    /**
     * The registers (ucontext_t *) of a goroutine that a signal has stopped, at any instruction or
     * in a system call. NULL: the goroutine is at rest, and its callee-saved registers are on its
     * stack, above sp.
     */
    const void *regs;
    /**
     * The argument of the goroutine's function.
     */
    void *arg;
    /**
     * gs_spawn_opts.name; NULL: none.
     */
    const char *name;
    /**
     * The return address of the call that spawned the goroutine, for dladdr(3) and its kin; NULL:
     * the library spawned it, for instance for a timer.
     */
    const void *spawned_at;
    /**
     * The id of the goroutine that spawned this one; 0: a plain thread or the library did.
     */
    uint64_t creator;
    /**
     * The reason of the wait, in the words of Go's tracebacks ("chan receive", "sleep", "IO
     * wait"): a static string; NULL: the state isn't GS_G_WAITING.
     */
    const char *wait_reason;
    /**
     * When the wait or the announced system call began: a time as of gs_now, which may be some ms
     * too early. 0: the goroutine neither waits nor is in an announced call.
     */
    int64_t since;
} gs_g_info;

/**
 * A hook for a thread.
 */
typedef void (*gs_thread_hook)(void *ctx);

/**
 * A hook for a goroutine.
 */
typedef void (*gs_g_hook)(void *ctx, struct gs_g *g);

/**
 * A hook for a switch from one goroutine to the next.
 */
typedef bool (*gs_switch_hook)(void *ctx, struct gs_g *from, struct gs_g *to);

/**
 * A frame of an interpreter: a function of its language that has called another, or waits.
 */
typedef struct gs_frame {
    /**
     * The function's name. NULL: not known.
     */
    const char *function;
    /**
     * The source file. NULL: not known.
     */
    const char *file;
    /**
     * The line in the file; 0: not known.
     */
    int64_t line;
} gs_frame;

/**
 * A hook for the frames of a goroutine.
 */
typedef size_t (*gs_frames_hook)(void *ctx, struct gs_g *g, struct gs_frame *frames, size_t room);

/**
 * Functions that the library calls, each with ctx, for a runtime on top of it (an interpreter).
 * NULL: no call. Zero all bytes and set size.
 *
 * All hooks but goexit and frames run on the thread's own stack, where gs_self() is NULL, with no lock of the
 * scheduler held. Hooks may change errno and the rounding modes: no goroutine sees that. Hooks
 * must not end the thread, throw, or leave by longjmp. g is valid until its dead hook has
 * returned; gs_data(g) is the embedder's word for g. Hooks are called for all goroutines in the
 * process, also for those of other users of the library.
 *
 * On a thread the order is: thread_start; then switch_in and switch_out in turn (switch_over is a
 * switch_out and a switch_in), with idle in between; then thread_stop. Between its switch_in and
 * its switch_out a goroutine runs on that thread only. gs_blocking, a system call and the
 * preemption signal cause no switch_out.
 */
typedef struct gs_hooks {
    /**
     * sizeof(gs_hooks).
     */
    size_t size;
    /**
     * The argument of all hooks.
     */
    void *ctx;
    /**
     * The thread, one of the library's or one in gs_run, begins to run goroutines. The hook may
     * block, and call what plain threads may call: other threads get the P meanwhile. The hook may
     * fork: when it returns in the child, the process ends. Not called after the hook shutdown,
     * while gs_shutdown ends the threads.
     */
    gs_thread_hook thread_start;
    /**
     * The thread stops running goroutines: it ends, gs_run returns, or the hooks have been
     * replaced. The hook may block, as thread_start may. After the hook shutdown, while
     * gs_shutdown ends the threads, it must not call this library.
     */
    gs_thread_hook thread_stop;
    /**
     * g is about to run on this thread. The hook may block, for instance for an interpreter's
     * lock, as thread_start may.
     */
    gs_g_hook switch_in;
    /**
     * g has left its stack: its registers are saved, and no thread can run it yet. The hook must
     * not block, nor call functions that can wait.
     */
    gs_g_hook switch_out;
    /**
     * Called in place of switch_out(from) and switch_in(to) if the thread's next goroutine is
     * known before other threads can run from. The hook must not block. If it returns false it
     * must have done nothing: the library then calls switch_out(from) and switch_in(to).
     */
    gs_switch_hook switch_over;
    /**
     * The thread is about to steal work from others, to sleep or to give its P up, and runs no
     * goroutine: the time to release an interpreter's lock. The hook must not block.
     */
    gs_thread_hook idle;
    /**
     * The last call on the stack of a goroutine that ends, after the destructors of its values:
     * gs_self() is the goroutine. The hook may do all that a goroutine may.
     */
    gs_g_hook goexit;
    /**
     * The goroutine has ended and left its stack, after its switch_out (or switch_over). gs_join
     * returns after this. The hook must not block.
     */
    gs_g_hook dead;
    /**
     * Called each time the thread has switched to tick_every goroutines. The hook must not block.
     */
    gs_thread_hook tick;
    /**
     * Called in the child of a fork, on its only thread, which has left its goroutine and the
     * runtime: neither switch_out nor thread_stop follows.
     */
    gs_thread_hook fork_child;
    /**
     * All goroutines have ended, and gs_shutdown ends the threads next. Called on the thread that
     * has called gs_shutdown. The hook must not call this library.
     */
    gs_thread_hook shutdown;
    /**
     * Switches from one tick to the next; 0: 61.
     */
    uint32_t tick_every;
    /**
     * Must be 0.
     */
    uint32_t reserved;
    /**
     * Writes the interpreter's frames of g, the innermost first, to frames, which has room for
     * room of them, and returns how many it has written. For gs_dump and its kin and for traces,
     * which show these frames before those of C.
     *
     * Either g has called the library and the hook runs on its stack, of which it may need 2 KiB;
     * or g is stopped, and the hook runs on another thread or goroutine. Then g may have been
     * stopped at any instruction, in the middle of the interpreter, of malloc, or with any lock
     * held. So the hook only reads memory, and what it reads may be half changed: it must not take
     * locks, allocate, block, or call this library, except gs_data(g). The strings must stay as
     * they are until g goes on, or until the hook is called again: the library copies them before.
     */
    gs_frames_hook frames;
} gs_hooks;

/**
 * Counters since the start of the runtime. Set size to sizeof(gs_stats) first. Fields may be added
 * at the end.
 */
typedef struct gs_stats {
    /**
     * sizeof(gs_stats).
     */
    size_t size;
    /**
     * Goroutines that exist. For a node: goroutines in its queues, ready to run.
     */
    uint64_t goroutines;
    /**
     * Goroutines spawned, and goroutines ended. For a node: by its P's. Goroutines that plain
     * threads have spawned count only for the whole runtime.
     */
    uint64_t created;
    uint64_t ended;
    /**
     * P's, and how many of them have nothing to do.
     */
    uint64_t procs;
    uint64_t idle_procs;
    /**
     * Threads that run goroutines, or could. 0 for a node.
     */
    uint64_t threads;
    /**
     * How often goroutines were switched to. 0 for a node.
     */
    uint64_t switches;
    /**
     * How often a P was passed to another thread, because its own thread was blocked or left, its
     * goroutine was preempted, or the next goroutine was bound to the other thread.
     */
    uint64_t handoffs;
    /**
     * How often work was stolen: from P's of the node, from the queue of another node,
     * from P's of another node.
     */
    uint64_t steals_near;
    uint64_t steals_remote_queue;
    uint64_t steals_remote_p;
    /**
     * Stacks that were freed on another node and went back to their own.
     */
    uint64_t stacks_sent_home;
    /**
     * Goroutines whose stack was moved to the node where they run, and the pages moved.
     */
    uint64_t migrations;
    uint64_t pages_moved;
    /**
     * Histogram of how long ready goroutines have waited for a P. Element 0 counts waits of less
     * than 1 us, element i of less than 2^i us, the last all longer waits. Not every wait is
     * measured: the sample has all goroutines that another thread made ready, an eighth or more of
     * those that a file made ready, a sixteenth or more of those that a timer made ready (there
     * the wait begins at the time for which the timer was set), and about one in a thousand of
     * those that another goroutine made ready. For a node: goroutines that ran on its P's.
     */
    uint64_t run_waits[GS_RUN_WAITS];
    /**
     * What goroutines do: they are ready and wait for a P; they run; they are in a call that was
     * announced, or in the user's code without a P; they wait for anything else. Not read at one
     * moment. For a node: those in its queues, those on its P's, 0, 0.
     */
    uint64_t runnable;
    uint64_t running;
    uint64_t in_calls;
    uint64_t waiting;
    /**
     * Blocking calls that goroutines have announced (gs_entersyscall, gs_blocking), or the library
     * for them. Calls without a P count only for the whole runtime.
     */
    uint64_t calls;
    /**
     * How often an event borrowed the P of a goroutine that computes.
     */
    uint64_t loans;
    /**
     * Bytes of address space that stacks have been cut from, guards included.
     */
    uint64_t stack_bytes;
    /**
     * How often work had to wait because of gs_set_max_threads or GOSCHED_MAX_THREADS. 0 for a
     * node.
     */
    uint64_t thread_limit_hits;
    /**
     * Sum of the waits that run_waits counts, in ns.
     */
    uint64_t run_wait_ns;
    /**
     * How long goroutines have waited for a gs_mutex or gs_rwmutex, in ns. From a clock whose
     * steps last for up to 1 ms, so short waits are right on average only.
     */
    uint64_t lock_wait_ns;
    /**
     * How long it took to stop the world, and how long until it went on: sums in ns, and
     * histograms with the classes of run_waits. 0 for a node.
     */
    uint64_t stop_ns;
    uint64_t pause_ns;
    uint64_t stops[GS_RUN_WAITS];
    uint64_t pauses[GS_RUN_WAITS];
} gs_stats;

/**
 * How the network of a bubble behaves: see gs_test_run. Chances are out of 1000.
 */
typedef struct gs_test_net {
    /**
     * How long everything takes in one direction, in ns; 0: 100 us.
     */
    gs_duration delay;
    /**
     * By how much longer it may take, in ns. Datagrams overtake each other then.
     */
    gs_duration jitter;
    /**
     * A datagram is lost; a part of a stream is lost and sent again, 200 ms later or more.
     */
    uint32_t loss;
    /**
     * A datagram comes twice.
     */
    uint32_t duplicate;
    /**
     * With a call that sends, a connection falls silent for good; an attempt to connect is not
     * answered, and fails after 127 s.
     */
    uint32_t cut;
    /**
     * With a call that sends, a connection is reset.
     */
    uint32_t reset;
    /**
     * An attempt to connect is refused.
     */
    uint32_t refuse;
    /**
     * A call reads or writes less than it could.
     */
    uint32_t short_io;
} gs_test_net;

/**
 * Options of gs_test_run and gs_test_explore. Zero stands for the default of each.
 */
typedef struct gs_test_opts {
    /**
     * sizeof(gs_test_opts).
     */
    size_t size;
    /**
     * Decides the run; 0: 1.
     */
    uint64_t seed;
    /**
     * GS_TEST_RANDOM, GS_TEST_PCT, GS_TEST_ROUND_ROBIN.
     */
    uint32_t schedule;
    /**
     * The depth of GS_TEST_PCT; 0: 3.
     */
    uint32_t depth;
    /**
     * The most steps of a run; 0: a million.
     */
    uint64_t max_steps;
    /**
     * Called with check_arg after each step, and not before f has begun: if the result isn't 0, the
     * run has failed. It may look at whatever the goroutines share, and must not call the library.
     * NULL: no check.
     */
    int (*check)(void *arg);
    void *check_arg;
    /**
     * A schedule that a report has printed, instead of a seed; NULL: none.
     */
    const char *replay;
    /**
     * GS_TEST_QUIET, GS_TEST_CRASH, GS_TEST_STRICT.
     */
    uint32_t flags;
    /**
     * A file descriptor to which the events of the run are written, one a line: the virtual time in
     * s, the number of steps, the goroutine, and what has happened. The same seed gives the same
     * bytes, in each process. For gs_test_explore: of the run that is reported. 0: none.
     */
    int log;
    struct gs_test_net net;
    /**
     * A file descriptor to which reports are written, in place of standard error. 0: none.
     */
    int report;
    /**
     * The chance out of 1000 that a goroutine is cancelled before a call, as by gs_cancel. Only
     * goroutines that others could cancel, because there is a reference to them (gs_spawn_with,
     * gs_self).
     */
    uint32_t cancel;
    /**
     * The chance out of 1000 that there is no memory when a function of the library needs some: the
     * function fails as its description says (-ENOMEM, NULL).
     */
    uint32_t no_memory;
    /**
     * Must be 0.
     */
    uint32_t reserved;
} gs_test_opts;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* ---- Start and stop ---- */

/**
 * Starts the runtime. The calling thread reads files meanwhile: /proc/self/cgroup and the limits
 * of CPU time under /sys/fs/cgroup, /proc/sys/vm/max_map_count, and the topology under /proc and
 * /sys unless cfg gives one. For a file that can't be read the runtime uses a default. After the
 * start the library opens no temporary descriptors, except in calls that say so (gs_waitpid,
 * gs_signal_wait). The library keeps these descriptors: an epoll instance and an eventfd for each
 * P, opened when the P first waits for a file, and for each NUMA node with such a P; and eventfds
 * for plain threads that wait. Their numbers are 512 and above if RLIMIT_NOFILE allows that. The
 * threads of the library inherit the CPU mask, the nice value and so on from the thread that
 * starts the runtime, not from plain threads that call the library later. Calling gs_init is
 * optional: the first call of a function that needs the runtime starts it with the defaults, and
 * returns -ENOMEM or -EAGAIN (NULL from a function that returns a pointer) if that fails. cfg may
 * be NULL.
 *
 * 0; -EBUSY: the runtime is started already; -EINVAL: a field or the topology is invalid; -ENOMEM,
 * -EAGAIN: the system gives no memory or thread. After an error nothing has changed. Any thread.
 * May switch; not async-signal-safe.
 */
int gs_init(const struct gs_config *cfg);

/**
 * gs_init with the version (GS_VERSION) of the gosched.h that the program was compiled with; in C
 * and C++ gs_init(cfg) is a macro for this. -ELIBACC also: the header is newer than the library,
 * apart from the patch; a line on standard error says so.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_init_for(int version, const struct gs_config *cfg);

/**
 * Runs f(arg) as a goroutine and makes the calling thread run goroutines until f's goroutine has
 * ended; other goroutines may then still be there. Several threads may call gs_run at once. The
 * thread's signal mask stays as it is. During the call the thread's timer slack
 * (PR_SET_TIMERSLACK) is 1 ns; and if its alternate signal stack is smaller than 64 KiB plus what
 * the kernel saves, the thread has a larger one. Both are restored afterwards.
 *
 * gs_run returns as soon as f has ended and the goroutine that the thread is running at that
 * moment, if any, has called the library or ended. So a goroutine that computes or blocks without
 * calling the library delays the return.
 *
 * pthread_cancel(3) doesn't end a thread of the library, nor a thread that is in gs_run before
 * that returns. No function of the library is a cancellation point of a plain thread: a thread
 * that is cancelled while it waits in one goes on waiting. A thread with
 * PTHREAD_CANCEL_ASYNCHRONOUS must not be cancelled inside the library. Nor must a thread be
 * cancelled in a function that it has passed to gs_once_do: the other callers would wait for ever.
 *
 * 0; -EINVAL: f is NULL; -EBUSY: called by a goroutine; -EDEADLK: the thread has stopped the
 * world; -ENOMEM, -EAGAIN: the system gives no memory or thread (see gs_init). If the result is
 * not 0, f has not run.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_run(gs_fn f, void *arg);

/**
 * gs_run with the version (GS_VERSION) of the gosched.h that the program was compiled with; in C
 * and C++ gs_run(f, arg) is a macro for this. -ELIBACC also: see gs_init_for.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_run_for(int version, gs_fn f, void *arg);

/**
 * Makes the calling thread run goroutines, as gs_run does, and makes the calling code a goroutine:
 * from here on gs_self() isn't NULL, and waits let others run on the thread. For a program, or an
 * interpreter, whose main function is to be a goroutine itself. The goroutine keeps the thread's
 * stack and stays on this thread, which counts as a thread in gs_run (GS_WORKERS_RUNNER). The
 * goroutine ends with gs_detach; it must not end by gs_exit or by the end of the thread. The
 * program may exit at any point. In the child of a fork the thread is not attached.
 *
 * flags: 0, GS_SPAWN_NOPREEMPT, GS_SPAWN_NOSIGNAL. Must not be called while a C++ exception is
 * being handled.
 *
 * 0; -EBUSY: the caller is a goroutine already; -EINVAL: unknown flags; -EDEADLK: the caller has
 * stopped the world; -ENOMEM, -EAGAIN: the system gives no memory or thread (see gs_init);
 * -ENOSYS: under AddressSanitizer or ThreadSanitizer.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_attach(uint32_t flags);

/**
 * Undoes gs_attach: the thread is a plain thread again. Calls the destructors of the caller's
 * goroutine-local values, and waits for all goroutines that are bound to this thread.
 *
 * 0; -EPERM: the caller is not a goroutine that gs_attach has made, or is in gs_blocking.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_detach(void);

/**
 * Waits until every goroutine has ended, then ends the library's threads and frees its memory.
 * gs_init may follow. Timers that have not fired are dropped. Channels, timers, keys, and
 * goroutines that the caller has references to, stay until they are freed. gs_shutdown also waits
 * for the destructors that run when a thread of the library ends: those of pthread_setspecific's
 * values and of C++'s thread_local. They may call the library, and start another runtime.
 *
 * 0, also when there is no runtime; -ETIMEDOUT, -EAGAIN: goroutines are left, or a thread is in a
 * call, has stopped the world or is in the hook thread_start or thread_stop, and nothing has
 * changed; -EDEADLK: called by a goroutine, or by the thread that has stopped the world.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_shutdown(gs_deadline deadline);

/**
 * Returns the time now, on the clock of all deadlines: CLOCK_MONOTONIC in ns.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
gs_deadline gs_now(void);

/**
 * Returns the deadline ns nanoseconds from now: at least 1, at most INT64_MAX.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
gs_deadline gs_after_ns(gs_duration ns);

/**
 * Returns the deadline us microseconds from now: see gs_after_ns.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
gs_deadline gs_after_us(int64_t us);

/**
 * Returns the deadline ms milliseconds from now: see gs_after_ns.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
gs_deadline gs_after_ms(int64_t ms);

/**
 * Returns the library's version, such as "1.1.0": a static string.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
const char *gs_version(void);

/**
 * Returns the version of the ABI: the number in the soname.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
int gs_abi_version(void);

/**
 * Returns a sentence that explains an error of this library, and what to do about it: a static
 * string, for any number, negative or not.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
const char *gs_strerror(int err);

/* ---- Goroutines and goroutine-local values ---- */

/**
 * Makes a group of n threads, for runtimes whose code must stay on a few threads (an interpreter
 * with one lock: n is 1). A goroutine that is spawned with GS_SPAWN_PINNED and
 * gs_spawn_opts.workers begins on whichever of the threads takes it first, and stays there. The
 * threads are started as they are needed, and run other goroutines too.
 *
 * flags: 0, GS_WORKERS_RUNNER or GS_WORKERS_RUNNERS.
 *
 * NULL: n is not in 1 to GS_MAX_PROCS, the flags are unknown, or there is no memory. Free the
 * group with gs_workers_free. The call starts no runtime; one runtime after the other may use the
 * group. Goroutines and plain threads; may switch.
 * Not async-signal-safe.
 */
GS_MUST_CHECK struct gs_workers *gs_workers_create(int n, uint32_t flags);

/**
 * Frees a group. 0, also for NULL; -EBUSY: a goroutine of the group has not ended; -EINVAL: the
 * group was freed before. Goroutines and plain threads; may switch.
 * Not async-signal-safe.
 */
int gs_workers_free(struct gs_workers *workers);

/**
 * Starts f(arg) as a goroutine: go f(arg). The goroutine takes no stack until it first runs. The
 * goroutine that was spawned last runs first, unless another P takes it.
 *
 * 0; -EINVAL: f is NULL; -ENOMEM. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_spawn(gs_fn f, void *arg);

/**
 * gs_spawn with options. opts may be NULL. If out is not NULL, *out is a
 * reference that the caller must give back with gs_release; after an error it is
 * NULL.
 *
 * 0; -EINVAL: f is NULL, or an option is unknown or out of its range; -ENOMEM.
 * Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_spawn_with(gs_fn f, void *arg, const struct gs_spawn_opts *opts, struct gs_g **out);

/**
 * Waits until the goroutine has ended. Then everything that it wrote is visible to the caller. The
 * caller keeps its reference.
 *
 * 0; -EAGAIN, -ETIMEDOUT, -ECANCELED; -EDEADLK: g is the caller; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_join(struct gs_g *g, gs_deadline deadline);

/**
 * Cancels the goroutine: each of its calls that would block, now or later, gives -ECANCELED. The
 * goroutine runs until its function returns, even if it had not begun to run before. A wait within
 * gs_blocking, or between gs_entersyscall and gs_exitsyscall, goes on: there the goroutine's
 * thread counts as a plain thread. gs_mutex_lock returns -ECANCELED, too: put clean-up that must
 * be done in any case between gs_cancel_disable and gs_cancel_enable.
 *
 * 0, also if the goroutine has ended; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_cancel(struct gs_g *g);

/**
 * Disables cancelling of the running goroutine: no call returns -ECANCELED because of gs_cancel,
 * so clean-up can take a contended lock, or write a last message. (A call that waits for a file
 * still returns -ECANCELED if gs_close closes the file.) A cancel that comes meanwhile, or has
 * come before, takes effect at the first call that would block after gs_cancel_enable. Nests; ends
 * with the goroutine. Does nothing on a plain thread, which can't be cancelled.
 *
 * 0. Goroutines and plain threads. The counterpart of pthread_setcancelstate.
 * Never switches; not async-signal-safe.
 */
int gs_cancel_disable(void);

/**
 * Undoes one gs_cancel_disable. If the goroutine was cancelled, the next call that would block
 * says so, not this one.
 *
 * 0, on a plain thread always; -EPERM: there was no gs_cancel_disable (nothing has changed).
 * Goroutines and plain threads.
 * Never switches; not async-signal-safe.
 */
int gs_cancel_enable(void);

/**
 * Returns 1 if gs_cancel was called for the running goroutine, even while cancelling is disabled;
 * else, and on a plain thread, 0. For loops that compute, and call nothing that would block.
 * Goroutines and plain threads.
 * Never switches; async-signal-safe.
 */
int gs_cancelled(void);

/**
 * Undoes gs_cancel for the running goroutine: its later waits are as if gs_cancel had not been
 * called. For runtimes that raise an exception once in a cancelled goroutine. A gs_cancel that has
 * not returned yet may still end one wait.
 *
 * 1: the goroutine was cancelled; 0: it was not, or the caller is a plain thread. Goroutines and
 * plain threads.
 * Never switches; not async-signal-safe.
 */
int gs_uncancel(void);

/**
 * Returns the running goroutine; NULL on a plain thread. The result is not a new reference: it is
 * valid until the goroutine ends. To keep it longer, call gs_retain.
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
struct gs_g *gs_self(void);

/**
 * Takes one more reference, which the caller must give back with gs_release. Returns g; NULL for
 * NULL.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
struct gs_g *gs_retain(struct gs_g *g);

/**
 * Gives a reference back. Does nothing for NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_release(struct gs_g *g);

/**
 * Returns the goroutine's id, unique while the runtime lives. 0 for NULL.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
uint64_t gs_id(const struct gs_g *g);

/**
 * Lets others run: the goroutine goes behind all goroutines that can run on its P. About one
 * scheduling decision in 30 begins with another queue, as in Go, so that no queue starves; then
 * the caller may run before the others. On a plain thread: sched_yield. Go's Gosched.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_yield(void);

/**
 * Ends the running goroutine, however deep its calls are. The destructors of its goroutine-local
 * values run; those of C++ objects on its stack do not, and an exception that it is handling is
 * lost. In gs_run's function gs_exit makes gs_run return 0. Does nothing on a plain thread, and
 * between gs_entersyscall and gs_exitsyscall. Go's Goexit.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_exit(void);

/**
 * Blocks for ns nanoseconds; returns at once if ns <= 0. 0; -ECANCELED; -ENOMEM: not slept (see
 * GS_FOREVER). Goroutines and plain threads. Go's time.Sleep.
 * May switch; not async-signal-safe.
 */
int gs_sleep(gs_duration ns);

/**
 * Blocks until the deadline; returns at once if it has passed, as GS_NOWAIT always has. With
 * GS_FOREVER only gs_cancel ends the sleep. 0; -ECANCELED; -ENOMEM: not slept (see GS_FOREVER).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_sleep_until(gs_deadline deadline);

/**
 * Returns the number of goroutines, including those that have not run yet and those of gs_run; in a
 * bubble (gs_test_run) the number of its own. Go's NumGoroutine.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
size_t gs_num_goroutines(void);

/**
 * Makes a key. At the end of a goroutine dtor (NULL: none) is called with each
 * value that is not NULL, on the goroutine and before a gs_join of it returns;
 * it may block and may set values again, for at most 4 rounds. On a plain thread
 * values belong to the thread.
 *
 * 0; -EINVAL: key is NULL; -EAGAIN: there are 65,536 keys.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_key_create(gs_key *key, void (*dtor)(void *value));

/**
 * Deletes a key. Its values are dropped without a call of the destructor. 0; -EINVAL: there is no
 * such key.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_key_delete(gs_key key);

/**
 * Sets the running goroutine's value of a key. 0; -EINVAL: there is no such key;
 * -EAGAIN: a plain thread that is ending; -ENOMEM.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_setspecific(gs_key key, const void *value);

/**
 * Returns the running goroutine's value of a key; NULL: no value, or no such key.
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
void *gs_getspecific(gs_key key);

/* ---- Channels and select ---- */

/**
 * Makes a channel for elements of elem_size bytes (at most 1 GiB; 0 is allowed) with a buffer for
 * cap elements. With cap 0 the channel is unbuffered: a send waits for its receive. NULL: too
 * large, or no memory. Free it with gs_chan_free. Go's make(chan T, cap).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
GS_MUST_CHECK struct gs_chan *gs_chan_make(size_t elem_size, size_t cap);

/**
 * Frees a channel and its elements. A caller may free the channel as soon as its own last call on
 * the channel has returned, even if a partner is still leaving a call.
 *
 * 0; -EBUSY: a goroutine or thread waits in the channel; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_chan_free(struct gs_chan *c);

/**
 * Sends a copy of the element at elem (ignored if elem_size is 0). Senders are served first come,
 * first served. Go's c <- v.
 *
 * 0; -EPIPE: closed; -EAGAIN, -ETIMEDOUT, -ECANCELED: not sent; -EINVAL: c is
 * NULL, or elem is. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_chan_send(struct gs_chan *c, const void *elem, gs_deadline deadline);

/**
 * Receives the next element into elem (NULL: drops the element). Go's v, ok := <-c.
 *
 * 0; -EPIPE: closed and drained, *elem is zeroed; -EAGAIN, -ETIMEDOUT,
 * -ECANCELED: nothing received; -EINVAL: c is NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_chan_recv(struct gs_chan *c, void *elem, gs_deadline deadline);

/**
 * gs_chan_send if that needs neither to wait nor to wake a receiver. Never switches. For runtimes
 * with a lock that their goroutines hold while they run: such a runtime must release the lock
 * around gs_chan_send, but need not around gs_chan_put.
 *
 * 0; -EPIPE: closed; -EAGAIN: not sent, call gs_chan_send; -EINVAL: c is NULL, or elem is.
 * Goroutines and plain threads; not async-signal-safe.
 */
int gs_chan_put(struct gs_chan *c, const void *elem);

/**
 * gs_chan_recv if that needs neither to wait nor to wake a sender. Never switches: see
 * gs_chan_put.
 *
 * 0; -EPIPE: closed and drained, *elem is zeroed; -EAGAIN: nothing received, call gs_chan_recv;
 * -EINVAL: c is NULL.
 * Goroutines and plain threads; not async-signal-safe.
 */
int gs_chan_take(struct gs_chan *c, void *elem);

/**
 * Closes the channel: from now on sends fail, and receives fail once the buffer is empty. Wakes
 * every goroutine and thread that waits in the channel. 0; -EPIPE: the channel is closed already;
 * -EINVAL: NULL. Go's close(c).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_chan_close(struct gs_chan *c);

/**
 * Returns how many elements are in the channel now; 0 for NULL. Go's len(c).
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
size_t gs_chan_len(const struct gs_chan *c);

/**
 * Returns how many elements the channel's buffer can hold; 0 for NULL. Go's cap(c).
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
size_t gs_chan_cap(const struct gs_chan *c);

/**
 * Performs one of n operations. If several can be done at once, gs_select chooses one at random,
 * each with the same chance. If none can, gs_select waits, and performs the first that can be
 * done. cases[i].result is the operation's result. With n = 0, or only NULL channels, gs_select
 * waits for the deadline. Go's select.
 *
 * The number i of the case; -EAGAIN, -ETIMEDOUT, -ECANCELED: none done; -EINVAL: cases is NULL, an
 * op is unknown, or an element to send is NULL; -ENOMEM: none done (more than 8 cases need memory,
 * and so does a deadline). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_select(struct gs_case *cases, size_t n, gs_deadline deadline);

/* ---- Mutexes and other synchronisation objects ---- */

/**
 * Locks the mutex. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not locked; -EINVAL: NULL. Goroutines and
 * plain threads.
 * May switch; not async-signal-safe.
 */
int gs_mutex_lock(struct gs_mutex *m, gs_deadline deadline);

/**
 * Locks the mutex if it is free. 0; -EBUSY: not free; -EINVAL: NULL.
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
GS_MUST_CHECK int gs_mutex_trylock(struct gs_mutex *m);

/**
 * Unlocks the mutex. 0; -EPERM: not locked; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_mutex_unlock(struct gs_mutex *m);

/**
 * Locks the rwmutex for reading, together with other readers. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED:
 * not locked; -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_rwmutex_rlock(struct gs_rwmutex *rw, gs_deadline deadline);

/**
 * Undoes one gs_rwmutex_rlock. 0; -EPERM: there is no reader; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_rwmutex_runlock(struct gs_rwmutex *rw);

/**
 * Locks the rwmutex for writing, alone. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not locked, and
 * readers that waited behind this writer go on; -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_rwmutex_lock(struct gs_rwmutex *rw, gs_deadline deadline);

/**
 * Undoes gs_rwmutex_lock. Readers that wait go before writers that wait. 0;
 * -EPERM: there is no writer; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_rwmutex_unlock(struct gs_rwmutex *rw);

/**
 * Unlocks the mutex, waits to be woken, and locks the mutex again, whatever the result. There are
 * no spurious wake-ups, but the condition may be false again: check it in a loop.
 *
 * 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not woken; -EPERM: the mutex isn't locked;
 * -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_cond_wait(struct gs_cond *c, struct gs_mutex *m, gs_deadline deadline);

/**
 * Wakes the waiter that has waited longest, if any. 0; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_cond_signal(struct gs_cond *c);

/**
 * Wakes all waiters. 0; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_cond_broadcast(struct gs_cond *c);

/**
 * Adds delta, which may be negative, to the counter; when the counter becomes 0, wakes all
 * waiters. 0; -EINVAL: NULL, or the counter would be negative or more than INT64_MAX (nothing has
 * changed).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_waitgroup_add(struct gs_waitgroup *wg, int64_t delta);

/**
 * gs_waitgroup_add(wg, -1).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_waitgroup_done(struct gs_waitgroup *wg);

/**
 * Waits until the counter is 0. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: the counter may not be 0 yet;
 * -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_waitgroup_wait(struct gs_waitgroup *wg, gs_deadline deadline);

/**
 * Gives a semaphore its first n units, before its first use. 0; -EINVAL: NULL, or n is negative.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_sem_init(struct gs_sem *s, int64_t n);

/**
 * Takes n units. Callers are served first come, first served. 0; -EAGAIN, -ETIMEDOUT, -ECANCELED:
 * none taken; -EINVAL: NULL, or n is negative. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_sem_acquire(struct gs_sem *s, int64_t n, gs_deadline deadline);

/**
 * Adds n units. 0; -EINVAL: NULL, or n is negative, or there would be more than INT64_MAX (nothing
 * has changed).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_sem_release(struct gs_sem *s, int64_t n);

/**
 * Runs f(arg) in the first call with this object. When gs_once_do returns, in any call, f has
 * returned. f must not end its goroutine. 0; -ECANCELED: cancelled while another caller runs f;
 * -EDEADLK: called by f itself; -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_once_do(struct gs_once *o, gs_fn f, void *arg);

/* ---- Timers and the channels that they send on ---- */

/**
 * Runs f(arg) in a goroutine of its own after ns nanoseconds (ns <= 0: now). If several timers are
 * due at the same time, their functions begin in any order. A signal may preempt f: if its work
 * must not be preempted, let f spawn a goroutine with GS_SPAWN_NOSIGNAL for it.
 *
 * NULL: f is NULL, or no memory. Free it with gs_timer_free. Goroutines and plain threads. Go's
 * time.AfterFunc.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK struct gs_timer *gs_timer_start(gs_duration ns, gs_fn f, void *arg);

/**
 * Stops the timer. 1: the timer was pending, and won't fire; 0: the timer had fired or was stopped
 * already (its function may still be running: see gs_timer_stop_wait); -EINVAL: NULL. Go's
 * Timer.Stop.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_timer_stop(struct gs_timer *t);

/**
 * Stops the timer and waits until its function isn't running: then the function's data can be
 * freed. If the function or another thread starts the timer again meanwhile, that start is stopped
 * too. Any number of goroutines and threads may wait for one timer.
 *
 * 1: the timer was pending, and won't fire; 0: it was not pending; -EDEADLK: called by the timer's
 * own function (nothing has changed); -EAGAIN, -ETIMEDOUT, -ECANCELED: the timer is stopped, but
 * its function still runs; -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_timer_stop_wait(struct gs_timer *t, gs_deadline deadline);

/**
 * Makes the timer fire ns nanoseconds from now instead (ns <= 0: now). 1: the timer was pending;
 * 0: the timer had fired or was stopped, and will fire again; -EINVAL: NULL; -ENOMEM, -EAGAIN: the
 * timer is as before. Go's Timer.Reset.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_timer_reset(struct gs_timer *t, gs_duration ns);

/**
 * Stops a timer and frees it. 0; -EINVAL: NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_timer_free(struct gs_timer *t);

/**
 * Makes a channel of capacity 1 on which the time (int64_t, ns, as gs_now) is sent after ns
 * nanoseconds (ns <= 0: now). Free the channel with gs_chan_free, before or after the time is
 * sent. NULL: no memory. Go's time.After.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
GS_MUST_CHECK struct gs_chan *gs_after(gs_duration ns);

/**
 * Makes a channel of capacity 1 on which the time (int64_t, ns) is sent every ns nanoseconds; a
 * tick that finds the channel full is dropped. NULL: ns <= 0, or no memory. End the ticker with
 * gs_ticker_stop and gs_chan_free, or with gs_chan_free alone. Go's time.NewTicker.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
GS_MUST_CHECK struct gs_chan *gs_ticker_start(gs_duration ns);

/**
 * Stops the ticks. The channel stays, and is not closed. A tick that is already in the channel
 * stays there, as in Go before 1.23. 0; -EINVAL: NULL, or not a channel of gs_ticker_start or
 * gs_after. Go's Ticker.Stop.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_ticker_stop(struct gs_chan *c);

/* ---- I/O ---- */

/**
 * Reads up to n bytes from a file: a socket, a pipe, a terminal, or anything else that poll(2) can
 * wait for; also from a file on a disk, which counts as a system call that may block. The first
 * use makes the file non-blocking, unless it is a socket. Available data is read at once; else the
 * goroutine parks until data comes. Several callers may wait for one file: first come, first
 * served. Only the deadline limits the wait: SO_RCVTIMEO and SO_SNDTIMEO have no effect.
 *
 * close(2) is allowed while no call waits for the file. gs_close is allowed at any time, and ends
 * the calls that are under way. A goroutine that is between two calls doesn't notice the gs_close,
 * and its next call may meet another file that has got the number: let such goroutines end first
 * (shutdown(2) or gs_cancel, then gs_join).
 *
 * The number of bytes, 0 at the end of the file; -EAGAIN, -ETIMEDOUT (also if the deadline has
 * passed before the call, even if there is data), -ECANCELED (gs_close or gs_cancel was called):
 * nothing read; -EINVAL: buf is NULL; -EBADF: fd is not open; else the error of read(2), but never
 * -EINTR. At most 64 calls read or write files on disks at a time, and further calls wait for
 * their turn; the deadline ends only that wait. Goroutines and plain threads. Go's
 * internal/poll.FD.Read. seed: B2.
 * May switch; not async-signal-safe.
 */
ssize_t gs_read(int fd, void *buf, size_t n, gs_deadline deadline);

/**
 * Writes up to n bytes; may write fewer, as write(2). Never raises SIGPIPE.
 *
 * A write that waits on a Unix socket ends when the socket, or its peer, is shut down in both
 * directions (SHUT_RDWR), but not when it is shut down for writing alone (SHUT_WR, or SHUT_RD by
 * the peer), because Linux reports no event then. The next write gets -EPIPE.
 *
 * The number of bytes; -EPIPE: there is no reader any more; else as gs_read. Go's
 * internal/poll.FD.Write, which however writes all bytes.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_write(int fd, const void *buf, size_t n, gs_deadline deadline);

/**
 * gs_read into several buffers, at most 1,024, as readv(2). -EINVAL also: iov is
 * NULL, iovcnt is negative or too large.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_readv(int fd, const struct iovec *iov, int iovcnt, gs_deadline deadline);

/**
 * gs_write from several buffers, as writev(2). -EINVAL as for gs_readv.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_writev(int fd, const struct iovec *iov, int iovcnt, gs_deadline deadline);

/**
 * recv(2) on a socket: gs_read with flags. MSG_DONTWAIT: doesn't wait. MSG_WAITALL has no effect:
 * the result may be short. -ENOTSOCK: fd is not a socket.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_recv(int fd, void *buf, size_t n, int flags, gs_deadline deadline);

/**
 * send(2) on a socket: gs_write with flags. -ENOTSOCK: fd is not a socket.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_send(int fd, const void *buf, size_t n, int flags, gs_deadline deadline);

/**
 * recvfrom(2): gs_recv that also returns the sender's address. addr may be NULL; else *addrlen is
 * the room there before the call, and the address's length after it. -EINVAL also: addr without
 * addrlen.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_recvfrom(int fd,
                    void *buf,
                    size_t n,
                    int flags,
                    struct sockaddr *addr,
                    uint32_t *addrlen,
                    gs_deadline deadline);

/**
 * sendto(2): gs_send to an address; addr may be NULL on a connected socket. With MSG_FASTOPEN
 * gs_sendto waits for the connection as gs_connect does, unless the first packet can carry the
 * data. -EINVAL also: an addrlen without addr.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_sendto(int fd,
                  const void *buf,
                  size_t n,
                  int flags,
                  const struct sockaddr *addr,
                  uint32_t addrlen,
                  gs_deadline deadline);

/**
 * recvmsg(2): as gs_recv. msg must stay until the call returns. -EINVAL also: msg
 * is NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_recvmsg(int fd, struct msghdr *msg, int flags, gs_deadline deadline);

/**
 * sendmsg(2): as gs_send. -EINVAL also: msg is NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
ssize_t gs_sendmsg(int fd, const struct msghdr *msg, int flags, gs_deadline deadline);

/**
 * socket(2): non-blocking and close-on-exec. The socket is the caller's. In a bubble (gs_test_run)
 * sockets for streams and datagrams of AF_INET, AF_INET6 and AF_UNIX are of its network; on these
 * the calls below work, and the system's fail with EBADF.
 *
 * The socket; -EMFILE, -ENFILE; else the error of socket(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_socket(int domain, int kind, int protocol);

/**
 * bind(2), also for sockets of a bubble's network.
 *
 * 0; -EINVAL also: addr is NULL; else the error of bind(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_bind(int fd, const struct sockaddr *addr, uint32_t addrlen);

/**
 * listen(2), also for sockets of a bubble's network. A backlog of 0 or less: as long as the system
 * allows.
 *
 * 0; else the error of listen(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_listen(int fd, int backlog);

/**
 * shutdown(2), also for sockets of a bubble's network: how is SHUT_RD, SHUT_WR or SHUT_RDWR. Calls
 * that wait for the socket end as they do after shutdown(2).
 *
 * 0; else the error of shutdown(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_shutdown_fd(int fd, int how);

/**
 * getsockname(2), also for sockets of a bubble's network. *addrlen is the room at addr before the
 * call, and the address's length after it.
 *
 * 0; -EINVAL also: a pointer is NULL; else the error of getsockname(2). Goroutines and plain
 * threads.
 * May switch; not async-signal-safe.
 */
int gs_getsockname(int fd, struct sockaddr *addr, uint32_t *addrlen);

/**
 * getpeername(2), as gs_getsockname.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_getpeername(int fd, struct sockaddr *addr, uint32_t *addrlen);

/**
 * getsockopt(2), also for sockets of a bubble's network: SO_ERROR gives and clears the socket's
 * error; any other option has the value that was set, or a usual one.
 *
 * 0; -EINVAL also: a pointer is NULL; else the error of getsockopt(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_getsockopt(int fd, int level, int name, void *value, uint32_t *len);

/**
 * setsockopt(2), also for sockets of a bubble's network, where IPV6_V6ONLY has its effect,
 * SO_LINGER with a time of 0 resets the connection when the socket is closed, and other options
 * have none.
 *
 * 0; -EINVAL also: value is NULL; else the error of setsockopt(2). Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_setsockopt(int fd, int level, int name, const void *value, uint32_t len);

/**
 * Takes the next connection of a listening socket, which is made non-blocking. Returns a new
 * socket, non-blocking and close-on-exec, which the caller must close with gs_close. addr may be
 * NULL; else *addrlen is the room there before the call, and the address's length after it.
 * Goroutines that the accepting goroutine spawns from then on are spread over P's and nodes.
 *
 * The socket; -EMFILE, -ENFILE: too many files are open, and the connection waits until there is
 * room; -EAGAIN, -ETIMEDOUT, -ECANCELED, -EBADF, -EINVAL as for gs_read; else the error of
 * accept(2), but never -ECONNABORTED. Goroutines and plain threads. Go's internal/poll.FD.Accept.
 * seed: N7.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_accept(int fd, struct sockaddr *addr, uint32_t *addrlen, gs_deadline deadline);

/**
 * Connects a socket, which is made non-blocking, to an address.
 *
 * 0; -ECONNREFUSED and other errors of connect(2), but never -EINPROGRESS nor -EINTR;
 * -ECONNABORTED: shutdown(2) has ended the attempt, or the attempt has failed, and another call on
 * the socket has taken the error; -EAGAIN, -ETIMEDOUT (the deadline, or the network gave up),
 * -ECANCELED: the socket goes on connecting, and a further gs_connect waits for the end of the
 * attempt; -EBADF; -EINVAL: addr is NULL; -EFAULT: addr can't be read. Goroutines and plain
 * threads. Go's internal/poll.FD.Connect.
 * May switch; not async-signal-safe.
 */
int gs_connect(int fd, const struct sockaddr *addr, uint32_t addrlen, gs_deadline deadline);

/**
 * Waits until a file has one of the given events of poll(2) (POLLIN, POLLOUT, POLLPRI, POLLRDHUP
 * and their kin), or POLLERR or POLLHUP. For libraries that read and write themselves. A blocking
 * file stays blocking.
 *
 * The file's events, above 0; -EAGAIN, -ETIMEDOUT, -ECANCELED, -EBADF as for gs_read; -EINVAL:
 * unknown events; -EPERM: the file has none of the events, and no call can wait for it, because it
 * is on a disk. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_poll_fd(int fd, int events, gs_deadline deadline);

/**
 * Gives the library a file that the caller has opened: a socket, a pipe or anything else that
 * poll(2) can wait for, already non-blocking. From then on only gs_close may close the file.
 * gs_adopt saves one system call for each wait, as for files that the library has opened (but not
 * in gs_poll_fd). The library forgets a former file with this number.
 *
 * 0; -EBADF: fd is not open; -EINVAL: the file is blocking; -EPERM: the file is on a disk, so no
 * call can wait for it; -EBUSY: a call waits for the file now; -ENOMEM. After an error nothing has
 * changed. Any thread.
 * May switch; not async-signal-safe.
 */
int gs_adopt(int fd);

/**
 * Closes a file. All calls that wait for it return -ECANCELED, and never use the next file with
 * this number. Other goroutines run while close(2) waits for a disk or for SO_LINGER; the number
 * is free by then.
 *
 * 0; -EBADF: fd is not open, or is being closed; else the error of close(2), and the file is
 * closed nevertheless. Any thread. Go's internal/poll.FD.Close.
 * May switch; not async-signal-safe.
 */
int gs_close(int fd);

/**
 * Makes a TCP socket that listens on a port (0: the system chooses one). host: a name or an
 * address; NULL or "": all addresses of the machine, IPv6 and IPv4. backlog: connections that may
 * wait to be accepted (0 or less: as many as the system allows). The socket has SO_REUSEADDR and
 * TCP_NODELAY, is non-blocking and close-on-exec, and is the caller's. Looking up a name may take
 * a while.
 *
 * The socket; -EADDRINUSE and other errors of bind(2); if the host is not known an error of
 * gs_getaddrinfo's, whose code gs_eai gives; -ECANCELED: during the look-up; -EMFILE, -ENFILE.
 * Goroutines and plain threads. Go's net.Listen.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_tcp_listen(const char *host, uint16_t port, int backlog);

/**
 * Connects a TCP socket to a port of a host, given by a name or an address. The addresses of a
 * name are tried in turn until one answers; each has its share of the time until the deadline, and
 * 2 s at least. The socket has TCP_NODELAY, is non-blocking and close-on-exec, and is the
 * caller's.
 *
 * The socket; -ECONNREFUSED and other errors of connect(2); if the host is not known an error of
 * gs_getaddrinfo's, whose code gs_eai gives; -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket;
 * -EINVAL: host is NULL. Goroutines and plain threads. Go's net.Dial.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_tcp_connect(const char *host, uint16_t port, gs_deadline deadline);

/**
 * Makes a UDP socket that receives at a port (0: the system chooses one), for gs_recvfrom and
 * gs_sendto. host: a name or an address; NULL or "": all addresses of the machine, IPv6 and IPv4.
 * The socket is non-blocking and close-on-exec, and is the caller's. Looking up a name may take a
 * while.
 *
 * The socket; -EADDRINUSE and other errors of bind(2); if the host is not known an error of
 * gs_getaddrinfo's, whose code gs_eai gives; -ECANCELED: during the look-up; -EMFILE, -ENFILE.
 * Goroutines and plain threads. Go's net.ListenPacket.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_udp_bind(const char *host, uint16_t port);

/**
 * Makes a UDP socket that sends to a port of a host (a name or an address) with gs_send or
 * gs_write, and receives only from there. If no socket has that port, a later call, usually the
 * next, returns -ECONNREFUSED. Otherwise as gs_udp_bind. The deadline limits the look-up.
 *
 * The socket; errors of connect(2); if the host is not known an error of gs_getaddrinfo's, whose
 * code gs_eai gives; -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket; -EINVAL: host is NULL.
 * Goroutines and plain threads. Go's net.Dial.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_udp_connect(const char *host, uint16_t port, gs_deadline deadline);

/**
 * Makes a Unix stream socket that listens at a path in the file system or, given "@name", at one
 * of Linux's abstract names, which disappear with the socket. backlog as for gs_tcp_listen. The
 * socket is non-blocking and close-on-exec, and is the caller's. A path stays when the socket is
 * closed: unlink(2) it then, and also before the call if a process that has died may have left it.
 *
 * The socket; -EADDRINUSE: the path exists, whether a socket listens there or not, or the name is
 * taken; -ENAMETOOLONG: over 107 bytes, not counting the "@"; other errors of bind(2); -EINVAL:
 * path is NULL, "" or "@"; -EMFILE, -ENFILE. Goroutines and plain threads. Go's net.Listen.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_unix_listen(const char *path, int backlog);

/**
 * Connects a Unix stream socket to the socket that listens at a path, or at "@name" (see
 * gs_unix_listen). Waits while the listener's backlog is full. The socket is non-blocking and
 * close-on-exec, and is the caller's.
 *
 * The socket; -ECONNREFUSED: the path exists, but no socket listens there; -ENOENT: the path
 * doesn't exist; other errors of connect(2); -EAGAIN, -ETIMEDOUT, -ECANCELED: no socket;
 * -ENAMETOOLONG, -EINVAL as for gs_unix_listen. Goroutines and plain threads. Go's net.Dial.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_unix_connect(const char *path, gs_deadline deadline);

/**
 * Makes two Unix stream sockets that are connected to each other, fds[0] and fds[1]:
 * socketpair(2). Both are non-blocking and close-on-exec, and are the caller's.
 *
 * 0; -EMFILE, -ENFILE, -ENOMEM: fds is as before; -EINVAL: NULL. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_unix_pair(int *fds);

/**
 * open(2), while other goroutines run. The file is close-on-exec. Opening a named pipe may wait
 * for the pipe's other end for ever: neither the deadline nor gs_cancel ends the open once it has
 * begun. With GS_NOWAIT the file is opened with O_NONBLOCK, so the open doesn't wait. mode is used
 * only with O_CREAT and O_TMPFILE.
 *
 * The file, which is the caller's; -ETIMEDOUT: the deadline had passed before; -EINVAL: path is
 * NULL; else the error of open(2), but never -EINTR. Goroutines and plain threads. Go's
 * os.OpenFile.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK int gs_open(const char *path, int flags, mode_t mode, gs_deadline deadline);

/**
 * Writes a file's data to the disk, while other goroutines run: fsync(2). The deadline ends only
 * the wait for a turn, as for gs_pread.
 *
 * 0; -EAGAIN, -ETIMEDOUT, -ECANCELED: not begun; -EBADF; else the error of fsync(2). Go's
 * os.File.Sync.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_fsync(int fd, gs_deadline deadline);

/**
 * gs_fsync without metadata that reading the data doesn't need: fdatasync(2).
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_fdatasync(int fd, gs_deadline deadline);

/**
 * Copies up to n bytes from a file on a disk to another file, mostly a socket, within the kernel:
 * sendfile(2). May copy fewer; never raises SIGPIPE. *offset: where the copy begins, and after the
 * call where it ended; NULL: the file's own position. out_fd is made non-blocking. If gs_close
 * closes in_fd, the copy ends with -ECANCELED when its wait for out_fd is over.
 *
 * The number of bytes, 0 at the end of in_fd; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing copied;
 * -EPIPE: the reading end is closed; -EINVAL: the system can't copy between these, or n is too
 * large; -EBADF; else the error of sendfile(2). Goroutines and plain threads. Go's io.Copy uses
 * it.
 * May switch; not async-signal-safe.
 */
ssize_t gs_sendfile(int out_fd, int in_fd, off_t *offset, size_t n, gs_deadline deadline);

/**
 * Moves up to n bytes between two files, of which one is a pipe, within the kernel: splice(2),
 * with its flags. May move fewer; never raises SIGPIPE. The offsets: as for gs_sendfile; NULL for
 * a pipe. Both files are made non-blocking. With SPLICE_F_NONBLOCK the call doesn't wait. The call
 * waits for one file at a time: if gs_close closes the other file, the call ends with -ECANCELED
 * when that wait is over.
 *
 * The number of bytes, 0 at the end of fd_in; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing moved;
 * -EPIPE, -EBADF; -EINVAL: neither is a pipe, or n is too large; else the error of splice(2).
 * Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
ssize_t gs_splice(int fd_in,
                  off_t *off_in,
                  int fd_out,
                  off_t *off_out,
                  size_t n,
                  unsigned int flags,
                  gs_deadline deadline);

/**
 * Reads from a file on a disk at an offset, as pread(2). Data in memory is read at once. For other
 * data, and always with O_DIRECT, other goroutines run meanwhile. At most 64 calls read or write
 * files on disks at a time: the deadline ends only the wait for a turn.
 *
 * The number of bytes, short only at the end of the file, with GS_NOWAIT, or where a cancel, the
 * deadline or an error ends the call after a part; -EAGAIN, -ETIMEDOUT, -ECANCELED: nothing read;
 * -EINVAL: buf is NULL, or the offset is negative; -EBADF; else the error of pread(2).
 * Goroutines and plain threads. Go's os.File.ReadAt.
 * May switch; not async-signal-safe.
 */
ssize_t gs_pread(int fd, void *buf, size_t n, off_t offset, gs_deadline deadline);

/**
 * Writes to a file on a disk at an offset, as pwrite(2), while other goroutines run.
 *
 * The number of bytes; errors as gs_pread and pwrite(2). Goroutines and plain
 * threads. Go's os.File.WriteAt.
 * May switch; not async-signal-safe.
 */
ssize_t gs_pwrite(int fd, const void *buf, size_t n, off_t offset, gs_deadline deadline);

/**
 * getaddrinfo(3), while other goroutines run. *res is the caller's, to be freed with
 * freeaddrinfo(3). node or service may be NULL, but not both; hints may be NULL. With GS_NOWAIT
 * node may be an address, but not a name.
 *
 * 0; else *res is NULL, and the result is a negative errno value: -ETIMEDOUT, -EAGAIN, -ECANCELED,
 * -ENOMEM (also for EAI_MEMORY), -EINVAL if res is NULL, errno's value for EAI_SYSTEM; or the
 * result stands for one of getaddrinfo's own codes, which gs_eai(r) gives: EAI_NONAME, EAI_AGAIN
 * and so on. gs_strerror explains all of them. Goroutines and plain threads. Go's
 * net.Resolver.LookupHost.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK
int gs_getaddrinfo(const char *node,
                   const char *service,
                   const struct addrinfo *hints,
                   struct addrinfo **res,
                   gs_deadline deadline);

/**
 * The EAI_ code (of netdb.h, for gai_strerror(3)) that a result of gs_getaddrinfo stands for; 0 if
 * the result is 0 or a negative errno value.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
int gs_eai(int r);

/**
 * Returns the caller's latest result of gs_getaddrinfo. The caller is a goroutine or a plain
 * thread. Kept for programs that were written when gs_getaddrinfo did not yet return all of its
 * errors.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_last_error(void);

/* ---- System calls and threads ---- */

/**
 * Announces a system call that may block: until gs_exitsyscall other goroutines may use the
 * caller's P. In between the thread counts as a plain thread: a function of this library that
 * blocks then blocks the thread. Nests. Does nothing on a plain thread. 0. Go's entersyscall.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_entersyscall(void);

/**
 * gs_entersyscall for a call that is sure to block for long: the goroutine gives its P up at once.
 * Ended by gs_exitsyscall, too. 0. Go's entersyscallblock.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_entersyscallblock(void);

/**
 * Ends gs_entersyscall: the goroutine goes on when it has a P again. If all P's are busy, a
 * goroutine that computes little between its calls, and doesn't use the library there, goes on
 * without a P, as a thread does. So for some us more than GOMAXPROCS goroutines run; never in
 * cooperative mode, nor while the world is stopped. errno stays as it is. 0, on a plain thread
 * always; -EPERM: there was no gs_entersyscall (nothing has changed). Go's exitsyscall.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_exitsyscall(void);

/**
 * Makes system call number nr, announced as by gs_entersyscall, with up to six arguments, each a
 * long or a pointer. errno stays as it is. Not for calls that make or end a thread or process
 * (clone, vfork, exit), or that concern the thread: the goroutine may be on another thread
 * afterwards.
 *
 * The result of the system call: a negative errno value if it fails, -EINTR included.
 * Goroutines and plain threads. Go's syscall.Syscall6.
 * May switch; not async-signal-safe.
 */
long gs_syscall(long nr, ...);

/**
 * waitpid(2), while other goroutines run. pid, status (or NULL) and options (WNOHANG, WUNTRACED,
 * WCONTINUED) are those of waitpid(2). If pid is the number of one child, and Linux has pidfd_open
 * (5.3), the network poller waits for the child: the call has a file descriptor of its own while
 * it waits. Otherwise (-1, a group, options) gs_waitpid polls, at intervals that grow to 10 ms.
 *
 * The child's pid; 0: WNOHANG is set and no child has changed; -EAGAIN, -ETIMEDOUT, -ECANCELED: no
 * child has changed so far; -ECHILD: there is no such child, or another caller has waited for it;
 * -EINVAL: an unknown option. Goroutines and plain threads. Go's os.Process.Wait.
 * May switch; not async-signal-safe.
 */
pid_t gs_waitpid(pid_t pid, int *status, int options, gs_deadline deadline);

/**
 * Takes a signal of a set (a const sigset_t *) that was sent to the process, and fills in *info (a
 * siginfo_t *) unless info is NULL: sigtimedwait(2), by a signalfd(2), which is a file descriptor
 * of the call's own while it waits. As for sigtimedwait, the signals must be blocked in every
 * thread: block them (pthread_sigmask) at the beginning of main, before any other thread starts
 * and before the first call of this library. The library's own threads block all signals. A signal
 * that was sent to one thread (raise, pthread_kill) is seen on that thread only, so use
 * kill(getpid(), ...) and the like. Several callers may wait: each signal goes to one of them.
 *
 * The signal's number; -EAGAIN, -ETIMEDOUT, -ECANCELED: no signal has come; -EINVAL: the set is
 * NULL or empty, or has the signal that preempts goroutines (SIGURG, or GOSCHED_PREEMPT_SIGNAL);
 * -EMFILE, -ENFILE, -ENOMEM. Goroutines and plain threads. Go's signal.Notify.
 * May switch; not async-signal-safe.
 */
int gs_signal_wait(const void *set, void *info, gs_deadline deadline);

/**
 * Calls f(arg) on the thread's own stack (8 MiB as a rule) with the P given up: the way to call a
 * deep or blocking C function from a goroutine. In f the thread counts as a plain thread, but
 * gs_self is the goroutine. Returns f's result, with errno as f left it; NULL if f is NULL. On a
 * plain thread gs_blocking just calls f. If all P's are busy afterwards, the goroutine may go on
 * without a P, as after gs_exitsyscall.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void *gs_blocking(void *(*f)(void *arg), void *arg);

/**
 * Locks the goroutine to this thread: it stays here, and no other goroutine runs here, except that
 * goroutines pinned to the thread run while this goroutine is parked. If the goroutine ends while
 * locked, the thread ends too (unless it is the thread that called gs_run, or other goroutines are
 * pinned to it). Nests. 0. Go's LockOSThread.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_lock_os_thread(void);

/**
 * Undoes one gs_lock_os_thread. 0; -EPERM: the thread isn't locked. Go's UnlockOSThread.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_unlock_os_thread(void);

/**
 * Sets how many goroutines run at the same time, at most GS_MAX_PROCS, and returns the former
 * number; n <= 0 only asks. All goroutines stop for a moment. The number stays, whatever becomes of
 * the affinity mask and the cgroup's quota. -EINVAL: n is too large; -EDEADLK: the caller has
 * stopped the world; -ENOMEM: the number is as before. Also -ENOMEM, -EAGAIN if the runtime can't
 * be started (see gs_init). Goroutines and plain threads. Go's GOMAXPROCS.
 * May switch; not async-signal-safe.
 */
int gs_gomaxprocs(int n);

/**
 * Sets GOMAXPROCS to its default, from the affinity mask and the cgroup's quota as they are now,
 * and returns the former number. From then on GOMAXPROCS follows both again, unless
 * GS_CONFIG_FIXED_PROCS or GOSCHED_DEBUG=updatemaxprocs=0 forbids that. The calling thread reads
 * files. Errors as for gs_gomaxprocs. Goroutines and plain threads. Go's SetDefaultGOMAXPROCS.
 * May switch; not async-signal-safe.
 */
int gs_set_default_gomaxprocs(void);

/**
 * Sets how many threads the library may start to run goroutines, and returns the former number; n
 * <= 0 only asks. Threads that call gs_run don't count. At the limit goroutines wait for a thread;
 * a warning says so once. With a limit of 1 there are two threads while a goroutine has locked the
 * first. Threads above a lowered limit stay. Each goroutine that is preempted by a signal, or
 * blocks its thread, keeps one thread. -ENOMEM, -EAGAIN: the runtime can't be started (see
 * gs_init). Go's debug.SetMaxThreads.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_set_max_threads(int n);

/**
 * Writes the thread ids (gettid(2)) of the threads that the library has started and not joined yet
 * to ids, which has room for n. Returns the number of threads, maybe more than n. Threads that
 * call gs_run or gs_attach are not among them. Waits for threads that are being started. So a
 * program can tell its own threads in /proc/self/task from those of the library: before it forks,
 * for instance. -EINVAL: ids is NULL, and n isn't 0. Goroutines and plain threads; never switches.
 * Not async-signal-safe.
 */
int gs_own_threads(int32_t *ids, size_t n);

/* ---- For embedders: runtimes, interpreters, garbage collectors ---- */

/**
 * Parks the goroutine until gs_ready wakes it. When the goroutine is at rest, the library calls
 * commit(g, arg) on another stack, unless commit is NULL. commit releases the lock of the data in
 * which callers of gs_ready find g; it must not block. If commit returns false, the goroutine goes
 * on at once. The goroutine stays at rest until commit has returned, even if it is woken or
 * cancelled meanwhile. g is valid until the goroutine ends; to keep it longer, call gs_retain.
 * With GS_NOWAIT, with a deadline that has passed, or if the goroutine was cancelled before,
 * commit is not called.
 *
 * 0: woken; -EAGAIN, -ETIMEDOUT, -ECANCELED. A plain thread blocks until the deadline (commit gets
 * NULL). Go's gopark.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_park(bool (*commit)(struct gs_g *g, void *arg), void *arg, gs_deadline deadline);

/**
 * Wakes a goroutine that is in gs_park. 0; -EINVAL: the goroutine isn't in gs_park, or g is NULL.
 * If several callers wake it at once, only one of them gets 0. Goroutines and plain threads. Go's
 * goready.
 * May switch; not async-signal-safe.
 */
int gs_ready(struct gs_g *g);

/**
 * Stops all goroutines but the caller: when gs_stop_the_world returns, each goroutine is at rest
 * until gs_start_the_world. The signal stops goroutines that compute, and goroutines that wait for
 * a page of memory: these don't go on when the page is there. A goroutine in a system call counts
 * as at rest. When the call returns, the goroutine is stopped: within a few ms if the call was not
 * announced, in gs_exitsyscall if it was. Goroutines with GS_SPAWN_NOPREEMPT, or within
 * gs_preempt_disable, are waited for. The caller must not block meanwhile, nor end; gs_run,
 * gs_attach, gs_gomaxprocs and gs_shutdown give -EDEADLK. The caller keeps its P in
 * gs_entersyscall and gs_blocking.
 *
 * Unlike functions that may switch, gs_stop_the_world returns on the caller's thread, and no other
 * goroutine runs there until the caller has started the world again. So a collector may call it in
 * the middle of an allocation from lists that belong to the thread.
 *
 * 0; -EDEADLK: the caller has stopped the world already. Goroutines and plain threads; several
 * callers take turns. Go's stopTheWorld.
 * Not async-signal-safe.
 */
int gs_stop_the_world(void);

/**
 * Lets the goroutines run again. Unlike functions that may switch, gs_start_the_world returns on
 * the caller's thread. If others wait for the caller's P, the caller is preempted there first.
 *
 * 0; -EPERM: the caller has not stopped the world. Go's startTheWorld.
 * Goroutines and plain threads; not async-signal-safe.
 */
int gs_start_the_world(void);

/**
 * Fills in *info for a goroutine that need not be stopped: all but its stack, sp and regs, which
 * are NULL. size: sizeof(gs_g_info); a library that knows fewer fields sets the rest to 0. The
 * information is a snapshot that may be out of date at once, so it serves for reports only.
 * info.name is valid as long as the caller's reference or, if g is the caller, as long as the
 * goroutine.
 *
 * 0; -EINVAL: g or info is NULL, or size is below that of the first release. Goroutines and
 * plain threads.
 * Never switches; not async-signal-safe.
 */
int gs_g_info_read(const struct gs_g *g, struct gs_g_info *info, size_t size);

/**
 * Copies the goroutine's name (gs_spawn_opts.name), "" if it has none, into buf, which has room
 * for size bytes. The copy is cut if need be, and ends with a NUL. With size 0 buf may be NULL.
 *
 * The length of the whole name; -EINVAL: g or buf is NULL. Goroutines and plain threads.
 * Never switches; not async-signal-safe.
 */
int gs_name(const struct gs_g *g, char *buf, size_t size);

/**
 * Calls visit(info, ctx) for each goroutine, the caller and those that have not run yet included.
 * Every pointer that a goroutine holds is on its stack, from info.sp to info.stack_hi, or in
 * info.regs. The exception is a function that gs_blocking runs: its frames are on the thread's own
 * stack. To read the registers of a goroutine in a system call, the library stops its thread with
 * the preemption signal until gs_start_the_world: calls that Linux doesn't restart (poll,
 * nanosleep, ...) fail with EINTR. Without that signal (GOSCHED_PREEMPT_SIGNAL=0) these registers
 * can't be read. info is valid only during visit, which must not call this library. 0; -EPERM: the
 * caller has not stopped the world; -EINVAL: visit is NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_foreach_g(void (*visit)(const struct gs_g_info *info, void *ctx), void *ctx);

/**
 * Writes the state and the backtrace of every goroutine to the file descriptor fd, in the shape of
 * Go's tracebacks: its id, its state or what it waits for and since when, its node, whether it has
 * locked its thread, its name; its functions, the innermost first, with file, line and offset in
 * the function; and the call that spawned it. Goroutines that have not begun have the id 0.
 *
 * Functions that are not exported, lines and inlined functions need debug information (gcc -g), in
 * the object or under /usr/lib/debug. Of this library's own frames only the function that was
 * called is shown; GOSCHED_DEBUG=allframes=1 shows all. Code without unwind tables (.eh_frame, as
 * most compilers emit it) is followed by frame pointers, or ends the backtrace. The text is for
 * people, and its form may change.
 *
 * The world is stopped while this information is copied, so gs_dump waits as gs_stop_the_world
 * does, and takes registers as gs_foreach_g does: goroutines that run, or block their thread
 * without having announced it, have backtraces too. The text is made and written after that, so
 * fd may be a pipe that a goroutine reads.
 *
 * 0; a negative errno value of write(2), -ENOMEM. Goroutines and plain threads, with the world
 * stopped by the caller or not; may switch goroutines; not from a signal handler. Go's traceback.
 * Not async-signal-safe.
 */
int gs_dump(int fd);

/**
 * Does what gs_dump does, for tools: writes one JSON object. Its field "goroutines" is an array of
 * objects with id, name, state ("waiting", "running", "runnable", "syscall"), wait_reason,
 * wait_ns, node, locked, creator (id, function, file, line, offset, module, pc; null: the library),
 * frames (function, file, line, offset, module, pc, inlined) and cut (there are more frames). What
 * is not known is null, or 0 for line and offset. Fields may be added.
 *
 * As gs_dump.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_dump_json(int fd);

/**
 * Does what gs_dump does, as a profile of pprof (profile.proto, not compressed): how many
 * goroutines have each backtrace, with the labels state, reason and name. go tool pprof shows it.
 * Go's goroutine profile.
 *
 * As gs_dump.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_dump_pprof(int fd);

/**
 * Writes a report of the leaked goroutines to fd. A goroutine is leaked if it waits, without a
 * deadline, for an object (a channel, a mutex, the end of a goroutine, ...) to which nothing refers
 * that may run again: no memory of the process, no register of a thread, and no stack but those of
 * other leaked goroutines. The report shows each goroutine's backtrace; goroutines that wait alike
 * are shown once.
 *
 * Every word that could be a pointer counts as one: to the channel, or to anywhere in the block of
 * malloc that the object lies in. So what is reported is leaked, unless the program hides its
 * pointers (in a file, in the kernel, or encoded). What isn't reported may be leaked nevertheless:
 * docs/observability.md says when.
 *
 * All threads stand still meanwhile, about 2 s for 1 GB of memory: goroutines as by gs_stop_the_world,
 * plain threads by the preemption signal, so calls that Linux doesn't restart (poll, nanosleep, ...)
 * fail with EINTR. GOSCHED_DEBUG=leaks=1 writes the report to standard error when the process
 * exits.
 *
 * The number of leaked goroutines; -EBUSY: a thread blocks the preemption signal, or there is none
 * (GOSCHED_PREEMPT_SIGNAL=0), so its registers can't be read; -EDEADLK: the caller has stopped the
 * world; -EPERM: in a bubble (gs_test_run), where a deadlock tells; -EBADF; -ENOMEM; a negative
 * errno value of write(2), or of a file of /proc. Goroutines and plain threads; may switch
 * goroutines; not from a signal handler.
 * Not async-signal-safe.
 */
int gs_leaks(int fd);

/**
 * Sets a deadlock handler: when all goroutines wait and nothing can wake any of them, a thread of
 * the library calls f(ctx) instead of reporting the deadlock and aborting. NULL restores report
 * and abort. f must not block nor end the runtime. When f returns, the runtime goes on waiting,
 * and calls f again only after something has run. 0.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_set_deadlock_handler(void (*f)(void *ctx), void *ctx);

/**
 * Takes a hold: until gs_unhold the library reports no deadlock when all goroutines wait. For
 * wake-ups that the library can't foresee: from another process, a signal handler, or an event
 * loop that is not a thread of this process. Holds nest, and all threads share one count. The
 * child of a fork has none. 0. Goroutines, plain threads and signal handlers; never switches.
 */
int gs_hold(void);

/**
 * Gives a hold back. 0; -EPERM: there is none. Goroutines and plain threads; never switches.
 * Not async-signal-safe.
 */
int gs_unhold(void);

/**
 * Sets a log function: the library calls f(ctx, line) with each line that it would write to
 * standard error (warnings, the report of a deadlock), without the newline. line is valid only
 * during the call. NULL: standard error again. f is called on any thread, and by several threads
 * at once; it must neither block nor call this library. The report of a stack overflow goes to
 * standard error in any case: it is made in a signal handler. 0. Goroutines and plain threads;
 * never switches.
 * Not async-signal-safe.
 */
int gs_set_log(void (*f)(void *ctx, const char *line), void *ctx);

/**
 * Gives way if the goroutine is asked to. Costs two loads and a branch: for the back-edges of
 * loops that call nothing else of the library.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_preempt_check(void);

/**
 * Does what gs_preempt_check does, always by a call: before gs_preempt_check this header tests
 * inline whether a call is needed.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_preempt_now(void);

/**
 * Returns the address of a word that is not 0 while some goroutine is asked to give way. For
 * programs that load the library with dlopen(3), and for compilers of other languages: look up
 * gs_preempt_flag and gs_preempt_check with dlsym(3), call gs_preempt_flag once, and then, in
 * loops, gs_preempt_check whenever the word isn't 0. The address stays valid until the process
 * ends. Only the library writes the word.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
const uint32_t *gs_preempt_flag(void);

/**
 * Disables preemption of the goroutine, by the signal and at calls that don't block, until
 * gs_preempt_enable. The goroutine keeps its P even if it blocks its thread. If its P has been
 * taken, the call first waits for a P, on this thread. The warning at GS_SPAWN_NOPREEMPT about
 * locks, malloc(3)'s included, applies meanwhile. Nests. Does nothing on a plain thread.
 * Goroutines and plain threads; never switches; not async-signal-safe.
 */
void gs_preempt_disable(void);

/**
 * Undoes one gs_preempt_disable. Does nothing if preemption isn't disabled.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_preempt_enable(void);

/* ---- Hooks for runtimes that keep state for each thread and each goroutine ---- */

/**
 * Sets the hooks of this process, which are copied, in place of the former hooks; NULL removes
 * them. Call it before the runtime starts if possible: a thread that runs already changes to the
 * new hooks, with thread_stop and thread_start, when it next chooses a goroutine, and at the
 * latest when it ends. So ctx and the functions of hooks that were replaced must stay valid until
 * gs_shutdown has returned.
 *
 * Hooks add about 30 ns to a switch, and switch_in about as much as a system call.
 *
 * 0; -EINVAL: size is wrong, or a field is set that this version doesn't know; -ENOMEM.
 * Goroutines and plain threads; not from a hook, nor from a signal handler. May switch.
 * Not async-signal-safe.
 */
int gs_set_hooks(const struct gs_hooks *hooks);

/**
 * Adds a function that gives the frames of an interpreter, as gs_hooks.frames does, for the
 * goroutines that are spawned with the function entry; entry NULL: for goroutines of threads that
 * have called gs_attach. It is asked before gs_hooks.frames. For modules of interpreters: several
 * may be in one process, beside an embedder with hooks, and unlike hooks this makes no switch
 * slower. It cannot be undone, so frames must stay.
 *
 * frames is also called for a goroutine that the caller is about to spawn with entry: if it gives
 * the function that the goroutine will call as the only frame, traces name the goroutine by that.
 *
 * 0, also if it was added before; -EINVAL: frames is NULL; -ENOMEM: there are 16 already.
 * Goroutines and plain threads. Never switches.
 * Not async-signal-safe.
 */
int gs_add_frames(void (*entry)(void*), gs_frames_hook frames, void *ctx);

/**
 * Returns the embedder's word of a goroutine: the value of gs_set_data, else gs_spawn_opts.data,
 * else NULL. g: a hook's argument, a reference, or gs_self(). NULL for NULL. Goroutines, plain
 * threads, hooks and signal handlers; never switches.
 */
void *gs_data(const struct gs_g *g);

/**
 * Sets the embedder's word of a goroutine. The library never follows it. 0; -EINVAL: g is NULL.
 * Callers: as for gs_data.
 * Goroutines and plain threads; never switches; async-signal-safe.
 */
int gs_set_data(struct gs_g *g, void *data);

/* ---- Gangs ---- */

/**
 * Makes a gang without members.
 *
 * A reference, to be given back with gs_gang_free. NULL: no memory. Goroutines and plain
 * threads.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK struct gs_gang *gs_gang_create(void);

/**
 * Gives the reference back: no goroutine can be added any more. The members stay a gang until they
 * have ended. Does nothing for NULL.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_gang_free(struct gs_gang *gang);

/**
 * Starts f(arg) as a goroutine that is a member of the gang until it ends. A goroutine that a
 * member spawns with gs_spawn is not a member. opts and out are those of gs_spawn_with; a member
 * must have priority GS_PRIO_NORMAL and node -1, because it runs where its gang does.
 *
 * 0; -EINVAL: gang or f is NULL, or an option is unknown, out of its range, or not for
 * members; -ENOMEM. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_gang_spawn(struct gs_gang *gang,
                  gs_fn f,
                  void *arg,
                  const struct gs_spawn_opts *opts,
                  struct gs_g **out);

/* ---- NUMA nodes ---- */

/**
 * Returns the number of NUMA nodes with CPUs that this process may use; at least 1. As with any
 * function here, -ENOMEM or -EAGAIN if the runtime can't be started (see gs_init). Each process
 * numbers the nodes in an order of its own, so that not all processes fill the same node first.
 * Goroutines and plain threads. seed: N10.
 * May switch; not async-signal-safe.
 */
int gs_numa_nodes(void);

/**
 * Returns the node that the caller runs on. A goroutine may be on another node after any call that
 * can switch, a plain thread at any time.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_numa_node(void);

/**
 * Returns the distance of node b's memory from node a's CPUs, in the system's scale: 10 is a
 * node's own memory; at 20 an access takes twice as long. -EINVAL: there is no such node.
 * Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_numa_distance(int a, int b);

/**
 * Gets the CPUs of a node that this process may use, as a mask like sched_getaffinity(2)'s: bit c
 * % 8 of byte c / 8 is CPU c. All size bytes of set are written; set may be NULL with size 0, to
 * ask for the number only. On a synthetic machine the CPUs are made up.
 *
 * How many CPUs the node has; -EINVAL: there is no such node, or size is too small.
 * Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_numa_cpus(int node, size_t size, void *set);

/**
 * Gets the CPUs that the calling thread may use while the library doesn't bind it to a node: its
 * own when it called gs_run or, for a thread that the library has started, the process's when the
 * runtime started. Threads and programs that a goroutine starts inherit the binding, unless they
 * get this set: by pthread_attr_setaffinity_np(3), or by sched_setaffinity(2) in the child. set
 * and size as in gs_numa_cpus.
 *
 * The number of CPUs; 0: the calling thread isn't bound (as on a machine with one node, or while a
 * goroutine locks it), so its children inherit the right CPUs, and set is left as it is; -EINVAL:
 * size is too small. Goroutines and plain threads.
 * Never switches; not async-signal-safe.
 */
int gs_numa_unbound_cpus(size_t size, void *set);

/**
 * Allocates size bytes, zeroed, at the start of a page. policy: GS_NUMA_LOCAL, GS_NUMA_STRIPE or
 * the number of a node. If that node has no memory left, the memory comes from another node. On a
 * synthetic machine, and with one node, policies make no difference.
 *
 * For large blocks: each call makes one or two system calls. NULL: size is 0, policy is none of
 * these, or there is no memory. Free the memory with gs_numa_free. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
GS_MUST_CHECK void *gs_numa_alloc(size_t size, int policy);

/**
 * Frees memory that gs_numa_alloc has returned for this size; does nothing for NULL.
 * From anywhere, also after gs_shutdown.
 * May switch; not async-signal-safe.
 */
void gs_numa_free(void *p, size_t size);

/* ---- Statistics ---- */

/**
 * Reads the statistics of the whole runtime; all are 0 without a runtime. The counters change
 * while they are read, so sums may be off by a few. 0; -EINVAL: NULL, or size is too small.
 * Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int gs_stats_read(struct gs_stats *out);

/**
 * gs_stats_read of one node. -EINVAL also: there is no such node, or no runtime.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_stats_node(int node, struct gs_stats *out);

/**
 * Returns how often P's of a node have stolen work from the queue or the P's of node from. If both
 * are one node: how often its P's have stolen from each other. -EINVAL: there is no such node, or
 * no runtime. Goroutines and plain threads.
 * May switch; not async-signal-safe.
 */
int64_t gs_stats_steals(int node, int from);

/**
 * Writes the statistics to the file descriptor fd as OpenMetrics text, which a Prometheus server
 * reads (content type application/openmetrics-text; version=1.0.0). Metrics that Go has too bear
 * the names that Prometheus's client for Go gives them, such as go_sched_goroutines_goroutines;
 * others begin with gosched_. Each node has its lines. The world is not stopped. Without a runtime
 * only the metrics that Go has too are written, and are 0.
 *
 * 0; a negative errno value of write(2), -ENOMEM. Goroutines and plain threads. Go's
 * runtime/metrics.
 * May switch; not async-signal-safe.
 */
int gs_stats_write(int fd);

/* ---- Traces of events ---- */

/**
 * Begins to write an event trace to the file descriptor fd, in the format of Go's execution
 * tracer ("go 1.26 trace"), which `go tool trace` and gosched-trace read. The trace shows all
 * goroutines, when each ran on which P, what it waited for and who woke it, system calls and
 * stacks. fd stays open until gs_trace_stop has returned; it may be a file, a pipe or a socket,
 * which a thread of the library writes. There need be no runtime yet: a trace lasts over
 * gs_shutdown and gs_init. The world is stopped for a moment.
 *
 * 0; -EBUSY: a trace is being written already, whatever fd is; -EBADF; -EAGAIN, -ENOMEM: the system
 * gives no thread; -EDEADLK: the caller has stopped the world. Call it with -1 before you empty a
 * file for a trace: if a trace goes on, it may be in that file. Goroutines and plain threads;
 * may switch goroutines. Go's trace.Start.
 * Not async-signal-safe.
 */
int gs_trace_start(int fd);

/**
 * Ends the trace, and returns when all of it is written. 0; -EINVAL: there is no trace; -EBUSY:
 * another thread starts or ends one; -ENOBUFS: the trace has ended before, because its reader was
 * so slow that 256 MiB waited to be written; -ENOMEM: the trace has ended before for lack of
 * memory; a negative errno value of write(2), after which the trace has ended; -EDEADLK: the
 * caller has stopped the world. Goroutines and plain threads; may switch goroutines. Go's
 * trace.Stop.
 * Not async-signal-safe.
 */
int gs_trace_stop(void);

/**
 * Begins to keep the events of at least the last ns nanoseconds in memory, in parts of about a
 * second, at most 64 MiB. 0; -EBUSY: events are kept already; -EINVAL: ns is not positive; else as
 * gs_trace_start. Goroutines and plain threads; may switch goroutines. Go's
 * trace.FlightRecorder.
 * Not async-signal-safe.
 */
int gs_flight_start(int64_t ns);

/**
 * Keeps events no longer, and forgets those that were kept. 0; -EINVAL: no events are kept;
 * -EBUSY; -EDEADLK as gs_trace_stop. Goroutines and plain threads; may switch goroutines.
 * Not async-signal-safe.
 */
int gs_flight_stop(void);

/**
 * Writes the events that are kept to fd as a trace, and goes on keeping events. 0; -EINVAL: no
 * events are kept; -EBUSY: another thread writes them, or starts or ends a trace; -EBADF; a
 * negative errno value of write(2); -EDEADLK as gs_trace_stop. Goroutines and plain threads; may
 * switch goroutines.
 * May switch; not async-signal-safe.
 */
int gs_flight_write(int fd);

/* ---- Tests of concurrent code: runs that can be had again ---- */

/**
 * Runs f(arg) and all goroutines that come of it in a bubble: on the calling thread alone, in an
 * order that opts->seed decides, with a virtual clock. Returns when all of them have ended.
 *
 * A bubble has its own time: gs_now and all deadlines, sleeps, timers and tickers of its goroutines
 * begin at one second, and stand still while a goroutine can run. When all wait, the clock jumps to
 * the next deadline. Each call of a function of the library is a step, before which another
 * goroutine may go on. So the same seed gives the same run, as long as nothing else has a say: no
 * thread, no other clock, no file that another process writes. Goroutines of a bubble and others
 * must not wake each other; if they do, the run ends with -EPERM. While a goroutine waits for a
 * file, the clock of its bubble goes as the real one does.
 *
 * If a run doesn't end well, a report goes to standard error; goroutines that are left never run
 * again, and what they hold stays as it is. opts may be NULL.
 *
 * 0; -EDEADLK: all goroutines wait, and no timer is left; -ETIMEDOUT: max_steps; -EPROTO: the check
 * or gs_test_fail says that the run has failed; -EPERM: the bubble was disturbed, or
 * GS_TEST_STRICT; -EINVAL: f is
 * NULL, or an option is unknown; -EBUSY: the thread is in gs_run or attached, or the caller is a
 * goroutine; -EAGAIN: 64 threads do this already; -ENOMEM. Plain threads, with or without a runtime.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int gs_test_run(gs_fn f, void *arg, const struct gs_test_opts *opts);

/**
 * gs_test_run with runs seeds, from opts->seed on, until one of the runs fails. Then it looks for the
 * shortest schedule that fails, and prints it: as a list of the switches that it takes, and as a
 * string for opts->replay or GOSCHED_TEST=replay=STRING.
 *
 * The number of good runs, which is runs; or a negative errno value as gs_test_run. Plain threads,
 * with or without a runtime.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
int64_t gs_test_explore(gs_fn f, void *arg, const struct gs_test_opts *opts, uint64_t runs);

/**
 * Ends the bubble that the caller is in: gs_test_run returns -EPROTO, and the report says why. The
 * caller goes on no more. Outside of a bubble this does nothing. why may be NULL. Goroutines of a
 * bubble.
 * Goroutines and plain threads; may switch; not async-signal-safe.
 */
void gs_test_fail(const char *why);

/**
 * The seed of the bubble that the caller is in; 0: the caller is in none. Goroutines and plain
 * threads.
 * Never switches; not async-signal-safe.
 */
uint64_t gs_test_seed(void);

/* ---- Inline fast paths ---- */

#if defined(__GNUC__) && !defined(GS_NO_INLINE)
/*
 * The common cases, inlined into the caller: gs_mutex_lock, gs_mutex_trylock, gs_mutex_unlock and
 * the four functions of gs_rwmutex without contention, gs_once_do when it is done, gs_preempt_check.
 * All other cases call the function. With GS_NO_INLINE defined, and with other compilers, every case does; a name in
 * parentheses, such as (gs_mutex_lock), always means the function.
 *
 * This much of the objects' layout is part of the ABI. Words are those of 32 bits, little- or
 * big-endian as the machine.
 *
 * - gs_mutex, word 0: bit 0 is set while it is locked, bit 1 while others wait, bit 3 while it is
 *   handed over. Bits 0 and 3 clear: setting bit 0 (acquire) locks it. Bit 0 set and bit 1 clear:
 *   clearing bit 0 (release) unlocks it. All other bits stay as they are. opaque[1] says, as a hint,
 *   whether others wait (not 0). Then that exchange would fail, so it is not tried.
 * - gs_rwmutex, word 0: bit 0 is set while a writer has it, bit 1 while others wait; the bits from
 *   bit 2 on count the readers that have it. Bits 0 and 1 clear: adding 4 (acquire) locks it for
 *   reading. Bit 1 clear and at least one reader: subtracting 4 (release) undoes that. The word 0:
 *   setting bit 0 (acquire) locks it for writing. The word 1: clearing bit 0 (release) undoes that.
 * - gs_once, word 0: 2 when it is done (acquire). Then word 1: 0 when the library has left it.
 * - The word that gs_preempt_flag gives is not 0 while some goroutine is asked to give way.
 */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wold-style-cast" /* C has no other */
#pragma clang diagnostic ignored "-Wzero-as-null-pointer-constant" /* NULL is C's */
#endif

typedef uint32_t __attribute__((__may_alias__)) gs_word;

/* Whether some goroutine may be asked to give way. */
static inline bool gs_preempt_asked(void)
{
    static const uint32_t yes = 1;
    static const volatile uint32_t *flag = &yes; /* until it is looked up */
    const volatile uint32_t *f = __atomic_load_n(&flag, __ATOMIC_RELAXED);
    if (__builtin_expect(__atomic_load_n(f, __ATOMIC_RELAXED) == 0, 1))
        return false;
    __atomic_store_n(&flag, gs_preempt_flag(), __ATOMIC_RELAXED);
    return true;
}

static inline void gs_preempt_check_inline(void)
{
    if (gs_preempt_asked())
        gs_preempt_check();
}

GS_MUST_CHECK static inline int gs_mutex_trylock_inline(gs_mutex *m)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL, 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED); /* as in gs_mutex_lock_inline */
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_trylock(m);
}

static inline int gs_mutex_lock_inline(gs_mutex *m, gs_deadline deadline)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL && !gs_preempt_asked(), 1)) {
        /* Measured: the load costs nothing here, and a failing exchange as much as a successful exchange. */
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_lock(m, deadline);
}

static inline int gs_mutex_unlock_inline(gs_mutex *m)
{
    gs_word *word = (gs_word *)m, s;
    if (__builtin_expect(m != NULL, 1)) {
        s = 1; /* loading it first would take longer: the lock's exchange is mostly just over */
        if (__builtin_expect(__atomic_load_n(&m->opaque[1], __ATOMIC_RELAXED) == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(0), false,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_mutex_unlock(m);
}

static inline int gs_rwmutex_rlock_inline(gs_rwmutex *rw, gs_deadline deadline)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL && !gs_preempt_asked(), 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((s & 3) == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, s + 4, false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_rlock(rw, deadline);
}

static inline int gs_rwmutex_runlock_inline(gs_rwmutex *rw)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL, 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect((s & 2) == 0 && s >= 4, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, s - 4, false,
                                                            __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_runlock(rw);
}

static inline int gs_rwmutex_lock_inline(gs_rwmutex *rw, gs_deadline deadline)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL && !gs_preempt_asked(), 1)) {
        s = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (__builtin_expect(s == 0, 1)
            && __builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(1), false,
                                                            __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_lock(rw, deadline);
}

static inline int gs_rwmutex_unlock_inline(gs_rwmutex *rw)
{
    gs_word *word = (gs_word *)rw, s;
    if (__builtin_expect(rw != NULL, 1)) {
        s = 1; /* not loaded, as in gs_mutex_unlock_inline */
        if (__builtin_expect(__atomic_compare_exchange_n(word, &s, UINT32_C(0), false,
                                                         __ATOMIC_RELEASE, __ATOMIC_RELAXED), 1))
            return 0;
    }
    return gs_rwmutex_unlock(rw);
}

static inline int gs_once_do_inline(gs_once *o, gs_fn f, void *arg)
{
    const gs_word *word = (const gs_word *)o;
    if (__builtin_expect(o != NULL && f != NULL, 1)
        && __builtin_expect(__atomic_load_n(word, __ATOMIC_ACQUIRE) == 2, 1)
        && __atomic_load_n(word + 1, __ATOMIC_ACQUIRE) == 0)
        return 0;
    return gs_once_do(o, f, arg);
}

#ifdef __clang__
#pragma clang diagnostic pop
#endif

/* Variadic, because an argument in C++ may have commas that are not in parentheses. */
#define gs_preempt_check(...) gs_preempt_check_inline(__VA_ARGS__)
#define gs_mutex_trylock(...) gs_mutex_trylock_inline(__VA_ARGS__)
#define gs_mutex_lock(...) gs_mutex_lock_inline(__VA_ARGS__)
#define gs_mutex_unlock(...) gs_mutex_unlock_inline(__VA_ARGS__)
#define gs_rwmutex_rlock(...) gs_rwmutex_rlock_inline(__VA_ARGS__)
#define gs_rwmutex_runlock(...) gs_rwmutex_runlock_inline(__VA_ARGS__)
#define gs_rwmutex_lock(...) gs_rwmutex_lock_inline(__VA_ARGS__)
#define gs_rwmutex_unlock(...) gs_rwmutex_unlock_inline(__VA_ARGS__)
#define gs_once_do(...) gs_once_do_inline(__VA_ARGS__)
#endif

/* A program that calls gs_init or gs_run by these names passes the version of its header. */
#define gs_init(...) gs_init_for(GS_VERSION, __VA_ARGS__)
#define gs_run(...) gs_run_for(GS_VERSION, __VA_ARGS__)

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GOSCHED_H */
