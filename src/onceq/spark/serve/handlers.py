"""What a Spark server may be given to run: a batch function, or one made from something smaller.

Public through `onceq.spark`. A batch function takes the DataFrame of requests and returns that of
answers; `each(...)` makes one from a function for a request, `vectorised(...)` one from a function
for an Arrow batch. They run in Spark's Python workers, so functions and types are best defined in a
module that the workers can import. Source: spec P1, S1.
"""

from __future__ import annotations

import base64
import inspect
import pickle
import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import inspect as mi

from onceq.errors import InvalidValue
from onceq.model.queue import Queue
from onceq.model.signature import Expected, check_handler
from onceq.spark.serve.context import Answer, RequestContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from onceq.spark.arrow import RecordBatch

BatchFunction: TypeAlias = "Callable[[DataFrame], DataFrame]"
"""Requests to answers, as DataFrames: see `onceq.spark.Server`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Each:
    """A function for each request. rows: the type of each table's rows. Made by each()."""

    function: Callable[[Any, RequestContext], Any]
    rows: Mapping[str, type[Any]]

    def for_queue(self, queue: Queue[Any, Any]) -> BatchFunction:
        """Returns the batch function. Raises InvalidValue for a type that workers do not have."""
        for kind in (queue.request_type, queue.reply_type, *self.rows.values()):
            _check_type(kind)
        check_handler(
            self.function,
            Expected(
                where=f"queue {queue.name!r}",
                request=queue.request_type,
                reply=queue.reply_type,
                context=RequestContext,
                also=(Answer,),
            ),
        )

        def batch(requests: DataFrame) -> DataFrame:
            from onceq.spark.serve import answering  # noqa: PLC0415 - PySpark, not needed to declare

            answers = answering.Answers(queue, self.function, self.rows)

            def run(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
                return map(answers.of, batches)

            return _mapped(requests.select(*answering.COLUMNS), run, answers.schema)

        return batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorised:
    """A function for each Arrow batch, and the columns that it returns. Made by vectorised()."""

    function: Callable[[RecordBatch], RecordBatch]
    returns: str | StructType

    def for_queue(self, queue: Queue[Any, Any]) -> BatchFunction:  # noqa: ARG002 - as Each has it
        """Returns the batch function."""
        function = self.function

        def run(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
            return map(function, batches)

        def batch(requests: DataFrame) -> DataFrame:
            return _mapped(requests, run, self.returns)

        return batch


def each(
    function: Callable[[Any, RequestContext], Any], *, rows: Mapping[str, type[Any]] | None = None
) -> Each:
    """Serves by a function for a request: `Server(ORDERS, batch=each(book))`.

    It is called with (request, context), the request in the queue's type, and returns the reply, in
    the queue's type; or an `Answer`, with rows for the user's tables. If it raises, or returns
    something of another type, that request alone is aborted, charged: `Reject` fails it at once,
    `Retry` runs it again later, uncharged while the environment is to blame. rows: for each of
    `tables=`, the type of its rows, a Struct or a dataclass. It may be called more than once for a
    request; what one of the calls returned counts. Raises InvalidValue.
    """
    expected = Expected(where="each()", request=Any, reply=Any, context=RequestContext)
    check_handler(function, expected)
    return Each(function=function, rows=dict(rows or {}))


def vectorised(
    function: Callable[[RecordBatch], RecordBatch], *, returns: str | StructType
) -> Vectorised:
    """Serves by a function for an Arrow batch: `batch=vectorised(price, returns="eid string,...")`.

    It is called with a pyarrow.RecordBatch of some of the requests (at most 10,000), in the columns
    that a batch function gets, and returns one with the columns that `returns` names: those of
    a batch function's result, as DDL text or as a StructType. If it raises, the micro-batch fails,
    and is run in halves until the request to blame is alone; so put an error of one request
    into its column `error`. Raises InvalidValue.
    """
    return Vectorised(function=_checked(function), returns=returns)


def batch_function(given: Any, queue: Queue[Any, Any]) -> BatchFunction:
    """Returns the batch function for what a server was given. Raises InvalidValue."""
    if isinstance(given, Each | Vectorised):
        return given.for_queue(queue)
    function: BatchFunction = given  # its result is checked when it is called
    if callable(given):
        return function
    raise InvalidValue(
        "batch= takes a function of a DataFrame, each(function), or vectorised(function, "
        f"returns=...), not {type(given).__name__}"
    )


def told(queue: Queue[Any, Any]) -> str:
    """Returns the type of a queue's requests in the form for Spark's processes; empty for bytes.

    They import it by name. Raises InvalidValue if they cannot.
    """
    if queue.request_type is bytes:
        return ""
    what = f"Spark's workers cannot import the request type of queue {queue.name!r}"
    hint = "define it at the top of a module"
    try:
        said = pickle.dumps((queue.name, queue.request_type))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidValue(f"{what}: {hint}: {error}") from error
    if any(word == "__main__" for _, word, _ in pickletools.genops(said)):
        raise InvalidValue(f"{what}: {hint}: it is of the program that was started")
    return base64.b64encode(said).decode()


def _checked(function: Any) -> Any:
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise InvalidValue(f"Spark calls a function that is not async, not {function!r}")
    return function


def _mapped(requests: Any, run: Callable[..., Any], returns: str | StructType) -> DataFrame:
    answers: DataFrame = requests.mapInArrow(run, returns)
    return answers


def _check_type(kind: type[Any]) -> None:
    """Refuses a type that a worker would silently take for less than it is."""
    for found in _structs(mi.type_info(kind)):
        if getattr(found, "__struct_config__").omit_defaults:  # noqa: B009 # of every Struct
            raise InvalidValue(f"type {found.__qualname__} omits its defaults: they would be null")
        if found.__module__ == "__main__":
            raise InvalidValue(
                f"type {found.__qualname__} is defined in the program that was started, from which "
                "Spark's workers cannot import it: define it in a module"
            )


def _structs(info: Any) -> Iterator[type[Any]]:
    """Yields every msgspec Struct inside a type."""
    if isinstance(info, mi.StructType):
        yield info.cls
    known: Any = info
    parts: list[Any] = []
    if isinstance(info, mi.Type | mi.Field):
        parts = [getattr(info, name) for name in info.__struct_fields__]
    elif isinstance(info, tuple):
        parts = list(known)
    for part in parts:
        yield from _structs(part)
