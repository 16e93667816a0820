"""``sqlite3`` whose calls wait in other threads: what :func:`gosched.patch_sqlite3` puts into that module.

To the C module connections are for all threads, as each call may be made in another. Whether a connection is used by the
goroutine that has made it is looked at here, with the identities that `threading` has: with `threading` patched a
goroutine is a thread there.
"""

import functools
import operator
import sys
import warnings

import _sqlite3

from ._calls import Calls, Rows, call_as_program, caller

_C = _sqlite3.Connection
_Cursor = _sqlite3.Cursor
_step = _Cursor.__next__

#: how the other arguments of connect() are called, in their order
_NAMES = ("timeout", "detect_types", "isolation_level", "check_same_thread", "factory", "cached_statements", "uri")


def _check_thread(connection):
    owner = connection._gosched_owner
    if owner is not None and owner != caller():
        raise _sqlite3.ProgrammingError(
            "SQLite objects created in a thread can only be used in that same thread. The object was created in"
            " thread id %d and this is thread id %d." % (owner, caller())
        )


def _by_name(args, kwargs, function):
    """The arguments of connect() with those after the first by name. If there are too many, as they are: C says so."""
    rest = args[1:]
    if not rest or len(rest) > len(_NAMES) or set(_NAMES[: len(rest)]) & set(kwargs) or sys.version_info >= (3, 15):
        return args, kwargs
    if sys.version_info >= (3, 13):
        warnings.warn(
            "Passing more than 1 positional argument to %s() is deprecated. Parameters 'timeout', 'detect_types',"
            " 'isolation_level', 'check_same_thread', 'factory', 'cached_statements' and 'uri' will become"
            " keyword-only parameters in Python 3.15." % function,
            DeprecationWarning,
            stacklevel=3,
        )
    return args[:1], {**dict(zip(_NAMES, rest)), **kwargs}


_connect = _sqlite3.connect


@functools.wraps(_connect)
def connect(*args, **kwargs):
    if len(args) > 1 and sys.version_info >= (3, 15):
        return _connect(*args, **kwargs)  # a TypeError
    # As in C, the class of the connection gets all arguments.
    factory = args[5] if len(args) > 5 else kwargs.get("factory", Connection)
    if factory is Connection:
        args, kwargs = _by_name(args, kwargs, "sqlite3.connect")
    return factory(*args, **kwargs)


def _method(name, call):
    """A method of a connection, which is called by wait() or at_once() of its Calls."""
    original = getattr(_C, name)

    @functools.wraps(original)
    def method(self, /, *args, **kwargs):
        _check_thread(self)
        return call(self._gosched_calls, original, self, *args, **kwargs)

    return method


def _setting(name):
    """An attribute that ends a transaction, or begins one, when it is set."""
    original = vars(_C)[name]

    def set_it(self, value):
        _check_thread(self)
        self._gosched_calls.wait(original.__set__, self, value)

    def delete_it(self):
        original.__delete__(self)

    return property(lambda self: original.__get__(self), set_it, delete_it, original.__doc__)


def _ending(name):
    """A method that ends the transaction, if there is one."""
    original = getattr(_C, name)

    @functools.wraps(original)
    def method(self):
        _check_thread(self)
        calls = self._gosched_calls
        call = calls.wait if calls.has_orphan() or self.in_transaction else calls.at_once
        return call(original, self)

    return method


_DEFAULT = object()


class Connection(_C):
    __doc__ = _C.__doc__
    __slots__ = ("_gosched_calls", "_gosched_owner")

    def __new__(cls, *args, **kwargs):
        self = _C.__new__(cls)
        self._gosched_calls = Calls()
        self._gosched_owner = None
        return self

    def __init__(self, *args, **kwargs):
        args, kwargs = _by_name(args, kwargs, "_sqlite3.Connection")
        checks = kwargs.get("check_same_thread", True)
        if len(args) < 2:
            kwargs = {**kwargs, "check_same_thread": False}
        calls = self._gosched_calls
        try:
            calls.wait(_C.__init__, self, *args, **kwargs)
        finally:
            # The second time it clears these attributes.
            self._gosched_calls = calls
            self._gosched_owner = caller() if checks else None

    def __call__(self, *args):
        _check_thread(self)
        return self._gosched_calls.wait(_C.__call__, self, *args)

    def cursor(self, factory=_DEFAULT):
        """Return a cursor for the connection."""
        _check_thread(self)
        return _C.cursor(self, Cursor if factory is _DEFAULT else factory)

    def execute(self, *args):
        """Executes an SQL statement."""
        return self.cursor().execute(*args)

    def executemany(self, *args):
        """Repeatedly executes an SQL statement."""
        return self.cursor().executemany(*args)

    def executescript(self, *args):
        """Executes multiple SQL statements at once."""
        return self.cursor().executescript(*args)

    def close(self):
        """Close the database connection. Any pending transaction is not committed implicitly."""
        _check_thread(self)
        # Nothing will come of what goes on without its goroutine. (Other methods can't do this: while another query has
        # rows that were not read SQLite would interrupt what comes next, too.)
        self._gosched_calls.end_orphan(self._gosched_interrupt)
        self._gosched_calls.wait(_C.close, self)

    def _gosched_interrupt(self):
        try:
            self.interrupt()
        except _sqlite3.Error:
            pass  # it's closed

    commit = _ending("commit")
    rollback = _ending("rollback")

    def backup(self, target, **kwargs):
        """Makes a backup of the database."""
        _check_thread(self)
        if not isinstance(target, Connection) or target is self:
            return self._gosched_calls.wait(_C.backup, self, target, **kwargs)
        return self._gosched_calls.wait_with(target._gosched_calls, _C.backup, self, target, **kwargs)

    if hasattr(_C, "blobopen"):

        @functools.wraps(_C.blobopen)
        def blobopen(self, *args, **kwargs):
            _check_thread(self)
            return Blob._of(self, self._gosched_calls.wait(_C.blobopen, self, *args, **kwargs))


#: methods of the C class that may be called by any goroutine, at any time, or call the others
_FREE = {"interrupt", "iterdump", "__enter__", "__del__"}
_WAIT = {"__exit__", "serialize", "deserialize", "load_extension"}
for _name, _value in vars(_C).items():
    if _name in ("isolation_level", "autocommit"):
        setattr(Connection, _name, _setting(_name))
    elif type(_value).__name__ == "method_descriptor" and _name not in _FREE and _name not in vars(Connection):
        setattr(Connection, _name, _method(_name, Calls.wait if _name in _WAIT else Calls.at_once))


def _calls_of(cursor):
    """Those of the cursor's connection; None: the connection is not one of this module's."""
    connection = getattr(cursor, "connection", None)
    if not isinstance(connection, Connection):
        return None
    _check_thread(connection)
    return connection._gosched_calls


def _executing(name):
    original = getattr(_Cursor, name)

    @functools.wraps(original)
    def method(self, /, *args, **kwargs):
        calls = _calls_of(self)
        self._gosched_rows = Rows()
        if calls is None:
            return original(self, *args, **kwargs)
        return calls.wait(original, self, *args, **kwargs)

    return method


class Cursor(_Cursor):
    __doc__ = _Cursor.__doc__
    __slots__ = ("_gosched_rows",)

    def __new__(cls, *args, **kwargs):
        self = _Cursor.__new__(cls)
        self._gosched_rows = Rows()
        return self

    def __del__(self, Connection=Connection, _Cursor=_Cursor):  # the module may be gone
        connection = getattr(self, "connection", None)
        if isinstance(connection, Connection) and not self._gosched_rows.has_ended:
            # The cursor may be in the middle of a query, or its query may have failed.
            connection._gosched_calls.end(_Cursor.close, self)

    execute = _executing("execute")
    executemany = _executing("executemany")
    executescript = _executing("executescript")

    def _gosched_more(self, calls):
        """Whether there may be more rows than those that were read already."""
        may_have = self.description is not None and not self._gosched_rows.has_ended
        return may_have or calls.has_orphan()

    def __next__(self):
        calls = _calls_of(self)
        if calls is None:
            return _step(self)
        rows = self._gosched_rows
        if rows:
            _check_open(self)
            return rows.pop()
        rows.raise_error()
        if not self._gosched_more(calls):
            return calls.at_once(_step, self)
        calls.wait(rows.fetch, functools.partial(call_as_program(), _step, (self,)))
        if not rows:
            rows.raise_error()
        return rows.pop()

    @functools.wraps(_Cursor.fetchone)
    def fetchone(self):
        try:
            return self.__next__()
        except StopIteration:
            return None

    @functools.wraps(_Cursor.fetchmany)
    def fetchmany(self, size=None):
        calls = _calls_of(self)
        count = self.arraysize if size is None else operator.index(size)
        if calls is None:
            return _Cursor.fetchmany(self, count)
        if count <= 0:
            return self.fetchall() if _none_is_all() else calls.at_once(_Cursor.fetchmany, self, count)
        rows = self._gosched_rows
        if len(rows) >= count:
            _check_open(self)
            return rows.take(count)
        rows.raise_error()
        if self._gosched_more(calls):
            calls.wait(_read_many, call_as_program(), self, rows, count)
        elif not rows:
            return calls.at_once(_Cursor.fetchmany, self, count)
        return rows.take(count)

    @functools.wraps(_Cursor.fetchall)
    def fetchall(self):
        calls = _calls_of(self)
        if calls is None:
            return _Cursor.fetchall(self)
        rows = self._gosched_rows
        rows.raise_error()
        if self._gosched_more(calls):
            calls.wait(_read_all, call_as_program(), self, rows)
        elif not rows:
            return calls.at_once(_Cursor.fetchall, self)
        return rows.take()

    @functools.wraps(_Cursor.close)
    def close(self):
        calls = _calls_of(self)
        if calls is None:
            return _Cursor.close(self)
        # To leave a statement in the middle may end its transaction.
        call = calls.wait if self._gosched_more(calls) else calls.at_once
        call(_Cursor.close, self)
        self._gosched_rows = Rows()


@functools.lru_cache(maxsize=None)
def _none_is_all():
    """Whether fetchmany() fetches all rows if the size is 0 or less. Later releases fetch none, or raise ValueError."""
    connection = _C(":memory:")
    try:
        return bool(_Cursor.fetchmany(_C.cursor(connection).execute("select 1"), 0))
    finally:
        connection.close()


def _check_open(cursor):
    # An attribute that a closed connection doesn't have.
    cursor.connection.total_changes


def _read_many(call, cursor, rows, count):
    missing = count - len(rows)
    if missing > 0 and not rows.has_ended:
        rows.add(_read(call, _Cursor.fetchmany, rows, cursor, missing), missing)


def _read_all(call, cursor, rows):
    if not rows.has_ended:
        rows.add(_read(call, _Cursor.fetchall, rows, cursor))


def _read(call, function, rows, *args):
    try:
        return call(function, args)
    except BaseException:
        rows.take()  # as the C class loses those that it has read
        raise


if hasattr(_sqlite3, "Blob"):
    _Blob = _sqlite3.Blob

    class Blob:
        __doc__ = _Blob.__doc__
        __slots__ = ("_connection", "_blob")

        def __new__(cls, *args, **kwargs):
            raise TypeError("cannot create 'sqlite3.Blob' instances")

        @classmethod
        def _of(cls, connection, blob):
            self = object.__new__(cls)
            self._connection = connection
            self._blob = blob
            return self

        __iter__ = None

        def __del__(self, close=_Blob.close):
            self._connection._gosched_calls.end(close, self._blob)

        def __enter__(self):
            self._gosched_call(_Blob.__enter__)
            return self

        def _gosched_call(self, function, *args):
            _check_thread(self._connection)
            return self._connection._gosched_calls.wait(function, self._blob, *args)

    def _on_blob(original):
        @functools.wraps(original)
        def method(self, /, *args):
            return self._gosched_call(original, *args)

        return method

    for _name, _value in vars(_Blob).items():
        if callable(_value) and _name not in vars(Blob):
            setattr(Blob, _name, _on_blob(_value))


#: what stands for the names of the C module. Nothing, if its SQLite is for one thread only.
REPLACEMENTS = {}
if getattr(_sqlite3, "threadsafety", 1) > 0:
    REPLACEMENTS.update(connect=connect, Connection=Connection, Cursor=Cursor)
    if hasattr(_sqlite3, "Blob"):
        REPLACEMENTS["Blob"] = Blob
for _name, _value in REPLACEMENTS.items():
    # Where the C module's own say that they are.
    _value.__module__ = vars(_sqlite3)[_name].__module__
