"""The configurations: who takes part in which, and what may go wrong in it."""

from __future__ import annotations

from proof.model.layout import Kind, Setting

_G, _R, _K = Kind.GOOD, Kind.RAISES, Kind.KILLS_ITS_SERVER
_SERVER = frozenset({"server", "cut"})
_ALL = frozenset({"server", "cut", "revoked", "database", "client"})

SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="client",
        text="a client of two requests, receives with checkpoints; kills",
        kinds=(_G, _G), owners=(0, 0), clients=1, faults=5, wishes=1,
        may=frozenset({"client", "database"}),
    ),
    Setting(
        name="client-plain",
        text="a client of three requests, receives without checkpoints",
        kinds=(_G, _G, _G), owners=(0, 0, 0), clients=1, checkpoints=False, faults=5,
        may=frozenset({"client", "database"}),
    ),
    Setting(
        name="client-discards",
        text="a client that gives up what was not submitted",
        kinds=(_G, _G), owners=(0, 0), clients=1, discards=True, faults=5,
        may=frozenset({"client", "database"}),
    ),
    Setting(
        name="client-resubmits",
        text="a client that sends all again after each death",
        kinds=(_G, _G), owners=(0, 0), clients=1, resubmits=True, faults=5,
        may=frozenset({"client", "database"}),
    ),
    Setting(
        name="two-clients",
        text="two clients",
        kinds=(_G, _G, _G), owners=(0, 0, 1), clients=2, faults=3, wishes=1,
        may=frozenset({"client", "database"}),
    ),
    Setting(
        name="server",
        text="two servers, three requests, claims in two steps; kills",
        kinds=(_G, _G, _R), entries=3, processes=2, batch=1, claim_steps=True, soft=True,
        faults=1, wishes=2, may=_SERVER | {"revoked", "database"},
    ),
    Setting(
        name="failing",
        text="requests that raise, meet a deadlock, fail at the commit; redrive",
        kinds=(_R, Kind.MEETS_A_DEADLOCK, Kind.FAILS_AT_COMMIT, Kind.SPARE), entries=2,
        processes=1, batch=1, faults=2, wishes=2, may=_SERVER | {"database"},
    ),
    Setting(
        name="failing-at-once",
        text="the same, where no fault of the environment goes uncharged",
        kinds=(Kind.MEETS_A_DEADLOCK, Kind.FAILS_AT_COMMIT, _G), entries=2, processes=1, batch=1,
        retry_limit=0, faults=2, wishes=1, may=_SERVER | {"database"},
    ),
    Setting(
        name="failing-patiently",
        text="the same, where three go uncharged",
        kinds=(Kind.MEETS_A_DEADLOCK, Kind.FAILS_AT_COMMIT), entries=2, processes=1, batch=1,
        retry_limit=3, faults=2, wishes=1, may=_SERVER | {"database"},
    ),
    Setting(
        name="poison",
        text="a request that kills its server, and one that does not",
        kinds=(_K, _G), entries=3, processes=2, batch=1, faults=2, wishes=1,
        may=_SERVER | {"revoked", "database"},
    ),
    Setting(
        name="two-sessions",
        text="the same in a process of two sessions, and another beside it",
        kinds=(_K, _G, _G), entries=4, processes=2, sessions=2, batch=1, faults=1,
        may=_SERVER | {"database"},
    ),
    Setting(
        name="one-process",
        text="the same in one process of two sessions, alone",
        kinds=(_K, _G), entries=2, processes=1, sessions=2, batch=1, faults=4, wishes=1,
        may=_SERVER | {"database"},
    ),
    Setting(
        name="database-poison",
        text="a request that brings the database down, and one that does not",
        kinds=(Kind.CRASHES_THE_DATABASE, _G), entries=3, processes=2, batch=1, soft=True,
        claim_steps=True, faults=2, may=_SERVER | {"database"},
    ),
    Setting(
        name="batch",
        text="batches of three; one request raises; kills",
        kinds=(_G, _R, _G), entries=3, processes=2, batch=3, faults=2, wishes=1,
        may=_SERVER | {"revoked", "database"},
    ),
    Setting(
        name="batch-commit",
        text="batches of three; the commit of one request fails",
        kinds=(_G, Kind.FAILS_AT_COMMIT, _R), entries=2, processes=1, batch=3, faults=2,
        wishes=1, may=_SERVER | {"revoked", "database"},
    ),
    Setting(
        name="batch-poison",
        text="batches of three; one request kills its server",
        kinds=(_G, _K, _G), entries=3, processes=2, batch=3, faults=2, wishes=1,
        may=_SERVER | {"database"},
    ),
    Setting(
        name="spark",
        text="a Spark server of three requests; one is answered with an error; kills",
        kinds=(_G, _R, _G), spark=True, faults=4, wishes=2,
        may=frozenset({"spark", "checkpoint", "database"}),
    ),
    Setting(
        name="spark-poison",
        text="a Spark server of three requests; one kills its driver",
        kinds=(_G, _K, _G), spark=True, faults=4, wishes=1,
        may=frozenset({"spark", "checkpoint", "database"}),
    ),
    Setting(
        name="spark-joint",
        text="a Spark server whose rows are computed from all requests of a batch; kills",
        kinds=(_G, _G, _G), spark=True, joint=True, faults=4, wishes=2,
        may=frozenset({"spark", "checkpoint", "database"}),
    ),
    Setting(
        name="spark-joint-error",
        text="the same; one request is answered with an error",
        kinds=(_G, _R, _G), spark=True, joint=True, faults=3, wishes=1,
        may=frozenset({"spark", "checkpoint", "database"}),
    ),
    Setting(
        name="spark-state",
        text="a Spark server whose query keeps a state in its checkpoint; kills",
        kinds=(_G, _G, _G), spark=True, stateful=True, faults=4, wishes=2,
        may=frozenset({"spark", "database"}),
    ),
    Setting(
        name="spark-native",
        text="a Spark server and a native one on the same queue",
        kinds=(_G, _G, _R), spark=True, entries=2, processes=1, batch=1, faults=1, wishes=1,
        may=_SERVER | {"spark", "database"},
    ),
    Setting(
        name="whole",
        text="a client of two requests and two servers; kills; all faults",
        kinds=(_G, _R), owners=(0, 0), clients=1, entries=3, processes=2, batch=1,
        claim_steps=True, soft=True, faults=2, wishes=1, may=_ALL,
    ),
    Setting(
        name="whole-batch",
        text="two clients and a batch server; kills; all faults",
        kinds=(_G, _R, _G), owners=(0, 0, 1), clients=2, entries=2, processes=1, batch=3,
        faults=2, wishes=1, may=_ALL,
    ),
    Setting(
        name="whole-spark",
        text="a client of two requests, a Spark server and a native one; all faults",
        kinds=(_G, _G), owners=(0, 0), clients=1, entries=2, processes=1, batch=1, spark=True,
        faults=2, wishes=1, may=_ALL | {"spark", "checkpoint"},
    ),
)  # fmt: skip

BY_NAME = {setting.name: setting for setting in SETTINGS}
