"""The goals of the proof: what must be reached in each size, with no violation in any.

Parts name their measures by the constants. A row with `all_of` asks for everything that its
parts counted (their `Measure.goal`), and for at least the number here.
"""

from __future__ import annotations

from dataclasses import dataclass

from proof.part import Size

REQUESTS = "acknowledged requests, none lost, doubled or mismatched"
KILLS = "process kills"
CLIENT_KILLS = "kills of clients that knew their state, by each kind of ledger and by none"
CRASHES = "PostgreSQL crashes"
CUT = "connections cut under live processes: none charged, and 60 s later nothing waits"
SILENT = "links that fell silent under live processes: the same"
ENDED = "backends ended under live processes: the same"
INTERRUPTS = "cancels and interrupts at random moments of clerks, ledgers, managers"
FAULT_POINTS = "fault points reached"
UNKNOWN_COMMITS = "unknown commits resolved to the truth"
POWER_CUTS = "power cuts"
STATES = "model states"
SCHEDULES = "simulated schedules"
STREAM_SCHEDULES = "schedules of the recovery of streams"
STREAM_SIMULATED = "schedules of what ships of streams"
STREAM_INPUTS = "bad inputs to stores and receivers of streams"
STREAM_FLIPS = "bits flipped in the log of a store while receivers catch up"
STREAM_OPENINGS = "logs of stores opened with a bit flipped"
STREAM_KILLS = "kills of stores, sources and receivers of streams"
STREAM_PARTITIONS = "links of stores parted, in one direction or both"
STREAM_SENT = "messages of streams, none lost, doubled or changed"
STREAM_CUTS = "power cuts of three stores at once"
STREAM_POINTS = "fault points of streams reached"
BRIDGE_POINTS = "fault points of bridges of streams reached"
ORDERED = "schedules of a queue in strict order, none overtaken, never two in flight"
OUTSTANDING = "requests outstanding at a time, received in random order"
EVENTS = "recorded history events checked"
INVENTED = "invented history events checked"
MUTANTS = "mutants caught"
BAD_INPUTS = "bad inputs"
FILE_ROWS = "rows of a file, each one request and one reply"
ARCHIVED = "rows of history archived, each once"
DECODED = "invented requests decoded alike by native servers and by Spark"
AUDITED = "rows of history audited, what is broken in them named, and nothing else"
VERSIONS = "versions of PostgreSQL and of Python on which the conformance suite passes"
PACKAGES = "packages built, installed into an empty environment, and used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A row of the table. small: 0 if `make test` has no goal, or other tests add to it."""

    what: str
    proof: int
    long: int
    small: int = 0
    all_of: bool = False

    def of(self, size: Size) -> int:
        """Return the number to reach in a size."""
        return {Size.SMALL: self.small, Size.PROOF: self.proof, Size.LONG: self.long}[size]


GOALS = (
    Goal(what=REQUESTS, proof=200_000, long=5_000_000),
    Goal(what=KILLS, proof=5_000, long=100_000),
    Goal(what=CLIENT_KILLS, small=100, proof=2_000, long=40_000),
    Goal(what=CRASHES, proof=200, long=3_000),
    Goal(what=CUT, proof=1_000, long=20_000),
    Goal(what=SILENT, proof=1_000, long=20_000),
    Goal(what=ENDED, proof=1_000, long=20_000),
    Goal(what=INTERRUPTS, small=140, proof=5_000, long=100_000),
    Goal(what=FAULT_POINTS, small=1, proof=1, long=1, all_of=True),
    Goal(what=UNKNOWN_COMMITS, proof=1_000, long=20_000),
    Goal(what=POWER_CUTS, small=10, proof=150, long=2_000),
    Goal(what=STATES, small=200_000, proof=2_000_000, long=50_000_000),
    Goal(what=SCHEDULES, proof=20_000, long=2_000_000),
    Goal(what=STREAM_SCHEDULES, small=400, proof=100_000, long=2_000_000),
    Goal(what=STREAM_SIMULATED, small=40, proof=20_000, long=400_000),
    Goal(what=STREAM_INPUTS, small=4_000, proof=1_000_000, long=50_000_000),
    Goal(what=STREAM_FLIPS, small=40, proof=1_000, long=20_000),
    Goal(what=STREAM_OPENINGS, small=60, proof=10_000, long=200_000),
    Goal(what=STREAM_KILLS, small=8, proof=1_000, long=20_000),
    Goal(what=STREAM_PARTITIONS, small=1, proof=200, long=4_000),
    Goal(what=STREAM_SENT, small=2_000, proof=20_000_000, long=400_000_000),
    Goal(what=STREAM_CUTS, small=4, proof=100, long=2_000),
    Goal(what=STREAM_POINTS, small=1, proof=15, long=15, all_of=True),
    Goal(what=BRIDGE_POINTS, small=1, proof=17, long=17, all_of=True),
    Goal(what=ORDERED, small=60, proof=5_000, long=100_000),
    Goal(what=OUTSTANDING, small=1_000, proof=10_000, long=50_000),
    Goal(what=EVENTS, proof=500_000, long=10_000_000),
    Goal(what=INVENTED, proof=5_000_000, long=100_000_000),
    Goal(what=MUTANTS, proof=40, long=40, all_of=True),
    Goal(what=BAD_INPUTS, small=10_000, proof=1_000_000, long=50_000_000),
    Goal(what=DECODED, small=3_000, proof=20_000, long=400_000),
    Goal(what=FILE_ROWS, small=20_000, proof=1_000_000, long=5_000_000),
    Goal(what=ARCHIVED, small=5_000, proof=5_000_000, long=20_000_000),
    Goal(what=AUDITED, small=5_000, proof=5_000_000, long=20_000_000),
    Goal(what=VERSIONS, small=1, proof=1, long=1, all_of=True),
    Goal(what=PACKAGES, small=2, proof=2, long=2),
)
