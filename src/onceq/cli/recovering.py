"""`onceq spark recover`: writes where each client's last request stands, and what is stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from onceq.cli.command import Invocation
from onceq.cli.exits import OK, VIOLATION
from onceq.cli.output import hint
from onceq.cli.pipelines import Master, run_pipeline
from onceq.errors import InvalidValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ: Final[dict[str, Callable[[Any, str], Any]]] = {
    ".csv": lambda reader, path: reader.csv(path, header=True, escape='"', multiLine=True),
    ".jsonl": lambda reader, path: reader.json(path),
    ".ndjson": lambda reader, path: reader.json(path),
    ".parquet": lambda reader, path: reader.parquet(path),
    "": lambda reader, path: reader.parquet(path),
}
"""How to read ledgers, by the suffix of the path; without one it is a directory of Parquet."""
FORMATS: Final = ("parquet", "csv")
BASE64: Final = {"ckpt": "base64(ckpt) as ckpt"}


def spark_recover(
    invoked: Invocation,
    out: Annotated[
        Path, typer.Argument(help="A new directory; the tables clients and stuck go into it.")
    ],
    *,
    ledgers: Annotated[
        Path | None,
        typer.Option(help="The clients' ledgers: .csv, .jsonl, .parquet, or a directory of these."),
    ] = None,
    stuck_after_s: Annotated[
        int,
        typer.Option("--stuck-after", min=0, help="Seconds after which a request counts as stuck."),
    ] = 3600,
    written_as: Annotated[
        str, typer.Option("--format", help=f"The format to write: {' or '.join(FORMATS)}.")
    ] = "parquet",
    master: Master = None,
) -> int:
    """Say for every client which state its last request is in, A to E, and what to do.

    This goes by the clients' ledgers, if given, and by the repository with its archived requests.
    Stuck requests are listed separately. Nothing is changed: the clients act upon it, by their
    own `recover`. Exit code 1 when a client is in state E: the repository went back.
    """
    if written_as not in FORMATS:
        raise InvalidValue(f"--format {written_as!r}: it is one of {', '.join(FORMATS)}")
    if out.exists():
        raise InvalidValue(f"{out} is there already: give a directory that is to be made")
    if ledgers is not None and ledgers.suffix not in READ:
        raise InvalidValue(f"{ledgers}: its name must end in one of {', '.join(READ)}")
    if ledgers is not None and not ledgers.exists():
        raise FileNotFoundError(f"there are no ledgers at {ledgers}")
    states, stuck = dict[str, int](), dict[str, int]()

    def once(session: SparkSession) -> None:
        from onceq.spark.pipelines import recovery  # noqa: PLC0415 # an extra

        given = None if ledgers is None else _read(session, ledgers)
        where = invoked.target.given
        with recovery(session, given, **where, stuck_after_s=stuck_after_s) as found:
            states.update(_write(found.clients, out / "clients", written_as, "state"))
            stuck.update(_write(found.stuck, out / "stuck", written_as, "reason"))

    run_pipeline(once, f"recovering into {out}", every=None, master=master)
    _tell(invoked, out, states, stuck)
    return VIOLATION if states.get("E") else OK


def _read(session: SparkSession, path: Path) -> DataFrame:
    found: DataFrame = READ[path.suffix](session.read, _spoken(path))
    return found


def _write(rows: DataFrame, path: Path, written_as: str, counted: str) -> dict[str, int]:
    """Writes a table (bytes in CSV as base64); returns how many rows have each value counted."""
    kept: Any = rows.persist()  # its types are partial
    try:
        found: list[Any] = kept.groupBy(counted).count().orderBy(counted).collect()
        if written_as == "csv":
            kept = kept.selectExpr(*(BASE64.get(name, name) for name in kept.columns))
        kept.write.options(header="true", escape='"').format(written_as).save(_spoken(path))
    finally:
        rows.unpersist()
    return {row[counted]: row["count"] for row in found}


def _spoken(path: Path) -> str:
    """Returns a path in a form that Spark takes, whatever its default file system is."""
    return f"file:{path.resolve()}"


def _tell(invoked: Invocation, out: Path, states: dict[str, int], stuck: dict[str, int]) -> None:
    if states.get("E"):
        hint(f"onceq: {states['E']} client(s) in state E: the repository went back behind them")
    invoked.output.either(
        {"out": str(out), "clients": states, "stuck": stuck},
        {
            "out": str(out),
            "clients": ", ".join(f"{count:,} in {state}" for state, count in states.items()) or "-",
            "stuck": ", ".join(f"{count:,} {reason}" for reason, count in stuck.items()) or "-",
        },
    )
