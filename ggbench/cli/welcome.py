"""What `ggbench` alone prints: what is on this disk, and what to type next."""

from __future__ import annotations

from ggbench.commands.output import Output
from ggbench.models.disk import find_local_models
from ggbench.show.answer import Answer, Facts
from ggbench.show.words import say
from ggbench.text import shell_path
from ggbench.units import counted, format_bytes

_ALWAYS = [
    ("ggbench results", "what was measured"),
    ("ggbench tui", "the same by hand: choose, measure, compare"),
    ("ggbench doctor", "this machine, and what to mend"),
    ("ggbench --help", "all commands"),
]


def show_welcome() -> None:
    models = [each for each in find_local_models() if each.is_runnable]
    text, command = say("welcome.no_model"), "ggbench pick"
    steps = [("ggbench demo", "a tour in a minute, without a network")]
    if models:
        size = format_bytes(sum(each.file_bytes or 0 for each in models))
        text, command = (
            say("welcome.models", models=counted(len(models), "model"), size=size),
            "ggbench pick --local",
        )
        smallest = min(models, key=lambda each: each.file_bytes or 0)
        decode = f"ggbench decode {' '.join(map(shell_path, smallest.arguments))}"
        steps = [(decode, "how fast the smallest is here"), ("ggbench models", "what is there")]
    Output().answer(Answer(text, command, [Facts([*steps, *_ALWAYS])]))
