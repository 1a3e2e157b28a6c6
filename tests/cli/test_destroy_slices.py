"""`onceq repository destroy` in slices: cut short, gone on with, beside others."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import onceq
from onceq.engine.schema import destroying, migrate
from onceq.errors import IllegalState, SchemaMismatch
from tests.cli.destroys import RAW, destroy, is_there, opened, state, stop_after
from tests.parts import plain, rows, scalar, wait_until

if TYPE_CHECKING:
    import psycopg

    from tests.cli.parts import Cli


@pytest.mark.parametrize("slices", [0, 1, 5, 9])
def test_what_was_begun_is_seen_and_gone_on_with(
    mine: Cli, monkeypatch: pytest.MonkeyPatch, slices: int
) -> None:
    stop_after(monkeypatch, mine, slices)
    assert state(mine) == "being destroyed"
    row = mine.json("repository", "show").item
    assert (row["state"], row["level"], row["queues"]) == ("being destroyed", None, None)
    advice = f"`onceq repository destroy {mine.repository}`"
    for words in (("init",), ("queue", "list"), ("init", "--print-sql")):
        said = mine(*words, code=1).err
        assert "is being destroyed" in said
        assert advice in said
    with pytest.raises(SchemaMismatch, match="is being destroyed"):
        opened(mine)
    answer = mine("repository", "destroy", mine.repository, "--yes")
    assert "going on with" in answer.err
    assert not is_there(mine)


def test_who_was_connected_before_writes_nothing_any_more(
    mine: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(mine) as qm:
        assert qm.show("raw").depth == 0
        stop_after(monkeypatch, mine, 0)
        with pytest.raises(SchemaMismatch, match="is being destroyed: nothing happened"):
            qm.enqueue(RAW, b"x")
        with pytest.raises(SchemaMismatch), qm.clerk("till", RAW):
            pass
        with pytest.raises(SchemaMismatch):
            qm.declare(onceq.Queue("more", bytes, bytes))
        assert rows(mine.url, f"select from {mine.repository}.element") == []
    destroy(mine)


def test_a_death_between_slices(mine: Cli) -> None:
    with plain(mine.url) as connection:
        made = f"select {mine.repository}.make_sequence('low_77_5', 0)"
        connection.execute(made.encode())
        connection.execute(f"begin; select from {mine.repository}.low_77_5".encode())
        process = mine.start("repository", "destroy", mine.repository, "--yes", "--timeout", "60")
        blocked = "select count(*) from pg_locks where not granted and relation = %s::regclass"
        wait_until(lambda: scalar(mine.url, blocked, f"{mine.repository}.low_77_5") > 0)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert state(mine) == "being destroyed"
        said = destroy(mine, "--timeout", "0.1", code=1)
        assert f"held by pid {connection.info.backend_pid} " in said
        connection.execute(b"rollback")
    destroy(mine)
    assert not is_there(mine)


def test_a_slice_takes_few_locks(mine: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "select {0}.make_sequence('low_' || n || '_5', 0) from generate_series(1000, 1900) n"
    taken: list[tuple[int, int]] = []
    drop_some = destroying._drop_some  # its locks are held still

    def counted(connection: psycopg.Connection[tuple[int]], name: str) -> int:
        dropped = drop_some(connection, name)
        held = connection.execute("select count(*) from pg_locks where pid = pg_backend_pid()")
        ((locks,),) = held.fetchall()
        taken.append((dropped, locks))
        return dropped

    monkeypatch.setattr(destroying, "_drop_some", counted)
    with plain(mine.url) as connection:
        connection.execute(many.format(mine.repository).encode())
        assert destroying.destroy(connection, mine.repository) > 900
    assert not is_there(mine)
    assert max(dropped for dropped, _ in taken) <= destroying.SLICE
    assert max(locks for _, locks in taken) < 1_000


def test_two_at_once_and_a_new_one_of_its_name(mine: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_after(monkeypatch, mine, 1)
    with plain(mine.url) as first, plain(mine.url) as second:
        found: list[str] = []

        def other_ends_it(_number: int) -> None:
            if not found:
                destroying.destroy(second, mine.repository)
                migrate.apply(second, mine.repository)
                found.append(mine.repository)

        destroying.destroy(first, mine.repository, told=other_ends_it)
    assert found
    assert state(mine) == "ok"
    mine("queue", "list")


def test_two_that_begin_at_once(mine: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    check = destroying.check

    def both_look(connection: psycopg.Connection[object], name: str, *, wait_s: float) -> bool:
        found = check(connection, name, wait_s=wait_s)
        monkeypatch.undo()
        stop_after(monkeypatch, mine, 1)
        return found

    monkeypatch.setattr(destroying, "check", both_look)
    with plain(mine.url) as connection:
        destroying.destroy(connection, mine.repository)
    assert not is_there(mine)


def test_what_comes_to_depend_on_it_later_is_not_dropped(
    mine: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(monkeypatch, mine, 0)
    with plain(mine.url) as connection:
        view = f"{mine.repository}_v"
        connection.execute(f"create view {view} as select from {mine.repository}.queue".encode())
        try:
            with pytest.raises(IllegalState, match=f"{view} depends on"):
                destroying.destroy(connection, mine.repository)
        finally:
            connection.execute(f"drop view {view}".encode())
    assert state(mine) == "being destroyed"
    destroy(mine)
