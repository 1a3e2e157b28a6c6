"""What a clerk of a desk weighs while it waits; `python -m bench waiting` has it among 10,000."""

from __future__ import annotations

from typing import Final

import onceq
from bench.waiting import weighed

BYTES_MAX: Final = 2_400
"""It weighed 2,160 with Python 3.11 when this was written."""


def test_a_clerk_that_waits_is_light(qm: onceq.QueueManager) -> None:
    assert weighed(qm.located.conninfo, 300, qm.repository) <= BYTES_MAX
