"""Which models draft: refuse what llama-server would, and what cannot be sized."""

from __future__ import annotations

from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import role
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

MOST_TOKENS_APART = 128
"""SPEC_VOCAB_MAX_SIZE_DIFFERENCE of speculative.cpp."""
_TOKENIZERS = {"gemma": "llama", "gemma2": "llama", "gemma3": "llama", "gemma3n": "llama", "gemma4": "gemma4"}
"""Kinds of tokenizers that differ where the vocabularies are equally large. Source: llama.cpp's conversion/gemma.py."""
DRAFT_HEADS = {"eagle3": "draft-eagle3", "dflash": "draft-dflash", "gemma4-assistant": "draft-mtp"}
"""llama-server's types of drafts by architectures whose context needs the target's, which a dry one does not have.
Other models draft as `draft-simple`.
"""


def check_drafts(draft: ModelFile | None, target: ModelFile) -> None:
    """Raise like `check_pair` for a draft model; without one BadFile for a target without MTP layers."""
    if draft is not None:
        check_pair(target, draft)
    elif not any(".nextn." in tensor.name for tensor in target.tensors):
        raise BadFile(
            f"{sanitize(target.name)} has no MTP layers", "omit --mtp, or use a file converted with them"
        )


def check_pair(target: ModelFile, draft: ModelFile) -> None:
    """Raise UsageError for a target that llama-server refuses to draft for, or that is smaller, and BadFile for a draft
    of unknown size.

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
    hint = "use a smaller model of the same family"
    if all(kinds) and kinds[0] != kinds[1]:
        raise UsageError(
            f"the draft {name} and {of} use different tokenizers: {sanitize(f'{kinds[0]}, {kinds[1]}')}", hint
        )
    if all(sizes) and abs(sizes[0] - sizes[1]) > MOST_TOKENS_APART:
        counts = " and ".join(map(format_count, sizes))
        raise UsageError(f"the vocabularies of the draft {name} and of {of} differ: {counts} tokens", hint)
    if target.weight_bytes is not None and draft.weight_bytes > target.weight_bytes:
        larger, than = map(format_bytes, (draft.weight_bytes, target.weight_bytes))
        raise UsageError(f"the draft {name} is larger than {of}: {larger}, {than}", "give a smaller draft")


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
