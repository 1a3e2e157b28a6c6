"""The page of metrics, and the dashboard: they name what is served, and nothing else."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import onceq
from onceq.manager.metrics import METRICS, UP
from tests.examples.pages import section, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = [(one.name, one.kind, one.labels, one.text) for one in METRICS]
ROWS.insert(0, (UP.name, UP.kind, UP.labels, UP.text))
NAME = re.compile(r"\bonceq_\w+")
OF_HISTOGRAM = ("_bucket", "_sum", "_count")
SELECTED = re.compile(r"(onceq_\w+)\{([^}]*)\}|by \(([^)]*)\)|\{\{(?:\s*\$labels\.)?(\w+)\s*\}\}")
OF_PROMETHEUS = {"job", "le"}


def page() -> str:
    return text_of("docs/metrics.md")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of("dashboards/onceq.json"))
    return found


def served() -> set[str]:
    """Returns the names of all values."""
    return {
        name + suffix
        for name, kind, _, _ in ROWS
        for suffix in (OF_HISTOGRAM if kind == "histogram" else ("",))
    }


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def test_the_page_has_the_table_of_the_code() -> None:
    names = section("Names", page())
    rows = [line for line in names.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {kind} | {', '.join(f'`{one}`' for one in labels)} | {text} |"
        for name, kind, labels, text in ROWS
    ]
    of_streams = section("Of sources and receivers of streams", page())
    named = set(NAME.findall(page().replace(of_streams, "")))
    assert named <= {name for name, *_ in ROWS} | served()


def test_what_is_served_has_the_names_and_labels_of_the_table(qm: onceq.QueueManager) -> None:
    qm.declare(onceq.Queue("work", str, str))
    labels = {name: set(labels) for name, _, labels, _ in ROWS}
    for one in qm.metrics().samples():
        name = one.name if one.name in labels else re.sub(r"_(bucket|sum|count)$", "", one.name)
        assert one.name in served()
        assert set(one.labels) - {"le"} == labels[name]


def test_units_are_in_the_names() -> None:
    for name, kind, _, text in ROWS:
        assert (kind == "counter") is name.endswith("_total")
        assert ("age " in text or kind == "histogram" or "how long" in text) is name.endswith(
            "_seconds"
        )


def test_the_dashboard_shows_what_is_served() -> None:
    shown = {name for one in expressions() for name in NAME.findall(one)}
    assert shown <= served()
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert whole == {name for name, *_ in ROWS}
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert set(NAME.findall(json.dumps(variables))) <= served()
    assert variables["datasource"]["type"] == "datasource"
    assert {json.dumps(one) for one in _sources(dashboard())} == {
        '{"type": "prometheus", "uid": "${datasource}"}'
    }


def _sources(found: Any) -> Iterator[Any]:
    """Yields from where the parts of a dashboard have their data."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    if isinstance(found, dict) and isinstance(found.get("datasource"), dict):
        yield found["datasource"]
    for one in inner:
        yield from _sources(one)


def test_dashboard_and_alerts_use_labels_that_are_there() -> None:
    legends = [one["legendFormat"] for panel in dashboard()["panels"] for one in panel["targets"]]
    known = {label for _, _, labels, _ in ROWS for label in labels} | OF_PROMETHEUS
    labels_of = {name: set(labels) | OF_PROMETHEUS for name, _, labels, _ in ROWS}
    for text in (*expressions(), *legends, section("Alerts", page())):
        for name, selected, by, legend in SELECTED.findall(text):
            used = set(re.findall(r"(\w+)\s*[=!]", selected))
            of = re.sub(r"_(bucket|sum|count)$", "", name)
            assert used <= (labels_of[of] if name else known), text
            assert {one.strip() for one in by.split(",") if one} | {legend or "le"} <= known, text


def test_there_are_four_alerts() -> None:
    assert len(re.findall(r"^ +- alert: \w+\n +expr: .+$", page(), re.MULTILINE)) == 4
