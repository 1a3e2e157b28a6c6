"""Mistakes in what ships, each of which the simulation must notice: put in by name, for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from onceq.streams.model import asks, choice, log, states
from onceq.streams.model.choice import Insufficient, Log, Promised, choose
from onceq.streams.model.losses import Acceptance
from onceq.streams.model.quorum import StoreList
from onceq.streams.receiver import placing
from onceq.streams.receiver.delivering import Delivering
from onceq.streams.source import creating, program, recovering, standing
from onceq.streams.source.changing import Wish
from onceq.streams.source.feeding import Feeding
from onceq.streams.source.giving_up import GivingUp
from onceq.streams.source.sending_epochs import Epochs
from onceq.streams.store import catalogue, serving, store, trimming
from onceq.streams.store.memory_store import MemoryStore
from onceq.streams.store.programs import Programs
from proof.streams_model import loosely
from proof.streams_model.rules import Rules
from proof.streams_simulation import mistakes
from proof.streams_simulation.variant import Variant
from proof.streams_simulation.variants_of_disks import ON_DISKS


def _choice(rule: str) -> Callable[..., Log | Insufficient]:
    rules = replace(Rules(), **{rule: False})

    def chosen(
        own: StoreList, answers: Mapping[str, Promised], accepts: Acceptance | None
    ) -> Log | Insufficient:
        return loosely.chosen(rules, own, answers, choose(own, answers, accepts))

    return chosen


IN_MEMORY: dict[str, Variant] = {
    "recover-sets": Variant(
        of=recovering, name="choose", by=_choice("recover_sets"), within=150,
        text="a recovery waits for a stable set instead of a recover set",
    ),
    "stable-set": Variant(
        of=Feeding, name="stable_below", by=mistakes.greatest_end, within=150,
        text="what one store has is stable",
    ),
    "admitted-late": Variant(
        of=Feeding, name="asked", by=lambda *_: iter(()), within=150,
        text="a store that comes back is not asked to be admitted",
    ),
    "rollback-told": Variant(
        of=Delivering, name="_cut_at", by=lambda *_: None, within=150,
        text="a receiver is not told what an epoch cut",
    ),
    "only-stable-read": Variant(
        of=catalogue.Catalogue, name="readable", by=mistakes.all_readable, within=150,
        text="a store shows all it has to a receiver of what is stable",
    ),
    "one-life": Variant(
        of=states, name="FENCE", by=states.FENCE | {states.Standing.OTHER: states.Deed.PROMISE},
        within=150, text="a store promises an epoch to two lives",
    ),
    "cut": Variant(
        of=catalogue, name="kept_below", by=lambda has, log, _: min(has.end, log.end), within=0,
        text="a store keeps what it has, of whatever epochs, when it is admitted",
    ),
    "admitted-end": Variant(
        of=Epochs, name="_admitted", by=mistakes.admitted_with_all, within=150,
        text="a store that is admitted has all that was sent, whatever it answers",
    ),
    "noted-by-all": Variant(
        of=creating, name="is_new", by=lambda _: False, within=1_500, shown_by=163,
        text="a new stream is noted by a stable set",
    ),
    "joint-lists": Variant(
        of=choice, name="governing", by=lambda _, lists: lists[-1:], within=150,
        text="while a change of lists goes on, the new one alone governs",
    ),
    "registered-at-a-set": Variant(
        of=placing, name="are_stable", by=lambda _, stores: bool(stores), within=0, on_disks=True,
        text="a receiver is registered when one store has noted it",
    ),
    "frames-of-an-epoch": Variant(
        of=Delivering, name="inform", by=mistakes.ahead_is_kept, within=150,
        text="a receiver keeps frames of a former epoch for later",
    ),
    "epoch-of-a-frame": Variant(
        of=Delivering, name="_note", by=mistakes.followed_is_noted, within=150,
        text="a receiver takes what it is shown for one of the epoch that it follows",
    ),
    "own-epochs": Variant(
        of=program, name="Past", by=mistakes.past_of_greater_epochs, within=600, shown_by=141,
        text="a life goes on with a log to which another life has added",
    ),
    "copies-end": Variant(
        of=MemoryStore, name="_admitted", by=mistakes.all_copies_count, within=0,
        text="copies beyond the log that is chosen become part of it",
    ),
    "trimmed-by-a-set": Variant(
        of=trimming, name="are_recovered", by=lambda *_: True, within=0, on_disks=True,
        text="a store gives up what all receivers have that it knows of itself",
    ),
    "registered-in-an-epoch": Variant(
        of=serving, name="ASKS", within=600, shown_by=346, on_disks=True,
        by=serving.ASKS | {asks.Register: mistakes.registered_in_any_epoch},
        text="a receiver is registered by stores in several epochs",
    ),
    "answers-of-an-epoch": Variant(
        of=Epochs, name="_answered", by=mistakes.any_answer_counts, within=0,
        text="what a store answered in a former epoch counts in this one",
    ),
    "told-late": Variant(
        of=Delivering, name="_shown_of", by=0, within=0,
        text="a receiver goes back by what it is told late of an epoch before one that it saw",
    ),
    "one-admission": Variant(
        of=Programs, name="_copy", by=mistakes.copied_beside, within=0,
        also=((Programs, "overtake", lambda *_: iter(())), (store, "_is_of", lambda *_: True)),
        text="a store is admitted with copies that were kept for another admission",
    ),
    "fenced-by-a-set": Variant(
        of=standing, name="is_succeeded", by=lambda _, refused: bool(refused), within=150,
        also=((recovering, "is_succeeded", lambda _, refused: bool(refused)),),
        text="a source is fenced for ever by one store that promised more",
    ),
    "change-that-can-begin": Variant(
        of=log, name="is_addable", by=mistakes.addable_by_those_added, within=0,
        text="a change of lists begins though too few stores of the new one are there",
    ),
    "change-until-settled": Variant(
        of=Wish, name="follow", by=mistakes.wanted_until_it_begins, within=300,
        text="a change of lists is forgotten when its epoch ends",
    ),
    "given-up-told": Variant(
        of=GivingUp, name="_messages", by=lambda _, begin, below: iter((range(begin, below),)),
        within=0, text="a number that was given up is told to be stable",
    ),
    "trimmed-when-acknowledged": Variant(
        of=trimming, name="trimmed", by=mistakes.trimmed_when_stable, within=2_000, shown_by=219,
        text="a store gives up what is stable, whoever has not acknowledged it",
    ),
    "acknowledged-when-stable": Variant(
        of=Delivering, name="sure", by=property(lambda self: self.next), within=2_000,
        shown_by=232,
        text="a receiver acknowledges what is not yet stable",
    ),
}  # fmt: skip

VARIANTS = IN_MEMORY | ON_DISKS
SEEN = tuple(name for name, variant in VARIANTS.items() if variant.within)
"""Mistakes that the simulation notices."""
