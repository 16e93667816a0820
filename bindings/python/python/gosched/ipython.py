"""Goroutines in IPython and in Jupyter's kernels.

Where the standard library is patched all is done: ``python -m gosched -m IPython``, and a kernel of
``python -m gosched.ipykernel install``. Elsewhere ``%load_ext gosched`` has goroutines run while the prompt waits for input,
while a kernel waits for the next cell, and while a cell awaits.
"""

from . import _gosched
from . import _ipykernel
from . import _zmq
from .asyncio import _let_goroutines_run


def load_ipython_extension(shell):
    """``%load_ext gosched``."""
    # Goroutines begin here: while the prompt waits, signals wake its event loop only.
    _gosched.current()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        _into_terminal(shell)
    else:
        _into_kernel(kernel)


def _into_terminal(shell):
    from IPython.core import async_helpers
    from IPython.terminal import pt_inputhooks

    # The loop of cells that await.
    _let_goroutines_run(async_helpers.get_asyncio_loop())
    if hasattr(shell, "pt_app"):
        pt_inputhooks.register("gosched", _input_hook)
        shell.enable_gui("gosched")


def _input_hook(context):
    """Called when the prompt waits, until there is input."""
    _gosched.wait_read(context.fileno())


def _into_kernel(kernel):
    from ipykernel import iostream, kernelbase
    from zmq.sugar import poll

    # input() asks by this.
    _zmq.adapt_poll(poll)
    _ipykernel.adapt_kernel(kernelbase)
    _ipykernel.adapt_streams(iostream)
    _let_goroutines_run(kernel.io_loop.asyncio_loop)
