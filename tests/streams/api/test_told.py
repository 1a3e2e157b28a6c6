"""What a receiver tells beside messages: where it begins, and every gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceq import streams
from onceq.streams import logged
from onceq.streams.api.reporting import report
from tests.events import emits
from tests.streams.api.towns import RAW, READER, Heard, read, sent, town

if TYPE_CHECKING:
    from tests.events import Events


def test_stores_say_whether_they_knew_a_receiver_and_where_it_begins() -> None:
    with town() as stores, streams.open(session_id=READER) as context:
        sent(context, stores.at(), [b"%d" % n for n in range(4)])
        lives: list[tuple[set[tuple[bool, int]], int, int]] = []
        for last in (1, 3):
            heard = Heard()
            read(context, RAW, last, at=stores.at("a"), on_event=heard)
            registered = heard.of(streams.StoreRegistered)
            assert {one.store for one in registered} <= set(stores.at().split())
            assert len(registered) >= 2
            assert all(one.regid > 0 for one in registered)
            (complete,) = heard.of(streams.RegistrationComplete)
            known = {(one.old, one.last) for one in registered}
            lives.append((known, complete.next_number, complete.reported))
        assert lives == [({(False, -1)}, 0, 3), ({(True, 1)}, 2, 3)]


@emits(logged.StreamGap)
def test_a_gap_that_nobody_asked_to_hear_of_is_logged(events: Events) -> None:
    with town(names="a") as stores, streams.open(session_id=READER) as context:
        sent(context, stores.at("a"), [b"%d" % n for n in range(4)])
        shows = read(context, RAW, 3, at=stores.at("a"), retransmit_request_maximum=0)
        assert shows.numbers() == [3]
        stream = f"{shows.shown[0].identity.stream:016x}"
    report(streams.RolledBack(stream=5, first=7, last=8))
    report(streams.SourceFenced(stream=5, epoch=1))
    assert events.of(logged.StreamGap) == [
        {"stream": stream, "first": 0, "last": 2, "why": "skipped"},
        {"stream": "0000000000000005", "first": 7, "last": 8, "why": "rolled back"},
    ]
