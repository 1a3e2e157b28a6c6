"""The peers that onceq is measured against: which there are, and which can be had here.

`python -m bench.peers` prepares their environment and says for each whether it is available.
`python -m bench.peers --try NAME` tries one: it starts it, runs every command small in both
settings, and prints its answers, which are not figures.

They are installed only into `.venv-peers`, from hashes. RabbitMQ and NATS are
Debian's packages: the benchmark finds them or says that they are missing; it installs neither.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import onceq
from bench.workers import nats_cluster, nats_server, rabbitmq_server
from bench.workers.base import Setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "bench" / "requirements-peers.txt"
VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "complete"
INSTALL_S = 900.0
TRY_S = 300.0
TRY_NUMBER = 200


def _nothing_missing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer. missing: says what else of it is not here, or ""."""

    module: str
    missing: Callable[[], str] = _nothing_missing


PEERS = {
    "procrastinate": Peer("procrastinate_peer"),
    "pgqueuer": Peer("pgqueuer_peer"),
    "rabbitmq": Peer("rabbitmq_peer", rabbitmq_server.missing),
    "nats": Peer("nats_peer", nats_server.missing),
    "nats_stream": Peer("nats_stream_peer", nats_cluster.absent),
    "dbos": Peer("dbos_peer"),
    "absurd": Peer("absurd_peer"),
    "huey": Peer("huey_peer"),
    "litequeue": Peer("litequeue_peer"),
    "persist_queue": Peer("persist_queue_peer"),
}


class UnavailableError(Exception):
    """The peers' environment cannot be made here; the text says why."""


def _key() -> str:
    return hashlib.sha256(sys.version.encode() + REQUIREMENTS.read_bytes()).hexdigest()


def is_complete() -> bool:
    """Say whether the environment is there, of these requirements and of this Python."""
    return PYTHON.exists() and STAMP.exists() and STAMP.read_text() == _key()


def prepare() -> Path:
    """Make the peers' environment, unless it is complete; return its Python.

    Raises UnavailableError, and leaves no half of it, if a package cannot be installed.
    """
    if is_complete():
        return PYTHON
    venv.create(VENV, clear=True, with_pip=True)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "-r", str(REQUIREMENTS)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
        failure = done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        failure = f"pip was not done after {INSTALL_S:g} s"
    if failure:
        shutil.rmtree(VENV)
        raise UnavailableError(f"the peers were not installed: {failure.splitlines()[-1]}")
    STAMP.write_text(_key())
    return PYTHON


@functools.cache
def _prepared() -> tuple[str | None, str]:
    try:
        return str(prepare()), ""
    except UnavailableError as error:
        return None, str(error)


def python() -> str | None:
    """Return the Python that has the peers, made ready if need be; None if it cannot be had."""
    return _prepared()[0]


def why_not(name: str) -> str:
    """Return why a peer cannot be measured here; "" if it can."""
    return _prepared()[1] or PEERS[name].missing()


def _commands(number: int) -> list[str]:
    asked: list[dict[str, object]] = [
        {"do": "enqueue", "clients": 1},
        {"do": "enqueue", "clients": 4},
        {"do": "enqueue_batch", "batch": 50},
        {"do": "dequeue"},
        {"do": "dequeue", "user_sql": True},
        {"do": "dequeue", "user_sql": True, "servers": 3},
        {"do": "dequeue", "user_sql": True, "batch": 10},
        {"do": "request_reply", "clients": 1, "servers": 1},
        {"do": "request_reply", "clients": 8, "servers": 2},
        {"do": "publish"},
        {"do": "publish", "flight": 10, "receivers": 2},
        {"do": "pace"},
        {"do": "pace", "until": "received"},
        {"do": "catch_up"},
    ]
    return [json.dumps({**one, "number": number}) for one in asked]


def _try(name: str, setting: str, directory: Path, conninfo: str) -> bool:
    """Run every command small, and print what is answered; say whether all of it was good."""
    commands = _commands(TRY_NUMBER)
    command = [str(python()), "-m", f"bench.workers.{PEERS[name].module}"]
    command += ["--dir", str(directory), "--conninfo", conninfo, "--setting", setting]
    done = subprocess.run(
        command,
        input="\n".join(commands),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=TRY_S,
        check=False,
    )
    said, *answers = done.stdout.splitlines() or [""]
    print(said)
    for asked, answer in zip(commands, answers, strict=False):
        print(f"{asked}\n    {answer}")
    return done.returncode == 0 and len(answers) == len(commands) and _all_good(answers)


def _all_good(answers: Iterable[str]) -> bool:
    errors = [str(json.loads(answer).get("error", "")) for answer in answers]
    return all(not error or error.endswith("is not offered") for error in errors)


def _try_both(name: str) -> bool:
    if reason := why_not(name):
        print(f"{name}: skipped: {reason}")
        return False
    good: list[bool] = []
    for setting in get_args(Setting):
        with (
            tempfile.TemporaryDirectory(prefix="onceq-peer-") as directory,
            onceq.open(f"embedded:{directory}/data") as qm,
        ):
            own = Path(directory) / "own"
            own.mkdir()
            good.append(_try(name, setting, own, qm.located.conninfo))
    return all(good)


def main() -> int:
    """Say which peers are available, or try one."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--try", dest="name", choices=PEERS, help="run each command small")
    name: str | None = parser.parse_args().name
    if name is not None:
        return 0 if _try_both(name) else 1
    for each in PEERS:
        reason = why_not(each)
        print(f"{each}: {f'skipped: {reason}' if reason else 'available'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
