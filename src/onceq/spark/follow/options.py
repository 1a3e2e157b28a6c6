"""The options of the data source `onceq-stream`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onceq.errors import InvalidValue
from onceq.spark.given.options import check_given
from onceq.streams.model.quorum import listed
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.placing import Who
from onceq.streams.store.records import key_of

_FILES: Final = ("certificate", "key", "authority")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What is read. session: of the source. stores: to begin with.

    name: under which stores know how far the query is, and keep the rest; empty: they do not.
    batch: most messages in a micro-batch; partitions: most tasks that read one.
    """

    topic: str
    session: int
    stores: str
    name: str = ""
    batch: int = 50_000
    partitions: int = 2
    fails: bool = True
    certificates: Certificates | None = None

    @classmethod
    def from_spark(cls, options: Mapping[str, str]) -> StreamOptions:
        """Return the value of Spark's options. Raises InvalidValue."""
        check_given(options, ("topic", "session", "stores"), "streams")
        session = options["session"]
        if not re.fullmatch(r"0x[0-9a-fA-F]{1,16}|[0-9]{1,20}", session):
            raise InvalidValue(f"option 'session' is a number, not {session!r}")
        counts = {name: options.get(name, "1") for name in ("batch", "partitions")}
        if not all(re.fullmatch(r"[1-9][0-9]{0,8}", one) for one in counts.values()):
            raise InvalidValue("options 'batch' and 'partitions' are whole numbers above 0")
        fails = options.get("failOnDataLoss", "true").lower()
        if fails not in {"true", "false"}:
            raise InvalidValue("option 'failOnDataLoss' is true or false")
        return cls(
            topic=options["topic"],
            session=int(session, 0),
            stores=options["stores"],
            name=options.get("name", ""),
            fails=fails == "true",
            certificates=_certificates(options),
            **{name: int(options[name]) for name in counts if name in options},
        )

    @property
    def who(self) -> Who:
        """The receiver that the query is for stores: the same at each start."""
        named = hashlib.sha256(f"spark {self.name}".encode()).digest()
        own = int.from_bytes(named[:8], "little") or 1
        return Who(
            topic=self.topic,
            source=self.session,
            session=own,
            key=key_of(0, own),
            known=listed(self.stores),
        )


def _certificates(options: Mapping[str, str]) -> Certificates | None:
    given = {name: Path(options[name]) for name in _FILES if name in options}
    if not given:
        return None
    check_given(options, _FILES, "streams")
    return Certificates(**given)
