"""The next onceq, as a release of level 2 would be: a copy of this one, with another schema.

Its `send_one` has a parameter more, which its code gives; the former one is kept, and so level 1 is
served. A column more is in the largest table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from onceq.engine.bind.binding import _SEND
from onceq.engine.schema.scripts import MIGRATIONS

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "src" / "onceq"
NUMBERED = ", ".join(f"p_{n} {kind}" for n, (_, kind) in enumerate(_SEND, 1))
GIVEN = ", ".join(f"p_{n}" for n in range(1, len(_SEND) + 1))
MIGRATION = f"{len(MIGRATIONS) + 1:04}_next"
COLUMN = "alter table onceq.element add column colour text;\n"
FUNCTIONS = f"""
create or replace function onceq.send_one({NUMBERED}, p_colour text) returns text
language sql volatile as $$ select onceq.send_one({GIVEN}) $$;
"""
CHANGES = {
    "version.py": ("LEVEL = 1\n", "LEVEL = 2\n"),
    "engine/schema/scripts.py": (
        f'    "{MIGRATIONS[-1]}",\n',
        f'    "{MIGRATIONS[-1]}",\n    "{MIGRATION}",\n',
    ),
    "engine/bind/binding.py": (
        '    ("request.sha256", "bytea"),\n)',
        '    ("request.sha256", "bytea"),\n    (NOTHING, "text"),\n)',
    ),
}


def make_next(folder: Path) -> None:
    """Makes the package in a folder, which is to be first on the path."""
    made = folder / "onceq"
    shutil.copytree(PACKAGE, made)
    for name, (old, new) in CHANGES.items():
        text = (made / name).read_text("utf-8")
        assert text.count(old) == 1, name
        (made / name).write_text(text.replace(old, new), "utf-8")
    scripts = made / "engine/schema/scripts.py"
    text = scripts.read_text("utf-8")
    scripts.write_text(text.replace('    "plain",\n', '    "plain",\n    "next",\n'), "utf-8")
    (made / f"engine/sql/migrations/{MIGRATION}.sql").write_text(COLUMN, "utf-8")
    (made / "engine/sql/functions/next.sql").write_text(FUNCTIONS, "utf-8")


class NextChild:
    """A process of the next onceq; see `next_child`. It goes on when it is told to."""

    def __init__(self, folder: Path, conninfo: str, repository: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "next_child.py"), conninfo, repository],
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        """Returns what it says next; empty: it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go_on(self) -> None:
        """Tells it so."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it, if it has not ended."""
        self._process.kill()
        self._process.communicate()
