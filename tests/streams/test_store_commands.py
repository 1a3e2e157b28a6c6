"""`onceq store`: run, show, verify and scrub, as a person and a program use them."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq.cli import storing
from onceq.streams.errors import StoreFailed
from onceq.streams.model import asks
from onceq.streams.model.frames import decode
from onceq.streams.store.directory import initialize
from onceq.streams.store.disk_store import DiskStore
from onceq.streams.store.limits import WhenFull
from onceq.streams.store.log.entries import EntryKind
from onceq.streams.store.rolling import Roll
from onceq.streams.store.running import StoreKind
from tests.cli.parts import run_here
from tests.streams.net.daemons import Source
from tests.streams.store.test_disk_store import ABC, S, admission, chance, data_of

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = ("--listen", "127.0.0.1:0")


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
    assert await source.ask(admission(1)) == asks.Holding(epoch=1, end=0, regid=1)
    source.link.send(data_of(1, 0))
    assert await source.heard() == asks.Holding(epoch=1, end=1)
    ask = asks.Register(stream=S, epoch=1, topic="bars", session=0xB5)
    assert isinstance(await source.ask(ask), asks.Registered)
    source.link.close()
    assert await source.heard() is None


def started(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "onceq.cli.main", "--json", "store", "run", *words]
    listen = ["--listen", "127.0.0.1:0"]
    return subprocess.Popen([*command, *listen], stdout=subprocess.PIPE, text=True)


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a store says when others can connect."""
    assert process.stdout is not None
    said = msgspec.json.decode(process.stdout.readline(), type=dict[str, Any])
    assert said["event"] == "ready"
    return said


def ended(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """What else a store says when it gets a signal, by which it ends in order."""
    assert process.stdout is not None
    process.send_signal(number)
    said = process.stdout.read()
    assert process.wait(30) == 0
    return said


def test_a_store_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    home, log = str(tmp_path / "store"), tmp_path / "log"
    words = ("--init", "--log", str(log), "--roll", "daily", "--metrics", "127.0.0.1:0")
    with started(home, *words) as process:
        said = ready(process)
        asyncio.run(use(said["address"]))
        refused = run_here("store", "run", home, "--listen", "127.0.0.1:0")
        assert (refused.code, "in use by another" in refused.err) == (4, True)
        for where in (home, said["address"]):
            (row,) = json("show", where)
            assert (row["topic"], row["session"], row["end"]) == ("bars", "0x9", 1)
            assert row["stores"] == ["a b c"]
            (receiver,) = row["receivers"]
            assert (receiver["key"], receiver["session"]) == ("session b5", "0xb5")
            assert (receiver["below"], receiver["lag"]) == (0, 0)
        with urllib.request.urlopen(f"http://{said['metrics']}/metrics", timeout=30) as answer:
            assert b'onceq_stream_end{topic="bars",session="9"' in answer.read()
        assert '"stopped"' in ended(process, signal.SIGTERM)
    assert ["store_began" in line or "store_stopped" in line for line in lines(log)] == [True] * 2
    store = DiskStore(tmp_path / "store", chance)
    assert list(store.read(S, range(9))) == [data_of(1, 0)]
    store.close()


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_a_store_that_is_killed_has_what_it_acknowledged(tmp_path: Path) -> None:
    home = str(tmp_path / "store")
    with started(home, "--init") as process:
        asyncio.run(use(ready(process)["address"]))
        process.kill()
    with started(home) as process:
        (row,) = json("show", ready(process)["address"])
        assert row["end"] == 1
        assert '"stopped"' in ended(process, signal.SIGINT)


def test_a_memory_store_needs_no_directory(tmp_path: Path) -> None:
    with started("--kind", "memory", "--log", str(tmp_path / "log"), "--roll-size", "1") as process:
        asyncio.run(use(ready(process)["address"]))
        ended(process, signal.SIGTERM)
    assert len([*tmp_path.iterdir()]) == 2, "the second message rolled the file"


def test_a_disk_that_fails_is_said_with_a_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise StoreFailed("the disk failed")

    monkeypatch.setattr(storing, "run_store", failing)
    monkeypatch.setattr(storing, "begin_log", lambda _: None)
    answer = run_here("store", "run", str(tmp_path), "--listen", "127.0.0.1:0")
    assert (answer.code, answer.err) == (4, "onceq: the disk failed\n")


def test_the_words_of_options_are_those_of_streams() -> None:
    text = run_here("store", "run", "--help").out
    for words in (StoreKind, WhenFull, Roll):
        assert "|".join(word.value for word in words) in text


def test_other_commands_do_not_import_streams() -> None:
    code = "import sys, onceq.cli.main; print([n for n in sys.modules if 'onceq.streams' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "{home}", "--listen", "0.0.0.0:7401"), 2, "without TLS"),
        (("run", "{home}", "--listen", "7401"), 2, "is no address"),
        (("run", "{home}", *LOCAL, "--metrics", "0.0.0.0:0"), 2, "without TLS"),
        (("run", "{home}", *LOCAL, "--own", "here"), 2, "is no address"),
        (("run", "{home}", *LOCAL, "--init"), 4, "not empty"),
        (("run", "{home}", *LOCAL, "--kind", "no-cache"), 4, "stays of its kind"),
        (("run", "{home}", *LOCAL, "--kind", "other"), 2, "disk, memory, no-cache"),
        (("run", "{home}", *LOCAL, "--kind", "memory"), 2, "neither directory"),
        (("run", *LOCAL), 2, "a directory"),
        (("run", "{home}x", *LOCAL), 4, "is no store's"),
        (("run", "{home}", *LOCAL, "--limit", "much"), 2, "--limit 'much'"),
        (("run", "{home}", *LOCAL, "--age", "1MiB"), 2, "--age '1MiB'"),
        (("run", "{home}", *LOCAL, "--when-full", "stop"), 2, "block, overwrite"),
        (("run", "{home}", *LOCAL, "--roll", "daily"), 2, "said with --log"),
        (("run", "{home}", *LOCAL, "--log", "{home}/l", "--roll", "no"), 2, "daily, hourly"),
        (("scrub", "{home}", "--tls-key", "key"), 2, "together, or none"),
        (("show", "{home}x"), 4, "is no store's"),
        (("show", "127.0.0.1:1"), 4, "no store answers"),
        (("verify", "{home}x"), 4, "is no store's"),
        (("verify", "{home}/store.json"), 4, "store.json cannot be read: Not a directory"),
        (("show", "{home}/store.json"), 4, "store.json cannot be read: Not a directory"),
        (("scrub", "{home}/store.json"), 4, "store.json cannot be read: Not a directory"),
        (("scrub", "{home}", "--own", "rubbish"), 2, "'rubbish' is no address"),
        (("run", "{home}", *LOCAL, "--log", "{home}"), 2, "Is a directory: give a file"),
        (("show", "192.0.2.1:7401"), 2, "without TLS"),
    ],
)
def test_what_cannot_be_is_said_and_has_its_code(
    home: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    answer = run_here("store", *(word.format(home=home) for word in words))
    assert answer.code == code, answer
    assert says in answer.err


def test_a_store_that_cannot_listen_is_not_begun(tmp_path: Path) -> None:
    home = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for where in (("--listen", taken), (*LOCAL, "--metrics", taken)):
            answer = run_here("store", "run", str(home), "--init", *where)
            assert (answer.code, f"cannot listen at {taken}" in answer.err) == (4, True), answer
            assert not home.exists()


def test_a_directory_of_another_version_or_user_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: home.stat().st_uid + 1)
    answer = run_here("store", "show", str(home))
    assert (answer.code, "belongs to another user" in answer.err) == (4, True)
    monkeypatch.undo()
    path = home / "store.json"
    path.write_text(path.read_text().replace('"version":1', '"version":2'))
    answer = run_here("store", "show", str(home))
    assert (answer.code, "of version 2, not 1" in answer.err) == (4, True)


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
