"""A build of llama-server: what it is, what it can, and the devices that it lists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from ggbench.errors import EngineFailed, UsageError
from ggbench.text import in_words, shorten
from ggbench.units import MIB

NAME = "llama-server"
REJECTS_ALL = "--spec-synth-len", "1", "--spec-draft-p-min", "0"
"""Words that make a server draft all it may, and accept none of it."""
_DESCRIBE_S = 60.0
_VERSION = re.compile(r"^version: (.+)$", re.MULTILINE)
_COMMIT = re.compile(r"commit ([0-9a-f]{7,40})|\(([0-9a-f]{7,40})\)")
_BUILT_WITH = re.compile(r"^built with (.+)$", re.MULTILINE)
_HAS_LOAD_MODE = re.compile(r"^-lm,", re.MULTILINE)
_HAS_TRACE = re.compile(r"^\s*- 4: trace", re.MULTILINE)
_SPEC_TYPES = re.compile(r"^--spec-type +(\S+)", re.MULTILINE)
_LISTED_DEVICES = "Available devices:"
_LISTED_DEVICE = re.compile(r"^ +(?P<name>\w+): .+ \(\d+ MiB, (?P<free>\d+) MiB free\)$", re.MULTILINE)
_REFUSED_OPTION = re.compile(r'invalid argument: \S+|error while handling argument "[^"]+": .+')
"""llama.cpp's words for an option that it does not know, and for a value that it does not take."""


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


def describe_build(program: str) -> Build:
    """Ask a program for its version.

    Raises EngineFailed if it lacks a library, and UsageError if it is no llama-server for this machine.
    """
    version, usage = _output(program, "--version"), _output(program, "--help")
    said = shorten((version or usage).strip().rpartition("\n")[2], 200)
    if "shared libraries" in said or "Library not loaded" in version:
        raise EngineFailed(
            f"{NAME} does not start: {said}", "set LD_LIBRARY_PATH to the folder of its libraries"
        )
    if "--ctx-size" not in usage or "--port" not in usage:
        hint = "run it with --version by hand to see what it is"
        raise UsageError(
            f"{shorten(program, 100)} is not a {NAME} that runs here{f': {said}' if said else ''}", hint
        )
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


def _found(pattern: re.Pattern[str], text: str) -> str:
    """Return what the pattern's group matches; empty if it does not match."""
    match = pattern.search(text)
    return shorten(match[match.lastindex or 0], 100) if match else ""


def refused_option(log: str, words: Sequence[str], build: Build) -> UsageError | None:
    """Return why a build that was started with these words of the user's refused an option; None if it did not."""
    said = _REFUSED_OPTION.search(log)
    if said is None:
        return None
    program, *own = words
    given = (
        f"--engine gives it {shlex.join(own)}; " if own else "update it, or omit the option that needs this; "
    )
    hint = f"{given}its options: {shlex.quote(program)} --help"
    return UsageError(f"{NAME} {build.version}".rstrip() + f" refuses an option: {said[0]}", hint)


def check_words(words: Sequence[str]) -> None:
    """Ask a program for its version, with the user's own options. Raises like `describe_build`, and for an option that
    it refuses.
    """
    program, *own = words
    build = describe_build(program)
    if error := refused_option(_output(program, *own, "--version") if own else "", words, build):
        raise error


def list_devices(program: str, servers: Sequence[str] = ()) -> Mapping[str, int] | None:
    """Return the free bytes of each GPU that a program lists, by its name; None for a build that lists none.

    Devices of RPC `servers` come with it; llama.cpp aborts if one of them does not answer.
    """
    said = _output(program, *(["--rpc", ",".join(servers)] if servers else []), "--list-devices")
    if _LISTED_DEVICES not in said:
        return None
    found = _LISTED_DEVICE.finditer(said)
    return {match["name"]: int(match["free"]) * MIB for match in found if match["name"] not in ("CPU", "BLAS")}


def _output(program: str, *flags: str) -> str:
    try:
        child = subprocess.run(
            (program, *flags),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DESCRIBE_S,
            env=program_environment({}),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}"
    return child.stdout.decode(errors="replace")


def program_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without llama.cpp's options in it: the stored setup is all that applies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    return {**kept, "GGML_NO_BACKTRACE": "1", **added}
