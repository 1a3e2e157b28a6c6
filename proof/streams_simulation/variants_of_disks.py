"""Mistakes in what ships of stores on disks, and of those that keep no messages."""

from __future__ import annotations

from onceq.streams.source.feeding import Feeding
from onceq.streams.store import disk_store
from onceq.streams.store.answering import Answers
from onceq.streams.store.catalogue import Catalogue
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log import opening
from onceq.streams.store.log.scrub import Survey
from onceq.streams.store.log.writing import Log
from onceq.streams.store.noting_store import Noting
from onceq.streams.store.reclaiming import Reclaiming
from onceq.streams.store.scrubbing import Scrubbing
from proof.streams_simulation import mistakes_of_disks as mistakes
from proof.streams_simulation.variant import Variant
from proof.streams_simulation.volume import Volume

ON_DISKS: dict[str, Variant] = {
    "synced-before-answer": Variant(
        of=Answers, name="add", by=mistakes.answered_at_once, within=30, on_disks=True,
        text="a store answers before what it says is synced",
    ),
    "synced-at-all": Variant(
        of=Volume, name="sync", by=lambda *_: None, within=60, shown_by=3, on_disks=True,
        text="nothing is synced (no fdatasync)",
    ),
    "directory-synced": Variant(
        of=Volume, name="sync_directory", by=lambda *_: None, within=60, shown_by=3, on_disks=True,
        text="the names of segments are not synced",
    ),
    "failed-sync": Variant(
        of=Volume, name="sync", by=mistakes.failed_sync_is_taken, within=300, shown_by=9,
        on_disks=True,
        text="a sync that failed is taken for one that did not",
    ),
    "unsynced-written-again": Variant(
        of=DiskStore, name="_replay", by=mistakes.unsynced_is_believed, within=0, on_disks=True,
        text="a store that starts believes what nobody knows to be synced",
    ),
    "damage-not-cut": Variant(
        of=opening, name="read", by=mistakes.damage_is_cut, within=0, on_disks=True,
        text="damage below what was acknowledged is cut as a torn tail",
    ),
    "damaged-forgets": Variant(
        of=disk_store, name="last", by=mistakes.never_forgets, within=0, on_disks=True,
        text="a store whose promises may be damaged goes by what is left",
    ),
    "damaged-is-silent": Variant(
        of=Catalogue, name="found", by=mistakes.whole_in_spite, within=0, on_disks=True,
        text="a log that is damaged above what is stable counts as whole",
    ),
    "freed-when-synced": Variant(
        of=Reclaiming, name="_unlink", by=mistakes.freed_at_once, within=0, on_disks=True,
        text="a segment is freed before its copies are synced",
    ),
    "healed": Variant(
        of=Scrubbing, name="mend", by=lambda *_: False, within=60, shown_by=7, on_disks=True,
        text="what is damaged is not written again",
    ),
    "surveyed": Variant(
        of=Survey, name="harmed", by=lambda *_: {}, within=60, shown_by=7, on_disks=True,
        text="a look through the log finds no damage",
    ),
    "renewed": Variant(
        of=Log, name="renew", by=lambda _: None, within=0, on_disks=True,
        text="a damaged snapshot is not written anew",
    ),
    "noting-counts-not": Variant(
        of=Noting, name="_noted", by=mistakes.noting_holds, within=60, shown_by=9, on_disks=True,
        text="a store that keeps no messages counts as one that does",
    ),
    "noting-knows-nothing": Variant(
        of=Noting, name="found", by=mistakes.noting_remembers, within=0, on_disks=True,
        text="a store that keeps no messages tells a source of the past",
    ),
    "sent-again": Variant(
        of=Feeding, name="tick", by=lambda *_: iter(()), within=60, shown_by=5, on_disks=True,
        text="what nobody answered for is not sent again",
    ),
}  # fmt: skip
