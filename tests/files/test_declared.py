"""A file submitted to a queue as it is declared: what is not of the type is rejected, not sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import onceq
from onceq.engine.embedded.locate import locate
from onceq.files import SubmitOrder, submit
from onceq.model.code_pages import JSON_OF_TEXTS
from tests.files.parts import bodies, sent_rids
from tests.parts import rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.parts import Cli


class Sale(msgspec.Struct):
    id: str
    cents: int
    price: float = 0.0

    def __post_init__(self) -> None:
        if self.cents == 13:
            raise LookupError("not 13")


SALES = onceq.Queue("sales", Sale, bytes)
ROWS = ("1,100,1.5", "2,many,1", "3,1.5,1", f"4,{10**20},1", "5,1,x", "6,13,1", "7,-7,2")
CSV = "\n".join(["id,cents,price", *ROWS, ""])


@pytest.fixture(autouse=True)
def declared(qm: onceq.QueueManager) -> None:
    qm.declare(SALES)


def rejects_of(path: Path) -> dict[int, dict[str, Any]]:
    lines = path.with_name(f"{path.name}.rejects.jsonl").read_bytes().splitlines()
    return {one["row"]: one for one in map(msgspec.json.decode, lines)}


def test_what_the_declared_type_cannot_make_of_a_csv_field_is_rejected(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "sales.csv"
    path.write_text(CSV)
    words = ("submit", str(path), "--queue", "tests.files.test_declared:SALES", "--rid", "id")
    found = cli.json(*words, code=1).item
    assert (found["queue"], found["sent"], found["rejected"]) == ("sales", 2, 5)
    rejects = rejects_of(path)
    assert {row: one["column"] for row, one in rejects.items()} == {
        2: "cents",
        3: "cents",
        4: "cents",
        5: "price",
        6: None,
    }
    assert "Expected `int`, got `str`" in rejects[2]["reason"]
    assert rejects[6]["reason"] == "LookupError: not 13"
    assert sent_rids(cli) == ["1", "7"]
    query = f"select content_type from {cli.repository}.element where role = 'request'"
    assert rows(cli.url, query) == [(JSON_OF_TEXTS,), (JSON_OF_TEXTS,)]
    taken = [SALES.decode_request(body, JSON_OF_TEXTS) for body in bodies(cli)]
    assert taken == [Sale("1", 100, 1.5), Sale("7", -7, 2.0)]


def test_json_lines_are_not_coerced(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "sales.jsonl"
    path.write_text('{"id":"1","cents":"100"}\n{"id":"2","cents":100}\n{"id":"3"}\n')
    summary = submit(SubmitOrder(path=path, queue=SALES, rid="id"), locate(cli.url), cli.repository)
    assert (summary.sent, summary.rejected) == (1, 2)
    assert {row: one["column"] for row, one in rejects_of(path).items()} == {1: "cents", 3: "cents"}


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        ("tests.files.test_declared:Sale", "is no onceq.Queue"),
        ("tests.files.test_declared:NONE", "name the variable that holds the queue"),
        (":NONE", "names no queue"),
    ],
)
def test_what_declares_no_queue_is_refused(cli: Cli, tmp_path: Path, queue: str, says: str) -> None:
    path = tmp_path / "sales.csv"
    path.write_text(CSV)
    assert says in cli("submit", str(path), "--queue", queue, "--rid", "id", code=2).err
