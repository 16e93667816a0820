/* What the parts of the Lua module share. README.md explains the module to those who use it.

   Each goroutine of Lua runs in a lua_State of its own, so Lua code runs on all P's at once and no two
   goroutines ever touch the same state. What goes from one state to another is a message (message.h): a value
   that is written out in one state and built anew in the other. Channels, mutexes, wait groups, files and
   handles of goroutines aren't copied: they are `shared`, live outside of all states, and are counted.

   Lua reports errors by longjmp. So no function here calls Lua with a lock held, or between lgs_leave and
   lgs_enter, and what was allocated before such a call belongs to a state or is on a path that frees it. */

/* Each file calls only those below it in this table (`cargo test --test rooms` checks it).

   | file | what it is for | calls |
   | --- | --- | --- |
   | `main.c` | the module, in the states of main programs and of goroutines | processes, sockets, files, sync, goroutines, coroutines, pool, preload, unpack, pack, objects, turns, watch, state, globals |
   | `processes.c` | gosched.exec, os.execute and io.popen of goroutines | objects, results, turns, state |
   | `sockets.c` | connections, listeners, datagrams | files, objects, results, turns, state |
   | `files.c` | files and connections: reading, writing, closing | objects, results, turns, state |
   | `sync.c` | channels, select, mutexes, wait groups | goroutines, values, objects, results, turns, watch |
   | `goroutines.c` | spawn, a goroutine's life, errors that were not asked for | pool, preload, unpack, pack, messages, objects, results, turns, watch, state |
   | `coroutines.c` | coroutines of goroutines | turns |
   | `pool.c` | programs, and the states of their goroutines: made, kept, closed | preload, turns, state, globals, heap |
   | `preload.c` | package.preload | unpack, pack, messages, state |
   | `values.c` | one value on its way, as a channel's element | unpack, pack, messages, objects |
   | `unpack.c` | messages: building their values anew | objects, globals |
   | `pack.c` | messages: writing values out, gosched.clone | messages, objects |
   | `messages.c` | messages: their format and their end | objects |
   | `objects.c` | what is shared, and its userdata in each state | turns |
   | `results.c` | times that are given; errors and results | turns |
   | `turns.c` | slices of Lua code, and around each call that may switch | watch, state |
   | `watch.c` | main programs: deadlocks and Ctrl-C | none |
   | `state.c` | what belongs to each state | none |
   | `globals.c` | globals, as each goroutine finds them | none |
   | `heap.c` | the memory of a state | none | */

#ifndef LGS_H
#define LGS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <gosched.h>
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdatomic.h>

#if LUA_VERSION_NUM != 504
#error "gosched for Lua needs Lua 5.4"
#endif

/* A goroutine of Lua computes for this long, in ns of CPU time, before it lets others run. That is less than the
   library's time slice of 10 ms, after which the library stops the goroutine by a signal. */
#define LGS_SLICE (5 * 1000 * 1000)

/* Bytes of stack of a goroutine: 1 MiB with the library's guard. 200 nested calls of functions in C (LUAI_MAXCCALLS)
   must fit, each of which may have buffers of luaL_Buffer's size: string.gsub with a function takes some 2.5 KiB a
   level. Only what is touched takes memory. */
#define LGS_STACK ((1024 - 16) * 1024)
/* The smallest C stack of a goroutine, in bytes: for the 200 nested C calls that Lua allows. */
#define LGS_LEAST_STACK ((size_t)(256 * 1024))

/* In ns. */
#define LGS_SECOND 1000000000
/* A goroutine whose program is closed may compute for this long, in ns, while the error that ends it is on its way. */
#define LGS_CLEAN_UP (LGS_SECOND / 10)

/* Internal: the module exports nothing but luaopen_gosched. */
#pragma GCC visibility push(hidden)

/* ---- Shared objects (objects.c) ---- */

enum lgs_type { LGS_CHAN, LGS_MUTEX, LGS_WAITGROUP, LGS_GOROUTINE, LGS_FILE, LGS_TYPES };

struct shared {
    _Atomic uint32_t refs;
    uint8_t type;        /* enum lgs_type */
    struct shared *next; /* in a list of those that are to be destroyed */
};

/* A userdata: a state's reference to an object. */
struct box {
    struct shared *s; /* NULL: collected, or not made yet */
    bool counted;     /* among state.open_files */
};

/* Metatables are in the registry by these names. */
extern const char *const lgs_names[LGS_TYPES];

/* Of a type: destroys an object that has no reference any more. `gone`: see lgs_give_up. */
typedef void lgs_destroyer(struct shared *s, struct shared **gone);

struct state;

/* One more reference; gives s. */
struct shared *lgs_retain(struct shared *s);
/* Gives a reference back; the last one destroys the object. Never calls Lua. */
void lgs_release(struct shared *s);
/* As lgs_release, but the last one only puts the object into the list `gone`, for the caller to destroy. For what an object
   that is destroyed itself refers to: a channel may have a message with a channel that has a message, and so on, and the
   C stack has no room for all of them. */
void lgs_give_up(struct shared *s, struct shared **gone);
/* Destroys the objects in a list, and those that come into it meanwhile. */
void lgs_destroy(struct shared *gone);
/* Pushes the state's userdata of an object, for which it takes a reference of its own. */
void lgs_push(struct state *S, lua_State *L, struct shared *s);
/* Pushes the userdata of a new object, which begins with struct shared, has size bytes, and is zero otherwise; the
   userdata has its first reference. lgs_boxed follows when the object is whole. */
void *lgs_new(lua_State *L, size_t size, enum lgs_type type);
/* Lua's collector sees only the userdata of an object. Tells it of `size` bytes that the object, which this state has
   made, takes besides: the collector goes on as if Lua had allocated them. May call finalizers. */
void lgs_charge(struct state *S, lua_State *L, size_t size);
/* As lua_newuserdatauv, for what needs no finalizer when its goroutine ends. */
void *lgs_userdata(struct state *S, lua_State *L, size_t size, int values);
/* Remembers that the userdata on top of the stack is the state's for its object. */
void lgs_boxed(lua_State *L);
/* The object of argument arg, or an error. */
void *lgs_check(lua_State *L, int arg, enum lgs_type type);
/* The object of a userdata of this module at an index, of any type; or NULL. */
struct shared *lgs_to(lua_State *L, int index);

/* Makes the metatable of a type: methods are in __index, metamethods beside them. */
void lgs_metatable(struct state *S, lua_State *L, enum lgs_type type, lgs_destroyer *destroy, const luaL_Reg *meta,
                   const luaL_Reg *methods);
/* Adds methods to those of a type, after lgs_metatable. */
void lgs_methods(struct state *S, lua_State *L, enum lgs_type type, const luaL_Reg *methods);
/* In a new state, before all other objects. */
void lgs_boxes_open(lua_State *L);

/* A lock for some instructions, in which the holder isn't stopped, and calls nothing. */
static inline void lgs_spin_lock(_Atomic bool *locked)
{
    gs_preempt_disable();
    while (atomic_exchange_explicit(locked, true, memory_order_acquire))
        __builtin_ia32_pause();
}

static inline void lgs_spin_unlock(_Atomic bool *locked)
{
    atomic_store_explicit(locked, false, memory_order_release);
    gs_preempt_enable();
}

/* ---- Memory (heap.c) ---- */

#define LGS_CLASSES 16 /* of blocks, by size */

/* Of one state of the pool; zero at first. */
struct lgs_heap {
    struct chunk *chunks, *last;
    struct slab *with_room[LGS_CLASSES];
    size_t size;  /* of the chunks, in bytes */
    bool closing; /* what is given back comes back with the chunks */
};

/* As lua_Alloc. */
void *lgs_allocate(struct lgs_heap *h, void *p, size_t old, size_t size);
/* Gives back what is kept for the next blocks. */
void lgs_heap_trim(struct lgs_heap *h);
/* Gives everything back but what malloc has given. */
void lgs_heap_free(struct lgs_heap *h);

/* ---- States (state.c) ---- */

/* Why the goroutine of a main program was cancelled. */
enum { LGS_NO_REASON, LGS_DEADLOCK, LGS_INTERRUPT };

/* A lua_State with what belongs to it. Upvalue 1 of each function of the module. */
struct state {
    lua_State *L;
    lua_State *coroutine; /* that runs in it now; NULL: none */
    struct goroutine *g;  /* what it runs; NULL: it is a main program's */
    struct program *program; /* of its goroutine; a main program's state is one of its users */
    struct state *next;  /* in the pool, among those of goroutines, or among those of main programs */
    struct state **at;   /* what points to this, among those of goroutines */
    gs_g *runs;          /* g's, while it is among those; no reference */
    _Atomic bool stopped; /* the goroutine's program is closed: it has to end */
    gs_deadline clean_up; /* the slice's hook doesn't end it before; 0: it was not told to end */
    bool attached;       /* gs_attach was called for it */
    gs_g *self;          /* the main program's goroutine, a reference; else NULL */
    _Atomic int reason;  /* LGS_..., of the main program */
    int globals, parts;  /* that each goroutine finds in it, and fields of the metatables of basic types (globals.c) */
    struct preloads *preloads; /* what package.preload has, a reference; or NULL (preload.c) */
    bool held;           /* mutex:hold() has given a value since the slice's hook last ran */
    bool rev_stale;      /* modules may have been loaded since `rev` was made (pack.c) */
    int open_files;      /* files and sockets that are open and were opened, or received, here */
    bool finalizers;     /* tables with __gc were made since the state was last cleaned */
    ptrdiff_t userdata;  /* userdata of others than this module were made since then; in the pool's states */
    size_t clean;        /* bytes that the state had after the last full collection */
    size_t charged;      /* bytes of lgs_charge that the collector was not told of yet */
    struct packing *packing; /* for the next message (pack.c), or NULL */
    char *scratch;       /* see lgs_scratch */
    size_t scratch_size;
    struct lgs_heap heap; /* of the pool's states; a main program's has another */
    bool warns;           /* warn("@on") was called */
    bool in_warning;      /* the warning goes on */
};

static inline struct state *lgs_state(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

/* As lgs_state, for functions without that upvalue, which Lua's own libraries call. */
struct state *lgs_state_of(lua_State *L);
/* Pops a light userdata or userdata: L's state from now on. */
void lgs_note_state(lua_State *L);

/* Room for size bytes that stays until the next call for the same state, or NULL. With keep what was there
   stays. */
char *lgs_scratch(struct state *S, size_t size, bool keep);
/* Frees the room if it is large. */
void lgs_scratch_done(struct state *S);

/* ---- Main programs: deadlocks and Ctrl-C (watch.c) ---- */

extern _Atomic int64_t lgs_alive;  /* goroutines of Lua that have not ended, main programs included */
extern _Atomic int64_t lgs_asleep; /* goroutines that wait for nothing but other goroutines */
extern _Atomic uint64_t lgs_waits; /* how often such a wait has begun or ended */

/* Starts the timer that looks for deadlocks. False: there is no memory, or no thread. */
bool lgs_watch_start(void);
/* The state of a new main program: the first one is told of deadlocks and of Ctrl-C. */
void lgs_watch_main(struct state *S);
/* The main program is closed. Gives another one of the same goroutine, which takes over `attached`; or NULL. */
struct state *lgs_unwatch_main(struct state *S);
/* After each change that may have left nothing but goroutines that wait: a goroutine falls asleep, the last that was
   awake ends, the last timer has fired. */
void lgs_watch_if_all_asleep(void);
/* `more` timers more, or less, are to fire: no deadlock as long as there are any. */
void lgs_timers(int more);
void lgs_one_fewer_alive(void);

static inline void lgs_falls_asleep(void)
{
    atomic_fetch_add(&lgs_waits, 1);
    atomic_fetch_add(&lgs_asleep, 1);
    lgs_watch_if_all_asleep();
}

static inline void lgs_wakes_up(void)
{
    atomic_fetch_add(&lgs_waits, 1);
    atomic_fetch_sub(&lgs_asleep, 1);
}

/* Of a main program: before and after it waits. */
void lgs_front_interrupts(struct state *S);
void lgs_settle_ctrl_c(struct state *S);

/* ---- Turns (turns.c) ---- */

/* At the beginning: takes a signal for the ends of slices. */
void lgs_turns_start(void);
/* Says which state the thread runs; NULL: none. */
void lgs_set_running(struct state *S);
/* Before the state is freed: no thread's handler uses it from now on. A thread may still count it as the state that it runs: the
   library has preempted the state's goroutine, which went on elsewhere, or a host closes the state on another thread. */
void lgs_forget_state(struct state *S);
/* The hook at the end of a slice. */
void lgs_on_slice(lua_State *L, lua_Debug *ar);

/* Whether the program of the state's goroutine is closed. */
static inline bool lgs_is_stopped(const struct state *S)
{
    return atomic_load_explicit(&S->stopped, memory_order_relaxed);
}

/* Around each call of the library that may switch. sync: it waits without a deadline for other goroutines, and
   for nothing else. Nothing in between may call Lua. */
void lgs_leave(struct state *S, bool sync);
void lgs_enter(struct state *S, bool sync);

/* Raises the error of a goroutine that was cancelled, or of the main program: a deadlock, Ctrl-C. With Ctrl-C it may return. */
int lgs_raise_cancelled(struct state *S, lua_State *L);
/* Pushes what gs_dump writes. */
void lgs_push_dump(lua_State *L);

/* ---- Arguments and results (results.c) ---- */

/* What a call between lgs_leave and lgs_enter gave, below 0: raises the error, or gives the number of results
   that say it (nil and a message, and for the system's errors a number). */
int lgs_fail(struct state *S, lua_State *L, int r);
/* The results of a function that only succeeds or not: true, or as lgs_fail says it. */
int lgs_done(struct state *S, lua_State *L, int r);

/* The optional timeout in seconds at arg as a deadline. */
gs_deadline lgs_deadline(lua_State *L, int arg);
/* As lgs_deadline, of an option `timeout`, which is on top of the stack; `function` is for the message. */
gs_deadline lgs_timeout_option(lua_State *L, const char *function);
/* The seconds at arg in ns. */
gs_duration lgs_seconds(lua_State *L, int arg);

/* ---- Messages (values.c, unpack.c, pack.c, messages.c) ---- */

/* A value on its way, as a channel's element. Short strings and numbers need no memory of their own. */
struct value {
    uint8_t tag;
    uint8_t len;
    char text[6]; /* and on in u: a string of up to LGS_SHORT bytes */
    union {
        lua_Integer i;
        lua_Number n;
        void *p;
    } u;
};

#define LGS_SHORT 14
_Static_assert(sizeof(struct value) == 16, "an element of a channel");

struct message;

/* Writes the value at an index out; what ("value", say) names it in the error if it can't be copied. */
void lgs_encode(struct state *S, lua_State *L, int index, const char *what, struct value *v);
/* Pushes it; v still has it. */
void lgs_decode(struct state *S, lua_State *L, struct value *v);
/* Pushes it and drops it, also if there is an error. */
void lgs_receive(struct state *S, lua_State *L, struct value *v);
/* Drops what v has. */
void lgs_drop(struct value *v);
/* As lgs_drop, with lgs_give_up. */
void lgs_drop_into(struct value *v, struct shared **gone);

/* Writes out n values from index first on. Arguments are named what 1, 2 ...; the first `skip` are unnamed. */
struct message *lgs_pack(struct state *S, lua_State *L, int first, int n, int skip, const char *what);
/* Pushes the values of a message, which stays; gives how many. */
int lgs_unpack(struct state *S, lua_State *L, const struct message *m);
void lgs_message_free(struct message *m);
/* As lgs_message_free, with lgs_give_up. */
void lgs_message_drop_into(struct message *m, struct shared **gone);

/* gosched.clone */
int lgs_clone(lua_State *L);
/* What pack.c, and unpack.c, need in each state. */
void lgs_pack_open(struct state *S, lua_State *L);
void lgs_unpack_open(lua_State *L);

/* ---- Parts of the module; each adds to the table on top of the stack ---- */

void lgs_goroutines_open(struct state *S, lua_State *L);
void lgs_sync_open(struct state *S, lua_State *L);
void lgs_files_open(struct state *S, lua_State *L);
/* After lgs_files_open. */
void lgs_sockets_open(struct state *S, lua_State *L);
void lgs_processes_open(struct state *S, lua_State *L);
/* In the states of goroutines: os.execute and io.popen that park. */
void lgs_processes_replace(struct state *S, lua_State *L);
/* In the states of goroutines, with the library `coroutine` on top of the stack: coroutines that the slice's hook finds. */
void lgs_coroutines_replace(struct state *S, lua_State *L);

/* ---- Globals (globals.c) ---- */

/* In a new state of the pool, before the module is opened in it: what is there now is what each goroutine finds. */
void lgs_globals_open(struct state *S, lua_State *L);
/* A table gets the metatable that is on top of the stack. */
void lgs_note_meta(struct state *S, lua_State *L);
/* Protected, with the state as argument: between two goroutines. Gives how many globals the first one has left. */
int lgs_globals_restore(lua_State *L);

/* ---- package.preload (preload.c) ---- */

/* What package.preload has, for a goroutine that the state starts: a reference, or NULL. */
struct preloads *lgs_preloads(struct state *S, lua_State *L);
/* Puts it into package.preload of the goroutine's state, which takes a reference of its own. */
void lgs_preloads_install(struct state *S, lua_State *L, struct preloads *list);
void lgs_preloads_release(struct preloads *list);

/* ---- Programs, and the pool of states (pool.c) ---- */

/* A state that a host has made, with the goroutines that it has started, and those that they have started. */
struct program {
    _Atomic int users;   /* the host's state, and the goroutines that have not ended */
    _Atomic bool closed; /* no goroutine begins any more */
};

/* For a goroutine that the state starts; NULL if the program is closed. */
struct program *lgs_join_program(struct state *S);
/* One user less; the last one frees it. */
void lgs_leave_program(struct program *p);
/* Ends the goroutines of a program. Gives the state of the goroutine that calls, of this program or another; NULL: it has
   none. */
struct state *lgs_close_program(struct program *p);
/* At the beginning: `fill` is called in each new state, protected, with struct state as argument, and makes its libraries. */
void lgs_pool_start(lua_CFunction fill);
/* A state for the goroutine that calls, which lgs_close_program finds from now on. NULL: no memory. */
struct state *lgs_get_state(struct goroutine *g, struct program *p);
/* The goroutine that calls has ended: cleans its state, which goes back to the pool or is closed. */
void lgs_put_state(struct state *S);

/* ---- Goroutines (goroutines.c) ---- */

/* At the beginning: what goroutines are spawned with, in bytes, unless they ask for another stack. */
void lgs_goroutines_start(size_t stack);
/* gosched.go, whose function is at index; done: what is to be counted down at its end, or NULL. Pushes the handle. */
int lgs_go(struct state *S, lua_State *L, int index, struct shared *done);

/* ---- Wait groups ---- */

struct waitgroup {
    struct shared shared;
    gs_waitgroup wg;
};

/* One more, or one less: 0 or what gs_waitgroup_add gives. */
static inline int lgs_waitgroup_add(struct shared *s, int64_t n)
{
    return gs_waitgroup_add(&((struct waitgroup *)s)->wg, n);
}

#pragma GCC visibility pop

#endif
