"""Addresses of sources and stores, and where one may listen without TLS. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec

from onceq.errors import InvalidValue

_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[\w.-]+)):(?P<port>\d{1,5})")
_LOOPBACK: Final = "localhost"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where something listens. port: 0 for any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == _LOOPBACK

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address(text: str) -> Address:
    """Return the address that a text names: host:port. Raises InvalidValue."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 0xFFFF:
        raise InvalidValue(f"{text!r} is no address: write host:port, as 127.0.0.1:7401")
    return Address(host=found["six"] or found["host"], port=int(found["port"]))


def refuse_unless_safe(one: Address, *, has_tls: bool) -> None:
    """Raise InvalidValue for an address beyond loopback without TLS."""
    if not (has_tls or one.is_loopback):
        raise InvalidValue(
            f"{one} can be reached from other machines, and without TLS anybody there could read"
            " and write: give certificates, or an address of this machine, as 127.0.0.1"
        )
