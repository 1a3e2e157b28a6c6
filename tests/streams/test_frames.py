"""Frames: what was sent is what is read, and nothing else is."""

from __future__ import annotations

import random

import pytest

from onceq.errors import TooLarge
from onceq.streams.errors import FrameRefused
from onceq.streams.model import frames
from onceq.streams.model.frames import Frame, FrameKind, Splitter, body_of, decode, encode


def made(*messages: bytes, number: int = 7) -> Frame:
    return Frame(
        kind=FrameKind.MESSAGES,
        stream=0xFEED_0000_0000_0001,
        epoch=3,
        number=number,
        stable=5,
        count=len(messages),
        body=body_of(messages),
    )


def test_a_header_has_44_bytes() -> None:
    assert frames.HEADER_BYTES == 44
    assert encode(made())[:2] == b"\xa5\x71"
    assert len(encode(made())) == 44


def test_a_frame_is_read_as_it_was_written() -> None:
    frame = made(b"one", b"", b"three")
    back = decode(encode(frame))
    assert back == frame
    assert [bytes(one) for one in back.messages()] == [b"one", b"", b"three"]
    assert (back.number, back.end) == (7, 10)


def test_what_is_void_has_numbers_and_no_messages() -> None:
    void = Frame(kind=FrameKind.VOID, stream=1, epoch=4, number=9, stable=9, count=3)
    assert decode(encode(void)) == void
    assert list(void.messages()) == []
    assert void.end == 12


def test_every_bit_that_flips_is_seen() -> None:
    sent = encode(made(b"abc", b"d"))
    for at in range(len(sent) * 8):
        flipped = bytearray(sent)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(FrameRefused):
            decode(bytes(flipped))


def test_every_cut_is_seen() -> None:
    sent = encode(made(b"abc", b"d"))
    for length in range(len(sent)):
        with pytest.raises(FrameRefused):
            decode(sent[:length])
    with pytest.raises(FrameRefused):
        decode(sent + b"\0")


@pytest.mark.parametrize(
    ("count", "body"),
    [
        (1, b""),
        (1, b"\5\0\0\0abc"),
        (2, body_of([b"abc"])),
        (1, body_of([b"abc", b"d"])),
    ],
)
def test_messages_that_do_not_fit_their_frame_are_refused(count: int, body: bytes) -> None:
    frame = Frame(
        kind=FrameKind.MESSAGES, stream=1, epoch=1, number=0, stable=0, count=count, body=body
    )
    with pytest.raises(FrameRefused, match="frame"):
        list(decode(encode(frame)).messages())


def changed(at: int, value: bytes) -> bytes:
    sent = bytearray(encode(made(b"x")))
    sent[at : at + len(value)] = value
    return bytes(sent)


def test_rubbish_another_version_and_oversize_are_refused_by_the_header() -> None:
    with pytest.raises(FrameRefused, match="no frame"):
        frames.length_of(b"GET / HTTP/1.1\r\n".ljust(44))
    with pytest.raises(FrameRefused, match="version 2"):
        frames.length_of(changed(2, b"\2"))
    with pytest.raises(FrameRefused, match="at most 1048576"):
        frames.length_of(changed(8, b"\xff\xff\xff\xff"))


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(TooLarge, match="do not fit"):
        body_of([bytes(frames.FRAME_BYTES_MAX)])
    with pytest.raises(TooLarge, match="65536 messages"):
        body_of([b""] * 65_536)
    with pytest.raises(TooLarge, match="at most"):
        encode(
            Frame(kind=FrameKind.ASK, stream=0, epoch=0, number=0, stable=0, body=bytes(1 << 20))
        )


def test_frames_are_found_in_pieces_of_any_size() -> None:
    chance = random.Random(7)
    sent = [made(*[bytes([n])] * chance.randrange(4), number=n) for n in range(50)]
    data = b"".join(map(encode, sent))
    for _ in range(20):
        splitter, found, at = Splitter(), list[Frame](), 0
        while at < len(data):
            size = chance.choice((1, 7, 43, 44, 45, 200))
            found += map(decode, splitter.feed(data[at : at + size]))
            at += size
        assert found == sent
        assert splitter.waiting() == 0


def test_a_splitter_holds_less_than_a_frame() -> None:
    splitter = Splitter()
    sent = encode(made(bytes(1_000)))
    for _ in range(100):
        assert len(list(splitter.feed(sent + sent[:500]))) == 1
        assert len(list(splitter.feed(sent[500:]))) == 1
        assert splitter.waiting() == 0


def test_what_follows_rubbish_is_never_read() -> None:
    splitter = Splitter()
    read = splitter.feed(encode(made(b"good")) + b"rubbish".ljust(44) + encode(made(b"never")))
    assert decode(next(read)) == made(b"good")
    with pytest.raises(FrameRefused, match="no frame"):
        next(read)
