"""What an application gives to be called: refused if a call would do nothing. Pure.

Used by the api and by bridges, where it is given, and when it has returned: who looks into what a
call returned is not there, so a coroutine or a generator would pass for work that was done.
"""

from __future__ import annotations

import inspect
from typing import Any

from onceq.errors import HandlerMisuse, InvalidValue
from onceq.model.names import shown


def check_callable(name: str, given: object, what: str) -> None:
    """Raises InvalidValue for what cannot be called. what: to be given instead, in words."""
    if not callable(given):
        raise InvalidValue(f"{name} is {shown(given)}: give a function that is called with {what}")


def why_idle(function: object, *, is_awaited: bool) -> str:
    """Returns why a call of a function does nothing by itself, and what to do; empty: it does.

    is_awaited: what the call returns is awaited.
    """
    calls = [function]
    if not isinstance(function, type):
        calls.append(getattr(function, "__call__", None))  # noqa: B004 # an object whose __call__ it is
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in calls):
        return "yields, and nobody iterates over what it yields: leave out `yield`"
    if not is_awaited and any(inspect.iscoroutinefunction(one) for one in calls):
        return "is `async def`, and nobody awaits it here: make it a plain `def`"
    return ""


def refuse_idle(name: str, returned: Any, advice: str) -> None:
    """Raises HandlerMisuse if a call returned what nobody awaits, or iterates over.

    advice: what to do about what would have to be awaited.
    """
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        returned.close()  # it had not begun: nothing warns of it later
    if inspect.isawaitable(returned):
        raise HandlerMisuse(f"{name} returned what nobody awaits, so it had no effects: {advice}")
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise HandlerMisuse(
            f"{name} returned a generator, and nobody iterates over it, so it had no effects:"
            " leave out `yield`"
        )
