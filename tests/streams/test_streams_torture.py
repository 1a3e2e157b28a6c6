"""A little torture of streams, and what its judge notices, without processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from proof.streams_torture import notes
from proof.streams_torture.judge import Followed, Judge, Kept, Senders
from proof.streams_torture.part import CONTROL, PART
from tests.small import small_outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGAN = notes.Began(life=1, epoch=5, number=0)
STABLE = notes.StableTold(life=1, first=0, last=9)
SHOWN = notes.Delivered(first=0, last=9, epoch=5, life=1)


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_the_control_loses(tmp_path: Path) -> None:
    outcome = small_outcome(PART, tmp_path)
    assert [one.what for one in outcome.controls if one.broke] == [CONTROL]


def kept(name: str, *runs: tuple[int, int, int], begin: int = 0) -> Kept:
    senders = Senders()
    for run in runs:
        senders.add(*run)
    return Kept(name=name, begin=begin, senders=senders)


ALL = kept("a", (0, 9, 1))


def judged(
    place: Path,
    source: Sequence[notes.Note] = (BEGAN, STABLE),
    lives: Sequence[Sequence[notes.Note]] = ((SHOWN,),),
    stores: Sequence[Kept] = (ALL, ALL, kept("c")),
) -> list[str]:
    """What is wrong with these notes, and what these stores have."""
    paths = [place / f"source{place.name}.jsonl"]
    noted = notes.Notes(paths[0])
    for note in source:
        noted.add(note)
    shown = [place / f"receiver-{number}.jsonl" for number, _ in enumerate(lives)]
    for path, life in zip(shown, lives, strict=True):
        its = notes.Notes(path)
        for note in life:
            its.add(note)
    judge = Judge()
    judge.source(paths)
    judge.receiver("r", shown, judge.stores(stores))
    return judge.found.wrong


def test_what_fits_is_right(tmp_path: Path) -> None:
    assert judged(tmp_path) == []


def test_another_life_that_goes_on_where_one_was_is_right(tmp_path: Path) -> None:
    parts = (
        notes.Delivered(first=0, last=5, epoch=5, life=1),
        notes.Delivered(first=3, last=9, epoch=5, life=1),
    )
    assert judged(tmp_path, lives=[[part] for part in parts]) == []


@pytest.mark.parametrize(
    ("says", "given"),
    [
        ("at ['a'] only", {"stores": (ALL, kept("b", (0, 8, 1)), kept("c"))}),
        ("is of two lives", {"source": (BEGAN, notes.Began(life=2, epoch=5, number=9), STABLE)}),
        (
            "is stable of 2, and was of 1",
            {"source": (BEGAN, STABLE, notes.StableTold(life=2, first=9, last=12))},
        ),
        ("all below 9", {"lives": ((notes.Delivered(first=0, last=8, epoch=5, life=1),),)}),
        (
            "6 came, not 5",
            {
                "lives": (
                    (
                        notes.Delivered(first=0, last=4, epoch=5, life=1),
                        notes.Delivered(first=6, last=9, epoch=5, life=1),
                    ),
                    (SHOWN,),
                )
            },
        ),
        ("begins at 1, not 0", {"lives": ((notes.Delivered(first=1, last=9, epoch=5, life=1),),)}),
        ("the epoch is of 1", {"lives": ((notes.Delivered(first=0, last=9, epoch=5, life=3),),)}),
        ("lost 10 to 11", {"lives": ((SHOWN, notes.Lost(first=10, last=11, why="trimmed")),)}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_noticed(
    says: str, given: dict[str, Sequence[notes.Note]], tmp_path: Path
) -> None:
    assert any(says in one for one in judged(tmp_path, **given))  # type: ignore[arg-type] # of any


def test_what_was_seen_in_vain_comes_again() -> None:
    followed = Followed(covered=9, expected=9)
    followed.go_back(5)
    assert (followed.covered, followed.expected) == (5, 5)


def test_a_message_tells_who_sent_it_as_which_number() -> None:
    body = notes.message(7, 12)
    assert notes.sender_of(body, 12) == 7
    assert notes.sender_of(body, 13) == 0
    assert notes.sender_of(b"", 0) == 0


def test_what_was_shown_last_is_there_though_nobody_noted_it(tmp_path: Path) -> None:
    noted = notes.Notes(tmp_path / "r.jsonl")
    run = notes.Run(tmp_path / "r.run", noted)
    for number in range(3):
        run.add(number, 5, 1)
    run.add(3, 6, 2)
    assert list(notes.read(tmp_path / "r.jsonl")) == [
        notes.Delivered(first=0, last=2, epoch=5, life=1)
    ]
    assert notes.run_of(tmp_path / "r.run") == notes.Delivered(first=3, last=3, epoch=6, life=2)


def test_senders_are_kept_apart() -> None:
    senders = Senders()
    assert senders.add(0, 4, 1) is None
    assert senders.add(8, 9, 1) is None
    assert senders.add(3, 8, 1) is None
    assert list(senders) == [(0, 7, 1), (8, 9, 1)]
    assert list(senders.of(5, 12)) == [(5, 1), (8, 1), (10, 0)]
    assert senders.add(9, 11, 2) == (9, 1)
