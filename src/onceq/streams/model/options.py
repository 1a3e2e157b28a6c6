"""The options of streams, in one table: from it come arguments and the docs. Pure.

Names are UM's without `ume_`; times are in milliseconds, and end in `_ms`. What differs from UM is
in `docs/names.py`. There is no option that nothing reads: `read_by` names what does, and a test
looks for it. Rows are added with what reads them. Source: UM, the options that its guide for
persistence names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from onceq.errors import InvalidValue
from onceq.streams.model.events import Notification
from onceq.streams.model.fragments import FRAGMENT_BYTES_MAX
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import Intergroup, Intragroup
from onceq.streams.model.window import FlightBehavior

Value: TypeAlias = int | bool | enum.StrEnum | None


class Scope(enum.StrEnum):
    """Whose option it is."""

    SOURCE = "source"
    RECEIVER = "receiver"


class Creation(enum.StrEnum):
    """How many stores must have noted a new stream before anything is sent in it."""

    ALL = "all"
    QUORUM = "quorum"


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A row. um: UM's name; empty: it has none. kind: int, bool, or the enum of its values.

    none: it may be None. least, most: the bounds of a number; most: None: there is none.
    """

    name: str
    um: str
    scopes: frozenset[Scope]
    kind: type[int | bool | enum.StrEnum]
    default: Value
    least: int = 0
    most: int | None = None
    none: bool = False
    read_by: str
    text: str


_SOURCE = frozenset({Scope.SOURCE})
_RECEIVER = frozenset({Scope.RECEIVER})

ACTIVITY_MS: Final = 30_000
"""As that of UM's stores."""

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="retention_intragroup_stability_behavior",
        um="ume_retention_intragroup_stability_behavior",
        scopes=_SOURCE,
        kind=Intragroup,
        default=Intragroup.QUORUM,
        read_by="quorum.StoreList",
        text="how many stores of a group must have what is stable in it: a quorum, or all",
    ),
    Option(
        name="retention_intergroup_stability_behavior",
        um="ume_retention_intergroup_stability_behavior",
        scopes=_SOURCE,
        kind=Intergroup,
        default=Intergroup.ANY,
        read_by="quorum.StoreList",
        text="in which groups it must be stable: in any, in all active ones, or in all",
    ),
    Option(
        name="flight_size",
        um="ume_flight_size",
        scopes=_SOURCE,
        kind=int,
        default=1_000,
        read_by="window.Flight",
        text="messages that may be sent and not yet stable, or confirmed; 0: no limit",
    ),
    Option(
        name="flight_size_bytes",
        um="ume_flight_size_bytes",
        scopes=_SOURCE,
        kind=int,
        default=8 << 20,
        read_by="window.Flight",
        text="their bytes; 0: no limit",
    ),
    Option(
        name="flight_size_behavior",
        um="ume_flight_size_behavior",
        scopes=_SOURCE,
        kind=FlightBehavior,
        default=FlightBehavior.BLOCK,
        read_by="window.FlightBehavior",
        text="without room in flight: sending waits, or goes on and the application is told",
    ),
    Option(
        name="fragment_size",
        um="transport_tcp_datagram_max_size",
        scopes=_SOURCE,
        kind=int,
        default=FRAGMENT_BYTES_MAX,
        least=1,
        most=FRAGMENT_BYTES_MAX,
        read_by="source.releasing.Policy",
        text="bytes; a message that is larger takes several numbers",
    ),
    Option(
        name="message_stability_notification",
        um="ume_message_stability_notification",
        scopes=_SOURCE,
        kind=Notification,
        default=Notification.STABLE,
        read_by="source.releasing.Policy",
        text="what is told of stability: nothing (confirmations alone release messages then), that"
        " messages are stable, or also each store that has them",
    ),
    Option(
        name="message_stability_timeout_ms",
        um="ume_message_stability_timeout",
        scopes=_SOURCE,
        kind=int,
        default=5_000,
        least=1,
        read_by="source.epochs.Timing",
        text="what a store has not answered for is sent to it again after so long",
    ),
    Option(
        name="message_stability_lifetime_ms",
        um="ume_message_stability_lifetime",
        scopes=_SOURCE,
        kind=int,
        default=0,
        read_by="source.releasing.Policy",
        text="messages that are not stable after so long are given up; 0: never",
    ),
    Option(
        name="registration_interval_ms",
        um="ume_registration_interval",
        scopes=_SOURCE,
        kind=int,
        default=1_000,
        least=1,
        most=1 << 40,
        read_by="source.epochs.Timing",
        text="how long a source that could not be registered rests before it asks the stores again",
    ),
    Option(
        name="retention_unique_confirmations",
        um="ume_retention_unique_confirmations",
        scopes=_SOURCE,
        kind=int,
        default=0,
        read_by="source.releasing.Policy",
        text="receivers that must have confirmed a message before it is released and leaves the"
        " flight",
    ),
    Option(
        name="retransmit_retention_size_threshold",
        um="retransmit_retention_size_threshold",
        scopes=_SOURCE,
        kind=int,
        default=0,
        read_by="source.releasing.Policy",
        text="bytes of messages that are kept although they could be released",
    ),
    Option(
        name="retransmit_retention_size_limit",
        um="retransmit_retention_size_limit",
        scopes=_SOURCE,
        kind=int,
        default=64 << 20,
        read_by="source.releasing.Policy",
        text="with more bytes the oldest are released, and given up if they are not stable; at"
        " least two flights",
    ),
    Option(
        name="source_liveness_timeout_ms",
        um="ume_source_liveness_timeout",
        scopes=_SOURCE,
        kind=int,
        default=0,
        read_by="source.releasing.Policy",
        text="a receiver that confirms, and says nothing for so long, is told to be dead; 0: only"
        " one whose connection is gone",
    ),
    Option(
        name="activity_timeout_ms",
        um="ume_activity_timeout",
        scopes=_SOURCE | _RECEIVER,
        kind=int,
        default=ACTIVITY_MS,
        most=1 << 40,
        read_by="uses.beat_s",
        text="a store that hears nothing for so long on the connection of a life lets another one"
        " of the same registration in; before, that is refused; 0: never refused",
    ),
    Option(
        name="consensus_sequence_number_behavior",
        um="ume_consensus_sequence_number_behavior",
        scopes=_SOURCE | _RECEIVER,
        kind=Consensus,
        default=Consensus.MAJORITY,
        read_by="low.agreed",
        text="which of the numbers that stores answer is reported: lowest, majority or highest",
    ),
    Option(
        name="create",
        um="",
        scopes=_SOURCE,
        kind=Creation,
        default=Creation.ALL,
        read_by="source.epochs.SourceLife",
        text="how many stores of every list must have noted a stream that is new: all, or a"
        " stable set, though the others are silent; where a stream is known, it has no effect",
    ),
    Option(
        name="late_join",
        um="late_join",
        scopes=_SOURCE,
        kind=bool,
        default=True,
        read_by="source.epochs.SourceLife",
        text="whether receivers get what was sent before their life; if not, each life begins with"
        " what is next, whatever it wishes",
    ),
    Option(
        name="retransmit_request_maximum",
        um="retransmit_request_maximum",
        scopes=_RECEIVER,
        kind=int,
        default=None,
        none=True,
        read_by="low.info",
        text="how many of the last messages a life asks for again, at most; None: all",
    ),
    Option(
        name="ack_batching_interval_ms",
        um="ume_ack_batching_interval",
        scopes=_RECEIVER,
        kind=int,
        default=100,
        least=1,
        read_by="receiver.driver.Wishes",
        text="how long messages are processed before stores are told how far that is",
    ),
    Option(
        name="application_outstanding_maximum",
        um="ume_application_outstanding_maximum",
        scopes=_RECEIVER,
        kind=int,
        default=0,
        read_by="receiver.outstanding.Outstanding",
        text="messages that may wait for the application; 0: as many as their bytes allow",
    ),
    Option(
        name="explicit_ack_only",
        um="ume_explicit_ack_only",
        scopes=_RECEIVER,
        kind=bool,
        default=False,
        read_by="receiver.tokens.Tokens",
        text="messages are acknowledged by their tokens alone, each with all before it",
    ),
    Option(
        name="use_late_join",
        um="use_late_join",
        scopes=_RECEIVER,
        kind=bool,
        default=True,
        read_by="api.given.receiver_parts",
        text="whether a life asks for what was sent before it; if not, it begins with what is next",
    ),
    Option(
        name="allow_confirmed_delivery",
        um="ume_allow_confirmed_delivery",
        scopes=_RECEIVER,
        kind=bool,
        default=True,
        read_by="receiver.driver.Wishes",
        text="whether the source is told what is processed, and may be paced by that",
    ),
    Option(
        name="receiver_liveness_interval_ms",
        um="ume_receiver_liveness_interval",
        scopes=_RECEIVER,
        kind=int,
        default=0,
        read_by="receiver.driver.Wishes",
        text="the source is told so often that the receiver lives; 0: only by confirmations",
    ),
)

BY_NAME: Final[dict[str, Option]] = {option.name: option for option in OPTIONS}


def settled(given: Mapping[str, object], scope: Scope) -> dict[str, Value]:
    """Return all options of a scope: what is given, and the defaults of the others.

    Raises InvalidValue for a name that is none of the scope's, and for a value that cannot be.
    """
    of_scope = {option.name: option for option in OPTIONS if scope in option.scopes}
    if unknown := sorted(given.keys() - of_scope.keys()):
        raise InvalidValue(
            f"{unknown[0]!r} is no option of a {scope}; there are: {', '.join(sorted(of_scope))}"
        )
    return {
        name: _checked(option, given[name]) if name in given else option.default
        for name, option in of_scope.items()
    }


def _checked(option: Option, value: object) -> Value:
    if value is None and option.none:
        return None
    if option.kind is bool:
        if not isinstance(value, bool):
            raise InvalidValue(f"{option.name} is {value!r}: give True or False")
        return value
    if issubclass(option.kind, enum.StrEnum):
        return _one_of(option, option.kind, value)
    if not isinstance(value, int) or isinstance(value, bool) or not _is_within(option, value):
        at_most = "" if option.most is None else f", and at most {option.most}"
        raise InvalidValue(
            f"{option.name} is {value!r}: give a whole number of at least {option.least}{at_most}"
        )
    return value


def _is_within(option: Option, value: int) -> bool:
    return option.least <= value and (option.most is None or value <= option.most)


def _one_of(option: Option, kind: type[enum.StrEnum], value: object) -> enum.StrEnum:
    for one in kind:
        if value == one:
            return one
    words = ", ".join(repr(one.value) for one in kind)
    raise InvalidValue(f"{option.name} is {value!r}: give one of {words}")
