"""A store that is fed what no honest process sends, beside one stream that is sound.

What is judged: nothing raises; what is damaged has no effect, and its link is closed; each sound
ask has one answer, of a kind that may answer it; what is stable in the sound stream stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from onceq.streams.errors import FrameRefused
from onceq.streams.model import asks, encoding, listings, uses
from onceq.streams.model.choice import Bridge, Log, Stage
from onceq.streams.model.ending import EndStream, Gone
from onceq.streams.model.frames import Frame, FrameKind, Splitter, body_of, decode, encode
from onceq.streams.model.ops import AskStores, FetchRange
from onceq.streams.model.quorum import listed
from onceq.streams.net.wire import TO_FRAMES, ask_frame
from onceq.streams.store import acts
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.serving import Serving
from onceq.streams.store.store import Store
from proof.streams_fuzz.invention import STREAMS, Invention

SOUND: Final = STREAMS[0]
LIFE: Final = 77
MESSAGES: Final = tuple(b"message %d" % number for number in range(20))
OWN: Final = "127.0.0.1:7401"
LIST: Final = listed(f"{OWN} 127.0.0.1:7402 127.0.0.1:7403")
LINKS_MAX: Final = 3
STREAMS_KEPT_MAX: Final = 10_000

MAY_ANSWER: Final[Mapping[type[Any], tuple[type[Any], ...]]] = {
    asks.Look: (asks.Found,),
    asks.Learn: (asks.Information, asks.Forgot, asks.Others),
    asks.Fence: (asks.Found, asks.Refused, asks.Taken, asks.Full),
    asks.Admit: (asks.Holding, asks.Refused, asks.Forgot, asks.Lacking, asks.Full),
    asks.Fetch: (asks.Range, asks.Forgot),
    asks.Read: (asks.Range, asks.Forgot),
    asks.Register: (asks.Registered, asks.NotAdmitted, asks.Refused, asks.Full, uses.InUse),
    asks.Acknowledge: (asks.Holding, asks.NotAdmitted, asks.Full, uses.InUse),
    asks.Deregister: (asks.Holding, asks.NotAdmitted, asks.Full),
    asks.Positions: (asks.Known, asks.NotAdmitted),
    asks.Streams: (listings.Listing,),
    uses.Leave: (asks.Holding,),
    EndStream: (uses.InUse, asks.Full),
}
"""Beside `Gone`, which answers whatever is asked of a stream that was deregistered."""
TO_A_FRAME: Final[tuple[type[Any], ...]] = (
    asks.Holding,
    asks.NotAdmitted,
    asks.Forgot,
    asks.Refused,
    asks.Full,
    asks.Conflict,
)
Gives = Callable[[Invention, Any], Any]


class Fed:
    """A store that is fed. wrong: what was found; tried: inputs, by what they were."""

    def __init__(self, store: Store, invention: Invention) -> None:
        self.store = store
        self.invention = invention
        self.serving = Serving(store, OWN)
        self.wrong: list[str] = []
        self.tried: Counter[str] = Counter()
        self._splitters: dict[int, Splitter] = {}
        self._asked: dict[tuple[int, int], asks.Ask] = {}
        self._running: list[acts.Ask] = []
        self._last = self._tag = 0
        self._may_lose = False
        self._make_sound()
        self._whole = self._stored()

    # the sound stream

    def _make_sound(self) -> None:
        link = self._open()
        fence = asks.Fence(stream=SOUND, epoch=1, life=LIFE, own=LIST, topic="bars", session=9)
        log = Log(admitted=0, end=0, lists=(LIST,), firsts=(), positions={})
        bridge = Bridge(epoch=1, stage=Stage.SETTLED, lists=(LIST,), firsts=((1, 0),))
        admit = asks.Admit(stream=SOUND, life=LIFE, log=log, bridge=bridge)
        for ask in (fence, admit):
            self._feed(link, self._asking(link, ask))
        for number, message in enumerate((*MESSAGES, b"")):
            is_last = number == len(MESSAGES)
            frame = Frame(
                kind=FrameKind.MESSAGES,
                stream=SOUND,
                epoch=1,
                number=number,
                stable=number,
                count=0 if is_last else 1,
                body=b"" if is_last else body_of([message]),
            )
            self._feed(link, encode(frame))
        self.settle()
        self._close(link)

    def _stored(self) -> list[bytes]:
        return list(self.store.read(SOUND, range(len(MESSAGES))))

    # links

    def _open(self) -> int:
        self._last += 1
        self._splitters[self._last] = Splitter()
        self._step(acts.Opened(link=self._last))
        return self._last

    def _close(self, link: int) -> None:
        self._splitters.pop(link, None)
        self._asked = {key: one for key, one in self._asked.items() if key[0] != link}
        self._step(acts.Gone(link=link))

    def _feed(self, link: int, data: bytes) -> None:
        """Let bytes come on a link, in pieces."""
        chance = self.invention.chance
        cut = chance.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            if link not in self._splitters:
                return
            try:
                for one in self._splitters[link].feed(piece):
                    self._step(acts.Came(link=link, data=one))
                    if link not in self._splitters:
                        return
            except FrameRefused:
                self._close(link)

    # what is fed

    def feed(self) -> None:
        """Feed something."""
        chance = self.invention.chance
        links = list(self._splitters)
        link = chance.choice(links) if len(links) >= LINKS_MAX else self._open()
        draw = chance.random()
        if draw < 0.45:
            self._ask(link)
        elif draw < 0.6:
            self.tried["frames"] += 1
            self._feed(link, self.invention.frame())
        elif draw < 0.85:
            self._harm(link)
        else:
            self.tried["noise"] += 1
            self._feed(link, self.invention.noise())
            if link in self._splitters and self._splitters[link].waiting():
                self._close(link)  # it waits for the rest of what noise promised

    def _ask(self, link: int) -> None:
        ask = self.invention.ask()
        self.tried[type(ask).__name__] += 1
        if isinstance(ask, asks.Admit) and ask.bridge.losses:
            self._may_lose |= ask.stream == SOUND
        if isinstance(ask, EndStream) and ask.stream == SOUND:
            ask = replace(ask, stream=SOUND + 1)  # that is not to be lost
        try:
            encoding.ask_of(encoding.packed(ask))
        except FrameRefused:
            self._feed(link, ask_frame(getattr(ask, "stream", 0), 1, ask))
            if link in self._splitters:
                self._note(f"{ask} is refused, and its link is open")
        else:
            self._feed(link, self._asking(link, ask))

    def _asking(self, link: int, ask: asks.Ask) -> bytes:
        self._tag += 1
        self._asked[link, self._tag] = ask
        return ask_frame(getattr(ask, "stream", 0), self._tag, ask)

    def _harm(self, link: int) -> None:
        """Feed what is damaged: whatever it was, nothing of it has an effect."""
        self.tried["damaged"] += 1
        self._tag += 1
        sound = self.invention.frame()
        if self.invention.chance.random() < 0.5:
            sound = ask_frame(SOUND, self._tag, self.invention.ask())
        before = dict(self.store.catalogue.streams)
        self._feed(link, self.invention.harmed(sound))
        if self.store.catalogue.streams != before:
            self._note("a damaged frame had an effect")
        if link in self._splitters:
            self._close(link)  # it waits for the rest of what a damaged length promised

    # what comes of it

    def _step(self, given: acts.Given) -> None:
        for act in self.serving.step(given):
            match act:
                case acts.Send(link=link, data=data):
                    self._heard(link, data)
                case acts.Refuse(link=link):
                    self._close(link)
                case acts.Ask():
                    self._running.append(act)
                case acts.Drop(program=program):
                    self._running = [one for one in self._running if one.program != program]
                case acts.Commit():
                    pass

    def _heard(self, link: int, data: bytes) -> None:
        first = decode(next(Splitter().feed(data)))
        answer = encoding.answer_of(first.body)
        if first.number == TO_FRAMES:
            may = TO_A_FRAME
        else:
            ask = self._asked.pop((link, first.number), None)
            may = MAY_ANSWER[type(ask)] if ask is not None else ()
            if isinstance(answer, Gone) and answer.stream == getattr(ask, "stream", None):
                may = (Gone,) if self.store.catalogue.of(answer.stream).is_gone else ()
        if not isinstance(answer, may):
            self._note(f"{answer} answers {first.number} on a link")

    def settle(self) -> None:
        """Perform what is to be performed, and sync; then each ask must have its answer."""
        for _ in range(50):
            self._step(acts.Ticked())
            if isinstance(self.store, DiskStore):
                synced = self.store.log.commit()
                self.store.log.prepare()
                self._step(acts.Synced(position=synced))
            running, self._running = self._running, []
            for one in running:
                self._step(acts.Answered(program=one.program, answer=self._performed(one.op)))
            if not self._asked:
                break
        for (_, tag), ask in self._asked.items():
            self._note(f"{ask} with the tag {tag} has no answer")
        self._asked.clear()

    def _performed(self, op: Any) -> Any:
        """Answer an Op as other stores may: nothing, something, or frames that were not asked."""
        match op:
            case FetchRange() if self.invention.chance.random() < 0.5:
                return tuple(self.invention.frame() for _ in range(2))
            case AskStores(asked=asked):
                return {store: self.invention.answer() for store in asked}
            case _:
                return None

    def check(self) -> None:
        """Check what must be so after all that."""
        held = self.store.catalogue.of(SOUND)
        if not self._may_lose and (held.begin, held.stable) != (0, len(MESSAGES)):
            self._note(f"the sound stream has {held.begin} to {held.stable}")
        if not self._may_lose and self._stored() != self._whole:
            self._note("the sound stream has other messages")
        if len(self.store.catalogue.streams) > STREAMS_KEPT_MAX:
            self._note("more streams are kept than may be")

    def _note(self, text: str) -> None:
        self.wrong.append(text)
