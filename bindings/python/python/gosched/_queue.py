"""The cooperative :class:`SimpleQueue`."""

import collections as _collections
import types as _types
from _queue import Empty

from . import _gosched


class SimpleQueue:
    """Simple, unbounded, reentrant FIFO queue."""

    __slots__ = ("_items", "_count", "__weakref__")

    def __init__(self):
        self._items = _collections.deque()
        self._count = _gosched.Semaphore(0)

    def put(self, item, block=True, timeout=None):
        """Put the item on the queue. It never blocks; block and timeout are as in Queue.put."""
        self._items.append(item)
        self._count.release()

    def get(self, block=True, timeout=None):
        """Remove and return an item; Empty if there is none (in time)."""
        if timeout is not None and block and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if not self._count.acquire(block, timeout if block else None):
            raise Empty
        return self._items.popleft()

    def put_nowait(self, item):
        """Put an item into the queue without blocking."""
        self.put(item)

    def get_nowait(self):
        """Remove and return an item, or raise Empty."""
        return self.get(False)

    def empty(self):
        """Whether the queue is empty (which may have changed by now)."""
        return not self._items

    def qsize(self):
        """The number of items (which may have changed by now)."""
        return len(self._items)

    def __reduce__(self):
        raise TypeError("cannot pickle '_queue.%s' object" % type(self).__name__)

    __class_getitem__ = classmethod(_types.GenericAlias)
