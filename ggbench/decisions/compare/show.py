"""What a comparison says, for every output: one or two sentences on which run is better in what, and its JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ggbench.decisions.compare.comparison import NO_DIFFERENCE, Better, ComparedLine, Comparison, Tied
from ggbench.decisions.compare.estimates import Versus
from ggbench.decisions.compare.limits import LimitCheck
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show import letter
from ggbench.show.document import Document, Shape, field, many, of, sometimes
from ggbench.show.metric import reach_of
from ggbench.show.published import AGAINST
from ggbench.show.run_documents import ENDS, NUMBER, QUANT
from ggbench.text import in_words
from ggbench.units import format_number

_T = TypeVar("_T")
_HOW = {False: f"show {NO_DIFFERENCE}", True: "are equal"}
"""Of a tie, by whether the values are exact."""


def sentence_of(comparison: Comparison) -> str:
    """Return the sentences, with the runs' names. Printable.

    `q4_0 is better in speed (1.32 ±0.04 times) and memory (48.9 MiB less). They show no difference in W and B.`
    """
    names = comparison.names
    if comparison.is_empty:
        return f"{in_words(names)} have nothing in common that can be compared."
    lines = comparison.stated
    wins = _wins(names, lines)
    both = "They" if wins else in_words(names)
    ties = "; ".join(_ties(names, lines, both if len(names) == 2 else f"The {len(names)} runs"))
    sentences = [wins, ties]
    if not wins and not ties:
        sentences = [f"There is no verdict on {in_words([line.topic for line in lines if line.reasons])}"]
    if unsteady := [names[index] for index in comparison.unsteady]:
        sentences.append(f"{in_words(unsteady)} {'was' if len(unsteady) == 1 else 'were'} not steady: measure again")
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def spread_sentence(comparison: Comparison) -> str:
    """Return by how much repeats differ, which verdicts include; empty where nothing was timed. Printable."""
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
        known = f"repeats of a run differ by {in_words(texts)} (standard deviation, {_repeats(n_repeats)})"
    elif assumed:
        percent = format_number(assumed * 100, 2)
        known = f"repeats of a run are taken to differ by {percent} %, as none is stored: measure again to learn it"
    else:
        return ""
    return f"Verdicts include what another load of the model changes: {known}."


def _repeats(count: int) -> str:
    return "from one stored repeat" if count == 1 else f"from up to {count} stored repeats"


def versus_sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return what each further run is beside the first, where there are three or more. Printable."""
    count = len(comparison.names)
    return tuple(_beside_first(comparison, index) for index in range(1, count)) if count > 2 else ()


def _beside_first(comparison: Comparison, index: int) -> str:
    """`b beside a: speed 0.71 ±0.03 times, memory 1.20 times; no difference in W and B.`"""
    apart, same = [], []
    for line in comparison.stated:
        found = line.versus[index]
        if found is None:
            continue
        if found.is_different:
            apart.append(f"{line.topic} {found.text}".rstrip() if found.text else f"{line.topic} differs")
        else:
            same.append(line.topic)
    parts = [", ".join(apart), f"{NO_DIFFERENCE} in {in_words(same)}" if same else ""]
    said = "; ".join(filter(None, parts)) or "nothing compares"
    return f"{letter(index)} beside {letter(0)}: {said}."


def _wins(names: Sequence[str], lines: Sequence[ComparedLine]) -> str:
    """`q4_0 is better in speed (1.32 ±0.04 times); q8_0 in W (1.20 ±0.02 times)`; empty where no run is better."""
    word = "better" if len(names) == 2 else "best"
    by_run: dict[int, list[str]] = {}
    for line, won in _decided(lines, Better):
        over = "" if len(names) == 2 else f" {'than ' if won.is_exact else ''}{names[won.over]}"
        gain = f" ({won.gain}{over})" if won.gain else ""
        by_run.setdefault(won.run, []).append(f"{line.topic}{gain}")
    parts = [
        f"{names[index]} {'' if number else f'is {word} '}in {in_words(topics)}"
        for number, (index, topics) in enumerate(by_run.items())
    ]
    return "; ".join(parts)


def _ties(names: Sequence[str], lines: Sequence[ComparedLine], who: str) -> list[str]:
    """Where runs are equal or not distinguished."""
    parts: list[str] = []
    ties = _decided(lines, Tied)
    for is_exact, how in _HOW.items():
        topics: dict[tuple[int, ...], list[str]] = {}
        for line, tied in ties:
            if tied.is_exact is is_exact and not tied.behind:
                topics.setdefault(tied.runs, []).append(line.topic)
        for compared, some in topics.items():
            everyone = "they" if parts else who
            parts.append(
                f"{everyone if len(compared) == len(names) else _named(names, compared)} {how} in {in_words(some)}"
            )
    for line, tied in ties:
        if tied.behind:
            fall = f"{_named(names, tied.behind)} fall{'s' if len(tied.behind) == 1 else ''} behind"
            parts.append(f"{_named(names, tied.runs)} {_HOW[tied.is_exact]} in {line.topic}, where {fall}")
    return parts


def _named(names: Sequence[str], runs: Sequence[int]) -> str:
    return in_words([names[index] for index in runs])


def _decided(lines: Sequence[ComparedLine], kind: type[_T]) -> list[tuple[ComparedLine, _T]]:
    return [(line, reason) for line in lines for reason in line.reasons if isinstance(reason, kind)]


class _Line(NamedTuple):
    """A metric of all runs, with the runs."""

    line: ComparedLine
    comparison: Comparison
    summaries: Sequence[QuantSummary]

    @property
    def compared(self) -> list[int | None]:
        return [self.comparison.run_ids[index] for index in self.line.compared]

    @property
    def better(self) -> list[int | None]:
        pairs = zip(self.comparison.run_ids, self.line.better, strict=True)
        return [run_id for run_id, is_better in pairs if is_better]

    @property
    def won(self) -> Better | None:
        return next((each for each in self.line.reasons if isinstance(each, Better)), None)

    @property
    def over(self) -> int | None:
        return None if self.won is None else self.comparison.run_ids[self.won.over]

    @property
    def versus(self) -> list[tuple[int, Versus]]:
        return [(index, found) for index, found in enumerate(self.line.versus) if found is not None and index]

    @property
    def load_spread(self) -> float | None:
        return max((each.sigma for each in self.line.spreads if each is not None), default=None)

    @property
    def n_repeats(self) -> int | None:
        return min((each.n_repeats for each in self.line.spreads if each is not None), default=None)

    @property
    def n_depth(self) -> int:
        return int(self.line.key.removeprefix("tok_s_d"))

    @property
    def extrapolated(self) -> list[str]:
        reaches = list(map(reach_of, self.summaries))
        return [letter(index) for index, reach in enumerate(reaches) if reach is not None and self.n_depth >= reach]


class _Check(NamedTuple):
    check: LimitCheck
    comparison: Comparison


_LETTER = "What the run is called in texts: the first is `a`."
_VERSUS = Shape(
    "Versus",
    "A run beside the first.",
    field("letter", str, _LETTER, lambda pair: letter(pair[0])),
    of(Versus, "ratio", lambda pair: pair[1]),
    field("ratio_ci95", ENDS, get=lambda pair: pair[1].ratio_ci95),
    of(Versus, "difference", lambda pair: pair[1]),
    field("difference_ci95", ENDS, get=lambda pair: pair[1].difference_ci95),
    of(Versus, "is_different", lambda pair: pair[1]),
)
_METRIC = Shape(
    "Metric",
    "One metric of all runs.",
    of(ComparedLine, "metric=key", lambda of_all: of_all.line),
    field(
        "compared",
        list[int | None],
        "Numbers of the runs whose values can be compared; null of one that is not stored.",
    ),
    field(
        "better", list[int | None], "Numbers of the runs that none is better than, and that are better than another."
    ),
    field("over", int | None, "Number of the next best, where one run is better than all others."),
    field(
        "ratio",
        NUMBER,
        "Its value over that of the next best.",
        lambda of_all: of_all.won and of_all.won.ratio,
    ),
    field("ratio_ci95", ENDS, get=lambda of_all: of_all.won and of_all.won.ratio_ci95),
    of(ComparedLine, "verdict?", lambda of_all: of_all.line),
    field("versus", many(_VERSUS), "Every run but the first beside the first, where both are compared."),
    field("load_spread", NUMBER, "Standard deviation between loads, as a share; the intervals include it."),
    field("n_repeats", int | None, "Loads that it was taken from."),
)
_DEPTH = Shape(
    "Depth",
    "One depth.",
    field("n_depth", int, "Tokens that are in the cache already."),
    of(ComparedLine, "texts", lambda of_all: of_all.line),
    field("extrapolated", list[str], "Letters of the runs that did not come so far."),
    _METRIC.fields,
)
_LIMIT = Shape(
    "Check",
    "One limit.",
    of(LimitCheck, "limit=option share", lambda pair: pair.check),
    field("letter", str, _LETTER, lambda pair: letter(pair.check.run)),
    of(LimitCheck, "metric=key state worse_by", lambda pair: pair.check),
    field("worse_by_ci95", ENDS, get=lambda pair: pair.check.worse_by_ci95),
    of(LimitCheck, "repeats_needed", lambda pair: pair.check),
    field("message", str, get=lambda pair: pair.check.message(pair.comparison)),
)
_NAMED = sometimes(
    field("name", str, "The shortest name that distinguishes it from the others."),
    field("letter", str, _LETTER),
    of(RunHead, "kind"),
)
_ROW = Shape("Row", "One run.", _NAMED, QUANT.without("against"))
PUBLISHED_RUN = Shape(
    "Published",
    "A run beside published figures.",
    of(Run, "run_id"),
    AGAINST,
    sometimes(field("cases", list[object], "Of a `speed`: its cases, each with `against`.")),
)
COMPARE = Document(
    "compare",
    "compare RUN|FILE...",
    "Runs side by side; of a single run beside published figures only `rows` and `published`.",
    field("rows", many(_ROW)),
    sometimes(
        field("metrics", many(_METRIC)),
        field("depths", many(_DEPTH), "Speed by what is in the cache."),
        field("differences", dict[str, list[str]], "What differs between the runs, by topic."),
        of(Comparison, "warnings"),
        field("sentence", str, "The answer in words."),
        field("checks", many(_LIMIT), "Of the options --fail-if-..."),
        field("published", many(PUBLISHED_RUN), "With --against published: by run."),
    ),
)
"""Of several runs: with the fields of `comparison_fields`."""


def comparison_fields(
    comparison: Comparison, summaries: Sequence[QuantSummary], checks: Sequence[LimitCheck] = ()
) -> dict[str, object]:
    """Return what `COMPARE` has of several runs, which letters name in their order, as runs of files have no number."""
    named = enumerate(zip(comparison.names, summaries, strict=True))
    return {
        "rows": [
            _ROW.value(summary, name=name, letter=letter(index), kind=summary.run.head.kind)
            for index, (name, summary) in named
        ],
        "metrics": [_Line(line, comparison, summaries) for line in comparison.lines],
        "depths": [_Line(line, comparison, summaries) for line in comparison.depths],
        "differences": {each.topic: each.lines for each in comparison.differences},
        "warnings": comparison.warnings,
        "sentence": sentence_of(comparison),
        "checks": [_Check(check, comparison) for check in checks],
    }
