"""The tape of the exchange: where a life begins, and a store that knows one feed only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, cast

import msgspec

from examples.exchange import tape
from examples.exchange.market import FEEDS, HIGH_FEED, LOW_FEED, RunDirectory, Taped
from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from examples.exchange.data import Bar
    from onceq import streams

LIMIT_S = 60.0


class Receiver:
    """Stands in for a receiver: refused, or running until it is stopped."""

    def __init__(self, *, refused: bool) -> None:
        self.refused = refused
        self.runs = Event()
        self.stopped = Event()

    def run(self) -> None:
        if self.refused:
            raise InvalidValue("the store has another feed")
        self.runs.set()
        assert self.stopped.wait(LIMIT_S)

    def stop(self) -> None:
        self.stopped.set()


def following(*receivers: Receiver) -> tape.Following:
    left = iter(receivers)
    return tape.Following(lambda: cast("streams.Receiver[Bar]", next(left)))


def test_a_store_that_knows_one_feed_only_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "AGAIN_S", 0.01)
    runs = Receiver(refused=False)
    one = following(Receiver(refused=True), Receiver(refused=True), runs)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(one.run)
        assert runs.runs.wait(LIMIT_S)
        one.stop()
        running.result(LIMIT_S)


def test_who_is_refused_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "AGAIN_S", LIMIT_S)
    one = following(Receiver(refused=True))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(one.run)
        one.stop()
        running.result(LIMIT_S / 2)


def test_a_life_that_is_shown_nothing_says_what_is_on_the_tapes_before_it(tmp_path: Path) -> None:
    """The former one may have acknowledged all, and then been killed."""
    directory = RunDirectory(tmp_path)
    assert tape.reached_before(directory) == dict.fromkeys(FEEDS, 0)
    for numbers in ((0, 1, 2), (1, 2, 3), (2,)):
        lines = [Taped(LOW_FEED, 7, 1, n, "d", "s") for n in numbers]
        path = directory.next_tape()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + b'["cut')
    assert tape.reached_before(directory) == {LOW_FEED: 4, HIGH_FEED: 0}
