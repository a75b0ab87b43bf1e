"""The dialog made from a form: a line for each field with what its default does, validated on enter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input, Label, Static

from ggbench.errors import UsageError
from ggbench.text import sanitize
from ggbench.tui.forms import Form, FormField, Record
from ggbench.tui.screens.dialogs import Dialog


class ChoiceField(Static, can_focus=True):
    """One of a few texts; left, right and space go through them."""

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
    """Ends with the record as it was filled in, or with None if it was closed."""

    AUTO_FOCUS = "Input, ChoiceField"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Apply"),
        Binding("escape", "dismiss", "Close"),
        Binding("ctrl+r", "reset", "Defaults", priority=True),
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, form: Form[Record], record: Record, of: str = "") -> None:
        """`record` fills the fields at first; `of` names what is measured, in the title."""
        super().__init__(classes="-panel" if form.marks_changes else None)
        self.form, self._record, self._of = form, record, of

    def compose(self) -> ComposeResult:
        form = self.form
        with VerticalScroll(classes="dialog", can_focus=False) as sheet:
            sheet.border_title = f"{form.title} of {sanitize(self._of)}" if self._of else form.title
            sheet.border_subtitle = form.hint
            for field in form.fields:
                with Horizontal(id=f"line_{field.name}"):
                    yield Label(f"{'  ' if form.marks_changes else ''}{field.label}", classes="label", markup=False)
                    yield self._make_editor(field)
                    unset = f"default: {field.unset}" if form.marks_changes else field.unset
                    yield Static(unset, classes="unset", markup=False)
            yield Static(form.about, id="about", markup=False)

    def on_mount(self) -> None:
        self._mark()

    def action_move(self, steps: int) -> None:
        """Go to another field; at once, unlike Textual's own action, as letters typed right after belong to it."""
        fields = self.focus_chain
        if self.focused in fields:
            self.set_focus(fields[(fields.index(self.focused) + steps) % len(fields)])

    def action_reset(self) -> None:
        for field in self._asked:
            self._editor(field).value = field.text_of(self.form.default, self.form.default)

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """End with what the fields say; show the first that cannot be read."""
        values: dict[str, Any] = {}
        what = ""
        try:
            for field in self._asked:
                what = f"{field.label}: "
                values[field.name] = field.value_of(self._editor(field).value, self.form.default)
            what = ""
            self.dismiss(self.form.filled(self._record, values))
        except UsageError as error:
            if what:
                self._editor(field).focus()
            self.call_after_refresh(self._say, sanitize(f"✗ {what}{error.message}; {error.hint}"), error=True)

    @on(DescendantFocus)
    def _explain(self) -> None:
        about = (field.about for field in self._asked if self.focused is not None and field.name == self.focused.id)
        self._say(next(about, "") or self.form.about)

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _mark(self) -> None:
        """Mark the fields that are not default, and drop an error."""
        for field in self._asked if self.form.marks_changes else ():
            text = self._editor(field).value.strip()
            is_changed = text not in ("", field.text_of(self.form.default, self.form.default))
            line = self.query_one(f"#line_{field.name}")
            line.set_class(is_changed, "-changed")
            line.query_one(".label", Label).update(f"{'●' if is_changed else ' '} {field.label}")
        if self.query_one("#about").has_class("-error"):
            self._explain()

    def _say(self, text: str, *, error: bool = False) -> None:
        about = self.query_one("#about", Static)
        about.set_class(error, "-error")
        about.update(text)

    @property
    def _asked(self) -> Sequence[FormField]:
        return [field for field in self.form.fields if field.name]

    def _make_editor(self, field: FormField) -> Input | ChoiceField | Static:
        if not field.name:
            return Static(next(iter(field.choices)), classes="fixed", markup=False)
        text = field.text_of(self._record, self.form.default)
        if field.choices:
            return ChoiceField(tuple(field.choices), text, id=field.name)
        return Input(text, placeholder="default", id=field.name, compact=True)

    def _editor(self, field: FormField) -> Input | ChoiceField:
        found = self.query_one(f"#{field.name}")
        assert isinstance(found, Input | ChoiceField)
        return found
