/* What interpreter.c and the C files of sys/gil and sys/free have of each other. */
#ifndef GOSCHED_INTERPRETER_H
#define GOSCHED_INTERPRETER_H

#include <Python.h>
#include <stddef.h>
#include "cpython/place.h"

/* A new thread state. NULL: no memory. */
PyThreadState *gosched_state_make(PyInterpreterState *interp);
/* The GIL, and ts as the thread's state. */
void gosched_state_enter(PyThreadState *ts);

/* A file of each folder has these. */

/* The dict of ts, which is attached, is about to be dropped with what asyncio keeps there. */
void gosched_side_forget_dict(PyThreadState *ts);
/* In the child of a fork, where the other threads are gone; attached. */
void gosched_side_forked(void);
/* Whether a goroutine with this owner has left Python. The owner is what Rust's State::owner gives. */
int gosched_side_is_away(void *owner);
/* Reads the address of its innermost frame, NULL if it has none. -1: it can't be read. */
int gosched_side_first_frame(void *owner, const void **frame, cpython_reader *read);

#endif
