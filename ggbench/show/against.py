"""A run's results next to the nearest published rows, naming every difference in their conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from rich.console import RenderableType

from ggbench.models.published import PublishedFigure, PublishedRow, load_published
from ggbench.models.published.selection import LLAMA_CPP, NearRow, OwnSpeed, nearest_published
from ggbench.models.subject import Subject
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import ANSWERS, COLUMNS
from ggbench.show.names import quant_name
from ggbench.show.tables import fitted_table, names, right, spaced
from ggbench.text import sanitize
from ggbench.units import format_count, format_ms, format_number

_NEAREST = 4
_SYSTEMS = {"llama-server": LLAMA_CPP, "llama-cpp-python": LLAMA_CPP, "vLLM": "vllm"}
"""The published name of each server program; a server's version string starts with the program's name."""


class FigureColumn(msgspec.Struct, frozen=True):
    """A column of the table: a run's own value, and how to read it from a published row."""

    header: str
    unit: str
    own: str
    of: Callable[[PublishedRow], str]
    priority: int = 0
    """Columns with higher numbers are left out first."""


def printed(name: str) -> Callable[[PublishedRow], str]:
    """Return a function that reads a value of a row as printed."""
    return lambda row: _printed(getattr(row, name))


def against_table(
    title: str,
    quant: str,
    columns: Sequence[FigureColumn],
    near: Sequence[NearRow],
    note: str,
    *,
    width: int | None,
    name: Callable[[PublishedRow], str] = lambda row: row.system,
) -> RenderableType:
    """Return a table of a run's own values and the nearest published rows, with every difference below."""
    rows = [each.row for each in near]
    cells = [
        names("", ["yours", *map(name, rows)]),
        names("quant", [quant, *(row.quant or UNKNOWN for row in rows)]),
        *(right(each.header, [each.own, *map(each.of, rows)], each.unit, each.priority) for each in columns),
    ]
    stated = [each for each in cells if not each.is_empty]
    lines = [f"yours: {note}", *_difference_lines(near, lambda row: f"{name(row)} {row.quant or UNKNOWN}")]
    return fitted_table(stated, title=title, width=width, caption="\n".join(map(sanitize, lines)))


def _difference_lines(near: Sequence[NearRow], name: Callable[[PublishedRow], str]) -> list[str]:
    """Return the differences shared by all rows, then each row's own, how it was measured, and its source."""
    shared = [text for text in near[0].differences if all(text in each.differences for each in near)]
    lines = [f"all published rows: {'; '.join(shared)}"] if shared else []
    for each in near:
        row, own = each.row, [text for text in each.differences if text not in shared]
        differences = own or ([] if shared else ["no difference"])
        setting = [words for words in (row.setting, row.remark) if words]
        lines.append(f"{name(row)}: {'; '.join([*differences, *setting, f'{row.source} {row.table}'])}")
    return lines


def against_tables(summaries: Sequence[QuantSummary], *, width: int | None = None) -> RenderableType:
    return spaced([_speed_table(summary, nearest_to(summary), width) for summary in summaries])


def _speed_table(summary: QuantSummary, near: Sequence[NearRow], width: int | None) -> RenderableType:
    if not near:
        return f"No published row measures {quant_name(summary.subject)}."
    w, b, speed = (COLUMNS[key].text(summary) for key in ANSWERS)
    decode = summary.decode
    columns = (
        FigureColumn("W", "tokens/ms", w, printed("w_tokens_per_ms")),
        FigureColumn("B", "ms", b, printed("b_ms")),
        FigureColumn("speed", "tok/s", speed, printed("tok_s")),
        FigureColumn(
            "prefill", "ms", format_ms(decode.prefill_ms if decode else None), printed("prefill_ms"), 1
        ),
        FigureColumn("throughput", "tok/s", UNKNOWN, printed("throughput_tok_s"), 2),
        FigureColumn("memory", "GB", UNKNOWN, printed("memory_gb"), 3),
        FigureColumn("BPW", "bits", format_number(summary.subject.bpw), printed("bpw"), 4),
    )
    stated = [each for each in columns[3:] if any(each.of(one.row) != UNKNOWN for one in near)]
    note = sanitize(device_of(summary) or "unknown device")
    if decode is not None and decode.n_gen:
        note += f"; input {format_count(decode.n_prompt)}, generated {format_count(decode.n_gen)}"
    title = f"{quant_name(summary.subject)} against published rows"
    quant = COLUMNS["quant"].text(summary)
    return against_table(title, quant, [*columns[:3], *stated], near, note, width=width)


def nearest_to(summary: QuantSummary) -> tuple[NearRow, ...]:
    """Return the nearest published speeds of the same model; empty if nobody published any."""
    decode = summary.decode
    n_gen = decode.n_gen or None if decode else None
    longest = max((speed.n_prompt for speed in summary.prefills if not speed.n_depth), default=None)
    own = own_speed(summary, decode.n_prompt if decode and (n_gen or longest is None) else longest, n_gen)
    return () if own is None else nearest_published(load_published(), own, _NEAREST)


def own_speed(
    summary: QuantSummary, n_prompt: int | None, n_gen: int | None, batch_size: int = 1
) -> OwnSpeed | None:
    """Return how a run was measured, in the terms of published rows; None for an unpublished model."""
    model = published_model(summary.subject)
    if model is None:
        return None
    server = summary.environment.server if summary.environment else ""
    system = next((system for program, system in _SYSTEMS.items() if server.startswith(program)), server)
    quant = summary.subject.quant
    return OwnSpeed(model, quant, system or LLAMA_CPP, device_of(summary), n_prompt, n_gen, batch_size)


def published_model(subject: Subject) -> str | None:
    """Return the published model of the same name, by MODEL or by the file's name; None if there is none.

    `twin:qwen1.5-7b`, `Qwen/Qwen1.5-7B-Chat-GGUF` and `qwen1_5-7b-chat-q4_k_m.gguf` are all `qwen1.5-7b`.
    """
    models = sorted({published.model for published in load_published()}, key=len, reverse=True)
    for text in (subject.model, subject.file):
        spelt = text.lower().replace("_", ".")
        for name in models:
            if re.search(rf"(?<![a-z0-9.]){re.escape(name)}(?![a-z0-9])", spelt):
                return name
    return None


def device_of(summary: QuantSummary) -> str | None:
    """Return the main GPU if layers were on one, else the CPU; None if unknown, as on a server."""
    environment, setup = summary.environment, summary.setup
    if environment is None or not summary.memory.buffers:
        return None
    if summary.memory.weights_on_gpu and environment.gpus:
        main = setup.main_gpu or 0
        return environment.gpus[main if main < len(environment.gpus) else 0].name
    return environment.cpu


def _printed(figure: PublishedFigure | None) -> str:
    return UNKNOWN if figure is None else figure.printed
