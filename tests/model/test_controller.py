"""A workflow controller: each request goes to the function of its type, or is refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pytest

import onceq
from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable


class Open(msgspec.Struct, tag=True):
    owner: str


class Close(msgspec.Struct, tag=True):
    number: int


class Other(msgspec.Struct, tag=True):
    pass


ACCOUNTS = onceq.Queue[Open | Close, str]("accounts", Open | Close, str)
LISTS: Any = onceq.Queue[Any, str]("lists", list[int] | int, str)
CONTEXT: Any = None


def begin(one: Open, _: onceq.Context) -> str:
    return f"opened for {one.owner}"


def end(one: Close, _: onceq.Context) -> str:
    return f"closed {one.number}"


async def begin_async(one: Open, _: onceq.AsyncContext) -> str:
    await asyncio.sleep(0)
    return f"opened for {one.owner}"


async def end_async(one: Close, _: onceq.AsyncContext) -> str:
    await asyncio.sleep(0)
    return f"closed {one.number}"


def test_each_request_goes_to_the_function_of_its_type() -> None:
    handled = ACCOUNTS.handled_by({Open: begin, Close: end}, batch=10)
    assert (handled.is_async, handled.batch) == (False, 10)
    assert handled.handler(Open("ann"), CONTEXT) == "opened for ann"
    assert handled.handler(Close(7), CONTEXT) == "closed 7"


def test_functions_may_be_async() -> None:
    handled = ACCOUNTS.handled_by({Close: end_async, Open: begin_async})
    assert handled.is_async
    assert asyncio.run(handled.handler(Close(7), CONTEXT)) == "closed 7"


def test_what_is_changed_later_changes_nothing() -> None:
    handlers: dict[type[Any], Callable[..., Any]] = {Open: begin, Close: end}
    handled = ACCOUNTS.handled_by(handlers)
    handlers.clear()
    assert handled.handler(Open("ann"), CONTEXT) == "opened for ann"


class Row(TypedDict):
    number: int


ROWS: Any = onceq.Queue[Any, str]("rows", Row, str)
ALL: Any = Any
ANYTHING: Any = onceq.Queue[Any, str]("anything", ALL, str)
MANY: Any = onceq.Queue[Any, str]("many", Sequence | int, str)
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "missing": (ACCOUNTS, {Open: begin}, "'accounts': nothing handles Close: give a function for"),
    "empty": (ACCOUNTS, {}, "nothing handles Open, Close"),
    "unknown": (
        ACCOUNTS,
        {Open: begin, Close: end, Other: end},
        "Other is no type of its requests, which are Open, Close",
    ),
    "a name": (ACCOUNTS, {"Open": begin, Close: end}, "'Open' is no type of its requests"),
    "swapped": (ACCOUNTS, {Open: end, Close: begin}, "'accounts': Open: end takes Close, but"),
    "no function": (ACCOUNTS, {Open: "begin", Close: end}, "Open: a handler is a function"),
    "mixed": (ACCOUNTS, {Open: begin_async, Close: end}, "some of its functions are async"),
    "a dict": (ROWS, {Row: begin}, "requests of Row are not told apart"),
    "anything": (ANYTHING, {ALL: begin}, "are not told apart"),
    "abstract": (MANY, {Sequence: begin, int: end}, "Sequence are not told apart"),
    "no class": (LISTS, {list: begin, int: end}, r"requests of list\[int\] are not told apart"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_at_once(case: str) -> None:
    queue, handlers, text = REFUSED[case]
    with pytest.raises(InvalidValue, match=text):
        queue.handled_by(handlers)
