"""The exceptions of ggbench and their exit codes.

    GgbenchError              1  unexpected
    ├── UsageError            2  the command line or a config file is wrong
    │   └── UnknownName       2  a model, quant or column that does not exist; lists the nearest
    ├── DoesNotFit            3  memory or disk is too small
    ├── NetworkError          4  the network or the Hub, including a repo that does not exist
    │   └── ServerTimeout     4  a server was silent for too long
    ├── BadFile               5  a file that is broken or not what it claims
    │   └── Unsupported       5  a well-formed file that ggbench does not support
    ├── EngineFailed          6  llama.cpp or its worker failed
    │   └── ServerFailed      6  a server answered with an error or with invalid data
    └── StoreError            1  the results file cannot be used

Each has a line saying what happened and a hint on what to do; they are caught once, in `ggbench.cli.main`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    DOES_NOT_FIT = 3
    NETWORK = 4
    BAD_FILE = 5
    ENGINE_FAILED = 6
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """128 + SIGPIPE, as the shell reports for other tools whose reader ends first."""


class GgbenchError(Exception):
    exit_code = ExitCode.UNEXPECTED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        """What happened, in one line."""
        self.hint = hint
        """What to do next, in one line; empty where there is nothing to do."""


class UsageError(GgbenchError):
    """The command line or a config file is invalid."""

    exit_code = ExitCode.USAGE


class UnknownName(UsageError):
    """A name that does not exist; the hint lists the nearest, else all, or the command that lists them."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "", listed_by: str = "") -> None:
        import difflib

        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
        found = f"nearest: {', '.join(near)}" if near else "" if listed_by else f"known: {', '.join(names)}"
        listed = f"{listed_by} lists all" if listed_by else ""
        super().__init__(f"no {kind} named {name!r}", hint or "; ".join(filter(None, (found, listed))))


class DoesNotFit(GgbenchError):
    """Memory or disk is too small for what was asked."""

    exit_code = ExitCode.DOES_NOT_FIT


class NetworkError(GgbenchError):
    """The network or the Hub failed."""

    exit_code = ExitCode.NETWORK


class ServerTimeout(NetworkError):
    """A server was silent for longer than the timeout."""


class BadFile(GgbenchError):
    """A file that is missing, broken, or not what it claims to be."""

    exit_code = ExitCode.BAD_FILE


class Unsupported(BadFile):
    """A well-formed file whose architecture or types are not supported."""


class EngineFailed(GgbenchError):
    """llama.cpp failed, or its worker crashed, hung or sent invalid data."""

    exit_code = ExitCode.ENGINE_FAILED


class ServerFailed(EngineFailed):
    """A server answered with an error, broke off, or sent invalid data."""


class StoreError(GgbenchError):
    """The results file cannot be opened or written."""
