"""pyzmq: applied to its modules when they are imported. Its sockets wait as goroutines; what waits in C otherwise (devices,
and the collector of messages that were sent without a copy) has threads of the system.
"""

import select
import threading
from time import monotonic

from . import _gosched

#: Seconds after which a goroutine that waits for a socket looks at it again: another goroutine that uses the socket may have
#: taken the news for which the descriptor would have woken this one.
_SLICE = 0.2

_POLL = ((1, select.POLLIN), (2, select.POLLOUT), (8, select.POLLPRI))  # zmq's flags, and the system's


class SystemThread(threading.Thread):
    """A thread of the system, also where threads are goroutines."""

    _is_of_the_system = True


def _deadline(milliseconds):
    return None if milliseconds is None or milliseconds < 0 else monotonic() + milliseconds / 1000


def _wait(waits, deadline):
    """Waits for descriptors, for a slice of time at most. False: the deadline has passed."""
    left = _SLICE if deadline is None else min(deadline - monotonic(), _SLICE)
    if left <= 0:
        return False
    _gosched.wait_fds(waits, left)
    return True


def _waits(item, flags, socket_class):
    """What to wait for: a socket of ZeroMQ has one descriptor for all, which is readable when there is news."""
    if isinstance(item, socket_class):
        return item.FD, select.POLLIN
    events = sum(system for zmq, system in _POLL if flags & zmq)
    return item if isinstance(item, int) else item.fileno(), events


def adapt_poll(module):
    """For zmq.sugar.poll."""
    original = module.zmq_poll
    if hasattr(original, "_is_adapted"):
        return
    from zmq.backend import Socket

    def zmq_poll(sockets, timeout=-1):
        if timeout == 0 or _gosched.current() is None:
            return original(sockets, timeout)
        sockets = list(sockets)
        deadline = _deadline(timeout)
        while True:
            ready = original(sockets, 0)
            if ready or not _wait([_waits(*each, Socket) for each in sockets], deadline):
                return ready

    zmq_poll._is_adapted = True
    module.zmq_poll = zmq_poll


def adapt_socket(module):
    """For zmq.sugar.socket."""
    zmq = module.zmq
    cls = module.Socket
    try_send, try_recv = cls.send, cls.recv

    def wait(socket, event, deadline):
        fd = socket.FD
        while not socket.EVENTS & event:
            if not _wait([(fd, select.POLLIN)], deadline):
                raise zmq.Again
        return True

    def send(self, data, flags=0, copy=True, track=False, **kwargs):
        if flags & zmq.DONTWAIT or _gosched.current() is None:
            return try_send(self, data, flags, copy, track, **kwargs)
        deadline = _deadline(self.SNDTIMEO)
        while True:
            try:
                return try_send(self, data, flags | zmq.DONTWAIT, copy, track, **kwargs)
            except zmq.Again:
                wait(self, zmq.POLLOUT, deadline)

    def recv(self, flags=0, copy=True, track=False):
        if flags & zmq.DONTWAIT or _gosched.current() is None:
            return try_recv(self, flags, copy, track)
        deadline = _deadline(self.RCVTIMEO)
        while True:
            try:
                return try_recv(self, flags | zmq.DONTWAIT, copy, track)
            except zmq.Again:
                wait(self, zmq.POLLIN, deadline)

    send.__doc__, recv.__doc__ = try_send.__doc__, try_recv.__doc__
    cls.send, cls.recv = send, recv


def adapt_devices(module):
    """For zmq.devices.basedevice."""
    module.ThreadDevice._launch_class = SystemThread


def adapt_garbage(module):
    """For zmq.utils.garbage."""
    module.GarbageCollectorThread._is_of_the_system = True
