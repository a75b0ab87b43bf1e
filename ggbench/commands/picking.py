"""Run a pick: size what was named, or the current models, and measure the speeds that matter if asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from ggbench.commands.budget_options import dry_allocator
from ggbench.commands.measuring import measure
from ggbench.commands.options import HubOptions, MeasureRequest
from ggbench.commands.output import Output, status_line
from ggbench.decisions.pick.candidates import PickRequest, decide, next_to_measure
from ggbench.decisions.pick.models import Competitors
from ggbench.decisions.pick.order import concessions
from ggbench.decisions.pick.recommend import is_good
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.decisions.pick.sentences import candidate_name, headline, is_runnable
from ggbench.decisions.pick.show import PICK, commands_of, pick_answer, pick_record
from ggbench.engines.contract import launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, ExitCode, StoreError, UsageError
from ggbench.fields import reproduce
from ggbench.gguf_file.layout import count_params
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.store.database import Store
from ggbench.show.changes import change_text
from ggbench.show.words import say
from ggbench.text import in_words
from ggbench.units import KV_CELLS

if TYPE_CHECKING:
    from ggbench.decisions.pick.run_commands import RunCommands
    from ggbench.sizing.dry_allocator import DryAllocator
    from ggbench.sizing.plan_record import Budget


def start_allocator(setup: LlamaConfig, budget: Budget, draft: Target | None) -> DryAllocator:
    """Return the allocator of a pick, whose worker has been started."""
    return dry_allocator(launch_engine(setup), setup, budget, draft)


def run_pick(asked: Competitors, request: PickRequest, allocator: DryAllocator, output: Output) -> Pick:
    """Return the pick among models, with stored results if they can be read; show each quant that is sized."""
    with contextlib.ExitStack() as opened:
        store = None
        with contextlib.suppress(StoreError):
            store = opened.enter_context(Store.open())
        show = opened.enter_context(status_line(output))
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
    if best is None or (is_runnable(pick) and not any(concessions(best, pick.needs)[:2])):
        return ""
    catalog = load_catalog()
    known = catalog.named(best.row.model)
    newer = catalog.successors(known) if known else ()
    peers = tuple(
        each
        for each in catalog.current
        if each != known and (each in newer or (each.score and 2 * count_params(each.hyper) >= best.n_params))
    )
    try:
        found = run_pick(Competitors(entries=peers), request, allocator, output)
    except DoesNotFit:
        return ""
    return found.best.row.model if found.best is not None and is_good(found) else ""


def measured_pick(
    pick: Pick, asked: Competitors, request: PickRequest, draft: Target | None, hub: HubOptions, output: Output
) -> Pick:
    """Measure the speeds that matter and pick again, until all are known or the user cancels."""
    tried = set[tuple[str, ...]]()
    while (candidate := next_to_measure(pick, tried)) is not None:
        tried.add(candidate.name)
        name = candidate_name(candidate)
        if any(note.key == "plan.scaled" for note in candidate.row.notes):
            output.notice(f"{name} is not timed: a twin of its mixture needs the file's header")
            continue
        output.notice(f"timing {name}")
        job = _job(candidate, request, hub)
        asked_for = MeasureRequest(parse_model(*job.target.named), candidate.setup, hub, output)
        if measure([job], asked_for, is_sweep=True).is_cancelled:
            break
        with start_allocator(request.setup, request.budget, draft) as allocator:
            pick = run_pick(asked, request, allocator, output)
    return pick


def _job(candidate: Candidate, request: PickRequest, hub: HubOptions) -> Job:
    """Return a decode of one user's answer at its depth if the file is here, or else a forecast from twins."""
    file, turn = candidate.to_run, request.needs.turn
    setup = replace(candidate.setup.undrafted(), n_ctx=None, n_seq_max=1, kv_unified=False)
    settings = dict[str, object]()
    ref, kind = parse_model(candidate.row.model, candidate.quant).require_gguf().as_twin(), "forecast"
    if file is not None and file.is_here and file.paths:
        ref, kind = parse_model(str(file.paths[0])), "decode"
        settings = {"n_gen": turn.n_gen, "depths": [turn.n_depth + turn.n_prompt]}
    (target,) = resolve(ref, hub=hub.access())
    experiment = experiment_of(kind)
    return Job(experiment, target, setup, msgspec.convert(settings, experiment.settings_type))


def show_pick(pick: Pick, request: PickRequest, output: Output, form: str | None, exit_code: ExitCode) -> None:
    """Print the pick; raises DoesNotFit, with how it would, if there is nothing to run."""
    best = pick.best
    commands = None if best is None or not is_runnable(pick) else commands_of(best, request.budget)
    if output.as_json:
        output.record(PICK, pick_record(pick, request.budget, commands, request.setup))
    elif commands is not None and form is not None:
        click.echo(_in_form(commands, form))
    elif is_runnable(pick):
        output.answer(pick_answer(pick, request.budget, commands))
    else:
        if output.why:
            output.answer(pick_answer(pick, request.budget, commands))
        error = DoesNotFit(headline(pick), _remedy(pick, request))
        error.exit_code = exit_code
        raise error


def _in_form(commands: RunCommands, form: str) -> str:
    """Return a configuration. Raises UsageError if the program has no setting for something planned."""
    text: str = getattr(commands, "llama_server" if form == "sh" else form.replace("-", "_"))
    if not text:
        obstacles = in_words(commands.not_in_ollama or ("such a file name",))
        raise UsageError(say("pick.no_form", form=form, obstacles=obstacles), "use --as sh")
    return text.rstrip("\n")


def _remedy(pick: Pick, request: PickRequest) -> str:
    """Return the first changes with which the nearest miss would fit, and the model to run instead."""
    ways, key = list(_ways(pick)), "run_instead" if pick.instead else "no_substitute"
    asked = replace(request.setup, n_ctx=pick.needs.n_ctx)
    again = reproduce("pick", [*filter(None, [pick.instead])], asked, dict(request.options))
    found = [say("pick.fits_with", changes=" or ".join(ways))] if ways else []
    return "; ".join([*found, say(f"pick.{key}", model=pick.instead, again=again)])


def _ways(pick: Pick) -> Iterator[str]:
    """Yield the best change with which the nearest miss would fit, and the context that does."""
    if pick.best is None:
        return
    changes = pick.best.row.changes
    yield from [change_text(change) for change in changes if change.fits and change.kind != "n_ctx"][:1]
    each = (pick.best.max_n_ctx or 0) // pick.needs.n_slots // KV_CELLS * KV_CELLS
    if each:
        yield f"-c {each * pick.needs.n_slots}"
