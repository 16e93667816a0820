"""Django's development server, and its applications under uvicorn and gunicorn."""

import signal
import socket
import subprocess
import sys

import pytest

from serving import Server
from test_clients import postgres  # noqa: F401

pytest.importorskip("django", reason="Django isn't installed")

SITE = """
import os, sys, threading, time
import gosched
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.core.management import execute_from_command_line
from django.db import connection
from django.http import HttpResponse
from django.urls import path

databases = {
    "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3", "OPTIONS": {"timeout": 60}},
    "postgres": {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": os.environ.get("PGPORT"),
                 "USER": "test", "NAME": "postgres"},
}
settings.configure(
    DEBUG=True, ROOT_URLCONF=__name__, SECRET_KEY="key", ALLOWED_HOSTS=["*"], USE_TZ=True,
    DATABASES={"default": databases[os.environ.get("DATABASE", "sqlite")]},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
)
asgi, wsgi = get_asgi_application(), get_wsgi_application()

waiting, meeting = 0, threading.Condition()

def meet(request, n):
    "Waits until there are n such requests at the same time."
    global waiting
    with meeting:
        waiting += 1
        meeting.notify_all()
        meeting.wait_for(lambda: waiting >= n)
    return HttpResponse(str(gosched.current().id))

def slow(request, seconds):
    time.sleep(float(seconds))
    return HttpResponse(str(os.getpid()))

def create(request, name):
    from django.contrib.auth.models import Group
    from django.db import transaction

    with transaction.atomic():
        Group.objects.create(name=name)
    return HttpResponse(str(Group.objects.filter(name=name).count()))

def count(request):
    from django.contrib.auth.models import Group
    return HttpResponse(str(Group.objects.count()))

def sleep(request):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.5)")
    return HttpResponse("slept")

urlpatterns = [
    path("", lambda request: HttpResponse("version VERSION")),
    path("meet/<int:n>", meet), path("slow/<seconds>", slow), path("sleep", sleep), path("create/<name>", create),
    path("count", count),
]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""


def write(directory, version=1):
    (directory / "manage.py").write_text(SITE.replace("VERSION", str(version)))


def migrate(directory):
    write(directory)
    command = [sys.executable, "-m", "gosched", "manage.py", "migrate", "-v", "0"]
    subprocess.run(command, cwd=directory, check=True, timeout=120)


def serve(directory, *options, **kwargs):
    write(directory)
    return Server(directory, "manage.py", "runserver", "127.0.0.1:PORT", *options, **kwargs)


def test_requests_at_the_same_time(tmp_path):
    migrate(tmp_path)
    with serve(tmp_path, "--noreload") as server:
        server.meet(100)
        answers = server.get_many(["/create/%d" % n for n in range(50)])
        assert answers == [(200, "1")] * 50, (answers, server.text())
        assert server.get("/count") == (200, "50")
        assert server.get("/nothing")[0] == 404
        assert server.end(signal.SIGINT) == 0
        assert "Traceback" not in server.text() and "Warning" not in server.text(), server.text()


def test_reload(tmp_path):
    with serve(tmp_path) as server:
        assert server.get("/") == (200, "version 1")
        # The processes that serve are children, which the reloader starts.
        server.meet(30)
        server.reload(lambda: write(tmp_path, version=2), "version 2")
        server.meet(30)
        assert server.end(signal.SIGINT) == 0
        assert "Traceback" not in server.text(), server.text()


def test_postgres(tmp_path, postgres, monkeypatch):  # noqa: F811
    monkeypatch.setenv("DATABASE", "postgres")
    monkeypatch.setenv("PGPORT", postgres.split("port=")[1].split()[0])
    migrate(tmp_path)
    with serve(tmp_path, "--noreload") as server:
        answers = server.get_many(["/sleep"] * 40)
        assert answers == [(200, "slept")] * 40, (answers, server.text())
        answers = server.get_many(["/create/%d" % n for n in range(40)])
        assert answers == [(200, "1")] * 40, (answers, server.text())
        assert server.get("/count") == (200, "40")


def test_under_uvicorn(tmp_path):
    pytest.importorskip("uvicorn", reason="uvicorn isn't installed")
    migrate(tmp_path)
    with Server(tmp_path, "-m", "uvicorn", "manage:asgi", "--port", "PORT", "--lifespan", "off") as server:
        # Views that aren't coroutines.
        server.meet(60)
        answers = server.get_many(["/create/%d" % n for n in range(30)])
        assert answers == [(200, "1")] * 30, (answers, server.text())
        assert server.end(signal.SIGINT) == 0


def test_under_gunicorn(tmp_path):
    pytest.importorskip("gunicorn", reason="gunicorn isn't installed")
    migrate(tmp_path)
    options = ["-k", "gosched.gunicorn.GoschedWorker", "-b", "127.0.0.1:PORT", "manage:wsgi"]
    with Server(tmp_path, "-m", "gunicorn", *options, gosched=False) as server:
        server.meet(60)
        answers = server.get_many(["/create/%d" % n for n in range(30)])
        assert answers == [(200, "1")] * 30, (answers, server.text())
        assert server.end() == 0
        assert "PatchWarning" not in server.text(), server.text()


def test_wrong_input(tmp_path):
    write(tmp_path)

    def fails(*arguments, port=None):
        with Server(tmp_path, "manage.py", *arguments, answers=False, port=port) as server:
            assert server.end(None) not in (0, None)
            return server.text()

    assert "Unknown command: 'serverun'" in fails("serverun")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "That port is already in use" in fails("runserver", "--noreload", "127.0.0.1:PORT", port=taken.getsockname()[1])
        assert "That port is already in use" in fails("runserver", "127.0.0.1:PORT", port=taken.getsockname()[1])
