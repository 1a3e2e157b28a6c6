"""How `make docs` builds the documentation: the pages as they are, and the API from docstrings.

The source folder is the checkout, so that links between pages, the README and examples hold here as
they do in a clone. The contents in the sidebar are the headings and links of docs/README.md.
Docstrings are plain text with `code` in single backticks; `as_rst` makes reStructuredText of them.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from onceq.version import __version__  # noqa: E402 - its path comes first

project = "onceq"
release = __version__
project_copyright = "the authors of onceq"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/README"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/**.md",
]
exclude_patterns = [".*", "src", "tests", "bench", "proof", "build", "dist", "docs/images"]
html_theme = "furo"
html_title = f"onceq {release}"
myst_heading_anchors = 3
myst_links_external_new_tab = False
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "__new__"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
suppress_warnings = ["toc.not_included"]  # pages of examples are reached by links

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"^- .*?\]\(([^)#]+\.md)\)", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
MARKUP = re.compile(r"([\\*|]|_(?!\w))")
TO_A_FILE = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\)")


def contents(text: str) -> str:
    """Return the tables of contents of a page: its links, by the heading above them."""
    _, *parts = HEADING.split(text)
    tables = [
        f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n"
        + "\n".join(LINK.findall(body))
        + "\n```\n"
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    ]
    return "\n".join(tables)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add its contents to the first page; a link to a folder, which is no page, is its text."""
    place = (ROOT / f"{name}.md").parent
    source[0] = TO_A_FILE.sub(
        lambda found: found[1] if (place / found[2]).is_dir() else found[0], source[0]
    )
    if name == app.config.root_doc:
        source[0] += "\n" + contents(source[0])


def as_rst(_app: Sphinx, *arguments: Any) -> None:
    """Make reStructuredText of a docstring: its code, its indented blocks, all else as text."""
    lines: list[str] = arguments[-1]
    made: list[str] = []
    literal = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not literal and not (made and made[-1].strip()):
            literal = True
            made += ["::", ""]
        literal = literal and (indented or not line.strip())
        made.append(line if literal else plain(line))
    lines[:] = made


def plain(line: str) -> str:
    """Return a line in which nothing is markup but code."""
    parts = CODE.split(line.strip())
    parts[::2] = [MARKUP.sub(r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``" for part in parts[1::2]]
    return "".join(parts)


def lead_to_the_first_page(app: Sphinx, error: Exception | None) -> None:
    """Write an index.html that leads to the first page."""
    if error is None:
        page = f'<meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">\n'
        (Path(app.outdir) / "index.html").write_text(page)


def setup(app: Sphinx) -> None:
    """Connect the functions above; a diagram in Mermaid is shown as its text."""
    app.add_lexer("mermaid", importlib.import_module("pygments.lexers.special").TextLexer)
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("build-finished", lead_to_the_first_page)
