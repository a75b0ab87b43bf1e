"""Keys of the Library that start runs and downloads, and their dialogs.

Downloads above 1 GB, and searches that may fill the memory, ask first; nothing is downloaded offline.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.commands.downloads import CONFIRM_ABOVE_BYTES
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.errors import NetworkError, StoreError, Unsupported, UsageError
from ggbench.experiments.decode.record import N_GEN_AT_DEPTH, DecodeSettings
from ggbench.experiments.maxctx.record import MaxctxSettings
from ggbench.runs.run import Settings
from ggbench.show.listed_runs import measuring_elsewhere
from ggbench.show.names import quant_names
from ggbench.text import sanitize
from ggbench.tui.host import TaskScreen, host_of
from ggbench.tui.library import Library, QuantRow, Selection, decode_estimate
from ggbench.tui.screens import forms
from ggbench.tui.screens.dialogs import CardChoice, ConfirmScreen
from ggbench.tui.widgets.bars import StatusMessage
from ggbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.machine.records import MachineReading
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Job
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import Planner


Found: TypeAlias = "Sequence[tuple[str, tuple[Target, ...]]]"
"""Models, each with the targets of its quants."""


class ExperimentRequest(msgspec.Struct, frozen=True):
    """An experiment on each target. `notice` says how it differs from the plan; empty if it does not."""

    kind: str
    settings: Settings
    setup: LlamaConfig
    notice: str = ""
    engine: str = ""
    """Value of `--engine`; empty for ggbench's own llama.cpp."""

    def jobs(self, found: Found, hub: HubAccess, catalog: Catalog | None) -> list[Job]:
        """Return a job for each target. Raises UsageError for an engine that is not there, or cannot run it."""
        from ggbench.commands.options import run_by
        from ggbench.runs.experiment import Job, experiment_of

        experiment = experiment_of(self.kind)
        setup = run_by(self.engine, self.setup) if self.engine else self.setup
        wanted = [target for _, targets in found for target in targets]
        return [Job(experiment, target, target.setup(setup), self.settings) for target in wanted]


class QualityRequest(msgspec.Struct, frozen=True):
    """A quality run for each target, compared with a base of its model."""

    asked: forms.QualityAsked
    setup: LlamaConfig
    """The source of the KV cache types; chunks have their own n_ctx."""
    here: Mapping[str, tuple[str, ...]]
    """QUANT arguments of the quants on this disk, by model, as far as known."""
    notice: str = ""

    def jobs(self, found: Found, hub: HubAccess, catalog: Catalog | None) -> list[Job]:
        """Read the text, find the bases, and return a job for each target that is not its own base.

        Raises UsageError or BadFile if the text cannot be scored, NetworkError if it cannot be downloaded, Unsupported
        for a twin, and like `resolve`.
        """
        from ggbench.experiments.quality.measure import EXPERIMENT, largest_here, quality_jobs
        from ggbench.experiments.quality.record import QualitySettings
        from ggbench.experiments.quality.texts import WIKITEXT_2, find_text
        from ggbench.models.reference import parse_model
        from ggbench.models.targets import resolve
        from ggbench.paths import expand_path
        from ggbench.runs.experiment import Base

        asked, setup = self.asked, replace(self.setup, n_ctx=None)
        for _, targets in found:
            for target in targets:
                if target.served is not None:
                    EXPERIMENT.refuse_servers()
                if target.provenance == "twin":
                    raise no_quality(f"{target.model} {target.quant}")
        is_name = asked.text in ("", WIKITEXT_2)
        source, _ = find_text(asked.text or None if is_name else expand_path(asked.text), hub)
        n_seqs = max(1, setup.n_batch // asked.n_ctx)
        settings = QualitySettings(source, asked.n_ctx, asked.n_chunks, asked.within_s, n_seqs)
        jobs: list[Job] = []
        for model, targets in found:
            base = None
            if asked.base == forms.LARGEST:
                known = resolve(parse_model(model, *self.here.get(model, ())), hub=hub, catalog=catalog)
                base = largest_here([*targets, *(each for each in known if each.provenance != "twin")])
            elif asked.base != forms.NO_BASE:
                base = Base(resolve(parse_model(model, asked.base), hub=hub, catalog=catalog)[0])
            caches, is_named = ((setup.type_k, setup.type_v),), asked.base != forms.LARGEST
            jobs += quality_jobs(targets, setup, settings, base, caches, is_base_named=is_named)
        return jobs


RunRequest: TypeAlias = ExperimentRequest | QualityRequest


def no_quality(name: str) -> Unsupported:
    return Unsupported(
        f"{sanitize(name)} is a twin: untrained weights have no quality",
        "press Q on the quants of a published file",
    )


def decode_request(setup: LlamaConfig, settings: DecodeSettings) -> ExperimentRequest:
    """Return a decode with the setup's planned n_ctx, or with just enough if its tokens do not fit."""
    needed, planned = whole_steps(settings.n_ctx_needed), setup.n_ctx
    if planned is None or planned >= needed:
        return ExperimentRequest("decode", settings, setup)
    notice = (
        f"{format_count(settings.n_gen)} tokens need n_ctx {format_count(needed)}; {format_count(planned)} was planned"
    )
    return ExperimentRequest("decode", settings, replace(setup, n_ctx=None), notice)


class MachineToPlan(msgspec.Struct, frozen=True):
    planner: Planner
    budget: Budget
    reading: MachineReading


class StartScreen(TaskScreen):
    """Keys apply to the marked quants of all models or, without marks, to the one at the cursor.

    Started jobs continue on any screen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.library = Library()
        self.card = CardChoice()
        self.catalog: Catalog | None = None
        self.machine: MachineToPlan | None = None
        """None until it is read."""
        self._answers: dict[str, Any] = {}
        """Each dialog's last answer, its initial value next time."""

    @property
    @abstractmethod
    def chosen(self) -> QuantRow | None:
        """The quant at the cursor; None if there is none."""

    @abstractmethod
    def show_rows(self) -> None:
        """Draw the quants."""

    @abstractmethod
    def take_options(self) -> None:
        """Plan again because the options changed."""

    @property
    def budget(self) -> Budget | None:
        """The memory to plan for: the chosen card's, or this machine's; None until read."""
        if not self.card.is_here:
            return self.card.budget(host_of(self).setup.memory_limit_bytes)
        return None if self.machine is None else self.machine.budget

    @property
    def selection(self) -> Selection:
        return self.library.selection(self.chosen)

    def action_decode(self) -> None:
        if selection := self.selection:
            entry, planned = self.library.entry, self.library.rows
            names = [name for model, names in selection for name in names if entry and model == entry.model]
            rows = [planned[name] for name in names if name in planned]
            self._ask_to_decode(self.library.planned_setup(selection), selection, rows, self._what())

    def _ask_to_decode(self, setup: LlamaConfig, selection: Selection, rows: Sequence[QuantRow], what: str) -> None:
        """Ask how many tokens to decode, showing the time; `rows` are the quants with a plan."""
        host, budget = host_of(self), self.budget if self.card.is_here else None
        n_unknown = sum(len(names) for _, names in selection) - len(rows)

        def request(settings: DecodeSettings) -> ExperimentRequest:
            return decode_request(setup, settings)

        def settle(settings: DecodeSettings) -> DecodeSettings:
            """Use `decode -d`'s 128 tokens at each depth unless another number was requested."""
            is_default = settings.n_gen == DecodeSettings().n_gen
            return replace(settings, n_gen=N_GEN_AT_DEPTH) if settings.depths and is_default else settings

        def estimate(filled: DecodeSettings) -> str:
            settings = settle(filled)
            n_ctx = request(settings).setup.n_ctx or whole_steps(settings.n_ctx_needed)
            return decode_estimate(rows, settings, n_ctx, budget, n_unknown)

        def start(filled: DecodeSettings | None) -> None:
            if filled is not None:
                self.find_targets(request(settle(filled)), selection)

        self.app.push_screen(forms.SettingsDialog(forms.decode_form(estimate), DecodeSettings(host.n_gen), what), start)

    def action_search(self) -> None:
        """Search with the options; without a memory limit, ask first and offer to set one."""

        def start(setup: LlamaConfig | None) -> None:
            if setup is not None:
                self._start(ExperimentRequest("maxctx", MaxctxSettings(), replace(setup, n_ctx=None)))

        setup = host_of(self).setup
        if setup.memory_limit_bytes is not None:
            start(setup)
        elif self.selection and self.machine is not None:
            form = forms.search_form(self.machine.budget)
            self.app.push_screen(forms.SettingsDialog(form, setup, self._what()), start)

    def action_quality(self) -> None:
        entry, selection, setup = self.library.entry, self.selection, host_of(self).setup
        twins = [f"{model} {names[0]}" for model, names in selection if model.startswith("twin:")]
        if twins:
            self.fail("start", no_quality(twins[0]))
        elif entry is not None and selection:
            rows = sorted(self.library.rows.values(), key=lambda row: -(row.plan.file_bytes or 0))
            here = {entry.model: tuple(row.name for row in rows if row.is_here and not row.is_twin)}
            bases = here.get(selection[0][0], ()) if len(selection) == 1 else ()
            form = forms.quality_form(bases, setup)
            self._ask("quality", form, lambda asked: self._start(QualityRequest(asked, setup, here)), self._what())

    def action_ask(self, kind: str) -> None:
        """Ask, and measure with the options; each case creates its own context, whatever n_ctx is planned."""
        form: forms.Form[Any] = forms.SPEED if kind == "speed" else forms.TUNE
        setup = replace(host_of(self).setup, n_ctx=None)
        if self.selection:
            self._ask(kind, form, lambda settings: self._start(ExperimentRequest(kind, settings, setup)), self._what())

    def action_apply_tuned(self) -> None:
        """Set the options to those found for the first selected quant."""
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

    def action_choose_options(self) -> None:
        self.app.push_screen(forms.SettingsDialog(forms.OPTIONS, host_of(self).setup), self._set_options)

    def action_reset_options(self) -> None:
        self._set_options(LlamaConfig())

    def find_targets(self, request: RunRequest | None, selection: Selection) -> None:
        """Find the targets to run, or to download if there is no request; then ask, and queue them."""
        services, catalog, is_here = host_of(self).services, self.catalog, self.card.is_here
        if isinstance(request, ExperimentRequest):
            request = replace(request, engine=host_of(self).engine)

        def find() -> Iterator[tuple[list[Target], list[Job], str]]:
            found = [(model, services.resolve(model, names, catalog)) for model, names in selection]
            if request is None:
                yield [target for _, targets in found for target in targets if target.download_bytes], [], ""
                return
            elsewhere = ""
            with contextlib.suppress(StoreError), services.open_store() as store:
                elsewhere = measuring_elsewhere(store)
            jobs = request.jobs(found, services.hub, catalog)
            targets = []
            for job in jobs:  # some targets cannot be hashed
                needed = (job.target, *([job.base.target] if job.base is not None else []))
                targets += [target for target in needed if target not in targets]
            yield targets, jobs, elsewhere

        self.perform("start", find, lambda found: self._ask_to_download(request, *found, is_here=is_here))

    def _start(self, request: RunRequest | None) -> None:
        if selection := self.selection:
            self.find_targets(request, selection)

    def _ask(self, what_for: str, form: forms.Form[Any], start: Callable[[Any], object], of: str) -> None:
        def take(answer: object) -> None:
            if answer is not None:
                self._answers[what_for] = answer
                start(answer)

        self.app.push_screen(forms.SettingsDialog(form, self._answers.get(what_for, form.default), of), take)

    def _what(self) -> str:
        names = [name for _, quants in self.selection for name in quants]
        return names[0] if len(names) == 1 else f"{len(names)} quants"

    def _set_options(self, setup: LlamaConfig | None) -> None:
        if setup is not None and setup != host_of(self).setup:
            host_of(self).setup = setup
            self.take_options()
            self.refresh_bindings()

    def _ask_to_download(
        self,
        request: RunRequest | None,
        targets: Sequence[Target],
        jobs: Sequence[Job],
        elsewhere: str,
        *,
        is_here: bool,
    ) -> None:
        """`targets` are all with needed files, including the bases; `elsewhere` describes another ggbench's run."""
        download_bytes = sum(target.download_bytes for target in targets)
        size = format_bytes(download_bytes)

        def ask_to_join(confirmed: bool | None) -> None:
            if confirmed and elsewhere:
                question = f"{elsewhere[0].upper()}{elsewhere[1:]}. Start anyway?"
                self.app.push_screen(ConfirmScreen(question, "Start"), start)
            else:
                start(confirmed)

        def start(confirmed: bool | None) -> None:
            if not confirmed:
                return
            self.library.all_marks.clear()
            self.show_rows()
            if request is None:
                host_of(self).pull_queue.add(targets)
                self.query_one(StatusMessage).show(f"downloading {size}; press 4 for progress")
                return
            other_card = "" if is_here else "this runs on this machine, not on the card you planned for"
            for notice in filter(None, (other_card, request.notice)):
                self.notify(notice, markup=False)
            host_of(self).run_queue.add(jobs)
            self.app.switch_mode("run")

        if not targets:
            hint = "twins are written when they are measured; the other files are already on this disk"
            self.fail("start", UsageError("nothing to download", hint))
        elif download_bytes and host_of(self).services.hub.offline:
            message = f"{size} must be downloaded, but ggbench is offline"
            self.fail("start", NetworkError(message, "twins need no network: ggbench tui twin:MODEL"))
        elif download_bytes <= CONFIRM_ABOVE_BYTES:
            ask_to_join(confirmed=True)
        else:
            names = ", ".join(dict.fromkeys(quant_names([target.subject for target in targets])))
            question = f"Download {size} into Hugging Face's cache: {names}?"
            self.app.push_screen(ConfirmScreen(question, "Download"), ask_to_join)
