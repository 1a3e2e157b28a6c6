"""A PostgreSQL that a test may crash, in three ways; its fixtures are in conftest."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

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
        os.kill(victim.info.backend_pid, signal.SIGKILL)
        with contextlib.suppress(psycopg.OperationalError):
            victim.execute("select 1")
    wait_until(lambda: answers(cluster))


def answers(cluster: EmbeddedServer) -> bool:
    try:
        return scalar(cluster.conninfo, "select pg_is_in_recovery()") is False
    except psycopg.OperationalError:
        return False
