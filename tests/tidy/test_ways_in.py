"""Whatever puts an element into a queue heeds the queue's limits, or is known not to (Q13)."""

from __future__ import annotations

import re

from onceq.engine.schema.scripts import function_sources

HEEDS = {
    "send_one": "not q.limited",
    "send_each": "not q.limited",
    "send": "not q.limited",
    "send_many": "has_room(",
    "enqueue": "need_room(",
    "enqueue_many": "need_room(",
    "enqueue_each_row": "need_room_for_rows(",
    "alert_late": "need_room(",
}
"""What each way in asks; `send_one` and `send_each` leave it to `send`, that to `why_not_sent`."""
NEVER_REFUSED = {
    "conclude_done": "a reply",
    "conclude_one": "a reply",
    "conclude_batch": "replies",
    "fail_element": "a move into an error queue",
    "spark_finish": "replies",
    "redrive": "an operator's word",
    "redrive_reply": "an operator's word",
    "abort_reply": "a move into an error queue",
    "report": "it belongs to an event that is committed with it",
}
_FUNCTION = re.compile(
    r"^create or replace function onceq\.(\w+)\(.*?^(?:end )?\$\$;$", re.DOTALL | re.MULTILINE
)


def test_every_way_in_heeds_the_limits() -> None:
    inserting = {
        found[1]: found[0]
        for _, text in function_sources()
        for found in _FUNCTION.finditer(text)
        if "insert into onceq.element " in found[0]
    }
    assert set(inserting) == set(HEEDS) | set(NEVER_REFUSED)
    assert [name for name, asked in HEEDS.items() if asked not in inserting[name]] == []
