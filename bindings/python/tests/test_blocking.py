"""patch_all(blocking="auto") and add_blocking(): calls that run in other threads, and what is said of the rest."""

import re
import textwrap

import pytest

import gosched
from patched import run


def test_known_functions_run_in_other_threads():
    run("""
        import sys
        sys.stderr = sys.stdout  # the watchdog may find something in this program
        patch.patch_all(blocking="auto")
        import fcntl, hashlib, os, tempfile, zipfile
        expected = gosched.blocking(hashlib.pbkdf2_hmac.__wrapped__, "sha256", b"password", b"salt", 1_000_000)
        with Beside() as beside:
            assert hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1_000_000) == expected
        assert beside.ticks > 5, beside.ticks
        # What waits for another goroutine of the program.
        with tempfile.NamedTemporaryFile() as a, open(a.name) as b:
            fcntl.flock(a, fcntl.LOCK_EX)
            g = gosched.go(fcntl.flock, b, fcntl.LOCK_EX)
            gosched.sleep(0.05)
            assert not g.done()
            fcntl.flock(a, fcntl.LOCK_UN)
            g.result(10)
            os.fsync(a.fileno())
        try:
            os.fsync(-1)
        except ValueError:
            pass
        else:
            assert False, "an error is passed on"
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.zip")
            with zipfile.ZipFile(path, "w") as archive:
                archive.write(__import__("sys").executable, "python")
            assert zipfile.ZipFile(path).testzip() is None
    """)


def test_once_of_each_place_is_said_what_to_do(tmp_path):
    (tmp_path / "holder.py").write_text(textwrap.dedent("""
        import time, gosched
        slow = gosched.patch.get_original("time", "sleep")

        def compute():
            end = time.monotonic() + 0.2
            while time.monotonic() < end:
                len("")

        def main():
            for _ in range(3):
                slow(0.2)
                gosched.sleep(0.05)
            compute()
            gosched.sleep(0.1)
    """))
    text = run("""
        import sys
        sys.stderr = sys.stdout
        sys.path.insert(0, sys.argv[1])
        patch.patch_all(blocking="auto")
        import holder
        holder.main()
        exec("slow(0.2)", vars(holder))
        gosched.sleep(0.05)
    """, tmp_path)
    assert text.count("in main: slow(0.2)\n  call it in another thread: gosched.blocking(slow, ...)\n") == 1, text
    # Without a source.
    assert text.count("call it in another thread: gosched.blocking(function, ...)\n") == 1, text
    assert re.search(r"in compute: .*\n  it computes: let it call gosched.yield_\(\)", text), text


def test_functions_can_be_added():
    run("""
        import threading
        import types, sys
        module = types.ModuleType("slow_module")
        exec("import threading\\ndef where(): return threading.get_native_id()\\n"
             "class C:\\n    def where(self): return threading.get_native_id()", module.__dict__)
        sys.modules["slow_module"] = module
        mine = threading.get_native_id()
        assert module.where() == mine == module.C().where()
        patch.add_blocking("slow_module", "where", "C.where")
        patch.add_blocking("slow_module", "where")
        assert module.where() != mine != module.C().where()
        assert module.where.__name__ == "where" and not hasattr(module.where.__wrapped__, "__gosched_blocking__")
        # In a thread of the system, and in one of blocking()'s.
        assert gosched.blocking(module.where) != mine
    """)


def test_what_is_added_must_be_there():
    with pytest.raises(AttributeError, match="no 'nothing'"):
        gosched.patch.add_blocking("textwrap", "nothing")
    for arguments in (("textwrap",), (5, "f"), ("textwrap", 5)):
        with pytest.raises(TypeError):
            gosched.patch.add_blocking(*arguments)
    with pytest.raises(ValueError):
        gosched.patch_all(blocking="all")
