"""requests, redis-py, psycopg, pymysql and wsgiref, unmodified under patch_all.

The services are started here, and ended; a test whose service isn't installed is skipped.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time

import pytest
from patched import run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(connect, process, what):
    deadline = time.monotonic() + 30
    while True:
        try:
            return connect()
        except Exception as e:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("%s doesn't come up: %s" % (what, e))
            time.sleep(0.05)


def stop(process):
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def remove(process, directory):
    """Stops a server, if it has been started, and removes its files."""
    if process is not None:
        stop(process)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def redis_port():
    pytest.importorskip("redis", reason="redis-py isn't installed")
    server = shutil.which("redis-server")
    if server is None:
        pytest.skip("redis-server isn't installed")
    port = free_port()
    process = subprocess.Popen(
        [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close(), process, "redis-server")
        yield port
    finally:
        stop(process)


def test_redis(redis_port):
    run("""
        import sys, redis, threading
        r = redis.Redis(port=int(sys.argv[1]))
        def work(i):
            r.set("k%d" % i, i)
            assert int(r.get("k%d" % i)) == i
            with r.pipeline() as p:
                p.incr("n").incr("n").execute()
            return 1
        assert sum(g.result() for g in [gosched.go(work, i) for i in range(50)]) == 50
        assert int(r.get("n")) == 100
        # BLPOP waits on the server: the others go on.
        def pop():
            return redis.Redis(port=int(sys.argv[1])).blpop("list", timeout=10)
        g = gosched.go(pop)
        with Beside():
            gosched.sleep(0.05)
        r.rpush("list", "x")
        assert g.result() == (b"list", b"x")
        # Publish and subscribe, with redis-py's own thread.
        got = []
        p = r.pubsub()
        p.subscribe(channel=lambda m: got.append(m["data"]))
        t = p.run_in_thread(sleep_time=0.01)
        for i in range(3): r.publish("channel", str(i))
        while len(got) < 3: gosched.sleep(0.005)
        t.stop(); t.join(); p.close()
        assert got == [b"0", b"1", b"2"]
        r.close()
    """, redis_port, options=("-W", "ignore::ResourceWarning"))


@pytest.fixture(scope="module")
def postgres():
    pytest.importorskip("psycopg", reason="psycopg isn't installed")
    names = ["/usr/lib/postgresql/%d/bin" % n for n in range(20, 9, -1)]
    where = next((n for n in names if os.path.exists(n + "/postgres")), None) or (
        os.path.dirname(shutil.which("initdb") or "") if shutil.which("initdb") and shutil.which("postgres") else None
    )
    if not where:
        pytest.skip("PostgreSQL isn't installed")
    user = {}
    if os.geteuid() == 0:
        try:
            entry = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL doesn't run as root, and there's no user postgres")
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    directory = tempfile.mkdtemp(prefix="gosched-pg-")
    port = free_port()
    process = None
    try:
        if user:
            os.chown(directory, user["user"], user["group"])
        data = directory + "/data"
        done = subprocess.run(
            [where + "/initdb", "-D", data, "-A", "trust", "-U", "test", "--no-sync"],
            capture_output=True, cwd=directory, **user,
        )
        if done.returncode:
            pytest.skip("initdb: %s" % done.stderr.decode()[-200:])
        process = subprocess.Popen(
            [where + "/postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", directory, "-F"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory, **user,
        )
        import psycopg

        dsn = "host=127.0.0.1 port=%d user=test dbname=postgres" % port
        wait_for(lambda: psycopg.connect(dsn).close(), process, "PostgreSQL")
        yield dsn
    finally:
        remove(process, directory)


def test_psycopg(postgres):
    run("""
        import sys, psycopg
        busy = most = 0
        def work(i):
            global busy, most
            busy += 1
            most = max(most, busy)
            with psycopg.connect(sys.argv[1]) as c, c.cursor() as cursor:
                cursor.execute("select pg_sleep(0.5), %s::int", (i,))
                busy -= 1
                return cursor.fetchone()[1]
        with Beside():
            assert sorted(g.result() for g in [gosched.go(work, i) for i in range(10)]) == list(range(10))
        assert most == 10, most
        with psycopg.connect(sys.argv[1], autocommit=True) as c:
            c.execute("create table t (n int)")
            with c.cursor() as cursor, cursor.copy("copy t from stdin") as copy:
                for i in range(1000): copy.write_row((i,))
            assert c.execute("select sum(n) from t").fetchone()[0] == 499500
            c.execute("listen note")
            def notify():
                gosched.sleep(0.03)
                with psycopg.connect(sys.argv[1], autocommit=True) as d: d.execute("notify note, 'hello'")
            gosched.go(notify)
            with Beside():
                for n in c.notifies():
                    assert n.payload == "hello"
                    break
        # A query that is given up ends on the server too, and the connection goes on.
        with psycopg.connect(sys.argv[1]) as c:
            late = gosched.go(c.execute, "select pg_sleep(3600)")
            gosched.sleep(0.05)
            late.cancel()
            assert late.join() and late.cancelled()
            c.rollback()
            try:
                with gosched.timeout(0.05):
                    c.execute("select pg_sleep(3600)")
            except TimeoutError:
                pass
            else:
                assert False
            c.rollback()
            assert c.execute("select 1").fetchone() == (1,)
    """, postgres, options=("-W", "ignore"))


def test_psycopg2(postgres):
    pytest.importorskip("psycopg2", reason="psycopg2 isn't installed")
    run("""
        import select, sys, time
        import psycopg2, psycopg2.pool

        def query(sql, *arguments):
            connection = psycopg2.connect(sys.argv[1])
            try:
                with connection.cursor() as cursor:
                    cursor.execute(sql, arguments)
                    return cursor.fetchone()
            finally:
                connection.close()

        with Beside():
            queries = [gosched.go(query, "select %s, pg_sleep(0.05)", n) for n in range(5)]
            assert [g.result()[0] for g in queries] == list(range(5))

        pool = psycopg2.pool.ThreadedConnectionPool(1, 2, sys.argv[1])
        connection = pool.getconn()
        pool.putconn(connection)
        pool.closeall()

        def listen():
            connection = psycopg2.connect(sys.argv[1])
            connection.autocommit = True
            connection.cursor().execute("listen news")
            ready.set()
            while not connection.notifies:
                select.select([connection], [], [])
                connection.poll()
            connection.close()
            return connection.notifies[0].payload

        ready = gosched.Event()
        listener = gosched.go(listen)
        ready.wait()
        connection = psycopg2.connect(sys.argv[1])
        connection.autocommit = True
        connection.cursor().execute("notify news, 'hello'")
        connection.close()
        assert listener.result(timeout=60) == "hello"

        try:
            query("select nonsense")
        except psycopg2.errors.UndefinedColumn:
            pass
        else:
            assert False

        # One that is cancelled, or out of time, gives up its connection.
        late = gosched.go(query, "select pg_sleep(60)")
        gosched.sleep(0.05)
        late.cancel()
        late.join()
        assert late.cancelled()
        try:
            with gosched.Timeout(0.05):
                query("select pg_sleep(60)")
        except gosched.Timeout:
            pass
        else:
            assert False
    """, postgres)


@pytest.fixture(scope="module")
def mysql_port():
    server = shutil.which("mariadbd") or shutil.which("mysqld") or next(
        (p for p in ("/usr/sbin/mariadbd", "/usr/sbin/mysqld") if os.path.exists(p)), None
    )
    if server is None:
        pytest.skip("neither MariaDB nor MySQL is installed")
    directory = tempfile.mkdtemp(prefix="gosched-my-")
    os.chmod(directory, 0o777)
    port = free_port()
    common = ["--no-defaults", "--datadir=" + directory + "/data"] + (["--user=mysql"] if os.geteuid() == 0 else [])
    process = None
    try:
        install = shutil.which("mariadb-install-db") or shutil.which("mysql_install_db")
        setup = [install, "--auth-root-authentication-method=normal"] + common if install else [
            server, "--initialize-insecure"] + common
        done = subprocess.run(setup, capture_output=True)
        if done.returncode:
            pytest.skip("cannot set a database up: %s" % done.stderr.decode()[-300:])
        process = subprocess.Popen(
            [server, *common, "--port=%d" % port, "--bind-address=127.0.0.1", "--socket=" + directory + "/s",
             "--skip-grant-tables", "--skip-networking=0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close(), process, "MySQL")
        yield port
    finally:
        remove(process, directory)


def test_pymysql(mysql_port):
    pytest.importorskip("pymysql", reason="pymysql isn't installed")
    run("""
        import sys, pymysql
        busy = most = 0
        def work(i):
            global busy, most
            busy += 1
            most = max(most, busy)
            c = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root")
            with c, c.cursor() as cursor:
                cursor.execute("select sleep(0.5), %s", (i,))
                busy -= 1
                return cursor.fetchone()[1]
        with Beside():
            assert sorted(g.result() for g in [gosched.go(work, i) for i in range(10)]) == list(range(10))
        assert most == 10, most
    """, mysql_port, options=("-W", "ignore"))


def test_requests():
    pytest.importorskip("requests", reason="requests isn't installed")
    run("""
        import http.server, threading, time, requests
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            at_once = most = 0
            def do_GET(self):
                Handler.at_once += 1
                Handler.most = max(Handler.most, Handler.at_once)
                time.sleep(0.1)
                Handler.at_once -= 1
                body = self.path.encode() * 1000
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                try:
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:
                    pass  # the client that didn't wait for it
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            def log_message(self, *args):
                pass
        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 100
        with Server(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
            base = "http://localhost:%d" % server.server_address[1]
            with Beside():
                found = [gosched.go(requests.get, "%s/%d" % (base, i)) for i in range(30)]
                for i, g in enumerate(found):
                    assert g.result().text == "/%d" % i * 1000
                assert Handler.most > 5, Handler.most
            with requests.Session() as s:
                adapter = requests.adapters.HTTPAdapter(pool_connections=2, pool_maxsize=4, pool_block=True)
                s.mount("http://", adapter)
                got = [gosched.go(s.post, base, data=b"x" * 100_000) for i in range(12)]
                assert all(g.result().content == b"x" * 100_000 for g in got)
                try:
                    s.get(base, timeout=0.02)
                except requests.exceptions.Timeout:
                    pass
                else:
                    assert False
            server.shutdown()
    """, options=("-W", "ignore::ResourceWarning"))


def test_requests_imported_before():
    pytest.importorskip("requests", reason="requests isn't installed")
    run("""
        import warnings
        import requests
        import gosched
        warnings.simplefilter("error")
        gosched.patch_all()
        warnings.simplefilter("ignore")
        import socket
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                client, _ = listener.accept()
                with client:
                    client.recv(1000)
                    gosched.sleep(0.02)
                    client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
            gosched.go(serve)
            assert requests.get("http://127.0.0.1:%d" % listener.getsockname()[1]).text == "ok"
    """, prelude="")


def test_wsgiref():
    run("""
        import socketserver, threading, time, urllib.request
        from wsgiref.simple_server import WSGIServer, WSGIRequestHandler, make_server
        from wsgiref.validate import validator
        class Server(socketserver.ThreadingMixIn, WSGIServer):
            request_queue_size = 100
            daemon_threads = True
        class Quiet(WSGIRequestHandler):
            def log_message(self, *args):
                pass
        at_once = most = 0
        def app(environ, start_response):
            global at_once, most
            n = int(environ.get("CONTENT_LENGTH") or 0)
            body = environ["wsgi.input"].read(n)
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.1)
            at_once -= 1
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [environ["PATH_INFO"].encode() + body]
        with make_server("127.0.0.1", 0, validator(app), Server, Quiet) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
            base = "http://127.0.0.1:%d" % server.server_port
            def get(i):
                with urllib.request.urlopen("%s/%d" % (base, i), data=b"+%d" % i) as r:
                    return r.read()
            with Beside():
                found = [gosched.go(get, i) for i in range(20)]
                assert [g.result() for g in found] == [b"/%d+%d" % (i, i) for i in range(20)]
                assert most > 5, most
            server.shutdown()
    """)


def test_trio():
    pytest.importorskip("trio", reason="trio isn't installed")
    run("""
        import subprocess, threading, time
        import trio

        async def echo(stream):
            async for data in stream:
                await stream.send_all(data)

        async def main():
            answers = []
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 0.01)
                # Threads of trio's cache, which it names.
                answers.append(await trio.to_thread.run_sync(lambda: (time.sleep(0.02), threading.current_thread().name)[0]))
                listeners = await nursery.start(trio.serve_tcp, echo, 0)
                stream = await trio.open_tcp_stream("127.0.0.1", listeners[0].socket.getsockname()[1])
                await stream.send_all(b"hello")
                answers.append(await stream.receive_some(100))
                await stream.aclose()
                nursery.cancel_scope.cancel()
            done = await trio.run_process(["echo", "from a child"], capture_stdout=True)
            return [*answers, done.stdout]

        for call in (lambda: trio.run(main), lambda: gosched.go(trio.run, main).result()):
            with Beside():
                assert call() == [None, b"hello", b"from a child\\n"]
    """)
