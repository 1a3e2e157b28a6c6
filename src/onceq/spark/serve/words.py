"""What our own processes add to the text of an error: which error of ours it is, under a token.

Used by source and sink, which tell, and by the supervisor, which reads it. Spark passes on the
errors of its Python processes only as text, and that text quotes what clients sent. The token is
drawn for one life of a server and shown only to its processes, so no value can forge what is under
it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator
from typing import Final

import msgspec

from onceq.errors import OnceqError
from onceq.server.charges import ERROR_CHARS_MAX

_TOKEN_BYTES: Final = 16


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """An error of onceq. kind: the name of its class. sqlstate: PostgreSQL's, if there was one."""

    kind: str
    text: str
    sqlstate: str | None = None


def new_token() -> str:
    """Returns a token that nobody can guess."""
    return secrets.token_hex(_TOKEN_BYTES)


def word_of(error: OnceqError) -> Word:
    """Returns what is told about an error."""
    return Word(
        kind=type(error).__name__,
        text=str(error)[:ERROR_CHARS_MAX],
        sqlstate=getattr(error, "sqlstate", None),
    )


@contextlib.contextmanager
def telling(token: str) -> Generator[None]:
    """Adds a word to the text of a onceq error that ends the block; no token: nothing is added."""
    try:
        yield
    except OnceqError as error:
        if token:
            error.add_note(f"{_mark(token)}{msgspec.json.encode(word_of(error)).decode()}")
        raise


def heard_in(text: str, token: str) -> Word | None:
    """Returns the last word under this token in Spark's text about an error."""
    _, mark, said = text.rpartition(_mark(token))
    if not token or not mark:
        return None
    return msgspec.json.decode(said.partition("\n")[0], type=Word)


def _mark(token: str) -> str:
    return f"onceq:{token}:"
