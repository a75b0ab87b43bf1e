"""From options to finished trials, for the commands that measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggbench.catalog.selector import Target
from ggbench.cli.live import follow
from ggbench.cli.output import Output
from ggbench.errors import ExitCode
from ggbench.experiments.rig import make_rig
from ggbench.experiments.settings import TrialSettings
from ggbench.experiments.trial import run_trials
from ggbench.records import Bandwidth, Outcome, Row
from ggbench.store.database import Store

_EXIT_CODES = {
    Outcome.COMPLETED: ExitCode.DONE,
    Outcome.OUT_OF_MEMORY: ExitCode.DOES_NOT_FIT,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}


def measure(
    targets: Sequence[Target],
    settings: TrialSettings,
    output: Output,
    *,
    bandwidth: Bandwidth | None,
    timeout_s: float | None,
) -> list[Row]:
    """Run the trials, drawing their progress; the rows of those that began.

    Raises what kept the only target from starting.
    """
    with Store.open() as store:
        for notice in store.notices:
            output.notice(notice)
        rig = make_rig(store, given_bandwidth=bandwidth, timeout_s=timeout_s)
        finished = follow(run_trials(rig, tuple(targets), settings), output, rig.cancel)
    if len(targets) == 1 and finished and finished[0].error is not None:
        raise finished[0].error
    return [record.row for record in finished]


def exit_code_of(rows: Iterable[Row]) -> ExitCode:
    """0 where any row is complete and none was cancelled, else the first row's own."""
    outcomes = [row.outcome for row in rows]
    if Outcome.CANCELLED in outcomes or not outcomes:
        return ExitCode.INTERRUPTED
    if Outcome.COMPLETED in outcomes:
        return ExitCode.DONE
    return _EXIT_CODES.get(outcomes[0], ExitCode.ENGINE_FAILED)
