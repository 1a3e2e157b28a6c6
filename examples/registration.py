"""Registration and tags: what clerks are built on, for protocols of your own.

A registrant's last operation on a queue is recorded: its kind, its eid, the tag that came with
it, and a copy of the element. After a crash, `register` tells them. Here a relay moves elements
from one queue to another and needs no transaction that spans both: it recognises by the tags
how far it had come. Source: BHM90 4.2 and 4.3; spec Q5.
"""

from __future__ import annotations

import tempfile

import onceq

INBOX = onceq.Queue("inbox", str, type(None))
OUTBOX = onceq.Queue("outbox", str, type(None))


class PowerCutError(Exception):
    """Ends a life of the relay."""


def relay(qm: onceq.QueueManager, *, dies: bool) -> None:
    """Moves everything from the inbox to the outbox, tagging each enqueue with the eid taken."""
    taken_from = qm.register("inbox", "relay")[0]
    put_into = qm.register("outbox", "relay", life=taken_from)[0]
    last = qm.read_last("inbox", taken_from)
    if last is not None and last.eid is not None and put_into.tag != last.eid.bytes:
        print("the former life took", last.body, "and had not put it")
        qm.enqueue_tagged("outbox", put_into, last.body or b"", tag=last.eid.bytes)
    while (element := qm.dequeue_tagged("inbox", taken_from)) is not None:
        if dies:
            raise PowerCutError
        qm.enqueue_tagged("outbox", put_into, element.body, tag=element.eid.bytes)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, onceq.open(f"embedded:{directory}/data") as qm:
        qm.declare(INBOX)
        qm.declare(OUTBOX)
        for text in ("one", "two", "three"):
            qm.enqueue(INBOX, text)
        for dies in (True, False):
            try:
                relay(qm, dies=dies)
            except PowerCutError:
                print("inbox:", qm.show("inbox").depth, "outbox:", qm.show("outbox").depth)
        moved: list[str] = []
        while (element := qm.dequeue("outbox")) is not None:
            moved.append(OUTBOX.decode_request(element.body))
        print("moved:", ", ".join(moved))


if __name__ == "__main__":
    main()
