"""The checker finds every kind of violation, by guarantee and rid, and none in valid histories."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onceq.history import check, check_files
from onceq.history import events as ev
from onceq.history.__main__ import main
from onceq.history.events import save_final
from proof.history.clients import invent
from proof.history.corruptions import CORRUPTIONS, REQUESTS, corrupted
from proof.history.part import PART, PLANTED, Planted, plant
from proof.history.wreck import Wreck
from proof.part import Order, Size
from tests.small import small

if TYPE_CHECKING:
    import pytest

    from proof.history.invention import History

ROOT = Path(__file__).resolve().parents[2]


def order(place: Path) -> Order:
    return Order(size=Size.SMALL, seed=1990, place=place, say=lambda *_: None)


def test_the_part_checks_long_histories_and_plants_every_kind(tmp_path: Path) -> None:
    assert small(PART, tmp_path)[PLANTED] == len(CORRUPTIONS)


def test_a_valid_history_has_no_violation() -> None:
    """Of more effects each than in the histories that the part and the corruptions begin with."""
    history = invent(1990, REQUESTS, effects_each=3)
    assert check(history.events(), history.final()) == []


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(CORRUPTIONS)), st.integers(0, 1_000_000))
@example("gone before it was acknowledged", 440607)  # handed out again after a send in doubt
@example("gone before it was acknowledged", 37462)  # and after an acknowledgement in doubt
@example("gone before it was acknowledged", 768439)  # handed out, though its send was in doubt
def test_any_single_corruption_is_found(name: str, seed: int) -> None:
    wanted, before, after = corrupted(name, seed)
    assert before == []
    assert wanted in {(one.guarantee, one.rid) for one in after}


def test_what_is_not_found_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part says so if the checker is blind."""
    monkeypatch.setattr("proof.history.corruptions.check", lambda *_: [])
    planted = plant(order(tmp_path), 1)
    assert isinstance(planted, Planted)
    assert (planted.found, len(planted.violations)) == (0, len(CORRUPTIONS))


def test_the_page_says_how_many_ways_there_are_to_break_each_guarantee() -> None:
    told: Counter[str] = Counter()
    guarantee = ""
    for line in (ROOT / "docs" / "maintainers" / "history.md").read_text().splitlines():
        row = re.fullmatch(r"\| ?(?:\*\*(G\d+)\*\*)? ?\|.*\| ?(\d*) ?\|", line)
        if row:
            guarantee = row[1] or guarantee
            told[guarantee] += int(row[2] or 0)
    ways = Counter(corrupted(name, 1)[0][0] for name in CORRUPTIONS)
    assert told == ways


# --- files, and the command that checks them --------------------------------------------------


def stored(history: History, folder: Path) -> Path:
    """The history in files, its final state beside them."""
    history.append_to(folder)
    save_final(history.final(), folder)
    return folder


def broken(history: History) -> History:
    CORRUPTIONS["an effect twice"](Wreck(history, "1"))
    CORRUPTIONS["connect forgets the send"](Wreck(history, "1"))
    return history


def test_files_are_judged_as_events_in_memory(tmp_path: Path) -> None:
    history = broken(invent(3, 600))
    in_memory = {str(one) for one in check(history.events(), history.final())}
    report = check_files(stored(history, tmp_path))
    assert {str(one) for one in report.violations} == in_memory
    assert report.events == len(history.events())
    assert len(in_memory) >= 2


def test_the_lives_of_a_client_may_lie_in_several_files(tmp_path: Path) -> None:
    """In whichever order the files are read; what two clients share does not matter."""
    history = invent(5, 600)
    for name in [one for one in history.files if one.startswith("client-till")]:
        events = history.files.pop(name)
        for event in events:
            assert isinstance(event, ev.ClientEvent)
            history.files[f"client-{9 - event.epoch % 3}"].append(event)
    assert check_files(stored(history, tmp_path)).violations == []
    other = tmp_path / "broken"
    other.mkdir()
    (wanted,) = [
        one for one in history.files["client-9"] if type(one) is ev.Connected and one.epoch == 3
    ][:1]
    history.files["client-9"].remove(wanted)
    history.files["client-9"].append(replace(wanted, s_rid="never"))
    found = check_files(stored(history, other)).violations
    assert ("G6", "never") in {(one.guarantee, one.rid) for one in found}


def test_the_command_says_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = tmp_path / "good"
    good.mkdir()
    assert main([str(stored(invent(3, 60), good))]) == 0
    assert "0 violations" in capsys.readouterr().out
    stored(broken(invent(3, 600)), tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "committed 2 times" in capsys.readouterr().out
    assert main([str(tmp_path), "--json"]) == 1
    said = msgspec.json.decode(capsys.readouterr().out)
    assert {"G2", "G6"} <= {one["guarantee"] for one in said["violations"]}


def test_the_command_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert "final.json" in capsys.readouterr().err
    stored(invent(3, 60), tmp_path)
    (tmp_path / "x.events").write_bytes(b'{"event": "Unheard"}\n')
    assert main([str(tmp_path)]) == 2
    assert "x.events" in capsys.readouterr().err
