"""The glossary has the words that names are made of, and each of some words names one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import onceq
from onceq import errors, files
from tests.tidy.source_tree import PACKAGE, ROOT, place, python_files, syntax, verdict, words
from tests.tidy.test_names import names_of_path

if TYPE_CHECKING:
    from collections.abc import Iterator

GLOSSARY: Final = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS: Final = " ".join(re.findall(r"\*\*(.+?)\*\*", GLOSSARY)).lower()
"""What the glossary explains, or uses in an explanation and marks."""
ENDING: Final = re.compile(r"(?:e?s|e?d|ing|ion|or|er|ery|y|ies)$")

ORDINARY: Final = frozenset(
    """
address admin alone alter answer answering answers api arguments arrow asking async back base
binaries blame brief bulk caller cannot child cli clock closing cluster command compacting
components config crash cursors deadline decode decoding delta detected differ differing directory
disk doctor drain empty encode encoding engine exceeded exits extra facts faultpoints figures file
files final findings forking found frames full given gone hanging health html illegal in incoming
info init invalid java json judgements judging kind kinds large late launch left lines listening
loading locate locks log logged lost main migrate mismatch missing misuse model name names new not
old onceq one open opening operating options order otel output over page pages parquet perform
persistent pipelines plugin pooler postgres postgresql prepared privileges readers recording
records refusals refused relations replacing reused rows runner running schema scratch scripts
sealing security seen settings shown signal signals signature sockets spark sqlite stable start
statistics stopped summary table tables taken taker taking telemetry tell telling testing timeout
too traces transactions types units unsent unwrap up usage value version waiting wake way went
whole words work write writing
""".split()  # noqa: SIM905 - a list of words reads best as one
)
"""Words that mean in our names what they mean anywhere, and names of others' things."""

ONE_SENSE: Final = {
    "Lane": {"model/element.py"},
    "Life": {"files/program.py"},
    "Line": set[str](),
    "Place": {"history/events/final.py", "model/recovery.py"},
    "Role": {"model/element.py"},
    "Verdict": {"model/ops/server.py", "spark/serve/verdicts.py"},
    "Event": {"history/events/kinds.py", "telemetry.py"},
}
"""Classes named by a word that once had several senses: the modules where it has the one left."""


def stems(word: str) -> set[str]:
    """Return a word, and what it may be made of: trimmed and trim, wake and waking."""
    stem = ENDING.sub("", word)
    return {word, stem, f"{stem}e", f"{stem}y", re.sub(r"([bdgmnprt])\1$", r"\1", stem)}


EXPLAINED: Final = frozenset(
    stem for word in re.findall(r"[a-z]+", TERMS) for stem in stems(word) if len(stem) > 2
)


def is_in_glossary(word: str) -> bool:
    """Return whether a word, or one of the same stem, is explained."""
    return not EXPLAINED.isdisjoint(stems(word))


def names_in_use() -> Iterator[tuple[str, str]]:
    """Yield (place, name) of each module, and of what is public."""
    for path in python_files("src"):
        for name in names_of_path(path):
            yield place(path), name
    for module in (onceq, errors, files):
        for name in module.__all__:
            yield module.__name__, name


def test_the_glossary_has_the_words_of_names() -> None:
    found = {
        word: f"of {name} ({where}) is not in docs/glossary.md"
        for where, name in names_in_use()
        for word in words(name)
        if word not in ORDINARY and not is_in_glossary(word)
    }
    verdict("word not explained", found.items())


def test_no_word_is_called_ordinary_for_nothing() -> None:
    used = {word for _, name in names_in_use() for word in words(name)}
    assert sorted(ORDINARY - used) == []


def test_words_that_were_given_one_sense_keep_it() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in python_files("src"):
        for node in syntax(path).body:
            if isinstance(node, ast.ClassDef) and node.name in ONE_SENSE:
                found[node.name].add(path.relative_to(PACKAGE).as_posix())
    assert {name: found[name] for name in ONE_SENSE} == ONE_SENSE
