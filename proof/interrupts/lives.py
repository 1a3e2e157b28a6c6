"""Clients that are struck in their calls, and go on with the same clerk.

Run in a forked process, one for each variant, sync or async. A client does what the killed
clients do (`proof.clients.life`): it connects, recovers, compares the result with the truth, and
goes on. Here it lives: after each strike the same clerk connects and recovers.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import msgspec

import onceq
from onceq.errors import OnceqError, Outcome
from proof.clients.ground import REPOSITORY
from proof.clients.life import Errand, client_of
from proof.interrupts.striking import Alarm, Cancelling, Exposed, ExposedAsync, Striker

if TYPE_CHECKING:
    from proof.clients.ground import Ground

ASYNC: Final = "async "
SENDS: Final = frozenset({"send", "resubmit"})


class Count(msgspec.Struct, kw_only=True):
    """What became of a process's strikes. wrong: in words."""

    made: dict[str, int]
    missed: int
    wrong: list[str]


def opened(ground: Ground, striker: Striker, *, is_async: bool) -> Any:
    """Returns a queue manager whose calls may be struck, and whose clerks' calls may."""
    if not is_async:
        qm = onceq.open(ground.url, repository=REPOSITORY)
        return Exposed(qm, Alarm(striker))
    cancelling = Cancelling(striker)
    opening = onceq.open_async(ground.url, repository=REPOSITORY)
    qm_async = cancelling.loop.run_until_complete(opening.__aenter__())
    return ExposedAsync(qm_async, cancelling)


def live(ground: Ground, name: str, seed: str, share: int) -> Count:
    """Lives until it was struck often enough, and then to the end of a last request."""
    striker = Striker(random.Random(seed))  # a seeded schedule, no secret
    variant = name.removeprefix(ASYNC)
    errand = Errand(ground, variant, name.replace(" ", "-"), 0)
    client = client_of(errand, opened(ground, striker, is_async=name != variant))
    wrong: list[str] = []
    while not wrong:
        striker.is_off = striker.made.total() >= share
        if striker.is_off:
            errand.requests = ground.meant(errand.client) + 1
        try:
            client.live()
        except KeyboardInterrupt:
            continue
        except OnceqError as error:
            wrong += _wrong(error, striker, client.true_state(ground.meant(errand.client)))
        else:
            break
    wrong = [f"{name}: {one}" for one in wrong]
    return Count(made=dict(striker.made), missed=striker.missed, wrong=wrong)


def _wrong(error: OnceqError, striker: Striker, state: str) -> list[str]:
    """Returns what is wrong with an error: nothing, if a strike caused it and it is true."""
    if not striker.last:
        return [f"{type(error).__name__} out of a call that was not struck: {error}"]
    nothing = error.outcome is Outcome.NOTHING_HAPPENED
    if nothing and striker.last in SENDS and state != "A":
        return [f"{striker.last} said that nothing happened, and its request is {state}: {error}"]
    return []
