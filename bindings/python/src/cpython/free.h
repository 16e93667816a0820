/* Free-threaded Pythons: what goroutines exchange with the state of their thread. The file of a version has what differs:

   struct limits      what bounds C recursion, and what else of a goroutine the version has on top of the others
   exchange_limits    exchanges that with a state
   new_limits         what a goroutine begins with, on a stack of stack_size bytes which the caller is at the top of
   bottom_frame       the frame below a goroutine's first */
#include <string.h>

/* The part of a thread state that is a goroutine's. While the goroutine is in Python this part is in the state, and
   here is what the thread has without a goroutine. */
struct gosched_frames {
    /* Whether the goroutine is in Python: see sys/free/state.c. */
    int where;
    /* The state of the goroutine's thread. */
    PyThreadState *ts;
    _PyErr_StackItem exc_state, *exc_info;
    PyObject *current_exception, *context, *delete_later;
    PyObject *async_gen_firstiter, *async_gen_finalizer;
    struct _PyInterpreterFrame *current_frame;
    _PyStackChunk *datastack_chunk;
    PyObject **datastack_top, **datastack_limit;
    /* Levels of recursion that Python's functions have used: the limit may be changed meanwhile. */
    int py_depth;
    int recursion_headroom;
    struct limits limits;
    int tracing, what_event, coroutine_origin_tracking_depth;
    Py_tracefunc c_tracefunc, c_profilefunc;
    PyObject *c_traceobj, *c_profileobj;
    uintptr_t critical_section;
    /* What the goroutine is known by. */
    PyObject *dict, *threading_local_key, *threading_local_sentinel, *asyncio_running_loop;
};

static inline void exchange(PyThreadState *ts, struct gosched_frames *f)
{
    int py_depth = ts->py_recursion_limit - ts->py_recursion_remaining;
    EXCHANGE(_PyErr_StackItem, ts->exc_state, f->exc_state);
    EXCHANGE(_PyErr_StackItem *, ts->exc_info, f->exc_info);
    EXCHANGE(PyObject *, ts->current_exception, f->current_exception);
    EXCHANGE(PyObject *, ts->context, f->context);
    /* The interpreter may have cached values for the context of another goroutine. */
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
    exchange_limits(ts, &f->limits);
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

/* What a goroutine begins with, on a stack of stack_size bytes and the thread of ts; its frames are not exchanged yet. */
static inline void new_frames(struct gosched_frames *f, PyThreadState *ts, size_t stack_size)
{
    memset(f, 0, sizeof *f);
    f->ts = ts;
    f->exc_info = &ts->exc_state;
    f->current_frame = bottom_frame(ts);
    new_limits(&f->limits, ts, stack_size);
}

/* Memory for the frames of goroutines, kept for the next ones of the thread. */
enum { KEPT_CHUNKS = 64 };
static __thread struct chunk {
    _PyStackChunk *chunk;
    PyObject **top, **limit;
} kept[KEPT_CHUNKS];
static __thread int kept_count;

/* Gives a goroutine that begins some of this memory, if there is any. */
static inline void take_chunk(struct gosched_frames *f)
{
    if (kept_count) {
        struct chunk *chunk = &kept[--kept_count];
        f->datastack_chunk = chunk->chunk;
        f->datastack_top = chunk->top;
        f->datastack_limit = chunk->limit;
    }
}

/* Keeps the memory of a goroutine that ends, whose frames are in ts. */
static inline void keep_chunk(PyThreadState *ts)
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

/* The innermost frames of a goroutine. Frames of Python itself must not leave the goroutine: it goes on with them. */
enum { MOST_FRAMES = 64 };
struct look {
    int count;
    struct {
        PyObject *code;
        int lasti;
    } frames[MOST_FRAMES];
};

/* Notes the frames from `frame` on, while the goroutine stands still. Allocates nothing. */
static inline void look_at(struct look *look, struct _PyInterpreterFrame *frame)
{
    for (; frame && look->count < MOST_FRAMES; frame = frame->previous) {
        if (_PyFrame_IsIncomplete(frame))
            continue;
        look->frames[look->count].code = Py_NewRef(_PyFrame_GetCode(frame));
        look->frames[look->count++].lasti = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
    }
}

/* For a goroutine that is about to leave Python: gives back the locks of objects that it has begun to change. */
static inline void suspend_locks(PyThreadState *ts)
{
    if (ts->critical_section)
        _PyCriticalSection_SuspendAll(ts);
}

/* For a goroutine that has entered Python again: takes these locks. */
static inline void resume_locks(PyThreadState *ts)
{
    if (ts->critical_section)
        _PyCriticalSection_Resume(ts);
}

/* One more reference to an object that is not on the account of the thread that has made it. */
static inline void add_shared_reference(PyObject *o)
{
    if (!_Py_IsImmortal(o))
        _Py_atomic_add_ssize(&o->ob_ref_shared, (Py_ssize_t)1 << _Py_REF_SHARED_SHIFT);
}

/* Whether other threads have given back the last references to objects that the thread of ts has made. */
static inline int has_objects_to_free(PyThreadState *ts)
{
    return (__atomic_load_n(&ts->eval_breaker, __ATOMIC_RELAXED) & _PY_EVAL_EXPLICIT_MERGE_BIT) != 0;
}

/* Frees these objects, on that thread, with ts attached. */
static inline void free_objects(PyThreadState *ts)
{
    if (_Py_HandlePending(ts) < 0)
        PyErr_WriteUnraisable(NULL);
}

/* In the child of a fork: a thread that is gone may have waited for this lock, in order to stop the world. Python leaves
   it locked in the child, and the next collection would wait for it for ever. */
static inline void forget_stop(void) { PyInterpreterState_Get()->stoptheworld.mutex = (PyMutex){0}; }
