/* The interpreter, for each build and version: what depends on these is in cpython/ and sys/. */
#include "cpython/cpython.h"
#include "interpreter.h"
#include <pthread.h>
#include <unistd.h>

/* The Python that this was compiled for, as PY_VERSION_HEX. */
unsigned long gosched_python_compiled_for(void) { return PY_VERSION_HEX; }

/* See cpython.h for these. */

int gosched_state_init(void) { return cpython_find_slot(); }

int gosched_is_finalizing(void) { return cpython_is_finalizing(); }

void gosched_state_interrupt(PyThreadState *ts) { cpython_look_for_signals(ts); }

void gosched_state_borrow_stack(size_t size) { cpython_borrow_stack(PyThreadState_Get(), size); }

void gosched_state_return_stack(void) { cpython_return_stack(PyThreadState_Get()); }

size_t gosched_state_stack(size_t usual) { return cpython_stack_for(usual); }

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
    cpython_note_state(ts);
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
   threads may be about to fork; a thread that makes a state has the lock for writing. */
static pthread_rwlock_t making = PTHREAD_RWLOCK_INITIALIZER;
/* How many forks this thread has begun: goroutines may begin on it meanwhile. */
static __thread int forks;

PyThreadState *gosched_state_make(PyInterpreterState *interp)
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

/* In the child of a fork, where the other threads are gone. The calling thread's state is attached. */
void gosched_state_forked(void)
{
    cpython_find_slot();
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_INITIALIZER;
    /* One of them may have waited for this lock. */
    making = fresh;
    forks = 0;
    gosched_side_forked();
}

/* PyGILState_Ensure, with the lock `making` while it makes a state. */
PyGILState_STATE gosched_state_ensure(void)
{
    __attribute__((cleanup(rest))) int is_over = 0;
    if (!PyGILState_GetThisThreadState()) {
        PyThreadState *ts = gosched_state_make(PyInterpreterState_Main());
        /* As if PyGILState_Ensure had made it: its counterpart deletes it. */
        if (ts)
            ts->gilstate_counter = 0;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    is_over = 1;
    return state;
}

/* What the goroutine has left behind and the next one on this state must not see. The state is attached. */
void gosched_state_reset(PyThreadState *ts)
{
    PyObject *dict = ts->dict;
    ts->dict = NULL;
    if (dict) {
        gosched_side_forget_dict(ts);
        Py_DECREF(dict);
    }
    cpython_reset(ts);
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
