"""From options to certificates, with the bracket closing on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from ggbench.catalog.selector import Target
from ggbench.cli.downloads import INTERRUPTED
from ggbench.cli.gpu_options import tell_ignored_options
from ggbench.cli.live import interrupt_sets
from ggbench.cli.notices import tell_failures, tell_memory_use, tell_store_notices
from ggbench.cli.output import Output
from ggbench.cli.transfer import Preparation, download_lines
from ggbench.engine.process import WorkerProcess
from ggbench.errors import ExitCode
from ggbench.experiments.bracket_text import answer, ending, question
from ggbench.experiments.maxctx import SEARCH_TIMEOUT_S, MaxctxSettings, run_maxctx
from ggbench.experiments.progress import FilePrepared, ModelLoading, TrialStarted
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import (
    FarEndFilling,
    ProbeFinished,
    ProbeStarted,
    SearchFinished,
    SearchProgress,
)
from ggbench.machine.cpu import default_threads
from ggbench.machine.environment import environment
from ggbench.records.outcome import Outcome
from ggbench.records.run import Certificate
from ggbench.store.database import Store
from ggbench.units import format_percent

_EXIT_CODES = {
    Outcome.COMPLETED: ExitCode.DONE,
    Outcome.OUT_OF_MEMORY: ExitCode.DOES_NOT_FIT,
    Outcome.CANCELLED: ExitCode.INTERRUPTED,
}


def search(
    targets: Sequence[Target],
    settings: MaxctxSettings,
    output: Output,
    *,
    timeout_s: float | None,
    every: bool,
) -> list[SearchFinished]:
    """Search for each target, drawing the progress; the first Ctrl-C ends it with what it has.

    `every` says that the command goes on after a search that has an error, and does not end with it.
    One that it ends while its file is downloaded has no certificate, and a notice that nothing is lost.
    """
    finished: list[SearchFinished] = []
    was_downloading = False
    with Store.open() as store:
        tell_store_notices(store, output)
        tell_memory_use(settings.config, output)
        rig = tell_ignored_options(make_rig(timeout_s or SEARCH_TIMEOUT_S, store), settings.config, output)
        view = _Silent() if output.quiet else _Bar(output) if sys.stderr.isatty() else _Lines(output)
        progress = run_maxctx(rig, tuple(targets), settings)
        with interrupt_sets(rig.cancel), contextlib.closing(view), contextlib.closing(progress):
            for record in progress:
                if isinstance(record, SearchFinished):
                    if record.certificate.outcome is Outcome.CANCELLED and targets[len(finished)].download_bytes:
                        was_downloading = True
                        break
                    finished.append(record)
                    if record.error is not None and not every:
                        break  # the command ends with it
                view.draw(record)
    if was_downloading:
        output.notice(INTERRUPTED)
    if output.quiet:
        tell_failures(record.certificate for record in finished if every or record.error is None)
    return finished


def make_rig(timeout_s: float, store: Store | None = None) -> Rig:
    """A rig that needs no bandwidth; without a store it keeps nothing."""

    def launch(cancel: threading.Event) -> WorkerProcess:
        return WorkerProcess(cancel, timeout_s)

    return Rig(launch=launch, threads=default_threads(), describe_environment=environment, store=store)


def exit_code_of(certificates: Iterable[Certificate]) -> ExitCode:
    """0 where any search found a context and none was cancelled, else the first one's own."""
    outcomes = [certificate.outcome for certificate in certificates]
    if Outcome.CANCELLED in outcomes or not outcomes:
        return ExitCode.INTERRUPTED
    if Outcome.COMPLETED in outcomes:
        return ExitCode.DONE
    return _EXIT_CODES.get(outcomes[0], ExitCode.ENGINE_FAILED)


class _View(Protocol):
    def draw(self, record: SearchProgress) -> None: ...

    def close(self) -> None: ...


class _Silent:
    def draw(self, record: SearchProgress) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Lines:
    """A line for each real question, with the bracket that its answer leaves."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._download = download_lines(output)

    def draw(self, record: SearchProgress) -> None:
        match record:
            case TrialStarted():
                self._output.notice(f"[{record.index + 1}/{record.n_trials}] {record.model} {record.quant}")
                self._download = download_lines(self._output)
            case FilePrepared(done, total, is_download) if is_download:
                self._download.note(done, total)
            case ProbeFinished() if record.probe.kind != "dry":
                self._output.notice(f"  {answer(record)}")
            case SearchFinished():
                self._output.notice(f"  {ending(record.certificate)}")

    def close(self) -> None:
        """Nothing."""


class _Bar:
    """One line that moves, and a line above it for each real question that is answered."""

    def __init__(self, output: Output) -> None:
        self._console = output.console(stderr=True)
        self._status = self._console.status("")
        self._status.start()
        self._title = ""
        self._bracket = ""
        self._preparation = Preparation()

    def draw(self, record: SearchProgress) -> None:
        match record:
            case TrialStarted(model, quant, index, n_trials):
                self._title = f"[{index + 1}/{n_trials}] {model} {quant}"
                self._say("")
            case FilePrepared():
                self._say(self._preparation.text(record))
            case ModelLoading(_, share):
                self._say(f"loading, {format_percent(share)}")
            case ProbeStarted():
                self._bracket = question(record)
                self._say(self._bracket)
            case FarEndFilling(share):
                self._say(self._bracket if share >= 1 else f"{self._bracket}; {format_percent(share)} filled")
            case ProbeFinished() if record.probe.kind != "dry":
                self._console.print(f"  {answer(record)}", markup=False)
            case SearchFinished():
                self._console.print(f"{self._title}  {ending(record.certificate)}", markup=False)

    def _say(self, text: str) -> None:
        from rich.text import Text

        self._status.update(Text(f"{self._title}  {text}"))

    def close(self) -> None:
        self._status.stop()
