"""Persistent streams: sources send to receivers and to stores at once; what is stable stays.

This is the public API of streams; what is not named here is private. A source sends the values of a
topic, and stores keep them; a receiver is shown each of them in order, goes on behind what it has
acknowledged, and is told of every gap. Source: UM; the promise is G11, in docs/streams.md.
"""

from onceq.streams.api.async_context import AsyncStreamContext, open_async
from onceq.streams.api.async_receiver import AsyncReceiver
from onceq.streams.api.async_source import AsyncSource
from onceq.streams.api.context import StreamContext, open  # noqa: A004 # streams.open reads well
from onceq.streams.api.receiver import Receiver
from onceq.streams.api.source import Source
from onceq.streams.api.statistics import ReceiverStatistics, SourceStatistics
from onceq.streams.bridge.hands import IntoContext
from onceq.streams.bridging import Bridge, into, relay
from onceq.streams.errors import (
    DataLost,
    FlightFull,
    NotRegistered,
    NumberConflict,
    RegistrationInUse,
    SourceSucceeded,
    StoreFailed,
    StoreRefused,
    StreamReplaced,
)
from onceq.streams.model.contiguous import Contiguous
from onceq.streams.model.events import (
    Confirmed,
    Event,
    FlightSize,
    ListChanged,
    Loss,
    LossAccepted,
    NotStable,
    OptionsChanged,
    ReceiverDead,
    Reclaimed,
    RegistrationComplete,
    RegistrationError,
    RolledBack,
    SequenceNumbers,
    SourceFenced,
    Stable,
    StoreRegistered,
    StoresForgot,
    StoreUnresponsive,
    WhyLost,
)
from onceq.streams.model.low import RecoveryInfo
from onceq.streams.net.tls import Certificates
from onceq.streams.receiver.message import Identity, Message
from onceq.streams.receiver.seeking import SourceRegistration
from onceq.streams.receiver.tokens import Token
from onceq.streams.store.limits import Limits, WhenFull
from onceq.streams.store.rolling import LogFile, Roll
from onceq.streams.store.running import RunningStore, StoreKind, StoreSettings, run_store
from onceq.streams.store.statistics import StoreStatistics
from onceq.streams.store.store_process import StoreProcess
from onceq.streams.topic import Topic

__all__ = [
    "AsyncReceiver",
    "AsyncSource",
    "AsyncStreamContext",
    "Bridge",
    "Certificates",
    "Confirmed",
    "Contiguous",
    "DataLost",
    "Event",
    "FlightFull",
    "FlightSize",
    "Identity",
    "IntoContext",
    "Limits",
    "ListChanged",
    "LogFile",
    "Loss",
    "LossAccepted",
    "Message",
    "NotRegistered",
    "NotStable",
    "NumberConflict",
    "OptionsChanged",
    "Receiver",
    "ReceiverDead",
    "ReceiverStatistics",
    "Reclaimed",
    "RecoveryInfo",
    "RegistrationComplete",
    "RegistrationError",
    "RegistrationInUse",
    "Roll",
    "RolledBack",
    "RunningStore",
    "SequenceNumbers",
    "Source",
    "SourceFenced",
    "SourceRegistration",
    "SourceStatistics",
    "SourceSucceeded",
    "Stable",
    "StoreFailed",
    "StoreKind",
    "StoreProcess",
    "StoreRefused",
    "StoreRegistered",
    "StoreSettings",
    "StoreStatistics",
    "StoreUnresponsive",
    "StoresForgot",
    "StreamContext",
    "StreamReplaced",
    "Token",
    "Topic",
    "WhenFull",
    "WhyLost",
    "into",
    "open",
    "open_async",
    "relay",
    "run_store",
]
