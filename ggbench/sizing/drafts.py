"""Which models draft: refuse what llama-server would, and what cannot be sized."""

from __future__ import annotations

from msgspec.structs import replace

from ggbench.engines.llama.defaults import LOADS_MTP_IF_ASKED
from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile, layer_of
from ggbench.gguf_file.quants import role
from ggbench.models.catalog import load_catalog
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

MOST_TOKENS_APART = 128
"""SPEC_VOCAB_MAX_SIZE_DIFFERENCE of speculative.cpp."""
_TOKENIZERS = {"gemma": "llama", "gemma2": "llama", "gemma3": "llama", "gemma3n": "llama", "gemma4": "gemma4"}
"""Kinds of tokenizers that differ where the vocabularies are equally large. Source: llama.cpp's conversion/gemma.py."""


def has_mtp(file: ModelFile) -> bool:
    """Return whether a file has layers that llama.cpp drafts with."""
    has_layers = any(".nextn." in tensor.name for tensor in file.tensors)
    return has_layers and file.architecture in LOADS_MTP_IF_ASKED


def check_drafts(draft: ModelFile | None, target: ModelFile) -> None:
    """Raise like `check_pair` for a draft model; without one BadFile for a target without MTP layers."""
    if draft is not None:
        check_pair(target, draft)
    elif not has_mtp(target):
        name = sanitize(target.name)
        raise BadFile(
            f"{name} has no MTP layers that llama.cpp drafts with",
            f"draft with a model, --draft MODEL, or with none; {files_with_mtp(target.name)}",
        )


def files_with_mtp(name: str) -> str:
    """Return which files of a model have MTP layers, or of which current models the files do."""
    catalog = load_catalog()
    known = catalog.called(name)
    if known is not None and known.mtp_repo:
        return f"{known.mtp_repo} has files with them"
    having = [model.id for model in catalog.current if model.hyper.n_layer_nextn]
    return f"models with them: {', '.join(having)}"


def mtp_model(file: ModelFile) -> ModelFile:
    """Return what drafts of a file's MTP layer as a model of its own, with the output, its own or that of the model.

    Tables of which a draft reads a row are left out. llama.cpp drafts with one layer.
    """
    first = file.n_layer - file.n_layer_nextn
    kept = {tensor.name: tensor for tensor in file.tensors if layer_of(tensor.name) is None}
    drafting = [tensor for tensor in file.tensors if (layer_of(tensor.name) or 0) >= first]
    for tensor in drafting:
        name = tensor.name.replace(f"blk.{layer_of(tensor.name)}.", "blk.0.")
        if "nextn.shared_head_head" in name:
            name = "output.weight"
        if "nextn.embed_tokens" not in name:
            kept[name] = replace(tensor, name=name)
    of_layers = ("n_head", "n_head_kv", "n_ff", "experts_used", "states")
    return replace(
        file,
        n_layer=1,
        n_layer_nextn=0,
        tensors=tuple(kept.values()),
        **{name: getattr(file, name)[first : first + 1] for name in of_layers},
    )


def check_pair(target: ModelFile, draft: ModelFile) -> None:
    """Raise Unsupported for a target that llama-server refuses to draft for, UsageError for one that is smaller, and
    BadFile for a draft of unknown size.

    llama-server also compares the tokens themselves; their texts are not in `ModelFile`.
    """
    name, of = sanitize(draft.name), sanitize(target.name)
    if draft.weight_bytes is None:
        raise BadFile(
            f"the draft {name} has tensors of unknown type: {sanitize(', '.join(draft.unknown_types))}",
            "use another quant of it",
        )
    kinds = [_tokenizer(file) for file in (draft, target)]
    sizes = [file.n_vocab or 0 for file in (draft, target)]
    hint = _instead_of(target)
    if all(kinds) and kinds[0] != kinds[1]:
        raise Unsupported(
            f"the draft {name} and {of} use different tokenizers: {sanitize(f'{kinds[0]}, {kinds[1]}')}", hint
        )
    if all(sizes) and abs(sizes[0] - sizes[1]) > MOST_TOKENS_APART:
        counts = " and ".join(map(format_count, sizes))
        raise Unsupported(f"the vocabularies of the draft {name} and of {of} differ: {counts} tokens", hint)
    if target.weight_bytes is not None and draft.weight_bytes > target.weight_bytes:
        larger, than = map(format_bytes, (draft.weight_bytes, target.weight_bytes))
        raise UsageError(f"the draft {name} is larger than {of}: {larger}, {than}", "give a smaller draft")


def _instead_of(target: ModelFile) -> str:
    """Return what drafts for a model, where a draft cannot."""
    own = f", or --mtp: {sanitize(target.name)} has MTP layers of its own" if has_mtp(target) else ""
    return f"use a smaller model of the same family{own}"


def _tokenizer(file: ModelFile) -> str:
    """Return the kind of a file's tokenizer; for a header without one, that of its architecture, empty if unknown."""
    found = str(file.metadata.get("tokenizer.ggml.model") or "none")
    return _TOKENIZERS.get(file.architecture, "") if found == "none" else found


def check_rolls_back(file: ModelFile) -> None:
    """Raise Unsupported for a model with a recurrent state, which a rejected token has already changed."""
    if any(state.recurrent_elements for state in file.states):
        raise Unsupported(
            f"{sanitize(file.name)} has recurrent layers ({file.architecture}), which cannot forget rejected tokens",
            "measure it with --engine llama-server, which restores a copy of their state",
        )


def check_stands_alone(file: ModelFile) -> None:
    """Raise Unsupported for a draft head."""
    if role(file.name, file.metadata, file.tensors) == "draft":
        raise Unsupported(
            f"{sanitize(file.name)} is a draft head ({file.architecture}), which cannot be sized without its model",
            "give a stand-alone draft model, or measure it: ggbench speculate ... --engine llama-server",
        )
