"""Content types, and the code pages that they name: `text/plain; charset=cp037` (spec Q9). Pure."""

from __future__ import annotations

import re
import reprlib
from typing import Final

from onceq.errors import InvalidValue

JSON: Final = "application/json"
JSON_OF_TEXTS: Final = "application/json; fields=text"
"""JSON in which every value is a text, as in a row of a CSV file."""
BINARY: Final = "application/octet-stream"
CONTENT_TYPE_CHARS_MAX: Final = 200

_WORD = r"[A-Za-z0-9_.+-]+"
_CONTENT_TYPE: Final = re.compile(rf"{_WORD}/{_WORD}(; ?{_WORD}={_WORD})*")
_CODE_PAGE: Final = re.compile(r';\s*charset="?([^";\s]+)', re.IGNORECASE)
_UTF_8: Final = "utf-8"


def check_content_type(text: object) -> str:
    """Returns a content type, or raises InvalidValue: also if Python knows no such code page."""
    is_short = isinstance(text, str) and len(text) <= CONTENT_TYPE_CHARS_MAX
    if not isinstance(text, str) or not is_short or not _CONTENT_TYPE.fullmatch(text):
        raise InvalidValue(
            "a content type is a str like 'text/plain; charset=cp037', of at most "
            f"{CONTENT_TYPE_CHARS_MAX} characters, not {reprlib.repr(text)}"
        )
    _check_code_page(code_page_of(text) or _UTF_8)
    return text


def _check_code_page(name: str) -> None:
    try:
        "".encode(name)
    except LookupError as error:
        raise InvalidValue(f"the code page {name!r} is not known: {error}") from None


def code_page_of(content_type: str | None) -> str | None:
    """Returns the code page that a content type names; JSON's is UTF-8; None: it names none."""
    if content_type is None:
        return None
    named = _CODE_PAGE.search(content_type)
    if named is not None:
        return named[1].lower()
    return _UTF_8 if content_type.partition(";")[0] == JSON else None


def in_utf8(body: bytes, content_type: str | None, what: str) -> bytes:
    """Returns a text in UTF-8 that may be in another code page. InvalidValue: it is not."""
    page = code_page_of(content_type)
    if page in (None, _UTF_8):
        return body
    _check_code_page(page)
    try:
        return body.decode(page).encode()
    except UnicodeError as error:
        raise InvalidValue(f"the {what} is not text of code page {page!r}: {error}") from None
