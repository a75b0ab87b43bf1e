"""The keys of the Library that start runs and downloads, and what is asked before.

A download of up to 1 GB proceeds, more asks, and nothing is downloaded offline. A search that may fill the memory asks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ggbench.commands.downloads import CONFIRM_ABOVE_BYTES
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import NetworkError, UsageError
from ggbench.experiments.maxctx.record import MaxctxSettings
from ggbench.show.names import quant_names
from ggbench.tui.forms import OPTIONS, PICK, SPEED, TUNE, Form, quality_form
from ggbench.tui.host import PullRequested, RunRequested, host_of
from ggbench.tui.library import Library, QuantRow, Selection
from ggbench.tui.run_requests import ExperimentRequest, QualityRequest, RunRequest, decode_request, no_quality
from ggbench.tui.screens.card_picker import CardChoice
from ggbench.tui.screens.dialogs import ConfirmScreen
from ggbench.tui.screens.task_screen import TaskScreen
from ggbench.tui.widgets.bars import StatusMessage
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.decisions.pick.needs import Needs
    from ggbench.decisions.pick.record import Candidate, Pick
    from ggbench.machine.records import MachineReading
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import Planner


class MachineToPlan(msgspec.Struct, frozen=True):
    """What was read of this machine, and what sizes quants for it or another."""

    planner: Planner
    budget: Budget
    reading: MachineReading


class StartScreen(TaskScreen):
    """Each key takes the marked quants of all models, or without marks the one at the cursor.

    The app goes on with what is started, whatever screen is shown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.library = Library()
        self.card = CardChoice()
        self.catalog: Catalog | None = None
        self.machine: MachineToPlan | None = None
        """None before it was read."""
        self._answers: dict[str, Any] = {}
        """What each dialog was last closed with, by what it is for; it begins with that next time."""

    @property
    @abstractmethod
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor."""

    @abstractmethod
    def show_rows(self) -> None:
        """Draw the quants as they are now."""

    @abstractmethod
    def take_options(self) -> None:
        """Take in that the options changed."""

    @property
    def budget(self) -> Budget | None:
        """The memory that is planned for: this machine's, None before it was read, or that of the chosen card."""
        if not self.card.is_here:
            return self.card.budget(host_of(self).setup.memory_limit_bytes)
        return None if self.machine is None else self.machine.budget

    @property
    def selection(self) -> Selection:
        """What a key takes."""
        return self.library.selection(self.chosen)

    def action_decode(self) -> None:
        self._start(decode_request(self.library.planned_setup(self.selection), host_of(self).n_gen))

    def action_search(self) -> None:
        """Search with the options; without a memory limit ask first, offering one for this search."""
        from ggbench.tui.screens.dialogs import SearchDialog

        def start(setup: LlamaConfig | None) -> None:
            if setup is not None:
                self._start(ExperimentRequest("maxctx", MaxctxSettings(), replace(setup, n_ctx=None)))

        setup = host_of(self).setup
        if setup.memory_limit_bytes is not None:
            start(setup)
        elif self.selection and self.machine is not None:
            what = self._what("{} quants, one after another")
            self.app.push_screen(SearchDialog(what, self.machine.budget, setup), start)

    def action_quality(self) -> None:
        """Ask what to score, and start. A twin has no quality."""
        entry, selection, setup = self.library.entry, self.selection, host_of(self).setup
        twins = [f"{model} {names[0]}" for model, names in selection if model.startswith("twin:")]
        if twins:
            self.fail("start", no_quality(twins[0]))
        elif entry is not None and selection:
            here = {entry.model: self.library.names_here()}
            bases = here.get(selection[0][0], ()) if len(selection) == 1 else ()
            self._ask(
                "quality",
                quality_form(bases, setup),
                lambda asked: self._start(QualityRequest(asked, setup, here)),
                self._what(),
            )

    def action_speed(self) -> None:
        self._ask_and_measure("speed", SPEED)

    def action_tune(self) -> None:
        self._ask_and_measure("tune", TUNE)

    def action_apply_tuned(self) -> None:
        """Set the options to what was found for the first of the selection; plans and runs then have them."""
        services, options, selection = host_of(self).services, host_of(self).setup, self.selection

        def find() -> Iterator[tuple[LlamaConfig, str]]:
            from ggbench.commands.load_options import require_tuned
            from ggbench.runs.experiment import experiment_of

            model, names = selection[0]
            target = services.resolve(model, names[:1], self.catalog)[0]
            with services.open_store() as store:
                tuned = require_tuned(target, experiment_of("tune").find_setup(store, target))
            setup = LlamaConfig.of(tuned.of(options))
            yield setup, tuned.text

        def take(found: tuple[LlamaConfig, str]) -> None:
            self._set_options(found[0])
            self.notify(f"{found[1]}; o shows the options", markup=False)

        if selection:
            self.perform("start", find, take)

    def action_pull(self) -> None:
        self._start(None)

    def action_pick(self) -> None:
        """Ask what is needed, and pick one of the quants of the chosen model."""
        from ggbench.tui.screens.pick import PickScreen, PickTask

        entry, budget, machine = self.library.entry, self.budget, self.machine
        if entry is None or not entry.model or budget is None or machine is None:
            return
        setup, services = self.library.options, host_of(self).services

        def choose(needs: Needs) -> Pick:
            from ggbench.decisions.pick.candidates import CACHE_TYPES, PickRequest, caches_of

            self._answers["pick"] = needs
            caches = caches_of([(name, name) for name in CACHE_TYPES], setup)
            with services.open_store() as store:
                return machine.planner.pick(entry.model, entry.quants, PickRequest(needs, budget, setup, caches), store)

        def measure(candidate: Candidate) -> None:
            planned = replace(setup, type_k=candidate.row.type_k, type_v=candidate.row.type_v, n_ctx=candidate.n_ctx)
            names = (candidate.selector or candidate.row.quant,)
            self.find_targets(decode_request(planned, host_of(self).n_gen), [(entry.model, names)])

        def pull(candidate: Candidate) -> None:
            if (file := candidate.to_run) is not None:  # of a twin the published file
                self.find_targets(None, [(file.model, (file.quant,))])

        task = PickTask(entry.title, budget, setup, choose, measure, pull)
        self._ask("pick", PICK, lambda needs: self.app.push_screen(PickScreen(task, needs)), entry.title)

    def action_choose_options(self) -> None:
        from ggbench.tui.screens.settings_dialog import SettingsDialog

        self.app.push_screen(SettingsDialog(OPTIONS, host_of(self).setup), self._set_options)

    def action_reset_options(self) -> None:
        self._set_options(LlamaConfig())

    def find_targets(self, request: RunRequest | None, selection: Selection) -> None:
        """Look for what to run, or without a request, to download; then ask, and pass it to the app."""
        services, catalog, is_here = host_of(self).services, self.catalog, self.card.is_here

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

        self.perform("start", find, lambda found: self._ask_to_download(request, *found, is_here=is_here))

    def _start(self, request: RunRequest | None) -> None:
        if selection := self.selection:
            self.find_targets(request, selection)

    def _ask(self, what_for: str, form: Form[Any], start: Callable[[Any], object], of: str) -> None:
        from ggbench.tui.screens.settings_dialog import SettingsDialog

        def take(answer: object) -> None:
            if answer is not None:
                self._answers[what_for] = answer
                start(answer)

        self.app.push_screen(SettingsDialog(form, self._answers.get(what_for, form.default), of), take)

    def _ask_and_measure(self, kind: str, form: Form[Any]) -> None:
        """Ask, and measure with the options; each case makes a context of its own, whatever n_ctx is planned."""
        setup = replace(host_of(self).setup, n_ctx=None)
        if self.selection:
            self._ask(kind, form, lambda settings: self._start(ExperimentRequest(kind, settings, setup)), self._what())

    def _what(self, several: str = "{} quants") -> str:
        names = [name for _, quants in self.selection for name in quants]
        return names[0] if len(names) == 1 else several.format(len(names))

    def _set_options(self, setup: LlamaConfig | None) -> None:
        if setup is not None and setup != host_of(self).setup:
            host_of(self).setup = setup
            self.take_options()
            self.refresh_bindings()

    def _ask_to_download(
        self, request: RunRequest | None, targets: Sequence[Target], jobs: Sequence[Job], *, is_here: bool
    ) -> None:
        """`targets` are all whose files are needed, the bases among them."""
        download_bytes = sum(target.download_bytes for target in targets)
        size = format_bytes(download_bytes)

        def start(confirmed: bool | None) -> None:
            if not confirmed:
                return
            self.library.clear_marks()
            self.show_rows()
            if request is None:
                self.post_message(PullRequested(targets))
                self.query_one(StatusMessage).show(f"downloading {size}; press 4 for progress")
                return
            other_card = "" if is_here else "this is measured on this machine, not on the card you planned for"
            for notice in filter(None, (other_card, request.notice)):
                self.notify(notice, markup=False)
            self.post_message(RunRequested(jobs))

        if not targets:
            hint = "twins are written when they are measured; the other files are already on this disk"
            self.fail("start", UsageError("nothing to download", hint))
        elif download_bytes and host_of(self).services.hub.offline:
            message = f"{size} must be downloaded, but ggbench is offline"
            self.fail("start", NetworkError(message, "twins need no network: see twin: on the left"))
        elif download_bytes <= CONFIRM_ABOVE_BYTES:
            start(confirmed=True)
        else:
            names = ", ".join(dict.fromkeys(quant_names([target.subject for target in targets])))
            question = f"Download {size} into Hugging Face's cache: {names}?"
            self.app.push_screen(ConfirmScreen(question, "Download"), start)
