"""Size speculative decoding: a draft model, or the model's own MTP layers.

llama-server gives the second context the n_ctx, slots and batches of the first, but a cache of other types, f16 by
default, all layers on the GPU and one output for each slot (`LlamaConfig.for_draft`). MTP layers lie in the model's
file, so only a context is added.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.sizing.dry_allocator import DraftContext, DryAllocator, DryContext, LoadedHeader
from ggbench.sizing.plan_record import DeviceMemory
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


class DraftingAllocator(DryAllocator):
    """A dry allocator whose contexts are those of a target, each with what drafts for it, if anything does."""

    def __init__(
        self,
        engine: Engine,
        setup: LlamaConfig,
        devices: Sequence[DeviceMemory],
        draft: ModelFile | None,
        launch: Callable[[], Engine],
    ) -> None:
        """Without a `draft`, the MTP layers of the model draft if `setup.mtp` says so.

        A draft is sized by a worker of its own, which `launch` starts when it is needed.
        """
        super().__init__(engine, setup, devices)
        self._draft, self._launch = draft, launch
        self._stack = contextlib.ExitStack()

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            self._stack.close()

    @functools.cached_property
    def _of_draft(self) -> DryAllocator:
        """The draft's allocator, with its header loaded. Raises EngineEnded."""
        assert self._draft is not None
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="ggbench-"))
            path = write_sparse(self._draft, Path(folder))
            found = opened.enter_context(DryAllocator(self._launch(), self._setup.for_draft(), self._devices))
            found.load(self._draft, path)
            self._stack = opened.pop_all()
        return found

    def load(self, file: ModelFile, path: Path) -> LoadedHeader:
        """Load like a dry allocator. Raises also like `check_drafts`."""
        if self._draft is not None or self._setup.mtp:
            check_drafts(self._draft, file)
        return super().load(file, path)

    def context(self, n_ctx: int, setup: LlamaConfig | None = None) -> DryContext:
        """Return the size of a context with its draft, unless `setup` turns MTP layers off. Raises EngineEnded."""
        setup = setup or self._setup
        if self._draft is None and not setup.mtp:
            return super().context(n_ctx, setup)
        context, alike = super().context(n_ctx, setup.of_target()), setup.for_draft()
        if self._draft is not None:
            file, drafting = self._draft, self._of_draft.context(context.n_ctx, alike)
        else:
            assert self._loaded is not None
            file, drafting = _without_weights(self._loaded.file), super().context(context.n_ctx, alike)
        return replace(context, draft=DraftContext(file, alike, drafting))


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
    if file.architecture in DRAFT_HEADS:
        raise Unsupported(
            f"{sanitize(file.name)} is a draft head ({file.architecture}), which cannot be sized without its model",
            "give a stand-alone draft model, or measure it: ggbench speculate ... --engine llama-server",
        )


def _without_weights(file: ModelFile) -> ModelFile:
    """Return the file of a second context: without weights and vocabulary, its cache unknown to the theory."""
    return replace(file, tensors=(), metadata={}, no_kv_reason="runs only the MTP layers")
