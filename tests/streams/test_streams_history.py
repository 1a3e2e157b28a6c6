"""The history checker of streams names each rule that is broken, and none in a proper history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from onceq.streams.history import RULES, Broken, check, kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM = 7
ONE: dict[str, Any] = {"stream": STREAM, "life": 1}
TWO: dict[str, Any] = {"stream": STREAM, "life": 2}
SURE: dict[str, Any] = {"stream": STREAM, "receiver": "sure", "life": 1}
LATER: dict[str, Any] = {**SURE, "life": 2}
LIVE: dict[str, Any] = {"stream": STREAM, "receiver": "live", "life": 1}
LATER_LIVE: dict[str, Any] = {**LIVE, "life": 2}
A: dict[str, Any] = {"stream": STREAM, "store": "a"}


def rows(**more: Any) -> dict[str, Any]:
    return {"first": 0, "last": 9, **more}


SOURCE = [
    kinds.Began(**ONE, epoch=5, number=0),
    kinds.Sent(**ONE, first=0, last=11, content="x"),
    kinds.StableTold(**ONE, first=0, last=9),
    kinds.Confirmed(**ONE, first=0, last=5, session=21),
    kinds.Fenced(**ONE, epoch=6),
    kinds.Sent(**ONE, first=12, last=12, content="x"),
    kinds.Refused(**ONE, number=12),
    kinds.Began(**TWO, epoch=6, number=10),
    kinds.Sent(**TWO, first=10, last=19, content="y"),
    kinds.StableTold(**TWO, first=10, last=17),
    kinds.Reclaimed(**TWO, first=18, last=18, forced=True, unstable=True),
    kinds.StableTold(**TWO, first=19, last=19),
    kinds.Finished(**TWO, number=20),
]
RECEIVERS = [
    kinds.Entered(**SURE, number=0, epoch=5, session=21),
    kinds.Delivered(**SURE, first=0, last=7, epoch=5, content="x"),
    kinds.Positioned(**LATER, store="a", last=5),
    kinds.Entered(**LATER, number=6, epoch=6, session=21),
    kinds.Delivered(**LATER, first=6, last=7, epoch=5, content="x", again=True),
    kinds.Delivered(**LATER, first=8, last=9, epoch=5, content="x"),
    kinds.Delivered(**LATER, first=10, last=17, epoch=6, content="y"),
    kinds.Lost(**LATER, first=18, last=18, why="reclaimed"),
    kinds.Delivered(**LATER, first=19, last=19, epoch=6, content="y"),
    kinds.Entered(**LIVE, number=0, epoch=5, is_stable_only=False),
    kinds.Delivered(**LIVE, first=0, last=11, epoch=5, content="x"),
    kinds.RolledBack(**LIVE, first=10, last=11),
    kinds.Delivered(**LIVE, first=10, last=17, epoch=6, content="y"),
    kinds.Lost(**LIVE, first=18, last=18, why="reclaimed"),
    kinds.Delivered(**LIVE, first=19, last=19, epoch=6, content="y"),
]


def kept(name: str) -> list[kinds.StreamEvent]:
    who: dict[str, Any] = {"stream": STREAM, "store": name}
    return [
        kinds.Opened(**who, life=1, promised=5, admitted=5, begin=0, end=10),
        kinds.Opened(**who, life=2, promised=6, admitted=6, begin=0, end=12),
        kinds.Kept(**who, begin=0, end=20),
        kinds.Held(**who, first=0, last=9, epoch=5, content="x"),
        kinds.Held(**who, first=10, last=17, epoch=6, content="y"),
        kinds.Held(**who, first=18, last=18, epoch=6, is_void=True),
        kinds.Held(**who, first=19, last=19, epoch=6, content="y"),
    ]


STORES = [
    *kept("a"),
    *kept("b"),
    kinds.Kept(stream=STREAM, store="c", begin=0, end=12),
    kinds.Held(stream=STREAM, store="c", first=0, last=11, epoch=5, content="x"),
]
END = [kinds.Ended(copies=2, receivers=("sure", "live"))]
GOOD: list[kinds.StreamEvent] = [*SOURCE, *RECEIVERS, *STORES, *END]


def broken(events: Sequence[kinds.StreamEvent]) -> list[Broken]:
    return check(events).violations


def test_a_proper_history_breaks_no_rule() -> None:
    assert broken(GOOD) == []


def test_files_are_in_no_order() -> None:
    """But the events of a life are; those of several lives may come in any."""
    of_receivers = (*RECEIVERS[9:], *RECEIVERS[2:9], *RECEIVERS[:2])
    assert broken([*END, *STORES, *of_receivers, *SOURCE[7:], *SOURCE[:7]]) == []


Change = tuple["kinds.StreamEvent | None", "list[kinds.StreamEvent]"]
"""An event of the proper history, and what stands there instead; None: behind all of it."""


def changed(event: kinds.StreamEvent, **fields: Any) -> Change:
    return event, [replace(event, **fields)]


def removed(event: kinds.StreamEvent) -> Change:
    return event, []


def before(event: kinds.StreamEvent, *more: kinds.StreamEvent) -> Change:
    return event, [*more, event]


def added(*more: kinds.StreamEvent) -> Change:
    return None, list(more)


PLANTED: dict[str, tuple[str, list[Change]]] = {
    "an epoch of two lives": ("one-life", [added(kinds.Began(**TWO, epoch=5, number=10))]),
    "sent twice, otherwise": (
        "one-content",
        [added(kinds.Sent(**TWO, first=15, last=15, content="z"))],
    ),
    "shown otherwise": ("one-content", [changed(RECEIVERS[1], content="z")]),
    "kept otherwise": ("one-content", [changed(STORES[3], content="z")]),
    "shown and never sent": (
        "no-phantom",
        [added(kinds.Delivered(**LATER, first=20, last=20, epoch=6, content="y"))],
    ),
    "shown of an epoch of nobody": (
        "no-phantom",
        [added(kinds.Delivered(**LATER, first=20, last=20, epoch=7, content="y"))],
    ),
    "kept and never sent": (
        "no-phantom",
        [added(kinds.Held(**A, first=20, last=20, epoch=6, content="y"))],
    ),
    "stable and never sent": ("stable-sent", [changed(SOURCE[2], last=13)]),
    "stable and cut": ("stable-survives", [changed(SOURCE[2], last=10)]),
    "stable of two lives": (
        "stable-unchanged",
        [
            before(SOURCE[8], kinds.Sent(**TWO, first=8, last=8, content="y")),
            before(SOURCE[9], kinds.StableTold(**TWO, first=8, last=8)),
        ],
    ),
    "stable at one store": ("stable-kept", [changed(STORES[11], last=16)]),
    "kept as void": ("stable-kept", [changed(STORES[13], is_void=True)]),
    "at too few otherwise": ("stable-kept", [changed(STORES[11], content="z")]),
    "who wants what is stable sees what is cut": (
        "stable-only",
        [changed(RECEIVERS[9], is_stable_only=True), removed(RECEIVERS[11])],
    ),
    "who wants what is stable is rolled back": (
        "stable-only",
        [added(kinds.RolledBack(**LATER, first=19, last=19))],
    ),
    "gave up what is stable": (
        "not-given-up",
        [added(kinds.Reclaimed(**TWO, first=17, last=17, forced=True, unstable=True))],
    ),
    "sent after the fence": ("fence", [removed(SOURCE[6])]),
    "shown after the fence": (
        "fence",
        [
            removed(RECEIVERS[14]),
            added(kinds.RolledBack(**LIVE, first=10, last=17)),
            added(kinds.Delivered(**LIVE, first=10, last=11, epoch=5, content="x")),
        ],
    ),
    "shown twice": (
        "in-order",
        [added(kinds.Delivered(**LIVE, first=19, last=19, epoch=6, content="y"))],
    ),
    "shown downwards": (
        "in-order",
        [added(kinds.Delivered(**LIVE, first=5, last=6, epoch=5, content="x"))],
    ),
    "rolled back untold": ("in-order", [removed(RECEIVERS[11])]),
    "epochs downwards": (
        "in-order",
        [
            before(SOURCE[2], kinds.Sent(**ONE, first=13, last=30, content="x")),
            added(kinds.Delivered(**LIVE, first=20, last=20, epoch=5, content="x")),
        ],
    ),
    "a gap": ("no-gap", [changed(RECEIVERS[5], first=9)]),
    "a gap before a loss": ("no-gap", [changed(RECEIVERS[6], last=16)]),
    "a gap between two lives": (
        "no-gap",
        [
            changed(RECEIVERS[3], number=9),
            removed(RECEIVERS[4]),
            changed(RECEIVERS[5], first=9),
        ],
    ),
    "in vain and never shown": ("rolled-back", [changed(RECEIVERS[11], last=12)]),
    "in vain and stable": ("rolled-back", [changed(RECEIVERS[11], first=9)]),
    "lost and stable": (
        "not-lost",
        [
            changed(RECEIVERS[6], last=16),
            before(RECEIVERS[7], kinds.Lost(**LATER, first=17, last=17, why="lost")),
        ],
    ),
    "trimmed and not to be": (
        "not-lost",
        [
            changed(RECEIVERS[6], last=16),
            before(RECEIVERS[7], kinds.Lost(**LATER, first=17, last=17, why="trimmed")),
        ],
    ),
    "acknowledged by no earlier life": (
        "not-lost",
        [
            changed(RECEIVERS[6], last=16),
            before(RECEIVERS[7], kinds.Lost(**LATER, first=17, last=17, why="acknowledged")),
        ],
    ),
    "shown again without a mark": ("marked-again", [changed(RECEIVERS[4], again=False)]),
    "a store's position sinks": (
        "acknowledged-grows",
        [added(kinds.Positioned(**LATER, store="a", last=4))],
    ),
    "tokens go back": (
        "acknowledged-grows",
        [
            before(
                RECEIVERS[2],
                kinds.Acknowledged(**SURE, below=7),
                kinds.Acknowledged(**SURE, below=6),
            ),
        ],
    ),
    "a token of what was not shown": (
        "acknowledged-shown",
        [before(RECEIVERS[2], kinds.Acknowledged(**SURE, below=9))],
    ),
    "a position of what was not shown": ("acknowledged-shown", [changed(RECEIVERS[2], last=8)]),
    "a position beyond all tokens": (
        "acknowledged-shown",
        [
            before(RECEIVERS[2], kinds.Acknowledged(**SURE, below=3)),
            changed(RECEIVERS[3], number=3),
            changed(RECEIVERS[4], first=3),
        ],
    ),
    "a position of what is cut": (
        "acknowledged-stable",
        [
            added(kinds.Positioned(**LATER_LIVE, store="a", last=10)),
            added(
                kinds.Entered(**LATER_LIVE, number=11, epoch=5, is_stable_only=False)
            ),
        ],
    ),
    "confirmed and not shown": ("confirmed-shown", [changed(SOURCE[3], last=20)]),
    "a hole": ("whole-log", [removed(STORES[4]), added(kinds.Ended())]),
    "a promise is forgotten": ("store-remembers", [changed(STORES[1], promised=4)]),
    "an admission is forgotten": ("store-remembers", [changed(STORES[1], admitted=4)]),
    "not all is shown": (
        "all-delivered",
        [removed(RECEIVERS[14])],
    ),
    "shown otherwise last": (
        "all-delivered",
        [removed(RECEIVERS[number]) for number in (11, 12, 13, 14)],
    ),
    "shown nothing": ("all-delivered", [changed(END[0], receivers=("other",))]),
    "not finished": ("all-delivered", [removed(SOURCE[12])]),
    "finished and not stable": (
        "all-delivered",
        [removed(SOURCE[11]), changed(SOURCE[12], number=20)],
    ),
}  # fmt: skip


def planted(changes: Sequence[Change]) -> list[kinds.StreamEvent]:
    """The proper history, changed. A change of the same event as one before is of what is left."""
    made = list(GOOD)
    for event, instead in changes:
        if event is None:
            made += instead
        else:
            at = next(n for n, one in enumerate(made) if one is event)
            made[at : at + 1] = instead
    return made


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_broken_is_named(name: str) -> None:
    rule, changes = PLANTED[name]
    assert rule in {one.rule for one in broken(planted(changes))}


def test_each_rule_is_broken_by_some_history() -> None:
    assert {rule for rule, _ in PLANTED.values()} == set(RULES)


def test_a_store_that_lost_its_disk_may_have_forgotten() -> None:
    sunk = planted(PLANTED["a promise is forgotten"][1])
    assert broken([*sunk, kinds.Forgot(store="a")]) == []


def test_what_was_given_up_by_limits_is_right_where_that_may_be() -> None:
    trimmed = planted(PLANTED["trimmed and not to be"][1])
    may = replace(END[0], may_trim=True)
    assert broken([may if one is END[0] else one for one in trimmed]) == []


def test_without_an_end_nothing_is_asked_of_it() -> None:
    """Nor is anything that was under way: a life that was killed is no violation."""
    assert broken(GOOD[: len(SOURCE) + 2]) == []


def test_what_a_life_sends_before_it_knows_its_stream_is_of_that() -> None:
    early = replace(SOURCE[8], stream=0)
    assert broken([early if one is SOURCE[8] else one for one in GOOD]) == []


def test_where_there_is_nothing_nobody_must_see_it() -> None:
    nothing = [SOURCE[0], kinds.Finished(**ONE, number=0), *END]
    assert broken(nothing) == []


def test_streams_are_judged_apart() -> None:
    other = [replace(one, stream=8, life=9) for one in (SOURCE[0], SOURCE[1], SOURCE[2])]
    report = check([*GOOD[:-1], *other])
    assert (report.violations, report.streams, report.sent) == ([], 2, 20 + 12)


THREE: dict[str, Any] = {"stream": STREAM, "life": 3}
OTHER: dict[str, Any] = {**SURE, "life": 3}
ACCEPTED = kinds.Accepted(**THREE, first=8, last=19)
BACK = kinds.RolledBack(**LATER, first=8, last=17)
LOST = kinds.Lost(**LATER, first=8, last=19, why="reclaimed")
WENT_ON: list[kinds.StreamEvent] = [
    *SOURCE,
    ACCEPTED,
    kinds.Began(**THREE, epoch=9, number=20),
    kinds.Sent(**THREE, first=20, last=24, content="z"),
    kinds.StableTold(**THREE, first=20, last=24),
    kinds.Finished(**THREE, number=25),
    *RECEIVERS[:7],
    BACK,
    LOST,
    kinds.Delivered(**LATER, first=20, last=24, epoch=9, content="z"),
    *(
        event
        for name in "ab"
        for event in (
            kinds.Kept(stream=STREAM, store=name, begin=0, end=25),
            kinds.Held(stream=STREAM, store=name, first=0, last=7, epoch=5, content="x"),
            kinds.Held(stream=STREAM, store=name, first=8, last=19, epoch=9, is_void=True),
            kinds.Held(stream=STREAM, store=name, first=20, last=24, epoch=9, content="z"),
        )
    ),
    kinds.Ended(copies=2, receivers=("sure",)),
]


def test_a_loss_that_was_accepted_breaks_no_rule() -> None:
    assert broken(WENT_ON) == []


@pytest.mark.parametrize(
    ("event", "instead", "rules"),
    [
        (ACCEPTED, [], {"not-lost", "stable-only", "rolled-back", "stable-kept"}),
        (ACCEPTED, [replace(ACCEPTED, last=17)], {"stable-kept", "not-lost"}),
        (LOST, [], {"no-gap", "all-delivered"}),
    ],
    ids=["not accepted", "accepted in part", "not told"],
)
def test_only_what_was_accepted_is_lost(
    event: kinds.StreamEvent, instead: list[kinds.StreamEvent], rules: set[str]
) -> None:
    at = WENT_ON.index(event)
    found = {one.rule for one in broken([*WENT_ON[:at], *instead, *WENT_ON[at + 1 :]])}
    assert found & rules, found
    assert found <= rules | {"one-content", "stable-unchanged"}, found


def test_a_number_that_comes_again_behind_a_loss_is_found() -> None:
    """A person gave too small a number: what was stable under it is stable otherwise."""
    short = replace(ACCEPTED, last=14)
    early = [
        replace(event, number=15)
        if isinstance(event, kinds.Began) and event.life == 3
        else replace(event, first=15)
        if isinstance(event, kinds.Sent | kinds.StableTold) and event.life == 3
        else event
        for event in WENT_ON
    ]
    found = {one.rule for one in broken([short if one == ACCEPTED else one for one in early])}
    assert {"stable-survives", "stable-unchanged"} <= found
