"""patch_all: what it warns of, what can be chosen, and python -m gosched."""

import shutil
import subprocess
import sys

import pytest

from patched import HERE, run


def test_twice_and_quietly():
    run("""
        import warnings
        warnings.simplefilter("error")
        patch.patch_all()
        for name in ("socket", "dns", "time", "select", "threading", "queue", "subprocess", "ssl", "os", "signal", "sqlite3"):
            assert patch.is_patched(name)
        assert patch.get_original("time", "sleep") is not __import__("time").sleep
        assert gosched.patch_all is patch.patch_all
    """)


def test_choice():
    run("""
        import gosched
        from gosched import patch
        import time, threading
        was = {'sleep': time.sleep, 'lock': threading.Lock}
        patch.patch_all(time=False, threading=False)
        assert time.sleep is was['sleep'] and threading.Lock is was['lock']
        assert not patch.is_patched("time") and patch.is_patched("socket")
        patch.patch_time()
        assert time.sleep is not was['sleep']
    """, prelude="")


def test_warns_of_modules_that_came_before(tmp_path):
    (tmp_path / "early_bird.py").write_text(
        "from time import sleep\nfrom threading import Lock, RLock, Thread\nimport select, socket\nfrom select import poll as p\n"
    )
    run("""
        import sys, warnings
        sys.path.insert(0, sys.argv[1])
        import early_bird, gosched
        from gosched import patch
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            patch.patch_all()
        (one,) = [w for w in said if issubclass(w.category, patch.PatchWarning)]
        text = str(one.message)
        assert "early_bird" in text and "time.sleep" in text and "select.poll as p" in text, text
        assert "Lock" in text and "RLock" not in text and "Thread" not in text.replace("threading", ""), text
    """, tmp_path, prelude="")


def test_warns_of_threads_that_run():
    run("""
        import threading, warnings, gosched
        from gosched import patch
        event = threading.Event()
        t = threading.Thread(target=event.wait, name="worker-7")
        t.start()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            patch.patch_all()
        texts = [str(w.message) for w in said if issubclass(w.category, patch.PatchWarning)]
        assert any("worker-7" in t and "threading" in t for t in texts), texts
        event.set()
        t.join()
    """, prelude="")


def test_modules_of_the_library_are_rebound():
    run("""
        import tempfile, functools, random, reprlib, logging, concurrent.futures.thread, gosched, warnings
        warnings.simplefilter("error")
        from gosched import patch
        patch.patch_all()
        import _thread
        assert tempfile._allocate_lock is _thread.allocate_lock
        assert reprlib.get_ident is _thread.get_ident
    """, prelude="")


def test_functions_of_c_modules_are_no_methods():
    # As attributes of a class they are what they were.
    run("""
        import _socket, _thread, inspect, os, pickle, select, signal, socket, threading, time
        class Taken:
            nap, read, close, wait, ask, pause = time.sleep, os.read, os.close, os.waitpid, select.select, signal.pause
            start, name = _thread.start_new_thread, socket.gethostbyname
        r, w = os.pipe()
        taken = Taken()
        gosched.go(lambda: (gosched.sleep(0.01), os.write(w, b"x")))
        with Beside():
            taken.nap(0.005)
            assert taken.ask([r], [], []) == ([r], [], [])
            assert taken.read(r, 1) == b"x"
        for fd in r, w:
            taken.close(fd)
        try:
            taken.wait(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        assert taken.name("127.0.0.1") == "127.0.0.1"
        done = gosched.Event()
        taken.start(done.set, ())
        assert done.wait(5)
        for function in Taken.nap, Taken.read, Taken.ask, Taken.pause, Taken.start, Taken.name, _socket.getaddrinfo:
            assert inspect.isbuiltin(function), function
            assert pickle.loads(pickle.dumps(function)) is function
            assert function.__doc__
        assert str(inspect.signature(os.read)) == "(fd, length, /)"
        assert threading.get_native_id is _thread.get_native_id
        assert repr(time.sleep) == "<built-in function sleep>" and time.sleep.__module__ == "time"
    """)


def python_m(*args):
    return subprocess.run([sys.executable, "-m", "gosched", *args], capture_output=True, text=True, timeout=60, cwd=HERE)


def test_python_m(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, time, threading\nfrom gosched import patch\n"
        "print(__name__, sys.argv[1:], patch.is_patched('time'), patch.is_patched('socket'), sys.path[0])\n"
        "assert sys.modules['__main__'].__file__ == __file__\n"
        "threading.Timer(0.01, lambda: print('timer')).start()\n"
        "if sys.argv[1:] == ['fail']: sys.exit(3)\n"
    )
    done = python_m(str(script), "a", "-b")
    assert (done.returncode, done.stdout) == (0, "__main__ ['a', '-b'] True True %s\ntimer\n" % tmp_path), done
    assert python_m("--patch-all", "--no-socket", str(script)).stdout.startswith("__main__ [] True False")
    assert python_m("--socket", str(script)).stdout.startswith("__main__ [] False True")
    assert python_m(str(script), "fail").returncode == 3
    assert "script.py" in python_m("--help").stdout
    assert python_m("--wrong").returncode == 2
    done = python_m(str(tmp_path / "missing.py"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "can't open file" in done.stderr, done
    done = python_m("-m", "timeit", "-n1", "-r1", "pass")
    assert done.returncode == 0 and "loop" in done.stdout, done


@pytest.mark.parametrize("flags", [[], ["-I"]])
def test_python_m_finds_what_python_finds(tmp_path, flags):
    """A script by a link and by a relative path, a directory, and an archive: as Python itself has them."""
    program = (
        "import sys\n"
        "try:\n    import beside\nexcept ImportError:\n    beside = None\n"
        "import os; os.chdir('/')\n"
        "print(__name__, __file__, os.path.exists(__file__), sys.argv, sys.path[0], __spec__ and __spec__.name, bool(beside))\n"
    )
    for name in "scripts", "application":
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside.py").write_text("")
    (tmp_path / "scripts" / "script.py").write_text(program)
    (tmp_path / "application" / "__main__.py").write_text(program)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "link").symlink_to("../scripts/script.py")
    shutil.make_archive(str(tmp_path / "archive"), "zip", str(tmp_path / "application"))
    # With -I a directory or archive is in sys.path as it was given, which is Python's affair.
    for path in ["scripts/script.py", "links/link"] + ["application", "archive.zip"] * (not flags):
        plain, ours = (
            subprocess.run(
                [sys.executable, *flags, *module, path, "x"], capture_output=True, text=True, timeout=60, cwd=tmp_path
            )
            for module in ([], ["-m", "gosched"])
        )
        assert ours.returncode == 0 and plain.stdout and ours.stdout == plain.stdout, (plain, ours)


CHILDREN = """
from gosched import patch

# The main module itself is run again in children, and finds what it found here.
PATCHED = [name for name, _ in patch._ALL if patch.is_patched(name)]

def look(results):
    results.put(PATCHED)

if __name__ == "__main__":
    import multiprocessing
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        results = context.SimpleQueue()
        child = context.Process(target=look, args=(results,))
        child.start()
        patched = results.get()
        child.join()
        assert child.exitcode == 0 and patched == PATCHED, (method, patched, PATCHED)
    print(",".join(PATCHED))
"""


@pytest.mark.parametrize("options", [[], ["--no-socket", "--no-dns"], ["--no-patch"]], ids=" ".join)
def test_python_m_patches_children_of_multiprocessing(tmp_path, options):
    (tmp_path / "children.py").write_text(CHILDREN)
    done = python_m(*options, str(tmp_path / "children.py"))
    assert done.returncode == 0 and not done.stderr, done
    patched = done.stdout.strip().split(",")
    assert ("threading" in patched, "socket" in patched) == (options != ["--no-patch"], not options), done
