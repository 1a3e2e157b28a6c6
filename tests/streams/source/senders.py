"""A source that sends, as tests talk to it: what it sent to each store, and what it told."""

from __future__ import annotations

from typing import Any

from onceq.streams.model import asks, encoding, events
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.frames import Frame, FrameKind, decode
from onceq.streams.model.log import chained
from onceq.streams.model.quorum import StoreList, listed
from onceq.streams.model.window import Flight
from onceq.streams.source import acts
from onceq.streams.source.epochs import Begun, SourceLife, Timing, WhyEnded
from onceq.streams.source.releasing import Policy
from onceq.streams.source.sending import Sending

ABC = listed("a b c")
S = 7
TIMING = Timing(retry_s=1.0, resend_s=4.0, unresponsive_s=2.0)


def begun(epoch: int = 1, end: int = 0, noted: str = "abc", **given: Any) -> Begun:
    """An epoch in which some stores are admitted, and hold a log."""
    lists: tuple[StoreList, ...] = given.get("lists", (ABC,))
    stage: Stage = given.get("stage", Stage.SETTLED)
    before = given.get("firsts", ((0, 0),) if end else ())
    bridge = Bridge(
        epoch=epoch,
        stage=stage,
        lists=lists,
        firsts=chained(before, epoch, end),
        fillings=given.get("fillings", ()),
    )
    log = Log(
        admitted=given.get("admitted", epoch - 1), end=end, lists=lists, firsts=before, positions={}
    )
    return Begun(
        stream=S,
        bridge=bridge,
        log=log,
        noted=dict.fromkeys(noted, stage),
        ends=dict.fromkeys(noted, end),
        seen=given.get("seen", dict.fromkeys(noted, end)),
        donors=("a", "b", "c"),
        refused=frozenset(given.get("refused", "")),
        unable=frozenset(given.get("unable", "")),
        fresh=frozenset(given.get("fresh", "")),
    )


class Source:
    """A core, and all that it wanted done."""

    def __init__(self, own: StoreList = ABC, flight: int = 10, **given: Any) -> None:
        life = SourceLife(life=5, born_s=1, own=own, topic="bars", session=9, address="x:1")
        sizes: dict[str, Any] = {"messages_max": flight, **given.pop("flights", {})}
        policy = Policy(**given.pop("policy", {}))
        self.core = Sending(life, Flight(**sizes), TIMING, policy=policy, **given)
        self.now_s = 0.0
        self.sent: dict[str, list[Frame]] = {}
        self.published: list[Any] = []
        self.asked: list[acts.Ask] = []
        self.told: list[events.Event] = []
        self.ends: list[WhyEnded] = []

    def do(self, made: list[acts.Act]) -> None:
        for act in made:
            match act:
                case acts.Send(store=store, data=data):
                    self.sent.setdefault(store, []).append(decode(data))
                case acts.Publish(data=data):
                    frame = decode(data)
                    is_answer = frame.kind is FrameKind.ANSWER
                    self.published.append(encoding.answer_of(frame.body) if is_answer else frame)
                case acts.Ask():
                    self.asked.append(act)
                case acts.Tell(event=event):
                    self.told.append(event)
                case acts.End(why=why):
                    self.ends.append(why)

    def begin(self, one: Begun) -> None:
        self.do(self.core.begin(one, self.now_s))

    def step(self, given: acts.Given) -> None:
        self.do(self.core.step(given, self.now_s))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.step(acts.Ticked())

    def send(self, *messages: bytes) -> list[int]:
        numbers = [self.core.send(one) for one in messages]
        self.do(self.core.flush(self.now_s))
        return numbers

    def have(self, stores: str, end: int, epoch: int | None = None) -> None:
        """Let stores answer that they have everything before a number."""
        for store in stores:
            answer = asks.Holding(epoch=self.core.epoch if epoch is None else epoch, end=end)
            self.step(acts.Came(store=store, answer=answer))

    def answer(self, answer: asks.Answer | None) -> asks.Admit:
        """Answer the oldest ask."""
        one = self.asked.pop(0)
        self.step(acts.Answered(store=one.store, ask=one.ask, answer=answer))
        return one.ask

    def confirm(self, receiver: int, below: int, link: int | None = None, epoch: int = 1) -> None:
        """Let a receiver say that it has processed everything below."""
        said = asks.Confirm(stream=S, epoch=epoch, receiver=receiver, below=below)
        self.step(acts.Confirmed(link=receiver if link is None else link, said=said))

    def of(self, kind: type[Any]) -> list[Any]:
        """What was told of some kind since the last call."""
        found = [one for one in self.told if isinstance(one, kind)]
        self.told = [one for one in self.told if not isinstance(one, kind)]
        return found

    def ranges(self, store: str) -> list[tuple[int, int]]:
        """The numbers of the frames that were sent to a store since the last call."""
        return [(one.number, one.end) for one in self.sent.pop(store, [])]
