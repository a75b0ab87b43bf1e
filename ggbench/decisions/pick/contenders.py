"""What theory knows of a model on a machine before anything is sized: whether it may fit, and how fast it may be."""

from __future__ import annotations

import functools
import math
import re

import msgspec

from ggbench.decisions.pick.needs import Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import Unsupported
from ggbench.expect.loss import cautious, expected_loss
from ggbench.expect.published_speed import published_curve
from ggbench.gguf_file.layout import build_model, count_params
from ggbench.gguf_file.twin import scaled
from ggbench.models.catalog import CatalogModel
from ggbench.models.sources import usual_quants
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.weights import count_parameters


def may_fit(entry: CatalogModel, most_bytes: int) -> bool:
    """Return whether a file at two bits per weight would fit, before its shape is built."""
    return count_params(entry.hyper) / 4 <= most_bytes


_MOST_QUANTS = 3
"""Quants of a model to size at most: smaller ones lose more and fit as well."""
_REACHED = 0.7
"""Share of the bandwidth that decoding reaches, about."""


class Contender:
    """What the shape of a current model tells of its size and speed, before any quant is sized."""

    def __init__(self, entry: CatalogModel, needs: Needs, budget: Budget, setup: LlamaConfig) -> None:
        self.entry, self._needs, self._budget, self._setup = entry, needs, budget, setup
        self.file = build_model(entry.hyper, entry.id)
        parameters = count_parameters(self.file)
        self.n_params, self.n_active = self.file.n_params, parameters.active
        self.is_mixture = self.file.n_expert > 0

    @property
    def rank(self) -> tuple[float, int]:
        """Order by capability, the most capable first: by score, those without one after the others by parameters."""
        return -self.score, -self.n_params

    @property
    def score(self) -> float:
        """Its publisher's; 0 if unknown."""
        return self.entry.score or 0.0

    @functools.cached_property
    def quants(self) -> tuple[str, ...]:
        """The usual quants that lose little, the largest first; all if none does or nobody knows."""
        usual = sorted(usual_quants(self.entry), key=self.bits, reverse=True)
        return tuple(filter(self._loses_little, usual)) or tuple(usual)

    def _loses_little(self, quant: str) -> bool:
        loss = expected_loss(self.entry.id, quant, self.n_params, self.file.architecture)
        return loss is not None and not self._needs.notices(cautious(loss))

    def bits(self, quant: str) -> float:
        """Return the bits per weight of a quant: by its published size, or about half a bit more than its name has."""
        size = self.entry.file_bytes.get(quant) or self.entry.file_bytes.get(f"ud-{quant}")
        named = re.search(r"\d+", quant)
        about = float(named[0]) + 0.5 if named else 16.0
        return about if size is None else 8 * size / self.n_params

    def file_bytes(self, quant: str) -> float:
        return self.n_params * self.bits(quant) / 8

    @property
    def least_bytes(self) -> float:
        return self.file_bytes(self.quants[-1])

    @functools.cached_property
    def most_tok_s(self) -> float:
        """The speed that bandwidth allows its smallest quant; infinite if a bandwidth is unknown."""
        return self._most_tok_s(self.quants[-1])

    def _most_tok_s(self, quant: str) -> float:
        active_bytes = self.n_active * self.bits(quant) / 8
        seconds = MemoryBounds.of(self._budget).seconds(active_bytes, self.file_bytes(quant))
        return math.inf if seconds is None else 1 / seconds

    @property
    def can_be_whole(self) -> bool:
        """Whether its smallest quant may be whole in the first memory."""
        return self.least_bytes <= MemoryBounds.of(self._budget).first_bytes

    @property
    def choice(self) -> tuple[str, ...]:
        """The quants that may be chosen: the largest that may be whole and comfortable, or the smallest if none is."""
        first_bytes = MemoryBounds.of(self._budget).first_bytes
        tok_s = self._needs.workload.comfort_tok_s / _REACHED
        whole = [each for each in self.quants if self.file_bytes(each) <= first_bytes]
        fast = [each for each in whole if self._most_tok_s(each) >= tok_s]
        return tuple(fast[:_MOST_QUANTS] or whole[-1:]) or self.quants[1 - _MOST_QUANTS :]

    @property
    def can_serve(self) -> bool:
        """Whether its smallest quant may fit, and decode at a comfortable speed."""
        needs, memory = self._needs, MemoryBounds.of(self._budget)
        if self.least_bytes > memory.all_bytes or needs.exceeds(self.entry.hyper.n_ctx_train):
            return False
        return self.most_tok_s >= max(needs.workload.comfort_tok_s, needs.tok_s or 0.0)

    @functools.cached_property
    def likely_tok_s(self) -> float:
        """The speed of its smallest quant by others' rows if it is whole on the GPUs, else half of the most."""
        budget, file = self._budget, scaled(self.file, round(self.least_bytes), self.entry.id)
        if not self.can_be_whole:
            return self.most_tok_s / 2
        curve = published_curve(Placement.of(file, self._setup, budget), is_here=budget.is_here)
        return self.most_tok_s if curve is None else curve.tok_s_at(self._needs.n_ctx_slot).value

    @property
    def room(self) -> float:
        """Tokens of an f16 cache that fit beside the smallest quant, at most the trained ones; 0 if unknown."""
        usable = MemoryBounds.of(self._budget).first_bytes - self.least_bytes
        try:
            cache = kv_cache(self.file, "f16", "f16")
        except Unsupported:
            return 0.0
        return min(self.entry.hyper.n_ctx_train, usable / max(1, cache.bytes_per_token))


class MemoryBounds(msgspec.Struct, frozen=True):
    """What theory knows of a machine."""

    first_bytes: int
    """Bytes of the GPUs, or of main memory without any."""
    host_bytes: int
    """Main memory beside GPUs of their own."""
    first_rate: float | None
    """Bytes/s of the GPUs together."""
    host_rate: float | None

    @classmethod
    def of(cls, budget: Budget) -> MemoryBounds:
        host = budget.host
        rates = [each.bandwidth.bytes_per_s for each in budget.devices if each.bandwidth]
        host_rate = host.bandwidth.bytes_per_s if host and host.bandwidth else None
        if not budget.on_gpu:
            return cls(budget.usable_bytes, 0, host_rate, None)
        beside = 0 if budget.is_unified or host is None else host.usable_bytes
        return cls(budget.usable_bytes, beside, sum(rates) or None, host_rate)

    @property
    def all_bytes(self) -> int:
        return self.first_bytes + self.host_bytes

    def seconds(self, read_bytes: float, held_bytes: float) -> float | None:
        """Return the least time of a token that reads a part of what is held; None if a rate is unknown."""
        outside = max(0.0, 1 - self.first_bytes / held_bytes)
        if self.first_rate is None or (outside and self.host_rate is None):
            return None
        return read_bytes * ((1 - outside) / self.first_rate + outside / (self.host_rate or 1.0))
