"""The cooperative :class:`SimpleQueue`."""

from _queue import Empty  # noqa: F401

from ._gosched import _SimpleQueue as SimpleQueue  # noqa: F401
