/* From 3.12 on the interpreter keeps the state of a thread in a variable of its own, which follows each attach. */

static inline int cpython_find_slot(void) { return 0; }

static inline void cpython_note_state(PyThreadState *ts) { (void)ts; }

/* The limit of recursion doesn't hold for C's frames. */
static inline size_t cpython_stack_for(size_t usual) { return usual; }
