"""The program that serves: llama-server, or `llama serve`, as llama.cpp's own installer has it; what its build can.

Source of the second: app/llama.cpp of llama.cpp. `llama --help` lists its commands alone, so `llama serve` is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ggbench import paths
from ggbench.engines.llama.build import gpu_backends
from ggbench.errors import EngineFailed, UsageError
from ggbench.files import get_cached, put_cached
from ggbench.text import in_words, shorten
from ggbench.units import MIB

NAME = "llama-server"
_APP, _SERVE = "llama", "serve"
REJECTS_ALL = "--spec-synth-len", "1", "--spec-draft-p-min", "0"
"""Words that make a server draft all it may, and accept none of it."""
_ANSWER_S = 30.0
_VERSION = re.compile(r"^version: (.+)$", re.MULTILINE)
_COMMIT = re.compile(r"commit ([0-9a-f]{7,40})|\(([0-9a-f]{7,40})\)")
_BUILT_WITH = re.compile(r"^built with (.+)$", re.MULTILINE)
_HAS_LOAD_MODE = re.compile(r"^-lm,", re.MULTILINE)
_HAS_TRACE = re.compile(r"^\s*- 4: trace", re.MULTILINE)
_SPEC_TYPES = re.compile(r"^--spec-type +(\S+)", re.MULTILINE)
_LISTED_DEVICES = "Available devices:"
_LISTED_DEVICE = re.compile(
    r"^ +(?P<name>\w+): (?P<about>.+) \(\d+ MiB, (?P<free>\d+) MiB free\)$", re.MULTILINE
)
_REFUSED_OPTION = re.compile(r'invalid argument: \S+|error while handling argument "[^"]+": .+')
"""llama.cpp's words for an option that it does not know, and for a value that it does not take."""
_KNOWN_S = 24 * 3600.0
"""How long a program's list of devices is believed: a driver or a card may have changed since."""


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that start a server, `PATH` or `PATH serve`, and the user's own flags after them."""
    n_words = 2 if words[1:2] in ([_SERVE], ["server"]) else 1  # its name, or the other that llama has for it
    return list(words[:n_words]), list(words[n_words:])


def find_server(words: Sequence[str]) -> list[str]:
    """Return the words of --engine with the program's absolute path; that on PATH if they are none, or flags alone.

    Raises UsageError.
    """
    if words and not words[0].startswith("-"):
        program, own = split_command(words)
        return [*_find(program), *own]
    return [*(_on_path() or _find([NAME])), *words]


def printed_program() -> str:
    """Return how a command to copy starts a server here: `llama serve` if there is no llama-server, but this."""
    found = [] if shutil.which(NAME) else _on_path()
    return f"{_APP} {_SERVE}" if found and _look_at(found).is_server else NAME


def unused_gpus() -> tuple[str, ...]:
    """Return the GPUs that the program on PATH lists, if ggbench's own llama.cpp has a backend for none.

    The program is asked once a day.
    """
    found = [] if gpu_backends() else _on_path()
    return _look_at(found).gpus if found else ()


class _Look(msgspec.Struct, frozen=True):
    """What a program answered, and when (time of day in seconds)."""

    at_s: float
    is_server: bool
    gpus: tuple[str, ...]


def _look_at(program: Sequence[str]) -> _Look:
    """Return what a program is and lists; the answer is kept until its file changes, or for a day."""
    stat = Path(program[0]).stat()
    hidden = [f"{name}={value}" for name, value in os.environ.items() if name.endswith("_VISIBLE_DEVICES")]
    key = "\n".join((*program, str(stat.st_size), str(stat.st_mtime_ns), *sorted(hidden)))
    cache = paths.programs_dir() / hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
    with contextlib.suppress(msgspec.MsgspecError):
        known = msgspec.json.decode(get_cached(cache) or b"", type=_Look)
        if 0 <= time.time() - known.at_s < _KNOWN_S:
            return known
    is_server = _is_server(_output(program, "--help"))
    said = _output(program, "--list-devices") if is_server else ""
    gpus = tuple(
        shorten(match["about"], 80) for match in _LISTED_DEVICE.finditer(said) if _is_gpu(match["name"])
    )
    look = _Look(time.time(), is_server, gpus)
    put_cached(cache, msgspec.json.encode(look))
    return look


def _is_server(usage: str) -> bool:
    return "--ctx-size" in usage and "--port" in usage


def _is_gpu(name: str) -> bool:
    return name not in ("CPU", "BLAS")


def _on_path() -> list[str]:
    """Return the words of the first program on PATH: llama-server, else `llama serve`; none without either."""
    for name, *subcommand in ((NAME,), (_APP, _SERVE)):
        if found := shutil.which(name):
            return [str(Path(found).absolute()), *subcommand]
    return []


def _find(program: Sequence[str]) -> list[str]:
    """Return a program with its absolute path, found on PATH if it has no folder, and with `serve` if it needs that.

    Raises UsageError.
    """
    name, shown = program[0], shorten(program[0], 100)
    path = Path(name).expanduser()
    if path.is_dir():
        path = next((path / each for each in (NAME, _APP) if (path / each).is_file()), path)
    found = shutil.which(path.absolute() if path.exists() else path)
    if found is not None:
        path = Path(found).absolute()
        return [str(path), *([_SERVE] if path.name == _APP else program[1:])]
    if path.is_file():
        raise UsageError(f"--engine: {shown} is not executable", "chmod +x it, or give another path")
    if path.name != name or path.exists():
        raise UsageError(f"--engine: there is no file {shown}", f"give the path of a {NAME}")
    hint = f"install llama.cpp, whose programs are {NAME} and {_APP}, or give a path: {NAME}=PATH"
    raise UsageError(f"--engine: {shown} is not on PATH", hint)


class Build(msgspec.Struct, frozen=True):
    """A build of llama-server; empty if it does not say."""

    version: str = ""
    commit: str = ""
    built_with: str = ""
    """Compiler and target."""
    can_trace: bool = False
    """Whether `-lv 4` logs buffers; older builds do so anyway, and would log every token."""
    has_load_mode: bool = True
    """Whether it has `-lm` in place of `--no-mmap` and `--mlock`."""
    spec_types: tuple[str, ...] = ()
    """Kinds of drafts that it has; empty for an older build, which has no --spec-type."""
    can_reject: bool = False
    """Whether it has the options by which it rejects every draft."""

    def check_drafts(self, kind: str, *, rejects_all: bool) -> None:
        """Raise UsageError for a kind of draft that this build does not have, or if it cannot reject every draft."""
        if kind not in self.spec_types:
            has = [each for each in self.spec_types if each != "none"]
            hint = f"it has {in_words(has)}" if has else "it has no --spec-type: update it, or omit --engine"
            raise UsageError(f"this {NAME} does not know drafts of type {shorten(kind, 40)}", hint)
        if rejects_all and not self.can_reject:
            what = f"this {NAME} cannot be made to reject drafts, which a twin needs"
            raise UsageError(what, "update it, download the model, or omit --engine")

    def flags_of(self, flags: Sequence[str]) -> list[str]:
        """Return the flags with `-lm MODE` spelt as this build does."""
        if self.has_load_mode or "-lm" not in flags:
            return list(flags)
        at = flags.index("-lm")
        mode = flags[at + 1]
        old = [*(["--mlock"] if "mlock" in mode else []), *([] if "mmap" in mode else ["--no-mmap"])]
        return [*flags[:at], *old, *flags[at + 2 :]]


def describe_build(program: Sequence[str]) -> Build:
    """Ask a program, `PATH` or `PATH serve`, for its options and its version.

    Raises EngineFailed if it lacks a library, and UsageError if it is no llama-server for this machine.
    """
    usage = _output(program, "--help")
    if not _is_server(usage):
        raise _no_server(program, usage)
    version = _output(program, "--version")
    named = _found(_VERSION, version)
    return Build(
        named,
        _found(_COMMIT, named),
        _found(_BUILT_WITH, version),
        can_trace=bool(_found(_HAS_TRACE, usage)),
        has_load_mode=bool(_found(_HAS_LOAD_MODE, usage)),
        spec_types=tuple(filter(None, _found(_SPEC_TYPES, usage).split(","))),
        can_reject=all(flag in usage for flag in REJECTS_ALL[::2]),
    )


def _no_server(program: Sequence[str], usage: str) -> EngineFailed | UsageError:
    """Return why a program is no llama-server, by the last line of what it printed when asked for its options."""
    said = shorten(usage.strip().rpartition("\n")[2], 200)
    if "shared libraries" in said or "Library not loaded" in usage:
        hint = "set LD_LIBRARY_PATH to the folder of its libraries"
        return EngineFailed(f"{NAME} does not start: {said}", hint)
    ran = shorten(shlex.join([*program, "--help"]), 200)
    what = f"{ran} does not show the options of a {NAME}{f': {said}' if said else ''}"
    return UsageError(what, f"give the path of a {NAME}, or of a llama that has `serve`")


def _found(pattern: re.Pattern[str], text: str) -> str:
    """Return what the pattern's group matches; empty if it does not match."""
    match = pattern.search(text)
    return shorten(match[match.lastindex or 0], 100) if match else ""


def refused_option(log: str, words: Sequence[str], build: Build) -> UsageError | None:
    """Return why a build that was started with these words of the user's refused an option; None if it did not."""
    said = _REFUSED_OPTION.search(log)
    if said is None:
        return None
    program, own = split_command(words)
    given = (
        f"--engine gives it {shlex.join(own)}; " if own else "update it, or omit the option that needs this; "
    )
    hint = f"{given}its options: {shlex.join(program)} --help"
    return UsageError(f"{NAME} {build.version}".rstrip() + f" refuses an option: {said[0]}", hint)


def check_words(words: Sequence[str]) -> None:
    """Ask a program for its version, with the user's own options. Raises like `describe_build`, and for an option that
    it refuses.
    """
    program, own = split_command(words)
    build = describe_build(program)
    if error := refused_option(_output(program, *own, "--version") if own else "", words, build):
        raise error


def list_devices(program: Sequence[str], servers: Sequence[str] = ()) -> Mapping[str, int] | None:
    """Return the free bytes of each GPU that a program lists, by its name; None for a build that lists none.

    Devices of RPC `servers` come with it; llama.cpp aborts if one of them does not answer.
    """
    said = _output(program, *(["--rpc", ",".join(servers)] if servers else []), "--list-devices")
    if _LISTED_DEVICES not in said:
        return None
    found = _LISTED_DEVICE.finditer(said)
    return {match["name"]: int(match["free"]) * MIB for match in found if _is_gpu(match["name"])}


def _output(program: Sequence[str], *flags: str) -> str:
    """Return what a program prints, or why it prints nothing; what it has started ends with it."""
    try:
        child = subprocess.Popen(
            (*program, *flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=program_environment({}),
            start_new_session=True,
        )
    except OSError as error:
        return error.strerror or str(error)
    with child:
        try:
            return child.communicate(timeout=_ANSWER_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_S:g} s"
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, with all that it started
        os.killpg(child.pid, signal.SIGKILL)


def program_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without llama.cpp's options in it: the stored setup is all that applies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    return {**kept, "GGML_NO_BACKTRACE": "1", **added}
