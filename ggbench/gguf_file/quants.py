"""Names of quants, of what a file is for, and of shards: in file names, in headers, and in llama.cpp's spelling.

A quant's name does not give its size: BPW comes from the tensor table. Names are matched completely, because
llama.cpp's looser matching confuses `BF16` with `F16` and `IQ3_XXS` with `Q3_XXS`. `x-00001-of-00003.gguf` is one third
of `x`: five digits each, counted from one (`llama_split_path` of llama.cpp).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, cast

from ggbench.errors import UnknownName, Unsupported
from ggbench.gguf_file import gguf_constants
from ggbench.gguf_file.ggml_types import ADDED_TYPES, IK_HINT, IK_TYPES
from ggbench.gguf_file.model_file import TensorInfo, layer_of
from ggbench.record import Record

_ALIASES = {
    "mxfp4_moe": "mxfp4", "fp16": "f16", "fp32": "f32", "q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m",
}  # fmt: skip
"""Other names, and the short ones that llama-quantize accepts, with llama.cpp's."""
MIXTURE = "ud-"
"""Prefix of Unsloth's own mixtures of types, which differ by tensor and by model."""

# publishers add sizes of their own (`Q8_K_XL`, `Q2_K_L`, `Q4_K_P`), and some leave the separators out (`q4km`)
_TOKEN = re.compile(
    r"(?:^|[-._ /])(?P<quant>(?:ud[-_])?(?:"
    r"bf16|f16|f32|fp16|fp32|mxfp4(?:_moe)?|nvfp4|tq[12]_0"
    r"|i?q[1-8](?:_?(?:[01klmpstv]|nl|bn|x{1,2}[sl]|r[48])){1,6}"
    r"))(?=$|[-. ])",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(?P<name>(?:all )?[A-Za-z0-9_]+)(?: - (?P<size>Small|Medium|Large))?")
_SIZES = {None: "", "Small": "_s", "Medium": "_m", "Large": "_l"}


def canonical_quant(name: str) -> str:
    """Return the one spelling of a quant, in lower case: `q4_k_m` of `q4km` and `Q4_K`, `ud-q4_k_s` of `UD_Q4_K_S`."""
    lower = name.lower()
    bare = re.sub(r"\Aud[-_]", "", lower)
    known = _spellings().get(compact(bare), bare)
    return known if bare == lower else f"{MIXTURE}{known}"


@functools.cache
def _spellings() -> dict[str, str]:
    """Return every known name, and those of ik_llama.cpp's types, by what is left of it without separators."""
    names = {compact(name): name for name in (*IK_TYPES.values(), *known_quants())}
    return names | {compact(other): name for other, name in _ALIASES.items()}


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


def ftype_by_name(name: str) -> int:
    """Return the `enum llama_ftype` of a quant by its name, in any spelling.

    Raises Unsupported for a type of ik_llama.cpp, else UnknownName.
    """
    quant = canonical_quant(name)
    number = known_quants().get(quant)
    if number is None:
        if quant in IK_TYPES.values():
            raise Unsupported(f"{quant} is a type that only ik_llama.cpp has", IK_HINT)
        raise UnknownName("quant", name, known_quants(), listed_by="ggbench help names")
    return number


def quant_by_ftype(file_type: object) -> str | None:
    """Return the name of a `general.file_type`; None for one that neither gguf nor ggbench knows.

    llama.cpp sets the flag `LLAMA_FTYPE_GUESSED` in a file type not given by the file; it is ignored here.
    """
    stated = file_type & ~int(gguf_constants.LlamaFileType.GUESSED) if isinstance(file_type, int) else None
    return next((name for name, number in known_quants().items() if number == stated), None)


def quant_label(path: str | Path, metadata: Mapping[str, object] | None = None) -> str | None:
    """Return the quant of a .gguf, as every list and table names it; None if neither its name nor its header has one.

    `path` ends with the name of the file and, for one without a quant in it, of its folder; `metadata` is the header's,
    once it is read. The header wins, but its file type cannot express a publisher's own mixtures, `ud-` or `_xl`.
    """
    named = _named(str(path))
    stated = quant_by_ftype((metadata or {}).get("general.file_type"))
    return stated if stated and (named is None or named in _spellings().values()) else named


def _named(path: str) -> str | None:
    """Return the last quant in a file's name, else in its folder's."""
    for part in reversed(path.split("/")[-2:]):
        matches = [match["quant"] for match in _TOKEN.finditer(model_name(part))]
        if matches:
            return canonical_quant(matches[-1])
    return None


def name_without_quant(file_name: str) -> str:
    """Return a file's name without shard suffix, `.gguf` and quant: the same for all quants of a model."""
    name = model_name(file_name)
    matches = list(_TOKEN.finditer(name))
    return name[: matches[-1].start()] + name[matches[-1].end() :] if matches else name


Role = Literal["model", "draft", "projector", "imatrix", "vocabulary", "adapter"]
"""What a .gguf is for."""
DRAFT_HEADS = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "gemma4-assistant": "draft-mtp"}
"""llama-server's types of drafts by architectures whose context needs the target's."""
_TYPES: Mapping[object, Role] = {"adapter": "adapter", "imatrix": "imatrix", "mmproj": "projector"}
"""Roles by `general.type`. Source: gguf's `GGUFType`."""
_ROLES = re.compile(
    r"(?P<draft>(?:^|/)mtp[-_./]|(?:^|[-._/])(?:eagle3|dflash|dspark)(?=[-._/]))"
    r"|(?:^|[-._/])(?:(?P<projector>mmproj)|(?P<imatrix>imatrix)|(?P<vocabulary>ggml-vocab))(?=[-._/])",
    re.IGNORECASE,
)
"""Words in names of sidecars; llama.cpp looks for `mmproj`, `mtp-`, `eagle3-`, `dflash-`, `dspark-` (download.cpp)."""


def role(
    path: str, metadata: Mapping[str, object] | None = None, tensors: Collection[TensorInfo] | None = None
) -> Role:
    """Return what a .gguf is for: by its header once that is read, before that by its name.

    `path` is the one in its folder or repo. `tensors` are None if only metadata were read, as far as the vocabulary. A
    name may mislead: some files named `X-mtp.gguf` have only a model's MTP layers, others the whole model, so all count
    as models. A name with both `imatrix` and a quant is that of a model; with `imatrix` alone, of the matrix.
    """
    if metadata is not None:
        return _role_by_header(metadata, tensors)
    found = _ROLES.search(path)
    if found is None or (found["imatrix"] and _TOKEN.search(model_name(path.rpartition("/")[2]))):
        return "model"
    return cast(Role, found.lastgroup)


def _role_by_header(metadata: Mapping[str, object], tensors: Collection[TensorInfo] | None) -> Role:
    architecture = metadata.get("general.architecture")
    if stated := _TYPES.get(metadata.get("general.type")):
        return stated
    if architecture == "clip":
        return "projector"
    if architecture in DRAFT_HEADS or _has_only_nextn(f"{architecture}.", metadata, tensors or ()):
        return "draft"
    is_empty = tensors is not None and not tensors
    return "vocabulary" if is_empty and not metadata.get("split.count") else "model"


def _has_only_nextn(prefix: str, metadata: Mapping[str, object], tensors: Collection[TensorInfo]) -> bool:
    """Return whether all layers only draft (NextN, MTP), as in a file beside the model."""
    n_layer, n_nextn = (metadata.get(f"{prefix}{key}") for key in ("block_count", "nextn_predict_layers"))
    if not isinstance(n_layer, int) or not isinstance(n_nextn, int):
        return False
    layers = [layer for tensor in tensors if (layer := layer_of(tensor.name)) is not None]
    return bool(layers) and min(layers) >= n_layer - n_nextn


@functools.cache
def known_quants() -> dict[str, int]:
    """Return the `enum llama_ftype` of every quant that llama.cpp can make, in numerical order."""
    numbers = {added.name: file_type for added, file_type in ADDED_TYPES.items()}
    for entry in gguf_constants.LlamaFileType:
        if entry is not gguf_constants.LlamaFileType.GUESSED:
            name = entry.name.removeprefix("ALL_").removeprefix("MOSTLY_").lower()
            numbers[_ALIASES.get(name, name)] = int(entry)
    return dict(sorted(numbers.items(), key=lambda item: item[1]))


_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)


class ShardName(Record):
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
