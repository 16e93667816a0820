/* What depends on the layout of CPython's thread states: compiled for each version. */
#include <Python.h>
#include <pthread.h>
#include <limits.h>
#include <unistd.h>

#if PY_VERSION_HEX >= 0x030D0000
#define Py_BUILD_CORE
#ifdef Py_GIL_DISABLED
#include <internal/pycore_gc.h>
#endif
#include <internal/pycore_ceval.h>
#include <internal/pycore_tstate.h>
#ifdef Py_GIL_DISABLED
#include <internal/pycore_critical_section.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <sched.h>
#include <string.h>
#endif
#undef Py_BUILD_CORE
#endif

/* The Python that this was compiled for, as PY_VERSION_HEX. */
unsigned long gosched_python_compiled_for(void) { return PY_VERSION_HEX; }

#if PY_VERSION_HEX < 0x030C0000
/* PyGILState_Ensure takes the thread's state from a slot of thread-specific data, which only the
   interpreter's start and its new threads set. It follows the goroutines of a thread by hand. */
static pthread_key_t gilstate_key;
static int has_key;
#endif

/* On a thread with a thread state that is attached. 0, or -1: the interpreter keeps its state somewhere
   that this doesn't know. */
int gosched_state_init(void)
{
#if PY_VERSION_HEX < 0x030C0000
    void *mine = PyGILState_GetThisThreadState();
    pthread_key_t key;
    for (key = 0; !has_key && mine && key < PTHREAD_KEYS_MAX; key++)
        if (pthread_getspecific(key) == mine) {
            gilstate_key = key;
            has_key = 1;
        }
    return has_key ? 0 : -1;
#else
    return 0;
#endif
}

/* Whether Python has begun to take itself down: threads that ask for the GIL don't get it any more. */
int gosched_is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

/* Python ends threads by pthread_exit if they ask for the GIL too late. That would unwind the frames of Rust,
   which end the process then: the thread rests instead, until the process ends. */
static void rest(int *is_over)
{
    while (!*is_over)
        pause();
}

/* The GIL, and ts as the thread's state. */
void gosched_state_enter(PyThreadState *ts)
{
    __attribute__((cleanup(rest))) int is_over = 0;
#if PY_VERSION_HEX < 0x030C0000
    pthread_setspecific(gilstate_key, ts);
#endif
    PyEval_RestoreThread(ts);
    is_over = 1;
}

/* PyObject_Call of what may take long, on a thread that is not for goroutines. */
PyObject *gosched_state_call(PyObject *f, PyObject *args, PyObject *kwargs)
{
    __attribute__((cleanup(rest))) int is_over = 0;
    PyObject *result = PyObject_Call(f, args, kwargs);
    is_over = 1;
    return result;
}

/* A thread that makes a thread state has no GIL, but holds a lock of the interpreter's, and its list is half
   changed: a fork then would leave both to the child. So Python forks with this lock, for reading, as several
   threads may be about to; who makes a state has it for writing. */
static pthread_rwlock_t making = PTHREAD_RWLOCK_INITIALIZER;
/* How many forks this thread has begun: goroutines may begin on it meanwhile. */
static __thread int forks;

static PyThreadState *make_state(PyInterpreterState *interp)
{
    PyThreadState *ts;
    if (!forks)
        pthread_rwlock_wrlock(&making);
    ts = PyThreadState_New(interp);
    if (!forks)
        pthread_rwlock_unlock(&making);
    return ts;
}

void gosched_state_before_fork(void)
{
    pthread_rwlock_rdlock(&making);
    forks++;
}

void gosched_state_after_fork(void)
{
    if (forks) {
        forks--;
        pthread_rwlock_unlock(&making);
    }
}

/* In the child of a fork, where the other threads are gone. */
void gosched_state_forked(void)
{
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    /* One of them may have waited for this lock. */
    making = fresh;
    forks = 0;
#ifndef Py_GIL_DISABLED
    /* The goroutine that forked is the main one now, and has the identity of the thread. */
    PyThreadState_Get()->thread_id = PyThread_get_thread_ident();
#else
    /* And one of them for this, in order to stop the world: Python leaves it locked in the child, and the next
       collection would wait for it for ever. */
    PyInterpreterState_Get()->stoptheworld.mutex = (PyMutex){0};
#endif
}

/* Has the goroutine that runs in ts look for signals soon. The GIL is held. */
void gosched_state_interrupt(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    _Py_set_eval_breaker_bit(ts, _PY_SIGNALS_PENDING_BIT);
#else
    /* The mark is the interpreter's: the running thread state sees it, whichever that is. */
    (void)ts;
#endif
}

/* PyGILState_Ensure, as above. */
PyGILState_STATE gosched_state_ensure(void)
{
    __attribute__((cleanup(rest))) int is_over = 0;
    if (!PyGILState_GetThisThreadState()) {
        PyThreadState *ts = make_state(PyInterpreterState_Main());
        /* As if PyGILState_Ensure had made it: its counterpart deletes it. */
        if (ts)
            ts->gilstate_counter = 0;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    is_over = 1;
    return state;
}

/* Bytes of a goroutine's stack that one level of C recursion may take. */
#define BYTES_PER_LEVEL 640

/* The levels of recursion for which the usual stack is made: Python's limit if no program raises it. */
#define USUAL_LEVELS 1000
/* Bytes of stack for each level that a program allows beyond. Python functions that call each other by way of C
   take 350 to 860. */
#define BYTES_BEYOND 1024
/* The most that is reserved because the limit is high. */
#define MOST_STACK ((size_t)256 << 20)

/* The size of a goroutine's stack in bytes; `usual` is the default. */
size_t gosched_state_stack(size_t usual)
{
#if PY_VERSION_HEX < 0x030C0000
    /* The limit holds for C's frames too. */
    int limit = Py_GetRecursionLimit();
    if (limit > USUAL_LEVELS) {
        size_t size = usual + (size_t)(limit - USUAL_LEVELS) * BYTES_BEYOND;
        return size < MOST_STACK ? size : MOST_STACK;
    }
#endif
    return usual;
}

#ifndef Py_GIL_DISABLED
/* A state for a goroutine with a stack of stack_size bytes. NULL: no memory. */
PyThreadState *gosched_state_new(PyInterpreterState *interp, size_t stack_size)
{
    PyThreadState *ts = make_state(interp);
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    size_t levels = stack_size / BYTES_PER_LEVEL;
    if (ts && levels < (size_t)ts->c_recursion_remaining)
        ts->c_recursion_remaining = (int)levels;
#else
    (void)stack_size;
#endif
    return ts;
}

#endif /* !Py_GIL_DISABLED */

/* What the goroutine has left behind and the next one on this state must not see. The state is attached. */
void gosched_state_reset(PyThreadState *ts)
{
    PyObject *dict = ts->dict;
    ts->dict = NULL;
    if (dict) {
#ifndef Py_GIL_DISABLED
        /* asyncio remembers, by the state's id and without a reference, the running loop that the dict
           has held: the next goroutine on this state gets another id. */
        static uint64_t next_id = UINT64_C(1) << 62;
        ts->id = next_id++;
#endif
        Py_DECREF(dict);
    }
#if PY_VERSION_HEX >= 0x030D0000
    /* What threading.local knows the thread by. */
    Py_CLEAR(ts->threading_local_key);
    Py_CLEAR(ts->threading_local_sentinel);
    Py_CLEAR(((_PyThreadStateImpl *)ts)->asyncio_running_loop);
#endif
    if (ts->c_tracefunc)
        PyEval_SetTrace(NULL, NULL);
    if (ts->c_profilefunc)
        PyEval_SetProfile(NULL, NULL);
    Py_CLEAR(ts->async_exc);
    Py_CLEAR(ts->async_gen_firstiter);
    Py_CLEAR(ts->async_gen_finalizer);
    Py_CLEAR(ts->context);
    ts->context_ver++;
    ts->coroutine_origin_tracking_depth = 0;
}

#ifndef Py_GIL_DISABLED

/* Whether goroutines are the threads of the module threading. Then the state of each has the goroutine's identity, and
   what looks for a thread by its identity finds the goroutine: sys._current_frames, PyThreadState_SetAsyncExc. */
static int are_threads;

void gosched_state_are_threads(void) { are_threads = 1; }

/* The state is that of the goroutine with this identity; 0: of none. */
void gosched_state_identify(PyThreadState *ts, unsigned long ident)
{
    if (are_threads)
        ts->thread_id = ident;
}

/* The interpreter counts the levels of recursion of a state: whether it is back at the first. */
int gosched_state_is_clean(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    return ts->dict == NULL && ts->threading_local_sentinel == NULL && ts->exc_info == &ts->exc_state;
#elif PY_VERSION_HEX >= 0x030B0000
    return ts->dict == NULL && ts->exc_info == &ts->exc_state;
#else
    return ts->dict == NULL && ts->exc_info == &ts->exc_state && ts->recursion_depth == 0;
#endif
}

#else /* Py_GIL_DISABLED */

/* Without a GIL a thread state stays with its thread for ever: objects remember the thread that made them, and
   memory the state. So all goroutines of a thread share its state, and what of it is a goroutine's is exchanged
   when the goroutine leaves Python and when it enters again. */

/* The part of a thread state that is the goroutine's. While the goroutine is in Python it is in the state, and here
   is what the thread has without a goroutine. */
struct gosched_frames {
    /* IS_IN, IS_OUT or IS_READ. */
    int where;
    /* The thread's. */
    PyThreadState *ts;
    _PyErr_StackItem exc_state, *exc_info;
    PyObject *current_exception, *context, *delete_later;
    PyObject *async_gen_firstiter, *async_gen_finalizer;
    struct _PyInterpreterFrame *current_frame;
    _PyStackChunk *datastack_chunk;
    PyObject **datastack_top, **datastack_limit;
    /* Levels of recursion that Python's functions have used: the limit may be changed meanwhile. */
    int py_depth;
    int c_recursion_remaining, recursion_headroom;
    int tracing, what_event, coroutine_origin_tracking_depth;
    Py_tracefunc c_tracefunc, c_profilefunc;
    PyObject *c_traceobj, *c_profileobj;
    uintptr_t critical_section;
    /* What the goroutine is known by. */
    PyObject *dict, *threading_local_key, *threading_local_sentinel, *asyncio_running_loop;
};

/* The goroutine is in Python; it has left; it has left, and another thread looks at its frames. */
enum { IS_IN, IS_OUT, IS_READ };

/* What Rust has reserved for them, in words. */
#define FRAMES_WORDS 48
_Static_assert(sizeof(struct gosched_frames) <= FRAMES_WORDS * sizeof(uint64_t), "FRAMES_WORDS in state.rs");

#define EXCHANGE(type, a, b) \
    do {                     \
        type a_ = (a);       \
        (a) = (b);           \
        (b) = a_;            \
    } while (0)

static void exchange(PyThreadState *ts, struct gosched_frames *f)
{
    int py_depth = ts->py_recursion_limit - ts->py_recursion_remaining;
    EXCHANGE(_PyErr_StackItem, ts->exc_state, f->exc_state);
    EXCHANGE(_PyErr_StackItem *, ts->exc_info, f->exc_info);
    EXCHANGE(PyObject *, ts->current_exception, f->current_exception);
    EXCHANGE(PyObject *, ts->context, f->context);
    /* Of another goroutine a value may have been cached for this context. */
    ts->context_ver++;
    EXCHANGE(PyObject *, ts->delete_later, f->delete_later);
    EXCHANGE(PyObject *, ts->async_gen_firstiter, f->async_gen_firstiter);
    EXCHANGE(PyObject *, ts->async_gen_finalizer, f->async_gen_finalizer);
    EXCHANGE(struct _PyInterpreterFrame *, ts->current_frame, f->current_frame);
    EXCHANGE(_PyStackChunk *, ts->datastack_chunk, f->datastack_chunk);
    EXCHANGE(PyObject **, ts->datastack_top, f->datastack_top);
    EXCHANGE(PyObject **, ts->datastack_limit, f->datastack_limit);
    ts->py_recursion_remaining = ts->py_recursion_limit - f->py_depth;
    f->py_depth = py_depth;
    EXCHANGE(int, ts->c_recursion_remaining, f->c_recursion_remaining);
    EXCHANGE(int, ts->recursion_headroom, f->recursion_headroom);
    EXCHANGE(int, ts->tracing, f->tracing);
    EXCHANGE(int, ts->what_event, f->what_event);
    EXCHANGE(int, ts->coroutine_origin_tracking_depth, f->coroutine_origin_tracking_depth);
    EXCHANGE(Py_tracefunc, ts->c_tracefunc, f->c_tracefunc);
    EXCHANGE(Py_tracefunc, ts->c_profilefunc, f->c_profilefunc);
    EXCHANGE(PyObject *, ts->c_traceobj, f->c_traceobj);
    EXCHANGE(PyObject *, ts->c_profileobj, f->c_profileobj);
    EXCHANGE(uintptr_t, ts->critical_section, f->critical_section);
    EXCHANGE(PyObject *, ts->dict, f->dict);
    EXCHANGE(PyObject *, ts->threading_local_key, f->threading_local_key);
    EXCHANGE(PyObject *, ts->threading_local_sentinel, f->threading_local_sentinel);
    EXCHANGE(PyObject *, ((_PyThreadStateImpl *)ts)->asyncio_running_loop, f->asyncio_running_loop);
}

/* A state for the calling thread. NULL: no memory. */
PyThreadState *gosched_thread_state(PyInterpreterState *interp) { return make_state(interp); }

/* Makes f that of the goroutine which is in Python on this thread, attached, and has not been one so far. */
void gosched_frames_adopt(struct gosched_frames *f)
{
    memset(f, 0, sizeof *f);
    f->ts = PyThreadState_Get();
    f->exc_info = &f->ts->exc_state;
    f->c_recursion_remaining = Py_C_RECURSION_LIMIT;
}

/* Memory for the frames of goroutines, kept for the next ones of the thread. */
enum { KEPT_CHUNKS = 64 };
static __thread struct chunk {
    _PyStackChunk *chunk;
    PyObject **top, **limit;
} kept[KEPT_CHUNKS];
static __thread int kept_count;

static void keep_chunk(PyThreadState *ts)
{
    PyObjectArenaAllocator allocator;
    _PyStackChunk *chunk = ts->datastack_chunk;
    if (chunk && !chunk->previous && kept_count < KEPT_CHUNKS) {
        kept[kept_count++] = (struct chunk){chunk, ts->datastack_top, ts->datastack_limit};
        chunk = NULL;
    }
    ts->datastack_chunk = NULL;
    ts->datastack_top = ts->datastack_limit = NULL;
    PyObject_GetArenaAllocator(&allocator);
    while (chunk) {
        _PyStackChunk *previous = chunk->previous;
        allocator.free(allocator.ctx, chunk, chunk->size);
        chunk = previous;
    }
}

/* A new goroutine, on a stack of stack_size bytes, enters Python on the thread of ts. */
void gosched_frames_begin(struct gosched_frames *f, PyThreadState *ts, size_t stack_size)
{
    size_t levels = stack_size / BYTES_PER_LEVEL;
    gosched_state_enter(ts);
    memset(f, 0, sizeof *f);
    f->ts = ts;
    f->exc_info = &ts->exc_state;
    f->c_recursion_remaining = levels < Py_C_RECURSION_LIMIT ? (int)levels : Py_C_RECURSION_LIMIT;
    if (kept_count) {
        struct chunk *chunk = &kept[--kept_count];
        f->datastack_chunk = chunk->chunk;
        f->datastack_top = chunk->top;
        f->datastack_limit = chunk->limit;
    }
    exchange(ts, f);
}

/* The goroutine, of which nothing is left in the state (gosched_state_reset), leaves Python for ever. */
void gosched_frames_end(struct gosched_frames *f)
{
    PyThreadState *ts = f->ts;
    Py_CLEAR(ts->exc_state.exc_value);
    keep_chunk(ts);
    exchange(ts, f);
    PyEval_SaveThread();
}

/* The goroutine leaves Python. */
void gosched_frames_leave(struct gosched_frames *f)
{
    PyThreadState *ts = f->ts;
    /* The locks of what it has begun to change: others may have them meanwhile. */
    if (ts->critical_section)
        _PyCriticalSection_SuspendAll(ts);
    exchange(ts, f);
    /* Release: who looks at the frames finds them complete. */
    __atomic_store_n(&f->where, IS_OUT, __ATOMIC_RELEASE);
    PyEval_SaveThread();
}

/* It enters again. */
void gosched_frames_enter(struct gosched_frames *f)
{
    PyThreadState *ts = f->ts;
    int out = IS_OUT;
    gosched_state_enter(ts);
    /* Acquire: pairs with the release of the thread that has looked. It waits for nothing. */
    while (!__atomic_compare_exchange_n(&f->where, &out, IS_IN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        out = IS_OUT;
        sched_yield();
    }
    exchange(ts, f);
    if (ts->critical_section)
        _PyCriticalSection_Resume(ts);
}

/* Keeps a goroutine from entering Python until gosched_frames_let_go. 0: it is in Python. */
int gosched_frames_hold(struct gosched_frames *f)
{
    int out = IS_OUT;
    /* Acquire: pairs with the release in gosched_frames_leave. */
    return __atomic_compare_exchange_n(&f->where, &out, IS_READ, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void gosched_frames_let_go(struct gosched_frames *f)
{
    /* Release: what was done to the frames is seen by the goroutine. */
    __atomic_store_n(&f->where, IS_OUT, __ATOMIC_RELEASE);
}

/* One more reference to an object that another thread will have: not on the account of the thread that has made
   the object, which may be the caller and could settle it only when it runs. */
void gosched_object_give(PyObject *o)
{
    if (!_Py_IsImmortal(o))
        _Py_atomic_add_ssize(&o->ob_ref_shared, (Py_ssize_t)1 << _Py_REF_SHARED_SHIFT);
}

/* Whether other threads have given back the last references to objects that the thread of ts has made. Only that
   thread can free them. */
int gosched_must_settle(PyThreadState *ts)
{
    return (__atomic_load_n(&ts->eval_breaker, __ATOMIC_RELAXED) & _PY_EVAL_EXPLICIT_MERGE_BIT) != 0;
}

/* Does so, on that thread, while it is not in Python. */
void gosched_settle(PyThreadState *ts)
{
    gosched_state_enter(ts);
    if (_Py_HandlePending(ts) < 0)
        PyErr_WriteUnraisable(NULL);
    PyEval_SaveThread();
}

/* The innermost frames of a goroutine. Frames of Python itself must not leave the goroutine: it goes on with them. */
enum { MOST_FRAMES = 64 };
struct look {
    int count;
    struct {
        PyObject *code;
        int lasti;
    } frames[MOST_FRAMES];
};

/* Notes them, while the goroutine stands still. Allocates nothing. */
static void look_at(struct look *look, struct _PyInterpreterFrame *frame)
{
    for (; frame && look->count < MOST_FRAMES; frame = frame->previous) {
        if (_PyFrame_IsIncomplete(frame))
            continue;
        look->frames[look->count].code = Py_NewRef(_PyFrame_GetCode(frame));
        look->frames[look->count++].lasti = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
    }
}

/* A list of pairs of code and index of the instruction, innermost first. NULL: an error. */
static PyObject *list_of(struct look *look)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; i < look->count; i++) {
        PyObject *pair = list ? Py_BuildValue("(Oi)", look->frames[i].code, look->frames[i].lasti) : NULL;
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
        Py_DECREF(look->frames[i].code);
    }
    return list;
}

/* The stack of a goroutine that is held, and is let go. */
PyObject *gosched_frames_stack(struct gosched_frames *f)
{
    struct look look = {.count = 0};
    look_at(&look, f->current_frame);
    gosched_frames_let_go(f);
    return list_of(&look);
}

/* A thread, and what it is thought to run. */
struct look_at_thread {
    PyThreadState *ts;
    void *const *running;
    void *expected;
    int is_done;
    struct look look;
};

/* Called while Python has stopped all other threads. */
static int look_at_thread(PyObject *object, void *arg)
{
    struct look_at_thread *thread = arg;
    if (!thread->is_done && __atomic_load_n(thread->running, __ATOMIC_RELAXED) == thread->expected) {
        thread->is_done = 1;
        look_at(&thread->look, thread->ts->current_frame);
    }
    return 0;
}

/* The stack of what runs on a thread of goroutines while *running is expected; None if it is something else by
   now. */
PyObject *gosched_thread_stack(PyThreadState *ts, void *const *running, void *expected)
{
    struct look_at_thread thread = {.ts = ts, .running = running, .expected = expected};
    /* Stops the world around its calls. The first call does all, and ends it. */
    PyUnstable_GC_VisitObjects(look_at_thread, &thread);
    if (!thread.is_done)
        Py_RETURN_NONE;
    return list_of(&thread.look);
}
#endif
