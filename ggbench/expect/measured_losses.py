"""Losses of files that quality runs measured here, and for the others what is expected of their type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ggbench.expect.loss import NO_LOSS, UNNOTICED_LOSS, expected_cache_loss, expected_loss
from ggbench.record import Record
from ggbench.runs.comparable import runs_with_loss
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import PlanRow
from ggbench.stats.intervals import Expected
from ggbench.units import format_number

_F16 = ("f16", "f16")


class _Scored(Record):
    run_id: int | None
    header: str
    loss: MeasuredLoss
    base_own: Expected | None
    """What the base is expected to lose against 16 bits."""

    def against(self, base: str, own: Expected = NO_LOSS) -> Expected:
        """Return the divergence from a base with what that loses itself: of independent changes they about add up."""
        mean = self.loss.kld.mean
        low, high = self.loss.kld.ci95 or (mean, mean)
        added = f", with the {format_number(own.value, 2)} nats expected of it added" if own.is_estimate else ""
        source = f"run {self.run_id}, {base}{added}"
        return Expected(mean + own.value, low + own.low, high + own.high, "measured", source)


class MeasuredLosses(Record):
    """KL divergences of a model's files, newest first."""

    scores: tuple[_Scored, ...] = ()

    def parts(
        self, header: str, row: PlanRow, architecture: str
    ) -> tuple[Expected | None, Expected, Expected | None]:
        """Return the losses of a plan's weights and its cache, measured or else expected, and of both if measured."""
        cache = row.type_k, row.type_v
        name = row.file if row.file.endswith(".gguf") and row.provenance != "hub" else row.model
        weights = self.of_weights(header) or expected_loss(name, row.quant, row.n_params, architecture)
        own_cache = self.of_cache(header, cache) or expected_cache_loss(name, architecture, cache)
        return weights, own_cache, None if cache == _F16 else self.of_weights(header, cache)

    def of_weights(self, header: str, cache: tuple[str, str] = _F16) -> Expected | None:
        """Return the loss of the weights with a cache against 16 bits, by the newest run.

        Only bases whose own loss nobody can tell count: the divergence from a coarser one says little.
        """
        for each in self.scores:
            own, is_f16 = each.base_own, each.loss.base_cache == _F16 and each.header != each.loss.base_header
            if (each.header, each.loss.cache) != (header, cache) or not is_f16:
                continue
            if own is not None and own.value <= UNNOTICED_LOSS:
                return each.against(f"from {each.loss.base_quant}", own)
        return None

    def of_cache(self, header: str, cache: tuple[str, str]) -> Expected | None:
        """Return the loss of a KV cache of these types against one of f16, with the same weights."""
        for each in self.scores:
            is_own = each.loss.base_header == header and each.loss.base_cache == _F16
            if each.header == header and each.loss.cache == cache and is_own:
                return each.against("from its f16 cache")
        return None


def measured_losses(store: Store | None, headers: Collection[str]) -> MeasuredLosses:
    """Return the divergences measured here with llama.cpp of files with these headers; none without a store.

    Only those over the same text are comparable, so those over the most common are returned.
    """
    scores = []
    for run in runs_with_loss(store, headers) if store is not None else ():
        loss = experiment_of(run.head.kind).loss_of(run)
        if loss is not None and loss.kld.ci95 is not None:
            of = run.subject
            base_own = expected_loss(of.model, loss.base_quant, of.n_params, of.architecture or "")
            scores.append(_Scored(run.run_id, of.header_sha256, loss, base_own))
    texts = Counter(each.loss.text for each in scores)
    return MeasuredLosses(tuple(each for each in scores if texts[each.loss.text] == max(texts.values())))
