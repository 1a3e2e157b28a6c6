"""Enums whose members are texts. Pure."""

from __future__ import annotations

import enum


class Word(enum.StrEnum):
    """An enum whose members are texts, and print as such."""

    __repr__ = str.__repr__
