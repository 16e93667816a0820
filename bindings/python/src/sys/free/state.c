/* The states of threads, and the frames of goroutines. */
#include "../../cpython/cpython.h"
#include "../../interpreter.h"
#include <sched.h>

/* Without a GIL a thread state stays with its thread for ever: objects remember the thread that made them, and
   memory the state. So all goroutines of a thread share its state, and what of it is a goroutine's is exchanged
   when the goroutine leaves Python and when it enters again. */

/* The goroutine is in Python; it has left; it has left, and another thread looks at its frames. */
enum { IS_IN, IS_OUT, IS_READ };

/* What Rust has reserved for them, in words. */
#define FRAMES_WORDS 48
_Static_assert(sizeof(struct gosched_frames) <= FRAMES_WORDS * sizeof(uint64_t), "FRAMES_WORDS in state.rs");

/* A state for the calling thread. NULL: no memory. */
PyThreadState *gosched_thread_state(PyInterpreterState *interp) { return gosched_state_make(interp); }

void gosched_side_forget_dict(PyThreadState *ts) { (void)ts; }

void gosched_side_forked(void) { forget_stop(); }

/* Makes f that of the goroutine which is in Python on this thread, attached, and has not been one so far. */
void gosched_frames_adopt(struct gosched_frames *f) { new_frames(f, PyThreadState_Get(), SIZE_MAX); }

/* A new goroutine, on a stack of stack_size bytes, enters Python on the thread of ts. */
void gosched_frames_begin(struct gosched_frames *f, PyThreadState *ts, size_t stack_size)
{
    gosched_state_enter(ts);
    new_frames(f, ts, stack_size);
    take_chunk(f);
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
    suspend_locks(ts);
    exchange(ts, f);
    /* Release: pairs with the acquire in gosched_frames_hold. A thread that looks at the frames finds them complete. */
    __atomic_store_n(&f->where, IS_OUT, __ATOMIC_RELEASE);
    PyEval_SaveThread();
}

/* The goroutine enters Python again. */
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
    resume_locks(ts);
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

int gosched_side_is_away(void *owner)
{
    struct gosched_frames *f = owner;
    /* Acquire: pairs with the release in gosched_frames_leave. */
    return __atomic_load_n(&f->where, __ATOMIC_ACQUIRE) != IS_IN;
}

int gosched_side_first_frame(void *owner, const void **frame, cpython_reader *read)
{
    struct gosched_frames *f = owner;
    if (gosched_side_is_away(owner))
        return read(frame, &f->current_frame, sizeof *frame);
    return cpython_first_frame(f->ts, frame, read);
}

/* One more reference to an object that another thread will have: not on the account of the thread that has made
   the object, which may be the caller and could settle it only when it runs. */
void gosched_object_give(PyObject *o) { add_shared_reference(o); }

/* Whether objects wait for the thread of ts. Only that thread can free them. */
int gosched_must_settle(PyThreadState *ts) { return has_objects_to_free(ts); }

/* Frees them, on that thread, while it is not in Python. */
void gosched_settle(PyThreadState *ts)
{
    gosched_state_enter(ts);
    free_objects(ts);
    PyEval_SaveThread();
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
