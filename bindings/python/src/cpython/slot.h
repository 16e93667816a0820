/* Up to 3.11 PyGILState_Ensure takes the thread's state from a slot of thread-specific data, which only the
   interpreter's start and its new threads set. It follows the goroutines of a thread by hand. */
#include <pthread.h>
#include <limits.h>

static pthread_key_t gilstate_key;

static inline int cpython_find_slot(void)
{
    void *mine = PyGILState_GetThisThreadState();
    pthread_key_t key;
    for (key = 0; mine && key < PTHREAD_KEYS_MAX; key++)
        if (pthread_getspecific(key) == mine) {
            gilstate_key = key;
            return 0;
        }
    return -1;
}

static inline void cpython_note_state(PyThreadState *ts) { pthread_setspecific(gilstate_key, ts); }

static inline int cpython_is_finalizing(void) { return _Py_IsFinalizing(); }

/* The mark is the interpreter's: the running thread state sees it, whichever that is. */
static inline void cpython_look_for_signals(PyThreadState *ts) { (void)ts; }

/* The levels of recursion for which the usual stack is made: Python's limit if no program raises it. */
#define USUAL_LEVELS 1000
/* Bytes of stack for each level that a program allows beyond. Python functions that call each other by way of C
   take 350 to 860. */
#define BYTES_BEYOND 1024
/* The most bytes that are reserved because the limit is high. */
#define MOST_STACK ((size_t)256 << 20)

static inline size_t cpython_stack_for(size_t usual)
{
    /* The limit holds for C's frames too. */
    int limit = Py_GetRecursionLimit();
    if (limit > USUAL_LEVELS) {
        size_t size = usual + (size_t)(limit - USUAL_LEVELS) * BYTES_BEYOND;
        return size < MOST_STACK ? size : MOST_STACK;
    }
    return usual;
}

static inline void cpython_limit_recursion(PyThreadState *ts, size_t stack_size)
{
    (void)ts;
    (void)stack_size;
}

#include "up_to_3.13.h"

static inline void cpython_reset(PyThreadState *ts) { (void)ts; }
