"""The file that `collect` grows: cut back, refused, locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.errors import FileMismatch, IllegalState
from onceq.files.durable import DurableFile, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_cut_back_to_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"one\n")
        first = read_checkpoint(file.checkpoint())
        file.publish()
        file.append(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    with DurableFile(path, "csv") as file:
        file.resume(first)
        assert path.read_bytes() == b"one\n"
        file.append(b"2\n")
    assert path.read_bytes() == b"one\n2\n"


def test_a_new_file_has_no_name_until_it_is_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"one\n")
        kept = read_checkpoint(file.checkpoint())
    assert not path.exists()
    with DurableFile(path, "csv") as file:
        file.resume(kept)
    assert path.read_bytes() == b"one\n"


def test_what_was_not_acknowledged_under_no_name_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"one\n")
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"1\n")
        file.publish()
    assert path.read_bytes() == b"1\n"
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]


def test_what_a_killed_run_acknowledged_is_not_removed_by_one_that_cannot_connect(
    tmp_path: Path,
) -> None:
    """Killed between the acknowledge and the name; the next run ends before it has resumed."""
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"one\n")
        kept = read_checkpoint(file.checkpoint())
    with DurableFile(path, "csv"):
        pass
    with DurableFile(path, "csv") as file:
        file.resume(kept)
    assert path.read_bytes() == b"one\n"


def test_nothing_received_leaves_nothing(tmp_path: Path) -> None:
    with DurableFile(tmp_path / "out.csv", "csv") as file:
        file.resume(None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_ours_or_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"mine\n")
    with DurableFile(path, "csv") as file:
        with pytest.raises(FileMismatch, match="never collected into it"):
            file.resume(None)
        file.length = 5
        kept = read_checkpoint(file.checkpoint())
    assert kept is not None
    with DurableFile(path, "csv") as file, pytest.raises(FileMismatch) as raised:
        file.resume(kept)
    assert kept.sha256 in str(raised.value)
    path.write_bytes(b"m\n")
    with DurableFile(path, "csv") as file, pytest.raises(FileMismatch, match="shorter"):
        file.resume(kept)
    assert path.read_bytes() == b"m\n"


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv a") as file:
        file.resume(None)
        file.append(b"one\n")
        kept = read_checkpoint(file.checkpoint())
        file.publish()
    with DurableFile(path, "csv b") as file, pytest.raises(FileMismatch, match="csv a, not csv b"):
        file.resume(kept)


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with DurableFile(path, "csv") as file:
        with pytest.raises(IllegalState, match="another `onceq collect`"):
            DurableFile(path, "csv")
        file.resume(None)
        file.append(b"one\n")
        file.publish()
        with pytest.raises(IllegalState, match="another `onceq collect`"):
            DurableFile(path, "csv")


def test_an_empty_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.touch()
    with DurableFile(path, "csv") as file:
        file.resume(None)
        file.append(b"one\n")
        file.publish()
    assert path.read_bytes() == b"one\n"


@pytest.mark.parametrize("ckpt", [None, b"", b"{}", b"of another program"])
def test_checkpoints_of_others_are_none(ckpt: bytes | None) -> None:
    assert read_checkpoint(ckpt) is None
