"""A request is the same bytes in every process, also where it holds sets."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Annotated, Any

import msgspec
import pytest

import onceq
from onceq.errors import InvalidValue
from onceq.model import stable_json

SENT = """
import sys
from tests.model.test_stable_json import QUEUES
for queue, value in QUEUES:
    sys.stdout.write(queue.encode_request(value).decode() + "\\n")
"""


class Order(msgspec.Struct):
    goods: set[str]
    size: int = 1


@dataclasses.dataclass
class Basket:
    orders: list[Order]
    notes: Any = None


class Node(msgspec.Struct):
    name: str
    below: list[Node] = []


GOODS = {"bread", "wine", "salt", "oil", "rice"}
QUEUES: list[tuple[onceq.Queue[Any, Any], Any]] = [
    (onceq.Queue("a", set[str], bytes), GOODS),
    (onceq.Queue("b", frozenset[str], bytes), frozenset(GOODS)),
    (onceq.Queue("c", Order, bytes), Order(goods=GOODS)),
    (onceq.Queue("d", Basket, bytes), Basket(orders=[Order(goods=GOODS)], notes={"x": GOODS})),
    (onceq.Queue("e", dict[str, Any], bytes), {"b": [(GOODS, 1)], "a": 2}),
    (onceq.Queue("g", dict[int, Any], bytes), {2: GOODS, 1: {"x": 1.5, "a": b"z"}}),
    (onceq.Queue("f", list[set[int] | str], bytes), [{10**n for n in range(12)}, "x"]),
]


def _bodies_of(seed: int) -> list[str]:
    """What a process with this order of hashing sends."""
    done = subprocess.run(
        [sys.executable, "-c", SENT],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_request_that_holds_sets_is_the_same_in_every_process() -> None:
    first, *others = [_bodies_of(seed) for seed in (1, 2, 3)]
    assert others == [first, first]
    for (queue, value), body in zip(QUEUES[:3], first, strict=False):
        assert queue.decode_request(body.encode()) == value


def test_a_type_that_cannot_be_remembered_is_looked_at_each_time() -> None:
    kind = Annotated[set[str], []]
    with pytest.raises(TypeError):
        hash(kind)
    assert json.loads(stable_json.encode(kind, GOODS)) == sorted(GOODS)


def test_what_holds_no_set_is_encoded_as_it_is() -> None:
    """Its dicts keep their order, as in bodies that were sent before."""
    value = {"b": 1, "a": [{"d": 2, "c": None}]}
    assert stable_json.encode(dict[str, Any], value) == msgspec.json.encode(value)
    tree = Node("x", [Node("y")])
    assert json.loads(stable_json.encode(Node, tree)) == msgspec.to_builtins(tree)


def test_a_value_without_an_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidValue):
        onceq.Queue("a", list[Any], bytes).encode_request(endless)
