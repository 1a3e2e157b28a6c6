"""Torture: clients, servers and PostgreSQL under every fault at once, and a judgement at the end.

`python -m proof.torture`, `make torture` and the proof call `run` with a Plan. It works in a
directory of its own, on a PostgreSQL of its own or a scratch database, and ends every process that
it has started.
"""

from proof.torture.conductor import run
from proof.torture.plan import KINDS, Plan, Planned, schedule
from proof.torture.report import Progress, Report

__all__ = ["KINDS", "Plan", "Planned", "Progress", "Report", "run", "schedule"]
