"""What no honest process sends is refused or answered in words; a wrong answer is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.model import asks, encoding, frames
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.receiver.ops import Message
from onceq.streams.store import serving
from proof.streams_fuzz.__main__ import main
from proof.streams_fuzz.invention import ANSWERS, Invention
from proof.streams_fuzz.invention import ASKS as INVENTED
from proof.streams_fuzz.part import BATCH, PART, Verdicts, batch
from proof.streams_simulation.disk_nodes import identified
from tests.small import small

if TYPE_CHECKING:
    from pathlib import Path

STORES, RECEIVERS = range(46, 86, 4), range(1, 16, 4)
"""Seeds of batches."""


def tried(place: Path, seeds: range) -> Verdicts:
    made = Verdicts()
    directory = identified(place / "store", keeps=True)
    for seed in seeds:
        batch(seed, directory, made)
    return made


@pytest.mark.timeout(300)
def test_nothing_is_wrong(tmp_path: Path) -> None:
    reached = small(PART, tmp_path)
    assert reached["bad inputs to stores and receivers of streams"] >= 4_000


def test_lists_without_stores_end_no_receiver(tmp_path: Path) -> None:
    """An answer that names no list, or one without stores, said that all is gone."""
    assert tried(tmp_path, range(5449, 5450)).wrong == []


def test_every_ask_and_answer_can_be_invented() -> None:
    invention = Invention(0)
    for kind in (*INVENTED, *ANSWERS):
        one = invention.value(kind)
        assert isinstance(one, kind)
        assert encoding.packed(one)


def test_a_harmed_frame_is_another() -> None:
    invention = Invention(0)
    for _ in range(100):
        sound = invention.frame()
        assert invention.harmed(sound) != sound


def test_a_seed_is_always_the_same(tmp_path: Path) -> None:
    assert tried(tmp_path, range(2)) == tried(tmp_path, range(2))


def skipping(self: Delivering, _: bytes) -> list[Message]:
    """Show a number, and leave out the one before."""
    first, self.next = self.next + 1, self.next + 2
    return [Message(stream=self.stream, epoch=1, number=first, body=b"")]


def test_wrong_answers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lied(*_: object) -> asks.Answer:
        return asks.Range(begin=0, end=0)

    monkeypatch.setattr(serving, "ASKS", serving.ASKS | {asks.Acknowledge: lied})
    assert any("answers" in one for one in tried(tmp_path, STORES).wrong)


def test_what_raises_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_are_of_log", lambda _: True)
    assert any("raised" in one for one in tried(tmp_path, RECEIVERS).wrong)


def test_numbers_left_out_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Delivering, "heard", skipping)
    assert any("comes next" in one for one in tried(tmp_path, RECEIVERS).wrong)


def test_an_effect_of_what_is_damaged_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "crc32", lambda *_: 0)
    assert any("had an effect" in one for one in tried(tmp_path, STORES).wrong)


def test_by_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x", "4"])
    assert main() == 0
    assert f"{BATCH} inputs" in capsys.readouterr().out
