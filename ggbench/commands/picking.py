"""Run a pick: size what was named, or the current models, and measure the speeds that matter if asked."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click
import msgspec
from msgspec.structs import replace

from ggbench.commands.budget_options import dry_allocator
from ggbench.commands.measuring import measure
from ggbench.commands.options import HubOptions, MeasureRequest
from ggbench.commands.output import Output, status_line
from ggbench.decisions.pick.candidates import PickRequest, decide, next_to_measure, variant_of
from ggbench.decisions.pick.current import decide_current, substitute
from ggbench.decisions.pick.models import Competitors, PickedModel, models_here
from ggbench.decisions.pick.order import concessions
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.decisions.pick.sentences import candidate_name, headline, is_runnable
from ggbench.decisions.pick.show import PICK, commands_of, pick_answer, pick_record
from ggbench.engines.contract import launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, ExitCode, StoreError, UsageError
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

_Found = TypeVar("_Found")
Picked: TypeAlias = tuple[Pick, tuple[PickedModel, ...]]
"""A pick, and the models that were sized for it."""


def start_allocator(setup: LlamaConfig, budget: Budget, draft: Target | None) -> DryAllocator:
    """Return the allocator of a pick, whose worker has been started."""
    return dry_allocator(launch_engine(setup), setup, budget, draft)


def run_pick(asked: Competitors, request: PickRequest, allocator: DryAllocator, output: Output) -> Picked:
    """Return the pick among models, with stored results."""
    with _store() as store, status_line(output) as show:
        return _result(_steps(asked, request, allocator, store), show)


def find_substitute(pick: Pick, request: PickRequest, allocator: DryAllocator, output: Output) -> str:
    """Return the current model to run where those that were named do not fit, are slow or lossy; empty for none."""
    best = pick.best
    if best is None or (is_runnable(pick) and not any(concessions(best.candidate, pick.needs)[:2])):
        return ""
    with _store() as store, status_line(output) as show:
        show("looking for another model")
        return _result(substitute(best.candidate.row, request, allocator, store), show)


def _result(steps: Generator[tuple[Candidate, ...], None, _Found], show: Callable[[str], object]) -> _Found:
    """Return what the steps end with; show the first candidate of each quant that they size."""
    while True:
        try:
            sized = next(steps)
        except StopIteration as end:
            found: _Found = end.value
            return found
        for each in sized[:1]:
            show(f"sized {candidate_name(each, with_model=True)}")


def _steps(
    asked: Competitors, request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, Picked]:
    if asked.models:
        return (yield from decide(asked.models, request, allocator, store)), asked.models
    here = models_here() if request.budget.is_here else ()
    return (yield from decide_current(asked, here, request, allocator, store))


@contextlib.contextmanager
def _store() -> Iterator[Store | None]:
    """Yield the store; None if it cannot be read."""
    with contextlib.ExitStack() as opened:
        try:
            store = opened.enter_context(Store.open())
        except StoreError:
            store = None
        yield store


class MeasuredPick(msgspec.Struct, frozen=True):
    """What `--measure` needs besides the pick."""

    asked: Competitors
    request: PickRequest
    draft: Target | None
    within_s: float
    hub: HubOptions
    output: Output

    def run(self, picked: Picked) -> Pick:
        """Measure the speeds that matter and pick again, until all are known or the time is up."""
        end, tried = time.monotonic() + self.within_s, set[tuple[str, ...]]()
        while (candidate := next_to_measure(picked[0], tried)) is not None:
            tried.add(candidate.name)
            if variant_of(candidate, picked[1]).scaled_from:
                name = candidate_name(candidate)
                self.output.notice(f"{name} is not timed: a twin of its mixture needs the file's header")
                continue
            if time.monotonic() >= end:
                self.output.notice(f"--within {self.within_s:g}s is over; some speeds are still unknown")
                break
            self.output.notice(f"timing {candidate_name(candidate)}")
            if self._time(candidate):
                break
            with start_allocator(self.request.setup, self.request.budget, self.draft) as allocator:
                picked = run_pick(self.asked, self.request, allocator, self.output)
        return picked[0]

    def _time(self, candidate: Candidate) -> bool:
        """Time a candidate; return whether the user cancelled."""
        job = self._job(candidate)
        asked = MeasureRequest(parse_model(*job.target.named), candidate.setup, self.hub, self.output)
        return measure([job], asked, is_sweep=True).is_cancelled

    def _job(self, candidate: Candidate) -> Job:
        """Return a decode of the answer at its depth if the file is here, or else a forecast from twins."""
        file, needs = candidate.to_run, self.request.needs
        setup = candidate.setup.undrafted()  # speeds do not include drafting
        alone = replace(setup, n_ctx=None, n_seq_max=1, kv_unified=False)
        if file is None or not file.is_here or not file.paths:
            twin = parse_model(candidate.row.model, candidate.quant).require_gguf().as_twin()
            (target,) = resolve(twin, hub=self.hub.access())
            return _job_of("forecast", target, alone)
        (target,) = resolve(parse_model(str(file.paths[0])), hub=self.hub.access())
        n_gen = needs.workload.n_gen
        depth = needs.workload.depth_in(candidate.n_ctx // needs.n_slots) + needs.workload.n_prompt
        if needs.n_slots == 1:
            return _job_of("decode", target, setup, n_gen=n_gen, depths=[depth])
        together = replace(setup, n_ctx=None, n_seq_max=1)
        return _job_of("speed", target, together, inputs=[depth], n_gen=n_gen, batches=[needs.n_slots])


def _job_of(kind: str, target: Target, setup: LlamaConfig, **settings: object) -> Job:
    experiment = experiment_of(kind)
    return Job(experiment, target, setup, msgspec.convert(settings, experiment.settings_type))


def show_pick(pick: Pick, request: PickRequest, output: Output, form: str | None, exit_code: ExitCode) -> None:
    """Print the pick; raises DoesNotFit, with how it would, if there is nothing to run."""
    best = pick.best
    commands = None if best is None or not is_runnable(pick) else commands_of(best.candidate, request.budget)
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
    needs, ways = pick.needs, list(_ways(pick))
    options = [word for name, value in request.options for word in (f"--{name}", value)]
    words = ["ggbench", "pick", *filter(None, [pick.instead]), *options, "-c", str(needs.n_ctx)]
    words += ["-np", str(needs.n_slots)] if needs.n_slots > 1 else []
    key = "instead" if pick.instead else "no_substitute"
    found = [say("pick.fits_with", changes=" or ".join(ways))] if ways else []
    return "; ".join([*found, say(f"pick.{key}", model=pick.instead, again=shlex.join(words))])


def _ways(pick: Pick) -> Iterator[str]:
    """Yield the best change with which the nearest miss would fit, and the context that does."""
    yield from [change_text(change) for change in pick.changes if change.fits and change.kind != "n_ctx"][:1]
    longest = 0 if pick.best is None else pick.best.candidate.longest_n_ctx or 0
    each = longest // pick.needs.n_slots // KV_CELLS * KV_CELLS
    if each and pick.needs.holds_turn(each):
        yield f"-c {each * pick.needs.n_slots}"
