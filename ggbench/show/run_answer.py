"""What every run's answer has besides its own: what disturbed it, the machine, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.answer import Answer, Facts
from ggbench.show.machine import environment_line, unsteady_line
from ggbench.show.names import twin_notes
from ggbench.text import sanitize

_MOST_NOTES = 3


def run_answer(run: Run, answer: Answer, readings: Sequence[MachineReading] = ()) -> Answer:
    """Return the answer of a run with what disturbed it among the notes, and where it was measured behind `--why`."""
    notes = list(filter(None, (run.reason, unsteady_line(run), *answer.notes)))
    environment = run.head.environment
    measured = [
        *(("", note) for note in twin_notes([run.subject])),
        ("measured with", environment_line(environment) if environment else ""),
        ("again", run.head.command),
    ]
    why = [*answer.why, *notes[_MOST_NOTES:], Facts(measured)]
    return replace(answer, notes=notes[:_MOST_NOTES], why=why)


def several_answer(runs: Sequence[Run], names: Sequence[str], answer: Answer) -> Answer:
    """Return the answer of several runs, with why some have no result among the notes."""
    reasons = shared(names, (sanitize(run.reason) for run in runs))
    notes = [*reasons, *answer.notes]
    why = [*answer.why, *notes[_MOST_NOTES:], Facts([("again", run.head.command) for run in runs])]
    return replace(answer, notes=notes[:_MOST_NOTES], why=why)


def shared(names: Sequence[str], texts: Iterable[str]) -> list[str]:
    """Return each text once, after the names of all rows that have it: `q8_0, q4_0: out of memory`."""
    said: dict[str, list[str]] = {}
    for name, text in zip(names, texts, strict=True):
        said.setdefault(text, []).append(name)
    return [f"{', '.join(of)}: {text}" for text, of in said.items() if text]
