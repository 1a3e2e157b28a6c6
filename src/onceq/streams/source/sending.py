"""What a source does while it sends: a core without links, threads or a clock. Pure.

It numbers messages, sends them to all stores of its lists in blocks, and finds what is stable by
what they answer. What every store must have noted, it asks of each anew when its link was lost. An
epoch ends when a store forgot, or promised more to another life, or lacks what was released, when
a number is given up, or the list is to change: then a recovery begins the next one, and what the
chosen log lacks is sent again. Source: streams.md 5 and 7; spec M9 to M16.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onceq.streams.errors import FlightFull, NotRegistered
from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import StoreList, are_stable
from onceq.streams.model.window import Flight
from onceq.streams.net.wire import TO_FRAMES, answer_frame
from onceq.streams.source import acts, telling
from onceq.streams.source.acts import Act, Given
from onceq.streams.source.changing import Wish, advanced, settled
from onceq.streams.source.epochs import Begun, Short, SourceLife, Timing, WhyEnded, is_succeeded
from onceq.streams.source.feeding import Feeding
from onceq.streams.source.giving_up import GivingUp, given_up
from onceq.streams.source.retaining import Block, Retention


class Sending:
    """The messages of one life of a source, from its first epoch to its last.

    flight: the limit of what may be unstable. retained_bytes_max: with more, what is stable is
    released although a store that is there has not got it.
    """

    def __init__(
        self,
        life: SourceLife,
        flight: Flight,
        timing: Timing | None = None,
        *,
        retained_bytes_max: int = 64 << 20,
        reported: Consensus = Consensus.MAJORITY,
    ) -> None:
        self.life = life
        self.flight = flight
        self.timing = timing or Timing()
        self.retained_bytes_max = retained_bytes_max
        self.reported = reported
        self.retention = Retention()
        self.begun: Begun | None = None
        self.needed: tuple[StoreList, ...] = ()
        self.own = life.own
        self.wish = Wish(life.own, self.timing)
        self.stable = 0
        self.refused: set[str] = set()
        self.giving_up = GivingUp()
        self.ended: WhyEnded | None = None
        self.is_starved = False
        self.feeding = Feeding(self.timing)
        self._now_s = 0.0
        self._published = self._told = 0
        self._short = Short()

    @property
    def next(self) -> int:
        """The number of its next message."""
        return self.retention.next

    @property
    def wanted(self) -> StoreList | None:
        """The list to which the next epoch is to change; None: to none."""
        return self.wish.wanted

    @property
    def epoch(self) -> int:
        """The epoch that was begun last; 0: none."""
        return 0 if self.begun is None else self.begun.epoch

    @property
    def is_sending(self) -> bool:
        """Whether an epoch goes on."""
        return self.begun is not None and self.ended is None

    def information(self) -> asks.Information | None:
        """Return what receivers must know; None: no epoch was begun yet."""
        return telling.information(self.life, self.begun, self.stable) if self.begun else None

    def learn(self, ask: asks.Ask) -> asks.Answer:
        """Answer a receiver. Raises FrameRefused for what is no ask of one of this stream."""
        return telling.answered(self.life, ask, self.information())

    # messages

    def has_room(self, size: int) -> bool:
        """Whether a message of so many bytes can be taken now, or must wait for room in flight.

        Raises NotRegistered, SourceSucceeded or NumberConflict if none can.
        """
        telling.refuse_if_over(self.ended)
        if self.begun is None or self.is_starved:
            raise NotRegistered(
                "no stable set of stores is responsive: wait until enough are back, then send again"
            )
        return self.flight.has_room(size)

    def send(self, message: bytes) -> int:
        """Take a message; return its number. It leaves with `flush`, or `feed` if a block is full.

        Raises as has_room, FlightFull or TooLarge: nothing was taken.
        """
        if not self.has_room(len(message)):
            raise FlightFull(
                f"{len(self.flight)} messages are not yet stable: wait, or raise flight_size"
            )
        self.retention.add(message)
        return self.flight.send(len(message))

    @property
    def is_due(self) -> bool:
        """Whether a block is full, and was not sent: `feed` sends it."""
        return self.is_sending and self.retention.sealed > self._published

    def feed(self, now_s: float) -> list[Act]:
        """Send the blocks that are full."""
        self._now_s = now_s
        return list(self._feed()) if self.is_sending else []

    def flush(self, now_s: float) -> list[Act]:
        """Send what was taken."""
        self.retention.seal()
        return self.feed(now_s)

    @property
    def is_untold(self) -> bool:
        """Whether receivers were not told of all that is stable: a tick soon tells it."""
        return self.is_sending and self._told < self.stable

    # epochs

    def begin(self, begun: Begun, now_s: float) -> list[Act]:
        """Begin to send in an epoch; return what is to be done."""
        self._now_s = now_s
        return list(self._begin(begun))

    def _begin(self, begun: Begun) -> Iterator[Act]:
        gone = self._take_over(begun)
        self.begun, self.ended, self.refused = begun, None, set(begun.refused)
        self._published = self._told = begun.log.end
        self._short = Short()
        self.feeding.begin(begun, self._now_s)
        yield acts.Tell(event=telling.registered(begun, self.next, self.reported))
        yield from (acts.Tell(event=event) for event in given_up(self._stream, gone))
        is_settling = begun.bridge.stage is Stage.SETTLING
        self._follow(replace(begun, bridge=settled(begun.bridge)) if is_settling else begun)
        if begun.bridge.stage is Stage.SETTLED:
            self.wish.put_off(self._now_s)
        yield from self._publish_information()
        yield from self._land(begun.log.end)
        yield from self._go_on()

    def _take_over(self, begun: Begun) -> list[int]:
        """Go on behind the chosen log: what it lacks is sent again, or as void; return the void."""
        end = begun.log.end
        self.retention.seal()
        if self.begun is None:
            self.retention, self.stable = Retention(end), end
            self.flight.land(end)
            self.flight.landed_below = end
        elif not self.stable <= end <= self.retention.sealed:
            raise AssertionError(f"{begun} ends at {end}, and all below {self.stable} was stable")
        gone = self.giving_up.begin(end)
        self.retention.void(gone)
        return gone

    def _publish_information(self) -> Iterator[Act]:
        known = self.information()
        if known is not None:
            yield acts.Publish(data=answer_frame(known.stream, TO_FRAMES, known))

    def lack(self, short: Short) -> list[Act]:
        """Note that no epoch can begin now: until one does, no message is taken."""
        self.is_starved = True
        before, self._short = self._short, short
        told = () if short == before else telling.lacking(self._stream, short)
        return [acts.Tell(event=event) for event in told]

    def succeed(self) -> list[Act]:
        """Note that a recovery found a later life: this one sends no more."""
        if self.ended is WhyEnded.SUCCEEDED:
            return []
        self.ended = WhyEnded.SUCCEEDED
        return [acts.Tell(event=events.SourceFenced(stream=self._stream, epoch=self.epoch))]

    # what happens

    def step(self, given: Given, now_s: float) -> list[Act]:
        """Take what happened; return what is to be done, in order."""
        self._now_s = now_s
        made = list(self._steps(given))
        if self.is_sending:
            made += self._go_on()
        return made

    def _steps(self, given: Given) -> Iterator[Act]:
        match given:
            case acts.Opened(store=store):
                self.feeding.of(store).open()
            case acts.Gone(store=store, why=why):
                self.feeding.of(store).lose()
                yield from self._unresponsive(store, why)
            case acts.Wanted() | acts.GaveUp():
                self._wish(given)
            case _ if self.is_sending:
                yield from self._heard(given)
            case _:
                pass

    def _wish(self, given: acts.Wanted | acts.GaveUp) -> None:
        if isinstance(given, acts.Wanted):
            self.wish.want(given.own, self._now_s)
        elif self.stable <= given.number < self.next:
            self.giving_up.asked.add(given.number)

    def _heard(self, given: Given) -> Iterator[Act]:
        """Take what matters only while an epoch goes on."""
        match given:
            case acts.Answered():
                yield from self._admitted(given)
            case acts.Came(store=store, answer=answer):
                yield from self._answered(store, answer)
            case _:
                for store in self.feeding.tick(self._now_s):
                    yield from self._unresponsive(store, "it has not answered for what was sent")
                yield from self._tell_stable()

    def _unresponsive(self, store: str, why: str) -> Iterator[Act]:
        fed = self.feeding.stores.get(store)
        if fed is not None and fed.is_responsive and self.begun is not None:
            fed.is_responsive = False
            event = events.StoreUnresponsive(stream=self._stream, store=store, why=why)
            yield acts.Tell(event=event)

    def _admitted(self, given: acts.Answered) -> Iterator[Act]:
        """Take the answer of a store that was asked to be admitted, or to note a stage."""
        fed, stage = self.feeding.of(given.store), given.ask.bridge.stage
        if fed.asked is not given.ask:
            return  # of a link that was lost since, or of a former epoch
        fed.asked = None
        match given.answer:
            case asks.Holding(end=end):
                sealed = self.retention.sealed
                self.feeding.admit(given.store, stage, min(end, sealed), self._now_s)
            case asks.Noted():
                fed.is_noting = True
                self.feeding.admit(given.store, stage, self.stable, self._now_s)
            case asks.Forgot():
                yield from self._end(WhyEnded.FORGOT)
            case asks.Refused():
                self.refused.add(given.store)
            case _:
                fed.ask_s = self._now_s + self.timing.retry_s

    def _answered(self, store: str, answer: asks.Answer) -> Iterator[Act]:
        """Take the answer of a store to frames."""
        fed = self.feeding.of(store)
        match answer:
            case asks.Holding(epoch=self.epoch, end=end):
                fed.hear(min(end, self.retention.sealed), self._now_s)
            case asks.Noted(epoch=self.epoch):
                fed.hear(fed.sent, self._now_s)
            case asks.Full():
                fed.refuse(self._now_s)
            case asks.NotAdmitted():
                self.feeding.dismiss(store)
            case asks.Refused(promised=promised):
                fed.is_greeted = False  # unless overtaken, it does not know who sends on this link
                self.refused |= {store} if promised > self.epoch else set()
            case asks.Forgot() | asks.Conflict():
                yield from self._end(acts.BROKEN[type(answer)])
            case _:
                pass

    # what follows

    def _go_on(self) -> Iterator[Act]:
        """Do whatever can be done now, in this order."""
        yield from self._land(self.feeding.stable_below(self.needed, self.stable))
        if self._advance():
            yield from self._publish_information()
        yield from self._look_around()
        if self.begun is not None and self.ended is None:
            for store, fed in self.feeding.asked(self.life, self.begun, self._now_s):
                if fed.asked is not None:
                    yield acts.Ask(store=store, ask=fed.asked)
            yield from self._feed()
            yield from self._release()
        responsive = self.feeding.responsive
        self.is_starved = not all(one.is_responsive(responsive) for one in self.needed)

    def _land(self, below: int) -> Iterator[Act]:
        """Note that everything below a number is stable."""
        if below <= self.stable:
            return
        told = list(self.giving_up.stable(self._stream, self.stable, below))
        self.stable = below
        self.flight.land(below)
        yield from (acts.Tell(event=event) for event in told)

    def _advance(self) -> bool:
        """Take a change of lists one stage further if enough stores are so far; return whether."""
        if self.begun is None:
            return False
        bridge = advanced(self.begun.bridge, self.feeding.noted)
        is_further = bridge.stage is not self.begun.bridge.stage
        if is_further:
            self._follow(replace(self.begun, bridge=bridge))
        return is_further

    def _follow(self, begun: Begun) -> None:
        """Go by the lists of a stage."""
        self.begun, self.needed, self.own = begun, begun.bridge.lists, begun.bridge.lists[-1]
        self.wish.follow(self.needed)
        self.feeding.choose(begun)

    def _look_around(self) -> Iterator[Act]:
        """Find a reason to end the epoch."""
        if is_succeeded(self.needed, self.refused):
            yield from self._end(WhyEnded.SUCCEEDED)
        elif self.refused:
            yield from self._end(WhyEnded.OVERTAKEN)
        elif self.giving_up.asked:
            yield from self._end(WhyEnded.GIVEN_UP)
        elif self.wish.is_due(self.own, self._now_s) and self._may_change():
            yield from self._end(WhyEnded.LIST_CHANGES)
        elif self.feeding.lacks(self.retention.begin, self._now_s):
            yield from self._end(WhyEnded.BEHIND)

    def _may_change(self) -> bool:
        """Whether a recovery would find that no change of lists is on, and may begin one."""
        noted = self.feeding.noted.items()
        return are_stable(self.needed, {store for store, at in noted if at is Stage.SETTLED})

    def _end(self, why: WhyEnded) -> Iterator[Act]:
        if self.ended is not None:
            return
        self.ended = why
        if why is WhyEnded.SUCCEEDED:
            yield acts.Tell(event=events.SourceFenced(stream=self._stream, epoch=self.epoch))
        yield acts.End(why=why)

    def _feed(self) -> Iterator[Act]:
        """Send to receivers and stores what was not yet sent to them."""
        for block in self.retention.blocks(self._published):
            yield acts.Publish(data=self._framed(block))
            self._published, self._told = block.end, max(self._told, block.told)
        for store, fed, block in self.feeding.blocks(self.retention):
            data = self._framed(block)
            fed.send(block, len(data), self._now_s)
            fed.told = max(fed.told, block.told)
            yield acts.Send(store=store, data=data)

    @property
    def _stream(self) -> int:
        return 0 if self.begun is None else self.begun.stream

    def _framed(self, block: Block) -> bytes:
        return block.framed(stream=self._stream, epoch=self.epoch, stable=self.stable)

    def farewell(self) -> list[Act]:
        """Tell what is stable to all who were sent it: the life ends, and nobody else tells it."""
        return list(self._tell_stable(is_last=True)) if self.is_sending else []

    def _tell_stable(self, *, is_last: bool = False) -> Iterator[Act]:
        """Tell what is stable to who was not told by a frame."""
        for store, fed in self.feeding.untold(self.stable, is_last=is_last):
            yield acts.Send(store=store, data=self._empty(fed.sent))
        if self._told < self.stable:
            self._told = self.stable
            yield acts.Publish(data=self._empty(self._published))

    def _empty(self, number: int) -> bytes:
        return telling.empty_frame(self._stream, self.epoch, number, self.stable)

    def _release(self) -> Iterator[Act]:
        """Release what is stable, and, while there is room, what every store that is there has."""
        is_over = self.retention.bytes > self.retained_bytes_max
        begin, needed = self.retention.begin, self.feeding.needs(self.stable)
        self.retention.release(self.stable if is_over else needed)
        below = self.retention.begin
        if begin < below:
            told = self.giving_up.released(self._stream, begin, below, forced=below > needed)
            yield from (acts.Tell(event=event) for event in told)
