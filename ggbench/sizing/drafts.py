"""Size speculative decoding: a draft model, or the model's own MTP layers.

llama-server gives the second context the n_ctx, slots and batches of the first, but an f16 cache, all layers on the
GPU and one output for each slot. MTP layers lie in the model's file, so only a context is added. Source:
`common_base_params_to_speculative` and `common_speculative_init_result` in llama.cpp's speculative.cpp.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import Engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.defaults import DRAFT_TOKENS
from ggbench.errors import BadFile, Unsupported, UsageError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import write_sparse
from ggbench.sizing.dry_allocator import DraftMemory, DryAllocator, DryContext
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget
from ggbench.sizing.theory.offload import HOST
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

_MOST_TOKENS_APART = 128
"""SPEC_VOCAB_MAX_SIZE_DIFFERENCE of speculative.cpp."""
_HEADS = frozenset({"eagle3", "dflash", "gemma4-assistant"})
"""Architectures whose context needs the target's, which a dry one does not have."""


class Draft:
    """A draft model with a dry worker of its own, which `close` stops."""

    def __init__(self, file: ModelFile, engine: Engine, setup: LlamaConfig, budget: Budget) -> None:
        """`setup` is the target's as loaded."""
        self.file = file
        self._stack = contextlib.ExitStack()
        self._allocator = self._stack.enter_context(DryAllocator(engine, setup.for_draft(), budget.devices))
        self._is_loaded = False

    def close(self) -> None:
        self._stack.close()

    def context(self, n_ctx: int, setup: LlamaConfig) -> DryContext:
        """Return the size of the draft's context. Raises EngineEnded."""
        if not self._is_loaded:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ggbench-"))
            self._allocator.load(self.file, write_sparse(self.file, Path(folder)))
            self._is_loaded = True
        return self._allocator.context(n_ctx, setup)


class DraftingAllocator(DryAllocator):
    """A dry allocator whose contexts are those of a target, each with what drafts for it."""

    def __init__(self, engine: Engine, setup: LlamaConfig, budget: Budget, draft: Draft | None) -> None:
        """Without a `draft`, the MTP layers of the model draft, as `setup.mtp` says."""
        super().__init__(engine, setup, budget.devices)
        self._budget, self._draft = budget, draft

    def __exit__(self, *_: object) -> None:
        try:
            super().__exit__()
        finally:
            if self._draft is not None:
                self._draft.close()

    def load(self, file: ModelFile, path: Path) -> tuple[str, ...]:
        """Load like a dry allocator. Raises also UsageError for an unsuitable draft, and BadFile without MTP layers."""
        if self._draft is not None:
            check_pair(file, self._draft.file)
        elif not any(".nextn." in tensor.name for tensor in file.tensors):
            raise BadFile(f"{sanitize(file.name)} has no MTP layers", "omit --mtp, or use a file converted with them")
        return super().load(file, path)

    def context(self, n_ctx: int, setup: LlamaConfig | None = None) -> DryContext:
        """Return the size of a context with its draft, unless `setup` turns MTP layers off. Raises EngineEnded."""
        setup = setup or self._setup
        if self._draft is None and not setup.mtp:
            return super().context(n_ctx, setup)
        n_outputs = min(setup.n_batch, setup.n_seq_max * (1 + DRAFT_TOKENS))
        context = super().context(n_ctx, replace(setup, n_outputs_max=n_outputs))
        if self._draft is not None:
            file, alike = self._draft.file, setup.for_draft()
            drafting = self._draft.context(context.n_ctx, alike)
        else:
            assert self._file is not None
            file, alike = _without_weights(self._file), replace(setup, ctx_type="mtp", type_k="f16", type_v="f16")
            drafting = super().context(context.n_ctx, alike)
        return replace(context, draft=self._memory(file, alike, drafting))

    def _memory(self, file: ModelFile, setup: LlamaConfig, context: DryContext) -> DraftMemory:
        budget = self._budget
        placement = Placement(file, setup, on_gpu=budget.on_gpu, devices=budget.devices, host=budget.host)
        if budget.devices:
            needed = [device.needed_bytes for device in placement.planned(context)]
            by_place = dict(zip((*range(len(budget.devices)), HOST), needed, strict=False))
        else:
            by_place = {HOST: (placement.weight_bytes or 0) + placement.context_bytes(context)}
        return DraftMemory(by_place, placement.process_bytes(context))


def check_pair(target: ModelFile, draft: ModelFile) -> None:
    """Raise UsageError for a target that llama-server refuses to draft for, or that is smaller.

    llama-server also compares the tokens themselves; their texts are not in `ModelFile`.
    """
    name, of = sanitize(draft.name), sanitize(target.name)
    kinds = [file.metadata.get("tokenizer.ggml.model") for file in (draft, target)]
    sizes = [file.n_vocab or 0 for file in (draft, target)]
    hint = "use a smaller model of the same family"
    if all(kinds) and kinds[0] != kinds[1] and "none" not in kinds:  # a twin has none
        raise UsageError(
            f"the draft {name} and {of} use different tokenizers: {sanitize(f'{kinds[0]}, {kinds[1]}')}", hint
        )
    if all(sizes) and abs(sizes[0] - sizes[1]) > _MOST_TOKENS_APART:
        counts = " and ".join(map(format_count, sizes))
        raise UsageError(f"the vocabularies of the draft {name} and of {of} differ: {counts} tokens", hint)
    if (draft.weight_bytes or 0) > (target.weight_bytes or draft.weight_bytes or 0):
        larger, than = map(format_bytes, (draft.weight_bytes, target.weight_bytes))
        raise UsageError(f"the draft {name} is larger than {of}: {larger}, {than}", "give a smaller draft")


def check_rolls_back(file: ModelFile) -> None:
    """Raise Unsupported for a model with a recurrent state, which a rejected token has already changed."""
    if any(state.recurrent_elements for state in file.states):
        raise Unsupported(
            f"{sanitize(file.name)} has recurrent layers ({file.architecture}), which cannot forget rejected tokens",
            "llama-server restores a copy of their state after each rejection; measure that with a server",
        )


def check_stands_alone(file: ModelFile) -> None:
    """Raise Unsupported for a draft head."""
    if file.architecture in _HEADS:
        raise Unsupported(
            f"{sanitize(file.name)} is a draft head ({file.architecture}), which cannot be sized without its model",
            "use a stand-alone draft model",
        )


def _without_weights(file: ModelFile) -> ModelFile:
    """Return the file of a second context: without weights and vocabulary, its cache unknown to the theory."""
    return replace(file, tensors=(), metadata={}, no_kv_reason="runs only the MTP layers")
