"""Quality for the terminal: a line for each quant, and one run in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ggbench.experiments.quality.document import row_name, verdicts
from ggbench.experiments.quality.record import QualityResult, TextSource
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.show import UNKNOWN
from ggbench.show.columns import estimate_text
from ggbench.show.names import kv_name, model_name
from ggbench.show.terminal.machine import again_line, environment_line, machine_table
from ggbench.show.terminal.tables import facts_table, fitted_table, names, notes, right, spaced
from ggbench.stats.intervals import Estimate
from ggbench.text import plain
from ggbench.units import format_bytes, format_count, format_number, format_percent


def quality_table(runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
    """Return a line for each run, with the base and the verdicts below."""
    found = [run.result if isinstance(run.result, QualityResult) else None for run in runs]
    apart = [each.divergence if each else None for each in found]
    compared = [
        right("KLD", _texts(apart, "kld", estimate_text), "nats"),
        right("99 %", _texts(apart, "kld_percentiles", _largest_but_one_percent), "KLD", 3),
        right("same top", _texts(apart, "same_top", _percent), priority=1),
        right("RMS Δp", _texts(apart, "rms_p_diff", _percent), priority=2),
        right("ln PPL ratio", _texts(apart, "ln_ppl_ratio", estimate_text), priority=3),
    ]
    return fitted_table(
        [
            names("quant", map(row_name, runs)),
            right("BPW", (format_number(run.subject.bpw) for run in runs), "bits", 2),
            right("KV/token", (format_bytes(run.subject.kv_bytes_per_token) for run in runs), priority=4),
            right("PPL", _texts(found, "ppl", estimate_text)),
            *(compared if any(apart) else []),
            right("chunks", _texts(found, "n_chunks", format_count), priority=5),
            notes(run.reason for run in runs),
        ],
        width=width,
        caption="\n".join(map(plain, [*_base_line(found), *verdicts(runs)])),
    )


def quality_details(run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
    """Return the figures, text, machine and command of one run."""
    found = run.result if isinstance(run.result, QualityResult) else None
    subject, apart = run.subject, None if found is None else found.divergence
    heading = Text(f"{model_name(subject)} {plain(row_name(run))}", style="bold")
    if run.reason:
        heading.append(f"\n{plain(run.reason)}", style="not bold yellow")
    parts: list[RenderableType] = [heading]
    if found is not None:
        scored = found.scored
        parts.append(
            facts_table(
                "Perplexity",
                [
                    ("PPL", estimate_text(found.ppl)),
                    ("scored", f"{format_count(found.n_scored)} tokens in {format_count(found.n_chunks)} chunks of "
                               f"{format_count(found.n_ctx)}; the second half of each"),
                    ("text", _text(found.text)),
                    ("sha256", found.text.sha256),
                    ("tokens", "" if scored is None else f"{format_count(scored.n_tokens)} of a vocabulary of "
                                                         f"{format_count(scored.n_vocab)}"),
                ],
            )
        )  # fmt: skip
    if found is not None and apart is not None and found.base is not None:
        base = found.base
        percentiles = ", ".join(f"{percent:g} %: {value:.4g}" for percent, value in apart.kld_percentiles)
        parts.append(
            facts_table(
                "Compared with its base",
                [
                    ("base", f"{model_name(base.subject)} {kv_name(base.subject.quant, base.type_k, base.type_v)}"),
                    ("through", "a file of 16-bit logits, since memory did not hold both" if base.through_file else ""),
                    ("PPL of it", estimate_text(apart.base_ppl)),
                    ("KLD", f"{estimate_text(apart.kld)} nats"),
                    ("percentiles", percentiles),
                    ("same top", f"{format_percent(apart.same_top.mean)} of the tokens"),
                    ("Δp", f"mean {apart.p_diff.mean * 100:+.2g} %, RMS {format_percent(apart.rms_p_diff.mean)}"),
                    ("ln PPL ratio", f"{estimate_text(apart.ln_ppl_ratio)}, paired"),
                ],
            )
        )
    if machine := machine_table(readings, run.gpu_use):
        parts.append(machine)
    environment = run.head.environment
    origin = [] if environment is None else [Text(environment_line(environment), style="dim")]
    return spaced([*parts, Group(*origin, *again_line(run.head.command, folded=folded))])


def _texts(records: Sequence[object], name: str, text: Callable[[Any], str]) -> Iterator[str]:
    return (text(None if record is None else getattr(record, name)) for record in records)


def _percent(estimate: Estimate | None) -> str:
    return format_percent(None if estimate is None else estimate.mean)


def _largest_but_one_percent(percentiles: Sequence[tuple[float, float]] | None) -> str:
    return UNKNOWN if percentiles is None else format_number(dict(percentiles)[99.0])


def _base_line(found: Sequence[QualityResult | None]) -> list[str]:
    """The base that the rows were compared with, where it is one and the same."""
    bases = dict.fromkeys(
        (each.base, each.divergence.base_ppl) for each in found if each and each.base and each.divergence
    )
    lines = [f"base: {model_name(base.subject)} {base.subject.quant}, PPL {estimate_text(ppl)}" for base, ppl in bases]
    texts = dict.fromkeys(each.text for each in found if each)
    return [*lines, *(f"text: {text.name}, sha256 {text.sha256[:12]}" for text in texts)]


def _text(text: TextSource) -> str:
    size = "" if text.n_bytes is None else format_bytes(text.n_bytes)
    return ", ".join(filter(None, (plain(text.name), size, plain(text.source))))
