"""The Spark server: a batch function over a queue, supervised, exactly once.

Public as `onceq.spark.Server`. One driver at a time serves under a name; the newest wins, the older
one stops with Fenced. All truth is in PostgreSQL: the checkpoint only saves work, and a broken
one is deleted. It never loses a request, answers one twice, or charges one for what the
environment did. Source: spec P1, P2, S7; spark.md.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from onceq import telemetry
from onceq.engine.perform.steadfast import LOST, Steadfast
from onceq.engine.perform.stop import Stop
from onceq.errors import (
    Fenced,
    FileMismatch,
    IllegalState,
    InvalidValue,
    OperatingError,
    StatementRefused,
)
from onceq.model.names import check_id, check_range
from onceq.model.queue import Queue, content_type_of
from onceq.model.spark_ops import (
    SparkBound,
    SparkCheckTable,
    SparkClose,
    SparkLeft,
    SparkOpen,
    SparkRegistration,
)
from onceq.server.lives import UNMENDABLE
from onceq.spark.given.options import ServingOptions
from onceq.spark.given.route import find_route, reach
from onceq.spark.given.tables import TableChange, check_tables
from onceq.spark.serve.aborts import Aborts, take_over, tell_aborts
from onceq.spark.serve.checkpoint import check_checkpoint, has_finished_nothing, own_checkpoint
from onceq.spark.serve.evidence import has_ended, of_error
from onceq.spark.serve.handlers import BatchFunction, Each, Vectorised, batch_function, told
from onceq.spark.serve.home import Home, failure_of, judge_refusal, total
from onceq.spark.serve.queries import names_of, notes_of, serve_all
from onceq.spark.serve.settings import ServerSettings, SparkStatistics
from onceq.spark.serve.verdicts import Verdict, judge_beginning
from onceq.spark.serve.words import new_token
from onceq.spark.session import (
    activate,
    build_session,
    is_local,
    java_failures,
    refuse_connect,
    refuse_dead,
    register_own,
)
from onceq.spark.start.scratch import notes_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
_LAST = (None, Verdict.PROGRAM, Verdict.FENCED, Verdict.STOPPED)
"""Errors after which there is no other life."""


class Server:
    """Serves a queue by micro-batches: `Server(ORDERS, batch=book_all, tables={...}).run(url)`.

    queue: whose requests. batch: `each(function)` for a function of one request; or
    `vectorised(function, returns=...)` for one of an Arrow batch; or a function that is called once
    with a streaming DataFrame of requests (columns of `source.SOURCE_SCHEMA`; and `request`,
    a struct, if the queue's request type has one; a request that is not of that type is aborted,
    charged, and not included) and returns one with a row for each request:
      eid     of the request, as it came; null in a row of several that answers none of them
      eids    array of strings, optional: all requests from which this row is computed. It
              counts only if they all are finished with it, else nothing of the batch does
      reply   binary; or string, or a struct, which becomes JSON; null: an empty reply
      error   string, optional: not null, the request is aborted, charged; the queue's
              abort_limit-th abort moves it to the error queue with its one failure reply
      code    string, optional: what kind of error
      reject  boolean, optional: true, the request fails at once, with or without an error
      retry   boolean, optional: true, the environment is to blame, as with `onceq.Retry`
      after_s double, optional: how long such a request waits; null: the queue's back-off
      traceback string, optional: where it failed; kept with the abort, and in no reply
      and for each table of `tables` a struct, or an array of structs: its rows for this request.
    It acts only by the rows that it returns: a batch may run more than once, and only one run's
    rows count. tables: column name to insert(), upsert(...) or add(...). name: of this server, 1
    to 200 bytes; None: the queue's. batch_rows: most requests in a batch, 1 to 1,000,000.
    Raises InvalidValue, InvalidName.
    """

    data_source: ClassVar[str] = "onceq.spark.source:OnceqDataSource"

    def __init__(
        self,
        queue: Queue[Any, Any],
        *,
        batch: BatchFunction | Each | Vectorised,
        tables: Mapping[str, TableChange] | None = None,
        name: str | None = None,
        batch_rows: int = 50_000,
        settings: ServerSettings | None = None,
    ) -> None:
        self.queue = queue
        self.batch = batch_function(batch, queue)
        self._requests = "" if isinstance(batch, Each) else told(queue)  # each() decodes itself
        self.tables = check_tables(tables or {})
        self.name = check_id("Spark server", queue.name if name is None else name)
        self.batch_rows = check_range("batch_rows", batch_rows, 1, 1_000_000)
        self.settings = settings or ServerSettings()
        for one in names_of(self.name, self.settings.queries):
            check_id("Spark server", one)
        self._stop = Stop()
        self._counted: tuple[SparkStatistics, tuple[Home, ...]] = (
            SparkStatistics(lives=0, failures={}),
            (),
        )

    def statistics(self) -> SparkStatistics:
        """Returns what this server has gone through so far."""
        return total(*self._counted)

    def stop(self) -> None:
        """Asks run() to end; from any thread, or from a signal handler. Idempotent."""
        self._stop.set()

    def run(
        self,
        url: str | None = None,
        *,
        repository: str = "onceq",
        spark: SparkSession | None = None,
        checkpoint: str | Path | None = None,
        once: bool = False,
    ) -> None:
        """Serves until stop(); a query that fails is started again.

        url: as for `onceq.open`. spark: a session of yours; None builds one, or joins the one
        that runs here. checkpoint: a local directory for Spark's notes, deleted if it is not
        usable; None: one that ends with this call. once: returns when everything that was
        there at the call has been answered or waits for its back-off, also if something else stops
        its query. A batch under way at stop() is given up: its requests go back, uncharged; but if
        a request may have ended the last query, they stay with this server until it begins again.
        Raises Fenced (another driver serves under this name), StatementRefused or SchemaMissing
        (a table is not as the batch function expects it), InvalidValue (the function's
        columns, its undeclared state, a checkpoint that is not a local directory), FileMismatch
        (the checkpoint that holds its state is not usable, and left alone), IllegalState (something
        else stopped its query, or Spark's session), CannotConnect at the beginning, before Spark
        begins: what it held is back in the queue. EnvironmentFault: Spark's Java has died.
        Once it has connected, it waits for a database that is away.
        """
        if self.settings.stateful and checkpoint is None:
            raise InvalidValue("a stateful Spark server needs checkpoint=: its state is kept there")
        given = None if checkpoint is None else check_checkpoint(checkpoint)
        with reach(url, repository) as located:
            session = spark if spark is not None else build_session(f"onceq {self.name}")
            refuse_connect(session)
            refuse_dead(session)
            with (
                find_route(located, repository, local=is_local(session)) as route,
                notes_in(given) as notes,
            ):
                number = self.settings.queries
                homes = [
                    Home(one, session, route, own, once)
                    for one, own in zip(
                        names_of(self.name, number), notes_of(notes, number), strict=True
                    )
                ]
                past, running = self._counted
                self._counted = past, (*running, *homes)
                try:
                    serve_all(self._serve, homes, self._stop)
                finally:
                    past, running = self._counted
                    self._counted = total(past, homes), tuple(set(running).difference(homes))

    def _serve(self, home: Home) -> None:
        """Runs one life after another, until stop(), or until what was there is done."""
        activate(home.spark)
        home.format = register_own(home.spark, self.data_source)
        try:
            while not self._stop.is_set():
                if self._live(home):
                    return
            self._give_back(home)
        except java_failures() as error:
            refuse_dead(home.spark, error)
            raise
        finally:
            telemetry.tell(log, telemetry.SparkStopped(server=home.name, lives=home.lives))

    # --- one life ---------------------------------------------------------------------------

    def _live(self, home: Home) -> bool:
        """Runs one query to its end; True if this was the last."""
        home.lives += 1
        try:
            with self._life(home) as (driver, options):
                verdict, text = self._watch(home, driver, options)
                tell_aborts(home.aborts, driver)
                if verdict is None and home.once and self._is_left(home, driver, options):
                    self._close(driver, options)
                    self._stop.wait(self.settings.backoff_s)
                    return False
                if verdict in _LAST or self._is_lost(home, verdict):
                    self._close(driver, options)
        except OperatingError as error:
            if isinstance(error, (Fenced, *UNMENDABLE)):
                raise
            verdict, text = Verdict.ENVIRONMENT, str(error)
        return self._conclude(home, verdict, text)

    def _give_back(self, home: Home) -> None:
        """Gives back what the last life held, when stop() came while nothing ran.

        If a request may have ended that life, what it held stays: the next life, or another server,
        looks at it.
        """
        if home.innocent and home.options is not None:
            with contextlib.suppress(OperatingError), Steadfast(home.route) as driver:
                self._close(driver, home.options)

    def _is_left(self, home: Home, driver: Steadfast, options: ServingOptions) -> bool:
        """Returns whether a query ended well before all was done: something else stopped it."""
        left = SparkLeft(server_id=options.server_id, epoch=options.epoch, bound=home.bound)
        return not self._stop.is_set() and driver.insist(left)

    def _is_lost(self, home: Home, verdict: Verdict | None) -> bool:
        """Returns whether a state is lost with an unusable checkpoint."""
        is_kept = verdict is Verdict.FORGET and self.settings.stateful
        return is_kept and not has_finished_nothing(home.checkpoint, home.query_id)

    def _conclude(self, home: Home, verdict: Verdict | None, text: str) -> bool:
        if not self._stop.is_set():
            refuse_dead(home.spark)
        if verdict is None:
            return True
        home.failures[verdict.name] += 1
        if verdict is Verdict.FENCED:
            raise Fenced(f"another driver serves under the name {home.name!r}: {text}")
        if verdict is Verdict.PROGRAM:
            raise StatementRefused(text)
        if verdict is Verdict.STOPPED:
            raise IllegalState(
                f"the query of Spark server {home.name!r} was stopped by something else than its "
                "stop(): what it held is back in the queue"
            )
        if self._is_lost(home, verdict):
            raise FileMismatch(
                f"the checkpoint of Spark server {home.name!r} is not usable, and its state is in "
                f"it: put the last copy back, or delete it to begin without a state: {text}"
            )
        if verdict is Verdict.FORGET:
            shutil.rmtree(home.checkpoint, ignore_errors=True)
        home.innocent = verdict is not Verdict.CRASH
        home.quiet_failures += 1
        doubled = self.settings.backoff_s * 2.0 ** min(home.quiet_failures - 1, 20)
        delay = min(doubled, self.settings.backoff_max_s)
        said, how = text.strip().partition("\n")[0], verdict.name
        event = telemetry.QueryEnded(server=home.name, verdict=how, error=said, delay_s=delay)
        telemetry.tell(log, event)
        self._stop.wait(delay)
        return False

    @contextlib.contextmanager
    def _life(self, home: Home) -> Generator[tuple[Steadfast, ServingOptions]]:
        with Steadfast(home.route) as driver:
            home.aborts = home.aborts or Aborts(self.queue.name, home.name, driver)
            life: SparkRegistration = driver.perform(
                SparkOpen(
                    name=home.name,
                    queue=self.queue.name,
                    hold_s=self.settings.hold_s,
                    innocent=home.innocent,
                    stateful=self.settings.stateful,
                )
            )
            home.query_id = life.query_id
            if home.once:
                home.bound = home.bound or driver.insist(SparkBound())
            telemetry.tell(
                log,
                telemetry.SparkBegan(server=home.name, queue=self.queue.name, epoch=life.epoch),
            )
            home.options = ServingOptions(
                route=home.route,
                server_id=life.server_id,
                epoch=life.epoch,
                batch_rows=self.batch_rows,
                partitions=self.settings.partitions or home.spark.sparkContext.defaultParallelism,
                idle_ms=self.settings.idle_ms,
                content_type=content_type_of(self.queue.reply_type),
                stateful=self.settings.stateful,
                requests=self._requests,
                token=new_token(),
                tables=self.tables,
            )
            yield driver, home.options

    def _watch(
        self, home: Home, driver: Steadfast, options: ServingOptions
    ) -> tuple[Verdict | None, str]:
        """Waits for the end of a query, and meanwhile shows that this server lives."""
        try:
            query = self._begin(home, driver, options)
        except OperatingError:
            raise
        except Exception as error:  # the boundary of the batch function: anything may come
            verdict = judge_beginning(of_error(error, options.token))
            self._close(driver, options)
            if verdict is not None:
                return verdict, str(error)
            refuse_dead(home.spark, error)
            raise
        is_connected = True
        try:
            while not self._stop.is_set():
                if has_ended(query, 1):
                    verdict, text = failure_of(query, home, options.token)
                    if verdict is Verdict.REFUSED:
                        verdict = judge_refusal(home, driver)
                    return verdict, text
                is_connected = self._live_on(home, driver, options, was_connected=is_connected)
        except OperatingError as error:
            return Verdict.ENVIRONMENT, str(error)
        finally:
            with contextlib.suppress(*java_failures()):
                query.stop()
        return None, ""

    def _live_on(
        self, home: Home, driver: Steadfast, options: ServingOptions, *, was_connected: bool
    ) -> bool:
        """Shows that this server lives, and takes over from the dead; False: it could not.

        Then the query goes on: it has connections of its own, and ends if they do not work.
        """
        try:
            take_over(driver, home.aborts, options.server_id, self.settings.grace_s)
        except LOST as error:
            if was_connected:
                telemetry.tell(log, telemetry.SparkConnectionLost(error=str(error)))
            return False
        return True

    def _begin(self, home: Home, driver: Steadfast, options: ServingOptions) -> StreamingQuery:
        from onceq.spark.serve import frames, schema  # noqa: PLC0415 # they need PySpark

        own_checkpoint(home.checkpoint, home.name, home.route.repository)
        spoken = self.source_options() | options.to_spark()
        requests = home.spark.readStream.format(home.format).options(**spoken).load()
        answers = frames.as_sink(self.batch(requests))
        if frames.has_state(answers) and not self.settings.stateful:
            raise InvalidValue(
                "the batch function keeps a state from batch to batch: say "
                "ServerSettings(stateful=True), and keep the checkpoint"
            )
        columns = schema.check_sink(answers.schema, self.tables)
        home.checks = [
            SparkCheckTable(
                table=change.for_sql(table, number, columns[table])
                | {"samples": schema.samples(answers.schema, table, columns[table])}
            )
            for number, (table, change) in enumerate(self.tables.items(), 1)
        ]
        for check in home.checks:
            driver.perform(check)
        writer = answers.writeStream.format(home.format).options(**spoken)
        # Spark's default file system may be a different one.
        writer = writer.option("checkpointLocation", f"file:{home.checkpoint}")
        writer = writer.outputMode(self.settings.output_mode)
        if home.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.settings.trigger_ms} milliseconds").start()

    def source_options(self) -> dict[str, str]:
        """Options for a data source of a caller's own that replaces ours; none here."""
        return {}

    def _close(self, driver: Steadfast, options: ServingOptions) -> None:
        # If the database is away just now, others take over what is held.
        with contextlib.suppress(OperatingError):
            driver.perform(SparkClose(server_id=options.server_id, epoch=options.epoch))
