"""Torture: clients, servers and PostgreSQL under every fault at once, and a judgement at the end.

`onceq torture`, `make torture` and the proof call `run` with a Plan. It works in a directory of its
own, on a PostgreSQL of its own or a scratch database, and ends every process that it has started.
"""

from onceq.testing.torture.conductor import run
from onceq.testing.torture.plan import KINDS, Plan, Planned, schedule
from onceq.testing.torture.report import Progress, Report

__all__ = ["KINDS", "Plan", "Planned", "Progress", "Report", "run", "schedule"]
