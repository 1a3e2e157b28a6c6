"""What a source keeps of what it sent, how long, and what its application is told of that. Pure.

A message is released when it is stable, needed by no store that is there, and confirmed by as many
receivers as the source wants; the oldest first. Beyond a limit it is released though it is not
confirmed, and given up though it is not stable. Source: spec M11 to M17; UM, "Source Message
Retention and Release".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from onceq.streams.model import asks, events
from onceq.streams.model.fragments import parts_of
from onceq.streams.model.window import Flight, FlightBehavior
from onceq.streams.source.confirming import Confirming, dead
from onceq.streams.source.giving_up import GivingUp, given_up
from onceq.streams.source.lifetimes import Lifetimes
from onceq.streams.source.objects import Objects, OfMessages
from onceq.streams.source.releasing import Policy, refuse_unless_fits
from onceq.streams.source.retaining import Block, Retention


class Keeping:
    """The messages of one life. stream: 0 before its first epoch.

    stable: everything below is. is_heard: somebody is told; else no event of messages is made.
    is_kept: by stores. forced: numbers that were released since a limit was reached, or given up.
    Raises InvalidValue for a policy that keeps less than two flights.
    """

    def __init__(self, flight: Flight, policy: Policy) -> None:
        refuse_unless_fits(policy, flight)
        self.flight = flight
        self.policy = policy
        self.retention = Retention(fragment_size=policy.fragment_size)
        self.giving_up = GivingUp()
        self.confirming = Confirming(
            policy.retention_unique_confirmations, policy.source_liveness_timeout_ms / 1_000
        )
        self.stream = 0
        self.stable = 0
        self.is_heard = True
        self.is_kept = True
        self.forced = 0
        self._objects = Objects()
        self._lifetimes = Lifetimes(policy.message_stability_lifetime_ms / 1_000)
        self._is_over = False
        self._told: list[events.Event] = []

    # what is taken

    def has_room(self, size: int) -> bool:
        """Whether there is room in flight for a message of so many bytes. Raises TooLarge."""
        is_whole = size <= self.retention.fragment_size
        count = 1 if is_whole else parts_of(size, self.retention.fragment_size)
        return self.flight.has_room(size, count)

    def take(self, message: bytes, given: Any, *, has_room: bool) -> tuple[int, int]:
        """Take a message, for which there may be no room in flight; return its numbers.

        They are the first and the last.
        """
        retention = self.retention
        if len(message) <= retention.fragment_size:
            first = last = retention.add(message)
            self.flight.send(len(message))
        else:
            first = retention.next
            for size in retention.add_parts(message):
                self.flight.send(size)
            last = retention.next - 1
        if self.is_heard:
            self._objects.note(first, last, given)
        if not has_room and not self._is_over:
            self._is_over = True
            self._told.append(self._flight_size())
        return first, last

    def told(self) -> list[events.Event]:
        """Return what is to be told of the flight since the last call."""
        told, self._told = self._told, []
        return told

    def _flight_size(self) -> events.FlightSize:
        return events.FlightSize(
            stream=self.stream,
            is_over=self._is_over,
            messages=len(self.flight),
            bytes=self.flight.bytes,
        )

    @property
    def blocks(self) -> bool:
        """Whether a message that has no room in flight is not taken."""
        return self.flight.behavior is FlightBehavior.BLOCK

    # epochs

    def begin(self, stream: int, epoch: int, end: int, lost_below: int = 0) -> None:
        """Begin the first epoch of the life. end: of the log that it goes on with.

        lost_below: messages go on there, if that is behind it; what lies between is sent as void.
        """
        self.stream, self.stable = stream, end
        self.retention.begin_at(end, lost_below)
        self.giving_up.lost = range(end, self.retention.next)
        self.flight.landed_below = self.retention.next
        self.confirming.begin(epoch, end)

    def go_on(self, end: int) -> list[events.Event]:
        """Go on behind a chosen log: what it lacks is sent again, or as void, which this tells."""
        gone = self.giving_up.begin(end)
        self.retention.void(gone)
        self.forced += len(gone)
        return list(self._split(given_up(self.stream, gone)))

    def give_up(self, number: int) -> None:
        """Have the message of a number given up, as far as it is not stable."""
        if max(self.stable, self.giving_up.lost.stop) <= number < self.retention.next:
            numbers = self.retention.whole(number)
            void = self.giving_up.void
            self.giving_up.asked.update(
                one for one in numbers if one >= self.stable and one not in void
            )

    # what is stable, or confirmed

    def land(self, below: int) -> list[events.Event]:
        """Note that everything below a number is stable; return what is told."""
        if below <= self.stable:
            return []
        told = list(self.giving_up.stable(self.stream, self.stable, below))
        self.stable = below
        self._land()
        return list(self._split(told)) if self.policy.is_told else []

    def _land(self) -> None:
        """Note what is not in flight any more."""
        paces = self.policy.retention_unique_confirmations > 0
        self.flight.land(min(self.stable, self.confirming.below) if paces else self.stable)
        if self._is_over and self.flight.has_room(0):
            self._is_over = False
            self._told.append(self._flight_size())

    def stable_at(self, store: str, begin: int, end: int) -> Iterator[events.Event]:
        """Yield that a store has some numbers, if that is to be told."""
        is_told = self.policy.message_stability_notification is events.Notification.EACH_STORE
        for row in self.giving_up.messages(range(begin, end)) if is_told else ():
            event = events.Stable(
                stream=self.stream, first=row.start, last=row.stop - 1, store=store
            )
            yield from self._split((event,))

    def confirm(self, link: int, said: asks.Confirm, now_s: float) -> Iterator[events.Event]:
        """Take what a receiver confirms; yield what is told."""
        numbers = self.confirming.hear(link, said, self.retention.sealed, now_s)
        self._land()
        if not self.is_heard or not numbers:
            return
        for counted, unique in self.confirming.counted(numbers):
            for row in self.giving_up.messages(counted):
                event = events.Confirmed(
                    stream=self.stream,
                    first=row.start,
                    last=row.stop - 1,
                    receiver=said.receiver,
                    unique=unique,
                )
                yield from self._split((event,))

    def left(self, link: int, why: str) -> Iterator[events.Event]:
        """Take that the link of a receiver is gone; yield that it is dead."""
        receiver = self.confirming.leave(link)
        if receiver is not None:
            yield dead(self.stream, receiver, why)

    def _split(self, told: Iterable[OfMessages]) -> Iterator[events.Event]:
        """Yield events of messages, each with its object; nothing if nobody is told."""
        if self.is_heard:
            for event in told:
                yield from self._objects.split(event)

    # what time does

    def sent(self, block: Block) -> None:
        """Note that a block is sent."""
        self._lifetimes.sent(block)

    def pass_time(self, now_s: float, *, stands_still: bool) -> Iterator[events.Event]:
        """Give up what was not stable for too long; yield that, and which receivers are dead.

        stands_still: a store has no room: that does not count.
        """
        for receiver in self.confirming.silent(now_s):
            yield dead(self.stream, receiver, "it has said nothing for too long")
        self._lifetimes.go_on(now_s, stands_still=stands_still)
        for block in self._lifetimes.over(self.retention, self.stable):
            if block.voids:
                continue
            for number in range(block.number, block.end):
                self.give_up(number)
            event = events.NotStable(stream=self.stream, first=block.number, last=block.end - 1)
            yield from self._split((event,))

    # what is released

    def release(self, needed: int) -> Iterator[events.Event]:
        """Release what the rules let go, then what the limit forces; yield what is told.

        needed: everything below is stable, and at each store that is there.
        """
        policy, retention, begin = self.policy, self.retention, self.retention.begin
        below = policy.releases_below(
            begin=begin,
            stable=needed,
            confirmed=self.confirming.below,
            is_kept=self.is_kept,
        )
        retention.release(below, policy.retransmit_retention_size_threshold)
        kept = retention.begin
        yield from self._released(begin, kept, forced=False)
        retention.release(self.stable, policy.retransmit_retention_size_limit)
        yield from self._released(kept, retention.begin, forced=True)
        if begin < retention.begin:
            self._objects.forget(retention.begin)
        self._give_up_oldest()

    def _released(self, begin: int, below: int, *, forced: bool) -> Iterator[events.Event]:
        if begin < below:
            self.forced += below - begin if forced else 0
            told = self.giving_up.released(self.stream, begin, below, forced=forced)
            yield from self._split(list(told))

    def _give_up_oldest(self) -> None:
        """Give up what is not stable, the oldest first, until the limit is kept."""
        over = self.retention.bytes - self.policy.retransmit_retention_size_limit
        block = self.retention.at(self.stable)
        while over > 0 and block is not None:
            for number in range(block.number, block.end):
                self.give_up(number)
            over -= block.size
            block = self.retention.at(block.end)
