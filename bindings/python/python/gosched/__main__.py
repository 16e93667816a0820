"""Run a script or a module with the standard library patched.

    python -m gosched [--patch-all] [--no-threading ...] script.py args...
    python -m gosched [--patch-all] [--no-threading ...] -m module args...
"""

import builtins
import importlib.machinery
import io
import os.path
import pkgutil
import runpy
import sys
import types

from . import _children
from . import patch

_NAMES = [name for name, _ in patch._ALL]

_USAGE = """usage: python -m gosched [OPTION...] script.py [ARGUMENT...]
       python -m gosched [OPTION...] -m MODULE [ARGUMENT...]

Runs a Python program with the standard library patched for goroutines, in the
processes that multiprocessing starts for it, too.

options:
  --patch-all     patch everything (the default)
  --no-NAME       everything but NAME
  --NAME          only NAME (and what else is named)
  --no-patch      nothing
  -h, --help      this text

NAME is one of: %s""" % ", ".join(_NAMES)


def _has_first_path():
    """Whether Python has put the place of the program in front of sys.path."""
    return not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))


def _set_first_path(path, replaces):
    sys.path[:1 if replaces else 0] = [path]


def main(argv):
    wanted = {}
    everything = None
    as_module = False
    while argv:
        arg = argv.pop(0)
        if arg in ("-h", "--help"):
            print(_USAGE)
            return 0
        if arg == "--patch-all":
            everything = True
        elif arg == "--no-patch":
            everything = False
        elif arg == "-m":
            as_module = True
            break
        elif arg.startswith("--no-") and arg[5:] in _NAMES:
            wanted[arg[5:]] = False
        elif arg.startswith("--") and arg[2:] in _NAMES:
            wanted[arg[2:]] = True
        elif arg.startswith("-"):
            print("unknown option: %s\n\n%s" % (arg, _USAGE), file=sys.stderr)
            return 2
        else:
            argv.insert(0, arg)
            break
    if not argv:
        print(_USAGE, file=sys.stderr)
        return 2
    if everything is None:
        everything = not any(wanted.values())
    _children.patch([name for name in _NAMES if wanted.get(name, everything)])
    sys.argv[:] = argv
    if as_module:
        if not sys.path or sys.path[0] != "":
            sys.path.insert(0, "")
        # What python -m itself calls: the module becomes __main__.
        runpy._run_module_as_main(argv[0], alter_argv=True)
    elif pkgutil.get_importer(argv[0]) is not None:
        # A directory or an archive, with a __main__.py.
        _set_first_path(os.path.abspath(argv[0]), replaces=_has_first_path())
        runpy._run_module_as_main("__main__", alter_argv=False)
    else:
        # As Python does it: links are followed for the directory, and not for __file__.
        path = os.path.abspath(argv[0])
        if _has_first_path():
            _set_first_path(os.path.dirname(os.path.realpath(path)), replaces=True)
        try:
            with io.open_code(path) as file:
                source = file.read()
        except OSError as error:
            print("%s: can't open file %r: %s" % (sys.executable, path, error), file=sys.stderr)
            return 2
        code = compile(source, path, "exec")
        module = types.ModuleType("__main__")
        module.__file__ = path
        module.__builtins__ = builtins
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        # This module must outlive its replacement: its functions are still running.
        sys.modules["gosched.__main__"] = sys.modules["__main__"]
        sys.modules["__main__"] = module
        exec(code, vars(module))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
