"""A session: the turns of a transcript, and how long each waited and answered."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec.structs import force_setattr

from ggbench.expect.sessions import Conversation, Turn, count_reread, parse_session
from ggbench.fields import COUNT, FieldKind, Option
from ggbench.paths import expand_path
from ggbench.record import Record
from ggbench.runs.run import PromptTimings, Run, Settings

Cause = Literal["", "lost", "slot", "text", "cut", "unknown"]
"""Why tokens that the turn before left in the cache were read again: windows or a recurrent state cannot be cut back,
another slot answered, the answer has other tokens as a text, or the server cut the prompt. Empty if none were."""


def _absolute(text: str) -> str:
    path = expand_path(text)
    return str(path.absolute()) if path.is_file() else text


class SessionSettings(Settings, Record):
    """The turns to measure. Raises UsageError for an unknown session, and BadFile for a file that has none."""

    workload: Annotated[
        str,
        Option(
            "--workload",
            'Turns of coding/documents/chat, IN+OUT@DEPTH, or of a file of JSON lines: {"new": 800, '
            '"generated": 120, "kept": 1.0}. Or a server\'s usage or timings. Default: coding.',
            FieldKind(_absolute, metavar="NAME|FILE"),
            is_always_stated=True,
        ),
    ] = "coding"
    n_turns: Annotated[int | None, Option("--turns", "Measure only the first N turns.", COUNT)] = None
    turns: tuple[Turn, ...] = ()
    """The turns of the session, as many as are measured."""

    def __post_init__(self) -> None:
        if not self.turns:
            force_setattr(self, "turns", parse_session(self.workload).turns[: self.n_turns])

    @property
    def name(self) -> str:
        """The session's name, or that of its file."""
        return self.workload.replace("\\", "/").rpartition("/")[2]

    @property
    def session(self) -> Conversation:
        return Conversation(self.name, self.turns, self.workload)

    @property
    def n_ctx_needed(self) -> int:
        """Tokens of the longest transcript."""
        return self.session.n_tokens


class TurnTimed(Record):
    """One turn; an observation."""

    n_prompt: int
    """Tokens of the transcript with those that are new."""
    n_kept: int
    """Tokens of it that were there before."""
    n_gen: int
    """Tokens of the answer."""
    n_cached: int | None
    """Tokens that were in the cache; None if the server does not say."""
    wait_ns: int
    """Time to the first token; of a server by this machine's clock, of ggbench's own llama.cpp without sampling it."""
    answer_ns: int
    """Time of the tokens after the first."""
    slot: int | None = None
    """The server's slot that answered; None without slots."""
    cause: Cause = ""

    @property
    def n_read(self) -> int | None:
        return None if self.n_cached is None else self.n_prompt - self.n_cached

    @property
    def n_reread(self) -> int:
        """Tokens of the transcript before that were read again; 0 if the server does not say."""
        return 0 if self.n_cached is None else count_reread(self.n_kept, self.n_cached)

    @property
    def tok_s(self) -> float | None:
        return (self.n_gen - 1) * 1e9 / self.answer_ns if self.answer_ns else None

    @property
    def elapsed_ns(self) -> int:
        return self.wait_ns + self.answer_ns


class SessionResult(PromptTimings):
    """All finished turns; waits are in seconds, and of at least one turn."""

    turns: tuple[TurnTimed, ...] = ()
    joules: float | None = None
    """Energy of the GPUs over all turns; None if no counter tells."""

    @property
    def elapsed_s(self) -> float:
        return sum(turn.elapsed_ns for turn in self.turns) / 1e9

    @property
    def last_wait_s(self) -> float:
        return self.turns[-1].wait_ns / 1e9

    @property
    def n_reread(self) -> int:
        return sum(turn.n_reread for turn in self.turns)

    @property
    def p50_s(self) -> float:
        return self._wait_s(50)

    @property
    def p95_s(self) -> float:
        return self._wait_s(95)

    def _wait_s(self, percent: int) -> float:
        """Return the wait that this share of the turns does not exceed, by nearest rank."""
        waits = sorted(turn.wait_ns for turn in self.turns)
        return waits[-(-percent * len(waits) // 100) - 1] / 1e9


def result_of(run: Run) -> SessionResult:
    return run.result if isinstance(run.result, SessionResult) else SessionResult()
