"""A workflow controller: the requests of one queue, each dispatched by its type to its function.

Pure. All are checked when the queue is told of them, and what is dispatched looks to a server like
one handler. Source: spec S4; CSEP, "workflow controller".
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from onceq.errors import InvalidValue
from onceq.model.names import shown
from onceq.model.signature import Expected, check_handler, is_async, members, said


def checked(
    handler: Callable[..., Any] | Mapping[Any, Any], expected: Expected
) -> Callable[..., Any]:
    """Returns the one handler of a queue, of a function or a mapping. Raises InvalidValue."""
    if callable(handler) or not isinstance(handler, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] # it is what a program gave
        check_handler(handler, expected)
        return handler
    return _controller(dict(handler), expected)


def _controller(by_type: dict[Any, Any], expected: Expected) -> Callable[..., Any]:
    """Returns the handler that passes each request to the function of its type.

    by_type: a function for each class in the union that is the type of requests. Raises
    InvalidValue if one is missing, or is of no request, if classes do not tell requests apart, and
    if some functions are async and others are not.
    """
    _check_classes(by_type, expected)
    for kind, handler in by_type.items():
        where = f"{expected.where}: {kind.__qualname__}"
        check_handler(handler, replace(expected, where=where, request=kind))
    if len({is_async(one) for one in by_type.values()}) > 1:
        raise InvalidValue(
            f"{expected.where}: some of its functions are async and others are not: make all of"
            " them `async def`, or none"
        )
    if is_async(next(iter(by_type.values()))):

        async def dispatch_async(request: Any, context: Any) -> Any:
            return await by_type[type(request)](request, context)

        return dispatch_async

    def dispatch(request: Any, context: Any) -> Any:
        return by_type[type(request)](request, context)

    return dispatch


def _has_own_class(kind: Any) -> bool:
    """Returns whether what is decoded is of this class itself, and so tells what it is."""
    is_class = isinstance(kind, type) and kind not in {Any, object}
    return is_class and not (typing.is_typeddict(kind) or inspect.isabstract(kind))


def _check_classes(handlers: Mapping[Any, Any], expected: Expected) -> None:
    """Checks that there is a function for each class of requests, and for nothing else."""
    kinds = [*members(expected.request)]
    for kind in kinds:
        if not _has_own_class(kind):
            raise InvalidValue(
                f"{expected.where}: requests of {said(kind)} are not told apart by their class:"
                " give one function for all"
            )
    for kind in handlers:
        if kind not in kinds:
            raise InvalidValue(
                f"{expected.where}: {said(kind) if isinstance(kind, type) else shown(kind)} is no"
                f" type of its requests, which are {', '.join(map(said, kinds))}"
            )
    if missing := [kind for kind in kinds if kind not in handlers]:
        raise InvalidValue(
            f"{expected.where}: nothing handles {', '.join(map(said, missing))}: give a function"
            " for each type of its requests"
        )
