"""`onceq stream receive`: text as it was sent, what it waits for, and what it cannot print."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from onceq.cli.receiving import harmless
from tests.cli.parts import run_here
from tests.streams.net.daemons import WITHIN_S
from tests.streams.test_stream_commands import NAMED, Served, addresses, json, received
from tests.streams.test_stream_commands import stores as three_stores

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

stores = three_stores
WORDS: Final = ("receive", *NAMED, "--session", "0xb5", "--stores")


def put(at: str, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    json("send", "bars", str(file), "--source", "0x7e1", "--stores", at)


def test_text_is_printed_as_it_was_sent(
    stores: list[Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = addresses(stores)
    lines = ["a\tb", "c\rd", "\x1b[31mred\x1b[0m", "größe", ""]
    put(at, tmp_path / "file", ("\n".join(lines) + "\n").encode() + b"\xff\x00\n")
    found = received(at, 6)
    assert [one["text"] for one in found[:5]] == lines
    assert (found[5]["base64"], "text" in found[5]) == ("/wA=", False)
    plainly = ("stream", "receive", *NAMED, "--stores", at, "--count", "6", "--session")
    out = run_here(*plainly, "1").out
    assert out == "\n".join([*lines, "2 bytes, base64: /wA=", ""])
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    out = run_here(*plainly, "2").out
    assert out.split("\n")[:3] == ["a\tb", "c\rd", "\\x1b[31mred\\x1b[0m"], "for a terminal"


def test_what_controls_a_terminal_is_escaped() -> None:
    assert harmless("a\tb\r\nc ü\x00\x1b\x7f\x9b") == "a\tb\r\nc ü\\x00\\x1b\\x7f\\x9b"


def test_what_cannot_be_printed_is_not_acknowledged(stores: list[Served], tmp_path: Path) -> None:
    at = addresses(stores)
    put(at, tmp_path / "file", b"one\n")
    cases = ((">&-", 2, "standard output is closed"), (">/dev/full", 1, "No space left"))
    for where, code, says in cases:
        command = [sys.executable, "-m", "onceq.cli.main", "stream", *WORDS, at, "--count", "1"]
        shell = ["sh", "-c", f'exec "$@" {where}', "sh", *command]
        done = subprocess.run(shell, capture_output=True, timeout=WITHIN_S, check=False)
        assert (done.returncode, says in done.stderr.decode()) == (code, True), done
    assert all(row["below"] == 0 for row in json("show", *NAMED, "--stores", at)[1:])
    assert [one["text"] for one in received(at, 1)] == ["one"]


def test_a_receiver_says_for_which_stores_it_waits_and_until_when() -> None:
    with Served() as there:
        at = f"{there.address} 127.0.0.1:1"
        words = ("stream", *WORDS, at, "--timeout", "3")
        answer = run_here("--json", *words)
        assert answer.code == 1, answer
        told = {one["store"]: one["why"] for one in answer.lines}
        assert len(answer.lines) == 2, "once for a reason"
        assert {one["event"] for one in answer.lines} == {"registration_error"}
        assert "it does not answer" in told["127.0.0.1:1"]
        assert "it knows nothing of this stream" in told[there.address]
        assert "after 3.0 s the receiver is not registered: 127.0.0.1:1: it" in answer.err
        answer = run_here(*words)
        assert (answer.code, answer.out) == (1, "")
        for store, why in told.items():
            assert f"onceq: {why}\n" in answer.err, store


def test_a_receiver_that_is_registered_is_not_bounded(stores: list[Served], tmp_path: Path) -> None:
    at = addresses(stores)
    put(at, tmp_path / "file", b"one\n")
    command = [sys.executable, "-m", "onceq.cli.main", "stream", *WORDS, at, "--timeout", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(8)
        put(at, tmp_path / "file", b"one\ntwo\n")
        assert process.stdout.readline() == "two\n"
        process.terminate()
        assert process.wait(WITHIN_S) == 0


@contextlib.contextmanager
def frozen(at: str) -> Generator[None]:
    """Take connections where a store was, as the system does for a process that is stopped."""
    host, port = at.split(":")
    with socket.create_server((host, int(port)), backlog=100):
        yield


def test_a_life_begins_without_a_store_that_is_frozen(stores: list[Served], tmp_path: Path) -> None:
    """By default that is waited for; with too little time, it is said which store is silent."""
    at = addresses(stores)
    file = tmp_path / "file"
    put(at, file, b"one\n")
    stores[2].stop()
    silent = stores[2].address
    with frozen(silent):
        put(at, file, b"one\ntwo\n")
        assert [one["number"] for one in received(at, 2)] == [0, 1]
        words = ("send", "bars", str(file), "--source", "0x7e1", "--stores", at)
        answer = run_here("stream", *words, "--timeout", "1")
        assert answer.code == 1, answer
        two = " ".join(sorted(at.split()[:2]))
        assert f"these of its stores answer: {two}; these do not: {silent}" in answer.err
