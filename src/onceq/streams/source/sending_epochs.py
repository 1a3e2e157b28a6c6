"""How a source goes through its epochs: what stores answer in one, and what follows. Pure.

What every store must have noted, it asks of each anew when its link was lost; what stores have,
makes messages stable. An epoch ends when a store forgot, or promised more to another life, or lacks
what was released, when a number is given up, or the list is to change: then a recovery begins the
next one, and what the chosen log lacks is sent again. Source: streams.md 5; spec M6, M12, M13.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onceq.streams.model import asks, events
from onceq.streams.model.choice import Stage
from onceq.streams.model.losses import Acceptance, void_below
from onceq.streams.model.low import Consensus
from onceq.streams.model.quorum import StoreList
from onceq.streams.model.window import Flight
from onceq.streams.net.wire import TO_FRAMES, answer_frame
from onceq.streams.source import acts, telling
from onceq.streams.source.acts import Act, Beside, Given
from onceq.streams.source.changing import settled
from onceq.streams.source.epochs import Begun, Short, SourceLife, Timing, WhyEnded
from onceq.streams.source.feeding import Feeding
from onceq.streams.source.keeping import Keeping
from onceq.streams.source.registration import Registered
from onceq.streams.source.releasing import Policy
from onceq.streams.source.retaining import Retention
from onceq.streams.source.spreading import Spreading
from onceq.streams.source.standing import Standing


class Epochs:
    """The epochs of one life of a source, from the first to the last.

    flight: the limit of what may be unstable. policy: how long messages are kept. backups: of the
    list of the life, see `backing_up`. Raises InvalidValue if less than two flights are kept.
    """

    def __init__(
        self,
        life: SourceLife,
        flight: Flight,
        timing: Timing | None = None,
        *,
        policy: Policy | None = None,
        backups: str = "",
        reported: Consensus = Consensus.MAJORITY,
    ) -> None:
        self.life = life
        self.timing = timing or Timing()
        self.reported = reported
        self.keeping = Keeping(flight, policy or Policy())
        self.standing = Standing(life.own, self.timing, backups)
        self.is_starved = False
        self.feeding = Feeding(self.timing)
        self.spreading = Spreading(self.keeping, self.feeding)
        self._registered = Registered()
        self._now_s = 0.0

    @property
    def retention(self) -> Retention:
        """What is kept of the messages."""
        return self.keeping.retention

    @property
    def stable(self) -> int:
        """Everything below is stable."""
        return self.keeping.stable

    @property
    def next(self) -> int:
        """The number of its next message."""
        return self.retention.next

    @property
    def begun(self) -> Begun | None:
        """The epoch that was begun last; None: none."""
        return self.standing.begun

    @property
    def ended(self) -> WhyEnded | None:
        """Why that has ended; None: it goes on."""
        return self.standing.ended

    @property
    def needed(self) -> tuple[StoreList, ...]:
        """The lists by which it counts what is stable."""
        return self.standing.needed

    @property
    def own(self) -> StoreList:
        """The last of them; at first that of the life."""
        return self.standing.own

    @property
    def wanted(self) -> StoreList | None:
        """The list to which the next epoch is to change; None: to none."""
        return self.standing.wish.wanted

    @property
    def epoch(self) -> int:
        """The number of the epoch that was begun last; 0: none."""
        return self.standing.epoch

    @property
    def is_sending(self) -> bool:
        """Whether an epoch goes on."""
        return self.standing.is_sending

    def information(self) -> asks.Information | None:
        """Return what receivers must know; None: no epoch was begun yet."""
        return telling.information(self.life, self.begun, self.stable) if self.begun else None

    # epochs

    def begin(self, begun: Begun, now_s: float) -> list[Act]:
        """Begin to send in an epoch; return what is to be done."""
        self._now_s = now_s
        return list(self._begin(begun))

    def _begin(self, begun: Begun) -> Iterator[Act]:
        is_first = self.begun is None
        given_up = self._take_over(begun)
        self.life = replace(self.life, session=begun.session or self.life.session)
        self.standing.begin(begun)
        self.spreading.begin(begun.epoch, begun.log.end)
        self.feeding.begin(begun, self._now_s)
        if is_first:
            yield from acts.told(telling.changed(self.life, begun))
            yield from acts.told(telling.lost(begun))
        yield from acts.told(self._registered.begin(begun))
        for store in sorted(begun.noted):
            yield from self._register(store, begun.ends.get(store))
        yield acts.Tell(event=telling.registered(begun, self.next, self.reported))
        yield from acts.told(given_up)
        is_settling = begun.bridge.stage is Stage.SETTLING
        self._follow(replace(begun, bridge=settled(begun.bridge)) if is_settling else begun)
        if begun.bridge.stage is Stage.SETTLED:
            self.standing.wish.put_off(self._now_s)
            yield from self._publish_information()
        else:
            yield from self._tell_list()
        yield from acts.told(self.keeping.land(begun.log.end))
        yield from self._go_on()

    def _take_over(self, begun: Begun) -> list[events.Event]:
        """Go on behind the chosen log: what it lacks is sent again, or as void, which is told."""
        end = begun.log.end
        self.retention.seal()
        if self.begun is None:
            self.keeping.is_kept = begun.bridge.keeps
            self.keeping.begin(begun.stream, begun.epoch, end, void_below(begun.bridge.losses))
        elif not self.stable <= end <= self.retention.sealed:
            raise AssertionError(f"{begun} ends at {end}, and all below {self.stable} was stable")
        return self.keeping.go_on(end)

    def _register(self, store: str, end: int | None, regid: int = 0) -> Iterator[Act]:
        """Tell that a store has registered this source. end: of its log; None: it keeps none."""
        if self.begun is not None:
            yield from acts.told(self._registered.register(self.begun, store, end, regid))

    @property
    def rest(self) -> Acceptance | None:
        """What a person may accept as lost, so that another life begins; None: nothing."""
        return self._registered.rest

    @property
    def regids(self) -> dict[str, int]:
        """What this source is called at stores."""
        return dict(self._registered.regids)

    def _tell_list(self) -> Iterator[Act]:
        """Tell how far a change of lists has come."""
        if self.begun is not None:
            yield acts.Tell(event=telling.list_changed(self.begun))
        yield from self._publish_information()

    def _publish_information(self) -> Iterator[Act]:
        known = self.information()
        if known is not None:
            yield acts.Publish(data=answer_frame(known.stream, TO_FRAMES, known))

    def lack(self, short: Short) -> list[Act]:
        """Note that no epoch can begin now: until one does, no message is taken."""
        self.is_starved = True
        return list(acts.told(self._registered.lack(self._stream, short)))

    def succeed(self) -> list[Act]:
        """Note that a recovery found a later life: this one sends no more."""
        if self.ended is WhyEnded.SUCCEEDED:
            return []
        self.standing.ended = WhyEnded.SUCCEEDED
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
            case acts.Unlinked(store=store):
                self.feeding.of(store).lose()
            case acts.Ticked():
                yield from self._ticked()
            case acts.Answered():
                yield from self._admitted(given) if self.is_sending else ()
            case acts.Came(store=store, answer=answer):
                yield from self._answered(store, answer) if self.is_sending else ()
            case _:
                yield from self._asked(given)

    def _asked(self, given: Beside) -> Iterator[Act]:
        """Take what the application wants, and what receivers say."""
        match given:
            case acts.Wanted(own=own):
                self.standing.wish.want(own, self._now_s)
            case acts.GaveUp(number=number):
                self.keeping.give_up(number)
            case acts.Confirmed(link=link, said=said):
                yield from acts.told(self.keeping.confirm(link, said, self._now_s))
            case acts.Left(link=link, why=why):
                yield from acts.told(self.keeping.left(link, why))

    def _ticked(self) -> Iterator[Act]:
        is_full = any(one.is_full for one in self.feeding.stores.values())
        yield from acts.told(self.keeping.pass_time(self._now_s, stands_still=is_full))
        if self.is_sending:
            for store, why in self.feeding.tick(self._now_s):
                yield from self._unresponsive(store, why)
            for store, said in self.feeding.crowded(self._now_s):
                yield self._told_of(store, telling.full(self.life, store, said))
            if self.standing.is_settled:
                self.standing.wish.look(self.own, self.feeding.silent, self._now_s)
            yield from self.spreading.tell_stable()

    def _unresponsive(self, store: str, why: str) -> Iterator[Act]:
        fed = self.feeding.stores.get(store)
        if fed is not None and fed.is_responsive and self.begun is not None:
            fed.is_responsive = False
            yield self._told_of(store, why)

    def _told_of(self, store: str, why: str) -> Act:
        event = events.StoreUnresponsive(stream=self._stream, store=store, why=why)
        return acts.Tell(event=event)

    def _admitted(self, given: acts.Answered) -> Iterator[Act]:
        """Take the answer of a store that was asked to be admitted, or to note a stage."""
        fed, stage = self.feeding.of(given.store), given.ask.bridge.stage
        if fed.asked is not given.ask:
            return  # of a link that was lost since, or of a former epoch
        fed.asked, was_greeted = None, fed.is_greeted
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
                self.standing.refused.add(given.store)
            case _:
                fed.ask_s = self._now_s + self.timing.retry_s
        if fed.is_greeted and not was_greeted:
            told = given.answer
            regid = told.regid if isinstance(told, asks.Holding | asks.Noted) else 0
            yield from self._register(given.store, None if fed.is_noting else fed.end, regid)
        yield from acts.told(telling.refused(self._stream, self.life, given.store, given.answer))

    def _answered(self, store: str, answer: asks.Answer) -> Iterator[Act]:
        """Take the answer of a store to frames."""
        fed = self.feeding.of(store)
        match answer:
            case asks.Holding(epoch=self.epoch, end=end):
                before = fed.end
                fed.hear(min(end, self.retention.sealed), self._now_s)
                yield from acts.told(self.keeping.stable_at(store, before, fed.end))
            case asks.Noted(epoch=self.epoch):
                fed.hear(fed.sent, self._now_s)
            case asks.Full():
                fed.refuse(answer, self._now_s)
            case asks.NotAdmitted():
                self.feeding.dismiss(store)
            case asks.Refused(promised=promised):
                fed.is_greeted = False  # unless overtaken, it does not know who sends on this link
                self.standing.refused |= {store} if promised > self.epoch else set()
            case asks.Forgot() | asks.Conflict():
                yield from self._end(acts.BROKEN[type(answer)])
            case _:
                pass

    # what follows

    def _go_on(self) -> Iterator[Act]:
        """Do whatever can be done now, in this order."""
        stable = self.feeding.stable_below(self.needed, self.stable)
        yield from acts.told(self.keeping.land(stable))
        if self._advance():
            yield from self._tell_list()
        yield from self._look_around()
        if self.begun is not None and self.ended is None:
            for store, fed in self.feeding.asked(self.life, self.begun, self._now_s):
                if fed.asked is not None:
                    yield acts.Ask(store=store, ask=fed.asked)
            yield from self.spreading.feed(self._now_s)
            yield from acts.told(self.keeping.release(self.feeding.needs(self.stable)))
        responsive = self.feeding.responsive
        self.is_starved = not all(one.is_responsive(responsive) for one in self.needed)

    def _advance(self) -> bool:
        """Take a change of lists one stage further if enough stores are so far; return whether."""
        is_further = self.standing.advance(self.feeding.noted)
        if is_further and self.begun is not None:
            self.feeding.choose(self.begun)
        return is_further

    def _follow(self, begun: Begun) -> None:
        """Go by the lists of a stage."""
        self.standing.follow(begun)
        self.feeding.choose(begun)

    def _look_around(self) -> Iterator[Act]:
        """Find a reason to end the epoch."""
        refusal = self.standing.refusal()
        if refusal is not None:
            yield from self._end(refusal)
        elif self.keeping.giving_up.asked:
            yield from self._end(WhyEnded.GIVEN_UP)
        elif self.standing.changes(self.feeding.noted, self._now_s):
            yield from self._end(WhyEnded.LIST_CHANGES)
        elif self.feeding.lacks(self.retention.begin, self._now_s):
            yield from self._end(WhyEnded.BEHIND)

    def _end(self, why: WhyEnded) -> Iterator[Act]:
        if self.ended is not None:
            return
        self.standing.ended = why
        if why is WhyEnded.SUCCEEDED:
            yield acts.Tell(event=events.SourceFenced(stream=self._stream, epoch=self.epoch))
        else:  # the life may be closed before the next epoch begins
            yield from self.spreading.tell_stable(is_last=True)
        yield acts.End(why=why)

    @property
    def _stream(self) -> int:
        return self.keeping.stream

    def farewell(self) -> list[Act]:
        """Tell what is stable to all who were sent it: the life ends, and nobody else tells it."""
        return list(self.spreading.tell_stable(is_last=True)) if self.is_sending else []
