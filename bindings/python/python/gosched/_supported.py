"""The versions of CPython that this release knows: it relies on how each keeps the state of a thread."""

import sys

#: the same versions are in pyproject.toml, src/cpython/cpython.h and tools/pythons of the repository
OLDEST, NEWEST = (3, 9), (3, 15)
FREE_THREADED = (3, 13)


def check(version, implementation="cpython", is_free_threaded=False):
    """ImportError: a Python of this version, such as (3, 14), is not among them."""
    known = version == FREE_THREADED if is_free_threaded else OLDEST <= version <= NEWEST
    if known and implementation == "cpython":
        return
    kind = "CPython" if implementation == "cpython" else implementation
    this = "%s %d.%d%s" % (kind, *version, "t" if is_free_threaded else "")
    raise ImportError(
        "this release of gosched knows CPython %d.%d to %d.%d and the free-threaded %d.%dt, and this is %s:"
        " a later release may know it" % (*OLDEST, *NEWEST, *FREE_THREADED, this)
    )


check(
    sys.version_info[:2],
    sys.implementation.name,
    "t" in getattr(sys, "abiflags", ""),
)
