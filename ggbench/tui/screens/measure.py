"""The dialog that starts every measurement: which experiment, how much, and with what engine."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static, Tab, Tabs

from ggbench.commands.measure_options import engine_offer, run_by
from ggbench.commands.options import given_record
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.errors import GgbenchError
from ggbench.fields import options_of, reproduce, stated_options
from ggbench.models.reference import parse_model
from ggbench.plugins import plugin_names
from ggbench.runs.experiment import experiment_of
from ggbench.sizing.fit import LONGEST
from ggbench.text import sanitize
from ggbench.tui.library import Selection
from ggbench.tui.quant_rows import QuantRow
from ggbench.tui.screens.forms import FormDialog, FormField, option_fields, read_text, write_text
from ggbench.tui.widgets.bars import key_links
from ggbench.units import counted, format_bytes, format_count, format_span

if TYPE_CHECKING:
    from ggbench.models.catalog import Catalog
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment, Job
    from ggbench.runs.run import Settings
    from ggbench.tui.host import Services


EXPERIMENTS = "ggbench.experiments"


Choices: TypeAlias = dict[str, dict[str, str]]
"""The texts that the fields of each experiment had last, the latest experiment at the end."""


class Chosen(msgspec.Struct, frozen=True):
    """The quants to measure."""

    title: str
    """Untrusted text."""
    selection: Selection
    rows: Sequence[QuantRow]
    """Those that have a plan."""
    setup: LlamaConfig
    workload: str
    """The workload of the needs."""
    is_elsewhere: bool = False
    """Whether the plans are of another machine than this, which measures."""

    @property
    def download_bytes(self) -> int:
        """Bytes of the planned quants that are not on this disk."""
        return sum(row.plan.file_bytes or 0 for row in self.rows if not (row.is_here or row.is_twin))


class RunRequest(msgspec.Struct, frozen=True):
    """An experiment with its options, for all chosen quants."""

    experiment: Experiment
    options: Settings
    """A record of the experiment's `request_type`."""
    setup: LlamaConfig
    is_twin: bool = False
    """Whether to measure twins in place of files that are not on this disk."""

    def jobs(self, services: Services, selection: Selection, catalog: Catalog | None) -> list[Job]:
        """Return the jobs for the chosen quants. Raises GgbenchError."""
        model, names = selection
        if self.is_twin:
            targets: Sequence[Target] = [services.find_file_or_twin(model, name, catalog) for name in names]
        else:
            targets = services.resolve(model, names, catalog)
        ref = parse_model(model, *names)
        return self.experiment.jobs(self.options, ref, targets, self.setup, services.hub)


def _engine(text: str) -> str:
    """Return the text, checked like `--engine`. Raises UsageError."""
    run_by(text, LlamaConfig())
    return text


_WHAT = "what"
_FILE = "file"
_ENGINE = FormField(
    "engine", "engine", "ggbench's; or llama-server", _engine,
    about="Program that runs the model: empty for ggbench's llama.cpp, or your own llama-server, found on PATH or as "
    "llama-server=PATH; flags may follow the path.",
)  # fmt: skip


class MeasureDialog(FormDialog[RunRequest | None]):
    """Returns the request, or None if closed; open until its jobs are made."""

    AUTO_FOCUS = "#lines Input, #lines Choice, #lines Switch"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "apply", "Start", priority=True)]

    def __init__(self, chosen: Chosen, choices: Choices, find: Callable[[RunRequest], object]) -> None:
        """`find` begins to make the jobs of a request; then comes `start`, or `refuse` with the reason."""
        super().__init__()
        self._find = find
        self._request: RunRequest | None = None
        self._chosen, self.choices = chosen, choices
        self._kinds = plugin_names(EXPERIMENTS, "measure")
        self._experiment = experiment_of(next(reversed(choices), self._kinds[0]))
        self._make_fields()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title = Text(f"measure {sanitize(self._chosen.title)}")
            sheet.border_subtitle = key_links(
                "⏎ start · ↑ what to measure · ← → change · ^r defaults · esc close"
            )
            yield Tabs(*(Tab(kind, id=kind) for kind in self._kinds), active=self._experiment.kind, id=_WHAT)
            yield Static(self._about, id="kind", markup=False)
            with Vertical(id="lines"):
                yield from (self.line(field, self._texts[field.name]) for field in self.fields)
            yield Static(id="offer", markup=False)
            yield from self.explanation()

    def on_mount(self) -> None:
        self.look_ahead()
        self._look_for_engine()

    @work(thread=True, exclusive=True)
    def _look_for_engine(self) -> None:
        """Offer the user's llama-server where only that sees a GPU; it is asked, which may take a moment."""
        if offer := engine_offer(self._experiment, self._chosen.setup):
            self.app.call_from_thread(self._offer_engine, offer)

    def _offer_engine(self, offer: str) -> None:
        editor = self.editor(_ENGINE)
        write_text(editor, read_text(editor) or "llama-server")
        self.query_one("#offer", Static).update(offer)

    def answer(self, given: dict[str, Any]) -> RunRequest:
        experiment, setup = self._experiment, self._chosen.setup
        record_type: type = experiment.request_type
        options = given_record(
            record_type, **{name: given[name] for name in options_of(record_type) if name in given}
        )
        needed = whole_steps(options.n_ctx_needed or 0)
        if not experiment.keeps_n_ctx or (setup.n_ctx or 0) < needed:
            setup = replace(setup, n_ctx=None)
        if engine := given.get(_ENGINE.name):
            setup = run_by(engine, setup)
        experiment.check(setup, options)
        self._keep_texts()
        return RunRequest(experiment, options, setup, bool(given.get(_FILE)) or not experiment.needs_download)

    def take(self, answer: RunRequest | None) -> None:
        """Stay open until the jobs are made, as that may show that a value is wrong."""
        if answer is not None and self._request is None:
            self._request = answer
            self.say("Finding the files…")
            self._find(answer)

    def start(self) -> None:
        self.dismiss(self._request)

    def refuse(self, error: GgbenchError) -> None:
        super().refuse(error)
        self._request = None

    def follows(self, answer: RunRequest | None) -> str:
        """Return the command that measures the first quant, how much is measured, and what it is not trained for."""
        if answer is None:
            return ""
        options = answer.options
        model, quants = self._chosen.selection
        command = reproduce(answer.experiment.kind, (model, quants[0]), answer.setup, stated_options(options))
        n_quants, notes = len(quants), []
        if n_quants > 1:
            notes.append(f"and so each of {n_quants} quants")
        if options.decodes:
            n_tokens = sum(n_gen for _, n_gen in options.decodes)
            notes.append(f"{counted(n_quants * n_tokens, 'token')} to decode{self._time_of(n_tokens)}")
        trained = min((row.plan.n_ctx_train or LONGEST for row in self._chosen.rows), default=LONGEST)
        if (options.n_ctx_needed or 0) > trained:
            notes.append(f"beyond the {format_count(trained)} of training")
        return f"{sanitize(command)}\n{', '.join(notes)}"

    def _time_of(self, n_tokens: int) -> str:
        """Return `, takes about 5.5 min` to decode tokens of each quant at its speed; empty if one is unknown."""
        speeds = [row.candidate.tok_s for row in self._chosen.rows]
        if self._chosen.is_elsewhere or len(speeds) < len(self._chosen.selection[1]):
            return ""
        total_s = sum(n_tokens / speed.value if speed else math.nan for speed in speeds)
        return "" if math.isnan(total_s) else f", takes about {format_span(total_s)}"

    def action_reset(self) -> None:
        for field in self.fields:
            write_text(self.editor(field), self._defaults[field.name])

    @on(Tabs.TabActivated)
    async def _change_kind(self, event: Tabs.TabActivated) -> None:
        """Show the fields of the other experiment; the texts of the former one are kept."""
        if event.tab.id is None or event.tab.id == self._experiment.kind:
            return
        self._keep_texts()
        self._experiment = experiment_of(event.tab.id)
        self._make_fields()
        self.query_one("#kind", Static).update(self._about)
        lines = self.query_one("#lines")
        async with lines.batch():
            await lines.remove_children()
            await lines.mount(*(self.line(field, self._texts[field.name]) for field in self.fields))
        self.look_ahead()
        self._look_for_engine()

    def _keep_texts(self) -> None:
        kind = self._experiment.kind
        texts = {field.name: read_text(self.editor(field)) for field in self.fields if field.name != _FILE}
        others = {name: each for name, each in self.choices.items() if name != kind}
        self.choices = others | {kind: texts}

    def _make_fields(self) -> None:
        """Make the fields of the experiment, with the texts that they had last."""
        experiment = self._experiment
        about = " ".join((importlib.import_module(f"{EXPERIMENTS}.{experiment.kind}").__doc__ or "").split())
        self._about = f"{about} {experiment.caution}".rstrip()
        options, default = option_fields(experiment.request_type), experiment.request_type()
        self.fields = (*options, *self._file_fields(), _ENGINE)
        self._defaults = {_FILE: "download", _ENGINE.name: ""}
        self._defaults |= {field.name: field.text_of(default, default) for field in options}
        last = {"workload": self._chosen.workload} | self.choices.get(experiment.kind, {})
        known = {field.name: last.get(field.name, "") for field in self.fields}
        self._texts = {
            field.name: known[field.name] if not field.choices or known[field.name] in field.choices
            else self._defaults[field.name]
            for field in self.fields
        }  # fmt: skip

    def _file_fields(self) -> list[FormField]:
        """Return the choice between a download and a twin; none if the files are on this disk."""
        if not self._chosen.download_bytes or not self._experiment.needs_download:
            return []
        choices: dict[str, object] = {"download": False}
        if parse_model(self._chosen.selection[0]).kind in ("catalog", "hub"):
            choices["twin now"] = True
        about = "A twin has the same shape and size with random weights: as fast as the file, and made on this disk."
        size = f"{format_bytes(self._chosen.download_bytes)} to download, or a twin"
        return [FormField(_FILE, "file", size, choices=choices, about=about)]
