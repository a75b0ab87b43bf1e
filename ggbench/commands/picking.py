"""Run a pick: size what was named, or the current models, and measure the speeds that matter if asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.commands.budget_options import dry_allocator
from ggbench.commands.measuring import measure
from ggbench.commands.options import HubOptions, MeasureRequest
from ggbench.commands.output import Output, status_line
from ggbench.decisions.pick.candidates import PickRequest, decide, next_to_measure, variant_of
from ggbench.decisions.pick.current import decide_current, substitute
from ggbench.decisions.pick.models import PickedModel, models_here
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.decisions.pick.sentences import candidate_name, is_runnable
from ggbench.engines.contract import launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve
from ggbench.runs.experiment import Job, experiment_of
from ggbench.runs.store.database import Store

if TYPE_CHECKING:
    from ggbench.sizing.dry_allocator import DryAllocator
    from ggbench.sizing.plan_record import Budget

Picked: TypeAlias = tuple[Pick, tuple[PickedModel, ...]]
"""A pick, and the models that were sized for it."""


def start_allocator(setup: LlamaConfig, budget: Budget, draft: Target | None) -> DryAllocator:
    """Return the allocator of a pick, whose worker has been started."""
    return dry_allocator(launch_engine(setup), setup, budget, draft)


def run_pick(
    models: tuple[PickedModel, ...], request: PickRequest, allocator: DryAllocator, output: Output
) -> Picked:
    """Return the pick among models, or without any among the current ones of the catalog, with stored results."""
    with _store() as store, status_line(output) as show:
        steps = _among(models, request, allocator, store) if models else _current(request, allocator, store)
        while True:
            try:
                sized = next(steps)
            except StopIteration as end:
                found: Picked = end.value
                return found
            for each in sized[:1]:
                show(f"sized {candidate_name(each, with_model=True)}")


def find_substitute(pick: Pick, request: PickRequest, allocator: DryAllocator, output: Output) -> str:
    """Return the current model to run where those that were named do not fit or are slow; empty if there is none."""
    best = pick.best
    if best is None or (is_runnable(pick) and pick.comfortable is not False):
        return ""
    with _store() as store, status_line(output) as show:
        show("looking for another model")
        steps = substitute(best.candidate.row, request, allocator, store)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return str(end.value)


def _among(
    models: tuple[PickedModel, ...], request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, Picked]:
    return (yield from decide(models, request, allocator, store)), models


def _current(
    request: PickRequest, allocator: DryAllocator, store: Store | None
) -> Generator[tuple[Candidate, ...], None, Picked]:
    here = models_here() if request.budget.is_here else ()
    return (yield from decide_current(load_catalog().current, here, request, allocator, store))


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

    named: tuple[PickedModel, ...]
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
                picked = run_pick(self.named, self.request, allocator, self.output)
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
