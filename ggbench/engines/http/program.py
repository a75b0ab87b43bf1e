"""The program that serves: llama-server, or `llama serve`, as llama.cpp's own installer has it; what its build can.

Source of the second: app/llama.cpp of llama.cpp. `llama --help` lists its commands alone, so `llama serve` is asked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ggbench.engines.http.keeper import KeptProgram
from ggbench.engines.llama.build import gpu_backends
from ggbench.errors import EngineFailed, UsageError
from ggbench.locks import wait_for
from ggbench.record import Record
from ggbench.text import shorten
from ggbench.units import MIB

NAME = "llama-server"
_APP, _SERVE = "llama", "serve"
_ANSWER_S, _POLL_S = 30.0, 0.1
_MOST_BYTES = 1 << 20
_VERSION = re.compile(r"^version: (.+)$", re.MULTILINE)
_COMMIT = re.compile(r"commit ([0-9a-f]{7,40})|\(([0-9a-f]{7,40})\)")
_BUILT_WITH = re.compile(r"^built with (.+)$", re.MULTILINE)
_HAS_TRACE = re.compile(r"^\s*- 4: trace", re.MULTILINE)
_LISTED_DEVICES = "Available devices:"
_LISTED_GPU = re.compile(
    r"^ +(?!CPU|BLAS)(?P<name>\w+): (?P<about>.+) \(\d+ MiB, (?P<free>\d+) MiB free\)$", re.MULTILINE
)
_REFUSED_OPTION = re.compile(r'invalid argument: \S+|error while handling argument "[^"]+": .+')
"""llama.cpp's words for an option that it does not know, and for a value that it does not take."""


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


def _on_path() -> list[str]:
    """Return the words of the first program on PATH: llama-server, else `llama serve`; none without either."""
    found = next(filter(None, map(shutil.which, (NAME, _APP))), None)
    return [] if found is None else _find([found])


def _server_on_path() -> list[str]:
    """Return the words of `_on_path`; none if its `llama` is not llama.cpp's, as that may do anything with `serve`."""
    found = _on_path()
    return found if not found[1:] or _is_server(_known(tuple(found), "--help")) else []


def _find(program: Sequence[str]) -> list[str]:
    """Return the words that start a program, its absolute path first. Raises UsageError."""
    path, shown = Path(program[0]).expanduser(), shorten(program[0], 100)
    found = shutil.which(path.absolute() if path.exists() else path)
    if found is None:
        why = "is not executable" if path.is_file() else "was not found"
        hint = f"install llama.cpp, whose programs are {NAME} and {_APP}, or give a path: {NAME}=PATH"
        raise UsageError(f"--engine: {shown} {why}", hint)
    path = Path(found).absolute()
    return [str(path), *([_SERVE] if path.name == _APP else program[1:])]


def printed_program() -> str:
    """Return how a command to copy starts a server here: `llama serve` if there is no llama-server, but this."""
    return f"{_APP} {_SERVE}" if _server_on_path()[1:] else NAME


def unused_gpus() -> tuple[str, ...]:
    """Return the GPUs that the program on PATH lists, if ggbench's own llama.cpp has a backend for none."""
    found = [] if gpu_backends() else _server_on_path()
    said = _known(tuple(found), "--list-devices") if found else ""
    return tuple(shorten(match["about"], 80) for match in _LISTED_GPU.finditer(said))


class Build(Record):
    """A build of llama-server; empty if it does not say."""

    version: str = ""
    commit: str = ""
    built_with: str = ""
    """Compiler and target."""
    can_trace: bool = False
    """Whether `-lv 4` logs buffers; older builds do so anyway, and would log every token."""


def describe_build(program: Sequence[str]) -> Build:
    """Ask a program, `PATH` or `PATH serve`, for its options and its version.

    Raises EngineFailed if it lacks a library, and UsageError if it is no llama-server for this machine.
    """
    usage = _known(tuple(program), "--help")
    if not _is_server(usage):
        raise _no_server(program, usage)
    version = _known(tuple(program), "--version")
    named = _found(_VERSION, version)
    return Build(
        named,
        _found(_COMMIT, named),
        _found(_BUILT_WITH, version),
        can_trace=bool(_found(_HAS_TRACE, usage)),
    )


def _is_server(usage: str) -> bool:
    return "--ctx-size" in usage and "--port" in usage


def _no_server(program: Sequence[str], usage: str) -> EngineFailed | UsageError:
    """Return why a program is no llama-server, by the last line of what it printed when asked for its options."""
    said = shorten(usage.strip().rpartition("\n")[2], 200)
    if "shared libraries" in said or "Library not loaded" in usage:
        hint = "set LD_LIBRARY_PATH to the folder of its libraries"
        return EngineFailed(f"{NAME} does not start: {said}", hint)
    ran = shorten(shlex.join([*program, "--help"]), 200)
    what = f"{ran} does not show the options of a {NAME}: {said}".removesuffix(": ")
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
    given = f"--engine gives it {shlex.join(own)}" if own else "update it, or omit the option that needs this"
    what = f"{NAME} {build.version}".rstrip() + f" refuses an option: {said[0]}"
    return UsageError(what, f"{given}; its options: {shlex.join(program)} --help")


def check_words(words: Sequence[str]) -> None:
    """Ask a program for its version, with the user's own options. Raises like `describe_build`, and for an option that
    it refuses.
    """
    program, own = split_command(words)
    build = describe_build(program)
    if error := refused_option(_output(program, *own, "--version") if own else "", words, build):
        raise error


def list_devices(program: Sequence[str], servers: Sequence[str]) -> Mapping[str, int] | None:
    """Return the free bytes of each GPU that a program lists, by its name; None for a build that lists none.

    Devices of RPC `servers` come with it; llama.cpp aborts if one of them does not answer.
    """
    said = _output(program, *(["--rpc", ",".join(servers)] if servers else []), "--list-devices")
    if _LISTED_DEVICES not in said:
        return None
    return {match["name"]: int(match["free"]) * MIB for match in _LISTED_GPU.finditer(said)}


@functools.cache
def _known(program: tuple[str, ...], flag: str) -> str:
    """Return what a program prints, asked once."""
    return _output(program, flag)


def _output(program: Sequence[str], *flags: str) -> str:
    """Return what a program prints, at most 1 MiB, or why it prints nothing; what it has started ends with it."""
    printed = bytearray()
    with (
        contextlib.closing(KeptProgram((*program, *flags), program_environment({}))) as kept,
        kept.output as output,
    ):

        def has_ended() -> bool:
            if not select.select([output], [], [], _POLL_S)[0]:
                return False
            read = os.read(output.fileno(), _MOST_BYTES)
            printed.extend(read)
            return not read or len(printed) >= _MOST_BYTES

        what = f"an answer from {shorten(shlex.join((*program, *flags)), 200)}"
        if not wait_for(has_ended, what, limit_s=_ANSWER_S, pause_s=0):
            return f"no answer within {_ANSWER_S:g} s"
    return printed.decode(errors="replace")


def program_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without llama.cpp's options in it: the stored setup is all that applies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMA_ARG_")}
    return {**kept, "GGML_NO_BACKTRACE": "1", **added}
