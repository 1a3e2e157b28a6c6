"""What a program gives to be called: checked where it is given, and what it has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from onceq.errors import HandlerMisuse, InvalidValue
from onceq.streams.handlers import check_callable, refuse_idle, why_idle
from onceq.streams.model import events

OnEvent: TypeAlias = Callable[[events.Event], None]


def check_handler(on_event: OnEvent | None) -> OnEvent | None:
    """Return a handler of events, or None.

    Raises InvalidValue for what cannot be called, or would have to be awaited.
    """
    if on_event is None:
        return None
    check_callable("on_event", on_event, "each event")
    if idle := why_idle(on_event, is_awaited=False):
        raise InvalidValue(f"on_event {idle}")
    return on_event


def heard_by(on_event: OnEvent) -> OnEvent:
    """Return what calls a handler of events. A task that it returns runs by itself."""

    def heard(event: events.Event) -> None:
        returned: Any = on_event(event)  # type: ignore[func-returns-value] # of a wrong one it does
        if not asyncio.isfuture(returned):
            refuse_idle("on_event", returned, "make it a plain `def`")

    return heard


def check_show(show: object, *, is_awaited: bool) -> None:
    """Raise InvalidValue for what cannot be called; HandlerMisuse for what would do nothing."""
    check_callable("show", show, "each message")
    if idle := why_idle(show, is_awaited=is_awaited):
        raise HandlerMisuse(f"show {idle}" + ("" if is_awaited else ", or use streams.open_async"))


def check_choose(choose: object) -> None:
    """Raise InvalidValue for what cannot be called with what is known of a stream."""
    if choose is None:
        return
    check_callable("choose", choose, "what is known (streams.RecoveryInfo)")
    if idle := why_idle(choose, is_awaited=False):
        raise InvalidValue(f"choose {idle}")
