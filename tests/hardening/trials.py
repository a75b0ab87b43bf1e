"""One row of the hardening table: what was tried, and what went wrong in it."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from ggbench.errors import GgbenchError

LIMIT_S = 60.0
"""A trial that takes longer hangs."""
_DEAD_S = 300.0
"""Native code that no signal interrupts ends the whole program, with a traceback of where it hangs."""


class Hung(BaseException):
    """A trial took too long; no `except Exception` of the program catches it."""


@dataclass
class Trials:
    name: str
    tried: int = 0
    tracebacks: int = 0
    hangs: int = 0
    orphans: int = 0
    lost_bytes: int = 0
    """Losses of what a user had, or had been promised."""
    unverified_bytes: int = 0
    """Under a final name, with another hash or content than they should have."""
    faults: list[str] = field(default_factory=list)
    """Each in words."""
    said: list[str] = field(default_factory=list)
    """Lines to print with the row: what was measured in it, and what it met."""

    @property
    def is_clean(self) -> bool:
        return not any(self.counts[1:]) and not self.faults

    @property
    def counts(self) -> tuple[int, ...]:
        return (self.tried, self.tracebacks, self.hangs, self.orphans, self.lost_bytes, self.unverified_bytes)

    def fault(self, text: str) -> None:
        self.faults.append(text)

    def attempt(self, label: str, call: Callable[[], object], limit_s: float = LIMIT_S) -> object:
        """Make one trial in this process; a GgbenchError with a line that can be printed is no fault."""
        self.tried += 1
        try:
            with _time_limit(limit_s):
                return call()
        except GgbenchError as error:
            if why := unprintable(f"{error.message}{error.hint}"):
                self.tracebacks += 1
                self.fault(f"{label}: the message has {why}")
        except Hung:
            self.hangs += 1
            self.fault(f"{label}: no end after {limit_s:.0f} s")
        except Exception as error:
            self.tracebacks += 1
            self.fault(f"{label}: {_where(error)}")
        return None

    def run(self, label: str, *args: str, limit_s: float = LIMIT_S, encoding: str = "utf-8") -> Ran | None:
        ran = self.attempt(label, lambda: ggbench(*args, encoding=encoding), limit_s)
        if isinstance(ran, Ran):
            self.judge(label, ran.code, ran.out, ran.err)
            return ran
        return None

    def judge(self, label: str, code: int, out: str, err: str) -> None:
        if "Traceback" in err or "Error: unexpected" in err or code not in _CODES:
            self.tracebacks += 1
            self.fault(f"{label}: exit code {code}, {err.strip()[-300:]}")
        elif why := unprintable(out) or unprintable(err) or "[Errno" * ("[Errno" in err):
            self.tracebacks += 1
            self.fault(f"{label}: its output has {why}{err[-200:] * (why == '[Errno')}")
        if _GONE.search(err):
            self.fault(f"{label}: {err.strip()[-300:]}")


_GONE = re.compile(r"No such option '[\w-]+'")
_CODES = (0, 1, 2, 3, 4, 5, 6, 130)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def ggbench(*args: str, encoding: str = "utf-8") -> Ran:
    """Run the command line in this process, with streams of that encoding. Raises UnicodeError for what it lacks."""
    from ggbench.cli.main import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(args))
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 0
    return Ran(code, *(stream.buffer.getvalue().decode(encoding) for stream in (out, err)))


def unprintable(text: str) -> str:
    """Return the first character that may drive a terminal or turn its text around; empty where there is none."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return ""
    for character in text:
        is_allowed = character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
        if not is_allowed:
            return f"U+{ord(character):04X}"
    return ""


@contextlib.contextmanager
def own_home(folder: Path) -> Iterator[Path]:
    given = {
        "HOME": str(folder),
        "HF_HOME": str(folder / "huggingface"),
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("DATA", "CACHE", "CONFIG", "STATE")},
    }
    cleared = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "GGBENCH_DEBUG", "HF_ENDPOINT")
    before = {name: os.environ.get(name) for name in (*given, *cleared)}
    for name in cleared:
        os.environ.pop(name, None)
    os.environ.update(given)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def on_alarm(_number: int, _frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, on_alarm)
    faulthandler.dump_traceback_later(_DEAD_S, exit=True, file=2)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, before)


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}: {str(error)[:160]!r}{place}"
