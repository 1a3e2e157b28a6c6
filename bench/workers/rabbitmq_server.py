"""One RabbitMQ node for the benchmark: started from Debian's package, never its service.

All of it is on loopback: AMQP, the distribution of Erlang, and its port mapper (epmd), which is
our child too and on a port of its own. Data, logs, cookie and home are in a directory given.
"""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

from bench.workers.base import SkippedError
from bench.workers.servers import (
    LOOPBACK,
    ServerProcess,
    find_program,
    free_port,
    is_listened_on,
)

if TYPE_CHECKING:
    from pathlib import Path

# The script in its own folder: the one on PATH changes to another user and to the service's files.
SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
CONFIGURATION = """\
listeners.tcp.1 = {address}:{port}
log.file.level = warning
loopback_users.guest = true
"""


def missing() -> str:
    """Return why RabbitMQ cannot be started here, or ""."""
    lacking = [name for name in (SCRIPT, "erl", "epmd") if find_program(name) is None]
    return f"not installed: {', '.join(lacking)} (Debian: rabbitmq-server)" if lacking else ""


class RabbitServer:
    """A running node, with nothing in it."""

    def __init__(self, directory: Path) -> None:
        """Start it, and wait until it accepts connections."""
        script = find_program(SCRIPT)
        epmd = find_program("epmd")
        if script is None or epmd is None:
            raise SkippedError(missing())
        found = re.search(r"rabbitmq_server-([\w.]+)", str(script.resolve()))
        self.version = found[1] if found else "unknown"
        self.port = free_port()
        mapper = free_port()
        self._epmd = ServerProcess(
            [str(epmd), "-port", str(mapper), "-address", LOOPBACK], directory / "epmd.log"
        )
        try:
            self._epmd.wait_until(lambda: is_listened_on(mapper))
            environment = self._environment(directory, mapper)
            self._node = ServerProcess([str(script)], directory / "node.log", environment)
        except BaseException:
            self._epmd.stop()
            raise
        try:
            self._node.wait_until(lambda: is_listened_on(self.port))
        except BaseException:
            self.stop()
            raise

    def _environment(self, directory: Path, mapper: int) -> dict[str, str]:
        home = directory / "home"
        home.mkdir(parents=True, exist_ok=True)
        cookie = home / ".erlang.cookie"
        cookie.unlink(missing_ok=True)
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (directory / "rabbitmq.conf").write_text(
            CONFIGURATION.format(address=LOOPBACK, port=self.port)
        )
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / "rabbitmq-env.conf").write_text("")
        own = {name: value for name, value in os.environ.items() if not name.startswith("RABBIT")}
        return own | {
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_EPMD_PORT": str(mapper),
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the node: its pid is our child's
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false"
            ),
        }

    def stop(self) -> None:
        """End the node, then the port mapper."""
        self._node.stop()
        self._epmd.stop()
