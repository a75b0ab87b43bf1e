"""Run a pick: size what was named, or the current models, and print it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ggbench.commands.budget_options import BudgetOptions, start_allocator
from ggbench.commands.output import Output, status_line
from ggbench.decisions.pick.candidates import PickRequest
from ggbench.decisions.pick.decide import decide
from ggbench.decisions.pick.models import Competitors
from ggbench.decisions.pick.order import asks_nothing
from ggbench.decisions.pick.recommend import is_good
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.decisions.pick.run_commands import RunSettings, render
from ggbench.decisions.pick.sentences import candidate_name, headline, is_runnable
from ggbench.decisions.pick.show import PICK, pick_answer, pick_record, settings_of
from ggbench.errors import DoesNotFit, ExitCode, UsageError
from ggbench.fields import reproduce
from ggbench.files import write_as
from ggbench.gguf_file.layout import count_params
from ggbench.models.catalog import CatalogModel, load_catalog
from ggbench.record import Record
from ggbench.runs.store.health import open_if_any
from ggbench.show.changes import change_text
from ggbench.show.words import say
from ggbench.text import sanitize
from ggbench.units import format_length

if TYPE_CHECKING:
    from ggbench.sizing.dry_allocator import DryAllocator


class Paste(Record):
    """What to print instead of the answer, to be pasted or saved."""

    form: str | None = None
    """None for the answer."""
    path: Path | None = None
    """None for stdout."""
    force: bool = False


def run_pick(asked: Competitors, request: PickRequest, allocator: DryAllocator, output: Output) -> Pick:
    """Return the pick among models, with stored results if they can be read; show each quant that is sized."""
    with open_if_any() as store, status_line(output) as show:
        steps = decide(asked, request, allocator, store)
        while True:
            try:
                sized = next(steps)
            except StopIteration as end:
                pick: Pick = end.value
                return pick
            for each in sized[:1]:
                show(f"sized {candidate_name(each, with_model=True)}")


def find_substitute(pick: Pick, request: PickRequest, allocator: DryAllocator, output: Output) -> str:
    """Return the current model to run where those that were named do not fit, are slow or lossy; empty for none.

    It has a score of its publisher and at least half the parameters, or supersedes what was named.
    """
    best = pick.best
    if best is None or (is_runnable(pick) and asks_nothing(best, pick.needs)):
        return ""
    try:
        found = run_pick(Competitors(entries=_peers(best)), request, allocator, output)
    except DoesNotFit:
        return ""
    return found.best.row.model if found.best is not None and is_good(found) else ""


def _peers(best: Candidate) -> tuple[CatalogModel, ...]:
    """Return the current models that may be run instead of one."""
    catalog = load_catalog()
    known = catalog.named(best.row.model)
    newer = catalog.successors(known) if known else ()
    return tuple(
        each
        for each in catalog.current
        if each != known and (each in newer or (each.score and 2 * count_params(each.hyper) >= best.n_params))
    )


def card_twice(
    pick: Pick, asked: Competitors, request: PickRequest, memory: BudgetOptions, output: Output
) -> str:
    """Return `rtx-3090x2` if two of the one card that was described hold what one does not; else nothing."""
    if is_runnable(pick) or len(memory.gpu) != 1:
        return ""
    twice = replace(memory, gpu=(f"{memory.gpu[0]}x2",))
    try:
        budget = twice.budget(request.setup, measures=False)
    except UsageError:  # it describes several already, or no known card
        return ""
    with start_allocator(request.setup, budget, None) as allocator:
        found = run_pick(asked, replace(request, budget=budget), allocator, output)
    is_whole = found.recommended is not None and not found.recommended.is_split
    return twice.gpu[0] if is_whole and not budget.is_unified else ""


def show_pick(pick: Pick, request: PickRequest, output: Output, paste: Paste, exit_code: ExitCode) -> None:
    """Print the pick; raises DoesNotFit, with how it would, if there is nothing to run."""
    best = pick.best
    run = None if best is None or not is_runnable(pick) else settings_of(best, request.budget)
    commands = None if run is None else run.commands
    if output.as_json:
        output.record(PICK, pick_record(pick, request.budget, commands, request.setup))
    elif run is not None and paste.form is not None:
        _paste(run, paste.form, paste, output)
    elif is_runnable(pick):
        output.answer(pick_answer(pick, request.budget, commands))
    else:
        if output.why:
            output.answer(pick_answer(pick, request.budget, commands))
        error = DoesNotFit(headline(pick), _remedy(pick, request))
        error.exit_code = exit_code
        raise error


def _paste(run: RunSettings, form: str, paste: Paste, output: Output) -> None:
    """Print or save a configuration. Raises UsageError if the program has no setting for something planned."""
    text = render(run, form)
    output.notice(*(f"note: {each}" for each in run.notes))
    if paste.path is None:
        click.echo(text)
    else:
        write_as(paste.path, f"{text}\n".encode(), force=paste.force)
        output.notice(f"saved {form} in {sanitize(str(paste.path))}")


def _remedy(pick: Pick, request: PickRequest) -> str:
    """Return the first changes with which the nearest miss would fit, and the model to run instead."""
    changes = () if pick.best is None else pick.best.row.changes
    ways = [change_text(each) for each in changes if each.fits][:2]
    key = "run_instead" if pick.instead else "no_substitute"
    asked = replace(request.setup, n_ctx=pick.needs.n_ctx)
    again = reproduce("pick", [*filter(None, [pick.instead])], asked, dict(request.options))
    found = [say("pick.fits_with", changes=" or ".join(ways))] if ways else []
    if pick.twice:
        found.append(say("pick.fits_twice", twice=pick.twice, n_ctx=format_length(pick.needs.n_ctx)))
    return "; ".join([*found, say(f"pick.{key}", model=pick.instead, again=again)])
