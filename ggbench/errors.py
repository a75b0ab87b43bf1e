"""The exceptions of ggbench and their exit codes.

    GgbenchError              1  unexpected
    ├── UsageError            2  the command line or a config file is wrong
    │   └── UnknownName       2  a model, quant or column that does not exist; lists the nearest
    ├── DoesNotFit            3  memory or disk is too small
    ├── NetworkError          4  the network or the Hub, including a repo that does not exist
    │   └── ServerTimeout     4  a server was silent for too long
    ├── BadFile               5  a file that is broken or not what it claims
    │   ├── Unsupported       5  a well-formed file that ggbench does not support
    │   └── WrongProjector    5  a projector of another model
    ├── EngineFailed          6  llama.cpp or its worker failed
    │   ├── BindingFailed     6  the installed llama-cpp-python lacks what every model needs
    │   └── ServerFailed      6  a server answered with an error or with invalid data
    └── StoreError            1  the results file cannot be used

Each has a line saying what happened and a hint on what to do; they are caught once, in `ggbench.cli.main`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    DOES_NOT_FIT = 3
    NETWORK = 4
    BAD_FILE = 5
    ENGINE_FAILED = 6
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """128 + SIGPIPE, as shells report for other tools whose reader exits first."""


class GgbenchError(Exception):
    exit_code = ExitCode.UNEXPECTED

    def __init__(self, message: str, hint: str = "") -> None:
        """Make an error: what happened and what to do next, each in one line."""
        super().__init__(message)
        self.message, self.hint = message, hint

    @property
    def line(self) -> str:
        """What happened and what to do next."""
        return "; ".join(filter(None, (self.message, self.hint)))


class UsageError(GgbenchError):
    exit_code = ExitCode.USAGE


_LONGEST_LIST = 400
"""In characters."""


class UnknownName(UsageError):
    """A name that does not exist; the hint lists the nearest, the first of all, or the command that lists them."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "", listed_by: str = "") -> None:
        import difflib
        import textwrap

        names = sorted(known)
        near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
        parts = [f"nearest: {', '.join(near)}"] if near else []
        if listed_by:
            parts.append(f"{listed_by} lists all")
        listed = f"known: {textwrap.shorten(', '.join(names), _LONGEST_LIST, placeholder=' …')}"
        super().__init__(f"no {kind} named {name!r}", hint or "; ".join(parts) or listed)


class DoesNotFit(GgbenchError):
    exit_code = ExitCode.DOES_NOT_FIT


class NetworkError(GgbenchError):
    exit_code = ExitCode.NETWORK

    def __init__(self, message: str, hint: str = "", twin: str = "") -> None:
        """Make an error; `twin` is a MODEL that does without the network, where weights do not matter."""
        offer = f"its twin needs no network: {twin}" if twin else ""
        super().__init__(message, "; ".join(filter(None, (hint, offer))))
        self._own_hint = hint

    def without_twin(self) -> NetworkError:
        """Return the error for what needs the real weights."""
        return NetworkError(self.message, self._own_hint)


class ServerTimeout(NetworkError):
    """A server was silent for longer than the timeout."""


class BadFile(GgbenchError):
    exit_code = ExitCode.BAD_FILE


class Unsupported(BadFile):
    """A well-formed file whose architecture or types are not supported."""


class WrongProjector(BadFile):
    """A projector whose embeddings are not as wide as the model's."""


class EngineFailed(GgbenchError):
    exit_code = ExitCode.ENGINE_FAILED


TESTED_BINDING = "llama-cpp-python==0.3.36"
"""The binding that ggbench was tested with, as pip takes it."""


class BindingFailed(EngineFailed):
    """The installed llama-cpp-python cannot do something, whatever the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message, f"pip install {TESTED_BINDING}")


class ServerFailed(EngineFailed):
    """A server answered with an error, broke off, or sent invalid data."""


class StoreError(GgbenchError):
    """The results file cannot be opened or written."""
