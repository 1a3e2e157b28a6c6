"""The errors of streams, as a part of the tree of `onceq.errors`. Nothing else raises them."""

from onceq.errors import OperatingError

__all__ = ["FrameRefused", "StoreFull", "StoreRefused"]


class FrameRefused(OperatingError):
    """Bytes are no frame of a stream: cut short, changed, too long, or of another version."""


class StoreFull(OperatingError):
    """The disk of a store is full, or its limit is reached; nothing was appended."""


class StoreRefused(OperatingError):
    """The directory is not this store's: another's, of another version, empty, or in use."""
