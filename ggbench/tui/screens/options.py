"""The panel of options that decide an answer: one line for each, what is not default marked, validated on enter."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import DescendantFocus
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.text import plain
from ggbench.tui.screens.dialogs import Dialog
from ggbench.tui.setup_fields import FIELDS, SetupField, setup_of

_HINT = "enter applies · ctrl+r all defaults · esc closes"


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

    def __init__(self, choices: tuple[str, ...], value: str, *, id: str) -> None:
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


class OptionsScreen(Dialog["LlamaConfig | None"]):
    """Ends with the setup as changed, or with None if it was closed."""

    AUTO_FOCUS = "#memory_limit_bytes"
    DEFAULT_CSS = """
    OptionsScreen {
        .dialog { padding: 0 2; }
        Horizontal { height: 1; }
        .label { width: 20; }
        Input, ChoiceField { width: 14; height: 1; border: none; padding: 0 1; background: $panel; }
        Input:focus, ChoiceField:focus { background: $primary; color: $text; text-style: bold; }
        .unset { width: 1fr; padding: 0 0 0 2; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        .-changed .label { text-style: bold; }
        #about { height: 3; padding: 1 0 0 0; }
        #about.-error { color: $text-error; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "Apply"),
        Binding("escape", "dismiss", "Close"),
        Binding("ctrl+r", "reset", "Defaults", priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, setup: LlamaConfig) -> None:
        super().__init__()
        self._setup = setup

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", can_focus=False) as sheet:
            sheet.border_title = "Options of plans and runs"
            sheet.border_subtitle = _HINT
            for field in FIELDS:
                with Horizontal(id=f"line_{field.name}"):
                    yield Label(f"  {field.label}", classes="label", markup=False)
                    yield _editor(field, self._setup)
                    yield Static(f"default: {field.unset}", classes="unset", markup=False)
            yield Static(id="about", markup=False)

    def on_mount(self) -> None:
        self._mark()

    @on(DescendantFocus)
    def _explain(self) -> None:
        """Show what the focused field does."""
        field = next((each for each in FIELDS if self.focused is not None and each.name == self.focused.id), None)
        self._say("" if field is None else field.about)

    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def _mark(self) -> None:
        """Mark the fields that are not default, and drop an error."""
        for field in FIELDS:
            is_changed = self._text(field).strip() not in ("", field.text_of(LlamaConfig()))
            line = self.query_one(f"#line_{field.name}")
            line.set_class(is_changed, "-changed")
            line.query_one(".label", Label).update(f"{'●' if is_changed else ' '} {field.label}")
        if self.query_one("#about").has_class("-error"):
            self._explain()

    @on(Input.Submitted)
    def action_apply(self) -> None:
        """End with what the fields say; show the first that cannot be read."""
        for field in FIELDS:
            try:
                field.value_of(self._text(field))
            except UsageError as error:
                self._refuse(error, f"{field.label}: ")
                self._editor(field).focus()
                return
        try:
            setup = setup_of({field.name: self._text(field) for field in FIELDS}, self._setup)
        except UsageError as error:
            self._refuse(error)
            return
        self.dismiss(setup)

    def action_reset(self) -> None:
        for field in FIELDS:
            editor, text = self._editor(field), field.text_of(LlamaConfig())
            if isinstance(editor, Input | ChoiceField):
                editor.value = text

    def _refuse(self, error: UsageError, what: str = "") -> None:
        self.call_after_refresh(self._say, plain(f"✗ {what}{error.message}; {error.hint}"), error=True)

    def _say(self, text: str, *, error: bool = False) -> None:
        about = self.query_one("#about", Static)
        about.set_class(error, "-error")
        about.update(text)

    def _text(self, field: SetupField) -> str:
        editor = self._editor(field)
        return editor.value if isinstance(editor, Input | ChoiceField) else ""

    def _editor(self, field: SetupField) -> Widget:
        return self.query_one(f"#{field.name}")


def _editor(field: SetupField, setup: LlamaConfig) -> Widget:
    text = field.text_of(setup)
    if field.choices:
        return ChoiceField(field.choices, text, id=field.name)
    return Input(text, placeholder="default", id=field.name, compact=True)
