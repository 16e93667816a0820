"""Channels with a format: their items are C values."""

import gc
import struct

import pytest

import gosched

INTEGERS = "bBhHiIlLqQnN"


@pytest.mark.parametrize("code", INTEGERS)
def test_integers_have_the_range_of_their_letter(code):
    channel = gosched.Channel(1, format=code)
    assert channel.format == code and channel.capacity == 1
    bits = 8 * struct.calcsize(code)
    least, most = (0, 2**bits - 1) if code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for value in (least, most, 0, 1, most // 3):
        channel.send(value)
        assert channel.recv() == value
    for value in (least - 1, most + 1, 2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            channel.send(value)
    for value in (1.0, "1", None, (1,)):
        with pytest.raises(TypeError):
            channel.send(value)
    assert len(channel) == 0


def test_other_letters():
    for code, value in (("d", 1.1), ("d", float("inf")), ("f", 0.5), ("f", float("-inf")), ("?", True), ("c", b"x"), ("P", 2**63)):
        channel = gosched.Channel(1, format=code)
        channel.send(value)
        assert channel.recv() == value
    channel = gosched.Channel(1, format="f")
    channel.send(1.1)
    assert channel.recv() == struct.unpack("f", struct.pack("f", 1.1))[0]
    with pytest.raises(OverflowError):
        channel.send(1e300)
    for wrong in (b"", b"xy", "x"):
        with pytest.raises(TypeError):
            gosched.Channel(1, format="c").send(wrong)


@pytest.mark.parametrize("code", ["qq", "qd", "bq", "ib", "hhi", "?dbd", "c" * 16, "@iq"])
def test_structs_are_tuples(code):
    channel = gosched.Channel(2, format=code)
    letters = code.lstrip("@")
    values = {"q": 2**40, "d": 2.5, "b": -1, "i": -5, "h": 7, "?": True, "c": b"z"}
    item = tuple(values[letter] for letter in letters)
    channel.send(item)
    assert channel.recv() == item
    for wrong in (item[1:], item + (1,), list(item), 1):
        with pytest.raises(TypeError):
            channel.send(wrong)
    assert len(channel) == 0


@pytest.mark.parametrize("code", ["", "@", "s", "5q", "<q", "q q", "c" * 17, "é"])
def test_what_is_no_format(code):
    with pytest.raises(ValueError):
        gosched.Channel(1, format=code)


def test_select_over_formats_and_objects():
    objects, numbers, pairs = gosched.Channel(), gosched.Channel(format="h"), gosched.Channel(format="qd")
    for channel, value in ((objects, "x"), (numbers, -3), (pairs, (1, 2.0))):
        gosched.go(channel.send, value)
        index, got, ok = gosched.select(objects.recv_case(), numbers.recv_case(), pairs.recv_case())
        assert ((objects, numbers, pairs)[index], got, ok) == (channel, value, True)
    receiver = gosched.go(pairs.recv)
    assert gosched.select(pairs.send_case((4, 0.5)), numbers.recv_case(), pairs.recv_case())[0] == 0
    assert receiver.result(5) == (4, 0.5)
    with pytest.raises(OverflowError):
        gosched.select(objects.send_case([]), numbers.send_case(2**20), timeout=0)
    pairs.close()
    assert gosched.select(pairs.recv_case()) == (0, None, False)
    with pytest.raises(gosched.Closed):
        pairs.send((1, 1.0))


def test_waits_end_as_those_of_other_channels():
    channel = gosched.Channel(format="qq")
    with pytest.raises(TimeoutError):
        channel.recv(0.001)
    with pytest.raises(TimeoutError):
        channel.send((1, 2), 0.001)
    assert channel.try_send((1, 2)) is False and channel.try_recv() == (False, None)
    waiting = gosched.go(channel.recv)
    gosched.yield_()
    waiting.cancel()
    assert waiting.join(5) and waiting.cancelled()
    with pytest.raises(gosched.Timeout):
        with gosched.Timeout(0.001):
            channel.send((1, 2))
    iterating = gosched.go(list, channel)
    for n in range(3):
        channel.send((n, n))
    channel.close()
    assert iterating.result(5) == [(0, 0), (1, 1), (2, 2)]


def test_none_are_left():
    for _ in range(2000):
        channel = gosched.Channel(64, format="qqqq")
        channel.send((1, 2, 3, 4))
    del channel
    gc.collect()
