"""Known speeds of quants, without new measurements.

They come from the most reliable source: runs of a file with the same tensors, a forecast from twins of its layers, the
share of the bandwidth that this machine's other runs reach, others' rows of llama-bench, or the bandwidth alone.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.expect.published_speed import published_estimate
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.bandwidth import is_from_busy_machine
from ggbench.machine.host import describe_cpu
from ggbench.runs.comparable import ThisMachine, runs_of_file, runs_with_rates
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.sizing.placement import Placement, place_bandwidths, read_latencies_ms
from ggbench.sizing.plan_record import Budget, PlannedForecast, PlannedSpeed, PlanRow
from ggbench.sizing.theory.offload import HOST
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import (
    POSITIONS,
    SpeedEstimate,
    estimate_at,
    knows,
    tok_s_at,
    with_sequences,
)
from ggbench.text import in_words
from ggbench.units import counted, format_number


class KnownSpeeds:
    """How fast files are expected to be on the machine of a budget, whatever the setup.

    Stored runs count only if the budget is this machine's, and if they can be read.
    """

    def __init__(self, store: Store | None, budget: Budget) -> None:
        """Without a store only what needs no run is known."""
        self._budget = budget
        self._store = store if budget.is_here else None
        self._here = ThisMachine.describe() if self._store is not None else None
        self._cache_bytes = 0 if budget.on_gpu else describe_cpu().last_level_cache_bytes or 0
        self._by_file: dict[tuple[str, str], list[Run]] = {}
        self._alike: dict[EngineConfig | None, list[Run]] = {}

    @classmethod
    @contextlib.contextmanager
    def here(cls, budget: Budget) -> Iterator[KnownSpeeds]:
        """Open the user's results, if they can be read."""
        with contextlib.ExitStack() as opened:
            store = None
            if budget.is_here:
                with contextlib.suppress(StoreError):
                    store = opened.enter_context(Store.open())
            yield cls(store, budget)

    def decisive(self, setup: EngineConfig, n_layer: int | None) -> EngineConfig | None:
        """Return the parts of a setup that affect speed on this machine, as `ThisMachine.decisive`; None elsewhere."""
        return None if self._here is None else self._here.decisive(setup, n_layer)

    def runs_of(self, file: ModelFile) -> list[Run]:
        """Return the completed runs of a file's tensors on this machine with its llama.cpp, newest first."""
        if self._here is None or self._store is None:
            return []
        key = file.header_sha256, file.shape_key
        if key not in self._by_file:
            found: list[Run] = []
            with contextlib.suppress(StoreError):
                found = runs_of_file(self._store, self._here.key, *key)
            self._by_file[key] = [run for run in found if self._here.made(run.head.environment)]
        return self._by_file[key]

    def of(
        self, file: ModelFile | None, setup: LlamaConfig, n_seqs: int = 1, *, only_steady: bool = False
    ) -> SpeedEstimate | None:
        """Return the best estimate of a file under a setup for `n_seqs` sequences at once; None if not even the bound
        is known. `only_steady` leaves out runs of the file that were disturbed.
        """
        if file is None:
            return None
        measured = [each for each in self._measured(file, setup, n_seqs) if each.is_steady or not only_steady]
        if n_seqs > 1:
            alone = self._of_each(file, setup, n_seqs, only_steady=only_steady)
            if alone is None:
                return _best(_decodes(measured, ()))
            return _best([*_decodes(measured, alone.prefill_ms), alone, *alone.others])
        prefill_ms = _prefill_ms(measured)
        known = _decodes(measured, prefill_ms)
        if not known or not knows(known[0], POSITIONS[-1]):
            elsewhere = self._without_runs(file, setup)
            if elsewhere is not None:
                known.append(replace(elsewhere, prefill_ms=prefill_ms or elsewhere.prefill_ms))
        return _best(sorted(known, key=lambda each: not each.has_line))

    def _of_each(
        self, file: ModelFile, setup: LlamaConfig, n_seqs: int, *, only_steady: bool
    ) -> SpeedEstimate | None:
        """Return what `n_seqs` sequences at once get, by the estimate of one."""
        alone = self.of(file, setup, only_steady=only_steady)
        if alone is None:
            return None
        ratio = self._placement(file, setup).weights_ratio(place_bandwidths(self._budget), n_seqs)
        return with_sequences(alone, n_seqs, ratio)

    def shares(self, setup: LlamaConfig) -> BandwidthShares | None:
        """Return the share of the budget's bandwidth that models reach whose weights are all in the planned memory.

        None for fewer than two models.
        """
        bandwidth = self._budget.bandwidth
        return None if bandwidth is None else bandwidth_shares(self._runs_alike(setup), bandwidth.bytes_per_s)

    def _runs_alike(self, setup: LlamaConfig) -> list[Run]:
        """Return the runs with rates under a setup whose weights were all in the planned memory."""
        if self._here is None:
            return []
        asked = self._here.decisive(setup, None)
        asked = None if asked is None else asked.without_placement()
        if asked not in self._alike:
            self._alike[asked] = [run for run in self._with_rates if self._is_alike(run, asked)]
        return self._alike[asked]

    @functools.cached_property
    def _with_rates(self) -> list[Run]:
        found: list[Run] = []
        if self._here is not None and self._store is not None:
            with contextlib.suppress(StoreError):
                found = list(runs_with_rates(self._store, self._here.key))
        return found

    def _measured(self, file: ModelFile, setup: LlamaConfig, n_seqs: int) -> list[SpeedEstimate]:
        """Return the speeds of runs with the same tensors under the same setup, newest first."""
        wanted = self.decisive(setup, file.n_layer)
        same = [
            run for run in self.runs_of(file) if self.decisive(run.head.setup, run.subject.n_layer) == wanted
        ]
        if n_seqs > 1:
            same = [run for run in same if run.head.setup.kv_unified is setup.kv_unified]
        speeds = (experiment_of(run.head.kind).speed_of(run, n_seqs) for run in same)
        return [speed for speed in speeds if speed is not None]

    def _is_alike(self, run: Run, asked: EngineConfig | None) -> bool:
        """Return whether a run read its weights only from the planned memory, not from the CPU's cache."""
        on_gpu = self._budget.on_gpu
        if self._here is None or not self._here.made(run.head.environment):
            return False
        decisive = self._here.decisive(run.head.setup, run.subject.n_layer)
        if decisive is None or asked is None or decisive.without_placement() != asked:
            return False
        if (run.subject.weight_bytes or 0) <= self._cache_bytes or run.memory.weights_on_gpu is not on_gpu:
            return False
        return not on_gpu or (
            decisive.n_gpu_layers < 0 and not decisive.tensor_overrides and decisive.kv_offload
        )

    def _placement(self, file: ModelFile, setup: LlamaConfig) -> Placement:
        budget = self._budget
        return Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)

    def _without_runs(self, file: ModelFile, setup: LlamaConfig) -> SpeedEstimate | None:
        """Return the speed at positions that no run of the file measured: if one memory is read, by the share of the
        bandwidth that other runs reach; by others' rows; or at the bandwidths.

        A token reads from one memory after the other. None if a bandwidth is unknown, or the bytes read.
        """
        budget = self._budget
        placement = self._placement(file, setup)
        latencies = read_latencies_ms(budget, placement, placement.speed_positions)
        if latencies is None:
            return None
        places = set(placement.read_bytes(POSITIONS[-1]))
        first_memory = 0 if budget.on_gpu else HOST
        shares = self.shares(setup) if places == {first_memory} else None
        if shares is not None:
            return shares.estimate(latencies)
        return published_estimate(file, setup, budget) or _bound(latencies, places, budget)


def _decodes(
    measured: Iterable[SpeedEstimate], prefill_ms: tuple[tuple[int, Estimate], ...]
) -> list[SpeedEstimate]:
    """Return the estimates that show a decode, the most reliable first, with these times of prompts."""
    found = [replace(each, prefill_ms=prefill_ms) for each in measured if each.step_ms]
    return sorted(found, key=lambda each: (not each.has_line, each.basis != "measured", not each.is_steady))


def _prefill_ms(measured: Iterable[SpeedEstimate]) -> tuple[tuple[int, Estimate], ...]:
    """Return the times of prompts of the newest run that shows them, or else of a forecast."""
    found = sorted((each for each in measured if each.prefill_ms), key=lambda each: each.basis != "measured")
    return found[0].prefill_ms if found else ()


def _best(known: Sequence[SpeedEstimate]) -> SpeedEstimate | None:
    """Return the first estimate with the others behind it; None without any."""
    return replace(known[0], others=tuple(known[1:])) if known else None


def _bound(latencies: Mapping[int, float], places: Collection[int], budget: Budget) -> SpeedEstimate:
    steps = tuple((n, Estimate(ms, ms, math.inf)) for n, ms in latencies.items())
    bandwidths = place_bandwidths(budget)
    used = [bandwidths[place] for place in sorted(places, reverse=True)]
    source = f"bandwidth: {in_words(list(dict.fromkeys(each.source for each in used)))}"
    return SpeedEstimate("bound", source, steps, is_steady=not any(map(is_from_busy_machine, used)))


def expected_at(known: SpeedEstimate | None, n: int | None) -> PlannedForecast | None:
    """Return the expected speed at position n; None for a mere bound, or outside the measured range."""
    known = None if known is None or n is None else estimate_at(known, n)
    if known is None or known.basis == "bound" or n is None:
        return None
    return PlannedForecast(tok_s_at(known, n), known.source, known.basis, known.is_steady, known.rows)


def with_estimates(row: PlanRow, known: SpeedEstimate | None) -> PlanRow:
    """Return a row with the expected speed at each of its positions."""

    def estimated(speed: PlannedSpeed) -> PlannedSpeed:
        return replace(speed, expected=expected_at(known, speed.n))

    return replace(
        row,
        decode=tuple(map(estimated, row.decode)),
        at_n_ctx=None if row.at_n_ctx is None else estimated(row.at_n_ctx),
        expected=expected_at(known, row.n_ctx_slot or row.n_ctx),
        expected_first=expected_at(known, 1),
    )


def with_estimate_together(row: PlanRow, known: SpeedEstimate | None, n_seqs: int) -> PlanRow:
    """Return a row with the expected speed of `n_seqs` sequences at once; `known` has the latency of their steps."""
    found = None if row.together is None else expected_at(known, row.together.n)
    if row.together is None or found is None:
        return row
    tok_s = Estimate(*(n_seqs * each for each in msgspec.structs.astuple(found.tok_s)))
    return replace(row, together=replace(row.together, expected=replace(found, tok_s=tok_s)))


_FEWEST = 2
"""Minimum number of measured models to extrapolate from."""
_LEAST_DEVIATION = 0.15
"""Minimum standard deviation of the shares' logarithms, since a few models may agree by chance. Measured over quants
and models of all sizes on a Xeon."""


class BandwidthShares(msgspec.Struct, frozen=True):
    """Share of the bandwidth that models reach, at most 1: the median, and a prediction interval for one more model."""

    weights: Estimate
    """Share reached when reading the weights."""
    kv_cache: Estimate
    """Share reached when reading the cache."""
    seen: tuple[float, ...]
    """Share for the weights, by model."""

    @property
    def source(self) -> str:
        """Source of the shares: `this machine's other runs reach 41 to 52 % of the bound (5 models)`."""
        low, high = (format_number(100 * each, 2) for each in (min(self.seen), max(self.seen)))
        share = low if low == high else f"{low} to {high}"
        return f"this machine's other runs reach {share} % of the bound ({counted(len(self.seen), 'model')})"

    def estimate(self, latencies: Mapping[int, float]) -> SpeedEstimate:
        """Return the speed at these shares of the bound, whose latencies [ms] are by position from 1 on."""
        weights, kv, first = self.weights, self.kv_cache, latencies[1]
        steps = tuple(
            (
                n,
                Estimate(
                    first / weights.value + (ms - first) / kv.value,
                    first / weights.high + (ms - first) / kv.high,
                    first / weights.low + (ms - first) / kv.low,
                ),
            )
            for n, ms in latencies.items()
        )
        return SpeedEstimate("other runs", self.source, steps)


def bandwidth_shares(runs: Iterable[Run], bandwidth_bytes_per_s: float) -> BandwidthShares | None:
    """Return the shares reached by the newest run of each model; None for fewer than two."""
    found: dict[str, tuple[float, float]] = {}
    for run in runs:
        key, speed = (
            run.subject.shape_key or run.subject.header_sha256,
            experiment_of(run.head.kind).speed_of(run),
        )
        if key and speed is not None and speed.rates is not None:
            found.setdefault(key, speed.rates)
    if len(found) < _FEWEST:
        return None
    weights, kv_cache = (
        [rate / bandwidth_bytes_per_s for rate in rates] for rates in zip(*found.values(), strict=True)
    )
    return BandwidthShares(_next_of(weights), _next_of(kv_cache), tuple(weights))


def _next_of(shares: Sequence[float]) -> Estimate:
    """Return the median and a 95 % prediction interval for one more share, up to 1; shares are taken as log-normal."""
    median = statistics.median(shares)
    logarithms = [math.log(each) for each in shares]
    deviation = max(_LEAST_DEVIATION, statistics.stdev(logarithms))
    factor = math.exp(2 * deviation * math.sqrt(1 + 1 / len(shares)))
    return Estimate(median, median / factor, max(median, min(1.0, median * factor)))
