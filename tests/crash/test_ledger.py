"""A question to the database of a run that breaks off midway: as an Op's, not as psycopg has it."""

from __future__ import annotations

import pytest

from onceq.errors import InDoubt
from proof.harness.ledger import ask


def test_a_question_that_breaks_off_is_in_doubt(conninfo: str) -> None:
    with pytest.raises(InDoubt):
        ask(conninfo, "select pg_terminate_backend(pg_backend_pid())")
