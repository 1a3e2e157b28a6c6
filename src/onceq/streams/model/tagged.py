"""The base of what is asked and answered. Pure."""

from __future__ import annotations

import msgspec


class Tagged(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The base: the name of the class tells what it is."""
