"""How a repository is reached, as Spark's processes may be told it: without a password.

Executors connect by what is given here, and many people can see Spark's options. A password in the
URL therefore goes to a file on this machine that only this user may read; on a cluster it must be
where libpq finds it on every machine (a passfile, PGPASSWORD in the executors' environment).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from onceq.engine.embedded.locate import Located, locate
from onceq.engine.perform.spark_driver import Route, has_password, without_password
from onceq.engine.schema.migrate import verify_with
from onceq.errors import InvalidValue
from onceq.model.names import check_repository

EXECUTOR_URL: Final = "ONCEQ_EXECUTOR_URL"
WHERE_PASSWORDS_GO: Final = (
    "and Spark shows what it sends to executors: put it into a passfile on every machine, and give "
    "a URL without it"
)


@contextlib.contextmanager
def reach(url: str | None, repository: str) -> Generator[Located]:
    """Finds a repository, and keeps its embedded server in use while the block runs.

    Without Spark, which takes seconds to start, so that errors show at once. Raises
    CannotConnect, SchemaMissing: nothing happened.
    """
    check_repository(repository)
    with contextlib.closing(locate(url)) as located:
        verify_with(located.conninfo, repository)
        yield located


@contextlib.contextmanager
def find_route(located: Located, repository: str, *, local: bool) -> Generator[Route]:
    """Yields what Spark's processes may be told of a database, while the block runs.

    local: the executors run on this machine. If they reach the database by another URL than the
    driver, as from a network of their own, ONCEQ_EXECUTOR_URL gives it. Raises InvalidValue: a
    password, and executors elsewhere.
    """
    executors = os.environ.get(EXECUTOR_URL, "")
    with contextlib.ExitStack() as undo:
        conninfo = located.conninfo
        if has_password(executors):
            raise InvalidValue(f"{EXECUTOR_URL} holds a password, {WHERE_PASSWORDS_GO}")
        if has_password(conninfo):
            if not local:
                raise InvalidValue(f"the URL holds a password, {WHERE_PASSWORDS_GO}")
            directory = undo.enter_context(tempfile.TemporaryDirectory(prefix="onceq-spark-"))
            conninfo = without_password(conninfo, Path(directory) / "passfile")
        shown = located.url if located.embedded is not None else ""
        yield Route(url=shown, conninfo=conninfo, repository=repository, executors=executors)


@contextlib.contextmanager
def reach_route(url: str | None, repository: str, *, local: bool) -> Generator[Route]:
    """Finds a repository, and what Spark's processes may be told of it: `reach`, `find_route`."""
    with (
        reach(url, repository) as located,
        find_route(located, repository, local=local) as route,
    ):
        yield route
