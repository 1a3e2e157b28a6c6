"""What a power cut does to an UNLOGGED sequence made since the last checkpoint, and its cure.

A kill -9 leaves what PostgreSQL has written in the memory of the machine; so the file that the
power would have taken is emptied here, by hand. `proof/powercut` cuts the power itself.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from onceq.errors import StatementRefused
from tests.engine.crashes import NAME, RAW, connect_again
from tests.engine.test_marks_crash import MARK, sweep
from tests.lives import Life
from tests.parts import driving, install_variant, plain, rows, scalar, wait_until

if TYPE_CHECKING:
    import onceq
    from onceq.engine.embedded import EmbeddedServer

UNLOGGED = (
    "select pg_relation_filepath(oid) || '_init', pg_relation_size(oid, 'init') from pg_class"
    " where relkind = 'S' and relpersistence = 'u'"
)
READ = f"select pg_sequence_last_value('{NAME}.started_1')"


def cut_power(cluster: EmbeddedServer) -> None:
    """Kills PostgreSQL, and takes what it had written of unlogged sequences and not flushed."""
    files = rows(cluster.conninfo, UNLOGGED)
    assert files
    os.kill(cluster.postmaster_pid(), signal.SIGKILL)
    for path, size in files:
        with (cluster.directory / "cluster" / path).open("wb") as file:
            file.truncate(size)
    cluster.ensure_running()
    with pytest.raises(psycopg.Error, match="bad magic number"):  # or this shows nothing
        scalar(cluster.conninfo, READ)


def work(cluster: EmbeddedServer, own: onceq.QueueManager) -> None:
    """Makes a marker and a mark, and leaves one element claimed and one that waits."""
    own.enqueue_many(RAW, [b"done", b"claimed", b"waits"])
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.run(life.claim_one("raw"))
        sweep(driver, own, sweep(driver, own))
        assert scalar(cluster.conninfo, MARK) == 2
        life.begin(life.claim_one("raw"))
        cut_power(cluster)
    connect_again(own)


def test_a_power_cut_leaves_no_repository_without_servers(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    work(cluster, own)
    with driving(cluster.conninfo, NAME) as driver:
        life = Life(driver)
        life.take_over()
        assert [one.body for one in life.claim("raw", 9)] == [b"waits"]
        (suspect,) = life.claim("raw", 9)
        assert suspect.body == b"claimed"
        life.run(suspect)
        sweep(driver, own, sweep(driver, own))
        assert scalar(cluster.conninfo, MARK) > 2
    assert scalar(cluster.conninfo, f"select max(aborts) from {NAME}.history") == 0


@pytest.mark.parametrize("cured", [True, False])
def test_what_waits_is_dequeued_outside_of_servers(
    cluster: EmbeddedServer, own: onceq.QueueManager, *, cured: bool
) -> None:
    if not cured:
        install_variant(
            cluster.conninfo, NAME, "dequeue", ("        perform onceq.drop_unreadable();\n", "")
        )
    work(cluster, own)
    if not cured:
        with pytest.raises(StatementRefused, match="bad magic number"):
            own.dequeue("raw")
        return
    element = own.dequeue("raw")
    assert element is not None
    assert element.body == b"waits"


def test_without_the_cure_no_server_begins(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    cure = ("    perform onceq.drop_unreadable();\n", "")
    install_variant(cluster.conninfo, NAME, "open_incarnation", cure)
    work(cluster, own)
    with (
        driving(cluster.conninfo, NAME) as driver,
        pytest.raises(StatementRefused, match="bad magic number"),
    ):
        Life(driver)


@pytest.mark.parametrize("kind", ["table half_table (n integer)", "sequence half_sequence"])
def test_a_power_cut_between_the_files_of_what_is_unlogged_costs_a_second_start(
    cluster: EmbeddedServer, kind: str
) -> None:
    """The main file is on the disk, and the one that empties it is not: recovery stumbles once.

    The sequence cannot be read then, as above.
    """
    _, name, *_ = kind.split()
    with plain(cluster.conninfo) as connection:
        connection.execute("checkpoint")
        connection.execute(f"create unlogged {kind}".encode())
    file = scalar(cluster.conninfo, f"select pg_relation_filepath('{name}')")
    os.kill(cluster.postmaster_pid(), signal.SIGKILL)
    (cluster.directory / "cluster" / f"{file}_init").unlink()
    cluster.ensure_running()
    assert scalar(cluster.conninfo, f"select count(*) from {name}") == 0
    log = (cluster.directory / "postgres.log").read_text(encoding="utf-8")
    assert f'could not create file "{file}": File exists' in log  # or this shows nothing
    with plain(cluster.conninfo) as connection:  # the directory is lent to other tests
        connection.execute(f"drop {' '.join(kind.split()[:2])}".encode())


def test_servers_that_begin_at_once_mend_it_once(
    cluster: EmbeddedServer, own: onceq.QueueManager
) -> None:
    work(cluster, own)
    lives: list[Life] = []
    together = threading.Barrier(4)
    done = threading.Event()

    def begin() -> None:
        with driving(cluster.conninfo, NAME) as driver:
            together.wait(60)
            lives.append(Life(driver))
            done.wait(120)

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(lives) == 4)
        for life in lives:  # the marker of each is there
            marker = f"select pg_sequence_last_value('{NAME}.started_{life.slot}')"
            assert scalar(cluster.conninfo, marker) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
