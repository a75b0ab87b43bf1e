"""Known losses of quants and KV cache types, without new measurements: of stored quality runs, or published."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from ggbench.expect.loss import UNNOTICED_LOSS, Loss, PublishedLoss
from ggbench.gguf_file.hyperparameters import FAMILIES
from ggbench.gguf_file.quants import MIXTURE, plain_quant
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedRow, is_base, ln_ppl_ratio, load_published
from ggbench.models.published.selection import fold_quant, size_octaves
from ggbench.runs.comparable import runs_with_loss
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Estimate
from ggbench.text import in_words
from ggbench.units import counted, format_number

_F16 = ("f16", "f16")


class _Scored(msgspec.Struct, frozen=True):
    run_id: int | None
    header: str
    loss: MeasuredLoss
    base_own: Loss
    """What is typical of the base against 16 bits."""

    @property
    def is_base_fine(self) -> bool:
        """Whether nobody can tell what the base loses, or it is at most half of the divergence from it."""
        return self.base_own.nats.high <= max(UNNOTICED_LOSS, self.loss.kld.mean / 2)


class MeasuredLosses(msgspec.Struct, frozen=True):
    """KL divergences of a model's files, newest first."""

    scores: tuple[_Scored, ...] = ()

    def parts(
        self, header: str, row: PlanRow, architecture: str
    ) -> tuple[Loss | None, Loss | None, Loss | None]:
        """Return the losses of a plan's weights and of its cache, measured or else typical, and of both if measured."""
        cache = row.type_k, row.type_v
        weights = self.of_weights(header) or typical_loss(row.quant, row.n_params, architecture)
        return weights, self.of_cache(header, cache) or typical_cache_loss(cache), self.of_both(header, cache)

    def of_weights(self, header: str) -> Loss | None:
        """Return the loss of the weights with an f16 cache against 16 bits, by the most common base.

        A base in 16 bits loses nothing. Of others, those that lose what nobody can tell count, or at most half of what
        was measured, with what is typical of them added: smaller divergences from a coarse base say little of the loss
        against 16 bits.
        """
        group = self._group()
        own = next((each for each in group if each.header == header and each.loss.cache == _F16), None)
        if own is not None:
            return _from_base(own)
        based = next((each for each in group if each.loss.base_header == header), None)
        if based is not None and based.base_own.basis == "unquantized":
            return Loss(_NOTHING, "measured", f"the base of run {based.run_id}")
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
        own = next(
            (each for each in self._group() if each.header == header and each.loss.cache == cache != _F16), None
        )
        return None if own is None else _from_base(own)

    def _group(self) -> list[_Scored]:
        """Return the scores that share the text and base (with an f16 cache) covering most files."""
        groups: dict[object, list[_Scored]] = {}
        for each in self.scores:
            if each.is_base_fine and each.header != each.loss.base_header and each.loss.base_cache == _F16:
                groups.setdefault((each.loss.base_header, each.loss.text), []).append(each)
        return max(groups.values(), key=lambda group: len({each.header for each in group}), default=[])


def measured_losses(store: Store | None, headers: Collection[str]) -> MeasuredLosses:
    """Return the divergences measured here with llama.cpp of files with these headers; none without a store."""
    scores = []
    for run in runs_with_loss(store, headers) if store is not None else ():
        loss = experiment_of(run.head.kind).loss_of(run)
        if loss is not None:
            of = run.subject
            base_own = typical_loss(loss.base_quant, of.n_params, of.architecture or "") or _UNKNOWN_LOSS
            scores.append(_Scored(run.run_id, of.header_sha256, loss, base_own))
    return MeasuredLosses(tuple(scores))


_NOTHING = Estimate(0.0, 0.0, 0.0)
_UNKNOWN_LOSS = Loss(Estimate(math.inf, 0.0, math.inf), "published typical", "")


def _loss(each: _Scored, base: str, added: Estimate = _NOTHING) -> Loss:
    low, high = each.loss.kld.ci95
    nats = Estimate(each.loss.kld.mean + added.value, max(0.0, low) + added.low, high + added.high)
    return Loss(nats, "measured", f"run {each.run_id}, {base}")


def _from_base(each: _Scored) -> Loss:
    """Return the loss against 16 bits: divergences of independent changes about add up."""
    base, own = f"from {each.loss.base_quant}", each.base_own
    if own.basis == "unquantized":
        return _loss(each, base)
    return _loss(
        each, f"{base}, with the {format_number(own.nats.value, 2)} nats typical of it added", own.nats
    )


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
        return Loss(_NOTHING, "unquantized", "f16 is the base of comparison")
    nats = max((_CACHE_NATS.get(each, math.inf) for each in cache if each not in UNQUANTIZED), default=math.inf)
    if not math.isfinite(nats):
        return None
    return Loss(Estimate(nats, nats, _WORST_CACHE_NATS), "published typical", "llama-3-8b with f16 weights")


_SCORED_TEXT, _SCORED_N_CTX = "wikitext-2", 512
"""What the limits of `pick` are taken from."""
_TELLING_NATS = 0.02
"""Least loss that perplexities tell, or divergences over another text or n_ctx."""
_OVER_ANOTHER = ", over another text or n_ctx"
_LARGEST_STEP = 4.0
"""Largest ratio, about that of one bit, by which a relative's loss in another quant is scaled."""


_SMALL_BILLIONS = 2.0
_SMALL_FACTOR = 5.5
"""Largest divergence of a model below 2B over the largest of others in the same quant: Qwen3 0.6B's q2_k, 2.455, beside
0.445 of Llama 3 8B (`quantgap.csv` and `llama.cpp-perplexity.csv`); its q3_k_m, 3.9 times.
"""


def is_original(quant: str, architecture: str = "") -> bool:
    """Return whether models of the architecture are published in this type."""
    return quant in UNQUANTIZED or (architecture in FAMILIES and quant == FAMILIES[architecture].experts_type)


_COARSER = {"q8_0": "q6_k", "q6_k": "q5_k_m", "q5_k_m": "q4_k_m"}
"""The next coarser type, which loses at least as much."""


def typical_loss(quant: str, n_params: int | None, architecture: str = "") -> Loss | None:
    """Return the published loss of this quant type in other models against 16 bits; None if unpublished.

    Where tables of different models say that it loses more than the next coarser type, it is taken to lose as much.
    """
    found = _typical_loss(quant, n_params, architecture)
    name = _COARSER.get(fold_quant(quant))
    coarser = None if name is None else _typical_loss(name, n_params, architecture)
    if found is None or coarser is None or found.nats.value <= coarser.nats.value:
        return found
    least = replace(found.nats, value=coarser.nats.value, low=min(found.nats.low, coarser.nats.value))
    return replace(found, nats=least, source=f"{found.source}; no more than {coarser.source}", of=coarser.of)


@functools.cache
def _typical_loss(quant: str, n_params: int | None, architecture: str) -> Loss | None:
    """Return what tables say of the quant itself.

    The value is the median KL divergence over the relatives: models of the architecture, or of its dense or mixed
    counterpart, from 1/4 to 4 times the size. It is scored like the limits in `pick.needs`, as it is several times
    smaller over a longer n_ctx or a chat. Without such a score, relatives with a stated base (not Llama 2 and Qwen1.5,
    which lose less than later models) count by their divergence over another text or n_ctx, else by ln(PPL / PPL of the
    base), both from 0.02 nats on; above that, they agree within a fifth where tables have both. Else their loss in the
    nearest quant is scaled by the ratio of both in other models, as most models lose in every quant a similar multiple
    of what Llama 3 8B does. Without relatives the value is the median over all models. Few models have one, so the
    interval covers both, and ln(PPL / PPL of the base) of models of similar size. Of a model below 2B that none below
    2B stands for, it reaches to 5.5 times the largest. A `ud-` mixture counts as its plain
    type in models where nobody scored it. `published` has the divergences of every table, the nearest model's first.
    """
    name = fold_quant(quant)
    if is_original(name, architecture):
        published = f"{architecture} is published in {name}"
        source = "16 bits are the base of comparison" if name in UNQUANTIZED else published
        return Loss(_NOTHING, "unquantized", source)
    rows = _rows_of(name)
    kin = _relatives(rows, n_params, architecture)
    scored = _scored_rows(rows, n_params)
    comparable = _as_the_limits(scored, kin)
    near, known = _near_ratios(rows, n_params), _by_model(comparable)
    usable, how = comparable, ""
    if kin.isdisjoint(known):
        usable, how = (
            _of_relatives(rows, scored, kin)
            or _scaled_of_relatives(name, n_params, architecture)
            or (usable, "")
        )
    losses = _by_model(usable)
    if not losses:
        return None
    nearest = [model for model in losses if how or model in kin] or list(losses)
    nats = [*losses.values(), *known.values(), *near.values(), *_as_small(rows, usable, nearest, n_params)]
    value = Estimate(statistics.median(losses[model] for model in nearest), max(0.0, min(nats)), max(nats))
    n_others = len((known.keys() | near.keys()) - set(nearest))
    source = _source([row for row, _ in usable if row.model in nearest], nearest, how, n_others)
    return Loss(value, "published typical", source, _published(scored), tuple(nearest))


def _source(rows: Iterable[PublishedRow], nearest: Sequence[str], how: str, n_others: int) -> str:
    quants = dict.fromkeys(row.quant or "" for row in rows)
    others = f"; range with {counted(n_others, 'other model')}" if n_others else ""
    return f"{' and '.join(quants)} of {in_words(nearest)}{how}{others}"


_Losses: TypeAlias = list[tuple[PublishedRow, float]]


def _rows_of(name: str) -> tuple[PublishedRow, ...]:
    """Return the rows of a quant; a mixture's are those of its plain type in models where nobody scored it."""
    rows = _rows().get(name, ())
    if not name.startswith(MIXTURE):
        return rows
    exact = {row.model for row in rows}
    return (*rows, *(row for row in _rows().get(plain_quant(name), ()) if row.model not in exact))


def _scored_rows(rows: Iterable[PublishedRow], n_params: int | None) -> _Losses:
    """Return the divergences, the nearest size's first."""
    found = [(row, row.kld.value) for row in rows if row.kld and row.kld.value is not None and not is_base(row)]
    return sorted(found, key=lambda each: size_octaves(each[0].size, n_params))


def _perplexity_losses(rows: Iterable[PublishedRow]) -> _Losses:
    pairs = ((row, ln_ppl_ratio(row)) for row in rows)
    return [(row, ratio[0]) for row, ratio in pairs if ratio is not None]


def _is_near(row: PublishedRow, n_params: int | None) -> bool:
    return size_octaves(row.size, n_params) <= _NEAR_OCTAVES


def _relatives(rows: Iterable[PublishedRow], n_params: int | None, architecture: str) -> set[str]:
    return {row.model for row in rows if _is_near(row, n_params) and _is_kin(row.model, architecture)}


def _as_the_limits(scored: _Losses, kin: Collection[str]) -> _Losses:
    """Return the scores that are comparable with the limits in `pick.needs`."""
    return [(row, kld) for row, kld in scored if _is_comparable(row, is_kin=row.model in kin)]


def _of_relatives(
    rows: Iterable[PublishedRow], scored: _Losses, kin: Collection[str]
) -> tuple[_Losses, str] | None:
    """Return the relatives' losses over another text, else by perplexity, and which; None if they are too small."""
    for losses, how in ((scored, _OVER_ANOTHER), (_perplexity_losses(rows), ", by perplexity")):
        telling = [(row, loss) for row, loss in losses if row.base and row.model in kin]
        if telling and statistics.median(_by_model(telling).values()) >= _TELLING_NATS:
            return telling, how
    return None


def _scaled_of_relatives(name: str, n_params: int | None, architecture: str) -> tuple[_Losses, str] | None:
    scaled = _scaled(name, n_params, architecture)
    if not scaled:
        return None
    is_as_scored = all(_is_comparable(row, is_kin=True) for row, _ in scaled)
    return scaled, ", scaled" if is_as_scored else f"{_OVER_ANOTHER}, scaled"


def _near_ratios(rows: Sequence[PublishedRow], n_params: int | None) -> dict[str, float]:
    """Return ln(PPL / PPL of the base) of the models that are near in size, but of at least three."""
    ratios, octaves = (
        _by_model(_perplexity_losses(rows)),
        {row.model: size_octaves(row.size, n_params) for row in rows},
    )
    n_near = max(_FEWEST_NEAR, sum(octaves[model] <= _NEAR_OCTAVES for model in ratios))
    return {
        model: ratios[model] for model in sorted(ratios, key=lambda model: (octaves[model], model))[:n_near]
    }


def _as_small(
    rows: Iterable[PublishedRow], usable: _Losses, nearest: Collection[str], n_params: int | None
) -> list[float]:
    """Return what a model below 2B may lose, if none below 2B is among the nearest."""
    small = {row.model for row in rows if float(row.size.partition("B")[0]) < _SMALL_BILLIONS}
    if not n_params or n_params >= _SMALL_BILLIONS * 1e9 or not small.isdisjoint(nearest):
        return []
    return [_SMALL_FACTOR * loss for row, loss in usable if row.model not in small]


def _published(scored: _Losses) -> tuple[PublishedLoss, ...]:
    return tuple(
        PublishedLoss(f"{row.model}, imatrix {row.imatrix}", kld, (row.kld and row.kld.error) or 0.0)
        for row, kld in scored
    )


def _scaled(name: str, n_params: int | None, architecture: str) -> _Losses:
    """Return the scores of relatives in their nearest quant, scaled by the ratio of both in other models."""
    found: _Losses = []
    for model, rows in _comparable(is_kin=True).items():
        if _is_near(rows[0][0], n_params) and _is_kin(model, architecture):
            steps = _steps(model, {row.quant or "" for row, _ in rows}, plain_quant(name))
            nearest = min(steps, key=lambda quant: (abs(math.log(steps[quant])), quant), default=None)
            found += [
                (row, kld * steps[nearest]) for row, kld in rows if nearest is not None and row.quant == nearest
            ]
    return found


def _steps(model: str, quants: Iterable[str], to: str) -> dict[str, float]:
    """Return how many times as much a quant loses as each of others in the other models, if not too many times."""
    others = [losses for other, losses in _reference().items() if other != model]
    steps = {}
    for quant in quants:
        own = plain_quant(quant)
        ratios = [losses[to] / losses[own] for losses in others if losses.get(own) and losses.get(to)]
        if ratios and abs(math.log(statistics.median(ratios))) <= math.log(_LARGEST_STEP):
            steps[quant] = statistics.median(ratios)
    return steps


@functools.cache
def _reference() -> Mapping[str, Mapping[str, float]]:
    """Return the losses by quant of each model that is scored like the limits in `pick.needs`."""
    return {
        model: {
            quant: statistics.median(kld for row, kld in rows if row.quant == quant)
            for quant in {row.quant or "" for row, _ in rows}
        }
        for model, rows in _comparable(is_kin=False).items()
    }


@functools.cache
def _comparable(*, is_kin: bool) -> Mapping[str, Sequence[tuple[PublishedRow, float]]]:
    """Return the scores by model that are comparable, or of relatives tell anyway."""
    found: dict[str, list[tuple[PublishedRow, float]]] = {}
    for row in itertools.chain.from_iterable(_rows().values()):
        if row.kld and row.kld.value is not None and not is_base(row):
            is_telling = is_kin and row.base is not None and row.kld.value >= _TELLING_NATS
            if is_telling or _is_comparable(row, is_kin=is_kin):
                found.setdefault(row.model, []).append((row, row.kld.value))
    return found


def _is_comparable(row: PublishedRow, *, is_kin: bool) -> bool:
    """Return whether a row is scored like the limits in `pick.needs`; a relative's may not state its text and n_ctx."""
    as_scored = (_SCORED_TEXT, _SCORED_N_CTX)
    stated = zip((row.text, row.n_ctx), as_scored, strict=True)
    return all(value == scored or (value is None and is_kin) for value, scored in stated)


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
    """Return the perplexities and divergences of weights by quant."""
    found: dict[str, list[PublishedRow]] = {}
    for row in load_published():
        if (row.perplexity or row.kld) is not None and row.quant is not None and row.type_k is None:
            found.setdefault(row.quant, []).append(row)
    return {quant: tuple(rows) for quant, rows in found.items()}
