"""pyzmq, unmodified under patch_all."""

import pytest
from patched import run

pytest.importorskip("zmq", reason="pyzmq isn't installed")


def test_sockets_wait_as_goroutines():
    run("""
        import threading, time
        import zmq

        context = zmq.Context()

        def serve(address):
            with context.socket(zmq.REP) as socket:
                port = socket.bind_to_random_port("tcp://127.0.0.1")
                bound.send(port)
                while (message := socket.recv_json()) != "end":
                    time.sleep(0.01)
                    socket.send_json([message])
                socket.send(b"")

        def ask(n):
            with context.socket(zmq.REQ) as socket:
                socket.connect("tcp://127.0.0.1:%d" % port)
                socket.send_json(n)
                return socket.recv_json()

        bound = gosched.Channel()
        server = gosched.go(serve, "tcp://127.0.0.1")
        port = bound.recv()
        with Beside():
            asks = [gosched.go(ask, n) for n in range(20)]
            assert [g.result() for g in asks] == [[n] for n in range(20)]
        with context.socket(zmq.REQ) as socket:
            socket.connect("tcp://127.0.0.1:%d" % port)
            socket.send_json("end")
            socket.recv()
        server.result()
        context.term()
    """)


def test_timeouts_polls_and_cancelling():
    run("""
        import zmq

        context = zmq.Context()
        left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        left.bind("inproc://pair")
        right.connect("inproc://pair")

        right.rcvtimeo = 20
        for call in (right.recv, lambda: right.recv(zmq.DONTWAIT)):
            try:
                call()
            except zmq.Again:
                pass
            else:
                assert False
        right.rcvtimeo = -1
        with Beside():
            assert right.poll(20) == 0
            assert zmq.select([right], [], [], 0.02) == ([], [], [])
            assert zmq.select([right], [left], [], 10) == ([], [left], [])

        poller = zmq.Poller()
        poller.register(right, zmq.POLLIN)
        g = gosched.go(poller.poll)
        gosched.yield_()
        left.send(b"news")
        assert g.result() == [(right, zmq.POLLIN)] and right.recv() == b"news"

        g = gosched.go(right.recv)
        gosched.sleep(0.01)
        g.cancel()
        assert g.join() and g.cancelled()
        try:
            with gosched.Timeout(0.01):
                right.recv()
        except gosched.Timeout:
            pass
        else:
            assert False

        # More than the other side takes: send() waits.
        push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        push.sndhwm = pull.rcvhwm = 2
        push.bind("inproc://push")
        pull.connect("inproc://push")

        def fill():
            for n in range(50):
                push.send_multipart([b"%d" % n, b"x"])

        filler = gosched.go(fill)
        with Beside():
            assert [pull.recv_multipart()[0] for _ in range(50)] == [b"%d" % n for n in range(50)]
        filler.result()

        # A large message, of which zmq makes no copy.
        data = bytes(1_000_000)
        left.send(data, copy=False)
        assert right.recv(copy=False).bytes == data
        tracker = left.send(data, copy=False, track=True)
        assert right.recv() == data
        tracker.wait(10)
        for socket in (left, right, push, pull):
            socket.close()
        context.term()
    """)


def test_asyncio_and_devices():
    run("""
        import asyncio
        import gosched.asyncio
        import zmq, zmq.asyncio
        from zmq.devices import ThreadProxy

        proxy = ThreadProxy(zmq.ROUTER, zmq.DEALER)
        front = proxy.bind_in_to_random_port("tcp://127.0.0.1")
        back = proxy.bind_out_to_random_port("tcp://127.0.0.1")
        proxy.start()

        async def main():
            context = zmq.asyncio.Context()
            server, client = context.socket(zmq.REP), context.socket(zmq.REQ)
            server.connect("tcp://127.0.0.1:%d" % back)
            client.connect("tcp://127.0.0.1:%d" % front)

            async def serve():
                await server.send(await server.recv() + b"!")

            served = asyncio.ensure_future(serve())
            await client.send(b"hello")
            answer = await client.recv()
            await served
            server.close(), client.close()
            context.term()
            return answer

        with Beside():
            assert gosched.asyncio.run(main()) == b"hello!"
    """, options=("-W", "ignore::ResourceWarning"))
