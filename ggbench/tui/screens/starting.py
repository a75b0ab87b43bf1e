"""Keys of the Library that start runs and downloads, and their dialogs.

Downloads above 1 GB, and searches that may fill the memory, ask first; nothing is downloaded offline.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ggbench.errors import GgbenchError, NetworkError, StoreError, UsageError
from ggbench.show.names import quant_names
from ggbench.tui.host import host_of
from ggbench.tui.library import Selection
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.planning import PlanScreen
from ggbench.units import counted, format_bytes

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.tui.screens.measure import Choices, MeasureDialog, RunRequest


class StartScreen(PlanScreen):
    """Keys apply to the marked quants or, without marks, to the one at the cursor.

    Started jobs continue on any screen.
    """

    choices: Choices = {}  # noqa: RUF012 - replaced as a whole
    """The last of the measure dialog."""

    def action_measure(self) -> None:
        """Ask what to measure of the selection."""
        from ggbench.tui.screens.measure import Chosen, MeasureDialog

        library = self.library
        selection, entry = library.selection(self.chosen), library.entry
        if selection is None or entry is None:
            self.notify("nothing to measure: choose a model and one of its quants", severity="warning")
            return
        names = selection[1]
        title = f"{names[0] if len(names) == 1 else counted(len(names), 'quant')} of {entry.title}"
        if self.elsewhere:
            title += f" on this computer, not {self.elsewhere}"
        rows = [library.rows[name] for name in names if name in library.rows]
        chosen = Chosen(title, selection, rows, library.planned_setup(names), bool(self.elsewhere))
        dialog = MeasureDialog(chosen, self.choices, lambda request: self.find_targets(request, selection))
        self.app.push_screen(dialog, lambda request: self.drop("start") if request is None else None)

    @property
    def _measure_dialog(self) -> MeasureDialog | None:
        from ggbench.tui.screens.measure import MeasureDialog

        return self.app.screen if isinstance(self.app.screen, MeasureDialog) else None

    def fail(self, task: str, error: GgbenchError) -> None:
        """Show in its dialog why a measurement cannot start."""
        if task == "start" and (dialog := self._measure_dialog) is not None:
            dialog.refuse(error)
        else:
            super().fail(task, error)

    def action_pull(self) -> None:
        if selection := self.library.selection(self.chosen):
            self.find_targets(None, selection)

    def find_targets(self, request: RunRequest | None, selection: Selection) -> None:
        """Find the targets to run, or to download if there is no request; then ask, and queue them."""
        services, catalog = host_of(self).services, self.catalog

        def find() -> Iterator[tuple[list[Target], list[Job], str]]:
            from ggbench.show.listed_runs import measuring_elsewhere  # imports numpy

            if request is None:
                wanted = services.resolve(*selection, catalog)
                yield [target for target in wanted if target.download_bytes], [], ""
                return
            elsewhere = ""
            with contextlib.suppress(StoreError), services.open_store() as store:
                elsewhere = measuring_elsewhere(store)
            jobs = request.jobs(services, selection, catalog)
            if not request.experiment.needs_download:
                yield [], jobs, elsewhere
                return
            targets = []
            for job in jobs:  # some targets cannot be hashed
                needed = (job.target, *([job.base.target] if job.base is not None else []))
                targets += [target for target in needed if target not in targets]
            yield targets, jobs, elsewhere

        self.perform("start", find, lambda found: self._ask_to_start(request, *found))

    def _ask_to_start(
        self, request: RunRequest | None, targets: Sequence[Target], jobs: Sequence[Job], elsewhere: str
    ) -> None:
        """`targets` are all with needed files, including the bases; `elsewhere` describes another ggbench's run."""
        from ggbench.commands.downloads import CONFIRM_ABOVE_BYTES

        if not targets and request is None:
            hint = "twins are written when they are measured; the other files are already on this disk"
            self.fail("start", UsageError("nothing to download", hint))
            return
        to_download = [target for target in targets if target.download_bytes]
        size = format_bytes(sum(target.download_bytes for target in to_download))
        if to_download and host_of(self).services.hub.offline:
            message = f"{size} must be downloaded, but ggbench is offline"
            self.fail("start", NetworkError(message, "a twin needs no network: b offers it for catalog models"))
            return
        doubts = [f"{elsewhere[0].upper()}{elsewhere[1:]}."] if elsewhere else []
        if sum(target.download_bytes for target in to_download) > CONFIRM_ABOVE_BYTES:
            names = ", ".join(dict.fromkeys(quant_names([target.subject for target in to_download])))
            doubts.append(f"{size} will be downloaded into Hugging Face's cache: {names}.")
        self._start_unless(doubts, request, targets, jobs)

    def _start_unless(
        self, doubts: Sequence[str], request: RunRequest | None, targets: Sequence[Target], jobs: Sequence[Job]
    ) -> None:
        """Start at once, or after a question if there are doubts."""
        if (dialog := self._measure_dialog) is not None:
            self.choices = dialog.choices
            dialog.start()

        def start(confirmed: bool | None) -> None:
            if confirmed:
                self._start(request, targets, jobs)

        if doubts:
            self.app.push_screen(ConfirmScreen(f"{' '.join(doubts)} Start?", "Start", is_harmless=True), start)
        else:
            start(confirmed=True)

    def _start(self, request: RunRequest | None, targets: Sequence[Target], jobs: Sequence[Job]) -> None:
        self.library.marks.clear()
        self.show_rows()
        if request is None:
            host_of(self).pull_queue.add(targets)
            self.notify("downloading: 2 shows the progress")
            return
        queue = host_of(self).run_queue
        was_busy = queue.is_busy
        queue.add(jobs)
        if was_busy:
            self.notify("queued: 2 shows the queue")
        else:
            self.app.switch_mode("run")
