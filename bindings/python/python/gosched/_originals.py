"""What the standard library did before :func:`gosched.patch_all` changed it.

This module is imported before anything is patched, and keeps the functions that the
cooperative ones are made of.
"""

import _socket
import _thread
import os
import select
import signal
import time

sleep = time.sleep
monotonic = time.monotonic

start_new_thread = _thread.start_new_thread
allocate_lock = _thread.allocate_lock
LockType = _thread.LockType
RLockType = _thread.RLock
get_ident = _thread.get_ident
get_native_id = getattr(_thread, "get_native_id", _thread.get_ident)
_thread_count = _thread._count
ThreadHandle = getattr(_thread, "_ThreadHandle", None)
set_name = getattr(_thread, "set_name", None)

os_read = os.read
os_write = os.write
os_readv = os.readv
os_writev = os.writev
os_close = os.close
os_eventfd_read = getattr(os, "eventfd_read", None)
os_splice = getattr(os, "splice", None)
waitpid = os.waitpid
wait = os.wait
wait3 = os.wait3
wait4 = os.wait4
waitid = os.waitid
system = os.system

select_select = select.select
select_poll = select.poll
select_epoll = select.epoll

signal_signal = signal.signal
getsignal = signal.getsignal
pause = signal.pause
sigwait = signal.sigwait
sigwaitinfo = signal.sigwaitinfo
sigtimedwait = signal.sigtimedwait
pthread_kill = signal.pthread_kill

getaddrinfo = _socket.getaddrinfo
gethostbyname = _socket.gethostbyname
gethostbyname_ex = _socket.gethostbyname_ex
gethostbyaddr = _socket.gethostbyaddr
getnameinfo = _socket.getnameinfo


#: identities of threads of the package's own
own_threads = set()


def thread_count():
    """The number of threads of the system that _thread has started, those of the package's own not."""
    return _thread_count() - len(own_threads)


#: module name -> {attribute: what it was before it was patched}
saved = {}


def get_original(module, name):
    """What ``module.name`` was before it was patched (what it is, if it wasn't)."""
    try:
        return saved[module][name]
    except KeyError:
        return getattr(__import__(module, fromlist=["*"]), name)


def take_names(module, namespace):
    """Gives a namespace the names of a module that it hasn't itself."""
    for name, value in vars(module).items():
        if not name.startswith("__"):
            namespace.setdefault(name, value)
