"""Show quality: what a quant loses against its base, and the perplexity of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import ClassVar

from ggbench.expect.loss import NOTICED_LOSS, UNNOTICED_LOSS, expected_loss
from ggbench.experiments.quality import compared
from ggbench.experiments.quality.record import (
    Divergence,
    QualityResult,
    result_of,
)
from ggbench.models.subject import Subject
from ggbench.runs.run import Run
from ggbench.show.against import Beside
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.charts import LineChart
from ggbench.show.figure import Figure, facts_of, member
from ggbench.show.metric import Metric, RunFigure
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import compare_command, run_answer, several_answer
from ggbench.show.run_documents import RunDocuments
from ggbench.show.run_figures import figures
from ggbench.show.words import say
from ggbench.stats.intervals import FEWEST_PAIRS, paired_ratio
from ggbench.text import sanitize
from ggbench.units import counted

_ABOUT = (
    member("text", "text", path="result.text.name"),
    member("source", "from", path="result.text.source"),
    member("sha256", "sha256", path="result.text.sha256"),
    member("n_scored", "scored", path="result.n_scored", unit="tokens"),
    member("n_ctx", "chunk", path="result.n_ctx", unit="tokens"),
    member("base", "base", path="result.base.subject.file"),
)
_PERCENTILES = (
    Figure[tuple[float, float]]("percent", "%", lambda pair: f"{pair[0]:g}"),
    Figure[tuple[float, float]]("kld", "KLD", lambda pair: pair[1], unit="nats"),
)
DOCUMENTS = RunDocuments("quality", compared.DOCUMENTED, "The quality of a quant.", several_as="quality.all")


class QualityPresenter(Presenter):
    kind = "quality"
    documents = DOCUMENTS
    has_samples = False
    figures = compared.SHARED
    headline = compared.PPL.figure
    differences: ClassVar[Mapping[str, tuple[RunFigure, ...]]] = {"text": compared.DIFFERENCES}

    def charts(self, runs: Sequence[Run], names: Sequence[str]) -> tuple[LineChart, ...]:
        return (compared.quality_over_speed(runs, names),)

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return compared.METRICS

    def longer(self, runs: Sequence[Run]) -> str:
        found = [each for each in map(result_of, runs) if each is not None]
        texts = {each.scored for each in found}
        text = texts.pop() if len(texts) == 1 and len(found) == len(runs) else None
        if text is None:
            return ""
        n_chunks = min(4 * max(1, *(each.n_chunks for each in found)), text.n_chunks)
        commands = [
            re.sub(r" --chunks \S+", "", run.head.command) + f" --chunks {n_chunks}"
            for run, each in zip(runs, found, strict=True)
            if each.n_chunks < n_chunks
        ]
        return " && ".join(commands)

    def caveats(self, runs: Sequence[Run]) -> tuple[str, ...]:
        return compared.caveats(runs)

    def answer(self, run: Run) -> str:
        found, quant = result_of(run), sanitize(compared.row_names([run])[0])
        if found is None or found.ppl is None:
            return ""
        chunks = counted(found.n_chunks, "chunk")
        if found.divergence is None:
            return say("quality.perplexity", quant=quant, ppl=compared.PPL.figure.text(run), chunks=chunks)
        low, high = _bounds(found.divergence)
        key = "little" if high > UNNOTICED_LOSS else "unnoticed"
        key = "noticed" if low >= NOTICED_LOSS else key
        if _is_undecided(found, found.divergence):
            key = "too_few"
        base, loss = _base_quant(run), compared.KLD.figure.text(run)
        return say(f"quality.{key}", quant=quant, base=base, nats=loss, chunks=chunks)

    def beside(self, run: Run) -> Sequence[Beside] | None:
        return [compared.score_beside(run)] if self.answer(run) else None

    def details(self, run: Run) -> Answer:
        found = result_of(run)
        if found is None:
            return run_answer(run, Answer(self.ending(run)))
        front, further = _scores([run])
        why: list[Part] = [further, Facts(facts_of(_ABOUT, run), "Text and base")]
        if found.divergence is not None:
            why.append(Table(_PERCENTILES, found.divergence.kld_percentiles, "KL divergence by percentile"))
        command = self.longer([run]) if found.divergence and _is_undecided(found, found.divergence) else ""
        answer = Answer(self.ending(run), command, [front], _about_bases([run]), why)
        return run_answer(run, answer)

    def table(self, runs: Sequence[Run]) -> Answer:
        names = list(map(sanitize, compared.row_names(runs)))
        front, further = _scores(runs)
        why: list[Part] = [further]
        why += [Facts(facts_of(_ABOUT, row), name) for row, name in zip(runs, names, strict=True)]
        scored = [run for run in runs if self.answer(run)]
        text, command = _best(runs, names), compare_command(scored)
        if len(scored) == 1:
            text = self.answer(scored[0])
        return several_answer(runs, names, Answer(text, command, [front], _about_bases(runs), why))


def _scores(runs: Sequence[Run]) -> list[Table[Run]]:
    """Return the table of the answer, and one of further figures."""
    names = dict(zip(map(id, runs), compared.row_names(runs), strict=True))
    quant = Figure[Run]("quant", "quant", lambda run: names[id(run)])
    return [Table((quant, *each), runs) for each in ((*figures("bpw"), *compared.FIGURES), compared.FURTHER)]


def _best(rows: Sequence[Run], names: Sequence[str]) -> str:
    """Return which row loses least, and the first whose loss people notice, or why they cannot be compared."""
    if caveats := compared.caveats(rows):
        return say("quality.unranked", why=caveats[0])
    metric, ranked = _ranked(rows, names)
    if not ranked:
        return ""
    _, quant, row = ranked[0]
    if metric is compared.PPL:
        return say("quality.lowest", quant=quant, ppl=metric.figure.text(row))
    is_least = all(_is_less(metric, row, other) for _, _, other in ranked[1:])
    key = "quality.least" if is_least else "quality.may_be_least"
    least = say(key, quant=quant, base=_base_quant(row), nats=metric.figure.text(row))
    for value, name, other in ranked:
        if (metric.ci95(other) or (value,))[0] >= NOTICED_LOSS:
            nats = metric.figure.text(other)
            noticed = say("quality.all") if other is row else say("quality.from", quant=name, nats=nats)
            return f"{least} {noticed}"
    return least


def _ranked(rows: Sequence[Run], names: Sequence[str]) -> tuple[Metric, list[tuple[float, str, Run]]]:
    """Return the values of the loss, or of perplexity if no row has a loss: the least first, with names and rows."""
    metric = compared.KLD if any(compared.KLD.value(row) is not None for row in rows) else compared.PPL
    values = zip(map(metric.value, rows), names, rows, strict=True)
    found = ((value, name, row) for value, name, row in values if value is not None)
    return metric, sorted(found, key=itemgetter(0))


def _is_less(metric: Metric, one: Run, other: Run) -> bool:
    """Return whether a run loses less than another over the same chunks, beyond their interval."""
    ratio = paired_ratio(metric.paired(one, other)) if metric.paired else None
    return ratio is not None and ratio.high < 1


def _is_undecided(found: QualityResult, divergence: Divergence) -> bool:
    """Return whether there are too few chunks, or the interval includes the loss from which people notice."""
    low, high = _bounds(divergence)
    return found.n_chunks < FEWEST_PAIRS or low < NOTICED_LOSS <= high


def _bounds(divergence: Divergence) -> tuple[float, float]:
    """Return the interval of a loss; its mean twice without one."""
    return divergence.kld.ci95 or (divergence.kld.mean, divergence.kld.mean)


def _about_bases(runs: Sequence[Run]) -> list[str]:
    """Return why plans use no divergence of the runs: they have no base, or one that loses too much itself."""
    found = []
    for run in runs:
        result = result_of(run)
        if result is None or result.ppl is None:
            continue
        if result.divergence is None:
            found.append(say("quality.no_base"))
        elif result.base is not None and _is_coarse(run.subject, result.base.subject):
            found.append(say("quality.not_original", base=result.base.subject.quant))
    return list(dict.fromkeys(found))


def _is_coarse(subject: Subject, base: Subject) -> bool:
    """Return whether plans use no divergence from a base, by what it is expected to lose itself (`MeasuredLosses`)."""
    own = expected_loss(subject.model, base.quant, subject.n_params, subject.architecture or "")
    is_same = subject.header_sha256 == base.header_sha256
    return not is_same and (own is None or own.value > UNNOTICED_LOSS)


def _base_quant(run: Run) -> str:
    found = result_of(run)
    return sanitize(found.base.subject.quant) if found and found.base else "its base"


PRESENTER = QualityPresenter()
