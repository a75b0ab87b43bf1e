"""Names of quants and shards: in file names, as `general.file_type`, and in llama.cpp's spelling.

A quant's name does not give its size: BPW comes from the tensor table. Names are matched completely, because
llama.cpp's looser matching confuses `BF16` with `F16` and `IQ3_XXS` with `Q3_XXS`. `x-00001-of-00003.gguf` is one third
of `x`: five digits each, counted from one (`llama_split_path` of llama.cpp).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec

from ggbench.errors import UnknownName
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.ggml_types import ADDED_TYPES
from ggbench.gguf_file.model_file import ModelFile

_ALIASES = {"mxfp4_moe": "mxfp4", "fp16": "f16", "fp32": "f32"}
MIXTURE = "ud-"
"""Prefix of Unsloth's own mixtures of types, which differ by tensor and by model."""
_SHORT = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
"""Short names that llama-quantize accepts, and their meanings."""

# publishers add sizes of their own (`Q8_K_XL`, `Q3_K_XL`, `Q2_K_L`), so more suffixes than llama.cpp's are allowed
_TOKEN = re.compile(
    r"(?:^|[-._ /])(?P<quant>(?:ud[-_])?(?:"
    r"bf16|f16|f32|fp16|fp32|mxfp4(?:_moe)?|nvfp4"
    r"|i?q[1-8]_(?:k(?:_(?:xxs|xs|s|m|l|xl))?|[01]|nl|xxs|xs|s|m|l|xl)(?:_(?:xxs|xs|s|m|l|xl))?"
    r"|tq[12]_0"
    r"))(?=$|[-. ])",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(?P<name>(?:all )?[A-Za-z0-9_]+)(?: - (?P<size>Small|Medium|Large))?")
_SIZES = {None: "", "Small": "_s", "Medium": "_m", "Large": "_l"}
_SIDECAR = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix|eagle3)(?=$|[-._/])|(?:^|/)mtp[-_.]", re.IGNORECASE)


def canonical_quant(name: str) -> str:
    """Return the name in lower case, `ud-` with a hyphen, and one spelling for each float."""
    lower = name.lower()
    lower = f"ud-{lower[3:]}" if lower.startswith("ud_") else lower
    return _ALIASES.get(lower, lower)


def quant_from_words(words: str) -> str:
    """Return `q4_k_m` for `Q4_K - Medium`, llama.cpp's name of a file type; empty for other texts.

    Source: `llama_model_ftype_name` in llama-model-loader.cpp.
    """
    found = _WORDS.fullmatch(words.removeprefix("(guessed) "))
    return canonical_quant(found["name"].removeprefix("all ") + _SIZES[found["size"]]) if found else ""


def plain_quant(quant: str) -> str:
    """Return llama.cpp's quant that a mixture is named after: `q4_k_m` of `ud-q4_k_xl`, `q6_k` of `ud-q6_k_xl`.

    A name that is not of a mixture is returned unchanged.
    """
    name = quant.removeprefix(MIXTURE)
    if name == quant or not name.endswith("_xl"):
        return name
    plain = name.removesuffix("_xl")
    return next(
        (each for each in (f"{plain}_m", plain, plain.replace("_k", "_0")) if each in known_quants()), name
    )


def compact(name: str) -> str:
    """Return the name in lower case without separators: `q4km`, as people type it."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def known_spelling(name: str) -> str:
    """Return the known quant that differs from the name only in case and separators; else the name in lower case."""
    lower = name.lower()
    if canonical_quant(lower) in known_quants():
        return lower
    alike = [quant for quant in known_quants() if compact(quant) == compact(lower)]
    return alike[0] if len(alike) == 1 else lower


def ftype_by_name(name: str) -> int:
    """Return the `enum llama_ftype` of a quant by its name, in any case. Raises UnknownName."""
    quant = canonical_quant(name)
    number = known_quants().get(_SHORT.get(quant, quant))
    if number is None:
        error = UnknownName("quant", name, known_quants())
        if "nearest" not in error.hint:
            error.hint = "use llama.cpp's name of a quant, e.g. q4_k_m, q8_0 or iq4_xs; see: ggbench help names"
        raise error
    return number


def quant_by_ftype(file_type: int) -> str | None:
    """Return the name of a `general.file_type`; None for one that neither gguf nor ggbench knows.

    llama.cpp sets the flag `LLAMA_FTYPE_GUESSED` in a file type not given by the file; it is ignored here.
    """
    stated = file_type & ~int(gguf_constants.LlamaFileType.GUESSED)
    return next((name for name, number in known_quants().items() if number == stated), None)


def quant_from_file_name(file_name: str) -> str | None:
    """Return the quant in the name of a file or, if that has none, of its folder: `q4_k_m`, `ud-q4_k_xl`; or None."""
    for part in reversed(file_name.split("/")):
        matches = [match["quant"] for match in _TOKEN.finditer(model_name(part))]
        if matches:
            return canonical_quant(matches[-1])
    return None


def name_without_quant(file_name: str) -> str:
    """Return a file's name without shard suffix, `.gguf` and quant: the same for all quants of a model."""
    name = model_name(file_name)
    matches = list(_TOKEN.finditer(name))
    return name[: matches[-1].start()] + name[matches[-1].end() :] if matches else name


def quant_label(model_file: ModelFile) -> str:
    """Return the label of a model file's quant: a publisher's own name, or the header's, or the file name's.

    The header's file type cannot express `ud-` mixes or suffixes such as `_xl`, so a more specific name wins.
    """
    named = quant_from_file_name(model_file.paths[0].name if model_file.paths else model_file.name)
    file_type = model_file.metadata.get("general.file_type")
    stated = quant_by_ftype(file_type) if isinstance(file_type, int) else None
    if named is not None and (stated is None or _SHORT.get(named, named) not in known_quants()):
        return named
    return stated or "unknown"


def is_sidecar(file_name: str) -> bool:
    """Return whether a .gguf only accompanies a model: a projector, an importance matrix, a draft head."""
    return _SIDECAR.search(file_name) is not None


@functools.cache
def known_quants() -> dict[str, int]:
    """Return the `enum llama_ftype` of every quant that llama.cpp can make, in numerical order."""
    numbers = {added.name: file_type for added, file_type in ADDED_TYPES.items()}
    for entry in gguf_constants.LlamaFileType:
        if entry is not gguf_constants.LlamaFileType.GUESSED:
            numbers[canonical_quant(entry.name.removeprefix("ALL_").removeprefix("MOSTLY_"))] = int(entry)
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


class ShardName(msgspec.Struct, frozen=True):
    stem: str
    number: int
    """From 1."""
    count: int

    def sibling(self, number: int) -> str:
        return f"{self.stem}-{number:05}-of-{self.count:05}.gguf"

    def shard_paths(self, path: Path) -> list[Path]:
        """Return the paths of all shards, given the path of this one."""
        return [path if n == self.number else path.with_name(self.sibling(n)) for n in range(1, self.count + 1)]


def parse_shard_name(file_name: str) -> ShardName | None:
    """Return the parts of a shard's file name; None for any other name."""
    match = _SHARD.fullmatch(file_name)
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    return ShardName(match["stem"], number, count) if 1 <= number <= count else None


def model_name(file_name: str) -> str:
    """Return the name of the model in this file: no shard suffix, no `.gguf`."""
    shard = parse_shard_name(file_name)
    return shard.stem if shard else re.sub(r"\.gguf\Z", "", file_name, flags=re.IGNORECASE)
