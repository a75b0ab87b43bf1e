"""Ollama's Modelfile as its own parser reads it.

Source: Ollama's Modelfile reference, and the state machine in its parser/parser.go: an instruction is letters, then a
blank, then a value to the end of the line; a value in one or three double quotes may hold newlines; characters that
cannot be printed are dropped; a line that begins with `#` is a comment.
"""

from collections import defaultdict
from collections.abc import Callable

_INSTRUCTIONS = ("from", "license", "template", "system", "adapter", "renderer", "parser", "parameter", "message")
_PARAMETERS: dict[str, Callable[[str], object]] = {
    "num_ctx": int, "num_gpu": int, "main_gpu": int, "num_batch": int, "num_thread": int,
    "use_mmap": {"true": True, "false": False}.__getitem__,
}  # fmt: skip
"""Those of api/types.go that load a model, with their types."""


def parse_modelfile(text: str) -> dict[str, list[str]]:
    """Return the values of FROM as `model`, and of each PARAMETER by name. Raises ValueError where Ollama refuses."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    lines = iter(text.replace("\r", "\n").split("\n"))
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        instruction, blank, value = line.lstrip(" \t").partition(" ")
        if not blank or instruction.lower() not in _INSTRUCTIONS:
            raise ValueError(f"not an instruction: {line!r}")
        name = "model" if instruction.lower() == "from" else instruction.lower()
        if name == "parameter":
            name, _, value = value.lstrip(" \t").partition(" ")
            if not name.replace("_", "").isalnum():
                raise ValueError(f"not a parameter: {line!r}")
            _PARAMETERS[name](value.strip())
        value = value.strip()
        while (unquoted := _unquoted(value)) is None:
            value += "\n" + next(lines)
        found[name].append("".join(each for each in unquoted if each.isprintable()))
    if not found["model"]:
        raise ValueError("no FROM line")
    return dict(found)


def _unquoted(value: str) -> str | None:
    """The value without its quotes; None where it is not finished."""
    for quotes in ('"""', '"'):
        if value.startswith(quotes):
            is_closed = len(value) >= 2 * len(quotes) and value.endswith(quotes)
            return value[len(quotes) : -len(quotes)] if is_closed else None
    return value
