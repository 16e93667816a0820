"""Goroutines, channels and cooperative I/O for Python."""

import os as _os

from ._gosched import version

__version__ = version()


def get_include():
    """The directory of gosched.h and gosched_python.h, for C extensions.

    >>> import os, gosched
    >>> os.path.exists(os.path.join(gosched.get_include(), "gosched.h"))
    True
    """
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "include")


def get_library_dir():
    """The directory of libgosched.so, for C extensions to link with.

    >>> import os, gosched
    >>> os.path.exists(os.path.join(gosched.get_library_dir(), "libgosched.so.1"))
    True
    """
    return _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "lib")
