"""What a handler may raise, what the client then gets, and how to run a failed request again.

`Reject`: this request is wrong; one failure reply, no retry. `Retry`: the environment failed;
again later, uncharged up to the queue's retry limit. Anything else is charged; at the abort limit
the request goes to the error queue and the client gets one failure reply. Source: spec Q4, G3, G7.
"""

from __future__ import annotations

import tempfile
import threading

import onceq


class Division:
    """A handler with something to repair: a service that is down once, and a bug."""

    def __init__(self) -> None:
        self.is_down = True
        self.has_bug = True

    def __call__(self, numbers: tuple[int, int], _context: onceq.Context) -> int:
        over, under = numbers
        if over < 0:
            raise onceq.Reject("only positive numbers here")
        if self.is_down:
            self.is_down = False
            raise onceq.Retry("the service is down")
        if under == 0 and not self.has_bug:
            return 0
        return over // under


DIVISIONS = onceq.Queue("divisions", tuple[int, int], int, abort_limit=3, backoff_ms=10)
division = Division()
server = onceq.Server([DIVISIONS.handled_by(division)])


def ask(clerk: onceq.Clerk[tuple[int, int], int], rid: str, over: int, under: int) -> None:
    reply = clerk.transceive(rid, (over, under), timeout_s=30)
    try:
        print(f"{rid}: {reply.value} after {reply.attempts} attempt(s)")
    except onceq.RequestFailed as failure:
        print(f"{rid}: failed, {failure.code}, after {failure.attempts} attempt(s)")


def repair(qm: onceq.QueueManager) -> None:
    """Looks into the error queue, mends the bug, and runs the failed request again."""
    (failed,) = qm.lookup("poison", state="held")
    print("held in", failed.queue, "with", failed.code)
    division.has_bug = False
    redriven = qm.redrive(failed.eid)
    assert redriven is not None
    eid, rid = redriven
    print("redriven under another eid:", eid != failed.eid, "outcome:", outcome_of(qm, rid))


def outcome_of(qm: onceq.QueueManager, rid: str) -> str | None:
    for _ in range(600):  # 30 s
        if found := qm.lookup(rid, state="finished"):
            return found[0].outcome
        threading.Event().wait(0.05)
    return None


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(DIVISIONS)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            try:
                with qm.clerk("pupil", DIVISIONS) as clerk:
                    ask(clerk, "while it was down", 12, 4)
                    ask(clerk, "negative", -1, 4)
                    ask(clerk, "poison", 1, 0)
                    rejected = [one for one in qm.lookup(state="held") if one.rid == "negative"]
                    print("rejected ones are held too:", len(rejected) == 1)
                    repair(qm)
            finally:
                server.stop()
                serving.join()


if __name__ == "__main__":
    main()
