"""Dialogs that fill in a record: its fields, with parsers and help, and how they are drawn.

Fields are parsed like on the command line, with the same meaning.
"""

from __future__ import annotations

import contextlib
import functools
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus, Paste
from textual.widgets import Input, Label, Select, Static, Switch

from ggbench.commands.budget_options import BudgetOptions
from ggbench.decisions.pick.needs import Needs, Preference
from ggbench.engines.llama.command_line import parse_command
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError, UsageError
from ggbench.expect.loss import NOTICED_LOSS
from ggbench.expect.sessions import known_sessions
from ggbench.fields import Option, defaults_of, options_of
from ggbench.text import in_words, sanitize
from ggbench.tui.screens.dialogs import Answer, Dialog
from ggbench.tui.widgets.bars import key_links
from ggbench.units import format_count, format_length, parse_tokens


class FormField(msgspec.Struct, frozen=True):
    """One line of a dialog."""

    name: str
    """Name of the record's field."""
    label: str
    unset: str
    """The effect of the default, or an example."""
    parse: Callable[[str], object] = str
    """Parse the typed text. Raises UsageError."""
    text: Callable[[Any], str] = str
    choices: Mapping[str, object] = {}
    """All accepted texts with their values; empty if anything that parses is accepted."""
    about: str = ""
    """Shown while the field has the focus."""
    placeholder: str = "default"
    """Shown in an empty field."""

    def text_of(self, record: object, default: object) -> str:
        """Return the record's value as text; empty for the default of a field without choices."""
        value = getattr(record, self.name)
        if self.choices:
            return next(
                (text for text, each in self.choices.items() if each == value), next(iter(self.choices))
            )
        return "" if value == getattr(default, self.name) else self.text(value)

    def value_of(self, text: str) -> object:
        """Return the value of a text that is not empty. Raises UsageError."""
        return self.choices[text] if self.choices else self.parse(text)


class Form(msgspec.Struct, frozen=True):
    """Records to fill in."""

    title: str
    about: str
    fields: tuple[FormField, ...]
    defaults: tuple[msgspec.Struct, ...]


def option_fields(record: type, names: Sequence[str] | None = None) -> tuple[FormField, ...]:
    """Return a line for each option of a record, or for those named, as on the command line."""
    hints, options, defaults = get_type_hints(record), options_of(record), defaults_of(record)
    found = []
    for name in options if names is None else names:
        option, default = options[name], defaults.get(name)
        label, choices = _label(option.flags_of(name, default)), _choices(option, hints[name])
        shown = option.shown or "default"
        if option.shown is None and default not in (None, ()) and hints[name] is not bool:
            shown = option.kind.write(default)
        read, write = _reader(option), option.kind.write
        found.append(FormField(name, label, _brief(option.help), read, write, choices, option.help, shown))
    return tuple(found)


def _choices(option: Option, hint: object) -> Mapping[str, object]:
    """Return the texts of an option that has only a few values, with their values; else nothing."""
    if hint is bool:
        return {"off": False, "on": True}
    return _same(option.kind.choices or (get_args(hint) if get_origin(hint) is Literal else ()))


def _reader(option: Option) -> Callable[[str], object]:
    kind = option.kind
    return _whole(kind.least or 0, kind.most or (1 << 31) - 1) if kind.read is int else kind.read


_MOST_LABEL = 14
"""Columns before a field in a terminal of 80."""


def _label(flags: Sequence[str]) -> str:
    """Return the longest flag for which there is room."""
    names = [flag.partition("/")[0] for flag in flags]
    return max((name for name in names if len(name) <= _MOST_LABEL), key=len, default=names[-1])


def _brief(about: str) -> str:
    """Return the first clause; all is shown while the field has the focus."""
    return re.split(r"[,.;:] | \(", about, maxsplit=1)[0].rstrip(".")


def _same(names: Sequence[str]) -> Mapping[str, object]:
    return {name: name for name in names}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number", "write e.g. 15 or 0.05") from None


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        with contextlib.suppress(ValueError):
            if least <= (value := int(text)) <= most:
                return value
        raise UsageError(
            f"{text!r} is not a whole number", f"write {format_count(least)} to {format_count(most)}"
        )

    return parse


_OPTIONS = (
    "memory_limit_bytes", "n_ctx", "type_k", "type_v", "flash_attn", "n_gpu_layers", "n_cpu_moe", "threads", "swa_full",
    "rpc_servers",
)  # fmt: skip


@functools.cache
def options_form() -> Form:
    """Return the form of the options and of the reserve, which runs have none of; made on first use."""
    fields = (*option_fields(LlamaConfig, _OPTIONS), *option_fields(BudgetOptions, ("reserve",)))
    defaults = LlamaConfig(), BudgetOptions()
    return Form("Options of plans and runs", "", fields, defaults)


_CONTEXTS = ", ".join(f"{name} {format_length(each.n_ctx)}" for name, each in known_sessions().items())

# fmt: off
PICK = Form(
    "Needs",
    "Speed is that of a session: of a coding agent, of questions on a document, of a chat.", (
        FormField("workload", "for", "what the model does", choices=known_sessions()),
        FormField("given_n_ctx", "context", "what the workload needs", parse_tokens,
              about=f"In tokens, e.g. 32k; a short one shortens the turns. Empty: {_CONTEXTS}."),
        FormField("tok_s", "least speed", "any; tok/s of the answer", _number, "{:g}".format),
        FormField("max_loss", "most loss", f"any; over {NOTICED_LOSS:g} nats shows", _number, "{:g}".format),
        FormField("prefer", "prefer", "what decides", choices=_same(get_args(Preference))),
    ),
    (Needs(),),
)
# fmt: on


class Choice(Select[str], inherit_bindings=False):
    """Textual's Select without its keys: enter applies the dialog, and up and down go to the other fields."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show_overlay", "List"),
        Binding("right", "step(1)", "Next"),
        Binding("left", "step(-1)", "Previous"),
    ]

    def __init__(self, choices: Sequence[str], value: str, *, id: str) -> None:
        super().__init__(
            [(text, text) for text in choices], value=value, allow_blank=False, id=id, compact=True
        )
        self._choices = choices

    def action_step(self, steps: int) -> None:
        index = self._choices.index(str(self.value)) + steps
        self.value = self._choices[index % len(self._choices)]


class Entry(Input):
    """Textual's Input, but for a pasted command, which is the dialog's: it would keep the first line."""

    def _on_paste(self, event: Paste) -> None:
        assert isinstance(self.screen, FormDialog)
        if self.screen.take_command(event):
            event.prevent_default()


Editor: TypeAlias = Input | Choice | Switch


def read_text(editor: Editor) -> str:
    if isinstance(editor, Switch):
        return "on" if editor.value else "off"
    return str(editor.value).strip()


def write_text(editor: Editor, text: str) -> None:
    editor.value = text == "on" if isinstance(editor, Switch) else text


class FormDialog(Dialog[Answer]):
    """Lines of fields, what the focused one means, and last what was wrong or what follows; enter answers."""

    AUTO_FOCUS = "Input, Choice, Switch"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Apply", priority=True),
        Binding("ctrl+r", "reset", "Defaults", priority=True),
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)"),
        Binding("up", "move(-1)"),
    ]
    fields: Sequence[FormField] = ()
    note = ""
    """Shown below the fields if the focused one has no text of its own."""

    @abstractmethod
    def answer(self, given: dict[str, Any]) -> Answer:
        """Return the answer from the values of the fields that were filled in. Raises UsageError."""

    def follows(self, answer: Answer) -> str:
        """Return the last line of the dialog for an answer; printable."""
        return ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "apply" or not any(choice.expanded for choice in self.query(Choice))

    def line(self, field: FormField, text: str) -> Horizontal:
        editor: Editor
        if field.choices.keys() == {"off", "on"}:
            editor = Switch(text == "on", id=field.name)
        elif field.choices:
            editor = Choice(tuple(field.choices), text, id=field.name)
        else:
            editor = Entry(text, placeholder=field.placeholder, id=field.name, compact=True)
        name = Label(field.label, classes="label", markup=False)
        return Horizontal(
            name, editor, Static(field.unset, classes="unset", markup=False), id=f"line_{field.name}"
        )

    def editor(self, field: FormField) -> Editor:
        found = self.query_one(f"#{field.name}")
        assert isinstance(found, Input | Choice | Switch)
        return found

    def given(self) -> dict[str, Any]:
        """Return the values of the fields that are not empty. Raises UsageError, which names the field."""
        values: dict[str, Any] = {}
        for field in self.fields:
            if text := read_text(self.editor(field)):
                try:
                    values[field.name] = field.value_of(text)
                except UsageError as error:
                    raise UsageError(f"{field.label}: {error.message}", error.hint) from None
        return values

    def explanation(self) -> ComposeResult:
        """Yield what the focused field means, and what was wrong with the values or what follows from them."""
        yield Static(self.note, id="about", markup=False)
        yield Static(id="message", markup=False)

    def say(self, text: str, *, is_error: bool = False) -> None:
        message = self.query_one("#message", Static)
        message.set_class(is_error, "-error")
        message.update(text)

    def action_move(self, steps: int) -> None:
        """Go to another field immediately, unlike Textual's own action, as letters typed right after belong to it."""
        fields = self.focus_chain
        if self.focused in fields:
            self.set_focus(fields[(fields.index(self.focused) + steps) % len(fields)])

    def action_apply(self) -> None:
        try:
            self.take(self.answer(self.given()))
        except UsageError as error:
            self.refuse(error)

    def take(self, answer: Answer) -> None:
        """Close with this answer."""
        self.dismiss(answer)

    def refuse(self, error: GgbenchError) -> None:
        """Show why the answer is refused."""
        self.say(sanitize(f"✗ {error.line}"), is_error=True)

    @on(Input.Changed)
    @on(Select.Changed)
    @on(Switch.Changed)
    def look_ahead(self) -> None:
        """Show what follows from the values, or why they are refused."""
        try:
            self.say(self.follows(self.answer(self.given())))
        except UsageError as error:
            self.refuse(error)

    @on(Paste)
    def take_command(self, event: Paste) -> bool:
        """Fill the fields from a pasted llama-server command; False for another text, or if it gives none of them.

        Terminals paste a line's end as a carriage return.
        """
        try:
            given = parse_command("\n".join(event.text.splitlines())).settings
        except UsageError:
            return False
        texts = [(field, given.get(field.name.removeprefix("given_"), "")) for field in self.fields]
        found = [(field, text) for field, text in texts if text in (field.choices or (text,)) and text]
        for field, text in found:
            write_text(self.editor(field), text)
        if found:
            event.stop()
            filled = in_words([f"{field.label} {text}" for field, text in found])
            self.notify(f"from the command: {filled}", markup=False)
        return bool(found)

    @on(DescendantFocus)
    def explain(self) -> None:
        """Explain the focused field."""
        about = (
            each.about for each in self.fields if self.focused is not None and each.name == self.focused.id
        )
        self.query_one("#about", Static).update(next(about, "") or self.note)


class SettingsDialog(FormDialog[tuple[Any, ...] | None]):
    """Returns the filled-in records, or None if closed."""

    def __init__(self, form: Form, *records: msgspec.Struct) -> None:
        """`records`, of the types of the form's defaults, fill the fields."""
        super().__init__()
        self.form, self._records = form, records
        self.fields, self.note = form.fields, form.about

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            sheet.border_title = self.form.title
            sheet.border_subtitle = key_links("⏎ apply · ← → change · ^r defaults · esc close")
            yield from (self.line(field, self._text(field, self._records)) for field in self.fields)
            yield from self.explanation()

    def _text(self, field: FormField, records: Sequence[msgspec.Struct]) -> str:
        pairs = zip(records, self.form.defaults, strict=True)
        return next(field.text_of(*pair) for pair in pairs if hasattr(pair[0], field.name))

    def answer(self, given: dict[str, Any]) -> tuple[Any, ...]:
        names, records = {field.name for field in self.fields}, []
        for record, default in zip(self._records, self.form.defaults, strict=True):
            own = names.intersection(record.__struct_fields__)
            filled = replace(record, **{name: given.get(name, getattr(default, name)) for name in own})
            if isinstance(filled, LlamaConfig):
                filled.check()
            records.append(filled)
        return tuple(records)

    def action_reset(self) -> None:
        for field in self.fields:
            write_text(self.editor(field), self._text(field, self.form.defaults))
