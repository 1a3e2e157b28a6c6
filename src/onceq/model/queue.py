"""Queues as values: typed, declared once, shared by client and server. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import UnionType
from typing import (
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

import msgspec

from onceq.errors import InvalidValue
from onceq.model import names, signature, stable_json
from onceq.model.code_pages import (
    BINARY,
    JSON,
    JSON_OF_TEXTS,
    check_content_type,
    in_utf8,
)
from onceq.model.context import AsyncContext, Context
from onceq.model.controller import checked
from onceq.model.limits import beyond_limits
from onceq.model.retention import Retention
from onceq.model.terms import ABORT_LIMIT, Terms, check_terms
from onceq.model.value_types import check_value_type
from onceq.model.words import Word

Request = TypeVar("Request")
Reply = TypeVar("Reply")

BATCH_MAX = 1000
IsolationLevel: TypeAlias = Literal["read committed", "repeatable read", "serializable"]
ISOLATION_LEVELS: Final[tuple[IsolationLevel, ...]] = get_args(IsolationLevel)
ORDERS: Final = ("strict",)
ON_FAILURE: Final = ("fail", "hold")
RANGES: Final = {
    "abort_limit": ABORT_LIMIT,
    "retry_limit": (0, 1000),
    "backoff_ms": (0, 86_400_000),
    "backoff_max_ms": (0, 2**31 - 1),
    "execution_limit_s": (1, 604_800),
    "body_bytes_max": (1, 268_435_456),
    "tag_bytes_max": (1, 16_777_216),
}
"""The least and the greatest value of a queue's numbers; backoff_max_ms is >= backoff_ms too."""
LIMITS_MAX: Final = {"depth": 10**12, "bytes": 10**15}


def content_type_of(kind: type[Any], given: object = None) -> str:
    """Returns the content type in which values of this type travel. given: by the sender, or None.

    Raises InvalidValue: only bytes may be of any.
    """
    if given is None:
        return BINARY if kind is bytes else JSON
    if kind is not bytes:
        raise InvalidValue(
            f"content_type is for requests of type bytes; {kind!r} travels as {JSON}: leave it out"
        )
    return check_content_type(given)


def encode(kind: type[Any], value: Any, what: str, *, limited: bool = False) -> bytes:
    """Returns the bytes of a value: the value itself if it is bytes, else JSON.

    limited: see `decode`. Raises InvalidValue when the value is not of the type; nothing happened.
    """
    if kind is bytes:
        return names.check_bytes(what, value)
    try:
        body = stable_json.encode(kind, value)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        raise InvalidValue(f"the {what} is not a {kind!r}: {error}") from error
    decode(kind, body, what, limited=limited)
    return body


def decode(
    kind: type[Any], body: bytes, what: str, *, texts: bool = False, limited: bool = False
) -> Any:
    """Returns the value that was encoded. Raises InvalidValue when it is of another type.

    texts: numbers, dates and the like may be text, like the fields of a CSV file. limited: values
    beyond `limits` are refused as if they were of another type.
    """
    if kind is bytes:
        return body
    try:
        value = msgspec.json.decode(body, type=kind, strict=not texts)
        wrong = beyond_limits(kind, value) if limited else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(f"the {what} is not a {kind!r}: {error}") from error
    if wrong is not None:
        raise InvalidValue(f"the {what} is not a {kind!r}: {wrong}")
    return value


class QueueKind(Word):
    """What a queue is for. REPLY: the replies of one client. ERROR: what failed elsewhere."""

    REQUEST = "request"
    REPLY = "reply"
    ERROR = "error"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a queue takes (Q13): a send that would go over is refused, with QueueFull.

    depth: the most elements, 1 to 10**12. bytes: the most bytes of their bodies together, 1 to
    10**15. None: any number. What is in the queue is measured now and then, not counted, so a queue
    of more than 100 elements may get some more than that (docs/operations.md). Raises InvalidValue.
    """

    depth: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, most in LIMITS_MAX.items():
            if getattr(self, name) is not None:
                names.check_range(f"limits: {name}", getattr(self, name), 1, most)

    @property
    def is_given(self) -> bool:
        """True: SQL tells limits that are to be taken away from those that are to stay."""
        return True


UNLIMITED: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What a queue does with its elements.

    abort_limit: the number of charged aborts at which an element fails, 1 to 1000. retry_limit: how
    often `Retry`, or a fault of the environment that counts, leaves it uncharged, 0 to 1000; after
    the next it runs alone, and from then on it is charged. backoff_ms: the wait after the first
    abort, doubled by each further one up to backoff_max_ms. execution_limit_s: the longest
    execution, after which PostgreSQL ends the server's session. body_bytes_max, tag_bytes_max: the
    largest body and tag. durable: False keeps the contents only until the database crashes (Q7).
    keep_body: history keeps request and reply bodies. error_queue: None means NAME.error. order:
    "strict" runs one element at a time, the first that was sent first, and takes no priority, no
    not_before, no dequeue by eid and no Spark (Q8); None: in about that order, many at a time. It
    is chosen when the queue is created. limits: how much the queue takes. on_failure: "hold" keeps
    what reaches its abort limit in the queue itself, without a reply, until an operator has it run
    again or gives it up (G3); what is rejected fails at once, as ever. history_days: how long
    history tells of a request after its end, 1 to 36,500; and until it is in the archive, if there
    is one. Its rid stays known. None: until somebody trims it (Q17).
    """

    abort_limit: int = 5
    retry_limit: int = 10
    backoff_ms: int = 100
    backoff_max_ms: int = 60_000
    execution_limit_s: int = 3600
    body_bytes_max: int = names.BODY_BYTES_MAX
    tag_bytes_max: int = names.TAG_BYTES_MAX
    durable: bool = True
    keep_body: bool = False
    error_queue: str | None = None
    order: str | None = None
    limits: Limits = UNLIMITED
    on_failure: str = "fail"
    history_days: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            low = self.backoff_ms if name == "backoff_max_ms" else least
            names.check_range(name, getattr(self, name), low, most)
        names.check_flag("durable", self.durable)
        names.check_flag("keep_body", self.keep_body)
        if self.error_queue is not None:
            names.check_queue(self.error_queue)
        if self.order is not None:
            names.check_choice("order", self.order, ORDERS)
        check_limits(self.limits)
        names.check_choice("on_failure", self.on_failure, ON_FAILURE)
        Retention(history_days=self.history_days)


def check_limits(limits: object) -> None:
    """Raises InvalidValue unless these are Limits."""
    if not isinstance(limits, Limits):
        raise InvalidValue(f"limits is onceq.Limits(depth=..., bytes=...), not {limits!r:.80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue as it is now: its settings, and how many elements are where.

    paused_until: until when nothing is dequeued since the environment failed; None: it is not.
    """

    queue_id: int
    name: str
    kind: QueueKind
    settings: QueueSettings
    enqueue_started: bool
    dequeue_started: bool
    ready: int
    claimed: int
    waiting: int
    suspect: int
    held: int
    created_at: datetime
    oldest_at: datetime | None
    paused_until: datetime | None = None

    @property
    def depth(self) -> int:
        """The number of elements in the queue; replies that are only kept do not count."""
        return self.ready + self.claimed + self.waiting + self.suspect + self.held


class Settings(TypedDict, total=False):
    """The settings of a queue, as keywords; QueueSettings says what they mean."""

    abort_limit: int
    retry_limit: int
    backoff_ms: int
    backoff_max_ms: int
    execution_limit_s: int
    body_bytes_max: int
    tag_bytes_max: int
    durable: bool
    keep_body: bool
    error_queue: str | None
    order: str | None
    limits: Limits
    on_failure: str
    history_days: int | None


class HandlerOptions(Terms, total=False):
    """How a handler is called, as keywords. Terms says what abort_limit and error_queue are.

    isolation: of its transaction, "read committed" by default. batch: how many
    waiting requests, 1 to 1,000, may share one transaction; a server never waits for more to come.
    If one of them fails, all is rolled back, and the handler is called again with the others too:
    leave it at 1 for a handler that calls outside services. effects: False declares that the
    handler writes nothing, so that volatile elements need not wait for the disk.
    """

    isolation: IsolationLevel
    batch: int
    effects: bool


@dataclass(frozen=True, slots=True)
class Handled(Generic[Request, Reply]):
    """A queue with the function that handles its requests. Made by `Queue.handled_by`.

    batch: how many requests may share a transaction. effects: whether the handler may write.
    abort_limit, error_queue: in place of the queue's; None: the queue's.
    """

    queue: Queue[Request, Reply]
    handler: Callable[..., Any]
    isolation: str = "read committed"
    batch: int = 1
    effects: bool = True
    abort_limit: int | None = None
    error_queue: str | None = None

    @property
    def is_async(self) -> bool:
        """Whether the handler runs on an event loop."""
        return signature.is_async(self.handler)


@dataclass(frozen=True, init=False)  # with slots, Queue[A, B](...) is an error of Python 3.11
class Queue(Generic[Request, Reply]):
    """A typed queue: its name, the types of its requests and replies, and its settings.

    A value: making one does no I/O. Types are `bytes`, or whatever msgspec encodes as JSON:
    Structs, dataclasses, dicts, ...; docs/types.md has the table. Requests may be of several types:
    `Queue[Order | Cancel, Receipt]("orders", Order | Cancel, Receipt)`. Settings are those of
    `QueueSettings`, as keywords. Raises InvalidName or InvalidValue.
    """

    name: str
    request_type: type[Request]
    reply_type: type[Reply]
    settings: QueueSettings

    def __init__(
        self,
        name: str,
        request_type: type[Request] | UnionType,
        reply_type: type[Reply] | UnionType,
        **settings: Unpack[Settings],
    ) -> None:
        names.check_keywords(f"queue {names.shown(name)}", settings, Settings)
        object.__setattr__(self, "name", names.check_queue(name))
        check_value_type(f"the requests of queue {name!r}", request_type)
        check_value_type(f"the replies of queue {name!r}", reply_type)
        object.__setattr__(self, "request_type", request_type)
        object.__setattr__(self, "reply_type", reply_type)
        object.__setattr__(self, "settings", QueueSettings(**settings))

    @overload
    def handled_by(
        self,
        handler: Callable[[Request, Context], Reply],
        **options: Unpack[HandlerOptions],
    ) -> Handled[Request, Reply]: ...
    @overload
    def handled_by(
        self,
        handler: Callable[[Request, AsyncContext], Coroutine[Any, Any, Reply]],
        **options: Unpack[HandlerOptions],
    ) -> Handled[Request, Reply]: ...
    @overload
    def handled_by(
        self, handler: Mapping[type[Any], Callable[..., Any]], **options: Unpack[HandlerOptions]
    ) -> Handled[Request, Reply]: ...
    def handled_by(
        self,
        handler: Callable[..., Any] | Mapping[type[Any], Callable[..., Any]],
        **options: Unpack[HandlerOptions],
    ) -> Handled[Request, Reply]:
        """Returns this queue with the function that handles its requests, for `Server([...])`.

        The handler is called with (request, context) and returns the reply; `async def` runs on
        an event loop. It may be a function, a bound method, a partial or an object with `__call__`,
        or a mapping, `{Order: book, Cancel: cancel}`: a function for each type of requests.
        This checks at once that it takes these arguments, and that its annotations, if it has any,
        are this queue's types. options: isolation, batch, effects, abort_limit and error_queue,
        described in HandlerOptions. Raises InvalidName, InvalidValue.
        """
        where = f"queue {self.name!r}"
        names.check_keywords(f"{where}: handled_by", options, HandlerOptions)
        names.check_range("batch", options.get("batch", 1), 1, BATCH_MAX)
        names.check_flag("effects", options.get("effects", True))
        isolation = options.get("isolation", ISOLATION_LEVELS[0])
        names.check_choice("isolation", isolation, ISOLATION_LEVELS)
        check_terms(self.name, options.get("abort_limit"), options.get("error_queue"))
        expected = signature.Expected(
            where=where,
            request=self.request_type,
            reply=self.reply_type,
            context=Context,
            async_context=AsyncContext,
        )
        return Handled(self, checked(handler, expected), **options)

    def encode_request(self, value: Request) -> bytes:
        """Returns the bytes of a request. Raises InvalidValue; nothing happened."""
        what = f"request for queue {self.name!r}"
        return encode(self.request_type, value, what, limited=True)

    def decode_request(self, body: bytes, content_type: str | None = None) -> Request:
        """Returns the request in these bytes. Raises InvalidValue, which names the field.

        This is the one decoder of requests: for every kind of server, it decides whether a request
        is of the queue's type. content_type: the element's; with JSON_OF_TEXTS, text is converted
        to the field's type; JSON may be in another code page than UTF-8 if it names that.
        """
        what = f"request in queue {self.name!r}"
        texts = content_type == JSON_OF_TEXTS
        if content_type != JSON and self.request_type is not bytes:
            body = in_utf8(body, content_type, what)
        return decode(self.request_type, body, what, texts=texts, limited=True)  # type: ignore[no-any-return] # typed by request_type

    def encode_reply(self, value: Reply) -> bytes:
        """Returns the bytes of a reply. Raises InvalidValue; nothing happened."""
        return encode(self.reply_type, value, f"reply of queue {self.name!r}")

    def decode_reply(self, body: bytes) -> Reply:
        """Returns the reply in these bytes. Raises InvalidValue."""
        return decode(self.reply_type, body, f"reply of queue {self.name!r}")  # type: ignore[no-any-return] # typed by reply_type
