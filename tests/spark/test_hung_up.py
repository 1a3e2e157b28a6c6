"""The process where Spark plans a stream says nothing when Java hangs up, and all else.

PySpark's own program is run; its Java is acted by a socket.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle  # pyright: ignore[reportUnknownVariableType] # it has no types
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from onceq.spark.start.hung_up import hung_up, say_no_hanging_up

if TYPE_CHECKING:
    from collections.abc import Iterator

CHILD = """
import socket, sys
from pyspark.sql.streaming.python_streaming_source_runner import main
file = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", 65536)
try:
    main(file, file)
finally:
    file.close()
"""
INITIAL_OFFSET = 884
MAY_ANSWER = "ONCEQ_TEST_MAY_ANSWER"
"""Where the reader finds the file without which it does not answer."""


class Reader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        while not Path(os.environ[MAY_ANSWER]).exists():
            time.sleep(0.01)
        return {"claim": 0}

    def read(self, partition: object) -> Iterator[tuple[int]]:
        del partition
        return iter(())


class Loud(DataSource):
    """A source that does as Spark does."""

    def streamReader(self, schema: object) -> Reader:  # noqa: N802, ARG002 - Spark's signature
        return Reader()


class Quiet(Loud):
    """One that does as ours."""

    def streamReader(self, schema: object) -> Reader:  # noqa: N802 - Spark's name
        say_no_hanging_up()
        return super().streamReader(schema)


class Broken(Quiet):
    """One whose reader fails for another reason, on its way out."""

    def streamReader(self, schema: object) -> Reader:  # noqa: N802 - Spark's name
        reader = super().streamReader(schema)

        def stop() -> None:
            raise ValueError("of its own")

        reader.stop = stop  # type: ignore[method-assign] # what Spark calls
        return reader


def text(value: bytes) -> bytes:
    return struct.pack("!i", len(value)) + value


def tcp() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    return ours, theirs


def said(
    source: type[Loud],
    pair: tuple[socket.socket, socket.socket],
    place: Path,
    *,
    is_answered: bool = False,
) -> str:
    """Returns what the process says on stderr if Java hangs up after its answer, or before."""
    ours, theirs = pair
    may_answer = place / "may answer"
    pickled: Any = cloudpickle
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), MAY_ANSWER: str(may_answer)},
    ) as child:
        theirs.close()
        with ours:
            ours.sendall(
                text(b"%d.%d" % sys.version_info[:2])
                + text(b"/")
                + struct.pack("!i", 0)
                + text(pickled.dumps(source({})))
                + text(json.dumps({"type": "struct", "fields": []}).encode())
                + struct.pack("!i", 10_000)
            )
            began = ours.recv(4, socket.MSG_WAITALL) == struct.pack("!i", 0)
            ours.sendall(struct.pack("!i", INITIAL_OFFSET))
            if is_answered:
                may_answer.touch()
                assert ours.recv(1, socket.MSG_PEEK)
        may_answer.touch()
        _, words = child.communicate(timeout=150)
    assert began, words
    return words


@pytest.mark.parametrize("is_answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("pair", [tcp, socket.socketpair])
def test_a_process_whose_java_hangs_up_says_nothing(
    pair: Any, tmp_path: Path, *, is_answered: bool
) -> None:
    assert said(Quiet, pair(), tmp_path, is_answered=is_answered) == ""


def test_without_that_it_alarms(tmp_path: Path) -> None:
    assert "BrokenPipeError" in said(Loud, tcp(), tmp_path)


def test_what_fails_otherwise_is_said(tmp_path: Path) -> None:
    assert "of its own" in said(Broken, tcp(), tmp_path)


def failed(first: BaseException, *later: BaseException) -> BaseException:
    """Returns the last of errors of which each was raised while the one before was handled."""
    last = first
    for error in later:
        error.__context__, last = last, error
    return last


@pytest.mark.parametrize(
    ("error", "is_hung_up"),
    [
        (failed(EOFError(), BrokenPipeError(), BrokenPipeError()), True),
        (failed(EOFError(), ConnectionResetError()), True),
        (failed(EOFError()), False),
        (failed(BrokenPipeError()), True),
        (failed(ConnectionResetError(), BrokenPipeError()), True),
        (failed(ValueError(), BrokenPipeError()), False),
        (failed(EOFError(), ValueError(), BrokenPipeError()), False),
    ],
)
def test_only_an_answer_that_nobody_takes_is_not_said(
    error: BaseException, *, is_hung_up: bool
) -> None:
    assert hung_up(error) is is_hung_up
