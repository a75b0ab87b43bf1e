"""Find the model of a pasted command: its file here, its repo, or the model of the catalog with its name."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.engines.llama.command_line import CommandLine
from ggbench.errors import NetworkError, UnknownName, UsageError
from ggbench.gguf_file.quants import model_name, plain_quant, quant_label
from ggbench.hub.access import HubAccess
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import ModelRef, parse_model, split_quant
from ggbench.models.sources import OnProgress
from ggbench.models.targets import Target, resolve_headers, single
from ggbench.paths import path_exists
from ggbench.show.words import say
from ggbench.text import shorten_middle

_DEFAULT_QUANT = "q4_k_m"
"""What llama.cpp takes of a repo without a tag."""
_ASK = "name it: ggbench check LINE MODEL QUANT, e.g. qwen3-14b q4_k_m"


def find_target(
    line: CommandLine, named: tuple[str, ...], hub: HubAccess, on_progress: OnProgress | None
) -> tuple[ModelRef, Target, str]:
    """Return the model of a command, or the one `named` as MODEL and QUANT, and a note if another stands for it.

    Raises UsageError if nothing says which it is, and like `resolve_headers`.
    """

    def resolved(ref: ModelRef) -> tuple[ModelRef, Target]:
        return ref, single(resolve_headers(ref, hub=hub, on_progress=on_progress))

    if named:
        return *resolved(parse_model(*named)), ""
    text = line.model
    if not text:
        raise UsageError("the command names no model", _ASK)
    if path_exists(text) and not line.is_published:
        return *resolved(parse_model(text)), ""
    if line.is_published:
        try:
            return *resolved(_published(text)), ""
        except NetworkError:
            if load_catalog().called(text) is None:
                raise
    return _by_name(text)


def _published(text: str) -> ModelRef:
    """Return the model of `org/name:QUANT`, as the catalog has it if that is one of its quants."""
    ref = parse_model(text)
    ref = ref if ref.quants else ref.of_quants(_DEFAULT_QUANT)
    known = load_catalog().of_repo(ref.name)
    if known is None or (known.quants and ref.quants[0] not in known.quants):
        return ref
    return replace(parse_model(known.id), quants=ref.quants)


def _by_name(text: str) -> tuple[ModelRef, Target, str]:
    """Return the catalog's model with the name of a file, a repo or `org/name:QUANT`. Raises UsageError."""
    file = text.replace("\\", "/").rpartition("/")[2]
    stem, tag = split_quant(file) if text.count("/") == 1 else (file, None)
    known = load_catalog().called(model_name(stem))
    quant = tag or quant_label(stem)
    if known is None or quant is None:
        raise UsageError(
            f"{shorten_middle(file, 60)} is not here, and its name says no model of the catalog", _ASK
        )
    for each in dict.fromkeys((quant.lower(), plain_quant(quant.lower()))):
        try:
            ref = parse_model(known.id, each)
            target = single(resolve_headers(ref))
        except UnknownName as error:
            unknown = error
            continue
        shown = shorten_middle(file, 60)
        return ref, target, say("check.named", file=shown, model=known.id, quant=each)
    raise unknown
