"""grpcio under patch_all: a server whose handlers are goroutines, and clients in goroutines, with asyncio too. There are no
generated stubs: messages are bytes."""

import pytest
from patched import PRELUDE, run

pytest.importorskip("grpc", reason="grpcio isn't installed")

procs = pytest.mark.parametrize("procs", [1, 2, 8])

SERVER = """
import sys, threading, time
from concurrent import futures
import grpc
busy = most = 0
proceed = threading.Event()
def upper(request, context):
    global busy, most
    busy += 1
    most = max(most, busy)
    while most < int(dict(context.invocation_metadata()).get("together", 0)):
        time.sleep(0.001)
    busy -= 1
    assert gosched.current() is not None
    if request == b"wait":
        proceed.wait()
    if request == b"error":
        context.abort(grpc.StatusCode.NOT_FOUND, "not here")
    if request == b"bug":
        raise ValueError
    return request.upper()
def count(request, context):
    n = 0
    while context.is_active() and (not request or n < int(request)):
        time.sleep(0.001)
        yield b"%d" % n
        n += 1
def join(requests, context):
    return b"+".join(requests)
def twice(requests, context):
    for request in requests:
        yield 2 * request
def serve(**kwargs):
    server = grpc.server(futures.ThreadPoolExecutor(20), **kwargs)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {
        "Upper": grpc.unary_unary_rpc_method_handler(upper),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Join": grpc.stream_unary_rpc_method_handler(join),
        "Twice": grpc.stream_stream_rpc_method_handler(twice),
    }),))
    address = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, address
class Stubs:
    def __init__(self, channel):
        self.upper = channel.unary_unary("/test/Upper")
        self.count = channel.unary_stream("/test/Count")
        self.join = channel.stream_unary("/test/Join")
        self.twice = channel.stream_stream("/test/Twice")
def fails(fn, *args, **kwargs):
    try:
        fn(*args, **kwargs)
    except grpc.RpcError as error:
        return error.code()
    raise AssertionError("no RpcError")
"""


def check(code, procs, prelude=PRELUDE, **kwargs):
    env = {"GOSCHED_PROCS": str(procs), "GRPC_VERBOSITY": "NONE"}
    return run(code, prelude=prelude + SERVER, env=env, timeout=120, **kwargs)


@procs
def test_calls_of_all_kinds(procs):
    check("""
        server, address = serve()
        with grpc.insecure_channel(address) as channel, Beside():
            grpc.channel_ready_future(channel).result()
            stubs = Stubs(channel)
            # At the same time: each handler waits for all others.
            calls = [gosched.go(stubs.upper, b"a%d" % n, metadata=(("together", "10"),)) for n in range(10)]
            assert [g.result() for g in calls] == [b"A%d" % n for n in range(10)]
            assert most == 10, most
            waits = [stubs.upper.future(b"wait") for _ in range(3)]
            done = []
            for future in waits:
                future.add_done_callback(lambda future: done.append(future.result()))
            proceed.set()
            assert [future.result() for future in waits] == [b"WAIT"] * 3
            while len(done) < 3:
                gosched.sleep(0.001)
            response, call = stubs.upper.with_call(b"x")
            assert response == b"X" and call.code() is grpc.StatusCode.OK
            assert list(stubs.count(b"50")) == [b"%d" % n for n in range(50)]
            def slowly(n):
                for i in range(n):
                    gosched.sleep(0.001)
                    yield b"%d" % i
            assert stubs.join(slowly(10)) == b"0+1+2+3+4+5+6+7+8+9"
            assert stubs.join.future(slowly(3)).result() == b"0+1+2"
            assert list(stubs.twice(slowly(3))) == [b"00", b"11", b"22"]
            # A conversation: each request is made of the answer before.
            requests, answers = gosched.Channel(), []
            requests_for_it = iter(requests)
            def talk():
                for answer in stubs.twice(requests_for_it):
                    answers.append(answer)
                    if len(answers) < 4:
                        requests.send(answer)
                    else:
                        requests.close()
            g = gosched.go(talk)
            requests.send(b"-")
            g.result()
            assert answers == [b"--", b"----", b"-" * 8, b"-" * 16], answers
            # Many at once, of all kinds.
            def work(n):
                for i in range(5):
                    assert stubs.upper(b"n%d" % i) == b"N%d" % i
                    assert list(stubs.count(b"3")) == [b"0", b"1", b"2"]
                    assert stubs.join(iter([b"1", b"2"])) == b"1+2"
                    assert list(stubs.twice(iter([b"q"]))) == [b"qq"]
            workers = [gosched.go(work, n) for n in range(10)]
            threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for worker in workers + threads:
                worker.join()
            assert not [g for g in workers if g.exception()]
        stopped = server.stop(1)
        assert server.wait_for_termination() is False
        stopped.wait()
    """, procs)


@procs
def test_errors_deadlines_and_cancels(procs):
    check("""
        import logging
        logging.disable(logging.CRITICAL)
        server, address = serve()
        code = grpc.StatusCode
        with grpc.insecure_channel(address) as channel, Beside():
            stubs = Stubs(channel)
            assert fails(stubs.upper, b"error") is code.NOT_FOUND
            assert fails(stubs.upper, b"bug") is code.UNKNOWN
            assert fails(stubs.upper, b"wait", timeout=0.1) is code.DEADLINE_EXCEEDED
            assert fails(lambda: list(stubs.count(b"", timeout=0.1))) is code.DEADLINE_EXCEEDED
            assert fails(channel.unary_unary("/test/None"), b"") is code.UNIMPLEMENTED
            with grpc.insecure_channel("127.0.0.1:1") as nowhere:
                assert fails(Stubs(nowhere).upper, b"x") is code.UNAVAILABLE
                try:
                    grpc.channel_ready_future(nowhere).result(timeout=0.1)
                except grpc.FutureTimeoutError:
                    pass
                else:
                    assert False
            # A goroutine's own Timeout and cancel end the call: its handler sees that.
            def late(fn, *args):
                try:
                    with gosched.Timeout(0.1):
                        fn(*args)
                except gosched.Timeout:
                    return True
            assert late(stubs.upper, b"wait")
            assert late(lambda: list(stubs.count(b"")))
            assert late(stubs.join, iter(gosched.Channel()))
            g = gosched.go(stubs.upper, b"wait")
            gosched.sleep(0.05)
            g.cancel()
            g.join()
            assert g.cancelled()
            numbers = stubs.count(b"")
            assert next(numbers) == b"0"
            numbers.cancel()
            assert fails(lambda: list(numbers)) is code.CANCELLED
            assert stubs.upper(b"still") == b"STILL"
        proceed.set()
        server.stop(None).wait()
    """, procs)


def test_what_else_there_is():
    """Interceptors, a limit of calls, connectivity, channels that grpcio keeps, threads of the system."""
    check("""
        class Logs(grpc.ServerInterceptor):
            def intercept_service(self, continuation, details):
                seen.append(details.method)
                return continuation(details)
        class Adds(grpc.UnaryUnaryClientInterceptor):
            def intercept_unary_unary(self, continuation, details, request):
                return continuation(details, request + b"!")
        seen, states = [], []
        server, address = serve(interceptors=[Logs()], maximum_concurrent_rpcs=1)
        with grpc.insecure_channel(address) as channel:
            channel.subscribe(states.append, try_to_connect=True)
            stubs = Stubs(grpc.intercept_channel(channel, Adds()))
            assert stubs.upper(b"x") == b"X!" and seen == ["/test/Upper"]
            waits = Stubs(channel).upper.future(b"wait")
            while busy:
                gosched.sleep(0.001)
            while fails(stubs.upper, b"x") is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                pass
            proceed.set()
            assert waits.result() == b"WAIT"
            while grpc.ChannelConnectivity.READY not in states:
                gosched.sleep(0.001)
        server.stop(None)
        server, address = serve()
        for _ in range(3):
            assert grpc.experimental.unary_unary(b"y", address, "/test/Upper", insecure=True) == b"Y"
        from gosched._originals import start_new_thread
        answers = []
        with grpc.insecure_channel(address) as channel:
            start_new_thread(lambda: answers.append(Stubs(channel).upper(b"z")), ())
            while not answers:
                gosched.sleep(0.001)
        assert answers == [b"Z"]
        server.stop(None)
    """, 2, options=("-W", "ignore"))


@pytest.mark.parametrize("call", ["stubs.upper(b'wait')", "list(stubs.count(b''))", "server.wait_for_termination()"])
def test_keyboard_interrupt(call):
    check("""
        import os, signal
        server, address = serve()
        with grpc.insecure_channel(address) as channel:
            stubs = Stubs(channel)
            def interrupt():
                gosched.sleep(0.1)
                os.kill(os.getpid(), signal.SIGINT)
            gosched.go(interrupt)
            try:
                CALL
            except KeyboardInterrupt:
                pass
            else:
                assert False
        proceed.set()
        server.stop(None)
    """.replace("CALL", call), 2)


def test_the_end_of_a_program_that_has_closed_nothing():
    """grpcio's own threads don't keep it, nor do its calls."""
    check("""
        import socket
        server, address = serve()
        stubs = Stubs(grpc.insecure_channel(address))
        assert stubs.upper(b"x") == b"X" and list(stubs.count(b"2")) == [b"0", b"1"]
        # A server that never answers.
        silent = socket.create_server(("127.0.0.1", 0))
        stubs = Stubs(grpc.insecure_channel("127.0.0.1:%d" % silent.getsockname()[1]))
        future, numbers = stubs.upper.future(b"x", wait_for_ready=True), stubs.count(b"2", wait_for_ready=True)
        gosched.go(next, numbers)
        gosched.sleep(0.05)
        assert not future.done()
    """, 2, options=("-W", "ignore::ResourceWarning"))


def test_the_main_thread_runs_the_goroutines():
    """Though a thread of grpcio's is the first that starts one."""
    check("""
        server, address = serve()
        from gosched._originals import sleep, start_new_thread
        def call():
            with grpc.insecure_channel(address) as channel:
                assert Stubs(channel).upper(b"x") == b"X"
            done.append(1)
        done = []
        start_new_thread(call, ())
        for _ in range(20):
            sleep(0.01)
        with gosched.Timeout(60):
            while not done:
                gosched.sleep(0.001)
        server.stop(None)
    """, 2)


def test_when_it_was_imported_before():
    check("""
        from gosched import patch
        patch.patch_all()
        server, address = serve()
        with grpc.insecure_channel(address) as channel:
            stubs = Stubs(channel)
            calls = [gosched.go(stubs.upper, b"a%d" % n, metadata=(("together", "10"),)) for n in range(10)]
            assert [g.result() for g in calls] == [b"A%d" % n for n in range(10)]
            assert list(stubs.count(b"3")) == [b"0", b"1", b"2"]
        server.stop(None).wait()
    """, 2, prelude="import grpc, gosched\n")


ASYNCIO = """
import asyncio, logging
import grpc.aio
logging.getLogger("asyncio").setLevel(logging.ERROR)  # It logs what is slow.
async def main():
    together, full = 0, asyncio.Event()
    async def upper(request, context):
        nonlocal together
        together += 1
        if request.startswith(b"a"):
            if together == 10:
                full.set()
            await full.wait()
        if request == b"error":
            await context.abort(grpc.StatusCode.NOT_FOUND, "not here")
        if request == b"wait":
            await asyncio.sleep(3600)
        return request.upper()
    def reverse(request, context):
        time.sleep(0.01)
        return request[::-1]
    async def count(request, context):
        for n in range(int(request)):
            await asyncio.sleep(0.001)
            yield b"%d" % n
    async def join(requests, context):
        return b"+".join([request async for request in requests])
    async def twice(requests, context):
        async for request in requests:
            yield 2 * request
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {
        "Upper": grpc.unary_unary_rpc_method_handler(upper),
        "Reverse": grpc.unary_unary_rpc_method_handler(reverse),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Join": grpc.stream_unary_rpc_method_handler(join),
        "Twice": grpc.stream_stream_rpc_method_handler(twice),
    }),))
    address = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stubs = Stubs(channel)
        answers = await asyncio.gather(*[stubs.upper(b"a%d" % n) for n in range(10)])
        assert answers == [b"A%d" % n for n in range(10)]
        assert await channel.unary_unary("/test/Reverse")(b"abc") == b"cba"
        assert [n async for n in stubs.count(b"20")] == [b"%d" % n for n in range(20)]
        async def slowly():
            for n in range(3):
                await asyncio.sleep(0.001)
                yield b"%d" % n
        assert await stubs.join(slowly()) == b"0+1+2"
        assert [n async for n in stubs.twice(slowly())] == [b"00", b"11", b"22"]
        for request, timeout, code in ((b"error", None, grpc.StatusCode.NOT_FOUND),
                                       (b"wait", 0.05, grpc.StatusCode.DEADLINE_EXCEEDED)):
            try:
                await stubs.upper(request, timeout=timeout)
            except grpc.aio.AioRpcError as error:
                assert error.code() is code
            else:
                assert False
        # A client that is no coroutine, in a goroutine.
        def client():
            with grpc.insecure_channel(address) as channel:
                return Stubs(channel).upper(b"from a goroutine")
        assert await gosched.as_future(gosched.go(client)) == b"FROM A GOROUTINE"
    await server.stop(0.1)
    return "end"
"""


@pytest.mark.parametrize("how", [
    "asyncio.run(main())",
    "gosched.asyncio.run(main())",
    "gosched.run_coroutine(main())",
    "gosched.go(gosched.asyncio.run, main()).result()",
])
@procs
def test_asyncio(how, procs):
    check(ASYNCIO + """
with Beside():
    assert HOW == "end"
""".replace("HOW", how), procs, options=("-W", "ignore::ResourceWarning"))
