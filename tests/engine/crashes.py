"""A PostgreSQL that a test may crash, in three ways; its fixtures are in conftest."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Any

import psycopg

import onceq
from onceq.engine.embedded import stop_embedded
from onceq.errors import OperatingError
from tests.parts import scalar, wait_until

if TYPE_CHECKING:
    from onceq.engine.embedded import EmbeddedServer

RAW = onceq.Queue("raw", bytes, bytes)
NAME = "r"


def kill_postmaster(cluster: EmbeddedServer) -> None:
    os.kill(cluster.postmaster_pid(), signal.SIGKILL)
    cluster.ensure_running()


def connect_again(own: onceq.QueueManager) -> None:
    """Connects on a new connection; that the old one is gone shows when it is used."""
    with contextlib.suppress(OperatingError):
        own.queues()
    own.connect()


def restart(cluster: EmbeddedServer) -> None:
    stop_embedded(cluster.directory, force=True)
    cluster.ensure_running()


def kill_a_backend(cluster: EmbeddedServer) -> None:
    """PostgreSQL then ends all its sessions and recovers; its first process lives on."""
    with psycopg.connect(cluster.conninfo) as victim:
        kill_backend(cluster, victim.info.backend_pid)


def kill_backend(cluster: EmbeddedServer, backend_pid: int) -> None:
    """The same with a given one; until the end of a witness PostgreSQL has not noticed."""
    with psycopg.connect(cluster.conninfo, autocommit=True) as witness:
        os.kill(backend_pid, signal.SIGKILL)
        wait_until(lambda: has_ended(witness))
    wait_until(lambda: answers(cluster))


def has_ended(session: psycopg.Connection[Any]) -> bool:
    try:
        session.execute("select 1")
    except psycopg.OperationalError:
        return True
    return False


def answers(cluster: EmbeddedServer) -> bool:
    try:
        return scalar(cluster.conninfo, "select pg_is_in_recovery()") is False
    except psycopg.OperationalError:
        return False
