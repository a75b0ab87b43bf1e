"""Selection of published rows by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from ggbench.errors import UnknownName
from ggbench.models.published import METRICS, PublishedRow
from ggbench.models.published.benches import LLAMA_BENCH, BenchedRow

_QUANT_ALIASES = {"bfloat16": "bf16", "fp16": "f16", "float16": "f16"}
_BILLION = re.compile(r"([0-9]+(?:\.[0-9]+)?)B")
_FAR_OCTAVES = 32.0


AnyRow: TypeAlias = PublishedRow | BenchedRow
_Row = TypeVar("_Row", bound=AnyRow)


def filter_published(
    rows: Iterable[_Row],
    model: str | None = None,
    system: str | None = None,
    device: str | None = None,
    quant: str | None = None,
    metric: str | None = None,
    source: str | None = None,
) -> tuple[_Row, ...]:
    """Return the rows that match all given filters, in their order; case does not matter.

    A model, system, quant or source is a whole name or a prefix: `qwen2.5`, `qwen2.5-7b-instruct`, `bitsandbytes`,
    `gptq`. A whole name takes precedence, so `hf-transformers` does not match `hf-transformers-fa2`. A device is any
    sequence of words of its name: `a100`, `rtx-4090`. A metric is one of METRICS and selects the rows that state it.
    Raises UnknownName for a value that no row has; a combination that no row has gives an empty tuple.
    """
    kept = everything = tuple(rows)
    if metric is not None:
        wanted = metric.strip().lower().replace("-", "_")
        if wanted not in METRICS:
            raise UnknownName("published metric", metric, METRICS)
        kept = tuple(row for row in kept if getattr(row, wanted, None) is not None)
    names: tuple[tuple[str, str | None, Callable[[AnyRow], Iterable[str]], Callable[[str, str], bool]], ...] = (
        ("source", source, _source_names, str.startswith),
        ("model", model, _model_names, lambda name, asked: name.startswith(asked + "-")),
        ("system", system, lambda row: (row.system,), str.startswith),
        ("device", device, lambda row: filter(None, (row.device,)), _has_words),
        ("quant", fold_quant(quant or "") or None, lambda row: filter(None, (row.quant,)), str.startswith),
    )
    for kind, asked, names_of, is_near in names:
        if asked is not None:
            matching = _match(
                kind, asked.strip(), {name for row in everything for name in names_of(row)}, is_near
            )
            kept = tuple(row for row in kept if not matching.isdisjoint(names_of(row)))
    return kept


def _match(kind: str, asked: str, vocabulary: set[str], is_near: Callable[[str, str], bool]) -> set[str]:
    exact = {name for name in vocabulary if name.lower() == asked.lower()}
    found = exact or {name for name in vocabulary if asked and is_near(name.lower(), asked.lower())}
    if not found:
        raise UnknownName(f"published {kind}", asked, vocabulary)
    return found


def _source_names(row: AnyRow) -> tuple[str, ...]:
    return (LLAMA_BENCH, row.source) if isinstance(row, BenchedRow) else (row.source,)


def _model_names(row: AnyRow) -> tuple[str, ...]:
    if isinstance(row, BenchedRow):
        return (row.model_id,)
    return (row.model, f"{row.model}-{row.variant.lower()}") if row.variant else (row.model,)


def _has_words(name: str, asked: str) -> bool:
    """Return whether `name` contains the words: `nvidia rtx 4090 24gb` contains `rtx-4090` but not `90`."""
    return _words(asked).strip() != "" and f" {_words(asked)} " in f" {_words(name)} "


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9.]+", text.lower()))


def fold_quant(quant: str) -> str:
    """Return a quant's name in the spelling of the rows."""
    lower = quant.strip().lower()
    return _QUANT_ALIASES.get(lower, lower)


def size_octaves(printed: str, n_params: int | None) -> float:
    """Return the distance of a printed size, `7B`, from a number of parameters, in octaves; large if unknown."""
    size = _BILLION.match(printed)
    return _FAR_OCTAVES if size is None or not n_params else abs(math.log2(float(size[1]) * 1e9 / n_params))
