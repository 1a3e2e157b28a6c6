"""What of the Spark server is values: options, places, schemas."""

from __future__ import annotations

import enum
import stat
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from onceq import errors
from onceq.engine.perform.spark_driver import Route, has_password, without_password
from onceq.history import events as ev
from onceq.history.events import files
from onceq.model.spark_ops import SparkClaim
from onceq.spark import ServerSettings, add, insert, register
from onceq.spark.audit import evidence
from onceq.spark.given.options import ServingOptions
from onceq.spark.given.route import find_route, reach
from onceq.spark.serve.checkpoint import check_checkpoint
from onceq.spark.serve.schema import request_schema
from tests.spark.serving import ORDERS, make_server
from tests.spark.spark_life import Life
from tests.spark.spark_parts import Repository, make_repository

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "S3:cr\\et"
"""In capitals, of which the names of temporary directories have none."""


TABLES = {"totals": add("a", "b")}


def options_of(route: Route) -> ServingOptions:
    return ServingOptions(route=route, server_id=1, epoch=2, stateful=True, tables=TABLES)


def test_options_come_back_as_they_were() -> None:
    options = options_of(Route(url="", conninfo="host=h", repository="r"))
    spoken = options.to_spark()
    assert ServingOptions.from_spark(spoken) == options
    del spoken["epoch"]
    with pytest.raises(errors.InvalidValue, match="'epoch' is missing"):
        ServingOptions.from_spark(spoken)


@pytest.mark.parametrize("conninfo", [f"password={SECRET!r}", "postgresql://u:S3cret@h/d"])
def test_a_password_is_never_an_option(conninfo: str, tmp_path: Path) -> None:
    assert has_password(conninfo)
    with pytest.raises(errors.InvalidValue, match="passfile"):
        options_of(Route(url="", conninfo=conninfo, repository="r")).to_spark()
    passfile = tmp_path / "passfile"
    shown = without_password(conninfo, passfile)
    assert not has_password(shown)
    assert "S3" not in shown
    assert stat.S_IMODE(passfile.stat().st_mode) == 0o600
    options_of(Route(url="", conninfo=shown, repository="r")).to_spark()


def test_a_password_for_executors_elsewhere_is_refused(conninfo: str, repository_name: str) -> None:
    made = make_repository(conninfo, repository_name)
    made.close()
    url = f"{conninfo} password={SECRET!r}"
    with (
        reach(url, repository_name) as located,
        pytest.raises(errors.InvalidValue, match="passfile on every machine"),
        find_route(located, repository_name, local=False),
    ):
        pass
    with (
        reach(url, repository_name) as located,
        find_route(located, repository_name, local=True) as route,
    ):
        assert "S3" not in str(route)
        assert "passfile" in route.conninfo


def test_a_checkpoint_is_a_directory_of_this_machine(tmp_path: Path) -> None:
    assert check_checkpoint(str(tmp_path)) == tmp_path
    with pytest.raises(errors.InvalidValue, match="is a URL"):
        check_checkpoint("hdfs://head/notes")
    (tmp_path / "file").touch()
    with pytest.raises(errors.InvalidValue, match="is a file"):
        check_checkpoint(tmp_path / "file")


def claim_and_fail(made: Repository) -> None:
    with register(ORDERS, made.conninfo, name="own", repository=made.name) as spoken:
        options = ServingOptions.from_spark(spoken)
        claim = SparkClaim(server_id=options.server_id, epoch=options.epoch, start=0, n=10)
        assert made.driver.perform(claim) > 0
        raise LookupError("its query failed")


def test_a_registration_for_a_pipeline_of_one_s_own(conninfo: str, repository_name: str) -> None:
    made = make_repository(conninfo, repository_name)
    made.send(2)
    with register(ORDERS, conninfo, name="own", repository=made.name) as spoken:
        options = ServingOptions.from_spark(spoken)
        assert options.content_type == "application/json"
        newer = Life(made, "other")
        newer.plan(newer.claim())
        newer.end()
    made.send(1, first=2)
    with pytest.raises(LookupError, match="its query failed"):
        claim_and_fail(made)
    held = "select count(*) from {}.element where claimed_by is not null and rid = 'r2'"
    assert made.ask(held) == [(0,)]
    made.close()


class Colour(enum.Enum):
    RED = "red"


class Line(msgspec.Struct):
    item: str
    price: Decimal


class Order(msgspec.Struct):
    customer: str
    lines: list[Line]
    colour: Colour
    at: datetime | None = None
    notes: dict[str, int] = msgspec.field(name="NOTES", default_factory=dict)


class Odd(msgspec.Struct):
    either: int | str


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            Order,
            (
                "struct<customer:string,lines:array<struct<item:string,price:decimal(38,18)>>,"
                "colour:string,at:timestamp,NOTES:map<string,bigint>>"
            ),
        ),
        (bytes, None),
        (int, None),
        (Odd, None),
    ],
)
def test_types_of_requests(kind: type[Any], expected: str | None) -> None:
    found = request_schema(kind)
    assert (None if found is None else found.simpleString()) == expected


def test_a_server_is_checked_when_it_is_made(tmp_path: Path) -> None:
    for options in ({"batch_rows": 0}, {"tables": {"reply": insert()}}):
        with pytest.raises(errors.InvalidValue):
            make_server("r", tmp_path, **options)
    with pytest.raises(errors.InvalidName):
        make_server("r", tmp_path, name="")
    with pytest.raises(errors.InvalidValue):
        ServerSettings(partitions=-1)


def test_the_end_of_a_participant_is_about_no_request(tmp_path: Path) -> None:
    path = tmp_path / "a.events"
    with ev.Recorder(path) as recorder:
        recorder.record(ev.Ended(target="server 1", pid=1, how="killed"))
    (part,) = files.parts(path, 1 << 20)
    (batch,) = evidence._events(part)
    assert batch.column("stage").to_pylist() == [evidence.UNUSED]
