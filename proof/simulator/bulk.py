"""Submits a file and collects its replies in a simulation, with the code that ships for both.

Used by the simulator. The process dies at any step, of the database or of its disk; the power of
its machine fails. Whoever starts it again has the file of requests and what is on the disk.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceq import errors
from onceq.files.collect import CollectOrder, collect_by
from onceq.files.persistent import PersistentClient
from onceq.files.rows import LINE
from onceq.files.submit import SubmitOrder, submit_by
from onceq.history import events as ev
from onceq.model import names, ops
from proof.simulator.disk import ProcessDisk, SimulatedDisk
from proof.simulator.functions import Line
from proof.simulator.participants import EXPECTS, QUEUE, World, kind_of, reply_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceq.model.element import Element

T = TypeVar("T")
AT_ONCE = 2
"""Rows, and replies, of one transaction: so that there are several."""


class InputFile(PurePosixPath):
    """A file that is there and stays as it is: what `submit` needs of a path."""

    __slots__ = ("content",)
    content: bytes

    def open(self, mode: str) -> io.BufferedReader:
        """Returns the file, open for reading."""
        names.check_range("read only", len(mode), 2, 2)
        return io.BufferedReader(io.BytesIO(self.content))

    def stat(self) -> Any:
        """Returns its size."""
        return SimpleNamespace(st_size=len(self.content))

    def resolve(self) -> PurePosixPath:
        """Returns it."""
        return self


@dataclass(slots=True)
class Shop:
    """A client with a file of requests, and its machine's disk. kinds: of the rows."""

    name: str
    kinds: list[str]
    disk: SimulatedDisk
    out: Path = field(init=False)
    rejects: Path = field(init=False)

    def __post_init__(self) -> None:
        self.out = Path(f"/{self.name}.jsonl")
        self.rejects = Path(f"/{self.name}.rejects.jsonl")

    def file(self, name: str = "orders.jsonl") -> Any:
        """Returns the file of requests."""
        path = InputFile(f"/{self.name}-{name}")
        rows = [{"kind": kind, "number": number} for number, kind in enumerate(self.kinds)]
        path.content = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        return path


class BulkLine(Line):
    """A line that writes down what a client does on it."""

    def __init__(self, world: World, shop: Shop) -> None:
        super().__init__()
        self.epoch = 0
        self._world = world
        self._shop = shop

    def _record(self, kind: Callable[..., ev.Event], epoch: int, **fields: Any) -> None:
        self._world.record(kind, self._shop.name, registrant=self._shop.name, epoch=epoch, **fields)

    def perform(self, op: ops.Op[T], wait_s: float | None = None) -> T:
        """See Line."""
        self._before(op)
        try:
            answer = super().perform(op, wait_s)
        except errors.OnceqError as error:
            if isinstance(op, ops.SendMany):
                unknown = error.outcome is errors.Outcome.UNKNOWN
                for rid in op.rids:
                    self._record(ev.SendFailed, op.who.epoch, rid=rid, unknown=unknown)
            raise
        self._after(op, answer)
        return answer

    def _before(self, op: ops.Op[Any]) -> None:
        if isinstance(op, ops.SendMany):
            for rid, body in zip(op.rids, op.bodies, strict=True):
                expects = EXPECTS[kind_of(body)]
                self._record(ev.SendBegun, op.who.epoch, rid=rid, expects=expects, alone=False)
        elif isinstance(op, ops.Acknowledge):
            self._record(ev.ReceiveBegun, op.who.epoch)

    def _after(self, op: ops.Op[Any], answer: Any) -> None:
        match op:
            case ops.Connect():
                self.epoch = answer.epoch
                shown = {"s_rid": answer.s_rid, "r_rid": answer.r_rid, "ckpt": answer.ckpt}
                self._record(ev.Connected, answer.epoch, was=answer.was, **shown)
            case ops.SendMany():
                for rid, sent in zip(op.rids, answer, strict=True):
                    self._record(ev.SendOk, op.who.epoch, rid=rid, state=sent.state)
                    self._world.known[rid] = sent.eid
            case ops.Receive():
                for element in answer:
                    self._received(op.who.epoch, element)
            case _:
                pass

    def _received(self, epoch: int, element: Element) -> None:
        outcome = "done" if element.outcome is None else element.outcome.value
        fields = reply_event(element.rid, element.eid, outcome, element.body)
        self._record(ev.Received, epoch, **fields)


def trade(world: World, shop: Shop, line: BulkLine) -> None:
    """Submits and collects, from the start, whatever former processes have done of it."""

    def pause(seconds: float) -> None:
        line.perform(ops.Wait(key="pause", first=True, timeout_s=seconds))

    def client() -> PersistentClient:
        return PersistentClient(line, shop.name, lambda _: None, pause)

    order = SubmitOrder(
        path=shop.file(),
        queue=QUEUE.name,
        rid=LINE,
        client=shop.name,
        rejects=shop.rejects,
        batch_rows=AT_ONCE,
    )
    summary = submit_by(client(), order, ProcessDisk(line))
    if (summary.rows, summary.rejected) != (len(shop.kinds), 0):
        world.broken.append(("G4", None, f"{shop.name}: submit says {summary}"))
    collected = CollectOrder(client=shop.name, out=shop.out, batch_replies=AT_ONCE)
    if collect_by(client(), collected, ProcessDisk(line)).outstanding:
        world.broken.append(("G12", None, f"{shop.name}: collect left replies"))
    world.record(ev.Satisfied, shop.name, registrant=shop.name, epoch=line.epoch)
    _check_output(world, shop, summary.sha256)


def _check_output(world: World, shop: Shop, sha256: str) -> None:
    """Checks that the file has the reply to every row, once."""
    lines = (shop.disk.content(str(shop.out)) or b"").splitlines()
    found = sorted(_row_number(line) for line in lines)
    if found != list(range(1, len(shop.kinds) + 1)):
        text = f"{shop.name}: collected rows {found} of {len(shop.kinds)}, file {sha256[:8]}"
        world.broken.append(("G5", None, text))


def _row_number(line: bytes) -> int:
    """Returns the number of the row that a line of replies answers; -1: it is not such a line."""
    try:
        return int(msgspec.json.decode(line)["rid"].rpartition(":")[2])
    except msgspec.DecodeError:
        return -1
