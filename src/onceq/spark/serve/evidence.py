"""Reads from Spark's Java what is known of a failure.

Used by `onceq.spark.serve.server`. It reads exception by exception, by py4j. Their texts may quote
others, so the only words taken from them are those of our own processes.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from onceq.spark.serve.verdicts import Cause, Evidence
from onceq.spark.serve.words import heard_in

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_CAUSES_MAX: Final = 20
_KINDS_MAX: Final = 20
_FRAMES_MAX: Final = 64
_THROWABLE: Final = "org.apache.spark.SparkThrowable"


def has_ended(query: StreamingQuery, timeout_s: int) -> bool:
    """Waits for the end of a query, well or not; False: it has not come within timeout_s."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - a Server alone needs none

    try:
        return bool(query.awaitTermination(timeout_s))
    except StreamingQueryException:
        return True


def of_query(query: StreamingQuery, token: str) -> tuple[Evidence, str] | None:
    """Returns what is known of the failure that ended a query, and its text; None: no failure."""
    found: Any = getattr(query, "_jsq").exception()  # noqa: B009 # PySpark makes a text of it
    if not found.isDefined():
        return None
    return _of_java(found.get(), token), str(query.exception())


def of_error(error: Exception, token: str) -> Evidence:
    """Returns what is known of a failure that the driver's own Python raised."""
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if java is not None:
        return _of_java(java, token)
    condition = getattr(error, "getCondition", None)
    return Evidence(condition=None if condition is None else condition())


def _of_java(error: Any, token: str) -> Evidence:
    chain = list(itertools.islice(_chain(error), _CAUSES_MAX))
    said = "\n".join(str(one.getMessage()) for one in chain)
    return Evidence(word=heard_in(said, token), causes=tuple(map(_cause, chain)))


def _chain(error: Any) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.getCause()


def _cause(error: Any) -> Cause:
    return Cause(
        kinds=tuple(itertools.islice(_kinds(error.getClass()), _KINDS_MAX)),
        condition=_condition(error),
        frames=_frames(error),
    )


def _kinds(of: Any) -> Iterator[str]:
    while of is not None:
        yield str(of.getName())
        of = of.getSuperclass()


def _condition(error: Any) -> str | None:
    context = importlib.import_module("pyspark").SparkContext
    is_one = importlib.import_module("py4j.java_gateway").is_instance_of
    if not is_one(getattr(context, "_gateway"), error, _THROWABLE):  # noqa: B009 # as PySpark asks
        return None
    found = error.getCondition()
    return None if found is None else str(found)


def _frames(error: Any) -> tuple[str, ...]:
    thrown = itertools.islice(error.getStackTrace(), _FRAMES_MAX)
    return tuple(f"{one.getClassName()}.{one.getMethodName()}" for one in thrown)
