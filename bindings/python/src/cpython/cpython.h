/* What depends on the version of CPython, and on whether it has a GIL: the layout of thread states above all. Each
   family of versions has a file here with the functions below. This is the one place that asks for the version.

   cpython_find_slot          finds where the interpreter keeps the state of a thread; on a thread with a state that is
                              attached, at import and in the child of a fork, for which the interpreter makes another
                              place: glibc gives it the same, musl doesn't. 0, or -1: in an unknown place
   cpython_note_state         the calling thread is about to attach with this state
   cpython_is_finalizing      whether Python has begun to take itself down: threads that ask for the GIL don't get it any
                              more
   cpython_look_for_signals   has the goroutine that runs in a state look for signals soon; with the GIL held
   cpython_stack_for          the size of a goroutine's stack in bytes; `usual` is the default
   cpython_limit_recursion    makes a state's limit of C recursion fit a stack of that many bytes, which the caller is
                              at the top of; before each goroutine that uses the state
   cpython_borrow_stack       a state that is a thread's, and attached, is used on a goroutine's stack for a moment, of
                              which that many bytes are free
   cpython_return_stack       the moment is over: the state leaves Python next, and is the thread's again
   cpython_may_identify       whether a state may have the identity of a goroutine for good, in place of a thread's
   cpython_reset              drops what the goroutine has put into a state, which is attached, beside its dict
   cpython_is_attached        whether the state is attached, so that its frames may change at any moment
   cpython_first_frame        reads the address of the innermost frame of a state, NULL if it has none
   cpython_read_frame         reads a frame: see place.h
   CPYTHON_LINES, CPYTHON_NAME  the fields of a code object with its table of lines, and its name for people
   CPYTHON_UNMONITOR          makes a copy of a code object forget the instructions that monitoring has replaced
   cpython_is_clean           whether nothing of a goroutine is left in a state: the interpreter counts the levels of
                              recursion of a state, and is back at the first

   A file for a free-threaded Python also has what goroutines exchange with the state of their thread, and the look
   at a goroutine's frames: see free.h. */
#ifndef GOSCHED_CPYTHON_H
#define GOSCHED_CPYTHON_H

#include <Python.h>
#include <stddef.h>
#include "place.h"

#if PY_VERSION_HEX >= 0x03100000
/* The layout of thread states changes with each version. pip doesn't get here (pyproject.toml). */
#error "gosched knows CPython 3.9 to 3.15"
#elif defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030F0000
#include "3.15t.h"
#elif defined(Py_GIL_DISABLED) && PY_VERSION_HEX >= 0x030E0000
#include "3.14t.h"
#elif defined(Py_GIL_DISABLED)
#include "3.13t.h"
#elif PY_VERSION_HEX >= 0x030F0000
#include "3.15.h"
#elif PY_VERSION_HEX >= 0x030E0000
#include "3.14.h"
#elif PY_VERSION_HEX >= 0x030D0000
#include "3.13.h"
#elif PY_VERSION_HEX >= 0x030C0000
#include "3.12.h"
#elif PY_VERSION_HEX >= 0x030B0000
#include "3.11.h"
#elif PY_VERSION_HEX >= 0x030A0000
#include "3.10.h"
#else
#include "3.9.h"
#endif

#endif
