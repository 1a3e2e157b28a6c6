"""The programs of "Survive your own crash", word for word, each run twice, and what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.examples.pages import BLOCK, FILE_NAME, blocks, reader, shell, text_of, write_files

if TYPE_CHECKING:
    from pathlib import Path

PAGE = text_of("docs/survive-your-own-crash.md")


def programs() -> list[str]:
    """Returns the program of each text that the page shows as printed."""
    name, runs = "", list[str]()
    for language, text in BLOCK.findall(PAGE):
        named = FILE_NAME.match(text)
        name = name if named is None else named[1]
        runs += [name] if language == "text" else []
    return runs


def test_the_page_has_a_program_for_each_way() -> None:
    assert programs() == [
        name for name in ("session.py", "shop.py", "beside.py", "elsewhere.py") for _ in range(2)
    ]


@pytest.mark.timeout(400)
def test_the_programs_print_what_the_page_says(tmp_path: Path) -> None:
    """With the repository, the server and the second database that its script makes."""
    write_files(PAGE, tmp_path)
    found = blocks(PAGE)
    runs = "".join(f"python {name}\n" for name in programs())
    script = f"{{\n{found['bash']}}} >&2\n{runs}kill $!\nwait\n"
    printed, complaints = shell(script, tmp_path, reader(), 300)
    assert printed == found["text"], complaints
