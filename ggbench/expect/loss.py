"""What a quant or a type of KV cache loses: which losses people notice, and what to expect unmeasured.

`scripts/reduce_losses` makes the tables in `data` from the published rows, which nothing here reads.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, get_args

from msgspec.structs import replace

from ggbench.gguf_file.hyperparameters import FAMILIES
from ggbench.gguf_file.quants import canonical_quant, name_without_quant, plain_quant
from ggbench.models.published import data_text, reads_data
from ggbench.stats.intervals import Z_95, Estimate, Expected, LossBasis

UNNOTICED_LOSS = 0.012
"""Losses in nats up to which nobody can tell quants apart.

q5_k_m of Llama 3 8B loses 0.0108, q6_k 0.0055 (llama.cpp, tools/perplexity/README.md); with q6_k, 96.0 % of the most
probable tokens stay the same, of f16 against itself 97.7 %. Close to the base, KL divergence has no relation left to
task scores (arXiv 2606.19558), and the answers that flip grow with it (arXiv 2407.09141).
"""
NOTICED_LOSS = 0.05
"""Loss in nats from which people notice: between q4_k_m, 0.031, and q3_k_m, 0.10, of the same table.

q4_k_m is the common default, and below it guides warn. By S. McLeod (smcleod.net, April 2026) 0.01 to 0.05 is usual at
4 bits, and answers obviously differ above 0.1.
"""

UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
CLEAR_RATIO = 1.7
"""Ratio from which one of two expected losses of a model is certainly the larger.

A quant of a model is off the fit of its other quants by 0.17 of its logarithm (`scripts/reduce_losses --check`): 1.96
times that over two quants is a ratio of 1.6, and files of different makers differ by more.
"""
SIZES_B = (0, 1, 3, 10, 40)
"""Least billions of parameters of each class of sizes."""
_FOUR_OF_FIVE = 0.842
"""In standard deviations, of a normal distribution."""
_USUAL_PARAMS = 8 * 10**9


NO_LOSS = Expected(0.0, 0.0, 0.0, "published", "the original is the base of comparison")


def is_clearly_above(one: Expected, other: Expected) -> bool:
    """Return whether the first is certainly the larger loss of two quants of one model.

    Two that were not measured share most of their error, the model's; measured ones need disjoint intervals.
    """
    if "measured" in (one.basis, other.basis):
        return one.low > other.high
    return one.value > CLEAR_RATIO * other.value


def added(*losses: Expected | None) -> Expected | None:
    """Return losses measured apart, added, as the divergences of two small independent disturbances are to second
    order, with the weakest basis; None if one is unknown.

    With SmolLM2 135M over the same text, q4_k_m loses 0.0590, a q4_0 cache 0.0573 (with q4_1), both together 0.1145.
    """
    known = [each for each in losses if each is not None]
    if len(known) < len(losses):
        return None
    parts = [each for each in known if each.high] or known
    bases, sources = [each.basis for each in parts], dict.fromkeys(each.source for each in parts)
    return Expected(
        sum(each.value for each in parts),
        sum(each.low for each in parts),
        sum(each.high for each in parts),
        max(bases, key=get_args(LossBasis).index),
        "; ".join(sources),
    )


def cautious(nats: Estimate) -> float:
    """Return what a loss stays below in four of five cases, as its interval is of its logarithm."""
    return nats.value * (nats.high / nats.value) ** (_FOUR_OF_FIVE / Z_95) if nats.value else 0.0


def is_original(quant: str, architecture: str) -> bool:
    """Return whether models of the architecture are published in this type."""
    return quant in UNQUANTIZED or (architecture in FAMILIES and quant == FAMILIES[architecture].experts_type)


def family_of(architecture: str) -> str:
    """Return the name that dense models and mixtures of one generation share."""
    return architecture.removesuffix("moe")


def expected_loss(model: str, quant: str, n_params: int | None, architecture: str = "") -> Expected | None:
    """Return what a quant loses against 16 bits by rows of the model, or what is typical; None if nobody scored it."""
    name = canonical_quant(quant)
    if is_original(name, architecture):
        return NO_LOSS
    size = max(each for each in SIZES_B if each * 1e9 <= (n_params or _USUAL_PARAMS))
    lines = _weights()
    line = _nearest(lines, (*_names(model), f"{family_of(architecture)}/{size}B", f"/{size}B"))
    column = name if line.get(name) else plain_quant(name)
    return _loss(line, column)


def expected_cache_loss(model: str, architecture: str, cache: tuple[str, str]) -> Expected:
    """Return what a KV cache of these types loses against one in 16 bits.

    K and V each take half of what both lose in their type: of five models with rows of q8_0, of both types mixed and of
    four or five bits, V took 0.2 to 0.7 of the difference (`kv-cache-loss.csv`).
    """
    line = _nearest(_caches(), (*_names(model), family_of(architecture), ""))
    found = []
    for name in cache:
        part = NO_LOSS if name in UNQUANTIZED else _loss(line, name)
        assert part is not None, f"no loss of {name} caches"
        found.append(part)
    value, low, high = (
        statistics.fmean(getattr(each, end) for each in found) for end in ("value", "low", "high")
    )
    return replace(max(found, key=lambda each: each.value), value=value, low=low, high=high)


_Line: TypeAlias = Mapping[str, str]


def _names(model: str) -> Iterator[str]:
    """Yield the names under which a model may be in a table: of an id, a repo or a file, without a maker in front."""
    name = name_without_quant(model.removeprefix("twin:").rpartition("/")[2]).lower().removesuffix("-gguf")
    yield name
    yield name.rpartition("_")[2]


def _nearest(lines: Mapping[str, _Line], names: Sequence[str]) -> _Line:
    return next(lines[name] for name in names if name in lines)


def _loss(line: _Line, column: str) -> Expected | None:
    """Return a cell: value, ends and, if rows of the model itself state it, which."""
    if not line.get(column):
        return None
    value, low, high, *rows = line[column].split(" ", 3)
    typical = Expected(float(value), float(low), float(high), "typical", f"{column} by {line['from']}")
    return replace(typical, basis="published", source=rows[0]) if rows else typical


@reads_data
def _weights() -> Mapping[str, _Line]:
    return _read("loss-weights.csv")


@reads_data
def _caches() -> Mapping[str, _Line]:
    return _read("loss-caches.csv")


def _read(name: str) -> Mapping[str, _Line]:
    lines = csv.DictReader(data_text(name, "ggbench.expect").splitlines())
    return {key: line for line in lines for key in line["of"].split(" ")}
