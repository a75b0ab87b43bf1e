"""What is said of settings that an earlier search found, and of those that are missing or stale."""

from __future__ import annotations

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.tune.document import ratio_text
from ggbench.experiments.tune.measure import EXPERIMENT
from ggbench.experiments.tune.record import TuneSettings, changes_text
from ggbench.experiments.tune.tuned import Tuned
from ggbench.models.selector import Target
from ggbench.runs.experiment import Job
from ggbench.text import plain


def tuned_text(tuned: Tuned) -> str:
    """Return `flash_attn off, as run 3 found: 1.47 ±0.03 times the speed of the defaults`."""
    if not tuned.changes:
        return f"run {tuned.run.run_id} found no settings that beat the defaults"
    gain = ratio_text(tuned.result.ratio)
    return f"{changes_text(tuned.changes)}, as run {tuned.run.run_id} found: {gain} times the speed of the defaults"


def require_tuned(target: Target, found: Tuned | None) -> Tuned:
    """Return what was found. Raises UsageError where nothing was, or where it is stale: what changed, what to do."""
    if found is not None and not found.stale:
        return found
    name = plain(f"{target.model} {target.quant}")
    command = EXPERIMENT.command(Job(EXPERIMENT, target, LlamaConfig(), TuneSettings()))
    if found is None:
        raise UsageError(f"no settings were found for {name} on this machine", f"{command} searches for them")
    changed = "; ".join(found.stale)
    raise UsageError(
        f"the settings that run {found.run.run_id} found for {name} are stale: changed since is {changed}",
        f"{command} searches again",
    )
