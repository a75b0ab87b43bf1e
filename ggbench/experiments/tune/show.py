"""Show a search for settings that beat the defaults."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.decisions.pick.run_commands import RunCommands, commands_lines, modelfile_lines, run_commands
from ggbench.experiments.tune.race import BASELINE, Race, scores_of
from ggbench.experiments.tune.record import (
    Gain,
    TuneCandidate,
    TunedCandidate,
    TuneDropped,
    TuneResult,
    TuneSegment,
    TuneSettings,
    changes,
    changes_text,
    ratio_text,
    result_of,
)
from ggbench.fields import config_options
from ggbench.machine.records import MachineReading
from ggbench.models.targets import FileToRun
from ggbench.runs.run import Run
from ggbench.show.document import Shape, by_name, field, many, of
from ggbench.show.figures import Curve, Figure, Floats, PlottedRun
from ggbench.show.machine import run_page
from ggbench.show.names import model_name, quant_name, row_labels
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import MEASURED_FILE, ORIGIN, RunDocuments, expected, run_documents
from ggbench.show.tables import Cells, facts_table, fitted_table, left, names, notes, right
from ggbench.show.text import expected_text
from ggbench.text import sanitize
from ggbench.units import counted, format_count, format_number, format_percent

_LIVE_ROWS = 6

_NAME_WIDTH = 20

_CAPTION = "times: speed / the defaults' in the race, where the best of several is partly lucky"

_PROVEN = "; the gain above was measured separately"

_LITTLE = 0.05
"""If the interval extends further above 1, there may be an unproven gain."""


def tuned_commands(run: Run) -> tuple[str, RunCommands] | None:
    """Return a `ggbench decode` command with the settings found, and the same load for other programs; None if
    unavailable.

    If nothing beats the baseline, its settings are used, with the requested n_ctx.
    """
    found, subject = result_of(run), run.subject
    if not found.n_measured:
        return None
    setup = replace((found.best or found.candidates[0]).setup, n_ctx=run.head.setup.n_ctx)
    paths = (Path(subject.file),) if subject.file else ()
    file = FileToRun(model_name(subject), subject.quant, paths, is_here=True)
    on_gpu = bool(run.memory.weights_on_gpu)
    line = shlex.join(["ggbench", "decode", subject.file or subject.model, *config_options(setup)])
    return line, run_commands(file, setup, on_gpu=on_gpu, n_ctx_train=subject.n_ctx_train)


def _by_depth(gains: Sequence[Gain]) -> dict[str, Gain]:
    return {str(each.n_depth): each for each in gains}


_GAIN = Shape(
    "GainAtDepth",
    "Speed / the defaults'; above 1 is faster; null if unknown.",
    expected(
        "ratio",
        "Ratio for the decode, or for the prompt if no decode was requested.",
        lambda gain: gain.decode or gain.prefill,
        "ci95",
    ),
    expected("prefill_ratio", "", lambda gain: gain.prefill, "prefill_ci95"),
    of(Gain, "step_ms batch_ms"),
)
_CANDIDATE = Shape(
    "Candidate",
    "Candidate settings; `state` says whether they were tried.",
    of(TunedCandidate, "number state"),
    field("settings", dict[str, object], "Their changes to the defaults, by llama.cpp's names."),
    of(TunedCandidate, "reason? n_timed"),
    expected(
        "ratio",
        "Speed / the defaults' in the race, over all depths and phases.",
        lambda candidate: candidate.ratio,
        "ci95",
    ),
    field("at", by_name(_GAIN), "By depth.", lambda candidate: _by_depth(candidate.at)),
    expected(
        "kld",
        "Quality loss due to the KV cache, in nats per token, if measured.",
        lambda candidate: candidate.kv_loss and candidate.kv_loss.nats,
        "kld_ci95",
    ),
)
_COMMANDS = Shape(
    "TunedCommands",
    "Commands that run the model with the settings found.",
    field("ggbench", str),
    of(RunCommands, "llama_server llama_cli"),
    field("ollama", str | None, get=lambda commands: "\n".join(modelfile_lines(commands)) or None),
)


def _commands(run: Run) -> dict[str, object] | None:
    found = tuned_commands(run)
    return None if found is None else _COMMANDS.value(found[1], ggbench=found[0])


def _candidates(run: Run) -> list[dict[str, object]]:
    found = result_of(run)
    return [_CANDIDATE.value(each, settings=found.changes(each)) for each in found.candidates]


_TUNE = Shape(
    "Tune",
    "A search for the settings that beat the defaults.",
    MEASURED_FILE,
    of(TuneSettings, "depths within_s kv_types n_prompt", lambda run: run.head.settings, maybe=True),
    of(TuneResult, "for=objective", result_of),
    field(
        "best",
        dict[str, object],
        "Changes to the defaults, by llama.cpp's names; empty if nothing beats them.",
        lambda run: found.changes(found.best) if (found := result_of(run)).best else {},
    ),
    of(TuneResult, "has_gain", result_of),
    expected(
        "ratio",
        "Speed of the finalist / the defaults', measured separately.",
        lambda run: result_of(run).ratio,
        "ci95",
    ),
    field("gain", by_name(_GAIN), "The same by depth.", lambda run: _by_depth(result_of(run).gain)),
    of(TuneResult, "finalist", result_of),
    field("candidates", many(_CANDIDATE), get=_candidates),
    of(TuneResult, "n_measured n_discarded noise unsteady? cut_short?", result_of),
    field("commands", _COMMANDS | None, "Null if nothing was found.", _commands),
    ORIGIN,
)
DOCUMENTS = run_documents("tune", _TUNE)


class TunePresenter(Presenter):
    kind: ClassVar[str] = "tune"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_line: ClassVar[bool] = False
    has_samples: ClassVar[bool] = False
    no_answer: ClassVar[str] = "nothing was measured"
    plotted: ClassVar[tuple[type, ...]] = (TuneCandidate, TuneSegment, TuneDropped)

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        """Return a curve for each candidate: speed / the defaults' after each round, with its standard error."""
        curves = [curve for index, run in enumerate(runs) for curve in _curves(run, index, has_name=len(runs) > 1)]
        title = "speed / the defaults'"
        return (Figure("race", title, "times", "round", "", tuple(curves), least_range=0.01),)

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        segments = [each for each in run.observations if isinstance(each, TuneSegment)]
        if not segments:
            return ()
        race, names = _race(run), _names(run)
        ordered = sorted((each for each in race.scores if race.scores[each]), key=race.mean, reverse=True)
        proofs = sum(each.stage == "proof" and each.is_kept for each in segments)
        last = f"proof {format_count(proofs)}" if proofs else f"round {format_count(segments[-1].round)}"
        lines = [f"{last}, {counted(len(race.alive), 'candidate')}"]
        for each in ordered[:_LIVE_ROWS]:
            name = names[each] if len(names[each]) <= _NAME_WIDTH else f"{names[each][: _NAME_WIDTH - 1]}…"
            mark = " " if each in race.alive else "✗"
            lines.append(f"{mark}{name:<{_NAME_WIDTH}} {format_number(math.exp(race.mean(each)))}")
        return tuple(lines)

    def short_answer(self, run: Run) -> str:
        """Return `2.83 ±0.04 x`, `defaults`, or `too noisy`; empty if nothing was compared."""
        found = result_of(run)
        if found.has_gain:
            return f"{ratio_text(found.ratio)} x"
        if not verdict(run):
            return ""
        if found.unsteady:
            return "too noisy"
        return "not proven" if found.cut_short else "defaults"

    def answer(self, run: Run) -> str:
        return sanitize(verdict(run))

    def has_details(self, run: Run) -> bool:
        return bool(result_of(run).candidates)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        found = result_of(run)
        facts = [("answer", sanitize(verdict(run)))]
        if found.finalist is not None:
            before = {each.n_depth: each for each in found.candidates[0].at}
            facts += [
                (f"depth {format_count(each.n_depth)}", _gain_line(each, before[each.n_depth])) for each in found.gain
            ]
        facts += [
            ("measured", f"{counted(found.n_measured, 'time')}, {format_count(found.n_discarded)} discarded for drift"),
            ("noise", "" if found.noise is None else f"{format_percent(found.noise)} from one measurement to the next"),
            ("cut short", found.cut_short),
        ]
        parts: list[RenderableType] = [facts_table("Best settings", facts)]
        if found.n_measured:
            parts.append(_candidates_table(found))
        if tuned := tuned_commands(run):
            line, commands = tuned
            lines = "\n".join(f"  {sanitize(each)}" for each in (line, *commands_lines(commands)))
            shown = Text(overflow="fold") if folded else Text(no_wrap=True, overflow="ignore")
            parts.append(shown.append("Commands", style="bold").append(f"\n{lines}"))
            if commands.notes:
                parts.append(Group(*(Text(sanitize(note), style="dim") for note in commands.notes)))
        return run_page(run, quant_name(run.subject), parts, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        found = [result_of(run) for run in runs]
        labels = row_labels([run.subject for run in runs])
        said = []
        for run, each in zip(runs, found, strict=True):
            gains = "; ".join(f"{_gain_text(gain)} at depth {format_count(gain.n_depth)}" for gain in each.gain)
            said.append(f"{verdict(run)}: {gains}" if each.has_gain else verdict(run) or run.reason)
        return fitted_table(
            [
                names("quant", labels),
                right("gain", (ratio_text(each.ratio) for each in found), "times", stays=True),
                notes(said),
            ],
            labels=labels,
            width=width,
        )


def _curves(run: PlottedRun, index: int, *, has_name: bool) -> list[Curve]:
    names, race, result = _names(run), _race(run), run.result
    dropped = {each.candidate for each in run.observations if isinstance(each, TuneDropped)}
    found: dict[int, tuple[list[int], list[float]]] = {}  # rounds and scores, including the proof's
    for segment in run.observations:
        if isinstance(segment, TuneSegment) and segment.is_kept:
            for candidate, score in scores_of(segment.timings):
                if candidate != BASELINE:
                    rounds, scores = found.setdefault(candidate, ([], []))
                    rounds.append(segment.round)
                    scores.append(sum(score) / len(score))
    curves = []
    for candidate, (rounds, scores) in found.items():
        means, errors = _running(scores)
        is_finalist = isinstance(result, TuneResult) and result.finalist == candidate
        ratio = result.ratio if isinstance(result, TuneResult) and is_finalist else race.ratio(candidate)
        name = names.get(candidate, format_count(candidate))
        curves.append(
            Curve(
                f"{run.name}: {name}" if has_name else name,
                np.asarray(rounds, np.int64),
                means,
                errors,
                note=f"{ratio_text(ratio)}{', dropped' if candidate in dropped else ''}",
                dimmed=run.dimmed or candidate in dropped,
                run=index,
            )
        )
    return curves


def _running(scores: Sequence[float]) -> tuple[Floats, Floats]:
    """Return the geometric mean after each score, and its standard error, which is zero after the first."""
    values = np.asarray(scores, np.float64)
    counts = np.arange(1, len(values) + 1)
    means = np.cumsum(values) / counts
    squares = np.cumsum(values**2) - counts * means**2
    errors = np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 1, 1) / counts)
    return np.exp(means), np.exp(means) * errors


def _race(run: PlottedRun) -> Race:
    race = Race()
    for each in run.observations:
        match each:
            case TuneCandidate(number=number) if number != BASELINE and not each.obstacle:
                race.enter([number])
            case TuneSegment(stage="race", is_kept=True):
                race.add(each)
            case TuneDropped(candidate=candidate):
                race.leave(candidate)
    return race


def _names(run: PlottedRun) -> dict[int, str]:
    candidates = {each.number: each.setup for each in run.observations if isinstance(each, TuneCandidate)}
    baseline = candidates.get(BASELINE)
    return {} if baseline is None else {n: changes_text(changes(baseline, setup)) for n, setup in candidates.items()}


def _gain_line(gain: Gain, before: Gain) -> str:
    """`decode 2.83 ±0.04 times: 12.9 to 36.5 tok/s`."""
    parts = []
    for name, ratio, new_ms, old_ms, unit in (
        ("decode", gain.decode, gain.step_ms, before.step_ms, "ms a token"),
        ("prefill", gain.prefill, gain.batch_ms, before.batch_ms, "ms a prompt"),
    ):
        if ratio is not None:
            parts.append(f"{name} {ratio_text(ratio)} times: {format_number(old_ms)} to {format_number(new_ms)} {unit}")
    return "; ".join(parts)


def _candidates_table(found: TuneResult) -> RenderableType:
    rows = found.candidates
    settings = [sanitize(changes_text(found.changes(each))) for each in rows]
    losses = [expected_text(each.kv_loss.nats) if each.kv_loss else "" for each in rows]
    led = None if found.has_gain else found.finalist
    ratios = [each.ratio for each in rows]
    cells = [
        names("settings", settings),
        right("all", map(ratio_text, ratios), "times", stays=True),
        *(_depth_cells(rows, each.n_depth, index) for index, each in enumerate(rows[0].at)),
        right("KLD", losses, "nats", 1),
        right("timed", (format_count(each.n_timed) for each in rows), "", 2),
        left("", ("led the race" if each.number == led else _state(each) for each in rows)),
    ]
    reasons = [f"{name}: {sanitize(each.reason)}" for name, each in zip(settings, rows, strict=True) if each.reason]
    return fitted_table(
        [each for each in cells if not each.is_empty],
        title="Candidates",
        dim=[each.state in ("dropped", "left out", "failed") for each in rows],
        caption="\n".join([*reasons, *([_CAPTION + (_PROVEN if found.gain else "")] if any(ratios) else [])]),
    )


def _state(candidate: TunedCandidate) -> str:
    return "discarded" if candidate.state == "raced" and not candidate.n_timed else candidate.state


def _depth_cells(rows: Sequence[TunedCandidate], n_depth: int, index: int) -> Cells:
    def text(candidate: TunedCandidate) -> str:
        gain = candidate.at[index] if index < len(candidate.at) else None
        if gain is None:
            return ""
        if candidate.ratio is None:
            return f"{format_number(gain.step_ms if gain.step_ms is not None else gain.batch_ms)} ms"
        return " / ".join(ratio_text(each) for each in (gain.decode, gain.prefill) if each is not None)

    return right(f"at {format_count(n_depth)}", map(text, rows), "times", 3)


def verdict(run: Run) -> str:
    """Return the answer in one line: the gain, that there is none, or why that is unknown."""
    found = result_of(run)
    finalist = found.candidate(found.finalist)
    if found.best is not None and found.ratio is not None:
        return f"{changes_text(found.changes(found.best))}: {ratio_text(found.ratio)} times the speed of the defaults"
    if finalist is not None and found.ratio is not None:
        name = f"{changes_text(found.changes(finalist))}, {ratio_text(found.ratio)} times their speed"
        if found.ratio.high > 1 + _LITTLE:
            return f"too noisy to tell whether anything beats the defaults: {name}"
        return f"no setting beats the defaults; the best of the race was {name}"
    if finalist is not None:
        lead = f"{changes_text(found.changes(finalist))}, {ratio_text(finalist.ratio)} times the speed of the defaults"
        return f"not proven; the best so far is {lead}"
    if found.unsteady:
        return "too noisy to decide"
    if found.cut_short:
        return "too little time to tell whether anything beats the defaults"
    return "no setting beats the defaults" if any(each.n_timed for each in found.candidates[1:]) else ""


def _gain_text(gain: Gain) -> str:
    """Return `decode 2.83 ±0.04, prefill 1.00 ±0.01`."""
    parts = (("decode", gain.decode), ("prefill", gain.prefill))
    return ", ".join(f"{name} {ratio_text(ratio)}" for name, ratio in parts if ratio is not None)


PRESENTER = TunePresenter()
