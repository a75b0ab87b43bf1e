"""Selection of published rows: by name for `ggbench published`, by similarity to a measurement for `--against`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable

import msgspec

from ggbench.errors import UnknownName
from ggbench.models.published.rows import METRICS, PublishedRow

_QUANT_ALIASES = {"bfloat16": "bf16", "fp16": "f16", "float16": "f16"}
LLAMA_CPP = "llama.cpp"
"""The system of ggbench's own engine, and of the servers around it."""
_BITS = {"awq": 4.0}
_DISTINGUISHING_WORDS = {"ti", "super", "d", "laptop", "mobile", "max", "pcie", "nvl"}
"""Words in a GPU's name that distinguish products with another bandwidth."""


class NearRow(msgspec.Struct, frozen=True):
    """A published row selected for comparison with a measurement."""

    row: PublishedRow
    differences: tuple[str, ...]
    """Each way in which its conditions differ or are not stated; empty if none."""


def filter_published(
    rows: Iterable[PublishedRow],
    model: str | None = None,
    system: str | None = None,
    device: str | None = None,
    quant: str | None = None,
    metric: str | None = None,
    source: str | None = None,
) -> tuple[PublishedRow, ...]:
    """Return the rows that match all given filters, in their order; case does not matter.

    A model, system, quant or source is a whole name or a prefix: `qwen2.5`, `qwen2.5-7b-instruct`, `bitsandbytes`,
    `gptq`. A whole name takes precedence, so `hf-transformers` does not match `hf-transformers-fa2`. A device is any
    sequence of words of its name: `a100`, `rtx-4090`. A metric is one of METRICS and keeps the rows that state it.
    Raises UnknownName for a value that no row has; a combination that no row has gives an empty tuple.
    """
    kept = tuple(rows)
    everything = kept
    if metric is not None:
        wanted = metric.strip().lower().replace("-", "_")
        if wanted not in METRICS:
            raise UnknownName("published metric", metric, METRICS)
        kept = tuple(row for row in kept if getattr(row, wanted) is not None)
    if quant is not None:
        quant = fold_quant(quant)
    names: tuple[tuple[str, str | None, Callable[[PublishedRow], tuple[str, ...]], Callable[[str, str], bool]], ...] = (
        ("source", source, lambda row: (row.source,), str.startswith),
        ("model", model, _model_names, lambda name, asked: name.startswith(asked + "-")),
        ("system", system, lambda row: (row.system,), str.startswith),
        ("device", device, lambda row: (row.device,) if row.device else (), _has_words),
        ("quant", quant, lambda row: (row.quant,) if row.quant else (), str.startswith),
    )
    for kind, asked, names_of, is_near in names:
        if asked is not None:
            matching = _match(kind, asked.strip(), {name for row in everything for name in names_of(row)}, is_near)
            kept = tuple(row for row in kept if not matching.isdisjoint(names_of(row)))
    return kept


def nearest_published(
    rows: Iterable[PublishedRow],
    model: str,
    quant: str,
    device: str | None = None,
    n_prompt: int | None = None,
    n_gen: int | None = None,
    batch_size: int = 1,
    limit: int = 5,
    system: str = LLAMA_CPP,
) -> tuple[NearRow, ...]:
    """Return at most `limit` published speeds of a model that are most similar to a measurement with `system`.

    `model` is a catalog id. Rows of the same system and quant come first, then for a system other than llama.cpp its
    other rows; then rows are ordered by difference in bits per weight, same device, same batch, and distance of the
    mean position, n_prompt + n_gen / 2. Empty if no row measured this model.
    """
    quant = fold_quant(quant)
    names = {model.strip().lower()}

    def distance(row: PublishedRow) -> tuple[bool, bool, float, bool, bool, float]:
        same = row.system == system and row.quant == quant
        return (
            not same,
            system != LLAMA_CPP and row.system != system,
            0.0 if same else abs(nominal_bits(row.quant or "") - nominal_bits(quant)),
            not _same_device(row, device),
            row.batch_size is not None and row.batch_size != batch_size,
            _octaves(_middle(row.n_prompt, row.n_gen), _middle(n_prompt, n_gen)),
        )

    candidates = (
        row for row in rows if row.system != "theory" and not names.isdisjoint(_model_names(row)) and _has_speed(row)
    )
    nearest = sorted(candidates, key=distance)[: max(0, limit)]
    return tuple(NearRow(row, _differences(row, system, quant, device, n_prompt, n_gen, batch_size)) for row in nearest)


def _has_speed(row: PublishedRow) -> bool:
    """Return whether the row has a speed to compare with; `oom` counts, since it says what did not run."""
    figures = (row.tok_s, row.throughput_tok_s, row.b_ms)
    return any(figure is not None and figure.printed != "N/A" for figure in figures)


def _differences(
    row: PublishedRow,
    system: str,
    quant: str,
    device: str | None,
    n_prompt: int | None,
    n_gen: int | None,
    batch_size: int,
) -> tuple[str, ...]:
    found: list[str] = []
    if row.system != system:
        found.append(f"system {row.system}, not {system}")
    if row.quant != quant:
        found.append(f"quant {row.quant or 'not stated'}, not {quant}")
    if not _same_device(row, device):
        found.append(f"device {row.device or 'not stated'}" + (f", not {device}" if device else ""))
    if row.n_gpu is not None and row.n_gpu > 1:
        found.append(f"{row.n_gpu} GPUs")
    for what, theirs, ours in (("input", row.n_prompt, n_prompt), ("generated", row.n_gen, n_gen)):
        if ours is not None and theirs != ours:
            found.append(f"{what} {'length not stated' if theirs is None else f'{theirs} tokens'}, not {ours}")
    if row.batch_size != batch_size:
        found.append(f"batch {'not stated' if row.batch_size is None else row.batch_size}, not {batch_size}")
    if row.variant:
        found.append(f"{row.variant} variant")
    return tuple(found)


def _match(kind: str, asked: str, vocabulary: set[str], is_near: Callable[[str, str], bool]) -> set[str]:
    exact = {name for name in vocabulary if name.lower() == asked.lower()}
    found = exact or {name for name in vocabulary if asked and is_near(name.lower(), asked.lower())}
    if not found:
        raise UnknownName(f"published {kind}", asked, vocabulary)
    return found


def _model_names(row: PublishedRow) -> tuple[str, ...]:
    return (row.model, f"{row.model}-{row.variant.lower()}") if row.variant else (row.model,)


def _has_words(name: str, asked: str) -> bool:
    """Return whether `name` contains the words: `nvidia rtx 4090 24gb` contains `rtx-4090` but not `90`."""
    return _words(asked).strip() != "" and f" {_words(asked)} " in f" {_words(name)} "


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9.]+", text.lower()))


def _same_device(row: PublishedRow, device: str | None) -> bool:
    """Return whether both are the same product: same number and memory, and no distinguishing word in only one."""
    if row.device is None or device is None:
        return False
    theirs, ours = _words(row.device).split(), _words(device).split()
    memory = [{word for word in words if re.fullmatch(r"\d+gb", word)} for words in (theirs, ours)]
    number = next((word for word, following in itertools.pairwise(theirs) if following in memory[0]), None)
    return (
        number in ours
        and (not memory[1] or memory[0] == memory[1])
        and _DISTINGUISHING_WORDS.isdisjoint(set(theirs) ^ set(ours))
    )


def fold_quant(quant: str) -> str:
    """Return a quant's name as the rows have it."""
    lower = quant.strip().lower()
    return _QUANT_ALIASES.get(lower, lower)


def nominal_bits(quant: str) -> float:
    """Return the nominal bits per weight from a quant's name; 64 if unknown, far from every other."""
    number = re.search(r"\d+", quant)
    return _BITS.get(quant, float(number[0]) if number else 64.0)


def _middle(n_prompt: int | None, n_gen: int | None) -> float | None:
    """Return the position half-way through the generated tokens; None if the input length is unknown."""
    return None if n_prompt is None else n_prompt + (n_gen or 0) / 2


def _octaves(theirs: float | None, ours: float | None) -> float:
    """Return the distance of two lengths in octaves; 32 if theirs is not stated, 0 if ours is not given."""
    if ours is None:
        return 0.0
    return abs(math.log2((theirs + 1) / (ours + 1))) if theirs is not None else 32.0
