"""The start of runs and downloads: how models are loaded, and what is asked before.

A download of up to 1 GB proceeds, more asks, and nothing is downloaded offline. A search that may fill the memory asks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import NetworkError, UsageError
from ggbench.experiments.speed.record import SpeedSettings
from ggbench.experiments.tune.record import TuneSettings
from ggbench.models.sources import CONFIRM_ABOVE_BYTES
from ggbench.show.names import quant_names
from ggbench.tui.host import PullRequested, RunRequested, host_of
from ggbench.tui.run_requests import QualityAsked, QualityRequest, no_quality, speed_request, tune_request
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.task_screen import TaskScreen
from ggbench.tui.widgets.bars import StatusMessage
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.run_requests import RunRequest
    from ggbench.tui.screens.library_choice import Selection


class StartScreen(TaskScreen):
    """Finds the files of a selection, asks, and passes the request to the app, which goes on with it on any screen."""

    def __init__(self) -> None:
        super().__init__()
        self._quality = QualityAsked()
        """What was scored last, to begin with next time."""
        self._speed = SpeedSettings()
        """As `_quality`, of the cases that were measured last."""
        self._tune = TuneSettings()
        """As `_quality`, of the last search for settings."""

    def find_targets(
        self, request: RunRequest | None, selection: Selection, catalog: Catalog | None, *, is_here: bool
    ) -> None:
        """Look for what to run, or without a request, to download; `is_here`: it was planned for this machine."""
        services = host_of(self).services

        def find() -> Iterator[tuple[list[Target], tuple[Job, ...]]]:
            found = [(model, services.resolve(model, names, catalog)) for model, names in selection]
            if request is None:
                yield [target for _, targets in found for target in targets if target.download_bytes], ()
                return
            jobs = request.jobs(found, services.hub, catalog)
            targets = []
            for job in jobs:  # not all targets can be hashed
                needed = (job.target, *([job.base.target] if job.base is not None else []))
                targets += [target for target in needed if target not in targets]
            yield targets, jobs

        self.perform("start", find, lambda found: self._ask_first(request, *found, is_here=is_here))

    def ask_to_search(self, selection: Selection, budget: Budget, start: Callable[[LlamaConfig], None]) -> None:
        """Start a search with the options; without a memory limit ask first, offering one for this search."""
        from ggbench.tui.screens.dialogs import SearchDialog

        setup = host_of(self).setup
        if setup.memory_limit_bytes is not None:
            start(setup)
            return
        names = tuple(name for _, quants in selection for name in quants)

        def take(limited: LlamaConfig | None) -> None:
            if limited is not None:
                start(limited)

        self.app.push_screen(SearchDialog(names, budget, setup), take)

    def ask_for_quality(
        self, selection: Selection, here: Mapping[str, tuple[str, ...]], start: Callable[[RunRequest], None]
    ) -> None:
        """Ask what to score, and start; `here` are the quants on this disk by model, the largest first. A twin has no
        quality.
        """
        from ggbench.tui.screens.quality_dialog import QualityDialog

        twins = [f"{model} {names[0]}" for model, names in selection if model.startswith("synth:")]
        if twins:
            self.fail("start", no_quality(twins[0]))
            return
        setup, names = host_of(self).setup, tuple(name for _, quants in selection for name in quants)
        bases = here.get(selection[0][0], ()) if len(selection) == 1 else ()

        def take(asked: QualityAsked | None) -> None:
            if asked is not None:
                self._quality = asked
                start(QualityRequest(asked, setup, here))

        self.app.push_screen(QualityDialog(names, bases, setup, self._quality), take)

    def ask_for_speed(self, selection: Selection, start: Callable[[RunRequest], None]) -> None:
        """Ask which input lengths and batch sizes to measure, and start."""
        from ggbench.tui.screens.speed_dialog import SpeedDialog

        setup, names = host_of(self).setup, tuple(name for _, quants in selection for name in quants)

        def take(settings: SpeedSettings | None) -> None:
            if settings is not None:
                self._speed = settings
                start(speed_request(setup, settings))

        self.app.push_screen(SpeedDialog(names, self._speed), take)

    def ask_to_tune(self, selection: Selection, start: Callable[[RunRequest], None]) -> None:
        """Ask what should be faster, and start."""
        from ggbench.tui.screens.tune_dialog import TuneDialog

        setup, names = host_of(self).setup, tuple(name for _, quants in selection for name in quants)

        def take(settings: TuneSettings | None) -> None:
            if settings is not None:
                self._tune = settings
                start(tune_request(setup, settings))

        self.app.push_screen(TuneDialog(names, self._tune), take)

    def apply_tuned(self, selection: Selection, catalog: Catalog | None) -> None:
        """Set the options to what was found for the first of the selection; plans and runs then have them."""
        services, options = host_of(self).services, host_of(self).setup
        model, names = selection[0]

        def find() -> Iterator[tuple[LlamaConfig, str]]:
            from ggbench.experiments.tune.tuned import find_tuned, require_tuned, tuned_text

            target = services.resolve(model, names[:1], catalog)[0]
            with services.open_store() as store:
                tuned = require_tuned(target, find_tuned(store, target))
            setup = tuned.setup(options)
            assert isinstance(setup, LlamaConfig)
            yield setup, tuned_text(tuned)

        def take(found: tuple[LlamaConfig, str]) -> None:
            self._set_options(found[0])
            self.notify(f"{found[1]}; o shows the options", markup=False)

        self.perform("start", find, take)

    def action_choose_options(self) -> None:
        from ggbench.tui.screens.options import OptionsScreen

        def take(setup: LlamaConfig | None) -> None:
            if setup is not None:
                self._set_options(setup)

        self.app.push_screen(OptionsScreen(host_of(self).setup), take)

    def action_reset_options(self) -> None:
        self._set_options(LlamaConfig())

    def _set_options(self, setup: LlamaConfig) -> None:
        if setup != host_of(self).setup:
            host_of(self).setup = setup
            self.take_options()
            self.refresh_bindings()

    @abstractmethod
    def take_options(self) -> None:
        """Take in that the options changed."""

    @abstractmethod
    def show_started(self) -> None:
        """Show that a run or a download was started."""

    def _ask_first(
        self, request: RunRequest | None, targets: Sequence[Target], jobs: Sequence[Job], *, is_here: bool
    ) -> None:
        """`targets` are all whose files are needed, the bases among them."""
        download_bytes = sum(target.download_bytes for target in targets)

        def start(confirmed: bool | None) -> None:
            if not confirmed:
                return
            self.show_started()
            if request is None:
                self.post_message(PullRequested(targets))
                self.query_one(StatusMessage).show(f"downloading {size}; press 4 for progress")
                return
            other_card = "" if is_here else "this is measured on this machine, not on the card you planned for"
            for notice in filter(None, (other_card, request.notice)):
                self.notify(notice, markup=False)
            self.post_message(RunRequested(jobs))

        size = format_bytes(download_bytes)
        if not targets:
            hint = "twins are written when they are measured; the other files are already on this disk"
            self.fail("start", UsageError("nothing to download", hint))
        elif download_bytes and host_of(self).services.hub.offline:
            message = f"{size} must be downloaded, but ggbench is offline"
            hint = "twins need no network: see synth: on the left"
            self.fail("start", NetworkError(message, hint))
        elif download_bytes <= CONFIRM_ABOVE_BYTES:
            start(confirmed=True)
        else:
            names = ", ".join(dict.fromkeys(quant_names([target.subject for target in targets])))
            question = f"Download {size} into Hugging Face's cache: {names}?"
            self.app.push_screen(ConfirmScreen(question, "Download"), start)
