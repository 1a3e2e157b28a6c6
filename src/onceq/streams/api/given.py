"""What is given to contexts, sources and receivers, checked before anything is begun."""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec

from onceq.errors import IllegalState, InvalidValue
from onceq.model.names import shown
from onceq.streams.api.handlers import OnEvent, check_choose, check_handler, heard_by
from onceq.streams.model.losses import LOSS_EXAMPLE, Acceptance, acceptance
from onceq.streams.model.low import RecoveryInfo, next_number
from onceq.streams.model.options import Scope, settled
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.net.address import Address, address, refuse_unless_safe
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.driver import Wishes
from onceq.streams.receiver.placing import Who
from onceq.streams.receiver.seeking import Id, SourceRegistration
from onceq.streams.source import regids
from onceq.streams.source.epochs import SourceLife
from onceq.streams.source.options import core_of
from onceq.streams.source.sending import Sending
from onceq.streams.store.records import key_of
from onceq.streams.topic import Topic

Deliver: TypeAlias = Literal["stable", "live"]
_DELIVER: Final = ("stable", "live")
_SESSION_MAX: Final = 2**64 - 1
_STORES: Final = "127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403"
_NOWHERE: Final = StoreList(groups=())
"""The stores of a receiver that will learn them."""


class SourceOptions(TypedDict, total=False):
    """The options of a source, as keywords; the table of options says what they mean.

    Beside it: backups: stores as in a list, group by group, which take the places of those of their
    group that do not answer. accept_loss: what the event StoresForgot says: go on without what more
    stores have lost than a list allows.
    """

    retention_intragroup_stability_behavior: Literal["quorum", "all"]
    retention_intergroup_stability_behavior: Literal["any", "all_active", "all"]
    flight_size: int
    flight_size_bytes: int
    flight_size_behavior: Literal["block", "notify"]
    fragment_size: int
    message_stability_notification: Literal["off", "stable", "each_store"]
    message_stability_timeout_ms: int
    message_stability_lifetime_ms: int
    registration_interval_ms: int
    retention_unique_confirmations: int
    retransmit_retention_size_threshold: int
    retransmit_retention_size_limit: int
    source_liveness_timeout_ms: int
    activity_timeout_ms: int
    consensus_sequence_number_behavior: Literal["lowest", "majority", "highest"]
    create: Literal["all", "quorum"]
    late_join: bool
    backups: str
    accept_loss: str


class ReceiverOptions(TypedDict, total=False):
    """The options of a receiver, as keywords; the table of options says what they mean.

    Beside it: source_session_id: of the source, where several send on the topic. regid: the id that
    a receiver without a session chose itself; or it is called with what its source is called at
    stores, and returns the id. choose: called with what is known before the life begins; it may
    return the number to begin with.
    """

    consensus_sequence_number_behavior: Literal["lowest", "majority", "highest"]
    retransmit_request_maximum: int | None
    ack_batching_interval_ms: int
    application_outstanding_maximum: int
    explicit_ack_only: bool
    allow_confirmed_delivery: bool
    receiver_liveness_interval_ms: int
    activity_timeout_ms: int
    use_late_join: bool
    source_session_id: int
    regid: int | Callable[[SourceRegistration], int]
    choose: Callable[[RecoveryInfo], int | None]


BACKUPS: Final = "backups"
ACCEPT_LOSS: Final = "accept_loss"
BESIDE_SOURCE: Final = frozenset({BACKUPS, ACCEPT_LOSS})
"""What a source may be given that is no option of the table."""
BESIDE: Final = frozenset({"source_session_id", "regid", "choose"})
"""What a receiver may be given that is no option of the table."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What a context gives to all that it makes. Of an object its own counts before that.

    pid: of the process that opened it.
    """

    session_id: int | None
    certificates: Certificates | None
    on_event: OnEvent | None = None
    pid: int = msgspec.field(default_factory=os.getpid)

    @property
    def is_elsewhere(self) -> bool:
        """Whether its context belongs to the process that this one was forked from."""
        return self.pid != os.getpid()

    def refuse_elsewhere(self) -> None:
        """Raise IllegalState in a process that was forked since: nobody is there to do anything."""
        if self.is_elsewhere:
            raise IllegalState(
                "a context belongs to the process that opened it, with its sources and receivers,"
                " and this process was forked from that: nothing happened; open a context here,"
                " with a session of its own"
            )

    @property
    def has_tls(self) -> bool:
        """Whether others than this machine may be reached."""
        return self.certificates is not None

    def session(self, own: int | None) -> int:
        """Return the session of an object: its own, or else the context's; 0: there is none."""
        return check_session(own) or self.session_id or 0

    def handler(self, own: OnEvent | None) -> OnEvent | None:
        """Return the handler of an object's events: its own, or else the context's.

        What calls it raises HandlerMisuse if that returns what nobody awaits. Raises InvalidValue
        for what cannot be called, or would do nothing.
        """
        handler = self.on_event if check_handler(own) is None else own
        return None if handler is None else heard_by(handler)


def shared(session_id: object, certificates: object, on_event: OnEvent | None) -> Shared:
    """Return what a context gives to all that it makes. Raises InvalidValue."""
    if certificates is not None and not isinstance(certificates, Certificates):
        raise InvalidValue(
            f"certificates is {shown(certificates)}: give onceq.streams.Certificates, or None"
        )
    return Shared(
        session_id=check_session(session_id),
        certificates=certificates,
        on_event=check_handler(on_event),
    )


def check_session(session_id: object) -> int | None:
    """Return a session id, or None. Raises InvalidValue."""
    if session_id is None:
        return None
    return _number("session_id", session_id, _SESSION_MAX)


def required_session(name: str, session_id: object) -> int:
    """Return a session id that must be given, under this name. Raises InvalidValue."""
    return _number(name, session_id, _SESSION_MAX)


def _number(name: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InvalidValue(f"{name} is {shown(value)}: give a whole number from 1 to {most:#x}")
    return value


def _text(name: str, value: object, example: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"{name} is {shown(value)}: give a text such as {example!r}")
    return value


def _list(
    shared: Shared, stores: object, options: Mapping[str, Any], name: str = "stores"
) -> StoreList:
    """Return the list of stores that a source is given."""
    text = _text(name, stores, _STORES)
    made = listed(
        text,
        intragroup=options["retention_intragroup_stability_behavior"],
        intergroup=options["retention_intergroup_stability_behavior"],
    )
    for store in sorted(made.stores):
        refuse_unless_safe(address(store), has_tls=shared.has_tls)
    return made


def store_list(shared: Shared, stores: object, name: str = "stores") -> StoreList:
    """Return the list of stores that are to be asked. Raises InvalidValue, by this name."""
    return _list(shared, stores, settled({}, Scope.SOURCE), name)


class SourceParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is made of: its core, where it listens, and its options."""

    core: Sending
    listen: Address | None
    options: Mapping[str, Any]

    def relist(self, shared: Shared, stores: str) -> StoreList:
        """Return another list of stores, by the same rules."""
        return _list(shared, stores, self.options)


def source_parts(
    shared: Shared,
    topic: Topic[Any],
    *,
    stores: str,
    listen: str | None,
    session_id: int | None,
    given: Mapping[str, Any],
) -> SourceParts:
    """Check what a source is given. Raises InvalidValue, which says what to do."""
    table = {name: value for name, value in given.items() if name not in BESIDE_SOURCE}
    options: Any = settled(table, Scope.SOURCE)
    backups = given.get(BACKUPS, "")
    if backups:
        _list(shared, backups, options)
    plain, its = regids.split(_text("stores", stores, _STORES))
    life = SourceLife(
        life=secrets.randbits(63) + 1,
        born_s=int(time.time()),
        own=_list(shared, plain, options),
        topic=topic.name,
        session=_source_session(shared, topic, session_id, its),
        regids=its,
        late_join=options["late_join"],
        accepts=accepted(given.get(ACCEPT_LOSS, ""), has_tls=shared.has_tls),
    )
    return SourceParts(
        core=core_of(life, table, backups=backups),
        listen=None if listen is None else _listen(shared, listen),
        options=options,
    )


def accepted(text: object, *, has_tls: bool) -> Acceptance | None:
    """Return what a source accepts as lost; of an empty text nothing: None. Raises InvalidValue."""
    found = acceptance(_text(ACCEPT_LOSS, text, LOSS_EXAMPLE))
    for store in () if found is None else sorted(found.stores):
        refuse_unless_safe(address(store), has_tls=has_tls)
    return found


def _source_session(
    shared: Shared, topic: Topic[Any], session_id: int | None, its: Mapping[str, int]
) -> int:
    """Return the session of a source. its: RegIDs; those are given in place of a session."""
    if its and session_id is not None:
        raise InvalidValue(
            "session_id and RegIDs in stores: stores know a source by one of them: leave one out"
        )
    if its:
        return regids.session_of(topic.name, its, secrets.randbits(63) + 1)
    session = shared.session(session_id)
    if session == 0:
        raise InvalidValue(
            f"the source of topic {topic.name!r} has no session: give open(session_id=...) a number"
            " of your own, the same in each life: by it stores know what was sent before; or RegIDs"
            " with the stores: host:port/0 for new ones"
        )
    return session


def _listen(shared: Shared, listen: object) -> Address:
    at = address(_text("listen", listen, "127.0.0.1:7500"))
    refuse_unless_safe(at, has_tls=shared.has_tls)
    if _is_unspecified(at.host):
        raise InvalidValue(
            f"{at} is no address that receivers could be told: listen at one that they can reach"
        )
    return at


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


class ReceiverParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver is made of."""

    who: Who
    wishes: Wishes
    at: str


def receiver_parts(
    shared: Shared,
    topic: Topic[Any],
    *,
    at: str,
    deliver: str,
    session_id: int | None,
    given: Mapping[str, Any],
) -> ReceiverParts:
    """Check what a receiver is given. Raises InvalidValue, which says what to do."""
    beside = {name: given[name] for name in BESIDE & given.keys()}
    check_choose(beside.get("choose"))
    table = {name: value for name, value in given.items() if name not in BESIDE}
    options: Any = settled(table, Scope.RECEIVER)
    own = {} if session_id is None else {"session_id": session_id}
    _refuse_contradictions({**given, **own})
    if deliver not in _DELIVER:
        raise InvalidValue(f"deliver is {shown(deliver)}: give 'stable' or 'live'")
    refuse_unless_safe(address(_text("at", at, "127.0.0.1:7500")), has_tls=shared.has_tls)
    wishes = Wishes(
        is_stable_only=deliver == "stable",
        ack_batching_interval_ms=options["ack_batching_interval_ms"],
        application_outstanding_maximum=options["application_outstanding_maximum"],
        explicit_ack_only=options["explicit_ack_only"],
        allow_confirmed_delivery=options["allow_confirmed_delivery"],
        receiver_liveness_interval_ms=options["receiver_liveness_interval_ms"],
        choose=beside.get("choose") if options["use_late_join"] else next_number,
        named=_named_by(beside["regid"]) if callable(beside.get("regid")) else None,
    )
    has_own = "regid" in beside
    session = (check_session(session_id) or 0) if has_own else shared.session(session_id)
    who = _who(topic, session, beside, options)
    return ReceiverParts(who=who, wishes=wishes, at=at)


def _who(
    topic: Topic[Any], session: int, beside: Mapping[str, Any], options: Mapping[str, Any]
) -> Who:
    if session == 0 and "regid" not in beside:
        raise InvalidValue(
            f"the receiver of topic {topic.name!r} has no session, and no regid: give"
            " open(session_id=...) a number of your own, the same in each life: by it stores know"
            " what was acknowledged before"
        )
    source = beside.get("source_session_id")
    given = beside.get("regid", 0)
    chosen = 0 if "regid" not in beside or callable(given) else _regid(given)
    return Who(
        topic=topic.name,
        source=0 if source is None else _number("source_session_id", source, _SESSION_MAX),
        session=session,
        key=key_of(chosen, session),
        known=_NOWHERE,
        maximum=options["retransmit_request_maximum"],
        rule=options["consensus_sequence_number_behavior"],
        regid=chosen,
        life=secrets.randbits(63) + 1,
        activity_ms=options["activity_timeout_ms"],
    )


def _regid(value: object) -> int:
    return _number("regid", value, regids.REGID_MAX)


def _named_by(chooses: Callable[[SourceRegistration], int]) -> Callable[[SourceRegistration], Id]:
    """Return how a receiver is called at stores, as its application chooses."""

    def named(its: SourceRegistration) -> Id:
        chosen = _regid(chooses(its))
        return Id(regid=chosen, key=key_of(chosen, 0))

    return named


CONTRADICTIONS: Final[tuple[tuple[Callable[[Mapping[str, Any]], object], str], ...]] = (
    (
        lambda given: given.get("explicit_ack_only") and "ack_batching_interval_ms" in given,
        "explicit_ack_only and ack_batching_interval_ms: tokens or an interval: leave one out",
    ),
    (
        lambda given: {"regid", "session_id"} <= given.keys(),
        "session_id and regid: stores know a receiver by one of them: leave one out",
    ),
    (
        lambda given: (
            given.get("use_late_join") is False
            and not {"retransmit_request_maximum", "choose"}.isdisjoint(given)
        ),
        "use_late_join=False asks for nothing of before: retransmit_request_maximum or choose do",
    ),
)
"""Options that contradict each other, and what to do."""


def _refuse_contradictions(given: Mapping[str, Any]) -> None:
    for holds, text in CONTRADICTIONS:
        if holds(given):
            raise InvalidValue(text)
