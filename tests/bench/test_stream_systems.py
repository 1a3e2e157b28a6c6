"""What is measured of streams did what it should: each message is stable, timed and shown, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from multiprocessing import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.peers import PEERS
from bench.workers import nats_cluster, nats_server, synced_file
from bench.workers.base import CatchUp, Pace, Place, Publish, SkippedError, WrongError
from bench.workers.hearers import LAST, PLAIN, TIMED, Ear, Heard, Hearers, body_of
from bench.workers.nats_cluster import NatsCluster
from bench.workers.onceq_stream import OnceqStream
from bench.workers.pacing import paced
from bench.workers.synced_file import SyncedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from bench.workers.base import Until


def place(directory: Path) -> Place:
    return Place(directory=directory, conninfo=None, setting="safe")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnceqStream]:
    with contextlib.closing(OnceqStream(place(tmp_path_factory.mktemp("streams")))) as made:
        yield made


@pytest.mark.parametrize(
    "asked",
    [
        Publish(number=300),
        Publish(number=300, receivers=2, stopped=1, filled=10),
        Publish(number=20, flight=1, body_bytes=1024),
    ],
)
def test_a_slice_ends_when_all_is_stable_and_all_receivers_were_shown_it(
    system: OnceqStream, asked: Publish
) -> None:
    for _ in range(2):
        assert system.publish(asked).seconds > 0
    assert len(system.receivers()) == asked.receivers


@pytest.mark.parametrize("until", ["stable", "received"])
def test_each_message_of_a_paced_slice_is_timed(system: OnceqStream, until: Until) -> None:
    for _ in range(2):
        assert len(system.pace(Pace(number=100, until=until)).each_s) == 100


def test_a_new_receiver_catches_up_with_all_and_with_more(system: OnceqStream) -> None:
    for number in (100, 100, 300):
        assert system.catch_up(CatchUp(number=number)).seconds > 0


def hear(line: Connection[Any, Any], count: int) -> None:
    """A receiver that is shown so many, and waits."""
    ear = Ear(line)
    ear.ready()
    for _ in range(count - 1):
        ear.hear(body_of(100, PLAIN))
    ear.hear(body_of(100, LAST))
    line.recv()


def test_a_slice_of_which_a_receiver_was_not_shown_all_is_no_figure() -> None:
    with Hearers(hear, [(3,), (2,)]) as hearers, pytest.raises(WrongError, match="2 instead of 3"):
        hearers.heard(3)


def die(_: Connection[Any, Any]) -> None:
    """A receiver that is none."""


def test_a_receiver_that_dies_is_no_figure() -> None:
    with pytest.raises(WrongError, match="died before it was ready"):
        Hearers(die, [()])


def test_stopped_receivers_are_ended_too() -> None:
    hearers = Hearers(hear, [(1,)])
    (pid,) = hearers.pids
    hearers.stop()
    hearers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_ear_tells_its_times_and_its_count_and_begins_anew() -> None:
    ends: tuple[Any, Any] = Pipe()  # of connections, whose class is the platform's
    ours, theirs = ends
    ear = Ear(theirs)
    for marks in ((PLAIN, TIMED, TIMED | LAST), (LAST,)):
        for mark in marks:
            ear.hear(body_of(20, mark))
    first, second = ours.recv(), ours.recv()
    assert isinstance(first, Heard)
    assert (first.count, len(first.each_s)) == (3, 2)
    assert (second.count, len(second.each_s)) == (1, 0)


def test_all_are_sent_at_a_pace_and_only_the_last_is_the_last() -> None:
    sent: list[bool] = []

    async def send(*, is_last: bool) -> None:
        sent.append(is_last)

    asyncio.run(paced(send, 50, 10_000))
    assert sent == [False] * 49 + [True]


def test_a_file_is_synced_at_least_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synced_file, "RESERVED", 1 << 20)
    with contextlib.closing(SyncedFile(place(tmp_path))) as disk:
        assert disk.pace(Pace(number=1, per_s=1_000_000)).each_s


OLD = """#!/bin/sh
case "$*" in *--version*) echo 'nats-server: v2.9.10';; *) exit 1;; esac
"""


def test_nats_that_cannot_sync_each_write_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nats-server"
    program.write_text(OLD)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(nats_cluster, "find_program", lambda _: program)
    with pytest.raises(SkippedError, match=r"not tried: nats-server 2\.9\.10 cannot sync each"):
        NatsCluster(tmp_path, sync=True)


def test_nats_that_is_not_installed_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (nats_cluster, nats_server):
        monkeypatch.setattr(module, "find_program", lambda _: None)
    assert PEERS["nats_stream"].missing().startswith("not tried: not installed")
    with pytest.raises(SkippedError, match="not tried: not installed"):
        NatsCluster(tmp_path, sync=False)


def test_the_peer_of_streams_is_one_of_the_peers() -> None:
    module = PEERS["nats_stream"].module
    assert (Path(nats_cluster.__file__).parent / f"{module}.py").exists()
