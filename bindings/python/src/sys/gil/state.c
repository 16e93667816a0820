/* The thread state of a goroutine. */
#include "../../cpython/cpython.h"
#include "../../interpreter.h"

/* For a goroutine that begins, on its stack of stack_size bytes: ts is its state from here on. Not attached. */
void gosched_state_limit_recursion(PyThreadState *ts, size_t stack_size) { cpython_limit_recursion(ts, stack_size); }

/* See cpython.h. */
int gosched_state_is_clean(PyThreadState *ts) { return cpython_is_clean(ts); }

/* asyncio remembers, by the state's id and without a reference, the running loop that the dict has held: the next
   goroutine on this state gets another id. */
void gosched_side_forget_dict(PyThreadState *ts)
{
    static uint64_t next_id = UINT64_C(1) << 62;
    ts->id = next_id++;
}

/* The goroutine that forked is the main one now, and has the identity of the thread. */
void gosched_side_forked(void) { PyThreadState_Get()->thread_id = PyThread_get_thread_ident(); }

int gosched_side_is_away(void *owner) { return !cpython_is_attached(owner); }

int gosched_side_first_frame(void *owner, const void **frame, cpython_reader *read)
{
    return cpython_first_frame(owner, frame, read);
}

/* Whether goroutines are the threads of the module threading. Then the state of each has the goroutine's identity, and
   what looks for a thread by its identity finds the goroutine: sys._current_frames, PyThreadState_SetAsyncExc. Where
   Python takes that for the identity of a thread, too, the states have it only during such calls. */
static int are_threads;

void gosched_state_are_threads(void) { are_threads = 1; }

/* What states of no goroutine have for the identity of a thread, where that has to be one: zeros, which the C library may
   read as what it has of a thread (struct pthread, 2.3 KiB). Not 0: faulthandler takes that for freed memory, and ends. */
static const char nobody[8192];

/* Says that the state is that of the goroutine with this identity, which runs on the calling thread if it has just got
   the state; 0: of no goroutine. */
void gosched_state_identify(PyThreadState *ts, unsigned long ident)
{
    if (cpython_may_identify()) {
        if (are_threads)
            ts->thread_id = ident;
    } else if (!ident) {
        ts->thread_id = (unsigned long)nobody;
    } else if (ts->thread_id == (unsigned long)nobody) {
        ts->thread_id = PyThread_get_thread_ident();
    }
}

/* Gives the state another identity for a moment. Gives the former; 0: states keep what they have. */
unsigned long gosched_state_exchange_identity(PyThreadState *ts, unsigned long ident)
{
    unsigned long before = ts->thread_id;
    if (!are_threads || cpython_may_identify())
        return 0;
    ts->thread_id = ident;
    return before;
}
