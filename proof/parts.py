"""The parts of the proof, in the order in which they run. Each module adds its own line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.archive.part import PART as ARCHIVE
from proof.audit.part import PART as AUDIT
from proof.clients.part import PART as CLIENTS
from proof.decoding.part import PART as DECODING
from proof.faultpoints import PART as FAULT_POINTS
from proof.fuzz.part import PART as FUZZ
from proof.history.part import PART as HISTORY
from proof.large_file import PART as LARGE_FILE
from proof.model.part import PART as MODEL
from proof.mutants.part import PART as MUTANTS
from proof.pipelinepoints.part import PART as PIPELINE_FAULT_POINTS
from proof.powercut.part import PART as POWER_CUT
from proof.scoreboard.part import PART as SCOREBOARD
from proof.simulation import PART as SIMULATION
from proof.sparkpoints.part import PART as SPARK_FAULT_POINTS
from proof.torture import PART as TORTURE
from proof.windows.part import PART as WINDOWS

if TYPE_CHECKING:
    from proof.part import Part

PARTS: tuple[Part, ...] = (
    HISTORY,
    MODEL,
    MUTANTS,
    SIMULATION,
    FAULT_POINTS,
    SPARK_FAULT_POINTS,
    PIPELINE_FAULT_POINTS,
    CLIENTS,
    FUZZ,
    DECODING,
    LARGE_FILE,
    ARCHIVE,
    AUDIT,
    SCOREBOARD,
    WINDOWS,
    TORTURE,
    POWER_CUT,
)
