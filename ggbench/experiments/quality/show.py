"""Quality: perplexity of a text, and the divergence from a base."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from rich.console import RenderableType

from ggbench.experiments.quality import compared
from ggbench.experiments.quality.document import DOCUMENTS
from ggbench.experiments.quality.record import ChunkScores, QualityResult, TextSource
from ggbench.experiments.quality.scores import (
    PairedDifference,
    floats,
    mean_and_error,
    paired_difference,
    running_means,
)
from ggbench.machine.records import MachineReading
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.columns import Column
from ggbench.show.figures import Curve, Figure, Floats, PlottedRun
from ggbench.show.machine import run_page
from ggbench.show.metric import MEMORY, Metric, Property
from ggbench.show.names import kv_name, model_name
from ggbench.show.presenter import Presenter
from ggbench.show.run_documents import RunDocuments
from ggbench.show.tables import facts_table, fitted_table, names, notes, right
from ggbench.show.text import estimate_text
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_number, format_percent

if TYPE_CHECKING:
    from ggbench.show.figures import Chart


_LEAST_RANGE = 1e-6
"""Of a KLD, of a PPL and of a distance in percent: below it, nothing but rounding differs."""

_Running = Callable[["_Scores"], tuple[Floats, Floats]]


class _Scores(msgspec.Struct, frozen=True):
    """Every position that was scored, in the order of the text."""

    n_chunks: int
    n_same_top: int
    nll: Floats
    base_nll: Floats
    kld: Floats
    """As `base_nll`, empty without a base."""

    @classmethod
    def of(cls, observations: Sequence[object]) -> _Scores:
        scores = [each for each in observations if isinstance(each, ChunkScores)]
        nll, base_nll, kld = (
            floats(b"".join(getattr(each, name) for each in scores)).astype(np.float64)
            for name in ("nll", "base_nll", "kld")
        )
        return cls(sum(each.n_chunks for each in scores), sum(each.n_same_top for each in scores), nll, base_nll, kld)

    @property
    def per_chunk(self) -> int:
        return len(self.nll) // self.n_chunks

    @property
    def is_compared(self) -> bool:
        return len(self.kld) == len(self.nll) > 0


class QualityPresenter(Presenter):
    kind: ClassVar[str] = "quality"
    title: ClassVar[str] = "quality"
    documents: ClassVar[RunDocuments] = DOCUMENTS
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (ChunkScores,)
    columns: ClassVar[tuple[Column, ...]] = compared.COLUMNS
    differences: ClassVar[Mapping[str, tuple[Property, ...]]] = {"text": compared.DIFFERENCES}

    def figures(self, runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
        scored = [_Scores.of(run.observations) for run in runs]
        ends = [run.end for run, scores in zip(runs, scored, strict=True) if run.end is not None and scores.n_chunks]
        end = max(ends, default=None)

        def figure(key: str, name: str, unit: str, running: _Running, *, has_base: bool) -> Figure:
            curves = tuple(
                _curve(run, scores, running, unit)
                if scores.n_chunks and (scores.is_compared or not has_base)
                else Curve(run.name, np.empty(0, np.int64), np.empty(0))
                for run, scores in zip(runs, scored, strict=True)
            )
            return Figure(key, name, unit, "chunks scored", "", curves, end, _LEAST_RANGE)

        return (
            figure("ppl", "PPL", "", _running_ppl, has_base=False),
            figure("kld", "KLD", "nats", _running_kld, has_base=True),
            figure("ppl-over-base", "PPL above its base's", "%", _running_distance, has_base=True),
        )

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        scores = _Scores.of(run.observations)
        if not scores.n_chunks:
            return ()
        of = "" if run.end is None or run.end <= scores.n_chunks else f" of {format_count(run.end)}"
        lines = [f"{format_count(scores.n_chunks)}{of} chunks", f"PPL   {_last(_running_ppl(scores))}"]
        if scores.is_compared:
            distance = mean_and_error(scores.nll - scores.base_nll)
            lines += [
                f"KLD   {_last(_running_kld(scores))}",
                f"same  {format_percent(scores.n_same_top / len(scores.kld))} top tokens",
                f"PPL   {_signed(_as_percent(distance))} % of base",
            ]
        return tuple(lines)

    def short_answer(self, run: Run) -> str:
        """`PPL 12.36 ±0.52`."""
        found = run.result
        return f"PPL {estimate_text(found.ppl)}" if isinstance(found, QualityResult) and found.ppl else ""

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        from ggbench.show.figures import memory_stack

        return (compared.quality_over_speed(summaries), memory_stack(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return (*compared.METRICS, MEMORY)

    def caveats(self, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
        return compared.caveats(summaries)

    def answer(self, run: Run) -> str:
        found = run.result
        if not isinstance(found, QualityResult) or found.ppl is None:
            return ""
        text = f"PPL {estimate_text(found.ppl)} over {format_count(found.n_chunks)} chunks"
        if found.divergence is not None and found.base is not None:
            text += f", KLD {estimate_text(found.divergence.kld)} from {found.base.subject.quant}"
        return text

    def against_document(self, run: Run) -> dict[str, object] | None:
        return compared.quality_against_document(run) if self.answer(run) else None

    def against(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        return compared.quality_against(runs, width=width)

    def details(self, run: Run, *, folded: bool = False, readings: Sequence[MachineReading] = ()) -> RenderableType:
        found = run.result if isinstance(run.result, QualityResult) else None
        subject, apart = run.subject, None if found is None else found.divergence
        parts: list[RenderableType] = []
        if found is not None:
            scored = found.scored
            parts.append(
                facts_table(
                    "Perplexity",
                    [
                        ("PPL", estimate_text(found.ppl)),
                        ("scored", f"{format_count(found.n_scored)} tokens in {format_count(found.n_chunks)} chunks of "
                                   f"{format_count(found.n_ctx)}; the second half of each"),
                        ("text", _text_line(found.text)),
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
                        (
                            "through",
                            "a file of 16-bit logits, since memory did not hold both" if base.through_file else "",
                        ),
                        ("PPL of it", estimate_text(apart.base_ppl)),
                        ("KLD", f"{estimate_text(apart.kld)} nats"),
                        ("percentiles", percentiles),
                        ("same top", f"{format_percent(apart.same_top.mean)} of the tokens"),
                        ("Δp", f"mean {apart.p_diff.mean * 100:+.2g} %, RMS {format_percent(apart.rms_p_diff.mean)}"),
                        ("ln PPL ratio", f"{estimate_text(apart.ln_ppl_ratio)}, paired"),
                    ],
                )
            )
        name = f"{model_name(subject)} {sanitize(compared.row_name(run))}"
        return run_page(run, name, parts, folded=folded, readings=readings)

    def table(self, runs: Sequence[Run], *, width: int | None = None) -> RenderableType:
        found = [run.result if isinstance(run.result, QualityResult) else None for run in runs]
        apart = [each.divergence if each else None for each in found]
        beside = [
            right("KLD", _texts(apart, "kld", estimate_text), "nats"),
            right("99 %", _texts(apart, "kld_percentiles", _largest_but_one_percent), "KLD", 3),
            right("same top", _texts(apart, "same_top", _percent), priority=1),
            right("RMS Δp", _texts(apart, "rms_p_diff", _percent), priority=2),
            right("ln PPL ratio", _texts(apart, "ln_ppl_ratio", estimate_text), priority=3),
        ]
        return fitted_table(
            [
                names("quant", map(compared.row_name, runs)),
                right("BPW", (format_number(run.subject.bpw) for run in runs), "bits", 2),
                right("KV/token", (format_bytes(run.subject.kv_bytes_per_token) for run in runs), priority=4),
                right("PPL", _texts(found, "ppl", estimate_text)),
                *(beside if any(apart) else []),
                right("chunks", _texts(found, "n_chunks", format_count), priority=5),
                notes(run.reason for run in runs),
            ],
            width=width,
            caption="\n".join(map(sanitize, [*_base_line(found), *verdicts(runs)])),
        )


def _curve(run: PlottedRun, scores: _Scores, running: _Running, unit: str) -> Curve:
    y, error = running(scores)
    text = f"{_last((y, error))} {unit}".rstrip()
    note = f"{text}, {format_count(scores.n_chunks)} chunks"
    return Curve(run.name, np.arange(1, len(y) + 1), y, error, note=note, dimmed=run.dimmed)


def _last(running: tuple[Floats, Floats]) -> str:
    return estimate_text(Estimate(float(running[0][-1]), float(running[1][-1])))


def _running_ppl(scores: _Scores) -> tuple[Floats, Floats]:
    mean, error = running_means(scores.nll, scores.per_chunk)
    return np.exp(mean), np.exp(mean) * error


def _running_kld(scores: _Scores) -> tuple[Floats, Floats]:
    return running_means(scores.kld, scores.per_chunk)


def _running_distance(scores: _Scores) -> tuple[Floats, Floats]:
    """In percent; the error is that of the paired differences."""
    mean, error = running_means(scores.nll - scores.base_nll, scores.per_chunk)
    return np.expm1(mean) * 100, np.exp(mean) * error * 100


def _signed(estimate: Estimate) -> str:
    return f"{'+' if estimate.mean >= 0 else ''}{estimate_text(estimate)}"


def _as_percent(distance: Estimate) -> Estimate:
    return Estimate(float(np.expm1(distance.mean)) * 100, float(np.exp(distance.mean)) * distance.error * 100)


def _texts(records: Sequence[object], name: str, text: Callable[[Any], str]) -> Iterator[str]:
    return (text(None if record is None else getattr(record, name)) for record in records)


def _percent(estimate: Estimate | None) -> str:
    return format_percent(None if estimate is None else estimate.mean)


def _largest_but_one_percent(percentiles: Sequence[tuple[float, float]] | None) -> str:
    return UNKNOWN if percentiles is None else format_number(dict(percentiles)[99.0])


def _base_line(found: Sequence[QualityResult | None]) -> list[str]:
    bases = dict.fromkeys(
        (each.base, each.divergence.base_ppl) for each in found if each and each.base and each.divergence
    )
    lines = [f"base: {model_name(base.subject)} {base.subject.quant}, PPL {estimate_text(ppl)}" for base, ppl in bases]
    texts = dict.fromkeys(each.text for each in found if each)
    return [*lines, *(f"text: {text.name}, sha256 {text.sha256[:12]}" for text in texts)]


def _text_line(text: TextSource) -> str:
    size = "" if text.n_bytes is None else format_bytes(text.n_bytes)
    return ", ".join(filter(None, (sanitize(text.name), size, sanitize(text.source))))


def verdicts(runs: Sequence[Run]) -> list[str]:
    """Return a line for each two neighbours by perplexity: how much they differ, or that they cannot be distinguished.

    Their bases are among them. Only what was scored over the same tokens is compared.
    """
    lines = []
    for better, worse in pairwise(sorted(_scored(runs), key=lambda each: statistics.fmean(each.chunk_nll))):
        if better.chunks == worse.chunks:
            difference = paired_difference(worse.chunk_nll, better.chunk_nll)
            if difference is not None:
                lines.append(_verdict(better.name, worse.name, difference))
    return lines


class _Scored(NamedTuple):
    """One model over one text."""

    chunks: tuple[str, int]
    """Hash of the tokens and length of a chunk."""
    name: str
    chunk_nll: tuple[float, ...]


def _scored(runs: Sequence[Run]) -> list[_Scored]:
    """Each once, in the order of the runs, a base after the first that is compared with it.

    A base that has a row of its own is that row.
    """
    found = []
    rows = {(run.subject.model, compared.row_name(run)) for run in runs}
    for run in runs:
        result = run.result
        if isinstance(result, QualityResult) and result.scored is not None and result.chunk_nll:
            found.append(_Scored((result.scored.tokens_sha256, result.n_ctx), compared.row_name(run), result.chunk_nll))
            if result.base is not None and result.base_chunk_nll:
                base = kv_name(result.base.subject.quant, result.base.type_k, result.base.type_v)
                if (result.base.subject.model, base) not in rows:
                    chunks = result.scored.tokens_sha256, result.n_ctx
                    found.append(_Scored(chunks, f"{base} (base)", result.base_chunk_nll))
    return list(dict.fromkeys(found))


def _verdict(better: str, worse: str, difference: PairedDifference) -> str:
    """`q4_1 is better than q3_k_m: PPL 15 % lower (10 to 19 %) over 16 chunks`."""
    over = f"over {format_count(difference.n_chunks)} chunks"
    if difference.low == difference.high == 0:
        return f"{better} and {worse} have the same PPL {over}"
    mean, low, high = (math.expm1(each) for each in (difference.mean, difference.low, difference.high))
    if difference.is_distinguishable:
        return f"{better} is better than {worse}, whose PPL is {_share(mean)} higher ({_range(low, high)}) {over}"
    text = f"{better} and {worse} cannot be distinguished: the PPL of the second is {_range(low, high)} higher {over}"
    needed = difference.n_chunks_needed
    return f"{text}; about {format_count(needed)} chunks would separate them" if needed else text


def _share(share: float) -> str:
    return f"{format_number(share * 100, 2)} %"


def _range(low: float, high: float) -> str:
    return f"{format_number(low * 100, 2)} to {_share(high)}"


PRESENTER = QualityPresenter()
