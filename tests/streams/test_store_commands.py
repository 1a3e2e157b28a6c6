"""`onceq store`: run, show, verify and scrub, as a person and a program use them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq.streams.model import asks
from onceq.streams.model.frames import decode
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.log.entries import EntryKind
from tests.cli.parts import run_here
from tests.streams.net.daemons import Source
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path


def send_some(store: DiskStore, count: int) -> None:
    store.do(store.catalogue.fence(asks.Fence(stream=S, epoch=1, life=5, own=ABC, topic="bars")))
    store.admit(admission(1))
    for n in range(count):
        store.take(decode(data_of(1, n)), data_of(1, n), 5)
    store.log.commit()
    store.log.prepare()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store that has something, and does not run."""
    initialize(tmp_path / "store", chance, segment_bytes=1 << 20)
    store = DiskStore(tmp_path / "store", chance)
    send_some(store, 20)
    store.log.append(EntryKind.MARK, 0, b"")
    store.log.commit()
    store.close()
    return tmp_path / "store"


def harm(home: Path) -> None:
    path = home / "0000000000.seg"
    data = bytearray(path.read_bytes())
    data[data.index(data_of(1, 7)) + 50] ^= 1
    path.write_bytes(data)


def json(*words: str, code: int = 0) -> list[dict[str, Any]]:
    answer = run_here("--json", "store", *words)
    assert answer.code == code, answer
    return answer.lines


async def use(address: str) -> None:
    source = await Source.to(address)
    fence = asks.Fence(stream=S, epoch=1, life=5, own=ABC, topic="bars", session=9)
    assert isinstance(await source.ask(fence), asks.Found)
    assert await source.ask(admission(1)) == asks.Holding(epoch=1, end=0)
    source.link.send(data_of(1, 0))
    assert await source.heard() == asks.Holding(epoch=1, end=1)
    source.link.close()
    assert await source.heard() is None


def test_a_store_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    home = str(tmp_path / "store")
    words = ["--json", "store", "run", home, "--listen", "127.0.0.1:0", "--init"]
    command = [sys.executable, "-m", "onceq.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = msgspec.json.decode(process.stdout.readline(), type=dict[str, Any])
        assert ready["event"] == "ready"
        asyncio.run(use(ready["address"]))
        refused = run_here("store", "run", home, "--listen", "127.0.0.1:0")
        assert (refused.code, "in use by another" in refused.err) == (4, True)
        (row,) = json("show", home)
        assert (row["topic"], row["session"], row["end"]) == ("bars", 9, 1)
        process.send_signal(signal.SIGTERM)
        assert '"stopped"' in process.stdout.read()
        assert process.wait(100) == 0
    store = DiskStore(tmp_path / "store", chance)
    assert list(store.read(S, range(9))) == [data_of(1, 0)]
    store.close()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "{home}", "--listen", "0.0.0.0:7401"), 2, "without TLS"),
        (("run", "{home}", "--listen", "7401"), 2, "is no address"),
        (("run", "{home}", "--listen", "127.0.0.1:0", "--init"), 4, "not empty"),
        (("run", "{home}", "--listen", "127.0.0.1:0", "--no-cache"), 2, "stays of its kind"),
        (("run", "{home}x", "--listen", "127.0.0.1:0"), 4, "is no store's"),
        (("scrub", "{home}", "--tls-key", "key"), 2, "together, or none"),
        (("show", "{home}x"), 4, "is no store's"),
        (("verify", "{home}x"), 4, "is no store's"),
    ],
)
def test_what_cannot_be_is_said_and_has_its_code(
    home: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    answer = run_here("store", *(word.format(home=home) for word in words))
    assert answer.code == code, answer
    assert says in answer.err


def test_what_a_store_has_is_shown(home: Path) -> None:
    (row,) = json("show", str(home))
    assert {name: row[name] for name in ("stream", "epoch", "begin", "end", "damaged")} == {
        "stream": f"{S:016x}",
        "epoch": 1,
        "begin": 0,
        "end": 20,
        "damaged": 0,
    }
    assert f"{S:016x}" in run_here("store", "show", str(home)).out


def test_an_empty_store_knows_nothing(tmp_path: Path) -> None:
    initialize(tmp_path / "store", chance, segment_bytes=1 << 20)
    answer = run_here("store", "show", str(tmp_path / "store"))
    assert (answer.code, "knows no stream" in answer.err) == (0, True)


def test_damage_is_found_and_what_nobody_has_is_said(home: Path) -> None:
    (row,) = json("verify", str(home))
    assert (row["frames"], row["damaged"]) == (20, 0)
    harm(home)
    (row,) = json("verify", str(home), code=1)
    assert row["damaged"] == 1
    (done,) = json("scrub", str(home), code=1)
    assert (done["healed"], done["left"]) == (0, {f"{S:016x}": [7]})
