"""Known speeds of quants on this machine, and losses of quants and KV cache types, without new measurements.

Speeds come from the most reliable source: runs of a file with the same tensors, a forecast from twins of its layers, a
profile of the machine, the share of the bandwidth that other models reach here, others' rows of llama-bench, or the
bandwidth alone. Losses come from stored quality runs, or from what is published about the quant type.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ggbench.decisions.pick.record import Loss, PublishedLoss
from ggbench.engines.contract import EngineConfig
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.build import gpu_backends
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, Unsupported
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.condition import gpus_of
from ggbench.machine.host import default_threads, describe_cpu
from ggbench.machine.records import Environment
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedRow, ln_ppl_ratio, load_published
from ggbench.models.published.selection import fold_quant, size_octaves
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.sizing.device_speed import published_estimate
from ggbench.sizing.placement import Placement, place_bandwidths
from ggbench.sizing.plan_record import Budget, PlannedForecast, PlannedSpeed, PlanRow
from ggbench.sizing.theory.offload import HOST
from ggbench.sizing.work import profiled_speed
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import (
    POSITIONS,
    Known,
    RunSpeed,
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

    Stored runs are read once. They count only if the budget is this machine's.
    """

    def __init__(self, store: Store | None, budget: Budget) -> None:
        """Without a store only what needs no run is known. Raises StoreError."""
        self._budget = budget
        self._here = ThisMachine.describe() if store is not None and budget.is_here else None
        self.runs = runs_here(store) if store is not None and self._here is not None else []
        """Completed runs on this machine with its llama.cpp, newest first."""
        self._by_file: dict[str, list[Run]] = {}
        for run in self.runs:
            for key in {run.subject.shape_key, run.subject.header_sha256} - {""}:
                self._by_file.setdefault(key, []).append(run)
        self._shares: dict[EngineConfig | None, BandwidthShares | None] = {}

    @classmethod
    def here(cls, budget: Budget) -> KnownSpeeds:
        """Return the speeds that the user's results tell; if they cannot be read, without them."""
        if budget.is_here:
            with contextlib.suppress(StoreError), Store.open() as store:
                return cls(store, budget)
        return cls(None, budget)

    def of(self, file: ModelFile | None, setup: LlamaConfig, n_seqs: int = 1) -> SpeedEstimate | None:
        """Return the best estimate of a file under a setup for `n_seqs` sequences at once; None if not even the bound
        is known.
        """
        if file is None:
            return None
        found = self._measured(file, setup, n_seqs)
        with_steps = [each for each in found if each.step_ms]
        with_steps.sort(key=lambda each: (not each.has_line, each.basis != "measured", not each.is_steady))
        if n_seqs > 1:
            alone = self.of(file, setup)
            rest = None if alone is None else with_sequences(alone, n_seqs)
            known = [_estimate(each, () if rest is None else rest.prefill_ms) for each in with_steps]
            known += [] if rest is None else [rest]
            return replace(known[0], others=(*known[1:], *known[-1].others)) if known else None
        with_prefills = [each for each in found if each.prefill_ms]
        prefills = min(with_prefills, key=lambda each: each.basis != "measured", default=None)
        prefill_ms = prefills.prefill_ms if prefills is not None else ()
        known = [_estimate(each, prefill_ms) for each in with_steps]
        if not known or not knows(known[0], POSITIONS[-1]):
            bound = self._without_runs(file, setup)
            known += [] if bound is None else [replace(bound, prefill_ms=prefill_ms or bound.prefill_ms)]
        known.sort(key=lambda each: not each.has_line)
        return replace(known[0], others=tuple(known[1:])) if known else None

    def shares(self, setup: LlamaConfig) -> BandwidthShares | None:
        """Return the share of the budget's bandwidth that models reach whose weights are all in the planned memory.

        None for fewer than two models.
        """
        if self._here is None or self._budget.bandwidth is None:
            return None
        asked = self._here.decisive(setup, None)
        asked = None if asked is None else asked.without_placement()
        if asked not in self._shares:
            alike = (run for run in self.runs if self._is_alike(run, asked))
            self._shares[asked] = bandwidth_shares(alike, self._budget.bandwidth.bytes_per_s)
        return self._shares[asked]

    def _measured(self, file: ModelFile, setup: LlamaConfig, n_seqs: int) -> list[RunSpeed]:
        """Return the speeds of runs with the same tensors under the same setup, newest first."""
        if self._here is None:
            return []
        wanted = self._here.decisive(setup, file.n_layer)
        found = {run.run_id: run for key in (file.shape_key, file.header_sha256) for run in self._by_file.get(key, ())}
        same = [run for run in found.values() if self._here.decisive(run.head.setup, run.subject.n_layer) == wanted]
        if n_seqs > 1:
            same = [run for run in same if run.head.setup.kv_unified is setup.kv_unified]
        newest = sorted(same, key=lambda run: run.run_id or 0, reverse=True)
        speeds = (experiment_of(run.head.kind).speed_of(run, n_seqs) for run in newest)
        return [speed for speed in speeds if speed is not None]

    def _is_alike(self, run: Run, asked: EngineConfig | None) -> bool:
        """Return whether a run read its weights only from the planned memory, not from the CPU's cache."""
        on_gpu = self._budget.on_gpu
        decisive = None if self._here is None else self._here.decisive(run.head.setup, run.subject.n_layer)
        if decisive is None or asked is None or decisive.without_placement() != asked:
            return False
        least_bytes = 0 if on_gpu else describe_cpu().last_level_cache_bytes or 0
        if (run.subject.weight_bytes or 0) <= least_bytes or run.memory.weights_on_gpu is not on_gpu:
            return False
        return not on_gpu or (decisive.n_gpu_layers < 0 and not decisive.tensor_overrides and decisive.kv_offload)

    def _without_runs(self, file: ModelFile, setup: LlamaConfig) -> SpeedEstimate | None:
        """Return the speed without runs of the file: by the machine's profile, by the share of the bandwidth that other
        models reach here if one memory is read, by others' rows, or at the bandwidths.

        A token reads from one memory after the other. None if a bandwidth is unknown, or the bytes read.
        """
        budget, bandwidths = self._budget, place_bandwidths(self._budget)
        placement = Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)
        if budget.profile is not None and (found := profiled_speed(budget.profile, file, placement, setup)):
            return found
        window = None if placement.theory is None else placement.theory.window
        try:
            read = {n: placement.read_bytes(n) for n in sorted({*POSITIONS, *([window] if window else [])})}
        except Unsupported:
            return None
        places = set().union(*read.values())
        if not places or not places <= set(bandwidths):
            return None
        latencies = {
            n: sum(n_bytes / bandwidths[place].bytes_per_s for place, n_bytes in by_place.items()) * 1e3
            for n, by_place in read.items()
        }
        shares = self.shares(setup) if places == ({0} if budget.on_gpu else {HOST}) else None
        published = None if shares is not None else published_estimate(file, setup, budget)
        if published is not None:
            return published
        if shares is None:
            steps = tuple((n, Expected(ms, ms, math.inf)) for n, ms in latencies.items())
            sources = dict.fromkeys(bandwidths[place].source for place in sorted(places, reverse=True))
            return SpeedEstimate("bound", f"bandwidth: {in_words(list(sources))}", steps)
        first = latencies[1]
        steps = tuple((n, _at_shares(first, ms - first, shares)) for n, ms in latencies.items())
        return SpeedEstimate("other runs", shares.source, steps)


def _estimate(run: RunSpeed, prefill_ms: Known) -> SpeedEstimate:
    return SpeedEstimate(
        run.basis, run.source, run.step_ms, prefill_ms, run.is_steady, run.first, run.reach, run.has_line
    )


def expected_at(known: SpeedEstimate | None, n: int | None) -> PlannedForecast | None:
    """Return the expected speed at position n; None for a mere bound, or outside the measured range."""
    known = None if known is None or n is None else estimate_at(known, n)
    if known is None or known.basis == "bound" or n is None:
        return None
    tok_s = tok_s_at(known, n)
    return PlannedForecast(tok_s.value, (tok_s.low, tok_s.high), known.source, known.basis, known.is_steady)


def with_estimates(row: PlanRow, known: SpeedEstimate | None) -> PlanRow:
    """Return a row with the expected speed at each of its positions."""

    def estimated(speed: PlannedSpeed | None) -> PlannedSpeed | None:
        found = None if speed is None else expected_at(known, speed.n)
        if speed is None or found is None:
            return speed
        return replace(
            speed, tok_s_estimate=found.tok_s, tok_s_estimate_ci95=found.tok_s_ci95, tok_s_basis=found.speed_basis
        )

    return replace(
        row,
        decode=tuple(each for speed in row.decode if (each := estimated(speed)) is not None),
        at_n_ctx=estimated(row.at_n_ctx),
        expected=expected_at(known, row.n_ctx_slot or row.n_ctx),
        expected_first=expected_at(known, 1),
    )


def with_estimate_together(row: PlanRow, known: SpeedEstimate | None, n_seqs: int) -> PlanRow:
    """Return a row with the expected speed of `n_seqs` sequences at once; `known` has the latency of their steps."""
    found = None if row.together is None else expected_at(known, row.together.n)
    if row.together is None or found is None:
        return row
    low, high = found.tok_s_ci95
    together = replace(
        row.together,
        tok_s_estimate=n_seqs * found.tok_s,
        tok_s_estimate_ci95=(n_seqs * low, n_seqs * high),
        tok_s_basis=found.speed_basis,
    )
    return replace(row, together=together)


def runs_here(store: Store) -> list[Run]:
    """Return the completed runs on this machine with its llama.cpp, newest first."""
    here, runs = ThisMachine.describe(), []
    for stored in store.list_runs(state=Outcome.COMPLETED):
        if here.made(stored.environment):
            with contextlib.suppress(StoreError):  # written by another ggbench
                runs.append(listed_run(stored))
    return runs


def _at_shares(weights_ms: float, kv_ms: float, shares: BandwidthShares) -> Expected:
    weights, kv = shares.weights, shares.kv_cache
    return Expected(
        weights_ms / weights.value + kv_ms / kv.value,
        weights_ms / weights.high + kv_ms / kv.high,
        weights_ms / weights.low + kv_ms / kv.low,
    )


_FEWEST = 2
"""Minimum number of measured models to extrapolate from."""
_LEAST_DEVIATION = 0.15
"""Minimum standard deviation of the shares' logarithms, since a few models may agree by chance. Measured over quants
and models of all sizes on a Xeon."""


class BandwidthShares(msgspec.Struct, frozen=True):
    """Share of the bandwidth that models reach, at most 1: the median, with the interval of one more model."""

    weights: Expected
    """Share reached when reading the weights."""
    kv_cache: Expected
    """Share reached when reading the cache."""
    seen: tuple[float, ...]
    """Share for the weights, by model."""

    @property
    def source(self) -> str:
        """Source of the shares: `this machine's other runs reach 41 to 52 % of the bound (5 models)`."""
        low, high = (format_number(100 * each, 2) for each in (min(self.seen), max(self.seen)))
        share = low if low == high else f"{low} to {high}"
        return f"this machine's other runs reach {share} % of the bound ({counted(len(self.seen), 'model')})"


def bandwidth_shares(runs: Iterable[Run], bandwidth_bytes_per_s: float) -> BandwidthShares | None:
    """Return the shares reached by the newest run of each model; None for fewer than two models."""
    found: dict[str, tuple[float, float]] = {}
    for run in runs:
        key, speed = run.subject.shape_key or run.subject.header_sha256, experiment_of(run.head.kind).speed_of(run)
        if key and speed is not None and speed.rates is not None:
            found.setdefault(key, speed.rates)
    if len(found) < _FEWEST:
        return None
    weights, kv_cache = (
        [rate / bandwidth_bytes_per_s for rate in rates] for rates in zip(*found.values(), strict=True)
    )
    return BandwidthShares(_next_of(weights), _next_of(kv_cache), tuple(weights))


def _next_of(shares: Sequence[float]) -> Expected:
    """Return the median with the 95 % interval of one more share, up to 1; shares are taken as log-normal."""
    median = statistics.median(shares)
    deviation = max(_LEAST_DEVIATION, statistics.stdev(math.log(each) for each in shares))
    factor = math.exp(2 * deviation * math.sqrt(1 + 1 / len(shares)))
    return Expected(median, median / factor, max(median, min(1.0, median * factor)))


@functools.cache
def _binding_version() -> str:
    return importlib.metadata.version("llama_cpp_python")


class ThisMachine(msgspec.Struct, frozen=True):
    """Conditions that must be equal for the speed of a run to apply now."""

    cpu: str
    n_cores: int
    gpus: tuple[str, ...]
    llama_cpp_python: str
    threads: int

    @classmethod
    def describe(cls) -> ThisMachine:
        cpu = describe_cpu()
        return cls(
            cpu.name,
            cpu.n_cores,
            tuple(gpu.name for gpu in gpus_of(gpu_backends())),
            _binding_version(),
            default_threads(cpu),
        )

    def made(self, environment: Environment | None) -> bool:
        """Return whether a run was made here, with the same cores, GPUs and llama.cpp; false for an imported run."""
        return (environment is not None and environment.imported is None) and (
            environment.cpu,
            environment.n_cores,
            tuple(gpu.name for gpu in environment.gpus),
            environment.llama_cpp_python,
        ) == (self.cpu, self.n_cores, self.gpus, self.llama_cpp_python)

    def decisive(self, setup: EngineConfig, n_layer: int | None) -> EngineConfig | None:
        """Return the parts of a setup that affect the speed of a model of `n_layer` layers; None for another engine."""
        return setup.speed_part(self.threads, n_layer, has_gpu=bool(self.gpus))


_F16 = ("f16", "f16")


class _Scored(msgspec.Struct, frozen=True):
    run_id: int | None
    header: str
    loss: MeasuredLoss


class MeasuredLosses(msgspec.Struct, frozen=True):
    """KL divergences, newest first."""

    scores: tuple[_Scored, ...] = ()

    def among(self, headers: Collection[str]) -> MeasuredLosses:
        return MeasuredLosses(tuple(each for each in self.scores if each.header in headers))

    def of_weights(self, header: str) -> Loss | None:
        """Return the loss of the weights with an f16 cache against the most common base.

        The base itself loses nothing.
        """
        group = self._group()
        own = next((each for each in group if each.header == header and each.loss.cache == _F16), None)
        if own is not None:
            return _loss(own, f"from {own.loss.base_quant}")
        based = next((each for each in group if each.loss.base_header == header), None)
        if based is not None:
            return Loss(Expected(0.0, 0.0, 0.0), "measured", f"the base of run {based.run_id}")
        return None

    def of_cache(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return the loss of a KV cache of these types against one of f16, with the same weights."""
        for each in self.scores:
            is_own = each.loss.base_header == header and each.loss.base_cache == _F16
            if each.header == header and each.loss.cache == cache and is_own:
                return _loss(each, "from its f16 cache")
        return None

    def of_both(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return the combined loss of weights and quantized cache, if both were measured together."""
        own = next((each for each in self._group() if each.header == header and each.loss.cache == cache != _F16), None)
        return None if own is None else _loss(own, f"from {own.loss.base_quant}")

    def _group(self) -> list[_Scored]:
        """Return the scores that share the text and base (with an f16 cache) covering most files."""
        groups: dict[object, list[_Scored]] = {}
        for each in self.scores:
            if each.header != each.loss.base_header and each.loss.base_cache == _F16:
                groups.setdefault((each.loss.base_header, each.loss.text), []).append(each)
        return max(groups.values(), key=lambda group: len({each.header for each in group}), default=[])


def measured_losses(store: Store | None) -> MeasuredLosses:
    """Return the divergences measured here with llama.cpp; none without a store."""
    scores = []
    for stored in store.list_runs() if store is not None else ():
        with contextlib.suppress(StoreError):  # written by another ggbench
            run = listed_run(stored)
            loss, header = experiment_of(run.head.kind).loss_of(run), run.subject.header_sha256
            if loss is not None and header and run.head.setup.loads_gguf:
                scores.append(_Scored(run.run_id, header, loss))
    return MeasuredLosses(tuple(scores))


def _loss(each: _Scored, base: str) -> Loss:
    low, high = each.loss.kld.ci95
    return Loss(Expected(each.loss.kld.mean, max(0.0, low), high), "measured", f"run {each.run_id}, {base}")


UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_NEAR_OCTAVES = 2.0
"""Models from 1/4 to 4 times the size are near."""
_FEWEST_NEAR = 3
"""Use at least this many models, near or not."""


_CACHE_NATS = {"q8_0": 0.00098}
"""Divergence that a cache of this type adds, by J. Gaessler for f16 weights of Llama 3 8B (llama.cpp, pull request
7412)."""
_WORST_CACHE_NATS = 0.4
"""What a q8_0 cache costs some models (llama.cpp, discussion of pull request 28733)."""


def typical_cache_loss(cache: tuple[str, str]) -> Loss | None:
    """Return the published loss of a KV cache of these types in one model; None if unpublished.

    Its interval reaches to the worst that others report.
    """
    if UNQUANTIZED.issuperset(cache):
        return Loss(Expected(0.0, 0.0, 0.0), "unquantized", "f16 is the base of comparison")
    nats = max((_CACHE_NATS.get(each, math.inf) for each in cache if each not in UNQUANTIZED), default=math.inf)
    if not math.isfinite(nats):
        return None
    return Loss(Expected(nats, nats, _WORST_CACHE_NATS), "published typical", "llama-3-8b with f16 weights")


_SCORED_N_CTX = 512
"""llama-perplexity's default, which the limits of `pick` are taken from; that of relatives may be unstated."""
_PUBLISHED_IN = {"gpt-oss": "mxfp4"}
"""Types that the models of an architecture were trained to and are published in."""


def typical_loss(quant: str, n_params: int | None, architecture: str = "") -> Loss | None:
    """Return the published loss of this quant type in other models against 16 bits; None if unpublished.

    The value is the median KL divergence over the relatives: models of the architecture, or of its dense or mixed
    counterpart, from 1/4 to 4 times the size. Without relatives it is that over all models scored at the n_ctx of the
    limits in `pick.needs`: over a longer one, or a chat, it is several times smaller. Few models have one, so the
    interval covers both, and ln(PPL / PPL of the 16-bit model) of models of similar size: in tables with both, the two
    agree within a fifth above 0.02 nats. A `ud-` mixture counts as its plain type where nobody scored it. `published`
    has the divergences of every table, the nearest model's first.
    """
    name = fold_quant(quant)
    if name in UNQUANTIZED:
        return Loss(Expected(0.0, 0.0, 0.0), "unquantized", "16 bits are the base of comparison")
    if name == _PUBLISHED_IN.get(architecture):
        return Loss(Expected(0.0, 0.0, 0.0), "unquantized", f"{architecture} is published in {name}")
    rows = _rows().get(name, ())
    if name.startswith("ud-"):
        rows += _rows().get(name.removeprefix("ud-").replace("_xl", "_m"), ())
    scored = [(row, row.kld.value, row.kld.error or 0.0) for row in rows if row.kld and row.kld.value is not None]
    scored.sort(key=lambda each: size_octaves(each[0].size, n_params))
    exact = {row.model for row, _, _ in scored if row.quant == name}
    octaves = {row.model: size_octaves(row.size, n_params) for row in rows}
    kin = {model for model, far in octaves.items() if far <= _NEAR_OCTAVES and _is_kin(model, architecture)}
    usable = [
        (row, kld)
        for row, kld, _ in scored
        if (row.quant == name or row.model not in exact)
        and (row.n_ctx == _SCORED_N_CTX or (row.n_ctx is None and row.model in kin))
    ]
    klds = _by_model(usable)
    if not klds:
        return None
    nearest = [model for model in klds if model in kin] or list(klds)
    ratios = _by_model([(row, ratio[0]) for row in rows if (ratio := ln_ppl_ratio(row)) is not None])
    by_distance = sorted(ratios, key=lambda model: (octaves[model], model))
    n_near = max(_FEWEST_NEAR, sum(octaves[model] <= _NEAR_OCTAVES for model in ratios))
    near = by_distance[:n_near]
    known = [*klds.values(), *(ratios[model] for model in near)]
    quants = dict.fromkeys(row.quant or "" for row, _ in usable if row.model in nearest)
    others = [model for model in {**klds, **dict.fromkeys(near)} if model not in nearest]
    source = f"{' and '.join(quants)} of {in_words(nearest)}"
    if others:
        source += f"; range with {counted(len(others), 'other model')}"
    return Loss(
        Expected(statistics.median(klds[model] for model in nearest), max(0.0, min(known)), max(known)),
        "published typical",
        source,
        tuple(PublishedLoss(f"{row.model}, imatrix {row.imatrix}", kld, error) for row, kld, error in scored),
        tuple(nearest),
    )


def _is_kin(model: str, architecture: str) -> bool:
    """Return whether a published model is of the architecture, or of its dense or mixed counterpart."""
    own = _architectures().get(model, "llama" if model.startswith("llama-") else "")
    return bool(own) and own.removesuffix("moe") == architecture.removesuffix("moe")


@functools.cache
def _architectures() -> Mapping[str, str]:
    return {model.id: model.hyper.architecture for model in load_catalog()}


def _by_model(rows: Sequence[tuple[PublishedRow, float]]) -> dict[str, float]:
    """Return each model's median, with and without an importance matrix."""
    found: dict[str, list[float]] = {}
    for row, loss in rows:
        found.setdefault(row.model, []).append(loss)
    return {model: statistics.median(losses) for model, losses in found.items()}


@functools.cache
def _rows() -> Mapping[str, tuple[PublishedRow, ...]]:
    """Return the perplexities and divergences by quant."""
    found: dict[str, list[PublishedRow]] = {}
    for row in load_published():
        if (row.perplexity or row.kld) is not None and row.quant is not None:
            found.setdefault(row.quant, []).append(row)
    return {quant: tuple(rows) for quant, rows in found.items()}
