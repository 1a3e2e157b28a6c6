"""What programs use of bridges: `into` a database, and `relay` from a queue.

What a bridge does is in `bridge`; here it is given what it works with. Source: spec M38.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, Required, TypedDict, TypeVar, Unpack

import msgspec

from onceq.engine.embedded.locate import Located, locate
from onceq.engine.schema.migrate import apply_with, verify_with
from onceq.errors import HandlerMisuse, IllegalState, InvalidName, InvalidValue
from onceq.model import names
from onceq.model.names import check_repository
from onceq.model.queue import Queue
from onceq.streams.api import given, handlers
from onceq.streams.api.given import ACCEPT_LOSS
from onceq.streams.api.handlers import OnEvent
from onceq.streams.bridge.effects import Application
from onceq.streams.bridge.hands import IntoContext
from onceq.streams.bridge.into import AsyncInto
from onceq.streams.bridge.relay import AsyncRelay, From
from onceq.streams.bridge.target import Target
from onceq.streams.handlers import check_callable, why_idle
from onceq.streams.net.alone import PROCESS
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver import ops
from onceq.streams.receiver.message import Message
from onceq.streams.receiver.tokens import Token
from onceq.streams.topic import Topic, check_topic

T = TypeVar("T")
DEFAULT_REPOSITORY = "onceq"
INTO_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,57}")
"""Of which a queue NAME.error can be made."""
UNNOTICED: Final = {"activity_timeout_ms": 0}
"""Relays fence each other in the database: a later one of the name takes over at once."""


class Kind(enum.StrEnum):
    """What a bridge is."""

    INTO = "into"
    RELAY = "relay"


class _Life(Protocol):
    async def run(self) -> None: ...
    def stop(self) -> None: ...


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """Where effects or queues are, as for `onceq.open`. None: not given."""

    url: str | None
    repository: str | None

    def completed(self, url: str | None, repository: str | None) -> Database:
        """Returns it with what was not given. InvalidValue for what was given otherwise."""
        for own, other in ((self.url, url), (self.repository, repository)):
            if own is not None and other is not None and own != other:
                raise InvalidValue(
                    f"this bridge was made for {names.shown(own)}, and is to run with"
                    f" {names.shown(other)}: give one of them"
                )
        return Database(url=self.url or url, repository=self.repository or repository)


class Bridge:
    """One life of a bridge, made by `into` or `relay`: `run` is all of it, in any thread.

    `into` raises DataLost (stores gave up what was not taken), StreamReplaced (nothing was taken of
    the other stream), Fenced (a later life has taken over), HandlerMisuse. A relay raises
    StreamReplaced, Fenced or SourceSucceeded, NumberConflict, QueueNotFound, IllegalState (the name
    is another queue's relay), RegistrationInUse (its session is that of a source which lives). Both
    raise IllegalState in a process that runs a store, or has run one, and CannotConnect,
    SchemaMissing and InvalidValue at the beginning; later they wait for a database and stores that
    are away. name: of the bridge; kind: which of the two it is; database: as it was given.
    """

    def __init__(
        self, name: str, kind: Kind, database: Database, make: Callable[[Located, str], _Life]
    ) -> None:
        self.name = name
        self.kind = kind
        self.database = database
        self._make = make
        self._lock = threading.RLock()  # a signal handler may call `stop` while `run` has it
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life: _Life | None = None
        self._is_stopped = self._is_used = False

    def run(self, *, url: str | None = None, repository: str | None = None) -> None:
        """Go on until `stop`. Ctrl-C ends it, too: what is under way then is undone.

        url, repository: for a bridge that was made without; else they are the same.
        """
        asyncio.run(self.run_async(url=url, repository=repository))

    async def run_async(self, *, url: str | None = None, repository: str | None = None) -> None:
        """As `run`, for asyncio; cancelled, what is under way is undone."""
        database = self.database.completed(url, repository)
        named = check_repository(database.repository or DEFAULT_REPOSITORY)
        with self._lock:
            if self._is_used:
                raise IllegalState("a bridge is run once; make another one")
            PROCESS.open_context()
            self._is_used = True
        with contextlib.ExitStack() as stack:
            stack.callback(PROCESS.close_context)
            located = await asyncio.to_thread(_reach, database.url, named)
            stack.callback(located.close)
            life = self._make(located, named)
            with self._lock:
                if self._is_stopped:
                    return
                self._loop, self._life = asyncio.get_running_loop(), life
            try:
                await life.run()
            finally:
                with self._lock:
                    self._loop = None

    def stop(self) -> None:
        """End the life, from any thread or signal handler, when what it does now has its end."""
        with self._lock:
            self._is_stopped = True
            if self._loop is not None and self._life is not None:
                self._loop.call_soon_threadsafe(self._life.stop)


def _reach(url: str | None, repository: str) -> Located:
    located = locate(url)
    prepare = verify_with if located.embedded is None else apply_with
    try:
        prepare(located.conninfo, repository)
    except BaseException:
        located.close()
        raise
    return located


class Where(TypedDict, total=False):
    """Where the repository is, as for `onceq.open`; and certificates, beyond this machine."""

    url: str | None
    repository: str
    certificates: Certificates | None


class IntoOptions(Where, total=False):
    """The rest of what `into` may be given.

    source_session_id: of the source; it must be given. batch: most messages of a transaction,
    1,000. abort_limit: how often a message may raise, alone, before it goes to the queue
    NAME.error, 5. fail_on_data_loss: False: what stores gave up is passed, and told to on_event.
    """

    source_session_id: Required[int]
    on_event: OnEvent | None
    batch: int
    abort_limit: int
    fail_on_data_loss: bool


class RelayOptions(Where, total=False):
    """The rest of what a relay may be given.

    session_id: of its source; it must be given, and nobody else's. listen: where receivers find
    it; None: they read from stores. batch: most requests that are planned at once, 1,000. idle_s:
    how long an empty queue is left before the next look, 0.2. accept_loss: as of a source: what the
    event `stores_forgot` of the log says; a relay without it waits for the stores.
    """

    session_id: Required[int]
    listen: str | None
    batch: int
    idle_s: float
    accept_loss: str


def into(
    topic: Topic[T],
    handler: Callable[[list[Message[T]], IntoContext[Any]], Awaitable[Any] | Any],
    *,
    name: str,
    at: str,
    **options: Unpack[IntoOptions],
) -> Bridge:
    """Returns a bridge by which messages of a topic take effect in a database, each exactly once.

    handler: called with messages that are stable, in order, and a context whose `connection` is in
    the transaction that also moves the position of this name: it commits nothing itself. A batch
    that raises is halved; what raises alone, too often, goes to the queue NAME.error. If it raises
    or returns Retry, the same comes again, later; Reject gives a message up at once. It may be
    `async def`: then the connection is psycopg's for asyncio. name: of the position; two that run
    under one name fence each other. at: stores of the stream, separated by spaces. Raises
    InvalidValue, InvalidName; HandlerMisuse for a handler that yields.
    """
    check_topic(topic)
    _check_handler(handler)
    _check_options("streams.into", options, IntoOptions)
    certificates, database = options.get("certificates"), _database(options)
    target = Target(
        name=_into_name(name),
        topic=topic.name,
        source=given.required_session("source_session_id", options.get("source_session_id")),
        at=given.store_list(given.shared(None, certificates, None), at, name="at"),
        batch=options.get("batch", 1_000),
        abort_limit=options.get("abort_limit", 5),
        fail_on_data_loss=options.get("fail_on_data_loss", True),
    )
    application = Application(
        handler=handler,
        decode=lambda one: Message(topic, one, _keep),
        on_event=options.get("on_event"),
    )

    def make(located: Located, repository: str) -> AsyncInto:
        where = located, repository
        return AsyncInto(target, application, where, certificates=certificates)

    return Bridge(name, Kind.INTO, database, make)


def relay(
    queue: Queue[T, Any],
    topic: Topic[T],
    *,
    name: str,
    stores: str,
    **options: Unpack[RelayOptions],
) -> Bridge:
    """Returns a bridge by which what is in a queue becomes messages of a topic, each exactly once.

    It takes requests that owe no reply (`enqueue`), in their order; once their numbers are planned
    they are not killable, and they end when they are stable. name: of the relay; two that run under
    one name fence each other. stores: of its source. Raises InvalidValue, InvalidName.
    """
    check_topic(topic)
    _check_queue(queue)
    if queue.request_type is not topic.value_type:
        raise InvalidValue(
            f"queue {queue.name!r} has requests of {queue.request_type!r}, and topic {topic.name!r}"
            f" values of {topic.value_type!r}: they are passed on as they are, so give one type"
        )
    _check_options("streams.relay", options, RelayOptions)
    certificates, database = options.get("certificates"), _database(options)
    session = given.required_session("session_id", options.get("session_id"))
    shared = given.shared(session, certificates, None)
    parts = given.source_parts(
        shared,
        topic,
        stores=stores,
        listen=options.get("listen"),
        session_id=None,
        given={**UNNOTICED, ACCEPT_LOSS: options.get(ACCEPT_LOSS, "")},
    )
    of = From(
        name=names.check_id("relay", name),
        queue=queue.name,
        batch=options.get("batch", 1_000),
        ahead=4 * options.get("batch", 1_000),
        idle_s=options.get("idle_s", 0.2),
    )

    def make(located: Located, repository: str) -> AsyncRelay:
        where = located, repository
        return AsyncRelay(of, parts.core, where, listen=parts.listen, certificates=certificates)

    return Bridge(name, Kind.RELAY, database, make)


def _database(options: Where) -> Database:
    return Database(url=options.get("url"), repository=options.get("repository"))


def _check_queue(queue: object) -> None:
    if not isinstance(queue, Queue):
        raise InvalidValue(f"queue is {names.shown(queue)}: give an onceq.Queue")


def _check_handler(handler: object) -> None:
    check_callable("handler", handler, "a list of messages, and a context")
    if idle := why_idle(handler, is_awaited=True):
        raise HandlerMisuse(f"the handler {idle}")


def _into_name(name: object) -> str:
    if not isinstance(name, str) or not INTO_NAME.fullmatch(name):
        raise InvalidName(
            f"name is {names.shown(name)}: give 1 to 57 of A-Z a-z 0-9 _ . - to the position: a"
            " queue NAME.error is called by it"
        )
    return name


def _text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidValue(f"{name} is {names.shown(value)}: give a text, or leave it out")


def _repository(_: str, value: object) -> None:
    if value is not None:
        check_repository(value)


def _certificates(name: str, value: object) -> None:
    if value is not None and not isinstance(value, Certificates):
        raise InvalidValue(f"{name} is {names.shown(value)}: give streams.Certificates")


def _count(name: str, value: object) -> None:
    names.check_range(name, value, 1, names.LIMIT_MAX)


def _handler_of_events(_: str, value: Any) -> None:
    handlers.check_handler(value)


CHECKS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "url": _text,
    "repository": _repository,
    "certificates": _certificates,
    "on_event": _handler_of_events,
    "batch": _count,
    "abort_limit": _count,
    "fail_on_data_loss": names.check_flag,
    "idle_s": names.check_seconds,
}
"""What is checked of options; of sessions, addresses and losses `given` does it."""


def _check_options(where: str, options: Mapping[str, object], known: type[Any]) -> None:
    """Raises InvalidValue for what a bridge has no option for, and for what cannot be."""
    names.check_keywords(where, options, known)
    for name, value in options.items():
        if name in CHECKS:
            CHECKS[name](name, value)


def _keep(_: ops.Message) -> Token:
    raise IllegalState("messages of `into` are acknowledged when their effects are committed")
