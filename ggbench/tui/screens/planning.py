"""The plan behind the Library, of a model on this machine or another card, and the runs and downloads that it starts.

Planning is slow, so it runs in threads, and only the chosen model is planned. The latest request wins: results of
earlier ones are dropped. Downloads above 1 GB ask first; nothing is downloaded offline.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import on

from ggbench.commands.budget_options import BudgetOptions
from ggbench.decisions.pick.needs import Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, NetworkError, StoreError, UsageError
from ggbench.show.names import quant_names
from ggbench.text import sanitize
from ggbench.tui.host import RunStored, TaskScreen, host_of, runs_of
from ggbench.tui.library import Library, Selection
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.widgets.bars import machine_text
from ggbench.units import counted, format_bytes

if TYPE_CHECKING:
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.runs.store.database import Store
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import LibraryPlanner
    from ggbench.tui.quant_rows import QuantRow
    from ggbench.tui.screens.measure import Choices, MeasureDialog, RunRequest


class PlanScreen(TaskScreen):
    """Plans the chosen model again when the needs, the card, the options or the stored runs change.

    Keys apply to the marked quants or, without marks, to the one at the cursor; what they start goes on.
    """

    choices: Choices = {}  # noqa: RUF012 - replaced as a whole
    """The last of the measure dialog."""

    def __init__(self) -> None:
        super().__init__()
        self.library = Library()
        self.memory = BudgetOptions()
        self.catalog: Catalog | None = None
        self.planner: LibraryPlanner | None = None
        self.budget: Budget | None = None
        """The memory to plan for; both are None until it is read."""
        self.is_planning = False
        self._best_for: tuple[Needs, Budget] | None = None
        """What the best models were last found for."""
        self._is_draw_due = False
        self._is_stale = False
        """Whether a run was stored or a file downloaded since the plan, while another mode was shown."""

    @property
    @abstractmethod
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if the table is empty."""

    @abstractmethod
    def show_rows(self) -> None:
        """Draw the quants, and the state of the plan."""

    @abstractmethod
    def show_best(self, pick: Pick | None) -> None:
        """Show the pick among the current models; None drops that of a former machine."""

    @property
    def elsewhere(self) -> str:
        """The described machine that is planned for; empty for this one."""
        return " + ".join(filter(None, (*self.memory.gpu, self.memory.ram)))

    def on_mount(self) -> None:
        self.app.mode_change_signal.subscribe(self, lambda _mode: self._plan_if_stale())

    def on_unmount(self) -> None:
        if self.planner is not None:
            self.planner.close()

    def read_machine(self) -> None:
        """Read the memory to plan for, then plan; the first call makes the planner."""
        services, setup, memory = host_of(self).services, host_of(self).setup, self.memory
        planner = self.planner

        def read() -> Iterator[tuple[LibraryPlanner, Budget]]:
            made = planner
            for budget in services.machine_budgets(memory, setup):
                made = made or services.make_planner(services)
                yield made, budget

        def take(machine: tuple[LibraryPlanner, Budget]) -> None:
            self.planner, self.budget = machine
            self.replan()

        self.perform("machine", read, take)

    @on(RunStored)
    def _take_results(self) -> None:
        """Plan again with what was measured, once the Library is shown."""
        self.forget_best()
        self.plan_when_shown()

    def plan_when_shown(self) -> None:
        self._is_stale = True
        self._plan_if_stale()

    def _plan_if_stale(self) -> None:
        """Plan if this screen is shown, if only below a dialog."""
        if self._is_stale and self in self.app.screen_stack:
            self.replan()

    def action_edit_needs(self) -> None:
        from ggbench.tui.screens.forms import PICK, SettingsDialog

        dialog = SettingsDialog(PICK, self.library.needs)
        self.app.push_screen(dialog, lambda chosen: self._take_needs(*chosen) if chosen else None)

    def _take_needs(self, needs: Needs) -> None:
        if needs != self.library.needs:
            self.library.needs = needs
            for texts in self.choices.values():
                texts.pop("workload", None)  # which the dialog takes from the needs
            self.replan()

    def action_choose_memory(self) -> None:
        from ggbench.tui.screens.pickers import MemoryPicker

        self.app.push_screen(MemoryPicker(), self._take_memory)

    def _take_memory(self, memory: BudgetOptions | None) -> None:
        if memory is not None:
            self.memory = replace(self.memory, gpu=memory.gpu, ram=memory.ram)
            self._read_again()

    def action_choose_options(self) -> None:
        from ggbench.tui.screens.forms import SettingsDialog, options_form

        dialog = SettingsDialog(options_form(), host_of(self).setup, self.memory)
        self.app.push_screen(dialog, lambda chosen: self._take_options(*chosen) if chosen else None)

    def _take_options(self, setup: LlamaConfig, memory: BudgetOptions) -> None:
        """Plan with other options, which may change the free memory."""
        library, host = self.library, host_of(self)
        if (setup, memory) == (host.setup, self.memory):
            return
        if setup.n_ctx != library.options.n_ctx:
            library.needs = replace(library.needs, given_n_ctx=None)
        host.setup, self.memory, library.options = setup, memory, setup
        self._read_again()

    def _read_again(self) -> None:
        self.library.forget()
        self.drop("plan")  # otherwise rows of the former memory would arrive
        self.is_planning = True
        self.show_rows()
        self.read_machine()

    def replan(self, *, begins: bool = True) -> None:
        """Plan the chosen model or, unless it `begins`, only stop planning another."""
        self.drop("plan")
        self.problems.pop("store", None)
        self.is_planning = self._is_stale = False
        planner, budget = self.planner, self.budget
        if planner is not None and budget is not None:
            host_of(self).machine_text = machine_text(budget)
            if begins and self.library.entry is not None and self.library.entry.model:
                self._plan(planner, self.library.entry.model, self.library.entry.quants, budget)
        self.show_rows()
        self.find_best()

    def forget_best(self) -> None:
        """Have the next plan find the best models again."""
        self._best_for = None

    def find_best(self) -> None:
        """Find the models to run on this machine for the needs, once the list of models is read: that comes first."""
        planner, budget, library, runs = self.planner, self.budget, self.library, runs_of(self)
        is_measuring = runs is not None and runs.is_busy  # which the search would disturb, and its end renews
        if self._best_for is not None and self._best_for[1] != budget:
            self.forget_best()
            self.drop("best")
            self.show_best(None)
        if planner is None or budget is None or self.catalog is None or is_measuring:
            return
        asked = library.all_needs, budget
        if asked == self._best_for:
            return
        self._best_for = asked

        def steps() -> Iterator[Pick | None]:
            with self._results() as store:
                yield from planner.best_here(library.request(budget), store)

        self.perform("best", steps, lambda pick: self.show_best(pick) if pick is not None else None)

    def _plan(self, planner: LibraryPlanner, model: str, quants: Sequence[str], budget: Budget) -> None:
        library = self.library

        def steps() -> Iterator[Candidate | Pick | None]:
            from ggbench.decisions.pick.choose import best_way
            from ggbench.decisions.pick.order import check
            from ggbench.tui import quant_rows  # noqa: F401 - imported here, as it would hold up a key

            request, pick = library.request(budget), None

            def sized(
                made: Generator[tuple[Candidate, ...], None, Pick | None],
            ) -> Iterator[tuple[Candidate, ...]]:
                nonlocal pick
                pick = yield from made

            with self._results() as store, closing(planner.decide(model, quants, request, store)) as made:
                for candidates in sized(made):
                    yield best_way([check(each, request.needs) for each in candidates], request.needs)
            yield pick
            yield None

        def take(step: Candidate | Pick | None) -> None:
            from ggbench.decisions.pick.record import Candidate

            if step is None:  # the end
                self.is_planning = False
            elif isinstance(step, Candidate):
                library.add(step)
            else:
                library.take(step)
            if not self._is_draw_due:
                self._is_draw_due = True
                self.call_later(self._draw)  # once for all rows that have arrived by then

        self.is_planning = True
        self.perform("plan", steps, take)

    def _draw(self) -> None:
        self._is_draw_due = False
        self.show_rows()

    @contextmanager
    def _results(self) -> Iterator[Store | None]:
        """Open the results; if they cannot be read, say so and plan without them."""
        try:
            store = host_of(self).services.open_store()
        except GgbenchError as error:
            self.call_later(self.fail, "store", error)
            yield None
        else:
            with store:
                yield store

    def action_measure(self) -> None:
        """Ask what to measure of the selection; list those of a model on the Hub first."""
        from ggbench.tui.screens.measure import Chosen, MeasureDialog

        library = self.library
        selection, entry = library.selection(self.chosen), library.entry
        if selection is None or entry is None:
            if entry is not None and entry.needs_network and not self.is_planning:
                self.replan()
            else:
                self.notify("nothing to measure: choose a model and one of its quants", severity="warning")
            return
        names = selection[1]
        title = f"{names[0] if len(names) == 1 else counted(len(names), 'quant')} of {entry.title}"
        if self.elsewhere:
            title += f" on this computer, not {self.elsewhere}"
        rows = [library.rows[name] for name in names if name in library.rows]
        setup, workload = library.planned_setup(names), library.needs.workload.name
        chosen = Chosen(title, selection, rows, setup, workload, bool(self.elsewhere))
        dialog = MeasureDialog(chosen, self.choices, lambda request: self.find_targets(request, selection))
        self.app.push_screen(dialog, lambda request: self.drop("start") if request is None else None)

    @property
    def _measure_dialog(self) -> MeasureDialog | None:
        from ggbench.tui.screens.measure import MeasureDialog

        return self.app.screen if isinstance(self.app.screen, MeasureDialog) else None

    def fail(self, task: str, error: GgbenchError) -> None:
        """Show why nothing starts in its dialog, or as the outcome of the key."""
        if task != "start":
            super().fail(task, error)
        elif (dialog := self._measure_dialog) is not None:
            dialog.refuse(error)
        else:
            self.notify(sanitize(f"✗ {error.line}"), markup=False)

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
            with suppress(StoreError), services.open_store() as store:
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
