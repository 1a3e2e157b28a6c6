"""`onceq stream send` and what it reads: files, pipes, terminals, /dev/null, nothing at all."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from onceq.cli.lines import LINE_BYTES_MAX, split
from onceq.errors import TooLarge
from tests.cli.parts import run_here
from tests.streams.net.daemons import WITHIN_S
from tests.streams.test_stream_commands import Served, addresses, json, texts
from tests.streams.test_stream_commands import stores as three_stores

stores = three_stores
COMMAND: Final = (sys.executable, "-m", "onceq.cli.main", "--json", "stream")
SEND: Final = ("send", "bars", "-", "--source", "0x7e1", "--stores")
NOWHERE: Final = "127.0.0.1:1"


def sent(at: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own, with a standard input of its own."""
    command = [*COMMAND, *SEND, at]
    return subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False, **options)


def item(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.returncode == 0, done
    return msgspec.json.decode(done.stdout, type=dict[str, Any])


def test_standard_input_may_be_a_file_a_pipe_or_nothing(
    stores: list[Served], tmp_path: Path
) -> None:
    at = addresses(stores)
    with Path(os.devnull).open("rb") as nothing:
        assert item(sent(at, stdin=nothing)) == {"v": 1, "sent": 0, "first": None, "next_number": 0}
    assert item(sent(at, input=b"one\n\ntwo\nthree"))["next_number"] == 4
    file = tmp_path / "lines"
    file.write_text("four\n")
    with file.open("rb") as lines:
        assert item(sent(at, stdin=lines)) == {"v": 1, "sent": 1, "first": 4, "next_number": 5}
    assert texts(at, 5) == ["one", "", "two", "three", "four"]


def test_a_long_line_that_is_the_first_says_that_nothing_was_sent(stores: list[Served]) -> None:
    done = sent(addresses(stores), input=b"y" * (LINE_BYTES_MAX + 1))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b'"outcome":"nothing happened"' in done.stderr


def test_lines_of_a_terminal_are_sent_as_they_come(stores: list[Served]) -> None:
    at = addresses(stores)
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *SEND, at], stdin=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        os.write(ours, b"one\n")
        assert texts(at, 1) == ["one"], "it is stable while more may come"
        os.write(ours, b"two\n\x04")
        out, _ = process.communicate(timeout=WITHIN_S)
        assert msgspec.json.decode(out)["next_number"] == 2
    os.close(ours)


def test_a_signal_ends_what_waits_for_lines(stores: list[Served]) -> None:
    at = addresses(stores)
    command = [*COMMAND, *SEND, at]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert texts(at, 1) == ["one"]
        process.send_signal(2)
        assert process.wait(WITHIN_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b"onceq: interrupted\n"


def test_closed_standard_input_is_refused_before_anything_begins() -> None:
    for closed in ("<&-", f"0>{os.devnull}"):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *SEND, NOWHERE]
        done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
        assert (done.returncode, b"standard input cannot be read" in done.stderr) == (2, True), done
        assert b"defect" not in done.stderr


def test_a_long_line_of_standard_input_is_refused_where_it_comes(stores: list[Served]) -> None:
    at = addresses(stores)
    longest, longer = b"x" * LINE_BYTES_MAX, b"y" * (LINE_BYTES_MAX + 1)
    done = sent(at, input=b"\n".join([b"one", longest, longer, b"four", b""]))
    said = f"line 3 of standard input has more than {LINE_BYTES_MAX} bytes".encode()
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    told = msgspec.json.decode(done.stdout)
    assert (told["event"], told["first"], told["next_number"]) == ("sent_in_part", 0, 2)
    assert b'"outcome":"unknown"' in done.stderr, "something was sent"
    assert all(row["end"] <= 2 for row in json("list", "--stores", at))


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_lines_are_the_same_however_they_come(size: int) -> None:
    data = b"one\n\ntwo\r\nthree"
    chunks = [data[n : n + size] for n in range(0, len(data), size)]
    assert [line for some in split(chunks, "it") for line in some] == data.split(b"\n")
    assert [*split([b"one\n"], "it")] == [[b"one"]], "there is no line behind the last end"


def test_a_line_without_end_is_refused_before_all_of_it_is_read() -> None:
    def endless() -> Any:
        yield b"one\n"
        while True:
            yield b"x" * (1 << 16)

    lines = split(endless(), "it")
    assert next(lines) == [b"one"]
    with pytest.raises(TooLarge, match="line 2 of it"):
        next(lines)


def test_what_is_no_regular_file_is_refused_before_an_epoch_begins(
    stores: list[Served], tmp_path: Path
) -> None:
    at = addresses(stores)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (pipe, tmp_path, os.devnull):
        answers: list[Any] = []
        words = ("stream", "send", "bars", str(file), "--source", "0x7e1", "--stores", at)
        running = threading.Thread(
            target=lambda words=words, answers=answers: answers.append(run_here(*words)),
            daemon=True,
        )
        running.start()
        running.join(WITHIN_S)
        (answer,) = answers
        assert (answer.code, "is no regular file" in answer.err) == (2, True), answer
        assert f"or - and its lines on standard input, as in `... send TOPIC - < {file}`" in (
            answer.err
        )
    assert json("list", "--stores", at) == []


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    words = ("send", "bars", str(tmp_path / "no"), "--source", "0x7e1", "--stores", NOWHERE)
    answer = run_here("stream", *words)
    assert (answer.code, "No such file" in answer.err) == (3, True), answer
