"""Other processes of the program that ``python -m gosched`` runs: what starts Python with the program once more has it
patched there too.

These are the children of multiprocessing's methods "spawn" and "forkserver", which are the workers of uvicorn and
hypercorn, and those of programs that restart themselves by an argument list of their own making.
"""

import sys

from . import _third_party
from . import patch as _patch

#: what is patched here and in children, by the names of patch_all(); None: this isn't a program of python -m gosched
_names = None


def patch(names):
    """patch_all() for these names, in this process and in its children."""
    global _names
    _names = tuple(names)
    _patch.patch_all(**{name: name in _names for name, _ in _patch._ALL})
    if _names:
        _third_party.add("multiprocessing.spawn", _spawn)
        _third_party.add("multiprocessing.forkserver", _forkserver)
        _third_party.add("django.utils.autoreload", _django)
        if not hasattr(sys, "orig_argv"):
            # From Python 3.10 on it repeats what was called.
            _third_party.add("werkzeug._reloader", _werkzeug)


class _Patched:
    """In what multiprocessing sends to a child: patches the child when it is unpickled, which is before the child
    imports the main module."""

    def __reduce__(self):
        return patch, (_names,)


def _spawn(module):
    get_preparation_data = module.get_preparation_data

    def get_preparation_data_and_patch(name):
        return {**get_preparation_data(name), "gosched": _Patched()}

    module.get_preparation_data = get_preparation_data_and_patch


def _forkserver(module):
    # The server would import the main module before it has a child to patch.
    if getattr(module._forkserver, "_preload_modules", None) == ["__main__"]:
        module.set_forkserver_preload([])


def _restarts(name):
    """An adaption of a module whose function of this name has the arguments of the program's next process."""

    def adapt(module):
        arguments_of_next = getattr(module, name)

        def patched_arguments_of_next():
            arguments = arguments_of_next()
            # Behind the interpreter's own options.
            first = 1
            while first < len(arguments) and str(arguments[first]).startswith(("-W", "-X")):
                first += 1
            return [*arguments[:first], *_options(), *arguments[first:]]

        setattr(module, name, patched_arguments_of_next)

    return adapt


_django = _restarts("get_child_arguments")
_werkzeug = _restarts("_get_args_for_reloading")


def _options():
    """The start of a command line that patches the same."""
    everything = len(_names) == len(_patch._ALL)
    return ["-m", "gosched", *(["--patch-all"] if everything else ["--%s" % name for name in _names])]
