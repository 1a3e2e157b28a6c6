"""What proves that a control of torture was found, and what does not; which faults were made."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from onceq.engine.bind.binding import BINDINGS
from onceq.model import ops
from proof.part import Control, Order, Size
from proof.torture import Report
from proof.torture.cutter import CLIENTS_COMMIT
from proof.torture.part import CONTROLS_ABREAST, is_proved, tried, unmade
from proof.torture.plan import BY_NAME, CONTROLS

if TYPE_CHECKING:
    from pathlib import Path

DEATH = "death: notes notes-0 in life 3: code 70; see said.txt"


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("fence", "G2: the effect of clerk-0.1.7 is there 2 times"),
        ("fence", "G2 stream-0.9: its effect 'stream-0.9' committed 2 times"),
        ("fence", "G2 stream-0.9: 2 effects are there, not 1"),
        ("fence", "G2 stream-0.9: its effects were committed by several transactions"),
        ("fence", "G8: clerk-2.2.5 is cancelled and its effect is there"),
        ("fence", "G8 clerk-2.2.5: was killed, and its effect is there"),
        ("clerk", "G2: clerk-0.1.7 was ordered once, booked by 2 requests"),
        ("clerk", "G2 clerk-0.1.7: was ordered once, and booked by several requests"),
        ("charge", "G7: e was charged for the death of 7, which lives"),
        ("charge", "G7 e: was charged for the death of 7, which nobody had killed"),
        ("claim", "G12: e is put off for longer than any back-off"),
    ],
)
def test_what_the_controls_break(broken: str, text: str) -> None:
    assert is_proved(broken, [DEATH, text])
    assert not any(is_proved(other, [text]) for other in set(CONTROLS) - {broken})


@pytest.mark.parametrize(
    "text",
    [
        DEATH,
        "G12 clerk-0: did not come to its end within 300 s",
        "G2 clerk-0.1: is done and its effect is not there",
        "G4 n: an acknowledged datagram is in 0 places",
    ],
)
def test_what_proves_nothing(text: str) -> None:
    assert [broken for broken in CONTROLS if is_proved(broken, [text])] == []


def test_a_kind_of_fault_that_was_never_made_is_named() -> None:
    values: dict[str, Any] = dict.fromkeys((one.name for one in fields(Report)), 0)
    made = dict.fromkeys(BY_NAME, 1) | {"fill disk": 0, "end server": 0}
    values |= {"faults": made, "not_made": ["fill disk, 2 times: not as root"]}
    report = Report(**values)
    assert unmade(report) == ["G12: no fault 'end server' was made, and nothing says why"]


@pytest.mark.parametrize("size", [Size.SMALL, Size.PROOF])
def test_controls_run_in_this_thread_unless_several_may_run_abreast(
    size: Size, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads: set[threading.Thread] = set()

    def control(_order: Order, broken: str) -> Control:
        threads.add(threading.current_thread())
        return Control(what=broken, broke=1, of=1)

    monkeypatch.setattr("proof.torture.part._control", control)
    found = tried(Order(size=size, seed=1, place=tmp_path, say=lambda *_: None))
    assert [one.what for one in found] == [*CONTROLS]
    assert (threading.current_thread() in threads) == (CONTROLS_ABREAST[size] == 1)
    assert len(threads) <= CONTROLS_ABREAST[size]


def test_what_is_cut_is_what_clients_say() -> None:
    """A pattern that matches no statement would cut nothing, and nobody would know."""
    said = {kind: BINDINGS[kind].text("r") for kind in (ops.Send, ops.SendMany, ops.Receive)}
    for what, cut in CLIENTS_COMMIT.items():
        assert cut.search(said[ops.Send]), what
        assert cut.search(said[ops.SendMany]), what
    assert CLIENTS_COMMIT["any"].search(said[ops.Receive])
