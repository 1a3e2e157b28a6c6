"""What docs/guarantees.md says of functions, tests and mutants is there."""

from __future__ import annotations

import re
import tomllib

import pytest

from onceq.engine.schema.scripts import function_sources
from proof.parts import PARTS
from tests.tidy.source_tree import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
GUARANTEES = [f"G{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12)]
FUNCTION = re.compile(r"((?:`\w+`,? )+)\((\w+\.sql)\)")
FILE = re.compile(r"`((?:tests|engine|server|model)/[\w/.]+)`")
SECTION = re.compile(r"^## (G\d+): .+?(?=^## )", re.MULTILINE | re.DOTALL)


def test_every_guarantee_has_its_promise_mechanism_evidence_and_limits() -> None:
    sections = {found[1]: found[0] for found in SECTION.finditer(PAGE)}
    assert list(sections) == GUARANTEES
    for name, text in sections.items():
        heads = re.findall(r"^\*\*([\w ]+)\.\*\*", text, re.MULTILINE)
        assert heads == ["Promise", "How", "Shown by", "Limits"], name


def test_the_functions_named_are_in_their_files() -> None:
    sources = dict(function_sources())
    named = [
        (name, file) for names, file in FUNCTION.findall(PAGE) for name in re.findall(r"\w+", names)
    ]
    assert len(named) >= 15
    missing = [
        (name, file)
        for name, file in named
        if not re.search(rf"(?:function|view) onceq\.{name}\b", sources[file])
    ]
    assert missing == []


@pytest.mark.parametrize(
    "named", sorted(set(re.findall(r"`((?:tests|engine|server|model)/[\w/.]+)`", PAGE)))
)
def test_the_files_named_are_there(named: str) -> None:
    base = ROOT if named.startswith("tests/") else ROOT / "src" / "onceq"
    assert (base / named).is_file()


def test_every_part_of_the_proof_is_explained() -> None:
    text = (ROOT / "docs" / "maintainers" / "reliability.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert {part.name for part in PARTS} <= set(explained)


def test_the_evidence_names_parts_that_are_explained() -> None:
    text = (ROOT / "docs" / "maintainers" / "reliability.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    for found in SECTION.finditer(PAGE):
        named = re.search(r"Parts:((?:\s+`[\w-]+`[^`.]*)+)\.", found[0])
        assert named is not None, found[1]
        assert set(re.findall(r"`([\w-]+)`", named[1])) <= explained


def test_the_mutants_named_are_planted() -> None:
    folder = ROOT / "proof" / "mutants"
    planted = {
        mutant["name"]
        for path in folder.glob("*.toml")
        for mutant in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    }
    named = {
        " ".join(name.split())
        for after in re.findall(r"Mutants?:((?:[^.\"]*\"[^\"]+\")+)", PAGE)
        for name in re.findall(r"\"([^\"]+)\"", after)
    }
    assert len(named) >= 20
    assert named - planted == set()
