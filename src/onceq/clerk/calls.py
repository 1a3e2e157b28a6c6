"""What Clerk and AsyncClerk share: what they know, and what they check before sending it.

Private to the clerk. A call is checked here and becomes a Program, which either clerk runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypedDict, TypeVar

from onceq.clerk import policy as policies
from onceq.clerk import processing, program, receiving, recovery, streaming, transactions, watching
from onceq.clerk.alone import Alone
from onceq.clerk.session import Reply, Session
from onceq.engine.sessions.session import in_transaction, is_broken
from onceq.errors import IllegalState
from onceq.model import names
from onceq.model.arguments import check_function, check_kind
from onceq.model.element import RequestAttributes
from onceq.model.end_user import attributes_of
from onceq.model.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from onceq.clerk.policy import Processed, ReplyPolicy
    from onceq.engine.perform.async_driver import AsyncPostgresDriver
    from onceq.engine.perform.driver import PostgresDriver
    from onceq.model.client_state import ClientState, Recovery
    from onceq.model.element import EndUser, KillAnswer, SendAttributes, Whereabouts
    from onceq.model.ops import Program, Sent, TakeReply, ThreadTags

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")


WINDOW_MAX = 100_000


class ClerkOptions(TypedDict, total=False):
    """How a clerk is made, as keywords.

    thread: of the client (C7); each has a session of its own. window: how many requests may be
    outstanding or not acknowledged, 1 to 100,000, 1 by default (C6). keep: how many of the last
    acknowledged replies stay for `rereceive` by rid, 0 to 100,000, none by default.
    """

    thread: str
    window: int
    keep: int


class Calls(Generic[T, R]):
    """What both clerks know and check before anything is sent. who: returns the caller."""

    _awaits: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        queue: Queue[T, R],
        who: Callable[[], object],
        **options: Unpack[ClerkOptions],
    ) -> None:
        names.check_id("registrant", name)
        where = f"the clerk of client {name!r}"
        check_kind(Queue, where, queue)
        names.check_keywords(where, options, ClerkOptions)
        thread = options.get("thread", "")
        window, keep = options.get("window", 1), options.get("keep", 0)
        if thread != "":
            names.check_id("thread", thread)
        names.check_range("window", window, 1, WINDOW_MAX)
        names.check_range("keep", keep, 0, WINDOW_MAX)
        self._session: Session[T, R] = Session(
            name=name, thread=thread, queue=queue, window=window, keep=keep
        )
        self._alone = Alone(who)
        self._caller: PostgresDriver | AsyncPostgresDriver | None = None
        self._is_taking = False

    @property
    def state(self) -> ClientState:
        """Where this client is (BHM90 figure 1); after connect, what was recovered."""
        return self._session.state

    @property
    def last_sent(self) -> str | None:
        """The rid of the last request, s_rid."""
        return self._session.s_rid

    @property
    def last_user(self) -> EndUser | None:
        """The end user of the last request, and where they were (C19)."""
        return self._session.user

    @property
    def last_received(self) -> str | None:
        """The rid of the last reply received with a checkpoint or acknowledged, r_rid."""
        return self._session.r_rid

    @property
    def checkpoint(self) -> bytes | None:
        """The checkpoint given with the last receive."""
        return self._session.ckpt

    @property
    def was_disconnected(self) -> bool:
        """Whether the former session was ended by `disconnect`."""
        return self._session.was == "disconnected"

    @property
    def outstanding(self) -> list[str]:
        """The rids sent whose replies are not handed out yet, in the order of sending."""
        return list(self._session.outstanding)

    @property
    def unacknowledged(self) -> list[str]:
        """The rids whose replies are handed out but not acknowledged."""
        return list(self._session.received)

    @property
    def room(self) -> int:
        """How many requests may be sent now, before any is received and acknowledged (C6)."""
        return max(0, self._session.window - program.in_window(self._session))

    def _settled(self, then: Program[A]) -> Program[A]:
        return transactions.settled(self._session, then)

    def _refuse_open(self) -> None:
        """Refuses to wait for this client's own transaction: it would wait for ever.

        It also refuses if a receive in it was cut short, which may have taken the reply.
        """
        has_taken = self._is_taking or self._session.taken is not None
        if not has_taken or self._caller is None:
            return
        connection = self._caller.connection
        if in_transaction(connection) and not is_broken(connection):
            raise IllegalState("a reply was received in a transaction that is still open: end it")

    def _check_on_timeout(self, on_timeout: Callable[..., Any] | None) -> None:
        if on_timeout is not None:
            check_function("on_timeout", on_timeout, may_await=self._awaits)

    def _begin(self, rid: str | None, timeout_s: float | None) -> Program[Reply[R]]:
        if rid is not None:
            names.check_id("rid", rid)
        return transactions.begin(self._session, rid, names.check_timeout(timeout_s))

    def _take(self, rid: str, checkpoint: bytes | None) -> TakeReply:
        return transactions.take_op(self._session, rid, names.check_tag(checkpoint))

    def _send(self, rid: str, request: T, attributes: RequestAttributes) -> Program[Sent]:
        queue = self._session.queue
        names.check_id("rid", rid)
        sent = _attributes(attributes)
        return self._settled(program.send(self._session, rid, queue.encode_request(request), sent))

    def _send_one_way(self, rid: str, request: T, attributes: RequestAttributes) -> Program[None]:
        names.check_id("rid", rid)
        sent = _attributes(attributes)
        body = self._session.queue.encode_request(request)
        return self._settled(program.send_one_way(self._session, rid, body, sent))

    def _send_many(self, requests: Iterable[tuple[str, T]]) -> Program[list[Sent]]:
        queue = self._session.queue
        pairs: list[tuple[str, bytes]] = []
        for pair in names.check_each("requests", requests):
            rid, value = names.check_pair("request", pair)
            pairs.append((names.check_id("rid", rid), queue.encode_request(value)))
        rids, bodies = [rid for rid, _ in pairs], [body for _, body in pairs]
        return self._settled(program.send_many(self._session, rids, bodies))

    def _receive(
        self, checkpoint: bytes | None, timeout_s: float | None, rid: str | None, limit: int
    ) -> Program[list[Reply[R]]]:
        if checkpoint is not None:
            names.check_bytes("checkpoint", checkpoint)
        names.check_range("limit", limit, 1, WINDOW_MAX)
        timeout_s = names.check_timeout(timeout_s)
        if rid is not None:
            names.check_id("rid", rid)
        return self._settled(
            receiving.receive(
                self._session, ckpt=checkpoint, rid=rid, limit=limit, timeout_s=timeout_s
            )
        )

    def _acknowledge(self, rids: list[str], checkpoint: bytes | None) -> Program[int]:
        if checkpoint is not None:
            names.check_bytes("checkpoint", checkpoint)
        chosen = [names.check_id("rid", rid) for rid in names.check_each("rids", rids)]
        return self._settled(receiving.acknowledge(self._session, chosen, checkpoint))

    def _rereceive(self, rid: str | None) -> Program[Reply[R]]:
        if rid is not None:
            names.check_id("rid", rid)
        return self._settled(receiving.rereceive(self._session, rid))

    def _stream(
        self, requests: Iterable[tuple[str, T]], timeout_s: float | None
    ) -> streaming.Stream[R]:
        timeout_s = names.check_timeout(timeout_s)
        encode = self._session.queue.encode_request
        pairs = (
            names.check_pair("request", one) for one in names.check_iterator("requests", requests)
        )
        bodies = ((names.check_id("rid", rid), encode(value)) for rid, value in pairs)
        return streaming.Stream(self._session, bodies, timeout_s)

    def _step(self, stream: streaming.Stream[R]) -> Program[list[Reply[R]]]:
        return self._settled(stream.step())

    def _where(self, rid: str | None) -> Program[Whereabouts | None]:
        if rid is not None:
            names.check_id("rid", rid)
        return self._settled(watching.where(self._session, rid))

    def _alert_late(self, queue: str, late_s: float, rid: str | None) -> Program[list[str]]:
        names.check_queue(queue)
        names.check_seconds("late_s", late_s)
        if rid is not None:
            names.check_id("rid", rid)
        return self._settled(watching.alert_late(self._session, queue, late_s, rid))

    def _threads(self) -> Program[list[ThreadTags]]:
        return self._settled(watching.threads(self._session))

    def _process(
        self, handler: Callable[[Reply[R]], object], policy: ReplyPolicy, timeout_s: float | None
    ) -> Program[list[Processed[R]]]:
        wait_s = names.check_timeout(timeout_s)
        chosen = policies.check_policy(policy)
        check_function("the handler of `process`", handler, may_await=self._awaits)
        if chosen.act is not None:
            check_function(f"`act` of policy {chosen.name!r}", chosen.act, may_await=self._awaits)
        return self._settled(processing.process(self._session, handler, chosen, wait_s))

    def _cancel(self, timeout_s: float) -> Program[KillAnswer]:
        wait_s = names.check_timeout(timeout_s)
        longest_s = names.TIMEOUT_S_MAX
        chosen_s = longest_s if wait_s is None else wait_s
        return self._settled(program.cancel_last_request(self._session, chosen_s))

    def _recover(
        self, rid: str | None, *, acknowledged: bool, by: recovery.Basis
    ) -> Program[Recovery]:
        if rid is not None:
            names.check_id("rid", rid)
        names.check_flag("acknowledged", acknowledged)
        names.check_choice("by", by, recovery.BASES)
        found = recovery.recover(self._session, rid, acknowledged=acknowledged, by=by)
        return self._settled(found)


def _attributes(given: RequestAttributes) -> SendAttributes:
    """Returns the checked attributes of a send. InvalidName, InvalidValue, TooLarge."""
    names.check_keywords("send", given, RequestAttributes)
    sent = attributes_of(given)
    names.check_attributes(sent)
    return sent
