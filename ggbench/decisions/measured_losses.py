"""What quants and KV cache types lose, as stored quality runs have measured it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from ggbench.decisions.pick_record import Loss
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.experiments.quality.measure import EXPERIMENT
from ggbench.experiments.quality.record import Divergence, QualityResult, ScoredBase
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.stats.intervals import Estimate, Expected

_F16 = ("f16", "f16")
_Group = tuple[str, str, int]
"""Base, tokens of the text and length of a chunk: only divergences of one group compare."""


class _Scored(msgspec.Struct, frozen=True):
    """A divergence from a base, and what it is of."""

    run_id: int | None
    header: str
    cache: tuple[str, str]
    base: ScoredBase
    divergence: Divergence
    group: _Group


class MeasuredLosses(msgspec.Struct, frozen=True):
    """KL divergences, newest first."""

    scores: tuple[_Scored, ...] = ()

    def among(self, headers: Collection[str]) -> MeasuredLosses:
        """Return those of the files of one model."""
        return MeasuredLosses(tuple(each for each in self.scores if each.header in headers))

    def of_weights(self, header: str) -> Loss | None:
        """Return what the weights lose with an f16 cache, in the group that most of the files are in.

        The base of that group loses nothing by its own measure.
        """
        group = self._group()
        own = next((each for each in group if each.header == header and each.cache == _F16), None)
        if own is not None:
            return _loss(own, f"from {own.base.subject.quant}")
        based = next((each for each in group if each.base.subject.header_sha256 == header), None)
        if based is not None:
            return Loss(Expected(0.0, 0.0, 0.0), "measured", f"the base of run {based.run_id}")
        return None

    def of_cache(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return what a KV cache of these types loses with the same weights, against one of f16."""
        for each in self.scores:
            is_own = each.base.subject.header_sha256 == header and (each.base.type_k, each.base.type_v) == _F16
            if each.header == header and each.cache == cache and is_own:
                return _loss(each, "from its f16 cache")
        return None

    def of_both(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return what weights and a quantized cache lose together, where that was measured at once."""
        own = next((each for each in self._group() if each.header == header and each.cache == cache != _F16), None)
        return None if own is None else _loss(own, f"from {own.base.subject.quant}")

    def _group(self) -> list[_Scored]:
        """The scores against a base with an f16 cache that cover most of the files, the newest such."""
        headers: dict[_Group, set[str]] = {}
        others = [each for each in self.scores if _has_other_base(each)]
        for each in others:
            headers.setdefault(each.group, set()).add(each.header)
        largest = max(headers, key=lambda group: len(headers[group]), default=None)
        return [each for each in others if each.group == largest]


def measured_losses(store: Store | None) -> MeasuredLosses:
    """Return the divergences that were measured here; none without a store."""
    return MeasuredLosses(tuple(_scores(store)) if store is not None else ())


def _scores(store: Store) -> Iterator[_Scored]:
    for stored in store.list_runs(kind=EXPERIMENT.kind):
        try:
            run = listed_run(stored)
        except StoreError:
            continue
        score = _score(run)
        if score is not None:
            yield score


def _score(run: Run) -> _Scored | None:
    result, setup = run.result, run.head.setup
    if not isinstance(result, QualityResult) or not isinstance(setup, LlamaConfig):
        return None
    if result.divergence is None or result.base is None or result.scored is None:
        return None
    header, base = run.subject.header_sha256, result.base
    if not header or not base.subject.header_sha256:
        return None
    group = base.subject.header_sha256, result.scored.tokens_sha256, result.n_ctx
    return _Scored(run.run_id, header, (setup.type_k, setup.type_v), base, result.divergence, group)


def _has_other_base(each: _Scored) -> bool:
    is_other = each.header != each.base.subject.header_sha256
    return is_other and (each.base.type_k, each.base.type_v) == _F16


def _loss(each: _Scored, base: str) -> Loss:
    return Loss(_interval(each.divergence.kld), "measured", f"run {each.run_id}, {base}")


def _interval(estimate: Estimate) -> Expected:
    low, high = estimate.ci95
    return Expected(estimate.mean, max(0.0, low), high)
