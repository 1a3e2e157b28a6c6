"""Death at a step that was chosen before: between two steps there is one durable action.

Used by the clients that are killed at every step, and by the tests that kill `submit` and `collect`
so. Fault points (`onceq.engine.faultpoints`) have names; steps are counted, so that whatever lasts
is one, also where the product has no name for it.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceq.model import ops

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Death:
    """At which step this process is to die; counted from 1."""

    at: int
    steps: int = 0

    def step(self) -> None:
        """Dies here, if this is the step."""
        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, owner: Any, name: str) -> None:
        """Makes a step before and a step after each call of a function; waits are none."""
        inner: Callable[..., Any] = getattr(owner, name)

        def stepping(*arguments: Any, **options: Any) -> Any:
            if any(isinstance(one, ops.Wait) for one in arguments):
                return inner(*arguments, **options)
            self.step()
            answer = inner(*arguments, **options)
            self.step()
            return answer

        setattr(owner, name, stepping)
