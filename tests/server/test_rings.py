"""Whatever makes an element claimable, or due sooner, or a reply readable, rings who waits for it.

`docs/maintainers/rings.md` is the table. Each way is tried with its ring, by which whoever sleeps
goes on, and without, where the process finds by its next survey what is there.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import onceq
from onceq.clerk import receiving
from onceq.engine.perform.driver import connect
from onceq.engine.perform.spark_driver import SparkDriver
from onceq.engine.wake.watch import LONGEST_S
from onceq.errors import Fenced, Reject, ReplyHeld
from onceq.model import ops
from onceq.model.element import Charge
from onceq.model.spark_ops import SparkClaim, SparkClose, SparkEnqueue, SparkOpen
from tests.lives import Life, living
from tests.parts import LIMIT_S, Background, plain, serving, wait_until
from tests.server.quiet import let_nobody_look, let_nobody_survey, wait_unwatched
from tests.server.test_bells import change_bells, dead_bell, listening, sleeping_clerk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from onceq.model.element import Element


def queue_named(name: str) -> onceq.Queue[bytes, bytes]:
    return onceq.Queue(name, bytes, bytes, backoff_ms=0, abort_limit=2)


RAW = queue_named("raw")
PAGE = Path(__file__).parents[2] / "docs/maintainers/rings.md"
WITHOUT_S = LONGEST_S / 4
"""Without any ring what is there is found by a survey: nobody else looks within so long."""


def handle(request: bytes, _: onceq.Context) -> bytes:
    if request == b"reject":
        raise Reject("as the test says")
    return request


@dataclass(frozen=True)
class Scene:
    """What a way may use. life: a server session of the test. until: the end of the test."""

    qm: onceq.QueueManager
    conninfo: str
    repository: str
    life: Life
    until: ExitStack
    queue: onceq.Queue[bytes, bytes] = RAW

    def spark(self) -> SparkDriver:
        return SparkDriver(self.until.enter_context(connect(self.conninfo)), self.repository)

    def claimed(self, life: Life | None = None) -> Element:
        """Returns an element that was enqueued and is claimed."""
        self.qm.enqueue(self.queue, b"x")
        return (life or self.life).claim_one(self.queue.name)


@pytest.fixture
def scene(qm: onceq.QueueManager, conninfo: str, repository: str) -> Generator[Scene]:
    with ExitStack() as until:
        life = until.enter_context(living(conninfo, repository))
        yield Scene(qm, conninfo, repository, life, until)


@contextmanager
def asleep(
    scene: Scene, *queues: onceq.Queue[bytes, bytes], **options: Any
) -> Generator[onceq.Server]:
    """A server of this process that sleeps, and is notified."""
    handled = [queue.handled_by(handle) for queue in queues]
    with serving(scene.conninfo, scene.repository, *handled, **options) as server:
        listening(scene.conninfo)
        wait_until(lambda: len(server._watch._sleepers) == server.concurrency)
        yield server


# --- ways: each prepares what there is while the server falls asleep; what it returns rings it ---


def enqueue(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.qm.enqueue(scene.queue, b"x")


def enqueue_many(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.qm.enqueue_many(scene.queue, [b"x"])


def enqueue_in_a_transaction(scene: Scene) -> Callable[[], Any]:
    def act() -> None:
        with plain(scene.conninfo) as connection, connection.transaction():
            onceq.enqueue(connection, scene.queue, b"x", repository=scene.repository)

    return act


def enqueue_tagged(scene: Scene) -> Callable[[], Any]:
    (tagger,) = scene.qm.register(scene.queue.name, "device")
    return lambda: scene.qm.enqueue_tagged(scene.queue.name, tagger, b"x", b"tag")


def send(scene: Scene) -> Callable[[], Any]:
    clerk = scene.until.enter_context(scene.qm.clerk("till", scene.queue, window=5))
    return lambda: clerk.send("1", b"x")


def send_many(scene: Scene) -> Callable[[], Any]:
    clerk = scene.until.enter_context(scene.qm.clerk("desk", scene.queue, window=5))
    return lambda: clerk.send_many([("1", b"x")])


def alert_late(scene: Scene) -> Callable[[], Any]:
    elsewhere = queue_named(f"{scene.queue.name}.other")
    scene.qm.declare(elsewhere)
    clerk = scene.until.enter_context(scene.qm.clerk("late", elsewhere))
    clerk.send("1", b"x")
    return lambda: clerk.alert_late(scene.queue.name, late_s=0.0)


def report(scene: Scene) -> Callable[[], Any]:
    elsewhere = queue_named(f"{scene.queue.name}.told")
    scene.qm.declare(elsewhere)
    wanted = onceq.Reports(scene.queue.name, exception=True)
    eid = scene.qm.enqueue(elsewhere, b"x", reports=wanted)
    return lambda: scene.qm.kill(eid)


def enqueue_rows_of_spark(scene: Scene) -> Callable[[], Any]:
    names = ("priorities", "not_before", "expires_at", "correlation_ids", "content_types")
    op = SparkEnqueue(
        registrant_id=None,
        epoch=None,
        queue=scene.queue.name,
        send_no=0,
        rids=["1"],
        bodies=[b"x"],
        properties=[],
        content_type=None,
        **{name: [] for name in names},
    )
    return partial(scene.spark().perform, op)


def abort(scene: Scene) -> Callable[[], Any]:
    return partial(scene.life.abort, scene.claimed())


def give_back(scene: Scene) -> Callable[[], Any]:
    return partial(scene.life.abort, scene.claimed(), Charge.RELEASE)


def revoke(scene: Scene) -> Callable[[], Any]:
    life = scene.until.enter_context(living(scene.conninfo, scene.repository))
    scene.claimed(life)
    closing = ops.CloseIncarnation(incarnation=life.incarnation)
    return partial(scene.life.driver.perform, closing)


def roll_back_a_dequeue(scene: Scene) -> Callable[[], Any]:
    other = scene.until.enter_context(onceq.open(scene.conninfo, repository=scene.repository))
    connection = scene.until.enter_context(plain(scene.conninfo))
    connection.execute("begin")
    scene.qm.enqueue(scene.queue, b"x")
    assert other.dequeue(scene.queue.name, connection=connection) is not None

    def act() -> None:
        connection.execute("rollback")
        other.close()

    return act


def redrive(scene: Scene) -> Callable[[], Any]:
    element = scene.claimed()
    scene.life.abort(element, Charge.REJECT)
    return lambda: scene.qm.redrive(element.eid)


def start(scene: Scene) -> Callable[[], Any]:
    scene.qm.stop(scene.queue.name, enqueue=False)
    scene.qm.enqueue(scene.queue, b"x")
    return lambda: scene.qm.start(scene.queue.name)


def release_by_spark(scene: Scene) -> Callable[[], Any]:
    scene.qm.enqueue(scene.queue, b"x")
    driver = scene.spark()
    who = driver.perform(SparkOpen(name="spark", queue=scene.queue.name))
    life = {"server_id": who.server_id, "epoch": who.epoch}
    assert driver.perform(SparkClaim(**life, start=0, n=10)) > 0
    return partial(driver.perform, SparkClose(**life))


def end_a_suspect(scene: Scene) -> Callable[[], Any]:
    """While one runs, no other may."""
    for _ in range(2):
        scene.life.abort(scene.claimed(), Charge.SUSPECT)
    return partial(scene.life.run, scene.life.claim_one(scene.queue.name))


SERVER_WAYS = (
    *(enqueue, enqueue_many, enqueue_in_a_transaction, enqueue_tagged, send, send_many),
    *(alert_late, report, enqueue_rows_of_spark, abort, give_back, revoke, roll_back_a_dequeue),
    *(redrive, start, release_by_spark, end_a_suspect),
)


@pytest.mark.parametrize("way", SERVER_WAYS, ids=lambda way: way.__name__)
def test_what_can_be_claimed_rings_a_server_that_sleeps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, way: Callable[[Scene], Callable[[], Any]]
) -> None:
    """It is found by that: nobody surveys meanwhile."""
    scene.qm.declare(RAW)
    act = way(scene)
    let_nobody_survey(monkeypatch)
    with asleep(scene, RAW) as server:
        wait_unwatched(server)
        before = server.statistics()
        act()
        wait_until(lambda: server.statistics().done > 0)
        assert server.statistics().rung > before.rung


def test_without_any_ring_all_of_it_is_found_in_time(scene: Scene) -> None:
    """Each way with a queue of its own, all at once, and bells that nobody hears."""
    queues = [queue_named(f"raw{number}") for number, _ in enumerate(SERVER_WAYS)]
    for queue in queues:
        scene.qm.declare(queue)
    ready = zip(SERVER_WAYS, queues, strict=True)
    acts = [way(replace(scene, queue=queue)) for way, queue in ready]
    with asleep(scene, *queues) as server:
        change_bells(scene.conninfo, scene.repository, dead_bell())
        before = server.statistics()
        for act in acts:
            act()
        wait_until(lambda: server.statistics().done >= len(acts), WITHOUT_S)
        assert server.statistics().rung == before.rung


# --- what a clerk waits for -----------------------------------------------------------------------


def reject(scene: Scene) -> None:
    scene.life.abort(scene.life.claim_one("raw"), Charge.REJECT)


def kill(scene: Scene) -> None:
    scene.qm.kill(scene.qm.lookup("1")[0].eid)


def expire(scene: Scene) -> None:
    with plain(scene.conninfo) as connection:
        late = f"update {scene.repository}.element set expires_at = now() where rid = '1'"
        connection.execute(late.encode())
    assert scene.life.claim("raw") == []


def fence(scene: Scene) -> None:
    with scene.qm.clerk("till", RAW):
        pass


def redrive_reply(scene: Scene) -> None:
    (held,) = scene.qm.lookup("0", state="held")
    assert scene.qm.redrive(held.eid) == (held.eid, "0")


def hold_a_reply(scene: Scene) -> None:
    """A former life of the client receives in vain, until its reply is held."""
    with scene.qm.clerk("till", RAW) as clerk, connect(scene.conninfo) as connection:
        scene.qm.alter(onceq.AlterQueue(queue="reply-1", abort_limit=1))
        clerk.send("0", b"x")
        scene.life.run(scene.life.claim_one("raw"), b"x")
        connection.autocommit = False
        clerk.receive(timeout_s=LIMIT_S, connection=connection)
        connection.rollback()
        with pytest.raises(ReplyHeld):
            clerk.receive(timeout_s=LIMIT_S, connection=connection)
        clerk.disconnect()


CLERK_WAYS = (reject, kill, expire, fence, redrive_reply)
FENCES = {fence, redrive_reply}


@pytest.mark.parametrize("way", CLERK_WAYS, ids=lambda way: way.__name__)
def test_what_ends_a_request_rings_the_clerk_that_waits_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, way: Callable[[Scene], None]
) -> None:
    """It hears of it by that: it does not look meanwhile."""
    scene.qm.declare(RAW)
    if way is redrive_reply:
        hold_a_reply(scene)
    link, wakes, session = sleeping_clerk(scene.conninfo, scene.repository)
    scene.until.callback(link.close)
    receive = receiving.receive(session, ckpt=None, rid=None, limit=1, timeout_s=LIMIT_S)
    waits = let_nobody_look(monkeypatch, "reply", "receive")
    waiting = Background(partial(link.run, receive))
    assert waits.wait(LIMIT_S)
    listening(scene.conninfo)
    way(scene)
    if way in FENCES:
        with pytest.raises(Fenced):
            waiting.result()
    else:
        assert waiting.result()[0].rid == "1"
    assert wakes.rung == 1


# --- the page -------------------------------------------------------------------------------------


def test_the_page_names_each_way() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert named == [way.__name__ for way in (*SERVER_WAYS, *CLERK_WAYS)]
