"""`onceq stream`: lines sent and received, streams listed, receivers that are forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from onceq.cli.lines import LINE_BYTES_MAX
from onceq.cli.units import receiver_of, session_of, session_text
from onceq.errors import InvalidValue
from onceq.streams.model import asks, encoding
from onceq.streams.model.quorum import listed
from onceq.streams.net.asker import Asker
from onceq.streams.store import listing
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.records import Held, Receiver
from onceq.streams.store.running import RunningStore, StoreKind, StoreSettings, opened_as, serve
from tests.cli.parts import run_here
from tests.streams.net.daemons import WITHIN_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMED = ("bars", "--source", "0x7e1")


class Served:
    """A store that serves in a thread of this process."""

    def __init__(self) -> None:
        self._ready: queue.Queue[RunningStore] = queue.Queue()
        settings = StoreSettings(listen="127.0.0.1:0", kind=StoreKind.MEMORY)
        serving = serve(opened_as(settings), settings, self._ready.put)
        self._thread = threading.Thread(target=lambda: asyncio.run(serving), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = self._ready.get(timeout=WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return self._running.address

    def stop(self) -> None:
        self._running.stop()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()


@pytest.fixture
def stores() -> Iterator[list[Served]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Served()) for _ in range(3)]


def addresses(stores: list[Served]) -> str:
    return " ".join(one.address for one in stores)


def json(*words: str, code: int = 0) -> list[dict[str, Any]]:
    answer = run_here("--json", "stream", *words)
    assert answer.code == code, answer
    return answer.lines


def received(at: str, count: int) -> list[dict[str, Any]]:
    words = ("receive", *NAMED, "--stores", at, "--session", "0xb5", "--count", str(count))
    return [one for one in json(*words) if one.get("event") != "registration_error"]


def test_lines_are_sent_received_and_looked_at(stores: list[Served], tmp_path: Path) -> None:
    at = addresses(stores)
    file = tmp_path / "bars"
    file.write_text("one\ntwo\nthree\n")
    sent = json("send", "bars", str(file), "--source", "0x7e1", "--stores", at)
    assert sent == [{"v": 1, "sent": 3, "first": 0, "next_number": 3}]
    file.write_text("one\ntwo\nthree\nfour\n")
    sent = json("send", "bars", str(file), "--source", "2017", "--stores", at)
    assert sent == [{"v": 1, "sent": 1, "first": 3, "next_number": 4}]

    assert [(one["number"], one["text"]) for one in received(at, 3)] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
    ]
    (row,) = json("list", "--stores", at)
    known = {name: row[name] for name in ("topic", "session", "end", "stable", "receivers")}
    assert known == {"topic": "bars", "session": "0x7e1", "end": 4, "stable": 4, "receivers": 1}
    assert (row["stores"], row["lists"]) == (3, [at])
    stream, row = json("show", *NAMED, "--stores", at)
    named = {"v": 1, "topic": "bars", "session": "0x7e1"}
    assert stream == {**named, "keeps": True, "losses": []}
    regids = dict.fromkeys(at.split(), 2)  # 1 is the source's
    known = {"v": 1, "receiver": "session b5", "below": 3, "lag": 1, "stores": 3}
    assert row == {**known, "regids": regids}
    rows = json("stores", *NAMED, "--stores", at)
    assert [row["store"] for row in rows] == sorted(at.split())
    assert {row["end"] for row in rows} == {4}, "a quorum is enough, and the third is waited for"
    assert {row["receivers"] for row in rows} == {1}

    forget = ("deregister", *NAMED, "--stores", at, "--receiver")
    assert json(*forget, "session 1", code=3)[0]["text"] == "did not know it"
    assert json(*forget, "regid 77", code=3)[0]["text"] == "did not know it"
    first = ("deregister", *NAMED, "--stores", stores[0].address, "--receiver")
    rows = json(*first, "regid 2")  # 1 is the source's
    assert [row["text"] for row in rows] == ["deregistered"] * 3
    assert [one["number"] for one in received(at, 1)] == [0], "it begins anew"
    rows = json(*forget, "session 0xb5")
    assert [row["text"] for row in rows] == ["deregistered"] * 3
    answer = run_here("stream", "show", *NAMED, "--stores", at)
    assert (answer.code, "has no receiver" in answer.err) == (0, True)

    stores[0].stop()
    assert [one["number"] for one in received(at, 1)] == [0], "it begins anew"
    answer = run_here("stream", *forget, "session b5")
    assert (answer.code, "does not answer: ask again" in answer.out) == (1, True)


def test_of_one_stream_that_is_named_no_other_is_asked_for(
    stores: list[Served], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = addresses(stores)
    file = tmp_path / "lines"
    file.write_text("one\n")
    for topic in ("bars", "ticks", "trades"):
        json("send", topic, str(file), "--source", "0x7e1", "--stores", at)
    asked: list[str] = []
    ask = Asker.ask

    async def noted(self: Asker, store: str, one: Any, within_s: float) -> Any:
        if isinstance(one, asks.Learn):
            asked.append(one.topic)
        return await ask(self, store, one, within_s)

    monkeypatch.setattr(Asker, "ask", noted)
    for command in ("show", "stores"):
        asked.clear()
        json(command, *NAMED, "--stores", at)
        assert {*asked} == {"bars"}, "the third store may have nothing of it yet"
    json("list", "--stores", at)
    assert {*asked} == {"bars", "ticks", "trades"}


def texts(at: str, count: int) -> list[str]:
    return [one["text"] for one in received(at, count)]


def test_a_line_that_would_take_several_numbers_is_refused_before_anything_is_sent(
    stores: list[Served], tmp_path: Path
) -> None:
    """A line is the message of its number: else those behind a long one are sent twice."""
    at = addresses(stores)
    file = tmp_path / "bars"
    words = ("send", "bars", str(file), "--source", "0x7e1", "--stores", at)
    longest, longer = "x" * LINE_BYTES_MAX, "y" * (LINE_BYTES_MAX + 1)
    lines = ["one", longest, "three"]
    file.write_text("\n".join([*lines, longer, "five"]))
    answer = run_here("stream", *words)
    assert answer.code == 2, answer
    assert f"line 4 of {file} has more than 1048528 bytes" in answer.err
    assert json("list", "--stores", at) == []
    file.write_text("\n".join(lines))
    assert json(*words)[-1]["next_number"] == 3
    file.write_text("\n".join([*lines, "four", "five"]))
    assert json(*words)[-1] == {"v": 1, "sent": 2, "first": 3, "next_number": 5}
    assert json(*words)[-1]["sent"] == 0
    assert texts(at, 5) == [*lines, "four", "five"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("list", "--stores", "127.0.0.1:1"), 4, "none of the stores answers"),
        (("list", "--stores", "here"), 2, "is no address"),
        (("list", "--stores", "127.0.0.1:1 127.0.0.1:1"), 2, "listed twice"),
        (("show", "bars", "--source", "none", "--stores", "127.0.0.1:1"), 2, "of 64 bits"),
        (("show", "bars", "--source", "-1", "--stores", "127.0.0.1:1"), 2, "of 64 bits"),
        (("list", "--stores", "192.0.2.1:7401"), 2, "without TLS"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, says: str) -> None:
    answer = run_here("stream", *words)
    assert answer.code == code, answer
    assert says in answer.err


IN_ORDER: Final = ("--source", "1", "--stores", "127.0.0.1:1")
OF_A_STREAM: Final = {
    "show": (),
    "stores": (),
    "deregister": ("--yes",),
    "send": (__file__,),
    "receive": ("--session", "1"),
}


@pytest.mark.parametrize("command", OF_A_STREAM)
@pytest.mark.parametrize(
    ("topic", "options", "says"),
    [
        ("", (), "a topic has 1 to 200 bytes, not 0"),
        ("t" * 201, (), "a topic has 1 to 200 bytes, not 201"),
        ("a\nb", (), "contains a control character"),
        ("\udcff", (), "is not valid Unicode"),
        ("bars", ("--source", "0"), "--source '0': give a number of 64 bits, from 1"),
        ("bars", ("--source", "0x10000000000000000"), "of 64 bits"),
        ("bars", ("--stores", "192.0.2.1:7401"), "without TLS"),
    ],
)
def test_every_command_of_a_stream_checks_what_names_it(
    command: str, topic: str, options: tuple[str, ...], says: str
) -> None:
    answer = run_here("stream", command, topic, *OF_A_STREAM[command], *IN_ORDER, *options)
    assert (answer.code, says in answer.err) == (2, True), answer


def test_a_receiver_has_a_session_that_is_not_0() -> None:
    answer = run_here("stream", "receive", "bars", *IN_ORDER, "--session", "0")
    assert (answer.code, "--session '0': give a number" in answer.err) == (2, True)


def test_a_session_is_taken_as_it_is_shown() -> None:
    shown = ("2017", "0x7e1", "session 7e1", "session 0x7E1", session_text(2017))
    assert {session_of(text, "--source") for text in shown} == {2017}
    assert {receiver_of(text) for text in ("session b5", "session 0xb5")} == {"session b5"}
    assert receiver_of("regid 4") == "regid 4"
    for text in ("b5", "session 0", "session", "session x", "regid 4"):
        with pytest.raises(InvalidValue):
            session_of(text, "--source")


def test_a_stream_that_no_store_knows_is_not_found(stores: list[Served]) -> None:
    at = ("--stores", addresses(stores))
    for words in (("show", *NAMED), ("stores", *NAMED)):
        answer = run_here("stream", *words, *at)
        assert (answer.code, "no store knows a stream" in answer.err) == (3, True)
    answer = run_here("stream", "deregister", *NAMED, *at, "--receiver", "session b5")
    assert answer.code == 3
    answer = run_here("stream", "list", *at)
    assert (answer.code, "know no stream" in answer.err) == (0, True)


def test_a_listing_has_pages_that_fit_into_a_frame() -> None:
    catalogue = Catalogue()
    receivers = tuple(Receiver(regid=n, topic="t", session=n) for n in range(1, 600))
    for n in range(1, 50):
        held = Held(stream=n, local=n, topic="t", hints=(listed("a b"),), receivers=receivers)
        catalogue.streams[n] = held
    found: list[int] = []
    pages = 0
    while True:
        page = listing.streams(catalogue, asks.Streams(after=found[-1] if found else 0))
        assert len(encoding.packed(page)) < 1 << 19
        assert encoding.answer_of(encoding.packed(page)) == page
        found += [one.stream for one in page.streams]
        pages += 1
        if not page.more:
            break
    assert found == [*range(1, 50)]
    assert pages > 1


def test_a_new_stream_begins_with_a_quorum_if_a_person_says_so(
    stores: list[Served], tmp_path: Path
) -> None:
    at = addresses(stores)
    file = tmp_path / "bars"
    file.write_text("one\n")
    sends = ("send", "bars", str(file), "--source", "0x7e1", "--stores", at, "--timeout")
    answer = run_here("stream", *sends, "20", "--create", "any")
    assert (answer.code, "create is 'any': give one of 'all', 'quorum'" in answer.err) == (2, True)
    stores[2].stop()
    answer = run_here("stream", *sends, "5")
    assert answer.code == 1, "the third store must have noted it"
    two, third = " ".join(sorted(at.split()[:2])), at.split()[2]
    assert f"these of its stores answer: {two}; these do not: {third}. A stream that is new" in (
        answer.err
    )
    sent = json(*sends, "30", "--create", "quorum")
    assert sent == [{"v": 1, "sent": 1, "first": 0, "next_number": 1}]
    file.write_text("one\ntwo\n")
    answer = run_here("--json", "stream", *sends, "30")
    assert answer.lines == [{"v": 1, "sent": 1, "first": 1, "next_number": 2}]
    assert f"store {third}: no connection to it can be made" in answer.err
    assert f"store {third} does not have all of it yet" in answer.err


def test_a_stream_is_deregistered_by_who_types_its_topic(
    stores: list[Served], tmp_path: Path
) -> None:
    at = addresses(stores)
    file = tmp_path / "bars"
    file.write_text("one\n")
    json("send", "bars", str(file), "--source", "0x7e1", "--stores", at)
    words = ("deregister", *NAMED, "--stores", at)
    answer = run_here("stream", *words)
    assert (answer.code, "that is not 'bars': nothing happened" in answer.err) == (2, True)
    assert len(json("list", "--stores", at)) == 1
    rows = json(*words, "--yes")
    assert [row["text"] for row in rows] == ["deregistered"] * 3
    assert json("list", "--stores", at) == []
    assert {row["text"] for row in json(*words, "--yes", code=3)} == {"did not know it"}
    sent = json("send", "bars", str(file), "--source", "0x7e1", "--stores", at)
    assert sent == [{"v": 1, "sent": 1, "first": 0, "next_number": 1}]
    stores[0].stop()
    rows = json(*words, "--yes", code=1)
    told = ["deregistered", "deregistered", "does not answer: ask again"]
    assert sorted(row["text"] for row in rows) == told
