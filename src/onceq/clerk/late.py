"""Whether a client goes on waiting for a reply that is late: it is asked, or awaited."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from onceq.errors import ReceiveTimeout
from onceq.model.arguments import check_function

OnTimeout: TypeAlias = Callable[[ReceiveTimeout], bool | None]
AsyncOnTimeout: TypeAlias = Callable[[ReceiveTimeout], Awaitable[bool | None] | bool | None]


def check_on_timeout(on_timeout: object, *, may_await: bool) -> None:
    """Checks what is called when no reply came in time, if anything is. InvalidValue."""
    if on_timeout is not None:
        check_function("on_timeout", on_timeout, may_await=may_await)


def waits_on(on_timeout: OnTimeout, late: ReceiveTimeout) -> bool:
    """Returns whether the client wants to wait as long again."""
    return on_timeout(late) is True


async def async_waits_on(on_timeout: AsyncOnTimeout, late: ReceiveTimeout) -> bool:
    """The same; what it returns may have to be awaited."""
    answer = on_timeout(late)
    return (await answer if inspect.isawaitable(answer) else answer) is True
