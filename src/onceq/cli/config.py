"""Which repository is meant: arguments first, then the environment, then the project's file.

The file is `onceq.toml`, or the table `[tool.onceq]` of `pyproject.toml`, in this directory or
the nearest one above that has one. Its keys are `url` and `repository`; a relative `embedded:`
path in it is relative to the file. Only the command line reads it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, cast

from onceq.engine.embedded.locate import EMBEDDED, resolve_url
from onceq.errors import InvalidValue
from onceq.model.names import check_repository

KEYS: Final = frozenset({"url", "repository"})
DEFAULT_REPOSITORY: Final = "onceq"


class Given(TypedDict):
    """A repository as arguments, of `onceq.open` and of others that are told of one."""

    url: str | None
    repository: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A repository by name. url: as for `onceq.open`; if empty, libpq's own variables apply."""

    url: str
    repository: str

    @property
    def given(self) -> Given:
        """It as arguments."""
        return {"url": self.url or None, "repository": self.repository}


def choose(url: str | None, repository: str | None, environment: Mapping[str, str]) -> Target:
    """Returns the repository that is meant. InvalidName; InvalidValue when none is named."""
    chosen = repository or environment.get("ONCEQ_REPOSITORY")
    file: dict[str, str] = {}
    try:
        found = resolve_url(url, environment)
    except InvalidValue:
        file = read_file(Path.cwd())
        if "url" not in file:
            raise InvalidValue(
                "no repository is named: give --url embedded:./data or --url postgresql://..., "
                'or set ONCEQ_URL, or put url = "..." into onceq.toml'
            ) from None
        found = file["url"]
    if chosen is None:
        chosen = (file or read_file(Path.cwd())).get("repository", DEFAULT_REPOSITORY)
    return Target(url=found, repository=check_repository(chosen))


def chosen_repository(repository: str | None) -> str:
    """Returns just the repository's name, for commands that need no database. InvalidName."""
    named = repository or os.environ.get("ONCEQ_REPOSITORY")
    return check_repository(named or read_file(Path.cwd()).get("repository", DEFAULT_REPOSITORY))


def read_file(directory: Path) -> dict[str, str]:
    """Returns what the nearest file says; empty if there is no file. InvalidValue."""
    for folder in (directory, *directory.parents):
        for name in ("onceq.toml", "pyproject.toml"):
            path = folder / name
            table = _table(path) if path.is_file() else None
            if table is not None:
                return _checked(table, path)
    return {}


def _table(path: Path) -> object:
    """Returns the settings in a file, or whatever is in their place; None if it has none."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        if path.name == "pyproject.toml":
            return None
        raise InvalidValue(f"{path} cannot be read as TOML: {error}") from None
    if path.name == "onceq.toml":
        return content
    tools: object = content.get("tool")
    return cast("dict[str, object]", tools).get("onceq") if isinstance(tools, dict) else None


def _checked(found: object, path: Path) -> dict[str, str]:
    if not isinstance(found, dict):
        raise InvalidValue(f"{path}: tool.onceq is to be a table, [tool.onceq], not {found!r:.60}")
    table: dict[str, str] = {}
    for key, value in cast("dict[str, object]", found).items():
        if key not in KEYS or not isinstance(value, str):
            raise InvalidValue(
                f"{path}: {key} = {value!r} is not known: url and repository, both texts, are"
            )
        table[key] = value
    url = table.get("url", "")
    if url.startswith(EMBEDDED):
        try:
            folder = path.parent / Path(url.removeprefix(EMBEDDED)).expanduser()
        except (RuntimeError, ValueError) as error:  # no home directory is known; a NUL
            raise InvalidValue(f"{path}: url = {url!r}: {error}") from None
        return {**table, "url": f"{EMBEDDED}{folder}"}
    return table
