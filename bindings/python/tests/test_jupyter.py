"""Goroutines in IPython's terminal and in Jupyter's kernels: with the library patched, and by %load_ext gosched."""

import os
import re
import subprocess
import sys
import time

import pytest
from helpers import PACKAGE

pytest.importorskip("ipykernel", reason="ipykernel isn't installed")
jupyter_client = pytest.importorskip("jupyter_client", reason="jupyter_client isn't installed")

LIMIT = 60  # seconds

# The terminal is that of a child, which runs Python at once.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


class Kernel:
    """A kernel, and what it has said so far."""

    def __init__(self, manager):
        self.manager = manager
        # A kernel under pytest leaves the files of its output alone.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        manager.start_kernel(env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)
        self.said = []

    def start(self, code, **options):
        """Has a cell begin. Returns its name."""
        return self.client.execute(code, **options)

    def listen(self):
        self.said.append(self.client.get_iopub_msg(timeout=LIMIT))

    def output(self, cell, kind="stream", name="stdout"):
        """What a cell has printed so far, or raised."""
        said = [m["content"] for m in self.said if m["parent_header"].get("msg_id") == cell and m["msg_type"] == kind]
        if kind == "stream":
            return "".join(content["text"] for content in said if content["name"] == name)
        return [content["data"]["text/plain"] if kind == "execute_result" else content["ename"] for content in said]

    def until(self, cell, text, name="stdout"):
        """Listens until the cell has printed this."""
        while text not in self.output(cell, name=name):
            self.listen()

    def end(self, cell):
        """Listens until the cell has ended. Returns its status, and its results or errors."""
        while True:
            reply = self.client.get_shell_msg(timeout=LIMIT)
            if reply["parent_header"].get("msg_id") == cell:
                break
        while not any(
            m["parent_header"].get("msg_id") == cell and m["content"].get("execution_state") == "idle" for m in self.said
        ):
            self.listen()
        status = reply["content"]["status"]
        return status, self.output(cell, "execute_result" if status == "ok" else "error")

    def run(self, code, **options):
        return self.end(self.start(code, **options))

    def stop(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)


@pytest.fixture(scope="module", params=["patched", "loaded"])
def kernel(request, tmp_path_factory):
    """One of the kernel's specification that gosched installs, and one of ipykernel's own with the extension."""
    directory = tmp_path_factory.mktemp("jupyter")
    before = {name: os.environ.get(name) for name in ("JUPYTER_PATH", "IPYTHONDIR", "PYTHONPATH")}
    os.environ.update(JUPYTER_PATH=str(directory / "share" / "jupyter"), IPYTHONDIR=str(directory / "ipython"), PYTHONPATH=PACKAGE)
    install = "gosched.ipykernel" if request.param == "patched" else "ipykernel"
    command = [sys.executable, "-m", install, "install", "--prefix", str(directory), "--name", "gosched-test"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
    kernel = Kernel(jupyter_client.KernelManager(kernel_name="gosched-test"))
    try:
        kernel.is_patched = request.param == "patched"
        if not kernel.is_patched:
            assert kernel.run("%load_ext gosched") == ("ok", [])
        assert kernel.run("import asyncio, sys, threading, time, gosched") == ("ok", [])
        yield kernel
    finally:
        kernel.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def test_goroutines_run_while_the_kernel_is_idle(kernel):
    cell = kernel.start("""
        def tick():
            for n in range(5):
                gosched.sleep(0.05)
                print("tick", n)
        ticker = gosched.go(tick)
        "begun"
    """)
    assert kernel.end(cell) == ("ok", ["'begun'"])
    kernel.until(cell, "tick 4")
    assert kernel.output(cell) == "".join("tick %d\n" % n for n in range(5))


def test_output_goes_to_the_cell_that_began_the_goroutine(kernel):
    first = kernel.start("""
        more, shown = gosched.Channel(), gosched.Channel()
        def show():
            for text in more:
                print(text)
                print("error:", text, file=sys.stderr)
                shown.send(text)
            raise KeyError("on purpose")
        shower = gosched.go(show)
    """)
    assert kernel.end(first) == ("ok", [])
    second = kernel.start("""
        for text in ("one", "two"):
            more.send(text)
            print("second:", shown.recv())
        more.close()
    """)
    assert kernel.end(second) == ("ok", [])
    kernel.until(first, "KeyError: 'on purpose'", name="stderr")
    assert kernel.output(first) == "one\ntwo\n" and kernel.output(second) == "second: one\nsecond: two\n"
    assert "error: two" in kernel.output(first, name="stderr") and not kernel.output(second, name="stderr")


def test_cells_await(kernel):
    assert kernel.run("await asyncio.sleep(0.01, 'slept')") == ("ok", ["'slept'"])
    cell = kernel.start("""
        def add(a, b):
            gosched.sleep(0.01)
            return a + b
        sums = [gosched.as_future(gosched.go(add, n, 1)) for n in range(3)]
        await asyncio.gather(*sums)
    """)
    assert kernel.end(cell) == ("ok", ["[1, 2, 3]"])


def interrupt(kernel, code, printed="waits"):
    cell = kernel.start("print('waits')\n" + code)
    kernel.until(cell, printed)
    kernel.manager.interrupt_kernel()
    return kernel.end(cell)


@pytest.mark.parametrize("wait", ["gosched.sleep(3600)", "gosched.Channel().recv()", "gosched.go(gosched.sleep, 3600).join()"])
def test_an_interrupt_ends_a_wait(kernel, wait):
    assert kernel.run("beside = gosched.go(gosched.sleep, 3600)") == ("ok", [])
    assert interrupt(kernel, wait) == ("error", ["KeyboardInterrupt"])
    assert kernel.run("beside.done(), beside.cancel(), beside.join()")[1][0].startswith("(False,")


def test_an_interrupt_ends_a_cell_while_another_goroutine_computes(kernel):
    code = """
end = time.monotonic() + 20
def compute():
    while time.monotonic() < end:
        sum(range(1000))
        gosched.yield_()
    return "done"
computes = gosched.go(compute)
gosched.sleep(3600)
"""
    assert interrupt(kernel, code) == ("error", ["KeyboardInterrupt"])
    assert kernel.run("end = 0; computes.result()") == ("ok", ["'done'"])


def test_an_interrupt_ends_an_await(kernel):
    status, errors = interrupt(kernel, "await asyncio.sleep(3600)")
    assert status == "error" and errors in (["CancelledError"], ["KeyboardInterrupt"])
    status, errors = interrupt(kernel, "await gosched.as_future(gosched.go(gosched.sleep, 3600))")
    assert status == "error" and errors in (["CancelledError"], ["KeyboardInterrupt"])


def test_an_interrupt_between_cells_does_nothing(kernel):
    assert kernel.run("sleeper = gosched.go(gosched.sleep, 0.2)") == ("ok", [])
    kernel.manager.interrupt_kernel()
    assert kernel.run("sleeper.result()") == ("ok", [])


def test_thousands_of_goroutines_print(kernel):
    cell = kernel.start("""
        gate = gosched.Event()
        def show(n):
            gate.wait()
            print("%d." % n)
        printers = [gosched.go(show, n) for n in range(3000)]
        gate.set()
        for printer in printers:
            printer.result()
    """)
    assert kernel.end(cell) == ("ok", [])
    while len(kernel.output(cell).split()) < 3000:
        kernel.listen()
    assert {int(n) for n in kernel.output(cell).replace(".", " ").split()} == set(range(3000))


def test_goroutines_run_while_a_cell_asks(kernel):
    cell = kernel.start("""
        answers = gosched.Channel(1)
        asked = gosched.go(lambda: [gosched.sleep(0.01) for _ in range(5)] and answers.send("beside"))
        input("name? ") + answers.try_recv()[1]
    """, allow_stdin=True)
    request = kernel.client.get_stdin_msg(timeout=LIMIT)
    assert request["content"]["prompt"] == "name? "
    time.sleep(0.5)
    kernel.client.input("ann+")
    assert kernel.end(cell) == ("ok", ["'ann+beside'"])


def test_the_heart_beats_while_a_cell_computes(kernel):
    cell = kernel.start("end = time.monotonic() + 3\nwhile time.monotonic() < end: print('.', end='')")
    # Printed by another thread meanwhile.
    kernel.until(cell, ".")
    time.sleep(1.5)
    assert kernel.client.hb_channel.is_beating() and kernel.client.is_alive()
    assert kernel.end(cell) == ("ok", [])


def test_threads_of_a_patched_kernel(kernel):
    if not kernel.is_patched:
        pytest.skip("only where the library is patched")
    assert kernel.run("""
        def work(n):
            time.sleep(0.05)
            return threading.get_ident() == gosched.current().id

        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(500) as executor:
            results = list(executor.map(work, range(500)))
        all(results)
    """) == ("ok", ["True"])
    cell = kernel.start("""
        done = threading.Event()
        threading.Thread(target=lambda: (time.sleep(0.1), done.set())).start()
    """)
    assert kernel.end(cell) == ("ok", [])
    assert kernel.run("done.wait(20)") == ("ok", ["True"])


def test_what_a_patched_kernel_writes_without_python(kernel):
    if not kernel.is_patched:
        pytest.skip("only where the library is patched")
    # More than there is room for in a pipe.
    cell = kernel.start("""
        import ctypes
        libc = ctypes.CDLL(None)
        for n in range(300):
            libc.write(1, b"x" * 999 + b"\\n", 1000)
    """)
    assert kernel.end(cell) == ("ok", [])
    while kernel.output(cell).count("x") < 300 * 999:
        kernel.listen()


def test_a_magic_of_ipython(kernel):
    assert kernel.run("%timeit -n 1 -r 1 gosched.sleep(0.001)")[0] == "ok"
    assert kernel.run("!echo from a child")[0] == "ok"
    assert kernel.run("%%bash\necho from bash")[0] == "ok"


class Terminal:
    """IPython in a terminal."""

    def __init__(self, arguments, directory):
        import pexpect

        env = {**os.environ, "PYTHONPATH": PACKAGE, "IPYTHONDIR": str(directory), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        options = ["--no-banner", "--no-confirm-exit", "--no-term-title", "--colors=NoColor"]
        self.child = pexpect.spawn(sys.executable, [*arguments, "-m", "IPython", *options], env=env, encoding="utf-8", timeout=LIMIT)
        self.child.expect(r"In \[")

    def expect(self, text):
        # Behind an "=", which what is typed doesn't have.
        self.child.expect(re.escape(text))

    def type(self, line):
        self.child.send(line + "\r")


@pytest.fixture(scope="module", params=["patched", "loaded"])
def terminal(request, tmp_path_factory):
    pytest.importorskip("pexpect", reason="pexpect isn't installed")
    is_patched = request.param == "patched"
    terminal = Terminal(["-m", "gosched"] if is_patched else [], tmp_path_factory.mktemp("ipython"))
    if not is_patched:
        terminal.type("%load_ext gosched")
    terminal.type("import asyncio, gosched, os; print('loaded', 6 * 7)")
    terminal.expect("loaded 42")
    yield terminal
    terminal.type("exit")
    terminal.child.expect(r"$")
    terminal.child.close(force=True)


def test_goroutines_run_while_the_prompt_waits(terminal, tmp_path):
    made = tmp_path / "made"
    terminal.type("g = gosched.go(lambda: (gosched.sleep(0.3), open(%r, 'w').close())); print('begun', 6 * 7)" % str(made))
    terminal.expect("begun 42")
    # Nothing is typed meanwhile.
    deadline = time.monotonic() + LIMIT
    while not made.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cell_of_the_terminal_awaits(terminal):
    terminal.type("await gosched.as_future(gosched.go(lambda: (gosched.sleep(0.05), print('awaited', 6 * 7))))")
    terminal.expect("awaited 42")


def test_an_interrupt_ends_a_wait_in_the_terminal(terminal):
    terminal.type("print('waits', 6 * 7); gosched.sleep(3600)")
    terminal.expect("waits 42")
    time.sleep(0.3)
    terminal.child.sendintr()
    terminal.expect("KeyboardInterrupt")
    terminal.type("print('goes on', 6 * 7)")
    terminal.expect("goes on 42")
