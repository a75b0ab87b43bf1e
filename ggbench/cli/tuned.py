"""`--tuned`: measure with the settings that `ggbench tune` found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ggbench.cli.options import Asked, option
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.experiments.tuned import Tuned
    from ggbench.recording.experiment import Job

tuned_option = option(
    "--tuned",
    "Take the settings that ggbench tune found for this machine, file and llama.cpp; other options come before them.",
    is_flag=True,
)


def with_tuned(jobs: Sequence[Job], asked: Asked, *, keeps_cache: bool = False) -> list[Job]:
    """Return the jobs, where --tuned was given with the settings that were found, and print which.

    Of several quants, one without a search has the defaults, and a notice says so. Raises UsageError where no quant has
    one that holds. `keeps_cache` leaves the types of the KV cache as they are.
    """
    if not asked.tuned:
        return list(jobs)
    from ggbench.experiments.tuned import find_tuned
    from ggbench.store.database import Store

    with Store.open() as store:
        found = [find_tuned(store, job.target) for job in jobs]
    if not any(each is not None and not each.stale for each in found):
        raise UsageError(*_missing(jobs[0], next((each for each in found if each is not None), None)))
    changed = []
    for job, tuned in zip(jobs, found, strict=True):
        if tuned is None or tuned.stale:
            what, hint = _missing(job, tuned)
            asked.output.notice(f"{what}: measured with the defaults; {hint}")
            changed.append(job)
            continue
        asked.output.notice(f"{job.target.quant}: {_message(tuned)}")
        changed.append(replace(job, setup=tuned.setup(job.setup, keeps_cache=keeps_cache)))
    return changed


def _message(tuned: Tuned) -> str:
    from ggbench.records.tune import changes_text
    from ggbench.report.tune import ratio_text

    if not tuned.changes:
        return f"run {tuned.run.run_id} found no settings that beat the defaults"
    gain = ratio_text(tuned.result.ratio)
    return f"{changes_text(tuned.changes)}, as run {tuned.run.run_id} found: {gain} times the speed of the defaults"


def _missing(job: Job, stale: Tuned | None) -> tuple[str, str]:
    """What is missing, and what to do."""
    from ggbench.experiments.tune import EXPERIMENT
    from ggbench.recording.experiment import Job as AnyJob
    from ggbench.records.setup import LlamaSetup
    from ggbench.records.tune import TuneSettings

    name = f"{job.target.model} {job.target.quant}"
    command = EXPERIMENT.command(AnyJob(EXPERIMENT, job.target, LlamaSetup(), TuneSettings()))
    if stale is None:
        return f"no settings were found for {name} on this machine", f"{command} searches for them"
    changed = "; ".join(stale.stale)
    return (
        f"the settings that run {stale.run.run_id} found for {name} are stale: changed since is {changed}",
        f"{command} searches again",
    )
