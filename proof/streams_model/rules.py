"""The rules of recovery that can be left out, one at a time, and how soon that must show."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

I1 = "I1"
I2 = "I2"
I3 = "I3"
I4 = "I4"
I5 = "I5"
I6 = "I6"
I7 = "I7"

PROMISES = {
    I1: "a stable number keeps its content",
    I2: "a stable set of the list in use has what is stable, but for what was lost",
    I3: "an identity (epoch, number) has one content",
    I4: "a recovery that is complete has all that is stable",
    I5: "a receiver sees what is stable, in order, or is told what it saw in vain",
    I6: "nothing is trimmed that a receiver has not acknowledged, unless it is told",
    I7: "when faults end, all is stable and delivered, and what was wiped is filled again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules, all kept unless a variant leaves one out."""

    choice_after_fence: bool = True
    by_admission: bool = True
    both_lists_stable: bool = True
    every_list_recovered: bool = True
    holders_only: bool = True
    creation_promised_by_all: bool = True
    creation_noted_by_all: bool = True
    creation_settled: bool = True
    forgetful_need_epoch: bool = True
    recover_sets: bool = True
    cut: bool = True
    life_in_promise: bool = True
    fence_at_append: bool = True
    copies_by_identity: bool = True
    all_hold_before_settling: bool = True
    settled_in_two: bool = True
    promise_kept: bool = True
    synced_before_answer: bool = True
    void_in_new_epoch: bool = True
    damaged_are_silent: bool = True
    damage_is_not_served: bool = True
    full_admits_nothing: bool = True
    positions_learned: bool = True
    positions_of_recover_set: bool = True
    trimmed_is_told: bool = True
    only_stable_acknowledged: bool = True
    only_stable_read: bool = True
    every_epoch_compared: bool = True
    zombies_ignored: bool = True
    losses_are_void: bool = True
    losses_are_told: bool = True
    losses_are_kept: bool = True
    losses_need_an_epoch: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A rule that is left out. within: the schedules in which it must break a promise.

    shown_by: the seed of a schedule in which it does, or soon after; the small size starts there.
    """

    rule: str
    within: int
    shown_by: int
    text: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.rule.replace("_", "-")

    @property
    def rules(self) -> Rules:
        """The rules without this one."""
        return replace(Rules(), **{self.rule: False})


def _v(rule: str, within: int, shown_by: int, text: str) -> Variant:
    return Variant(rule=rule, within=within, shown_by=shown_by, text=text)


VARIANTS: tuple[Variant, ...] = (
    _v("choice_after_fence", 1_000, 16, "what a store had before its promise decides"),
    _v("by_admission", 20_000, 326, "the log with the last entry of the greatest epoch is chosen"),
    _v("both_lists_stable", 10_000, 1758, "during a change of lists the new one alone decides"),
    _v("every_list_recovered", 1_000, 26, "of lists that govern the new one alone is recovered"),
    _v("holders_only", 1_000, 19, "a store that holds nothing counts in a recover set"),
    _v("creation_promised_by_all", 10_000, 160, "a stable set of promises begins a new stream"),
    _v("creation_noted_by_all", 1_000, 3, "a new stream is sent to when a stable set holds it"),
    _v("creation_settled", 10_000, 96, "a new stream is sent to before all know that all hold it"),
    _v("forgetful_need_epoch", 20_000, 12082, "a store that forgot is admitted in the epoch"),
    _v("recover_sets", 1_000, 3, "a recovery waits for a stable set instead of a recover set"),
    _v("cut", 1_000, 23, "a store that is admitted keeps what it has beyond what is stable"),
    _v("life_in_promise", 1_000, 28, "a promise names an epoch and no life"),
    _v("fence_at_append", 1_000, 7, "a store appends what comes in the epoch of its admission"),
    _v("copies_by_identity", 10_000, 146, "a store copies a number of whatever epoch"),
    _v("all_hold_before_settling", 4_000, 130, "a change settles when a stable set holds it"),
    _v("settled_in_two", 20_000, 1383, "a change is settled at once when all hold it"),
    _v("promise_kept", 20_000, 10393, "a damaged promise is read as the one before"),
    _v("synced_before_answer", 1_000, 31, "a store answers before it has synced"),
    _v("void_in_new_epoch", 1_000, 15, "a number is given up within the epoch"),
    _v("damaged_are_silent", 20_000, 3158, "a damaged log counts as far as it is whole"),
    _v("damage_is_not_served", 4_000, 59, "a damaged entry is served and copied"),
    _v("full_admits_nothing", 1_000, 4, "a full store is admitted without the copies"),
    _v("positions_learned", 4_000, 100, "a store is admitted without the positions of receivers"),
    _v("positions_of_recover_set", 20_000, 3609, "a store trims by the positions that it knows"),
    _v("trimmed_is_told", 1_000, 1, "a receiver goes on behind what was trimmed, and says nothing"),
    _v("only_stable_acknowledged", 20_000, 175, "a receiver acknowledges what is not yet stable"),
    _v("only_stable_read", 1_000, 6, "a store shows all it has to a receiver of what is stable"),
    _v("every_epoch_compared", 20_000, 1227, "a receiver compares with the last epoch only"),
    _v("zombies_ignored", 20_000, 74, "a receiver takes what a former life still sends"),
    _v("losses_are_void", 1_000, 36, "numbers whose loss was accepted are given anew"),
    _v("losses_are_told", 20_000, 7611, "a store is not told which of what is stable was lost"),
    _v("losses_are_kept", 1_000, 2035, "the epochs behind an accepted loss know nothing of it"),
    _v("losses_need_an_epoch", 20_000, 3882, "a loss is accepted in an epoch of before"),
)  # fmt: skip

VARIANT_BY_NAME = {variant.name: variant for variant in VARIANTS}

if {variant.rule for variant in VARIANTS} != {field.name for field in fields(Rules)}:
    raise AssertionError("each rule is left out by one variant")
