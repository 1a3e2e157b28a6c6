"""What a part's process tells the runner: JSON lines through a pipe that only the two know.

Standard output and error remain the part's own: nothing that it prints is taken for an answer.
"""

from __future__ import annotations

import msgspec

from proof.part import Outcome  # at run time too: msgspec reads the types


class Said(msgspec.Struct, tag=True):
    """How far the part is. of: 0 if it cannot know."""

    text: str
    done: int
    of: int


class Ended(msgspec.Struct, tag=True):
    """The part has ended, with this outcome; nothing follows."""

    outcome: Outcome


class Asked(msgspec.Struct):
    """What the process is to run. table: where its parts are, as MODULE:ATTRIBUTE."""

    table: str
    name: str
    size: str
    seed: int
    place: str
    answers: int
    """The descriptor of the pipe's end to write to."""
