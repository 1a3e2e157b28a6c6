"""`onceq spark serve` is told to stop while it is idle: it ends, and says nothing that alarms."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import onceq
from tests.cli.parts import ROOT
from tests.parts import wait_until

if TYPE_CHECKING:
    from pathlib import Path

RAW = onceq.Queue("raw", bytes, bytes)
APP = """
import onceq
from onceq.spark import Server

def answer(requests):
    return requests.selectExpr("eid", "body as reply")

server = Server(onceq.Queue("raw", bytes, bytes), batch=answer)
"""
ALARMS = re.compile(r"WARN|ERROR|Traceback|Exception|Error\b|Caused by|\tat ")
OF_JAVA = "WARNING: Using incubator modules"
"""What Java says when it starts, by no logger that could be told not to."""
STARTS_WITHIN_S = 200.0


def test_a_clean_stop_alarms_nobody(qm: onceq.QueueManager, onceq_url: str, tmp_path: Path) -> None:
    qm.declare(RAW)
    (tmp_path / "stopped_app.py").write_text(APP)
    process = subprocess.Popen(
        [sys.executable, "-m", "onceq.cli.main", "spark", "serve", "stopped_app:server"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "ONCEQ_URL": onceq_url,
            "ONCEQ_REPOSITORY": qm.repository,
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with qm.clerk("till", RAW) as clerk:
            clerk.connect()
            clerk.send("1", b"x")
            wait_until(lambda: qm.show("raw").depth == 0, STARTS_WITHIN_S)
            assert clerk.receive(timeout_s=60).value == b"x"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=150)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "onceq: stopped"
    alarms = [line for line in said.splitlines() if ALARMS.search(line)]
    assert [line for line in alarms if not line.startswith(OF_JAVA)] == [], said
