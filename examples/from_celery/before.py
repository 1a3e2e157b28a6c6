"""Orders booked by a Celery task. Runs where Celery is installed; the broker is in memory.

The client's answer gets lost, so it asks again: the order is booked twice, and nothing tells.
"""

from __future__ import annotations

from celery import Celery
from celery.contrib.testing.worker import start_worker

app = Celery("shop", broker="memory://", backend="cache+memory://")
app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)

BOOKED: list[str] = []


@app.task  # type: ignore[untyped-decorator] # Celery has no types
def book(number: str, cents: int) -> dict[str, int]:
    if cents < 0:
        raise ValueError("negative amount")
    BOOKED.append(number)
    return {"receipt": len(BOOKED)}


def main() -> None:
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="CRITICAL"):
        book.delay("4711", 1999).get(timeout=30)  # this answer is lost on its way: a crash, say
        answer = book.delay("4711", 1999).get(timeout=30)  # and so the client asks again
        print("receipt", answer["receipt"])
        try:
            book.delay("4712", -1).get(timeout=30)
        except ValueError as error:
            print("4712:", error)
        print("booked", len(BOOKED), "times")


if __name__ == "__main__":
    main()
