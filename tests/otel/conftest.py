"""OpenTelemetry, switched on for a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.otel.parts import Exported, exporting

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def exported() -> Iterator[Exported]:
    """What was exported, and is from now on: it is on in this test."""
    with exporting() as found:
        yield found
