"""A server session that a test moves step by step: claim, begin, finish, commit."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceq.model import ops
from onceq.model.element import Charge, Element, Fate
from tests.parts import driving

if TYPE_CHECKING:
    from collections.abc import Generator

    from onceq.engine.perform.driver import PostgresDriver


class Life:
    """One incarnation of a server, and its steps."""

    def __init__(
        self,
        driver: PostgresDriver,
        process: uuid.UUID | None = None,
        former: int | None = None,
        identity: str | None = None,
    ) -> None:
        self.driver = driver
        self.process = process or uuid.uuid4()
        opening = ops.OpenIncarnation(
            process=self.process, host="test", pid=1, former=former, identity=identity
        )
        opened = driver.perform(opening)
        self.slot, self.incarnation = opened.slot, opened.incarnation

    def claim(self, queue: str, n: int = 1, *, turn: int = 1) -> list[Element]:
        (info,) = self.driver.perform(ops.ListQueues(queue=queue))
        return self.driver.perform(
            ops.Claim(
                incarnation=self.incarnation, queue_id=info.queue_id, n=n, turn=turn, alone=True
            )
        )

    def claim_one(self, queue: str) -> Element:
        (element,) = self.claim(queue)
        return element

    def begin(self, element: Element, isolation: str = "read committed") -> None:
        self.driver.perform(
            ops.Begin(
                slot=self.slot, seq=element.seq, token="test", isolation=isolation, alone=False
            )
        )

    def finish(self, element: Element, reply: bytes = b"", *, n: int = 0) -> list[Element]:
        return self.finish_all([element], [reply], n=n).following

    def finish_all(
        self, elements: list[Element], replies: list[bytes], *, n: int = 0
    ) -> ops.Finished:
        return self.driver.perform(
            ops.Finish(
                seqs=[element.seq for element in elements],
                incarnation=self.incarnation,
                replies=replies,
                content_type=None,
                token="test",
                queue_id=elements[0].queue_id,
                n=n,
                turn=1,
                alone=True,
                slot=self.slot,
            )
        )

    def commit(self) -> None:
        self.driver.perform(ops.Commit())

    def rollback(self) -> None:
        self.driver.perform(ops.Rollback())

    def run(self, element: Element, reply: bytes = b"") -> None:
        """Executes an element to its end."""
        self.begin(element)
        self.finish(element, reply)
        self.commit()

    def abort(
        self,
        element: Element,
        charge: Charge = Charge.CHARGE,
        code: str = "test",
        after_s: float | None = None,
    ) -> Fate:
        return self.driver.perform(
            ops.AbortElement(
                seq=element.seq,
                incarnation=self.incarnation,
                charge=charge,
                code=code,
                error="as the test says",
                after_s=after_s,
            )
        )

    def execute(self, statement: str) -> None:
        """The handler's own SQL."""
        self.driver.connection.execute(statement.encode())

    def take_over(self, *dead: Life) -> int:
        """Takes over from whoever is missing; dead: of these it is known that they have ended."""
        missing = self.driver.perform(ops.TakeOver(process=self.process))
        for life in dead:
            self.driver.perform(ops.Judge(process=life.process, verdict=ops.Verdict.ENDED))
        return missing


@contextmanager
def living(
    conninfo: str, repository: str, process: uuid.UUID | None = None, former: int | None = None
) -> Generator[Life]:
    """A server session of this test; it dies, with what it holds, at the end of the block."""
    with driving(conninfo, repository) as driver:
        yield Life(driver, process, former)
