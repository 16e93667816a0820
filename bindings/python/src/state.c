/* What depends on the layout of CPython's thread states: compiled for each version. */
#include <Python.h>
#include <gosched.h>

/* The Python that this was compiled for, as PY_VERSION_HEX. */
unsigned long gosched_python_compiled_for(void) { return PY_VERSION_HEX; }
