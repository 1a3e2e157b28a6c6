"""What our own processes put beside the text of an error: which of ours it is, under a token.

Used by source and sink, which tell, and by the supervisor, which hears. Spark hands on the errors
of its Python processes as text only, and that text quotes what clients sent. The token is drawn for
one life of a server and shown to its processes alone: what stands under it no value can forge.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from onceq.errors import OnceqError
from onceq.server.execution import ERROR_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Word", "heard_in", "new_token", "telling", "word_of"]

_TOKEN_BYTES: Final = 16


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """An error of onceq. kind: the name of its class. sqlstate: PostgreSQL's, if it said one."""

    kind: str
    text: str
    sqlstate: str | None = None


def new_token() -> str:
    """Returns a token that nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


def word_of(error: OnceqError) -> Word:
    """Returns what is told of an error."""
    return Word(
        kind=type(error).__name__,
        text=str(error)[:ERROR_CHARS_MAX],
        sqlstate=getattr(error, "sqlstate", None),
    )


@contextlib.contextmanager
def telling(token: str) -> Generator[None]:
    """Puts a word beside the text of an error of onceq that ends the block; no token: nothing."""
    try:
        yield
    except OnceqError as error:
        if token:
            error.add_note(f"{_mark(token)}{msgspec.json.encode(word_of(error)).decode()}")
        raise


def heard_in(text: str, token: str) -> Word | None:
    """Returns the last word under this token in what Spark says of an error."""
    _, mark, said = text.rpartition(_mark(token))
    if not token or not mark:
        return None
    return msgspec.json.decode(said.partition("\n")[0], type=Word)


def _mark(token: str) -> str:
    return f"onceq:{token}:"
