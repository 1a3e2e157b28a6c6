"""For how long history tells of what has ended, by queue (Q17). Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from onceq.model import names

HISTORY_DAYS_MAX: Final = 36_500


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a queue keeps what has ended (Q17). Raises InvalidValue.

    history_days: its history, 1 to 36,500; None: until somebody trims it.
    """

    history_days: int | None = None

    def __post_init__(self) -> None:
        if self.history_days is not None:
            names.check_range("history_days", self.history_days, 1, HISTORY_DAYS_MAX)

    @property
    def is_given(self) -> bool:
        """True: SQL tells what is to be taken away from what is to stay."""
        return True
