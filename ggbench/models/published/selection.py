"""Selection of published rows: by name for `ggbench published`, by similarity to your own results for `--against`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar

from ggbench.errors import UnknownName, UsageError
from ggbench.gguf_file.layout import count_params
from ggbench.machine.known_devices import find_device
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedRow
from ggbench.models.published.benches import LLAMA_BENCH, BenchedRow, load_benches
from ggbench.record import Record

_QUANT_ALIASES = {"bfloat16": "bf16", "fp16": "f16", "float16": "f16"}
LLAMA_CPP = "llama.cpp"
"""The published system of ggbench's own engine, and of servers based on llama.cpp."""
_BILLION = re.compile(r"([0-9]+(?:\.[0-9]+)?)B")
_FAR_OCTAVES = 32.0
_SAME_SIZE = 0.01
"""Share by which numbers of parameters of one shape differ, as llama-bench rounds them."""
_DISTINGUISHING_WORDS = {"ti", "super", "d", "laptop", "mobile", "max", "pcie", "nvl"}
"""Words in a GPU's name that distinguish products by bandwidth."""


AnyRow: TypeAlias = PublishedRow | BenchedRow
_Row = TypeVar("_Row", bound=AnyRow)


class NearRow(Record):
    """A published row selected for comparison with a measurement."""

    row: PublishedRow
    differences: tuple[str, ...]
    """Each condition that differs or is not stated."""


_NAMES_OF: Mapping[str, Callable[[AnyRow], Iterable[str | None]]] = {
    "source": lambda row: (LLAMA_BENCH, row.source) if isinstance(row, BenchedRow) else (row.source,),
    "model": lambda row: _model_names(row),
    "system": lambda row: (row.system,),
    "device": lambda row: (row.device,),
    "quant": lambda row: (row.quant,),
}


def filter_published(rows: Iterable[_Row], **names: str | None) -> tuple[_Row, ...]:
    """Return the rows that match all given filters, in their order; case does not matter.

    `names` are a source, model, system, device and quant: each a whole name, or else consecutive words of it:
    `qwen2.5`, `bitsandbytes`, `gptq`, `a100`, `rtx-4090`. A whole name takes precedence, so `hf-transformers` does not
    match `hf-transformers-fa2`. A model is also one of the catalog by its id, and a device without rows means those of
    its chip. Raises UnknownName for a value that no row has; a combination that no row has gives an empty tuple.
    """
    kept = everything = tuple(rows)
    for kind, asked in names.items():
        if asked is not None:
            names_of = _NAMES_OF[kind]
            known = {name for row in everything for name in names_of(row) if name}
            matching = _match(kind, fold_quant(asked), known)
            kept = tuple(row for row in kept if not matching.isdisjoint(names_of(row)))
    return kept


class OwnSpeed(Record):
    """The conditions of a measured speed; None if unknown."""

    model: str
    """Catalog id."""
    quant: str
    system: str = LLAMA_CPP
    device: str | None = None
    n_prompt: int | None = None
    n_gen: int | None = None
    batch_size: int = 1

    def compares(self, row: PublishedRow) -> bool:
        """Return whether the row has a speed of this model; `oom` counts, since it shows what did not run."""
        figures = map(row.figures.get, ("tok_s", "throughput_tok_s", "b_ms"))
        is_stated = any(figure is not None and figure.printed != "N/A" for figure in figures)
        return is_stated and row.system != "theory" and self.model.strip().lower() in _model_names(row)

    def distance(self, row: PublishedRow) -> tuple[float, ...]:
        """Return a sort key: the same system and quant; the same system, unless it is llama.cpp; then bits per weight,
        device, and the mean position.
        """
        quant = fold_quant(self.quant)
        same = row.system == self.system and row.quant == quant
        return (
            not same,
            self.system not in (LLAMA_CPP, row.system),
            0.0 if same else _bits_apart(row, quant),
            not _same_device(row, self.device),
            _octaves(_middle(row.n_prompt, row.n_gen), _middle(self.n_prompt, self.n_gen)),
        )

    def differences(self, row: PublishedRow) -> Iterator[str]:
        """Yield each condition that differs or is not stated."""
        yield from _unlike("system", row.system, self.system)
        yield from _unlike("quant", row.quant, fold_quant(self.quant))
        if not _same_device(row, self.device):
            yield from _unlike("device", row.device, self.device or "the unknown one")
        if row.n_gpu is not None and row.n_gpu > 1:
            yield f"{row.n_gpu} GPUs"
        yield from _unlike("tokens of input", row.n_prompt, self.n_prompt)
        yield from _unlike("tokens generated", row.n_gen, self.n_gen)
        yield from _unlike("batch", row.batch_size, self.batch_size)
        if row.variant:
            yield f"{row.variant} variant"


class OwnScore(Record):
    """The conditions of a quality score; None if unknown."""

    model: str | None
    """The model's name in the rows; None if no row has it."""
    own_model: str
    """Name in the run."""
    n_params: int | None
    quant: str
    kv_types: str
    """`f16`, or both types of the KV cache."""
    text: str
    """`wikitext-2` for that text, whatever the file's name."""
    n_ctx: int
    n_chunks: int
    is_whole: bool
    """Whether all chunks of the text were scored."""
    base: str | None
    """Quant and KV type of the base."""

    def compares(self, row: PublishedRow) -> bool:
        """Return whether the row has a perplexity, of any model: the loss of a quant relative to its base is
        comparable.
        """
        return "perplexity" in row.figures and row.type_k is None

    def distance(self, row: PublishedRow) -> tuple[float, ...]:
        """Return a sort key: the same quant, the same model, rows with a KL divergence, models of similar size."""
        quant = fold_quant(self.quant)
        return (
            -1.0 if row.quant == quant else _bits_apart(row, quant),
            row.model != self.model,
            "kld" not in row.figures,
            size_octaves(row.size, self.n_params),
            row.imatrix is not None,
        )

    def differences(self, row: PublishedRow) -> Iterator[str]:
        """Yield each condition that differs or is not stated."""
        if row.model != self.model:
            yield from _unlike("model", row.model, self.own_model)
        yield from _unlike("quant", row.quant, fold_quant(self.quant))
        if row.imatrix:
            yield f"importance matrix {row.imatrix}"
        yield from _unlike("KV cache", "f16", self.kv_types)
        yield from _unlike("text", row.text, self.text)
        yield from _unlike("n_ctx", row.n_ctx, self.n_ctx)
        if not self.is_whole:
            yield f"the whole text, not {self.n_chunks} chunks"
        if row.base is not None:
            yield from _unlike("compared with", row.base, self.base)


def _unlike(what: str, theirs: object, ours: object) -> Iterator[str]:
    if ours is not None and theirs != ours:
        yield f"{what} {'not stated' if theirs is None else theirs}, not {ours}"


def nearest_published(
    rows: Iterable[PublishedRow], own: OwnSpeed | OwnScore, limit: int
) -> tuple[NearRow, ...]:
    """Return at most `limit` comparable rows, the most similar first, with their differences."""
    nearest = sorted(filter(own.compares, rows), key=own.distance)[:limit]
    return tuple(NearRow(row, tuple(own.differences(row))) for row in nearest)


def _match(kind: str, asked: str, known: set[str]) -> set[str]:
    exact = {name for name in known if name.lower() == asked}
    found = exact or {name for name in known if _has_words(name, asked)}
    if kind == "device":
        found = found or {name for name in known if _has_words(name, _chip(asked))}
    if not found:
        raise UnknownName(f"published {kind}", asked, known)
    return found


def _model_names(row: AnyRow) -> tuple[str, ...]:
    if isinstance(row, BenchedRow):
        return row.model_id, *_ids_of(row.model, row.n_params)
    return (row.model, f"{row.model}-{row.variant.lower()}") if row.variant else (row.model,)


@functools.cache
def _ids_of(model: str, n_params: int | None) -> tuple[str, ...]:
    """Return the ids of the catalog's models with the architecture and the parameters of a row.

    A row that does not state them has those of the others with its model.
    """
    known = (row.n_params for row in load_benches() if row.model == model)
    sizes = {n_params} if n_params else {*filter(None, known)}
    return tuple(
        each
        for each, architecture, n in _shapes()
        if architecture == model.partition(" ")[0] and any(abs(n / size - 1) < _SAME_SIZE for size in sizes)
    )


@functools.cache
def _shapes() -> tuple[tuple[str, str, int], ...]:
    """Return the id, the architecture and the parameters of each model of the catalog."""
    return tuple((each.id, each.hyper.architecture, count_params(each.hyper)) for each in load_catalog())


def _chip(text: str) -> str:
    """Return the id of a known device without its memory, such as `m4-max`; the text itself for another device."""
    with contextlib.suppress(UsageError):
        return re.sub(r"-\d+gb$", "", find_device(text).id)
    return text


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
    """Return a quant's name in the spelling of the rows."""
    lower = quant.strip().lower()
    return _QUANT_ALIASES.get(lower, lower)


def _middle(n_prompt: int | None, n_gen: int | None) -> float | None:
    """Return the position halfway through the generated tokens; None if the input length is unknown."""
    return None if n_prompt is None else n_prompt + (n_gen or 0) / 2


def _octaves(theirs: float | None, ours: float | None) -> float:
    """Return the distance of two lengths in octaves; 32 if theirs is unknown, 0 if ours is."""
    if ours is None:
        return 0.0
    return abs(math.log2((theirs + 1) / (ours + 1))) if theirs is not None else _FAR_OCTAVES


def _bits_apart(row: PublishedRow, quant: str) -> float:
    """Return the difference in nominal bits per weight, read from the names; 64 if unknown, far from every other."""
    numbers = (re.search(r"\d+", "4" if name == "awq" else name) for name in (row.quant or "", quant))
    theirs, ours = (float(number[0]) if number else 64.0 for number in numbers)
    return abs(theirs - ours)


def size_octaves(printed: str, n_params: int | None) -> float:
    """Return the distance of a printed size, `7B`, from a number of parameters, in octaves; large if unknown."""
    size = _BILLION.match(printed)
    return _FAR_OCTAVES if size is None or not n_params else abs(math.log2(float(size[1]) * 1e9 / n_params))
