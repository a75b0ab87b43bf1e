"""Settings that a search may change, and the race of candidates against a baseline.

All are measured briefly; a candidate is dropped once its interval is entirely below the leader's; the rest are measured
again. The race's intervals are simultaneous over all candidates and looks. The best of several is partly lucky, so its
gain is estimated afterwards from separate measurements, whose number is fixed in advance. The logarithm of every time
is compared with the baseline's, interpolated between its measurements before and after, so that a slowdown of the
machine affects both.

Source: O. Maron and A. Moore, Hoeffding Races, NIPS 6 (1994), with Student's intervals in place of Hoeffding's, which
need a bound on the noise. Optuna and irace search without a baseline and give no interval of the gain;
scripts/compare_optuna compares with Optuna in the same time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig, SplitMode
from ggbench.errors import UsageError
from ggbench.experiments.tune.record import TuneSegment, TuneSettings, TuneTiming, changes
from ggbench.stats.intervals import Expected, t_point

Vector = tuple[float, ...]
"""Logarithms of speed / baseline speed, one for each depth and phase."""

BASELINE = 0
LARGEST_DRIFT = 1.1
"""Largest ratio of two timings of the baseline without drift, as in llama.cpp's tools/tuning."""
BETWEEN_BASELINES = 3
"""Candidates measured between two baselines."""
LEAST_GAIN = 1.001
"""A smaller gain is not worth a setting."""
_EQUAL = math.log(1.01)
"""A race is over once nothing can be faster than the leader by more than this."""
_AS_FAST = math.log(1.005)
"""Allowed slowdown of a simpler setup, as a ratio."""
_ERROR = 0.05
"""Probability that a race drops any candidate better than its leader."""
_OF_SCORE = 0.8
"""Variance of a score / variance of the difference of two adjacent baselines. A score is one measurement against the
mean of two: 1 + 1/2 to 1 + 1 variances of a measurement; the difference has 2."""


def is_steady(drift: float) -> bool:
    return 1 / LARGEST_DRIFT <= drift <= LARGEST_DRIFT


def drift_of(timings: Sequence[TuneTiming]) -> float:
    """Return the time of the last measurement / that of the first, averaged over depths and phases."""
    first, last = _logs(timings[0]), _logs(timings[-1])
    return math.exp(_mean(b - a for a, b in zip(first, last, strict=True)))


def scores_of(timings: Sequence[TuneTiming]) -> Iterator[tuple[int, Vector]]:
    """Yield each candidate between two baselines with its log speed ratios to the baseline."""
    first, last = _logs(timings[0]), _logs(timings[-1])
    for place, timing in enumerate(timings[1:-1], 1):
        share = place / (len(timings) - 1)
        reference = (a + (b - a) * share for a, b in zip(first, last, strict=True))
        yield timing.candidate, tuple(ref - own for ref, own in zip(reference, _logs(timing), strict=True))


def in_order(candidates: Sequence[int], round_number: int, loads: Sequence[object]) -> list[int]:
    """Return the candidates in the order of a round, reversed in every second; those with equal `loads` stay
    together.
    """
    first = {load: index for index, load in reversed(list(enumerate(loads)))}
    ordered = [each for _, each in sorted(zip((first[load] for load in loads), candidates, strict=True))]
    return ordered if round_number % 2 else ordered[::-1]


@dataclass(slots=True)
class Race:
    """Scores of all candidates, and the ones still in the race."""

    alive: list[int] = field(default_factory=list)
    scores: dict[int, list[Vector]] = field(default_factory=dict)
    n_looks: int = 0
    _squares: list[float] = field(default_factory=list)
    """Squared differences between adjacent baselines."""

    def enter(self, candidates: Iterable[int]) -> None:
        for each in candidates:
            self.alive.append(each)
            self.scores.setdefault(each, [])

    def leave(self, candidate: int) -> None:
        """Remove a candidate that cannot be measured."""
        if candidate in self.alive:
            self.alive.remove(candidate)

    def add(self, segment: TuneSegment) -> None:
        self._squares.append(math.log(segment.drift) ** 2)
        for candidate, score in scores_of(segment.timings):
            self.scores.setdefault(candidate, []).append(score)

    @property
    def leader(self) -> int:
        """The fastest still in the race; the baseline if none is faster by more than its standard error."""
        best = max(self._measured(), key=self.mean, default=BASELINE)
        return best if self.is_promising(best) else BASELINE

    def finalist(self, n_changes: Mapping[int, int]) -> int:
        """Return the leader, or a setup that changes less and is as fast within half a percent and a standard error;
        the baseline if none is faster. Source: the one-standard-error rule, L. Breiman et al., Classification and
        Regression Trees (1984), 3.4.3, bounded because on a noisy machine a standard error may be a real gain.
        """
        leader, variance = self.leader, self.noise[0]
        if leader == BASELINE:
            return BASELINE
        near = [leader]
        for each in self._measured():
            difference, error = self._difference(each, leader, variance)
            if self.is_promising(each) and difference > -min(error, _AS_FAST):
                near.append(each)
        return min(near, key=lambda each: (n_changes[each], -self.mean(each)))

    def _gain(self, candidate: int) -> tuple[float, float, int] | None:
        """Return the mean of a candidate's scores, its standard error and degrees of freedom; None if unknown."""
        scores, (variance, freedom) = self.scores.get(candidate), self.noise
        return (self.mean(candidate), math.sqrt(variance / len(scores)), freedom) if scores and freedom else None

    def is_promising(self, candidate: int) -> bool:
        """Return whether a candidate was faster than the baseline by more than its standard error."""
        found = self._gain(candidate)
        return found is not None and found[0] > max(math.log(LEAST_GAIN), found[1])

    def is_open(self, candidate: int) -> bool:
        """Return whether a candidate may be faster than the baseline by one percent or more."""
        found = self._gain(candidate)
        return found is not None and found[0] + t_point(2 * _ERROR, found[2]) * found[1] > _EQUAL

    @property
    def is_sorted(self) -> bool:
        """Whether each candidate still in the race is known to be faster than the baseline or not."""
        for each in self.alive:
            found = self._gain(each)
            if found is None or (found[0] <= t_point(2 * _ERROR, found[2]) * found[1] and self.is_open(each)):
                return False
        return True

    @property
    def noise(self) -> tuple[float, int]:
        """Variance of one score, over all candidates, and its degrees of freedom."""
        squares, freedom = _OF_SCORE * sum(self._squares), len(self._squares)
        for scores in self.scores.values():
            values = [_mean(score) for score in scores]
            if len(values) > 1:
                centre = _mean(values)
                squares += sum((value - centre) ** 2 for value in values)
                freedom += len(values) - 1
        return (squares / freedom if freedom else math.inf), freedom

    def mean(self, candidate: int) -> float:
        """Return the logarithm of a candidate's speed / the baseline's, over all depths and phases."""
        return 0.0 if candidate == BASELINE else _mean(_mean(score) for score in self.scores[candidate])

    def look(self) -> list[tuple[int, Expected]]:
        """Drop candidates clearly slower than the leader; return each with its speed / the leader's.

        The interval is one-sided. The error is spent as 1 / (j (j + 1)) at look j, which sums to 1 over all looks, and
        divided among the candidates.
        """
        variance, freedom = self.noise
        if not freedom:
            return []
        self.n_looks += 1
        leader = self.leader
        t = t_point(2 * self._spent / max(1, len(self.scores)), freedom)
        dropped = []
        for each in [each for each in self._measured() if each != leader]:
            difference, error = self._difference(each, leader, variance)
            if difference + t * error < 0:
                dropped.append((each, _ratio(difference, t * error)))
                self.alive.remove(each)
        return dropped

    @property
    def is_decided(self) -> bool:
        """Whether nothing in the race can be faster than the leader by one percent or more."""
        variance, freedom = self.noise
        if not freedom or len(self._measured()) < len(self.alive):
            return not self.alive
        leader, t = self.leader, t_point(2 * self._spent, freedom)
        others = [each for each in self.alive if each != leader]
        differences = (self._difference(each, leader, variance) for each in others)
        return all(difference + t * error < _EQUAL for difference, error in differences)

    def ratio(self, candidate: int) -> Expected | None:
        """Return a candidate's speed / the baseline's with its own 95 % interval; None if not measured."""
        return self._interval(candidate, _mean)

    def part(self, candidate: int, index: int) -> Expected | None:
        """Return the same for one depth and phase."""
        return self._interval(candidate, lambda score: score[index])

    def _interval(self, candidate: int, value: Callable[[Vector], float]) -> Expected | None:
        values, (variance, freedom) = [value(each) for each in self.scores.get(candidate, ())], self.noise
        if not values or not freedom:
            return None
        return _ratio(_mean(values), t_point(_ERROR, freedom) * math.sqrt(variance / len(values)))

    def _difference(self, one: int, other: int, variance: float) -> tuple[float, float]:
        """Return the difference of two means and its standard error, overestimated since scores share baselines."""
        error = 1 / len(self.scores[one]) + (1 / len(self.scores[other]) if other != BASELINE else 0.0)
        return self.mean(one) - self.mean(other), math.sqrt(variance * error)

    @property
    def _spent(self) -> float:
        return _ERROR / max(1, self.n_looks * (self.n_looks + 1))

    def _measured(self) -> list[int]:
        return [each for each in self.alive if self.scores[each]]


def proven(blocks: Sequence[Vector]) -> tuple[Expected, tuple[Expected, ...]] | None:
    """Return a candidate's speed / the baseline's, overall and for each depth and phase, with 95 % intervals.

    A block is the mean of two scores from one segment (baseline, candidate, candidate, baseline), in which steady drift
    cancels. Uses Student's interval; None for fewer than two blocks.
    """
    if len(blocks) < 2:
        return None
    whole = _student([_mean(block) for block in blocks])
    return whole, tuple(_student(values) for values in zip(*blocks, strict=True))


def block_of(segment: TuneSegment) -> Vector:
    """Return the mean of the scores of a segment with one candidate."""
    scores = [score for _, score in scores_of(segment.timings)]
    return tuple(_mean(values) for values in zip(*scores, strict=True))


def blocks_for(variance: float, fewest: int, most: int) -> int:
    """Return the number of blocks for a half-width of about one percent, from the variance of a score in the race.

    The mean of two scores of one segment has about three quarters of that variance, as they share baselines.
    """
    wanted = math.ceil(0.75 * variance * (2.2 / _EQUAL) ** 2) if math.isfinite(variance) else most
    return min(most, max(fewest, wanted))


def _student(values: Sequence[float]) -> Expected:
    centre = _mean(values)
    variance = sum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return _ratio(centre, t_point(_ERROR, len(values) - 1) * math.sqrt(variance / len(values)))


def _ratio(log: float, half_width: float) -> Expected:
    return Expected(math.exp(log), math.exp(log - half_width), math.exp(log + half_width))


def _logs(timing: TuneTiming) -> Vector:
    return tuple(math.log(ns) for at in timing.at for ns in at.times_ns)


def _mean(values: Iterable[float]) -> float:
    found = tuple(values)
    return math.fsum(found) / len(found)


Choice = Mapping[str, Any]
"""Fields of a setup and their new values, changed together."""

_UBATCHES = (128, 256, 1024, 2048)
_SPLITS: tuple[SplitMode, ...] = ("row", "none")
_SERVER_SPLITS: tuple[SplitMode, ...] = ("none",)
"""Only CUDA and SYCL devices can split rows."""
_MOST_COMBINED = 5


class Known(msgspec.Struct, frozen=True):
    """Facts that determine which settings are worth trying."""

    n_logical: int
    """Hardware threads of the machine."""
    n_cores: int
    flash_attn: bool | None
    """Resolved value of the baseline; None if unknown."""
    placements: Sequence[Choice] = ()
    """Other ways to split a model that does not fit on the GPU."""
    n_gpus: int = 0
    """Number of GPUs with layers; 0 for main memory alone."""


def choices(baseline: LlamaConfig, settings: TuneSettings, known: Known) -> list[tuple[Choice, ...]]:
    """Return the values of each setting other than the baseline's, largest expected effect first.

    Flash attention comes first: on a CPU it can triple the cost of a long context (scripts/EVIDENCE.md). `n_batch` only
    makes room for `n_ubatch`, the number of tokens computed at once.
    """
    of_decode, of_prefill = settings.objective != "prefill", settings.objective != "decode"
    threads = baseline.threads or known.n_cores
    batch_threads = baseline.threads_batch or threads
    counts = (known.n_logical, known.n_cores, threads - 1, threads // 2)
    switches = ("off",) if known.flash_attn else ("on",) if known.flash_attn is False else ("off", "on")
    splits = _SERVER_SPLITS if baseline.rpc_servers else _SPLITS
    computes_on_cpu = not known.n_gpus or bool(known.placements)
    found: list[list[Choice]] = [
        [{"flash_attn": each} for each in switches],
        list(known.placements),
        [{"threads": each} for each in _others(counts, threads)] if of_decode and computes_on_cpu else [],
        [{"threads_batch": each} for each in _others(counts, batch_threads)] if of_prefill and computes_on_cpu else [],
        [{"type_k": each, "type_v": each} for each in settings.kv_types],
        [
            {"n_ubatch": each, "n_batch": max(each, baseline.n_batch)}
            for each in _UBATCHES
            if of_prefill and each != baseline.n_ubatch and each <= settings.n_prompt
        ],
        [{"split_mode": each} for each in splits if known.n_gpus > 1 and baseline.main_gpu is None],
        [{"mmap": not baseline.mmap}] if computes_on_cpu and baseline.memory_limit_bytes is None else [],
    ]
    return [tuple(each) for each in found if each]


def singles(baseline: LlamaConfig, dimensions: Iterable[Iterable[Choice]]) -> list[LlamaConfig]:
    """Return a setup for each value, changing only that one, without those that llama.cpp refuses."""
    found = (merged(baseline, [choice]) for dimension in dimensions for choice in dimension)
    return [each for each in found if each is not None]


def combined(
    baseline: LlamaConfig, good: Sequence[LlamaConfig], open_: Sequence[LlamaConfig], tried: Sequence[LlamaConfig]
) -> list[LlamaConfig]:
    """Return untried combinations of setups that won alone (`good`) and of those that may be better (`open_`).

    The first joins all compatible setups of `good`. Next, this one and each of `good` not in it are joined with each of
    `open_`; then come the other pairs. `good` and `open_` are sorted, best first, and each of their setups changes at
    most one setting.
    """
    changed, perhaps = ([changes(baseline, each) for each in setups] for setups in (good, open_))
    if not changed:
        return []
    together: list[dict[str, object]] = []
    for each in changed:
        if merged(baseline, [*together, each]) is not None:
            together.append(each)
    bests = [together, *([each] for each in changed if each not in together)]
    sets = [
        together,
        *([*best, each] for each in perhaps for best in bests),
        *map(list, itertools.combinations(changed, 2)),
    ]
    found = (merged(baseline, each) for each in sets if len(each) > 1)
    new = dict.fromkeys(each for each in found if each is not None and each not in tried)
    return list(new)[:_MOST_COMBINED]


def merged(baseline: LlamaConfig, together: Iterable[Choice]) -> LlamaConfig | None:
    """Return the baseline with these changes; None if two disagree, or if llama.cpp refuses the result."""
    fields: dict[str, Any] = {}
    for choice in together:
        if any(name in fields and fields[name] != value for name, value in choice.items()):
            return None
        fields |= choice
    setup = replace(baseline, **fields)
    try:
        setup.check()
    except UsageError:
        return None
    return None if setup == baseline else setup


def _others(values: Iterable[int], own: int) -> list[int]:
    return [each for each in dict.fromkeys(values) if each > 0 and each != own]
