"""The examples in docstrings, those of the core in Rust included."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import gosched

NOT_IMPORTED = {"gosched.gunicorn", "gosched.__main__"}  # they need other packages, or run
MODULES = ["gosched"] + sorted(
    "gosched." + found.name for found in pkgutil.iter_modules(gosched.__path__) if "gosched." + found.name not in NOT_IMPORTED
)


def documented(module):
    """All that has a docstring of its own in the module, as (name, text)."""
    yield module.__name__, module.__doc__
    try:  # what is taken over from the standard library has its examples tested there
        theirs = importlib.import_module(module.__name__.partition(".")[2] or "gosched")
    except ImportError:
        theirs = None
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if not str(getattr(value, "__module__", None) or "").startswith("gosched"):
            continue
        same = getattr(theirs, name, None)
        if theirs is not module and same is not None and getattr(same, "__doc__", None) == getattr(value, "__doc__", None):
            continue
        yield "{}.{}".format(module.__name__, name), getattr(value, "__doc__", None)
        if inspect.isclass(value):
            for attribute, member in sorted(vars(value).items()):
                if isinstance(member, (staticmethod, classmethod)):
                    member = member.__func__
                text = getattr(member, "__doc__", None)
                if isinstance(text, str) and not isinstance(member, (str, int, float, tuple)):
                    yield "{}.{}.{}".format(module.__name__, name, attribute), text


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    module = importlib.import_module(name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for where, text in documented(module):
        if text and ">>>" in text:
            runner.run(parser.get_doctest(text, {"gosched": gosched}, where, module.__file__, None))
    assert runner.summarize(verbose=False).failed == 0


def test_everything_public_of_the_core_has_a_docstring():
    import gosched._gosched as core

    lacking = [where for where, text in documented(core) if not (text or "").strip() and "__" not in where]
    assert lacking == []
