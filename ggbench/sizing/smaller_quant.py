"""What to take in place of a quant that does not fit."""

from __future__ import annotations

from pathlib import Path

from ggbench.errors import GgbenchError
from ggbench.gguf_file.quants import name_without_quant
from ggbench.models.local_files import local_variants
from ggbench.models.targets import Target
from ggbench.units import format_bytes


def smaller_quant_advice(target: Target, room_bytes: int, in_budget: float = 1.0) -> str:
    """The largest smaller quant whose weights those bytes hold, else that there is none.

    `in_budget` is the share of the weights that lies in the memory that is too small: that of the target's own, since
    the others keep as many layers elsewhere.
    """
    sizes = {quant: round(n_bytes * in_budget) for quant, n_bytes in _sizes(target).items()}
    most_bytes = min(room_bytes, sizes.get(target.quant, room_bytes + 1) - 1)
    fitting = {quant: n_bytes for quant, n_bytes in sizes.items() if n_bytes <= most_bytes and quant != target.quant}
    about = "about " if in_budget < 1 else ""
    if fitting:
        quant = max(fitting, key=lambda each: fitting[each])
        return f"{quant} would fit: its weights take {about}{format_bytes(fitting[quant])} there"
    smallest = min(sizes, key=lambda each: sizes[each], default=target.quant)
    if smallest == target.quant:
        return "there is no smaller quant here; take a smaller model, or allow it more memory"
    taken = f"{about}{format_bytes(sizes[smallest])}"
    return f"not even {smallest} would fit, with weights of {taken}; take a smaller model"


def _sizes(target: Target) -> dict[str, int]:
    """Bytes of the weights of every available quant: by the source, else of the files in the same folder."""
    source = target.own or target.source
    if source is not None:
        return source.sizes()
    if target.path is None:
        return {}
    try:
        variants = local_variants(Path(target.path).parent)
    except GgbenchError:
        return {}
    return {
        variant.quant: variant.file_bytes
        for variant in variants
        if variant.quant
        and not variant.missing
        and name_without_quant(variant.paths[0].name).lower() == name_without_quant(target.path.name).lower()
    }
