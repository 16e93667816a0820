"""mysqlclient (``MySQLdb``) whose calls wait in other threads: applied to its module in C when that is imported.

A call that is given up, because its goroutine is cancelled or out of time, ends the connection: until the server has
answered, the connection would be of no use.
"""

import functools
import sys

from _socket import SHUT_RDWR, socket

from ._calls import Calls, Rows

#: methods of a connection that wait for the server
_WAIT = """autocommit change_user commit discard_result dump_debug_info kill ping query
read_query_result rollback select_db send_query set_character_set set_server_option shutdown stat store_result""".split()
#: methods that look at what these leave behind
_AT_ONCE = "affected_rows errno error field_count info insert_id more_results sqlstate warning_count".split()


#: of the errors of MySQL's clients: the connection was lost
_SERVER_LOST = 2013


class _Calls(Calls):
    """Those of a connection."""

    __slots__ = ("is_lost", "fd")

    def __init__(self):
        super().__init__()
        #: a call was given up
        self.is_lost = False
        #: the connection's descriptor, while a call is under way; None: there is no connection yet
        self.fd = None


def _calls(connection):
    try:
        return connection._gosched_calls
    except AttributeError:
        calls = connection._gosched_calls = _Calls()
        return calls


def _wait(connection, function, /, *args, **kwargs):
    calls = _calls(connection)
    if calls.is_lost:
        raise connection._gosched_error(_SERVER_LOST, "The connection has ended, as a call on it was given up")
    return _wait_anyway(connection, function, *args, **kwargs)


def _wait_anyway(connection, function, /, *args, **kwargs):
    calls = _calls(connection)
    try:
        return calls.wait(_call, calls, connection, function, *args, **kwargs)
    except BaseException:
        if calls.has_orphan():
            calls.is_lost = True
            _shut_down(calls.fd)
        raise


def _call(calls, connection, function, /, *args, **kwargs):
    # During the call nothing else can ask for it, and before it is open C crashes.
    calls.fd = connection.fileno() if connection.open else None
    return function(*args, **kwargs)


def _at_once(connection, function, /, *args, **kwargs):
    return _calls(connection).at_once(function, *args, **kwargs)


def _shut_down(fd):
    if fd is None:
        return
    end = socket(fileno=fd)
    try:
        end.shutdown(SHUT_RDWR)
    except OSError:
        pass  # the server has done so
    finally:
        end.detach()


class _Result:
    """What use_result() gives: its rows are still to come from the server."""

    __slots__ = ("_connection", "_result", "_rows")

    def __init__(self, connection, result):
        self._connection = connection
        self._result = result
        self._rows = Rows()

    def __getattr__(self, name):
        return getattr(self._result, name)

    def __del__(self):
        if not self._rows.has_ended:
            # Its end reads the rows that are left, without giving the GIL back. discard() does so in the thread of the
            # next call on the connection, which needs that.
            self._connection._gosched_calls.end_before_next(type(self._result).discard, self._result)

    def fetch_row(self, maxrows=1, how=0):
        rows = self._rows
        if len(rows) < maxrows or not maxrows:
            rows.raise_error()
            if maxrows == 1:
                _wait(self._connection, rows.fetch, functools.partial(self._fetch_one, how))
                if not rows:
                    rows.raise_error()
            else:
                _wait(self._connection, self._fetch, maxrows, how)
        return tuple(rows.take(maxrows or None))

    def _fetch_one(self, how):
        for row in self._result.fetch_row(1, how):
            return row
        raise StopIteration

    def _fetch(self, maxrows, how):
        missing = maxrows - len(self._rows)
        if not self._rows.has_ended and (missing > 0 or not maxrows):
            self._rows.add(self._result.fetch_row(max(missing, 0), how), missing if maxrows else None)

    def discard(self):
        self._rows = Rows()
        self._rows.has_ended = True
        if not _calls(self._connection).is_lost:
            _wait(self._connection, self._result.discard)


def _method(original, call):
    @functools.wraps(original)
    def method(self, /, *args, **kwargs):
        return call(self, original, self, *args, **kwargs)

    return method


def adapt(module):
    """For the module MySQLdb._mysql."""
    original = module.connection

    class connection(original):
        __doc__ = original.__doc__

        _gosched_error = module.OperationalError

        def __init__(self, *args, **kwargs):
            self._gosched_calls = _Calls()
            _wait(self, original.__init__, self, *args, **kwargs)

        @functools.wraps(original.use_result)
        def use_result(self):
            result = _wait(self, original.use_result, self)
            return None if result is None else _Result(self, result)

        # Cursors call these when they are closed.

        @functools.wraps(original.next_result)
        def next_result(self):
            return -1 if _calls(self).is_lost else _wait(self, original.next_result, self)

        @functools.wraps(original.close)
        def close(self):
            _wait_anyway(self, original.close, self)

    for name in _WAIT + _AT_ONCE:
        if hasattr(original, name):  # some are newer
            call = _wait if name in _WAIT else _at_once
            setattr(connection, name, _method(getattr(original, name), call))
    connection.__module__ = original.__module__
    connection.__qualname__ = original.__qualname__
    module.connection = connection

    @functools.wraps(module.connect)
    def connect(*args, **kwargs):
        return connection(*args, **kwargs)

    module.connect = connect
    if "MySQLdb.connections" in sys.modules:
        _adapt_class(sys.modules["MySQLdb.connections"].Connection, connection)


def _adapt_class(cls, connection):
    """For the class that MySQLdb has made of the one in C, if it was imported before. Its own methods call those of the
    class in C by super(): they are called in the other thread as a whole."""
    for name, value in vars(connection).items():
        if name in vars(cls):
            if name in ("__init__", "set_character_set"):
                setattr(cls, name, _method(vars(cls)[name], _wait))
        elif name in _WAIT + _AT_ONCE or name in ("use_result", "next_result", "close", "_gosched_error"):
            setattr(cls, name, value)
