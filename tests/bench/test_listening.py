"""The PostgreSQL that JDBC is measured on: reached on loopback by a password, and by its socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from bench.listening import HOST, listening_ground

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_reached_on_loopback_by_its_password_alone_and_ends_with_its_block(
    tmp_path: Path,
) -> None:
    with listening_ground(tmp_path) as (ground, loopback):
        conninfo = ground.database("spark")
        there_by = make_conninfo(conninfo, host=HOST, user=loopback.user)
        with psycopg.connect(there_by, password=loopback.password) as there:
            assert there.execute("select inet_server_port()").fetchone() == (loopback.port,)
        with psycopg.connect(conninfo) as here:
            assert here.execute("select inet_server_port()").fetchone() == (None,)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(there_by, password="another")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(conninfo)
