"""Arguments of the operations: one of the wrong kind is refused at once, in words.

Pure. The message says what is wanted, where, what was given, and what to write. Names, numbers and
the like are checked in `names`; values of onceq's own, here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from onceq.errors import InvalidValue
from onceq.model import names, signature
from onceq.model.ops import AlterQueue, Registered
from onceq.model.periodic import Periodic
from onceq.model.queue import Handled, Queue

T = TypeVar("T")

WANTED: Final[dict[type[Any], tuple[str, str]]] = {
    Queue: (
        "the queue is an onceq.Queue",
        "give the value that onceq.Queue(name, request_type, reply_type) returned",
    ),
    Handled: (
        "what is served is a queue with its handler",
        "write Server([queue.handled_by(handler)])",
    ),
    AlterQueue: (
        "the change is an onceq.AlterQueue",
        "write alter(onceq.AlterQueue(queue='orders', abort_limit=3))",
    ),
    Periodic: (
        "the periodic request is an onceq.Periodic",
        "write onceq.Periodic('nightly', queue, request, '0 2 * * *')",
    ),
    Registered: (
        "the handle is what `register` returned first",
        "write (handle, *_) = register(queue, registrant)",
    ),
}
"""For each class, what the argument is, and what to do."""


def check_kind(kind: type[T], where: str, value: object) -> T:
    """Returns a value if it is of a class of the table, or raises InvalidValue."""
    if isinstance(value, kind):
        return value
    what, advice = WANTED[kind]
    raise InvalidValue(f"{where}: {what}, not {names.shown(value)}: {advice}")


def check_handled(handled: object) -> tuple[Handled[Any, Any], ...]:
    """Returns what a server serves: at least one queue, each once. InvalidValue."""
    given: Any = handled
    is_one = given is None or isinstance(given, Handled) or callable(given)
    if is_one:
        what, advice = WANTED[Handled]
        raise InvalidValue(f"Server: {what}, in a list, not {names.shown(handled)}: {advice}")
    each = names.check_each("Server: what is served", handled)
    for one in each:
        check_kind(Handled, "Server", one)
    found: tuple[Handled[Any, Any], ...] = tuple(each)
    if not found:
        raise InvalidValue("a server needs at least one queue.handled_by(handler)")
    if len({one.queue.name for one in found}) < len(found):
        raise InvalidValue("a queue is handled twice in one server")
    return found


def check_function(kind: str, value: object, *, may_await: bool) -> Callable[..., Any]:
    """Returns a function that the client gives to be called, or raises InvalidValue.

    may_await: it may be async.
    """
    if not callable(value):
        raise InvalidValue(f"{kind} is a function, not {names.shown(value)}")
    if not may_await and signature.is_async(value):
        raise InvalidValue(
            f"{kind} is async, but this clerk does not await it: make it a plain def, or use "
            "an AsyncClerk, of onceq.open_async"
        )
    return value
