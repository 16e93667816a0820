"""The watchdog: it names the calls that hold a thread of goroutines up.

Its own is a thread of the system, whatever is patched. It looks from outside of Python, and enters it only to
report.
"""

import atexit
import dis
import linecache
import os
import re
import sys
import traceback

from . import _gosched
from . import _originals
from ._runtime import _frame_of

#: the frames that a report shows, at most
_FRAMES = 10
#: how long stop() waits for a report that is under way, in seconds
_STOP = 1
#: looks at a goroutine that seems to be in a call, at most
_LOOKS = 5
#: the pause between two looks, in seconds
_PAUSE = 0.001


class Incident:
    """What the watchdog reports: a goroutine that runs for too long without a wait."""

    #: the goroutine, and its name
    goroutine = None
    name = None
    #: for how long it has held the thread up, in seconds
    seconds = 0.0
    #: whether it's over: `seconds` is the total then
    ended = False
    #: where it was found: the file, the line's number, the function; None if it was over by then
    filename = None
    lineno = None
    function = None
    #: the call, as it is written there
    call = ""
    #: the stack, outermost frame first, as of traceback.extract_stack()
    stack = ()
    #: what to do about it, a sentence
    remedy = ""

    def __init__(self, goroutine, frame):
        self.goroutine = goroutine
        if goroutine is not None:
            self.name = str(goroutine.name)
        if frame is None:
            return
        self.stack = traceback.extract_stack(frame, _FRAMES)
        while frame.f_code.co_filename.startswith("<frozen importlib") and frame.f_back is not None:
            frame = frame.f_back
        self.filename = frame.f_code.co_filename
        self.lineno = frame.f_lineno
        self.function = frame.f_code.co_name
        self.call = _call_of(frame)
        self.remedy = _remedy_for(self.call) if _is_call(frame) else _COMPUTES

    def __str__(self):
        who = self.name
        if who is None:
            who = "a goroutine"
        elif not who.startswith("goroutine"):
            who = "goroutine %s" % who
        did = "has held" if not self.ended else "held"
        text = "gosched: %s %s all others up for %.3f s" % (who, did, self.seconds)
        if self.filename is not None:
            text += ": %s:%s, in %s: %s" % (self.filename, self.lineno, self.function, self.call)
        return text

    def __repr__(self):
        return "<%s.%s %s>" % (type(self).__module__, type(self).__qualname__, self)


def _call_of(frame):
    """The source of what a frame is at: the expression where Python knows it, else the line."""
    code, lineno = frame.f_code, frame.f_lineno
    linecache.checkcache(code.co_filename)
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        for at, (first, last, start, end) in enumerate(positions()):
            if at * 2 == frame.f_lasti and first == last and None not in (first, start, end):
                line = linecache.getline(code.co_filename, first, frame.f_globals)
                found = line.encode()[start:end].decode(errors="replace").strip()
                if found:
                    return found
    return linecache.getline(code.co_filename, lineno or 0, frame.f_globals).strip()


#: what a call begins with in the source: a name, or names with dots
_CALLED = re.compile(r"(?:await\s+)?([A-Za-z_][\w.]*)\s*\(")


#: what to do about a goroutine that is in no call
_COMPUTES = "it computes: let it call gosched.yield_() now and then, or give the work to another process"


def _is_call(frame):
    """Whether a frame is at a call. A call of a function in Python would have a frame of its own."""
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and "CALL" in dis.opname[code[frame.f_lasti]]


def _remedy_for(call):
    found = _CALLED.match(call)
    return "call it in another thread: gosched.blocking(%s, ...)" % (found.group(1) if found else "function")


def _print(incident):
    stderr = sys.stderr
    if stderr is None:
        return
    text = "%s\n" % incident
    if not incident.ended and len(incident.stack) > 1:
        text += "".join(traceback.format_list(incident.stack))
    if not incident.ended and incident.remedy:
        text += "  %s\n" % incident.remedy
    stderr.write(text)
    stderr.flush()


class Advice:
    """What the watchdog of patch_all(blocking="auto") calls: tells of each place once."""

    def __init__(self):
        self._places = set()

    def __call__(self, incident):
        place = incident.filename, incident.lineno
        if incident.ended and incident.filename is not None and place not in self._places:
            self._places.add(place)
            if sys.stderr is not None:
                sys.stderr.write("%s\n  %s\n" % (incident, incident.remedy))
                sys.stderr.flush()


#: the watchdog of patch_all(blocking="auto")
automatic = None


def _busy(place):
    """The goroutine that is on a thread, and its frame or None; None if none is."""
    busy = _gosched._busy(place)
    if busy is None:
        return None
    goroutine, stack = busy
    return goroutine, _frame_of(stack) if isinstance(stack, list) else stack


def _computes(place, code, lasti):
    """Whether a goroutine that was found at a call makes many short calls: it is elsewhere soon after, or this thread
    gets the GIL only when it asks for it, which it does after an interval. A call that waits has let the GIL go."""
    least = float("inf")
    for _ in range(_LOOKS - 1):
        begun = _originals.monotonic()
        _originals.sleep(_PAUSE)
        least = min(least, _originals.monotonic() - begun)
        found = _busy(place)
        if found is None or found[1] is None:
            return False
        if found[1].f_code is not code or found[1].f_lasti != lasti:
            return True
    return least > _PAUSE + sys.getswitchinterval() / 2


class Watchdog:
    """What watchdog() gives. stop() ends it, and so does leaving its `with` block."""

    def __init__(self, seconds, report):
        #: what is too long
        self.seconds = seconds
        self._report = _print if report is None else report
        self._watch = None
        self._ident = None
        self._start()

    def _start(self):
        self._watch = _gosched._Watch(self.seconds)
        # Held while the thread runs. Its own kind of lock, of which none is a goroutine's.
        self._running = _originals.allocate_lock()
        self._running.acquire()
        # Held until the thread has begun.
        self._begun = _originals.allocate_lock()
        self._begun.acquire()
        try:
            _originals.start_new_thread(self._run, (self._watch, self._running))
        except BaseException:
            self._watch = None
            raise
        _watchdogs.add(self)

    def _run(self, watch, running):
        self._ident = _originals.get_ident()
        _originals.own_threads.add(self._ident)
        _gosched._own_thread(True)
        self._begun.release()
        try:
            while True:
                held = watch.held()
                if held is None:
                    return
                place, since = held
                incident = self._look(place)
                # Else it was over when this thread had the GIL: what computes in C keeps it.
                if incident is not None:
                    incident.seconds = watch.since(since)
                    self._tell(incident)
                    ended = Incident(None, None)
                    vars(ended).update(vars(incident))
                    ended.seconds = watch.ended(place, since)
                    if ended.seconds is None:
                        return
                else:
                    ended = Incident(None, None)
                    ended.seconds = watch.since(since)
                ended.ended = True
                self._tell(ended)
                # It keeps the goroutine.
                del incident, ended
        finally:
            _originals.own_threads.discard(self._ident)
            running.release()

    def _look(self, place):
        found = _busy(place)
        if found is None:
            return None
        goroutine, frame = found
        if frame is None:
            return Incident(goroutine, None)
        # It may go on while the sources are read.
        code, lasti = frame.f_code, frame.f_lasti
        incident = Incident(goroutine, frame)
        if incident.remedy != _COMPUTES and _computes(place, code, lasti):
            incident.remedy = _COMPUTES
        return incident

    def _tell(self, incident):
        _gosched._own_thread(False)
        try:
            self._report(incident)
        except Exception:
            traceback.print_exc()
        finally:
            _gosched._own_thread(True)

    @property
    def running(self):
        """Whether it has not been stopped."""
        return self._watch is not None

    def stop(self):
        """Ends it. When this returns nothing more is reported."""
        watch, self._watch = self._watch, None
        _watchdogs.discard(self)
        if watch is not None:
            watch.stop()
            deadline = _originals.monotonic() + _STOP
            while self._ident != _originals.get_ident() and not self._running.acquire(False):
                if _originals.monotonic() > deadline:
                    break  # the report takes so long
                _gosched.sleep(0.001)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()


#: those that run
_watchdogs = set()


def _wait_until_begun():
    """Before a fork: a thread that is just being started would be taken for one of the program's."""
    for watchdog in list(_watchdogs):
        with watchdog._begun:
            pass


def watchdog(seconds=0.1, report=None):
    """Starts to look for goroutines that run for more than `seconds` without a wait, and so hold all
    others up: those that call what blocks, and those that compute.

    report(incident) is called, in a thread of its own, once while the call lasts and once more when it has
    ended; see :class:`gosched._watchdog.Incident`, of which str() is a line of text. Without a function they
    are written to standard error:

        gosched: goroutine worker-3 has held all others up for 0.104 s: app.py:41, in handle: time.sleep(2)

    Gives the watchdog, which stop() ends. The environment's GOSCHED_WATCHDOG=0.1 starts one at import.

    >>> import gosched, time
    >>> found = []
    >>> with gosched.watchdog(0.02, found.append):
    ...     time.sleep(0.2)
    >>> found[0].call
    'time.sleep(0.2)'
    """
    # The calling program is a goroutine from here on, if it is to be one.
    _gosched.current()
    return Watchdog(seconds, report)


def from_environment():
    """At import."""
    value = os.environ["GOSCHED_WATCHDOG"]
    try:
        seconds = float(value)
        if seconds > 0:
            watchdog(seconds)
    except ValueError:
        sys.stderr.write("gosched: GOSCHED_WATCHDOG is not a number of seconds: %r\n" % value)


@atexit.register
def _at_exit():
    for dog in list(_watchdogs):
        dog.stop()


def _after_fork():
    # Its thread has stayed with the parent.
    running = list(_watchdogs)
    _watchdogs.clear()
    _originals.own_threads.clear()
    for dog in running:
        dog._start()


os.register_at_fork(after_in_child=_after_fork)
