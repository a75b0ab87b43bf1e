"""Dialogs that fill in a settings record: their fields, with parsers and help, and how they are drawn.

Fields are parsed like on the command line, with the same meaning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec
from msgspec.structs import replace
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input, Label, Static

from ggbench.decisions.pick.needs import NOTICED_LOSS, WORKLOADS, Needs, Preference
from ggbench.engines.llama.config import KV_TYPE_LIST, KV_TYPES, MAX_THREADS, FlashAttn, LlamaConfig, parse_servers
from ggbench.errors import UsageError
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.experiments.quality.record import N_CTX
from ggbench.experiments.speed.record import INPUTS, N_GEN, SpeedSettings
from ggbench.experiments.tune.record import DEPTHS, Objective, TuneSettings
from ggbench.fields import BATCH_SIZES, DEPTH_LIST, DURATION, TOKEN_LIST, FieldKind
from ggbench.sizing.plan_record import Budget
from ggbench.text import sanitize
from ggbench.tui.host import host_of
from ggbench.tui.screens.dialogs import Dialog
from ggbench.units import exact_size, format_bytes, format_count, parse_size, parse_tokens

Record = TypeVar("Record", bound=msgspec.Struct)

LARGEST, NO_BASE = "largest", "none"
"""The base, if no quant is named."""


class QualityAsked(msgspec.Struct, frozen=True):
    """Answers to the dialog for a quality run."""

    base: str = LARGEST
    """`LARGEST`, `NO_BASE`, or the QUANT argument of the quant to compare with."""
    text: str = ""
    """`wikitext-2`, the path of a file, or empty for the text that comes with Python."""
    n_chunks: int | None = None
    """Maximum number of chunks to score; None for the whole text."""
    within_s: float | None = None
    """Seconds after which a quant's run ends; None for no limit."""
    n_ctx: int = N_CTX
    """Tokens of a chunk."""


class FormField(msgspec.Struct, frozen=True):
    """One line of a dialog."""

    name: str
    """Name of the record's field; empty for a line that only shows its choice."""
    label: str
    unset: str
    """The effect of the default, or an example."""
    parse: Callable[[str], object] = str
    """Parse the typed text. Raises UsageError."""
    text: Callable[[Any], str] = str
    choices: Mapping[str, object] = {}
    """All accepted texts with their values; empty if anything that parses is accepted."""
    about: str = ""
    """Shown in place of the form's text while the field has the focus."""

    def text_of(self, record: object, default: object) -> str:
        """Return the record's value as text; empty for the default of a field without choices."""
        value = getattr(record, self.name)
        if self.choices:
            return next((text for text, each in self.choices.items() if each == value), next(iter(self.choices)))
        return "" if value == getattr(default, self.name) else self.text(value)

    def value_of(self, text: str, default: object) -> object:
        """Return the value of a text; an empty one stands for the default. Raises UsageError."""
        if self.choices:
            return self.choices[text]
        return self.parse(text.strip()) if text.strip() else getattr(default, self.name)


class Form(msgspec.Struct, Generic[Record], frozen=True):
    """A record to fill in."""

    title: str
    about: str
    fields: tuple[FormField, ...]
    default: Record
    check: Callable[[Record], None] = lambda _record: None
    """Raise UsageError if values conflict."""
    hint: str = "enter starts · esc closes"
    marks_changes: bool = False
    """Whether to mark lines that differ from the default."""
    estimate: Callable[[Record], str] | None = None
    """Cost of the record as filled in so far, shown before `about`."""
    starts_engine: bool = False
    """Whether to ask for the engine too, which the app keeps for its later runs."""


def _same(names: Sequence[str]) -> Mapping[str, object]:
    return {name: name for name in names}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number", "write e.g. 15 or 0.05") from None


def _whole(what: str, least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`; `what` is e.g. `a number of layers`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise UsageError(f"{text!r} is not {what}", f"write {format_count(least)} to {format_count(most)}")
        return value

    return parse


def _chunk(text: str) -> int:
    if (n_ctx := parse_tokens(text)) < 4:
        raise UsageError(f"a chunk of {n_ctx} tokens is too short to score", "write 4 or more")
    return n_ctx


def _ways(kind: FieldKind) -> tuple[Callable[[str], object], Callable[[Any], str]]:
    return kind.read, kind.write


def _engine(text: str) -> str:
    """Return the text, checked like `--engine`. Raises UsageError."""
    from ggbench.commands.options import run_by

    run_by(text, LlamaConfig())
    return text


class _EngineField(FormField, frozen=True):
    """The line of `Form.starts_engine`; its value is the app's, not the record's."""

    def text_of(self, record: object, default: object) -> str:
        return ""

    def value_of(self, text: str, default: object) -> object:
        return self.parse(text.strip()) if text.strip() else ""


ENGINE = _EngineField(
    "engine",
    "engine",
    "ggbench's; or llama-server",
    _engine,
    about="Program that runs the model: empty for ggbench's llama.cpp, or your own llama-server, found on PATH or as "
    "llama-server=PATH; flags may follow the path.",
)

_LAYERS = _whole("a number of layers", 0, (1 << 31) - 1)

# fmt: off
OPTIONS = Form(
    "Options of plans and runs", "", (
        FormField("memory_limit_bytes", "memory limit", "all there is", parse_size, exact_size,
              about="Emulate a machine with this much memory, e.g. 12GiB."),
        FormField("n_ctx", "n_ctx", "8,192; in runs as needed", parse_tokens,
              about="Context in tokens, e.g. 16k. In the table, ←→ change it for one model."),
        FormField("type_k", "K cache type", "f16", choices=_same(KV_TYPES),
              about="Type of the K cache; q8_0 halves its memory."),
        FormField("type_v", "V cache type", "f16", choices=_same(KV_TYPES),
              about="Type of the V cache; a quantized one needs flash attention."),
        FormField("flash_attn", "flash attention", "auto", choices=_same(get_args(FlashAttn)),
              about="Changes the compute buffer, and on a CPU the speed of long contexts."),
        FormField("n_gpu_layers", "GPU layers, -ngl", "all", _LAYERS,
              about="Layers on the GPU; 0 leaves everything in main memory."),
        FormField("n_cpu_moe", "--n-cpu-moe", "none", _LAYERS,
              about="Keep the expert weights of the first N layers in main memory."),
        FormField("threads", "threads", "one per core", _whole("a number of threads", 1, MAX_THREADS),
              about="CPU threads of a run; by default one for each physical core."),
        FormField("swa_full", "--swa-full", "off", choices={"off": False, "on": True},
              about="Keep the whole context in the caches of sliding-window layers."),
        FormField("rpc_servers", "RPC servers", "none", parse_servers, ",".join,
              about="Use devices of other machines, e.g. 10.0.0.7:50052; start ggbench cluster serve there."),
    ),
    LlamaConfig(), LlamaConfig.check, "enter applies · ctrl+r all defaults · esc closes", marks_changes=True,
)

SPEED = Form(
    "Speed by input length and batch",
    "Each case reads a prompt for every sequence and generates tokens for all at once. The cheap cases run first; "
    "one that would take too long is forecast and skipped, one that does not fit is shown with the reason.", (
        FormField("inputs", "input lengths", f"as published: 1 to {format_count(INPUTS[-1])}", *_ways(TOKEN_LIST)),
        FormField("n_gen", "tokens generated", format_count(N_GEN), parse_tokens),
        FormField("batches", "batch sizes", "1; or 1,8,32", *_ways(BATCH_SIZES)),
        FormField("within_s", "time limit", "10m for each quant", *_ways(DURATION)),
    ),
    SpeedSettings(), starts_engine=True,
)

TUNE = Form(
    "Tune the settings",
    "Races threads, flash attention and other settings against the options as they are now, and measures the gain "
    "of the best. Often nothing beats the defaults. a applies the settings found.", (
        FormField("objective", "faster", "decode, prompts or both", choices=_same(get_args(Objective))),
        FormField("depths", "depths", f"{' and '.join(map(format_count, DEPTHS))} tokens; or 0,32k",
              *_ways(DEPTH_LIST)),
        FormField("within_s", "time limit", "10m for each quant", *_ways(DURATION)),
        FormField("kv_types", "KV types to try", "none, as they cost quality; or q8_0", *_ways(KV_TYPE_LIST)),
    ),
    TuneSettings(), starts_engine=True,
)

PICK = Form(
    "Needs",
    "chat: 512 tokens in, 300 out after 4k. agent: 16k in, 800 out after 48k. documents: 30k in, 500 out."
    " longest: the longest context answered at 15 tok/s.", (
        FormField("workload", "for", "← → change the workload", choices=WORKLOADS),
        FormField("given_n_ctx", "context", "what the workload needs", parse_tokens),
        FormField("given_tok_s", "least speed", "any; tok/s of the answer", _number, "{:g}".format),
        FormField("max_loss", "most loss", f"any; over {NOTICED_LOSS:g} nats shows", _number, "{:g}".format),
        FormField("given_prefer", "prefer", "← → what decides",
              choices={"by workload": None, **_same(get_args(Preference))}),
    ),
    Needs(), hint="enter applies · ctrl+r all defaults · esc closes",
)
# fmt: on


def decode_form(estimate: Callable[[DecodeSettings], str]) -> Form[DecodeSettings]:
    """Return the form for a decode; `estimate` gives the time as it is filled in."""
    n_gen = format_count(DecodeSettings().n_gen)
    return Form(
        "Decode",
        "Times every token. On the Run screen p pauses, s skips and c cancels; measurements are kept.",
        (
            FormField("n_gen", "tokens", f"{n_gen}; or e.g. 1k", parse_tokens),
            FormField("depths", "at depths", "none; or e.g. 0,4k,16k", *_ways(DEPTH_LIST)),
        ),
        DecodeSettings(),
        estimate=estimate,
        starts_engine=True,
    )


def search_form(budget: Budget) -> Form[LlamaConfig]:
    """Return the form for a max-n_ctx search; `budget` is this machine's memory."""
    place = "GPU" if budget.on_gpu else "main"
    time = "a minute or so" if budget.on_gpu else "minutes, with a long context that fills the memory up to an hour,"
    return Form(
        "Search the maximum n_ctx",
        f"Without a limit it uses nearly all free memory: {format_bytes(budget.memory_bytes)} of {place} memory are "
        "free, and contexts grow until one fails. Other programs may become slow or be killed meanwhile. It takes "
        f"{time} for each quant.",
        (FormField("memory_limit_bytes", "memory limit", "none; or e.g. 12GiB", parse_size, exact_size),),
        LlamaConfig(),
        starts_engine=True,
    )


def quality_form(bases: Sequence[str], config: LlamaConfig) -> Form[QualityAsked]:
    """Return the form for a quality run; `bases` are the quants to compare with, largest first."""
    largest = f"the largest here is {sanitize(bases[0])}" if bases else "the largest here"
    cache = "/".join(dict.fromkeys((config.type_k, config.type_v)))
    return Form(
        "Quality",
        "Scores the second half of each chunk of a text file, of wikitext-2 or of Python's manual. Scores"
        " are kept when you skip (s) or cancel (c) the run; starting the same run again continues it.",
        (
            FormField("base", "compared with", largest, choices=_same((LARGEST, *bases, NO_BASE))),
            FormField("text", "text", "Python's manual; wikitext-2"),
            FormField("n_chunks", "chunks", "the whole text", _whole("a number of chunks", 1, 1_000_000)),
            FormField("within_s", "time limit", "none; or 10m for each quant", *_ways(DURATION)),
            FormField("n_ctx", "tokens per chunk", f"{N_CTX}, as llama-perplexity", _chunk),
            FormField("", "KV cache", "by options (o); base: f16", choices={cache: None}),
        ),
        QualityAsked(),
    )


class ChoiceField(Static, can_focus=True):
    """One of a few texts; left, right and space change it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,space", "change(1)", "Next"),
        Binding("left,h", "change(-1)", "Previous"),
        Binding("enter", "screen.apply", "Apply"),
    ]
    value: reactive[str] = reactive("")

    class Changed(Message):
        """Another text is chosen."""

    def __init__(self, choices: Sequence[str], value: str, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._choices = choices
        self.set_reactive(ChoiceField.value, value)

    def render(self) -> Text:
        return Text(f"‹ {self.value} ›")

    def watch_value(self) -> None:
        self.post_message(self.Changed())

    def on_click(self) -> None:
        self.action_change(1)

    def action_change(self, steps: int) -> None:
        self.value = self._choices[(self._choices.index(self.value) + steps) % len(self._choices)]


class SettingsDialog(Dialog[Record | None]):
    """Returns the filled-in record, or None if closed."""

    AUTO_FOCUS = "Input, ChoiceField"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Apply"),
        Binding("escape", "dismiss", "Close"),
        Binding("ctrl+r", "reset", "Defaults", priority=True),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, form: Form[Record], record: Record, of: str = "") -> None:
        """`record` fills the fields; `of` is what to measure, for the title."""
        super().__init__(classes="-panel" if form.marks_changes else None)
        self.form, self._record, self._of = form, record, of

    def compose(self) -> ComposeResult:
        form = self.form
        with VerticalScroll(classes="dialog", can_focus=False) as sheet:
            sheet.border_title = f"{form.title} of {sanitize(self._of)}" if self._of else form.title
            sheet.border_subtitle = form.hint
            for field in self._fields:
                with Horizontal(id=f"line_{field.name}"):
                    yield Label(f"{'  ' if form.marks_changes else ''}{field.label}", classes="label", markup=False)
                    yield self._make_editor(field)
                    unset = f"default: {field.unset}" if form.marks_changes else field.unset
                    yield Static(unset, classes="unset", markup=False)
            yield Static(form.about, id="about", markup=False)

    def on_mount(self) -> None:
        self._mark()

    def action_move(self, steps: int) -> None:
        """Go to another field immediately, unlike Textual's own action, as letters typed right after belong to it."""
        fields = self.focus_chain
        if self.focused in fields:
            self.set_focus(fields[(fields.index(self.focused) + steps) % len(fields)])

    def action_reset(self) -> None:
        for field in self._asked:
            self._editor(field).value = field.text_of(self.form.default, self.form.default)

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """Return the fields' values, or show the first invalid one."""
        values: dict[str, Any] = {}
        what = ""
        try:
            for field in self._asked:
                what = f"{field.label}: "
                values[field.name] = field.value_of(self._editor(field).value, self.form.default)
            what = ""
            engine = values.pop(ENGINE.name, None)
            record = replace(self._record, **values)
            self.form.check(record)
            if engine is not None:
                host_of(self).engine = engine
            self.dismiss(record)
        except UsageError as error:
            if what:
                self._editor(field).focus()
            self.call_after_refresh(self._say, sanitize(f"✗ {what}{error.message}; {error.hint}"), error=True)

    @on(DescendantFocus)
    def _explain(self) -> None:
        about = (each.about for each in self._asked if self.focused is not None and each.name == self.focused.id)
        self._say(next(about, "") or self._estimate())

    def _estimate(self) -> str:
        if self.form.estimate is None:
            return self.form.about
        with contextlib.suppress(UsageError):  # while the user types
            values = {
                field.name: field.value_of(self._editor(field).value, self.form.default)
                for field in self._asked
                if field is not ENGINE
            }
            return f"{self.form.estimate(replace(self._record, **values))}\n{self.form.about}"
        return self.form.about

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _mark(self) -> None:
        """Mark fields that differ from the default, and clear any error."""
        for field in self._asked if self.form.marks_changes else ():
            text = self._editor(field).value.strip()
            is_changed = text not in ("", field.text_of(self.form.default, self.form.default))
            line = self.query_one(f"#line_{field.name}")
            line.set_class(is_changed, "-changed")
            line.query_one(".label", Label).update(f"{'●' if is_changed else ' '} {field.label}")
        if self.query_one("#about").has_class("-error") or self.form.estimate is not None:
            self._explain()

    def _say(self, text: str, *, error: bool = False) -> None:
        about = self.query_one("#about", Static)
        about.set_class(error, "-error")
        about.update(text)

    @property
    def _fields(self) -> Sequence[FormField]:
        return (*self.form.fields, ENGINE) if self.form.starts_engine else self.form.fields

    @property
    def _asked(self) -> Sequence[FormField]:
        return [field for field in self._fields if field.name]

    def _make_editor(self, field: FormField) -> Input | ChoiceField | Static:
        if not field.name:
            return Static(next(iter(field.choices)), classes="fixed", markup=False)
        text = host_of(self).engine if field is ENGINE else field.text_of(self._record, self.form.default)
        if field.choices:
            return ChoiceField(tuple(field.choices), text, id=field.name)
        return Input(text, placeholder="default", id=field.name, compact=True)

    def _editor(self, field: FormField) -> Input | ChoiceField:
        found = self.query_one(f"#{field.name}")
        assert isinstance(found, Input | ChoiceField)
        return found
