"""What quants and KV cache types lose: as stored quality runs have measured it, and what is published of their type."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from ggbench.decisions.pick.record import Loss, PublishedLoss
from ggbench.errors import StoreError
from ggbench.models.published import PublishedRow, ln_ppl_ratio, load_published
from ggbench.models.published.selection import fold_quant, size_octaves
from ggbench.runs.experiment import MeasuredLoss, experiment_of
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.stats.intervals import Estimate, Expected
from ggbench.units import counted

_F16 = ("f16", "f16")


class _Scored(msgspec.Struct, frozen=True):
    """A loss, and the run and the header that it is of."""

    run_id: int | None
    header: str
    loss: MeasuredLoss

    @property
    def group(self) -> tuple[str, tuple[str, int]]:
        """The base and the text, of which losses compare."""
        return self.loss.base_header, self.loss.text


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
        own = next((each for each in group if each.header == header and each.loss.cache == _F16), None)
        if own is not None:
            return _loss(own, f"from {own.loss.base_quant}")
        based = next((each for each in group if each.loss.base_header == header), None)
        if based is not None:
            return Loss(Expected(0.0, 0.0, 0.0), "measured", f"the base of run {based.run_id}")
        return None

    def of_cache(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return what a KV cache of these types loses with the same weights, against one of f16."""
        for each in self.scores:
            is_own = each.loss.base_header == header and each.loss.base_cache == _F16
            if each.header == header and each.loss.cache == cache and is_own:
                return _loss(each, "from its f16 cache")
        return None

    def of_both(self, header: str, cache: tuple[str, str]) -> Loss | None:
        """Return what weights and a quantized cache lose together, where that was measured at once."""
        own = next((each for each in self._group() if each.header == header and each.loss.cache == cache != _F16), None)
        return None if own is None else _loss(own, f"from {own.loss.base_quant}")

    def _group(self) -> list[_Scored]:
        """The scores against a base with an f16 cache that cover most of the files, the newest such."""
        headers: dict[object, set[str]] = {}
        others = [each for each in self.scores if each.header != each.loss.base_header and each.loss.base_cache == _F16]
        for each in others:
            headers.setdefault(each.group, set()).add(each.header)
        largest = max(headers, key=lambda group: len(headers[group]), default=None)
        return [each for each in others if each.group == largest]


def measured_losses(store: Store | None) -> MeasuredLosses:
    """Return the divergences that were measured here with llama.cpp; none without a store."""
    return MeasuredLosses(tuple(_scores(store)) if store is not None else ())


def _scores(store: Store) -> Iterator[_Scored]:
    for stored in store.list_runs():
        with contextlib.suppress(StoreError):  # written by another ggbench
            run = listed_run(stored)
            loss, header = experiment_of(run.head.kind).loss_of(run), run.subject.header_sha256
            if loss is not None and header and run.head.setup.loads_gguf:
                yield _Scored(run.run_id, header, loss)


def _loss(each: _Scored, base: str) -> Loss:
    return Loss(_interval(each.loss.kld), "measured", f"run {each.run_id}, {base}")


def _interval(estimate: Estimate) -> Expected:
    low, high = estimate.ci95
    return Expected(estimate.mean, max(0.0, low), high)


UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
_NEAR_OCTAVES = 2.0
"""Models of a quarter to four times the size count as near."""
_FEWEST = 3
"""Where fewer are near, the nearest ones are taken."""


def typical_loss(quant: str, n_params: int | None) -> Loss | None:
    """Return what a quant of this type loses in other models, against 16 bits; None where nobody published it.

    The value is the median KL divergence over models. Those were published of few models, so the interval is their
    range together with that of ln(PPL / PPL of the 16-bit model), of models of about this size: where a table prints
    both, they agree within a fifth from 0.02 nats on.
    """
    name = fold_quant(quant)
    if name in UNQUANTIZED:
        return Loss(Expected(0.0, 0.0, 0.0), "unquantized", "16 bits are what others are compared with")
    rows = _rows().get(name, ())
    klds = _by_model([(row, row.kld.value) for row in rows if row.kld is not None and row.kld.value is not None])
    if not klds:
        return None
    ratios = _by_model([(row, ratio[0]) for row in rows if (ratio := ln_ppl_ratio(row)) is not None])
    near = _near(ratios, {row.model: size_octaves(row.size, n_params) for row in rows})
    value, known = statistics.median(klds.values()), [*klds.values(), *(ratios[model] for model in near)]
    others = [model for model in near if model not in klds]
    source = f"{name} of {' and '.join(klds)}"
    if others:
        source += f"; range with ln PPL ratios of {counted(len(others), 'model')}"
    return Loss(
        Expected(value, max(0.0, min(known)), max(known)),
        "published typical",
        source,
        tuple(
            PublishedLoss(f"{row.model}, imatrix {row.imatrix}", row.kld.value, row.kld.error or 0.0)
            for row in rows
            if row.kld is not None and row.kld.value is not None
        ),
    )


def _near(ratios: Mapping[str, float], octaves: Mapping[str, float]) -> list[str]:
    """The models of about the size, at least a few."""
    by_distance = sorted(ratios, key=lambda model: (octaves[model], model))
    near = [model for model in by_distance if octaves[model] <= _NEAR_OCTAVES]
    return near if len(near) >= _FEWEST else by_distance[:_FEWEST]


def _by_model(rows: Sequence[tuple[PublishedRow, float]]) -> dict[str, float]:
    """The median of each model, with and without an importance matrix."""
    found: dict[str, list[float]] = {}
    for row, loss in rows:
        found.setdefault(row.model, []).append(loss)
    return {model: statistics.median(losses) for model, losses in found.items()}


@functools.cache
def _rows() -> Mapping[str, tuple[PublishedRow, ...]]:
    """The rows with a perplexity, by quant."""
    found: dict[str, list[PublishedRow]] = {}
    for row in load_published():
        if row.perplexity is not None and row.quant is not None:
            found.setdefault(row.quant, []).append(row)
    return {quant: tuple(rows) for quant, rows in found.items()}
