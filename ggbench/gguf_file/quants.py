"""Names of quants: from `general.file_type`, from file names, and back to llama.cpp's numbers.

A quant's name says how it was made, not how large it is: BPW comes from the tensor table. Names are matched whole,
because llama.cpp's own looser matching takes `BF16` for `F16` and `IQ3_XXS` for `Q3_XXS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ggbench.errors import UnknownName
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.shards import model_name

# Source: enum llama_ftype in llama.h. From the most bits for each weight to the fewest.
_FTYPES = {
    "f32": 0, "bf16": 32, "f16": 1, "q8_0": 7, "q6_k": 18,
    "q5_1": 9, "q5_k_m": 17, "q5_k_s": 16, "q5_0": 8,
    "q4_1": 3, "q4_k_m": 15, "q4_k_s": 14, "q4_0": 2, "iq4_nl": 25, "nvfp4": 39, "iq4_xs": 30, "mxfp4": 38,
    "q3_k_l": 13, "q3_k_m": 12, "iq3_m": 27, "iq3_s": 26, "q3_k_s": 11, "iq3_xs": 22, "iq3_xxs": 23,
    "q2_k": 10, "q2_k_s": 21, "iq2_m": 29, "iq2_s": 28, "iq2_xs": 20, "q2_0": 41, "tq2_0": 37, "iq2_xxs": 19,
    "iq1_m": 31, "tq1_0": 36, "iq1_s": 24, "q1_0": 40,
}  # fmt: skip
_BY_FTYPE = {number: name for name, number in _FTYPES.items()}
_ALIASES = {"mxfp4_moe": "mxfp4", "fp16": "f16", "fp32": "f32"}
_SHORT = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}
"""What llama-quantize takes these for."""
_GUESSED_FLAG = 1024
"""`LLAMA_FTYPE_GUESSED`: or-ed into a file type that no key of the file gave."""

# Publishers add sizes of their own (`Q8_K_XL`, `Q3_K_XL`, `Q2_K_L`), so the suffix is wider than llama.cpp's list.
_TOKEN = re.compile(
    r"(?:^|[-._ /])(?P<quant>(?:ud[-_])?(?:"
    r"bf16|f16|f32|fp16|fp32|mxfp4(?:_moe)?|nvfp4"
    r"|i?q[1-8]_(?:k(?:_(?:xxs|xs|s|m|l|xl))?|[01]|nl|xxs|xs|s|m|l|xl)(?:_(?:xxs|xs|s|m|l|xl))?"
    r"|tq[12]_0"
    r"))(?=$|[-. ])",
    re.IGNORECASE,
)
_SIDECAR = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix|eagle3)(?=$|[-._/])|(?:^|/)mtp[-_.]", re.IGNORECASE)


def known_quants() -> tuple[str, ...]:
    """Every quant that llama.cpp can make, from the largest to the smallest."""
    return tuple(_FTYPES)


def canonical_quant(name: str) -> str:
    """The name as ggbench writes it: lower case, `ud-` with a hyphen, one spelling of each float."""
    lower = name.lower()
    lower = f"ud-{lower[3:]}" if lower.startswith("ud_") else lower
    return _ALIASES.get(lower, lower)


def ftype_by_name(name: str) -> int:
    """`enum llama_ftype` of a quant's name in any case, as `llama_model_quantize` takes it. Raises UnknownName."""
    quant = canonical_quant(name)
    number = _FTYPES.get(_SHORT.get(quant, quant))
    if number is None:
        raise UnknownName("quant", name, _FTYPES)
    return number


def quant_by_ftype(file_type: int) -> str | None:
    """The name of a `general.file_type`; None for one that ggbench does not know."""
    return _BY_FTYPE.get(file_type & ~_GUESSED_FLAG)


def quant_from_file_name(file_name: str) -> str | None:
    """The quant that a file's name claims, else its folder's: `q4_k_m`, `ud-q4_k_xl`; None where none does."""
    for part in reversed(file_name.split("/")):
        matches = [match["quant"] for match in _TOKEN.finditer(model_name(part))]
        if matches:
            return canonical_quant(matches[-1])
    return None


def names_quant(wanted: str, quant: str | None, names: Iterable[str]) -> bool:
    """Whether `wanted`, in any case, means the variant of this quant (lower case, None unknown) and these names."""
    wanted = wanted.lower()
    if wanted == quant or wanted in (name.lower() for name in names):
        return True
    # `fp16` is another spelling of a quant; a file's name with a quant in it is longer by two characters at least.
    return quant is not None and quant_from_file_name(wanted) == quant and len(wanted) <= len(quant) + 1


def quant_label(model_file: ModelFile) -> str:
    """What to call a model file's quant: a maker's own name from the file's name, else the header's, else the name's.

    A file type in the header cannot express `ud-` mixes or suffixes such as `_xl`, so a name that refines it wins.
    """
    named = quant_from_file_name(model_file.paths[0].name if model_file.paths else model_file.name)
    file_type = model_file.metadata.get("general.file_type")
    stated = quant_by_ftype(file_type) if isinstance(file_type, int) else None
    if named is not None and (stated is None or _SHORT.get(named, named) not in _FTYPES):
        return named
    return stated or "unknown"


def is_sidecar(file_name: str) -> bool:
    """Whether a .gguf belongs to a model without being one: a projector, an importance matrix, a draft head."""
    return _SIDECAR.search(file_name) is not None
