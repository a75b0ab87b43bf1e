"""What every run's answer has besides its own: what disturbed it, the machine, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.runs.comparable import is_repeatable
from ggbench.runs.run import STILL_RUNNING, Run
from ggbench.show.answer import Answer, Command, Facts
from ggbench.show.machine import environment_facts
from ggbench.show.run_figures import unsteady_note
from ggbench.stats.turns import FEWEST_TURNS
from ggbench.text import sanitize


def run_answer(run: Run, answer: Answer) -> Answer:
    """Return the answer of one run, with what disturbed it as a note, and behind it the machine and the command."""
    environment = run.environment
    facts = Facts(
        [
            ("run", f"{run.run_id or ''} {run.head.started_at}".strip()),
            ("unsteady", run.unsteady),
            *(() if environment is None else environment_facts(environment)),
        ]
    )
    behind = [facts, Command(run.head.command, "Again")]
    ended = run.reason if run.is_complete or run.reason == STILL_RUNNING else run.outcome.because(run.reason)
    notes = [
        "" if ended in answer.text else sanitize(ended),
        unsteady_note([""], [run]),
        *answer.notes,
        "" if run.run_id is None else f"run {run.run_id}",
    ]
    was_stopped = run.outcome in (Outcome.CANCELLED, Outcome.INTERRUPTED) and run.reason != STILL_RUNNING
    command = run.head.command if was_stopped else answer.command
    return replace(answer, command=command, notes=notes, why=[*answer.why, *behind])


def several_answer(runs: Sequence[Run], names: Sequence[str], answer: Answer) -> Answer:
    """Return the answer of several runs, with why some have no result among the notes."""
    reasons = shared(names, map(_why_ended, runs))
    again = [Command(run.head.command, f"Again: {name}") for name, run in zip(names, runs, strict=True)]
    return replace(answer, notes=[*reasons, *answer.notes], why=[*answer.why, *again])


def _why_ended(run: Run) -> str:
    return sanitize(run.reason) or ("" if run.is_complete else run.outcome.text)


def in_turns(runs: Sequence[Run], n_turns: int = FEWEST_TURNS) -> str:
    """Return the command that measures runs again in turns and compares them; empty if that is not possible here."""
    is_possible = all(run.run_id and is_repeatable(run) for run in runs)
    return f"{compare_command(runs)} -r {n_turns}" if is_possible else ""


def compare_command(runs: Sequence[Run]) -> str:
    """Return the command that compares the stored runs; empty for fewer than two."""
    run_ids = [str(run.run_id) for run in runs if run.run_id]
    return f"ggbench compare {' '.join(run_ids)}" if len(run_ids) > 1 else ""


def shared(names: Sequence[str], texts: Iterable[str]) -> list[str]:
    """Return each text once, after the names of all rows that have it: `q8_0, q4_0: out of memory`."""
    said: dict[str, list[str]] = {}
    for name, text in zip(names, texts, strict=True):
        said.setdefault(text, []).append(name)
    return [f"{', '.join(of)}: {text}" for text, of in said.items() if text]
