"""The page of stores, word for word: its script prints what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceq.streams.store.metrics import METRICS
from tests.examples.pages import blocks, reader, section, shell, text_of
from tests.examples.test_guides import free_ports

if TYPE_CHECKING:
    from pathlib import Path

LIMIT_S = 110


@pytest.mark.timeout(120)
def test_run_the_stores_of_streams(tmp_path: Path) -> None:
    """On ports of the test's own."""
    found = blocks(section("To follow", text_of("docs/stores.md")))
    script = found["bash"].replace("127.0.0.1:740$n", "127.0.0.1:${PORTS[$n]}")
    first, second, third = sorted(free_ports(3), key=str)
    ports = (("7401", first), ("7402", second), ("7403", third))
    for port, free in ports:
        script = script.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    script = f"PORTS=(0 {first} {second} {third})\n{script}"
    printed, complaints = shell(script, tmp_path, reader(), LIMIT_S)
    for port, free in ports:
        printed = printed.replace(f"127.0.0.1:{free}", f"127.0.0.1:{port}")
    assert printed == found["text"], complaints
    assert complaints.count("is committed and closed") == 3
    assert "store_stopped" in (tmp_path / "store1.log").read_text()


def test_the_page_has_every_metric() -> None:
    text = text_of("docs/stores.md")
    assert [one.name for one in METRICS if f"`{one.name}`" not in text] == []
