"""From options to finished trials, for the commands that measure."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from ggbench.catalog.selector import Target
from ggbench.cli.downloads import INTERRUPTED, interruptible
from ggbench.cli.gpu_options import tell_ignored_options
from ggbench.cli.live import follow
from ggbench.cli.notices import tell_failures, tell_memory_use, tell_store_notices
from ggbench.cli.output import Output
from ggbench.errors import ExitCode, StoreError
from ggbench.experiments.bench import run_bench
from ggbench.experiments.maxctx import SEARCH_TIMEOUT_S, MaxctxSettings
from ggbench.experiments.progress import TrialFinished
from ggbench.experiments.rig import make_rig
from ggbench.experiments.settings import TrialSettings
from ggbench.experiments.trial import run_trials
from ggbench.plain import plain
from ggbench.records.outcome import Outcome
from ggbench.records.setup import KV_CELLS
from ggbench.records.speed import Bandwidth
from ggbench.store.database import Store

_EXIT_CODES = {
    Outcome.COMPLETED: ExitCode.DONE,
    Outcome.OUT_OF_MEMORY: ExitCode.DOES_NOT_FIT,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a command's trials."""

    rows: list[Row]
    exit_code: ExitCode
    store_error: StoreError | None
    """Why the store does not have all of it."""

    def leave(self, ctx: click.Context) -> None:
        """End the command, once the rows are shown, with its exit code or the store's error."""
        if self.store_error is not None:
            raise self.store_error
        ctx.exit(self.exit_code)


def measure(
    targets: Sequence[Target],
    settings: TrialSettings,
    output: Output,
    *,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
    maxctx: bool = False,
) -> Measured:
    """Run the trials, drawing their progress. Raises what kept the only target from starting.

    With `maxctx`, each is followed by the search for its largest context.
    """
    with Store.open() as store:
        tell_store_notices(store, output)
        silence_s = timeout_s or (SEARCH_TIMEOUT_S if maxctx else None)
        is_download = any(target.download_bytes for target in targets)
        with interruptible(output) if is_download else contextlib.nullcontext():
            rig = make_rig(store, given_bandwidth=bandwidth, timeout_s=silence_s)
        if maxctx:
            tell_memory_use(settings.config, output)
        rig = tell_ignored_options(rig, settings.config, output)
        run = run_bench if maxctx else run_trials
        finished = follow(run(rig, tuple(targets), settings), output, rig.cancel)
    if len(targets) == 1 and finished and finished[0].error is not None:
        raise finished[0].error
    if len(finished) == len(targets) == 1 and (hint := _hint(targets[0], finished[0].row, settings.n_ctx, maxctx)):
        output.notice(f"Hint: {hint}")
    if output.quiet:
        tell_failures(record.row for record in finished)
    was_measuring = finished and finished[-1].row.outcome is Outcome.CANCELLED
    if rig.cancel.is_set() and not was_measuring and any(each.download_bytes for each in targets[len(finished) :][:1]):
        output.notice(INTERRUPTED)
    return Measured(
        rows=[record.row for record in finished],
        exit_code=ExitCode.INTERRUPTED if rig.cancel.is_set() else _exit_code_of(finished),
        store_error=next((record.store_error for record in finished if record.store_error is not None), None),
    )


def _hint(target: Target, row: Row, n_ctx: int, was_searched: bool) -> str:
    """What to do about the end of an only trial; empty where it has none that anybody could do something about."""
    match row.outcome:
        case Outcome.OUT_OF_MEMORY:
            return _out_of_memory_hint(target, row, n_ctx, was_searched)
        case Outcome.TIMED_OUT:
            return "--timeout gives the worker longer"
        case Outcome.FAILED:
            return "the reason is llama.cpp's own; other options or another quant may do"
        case Outcome.CRASHED if "CUDA error" in row.reason:
            return "the driver may be too old for this build of llama.cpp, or the build not for this GPU"
        case Outcome.CRASHED:
            return "the file may be broken, or llama.cpp itself: see whether another quant crashes too"
    return ""


def _out_of_memory_hint(target: Target, row: Row, n_ctx: int, was_searched: bool) -> str:
    less = ["a smaller quant"]
    has_gpu = bool(row.environment and row.environment.gpus) or any(not each.is_host for each in row.buffers)
    if row.config.n_gpu_layers and has_gpu:
        less.append("fewer layers on the GPU (-ngl)")
    if row.buffers and {row.config.type_k, row.config.type_v} & {"f16", "f32", "bf16"}:
        less.append("--type-k q8_0 --type-v q8_0")
    needs_less = f"{' or '.join(less)} needs less"
    # Without a buffer not even the weights fitted, and a search asks for no smaller context than this.
    if was_searched or not row.buffers or n_ctx <= KV_CELLS:
        return needs_less
    search = MaxctxSettings(replace(row.config, n_ctx=None)).command_for(target)
    return f"{plain(search)} finds the n_ctx that fits; {needs_less}"


def _exit_code_of(finished: Sequence[TrialFinished]) -> ExitCode:
    """0 where any trial is complete, else what became of the first."""
    if any(record.row.outcome is Outcome.COMPLETED for record in finished):
        return ExitCode.DONE
    first = finished[0]
    return first.error.exit_code if first.error else _EXIT_CODES.get(first.row.outcome, ExitCode.ENGINE_FAILED)
