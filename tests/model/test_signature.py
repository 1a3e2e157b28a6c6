# mypy: disable-error-code="empty-body"
"""A handler that cannot work is refused where it is given; one that can is not."""

from __future__ import annotations

import functools
import typing
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar
from unittest.mock import Mock

import msgspec
import pytest

import onceq
from onceq.errors import InvalidValue
from onceq.spark import RequestContext, each

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path as Unknown


class Order(msgspec.Struct):
    cents: int


class Special(Order):
    discount: int = 0


@dataclass
class Receipt:
    number: int


class Row(TypedDict):
    number: int


Cents = typing.NewType("Cents", int)
T = TypeVar("T")
ORDERS = onceq.Queue("orders", Order, Receipt)
SUMS: onceq.Queue[Any, Any] = onceq.Queue("sums", list[int], float)
ONE: Any = Order | int  # a union is no class, to a type checker
OTHER: Any = Receipt | str
EITHER = onceq.Queue[Any, Any]("either", ONE, OTHER)
ROWS = onceq.Queue("rows", Row, Row)
MANY: onceq.Queue[Any, Any] = onceq.Queue("many", Sequence, bytes)


def plain(order: Order, context: onceq.Context) -> Receipt: ...
async def later(order: Order, context: onceq.AsyncContext) -> Receipt: ...
def bare(order, context): ...  # type: ignore[no-untyped-def] # as people write it
def defaults(order: Order, context: Any = None, *, tries: int = 3) -> Receipt: ...
def anything(*args: Any, **options: Any) -> Any: ...
def unresolved(order: Unknown, context: Nowhere) -> Unknown: ...  # type: ignore[name-defined] # noqa: F821 # as with TYPE_CHECKING
def annotated(order: Annotated[Order, "x"], _: onceq.Context | None) -> Receipt | None: ...
def generic(order: T, context: object) -> T: ...
def a_dict(order: Order, context: onceq.Context) -> dict[str, int]: ...
def nothing(order: Order, context: onceq.Context) -> None: ...
def base(order: msgspec.Struct, context: onceq.Context) -> object: ...
def raises(order: Order, context: onceq.Context) -> typing.NoReturn: ...
def sums(numbers: Sequence[int], context: onceq.Context) -> int: ...
def either(one: Order | int | None, context: onceq.Context) -> str: ...
def rows(row: Mapping[str, int], context: onceq.Context) -> dict[str, int]: ...
def many(values: list[int], context: onceq.Context) -> bytes: ...


class Desk:
    def book(self, order: Order, context: onceq.Context) -> Receipt: ...

    @staticmethod
    def still(order: Order, context: onceq.Context) -> Receipt: ...

    @classmethod
    def of_all(cls, order: Order, context: onceq.Context) -> Receipt: ...

    def __call__(self, order: Order, context: onceq.Context) -> Receipt: ...

    async def later(self, order: Order, context: onceq.AsyncContext) -> Receipt: ...


class AsyncDesk:
    async def __call__(self, order: Order, context: onceq.AsyncContext) -> Receipt: ...


def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that gives its function one argument more, and makes something else of it."""

    @functools.wraps(function)
    def wrapper(request: Any, context: Any) -> Any:
        return Receipt(int(function("session", request, context)))

    return wrapper


@with_session
def wrapped(session: str, order: Order, context: onceq.Context) -> str: ...
def curried(how: str, order: Order, context: onceq.Context) -> Receipt: ...
async def curried_later(how: str, order: Order, _: onceq.AsyncContext) -> Receipt: ...


SYNC: list[tuple[onceq.Queue[Any, Any], Any]] = [
    *[(ORDERS, one) for one in (plain, bare, defaults, anything, unresolved, annotated, generic)],
    *[(ORDERS, one) for one in (a_dict, nothing, base, raises, wrapped, print, Mock())],
    *[(ORDERS, one) for one in (Desk().book, Desk.still, Desk.of_all, Desk(), lambda *_: None)],
    (ORDERS, functools.partial(curried, "quick")),
    (ORDERS, functools.partial(functools.partial(defaults), tries=5)),
    (ORDERS, functools.lru_cache(plain)),
    (SUMS, sums),
    (EITHER, either),
    (ROWS, rows),
    (MANY, many),
]
ASYNC: list[Any] = [later, Desk().later, AsyncDesk(), functools.partial(curried_later, "quick")]


def shown(one: Any) -> str:
    """Return a name that is the same in every process, unlike repr."""
    names = [getattr(one, "__qualname__", None), getattr(one, "name", None), type(one).__name__]
    return next(name for name in names if isinstance(name, str))


@pytest.mark.parametrize(("queue", "handler"), SYNC, ids=shown)
def test_a_handler_that_can_work_is_taken(queue: onceq.Queue[Any, Any], handler: Any) -> None:
    assert not queue.handled_by(handler).is_async


@pytest.mark.parametrize("handler", ASYNC, ids=shown)
def test_an_async_handler_is_known_as_such(handler: Any) -> None:
    assert ORDERS.handled_by(handler).is_async


def one(order: Order) -> Receipt: ...
def three(order: Order, context: onceq.Context, extra: int) -> Receipt: ...
def keyword(order: Order, context: onceq.Context, *, extra: int) -> Receipt: ...
def only_keywords(*, order: Order, context: onceq.Context) -> Receipt: ...
def yields(order: Order, _: onceq.Context) -> Iterator[Receipt]:
    yield Receipt(order.cents)


async def yields_later(order: Order, _: onceq.AsyncContext) -> AsyncIterator[Receipt]:
    yield Receipt(order.cents)


def of_text(order: str, context: onceq.Context) -> Receipt: ...
def of_special(order: Special, context: onceq.Context) -> Receipt: ...
def gives_order(order: Order, context: onceq.Context) -> Order: ...
def gives_text(order: Order, context: onceq.Context) -> str | bytes: ...
def awaitable(order: Order, context: onceq.Context) -> Awaitable[Receipt]: ...
def async_context(order: Order, context: onceq.AsyncContext) -> Receipt: ...
async def sync_context(order: Order, context: onceq.Context) -> Receipt: ...
def turned(context: onceq.Context, order: Order) -> Receipt: ...
def unknown(order: Order, context: onceq.Context, how: Unknown) -> None: ...


WRONG: list[tuple[Any, str]] = [
    (5, "queue 'orders': a handler is a function (request, context), not 5"),
    (None, "not None"),
    ("app:book", "not 'app:book'"),
    (ORDERS, "not a value of class Queue"),
    (Receipt, "not the class Receipt: give an object of it"),
    (Desk, "not the class Desk"),
    (one, "one(order) cannot be called with (request, context): too many positional arguments"),
    (three, "three(order, context, extra) cannot be called with (request, context): missing a"),
    (keyword, "missing a required"),
    (only_keywords, "too many positional arguments"),
    (Desk.book, "Desk.book(self, order, context) cannot be called"),
    (lambda: None, "<lambda>() cannot be called with (request, context)"),
    (functools.partial(plain, Order(1)), "plain(context) cannot be called"),
    (functools.partial(bare, context=5), "bare(order, *, context=5) cannot be called"),
    (yields, "yields yields, but a handler returns its one reply"),
    (yields_later, "yields_later yields"),
    (of_text, "of_text takes str, but requests are Order: change the one or the other"),
    (of_special, "of_special takes Special, but requests are Order"),
    (turned, "turned takes Context, but requests are Order: the parameters are swapped: def "),
    (turned, "def turned(order, context)"),
    (one, ": give it two parameters: request and context"),
    (gives_order, "gives_order returns Order, but replies are Receipt"),
    (gives_text, "returns str | bytes, but replies are Receipt"),
    (awaitable, "returns collections.abc.Awaitable["),
    (async_context, "async_context takes AsyncContext, but its context is Context"),
    (sync_context, "sync_context takes Context, but its context is AsyncContext"),
    (unknown, "missing a required"),
]


@pytest.mark.parametrize(("handler", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_a_handler_that_cannot_work_is_refused_at_once(handler: Any, says: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        ORDERS.handled_by(handler)
    assert says in str(refused.value)


def for_spark(order: Order, context: RequestContext) -> Receipt: ...


def test_a_function_for_spark_is_checked_alike() -> None:
    each(for_spark).for_queue(ORDERS)
    with pytest.raises(InvalidValue, match="takes Context, but its context is RequestContext"):
        each(plain).for_queue(ORDERS)  # type: ignore[arg-type] # what must be refused
    with pytest.raises(InvalidValue, match="without await"):
        each(later)  # type: ignore[arg-type] # what must be refused
    with pytest.raises(InvalidValue, match=r"each\(\): a handler is a function"):
        each(5)  # type: ignore[arg-type] # what must be refused
