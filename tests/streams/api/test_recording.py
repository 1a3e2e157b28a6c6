"""Programs that record what they do: their history, and the logs of their stores, are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from onceq import streams
from onceq.streams.history import (
    Journal,
    Reader,
    ReceiverRecorder,
    SourceRecorder,
    check_files,
    kinds,
    record_kept,
    record_opened,
)
from onceq.streams.history.files import events_of, paths_of
from onceq.streams.store.disk_store import DiskStore
from tests.streams.api.towns import RAW, READER, SENDER, WITHIN_S, Town, town
from tests.streams.store.test_disk_store import chance

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [b"message %d" % n for n in range(60)]
TEXTS[7] = bytes(range(100))  # of several numbers
FRAGMENT_BYTES = 30


class Folder:
    """A folder of events, one file for each life."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self.home = home
        self.lives = 0

    def journal(self, name: str) -> Journal:
        self.lives += 1
        return Journal(self.home / f"{name}-{self.lives}.events", name)


def feed(folder: Folder, stores: Town, texts: list[bytes]) -> int:
    """A life of the source that records; return the number behind its last."""
    with folder.journal("source") as journal, streams.open(session_id=SENDER) as context:
        recorder = SourceRecorder(journal, folder.lives)
        with context.source(
            RAW, stores=stores.at(), on_event=recorder.on_event, fragment_size=FRAGMENT_BYTES
        ) as source:
            for text in texts:
                recorder.sending(source.next_number, text)
                source.send(text)
            source.wait_stable(WITHIN_S)
            recorder.finished(source.next_number)
            return source.next_number


def follow(folder: Folder, stores: Town, stop_at: int) -> None:
    """A life of the receiver that records."""
    with folder.journal("reader") as journal, streams.open(session_id=READER) as context:
        recorder = ReceiverRecorder(
            journal, Reader(receiver="reader", life=folder.lives, session=READER)
        )

        def show(message: streams.Message[bytes]) -> None:
            recorder.shown(message)
            if message.number == stop_at:
                receiver.stop()

        receiver = context.receiver(
            RAW, show, at=stores.at("a"), deliver="stable", on_event=recorder.on_event
        )
        receiver.run()


def end(folder: Folder, home: Path) -> None:
    """Record what the stores have."""
    with folder.journal("stores") as journal:
        for name in "abc":
            store = DiskStore(home / name, chance)
            record_opened(journal, name, 1, store)
            record_kept(journal, name, store)
            store.close()
        journal.record(kinds.Ended(copies=2, receivers=("reader",)))


def test_a_history_of_programs_is_judged(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "history")
    with town(tmp_path) as stores:
        until = feed(folder, stores, TEXTS[:40])
        follow(folder, stores, until - 10)
        until = feed(folder, stores, TEXTS[40:])
        follow(folder, stores, until - 1)
    end(folder, tmp_path)
    report = check_files([folder.home])
    assert report.violations == []
    assert (report.sent, report.stable) == (until, until) == (63, 63)
    assert report.delivered >= until
    assert {"Began", "Sent", "StableTold", "Entered", "Delivered", "Held"} <= report.counts.keys()


@pytest.mark.parametrize(
    ("rule", "claim"),
    [
        ("one-content", {"first": 3, "last": 3, "content": "other"}),
        ("no-phantom", {"first": 63, "last": 63}),
    ],
)
def test_what_it_did_not_do_is_noticed(rule: str, claim: dict[str, Any], tmp_path: Path) -> None:
    folder = Folder(tmp_path / "history")
    with town(tmp_path) as stores:
        feed(folder, stores, TEXTS)
    end(folder, tmp_path)
    (began,) = (one for one in events_of(paths_of([folder.home])) if isinstance(one, kinds.Began))
    with folder.journal("liar") as journal:
        who: dict[str, Any] = {"stream": began.stream, "receiver": "liar", "life": 1}
        journal.record(kinds.Delivered(**who, **claim, epoch=began.epoch))
    assert rule in {one.rule for one in check_files([folder.home]).violations}
