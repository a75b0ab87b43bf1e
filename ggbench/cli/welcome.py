"""What `ggbench` alone prints: what is on this disk, and what to type next."""

from __future__ import annotations

from collections.abc import Sequence

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
    n_runs, notes = _n_runs()
    Output().answer(welcome_answer(models, n_runs, notes))


def welcome_answer(models: Sequence[LocalModel], n_runs: int, notes: Sequence[str]) -> Answer:
    always = [
        ("ggbench tui", "the same by hand: choose, measure, compare"),
        ("ggbench doctor", "this machine, and what to mend"),
        ("ggbench --help", "all commands"),
    ]
    runs = counted(n_runs, "run")
    if not models:
        steps = [("ggbench demo", "a tour in a minute, without a network"), *always]
        return Answer(say("welcome.no_model", runs=runs), "ggbench pick", [Facts(steps)], notes)
    size = format_bytes(sum(each.file_bytes or 0 for each in models))
    smallest = min(models, key=lambda each: each.file_bytes or 0)
    measure = (
        f"ggbench decode {' '.join(map(shell_path, smallest.arguments))}",
        "how fast the smallest is here",
    )
    measured = ("ggbench results", "what was measured")
    steps = [measured if n_runs else measure, ("ggbench models", "what is there"), *always]
    text = say("welcome.models", models=counted(len(models), "model"), size=size, runs=runs)
    return Answer(text, "ggbench pick --local", [Facts(steps)], notes)


def _n_runs() -> tuple[int, Sequence[str]]:
    """Return the number of stored runs, 0 if they cannot be read, and notes."""
    if not results_file().exists():
        return 0, ()
    try:
        with Store.open() as store:
            return store.count_runs(), store.notices
    except StoreError:
        return 0, [say("welcome.unreadable")]
