"""Output of a comparison: a sentence for each quantity that differs, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.decisions.compare.comparison import (
    NO_DIFFERENCE,
    UNDECIDED,
    Ahead,
    Better,
    ComparedLine,
    Comparison,
    Tied,
)
from ggbench.decisions.compare.estimates import Versus
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.document import Document, Shape, field, many, of, sometimes
from ggbench.show.metric import is_extrapolated
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import ENDS, NUMBER, QUANT
from ggbench.stats.intervals import Interval
from ggbench.text import in_words
from ggbench.units import counted, format_number, with_unit

_MEANING = {"w_tokens_per_ms": " (growth of latency with context)", "b_ms": " (latency of the first token)"}
_MEMORY = "takes less memory", "takes the least memory", "take as much memory", "worse"


def sentence_of(comparison: Comparison) -> str:
    return " ".join(sentences_of(comparison))


def sentences_of(comparison: Comparison, more_runs: str = "", again: str = "") -> list[str]:
    """Return a short sentence for each quantity that differs, and what is known of speed if it does not. Printable.

    `q4_0 is faster: 63.3 tok/s against 48.0, 1.32 ±0.04 times.` The other arguments say how to get more runs of each,
    by default with the command line, and how to measure again.
    """
    names = comparison.names
    if comparison.is_empty:
        return [f"{in_words(names)} have no metric in common to compare."]
    lines = comparison.stated
    found = [(line, said) for line in lines if (said := _difference(comparison, line))]
    sentences = [said for _, said in found]
    ties = [(line, each) for line in lines for each in line.reasons if isinstance(each, Tied) and not each.behind]
    # Runs that were all disturbed may differ in time by as much as their wide intervals allow.
    judged = [
        (line, tied)
        for line, tied in ties
        if tied.is_exact or line.concern == "quality" or {*line.compared} - {*comparison.unsteady}
    ]
    undecided = [(line, tied) for line, tied in judged if tied.is_undecided]
    if sentences:
        undecided = [(line, tied) for line, tied in undecided if line.concern == "speed"]
        alike = [(line, tied) for line, tied in judged if line.topic == "speed" and not tied.is_undecided]
        sentences[:0] = [f"{NO_DIFFERENCE.capitalize()} over 10 % in speed{_apart(comparison, *one)}" for one in alike]
    elif alike := [(line, tied) for line, tied in judged if not tied.is_undecided]:
        over = "" if all(tied.is_exact for _, tied in alike) else " over 10 %"
        sentences = [f"{NO_DIFFERENCE.capitalize()}{over} in {in_words([line.topic for line, _ in alike])}"]
    elif not ties:
        topics = [line.topic for line in lines if line.reasons]
        sentences = [f"{in_words(names)} cannot be compared in {in_words(topics)}"]
    n_of_speed = sum(line.concern == "speed" for line, _ in found)
    open_questions = _undecided(undecided, comparison, more_runs or comparison.more_runs, again)
    if comparison.unsteady:
        if not (n_of_speed or open_questions) and any(line.concern == "speed" for line in lines):
            wide = next((one for one in ties if one[0].topic == "speed"), None)
            open_questions.append(f"Speed is undecided{_apart(comparison, *wide) if wide else ''}")
        is_said = again and any(question.endswith(again) for question in open_questions)
        how = "" if is_said else f": {again or 'measure again'}"
        open_questions.append(f"{_unsteady(comparison)} steady{how}")
    sentences[n_of_speed:n_of_speed] = open_questions
    return [f"{sentence}." for sentence in sentences]


def _apart(comparison: Comparison, line: ComparedLine, tied: Tied) -> str:
    """Return `: q2_k −4 % (−10 to +3 %)`; empty for more than two runs."""
    return f": {comparison.names[1]} {tied.apart}" if tied.apart else ""


def _undecided(
    lines: Sequence[tuple[ComparedLine, Tied]], comparison: Comparison, more_runs: str, again: str
) -> list[str]:
    """Return `Undecided in B: q2_k −4 % (−10 to +3 %); about 3 more runs of each, … would show if they differ …`."""
    said = []
    for why in dict.fromkeys(tied.disturbed for _, tied in lines if tied.disturbed):
        topics = in_words([line.topic for line, tied in lines if tied.disturbed == why])
        said.append(f"{UNDECIDED.capitalize()} in {topics}: {'; '.join(filter(None, (why, again)))}")
    lines = [(line, tied) for line, tied in lines if not tied.disturbed]
    for is_quality in (False, True):
        found = [(line, tied) for line, tied in lines if (line.concern == "quality") is is_quality]
        if found:
            counts = ["over 100" if tied.n_more is None else f"about {tied.n_more}" for _, tied in found]
            needed = in_words(counts if len(set(counts)) > 1 else counts[:1])
            more = "times as many chunks" if is_quality else more_runs
            if needed == "about 1":
                more = more.replace("more runs", "more run")
            topics = in_words([line.topic for line, _ in found])
            apart = f"{_apart(comparison, *found[0])};" if len(found) == 1 and found[0][1].apart else ":"
            said.append(f"Undecided in {topics}{apart} {needed} {more} would show if they differ by 10 %")
    return said


def _unsteady(comparison: Comparison) -> str:
    runs = comparison.unsteady
    if len(runs) == len(comparison.names):
        return f"{'Neither' if len(runs) == 2 else 'None'} of the runs was"
    return f"{in_words([comparison.names[run] for run in runs])} {'was' if len(runs) == 1 else 'were'} not"


def verdict_of(line: ComparedLine) -> str:
    """Return the verdict; empty for a metric that follows from another, for which stars are enough."""
    return line.verdict if line.topic or any(isinstance(each, Ahead) for each in line.reasons) else ""


def unstated_verdicts(comparison: Comparison) -> list[str]:
    """Return the verdicts without a sentence: `W and B: only a bound (a and b)`. Printable."""
    found: dict[str, list[str]] = {}
    for line in comparison.lines:
        if line.topic and line.verdict and not _difference(comparison, line):
            found.setdefault(line.verdict, []).append(line.topic)
    return [f"{in_words(topics)}: {verdict}" for verdict, topics in found.items()]


def _named(comparison: Comparison, runs: Sequence[int], among: Sequence[int]) -> list[str]:
    """Return the names of runs; a quant's runs are named once, without numbers, if all are among these."""
    short = comparison.short_names
    others = {short[index] for index in among if index not in runs}
    return list(dict.fromkeys((comparison.names if short[index] in others else short)[index] for index in runs))


def _difference(comparison: Comparison, line: ComparedLine) -> str:
    """Return which run is better, or which runs are better than others; empty if none is."""
    topic, what = line.topic, f"{line.topic}{_MEANING.get(line.key, '')}"
    better, best, tied, worse = f"is better in {topic}", f"is best in {topic}", f"are equally good in {what}", "worse"
    where = f" in {what}"
    if topic.startswith("speed"):  # `speed at n_depth 4,096`, too
        where = topic.removeprefix("speed")
        better, best, tied, worse = f"is faster{where}", f"is fastest{where}", f"are equally fast{where}", "slower"
    elif topic == "memory":
        better, best, tied, worse = _MEMORY
    for reason in line.reasons:
        if isinstance(reason, Better):
            behind = [index for index in line.compared if index != reason.run]
            (name,), others = (_named(comparison, runs, line.compared) for runs in ([reason.run], behind))
            said = f"{name} {better if len(others) == 1 else best}: {_figures(line, reason)}"
            said += "" if len(others) == 1 else f" for {_name_in(others, comparison, reason.over)}"
            return f"{said}, {reason.gain}" if reason.gain else said
        if isinstance(reason, Tied) and reason.behind:
            first, others = (_named(comparison, runs, line.compared) for runs in (reason.runs, reason.behind))
            if len(first) == 1:
                return f"{first[0]} {better} than {in_words(others)}"
            verb = "is" if len(others) == 1 else "are"
            if reason.is_undecided:
                return f"{in_words(others)} {verb} {worse}{where}; undecided between {in_words(first)}"
            return f"{in_words(first)} {tied}; {in_words(others)} {verb} {worse}"
    return ""


def _name_in(names: Sequence[str], comparison: Comparison, run: int) -> str:
    return next(name for name in (comparison.names[run], comparison.short_names[run]) if name in names)


def _figures(line: ComparedLine, better: Better) -> str:
    """Return both values, with W and B as latencies: `8.00 ms for the first token against 10.0`."""
    mine, other = line.values[better.run], line.values[better.over]
    if better.is_exact or not mine or not other:
        return f"{with_unit(line.texts[better.run], line.unit).rstrip()} against {line.texts[better.over]}"
    if line.key == "w_tokens_per_ms":
        mine, other = 1000 / mine, 1000 / other
    digits = next((n for n in range(3, 6) if format_number(mine, n) != format_number(other, n)), 6)
    value, against = format_number(mine, digits), format_number(other, digits)
    if line.key == "w_tokens_per_ms":
        return f"latency grows by {value} ms per 1,000 tokens of context against {against}"
    unit = "ms for the first token" if line.key == "b_ms" else line.unit
    return f"{with_unit(value, unit).rstrip()} against {against}"


def spread_sentence(comparison: Comparison) -> str:
    """Return the spread of repeats that verdicts allow for; empty if nothing was timed. Printable."""
    learned: dict[str, float] = {}
    assumed, n_repeats = 0.0, 0
    for line in comparison.stated:
        for spread in filter(None, line.spreads):
            if spread.n_repeats:
                learned[line.topic] = max(learned.get(line.topic, 0.0), spread.sigma)
                n_repeats = max(n_repeats, spread.n_repeats)
            else:
                assumed = max(assumed, spread.sigma)
    texts = [f"{format_number(sigma * 100, 2)} % in {topic}" for topic, sigma in learned.items()]
    if texts:
        repeats = f"{'up to ' if n_repeats > 1 else ''}{counted(n_repeats, 'stored repeat')}"
        return f"Repeats of a run differ by {in_words(texts)} (standard deviation, from {repeats})."
    percent = format_number(assumed * 100, 2)
    if max(comparison.n_runs) > 1:
        why = "the runs given do not show how much, and no other steady ones are stored"
    else:
        why = "no steady repeat is stored that shows how much"
    return f"Repeats of a run are assumed to differ by {percent} % (standard deviation): {why}." if assumed else ""


def versus_sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return how each run differs from the first, if there are three or more. Printable.

    `b against a: speed 0.71 ±0.03 times, memory 1.20 times.`
    """
    if len(comparison.names) < 3:
        return ()
    sentences = []
    for index in range(1, len(comparison.names)):
        pairs = [(line.topic, line.versus[index]) for line in comparison.stated]
        apart = [f"{topic} {found.text or 'differs'}" for topic, found in pairs if found and found.is_different]
        if apart:
            sentences.append(f"{letter(index)} against {letter(0)}: {', '.join(apart)}.")
    return tuple(sentences)


_LETTER = "The run's letter in texts: the first is `a`."
_VERSUS = Shape(
    "Versus",
    "A run compared with the first.",
    field("letter", str, _LETTER),
    of(Versus, "ratio"),
    field("ratio_ci95", ENDS),
    of(Versus, "difference"),
    field("difference_ci95", ENDS),
    of(Versus, "is_different"),
)
_METRIC = Shape(
    "Metric",
    "One metric of all runs.",
    of(ComparedLine, "metric=key"),
    field("values", list[float | None], "Value of each run, or the mean of the `n_runs` averaged; null if unknown."),
    field("values_ci95", list[Interval | None], "95 % interval of each; null if it has none, or is not compared."),
    field(
        "compared",
        list[int | None],
        "Numbers of the runs whose values can be compared; null for a run that is not stored.",
    ),
    field("better", list[int | None], "Numbers of the runs that are better than another and beaten by none."),
    field("over", int | None, "Number of the next best, if one run is better than all others."),
    field("ratio", NUMBER, "Its value / that of the next best."),
    field("ratio_ci95", ENDS),
    of(ComparedLine, "verdict?"),
    field("versus", many(_VERSUS), "Every other run compared with the first, if both have the metric."),
    field("load_spread", NUMBER, "Standard deviation between loads, as a share; the intervals include it."),
    field("n_repeats", int | None, "Number of repeats it was estimated from."),
)
_DEPTH = Shape(
    "Depth",
    "One depth.",
    field("n_depth", int, "Tokens already in the cache."),
    of(ComparedLine, "texts"),
    field("extrapolated", list[str], "Letters of the runs whose speed is from their fitted line, not measured."),
    _METRIC.fields,
)
_LIMIT = Shape(
    "Check",
    "One limit.",
    of(LimitCheck, "limit=option share"),
    field("letter", str, _LETTER),
    of(LimitCheck, "metric=key state worse_by"),
    field("worse_by_ci95", ENDS),
    of(LimitCheck, "repeats_needed"),
    field("message", str),
)
_NAMED = sometimes(
    field("name", str, "The shortest name that distinguishes the run from the others."),
    field("letter", str, _LETTER),
    of(RunHead, "kind"),
    field("n_runs", int, "Runs averaged in `metrics`; the row is the first."),
)
_ROW = Shape("Row", "One run.", _NAMED, QUANT.without("against"))
PUBLISHED_RUN = Shape(
    "Published",
    "A run and published rows.",
    of(Run, "run_id"),
    AGAINST,
    sometimes(field("cases", list[object], "For a `speed` run: its cases, each with `against`.")),
)
COMPARE = Document(
    "compare",
    "compare RUN|FILE...",
    "Runs side by side; for a single run and published rows, only `rows` and `published`.",
    field("rows", many(_ROW)),
    sometimes(
        field("metrics", many(_METRIC)),
        field("depths", many(_DEPTH), "Speed by the number of tokens in the cache."),
        field("differences", dict[str, list[str]], "The differences between the runs, by topic."),
        of(Comparison, "warnings"),
        field("sentence", str, "The answer in words."),
        field("checks", many(_LIMIT), "Results of the options --fail-if-..."),
        field("published", many(PUBLISHED_RUN), "With --against published: the rows, by run."),
    ),
)


def comparison_fields(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    named = enumerate(zip(comparison.names, summaries, strict=True))
    return {
        "rows": [
            _ROW.value(
                summary, name=name, letter=letter(index), kind=summary.run.head.kind, n_runs=comparison.n_runs[index]
            )
            for index, (name, summary) in named
        ],
        "metrics": [_METRIC.value(line, **_of_line(line, comparison)) for line in comparison.lines],
        "depths": [_DEPTH.value(line, **_of_depth(line, comparison, summaries)) for line in comparison.depths],
        "differences": comparison.differences,
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
        "checks": [
            _LIMIT.value(check, letter=letter(check.run), message=check.message(comparison)) for check in checks
        ],
    }


def _of_line(line: ComparedLine, comparison: Comparison) -> dict[str, object]:
    run_ids = comparison.run_ids
    won = next((each for each in line.reasons if isinstance(each, Better)), None)
    spreads = [each for each in line.spreads if each is not None]
    return {
        "values": line.values,
        "values_ci95": line.ci95,
        "compared": [run_ids[index] for index in line.compared],
        "better": [run_id for run_id, is_better in zip(run_ids, line.better, strict=True) if is_better],
        "over": won and run_ids[won.over],
        "ratio": won and won.ratio,
        "ratio_ci95": won and won.ratio_ci95,
        "versus": [
            _VERSUS.value(each, letter=letter(n)) for n, each in enumerate(line.versus) if each is not None and n
        ],
        "load_spread": max((each.sigma for each in spreads), default=None),
        "n_repeats": min((each.n_repeats for each in spreads), default=None),
    }


def _of_depth(line: ComparedLine, comparison: Comparison, summaries: Sequence[QuantSummary]) -> dict[str, object]:
    n_depth = int(line.key.removeprefix("tok_s_d"))
    beyond = [letter(index) for index, summary in enumerate(summaries) if is_extrapolated(summary, n_depth)]
    return _of_line(line, comparison) | {"n_depth": n_depth, "extrapolated": beyond}
