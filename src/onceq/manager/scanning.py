"""The Programs of a scan: they open it, and get its next elements (spec Q11).

Run by QueueManager and AsyncQueueManager, on a connection of theirs or on the caller's.
"""

from __future__ import annotations

from onceq.errors import InvalidValue
from onceq.model import names, ops
from onceq.model.scan import OpenScan, Scan, ScanElements, ScanKeys, Scanned, ScanOpened


def checked(queue: str, *, locked: bool, has_connection: bool) -> Scan:
    """Returns a scan that has not begun. InvalidName, InvalidValue."""
    names.check_queue(queue)
    if names.check_flag("locked", locked) and not has_connection:
        raise InvalidValue(
            "a locked scan needs connection=...: what it reads stays locked until the transaction "
            "there ends"
        )
    return Scan(queue=queue, locked=locked)


def following(scan: Scan) -> ops.Program[list[Scanned]]:
    """Returns the next elements of a scan, none if it is over. QueueNotFound, IllegalState."""
    opened = scan.opened
    if opened is None:
        opened = scan.opened = yield from OpenScan(queue=scan.queue, locked=scan.locked)
    while True:  # until something of a page is in the queue still, or there are no more pages
        seqs = scan.taken()
        if seqs:
            read = ScanElements(queue_id=opened.queue_id, seqs=seqs, locked=scan.locked)
            found = yield from read
            if found:
                return found
        elif scan.is_over:
            return []
        else:
            yield from _more(scan, opened)


def _more(scan: Scan, opened: ScanOpened) -> ops.Program[None]:
    lane, turn = scan.place
    keys = yield from ScanKeys(
        queue_id=opened.queue_id, lane=lane, turn=turn, last=opened.last, n=scan.page
    )
    scan.met(keys)
