"""The dialog that starts every measurement: which experiment, how much, with what engine, and what that takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.widgets import Input, Static

from ggbench.commands.measure_options import run_by
from ggbench.commands.options import given_record
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama_server.config import LlamaServerConfig
from ggbench.errors import GgbenchError, UsageError
from ggbench.fields import options_of
from ggbench.machine.readings import BUSY_SHARE
from ggbench.plugins import plugin_names
from ggbench.runs.experiment import Experiment, experiment_of
from ggbench.text import sanitize
from ggbench.tui.measuring import EXPERIMENTS, Choices, Chosen, PastRuns, RunRequest
from ggbench.tui.screens.dialogs import KeyHandled
from ggbench.tui.screens.forms import ChoiceField, FormDialog, FormField, option_fields, options_form
from ggbench.units import format_bytes, format_count, format_percent

if TYPE_CHECKING:
    from ggbench.runs.run import Settings


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


class MeasureDialog(FormDialog["tuple[RunRequest, Choices] | None"]):
    """Returns the request with the choices to remember, or None if closed; open until its jobs are made."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "apply", "Start")]
    verb = "Start"

    def __init__(self, chosen: Chosen, choices: Choices, find: Callable[[RunRequest], object]) -> None:
        """`find` begins to make the jobs of a request; then comes `start`, or `refuse` with the reason."""
        super().__init__()
        self._find = find
        self._answer: tuple[RunRequest, Choices] | None = None
        self._chosen, self._choices = chosen, choices
        self._past: PastRuns = {}
        self._others = ""
        """What other programs use of the CPU, if that disturbs a measurement of speed."""
        self._kinds = plugin_names(EXPERIMENTS, "measure")
        self._experiment = experiment_of(choices.kind if choices.kind in self._kinds else self._kinds[0])
        self._make_fields()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False) as sheet:
            sheet.border_title, sheet.border_subtitle = (
                f"Measure {sanitize(self._chosen.title)}",
                "⏎ starts from any field",
            )
            yield ChoiceField(self._kinds, self._experiment.kind, id=_WHAT, shows_all=True)
            yield Static(self._about, id="kind", markup=False)
            with Vertical(id="lines"):
                yield from (self.line(field, self._texts[field.name]) for field in self.fields)
            yield Static(id="cost", markup=False)
            yield Static(id="about", markup=False)
            yield self.buttons()

    def on_mount(self) -> None:
        self._show_cost()

    def on_key(self, event: Key) -> None:
        """Let a number typed on the kinds replace the text of the first field."""
        first = self.editor(self.fields[0]) if self.fields else None
        if (
            (event.character or "").isdigit()
            and self.focused is self.query_one(f"#{_WHAT}")
            and isinstance(first, Input)
        ):
            event.stop()
            self.set_focus(first)  # which selects its text
            first.post_message(Key(event.key, event.character))

    def show_past(self, past: PastRuns) -> None:
        self._past = past
        if self.has_opened:
            self._show_cost()

    def show_others(self, share: float | None) -> None:
        """Warn of other programs that use this share of the CPU."""
        if share is not None and share >= BUSY_SHARE:
            self._others = f"\n! other programs use {format_percent(share)} of the CPU: the result will be unsteady"
            self._show_cost()

    def answer(self, given: dict[str, Any]) -> tuple[RunRequest, Choices]:
        request = self._request(given)
        record_type: type = type(request.options)
        counts = [name for name, each in options_of(record_type).items() if each.kind.counts_tokens]
        self._invalid = next((each for each in self.fields if each.name in counts and each.name in given), None)
        request.check_size(self._chosen, are_tokens_given=self._invalid is not None)
        self._invalid = None
        twins = [model for model, _ in self._chosen.selection if model.startswith("twin:")]
        if twins and (reason := request.experiment.needs_trained):
            raise UsageError(f"{twins[0]} is a twin: {reason}", "choose a published file")
        request.experiment.check(request.config, request.options)
        self._keep_texts()
        return request, self._choices

    def take(self, answer: tuple[RunRequest, Choices] | None) -> None:
        """Stay open until the jobs are made, as that may show that a value is wrong."""
        if answer is not None and not self.is_waiting:
            self._answer, self.is_waiting = answer, True
            self.say("Finding the files…")
            self._find(answer[0])

    def start(self) -> None:
        self.dismiss(self._answer)

    def refuse(self, error: GgbenchError) -> None:
        super().refuse(error)
        self.is_waiting = False
        self.post_message(KeyHandled())

    def action_reset(self) -> None:
        for field in self.fields:
            self.editor(field).value = self._defaults[field.name]

    @on(ChoiceField.Changed, f"#{_WHAT}")
    async def _change_kind(self, event: ChoiceField.Changed) -> None:
        """Show the fields of the other experiment; the texts of the former one are kept."""
        self._keep_texts()
        self._experiment = experiment_of(event.field.value)
        self._make_fields()
        self.query_one("#kind", Static).update(self._about)
        lines = self.query_one("#lines")
        async with lines.batch():
            await lines.remove_children()
            await lines.mount(*(self.line(field, self._texts[field.name]) for field in self.fields))
        self.forget_error()
        self.explain()
        self._show_cost()

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _show_cost(self) -> None:
        """Show what the run takes as filled in so far; nothing while a text cannot be parsed."""
        if not all(self.query(f"#{field.name}") for field in self.fields):
            return  # the lines are being replaced; this is called again after the last
        try:
            request = self._request(self.given())
            cost = request.cost(self._chosen, self._past)
        except UsageError:
            cost = ""
        else:
            self._show_defaults(request.options)
        self.query_one("#cost", Static).update(cost + self._others * self._experiment.measures_speed)
        if self._error:
            self.forget_error()
            self.explain()

    def _show_defaults(self, options: Settings) -> None:
        """Show the numbers that empty fields stand for, which may follow from other fields."""
        for field in self.fields:
            editor, value = self.editor(field), getattr(options, field.name, None)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if isinstance(editor, Input) and not editor.value and field.placeholder == "default" and is_number:
                editor.placeholder = format_count(value) if isinstance(value, int) else field.text(value)

    def _keep_texts(self) -> None:
        texts = {field.name: text for field in self.fields if (text := self.editor(field).value.strip())}
        engine = texts.pop(_ENGINE.name, "") if _ENGINE in self.fields else self._choices.engine
        texts.pop(_FILE, None)
        kind = self._experiment.kind
        setup, asked = self._chosen.setup, [each for each in options_form().fields if each in self.fields]
        options = self._choices.options | {each.name: each.text_of(setup, LlamaConfig()) for each in asked}
        self._choices = Choices(kind, engine, self._choices.texts | {kind: texts}, options)

    def _make_fields(self) -> None:
        """Make the fields of the experiment, with their texts: those of the options (o) that are set, or were changed
        since, or else the last ones.
        """
        experiment, setup = self._experiment, self._chosen.setup
        about = " ".join((importlib.import_module(f"{EXPERIMENTS}.{experiment.kind}").__doc__ or "").split())
        options, config = option_fields(experiment.request_type), LlamaConfig()
        default = experiment.request_type()
        asked = [field for field in options_form().fields if field.name in experiment.asked_config]
        self._about = f"{about} {experiment.caution}".rstrip()
        self._defaults = {field.name: field.text_of(default, default) for field in options}
        self._defaults |= {field.name: field.text_of(config, config) for field in asked}
        self._texts = self._defaults | self._choices.texts.get(experiment.kind, {})
        for field in asked:
            text, default_text = field.text_of(setup, config), self._defaults[field.name]
            if text != default_text or text != self._choices.options.get(field.name, default_text):
                self._texts[field.name] = text
        self._texts[_ENGINE.name] = self._choices.engine
        self._defaults[_ENGINE.name] = ""
        engine = () if any(map(LlamaServerConfig.unsupported, experiment.needs)) else (_ENGINE,)
        self.fields = (*options, *asked, *self._file_fields(experiment), *engine)
        for field in self.fields:
            if field.choices and self._texts.get(field.name) not in field.choices:
                self._texts[field.name] = self._defaults[field.name] = next(iter(field.choices))

    def _file_fields(self, experiment: Experiment) -> list[FormField]:
        """Return the choice between a download and a twin; none if the files are on this disk."""
        if not self._chosen.download_bytes or not experiment.needs_download:
            return []
        choices: dict[str, object] = {"download": False}
        if self._chosen.has_twins and not experiment.needs_trained:
            choices["twin now"] = True
        about = "A twin has the same shape and size with random weights: as fast as the file, and made on this disk."
        size = format_bytes(self._chosen.download_bytes)
        size = f"← → {size} to download, or a twin" if len(choices) > 1 else f"{size}, not on this disk"
        return [FormField(_FILE, "file", size, choices=choices, about=about)]

    def _request(self, given: dict[str, Any]) -> RunRequest:
        """Return the request of these values. Raises UsageError."""
        experiment, chosen = self._experiment, self._chosen
        record_type: type = experiment.request_type
        options = {name: value for name, value in given.items() if name in options_of(record_type)}
        config = {name: given.get(name, getattr(LlamaConfig(), name)) for name in experiment.asked_config}
        record = given_record(record_type, **options)
        setup, has_n_gen = replace(chosen.setup, **config), "n_gen" in given
        request = RunRequest.planned(experiment, record, setup, chosen.n_ctx_train, is_n_gen_given=has_n_gen)
        is_twin = bool(given.get(_FILE)) or not experiment.needs_download
        download_bytes = 0 if is_twin else chosen.download_bytes
        return replace(request, engine=given.get(_ENGINE.name, ""), is_twin=is_twin, download_bytes=download_bytes)
