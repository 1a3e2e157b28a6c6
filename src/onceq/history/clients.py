"""What a client saw, compared with the final state (G1, G2, G4 to G7).

Private to the checker. Called once for each client, after its `Diary` has taken all its events.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceq.history import words
from onceq.history.diary import Diary, Request
from onceq.history.events import Client
from onceq.history.table import Element, Table, WaitingReply
from onceq.history.violation import Violation


def judge_client(diary: Diary, table: Table) -> Iterator[Violation]:
    """Yields what is wrong with a client's requests, and tells their elements what it knew."""
    who = diary.client[0]
    elements = table.by_client.get(diary.client, {})
    replies = table.replies.get(diary.client, {})
    for rid, request in diary.requests.items():
        element, reply = elements.get(rid), replies.get(rid)
        if element is not None:
            if reply is None and _is_ordinary(request, element):
                continue
            _tell(request, element)
        for guarantee, text in _wrong(request, element, reply):
            yield Violation(guarantee, rid, f"{who}: {text}")
        if reply is not None:
            for guarantee, text in _replied(element, reply):
                yield Violation(guarantee, rid, f"{who}: {text}")
    for rid in (elements.keys() | replies.keys()) - diary.requests.keys():
        yield Violation("G4", rid, f"{who}: is there and was never sent")


def judge_silent(client: Client, table: Table) -> Iterator[Violation]:
    """Yields what is wrong with the replies of a client that recorded nothing."""
    elements = table.by_client.get(client, {})
    for rid, reply in table.replies.get(client, {}).items():
        for guarantee, text in _replied(elements.get(rid), reply):
            yield Violation(guarantee, rid, f"{client[0]}: {text}")


def _is_ordinary(request: Request, element: Element) -> bool:
    """Returns whether a request was sent, done, answered so and acknowledged: a clear case."""
    handed = request.handed
    return (
        handed is not None
        and handed.outcome == words.DONE == element.outcome
        and element.ends == 1
        and request.may_be_freed
        and request.refused < request.tries
        and request.expects != words.FAILED
        and request.eid in {"", element.eid}
        and not request.void
    )


def _tell(request: Request, element: Element) -> None:
    element.void = request.void
    if request.handed is not None:
        element.told_at = request.handed.at


def _wrong(
    request: Request, element: Element | None, reply: WaitingReply | None
) -> Iterator[tuple[str, str]]:
    is_lost = reply is None and (element is None or not (element.ends or element.lives))
    if request.acked_at is not None and is_lost:
        yield "G4", "acknowledged and lost"
    if element is not None or reply is not None:
        yield from _unsent(request)
    if element is None:
        return
    if request.eid and request.eid != element.eid:
        yield "G4", f"was sent as {request.eid} and is there as {element.eid}"
    if element.ends:
        yield from _ended(request, element)
        if not request.void:
            yield from _kept(request, reply)
    elif reply is None and request.handed is not None:
        yield "G2", "has a reply, and has not finished"


def _unsent(request: Request) -> Iterator[tuple[str, str]]:
    if not request.tries:
        yield "G4", "is there and was never sent"
    elif request.void:
        yield "G6", "took effect after connect had shown that it did not"
    elif request.refused == request.tries and request.acked_at is None:
        yield "G4", "is there, and its send was refused"


def _ended(request: Request, element: Element) -> Iterator[tuple[str, str]]:
    handed, outcome = request.handed, element.outcome
    if handed is not None and handed.outcome != outcome:
        yield "G2", f"was told {handed.outcome}, history says {outcome}"
    if request.expects == words.DONE and outcome == words.FAILED:
        yield "G7", f"an innocent was convicted: {element.code}"
    if request.expects == words.FAILED and outcome == words.DONE:
        yield "G7", "was to fail and is done"


def _kept(request: Request, reply: WaitingReply | None) -> Iterator[tuple[str, str]]:
    """A reply is there, or was handed out and may have been acknowledged (G5)."""
    handed = request.handed
    if reply is None:
        if handed is None and not request.shown:
            yield "G5", "its reply is gone, and was never handed out"
        elif not request.may_be_freed:
            yield "G5", "its reply is gone, and was not acknowledged"
    elif handed is not None and handed.eid != reply.eid:
        yield "G5", f"was handed out {handed.eid}, and {reply.eid} is kept"


def _replied(element: Element | None, reply: WaitingReply) -> Iterator[tuple[str, str]]:
    """A reply belongs to a request that has ended, and says what history says."""
    if element is None or not (element.ends or element.lives):
        yield "G4", "replied to without having finished"
    elif not element.ends:
        yield "G2", "has a reply, and has not finished"
    elif reply.outcome != element.outcome:
        yield "G2", f"its reply says {reply.outcome}, history says {element.outcome}"
    elif reply.correlation_id not in {None, element.eid}:
        yield "G1", f"its reply answers {reply.correlation_id}, and it is {element.eid}"
