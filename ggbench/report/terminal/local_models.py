"""The models on this disk, one in a line, what to type at its end.

Hundreds of lines take a table of rich's longer than finding the files did, and a path that was folded into a column
cannot be copied: so this is one text, to be printed without wrapping.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from ggbench.plain import plain
from ggbench.report.columns import UNKNOWN
from ggbench.report.terminal.layout import GAP, TWIN_CAPTION
from ggbench.units import format_bytes, format_count

if TYPE_CHECKING:
    from ggbench.catalog.disk import LocalModel

_WIDE = 100
"""Characters; a narrower terminal leaves architecture and trained length to `ggbench inspect`."""
_RIGHT = {"size", "trained to"}


def local_models_listing(models: Sequence[LocalModel], *, width: int | None = None) -> Text:
    """Store, quant, size, architecture, trained length, and MODEL as a shell takes it; print it with `soft_wrap`."""
    columns = {
        "store": [model.store for model in models],
        "quant": [model.quant or UNKNOWN for model in models],
        "size": [format_bytes(model.file_bytes) for model in models],
    }
    if width is None or width >= _WIDE:
        columns["architecture"] = [model.architecture or UNKNOWN for model in models]
        columns["trained to"] = [format_count(model.n_ctx_train) for model in models]
    padded = [_padded([header, *texts], right=header in _RIGHT) for header, texts in columns.items()]
    header, *lines = map((" " * GAP).join, zip(*padded, ["model", *map(_model_text, models)], strict=True))
    text = Text.assemble((f"{header}\n", "bold"), "─" * cell_len(header))
    for model, line in zip(models, lines, strict=True):
        text.append(f"\n{line}", "dim" if model.reason else None)
    if any(model.is_twin for model in models):
        text.append(f"\n{TWIN_CAPTION}")
    return text


def local_models_total(models: Sequence[LocalModel]) -> str:
    """`3 models, 12.1 GiB`."""
    n_files = sum(bool(model.paths) for model in models)
    return f"{n_files} {'model' if n_files == 1 else 'models'}, {format_bytes(sum(m.file_bytes or 0 for m in models))}"


def _model_text(model: LocalModel) -> str:
    """What to type; before it a name that is in no path, such as Ollama's, and after it what is wrong."""
    typed = plain(_quoted(model.model)) if model.paths else ""
    tells_all = typed and (not model.is_named_by_path or model.name in typed)
    shown = typed if tells_all else f"{plain(model.name)}  {typed}".rstrip()
    return f"{shown}  ({plain(model.reason)})" if model.reason else shown


def _quoted(model: str) -> str:
    """For a POSIX shell, which knows `~` only outside quotes."""
    return f"~/{shlex.quote(model[2:])}" if model.startswith("~/") else shlex.quote(model)


def _padded(texts: Sequence[str], *, right: bool) -> list[str]:
    """All as wide as the widest on the screen."""
    lengths = list(map(cell_len, texts))
    widest = max(lengths)
    blanks = [" " * (widest - length) for length in lengths]
    return [blank + text if right else text + blank for text, blank in zip(texts, blanks, strict=True)]
