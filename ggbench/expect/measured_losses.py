"""Losses of files that quality runs measured here, and for the others what is expected of their type."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from ggbench.expect.loss import NO_LOSS, UNNOTICED_LOSS, expected_cache_loss, expected_loss
from ggbench.runs.comparable import runs_with_loss
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Estimate, Expected
from ggbench.units import format_number

_F16 = ("f16", "f16")


class _Scored(msgspec.Struct, frozen=True):
    run_id: int | None
    header: str
    loss: MeasuredLoss
    base_own: Expected | None
    """What the base is expected to lose against 16 bits."""

    @property
    def is_base_fine(self) -> bool:
        """Whether nobody can tell what the base loses, or it is at most half of the divergence from it."""
        limit = max(UNNOTICED_LOSS, self.loss.kld.mean / 2)
        return self.base_own is not None and self.base_own.value <= limit

    def against(self, base: str, added: Estimate = NO_LOSS) -> Expected:
        mean = self.loss.kld.mean
        low, high = self.loss.kld.ci95 or (mean, mean)
        nats = mean + added.value, low + added.low, high + added.high
        return Expected(*nats, "measured", f"run {self.run_id}, {base}")

    @property
    def against_16_bits(self) -> Expected:
        """The loss with what is expected of its base added: divergences of independent changes about add up."""
        base = f"from {self.loss.base_quant}"
        if self.base_own is None or not self.base_own.is_estimate:
            return self.against(base)
        own = format_number(self.base_own.value, 2)
        return self.against(f"{base}, with the {own} nats expected of it added", self.base_own)


class MeasuredLosses(msgspec.Struct, frozen=True):
    """KL divergences of a model's files, newest first."""

    scores: tuple[_Scored, ...] = ()

    def parts(
        self, header: str, row: PlanRow, architecture: str
    ) -> tuple[Expected | None, Expected, Expected | None]:
        """Return the losses of a plan's weights and its cache, measured or else expected, and of both if measured."""
        cache = row.type_k, row.type_v
        weights = self.of_weights(header) or expected_loss(row.model, row.quant, row.n_params, architecture)
        own_cache = self.of_cache(header, cache) or expected_cache_loss(row.model, architecture, cache)
        return weights, own_cache, self.of_both(header, cache)

    def of_weights(self, header: str) -> Expected | None:
        """Return the loss of the weights with an f16 cache against 16 bits, by the most common base.

        A base in 16 bits loses nothing. Of others, those that lose what nobody can tell count, or at most half of what
        was measured, with what is expected of them added: smaller divergences from a coarse base say little of the loss
        against 16 bits.
        """
        group = self._group()
        for each in group:
            if each.header == header and each.loss.cache == _F16:
                return each.against_16_bits
        for each in group:
            if each.loss.base_header == header and each.base_own and not each.base_own.is_estimate:
                return replace(each.base_own, basis="measured", source=f"the base of run {each.run_id}")
        return None

    def of_cache(self, header: str, cache: tuple[str, str]) -> Expected | None:
        """Return the loss of a KV cache of these types against one of f16, with the same weights."""
        for each in self.scores:
            is_own = each.loss.base_header == header and each.loss.base_cache == _F16
            if each.header == header and each.loss.cache == cache and is_own:
                return each.against("from its f16 cache")
        return None

    def of_both(self, header: str, cache: tuple[str, str]) -> Expected | None:
        """Return the combined loss of weights and quantized cache, if both were measured together."""
        for each in self._group():
            if each.header == header and each.loss.cache == cache != _F16:
                return each.against_16_bits
        return None

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
        if loss is not None and loss.kld.ci95 is not None:
            of = run.subject
            base_own = expected_loss(of.model, loss.base_quant, of.n_params, of.architecture or "")
            scores.append(_Scored(run.run_id, of.header_sha256, loss, base_own))
    return MeasuredLosses(tuple(scores))
