"""The tables of a report: what each column holds, in which unit, and its possible values.

Pure: read by the code that writes them, by the page that explains them, and by the tests. Source:
spec P7.
"""

from __future__ import annotations

from typing import Final

GROUPS: Final = {
    "span": ("", "hour or day: how long the row's time is"),
    "starts_at": ("time", "when it begins, in UTC"),
    "by": ("", "all, queue, server or registrant (a client): what the row is about"),
    "name": ("", "of which of them; null: all, or there was none"),
}
_COUNTS: Final = {
    "ended": ("count", "requests and datagrams that ended in it"),
    "done": ("count", "of them, what a handler did"),
    "failed": ("count", "of them, failures: for good, at the abort limit or by rejection"),
    "cancelled": ("count", "of them, killed by their client or an operator"),
    "expired": ("count", "of them, not done in time"),
    "dequeued": ("count", "of them, taken out of the queue by a program"),
    "requests": ("count", "of them, requests: they owe a reply"),
    "datagrams": ("count", "of them, datagrams: they owe none"),
    "recovered": ("count", "of them, recoveries: done or dequeued after at least one abort"),
}
_TIMES: Final = {
    "waiting": "from enqueue to the beginning of the execution that ended it",
    "service": "from the beginning of the execution that ended it to its end",
    "total": "from enqueue to the end, however it ended",
}
MEASURES: Final = {
    **_COUNTS,
    **{
        name: described
        for time, meaning in _TIMES.items()
        for name, described in {
            f"{time}_measured": ("count", f"of which this is known: {meaning}"),
            f"{time}_p50_ms": ("ms", f"{meaning}: half of them took at most this"),
            f"{time}_p90_ms": ("ms", "90 % of them took at most this"),
            f"{time}_p99_ms": ("ms", "99 % of them took at most this"),
            f"{time}_max_ms": ("ms", "the longest"),
        }.items()
    },
}
"""Unit and meaning by name, in the order of the columns."""
ENDS: Final = {**GROUPS, **MEASURES}
ABORTS: Final = {
    **GROUPS,
    "charge": ("", "what the abort came to: charge, reject, environment, suspect"),
    "code": ("", "of what failed"),
    "aborts": ("count", "executions that were aborted in it"),
}
TABLES: Final = {
    "ends": ("what ended, in each hour and on each day", ENDS),
    "aborts": ("executions that were aborted, in each hour and on each day", ABORTS),
}
"""What each table holds, and its columns, by the name of its folder."""
