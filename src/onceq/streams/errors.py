"""The errors of streams, as a part of the tree of `onceq.errors`. Nothing else raises them."""

import enum

from onceq.errors import OperatingError

__all__ = [
    "DataLost",
    "FlightFull",
    "FrameRefused",
    "NotRegistered",
    "NumberConflict",
    "RegistrationInUse",
    "SourceSucceeded",
    "StoreFailed",
    "StoreFull",
    "StoreRefused",
    "StreamReplaced",
    "WhyRefused",
]


class WhyRefused(enum.StrEnum):
    """Why bytes are no frame, or no ask: what a store counts of the connections that it closed."""

    RUBBISH = "rubbish"
    OVERSIZE = "oversize"
    OTHER_VERSION = "other version"


class FrameRefused(OperatingError):
    """Bytes are no frame of a stream: cut short, changed, too long, or of another version."""

    def __init__(self, text: str, why: WhyRefused = WhyRefused.RUBBISH) -> None:
        super().__init__(text)
        self.why = why


class StoreFull(OperatingError):
    """The disk of a store is full, or its limit is reached; nothing was appended."""


class StoreFailed(OperatingError):
    """The disk of a store failed: what it did not acknowledge it may have or not. It must end."""


class StoreRefused(OperatingError):
    """The directory is not this store's: another's, of another version, empty, or in use."""


class NotRegistered(OperatingError):
    """No stable set of a source's stores is responsive: nothing was sent. It may be tried again."""


class RegistrationInUse(OperatingError):
    """Another live program uses this registration: this one was not let in, or is let out of it.

    What this one had acknowledged before stays.
    """


class SourceSucceeded(OperatingError):
    """A later life of this source has taken over: this one will never send again.

    Or a person has deregistered its stream, while its stores heard nothing of it.
    """


class NumberConflict(OperatingError):
    """A store has a number of this life with another content: it will never send again."""


class FlightFull(OperatingError):
    """As many messages are sent and not yet stable as may be: nothing was sent."""


class StreamReplaced(OperatingError):
    """A stream is not the one whose position is known, or ends below it: nothing was taken of it.

    All its stores forgot it, a person deregistered it, or accepted that some of it is lost.
    """


class DataLost(OperatingError):
    """Numbers of a stream that no store can give any more, and that were not passed on.

    first, last: both included. why: as the event Loss says.
    """

    def __init__(self, text: str, *, first: int, last: int, why: str) -> None:
        super().__init__(text)
        self.first = first
        self.last = last
        self.why = why
