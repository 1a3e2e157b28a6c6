"""The wheel and the source archive hold what they must, and nothing else. Used: in the proof."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from proof import packaging
from proof.packaging import ROOT
from tests.tidy.source_tree import PACKAGE, files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return packaging.build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_package_and_its_licences(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        others = {name.rsplit("/", 1)[1] for name in archive.namelist() if ".dist-info/" in name}
    assert names == {path.relative_to(ROOT / "src").as_posix() for path in packaged()}
    assert {"LICENSE", "NOTICE", "METADATA", "entry_points.txt"} <= others


def test_the_source_archive_holds_what_is_committed(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {one.name.split("/", 1)[1] for one in archive.getmembers() if one.isfile()}
    committed = {path.relative_to(ROOT).as_posix() for path in files()}
    kept = {name for name in committed if not name.startswith(".ci/")}
    assert names - {"PKG-INFO"} == kept


def test_a_package_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with pytest.raises(packaging.Failed, match=r"version\.py"):
        packaging.build(tmp_path / "dist", root=tmp_path)


def packaged() -> set[Path]:
    return {path for path in files() if PACKAGE in path.parents}
