"""``os.fork`` warns, from Python 3.12 on, of other threads, as they may hold locks for which the child then waits. The
package's own threads hold none: they give no warning.

CPython counts the threads of the process itself. What it says then goes through the filters of `warnings`, so the
package has one there, the first. It is put there before each fork, as the program may set others at any time.
"""

import os
import sys
import warnings

from . import _gosched
from . import _watchdog


class _OfOwnThreads:
    """In a filter of warnings, in the place of a regular expression: matches the warning if there are no threads but the
    package's own and the one that forks."""

    __slots__ = ()

    #: for those who look at the filters
    pattern = r".* is multi-threaded, use of .*"

    match = staticmethod(_gosched._warns_of_own_threads)

    def __repr__(self):
        return "gosched._fork._of_own_threads"

    def __reduce__(self):
        # Filters are passed to other processes.
        return "_of_own_threads"


_of_own_threads = _OfOwnThreads()
_FILTER = ("ignore", _of_own_threads, DeprecationWarning, None, 0)


def _before_fork():
    _watchdog._wait_until_begun()
    _put_first()


def _put_first():
    # From Python 3.14 on those of the context may be others.
    filters = warnings._get_filters() if hasattr(warnings, "_get_filters") else warnings.filters
    if not isinstance(filters, list) or filters and filters[0] is _FILTER:
        return
    if _FILTER in filters:
        filters.remove(_FILTER)
    filters.insert(0, _FILTER)


if sys.version_info >= (3, 12):
    os.register_at_fork(before=_before_fork)
