"""What `ggbench` alone prints: what is on this disk, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ggbench.commands.output import Output
from ggbench.errors import StoreError
from ggbench.models.disk import LocalModel, find_local_models
from ggbench.paths import results_file
from ggbench.runs.store.database import Store
from ggbench.show.answer import Answer, Facts
from ggbench.show.words import say
from ggbench.text import shell_path
from ggbench.units import counted, format_bytes


def show_welcome() -> None:
    models = [each for each in find_local_models() if each.is_runnable]
    n_runs, folder, notes = _stored_runs()
    Output().answer(welcome_answer(models, n_runs, notes, folder))


def welcome_answer(
    models: Sequence[LocalModel], n_runs: int, notes: Sequence[str], folder: Path | None = None
) -> Answer:
    """Return the answer; `folder` has the file of the last run."""
    always = [
        ("ggbench tui", "the same by hand: choose, measure, compare"),
        ("ggbench doctor", "this machine, and what to mend"),
        ("ggbench --help", "all commands"),
    ]
    runs, measured = counted(n_runs, "run"), ("ggbench results", "what was measured")
    if not models:
        steps = [measured] if n_runs else [("ggbench demo", "a tour in a minute, without a network")]
        if folder is not None:
            steps.append((f"ggbench models {shell_path(str(folder))}", "what the last run's folder has"))
        steps += always
        return Answer(say("welcome.no_model", runs=runs), "ggbench pick", [Facts(steps)], notes)
    size = format_bytes(sum(each.file_bytes or 0 for each in models))
    smallest = min(models, key=lambda each: each.file_bytes or 0)
    measure = (
        f"ggbench decode {' '.join(map(shell_path, smallest.arguments))}",
        "how fast the smallest is here",
    )
    steps = [measured if n_runs else measure, ("ggbench models", "what is there"), *always]
    text = say("welcome.models", models=counted(len(models), "model"), size=size, runs=runs)
    return Answer(text, "ggbench pick --local", [Facts(steps)], notes)


def _stored_runs() -> tuple[int, Path | None, Sequence[str]]:
    """Return the number of stored runs, 0 if they cannot be read, the folder of the newest one's file, and notes."""
    if not results_file().exists():
        return 0, None, ()
    try:
        with Store.open() as store:
            files = [Path(run.subject.file) for run in store.list_runs(limit=15)]
            folder = next((file.parent for file in files if file.is_file()), None)
            return store.count_runs(), folder, store.notices
    except StoreError:
        return 0, None, [say("welcome.unreadable")]
