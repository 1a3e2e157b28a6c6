"""One suite of behaviours, every driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from proof.conformance.ground import same
from proof.conformance.suite import BEHAVIOURS, NotConformant, Repository
from tests.conformance.drivers import (
    AsyncPostgresRepository,
    DeskRepository,
    MemoryDeskRepository,
    MemoryRepository,
    PostgresRepository,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


KINDS: dict[str, Callable[[str, str], Any]] = {
    "sync": PostgresRepository,
    "async": AsyncPostgresRepository,
    "desk": DeskRepository,
    "memory": lambda *_: MemoryRepository(),
    "memory desk": lambda *_: MemoryDeskRepository(),
}


@pytest.fixture(scope="module", params=["sync", "async", "desk", "memory", "memory desk"])
def kept(request: pytest.FixtureRequest, conninfo: str) -> Iterator[Any]:
    """One repository for each driver; it is emptied for each behaviour."""
    name = f"c_{uuid.uuid4().hex[:16]}"
    made = KINDS[request.param](conninfo, name)
    yield made
    made.end()


@pytest.fixture
def place(kept: Any) -> Any:
    kept.empty()
    return kept


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.__name__)
def test_conforms(place: Repository, behaviour: Callable[[Repository], None]) -> None:
    behaviour(place)


def test_the_suite_notices_a_difference() -> None:
    with pytest.raises(NotConformant):
        same(1, 2)
