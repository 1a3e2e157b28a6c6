"""The parts of the proof, in the order in which they run, and the sources that each covers.

Each module adds its own line. None covers the code that judges and writes the page: a record says
what was reached, whoever compares it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proof.archive.part import MORE as ARCHIVE_MORE
from proof.archive.part import PART as ARCHIVE
from proof.audit.part import PART as AUDIT
from proof.clients.part import PART as CLIENTS
from proof.decoding.part import PART as DECODING
from proof.faultpoints import PART as FAULT_POINTS
from proof.fuzz.part import PART as FUZZ
from proof.history.part import PART as HISTORY
from proof.interrupts.part import PART as INTERRUPTS
from proof.large_file import PART as LARGE_FILE
from proof.model.part import PART as MODEL
from proof.mutants.part import PART as MUTANTS
from proof.ordering.part import PART as ORDERING
from proof.packaging import PART as PACKAGING
from proof.pipelinepoints.part import PART as PIPELINE_FAULT_POINTS
from proof.powercut.part import PART as POWER_CUT
from proof.scoreboard.part import PART as SCOREBOARD
from proof.simulation import PART as SIMULATION
from proof.sparkpoints.part import PART as SPARK_FAULT_POINTS
from proof.streams_bridges.part import PART as STREAMS_BRIDGES
from proof.streams_damage.part import PART as STREAMS_DAMAGE
from proof.streams_faultpoints.part import PART as STREAMS_FAULT_POINTS
from proof.streams_fuzz.part import PART as STREAMS_FUZZ
from proof.streams_model.part import PART as STREAMS_MODEL
from proof.streams_powercut.part import PART as STREAMS_POWER_CUT
from proof.streams_simulation.part import ON_DISKS as STREAMS_DISKS
from proof.streams_simulation.part import PART as STREAMS_SIMULATION
from proof.streams_torture.part import PART as STREAMS_TORTURE
from proof.torture.part import PART as TORTURE
from proof.versions import PARTS as VERSIONS
from proof.windows.part import PART as WINDOWS

if TYPE_CHECKING:
    from proof.part import Part

CLIENT_SIDE = ("errors.py", "model/**/*", "manager/*", "clerk/**/*", "server/*", "files/*")
HARNESS = ("proof/harness/*",)
BEHAVIOURS = ("proof/conformance/*", "proof/oracle/**/*", "proof/simulator/*")
NATIVE = (
    *(f"src/onceq/{one}" for one in (*CLIENT_SIDE, "engine/**/*", "history/*", "testing/*")),
    *HARNESS,
)
"""All of the product except Spark and the command line."""
STREAMS_COMMANDS = tuple(
    f"!src/onceq/cli/{one}.py" for one in ("bridging", "stores", "storing", "streaming", "streams")
)
PRODUCT = (
    "src/onceq/*",
    *(f"src/onceq/{one}/**/*" for one in ("cli", "clerk", "engine", "files", "history")),
    *(f"src/onceq/{one}/**/*" for one in ("manager", "model", "server", "spark", "testing")),
    *STREAMS_COMMANDS,
    "!src/onceq/spark/streams.py",
    "!src/onceq/spark/follow/*",
    *HARNESS,
)
"""All of the product except the streams, their commands and their format of Spark.

It knows nothing of those, nor do the parts that try it.
"""
IN_MEMORY = (
    *(
        f"src/onceq/{one}"
        for one in (*CLIENT_SIDE, "engine/perform/gate.py", "engine/wake/waiting.py")
    ),
    "src/onceq/history/*",
    *BEHAVIOURS,
)
ROOMS_OF_STREAMS = (
    *(f"src/onceq/streams/{one}/**/*" for one in ("model", "net", "receiver", "source", "store")),
    *("!src/onceq/streams/store/metrics.py", "!src/onceq/streams/*/exposing.py"),
)
STREAMS = (
    *ROOMS_OF_STREAMS,
    "proof/streams_simulation/*",
    "proof/streams_model/*",
)
"""All of the streams but who uses them, and what tells of a store's metrics: no part asks it."""
OTHER_TESTS = ("!tests/streams/**/*", "!tests/examples/**/*")
"""Which no mutant of the queues is shown to."""
PROCESSES_OF_STREAMS = (
    "src/onceq/streams/history/*",
    "src/onceq/history/events/*",
    "proof/streams_torture/*",
    "proof/streams_faultpoints/*",
)
FAULTS = ("proof/fault*.py", "proof/waited.py")
TABLE: tuple[tuple[Part, tuple[str, ...]], ...] = (
    (HISTORY, ("src/onceq/history/*", "proof/history/*")),
    (MODEL, ("proof/model/*",)),
    (MUTANTS, (*PRODUCT, *BEHAVIOURS, "tests/**/*", *OTHER_TESTS, "proof/mutants/*")),
    (STREAMS_MODEL, ("src/onceq/streams/model/*", "proof/streams_model/*")),
    (STREAMS_SIMULATION, STREAMS),
    (STREAMS_DISKS, STREAMS),
    (STREAMS_FUZZ, (*STREAMS, "proof/streams_fuzz/*")),
    (STREAMS_DAMAGE, (*STREAMS, "proof/streams_damage/*")),
    (STREAMS_FAULT_POINTS, (*STREAMS, *PROCESSES_OF_STREAMS)),
    (
        STREAMS_BRIDGES,
        (
            *(*NATIVE, *ROOMS_OF_STREAMS, "src/onceq/streams/*", "src/onceq/streams/api/*"),
            *("src/onceq/streams/bridge/*", "proof/streams_bridges/*", *FAULTS),
        ),
    ),
    (STREAMS_TORTURE, (*STREAMS, *PROCESSES_OF_STREAMS)),
    (
        STREAMS_POWER_CUT,
        (*STREAMS, "proof/streams_powercut/*", "proof/streams_damage/*", "proof/powercut/*"),
    ),
    (SIMULATION, (*IN_MEMORY, "proof/simulation.py")),
    (FAULT_POINTS, (*NATIVE, *FAULTS)),
    (SPARK_FAULT_POINTS, (*PRODUCT, *FAULTS, "proof/sparkpoints/*")),
    (PIPELINE_FAULT_POINTS, (*PRODUCT, *FAULTS, "proof/pipelinepoints/*", "proof/archive/*")),
    (CLIENTS, (*NATIVE, "proof/clients/*")),
    (INTERRUPTS, (*NATIVE, "proof/interrupts/*", "proof/clients/*")),
    (ORDERING, (*NATIVE, "proof/ordering/*", "proof/conformance/ground.py")),
    (FUZZ, (*PRODUCT, "proof/fuzz/*")),
    (DECODING, (*PRODUCT, "proof/decoding/*")),
    (LARGE_FILE, (*NATIVE, "src/onceq/cli/*", *STREAMS_COMMANDS, "proof/large_file.py")),
    (ARCHIVE, (*PRODUCT, "proof/archive/*", "proof/faultpoints.py")),
    (ARCHIVE_MORE, (*PRODUCT, "proof/archive/*", "proof/faultpoints.py")),
    (AUDIT, (*PRODUCT, "proof/audit/*")),
    (SCOREBOARD, (*NATIVE, "proof/scoreboard/**/*", "bench/systems.py", "bench/workers/*")),
    (WINDOWS, (*NATIVE, "proof/windows/*")),
    (TORTURE, (*PRODUCT, "proof/torture/*")),
    (POWER_CUT, (*NATIVE, "proof/powercut/*")),
    (PACKAGING, (*PRODUCT, "proof/packaging.py")),
    *(
        (one, (*NATIVE, *BEHAVIOURS, "tests/conformance/*", "proof/versions.py"))
        for one in VERSIONS
    ),
)
"""Each part, and the sources that it covers: if one of these changes, its record is older."""
PARTS: tuple[Part, ...] = tuple(replace(part, covers=covers) for part, covers in TABLE)
