"""`onceq doctor`: TLS, passwords and logins, over TCP to a PostgreSQL of the tests' own.

It listens on this machine's own address, which is none of loopback: packets do not leave the
machine, but nobody can tell by the address.
"""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceq.cli import security
from onceq.engine.embedded import cluster, open_embedded, stop_embedded
from onceq.engine.embedded import server as embedded_server
from onceq.engine.embedded.binaries import Binaries, all_binaries, find_binaries
from onceq.engine.schema.migrate import apply_with
from onceq.engine.schema.security import SYSTEM_USER_SINCE, Reach
from onceq.errors import EmbeddedStartFailed
from tests.cli.parts import run_here
from tests.parts import plain
from tests.streams.net.keys import certificates

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

NAMED: Final = "127.0.0.1"
"""What the certificate of the tests is for."""
RULES: Final = """\
local all all trust
host all scrammed all scram-sha-256
host all hashed all md5
host all clear all password
host all all all trust
"""
REPOSITORY: Final = "r"


def lack(what: str) -> NoReturn:
    """Ends a test for which this machine has not what it needs."""
    pytest.skip(what)


def own_address() -> str:
    """An address of this machine that is not loopback; it need not lead anywhere."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        found: str = probe.getsockname()[0]
        if not found.startswith("127."):
            return found
    lack("this machine has no address but loopback")


def free_port() -> int:
    """A port of TCP that nobody has at this moment."""
    with socket.create_server(("", 0)) as probe:
        found: int = probe.getsockname()[1]
    return found


@contextlib.contextmanager
def listening(directory: Path, binaries: Binaries, **settings: str) -> Generator[str]:
    """A PostgreSQL that is reached by TCP, with logins for each rule. Yields where it is."""
    rules = directory / "pg_hba.conf"
    rules.write_text(RULES)
    arguments = cluster._server_argv  # an embedded one never listens

    def changed(*given: Any) -> list[str]:
        words = [word for word in arguments(*given) if "listen_addresses" not in word]
        return [*words, "--listen_addresses=*", f"--hba_file={rules}"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "_server_argv", changed)
        port = free_port()  # of a socket alone there may be many of one number
        patch.setattr(cluster, "PORT", port)
        patch.setattr(embedded_server, "PORT", port)
        server = open_embedded(directory / "data", binaries=binaries, settings=settings)
    try:
        apply_with(server.conninfo, REPOSITORY)
        with plain(server.conninfo) as connection:
            for name, kept in (("scrammed", "scram-sha-256"), ("hashed", "md5"), ("clear", "md5")):
                connection.execute(f"set password_encryption = '{kept}'".encode())
                connection.execute(f"create role {name} superuser login password 'p'".encode())
        yield server.conninfo
    finally:
        server.close()
        stop_embedded(directory / "data", force=True)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a new PostgreSQL without TLS is, over TCP."""
    address = own_address()
    with listening(tmp_path_factory.mktemp("plain"), find_binaries()) as conninfo:
        yield over(conninfo, address)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a PostgreSQL with TLS is, over TCP, and verify-full would say that it is the one."""
    address = own_address()
    directory = tmp_path_factory.mktemp("tls")
    why: list[str] = []
    with contextlib.ExitStack() as undo:
        for binaries in reversed([*all_binaries()]):  # the system's have TLS
            place = Path(tempfile.mkdtemp(dir=directory))
            files = certificates(place / "keys")
            files.key.chmod(0o600)
            tls = {"ssl_cert_file": str(files.certificate), "ssl_key_file": str(files.key)}
            try:
                conninfo = undo.enter_context(listening(place, binaries, ssl="on", **tls))
            except EmbeddedStartFailed as error:
                why.append(str(error))
                continue
            there = over(conninfo, address)
            yield make_conninfo(there, host=NAMED, sslrootcert=str(files.authority))
            return
        lack(f"no PostgreSQL on this machine was built with TLS: {why}")


def over(conninfo: str, address: str) -> str:
    """The same database over TCP, by this address."""
    parts = conninfo_to_dict(conninfo)
    return make_conninfo(conninfo, host=address, hostaddr=address, port=parts["port"])


def row(conninfo: str, check: str, **changes: str) -> tuple[str, str, str]:
    """What the doctor says of a check: the verdict, what was found, the advice."""
    there = make_conninfo(conninfo, **changes)
    answer = run_here("doctor", "--url", there, "--repository", REPOSITORY, "--json")
    found = {one["check"]: one for one in answer.lines}
    assert {"connection", "schema"} <= set(found), answer
    assert answer.code == any(one["verdict"] == "fail" for one in answer.lines)
    one = found[check]
    return one["verdict"], one["found"], one["advice"] or ""


# --- TLS ----------------------------------------------------------------------------------------


def test_no_tls_across_a_network_is_a_failure(far: str) -> None:
    verdict, found, advice = row(far, "tls")
    assert verdict == "fail"
    assert found == f"none, to {own_address()} with sslmode=prefer: all is sent in the clear"
    assert "sslmode=verify-full" in advice


def test_on_one_machine_no_tls_is_needed(far: str, conninfo: str) -> None:
    near = row(far, "tls", host="127.0.0.1", hostaddr="127.0.0.1")
    assert near == ("ok", "not needed: loopback (127.0.0.1)", "")
    there = conninfo_to_dict(far)
    with socket.socket() as probe:
        probe.settimeout(5)
        probe.connect((str(there["host"]), int(str(there["port"]))))  # the other one is there, too
    answer = run_here("doctor", "--url", conninfo, "--repository", "none", "--json")
    (tls,) = (one for one in answer.lines if one["check"] == "tls")
    assert (tls["verdict"], tls["found"]) == ("ok", "not needed: a Unix socket")


def test_tls_by_which_the_server_is_certain_is_fine(encrypted: str) -> None:
    verdict, found, _ = row(encrypted, "tls", sslmode="verify-full")
    assert verdict == "ok"
    assert re.fullmatch(r"TLSv1\.\d, sslmode=verify-full", found), found


@pytest.mark.parametrize("mode", ["prefer", "require", "verify-ca"])
def test_tls_with_anybody_is_a_warning(encrypted: str, mode: str) -> None:
    verdict, found, advice = row(encrypted, "tls", sslmode=mode)
    assert (verdict, found.partition(", ")[2]) == ("warn", f"sslmode={mode}")
    assert "it may be anybody's database" in advice


def test_tls_that_is_there_and_not_used_is_a_failure(encrypted: str) -> None:
    assert row(encrypted, "tls", sslmode="disable")[0] == "fail"


REACH: Final = Reach(
    role="ann",
    address=None,
    is_tls=False,
    sslmode="prefer",
    seen_from=None,
    seen_tls=False,
    tls_version=None,
    password_encryption="scram-sha-256",
    method="scram-sha-256",
)


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        ({"address": "127.0.0.1", "seen_from": "172.17.0.1"}, "warn"),  # a container's port
        ({"address": "127.0.0.1", "seen_from": "10.0.0.9", "seen_tls": True}, "ok"),
        ({"address": "10.0.0.1", "seen_from": "127.0.0.1"}, "fail"),
        ({"address": "10.0.0.1", "is_tls": True, "sslmode": "verify-full"}, "ok"),
        ({"address": "10.0.0.1", "is_tls": True, "seen_from": "10.0.0.9"}, "warn"),
        ({"address": "::1", "seen_from": "::1"}, "ok"),
        ({"address": "fd00::1", "seen_from": "fd00::1"}, "fail"),
    ],
)
def test_a_proxy_between_is_seen_by_both_ends(seen: dict[str, Any], verdict: str) -> None:
    assert security.tls(replace(REACH, **seen)).verdict == verdict


# --- passwords and logins -----------------------------------------------------------------------


def test_how_new_passwords_are_kept_is_told(far: str) -> None:
    assert row(far, "passwords") == ("ok", "password_encryption scram-sha-256", "")
    verdict, found, advice = row(far, "passwords", options="-c password_encryption=md5")
    assert (verdict, found) == ("warn", "password_encryption md5")
    assert "scram-sha-256" in advice


@pytest.mark.parametrize(
    ("user", "verdict", "said"),
    [
        ("scrammed", "ok", "by scram-sha-256"),
        ("hashed", "warn", "by md5"),
        ("clear", "fail", "by password"),
        ("onceq", "fail", "by trust: nothing was asked"),
    ],
)
def test_how_a_login_was_proved_is_told(far: str, user: str, verdict: str, said: str) -> None:
    found = row(far, "login", user=user, password="p")
    assert (found[0], found[1][: len(user) + 2 + len(said)]) == (verdict, f"{user}, {said}")
    assert ("scram-sha-256" in found[2]) == (verdict != "ok")


def test_a_password_in_clear_needs_tls() -> None:
    sent = replace(REACH, address="10.0.0.1", method="ldap")
    assert security.login(sent, embedded=False).verdict == "fail"
    assert security.login(replace(sent, is_tls=True), embedded=False).verdict == "ok"
    assert security.login(replace(sent, address=None), embedded=False).verdict == "ok"


def test_trust_by_a_unix_socket_is_a_warning_and_fine_if_nobody_else_reaches_it(
    conninfo: str, tmp_path: Path
) -> None:
    answer = run_here("doctor", "--url", conninfo, "--repository", "none", "--json")
    (login,) = (one for one in answer.lines if one["check"] == "login")
    assert (login["verdict"], "peer" in login["advice"]) == ("warn", True)
    directory = tmp_path / "data"
    try:
        open_embedded(directory).close()
        answer = run_here("doctor", "--url", f"embedded:{directory}", "--json")
    finally:
        stop_embedded(directory, force=True)
    (login,) = (one for one in answer.lines if one["check"] == "login")
    assert login["verdict"] == "ok"
    assert login["found"].endswith("by a Unix socket that only this user can reach")


def test_an_older_postgresql_does_not_say_how_a_login_was_proved(tmp_path: Path) -> None:
    old = [one for one in all_binaries() if one.major < SYSTEM_USER_SINCE]
    if not old:
        lack(f"this machine has no PostgreSQL older than {SYSTEM_USER_SINCE}")
    with listening(tmp_path, old[0]) as conninfo:
        there = over(conninfo, "127.0.0.1")
        verdict, found, advice = row(there, "login")
        assert row(there, "passwords")[0] == "ok"
    assert verdict == "warn"
    assert found == "onceq; PostgreSQL says how it was proved from 16 on only"
    assert "pg_hba.conf" in advice
