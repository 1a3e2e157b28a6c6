"""Where a rule of style is broken on purpose: (rule, place) and the reason."""

from __future__ import annotations

ERROR_TEXT = "the text of an error, as Python calls it"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("banned word", "src/onceq/errors.py: message"): ERROR_TEXT,
    ("banned word", "src/onceq/spark/serve/sink.py: messages"): "the parameter's name in PySpark",
    (
        "logged by hand",
        "src/onceq/server/log_lines.py",
    ): "it quiets another's logger, and logs nothing",
    ("file length", "project.py"): "one file on purpose: it runs before anything is installed",
    (
        "not run",
        "tests/crash/test_power_cut.py: 36",
    ): "needs root, loop devices and mkfs.xfs, and says what is lacking",
    (
        "not run",
        "tests/streams/test_streams_power_cut.py: 23",
    ): "needs root, loop devices and mkfs.xfs, and says what is lacking",
    (
        "not run",
        "tests/crash/test_dead_links.py: 102",
    ): "needs network namespaces, which root may make, and says what is lacking",
    (
        "not run",
        "tests/cli/test_doctor_reach.py: 48",
    ): "needs an address beside loopback, a PostgreSQL with TLS and one of version 15, and says "
    "what is lacking",
}
