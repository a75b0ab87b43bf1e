"""What a run by input length and batch size shows while it goes on and afterwards: a curve of tokens/s for each batch
size, and a grid of the cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.experiments.speed.record import Case, SpeedCase, SpeedResult, SpeedSettings
from ggbench.show.plot.curves import Curve, Figure, PlottedRun, batch_sizes, latency_figure
from ggbench.units import format_count, format_number

_INPUT_WIDTH, _CELL_WIDTH, _BATCHES_ACROSS = 8, 6, 3
"""Of a grid of 28 characters: more batch sizes follow below."""
_SLOW = 0.1
"""Tokens/s below which a forecast has one digit, so that its cell holds it."""
_WAITING, _RUNNING, _FAILED, _FORECAST = "·", "…", "✗", "~"


def speed_figures(runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
    """Return tokens/s as Qwen2.5 counts over input length, then the latency of steps, a figure for each batch size."""
    measured = [_measured(run) for run in runs]
    batches = sorted({case.n_seqs for cases in measured for case in cases})
    return (*(_figure(n_seqs, runs, measured) for n_seqs in batches), *_steps(runs))


def _steps(runs: Sequence[PlottedRun]) -> Iterator[Figure]:
    """The latency of steps: those of several batch sizes are on no one line, and their limits differ.

    Of runs that go on, whose series are not known, all steps so far.
    """
    batches = sorted({n_seqs for run in runs for n_seqs in batch_sizes(run)})
    if not batches:
        yield latency_figure([replace(run, fit=None, limit=None, end=None) for run in runs])
    for n_seqs in batches:
        yield latency_figure([_with_line(run, n_seqs) for run in runs], n_seqs)


def _with_line(run: PlottedRun, n_seqs: int) -> PlottedRun:
    """A run with the line of its steps of one batch size; one of another kind has its own for batch 1."""
    if not isinstance(run.settings, SpeedSettings):
        return run if n_seqs == 1 else replace(run, fit=None, limit=None, end=None)
    lines = run.result.lines if isinstance(run.result, SpeedResult) else ()
    line = next((each for each in lines if each.n_seqs == n_seqs), None)
    fit, limit = (None, None) if line is None else (line.fit, line.limit)
    return replace(run, fit=fit, limit=limit, end=None)


def case_grid(run: PlottedRun) -> tuple[str, ...]:
    """Return the case at work, and tokens/s of each case by input length and batch size, in lines of 28 characters.

    One that was skipped has what was forecast, one that failed `✗`, and one that waits `·`.
    """
    settings, ended = run.settings, {found.case: found for found in _ended(run)}
    if not isinstance(settings, SpeedSettings):
        return ()
    now = run.doing if isinstance(run.doing, Case) and run.doing not in ended else None
    lines = [] if now is None else [now.name]
    batches = sorted(set(settings.batches))
    for start in range(0, len(batches), _BATCHES_ACROSS):
        part = batches[start : start + _BATCHES_ACROSS]
        lines.append(f"{'input':>{_INPUT_WIDTH}}" + "".join(f"{f'b{n_seqs}':>{_CELL_WIDTH}}" for n_seqs in part))
        for n_input in sorted(set(settings.inputs)):
            cells = (_cell(Case(n_seqs, n_input, settings.n_gen), now, ended) for n_seqs in part)
            lines.append(
                f"{format_count(n_input):>{_INPUT_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
            )
    if any(_FORECAST in line for line in lines):
        lines.append(f"{_FORECAST} forecast, and skipped")
    return (*lines, "tok/s as Qwen2.5 counts")


def _cell(case: Case, now: Case | None, ended: Mapping[Case, SpeedCase]) -> str:
    found = ended.get(case)
    if found is None:
        return _RUNNING if case == now else _WAITING
    if found.tok_s_qwen2_5 is not None:
        return format_number(found.tok_s_qwen2_5)
    expected_s = found.ended.expected_s
    if found.ended.outcome is Outcome.SKIPPED and expected_s:
        tok_s = case.n_seqs * case.n_gen / expected_s
        return f"{_FORECAST}{format_number(tok_s, 2 if tok_s >= _SLOW else 1)}"
    return _FAILED


def _figure(n_seqs: int, runs: Sequence[PlottedRun], measured: Sequence[Mapping[Case, float]]) -> Figure:
    curves = []
    for run, cases in zip(runs, measured, strict=True):
        found = sorted((case.n_input, tok_s) for case, tok_s in cases.items() if case.n_seqs == n_seqs)
        x = np.asarray([n_input for n_input, _ in found], np.int64)
        y = np.asarray([tok_s for _, tok_s in found], np.float64)
        note = f"{format_number(found[-1][1])} tok/s at {format_count(found[-1][0])}" if found else ""
        curves.append(Curve(run.name, x, y, np.zeros(len(y)), note=note, dimmed=run.dimmed))
    name = f"speed as Qwen2.5 counts, batch {format_count(n_seqs)}"
    end = max((_longest_input(run) for run in runs if run.result is None), default=0)
    return Figure(f"speed-b{n_seqs}", name, "tok/s", "input", "tokens", tuple(curves), end or None, y_low=0.0)


def _longest_input(run: PlottedRun) -> int:
    return max(run.settings.inputs) if isinstance(run.settings, SpeedSettings) else 0


def _measured(run: PlottedRun) -> dict[Case, float]:
    """Tokens/s of the cases that ran to their end."""
    return {found.case: found.tok_s_qwen2_5 for found in _ended(run) if found.tok_s_qwen2_5 is not None}


def _ended(run: PlottedRun) -> Sequence[SpeedCase]:
    """The cases that ended, of a run that goes on as they were reported."""
    if isinstance(run.result, SpeedResult):
        return run.result.cases
    return [each for each in run.observations if isinstance(each, SpeedCase)]
