"""examples-c/respd.c against real clients (redis-cli, redis-py with hiredis, redis-benchmark), and its answers
byte by byte against those of redis-server."""

from __future__ import annotations

import random
import signal
import socket
import struct
import subprocess
import threading

import pytest
import redis

from conftest import HUNG, ROOT, read_all, read_exactly, until

KIB, MIB = 1 << 10, 1 << 20


def request(*args) -> bytes:
    """A request as an array of bulk strings."""
    args = [a if isinstance(a, bytes) else str(a).encode() for a in args]
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


def in_threads(n: int, work) -> list:
    """work(i) in n threads at once; the results in order. The first exception is raised."""
    results, errors = [None] * n, []

    def one(i: int) -> None:
        try:
            results[i] = work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def client(server) -> redis.Redis:
    return redis.Redis("127.0.0.1", server.port, socket_timeout=HUNG)


# The same answers as redis-server's

LINES = [
    b"PING\r\n",
    b"PING\n",
    b"   ping  hello\r\n",
    b"\r\n\r\nPING\r\n",
    b'SET "a b\\x41\\n" \'it\\\'s\'\r\nGET "a bA\\n"\r\n',
    b'SET "" ""\r\nGET ""\r\n',
    b'ECHO "\\a\\b\\t\\q"\r\n',
    b"ECHO \xff\xfe\r\n",
    b"*0\r\n*-1\r\nPING\r\n",
]

ERRORS = [
    b"NOSUCH a b\r\n",
    b"nosuch\r\n",
    b"GET\r\n",
    b"GET a b\r\n",
    b"SET a\r\n",
    b"SET a b NX XX\r\n",
    b"SET a b nonsense\r\n",
    b"MSET a\r\n",
    b"MSET a 1 b\r\n",
    b"PING a b\r\n",
    b"SET n abc\r\nINCR n\r\nINCRBY n 1\r\nDECR n\r\n",
    b"INCRBY n 1.5\r\nINCRBY n ''\r\nINCRBY n +1\r\nINCRBY n 01\r\nINCRBY n ' 1'\r\nINCRBY n -0\r\n",
    b"SET m 9223372036854775807\r\nINCR m\r\nDECRBY m 9223372036854775807\r\nDECRBY m -9223372036854775808\r\n",
    b"SET l -9223372036854775808\r\nDECR l\r\nINCR l\r\nINCRBY l 9223372036854775808\r\n",
    b"SELECT x\r\nSELECT 0\r\n",
    b"FLUSHALL now\r\n",
    b"HELLO 4\r\nHELLO x\r\nHELLO 2 SETNAME\r\n",
    b"HELLO 3 NONSENSE\r\nGET none\r\n",
    # Of the protocol: after them the connection is ended.
    b"*99999999999999999999\r\n",
    b"*x\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$x\r\n",
    b"*1\r\n+PING\r\n",
    b"*2\r\n$4\r\nPING\r\nPING\r\n",
    b"SET a 'b\r\nPING\r\n",
    b'ECHO "a"b\r\n',
    b"PING\r\n*1\r\n$y\r\nPING\r\n",
]


@pytest.mark.parametrize("data", [*LINES, *ERRORS], ids=lambda data: repr(data)[:40])
def test_answers_are_those_of_redis(start, redis_server, data):
    server = start()
    for one in server, redis_server:
        assert one.ask(request("FLUSHALL")) == b"+OK\r\n+OK\r\n"
    assert server.ask(data) == redis_server.ask(data)
    assert server.ask(b"PING\r\n") == b"+PONG\r\n+OK\r\n"
    server.settle()


@pytest.mark.parametrize("respd", [("2", "")], indirect=True)
def test_null_in_resp3(respd, redis_server):
    data = request("GET", "none") + request("MGET", "none", "no") + request("COMMAND", "INFO", "none")
    for server in respd, redis_server:
        hello, answer = server.ask(request("HELLO", 3) + request("ECHO", "--") + data).split(b"$2\r\n--\r\n")
        assert hello.startswith(b"%7\r\n$6\r\nserver\r\n")
        assert answer == b"_\r\n*2\r\n_\r\n_\r\n*1\r\n_\r\n+OK\r\n"


def test_a_line_without_end(start):
    assert start().ask(b"x" * (200 * KIB)) == b"-ERR Protocol error: too big inline request\r\n"


def test_more_arguments_than_there_may_be(start):
    assert start().ask(b"*1048577\r\n") == b"-ERR Protocol error: invalid multibulk length\r\n"


def some_request(rng: random.Random) -> bytes:
    keys = [b"a", b"b", b"c", b"key:000001", b"", b"with blank", b"\x00\xff\r\n", b"n", b"m"]
    values = [b"", b"0", b"41", b"-7", b"9223372036854775807", b"x" * 5000, b"\r\n$3\r\n", rng.randbytes(rng.randrange(40))]
    key, value = (lambda: rng.choice(keys)), (lambda: rng.choice(values))
    several = lambda: [key() for _ in range(rng.randint(1, 40))]
    pairs = lambda: [x for _ in range(rng.randint(1, 20)) for x in (key(), value())]
    args = rng.choice([
        lambda: ["GET", key()], lambda: ["SET", key(), value()], lambda: ["SET", key(), value(), "NX"],
        lambda: ["SET", key(), value(), "XX", "GET"], lambda: ["SET", key(), value(), "get", "nx"],
        lambda: ["SETNX", key(), value()], lambda: ["GETSET", key(), value()], lambda: ["INCR", key()],
        lambda: ["DECR", key()], lambda: ["INCRBY", key(), rng.choice([1, -5, 1 << 62])],
        lambda: ["DECRBY", key(), rng.choice([1, -5, 1 << 62])], lambda: ["APPEND", key(), value()],
        lambda: ["STRLEN", key()], lambda: ["MGET", *several()], lambda: ["MSET", *pairs()],
        lambda: ["DEL", *several()], lambda: ["EXISTS", *several()], lambda: ["DBSIZE"],
        lambda: ["ECHO", value()], lambda: ["PING"], lambda: ["PING", value()],
    ])()
    if rng.random() < 0.05:
        args = args[:-1] if len(args) > 1 else args + [b"too", b"many"]
    args[0] = "".join(rng.choice([c.lower(), c]) for c in args[0])
    return request(*args)


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_as_redis(respd, redis_server, seed):
    """The same requests, in pieces of other sizes."""
    rng = random.Random(seed)
    data = request("FLUSHALL") + b"".join(some_request(rng) for _ in range(3000)) + request("QUIT")

    def talk(server, rng: random.Random) -> bytes:
        with server.connect() as sock:
            def send() -> None:
                at = 0
                while at < len(data):
                    n = rng.choice([1, 7, 100, 5000, 40_000])
                    sock.sendall(data[at : at + n])
                    at += n
            sender = threading.Thread(target=send)
            sender.start()
            answer = read_all(sock)
            sender.join()
        return answer

    wanted = talk(redis_server, random.Random(-1))
    assert talk(respd, rng) == wanted
    assert wanted.endswith(b"+OK\r\n") and len(wanted) > 3000


def test_a_request_split_at_each_byte(respd):
    data = request("SET", "key", "a\r\nb") + b"GET key\r\n" + request("INCR", "n") + request("MGET", "key", "none", "n") + b"\r\nPING 'x y'\r\n"
    wanted = b"+OK\r\n$4\r\na\r\nb\r\n:%d\r\n*3\r\n$4\r\na\r\nb\r\n$-1\r\n$%d\r\n%d\r\n$3\r\nx y\r\n"
    with respd.connect() as other, respd.connect() as sock:
        for at in range(len(data) + 1):
            sock.sendall(data[:at])
            other.sendall(b"PING\r\n")  # the server has had its turn when this is back
            assert read_exactly(other, 7) == b"+PONG\r\n"
            sock.sendall(data[at:])
            n = at + 1
            answer = wanted % (n, len(str(n)), n)
            assert read_exactly(sock, len(answer)) == answer, f"split at {at}"
        for byte in data:
            sock.sendall(bytes([byte]))
        n += 1
        answer = wanted % (n, len(str(n)), n)
        assert read_exactly(sock, len(answer)) == answer


# Much at a time


def test_a_pipeline_is_answered_with_one_write(respd):
    """On the loopback interface what is sent at once comes at once."""
    with respd.connect() as sock:
        for n in range(100):
            sock.sendall(request("INCR", "n") * 16)
            wanted = b"".join(b":%d\r\n" % (16 * n + i) for i in range(1, 17))
            assert sock.recv(1 << 16) == wanted


def test_long_pipelines(respd):
    with client(respd) as r:
        pipe = r.pipeline(transaction=False)
        for i in range(20_000):
            pipe.incr("n")
        assert pipe.execute() == list(range(1, 20_001))
        for i in range(2000):
            pipe.set(f"key:{i}", "v" * i)
        for i in range(2000):
            pipe.get(f"key:{i}")
        assert pipe.execute()[2000:] == [b"v" * i for i in range(2000)]


def test_large_values(respd):
    with client(respd) as r:
        value = random.Random(1).randbytes(64 * MIB)
        r.set("large", value)
        assert r.strlen("large") == len(value)
        assert r.get("large") == value
        assert r.mget("large", "none", "large") == [value, None, value]
        assert r.append("large", b"end") == len(value) + 3
        assert r.getset("large", b"small") == value + b"end"
        for n in 4095, 4096, 4097, 16_383, 16_384, 16_385, MIB - 1, MIB, MIB + 1:
            r.set("k", value[:n])
            assert r.get("k") == value[:n]


def test_a_promised_length_takes_no_memory(respd):
    """A value's length is no reason to take memory: only bytes that come are."""
    before = respd.resident()
    socks = [respd.connect() for _ in range(20)]
    for sock in socks:
        sock.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n" + b"x" * 1000)
    more = [respd.connect() for _ in range(20)]
    for sock in more:
        sock.sendall(b"*1048576\r\n$3\r\nDEL\r\n$1\r\nk\r\n")
    with client(respd) as r:
        assert r.get("k") is None
        assert r.ping()
        assert respd.resident() - before < 20 * MIB
    for sock in socks + more:
        sock.close()


def test_as_many_arguments_as_there_may_be(respd):
    n = 1024 * 1024 - 1
    with respd.connect() as sock:
        sock.sendall(request("SET", "7", "x") + request("DEL", *range(n)) + request("EXISTS", "7"))
        assert read_exactly(sock, 13) == b"+OK\r\n:1\r\n:0\r\n"


# Many at a time


def test_counting_together(respd):
    def count(i: int) -> int:
        with client(respd) as r:
            pipe = r.pipeline(transaction=False)
            for _ in range(2000):
                pipe.incr("shared")
                pipe.incr(f"own:{i}")
            return pipe.execute()[-1]

    assert in_threads(16, count) == [2000] * 16
    with client(respd) as r:
        assert r.get("shared") == b"32000"


def test_mset_and_mget_are_atomic(respd):
    keys = [f"k{i}" for i in range(30)]

    def write(i: int) -> None:
        with client(respd) as r:
            for n in range(300):
                r.mset({key: f"{i}:{n}" for key in random.Random(n).sample(keys, 30)})

    def read(i: int) -> int:
        torn = 0
        with client(respd) as r:
            for _ in range(300):
                torn += len(set(r.mget(keys))) != 1
        return torn

    with client(respd) as r:
        r.mset({key: "start" for key in keys})
    assert in_threads(8, lambda i: write(i) if i % 2 else read(i)) == [0, None] * 4


def test_many_keys(respd):
    """Tables that grow and are emptied."""
    with client(respd) as r:
        for begin in range(0, 100_000, 10_000):
            r.mset({f"key:{i}": i for i in range(begin, begin + 10_000)})
        assert r.dbsize() == 100_000
        assert r.mget([f"key:{i}" for i in range(100_000)]) == [b"%d" % i for i in range(100_000)]
        assert r.delete(*[f"key:{i}" for i in range(0, 100_000, 2)]) == 50_000
        assert r.exists(*[f"key:{i}" for i in range(100_000)]) == 50_000
        r.flushall()
        assert r.dbsize() == 0


def test_a_thousand_connections(respd):
    socks = [respd.connect() for _ in range(1000)]
    for rounds in range(3):
        for i, sock in enumerate(socks):
            sock.sendall(request("SET", f"k{i}", f"{i}:{rounds}") + request("GET", f"k{i}") + request("INCR", "all"))
        total = []
        for i, sock in enumerate(socks):
            value = f"{i}:{rounds}".encode()
            start = b"+OK\r\n$%d\r\n%b\r\n:" % (len(value), value)
            assert read_exactly(sock, len(start)) == start
            rest = b""
            while not rest.endswith(b"\r\n"):
                rest += sock.recv(100)
            total.append(int(rest))
        assert sorted(total) == list(range(rounds * 1000 + 1, rounds * 1000 + 1001))
    assert respd.numbers() == (1000, 1003)
    for sock in socks:
        sock.close()


def test_a_client_that_reads_nothing_holds_up_no_other(respd):
    with client(respd) as r:
        r.set("k", b"x" * 10_000)
        before = respd.resident()
        with respd.connect() as stuck:
            n = 20_000
            sender = threading.Thread(target=lambda: stuck.sendall(request("GET", "k") * n))
            sender.start()
            assert [r.incr("n") for _ in range(500)] == list(range(1, 501))
            assert respd.resident() - before < 20 * MIB
            answer = b"$10000\r\n" + b"x" * 10_000 + b"\r\n"
            for _ in range(n):
                assert read_exactly(stuck, len(answer)) == answer
            sender.join()


def test_resets_and_half_requests(respd):
    for i in range(100):
        sock = respd.connect()
        sock.sendall([b"*2\r\n$3\r\nGE", request("GET", "k") * 1000, b"PI", request("SET", "k", "x" * 100_000)[:-5]][i % 4])
        if i % 3 == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        sock.close()
    with client(respd) as r:
        assert r.ping()
    respd.settle()


def test_nonsense(respd):
    """Whatever comes: error lines or answers, and the server lives."""
    rng = random.Random(3)
    for _ in range(300):
        data = bytearray(b"".join(some_request(rng) for _ in range(5)))
        for _ in range(rng.randint(1, 10)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        with respd.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = read_all(sock)
        assert answer == b"" or answer[:1] in b"+-:$*"
    assert respd.ask(b"PING\r\n") == b"+PONG\r\n+OK\r\n"


# Clients


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(respd, protocol):
    assert redis.connection.HIREDIS_AVAILABLE
    with redis.Redis("127.0.0.1", respd.port, protocol=protocol, socket_timeout=HUNG) as r:
        assert r.ping()
        assert r.echo("hi") == b"hi"
        assert r.set("a", "1") and r.get("a") == b"1" and r.get("none") is None
        assert r.set("a", "2", nx=True) is None and r.set("a", "2", xx=True, get=True) == b"1"
        with pytest.raises(redis.ResponseError, match="don't expire"):
            r.set("a", "3", ex=10)
        assert r.get("a") == b"2"
        assert r.incrby("a", 40) == 42 and r.decr("a") == 41
        assert r.setnx("a", "x") is False and r.delete("a", "b") == 1
        assert r.client_setname("tester") and r.client_getname() in ("tester", b"tester")
        assert r.client_id() > 0
        assert r.command_count() == len(r.command_list()) == len(r.command()) > 20
        assert r.command()["get"]["arity"] == 2
        assert r.config_get("*") == {
            "appendonly": "no", "bind": "127.0.0.1", "databases": "1", "port": str(respd.port),
            "proto-max-bulk-len": "536870912", "save": "", "timeout": "0"}
        info = r.info()
        assert info["tcp_port"] == respd.port and info["connected_clients"] >= 1
        with pytest.raises(redis.ResponseError, match="unknown command"):
            r.lpush("list", 1)
        with pytest.raises(redis.ResponseError, match="out of range"):
            r.select(1)


def run(*command, **options) -> str:
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=HUNG, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_redis_cli(respd):
    cli = lambda *args, **options: run("redis-cli", "-p", respd.port, *args, **options)
    assert cli("set", "a", "b c") == "OK\n"
    assert cli("get", "a") == "b c\n"
    assert cli("mget", "a", "none") == "b c\n\n"
    assert cli("--no-raw", "mget", "a", "none") == '1) "b c"\n2) (nil)\n'
    assert "ERR wrong number of arguments" in cli("get")
    assert cli(input='set x "1\\n2"\nincr n\nget x\n') == "OK\n1\n1\n2\n"
    assert cli("-r", "5", "incr", "n").split() == ["2", "3", "4", "5", "6"]
    mass = b"".join(request("SET", f"k{i}", i) for i in range(5000))
    piped = run("redis-cli", "-p", respd.port, "--pipe", input=mass.decode())
    assert "errors: 0, replies: 5000" in piped
    assert cli("dbsize") == "5003\n"
    assert cli("config", "get", "s*") == "save\n\n"
    assert "summary\nThe value under a key." in cli("command", "docs", "get")


@pytest.mark.parametrize("connections, pipeline", [(50, 1), (1000, 16)])
def test_redis_benchmark(respd, connections, pipeline):
    done = subprocess.run(
        ["redis-benchmark", "-p", str(respd.port), "-t", "ping,set,get,incr,mset", "-n", "10000", "-r", "1000",
         "-c", str(connections), "-P", str(pipeline), "--csv"],
        capture_output=True, text=True, timeout=HUNG,
    )
    tests = [line.split(",")[0] for line in done.stdout.splitlines() if line.startswith('"')]
    assert tests == ['"test"', '"PING_INLINE"', '"PING_MBULK"', '"SET"', '"GET"', '"INCR"', '"MSET (10 keys)"']
    assert done.returncode == 0 and "WARN" not in done.stderr and "rror" not in done.stdout + done.stderr, done.stderr


# The command line, and the end


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_what_was_sent_before_the_stop_is_answered(respd, sig):
    with respd.connect() as idle, respd.connect() as busy:
        busy.sendall(request("INCR", "n") * 1000)
        first = busy.recv(4)
        respd.process.send_signal(sig)
        assert idle.recv(1) == b""
        assert first + read_all(busy) == b"".join(b":%d\r\n" % i for i in range(1, 1001))
    assert "1000 requests, 1 keys" in respd.ended()


def test_a_second_signal_cuts_off(start):
    server = start()
    with server.connect() as stuck, client(server) as r:
        r.set("k", b"x" * (64 * MIB))
        stuck.sendall(request("GET", "k"))
        assert stuck.recv(1) == b"$"
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.process.poll() is not None or not listens(server))
        server.process.send_signal(signal.SIGTERM)
        server.ended()


def listens(server) -> bool:
    try:
        server.connect().close()
        return True
    except OSError:
        return False


def test_idle_connections_end(start):
    server = start("2", "", "-t", "1")
    with server.connect() as idle, server.connect() as half:
        half.sendall(b"*1\r\n$4\r\nPI")
        assert idle.recv(1) == b""
        assert half.recv(1) == b""
        assert client(server).config_get("timeout") == {"timeout": "1"}
    server.settle()
    server.stop()


def test_procs(start):
    server = start("2", "", "-P", "5")
    assert client(server).info()["procs"] == 5


@pytest.mark.parametrize(
    "status, text, args",
    [
        (0, "usage: respd", ["--help"]),
        (2, "Try 'respd --help'", ["--frobnicate"]),
        (2, "-p takes a number from 0 to 65535, not '65536'", ["-p", "65536"]),
        (2, "-p takes a number", ["-p", ""]),
        (2, "-P takes a number from 1 to 1024, not '0'", ["-P", "0"]),
        (2, "-t takes a number from 0", ["-t", "-1"]),
        (2, "'extra' is not an option", ["extra"]),
        (1, "listen on 'no.such.host.invalid'", ["-b", "no.such.host.invalid"]),
    ],
)
def test_command_line(program, status, text, args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == status and text in done.stdout + done.stderr


def test_a_port_that_is_taken(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([program, "-p", port], capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 1 and f"port {port}: Another socket listens on this port" in done.stderr


def test_what_its_comment_says(program, tmp_path):
    """The commands at the top of respd.c print what stands there."""
    text = (ROOT / "examples-c" / "respd.c").read_text().split("*/")[0].replace(" * ", "")
    command = next(line.strip() for line in text.splitlines() if line.strip().startswith("./respd -p"))
    wanted = [line.strip() for line in text.split("It prints:")[1].splitlines() if line.strip(" *")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    server, rest = command.replace("7379", port).split("& ")
    question, stop = rest.split("; ")
    script = f"{server} >>out & until [ -s out ]; do sleep 0.05; done; {question} >>out; {stop}; wait; cat out"
    (tmp_path / "respd").symlink_to(program)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HUNG, cwd=tmp_path)
    # redis-cli writes "(integer) 1" on a terminal, "1" elsewhere.
    assert done.stdout.splitlines() == [line.replace("7379", port).replace("(integer) 1", "1") for line in wanted]


def test_the_comparison_of_servers(program, tmp_path):
    """benches/servers measures, makes a table, and puts it where it is told to."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benches/servers: begin -->\nold\n<!-- benches/servers: end -->\nafter\n")
    run("make", "-C", ROOT, "target/examples/respd")
    out = run(ROOT / "benches" / "servers", "--rounds", "1", "--seconds", "0.1", "--servers", "redis-server,respd",
              "--into", page, "set", "50", "16")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")]
    assert [row[1] for row in rows[2:]] == ["redis-server", "respd"]
    assert rows[2][0] == "redis-benchmark, set, 50 connections, pipeline 16" and rows[2][3] == "1.00"
    assert all(float(cell.replace(",", "")) > 0 for row in rows[2:] for cell in row[2:6])
    assert page.read_text() == f"before\n<!-- benches/servers: begin -->\n\n{out}<!-- benches/servers: end -->\nafter\n"
    wrong = subprocess.run([ROOT / "benches" / "servers", "no-such-scenario"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no scenario has all of the words" in wrong.stderr
