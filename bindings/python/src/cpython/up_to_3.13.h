/* Up to Python 3.13. */

/* The interpreter doesn't know where the stack is on which it runs. */

static inline void cpython_borrow_stack(PyThreadState *ts, size_t size)
{
    (void)ts;
    (void)size;
}

static inline void cpython_return_stack(PyThreadState *ts) { (void)ts; }

static inline int cpython_may_identify(void) { return 1; }
