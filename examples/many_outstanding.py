"""Many requests outstanding: a window, replies in any order, and a restart in the middle.

The client sends ahead of the replies. A reply stays with the queue manager until the client
acknowledges it, that is, until the client has recorded what is in it. Source: spec C6.
"""

from __future__ import annotations

import tempfile
import threading

import onceq

SQUARES = onceq.Queue("squares", int, int)
NUMBERS = 100
BATCH = 25


def square(number: int, _context: onceq.Context) -> int:
    return number * number


server = onceq.Server([SQUARES.handled_by(square)], concurrency=2)


def take_some(clerk: onceq.Clerk[int, int], answers: dict[str, int]) -> None:
    """Receives the waiting replies, records them, and only then acknowledges them."""
    replies = clerk.receive_many(BATCH, timeout_s=30)
    for reply in replies:
        answers[reply.rid] = reply.value
    clerk.acknowledge([reply.rid for reply in replies])


def first_life(qm: onceq.QueueManager, answers: dict[str, int]) -> None:
    with qm.clerk("reckoner", SQUARES, window=NUMBERS) as clerk:
        for start in range(0, NUMBERS, BATCH):  # one transaction for each 25
            clerk.send_many((str(n), n) for n in range(start, start + BATCH))
        while len(answers) < NUMBERS // 2:
            take_some(clerk, answers)


def second_life(qm: onceq.QueueManager, answers: dict[str, int]) -> None:
    with qm.clerk("reckoner", SQUARES, window=NUMBERS) as clerk:
        print("all accounted for:", len(answers) + len(clerk.outstanding) == NUMBERS)
        while clerk.outstanding:
            take_some(clerk, answers)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        url = f"embedded:{directory}/data"
        with onceq.open(url) as qm:
            qm.declare(SQUARES)
            serving = threading.Thread(target=server.run, args=(url,))
            serving.start()
            answers: dict[str, int] = {}
            try:
                first_life(qm, answers)
                second_life(qm, answers)
            finally:
                server.stop()
                serving.join()
            print("answers:", len(answers), "sum:", sum(answers.values()))


if __name__ == "__main__":
    main()
