"""A dialog of typed fields before a run: one line for each with what it means if it is empty, validated on enter."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from ggbench.errors import UsageError
from ggbench.text import plain
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.screens.options import ChoiceField
from ggbench.units import format_count

Asked = TypeVar("Asked")


class TypedField(msgspec.Struct, frozen=True):
    """One line of the dialog that is typed."""

    name: str
    label: str
    unset: str
    """What an empty field means."""
    parse: Callable[[str], object]
    """Read what was typed. Raises UsageError."""


def typed_text(asked: object, defaults: object, name: str) -> str:
    """Return what stood in a field when the dialog was last closed; empty for the default."""
    value = getattr(asked, name)
    if value is None or value == getattr(defaults, name):
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}s" if name.endswith("_s") else str(value)


class FieldsDialog(Dialog[Asked | None]):
    """Ends with what was asked for, or with None for no run."""

    FIELDS: ClassVar[Sequence[TypedField]]
    WHAT: ClassVar[str]
    """What a run measures of the quants, in the title."""
    ABOUT: ClassVar[str]
    """What a run does, in a sentence or two."""
    AUTO_FOCUS = "Input, ChoiceField"
    DEFAULT_CSS = """
    FieldsDialog {
        .dialog { padding: 1 2; }
        Horizontal { height: 1; }
        .label { width: 18; }
        .fixed { width: 20; padding: 0 1; }
        Input, ChoiceField { width: 20; height: 1; border: none; padding: 0 1; background: $panel; }
        Input:focus, ChoiceField:focus { background: $primary; color: $text; text-style: bold; }
        .unset { width: 1fr; padding: 0 0 0 2; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        #about { height: auto; padding: 1 0 0 0; }
        #about.-error { color: $text-error; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Start"),
        Binding("escape", "dismiss", "Close"),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, names: Sequence[str], texts: Mapping[str, str]) -> None:
        """`names` are the quants to measure, `texts` what stands in the fields at first, by name."""
        super().__init__()
        self._names, self._texts = names, texts

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as sheet:
            what = plain(self._names[0]) if len(self._names) == 1 else f"{format_count(len(self._names))} quants"
            sheet.border_title = f"{self.WHAT} of {what}"
            sheet.border_subtitle = "enter starts · esc closes"
            yield from self.lines_above()
            for field in self.FIELDS:
                editor = Input(self._texts.get(field.name, ""), placeholder="default", id=field.name, compact=True)
                yield line_of(field.label, editor, field.unset)
            yield from self.lines_below()
            yield Static(self.ABOUT, id="about", markup=False)

    def lines_above(self) -> Iterable[Widget]:
        """What stands before the typed fields."""
        return ()

    def lines_below(self) -> Iterable[Widget]:
        """What stands after the typed fields."""
        return ()

    @abstractmethod
    def asked(self, values: Mapping[str, object]) -> Asked:
        """Return what was asked for; fields that are empty are not among the values. Raises UsageError."""

    def action_move(self, steps: int) -> None:
        """Go to another field; at once, unlike Textual's own action, as letters typed right after belong to it."""
        fields = self.focus_chain
        if self.focused in fields:
            self.set_focus(fields[(fields.index(self.focused) + steps) % len(fields)])

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _drop_error(self) -> None:
        about = self.query_one("#about", Static)
        about.set_class(False, "-error")
        about.update(self.ABOUT)

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """End with what the fields say; show the first that cannot be read."""
        values: dict[str, object] = {}
        for field in self.FIELDS:
            editor = self.query_one(f"#{field.name}", Input)
            text = editor.value.strip()
            try:
                if text:
                    values[field.name] = field.parse(text)
            except UsageError as error:
                self._refuse(error, f"{field.label}: ")
                editor.focus()
                return
        try:
            found = self.asked(values)
        except UsageError as error:
            self._refuse(error)
            return
        self.dismiss(found)

    def _refuse(self, error: UsageError, what: str = "") -> None:
        about = self.query_one("#about", Static)
        about.set_class(True, "-error")
        about.update(plain(f"✗ {what}{error.message}; {error.hint}"))


def line_of(label: str, editor: Widget, note: str) -> Horizontal:
    """Return a line of the dialog."""
    return Horizontal(Label(label, classes="label", markup=False), editor, Static(note, classes="unset", markup=False))
