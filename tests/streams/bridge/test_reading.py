"""Who reads by numbers believes no store that shows what was lost, nor another log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from onceq import streams
from onceq.streams.bridge.epochs import Epochs, find, lacking
from onceq.streams.bridge.fetching import Reading, fetched
from onceq.streams.bridge.reading import LOST_PIECE, VOID_PIECE, Asked, Unread, read_once
from onceq.streams.model import asks
from onceq.streams.model.choice import Bridge, Promised, Stage
from onceq.streams.model.fragments import CONTINUED, CONTINUES
from onceq.streams.model.frames import Frame, FrameKind, body_of, encode
from onceq.streams.model.losses import Lost
from onceq.streams.model.quorum import listed
from onceq.streams.receiver.placing import Who
from tests.streams.api.losing import lose, split, texts
from tests.streams.api.towns import RAW, SENDER, town

if TYPE_CHECKING:
    from pathlib import Path

    from onceq.model.ops.base import Program
    from onceq.streams.bridge.epochs import Placed
    from tests.streams.api.towns import Town

T = TypeVar("T")
S = 7
OF_A_LOSS = "it does not know of the loss that was accepted in epoch 4"
LOG = Epochs(
    firsts=((1, 0), (4, 3), (6, 8)),
    losses=(Lost(epoch=4, first=3, count=2),),
)


def asking(stores: Town, names: str) -> Who:
    at = listed(stores.at(names))
    return Who(topic=RAW.name, source=SENDER, session=1, key="session 1", known=at)


def run(program: Program[T]) -> T:
    async def read() -> T:
        async with Reading() as reading:
            return await reading.run(program)

    return asyncio.run(read())


def found(
    stores: Town, names: str, known: Epochs | None = None, *, least: int = 0
) -> Placed | None:
    return run(find(asking(stores, names), 2.0, known, least))


def whom_it_lacks(stores: Town, names: str, least: int) -> dict[str, str]:
    """Why stores are not believed, up to what follows from that."""
    why = run(lacking(asking(stores, names), 2.0, least))
    return {store: one.partition(": ")[0] for store, one in why.items()}


def test_a_store_that_was_given_up_and_is_back_is_not_believed(tmp_path: Path) -> None:
    def asked(names: str, epochs: Epochs, begin: int, end: int) -> Asked:
        assert now is not None
        at = tuple(stores.at(name) for name in names)
        return Asked(stream=now.stream, begin=begin, end=end, stores=at, epochs=epochs)

    def bodies(names: str, epochs: Epochs, begin: int, end: int) -> list[Any] | None:
        pieces = run(read_once(asked(names, epochs, begin, end)))
        if pieces is None or isinstance(pieces, Unread):
            return None if pieces is None else list(pieces.why.values())
        return [body for one in pieces for body in one.bodies or (one.why.encode(),)]

    with town(tmp_path, names="abcd") as stores:
        with streams.open(session_id=SENDER) as context:
            split(stores, context)
            lose(stores, context)
        before, now = found(stores, "bc"), found(stores, "ad")
        assert before is not None
        assert now is not None
        assert (before.epochs.lost, now.epochs.lost) == (0, now.epoch)
        assert bodies("b", before.epochs, 3, 6) == texts(3, 3), "it has what is lost"
        for begin, end in ((3, 6), (0, 3)):
            said = f"does not know of the loss that was accepted in epoch {now.epoch}"
            assert said in str(bodies("b", now.epochs, begin, end))
        assert bodies("ba", now.epochs, 0, 3) == texts(3)
        assert bodies("ba", now.epochs, 3, 6) == [LOST_PIECE.encode()]
        assert bodies("a", before.epochs, 0, 3) is None, "it knows of the loss"
        assert found(stores, "ad", now.epochs) == now
        with pytest.raises(streams.StreamReplaced, match="accepted meanwhile"):
            asyncio.run(fetched(asked("a", before.epochs, 0, 3), lambda _: None))


def test_who_has_had_more_believes_no_stores_of_a_former_epoch(tmp_path: Path) -> None:
    """Those name a, which names d; and if a does not answer, it is said who is in which epoch."""
    with town(tmp_path, names="abcd") as stores:
        with streams.open(session_id=SENDER) as context:
            split(stores, context)
            lose(stores, context)
        before, now = found(stores, "bc"), found(stores, "ad")
        assert before is not None
        assert now is not None
        assert found(stores, "bc", now.epochs) == now
        assert found(stores, "bc", least=now.epoch) == now
        assert found(stores, "bc", least=before.epoch) == before
        stores.end("d")
        assert found(stores, "bc", least=now.epoch) is None, "a says that d is needed"
        former = f"it is in epoch {before.epoch}, and {now.epoch} or a later one is expected"
        given_up = {stores.at(name): former for name in "bc"}
        silent = {stores.at("d"): "it does not answer"}
        assert whom_it_lacks(stores, "bc", now.epoch) == {**given_up, **silent}
        stores.end("a")
        assert found(stores, "bc", now.epochs) is None
        assert found(stores, "bc", least=now.epoch) is None
        silent = {stores.at("a"): "it does not answer"}
        assert whom_it_lacks(stores, "bc", now.epoch) == {**given_up, **silent}
        stores.end("bc")
        assert whom_it_lacks(stores, "b", 0) == {stores.at("b"): "it does not answer"}
        for name in "bc":
            stores.cluster.wipe(name)
        stores.start("b")
        assert whom_it_lacks(stores, "b", 0) == {stores.at("b"): "it does not have the stream"}


def test_a_store_that_is_between_two_epochs_is_not_in_one() -> None:
    own = listed("a:1")
    who = Who(topic=RAW.name, source=SENDER, session=1, key="session 1", known=own)
    bridge = Bridge(epoch=6, stage=Stage.SETTLED, lists=(own,), firsts=((6, 0),))
    for promised, says in ((9, {"a:1": "it has promised epoch 9, and is not in it yet"}), (6, {})):
        told = asks.Found(promised=promised, has=Promised(bridge=bridge))
        assert ended(lacking(who, 2.0, 6), {"a:1": told}) == says


def frame(epoch: int, begin: int, *bodies: bytes, flags: int = 0, void: int = 0) -> bytes:
    """A frame with messages; or with void numbers."""
    return encode(
        Frame(
            kind=FrameKind.VOID if void else FrameKind.MESSAGES,
            stream=S,
            epoch=epoch,
            number=begin,
            stable=0,
            count=void or len(bodies),
            flags=flags,
            body=body_of(bodies) if bodies else b"",
        )
    )


def read(
    begin: int, *data: bytes, lost: int = 4, missing: int | None = None, kept: int | None = None
) -> Any:
    """What is read of a store that gives frames from a number on. missing: one is damaged there.

    kept: it has trimmed what lies before.
    """
    asked = Asked(stream=S, begin=begin, end=20, stores=("one",), epochs=LOG)
    is_missing = missing is not None
    end = 20 if missing is None else missing
    first = begin if kept is None else kept
    answer = asks.Range(begin=first, end=end, frames=len(data), missing=is_missing, lost=lost)
    return ended(read_once(asked), (answer, data))


def ended(program: Any, given: Any) -> Any:
    """What a Program returns that asks one store, which gives this."""
    next(program)
    with pytest.raises(StopIteration) as end:
        program.send(given)
    return end.value.value


def unread(begin: int, *data: bytes, **given: Any) -> str:
    """Why a number is not read, up to what follows from that."""
    found = read(begin, *data, **given)
    assert isinstance(found, Unread)
    assert found.number == begin
    return found.why["one"].partition(": ")[0]


def test_a_message_of_another_epoch_is_not_believed() -> None:
    right = frame(4, 5, b"5", b"6")
    (piece,) = read(5, right)
    assert (piece.begin, piece.end, piece.bodies) == (5, 7, (b"5", b"6"))
    assert unread(5, frame(1, 5, b"other")) == "it has another message there"
    assert unread(5, frame(6, 5, b"other")) == "it has another message there"
    assert [one.bodies for one in read(5, right, frame(1, 7, b"other"))] == [(b"5", b"6")]
    assert unread(5, right, lost=0) == OF_A_LOSS
    assert read(5, right, lost=6) is None


def test_what_reaches_into_another_epoch_is_cut_there() -> None:
    flags = CONTINUES | CONTINUED
    (piece,) = read(6, frame(4, 6, b"6", b"7", b"8", flags=flags))
    assert (piece.end, piece.bodies, piece.flags) == (8, (b"6", b"7"), CONTINUES)


def test_what_is_void_says_why() -> None:
    (piece,) = read(3, frame(4, 3, void=4))
    assert (piece.begin, piece.end, piece.why, piece.is_void) == (3, 5, LOST_PIECE, True)
    (piece,) = read(5, frame(4, 5, void=2))
    assert (piece.begin, piece.end, piece.why, piece.is_void) == (5, 7, VOID_PIECE, True)
    (piece,) = read(5, missing=5)
    assert (piece.end, piece.why, piece.is_void) == (6, LOST_PIECE, False)


def test_what_is_void_is_so_when_it_is_trimmed() -> None:
    """Else a relay would take what it had planned there for sent."""
    (piece,) = read(3, kept=12)
    assert (piece.begin, piece.end, piece.why, piece.is_void) == (3, 5, LOST_PIECE, True)
    (piece,) = read(5, kept=12)
    assert (piece.begin, piece.end, piece.why, piece.is_void) == (5, 8, LOST_PIECE, False)


def test_what_a_store_does_not_know_of_is_not_gone_by_its_word() -> None:
    assert unread(5, missing=5, lost=0) == OF_A_LOSS
    assert unread(5, frame(1, 5, b"other"), missing=6) == "it has another message there"


def test_who_does_not_answer_or_has_it_not_yet_is_waited_for() -> None:
    assert unread(5) == "it does not have it as stable, yet"
    asked = Asked(stream=S, begin=5, end=20, stores=("one",), epochs=LOG)
    (store, why), *more = ended(read_once(asked), None).why.items()
    assert (store, why, more) == ("one", "it does not answer", [])
