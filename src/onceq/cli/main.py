"""The command `onceq`: all its commands, put together."""

from __future__ import annotations

import sys
from typing import Annotated, Final, NoReturn

import typer

from onceq.cli import (
    auditing,
    bulk,
    clients,
    enqueueing,
    held,
    history,
    metrics,
    periodics,
    pipelines,
    queues,
    recovering,
    repositories,
    repository,
    requests,
    restoring,
    serving,
    stores,
    streams,
)
from onceq.cli.command import Invocation, command
from onceq.cli.doctor import doctor
from onceq.cli.explaining import explain
from onceq.cli.top import top
from onceq.version import __version__

EPILOG: Final = (
    "Exit codes: 0 ok, 1 violation or mismatch, 2 usage, 3 not found, 4 cannot connect, "
    "5 unknown outcome, 130 interrupted."
)


def make_app() -> typer.Typer:
    """Returns the whole command line."""
    app = typer.Typer(
        name="onceq",
        help="Exactly-once requests on PostgreSQL.",
        epilog=EPILOG,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_outer)
    command(app, "init")(repository.init)
    command(app, "serve")(serving.serve)
    app.add_typer(_spark(), name="spark")
    command(app, "enqueue")(enqueueing.enqueue)
    command(app, "submit")(bulk.submit_file)
    command(app, "collect")(bulk.collect_replies)
    app.add_typer(repositories.app, name="repository")
    app.add_typer(queues.app, name="queue")
    app.add_typer(periodics.app, name="periodic")
    app.add_typer(clients.app, name="client")
    app.add_typer(requests.request_app, name="request")
    app.add_typer(held.error_app, name="error")
    app.add_typer(history.app, name="history")
    app.add_typer(stores.make_app(), name="store")
    app.add_typer(streams.make_app(), name="stream")
    command(app, "explain")(explain)
    command(app, "top")(top)
    command(app, "redrive")(held.redrive)
    command(app, "kill")(requests.kill)
    command(app, "doctor")(doctor)
    command(app, "metrics")(metrics.metrics)
    command(app, "tend")(periodics.tend)
    command(app, "url")(repository.url)
    command(app, "psql")(repository.psql)
    command(app, "stop")(repository.stop)
    command(app, "version")(repository.version)
    return app


def _spark() -> typer.Typer:
    """Returns the commands of Spark. Made anew: a shared one would grow with each use."""
    app = typer.Typer(no_args_is_help=True, help="Spark as a server and as a data pipeline.")
    command(app, "serve")(serving.spark_serve)
    command(app, "archive")(pipelines.spark_archive)
    command(app, "delta")(pipelines.spark_delta)
    command(app, "report")(pipelines.spark_report)
    command(app, "restore")(restoring.spark_restore)
    command(app, "recover")(recovering.spark_recover)
    command(app, "audit")(auditing.spark_audit)
    return app


def _print_version(wanted: bool) -> None:  # noqa: FBT001 # typer calls it so
    if wanted:
        print(f"onceq {__version__}")
        raise typer.Exit


def _outer(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(help="embedded:PATH or postgresql://...")] = None,
    repository_name: Annotated[
        str | None, typer.Option("--repository", help="The repository's name.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    ctx.obj = Invocation(url=url, repository=repository_name, as_json=as_json)


def main() -> NoReturn:
    """Runs the command line and exits with its code."""
    make_app()()
    sys.exit(0)


if __name__ == "__main__":
    main()
