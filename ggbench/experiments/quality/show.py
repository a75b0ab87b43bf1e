"""Show quality: perplexity of a text, and divergence from a base."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from ggbench.decisions.known_losses import is_original
from ggbench.experiments.quality import compared
from ggbench.experiments.quality.record import (
    ChunkScores,
    Divergence,
    QualityResult,
    QualitySettings,
    ScoredBase,
    ScoredText,
    result_of,
)
from ggbench.experiments.quality.scores import floats, running_means
from ggbench.machine.records import MachineReading
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.runs.summary import QuantSummary
from ggbench.show import ESSENTIAL, UNKNOWN
from ggbench.show.answer import Answer, Facts, Part
from ggbench.show.charts import Chart, Curve, Floats, LineChart, PlottedRun, memory_stacks
from ggbench.show.document import Field, Shape, field, of, within
from ggbench.show.figure import Figure
from ggbench.show.machine import run_answer
from ggbench.show.metric import MEMORY, Metric, Property
from ggbench.show.names import kv_name, model_name
from ggbench.show.presenter import Presenter
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import (
    CACHE_TYPES,
    MEASURED_FILE,
    NUMBER,
    ORIGIN,
    ShapedDocuments,
    run_documents,
)
from ggbench.show.run_figures import reader
from ggbench.show.tables import AsWide, Cells, as_part, fitted_table, names, notes, right
from ggbench.show.text import estimate_text
from ggbench.stats.intervals import MeanError
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_number, format_percent

_LEAST_RANGE = 1e-6
"""Smaller differences of KLD or PPL are rounding."""


class _Scores(msgspec.Struct, frozen=True):
    """All scored positions, in the order of the text."""

    n_chunks: int
    n_same_top: int
    nll: Floats
    kld: Floats
    """Empty without a base."""

    @classmethod
    def of(cls, observations: Sequence[object]) -> _Scores:
        scores = [each for each in observations if isinstance(each, ChunkScores)]
        nll, kld = (
            floats(b"".join(getattr(each, name) for each in scores)).astype(np.float64)
            for name in ("nll", "kld")
        )
        return cls(sum(each.n_chunks for each in scores), sum(each.n_same_top for each in scores), nll, kld)

    @property
    def running_ppl(self) -> tuple[Floats, Floats]:
        """Perplexity and its error after each chunk."""
        mean, error = self._running(self.nll)
        return np.exp(mean), np.exp(mean) * error

    @property
    def running_kld(self) -> tuple[Floats, Floats]:
        """Mean KL divergence and its error after each chunk; empty without a base."""
        return self._running(self.kld)

    def _running(self, values: Floats) -> tuple[Floats, Floats]:
        if not self.n_chunks or len(values) != len(self.nll):
            return np.empty(0), np.empty(0)
        return running_means(values, len(self.nll) // self.n_chunks)


_BASE = Shape(
    "Base",
    "The base of comparison.",
    of(Subject, "model quant file header_sha256?", lambda base: base.subject),
    of(ScoredBase, "type_k type_v"),
)


def _estimate(name: str, about: str, member: str, error: str = "") -> tuple[Field, ...]:
    """Return the mean of an `MeanError` of a record, and with `error` its standard error under that name."""
    mean = field(name, NUMBER, about, lambda found: (each := getattr(found, member)) and each.mean)
    if not error:
        return mean
    about = "Its standard error."
    return (*mean, *field(error, NUMBER, about, lambda found: (each := getattr(found, member)) and each.error))


_QUALITY = Shape(
    "Quality",
    "The quality of a quant.",
    MEASURED_FILE,
    CACHE_TYPES,
    within(
        result_of,
        of(QualityResult, "n_ctx n_chunks n_scored", maybe=True),
        _estimate("ppl", "Perplexity.", "ppl", "ppl_error"),
        field("base", _BASE | None, "Null without a base, or if it is a logits file."),
    ),
    within(
        lambda run: (found := result_of(run)) and found.divergence,
        _estimate("base_ppl", "Perplexity of the base.", "base_ppl", "base_ppl_error"),
        _estimate("kld_mean", "Mean KL divergence from the base, in nats per token.", "kld", "kld_error"),
        field(
            "kld_percentiles",
            dict[str, float] | None,
            "In nats, by the percentile, such as `99.9`.",
            lambda found: {f"{percent:g}": value for percent, value in found.kld_percentiles},
        ),
        _estimate(
            "same_top",
            "Share of positions with the same most likely token, 0 to 1.",
            "same_top",
            "same_top_error",
        ),
        _estimate("dp_mean", "Mean difference of the probability of the right token.", "p_diff"),
        _estimate("rms_dp", "Root mean square of that difference.", "rms_p_diff", "rms_dp_error"),
        _estimate(
            "ln_ppl_ratio", "ln(perplexity / perplexity of the base).", "ln_ppl_ratio", "ln_ppl_ratio_error"
        ),
    ),
    within(
        result_of,
        field("text", str | None, "Name of the text.", lambda found: found.text.name),
        field(
            "text_source",
            str | None,
            "Its path or, without one, its source.",
            lambda found: found.text.path or found.text.source or None,
        ),
        field("text_sha256", str | None, get=lambda found: found.text.sha256),
        of(ScoredText, "tokens_sha256", lambda found: found.scored, maybe=True),
        of(QualityResult, "chunk_nll", maybe=True),
    ),
    ORIGIN,
    AGAINST,
)


DOCUMENTS = run_documents("quality", _QUALITY, is_swept=True)


class QualityPresenter(Presenter):
    kind: ClassVar[str] = "quality"
    documents: ClassVar[ShapedDocuments] = DOCUMENTS
    has_samples: ClassVar[bool] = False
    plotted: ClassVar[tuple[type, ...]] = (ChunkScores,)
    figures: ClassVar[tuple[Figure[QuantSummary], ...]] = compared.FIGURES
    differences: ClassVar[Mapping[str, tuple[Property, ...]]] = {"text": compared.DIFFERENCES}

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        scored = [_Scores.of(run.observations) for run in runs]
        ends = [
            run.end for run, scores in zip(runs, scored, strict=True) if run.end is not None and scores.n_chunks
        ]
        end = max(ends, default=None)

        def figure(
            key: str, name: str, unit: str, running: Callable[[_Scores], tuple[Floats, Floats]]
        ) -> LineChart:
            curves = []
            for run, scores in zip(runs, scored, strict=True):
                y, error = running(scores)
                text = f"{_last(y, error)} {unit}".rstrip()
                note = f"{text}, {format_count(scores.n_chunks)} chunks" if len(y) else ""
                curves.append(Curve(run.name, np.arange(1, len(y) + 1), y, error, note=note, dimmed=run.dimmed))
            return LineChart(key, name, unit, "chunks scored", "", tuple(curves), end, _LEAST_RANGE)

        return (
            figure("ppl", "PPL", "", lambda scores: scores.running_ppl),
            figure("kld", "KLD", "nats", lambda scores: scores.running_kld),
        )

    def live_lines(self, run: PlottedRun) -> tuple[str, ...]:
        scores = _Scores.of(run.observations)
        if not scores.n_chunks:
            return ()
        of = "" if run.end is None or run.end <= scores.n_chunks else f" of {format_count(run.end)}"
        lines = [f"{format_count(scores.n_chunks)}{of} chunks", f"PPL   {_last(*scores.running_ppl)}"]
        if len(scores.kld):
            same_top = format_percent(scores.n_same_top / len(scores.kld))
            lines += [f"KLD   {_last(*scores.running_kld)}", f"same  {same_top} top tokens"]
        return tuple(lines)

    def short_answer(self, run: Run) -> str:
        """`PPL 12.36 ±0.52`."""
        found = result_of(run)
        return f"PPL {estimate_text(found.ppl)}" if found and found.ppl else ""

    def charts(self, summaries: Sequence[QuantSummary], names: Sequence[str]) -> tuple[Chart, ...]:
        return (compared.quality_over_speed(summaries), *memory_stacks(summaries))

    def metrics(self, summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
        return (*compared.METRICS, MEMORY)

    def caveats(self, summaries: Sequence[QuantSummary]) -> tuple[str, ...]:
        return compared.caveats(summaries)

    def answer(self, run: Run) -> str:
        found = result_of(run)
        if found is None or found.ppl is None:
            return ""
        text = f"PPL {estimate_text(found.ppl)} over {format_count(found.n_chunks)} chunks"
        if found.divergence is not None:
            base = Path(_base_logits(run)).name if found.base is None else found.base.subject.quant
            text += f", KLD {estimate_text(found.divergence.kld)} from {sanitize(base)}"
        return text

    def against_document(self, run: Run) -> dict[str, object] | None:
        return {"against": compared.nearest_to_score(run)} if self.answer(run) else None

    def against(self, runs: Sequence[Run]) -> Sequence[Part]:
        return compared.quality_against(runs)

    def details(self, run: Run, readings: Sequence[MachineReading] = ()) -> Answer:
        found = result_of(run)
        parts: list[Part] = []
        if found is not None:
            parts.append(Facts(_perplexity(found), "Perplexity"))
        if found is not None and found.divergence is not None:
            parts.append(Facts(_compared(run, found.base, found.divergence), "Compared with its base"))
        name = f"{model_name(run.subject)} {sanitize(compared.row_name(run))}"
        return run_answer(run, Answer(name, "", parts), readings)

    def table(self, runs: Sequence[Run]) -> Answer:
        found = [result_of(run) for run in runs]

        def figures(header: str, path: str, form: Callable[[Any], str], unit: str, priority: int) -> Cells:
            value: Callable[[Any], Any] = reader(path)
            return right(header, (form(value(each)) for each in found), unit, priority)

        def largest_but_one_percent(percentiles: Sequence[tuple[float, float]] | None) -> str:
            return UNKNOWN if percentiles is None else format_number(dict(percentiles)[99.0])

        beside = (
            figures("KLD", "divergence.kld", estimate_text, "nats", ESSENTIAL),
            figures("99 %", "divergence.kld_percentiles", largest_but_one_percent, "KLD", 3),
            figures("same top", "divergence.same_top.mean", format_percent, "", 1),
            figures("RMS Δp", "divergence.rms_p_diff.mean", format_percent, "", 2),
            figures("ln PPL ratio", "divergence.ln_ppl_ratio", estimate_text, "", 3),
        )
        cells = [
            names("quant", compared.row_names(runs)),
            right("BPW", (format_number(run.subject.bpw) for run in runs), "bits", 2),
            right("KV/token", (format_bytes(run.subject.kv_bytes_per_token) for run in runs), priority=4),
            figures("PPL", "ppl", estimate_text, "", ESSENTIAL),
            *(beside if any(each and each.divergence for each in found) else ()),
            figures("chunks", "n_chunks", format_count, "", 5),
            notes(run.reason for run in runs),
        ]
        caption = "\n".join(map(sanitize, [*_base_line(runs), *compared.verdicts(runs)]))
        return Answer(
            "", "", [as_part(AsWide(lambda width: fitted_table(cells, width=width, caption=caption)))]
        )


def _last(means: Floats, errors: Floats) -> str:
    return estimate_text(MeanError(float(means[-1]), float(errors[-1]))) if len(means) else UNKNOWN


def _perplexity(found: QualityResult) -> list[tuple[str, str]]:
    scored, text = found.scored, found.text
    size = "" if text.n_bytes is None else format_bytes(text.n_bytes)
    chunks = f"{format_count(found.n_chunks)} chunks of {format_count(found.n_ctx)}; the second half of each"
    facts = [
        ("PPL", estimate_text(found.ppl)),
        ("scored", f"{format_count(found.n_scored)} tokens in {chunks}"),
        ("text", ", ".join(filter(None, (sanitize(text.name), size, sanitize(text.source))))),
        ("sha256", text.sha256),
    ]
    if scored is not None:
        facts.append(
            ("tokens", f"{format_count(scored.n_tokens)} of a vocabulary of {format_count(scored.n_vocab)}")
        )
    return facts


def _compared(run: Run, base: ScoredBase | None, found: Divergence) -> list[tuple[str, str]]:
    return [
        ("base", f"the logits in {sanitize(_base_logits(run))}" if base is None else _base_name(base)),
        ("note", "" if base is None else _not_original(run.subject, base.subject)),
        (
            "through",
            "a file of 16-bit logits, as both did not fit in memory" if base and base.through_file else "",
        ),
        ("PPL of it", estimate_text(found.base_ppl)),
        ("KLD", f"{estimate_text(found.kld)} nats"),
        ("percentiles", ", ".join(f"{percent:g} %: {value:.4g}" for percent, value in found.kld_percentiles)),
        ("same top", f"{format_percent(found.same_top.mean)} of the tokens"),
        ("Δp", f"mean {found.p_diff.mean * 100:+.2g} %, RMS {format_percent(found.rms_p_diff.mean)}"),
        ("ln PPL ratio", f"{estimate_text(found.ln_ppl_ratio)}, paired"),
    ]


def _base_line(runs: Sequence[Run]) -> list[str]:
    found = [(run.subject, each) for run in runs if (each := result_of(run)) is not None]
    bases, notes = list[str](), list[str]()
    for subject, each in found:
        if each.base is not None and each.divergence is not None:
            of = each.base.subject
            bases.append(f"base: {model_name(of)} {of.quant}, PPL {estimate_text(each.divergence.base_ppl)}")
            notes.append(_not_original(subject, of))
    texts = [f"text: {each.text.name}, sha256 {each.text.sha256[:12]}" for _, each in found]
    return list(filter(None, dict.fromkeys([*bases, *notes, *texts])))


def _not_original(subject: Subject, base: Subject) -> str:
    """Return that a divergence is neither the loss against the original nor the cache's with the same weights, or an
    empty text.
    """
    if subject.header_sha256 == base.header_sha256 or is_original(base.quant, base.architecture or ""):
        return ""
    return f"{base.quant} is not the original: KLD from it is not the loss against 16 bits, which is usually larger"


def _base_logits(run: Run) -> str:
    settings = run.head.settings
    return settings.base_logits if isinstance(settings, QualitySettings) else ""


def _base_name(base: ScoredBase) -> str:
    return f"{model_name(base.subject)} {kv_name(base.subject.quant, base.type_k, base.type_v)}"


PRESENTER = QualityPresenter()
