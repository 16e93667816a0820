"""Flask's development server by python -m gosched."""

import signal

import pytest

from serving import Server

pytest.importorskip("flask", reason="Flask isn't installed")

APP = """
import threading
import gosched
from flask import Flask

app = Flask(__name__)
waiting, meeting = 0, threading.Condition()

@app.route("/")
def index():
    return "version VERSION"

@app.route("/meet/<int:n>")
def meet(n):
    "Waits until there are n such requests at the same time."
    global waiting
    with meeting:
        waiting += 1
        meeting.notify_all()
        meeting.wait_for(lambda: waiting >= n)
    return str(gosched.current().id)

if __name__ == "__main__":
    import sys
    app.run(port=int(sys.argv[1]), debug=True)
"""


@pytest.mark.parametrize("arguments", [
    ("-m", "flask", "--app", "application", "run", "--debug", "-p", "PORT"),
    ("application.py", "PORT"),
], ids=["command", "program"])
def test_debug_and_reload(tmp_path, arguments):
    application = tmp_path / "application.py"
    application.write_text(APP.replace("VERSION", "1"))
    with Server(tmp_path, *arguments) as server:
        assert server.get("/") == (200, "version 1")
        server.reload(lambda: application.write_text(APP.replace("VERSION", "2")), "version 2")
        # The process that serves is a child of a child, and patched.
        server.meet(50)
        assert server.end(signal.SIGINT) == 0
        assert "Traceback" not in server.text() and "PatchWarning" not in server.text(), server.text()
