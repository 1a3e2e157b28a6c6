"""Write `docs/names-of-um.md`: UM's names of options, calls and events, and ours.

`python docs/names.py`. A test compares the page with what would be written, and wants each option
and each event class in it, once. The names of options are those of the table that options are read
by; what differs, and all other names, are said here.
"""

from __future__ import annotations

import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from onceq.streams.model.events import Event  # noqa: E402 - its path comes first
from onceq.streams.model.options import OPTIONS, Option  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = ROOT / "docs" / "names-of-um.md"
NONE = "none"
"""A name that one side does not have."""

TEXT = """# UM's names, and ours

For who knows the persistence of Ultra Messaging (UM). This page is written by `docs/names.py`; the
names of options are those of the table that options are read by. [Streams](streams.md) is the
guide, and says [what is different](streams.md#what-is-different-from-um) as a whole. ADR
[36](adr/0036-tcp-for-streams.md), [37](adr/0037-stores-give-regids.md) and
[38](adr/0038-what-streams-leave-out.md) say why some of UM is not here. UM's defaults are those of
its version 6.

## Options

Keywords of `context.source` and `context.receiver`. Times are in milliseconds, which a name says by
`_ms`. In a row without an explanation nothing differs but that.

{options}

## Other names

{names}

## Events

All come to `on_event`, in one handler; a context has none. In events first and last are inclusive,
as UM's numbers are; everywhere else the bound of a range is exclusive.

{events}
"""

DIFFERS: dict[str, str] = {
    "retention_intergroup_stability_behavior": "`any` is UM's `any-group`",
    "flight_size_bytes": "8 MiB by default; UM's default is no limit: a flight takes memory",
    "fragment_size": "up to 1,048,528 bytes, which is also the default: stores keep frames of 1 MiB"
    " at most. UM splits by the datagrams of a transport; here is one transport, and no datagram",
    "message_stability_notification": "three values in place of 0 and 1: by default what is stable"
    " by the rule of the list is told; `each_store` tells each store's, as UM does",
    "message_stability_lifetime_ms": "off by default, in UM 20 minutes: what is given up leaves a"
    " void number in all logs, and nobody should lose a message unasked",
    "retransmit_retention_size_limit": "64 MiB by default, in UM 24 MiB; less than two flights is"
    " refused, as a source would give up what is on its way",
    "source_liveness_timeout_ms": "of a source, in UM of a context; a connection that is closed is"
    " told also without it",
    "activity_timeout_ms": "30 s by default; UM's default leaves it to the store. A connection that"
    " is closed frees the registration at once, as epochs make that safe",
    "consensus_sequence_number_behavior": "of a source it decides what `RegistrationComplete`"
    " reports, not where it goes on: that is the end of the log that has all that is stable",
    "create": "of ours alone: every store must have noted a new stream, or two wiped stores and a"
    " silent third would begin it anew; `quorum` lets it begin while some are silent",
    "late_join": "UM's default is off, and persistence turns it on; here it is on, and may be"
    " turned off beside stores",
    "retransmit_request_maximum": "`None` is UM's 0; 0 asks for nothing of before",
    "ack_batching_interval_ms": "of a receiver, in UM of a context; always on",
    "explicit_ack_only": "not together with `ack_batching_interval_ms`: stores are told at once",
    "use_late_join": "not together with what asks for messages of before",
    "receiver_liveness_interval_ms": "of a receiver, in UM of a context",
}
"""By our name of an option: what differs from UM's, and why."""


class Name(NamedTuple):
    """A name of UM that is no option of the table, or one of ours that UM lacks."""

    um: str
    here: str
    differs: str


NAMES: tuple[Name, ...] = (
    Name("ume_store", "stores=", "one text: `host:port host:port`, a RegID behind it as `/regid`"),
    Name("ume_store_group", "stores=", "a `;` begins another group"),
    Name(NONE, "backups=", "in UM, stores of a group beyond its size; here a list of its own"),
    Name("ume_store_name", NONE, "stores are known by their addresses"),
    Name("ume_store_behavior", NONE, "there is quorum and consensus only"),
    Name("ume_use_store", NONE, "a receiver always uses stores"),
    Name(
        "ume_session_id",
        "session_id=",
        "of `streams.open`, a source or a receiver; from 1 on. A source without one needs"
        " RegIDs, a receiver `regid=`: otherwise nobody would know its next life",
    ),
    Name(NONE, "source_session_id=", "whose stream, where several sources send on a topic"),
    Name("ume_user_receiver_registration_id", "regid=", "a number; one for all stores"),
    Name(
        "ume_registration_extended_function",
        "regid=",
        "a function, given a `streams.SourceRegistration`; called once, not once for each store",
    ),
    Name(
        "ume_recovery_sequence_number_info_function",
        "choose=",
        "it returns the number, or `None`; it changes nothing that it is given",
    ),
    Name(
        "lbm_ume_rcv_recovery_info_ex_func_info_t",
        "streams.RecoveryInfo",
        "`high`, `low_rxreq_max` and `low`; an unchanged `low` is no choice, as in UM",
    ),
    Name(NONE, "accept_loss=", "goes on without what more stores lost than the list allows"),
    Name(NONE, "deliver=", '`"stable"` by default; UM delivers as `"live"` does'),
    Name("ume_force_reclaim_function", "on_event=", "told as `Reclaimed` with `forced`, no more"),
    Name("ume_confirmed_delivery_notification", "on_event=", "who has one is told"),
    Name("ume_use_ack_batching", NONE, "always on: see `ack_batching_interval_ms`"),
    Name("ume_receiver_paced_persistence", "WhenFull.BLOCK", "a setting of a store: its default"),
    Name("ume_proxy_source", "at=", "no proxy is elected: any store answers for the source"),
    Name("ume_repository_size_limit", "Limits.size_bytes", "a setting of a store"),
    Name("ume_repository_size_threshold", NONE, "what all have acknowledged stays to the limit"),
    Name("ume_repository_disk_file_size_limit", NONE, "a log is in segments of 64 MiB"),
    Name("ume_repository_ack_on_reception", NONE, "stable means synced; memory stores do that"),
    Name("ume_write_delay", NONE, "what comes while a sync runs is written with the next"),
    Name(
        "ume_state_lifetime",
        "Limits.state_lifetime_s",
        "a setting of a store, of receivers; a stream stays",
    ),
    Name("ume_store_activity_timeout", NONE, "3 s"),
    Name("ume_store_check_interval", NONE, "what is late is looked for ten times a second"),
    Name("ume_proactive_keepalive_interval", NONE, "follows from `activity_timeout_ms`"),
    Name("ume_sri_request_interval", NONE, "the answer of `at` has it; so with all of `ume_sri_`"),
    Name("lbm_src_send", "source.send", "it waits for room in flight, and returns the number"),
    Name("lbm_src_sendv_ex", "given=", "of `send`: the object that comes with the events"),
    Name("LBM_EUMENOREG", "streams.NotRegistered", "nothing was sent"),
    Name("LBM_EWOULDBLOCK", NONE, 'nor does it wait with `flight_size_behavior="notify"`'),
    Name("lbm_msg_retain", "message.retain()", "returns the token that acknowledges it"),
    Name(
        "lbm_msg_delete",
        "token.acknowledge()",
        "without a token the return of the handler; what it raises is no acknowledgement",
    ),
    Name("lbm_msg_ume_send_explicit_ack", "token.acknowledge()", "with `explicit_ack_only`"),
    Name(
        "lbm_ume_ack_send_explicit_ack",
        "token.acknowledge()",
        "from any thread, in ascending order",
    ),
    Name("LBM_MSG_FLAG_UME_RETRANSMIT", "message.retransmitted", ""),
    Name("sequence_number", "message.number", "with stream and epoch it is `message.identity`"),
    Name("lbm_rcv_ume_deregister", "onceq stream deregister --receiver", "an operator's command"),
    Name(
        "lbm_src_ume_deregister",
        "context.deregister",
        "a person's call, or `onceq stream deregister`; it deletes the stream",
    ),
    Name("umestored", "onceq store run", "its file of configuration: options of the command"),
    Name("umestored_main", "streams.run_store", "single use, as in UM; `StoreProcess`: a child"),
    Name("umestored_main_shutdown", "RunningStore.stop", ""),
)

EVENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "StoreRegistered": (
        ("LBM_SRC_EVENT_UME_REGISTRATION_SUCCESS_EX", "LBM_MSG_UME_REGISTRATION_SUCCESS_EX"),
        "",
    ),
    "RegistrationComplete": (
        ("LBM_SRC_EVENT_UME_REGISTRATION_COMPLETE_EX", "LBM_MSG_UME_REGISTRATION_COMPLETE_EX"),
        "`reported` is UM's number; `next_number` is what counts",
    ),
    "RegistrationError": (
        ("LBM_SRC_EVENT_UME_REGISTRATION_ERROR", "LBM_MSG_UME_REGISTRATION_ERROR"),
        "of a source; a receiver raises `RegistrationInUse`",
    ),
    "StoresForgot": (
        (),
        "too little is left to go on; by UM's rules numbers may be used again",
    ),
    "LossAccepted": ((), "the answer to that took effect"),
    "StoreUnresponsive": (("LBM_SRC_EVENT_UME_STORE_UNRESPONSIVE",), "a receiver is told it, too"),
    "OptionsChanged": ((), "a new life has other options; UM's store warns in its log"),
    "ListChanged": (
        ("LBM_MSG_UME_REGISTRATION_CHANGE",),
        "of a source, which changed the list; receivers follow it untold",
    ),
    "SequenceNumbers": (("LBM_SRC_EVENT_SEQUENCE_NUMBER_INFO",), "before `send` returns"),
    "Stable": (
        ("LBM_SRC_EVENT_UME_MESSAGE_STABLE_EX",),
        "of messages in a row; `store` is `None` when the rule of the list is met",
    ),
    "NotStable": (("LBM_SRC_EVENT_UME_MESSAGE_NOT_STABLE",), "`Reclaimed` ends it"),
    "FlightSize": (("LBM_SRC_EVENT_FLIGHT_SIZE_NOTIFICATION",), "`is_over`: UM's OVER and UNDER"),
    "Confirmed": (
        ("LBM_SRC_EVENT_UME_DELIVERY_CONFIRMATION_EX",),
        "`unique` counts the receivers",
    ),
    "Reclaimed": (
        ("LBM_SRC_EVENT_UME_MESSAGE_RECLAIMED_EX",),
        "`forced` is UM's flag; `unstable`: receivers may never get it",
    ),
    "SourceFenced": ((), "a later life has taken over; UM has no epochs"),
    "ReceiverDead": ((), "of a source; UM tells it by a call-back of the context"),
    "Loss": (
        ("LBM_MSG_UNRECOVERABLE_LOSS", "LBM_MSG_UNRECOVERABLE_LOSS_BURST"),
        "with its reason, in its place; never a message less in silence",
    ),
    "RolledBack": ((), 'only with `deliver="live"`, or when a loss was accepted'),
}
"""By our event class: UM's events, and what differs."""

LEFT_OUT: tuple[str, ...] = (
    "LBM_SRC_EVENT_UME_DEREGISTRATION_SUCCESS_EX",
    "LBM_SRC_EVENT_UME_DEREGISTRATION_COMPLETE_EX",
    "LBM_MSG_UME_DEREGISTRATION_SUCCESS_EX",
    "LBM_MSG_UME_DEREGISTRATION_COMPLETE_EX",
)
"""UM's events that are here none: who deregisters is an operator, and is answered."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def code(name: str) -> str:
    """Return a name as code; of nothing, and of what is none, that there is none."""
    return f"`{name}`" if name and name != NONE else NONE


def option_row(option: Option) -> tuple[str, str, str, str]:
    """Return the row of an option."""
    of = ", ".join(sorted(option.scopes))
    return code(option.um), code(option.name), of, DIFFERS.get(option.name, "")


def event_classes() -> list[str]:
    """Return the names of our event classes, in the order of the code."""
    return [one.__name__ for one in typing.get_args(Event)]


def event_row(name: str) -> tuple[str, str, str]:
    """Return the row of one of our event classes."""
    of_um, differs = EVENTS[name]
    return ", ".join(map(code, of_um or (NONE,))), code(name), differs


def page() -> str:
    """Return the whole page."""
    left_out = [(code(name), NONE, "who deregisters is answered") for name in LEFT_OUT]
    differs = "what differs, and why"
    return TEXT.format(
        options=table(("UM", "here", "of", differs), map(option_row, OPTIONS)),
        names=table(("UM", "here", differs), ((code(a), code(b), text) for a, b, text in NAMES)),
        events=table(("UM", "here", differs), [*map(event_row, event_classes()), *left_out]),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
