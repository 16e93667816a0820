/* What the parts of the Lua module share. README.md explains the module to those who use it.

   Each goroutine of Lua runs in a lua_State of its own, so Lua code runs on all P's at once and no two
   goroutines ever touch the same state. A value goes from one state to another as a message (message.h): it is
   written out in one state and built anew in the other. Channels, mutexes, wait groups, files and handles of
   goroutines aren't copied: they are `shared`, that is they live outside all states and count their references.

   Lua reports errors by longjmp. So no function here calls Lua with a lock held, or between lgs_leave and
   lgs_enter, and memory allocated before such a call belongs to a state or is on a path that frees it. */

/* Each file calls only those below it in this table (`cargo test --test rooms` checks it).

   | file | what it is for | calls |
   | --- | --- | --- |
   | `main.c` | the module, in the states of main programs and of goroutines | testing, order, inspect, processes, sockets, files, sync, goroutines, coroutines, pool, preload, unpack, pack, objects, turns, watch, frames, state, globals |
   | `testing.c` | gosched.test: runs by seeds, their options and failures | files, goroutines, pool, unpack, pack, messages, objects, results, turns, state |
   | `inspect.c` | traces, the flight recorder, dumps, metrics | results, turns, state |
   | `processes.c` | gosched.exec, os.execute and io.popen of goroutines | objects, results, turns, state |
   | `sockets.c` | connections, listeners, datagrams | files, objects, results, turns, state |
   | `files.c` | files and connections: reading, writing, closing | objects, results, turns, state |
   | `sync.c` | channels, select, mutexes, wait groups | goroutines, values, objects, results, turns, watch |
   | `goroutines.c` | spawn, a goroutine's life, errors that were not asked for | pool, preload, unpack, pack, messages, objects, results, turns, watch, frames, state, globals |
   | `coroutines.c` | coroutines of goroutines | turns |
   | `pool.c` | programs, and the states of their goroutines: made, kept, closed | preload, objects, turns, state, globals, heap |
   | `preload.c` | package.preload | unpack, pack, messages, state |
   | `values.c` | one value on its way, as a channel's element | unpack, pack, messages, objects |
   | `unpack.c` | messages: building their values anew | objects, globals |
   | `pack.c` | messages: writing values out, gosched.clone | messages, objects |
   | `messages.c` | messages: their format and their end | objects |
   | `objects.c` | what is shared, and its userdata in each state | turns |
   | `results.c` | times that are given; errors and results | turns |
   | `turns.c` | slices of Lua code, and around each call that may switch | watch, state |
   | `watch.c` | main programs: deadlocks and Ctrl-C | none |
   | `frames.c` | Lua's frames, for the dumps and traces of the library | none |
   | `state.c` | what belongs to each state | none |
   | `globals.c` | globals, as each goroutine finds them | none |
   | `order.c` | pairs in an order that doesn't depend on the state | none |
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

/* The time, in ns of CPU time, for which a goroutine of Lua computes before it lets others run. Shorter than
   the library's time slice of 10 ms, after which a signal stops the goroutine. */
#define LGS_SLICE (5 * 1000 * 1000)

/* The stack of a goroutine, in bytes: 1 MiB with the library's guard. It must hold 200 nested calls of C
   functions (LUAI_MAXCCALLS), each perhaps with buffers of luaL_Buffer's size: string.gsub with a function
   takes some 2.5 KiB a level. Only touched pages take memory. */
#define LGS_STACK ((1024 - 16) * 1024)
/* The smallest C stack of a goroutine, in bytes: for the 200 nested C calls that Lua allows. */
#define LGS_LEAST_STACK ((size_t)(256 * 1024))

/* A second in ns. */
#define LGS_SECOND 1000000000
/* The time, in ns, for which a goroutine of a closed program may compute while the error that ends it is on its
   way. */
#define LGS_CLEAN_UP (LGS_SECOND / 10)

/* Internal: the module exports nothing but luaopen_gosched. */
#pragma GCC visibility push(hidden)

/* ---- Shared objects (objects.c) ---- */

enum lgs_type { LGS_CHAN, LGS_MUTEX, LGS_WAITGROUP, LGS_GOROUTINE, LGS_FILE, LGS_TYPES };

struct shared {
    _Atomic uint32_t refs;
    uint8_t type;        /* enum lgs_type */
    bool inside;         /* made in a bubble */
    struct shared *next; /* the next in a list of objects to be destroyed */
};

/* A userdata: a state's reference to an object. */
struct box {
    struct shared *s; /* NULL: collected, or not yet made */
    bool counted;     /* among state.open_files */
};

/* The names of the types' metatables in the registry. */
extern const char *const lgs_names[LGS_TYPES];

/* The function of a type that destroys an object without references. `gone`: see lgs_give_up. */
typedef void lgs_destroyer(struct shared *s, struct shared **gone);

struct state;

/* Adds a reference; returns s. */
struct shared *lgs_retain(struct shared *s);
/* Drops a reference; the last one destroys the object. Never calls Lua. */
void lgs_release(struct shared *s);
/* Drops a reference; the last one puts the object into the list `gone`, for the caller to destroy. For
   references from an object being destroyed: a channel may have a message with a channel that has a message,
   and so on, which would overflow the C stack. */
void lgs_give_up(struct shared *s, struct shared **gone);
/* Destroys the objects in a list, and those added to it meanwhile. */
void lgs_destroy(struct shared *gone);
/* Pushes the state's userdata of an object. The userdata has a reference of its own. */
void lgs_push(struct state *S, lua_State *L, struct shared *s);
/* Pushes the userdata of a new object of size bytes, which begins with struct shared and is otherwise zero. The
   userdata has the first reference. lgs_boxed follows when the object is whole. */
void *lgs_new(lua_State *L, size_t size, enum lgs_type type);
/* Tells Lua's collector, which sees only an object's userdata, of `size` more bytes of an object that this
   state has made: the collector goes on as if Lua had allocated them. May call finalizers. */
void lgs_charge(struct state *S, lua_State *L, size_t size);
/* lua_newuserdatauv for a userdata that needs no finalizer when its goroutine ends. */
void *lgs_userdata(struct state *S, lua_State *L, size_t size, int values);
/* Notes the userdata on top of the stack as the state's userdata of its object. */
void lgs_boxed(lua_State *L);
/* The object of argument arg; raises an error if it has another type. */
void *lgs_check(lua_State *L, int arg, enum lgs_type type);
/* The object of this module's userdata at index, of any type; NULL: no such userdata. */
struct shared *lgs_to(lua_State *L, int index);

/* Makes the metatable of a type: with methods in __index, and metamethods beside it. */
void lgs_metatable(struct state *S, lua_State *L, enum lgs_type type, lgs_destroyer *destroy, const luaL_Reg *meta,
                   const luaL_Reg *methods);
/* Adds methods to a type, after lgs_metatable. */
void lgs_methods(struct state *S, lua_State *L, enum lgs_type type, const luaL_Reg *methods);
/* Prepares a new state for shared objects, before any is made. */
void lgs_boxes_open(lua_State *L);
/* Drops, as lgs_give_up, the references of a state that never runs again to objects that were made outside of
   bubbles. Those made in a bubble may have waiters: they stay. */
void lgs_boxes_drop(lua_State *L, struct shared **gone);

/* The bubble whose goroutines the thread runs; NULL: none. They never go to another thread. */
extern _Thread_local struct bubble *lgs_bubble __attribute__((tls_model("initial-exec")));

/* lgs_bubble of the thread that the caller is on now. On x86-64 each access finds the thread anew; other compilers keep
   the thread's address in a register, even across a call that moves the goroutine to another thread. */
#if defined(__x86_64__)
static inline struct bubble *lgs_bubble_here(void)
{
    return lgs_bubble;
}
#else
struct bubble *lgs_bubble_here(void) __attribute__((noinline));
#endif

/* For loops that wait for another thread: the processor may take its time. */
static inline void lgs_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

/* Locks for a few instructions: the holder isn't stopped, and calls nothing. In a bubble nothing stops it, and
   gs_preempt_enable would be a step. */
static inline void lgs_spin_lock(_Atomic bool *locked)
{
    if (!lgs_bubble_here())
        gs_preempt_disable();
    while (atomic_exchange_explicit(locked, true, memory_order_acquire))
        lgs_pause();
}

static inline void lgs_spin_unlock(_Atomic bool *locked)
{
    atomic_store_explicit(locked, false, memory_order_release);
    if (!lgs_bubble_here())
        gs_preempt_enable();
}

/* ---- Memory (heap.c) ---- */

#define LGS_CLASSES 16 /* classes of blocks, by size */

/* The heap of one state of the pool; zero at first. */
struct lgs_heap {
    struct chunk *chunks, *last;
    struct slab *with_room[LGS_CLASSES];
    struct large *large; /* the largest blocks, if the heap keeps a list of them */
    bool keeps_list;     /* it may be freed while blocks are in use */
    size_t size;  /* the chunks' size in bytes */
    bool closing; /* freed blocks need not be kept: the chunks are freed as a whole */
};

/* Allocates, reallocates or frees, as a lua_Alloc. */
void *lgs_allocate(struct lgs_heap *h, void *p, size_t old, size_t size);
/* Frees the memory kept for the next blocks. */
void lgs_heap_trim(struct lgs_heap *h);
/* Frees everything, except blocks of malloc in a heap that keeps no list of them. */
void lgs_heap_free(struct lgs_heap *h);

/* ---- States (state.c) ---- */

/* Why the goroutine of a main program was cancelled. */
enum { LGS_NO_REASON, LGS_DEADLOCK, LGS_INTERRUPT };

/* A lua_State with the module's data. Upvalue 1 of each function of the module. */
struct state {
    lua_State *L;
    lua_State *coroutine; /* the coroutine that runs in the state; NULL: none */
    struct goroutine *g;  /* the goroutine that the state runs; NULL: it is a main program's */
    struct program *program; /* the goroutine's program; a main program's state is one of the program's users */
    struct bubble *bubble; /* the state runs in it; NULL: in none */
    bool checks;           /* the state of a bubble's check, which runs no goroutine and must not wait */
    struct state *next;  /* the next in the pool, among goroutines' states, or among main programs' states */
    struct state **at;   /* what points to this state among goroutines' states */
    gs_g *runs;          /* g's goroutine, while the state is among goroutines' states; no reference */
    _Atomic bool stopped; /* the goroutine's program is closed: the goroutine has to end */
    gs_deadline clean_up; /* the slice's hook ends the goroutine no earlier; 0: not told to end */
    bool attached;       /* gs_attach was called for the state */
    gs_g *self;          /* the main program's goroutine, a reference; else NULL */
    _Atomic int reason;  /* LGS_..., of the main program */
    int globals, parts;  /* that each goroutine finds: globals, fields of basic types' metatables */
    struct preloads *preloads; /* the contents of package.preload, a reference; or NULL (preload.c) */
    bool held;           /* mutex:hold() has given a value since the slice's hook last ran */
    bool rev_stale;      /* modules may have been loaded since `rev` was made (pack.c) */
    int open_files;      /* files and sockets that are open and were opened, or received, here */
    bool finalizers;     /* tables with __gc were made since the state was last cleaned */
    ptrdiff_t userdata;  /* userdata of other modules made since then; in the pool's states */
    size_t clean;        /* the state's bytes after the last full collection */
    size_t collect_at;   /* in a bubble: the next full collection comes at a step with more bytes than this */
    size_t charged;      /* bytes of lgs_charge of which the collector was not yet told */
    struct packing *packing; /* for the next message (pack.c), or NULL */
    char *scratch;       /* see lgs_scratch */
    size_t scratch_size;
    struct lgs_heap heap; /* the heap of a state of the pool; a main program's state has Lua's */
    _Atomic bool is_away; /* between lgs_leave and lgs_enter */
    char names[8][96];    /* for lgs_frames */
    bool warns;           /* warn("@on") was called */
    bool in_warning;      /* the next call of the warning function continues a warning */
};

/* Makes the table on top of the stack weak: its keys ("k") or its values ("v"). */
static inline void lgs_make_weak(lua_State *L, const char *mode)
{
    lua_createtable(L, 0, 1);
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
}

static inline struct state *lgs_state(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

/* lgs_state for functions without that upvalue, which Lua's own libraries call. */
struct state *lgs_state_of(lua_State *L);
/* Pops a light userdata or userdata, which becomes L's state. */
void lgs_note_state(lua_State *L);

/* Room for size bytes until the next call for this state, or NULL. keep: the old contents stay. */
char *lgs_scratch(struct state *S, size_t size, bool keep);
/* Frees the room if it is large. */
void lgs_scratch_done(struct state *S);

/* The bytes that Lua counts in L's state. */
static inline size_t lgs_memory(lua_State *L)
{
    return (size_t)lua_gc(L, LUA_GCCOUNT) * 1024 + (size_t)lua_gc(L, LUA_GCCOUNTB);
}

/* Collects the garbage of a bubble's state, whose running coroutine is L, if it is time; `fresh`: there is none yet. At
   steps, because when Lua's own collector comes to call finalizers depends on the hashes of strings, which are others in
   each state. That collector only helps out. */
void lgs_collect_in_bubble(struct state *S, lua_State *L, bool fresh);

/* ---- Main programs: deadlocks and Ctrl-C (watch.c) ---- */

extern _Atomic int64_t lgs_alive;  /* goroutines of Lua that have not ended, main programs included */
extern _Atomic int64_t lgs_asleep; /* goroutines that wait only for other goroutines */
extern _Atomic uint64_t lgs_waits; /* the number of such waits that began or ended */

/* Starts the timer that looks for deadlocks. False: there is no memory, or no thread. */
bool lgs_watch_start(void);
/* Adds the state of a new main program. The first one gets deadlocks and Ctrl-C. */
void lgs_watch_main(struct state *S);
/* Removes the state of a closed main program. Returns another state of the same goroutine, which takes over
   `attached`; or NULL. */
struct state *lgs_unwatch_main(struct state *S);
/* Called after each change that may leave only goroutines that wait: one falls asleep, the last awake one ends,
   or the last timer has fired. */
void lgs_watch_if_all_asleep(void);
/* Adds `more` to the number of timers that are to fire: while there are any, there is no deadlock. */
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

/* Called before and after a main program waits. */
void lgs_front_interrupts(struct state *S);
void lgs_settle_ctrl_c(struct state *S);

/* ---- Frames (frames.c) ---- */

/* Gives the frames of a state, NULL or one that doesn't end meanwhile, as gs_frames_hook does: none unless the state is
   away. */
size_t lgs_frames(struct state *S, gs_frame *frames, size_t room);
/* Has the library ask for the frames of main programs, at the start. */
void lgs_frames_start(void);
/* Shows the frames of a main program's state, until lgs_hide_main. */
void lgs_show_main(struct state *S);
void lgs_hide_main(struct state *S);

/* ---- Turns (turns.c) ---- */

/* Takes a signal for the ends of slices, at the start. */
void lgs_turns_start(void);
/* Notes the state that the thread runs; NULL: none. */
void lgs_set_running(struct state *S);
/* Keeps all threads' handlers from using the state, before it is freed. A thread may still note it as running:
   the library has preempted the state's goroutine, which went on elsewhere, or a host closes the state on
   another thread. */
void lgs_forget_state(struct state *S);
/* The hook at the end of a slice. */
void lgs_on_slice(lua_State *L, lua_Debug *ar);

/* Whether the program of the state's goroutine is closed. */
static inline bool lgs_is_stopped(const struct state *S)
{
    return atomic_load_explicit(&S->stopped, memory_order_relaxed);
}

/* Gives the calling thread, which runs no goroutine yet, what ends slices. */
void lgs_turns_here(void);

/* Called around each call of the library that may switch; no code in between may call Lua. sync: the call waits
   without a deadline, and only for other goroutines. lgs_leave raises an error in the state of a check. */
void lgs_leave(struct state *S, bool sync);
void lgs_enter(struct state *S, bool sync);

/* A step of a bubble: another goroutine may go first. For operations that call no function of the library that is
   a step itself. Does nothing outside of bubbles. */
void lgs_step_in_bubble(struct state *S);
static inline void lgs_step(struct state *S)
{
    if (S->bubble)
        lgs_step_in_bubble(S);
}
/* lgs_step before a look at an object, which a check may do too. */
static inline void lgs_look(struct state *S)
{
    if (S->bubble && !S->checks)
        lgs_step_in_bubble(S);
}

/* Raises the error of a cancelled goroutine, or the main program's: a deadlock, Ctrl-C. May return for
   Ctrl-C. */
int lgs_raise_cancelled(struct state *S, lua_State *L);
/* Calls `write` with a file, and gives the length of what it writes, which is in the state's scratch; or a negative
   errno value. */
ssize_t lgs_text(struct state *S, int (*write)(int), const char **text);

/* ---- Arguments and results (results.c) ---- */

/* Handles an error r < 0 of a call between lgs_leave and lgs_enter: raises it, or returns the number of results
   that report it (nil, a message, and a number for the system's errors). */
int lgs_fail(struct state *S, lua_State *L, int r);
/* The results of a function that returns only success: true, or those of lgs_fail. */
int lgs_done(struct state *S, lua_State *L, int r);

/* The deadline for the optional timeout, in seconds, at arg. */
gs_deadline lgs_deadline(lua_State *L, int arg);
/* lgs_deadline for an option `timeout` on top of the stack; `function` is for the message. */
gs_deadline lgs_timeout_option(lua_State *L, const char *function);
/* The seconds at arg, in ns. */
gs_duration lgs_seconds(lua_State *L, int arg);

/* ---- Messages (values.c, unpack.c, pack.c, messages.c) ---- */

/* A value on its way, as a channel's element. Short strings and numbers need no memory of their own. */
struct value {
    uint8_t tag;
    uint8_t len;
    char text[6]; /* text of up to LGS_SHORT bytes, which continues in u */
    union {
        lua_Integer i;
        lua_Number n;
        void *p;
    } u;
};

#define LGS_SHORT 14
_Static_assert(sizeof(struct value) == 16, "an element of a channel");

struct message;

/* Writes out the value at an index; what ("value", say) names it in the error if it can't be copied. */
void lgs_encode(struct state *S, lua_State *L, int index, const char *what, struct value *v);
/* Pushes the value, which v keeps. */
void lgs_decode(struct state *S, lua_State *L, struct value *v);
/* Pushes the value and drops it, even if there is an error. */
void lgs_receive(struct state *S, lua_State *L, struct value *v);
/* Drops v's value. */
void lgs_drop(struct value *v);
/* Drops v's value, with lgs_give_up for its references. */
void lgs_drop_into(struct value *v, struct shared **gone);

/* Writes out n values from the index first on. In errors they are called what 1, what 2 ...; the first `skip`
   have no name. */
struct message *lgs_pack(struct state *S, lua_State *L, int first, int n, int skip, const char *what);
/* Pushes the values of a message, which stays; returns their number. */
int lgs_unpack(struct state *S, lua_State *L, const struct message *m);
void lgs_message_free(struct message *m);
/* Frees a message, with lgs_give_up for its references. */
void lgs_message_drop_into(struct message *m, struct shared **gone);

/* gosched.clone */
int lgs_clone(lua_State *L);
/* Prepares a new state for pack.c and unpack.c. */
void lgs_pack_open(struct state *S, lua_State *L);
void lgs_unpack_open(lua_State *L);

/* ---- Parts of the module; each adds to the table on top of the stack ---- */

void lgs_goroutines_open(struct state *S, lua_State *L);
void lgs_sync_open(struct state *S, lua_State *L);
void lgs_files_open(struct state *S, lua_State *L);
/* After lgs_files_open. */
void lgs_sockets_open(struct state *S, lua_State *L);
void lgs_processes_open(struct state *S, lua_State *L);
void lgs_inspect_open(struct state *S, lua_State *L);
void lgs_testing_open(struct state *S, lua_State *L);
/* Replaces os.execute and io.popen in a goroutine's state by functions that park. */
void lgs_processes_replace(struct state *S, lua_State *L);
/* Replaces functions of the library `coroutine`, on top of the stack, in a goroutine's state: the slice's hook
   finds their coroutines. */
void lgs_coroutines_replace(struct state *S, lua_State *L);

/* Replaces pairs in a bubble's state, before lgs_globals_open. */
void lgs_pairs_replace(lua_State *L);

/* ---- Globals (globals.c) ---- */

/* Notes what each goroutine finds in a new state of the pool: the contents now, before the module is opened. */
void lgs_globals_open(struct state *S, lua_State *L);
/* Gives math.random of a goroutine's state these seeds. */
void lgs_seed_random(lua_State *L, lua_Integer seed, lua_Integer more);
/* Notes that a table gets the metatable on top of the stack. */
void lgs_note_meta(struct state *S, lua_State *L);
/* Resets the state between two goroutines; called protected, with the state as argument. Returns the number of
   globals that the first one has left. */
int lgs_globals_restore(lua_State *L);

/* ---- package.preload (preload.c) ---- */

/* The contents of package.preload for a goroutine that the state starts: a reference, or NULL. */
struct preloads *lgs_preloads(struct state *S, lua_State *L);
/* Puts the list into package.preload of a goroutine's state, which takes a reference of its own. */
void lgs_preloads_install(struct state *S, lua_State *L, struct preloads *list);
void lgs_preloads_release(struct preloads *list);

/* ---- Programs, and the pool of states (pool.c) ---- */

/* A state that a host has made, with the goroutines that it has started, and those that they have started, and
   so on. */
struct program {
    _Atomic int users;   /* the host's state and the goroutines that have not ended */
    _Atomic bool closed; /* no more goroutines begin */
    struct bubble *bubble; /* the goroutines are those of a bubble; NULL: of none */
};

/* What gosched.test runs, from the first run to the last. Used by the thread that runs it. */
struct bubble {
    struct program program;     /* its goroutines' */
    struct goroutine *main;     /* calls the test's function in each run; a reference */
    struct state *busy;         /* the states of goroutines that have not ended */
    struct state *check;        /* the state of the run's check; NULL: none */
    struct goroutine *failed;   /* ended with errors for which others may still ask; each a reference */
    struct goroutine *failure;  /* its error has ended the run; a reference */
    char *said;                 /* by gosched.test.fail or the check, which have ended the run; NULL: nothing */
    struct file *files;         /* files and sockets that were made in the run */
    struct shared *gone;        /* objects without references, to be destroyed after the last run */
    struct shared *unseen;      /* those that only the check had, to be destroyed at the run's end */
    uint64_t spawned;           /* goroutines of Lua in the run so far */
    int alive;                  /* those that have not ended */
    _Atomic bool stop;          /* runs are to end at their next step */
};

/* Adds a user for a goroutine that the state starts. NULL: the program is closed. */
struct program *lgs_join_program(struct state *S);
/* Removes a user; the last one frees the program. */
void lgs_leave_program(struct program *p);
/* Ends the goroutines of a program. Returns the calling goroutine's state, of this program or another; NULL: it
   has none. */
struct state *lgs_close_program(struct program *p);
/* Sets, at the start, the function that makes the libraries of each new state: called protected, with struct
   state as argument. */
void lgs_pool_start(lua_CFunction fill);
/* Gets a state for the calling goroutine, which lgs_close_program finds from now on. NULL: no memory. */
struct state *lgs_get_state(struct goroutine *g, struct program *p);
/* Cleans the state of the calling goroutine, which has ended, and returns it to the pool or closes it. */
void lgs_put_state(struct state *S);
/* Makes a state for the check of the calling goroutine's bubble. NULL: no memory. */
struct state *lgs_new_check(struct bubble *b);
/* Closes the state of a check, after which b->check is another or NULL. */
void lgs_close_check(struct state *S);
/* Frees a bubble's state, whose goroutine never goes on: no finalizer runs. */
void lgs_drop_state(struct bubble *b, struct state *S);

/* ---- Goroutines (goroutines.c) ---- */

/* At the start: the stack size in bytes of goroutines that ask for no other; 0: the library's default. */
void lgs_goroutines_start(size_t stack);
/* gosched.go for the function at index; done: the wait group to count down at the goroutine's end, or NULL.
   Pushes the handle. */
int lgs_go(struct state *S, lua_State *L, int index, struct shared *done);

/* Pushes a handle of a goroutine that is to call the function at index, with the arguments behind it, in each run
   of the bubble: b->main. */
void lgs_new_main(struct state *S, lua_State *L, int index, struct bubble *b);
/* The life of b->main in one run. */
void lgs_run_main(struct bubble *b);
/* The frames of b->main, as gs_frames_hook gives them. */
size_t lgs_main_frames(void *bubble, gs_g *g, gs_frame *to, size_t room);
/* After a run, before the next: drops what its goroutines that are left have. They never go on. Whether the run has
   failed. */
bool lgs_sweep(struct bubble *b);
/* Pushes the results of b->main; returns their number. */
int lgs_push_results(struct state *S, lua_State *L, struct bubble *b);
/* Pushes the error of b->failure, and returns its traceback; `number` becomes the goroutine's. */
const char *lgs_push_failure(struct state *S, lua_State *L, struct bubble *b, uint64_t *number);
/* The first goroutine in b->failed of which no caller has asked for the error becomes b->failure. */
void lgs_find_failure(struct bubble *b);

/* ---- Files (files.c) ---- */

/* Closes, after a run of a bubble, the sockets that it has made and not closed; has_failed: its files too. */
void lgs_sweep_files(struct bubble *b, bool has_failed);

/* ---- Wait groups ---- */

struct waitgroup {
    struct shared shared;
    gs_waitgroup wg;
};

/* Adds n: 1 or -1. Returns 0 or the error of gs_waitgroup_add. */
static inline int lgs_waitgroup_add(struct shared *s, int64_t n)
{
    return gs_waitgroup_add(&((struct waitgroup *)s)->wg, n);
}

#pragma GCC visibility pop

#endif
