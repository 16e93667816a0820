/* What depends on the layout of CPython's thread states: compiled for each version. */
#include <Python.h>
#include <pthread.h>
#include <limits.h>
#include <unistd.h>

#if PY_VERSION_HEX >= 0x030D0000
#define Py_BUILD_CORE
#include <internal/pycore_ceval.h>
#include <internal/pycore_tstate.h>
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

/* In the child the other threads, which may have waited for it, are gone. */
void gosched_state_forked(void)
{
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    making = fresh;
    forks = 0;
}

/* Has the goroutine that runs in ts look for signals soon. The GIL is held. */
void gosched_state_interrupt(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    _Py_set_eval_breaker_bit(ts, _PY_SIGNALS_PENDING_BIT);
#else
    /* The mark is the interpreter's: whoever runs sees it. */
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

/* A state for a goroutine whose stack has stack_size bytes. NULL: no memory. */
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

/* Whether the goroutine has thread-local data: destructors that are to run on its stack. */
int gosched_state_has_dict(PyThreadState *ts) { return ts->dict != NULL; }

/* What the goroutine has left behind and the next one on this state must not see. The state is attached. */
void gosched_state_reset(PyThreadState *ts)
{
    static uint64_t next_id = UINT64_C(1) << 62;
    PyObject *dict = ts->dict;
    ts->dict = NULL;
    if (dict) {
        /* asyncio remembers, by the state's id and without a reference, the running loop that the dict
           has held: the next goroutine on this state gets another id. */
        ts->id = next_id++;
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
