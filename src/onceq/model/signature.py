"""Whether a function can be a handler: checked once, where it is given, not for each request.

Pure. It refuses what can never work: a value that cannot be called, or not with (request, context),
a class, a generator, and a function whose annotations contradict its queue. An annotation
that cannot be resolved here, or says less than a class, is passed over: type checkers see it.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from onceq.errors import InvalidValue
from onceq.model.names import shown

_UNRESOLVED: Final = (
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What evaluating an annotation may raise if its names are not available here."""
_PROMOTED: Final = {(int, float), (int, complex), (float, complex)}
"""Types that type checkers accept for one another."""
_UNIONS: Final = (typing.Union, types.UnionType)
_AWAITABLE: Final[Any] = Awaitable
_PARTIAL: Final[Any] = functools.partial
_FIELDS: Final = ("__struct_fields__", "__dataclass_fields__", "__pydantic_fields__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a handler must be. where: what it is given to, in words.

    context, async_context: what a sync and an async one is given; None: it may not be async. also:
    what it may return besides replies.
    """

    where: str
    request: Any
    reply: Any
    context: type[Any]
    async_context: type[Any] | None = None
    also: tuple[Any, ...] = ()


def is_async(handler: object) -> bool:
    """Returns whether a function, or a callable object, is a coroutine function."""
    return inspect.iscoroutinefunction(_function(handler))


def check_handler(handler: Any, expected: Expected) -> None:
    """Checks a handler of (request, context). Raises InvalidValue, which says what is wrong."""
    where = expected.where
    if not callable(handler):
        raise InvalidValue(
            f"{where}: a handler is a function (request, context), not {shown(handler)}"
        )
    if isinstance(handler, type):
        raise InvalidValue(
            f"{where}: a handler is a function, not the class {handler.__qualname__}: give an "
            "object of it that can be called, or a bound method"
        )
    name, function = _name(handler), _function(handler)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(
            f"{where}: {name} yields, but a handler returns its one reply: use return"
        )
    asynchronous = inspect.iscoroutinefunction(function)
    if asynchronous and expected.async_context is None:
        raise InvalidValue(
            f"{where}: {name} is async, but is called without await: make it a plain def"
        )
    signature = _signature(handler)
    if signature is None:
        return
    request, context = _parameters(signature, where, name)
    if not hasattr(function, "__wrapped__"):  # otherwise its annotations are another function's
        given = expected.async_context if asynchronous else expected.context
        _check_annotations(
            _Annotated(f"{where}: {name}", function, signature, request, context), expected, given
        )


def _function(handler: Any) -> Any:
    """Returns the function that is finally called, behind partials, methods and objects."""
    handler = _unbound(handler)
    return handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004 # the method is wanted


def _unbound(handler: Any) -> Any:
    """Returns the function that a partial calls."""
    while isinstance(handler, _PARTIAL):
        handler = handler.func
    return handler


def _name(handler: Any) -> str:
    function = _unbound(handler)
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _signature(handler: Any) -> inspect.Signature | None:
    """Returns its own signature, not that of what it wraps; None if it does not tell."""
    try:
        return inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _parameters(
    signature: inspect.Signature, where: str, name: str
) -> tuple[inspect.Parameter, inspect.Parameter]:
    """Returns the parameters that take request and context. InvalidValue if there are none."""
    request, context = object(), object()
    try:
        bound = signature.bind(request, context)
    except TypeError as error:
        raise InvalidValue(
            f"{where}: {name}{_plain(signature)} cannot be called with (request, context): {error}"
            ": give it two parameters: request and context"
        ) from None
    taken = [
        signature.parameters[one]
        for one, value in bound.arguments.items()
        for given in (request, context)
        if value is given or (isinstance(value, tuple) and given in value)
    ]
    return taken[0], taken[1]


def _plain(signature: inspect.Signature) -> str:
    """Returns the parameters without their annotations."""
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


@dataclass(frozen=True, slots=True)
class _Annotated:
    """A handler whose annotations are being checked."""

    what: str
    function: Any
    signature: inspect.Signature
    request: inspect.Parameter
    context: inspect.Parameter


def _check_annotations(handler: _Annotated, expected: Expected, context: Any) -> None:
    asks = _resolved(handler.request.annotation, handler.function)
    wants = _resolved(handler.context.annotation, handler.function)
    if not all(_fits(one, asks) for one in members(expected.request)):
        swapped = _fits(context, asks) and all(
            _fits(one, wants) for one in members(expected.request)
        )
        but = f"requests are {said(expected.request)}"
        _refuse(handler, f"takes {said(asks)}", but, _SWAPPED if swapped else _EITHER)
    if not _fits(context, wants):
        _refuse(handler, f"takes {said(wants)}", f"its context is {said(context)}")
    returns = _resolved(handler.signature.return_annotation, handler.function)
    replies = [*members(expected.reply), *expected.also, type(None)]
    if not any(_may_be(one, reply) for one in members(returns) for reply in replies):
        _refuse(handler, f"returns {said(returns)}", f"replies are {said(expected.reply)}")


_EITHER = "change the one or the other"
_SWAPPED = "the parameters are swapped: def {name}({context}, {request})"


def _refuse(handler: _Annotated, says: str, but: str, advice: str = _EITHER) -> NoReturn:
    todo = advice.format(
        name=_name(handler.function).rpartition(".")[2],
        context=handler.context.name,
        request=handler.request.name,
    )
    raise InvalidValue(f"{handler.what} {says}, but {but}: {todo}")


def _resolved(annotation: Any, function: Any) -> Any:
    """Returns the type that an annotation means; Any if it cannot be determined."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, globalns=getattr(function, "__globals__", {}))
    except _UNRESOLVED:
        return Any
    return found["it"]


def members(kind: Any) -> Iterator[Any]:
    """Yields the types of a union; otherwise the type alone."""
    kind = getattr(kind, "__value__", kind)  # of a `type X = ...`
    if typing.get_origin(kind) in _UNIONS:
        for one in typing.get_args(kind):
            yield from members(one)
    else:
        yield kind


def _fits(given: Any, asked: Any) -> bool:
    """Returns whether a value of one type may be given where a type is asked for."""
    return any(_is_of(given, one) for one in members(asked))


def _may_be(returned: Any, reply: Any) -> bool:
    """Returns whether what is returned may be a reply; a dict may be any object with fields."""
    if _is_of(returned, reply) or _is_of(reply, returned):
        return True
    is_dict = isinstance(_class(returned), type) and issubclass(_class(returned), Mapping)
    return is_dict and any(hasattr(reply, name) for name in _FIELDS)


def _is_of(given: Any, asked: Any) -> bool:
    """Returns whether values of one type are values of another; True if that cannot be told."""
    one, other = _class(given), _class(asked)
    if not isinstance(one, type) or not isinstance(other, type):
        return True
    if (inspect.isabstract(one) and not issubclass(one, _AWAITABLE)) or getattr(
        other, "_is_protocol", False
    ):
        return True
    if typing.is_typeddict(one) and typing.is_typeddict(other):
        return one is other
    one, other = (dict if typing.is_typeddict(x) else x for x in (one, other))
    return (one, other) in _PROMOTED or issubclass(one, other)


def _class(kind: Any) -> Any:
    """Returns the class of a type's values; None if there is none."""
    if kind is Any:  # a class, to Python
        return None
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    origin = typing.get_origin(kind)
    return kind if origin is None else origin


def said(kind: Any) -> str:
    """Returns what a type is called in a message."""
    return kind.__qualname__ if isinstance(kind, type) else str(kind)
