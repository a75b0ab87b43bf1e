"""`--tuned`: measure with the settings that `ggbench tune` found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.commands.options import Asked, option
from ggbench.errors import UsageError

if TYPE_CHECKING:
    from ggbench.runs.experiment import Job

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
    from ggbench.experiments.tune.tuned import find_tuned, require_tuned, tuned_text
    from ggbench.runs.store.database import Store

    with Store.open() as store:
        found = [find_tuned(store, job.target) for job in jobs]
    changed, first_error = [], None
    for job, tuned in zip(jobs, found, strict=True):
        try:
            taken = require_tuned(job.target, tuned)
        except UsageError as error:
            if len(jobs) > 1:
                asked.output.notice(f"{error.message}: measured with the defaults; {error.hint}")
            first_error = first_error or error
            changed.append(job)
        else:
            asked.output.notice(f"{job.target.quant}: {tuned_text(taken)}")
            changed.append(replace(job, setup=taken.setup(job.setup, keeps_cache=keeps_cache)))
    if first_error is not None and not any(each and not each.stale for each in found):
        raise first_error
    return changed
