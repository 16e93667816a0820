/*
 * What the files of the chaos program share. README.md says what the program does.
 *
 * An actor is a goroutine or a plain thread that does one random operation after another. Each file
 * has a table of operations (OPS_...), made of functions `static void op_NAME(struct actor *a)`.
 */
#ifndef CHAOS_H
#define CHAOS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gosched.h>

/* Lengths of time, in ns. */
#define US 1000LL
#define MS 1000000LL
#define SEC 1000000000LL

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))

struct actor {
    uint64_t rng;
    /* On the goroutine's stack, and nowhere else, while `live` is set: gs_foreach_g must show it. */
    uint64_t magic;
    /* Only in registers while `held` is set. */
    uint64_t held_magic;
    atomic_uchar held;
    atomic_bool live;
    atomic_bool used; /* this entry of the table of actors */
    bool go;          /* a goroutine, not a plain thread */
    bool pinned;      /* GS_SPAWN_PINNED */
    bool steady;      /* keeps its P even when it blocks: GS_SPAWN_NOPREEMPT, or a cooperative runtime */
    bool nopreempt;   /* GS_SPAWN_NOPREEMPT beside others that are preempted */
    bool locked;      /* inside gs_lock_os_thread */
    bool runner;      /* the function of a gs_run, on a thread of the host */
    int priority;
    int depth;        /* 0: lives as long as the round; else spawned by one of depth - 1 */
    int steps;        /* how many operations it does; 0: until the round ends */
    pid_t tid;        /* a pinned one's thread */
    /* For the report. */
    const char *_Atomic op;
    _Atomic int64_t since;
    atomic_long done;
};

struct op {
    const char *name;
    void (*f)(struct actor *a);
    int weight;
    int limits;
};

/* Who may do an operation. */
enum {
    GO_ONLY = 1,     /* goroutines */
    THREAD_ONLY = 2, /* plain threads */
    SHALLOW = 4,     /* those that live as long as the round: it makes further actors */
    YIELDS_P = 8,    /* the goroutine gives its P away when it blocks: it waits for another by blocking */
    NOT_LOCKED = 16, /* not inside gs_lock_os_thread */
    NOT_IDLE = 32,   /* not at low priority: others wait for it without a deadline */
    NO_LOCKS = 64,   /* all may: it takes no lock that isn't this library's, such as malloc's. A GS_SPAWN_NOPREEMPT
                        goroutine that waits for one keeps its P, which the lock's preempted holder may need. */
    REAL = 128,      /* not in a bubble: it needs threads, the kernel's files, or the time that these take */
};

extern const struct op ops_sched[], ops_sync[], ops_chan[], ops_time[], ops_calls[], ops_files[], ops_host[];
extern const struct op ops_net[]; /* in bubbles alone */

/* ---- main.c ---- */

/* Prints what is wrong, the seed and how to repeat it, a backtrace of all threads, and aborts. */
_Noreturn void wrong(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define WRONG(...) wrong(__FILE__, __LINE__, __VA_ARGS__)
#define MUST(cond) ((cond) ? (void)0 : WRONG("%s", #cond))
/* Prints the value when it isn't one of the (up to five) allowed ones. -ENOMEM is as good as -ETIMEDOUT and
   -ECANCELED where memory may be refused. */
#define MUST_BE(value, ...) must_be(__FILE__, __LINE__, #value, (long)(value), (const long[]){__VA_ARGS__}, \
                                    LENGTH(((const long[]){__VA_ARGS__})))
void must_be(const char *file, int line, const char *what, long got, const long *allowed, size_t n);

/* Calls again what needs memory, as long as the seed of a bubble refuses the memory. */
#define AGAIN(call)                                      \
    ({                                                   \
        long result_;                                    \
        do                                               \
            result_ = (long)(call);                      \
        while (result_ == -ENOMEM && memory_is_refused); \
        result_;                                         \
    })
#define POINTER_AGAIN(call)                       \
    ({                                            \
        void *result_;                            \
        do                                        \
            result_ = (call);                     \
        while (!result_ && memory_is_refused);    \
        result_;                                  \
    })

extern bool in_bubble;          /* chaos --bubble */
extern bool memory_is_refused;  /* opts.no_memory isn't 0 */
extern atomic_bool ending;      /* the round is over: no new operations */
extern bool cooperative;        /* this round's runtime has no preemption */
extern uint64_t seed;
bool enabled(const char *name); /* see CHAOS_ONLY, CHAOS_WITHOUT */
struct actor *new_actor(bool go, int depth, uint64_t rng); /* NULL: the table is full */
void free_actor(struct actor *a);
bool is_actor(const void *p);   /* p is an entry of the table of actors */
void act_as(struct actor *a);   /* does operations until the actor's end, and frees its entry */
void actor_body(void *actor);   /* the function of a goroutine */
void one_operation(struct actor *a, int depth);
void short_life(void *arg);     /* a goroutine with a few operations of its own; arg: a number */
int64_t clock_now(void);        /* in a bubble the virtual time */
void forget_actors(void);
void say_who_is_left(void);
void choose_operations(void);

/* ---- bubble.c ---- */

void until_it_waits(const gs_g *g); /* or has ended */

int run_in_bubbles(uint64_t first, uint64_t runs);
extern gs_test_net net_faults; /* of this run */

/* The round's beginning and end, in each file. `end` runs as a goroutine when no actor is left. */
void sched_begin(void), sync_begin(void), chan_begin(void), time_begin(void), calls_begin(void), files_begin(void);
void sched_end(void), sync_end(void), chan_end(void), time_end(void), calls_end(void), files_end(void);
void net_begin(void), net_end(void); /* in bubbles alone */
int sync_check(void *unused);        /* after each step of a bubble: 0: locks have one holder */
void host_start(void), host_stop(void); /* around all rounds */
void take_signals(void);                /* on a new thread of the host */
void leave_signals_to_others(void);     /* on a thread that serves the test */

/* ---- Random numbers ---- */

static inline uint32_t rnd32(struct actor *a)
{
    a->rng = a->rng * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(a->rng >> 33);
}

/* 0 to n - 1. */
static inline int rnd(struct actor *a, int n)
{
    return (int)(rnd32(a) % (uint32_t)n);
}

static inline bool one_in(struct actor *a, int n)
{
    return rnd(a, n) == 0;
}

/* A deadline of at most `us` from now, or none to wait for. */
static inline int64_t soon(struct actor *a, int us)
{
    return one_in(a, 5) ? GS_NOWAIT : gs_after_us(rnd(a, us));
}

/* ---- Work without a call of the library ---- */

/* main.c; a signal cuts it short. In a bubble both are a step in which nothing happens. */
void block_for(int64_t ns);
void compute_for(int64_t ns);
void before_it_waits_again(struct actor *a); /* a cancelled actor, which has to wait for something that comes soon */

/* throw.cpp: 0, or what was wrong. */
int throw_and_catch(unsigned random);

#endif
