"""``selectors`` over the cooperative :mod:`gosched.select`."""

import selectors as _std

from . import select as _select
from ._originals import take_names as _take_names

_take_names(_std, globals())


class SelectSelector(_std.SelectSelector):
    __doc__ = _std.SelectSelector.__doc__
    _select = staticmethod(_select.select)


class PollSelector(_std.PollSelector):
    __doc__ = _std.PollSelector.__doc__
    _selector_cls = staticmethod(_select.poll)


class EpollSelector(_std.EpollSelector):
    __doc__ = _std.EpollSelector.__doc__
    _selector_cls = _select.epoll


DefaultSelector = EpollSelector
