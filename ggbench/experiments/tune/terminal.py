"""A search for settings for the terminal: the gain, every candidate, and the commands."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.experiments.forecast.document import expected_text
from ggbench.experiments.tune.document import (
    gains_line,
    ratio_text,
    result_of,
    state_text,
    tuned_commands,
    tuned_lines,
    verdict,
)
from ggbench.experiments.tune.record import Gain, TunedCandidate, TuneResult, changes_text
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show.names import quant_name, row_labels
from ggbench.show.terminal.machine import again_line, environment_line, machine_table
from ggbench.show.terminal.tables import Cells, facts_table, fitted_table, left, names, notes, right, spaced
from ggbench.text import plain
from ggbench.units import counted, format_count, format_number, format_percent

_CAPTION = "times: speed over the defaults' in the race, where the best of several is better by chance"
_PROVEN = "; the gain above is from measurements of its own"


def tune_table(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    """Return a line for each run: the gain at each depth, and the settings."""
    found = [result_of(run) for run in runs]
    labels = row_labels([run.subject for run in runs])
    return fitted_table(
        [
            names("quant", labels),
            right("gain", (ratio_text(each.ratio) for each in found), "times", stays=True),
            notes(
                f"{plain(verdict(run))}{f': {gains_line(each.gain)}' if each.has_gain else ''}" or plain(run.reason)
                for run, each in zip(runs, found, strict=True)
            ),
        ],
        labels=labels,
        width=width,
    )


def tune_details(run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
    """Return the verdict, the gain at each depth, all candidates, the commands, machine and command."""
    found = result_of(run)
    heading = Text(quant_name(run.subject), style="bold")
    if run.reason:
        heading.append(f"\n{plain(run.reason)}", style="not bold yellow")
    parts: list[RenderableType] = [heading]
    finalist = found.candidate(found.finalist)
    facts = [("", plain(verdict(run)))]
    if finalist is not None:
        before = {each.n_depth: each for each in found.candidates[0].at}
        facts += [
            (f"depth {format_count(each.n_depth)}", _gain_line(each, before[each.n_depth])) for each in found.gain
        ]
    facts += [
        ("measured", f"{counted(found.n_measured, 'time')}, {format_count(found.n_discarded)} discarded for drift"),
        ("noise", "" if found.noise is None else f"{format_percent(found.noise)} from one measurement to the next"),
        ("unsteady", plain(found.unsteady)),
    ]
    parts.append(facts_table("Best settings", [(name or "answer", text) for name, text in facts]))
    if found.n_measured:
        parts.append(_candidates_table(found))
    lines = tuned_lines(run)
    if lines:
        parts.append(Group(Text("Commands", style="bold"), *(Text(f"  {plain(line)}") for line in lines)))
        commands = tuned_commands(run)
        if commands is not None and commands.notes:
            parts.append(Group(*(Text(plain(note), style="dim") for note in commands.notes)))
    if machine := machine_table(readings, run.gpu_use):
        parts.append(machine)
    environment = run.head.environment
    origin = [] if environment is None else [Text(environment_line(environment), style="dim")]
    return spaced([*parts, Group(*origin, *again_line(run.head.command, folded=folded))])


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
    depths = [each.n_depth for each in rows[0].at]
    losses = [expected_text(each.kv_loss.nats) if each.kv_loss else "" for each in rows]
    cells = [
        names("settings", (plain(changes_text(found.changes(each))) for each in rows)),
        right("all", (ratio_text(each.ratio) for each in rows), "times", stays=True),
        *(_depth_cells(rows, n_depth, index) for index, n_depth in enumerate(depths)),
        right("KLD", losses, "nats", 1),
        right("timed", (format_count(each.n_timed) for each in rows), "", 2),
        left("", (plain(state_text(found, each)) for each in rows)),
    ]
    reasons = [f"{plain(changes_text(found.changes(each)))}: {plain(each.reason)}" for each in rows if each.reason]
    return fitted_table(
        [each for each in cells if not each.is_empty],
        title="Candidates",
        dim=[each.state in ("dropped", "left out", "failed") for each in rows],
        caption="\n".join([*reasons, _CAPTION + (_PROVEN if found.gain else "")]),
    )


def _depth_cells(rows: Sequence[TunedCandidate], n_depth: int, index: int) -> Cells:
    def text(candidate: TunedCandidate) -> str:
        gain = candidate.at[index] if index < len(candidate.at) else None
        if gain is None:
            return ""
        if candidate.ratio is None:
            return f"{format_number(gain.step_ms if gain.step_ms is not None else gain.batch_ms)} ms"
        return " / ".join(ratio_text(each) for each in (gain.decode, gain.prefill) if each is not None)

    return right(f"at {format_count(n_depth)}", map(text, rows), "times", 3)
