"""RegIDs of sources: what a source is called at a store, where its application says so. Pure.

A store is listed as host:port/regid. By its RegIDs stores find the stream of a source that has no
session. 0 asks a store for one of its own: it is told (`StoreRegistered`), and the application
gives it in the next life. Source: UM, "Managing RegIDs"; spec M1 to M3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from onceq.errors import InvalidValue

REGID_MAX: Final = 2**32 - 1


def split(stores: str) -> tuple[str, dict[str, int]]:
    """Return a list of stores without RegIDs, and these by store. Raises InvalidValue."""
    regids: dict[str, int] = {}
    groups = [" ".join(_store(one, regids) for one in group.split()) for group in stores.split(";")]
    return "; ".join(groups) if regids else stores, regids


def _store(listed: str, regids: dict[str, int]) -> str:
    store, slash, regid = listed.partition("/")
    if not slash:
        return listed
    if not (regid.isascii() and regid.isdecimal()) or int(regid) > REGID_MAX:
        raise InvalidValue(
            f"{listed!r}: behind the / stands the RegID that the source has at that store: a whole"
            f" number up to {REGID_MAX}, or 0 to be given one"
        )
    regids[store] = int(regid)
    return store


def session_of(topic: str, regids: Mapping[str, int], chance: int) -> int:
    """Return the session of a source that has none, if no store knows it by its RegIDs.

    Lives with the same RegIDs have the same: two that begin at once begin one stream. chance: for
    one that has none either.
    """
    given = sorted((store, regid) for store, regid in regids.items() if regid)
    if not given:
        return chance
    named = hashlib.sha256(f"{topic} {given}".encode()).digest()
    return int.from_bytes(named[8:16], "little") or 1
