"""What the documents name exists: files, headings, tests, rows of the specification."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from onceq.model.queue import QueueSettings
from proof import page
from proof.part import Size
from tests.tidy.source_tree import ROOT, files

DOCUMENTS = sorted(path for path in files() if path.suffix == ".md")
LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SOURCES = ROOT / "docs" / "maintainers" / "sources.md"
STATUSES = {"yes", "part", "planned"}
SPECIFICATION = ROOT / "docs" / "specification.md"
ROW = re.compile(r"^([A-Z])(\d+)(?: to [A-Z](\d+))?$")
FINDING = re.compile(r"^(\d+)\. ", re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """Return the anchors that a document's headings make."""
    headings = HEADING.findall(CODE.sub("", path.read_text(encoding="utf-8")))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def table_rows(path: Path) -> list[list[str]]:
    """Return the cells of every row of a document's tables, but for their heads."""
    lines = path.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    text = CODE.sub("", document.read_text(encoding="utf-8"))
    for name, anchor in LINK.findall(text):
        target = document if name == "" else (document.parent / name).resolve()
        assert target.exists(), f"{document.name} links to {name}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{name}#{anchor} is no heading"


def rows_named(names: list[str]) -> list[str]:
    """Return the ids of rows, one by one: "W1 to W3" is three."""
    found: list[str] = []
    for name in names:
        if match := ROW.match(name):
            first, last = int(match[2]), int(match[3] or match[2])
            found += [f"{match[1]}{number}" for number in range(first, last + 1)]
    return found


def test_sources_has_every_row_of_the_specification_once() -> None:
    specified = rows_named([row[0] for row in table_rows(SPECIFICATION)])
    findings = FINDING.findall(SPECIFICATION.read_text(encoding="utf-8"))
    listed = [row[0] for row in table_rows(SOURCES) if row[0] != "id"]
    assert len(specified) == len(set(specified)) > 0
    assert sorted(rows_named(listed)) == sorted(specified)
    assert [name for name in listed if name.isdigit()] == findings


def test_sources_names_tests_that_exist() -> None:
    for row in table_rows(SOURCES):
        if row[0] == "id":
            continue
        assert row[2] in STATUSES, row
        for named in re.findall(r"`(tests/[^`]+)`", " ".join(row)):
            assert (ROOT / named).is_file(), named


def test_sources_names_modules_that_exist() -> None:
    package = ROOT / "src" / "onceq"
    functions = package / "engine" / "sql" / "functions"
    named = re.findall(r"[\w/]+\.(?:py|sql)\b", SOURCES.read_text(encoding="utf-8"))
    modules = [name for name in named if not name.startswith("tests/")]
    missing = [
        name for name in modules if not ((package / name).is_file() or (functions / name).is_file())
    ]
    assert missing == []


def test_operations_has_every_setting_of_a_queue() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    settings = QueueSettings.__dataclass_fields__
    assert [name for name in settings if f"`{name}`" not in text] == []


def test_decisions_are_numbered_without_a_gap_and_listed() -> None:
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    decisions = sorted(folder.glob("[0-9]*.md"))
    for number, path in zip(itertools.count(1), decisions, strict=False):
        text = path.read_text(encoding="utf-8")
        assert path.name.startswith(f"{number:04}-")
        assert text.startswith(f"# {number}. ")
        assert f"]({path.name})" in listed
        for part in ("Context", "Decision", "Evidence", "Consequences"):
            assert f"\n## {part}\n" in text, f"{path.name} has no {part}"


def test_the_first_page_of_the_documentation_lists_all_others() -> None:
    """What it lists is the sidebar of `make docs`."""
    docs = ROOT / "docs"
    text = (docs / "README.md").read_text(encoding="utf-8")
    pages = {page.relative_to(docs).as_posix() for page in DOCUMENTS if docs in page.parents}
    decisions = {page for page in pages if page.startswith("adr/") and page != "adr/README.md"}
    unlisted = pages - decisions - {"README.md"}
    assert [page for page in sorted(unlisted) if f"]({page})" not in text] == []


def test_the_readme_is_short_and_names_the_first_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert [command for command in ("make run", "make test") if f"`{command}`" not in text] == []


def test_the_scoreboard_of_the_readme_is_that_of_the_record() -> None:
    """The proof writes both when it records the scoreboard."""
    found = [
        page.SCOREBOARD.search(path.read_text(encoding="utf-8"))
        for path in (page.README, page.path_of(Size.PROOF))
    ]
    tables = [None if table is None else table[0] for table in found]
    assert tables[0] is not None
    assert tables[0] == tables[1]
