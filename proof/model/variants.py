"""The broken variants: each breaks one rule; the search must find that it bites, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace

from proof.model.layout import Rules
from proof.model.search import Found, search
from proof.model.settings import BY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A rule that is broken. guarantee: by which the search must catch it, in which setting."""

    name: str
    rule: str
    text: str
    setting: str
    guarantee: str

    @property
    def rules(self) -> Rules:
        """Return the rules without this one."""
        return replace(Rules(), **{self.rule: False})


def _v(rule: str, setting: str, guarantee: str, text: str) -> Variant:
    name = rule.replace("_", "-")
    return Variant(name=name, rule=rule, text=text, setting=setting, guarantee=guarantee)


_LIMITS = (4_000, 16_000, 64_000, 256_000, 1_024_000)


def hunt(variant: Variant) -> Found:
    """Search for what a variant breaks: first near the start, then farther."""
    setting = BY_NAME[variant.setting]
    found = search(setting, variant.rules, _LIMITS[0])
    for limit in _LIMITS[1:]:
        if found.broken is not None or found.is_all:
            break
        found = search(setting, variant.rules, limit)
    return found


VARIANTS: tuple[Variant, ...] = (
    # clients
    _v("anchor", "client", "G6", "connect takes no lock, so that a ghost commits after it"),
    _v("epoch", "client", "G6", "the epoch of an operation is not tested"),
    _v("tombstone", "client", "G2", "disconnect destroys all that is known, as in [BHM90 4.3]"),
    _v("same_rid", "client-resubmits", "G2", "a rid that was sent before is queued again"),
    _v("copy_kept", "client", "G5", "receive removes the reply: no copy for rereceive"),
    _v("tag_with_send", "client-discards", "G6", "the tag of a send is in another transaction"),
    _v("send_acknowledges", "client-plain", "G1", "a send leaves the reply before in the queue"),
    _v("own_reply_queue", "two-clients", "G1", "clients share a reply queue"),
    _v("durable_send", "client", "G4", "send returns before its commit is durable"),
    _v("checkpoint_kept", "client", "G6", "receive forgets its checkpoint"),
    # one request at a time
    _v("fence", "database-poison", "G2", "finish does not test who claims the request"),
    _v("reply_inside", "server", "G2", "the reply is written outside the transaction"),
    _v("effects_inside", "server", "G2", "effects are committed before the request is removed"),
    _v("abort_fence", "server", "G7", "abort does not test who claims the request"),
    _v("numbers_not_reused", "failing", "G7", "a new session takes the number of a former one"),
    _v("deaths_count", "poison", "G12", "only clean aborts are counted"),
    _v("count_outside", "failing", "G12", "the abort is counted in the transaction it undoes"),
    _v("kill_replies", "server", "G8", "a kill writes no reply"),
    _v("kill_locks", "server", "G8", "a kill is a row that the server reads"),
    _v("new_identity", "failing", "G3", "redrive puts the failed element back in place"),
    _v("dead_only", "poison", "G7", "a server that lives is taken over"),
    _v("marker_cleared", "failing", "G7", "the marker stays after an abort"),
    _v("suspects_alone", "one-process", "G7", "suspects run beside others"),
    _v("one_suspect", "database-poison", "G7", "two servers hold suspects at a time"),
    _v("environment_bound", "failing", "G12", "faults of the environment are never charged"),
    _v("suspect_crash_counts", "database-poison", "G12",
       "a crash of the database is not charged to a suspect that ran alone"),
    _v("crash_innocent", "server", "G7", "a crash of the database is charged to what was claimed"),
    _v("ghost_remembered", "server", "G4", "a session's row goes while its ghost lives"),
    # batches
    _v("marked_only", "batch", "G7", "the highest id is charged, not the marked one"),
    _v("one_of_claims", "batch", "G7", "all that a dead server had claimed is charged"),
    _v("batch_innocent", "batch-commit", "G7", "a batch that comes to nothing charges all"),
    _v("batch_fence", "batch", "G8", "a batch commits though it does not hold all any more"),
    _v("batch_undone", "batch", "G2", "what raises in a batch does not undo it"),
    _v("batch_suspected", "batch-poison", "G7", "all of a batch that died are charged"),
    _v("batch_halved", "batch-poison", "G12", "suspects of a batch run together for ever"),
    _v("rerun_alone", "batch-commit", "G12", "a batch that failed runs again as a batch"),
    # Spark
    _v("query_compared", "spark", "G4", "`<=` is the test of a replay, whatever query asks"),
    _v("claim_fence", "spark", "G8", "a commit applies what is claimed no longer"),
    _v("spark_epoch", "spark", "G6", "the epoch of a commit is not tested"),
    _v("spark_anchor", "spark", "G6", "a driver opens while a zombie's commit runs"),
    _v("halves", "spark-poison", "G7", "all of a group that killed its driver are charged"),
    _v("alone_charged", "spark-poison", "G12", "what kills its driver alone is never charged"),
    _v("staged_outside", "spark", "G2", "rows are written when they are staged"),
    _v("stage_counted", "spark", "G7", "nobody counts whether all staged rows are there"),
    _v("void_whole", "spark-joint", "G8", "a void batch applies its joint rows"),
    _v("void_failed", "spark-joint-error", "G2", "joint rows count though one of theirs failed"),
    _v("state_kept", "spark-state", "G2", "a batch that comes again reads what is left of it"),
    _v("state_kills", "spark-state", "G8", "what is in a state is killed"),
)  # fmt: skip

VARIANT_BY_NAME = {variant.name: variant for variant in VARIANTS}
