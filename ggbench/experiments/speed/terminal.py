"""Speed by input length and batch size for the terminal: a line for each case, W and B for each batch size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ggbench.experiments.speed.document import DEFINITIONS, all_cases, case_note, result_of
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.columns import b_text, w_text
from ggbench.show.names import quant_name, row_labels
from ggbench.show.serving import serving_caption
from ggbench.show.terminal.machine import again_line, environment_line, machine_table
from ggbench.show.terminal.tables import Cells, fitted_table, names, notes, right, spaced, twin_caption
from ggbench.stats.decode_timing import b_ratio, w_ratio
from ggbench.text import plain
from ggbench.units import format_count, format_duration, format_gb, format_ms, format_number, format_percent

_FEW_STEPS = "A dash: too few timed steps for W and B; a longer -n times more."


def speed_table(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    """Return the cases of every run, then W and B of every batch size."""
    served = dict.fromkeys(map(serving_caption, runs))
    caption = "\n".join(filter(None, (DEFINITIONS, *served, twin_caption([run.subject for run in runs]))))
    return spaced([_cases(runs, width, caption), *_lines(runs, width)])


def speed_details(run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
    """Return the cases, W and B, machine and command of one run."""
    heading = Text(quant_name(run.subject), style="bold")
    if run.reason:
        heading.append(f"\n{plain(run.reason)}", style="not bold yellow")
    parts: list[RenderableType] = [heading, _AsWide(run)]
    if machine := machine_table(readings, run.gpu_use):
        parts.append(machine)
    environment = run.head.environment
    origin = [] if environment is None else [Text(environment_line(environment), style="dim")]
    return spaced([*parts, Group(*origin, *again_line(run.head.command, folded=folded))])


class _AsWide:
    """The tables of a run, no wider than where they are shown."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the tables."""
        yield speed_table([self._run], width=options.max_width)


def _cases(runs: Sequence[Run], width: int | None, caption: str) -> RenderableType:
    rows = all_cases(runs)
    found = [each for _, each in rows]
    labels = _labels(runs)
    quants = [labels[id(run)] for run, _ in rows]

    def figures(header: str, unit: str, name: str, form: Callable[[Any], str], priority: int) -> Cells:
        return right(header, _texts(found, name, form), unit, priority)

    of_requests = (
        figures("a request", "tok/s", "requests.tok_s", format_number, 2),
        figures("slowest", "tok/s", "requests.tok_s_low", format_number, 9),
        figures("max TTFT", "ms", "requests.ttft_max_ms", format_ms, 5),
    )
    of_memory = (
        figures("memory", "GB", "ended.memory.total_bytes", format_gb, 3),
        figures("memory", "GiB", "ended.memory.total_bytes", _gib, 10),
        figures("peak", "GiB", "ended.peak_bytes", _gib, 11),
        figures("on GPU", "GiB", "ended.gpu_bytes", _gib, 11),
    )
    return fitted_table(
        [
            *([names("quant", quants)] if len(runs) > 1 else []),
            right("input", (format_count(each.case.n_input) for each in found), "tokens", stays=True),
            right("batch", (format_count(each.case.n_seqs) for each in found), stays=True),
            right("Qwen2.5", _texts(found, "tok_s_qwen2_5", format_number), "tok/s", stays=True),
            right("Qwen3", _texts(found, "tok_s_qwen3", format_number), "tok/s", stays=True),
            figures("decode", "tok/s", "decode_tok_s", format_number, 1),
            figures("prefill", "tok/s", "prefill_tok_s", format_number, 2),
            figures("TTFT", "ms", "ttft_ms", format_ms, 4),
            *(of_requests if any(each.requests for each in found) else ()),
            figures("p50", "ms", "latency.p50_ms", format_ms, 6),
            figures("p95", "ms", "latency.p95_ms", format_ms, 8),
            figures("p99", "ms", "latency.p99_ms", format_ms, 7),
            figures("token", "ms", "token_ms", format_ms, 9),
            figures("gain", "", "gain", lambda gain: f"{format_number(gain)}x" if gain else "—", 5),
            *(() if found and all(each.requests for each in found) else of_memory),
            figures("expected", "", "ended.expected_s", format_duration, 12),
            notes(map(case_note, found)),
        ],
        labels=[
            f"{f'{quant}, ' if len(runs) > 1 else ''}{each.case.name}"
            for quant, each in zip(quants, found, strict=True)
        ],
        dim=[each.tok_s_qwen2_5 is None for each in found],
        width=width,
        caption=caption,
    )


def _lines(runs: Sequence[Run], width: int | None) -> list[RenderableType]:
    labels = _labels(runs)
    rows = [(labels[id(run)], each) for run in runs for each in result_of(run).lines]
    if not rows:
        return []
    lines = [each for _, each in rows]
    table = fitted_table(
        [
            *([names("quant", (quant for quant, _ in rows))] if len(runs) > 1 else []),
            right("batch", (format_count(each.n_seqs) for each in lines), stays=True),
            right("W", (w_text(each.fit) for each in lines), "tokens/ms", stays=True),
            right("W%", (format_percent(w_ratio(each.fit, each.limit)) for each in lines), "of limit", 1),
            right("limit of W", _texts(lines, "limit.w_tokens_per_ms", format_number), "tokens/ms", 2),
            right("B", (b_text(each.fit) for each in lines), "ms", stays=True),
            right("B%", (format_percent(b_ratio(each.fit, each.limit)) for each in lines), "of limit", 1),
            right("limit of B", _texts(lines, "limit.b_ms", format_ms), "ms", 2),
        ],
        title="Latency of a step: (n - 1) / W + B, n tokens in each sequence's cache",
        width=width,
        caption=_FEW_STEPS if any(each.fit is None or each.fit.w_ci95 is None for each in lines) else "",
    )
    return [table]


def _labels(runs: Sequence[Run]) -> dict[int, str]:
    return {id(run): label for run, label in zip(runs, row_labels([run.subject for run in runs]), strict=True)}


def _texts(records: Sequence[object], path: str, text: Callable[[Any], str]) -> Iterator[str]:
    for record in records:
        value: Any = record
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        yield text(value)


def _gib(n_bytes: int | None) -> str:
    return format_gb(n_bytes, binary=True)
