"""PostgreSQL refuses root: the ways round that, and the ordinary user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from onceq.engine.embedded import Binaries, embedded_status, open_embedded
from onceq.engine.embedded.privileges import (
    Identity,
    Mode,
    choose_identity,
    launch_command,
    launch_environment,
)
from onceq.errors import EmbeddedError

ROOT = os.geteuid() == 0
# As an ordinary user there is one way only, and the ways of root are not even tried.
MODES = [Mode.NAMESPACE, Mode.UNPRIVILEGED] if ROOT else [Mode.PLAIN]

ORDINARY = """
import os, sys
sys.path[:0] = sys.argv[2].split(os.pathsep)
import psycopg
from onceq.engine.embedded import open_embedded
from onceq.engine.embedded.privileges import Mode, choose_identity
from onceq.engine.embedded.binaries import find_binaries
assert os.geteuid() != 0
assert choose_identity(find_binaries()).mode is Mode.PLAIN
with open_embedded(sys.argv[1]) as server:
    owner = os.stat(f"/proc/{server.postmaster_pid()}").st_uid
    with psycopg.connect(server.conninfo) as connection:
        print(owner, connection.execute("select 42").fetchone()[0])
"""

WITHOUT_CAPABILITY = """
import ctypes
from onceq.engine.embedded.binaries import find_binaries
from onceq.engine.embedded.privileges import Mode, choose_identity
from onceq.errors import EmbeddedError
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)  # from the next exec on
try:
    choose_identity(find_binaries(), (Mode.UNPRIVILEGED,))
except EmbeddedError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", MODES)
def test_each_way_works_in_a_private_home(tmp_path: Path, mode: Mode) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with open_embedded(home / "data", modes=(mode,)) as server:
        with psycopg.connect(server.conninfo) as connection:
            connection.execute("create table kept as select 42 as answer")
        uid, capabilities = credentials(server.postmaster_pid())
        assert (uid == os.geteuid()) is (mode is not Mode.UNPRIVILEGED)
        assert capabilities in {0, 1 << 1}  # at most to pass root's directories
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "data").stat().st_mode & 0o777 == 0o700
    assert (home / "data" / "cluster").stat().st_mode & 0o777 == 0o700


def test_a_cluster_made_in_one_way_runs_in_another(directory: Path) -> None:
    with open_embedded(directory) as server, psycopg.connect(server.conninfo) as connection:
        connection.execute("create table if not exists moved as select 42 as answer")
    for mode in reversed(MODES):
        with (
            open_embedded(directory, modes=(mode,)) as server,
            psycopg.connect(server.conninfo) as connection,
        ):
            assert connection.execute("select answer from moved").fetchone() == (42,)
    with open_embedded(directory):
        assert embedded_status(directory).running


def test_an_ordinary_user_needs_none_of_this(tmp_path: Path) -> None:
    """Root becomes one for this; who is one already just runs it."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    uid = os.geteuid()
    identity = Identity(mode=Mode.PLAIN, uid=uid, gid=os.getegid())
    if ROOT:
        uid = 65534
        identity = Identity(mode=Mode.UNPRIVILEGED, uid=uid, gid=uid)
        os.chown(home, uid, uid)
    command = [sys.executable, "-c", ORDINARY, str(home / "data"), os.pathsep.join(sys.path)]
    said = subprocess.run(
        launch_command(identity, command),
        env={**launch_environment(), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert said.stdout.split() == [str(uid), "42"], said.stderr


def test_when_no_way_works_the_error_says_what_to_allow(tmp_path: Path) -> None:
    nothing = Binaries(directory=tmp_path, major=18, source="a test")
    if not ROOT:  # nothing is tried, so nothing fails before the start itself
        assert choose_identity(nothing).mode is Mode.PLAIN
        return
    with pytest.raises(EmbeddedError, match=r"refuses to run as root.*user namespaces") as raised:
        choose_identity(nothing)
    assert re.search(r"namespace: .*No such file.*unprivileged: .*No such", str(raised.value))


def test_without_the_capability_to_pass_roots_directories_the_error_names_it() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT_CAPABILITY],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=True,
    )
    assert ("DAC_OVERRIDE cannot be kept" in said.stdout) is ROOT, said


def credentials(pid: int) -> tuple[int, int]:
    """The effective uid outside, and the effective capabilities there, of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = {line.partition(":")[0]: line.split()[1:] for line in lines}
    return int(fields["Uid"][1]), int(fields["CapEff"][0], 16)
